"""Whom the API server is told to ask about what, for which settings. What the expressions mean is for cluster tests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.settings import GpuPods, Integrations, Settings, WithoutQueue
from admission.settings.configuration import LabelSelector
from admission.webhook import configuration
from admission.webhook.configuration import ByService, ByUrl, manifests, webhooks
from admission.webhook.publishing import difference
from tests.unit.webhook.asking import settings

SERVICE = ByService("muster-system", "kueue-webhook-service")
RESEARCH = LabelSelector(match_labels={"team": "research"})


def entries(made_for: Settings) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for each in webhooks(made_for, SERVICE) for entry in each["webhooks"]}


def policies(made_for: Settings) -> set[str]:
    return {
        each["metadata"]["name"] for each in manifests(made_for, SERVICE) if each["kind"] == "ValidatingAdmissionPolicy"
    }


@pytest.mark.parametrize(
    ("made_for", "want"),
    [
        pytest.param(
            settings(),
            "mpod mjob mclusterqueue mresourceflavor vjob vclusterqueue vcohort vlocalqueue vresourceflavor vworkload",
            id="both integrations",
        ),
        pytest.param(
            settings(integrations=Integrations(frameworks=("batch/job",))),
            "mjob mclusterqueue mresourceflavor vjob vclusterqueue vcohort vlocalqueue vresourceflavor vworkload",
            id="jobs only",
        ),
        pytest.param(
            settings(GpuPods(namespace_selector=RESEARCH)),
            "mpod mgpupod mjob mgpujob mclusterqueue mresourceflavor vjob vclusterqueue vcohort vlocalqueue "
            "vresourceflavor vworkload",
            id="GPUs in some namespaces",
        ),
        pytest.param(
            settings(GpuPods(namespace_selector=RESEARCH), manage_jobs_without_queue_name=True),
            "mpod mjob mclusterqueue mresourceflavor vjob vclusterqueue vcohort vlocalqueue vresourceflavor vworkload",
            id="everything is managed anyway",
        ),
        pytest.param(
            settings(feature_gates={"PartialAdmission": False}),
            "mpod mjob mclusterqueue mresourceflavor mworkload vjob vclusterqueue vcohort vlocalqueue "
            "vresourceflavor vworkload",
            id="no partial admission",
        ),
    ],
)
def test_who_is_asked(made_for: Settings, want: str) -> None:
    assert list(entries(made_for)) == [f"{name}.kb.io" for name in want.split()]


def test_nobody_is_asked_about_deletions_or_status() -> None:
    for entry in entries(settings()).values():
        for rule in entry["rules"]:
            assert "DELETE" not in rule["operations"]
            assert all("/" not in resource for resource in rule["resources"])


def test_a_pod_is_asked_about_once() -> None:
    pods = [entry for entry in entries(settings()).values() if entry["rules"][0]["resources"] == ["pods"]]
    assert [entry["rules"][0]["operations"] for entry in pods] == [["CREATE"]]


def test_what_cannot_be_asked_is_refused() -> None:
    assert {entry["failurePolicy"] for entry in entries(settings()).values()} == {"Fail"}


def test_own_and_system_namespaces_are_left_alone() -> None:
    want = {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "muster-system"]}
        ]
    }
    for name in ("mpod.kb.io", "mjob.kb.io", "vjob.kb.io"):
        assert entries(settings())[name]["namespaceSelector"] == want


def test_gpus_are_looked_for_where_both_selectors_match() -> None:
    made_for = settings(
        GpuPods(namespace_selector=RESEARCH),
        managed_jobs_namespace_selector=LabelSelector(match_labels={"muster": "on"}),
    )
    managed = {"key": "muster", "operator": "In", "values": ["on"]}
    research = {"key": "team", "operator": "In", "values": ["research"]}
    assert entries(made_for)["mpod.kb.io"]["namespaceSelector"] == {"matchExpressions": [managed]}
    assert entries(made_for)["mgpupod.kb.io"]["namespaceSelector"] == {"matchExpressions": [managed, research]}


@pytest.mark.parametrize(
    "gpu_pods",
    [
        pytest.param(GpuPods(enabled=False), id="switched off"),
        pytest.param(GpuPods(without_queue=WithoutQueue.ALLOW), id="let through"),
    ],
)
def test_gpus_are_not_looked_for(gpu_pods: GpuPods) -> None:
    assert "nvidia" not in msgspec.json.encode(manifests(settings(gpu_pods), SERVICE)).decode()


def test_patterns_become_the_cheapest_expression() -> None:
    made_for = settings(GpuPods(resources=("a.com/gpu", "b.com/*", "c.com/*-gpu")))
    expression = entries(made_for)["mpod.kb.io"]["matchConditions"][0]["expression"]
    assert 'r in ["a.com/gpu"]' in expression
    assert 'r.startsWith("b.com/")' in expression
    assert r'r.matches("^c\\.com/.*\\-gpu$")' in expression


def test_policies_go_with_the_integrations() -> None:
    assert policies(settings()) == {
        "muster-queued-pods-are-gated",
        "muster-managed-pods-stay-managed",
        "muster-queued-jobs-are-suspended",
        "muster-queued-jobs-are-started-when-admitted",
        "muster-workload-statuses-are-sound",
    }
    of_jobs = policies(settings(integrations=Integrations(frameworks=("batch/job",))))
    assert not any("pods" in name for name in of_jobs)


def test_it_is_reached_by_url() -> None:
    made = webhooks(settings(), ByUrl("https://10.0.0.1:9443/", b"PEM"))
    assert made[0]["webhooks"][0]["clientConfig"] == {
        "url": "https://10.0.0.1:9443/mutate--v1-pod",
        "caBundle": "UEVN",
    }


def test_the_manifests_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert configuration.main(["--check"]) == 0, capsys.readouterr().err


def test_stale_manifests_are_found(tmp_path: Any) -> None:
    assert configuration.main(["--check", "--folder", str(tmp_path)]) == 1
    assert configuration.main(["--folder", str(tmp_path)]) == 0
    assert configuration.main(["--check", "--folder", str(tmp_path)]) == 0
    (tmp_path / "policies.yaml").write_text("old")
    assert configuration.main(["--check", "--folder", str(tmp_path)]) == 1


# ------------------------------------------------------------------ what is stored


def stored(**changes: Any) -> dict[str, Any]:
    made = msgspec.json.decode(msgspec.json.encode(webhooks(settings(), SERVICE)[0]))
    made["metadata"] |= {"uid": "1", "resourceVersion": "7"}
    for entry in made["webhooks"]:
        entry["clientConfig"]["caBundle"] = "T0xE"
        entry.update(changes)
    return made


def test_what_is_equal_is_not_written() -> None:
    assert difference(webhooks(settings(), SERVICE)[0], stored()) is None


def test_the_authorities_of_others_are_kept() -> None:
    change = difference(webhooks(settings(), SERVICE)[0], stored(timeoutSeconds=3))
    assert change is not None
    assert {entry["clientConfig"]["caBundle"] for entry in change["webhooks"]} == {"T0xE"}
    assert {entry["timeoutSeconds"] for entry in change["webhooks"]} == {10}


def test_a_new_webhook_trusts_what_the_others_agree_on() -> None:
    present = stored()
    present["webhooks"] = present["webhooks"][1:]
    change = difference(webhooks(settings(), SERVICE)[0], present)
    assert change is not None
    assert {entry["clientConfig"].get("caBundle") for entry in change["webhooks"]} == {"T0xE"}
    present["webhooks"][0]["clientConfig"]["caBundle"] = "TkVX"
    change = difference(webhooks(settings(), SERVICE)[0], present)
    assert change is not None
    assert "caBundle" not in change["webhooks"][0]["clientConfig"]


def test_new_authorities_are_written() -> None:
    wanted = webhooks(settings(), ByService("muster-system", "kueue-webhook-service", b"NEW"))[0]
    change = difference(wanted, stored())
    assert change is not None
    assert {entry["clientConfig"]["caBundle"] for entry in change["webhooks"]} == {"TkVX"}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"namespaceSelector": {"matchLabels": {"a": "b"}}}, id="a selector of someone else"),
        pytest.param({"objectSelector": {"matchLabels": {"a": "b"}}}, id="a selector where none belongs"),
        pytest.param({"matchConditions": [{"name": "never", "expression": "false"}]}, id="another condition"),
        pytest.param({"failurePolicy": "Ignore"}, id="another failure policy"),
    ],
)
def test_what_differs_is_written(changes: dict[str, Any]) -> None:
    assert difference(webhooks(settings(), SERVICE)[0], stored(**changes)) is not None

"""What happens to Deployments, StatefulSets and LeaderWorkerSets as they are created and changed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from admission.settings import GpuPods, Integrations, Settings, WithoutQueue
from admission.webhook.configuration import ByService, webhooks
from tests.unit.webhook.asking import GPU, MANAGED, QUEUE, ask, container, owned, patched, settings

PARENT = "kueue.x-k8s.io/pod-suspending-parent"
PRIORITY = "kueue.x-k8s.io/priority-class"
SERVING = "kueue.x-k8s.io/pod-group-serving"
OFFSET = "kueue.x-k8s.io/pod-index-offset"
LWS = "leaderworkerset.x-k8s.io/leaderworkerset"
FRAMEWORKS = ("batch/job", "deployment", "statefulset", LWS)
ENABLED = settings(integrations=Integrations(frameworks=FRAMEWORKS))
ONE_GPU = {GPU: "1"}
SERVICE = ByService("muster-system", "kueue-webhook-service")


def with_gpus(**changes: Any) -> Settings:
    return settings(GpuPods(**changes), integrations=Integrations(frameworks=FRAMEWORKS))


def template(limits: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container(limits=limits)], **spec}}


def obj(kind: str, labels: Mapping[str, str] | None = None, *, ready: int = 0, **spec: Any) -> dict[str, Any]:
    made = {"template": template(), **spec}
    status = {"readyReplicas": ready, "replicas": ready}
    metadata = {"name": "x", "namespace": "ns", "labels": dict(labels or {})}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": made, "status": status}


def lws(labels: Mapping[str, str] | None = None, *, ready: int = 0, size: int = 3, **templates: Any) -> dict[str, Any]:
    made = {"size": size, "leaderTemplate": template(), "workerTemplate": template(), **templates}
    made = {name: each for name, each in made.items() if each is not None}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "x", "namespace": "ns", "labels": dict(labels or {})},
        "spec": {"replicas": 2, "leaderWorkerTemplate": made},
        "status": {"readyReplicas": ready, "replicas": ready},
    }


def mutated(made: dict[str, Any], old: dict[str, Any] | None = None, made_for: Settings = ENABLED) -> dict[str, Any]:
    response = ask("mutate", made, old, with_settings=made_for)
    assert response.allowed, response.message
    return patched(made, response)


def template_of(made: dict[str, Any], name: str = "template") -> dict[str, Any]:
    spec = made["spec"] if name == "template" else made["spec"]["leaderWorkerTemplate"]
    found: dict[str, Any] = spec[name]["metadata"]
    return found


# ------------------------------------------------------------------ as they are created


@pytest.mark.parametrize(
    ("made", "labels", "annotations"),
    [
        pytest.param(
            obj("Deployment", {QUEUE: "q", PRIORITY: "high"}),
            {"app": "a", MANAGED: "true", QUEUE: "q", PRIORITY: "high"},
            {PARENT: "deployment"},
            id="the pods of a Deployment get what they are queued by",
        ),
        pytest.param(
            obj("Deployment", template=template(ONE_GPU)),
            {"app": "a", MANAGED: "true", QUEUE: "default"},
            {PARENT: "deployment"},
            id="a Deployment that asks for GPUs joins the default queue",
        ),
        pytest.param(
            obj("StatefulSet", {QUEUE: "q"}),
            {"app": "a"},
            {PARENT: "statefulset"},
            id="the pods of a StatefulSet are only marked",
        ),
        pytest.param(
            obj("StatefulSet", template=template(ONE_GPU)),
            {"app": "a"},
            {PARENT: "statefulset"},
            id="also where it asks for GPUs",
        ),
        pytest.param(obj("StatefulSet"), {"app": "a"}, None, id="who asks for nothing special is left alone"),
        pytest.param(
            {**obj("StatefulSet", template=template(ONE_GPU)), "metadata": {"name": "x", "namespace": "gpu-operator"}},
            {"app": "a"},
            None,
            id="an exempt namespace is left alone",
        ),
    ],
)
def test_templates(made: dict[str, Any], labels: dict[str, str], annotations: dict[str, str] | None) -> None:
    metadata = template_of(mutated(made))
    assert metadata["labels"] == labels
    assert metadata.get("annotations") == annotations


def test_the_default_queue_is_named_on_the_object_itself() -> None:
    for kind in ("Deployment", "StatefulSet"):
        assert mutated(obj(kind, template=template(ONE_GPU)))["metadata"]["labels"] == {QUEUE: "default"}


def test_a_template_without_metadata_gets_some() -> None:
    made = obj("Deployment", {QUEUE: "q"}, template={"spec": template()["spec"]})
    assert template_of(mutated(made))["annotations"] == {PARENT: "deployment"}


def test_leaders_and_workers_are_marked() -> None:
    made = mutated(lws({QUEUE: "q", PRIORITY: "high"}))
    for name, offset in (("leaderTemplate", {}), ("workerTemplate", {OFFSET: "1"})):
        metadata = template_of(made, name)
        assert metadata["labels"] == {"app": "a", QUEUE: "q", PRIORITY: "high"}
        assert metadata["annotations"] == {PARENT: LWS, SERVING: "true", **offset}


@pytest.mark.parametrize(
    ("made", "made_for"),
    [
        pytest.param(lws({QUEUE: "q"}, leaderTemplate=None), ENABLED, id="without a leader of their own kind"),
        pytest.param(
            lws({QUEUE: "q"}),
            settings(
                integrations=Integrations(frameworks=FRAMEWORKS), feature_gates={"TopologyAwareScheduling": False}
            ),
            id="without topologies",
        ),
        pytest.param(
            lws(
                {QUEUE: "q"},
                workerTemplate={
                    "metadata": {"annotations": {"kueue.x-k8s.io/podset-group-name": "g"}},
                    "spec": template()["spec"],
                },
            ),
            ENABLED,
            id="in a group of pod sets",
        ),
    ],
)
def test_workers_are_not_counted_from_one(made: dict[str, Any], made_for: Settings) -> None:
    assert OFFSET not in template_of(mutated(made, made_for=made_for), "workerTemplate")["annotations"]


@pytest.mark.parametrize("name", ["leaderTemplate", "workerTemplate"])
def test_gpus_of_either_template_count(name: str) -> None:
    made = mutated(lws(**{name: template(ONE_GPU)}))
    assert made["metadata"]["labels"] == {QUEUE: "default"}
    assert PARENT in template_of(made, "leaderTemplate")["annotations"]


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param(("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1"), id="the leaders of a LeaderWorkerSet"),
        pytest.param(("Pod", "v1"), id="the workers of a leader"),
    ],
)
def test_a_stateful_set_of_a_leader_worker_set_is_left_alone(owner: tuple[str, str]) -> None:
    made = obj("StatefulSet", {QUEUE: "q"}, template=template(ONE_GPU))
    made["metadata"] |= owned(*owner)
    assert mutated(made) == made
    assert ask("validate", {**made, "spec": {**made["spec"], "replicas": 7}}, made, with_settings=ENABLED).allowed


def test_asking_twice_changes_nothing_more() -> None:
    for made in (obj("Deployment", {QUEUE: "q"}), obj("StatefulSet", {QUEUE: "q"}), lws({QUEUE: "q"})):
        once = mutated(made)
        assert ask("mutate", once, with_settings=ENABLED).patch == ()


def test_denied_without_a_queue() -> None:
    response = ask(
        "mutate",
        obj("StatefulSet", template=template(ONE_GPU)),
        with_settings=with_gpus(without_queue=WithoutQueue.DENY),
    )
    assert not response.allowed
    assert "a LocalQueue of namespace ns has to be named" in response.message


@pytest.mark.parametrize("made", [obj("Deployment", {QUEUE: "q"}), obj("StatefulSet", {QUEUE: "q"}), lws({QUEUE: "q"})])
def test_not_enabled_they_are_let_through(made: dict[str, Any]) -> None:
    assert mutated(made, made_for=settings()) == made
    assert ask("validate", {**made, "metadata": {"name": "x"}}, made, with_settings=settings()).allowed


# ------------------------------------------------------------------ as they are changed


def test_who_ran_before_is_not_replaced_by_a_change() -> None:
    made = obj("StatefulSet", template=template(ONE_GPU))
    assert mutated({**made, "spec": {**made["spec"], "replicas": 2}}, made)["metadata"] == made["metadata"]


def test_who_is_to_be_queued_from_now_on_is() -> None:
    made = mutated(obj("StatefulSet", {QUEUE: "q"}), obj("StatefulSet"))
    assert template_of(made)["annotations"] == {PARENT: "statefulset"}


def test_who_was_queued_by_its_gpus_stays_in_its_queue_when_it_is_replaced() -> None:
    before = mutated(obj("StatefulSet", template=template(ONE_GPU)))
    after = mutated(obj("StatefulSet", template=template(ONE_GPU)), before)
    assert after["metadata"]["labels"] == {QUEUE: "default"}
    assert template_of(after)["annotations"] == {PARENT: "statefulset"}


def queued(kind: str, labels: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    labels = {QUEUE: "q"} if labels is None else labels
    return mutated(lws(labels, **more) if kind == "LeaderWorkerSet" else obj(kind, labels, **more))


def changed(made: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**made, "spec": {**made["spec"], **spec}}


def elsewhere(made: dict[str, Any], *path: str, **spec: Any) -> dict[str, Any]:
    """With other fields in the spec of a pod template."""
    made = copy.deepcopy(made)
    found = made["spec"]
    for step in path:
        found = found[step]
    found["spec"] |= spec
    return made


KINDS = ("Deployment", "StatefulSet", "LeaderWorkerSet")
RUNNING = queued("StatefulSet", replicas=3, ready=3)
AT_ZERO = queued("StatefulSet", replicas=0)
GROUPS = queued("LeaderWorkerSet", ready=2)


@pytest.mark.parametrize(
    ("new", "old", "message"),
    [
        *(
            pytest.param(
                queued(kind, {QUEUE: "other"}, ready=1),
                queued(kind, ready=1),
                "immutable while replicas are ready",
                id=f"the queue of a {kind} stays while replicas are ready",
            )
            for kind in KINDS
        ),
        *(
            pytest.param(
                queued(kind, {QUEUE: "other"}), queued(kind), None, id=f"before that the queue of a {kind} may change"
            )
            for kind in KINDS
        ),
        *(
            pytest.param(
                {**queued(kind), "metadata": {"name": "x", "namespace": "ns"}},
                queued(kind),
                "but not removed",
                id=f"the queue of a {kind} is never taken away",
            )
            for kind in KINDS
        ),
        pytest.param(changed(RUNNING, replicas=5), RUNNING, "scale to 0 first", id="a StatefulSet does not grow"),
        pytest.param(changed(RUNNING, replicas=1), RUNNING, "scale to 0 first", id="nor shrink"),
        pytest.param(changed(RUNNING, replicas=0), RUNNING, None, id="but to nothing"),
        pytest.param(changed(AT_ZERO, replicas=9), AT_ZERO, None, id="and from nothing to any size"),
        pytest.param(
            changed(AT_ZERO, replicas=9),
            {**AT_ZERO, "status": {"replicas": 1}},
            "pods of before are still there",
            id="once its pods are gone",
        ),
        pytest.param(
            elsewhere(RUNNING, "template", nodeSelector={"a": "b"}),
            RUNNING,
            "may not change while pods of it are queued",
            id="where its pods run stays",
        ),
        pytest.param(
            elsewhere(RUNNING, "template", containers=[container(limits={"cpu": "1"}) | {"image": "v2"}]),
            queued("StatefulSet", replicas=3, ready=3, template=template({"cpu": "1"})),
            None,
            id="another image is no other shape",
        ),
        pytest.param(
            elsewhere(AT_ZERO, "template", nodeSelector={"a": "b"}), AT_ZERO, None, id="at zero its shape may change"
        ),
        pytest.param(
            elsewhere(GROUPS, "leaderWorkerTemplate", "workerTemplate", nodeSelector={"a": "b"}),
            GROUPS,
            "workerTemplate.spec",
            id="where workers run stays",
        ),
        pytest.param(
            elsewhere(GROUPS, "leaderWorkerTemplate", "leaderTemplate", nodeSelector={"a": "b"}),
            GROUPS,
            "leaderTemplate.spec",
            id="where leaders run stays",
        ),
        pytest.param(
            queued("LeaderWorkerSet", leaderTemplate=None),
            GROUPS,
            "may not be added or removed",
            id="a leader's template does not go",
        ),
        pytest.param(queued("LeaderWorkerSet", size=4), GROUPS, "size", id="the size of groups stays"),
        pytest.param(changed(GROUPS, replicas=7), GROUPS, None, id="the number of groups may change"),
    ],
)
def test_changes(new: dict[str, Any], old: dict[str, Any], message: str | None) -> None:
    response = ask("validate", new, old, with_settings=ENABLED)
    assert response.allowed is (message is None), response.message
    assert (message or "") in response.message


def test_the_size_of_groups_may_change_by_a_feature_gate() -> None:
    made_for = settings(
        integrations=Integrations(frameworks=FRAMEWORKS), feature_gates={"LWSImmutableGroupSize": False}
    )
    assert ask("validate", queued("LeaderWorkerSet", size=4), GROUPS, with_settings=made_for).allowed


@pytest.mark.parametrize(
    ("made", "message"),
    [
        pytest.param(obj("Deployment", {QUEUE: "Not a name"}), QUEUE, id="a queue has a name that can be"),
        pytest.param(
            obj("StatefulSet", {QUEUE: "q", "kueue.x-k8s.io/prebuilt-workload-name": "w"}),
            "not supported for this kind",
            id="there are no Workloads made beforehand",
        ),
        pytest.param(
            obj(
                "StatefulSet",
                {QUEUE: "q"},
                template={
                    **template(),
                    "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "not a label!"}},
                },
            ),
            "podset-required-topology",
            id="what is asked of topologies has to be readable",
        ),
    ],
)
def test_refused(made: dict[str, Any], message: str) -> None:
    response = ask("validate", made, with_settings=ENABLED)
    assert not response.allowed
    assert message in response.message


# ------------------------------------------------------------------ who is asked


def test_the_api_server_asks_about_the_kinds_that_are_enabled() -> None:
    made = {entry["name"]: entry["rules"][0] for each in webhooks(ENABLED, SERVICE) for entry in each["webhooks"]}
    for name in ("deployment", "statefulset", "leaderworkerset"):
        for verb in "mv":
            assert made[f"{verb}{name}.kb.io"]["operations"] == ["CREATE", "UPDATE"]
    assert "mpod.kb.io" in made, "their pods are queued"
    others = {entry["name"] for each in webhooks(settings(), SERVICE) for entry in each["webhooks"]}
    assert not any("statefulset" in name or "deployment" in name for name in others)


@pytest.mark.parametrize("kind", ["StatefulSet", "LeaderWorkerSet"])
def test_what_is_only_limited_may_not_change_either(kind: str) -> None:
    """In a template nothing makes requests of limits."""

    def of(count: str) -> dict[str, Any]:
        limited = template({GPU: count})
        if kind == "StatefulSet":
            return mutated(obj(kind, {QUEUE: "lq"}, ready=1, replicas=1, template=limited))
        return mutated(lws({QUEUE: "lq"}, ready=1, workerTemplate=limited))

    refused = ask("validate", of("8"), of("1"), with_settings=ENABLED).message
    assert "may not change while pods of it are queued" in refused

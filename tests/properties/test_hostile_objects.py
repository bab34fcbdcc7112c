"""Objects that are almost right: what the webhook lets through, the controller can live with, whatever it is.

Well-formed pods, Jobs and Workloads are changed in a few places, at random. Each is refused with a reason, or taken in,
judged and written about without a fault, and without more quota than there is.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from admission.api import batch, core, kueue
from admission.api.decoding import decode, without_nulls
from admission.api.quantities import QuantityError, amount, format_amount, parse
from admission.controllers.cluster import Cluster
from admission.controllers.desk import Desk
from admission.controllers.errands import Errands
from admission.controllers.inbox import Observed
from admission.controllers.metrics import Metrics
from admission.controllers.reporting import Reporting
from admission.controllers.wakes import Wakes
from admission.jobs.registry import adapters
from admission.kube.informers import Upserted
from admission.settings import Integrations
from queues.core import model
from queues.core.cycle import decide
from queues.core.policy import Policy
from tests.unit.controllers.builders import NAMESPACE, NOW, cluster_queue, local_queue, settings
from tests.unit.controllers.test_desk import FLAVOR, Outbox
from tests.unit.webhook.asking import ask, patched

LABEL = "kueue.x-k8s.io/"
QUANTITIES = st.one_of(
    st.sampled_from(
        ["0", "1", "-1", "1m", "1n", "1e1000", "1E-1000", "1e99999999999", "9" * 256, "9" * 257, "0x1", "1_0", "٣", "½",
         "NaN", "Infinity", "", " 1", "1 ", "1Zi", "+-1", "1.", ".5", ".", "1e", "1e+", "16Ei", "0." + "0" * 200 + "1"]
    ),
    st.from_regex(r"[+-]?[0-9]{1,30}(\.[0-9]{0,12})?(Ki|Mi|Gi|Ei|n|u|m|k|M|E|e[+-]?[0-9]{1,12})?", fullmatch=True),
    st.text(max_size=12),
)  # fmt: skip
NUMBERS = st.one_of(
    st.sampled_from([0, -1, 1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63, -(2**63) - 1, 10**40]), st.integers(-4, 4)
)
TEXTS = st.one_of(
    st.sampled_from(
        ["", "x" * 64, "x" * 254, "x" * 250_000, "a/b", "../q", "q\u0000", "ü", "-", "Q", "true", "no", "\ud7ff"]
    ),
    st.text(max_size=12),
)
KEYS = st.sampled_from(
    [f"{LABEL}queue-name", f"{LABEL}managed", f"{LABEL}pod-group-name", f"{LABEL}pod-group-total-count",
     f"{LABEL}podset-required-topology", f"{LABEL}podset-preferred-topology", f"{LABEL}podset-group-name",
     f"{LABEL}job-min-parallelism", f"{LABEL}prebuilt-workload-name", f"{LABEL}priority-class", f"{LABEL}elastic-job",
     f"{LABEL}max-exec-time-seconds", f"{LABEL}role-hash", f"{LABEL}pod-group-fast-admission", "nvidia.com/gpu", "cpu"]
)  # fmt: skip
LEAVES = st.one_of(
    QUANTITIES, NUMBERS, TEXTS, st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.one_of(
    LEAVES,
    st.lists(LEAVES, max_size=3),
    st.dictionaries(st.one_of(KEYS, TEXTS), LEAVES, max_size=3),
    st.dictionaries(KEYS, QUANTITIES, max_size=3),
    st.just([{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}] * 9),
    st.just({"matchExpressions": [{"key": "k", "operator": "NotIn", "values": [str(n) for n in range(10_000)]}]}),
)
CHANGES = st.lists(st.tuples(st.integers(0, 10_000), VALUES), min_size=1, max_size=4)


def container(**more: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"cpu": "1", "nvidia.com/gpu": "1"}}
    return {"name": "c", "image": "i", "resources": resources, **more}


SPEC: dict[str, Any] = {
    "restartPolicy": "Never",
    "containers": [container()],
    "initContainers": [container(name="i", restartPolicy="Always")],
    "overhead": {"cpu": "1m"},
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "priorityClassName": "p",
    "schedulingGates": [{"name": "x"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]
            }
        }
    },
}


def metadata(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": NAMESPACE,
        "labels": {f"{LABEL}queue-name": "lq", f"{LABEL}pod-group-name": "g"},
        "annotations": {f"{LABEL}pod-group-total-count": "1"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Thing", "name": "o", "uid": "o", "controller": True}],
    }


PLAUSIBLE: dict[str, dict[str, Any]] = {
    "Pod": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata("p"), "spec": SPEC},
    "Job": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata("j"),
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "suspend": True,
            "completionMode": "Indexed",
            "template": {"metadata": {"labels": {"a": "b"}, "annotations": {}}, "spec": SPEC},
        },
    },
    "Workload": {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": metadata("w"),
        "spec": {
            "queueName": "lq",
            "active": True,
            "priority": 1,
            "maximumExecutionTimeSeconds": 10,
            "podSets": [
                {
                    "name": "main",
                    "count": 2,
                    "minCount": 1,
                    "template": {"spec": SPEC},
                    "topologyRequest": {"required": "rack", "podIndexLabel": "i", "subGroupCount": 1},
                }
            ],
        },
    },
}
TYPES: dict[str, Any] = {"Pod": core.Pod, "Job": batch.Job, "Workload": kueue.Workload}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in the object with a key or an index in it."""
    match value:
        case dict():
            for key in list(value):
                yield value, key
                yield from places(value[key])
        case list():
            for index in range(len(value)):
                yield value, index
                yield from places(value[index])


def changed(obj: dict[str, Any], changes: list[tuple[int, Any]]) -> dict[str, Any]:
    """Kind, name and namespace stay, and nulls in kinds of Kubernetes' own go: the API server sees to that."""
    made = copy.deepcopy(obj)
    for number, value in changes:
        found = [place for place in places(made) if place[1] not in {"apiVersion", "kind"} or place[0] is not made]
        inside, key = found[number % len(found)]
        inside[key] = copy.deepcopy(value)
    if obj["kind"] != "Workload":
        made = without_nulls(made)
    made["metadata"] = {
        **(made["metadata"] if isinstance(made.get("metadata"), dict) else {}),
        **{name: obj["metadata"][name] for name in ("name", "namespace")},
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2027-01-15T08:00:00Z",
    }
    return made


class Office(logging.Handler):
    """A desk with a queue of 2 cpu and 2 GPUs, and what it logged of faults."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.faults: list[str] = []
        mine = settings(integrations=Integrations(frameworks=("batch/job", "pod")))
        self.cluster = Cluster(mine, adapters(mine), lambda: NOW)
        outbox: Any = Outbox()
        wakes, metrics = Wakes(), Metrics(mine)
        reporting = Reporting(self.cluster, metrics, None)
        self.desk = Desk(self.cluster, Errands(outbox, wakes), wakes, reporting, metrics, outbox)
        for obj in (FLAVOR, cluster_queue(nominal="2"), local_queue()):
            self.cluster.take(Observed(obj.kind, Upserted(obj)))

    def emit(self, record: logging.LogRecord) -> None:
        self.faults.append(self.format(record))

    def work(self, kind: str, obj: Any) -> None:
        log = logging.getLogger("admission")
        log.addHandler(self)
        try:
            self.cluster.take(Observed(kind, Upserted(obj)))
            for _ in range(2):
                self.desk.workloads(NOW)
                self.desk.units(NOW)
                self.desk.carry_out(decide(self.cluster.state, NOW, Policy()), NOW)
        finally:
            log.removeHandler(self)


@pytest.mark.parametrize("kind", PLAUSIBLE)
@given(changes=CHANGES)
def test_what_is_let_through_can_be_lived_with(kind: str, changes: list[tuple[int, Any]]) -> None:
    obj = changed(PLAUSIBLE[kind], changes)
    for verb in ("mutate", "validate"):
        response = ask(verb, obj)
        assert response.allowed or response.message
        if not response.allowed:
            return
        obj = patched(obj, response)
    try:
        typed = decode(msgspec.json.encode(obj), TYPES[kind])
    except msgspec.DecodeError:
        return  # an informer leaves it out, and says so
    office = Office()
    office.work(kind, typed)
    assert office.cluster.doubt is None, office.cluster.doubt
    assert office.faults == []
    for use in office.cluster.state.usage(model.ClusterQueueName("cq")).values():
        assert 0 <= use.reserved <= 2000


@given(text=QUANTITIES)
@example("1e99999999999")
@example("9" * 256)
def test_a_quantity_is_exact_or_none_at_all(text: str) -> None:
    """What is counted is never less than what was asked for, and reads back as itself."""
    try:
        value = parse(text)
    except QuantityError:
        return
    for resource, unit in (("cpu", 1000), ("memory", 1), ("nvidia.com/gpu", 1)):
        counted = amount(resource, text)
        assert abs(counted) >= abs(value * unit) > abs(counted) - 1 or counted == value == 0
        written = format_amount(resource, counted)
        assert len(written) > 256 or amount(resource, written) == counted

"""What happens to a Job as it is created and changed."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest

from admission.settings import GpuPods, Settings, WithoutQueue
from tests.unit.webhook.asking import (
    DEFAULT_QUEUE,
    GPU,
    NO_QUEUES,
    QUEUE,
    FakeCaches,
    ask,
    job,
    patched,
    pod,
    settings,
)

MANAGE_ALL = settings(manage_jobs_without_queue_name=True)
PRIORITY = "kueue.x-k8s.io/priority-class"
MAX_EXEC = "kueue.x-k8s.io/max-exec-time-seconds"
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
SYNC = "kueue.x-k8s.io/job-completions-equal-parallelism"
ELASTIC = "kueue.x-k8s.io/elastic-job"
GATED_BY = "kueue.x-k8s.io/admission-gated-by"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"


@dataclass(frozen=True)
class Case:
    id: str
    job: dict[str, Any]
    want_queue: str | None = None
    want_suspended: bool = True
    with_settings: Settings | None = None
    caches: FakeCaches = NO_QUEUES


CASES = [
    Case("a job that names a queue is suspended", job({QUEUE: "q"}), want_queue="q"),
    Case("a job that names none runs", job(), want_suspended=False),
    Case("a job whose pods ask for GPUs is queued whole", job(limits={GPU: "8"}), want_queue="default"),
    Case("not in an exempt namespace", job(limits={GPU: "8"}, namespace="gpu-operator"), want_suspended=False),
    Case(
        "not where its pods are system-critical",
        job(limits={GPU: "8"}, pod_spec={"priorityClassName": "system-cluster-critical"}),
        want_suspended=False,
    ),
    Case(
        "not where GPUs are let through",
        job(limits={GPU: "8"}),
        want_suspended=False,
        with_settings=settings(GpuPods(without_queue=WithoutQueue.ALLOW)),
    ),
    Case("with all managed, a job without queue waits", job(), with_settings=MANAGE_ALL),
    Case(
        "with all managed, a job joins the default queue",
        job(),
        want_queue="default",
        with_settings=MANAGE_ALL,
        caches=DEFAULT_QUEUE,
    ),
    Case(
        "a namespace that is not managed is left alone though it has a default queue",
        job(),
        want_suspended=False,
        with_settings=MANAGE_ALL,
        caches=FakeCaches(
            namespaces={"ns": {"kubernetes.io/metadata.name": "kube-system"}}, local_queues=DEFAULT_QUEUE.local_queues
        ),
    ),
    Case(
        "without the integration nothing is suspended",
        job({QUEUE: "q"}),
        want_queue="q",
        want_suspended=False,
        with_settings=Settings(namespace="muster-system", integrations=settings().integrations.__class__(("pod",))),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_which_jobs_are_suspended(case: Case) -> None:
    answer = ask("mutate", case.job, with_settings=case.with_settings, caches=case.caches)
    assert answer.allowed, answer.message
    got = patched(case.job, answer)
    assert (got["spec"].get("suspend", False), got["metadata"]["labels"].get(QUEUE)) == (
        case.want_suspended,
        case.want_queue,
    )


@pytest.mark.parametrize("queued", [job({QUEUE: "q"}), pod({QUEUE: "q"})], ids=lambda obj: obj["kind"])
def test_nothing_is_written_into_a_spec_that_is_not_there(queued: dict[str, Any]) -> None:
    del queued["spec"]
    answer = ask("mutate", queued)
    assert not answer.allowed
    assert answer.message.startswith("spec: Required value")


def test_nothing_else_of_a_job_is_changed() -> None:
    before = job({QUEUE: "q"}, suspend=False)
    want = copy.deepcopy(before)
    want["spec"]["suspend"] = True
    assert patched(before, ask("mutate", before)) == want


def test_a_suspended_job_is_not_changed_at_all() -> None:
    assert ask("mutate", job({QUEUE: "q"}, suspend=True)).patch == ()


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(job({QUEUE: "Q!"}), f"metadata.labels[{QUEUE}]", id="a queue is a name"),
        pytest.param(job({QUEUE: "q", PREBUILT: "W!"}), f"metadata.labels[{PREBUILT}]", id="a workload is a name"),
        pytest.param(job({QUEUE: "q", MAX_EXEC: "1h"}), f"metadata.labels[{MAX_EXEC}]", id="a limit is in seconds"),
        pytest.param(job({QUEUE: "q"}, {GATED_BY: "x" * 64}), GATED_BY, id="admission gates are short"),
        pytest.param(job({QUEUE: "q"}, {GATED_BY: "a,a"}), GATED_BY, id="admission gates are named once"),
        *(
            pytest.param(
                job({QUEUE: "q"}, {MIN_PARALLELISM: text}, parallelism=10, completions=10),
                f"metadata.annotations[{MIN_PARALLELISM}]: Invalid value: ",
                id=f"the least parallelism is not {text[:12]}",
            )
            for text in ("11", "10", "0", "-1", "0x9", "9.0", " 9", "99999999999", "9" * 5000, "٩", "")
        ),
        pytest.param(
            job({QUEUE: "q"}, {MIN_PARALLELISM: "5"}, parallelism=10, completions=5),
            MIN_PARALLELISM,
            id="parallelism beyond the completions does not count",
        ),
        pytest.param(job({QUEUE: "q"}, {SYNC: "yes"}), f"metadata.annotations[{SYNC}]", id="true or false"),
        pytest.param(job({QUEUE: "q"}, {SYNC: "true"}), "spec.completionMode", id="only indexed jobs are kept in step"),
        pytest.param(
            job({QUEUE: "q"}, {SYNC: "true"}, completionMode="Indexed", parallelism=2, completions=3),
            "spec.completions",
            id="they begin in step",
        ),
        pytest.param(
            job({QUEUE: "q"}, template_annotations={REQUIRED: "a", "kueue.x-k8s.io/podset-preferred-topology": "b"}),
            "spec.template.metadata.annotations",
            id="one topology request",
        ),
        pytest.param(
            job({QUEUE: "q"}, {ELASTIC: "true"}, template_annotations={REQUIRED: "rack"}),
            REQUIRED,
            id="an elastic job has no place",
        ),
        pytest.param(
            job(
                {QUEUE: "q"},
                template_annotations={
                    "kueue.x-k8s.io/podset-slice-required-topology": "rack",
                    "kueue.x-k8s.io/podset-slice-size": "3",
                },
                parallelism=2,
                completions=2,
            ),
            "podset-slice-size",
            id="a slice is no larger than the job",
        ),
    ],
)
def test_what_a_job_may_not_be_created_with(obj: dict, want: str) -> None:
    answer = ask("validate", obj)
    assert not answer.allowed
    assert answer.code == 403
    assert want in answer.message


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(job({QUEUE: "q"}, {MIN_PARALLELISM: "9"}, parallelism=10, completions=10), id="partial admission"),
        pytest.param(job({QUEUE: "q"}, {SYNC: "true"}, completionMode="Indexed"), id="in step"),
        pytest.param(job({QUEUE: "q"}, {GATED_BY: "a,b"}), id="admission gates"),
        pytest.param(job({QUEUE: "q"}, template_annotations={REQUIRED: "example.com/rack"}), id="a topology level"),
    ],
)
def test_what_a_job_may_be_created_with(obj: dict) -> None:
    answer = ask("validate", obj)
    assert answer.allowed, answer.message


RUNNING = {"suspend": False}
WAITING = {"suspend": True}


@dataclass(frozen=True)
class Update:
    id: str
    old: dict[str, Any]
    new: dict[str, Any]
    want: str = ""
    caches: FakeCaches = NO_QUEUES


UPDATES = [
    Update("the queue of a running job stays", job({QUEUE: "q"}, **RUNNING), job(**RUNNING), want=QUEUE),
    Update("also when it is another", job({QUEUE: "q"}, **RUNNING), job({QUEUE: "r"}, **RUNNING), want=QUEUE),
    Update("also for one that had none", job(**RUNNING), job({QUEUE: "q"}, **RUNNING), want=QUEUE),
    Update("a waiting job may move", job({QUEUE: "q"}, **WAITING), job({QUEUE: "r"}, **WAITING)),
    Update("a waiting job may leave", job({QUEUE: "q"}, **WAITING), job(**WAITING)),
    Update(
        "but not where the default queue would take it",
        job({QUEUE: "q"}, **WAITING),
        job(**WAITING),
        want=QUEUE,
        caches=DEFAULT_QUEUE,
    ),
    Update("a job does not leave as it starts", job({QUEUE: "q"}, **WAITING), job(**RUNNING), want=QUEUE),
    Update("starting a job is no matter", job({QUEUE: "q"}, **WAITING), job({QUEUE: "q"}, **RUNNING)),
    Update(
        "a priority can change",
        job({QUEUE: "q", PRIORITY: "a"}, **RUNNING),
        job({QUEUE: "q", PRIORITY: "b"}, **RUNNING),
    ),
    Update("but not go", job({QUEUE: "q", PRIORITY: "a"}, **WAITING), job({QUEUE: "q"}, **WAITING), want=PRIORITY),
    Update(
        "nor come while the job runs",
        job({QUEUE: "q"}, **RUNNING),
        job({QUEUE: "q", PRIORITY: "a"}, **RUNNING),
        want=PRIORITY,
    ),
    Update("it may come before", job({QUEUE: "q"}, **WAITING), job({QUEUE: "q", PRIORITY: "a"}, **WAITING)),
    Update(
        "a time limit stays while the job runs",
        job({QUEUE: "q", MAX_EXEC: "5"}, **RUNNING),
        job({QUEUE: "q", MAX_EXEC: "6"}, **RUNNING),
        want=MAX_EXEC,
    ),
    Update(
        "a time limit stays as the job starts",
        job({QUEUE: "q", MAX_EXEC: "5"}, **WAITING),
        job({QUEUE: "q", MAX_EXEC: "6"}, **RUNNING),
        want=MAX_EXEC,
    ),
    Update(
        "a prebuilt workload stays while the job runs",
        job({QUEUE: "q", PREBUILT: "a"}, **RUNNING),
        job({QUEUE: "q", PREBUILT: "b"}, **RUNNING),
        want=PREBUILT,
    ),
    Update(
        "a job does not become elastic",
        job({QUEUE: "q"}, **WAITING),
        job({QUEUE: "q"}, {ELASTIC: "true"}, **WAITING),
        want=ELASTIC,
    ),
    Update(
        "admission gates are not added",
        job({QUEUE: "q"}, {GATED_BY: "a"}, **WAITING),
        job({QUEUE: "q"}, {GATED_BY: "a,b"}, **WAITING),
        want=GATED_BY,
    ),
    Update(
        "admission gates are taken away",
        job({QUEUE: "q"}, {GATED_BY: "a,b"}, **WAITING),
        job({QUEUE: "q"}, {GATED_BY: "b"}, **WAITING),
    ),
    Update(
        "a partly admitted job keeps its size while it runs",
        job({QUEUE: "q"}, {MIN_PARALLELISM: "1"}, parallelism=4, completions=9, **RUNNING),
        job({QUEUE: "q"}, {MIN_PARALLELISM: "1"}, parallelism=5, completions=9, **RUNNING),
        want="spec.parallelism",
    ),
    Update(
        "a job is not taken out of step while it runs",
        job({QUEUE: "q"}, {SYNC: "true"}, completionMode="Indexed", **RUNNING),
        job({QUEUE: "q"}, {SYNC: "false"}, completionMode="Indexed", **RUNNING),
        want=SYNC,
    ),
]


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: case.id)
def test_how_a_job_may_change(case: Update) -> None:
    answer = ask("validate", case.new, case.old, caches=case.caches)
    assert answer.allowed == (not case.want), answer.message
    assert case.want in answer.message

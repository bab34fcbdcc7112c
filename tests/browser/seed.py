"""A remembered cluster for looking at the pages: two teams in cohorts, 96 hosts in two blocks, a month of use."""

# ruff: noqa: E501 - messages are one line each, as they are

from __future__ import annotations

from collections.abc import Iterator

from queues.journal.entries import (
    Amount,
    CohortRow,
    Decision,
    Entry,
    FlavorRow,
    Kind,
    LocalQueueRow,
    NodeRow,
    NodeState,
    Owner,
    PodSetRow,
    QueueRow,
    QuotaRow,
    UsageEnded,
    UsageStarted,
    WorkloadRow,
    WorkloadState,
)

#: A Friday, 2027-01-15 08:00 UTC.
NOW = 1_800_000_000.0
GPU = "nvidia.com/gpu"
BLOCK, RACK, HOST = "cloud.example.com/block", "cloud.example.com/rack", "kubernetes.io/hostname"
LEVELS = (BLOCK, RACK, HOST)
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
GI = 1 << 30


def everything() -> Iterator[Entry]:
    yield from queues()
    yield from nodes()
    yield from workloads()
    yield from sorted(decisions(), key=lambda decision: decision.at)
    yield from usage()


# ------------------------------------------------------------------ queues


def _quotas(
    nominal: int, reserved: int, *, borrowing: int | None = None, lending: int | None = None
) -> tuple[QuotaRow, ...]:
    return (
        QuotaRow("h100", GPU, nominal, borrowing, lending, reserved, reserved, max(0, reserved - nominal)),
        QuotaRow("h100", "cpu", nominal * 12_000, None, None, reserved * 11_000, reserved * 11_000),
        QuotaRow("h100", "memory", nominal * 128 * GI, None, None, reserved * 96 * GI, reserved * 96 * GI),
    )


def queues() -> Iterator[Entry]:
    yield CohortRow("company", "", (QuotaRow("h100", GPU, 64),))
    yield CohortRow("research", "company")
    yield CohortRow("product", "company")
    yield QueueRow("pretraining", "research", "StrictFIFO", quotas=_quotas(256, 320, borrowing=128))
    yield QueueRow("alignment", "research", quotas=_quotas(128, 72))
    yield QueueRow("evals", "research", quotas=_quotas(64, 16, lending=32))
    yield QueueRow("inference", "product", quotas=_quotas(128, 96))
    yield QueueRow("recommendations", "product", quotas=_quotas(64, 64))
    a100 = QuotaRow("a100", GPU, 32, None, None, 8, 8)
    yield QueueRow("sandbox", "", quotas=(a100,))
    yield QueueRow(
        "migration",
        "",
        stop_policy="HoldAndDrain",
        active=False,
        reason="Stopped",
        message="stopped by hand until Monday",
    )
    for namespace, name, queue in (
        ("team-llm", "train", "pretraining"),
        ("team-safety", "train", "alignment"),
        ("team-safety", "evals", "evals"),
        ("team-llm", "evals", "evals"),
        ("serving", "online", "inference"),
        ("recsys", "daily", "recommendations"),
        ("team-llm", "sandbox", "sandbox"),
        ("students", "sandbox", "sandbox"),
    ):
        yield LocalQueueRow(namespace, name, queue)


# ------------------------------------------------------------------ nodes


def host(block: int, rack: int, number: int) -> str:
    return f"gpu-b{block}-r{rack}-{number:02d}"


def nodes() -> Iterator[Entry]:
    yield FlavorRow("h100", {"pool": "h100"}, "datacenter", LEVELS)
    yield FlavorRow("a100", {"pool": "a100"})
    for block in (1, 2):
        for rack in (1, 2, 3, 4):
            for number in range(1, 13):
                name = host(block, rack, number)
                state = NodeState.READY
                used = 8
                if (block, rack) == (2, 4):
                    used = 0 if number > 4 else (3, 6, 8, 1)[number - 1]
                elif rack == 3:
                    used = (8, 8, 5, 8, 2, 8, 8, 7, 8, 0, 8, 4)[number - 1]
                elif (block, rack) == (2, 2) and number > 9:
                    used = 0
                if (block, rack, number) == (1, 2, 7):
                    state, used = NodeState.NOT_READY, 0
                if (block, rack, number) in {(2, 1, 11), (2, 1, 12)}:
                    state, used = NodeState.CORDONED, 2
                yield NodeRow(
                    name,
                    state,
                    {BLOCK: f"block-{block}", RACK: f"rack-{rack}", HOST: name, "pool": "h100"},
                    {GPU: 8, "cpu": 192_000, "memory": 2048 * GI},
                    {GPU: 8 - used, "cpu": 192_000 - used * 22_000, "memory": (2048 - used * 180) * GI},
                )
    for number in range(1, 5):
        name = f"a100-{number:02d}"
        used = 4 if number < 3 else 0
        yield NodeRow(
            name, NodeState.READY, {"pool": "a100", HOST: name}, {GPU: 8, "cpu": 96_000}, {GPU: 8 - used, "cpu": 48_000}
        )


# ------------------------------------------------------------------ workloads


def _job(name: str) -> tuple[Owner, ...]:
    return (Owner("batch/v1", "Job", name, f"job-{name}"),)


def _row(
    uid: str,
    namespace: str,
    local: str,
    queue: str,
    *,
    pods: int,
    gpus: int = 8,
    ago: float,
    state: WorkloadState,
    since: float | None = None,
    closeness: str = "",
    level: str = "",
    domains: tuple[tuple[tuple[str, ...], int], ...] = (),
    **more: object,
) -> WorkloadRow:
    holds = state in {WorkloadState.ADMITTED, WorkloadState.RESERVING}
    each = {GPU: gpus, "cpu": 88_000, "memory": 720 * GI}
    flavor = {GPU: "h100", "cpu": "h100", "memory": "h100"} if holds else {}
    pod_set = PodSetRow("main", pods, each, closeness, level, flavor, (HOST,) if domains else (), domains)
    values: dict[str, object] = {
        "name": f"job-{uid}",
        "owners": _job(uid),
        "flavors": flavor,
        "requests": {name: amount * pods for name, amount in each.items()},
        "created_at": NOW - ago,
        "queued_at": NOW - ago,
        "state_since": NOW - (ago if since is None else since),
    }
    return WorkloadRow(
        uid=uid,
        namespace=namespace,
        local_queue=local,
        cluster_queue=queue,
        state=state,
        pods=pods,
        pod_sets=(pod_set,),
        **{**values, **more},  # type: ignore[arg-type]
    )


def _hosts(block: int, rack: int, first: int, last: int) -> tuple[tuple[tuple[str, ...], int], ...]:
    return tuple(((host(block, rack, number),), 1) for number in range(first, last + 1))


def _short(needed: int, *, free: int, maximum: int, by_borrowers: int) -> tuple[dict[str, object], ...]:
    numbers = {"needed": needed, "free": free, "maximum": maximum, "heldByBorrowers": by_borrowers}
    return ({"flavor": "h100", "resource": GPU, **numbers},)


def workloads() -> Iterator[Entry]:
    running, waiting = WorkloadState.ADMITTED, WorkloadState.PENDING
    yield _row(
        "llama-70b-run-7",
        "team-llm",
        "train",
        "pretraining",
        pods=24,
        ago=52 * HOUR,
        since=41 * HOUR,
        state=running,
        closeness="required",
        level=BLOCK,
        priority=100,
        domains=_hosts(1, 1, 1, 12) + _hosts(1, 4, 1, 12),
    )
    yield _row(
        "tokenizer-sweep",
        "team-llm",
        "train",
        "pretraining",
        pods=16,
        ago=9 * HOUR,
        since=8.5 * HOUR,
        state=running,
        closeness="preferred",
        level=RACK,
        domains=_hosts(2, 1, 1, 10) + _hosts(2, 2, 1, 6),
    )
    yield _row(
        "reward-model-v3",
        "team-safety",
        "train",
        "alignment",
        pods=9,
        ago=6 * HOUR,
        since=5 * HOUR,
        state=running,
        domains=_hosts(1, 2, 1, 6) + _hosts(1, 2, 8, 10),
    )
    yield _row(
        "chat-serving",
        "serving",
        "online",
        "inference",
        pods=12,
        ago=20 * DAY,
        since=20 * DAY,
        state=running,
        priority=1000,
    )
    yield _row(
        "ranking-nightly", "recsys", "daily", "recommendations", pods=8, ago=4 * HOUR, since=3.8 * HOUR, state=running
    )
    yield _row("mmlu-nightly", "team-safety", "evals", "evals", pods=2, ago=2 * HOUR, since=1.9 * HOUR, state=running)
    yield _row("notebook-ada", "students", "sandbox", "sandbox", pods=1, ago=5 * HOUR, since=5 * HOUR, state=running)
    yield _row(
        "llama-405b-warmup",
        "team-llm",
        "train",
        "pretraining",
        pods=16,
        ago=3.2 * HOUR,
        state=waiting,
        priority=100,
        closeness="required",
        level=RACK,
        code="TopologyPlacementFailed",
        message='couldn\'t assign flavors to pod set main: topology "datacenter" allows to fit only 8 out of 16 pod(s)',
        remedy="ask for 8 pods, or for the block in place of the rack",
    )
    yield _row(
        "moe-ablation-12",
        "team-llm",
        "train",
        "pretraining",
        pods=16,
        ago=71 * MINUTE,
        state=waiting,
        priority=10,
        code="WaitingForQuota",
        message="couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 64 more needed",
        remedy="64 GPUs given back in cohort research, or a borrowing limit of 192 in place of 128",
        shortages=_short(128, free=64, maximum=384, by_borrowers=24),
    )
    yield _row(
        "whole-cluster-dream",
        "team-llm",
        "train",
        "pretraining",
        pods=64,
        ago=26 * HOUR,
        state=waiting,
        code="ExceedsMaxQuota",
        message="couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, previously considered podsets requests (0) + current podset request (512) > maximum capacity (384)",
        remedy="ask for 48 pods of 8 GPUs",
        shortages=_short(512, free=64, maximum=384, by_borrowers=0),
    )
    for number in range(1, 9):
        yield _row(
            f"red-team-{number}",
            "team-safety",
            "train",
            "alignment",
            pods=2,
            ago=(50 - 5 * number) * MINUTE,
            state=waiting,
            priority=5,
            code="WaitingForPreemptedWorkloads" if number == 1 else "WaitingForQuota",
            message="couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 16 more needed",
            shortages=_short(16, free=0, maximum=320, by_borrowers=64),
        )
    yield _row(
        "mystery",
        "students",
        "sandbox",
        "sandbox",
        pods=1,
        ago=3 * MINUTE,
        state=waiting,
        code="NoMatchingFlavor",
        message="couldn't assign flavors to pod set main: flavor a100 doesn't match node affinity",
    )
    yield _row(
        "big-eval",
        "team-llm",
        "evals",
        "evals",
        pods=4,
        ago=30 * MINUTE,
        state=WorkloadState.HELD,
        code="OnHold",
        message="on hold",
    )


def _decision(uid: str, ago: float, kind: Kind, namespace: str, queue: str, **more: object) -> Decision:
    return Decision(
        at=NOW - ago,
        workload=uid,
        namespace=namespace,
        name=f"job-{uid}",
        kind=kind,
        cluster_queue=queue,
        **more,  # type: ignore[arg-type]
    )


def decisions() -> Iterator[Decision]:
    def of(uid: str, namespace: str, queue: str, *steps: tuple[float, Kind, dict[str, object]]) -> Iterator[Decision]:
        for ago, kind, more in steps:
            yield _decision(uid, ago, kind, namespace, queue, **more)

    waits = {
        "code": "WaitingForQuota",
        "message": "insufficient unused quota for nvidia.com/gpu in flavor h100, 128 more needed",
    }
    gone = {
        "code": "InCohortReclamation",
        "cause": "llama-70b-run-7",
        "message": "Preempted to accommodate a workload (UID: llama-70b-run-7, JobUID: job-llama-70b-run-7) due to reclamation within the cohort",
    }
    yield from of(
        "llama-70b-run-7",
        "team-llm",
        "pretraining",
        (52 * HOUR, Kind.CREATED, {}),
        (52 * HOUR, Kind.HELD, waits),
        (41.2 * HOUR, Kind.RESERVED, {"code": "QuotaReserved"}),
        (41 * HOUR, Kind.ADMITTED, {"code": "Admitted", "message": "The workload is admitted"}),
    )
    for uid, namespace, queue in (
        ("vision-probe", "team-safety", "evals"),
        ("recsys-backfill", "recsys", "recommendations"),
    ):
        yield from of(
            uid,
            namespace,
            queue,
            (60 * HOUR, Kind.CREATED, {}),
            (60 * HOUR, Kind.ADMITTED, {}),
            (41.5 * HOUR, Kind.PREEMPTED, gone),
        )
    yield from of(
        "moe-ablation-12",
        "team-llm",
        "pretraining",
        (71 * MINUTE, Kind.CREATED, {}),
        (70 * MINUTE, Kind.ADMITTED, {"code": "Admitted"}),
        (
            38 * MINUTE,
            Kind.PREEMPTED,
            {
                **gone,
                "cause": "red-team-1",
                "message": "Preempted to accommodate a workload (UID: red-team-1, JobUID: job-red-team-1) due to reclamation within the cohort",
            },
        ),
        (37 * MINUTE, Kind.RELEASED, {}),
        (37 * MINUTE, Kind.REQUEUED, {}),
        (
            36 * MINUTE,
            Kind.HELD,
            {
                "code": "WaitingForQuota",
                "message": "insufficient unused quota for nvidia.com/gpu in flavor h100, 64 more needed",
            },
        ),
    )
    yield from of(
        "llama-405b-warmup",
        "team-llm",
        "pretraining",
        (3.2 * HOUR, Kind.CREATED, {}),
        (
            3.1 * HOUR,
            Kind.HELD,
            {
                "code": "TopologyPlacementFailed",
                "message": 'topology "datacenter" allows to fit only 8 out of 16 pod(s)',
            },
        ),
    )
    for number in range(1, 9):
        yield from of(f"red-team-{number}", "team-safety", "alignment", ((50 - 5 * number) * MINUTE, Kind.CREATED, {}))
    yield from of(
        "finished-run",
        "team-llm",
        "pretraining",
        (30 * HOUR, Kind.CREATED, {}),
        (29 * HOUR, Kind.ADMITTED, {}),
        (2 * MINUTE, Kind.FINISHED, {"code": "Succeeded", "message": "Job finished successfully"}),
    )


# ------------------------------------------------------------------ usage


def usage() -> Iterator[Entry]:
    """Runs one after the other over thirty days, each queue with a rhythm of its own."""
    for number, (queue, namespace, local, gpus, hours, pause) in enumerate(
        (
            ("pretraining", "team-llm", "train", 224, 30, 3),
            ("alignment", "team-safety", "train", 88, 15, 7),
            ("evals", "team-safety", "evals", 24, 5, 11),
            ("inference", "serving", "online", 96, 720, 1),
            ("recommendations", "recsys", "daily", 64, 8, 16),
            ("sandbox", "students", "sandbox", 6, 4, 20),
        )
    ):
        at, run = NOW - 30 * DAY + number * HOUR, 0
        while at < NOW - HOUR:
            uid = f"past-{queue}-{run}"
            size = max(1, gpus * (5 + (run * 7 + number * 3) % 6) // 10)
            flavor = "a100" if queue == "sandbox" else "h100"
            yield UsageStarted(
                at, uid, namespace, uid, queue, local, (Amount(flavor, GPU, size), Amount(flavor, "cpu", size * 11_000))
            )
            end = at + hours * HOUR
            if end < NOW:
                yield UsageEnded(end, uid)
            at, run = end + pause * HOUR, run + 1

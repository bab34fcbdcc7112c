"""Pod groups: gathered, let go whole, kept whole, replaced, and let go of."""

import copy
from typing import Any

import pytest

from admission.api import names
from admission.api.decoding import convert
from admission.jobs.effects import Create, Delete, Patch
from admission.settings import Settings
from tests.unit.jobs.builders import NOW, World, job, pod, stamp

GROUP = "g"


def member(name: str, total: int | str = 2, **kw: Any) -> dict[str, Any]:
    return pod(name, group=GROUP, total=total, **kw)


def started(*pods: dict[str, Any], **world: Any) -> World:
    """A group of two that runs."""
    result = World(**world).put(*(pods or (member("p0", age=20), member("p1", age=20)))).settle()
    result.admit()
    result.settle()
    for name in result.pods():
        result.run_pod(name)
    return result.settle()


def finalizers(world: World, name: str) -> list[str]:
    return list(world.pods()[name]["metadata"].get("finalizers", []))


# ------------------------------------------------------------------ gathering


def test_whole_group_becomes_a_workload_of_its_name() -> None:
    world = World().put(member("a", 3, role="bb"), member("b", 3, role="aa"), member("c", 3, role="bb")).settle()
    wl = world.wl
    assert wl["metadata"]["name"] == GROUP
    assert wl["metadata"]["annotations"] == {names.IS_GROUP_WORKLOAD: "true"}
    assert {owner["uid"] for owner in wl["metadata"]["ownerReferences"]} == {"uid-a", "uid-b", "uid-c"}
    assert not any(owner.get("controller") for owner in wl["metadata"]["ownerReferences"])
    assert [(entry["name"], entry["count"]) for entry in wl["spec"]["podSets"]] == [("aa", 1), ("bb", 2)]
    assert len(world.writes()) == 1


def test_incomplete_group_has_no_workload_and_says_what_is_missing() -> None:
    world = World().put(*(member(f"p{i}", 4) for i in range(3))).settle()
    assert world.workloads() == []
    assert world.last.requeue_after is not None, "a group is made one pod after the other"
    world.now += 4
    world.settle()
    assert world.told("p0") == ["ErrWorkloadCompose: Waiting for the whole pod group g: 3 of 4 pods exist"]
    assert all(names.ADMISSION_GATE in world.gates(name) for name in world.pods())


def test_incomplete_group_can_be_deleted() -> None:
    world = World().put(*(member(f"p{i}", 4) for i in range(3))).settle()
    for name in list(world.pods()):
        world.delete("Pod", name)
        world.settle()
    assert world.objects == {}
    assert not any(isinstance(effect, Create) for effect in world.done)


FAST = {names.POD_GROUP_FAST_ADMISSION: "true"}


def test_fast_admission_needs_one_pod() -> None:
    world = World().put(member("p0", 3, annotations=FAST)).settle()
    (pod_set,) = world.wl["spec"]["podSets"]
    assert pod_set["count"] == 3
    world.admit()
    world.settle()
    assert world.gates("p0") == []
    world.put(member("p1", 3, annotations=FAST)).settle()
    assert world.gates("p1") == []
    assert {owner["uid"] for owner in world.wl["metadata"]["ownerReferences"]} == {"uid-p0", "uid-p1"}
    assert world.status_of("WaitingForReplacementPods") is None


DISAGREEING = {
    "queues": (member("a"), pod("b", "lq2", group=GROUP, total=2), "name different queues: lq, lq2"),
    "totals": (member("a"), member("b", 3), "do not agree on a total count of at least 1: 2, 3"),
    "a total that is no number": (member("a", "x"), member("b", "x"), "total count of at least 1: x"),
}


@pytest.mark.parametrize(("one", "other", "words"), DISAGREEING.values(), ids=DISAGREEING.keys())
def test_disagreement_is_told_and_never_admitted(one: Any, other: Any, words: str) -> None:
    world = World().put(copy.deepcopy(one), copy.deepcopy(other)).settle()
    assert world.workloads() == []
    assert words in world.told("a")[0]
    assert words in world.told("b")[0]


def test_at_most_eighteen_roles() -> None:
    world = World().put(*(member(f"p{i}", 19, role=f"role{i}") for i in range(19))).settle()
    assert world.workloads() == []
    assert "19 kinds of pods" in world.told("p0")[0]


def test_group_without_any_queue_is_told() -> None:
    settings = Settings(manage_jobs_without_queue_name=True)
    world = World(settings=settings).put(pod("a", None, group=GROUP, total=1)).settle()
    assert "no queue" in world.told("a")[0]


@pytest.mark.parametrize("end", ["deleted", "succeeded"])
def test_name_of_another_workload_is_never_taken(end: str) -> None:
    world = World().put(job()).settle()
    world.admit()
    world.settle()
    name = world.wl["metadata"]["name"]
    before = copy.deepcopy(world.wl)
    world.put(pod("p", group=name, total=1)).settle()
    assert names.ADMISSION_GATE in world.gates("p")
    assert world.told("p")[0].startswith("WorkloadNameConflict: ")
    if end == "deleted":
        world.delete("Pod", "p")
        world.settle()
        assert world.pods() == {}
    else:
        world.change("Pod", "p", {"status": {"phase": "Succeeded"}})
        world.settle()
    assert world.wl == before
    assert not world.get("Job", "j")["spec"]["suspend"]


# ------------------------------------------------------------------ letting go


def test_group_is_let_go_whole() -> None:
    world = World().put(member("a"), member("b")).settle()
    world.admit()
    world.done.clear()
    world.settle()
    assert [effect.ref.name for effect in world.writes()] == ["a", "b"]
    assert [world.gates("a"), world.gates("b")] == [[], []]


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_release_cut_short_is_completed(writes: int) -> None:
    world = World().put(*(member(f"p{i}", 4) for i in range(4))).settle()
    world.admit()
    world.settle(stop_after=writes)
    assert sum(bool(world.gates(name)) for name in world.pods()) == 4 - writes
    world.settle()
    assert not any(world.gates(name) for name in world.pods())


def test_nothing_is_let_go_when_a_pod_went_before_the_release() -> None:
    world = World().put(member("a"), member("b")).settle()
    world.admit()
    world.delete("Pod", "b")
    world.settle()
    assert names.ADMISSION_GATE in world.gates("a")
    assert world.is_true("WaitingForReplacementPods")
    world.put(member("c")).settle()
    assert [world.gates("a"), world.gates("c")] == [[], []]


def test_pods_are_spread_over_the_domains_of_their_role() -> None:
    world = World().put(*(member(f"p{i}", 3) for i in range(3))).settle()
    piece = {
        "domainCount": 2,
        "valuesPerLevel": [{"individual": {"prefix": "r", "roots": ["1", "2"]}}],
        "podCounts": {"individual": [2, 1]},
    }
    world.admit(topology={"levels": ["rack"], "slices": [piece]})
    world.settle(stop_after=1)
    world.settle()
    got = [raw["spec"]["nodeSelector"]["rack"] for _, raw in sorted(world.pods().items())]
    assert got == ["r1", "r1", "r2"]


def test_outsider_is_told_and_stays() -> None:
    world = started()
    world.put(member("odd", role="other")).settle()
    assert names.ADMISSION_GATE in world.gates("odd")
    assert "does not fit" in world.told("odd")[0]
    assert set(world.pods()) == {"p0", "p1", "odd"}


def test_replacement_from_another_queue_is_an_outsider() -> None:
    world = started()
    world.end_pod("p0")
    world.put(pod("odd", "lq2", group=GROUP, total=2)).settle()
    assert names.ADMISSION_GATE in world.gates("odd")
    assert world.wl["spec"]["queueName"] == "lq"


def test_group_that_moves_whole_is_followed() -> None:
    world = World().put(member("a"), member("b")).settle()
    for name in ("a", "b"):
        world.change("Pod", name, {"metadata": {"labels": {names.QUEUE_LABEL: "lq2"}}})
        world.settle()
    assert world.wl["spec"]["queueName"] == "lq2"


# ------------------------------------------------------------------ excess and replacement


def test_excess_pod_is_the_newest_gated_one() -> None:
    world = started()
    world.put(member("third")).settle()
    assert set(world.pods()) == {"p0", "p1"}
    assert world.told("third") == ["ExcessPodDeleted: Excess pod deleted: the pod group g has 2 pods"]
    assert not any(isinstance(effect, Delete) and effect.ref.name != "third" for effect in world.done)


def test_gated_pod_is_the_excess_one_even_if_it_is_the_oldest() -> None:
    world = started()
    world.put(member("third", age=100)).settle()
    assert set(world.pods()) == {"p0", "p1"}


def test_excess_before_the_workload_exists() -> None:
    world = World().put(member("a", age=3), member("b", age=2), member("c", age=1)).settle()
    assert set(world.pods()) == {"a", "b"}
    assert world.wl["spec"]["podSets"][0]["count"] == 2


def test_one_of_two_replacements_is_kept() -> None:
    world = started()
    world.end_pod("p0")
    world.settle()
    assert world.is_true("WaitingForReplacementPods")
    world.put(member("r0"), member("r1")).settle()
    assert set(world.pods()) == {"p0", "p1", "r0"}
    assert world.gates("r0") == []
    assert world.status_of("WaitingForReplacementPods") == "False"


def test_early_replacement_is_kept_and_waits_for_the_old_pod_to_end() -> None:
    world = started()
    world.delete("Pod", "p0")
    world.put(member("r")).settle()
    assert set(world.pods()) == {"p0", "p1", "r"}
    assert names.ADMISSION_GATE in world.gates("r"), "never more pods than were admitted"
    world.end_pod("p0")
    world.settle()
    assert set(world.pods()) == {"p1", "r"}
    assert world.gates("r") == []
    assert world.is_true("Admitted")


def test_pod_on_a_lost_node_does_not_keep_its_replacement_for_ever() -> None:
    world = started()
    world.delete("Pod", "p0")
    world.put(member("r")).settle()
    assert world.last.requeue_after is not None
    world.now = NOW + 31
    world.settle()
    assert world.gates("r") == []
    world.delete("Pod", "p0", grace=0)  # by force
    world.change("Pod", "p0", {"metadata": {"deletionGracePeriodSeconds": 0}})
    world.settle()
    assert "p0" not in world.pods()


# ------------------------------------------------------------------ eviction


def evicted(*pods: dict[str, Any]) -> World:
    world = started(*pods)
    world.evict()
    world.settle()
    assert world.is_true("QuotaReserved"), "quota is kept while pods run"
    return world


def test_evicted_group_waits_for_replacements_without_quota() -> None:
    world = evicted()
    for name in ("p0", "p1"):
        world.end_pod(name)
    world.settle()
    assert world.status_of("QuotaReserved") == "False"
    waiting = next(c for c in world.wl["status"]["conditions"] if c["type"] == "WaitingForReplacementPods")
    assert (waiting["status"], waiting["reason"], waiting["message"]) == ("True", "Preempted", "make room")
    assert set(world.pods()) == {"p0"}, "one is kept, so that the workload is not garbage"

    world.put(member("again0")).settle()
    assert set(world.pods()) == {"again0"}
    assert world.is_true("WaitingForReplacementPods")
    world.put(member("again1")).settle()
    assert world.status_of("WaitingForReplacementPods") == "False"
    world.admit()
    world.settle()
    assert [world.gates("again0"), world.gates("again1")] == [[], []]
    assert world.wl["metadata"]["name"] == GROUP


def test_quota_and_waiting_change_in_one_write() -> None:
    world = evicted()
    world.settle()
    world.end_pod("p0")
    world.change("Pod", "p1", {"status": {"phase": "Failed"}})
    world.done.clear()
    world.settle()
    statuses = [e for e in world.writes() if isinstance(e, Patch) and e.ref.kind == "Workload"]
    assert len(statuses) == 1


def test_deleting_the_workload_gives_an_evicted_group_up() -> None:
    world = evicted()
    for name in ("p0", "p1"):
        world.end_pod(name)
    world.settle()
    world.delete("Workload", GROUP)
    assert world.settle().objects == {}


def test_user_who_deletes_the_replacements_is_not_held_up() -> None:
    world = evicted()
    for name in ("p0", "p1"):
        world.end_pod(name)
    world.put(member("again0")).settle()
    world.delete("Pod", "again0")
    assert world.settle().objects == {}


def test_serving_group_lets_every_ended_pod_go() -> None:
    serving = {names.POD_GROUP_SERVING: "true"}
    keep = ["example.com/keep", names.POD_FINALIZER]
    world = evicted(
        member("p0", age=20, annotations=serving), member("p1", age=20, annotations=serving, finalizers=keep)
    )
    world.end_pod("p0", "Failed")
    world.end_pod("p1", "Succeeded")
    world.settle()
    assert set(world.pods()) == {"p1"}
    assert finalizers(world, "p1") == ["example.com/keep"]
    assert world.workloads() == []
    del world.objects["Pod", "p1"]
    world.put(member("p0", annotations=serving)).settle()
    assert "p0" in world.pods()


def test_gated_pods_survive_an_eviction() -> None:
    world = World().put(member("a"), member("b")).settle()
    world.admit()
    world.settle(stop_after=1)
    world.run_pod("a")
    world.evict()
    world.settle()
    world.end_pod("a")
    world.settle()
    assert set(world.pods()) == {"b"}
    assert world.status_of("QuotaReserved") == "False"
    assert names.ADMISSION_GATE in world.gates("b")


def test_user_deletes_the_whole_running_group() -> None:
    world = started()
    for name in ("p0", "p1"):
        world.delete("Pod", name)
    world.settle()
    for name in ("p0", "p1"):
        world.end_pod(name)
    assert world.settle().objects == {}


def test_deleted_workload_of_a_waiting_group_comes_again() -> None:
    world = World().put(member("a"), member("b")).settle()
    uid = world.wl["metadata"]["uid"]
    world.delete("Workload", GROUP)
    world.settle()
    assert world.wl["metadata"]["uid"] != uid
    assert set(world.pods()) == {"a", "b"}


def test_waiting_group_of_another_shape_makes_its_workload_anew() -> None:
    world = World().put(member("a"), member("b")).settle()
    for name in ("a", "b"):
        world.delete("Pod", name)
    world.put(member("c", role="big"), member("d", role="big")).settle()
    assert [(entry["name"], entry["count"]) for entry in world.wl["spec"]["podSets"]] == [("big", 2)]


# ------------------------------------------------------------------ the end


def test_group_ends_when_all_have_succeeded() -> None:
    world = started()
    world.end_pod("p0", "Succeeded")
    world.settle()
    assert world.wl["status"]["reclaimablePods"] == [{"name": "role0000", "count": 1}]
    world.end_pod("p1", "Succeeded")
    world.settle()
    done = world.wl["status"]["conditions"][-1]
    assert (done["type"], done["reason"], done["message"]) == ("Finished", "Succeeded", "Pods succeeded: 2/2.")
    assert [finalizers(world, "p0"), finalizers(world, "p1"), world.wl["metadata"]["finalizers"]] == [[], [], []]
    world.done.clear()
    assert world.settle().done == []


def test_what_was_given_back_is_not_taken_again() -> None:
    world = started()
    world.end_pod("p0", "Succeeded")
    world.settle()
    del world.objects["Pod", "p0"]  # somebody took its finalizer off
    world.settle()
    assert world.wl["status"]["reclaimablePods"] == [{"name": "role0000", "count": 1}]


def test_success_of_a_deleted_pod_is_remembered() -> None:
    world = started()
    world.end_pod("p0", "Succeeded")
    world.delete("Pod", "p0")
    world.settle()
    assert "p0" in world.pods()
    world.end_pod("p1", "Succeeded")
    world.settle()
    assert world.is_true("Finished")
    assert set(world.pods()) == {"p1"}


def test_serving_group_never_ends_and_gives_nothing_back() -> None:
    serving = {names.POD_GROUP_SERVING: "true"}
    world = started(*(member(f"p{i}", annotations=serving, age=20) for i in range(2)))
    for name in ("p0", "p1"):
        world.end_pod(name, "Succeeded")
    world.settle()
    assert world.status_of("Finished") is None
    assert "reclaimablePods" not in world.wl["status"]


def test_unretriable_group_ends_with_its_last_pod() -> None:
    world = started(member("p0", age=20, annotations={names.RETRIABLE_IN_GROUP: "false"}), member("p1", age=20))
    world.end_pod("p0")
    world.settle()
    assert world.status_of("Finished") is None
    world.end_pod("p1", "Succeeded")
    world.settle()
    assert world.wl["status"]["conditions"][-1]["reason"] == "Failed"
    assert [finalizers(world, "p0"), finalizers(world, "p1")] == [[], []]


def test_ready_when_all_are() -> None:
    settings = convert({"waitForPodsReady": {}}, Settings)
    world = World(settings=settings).put(member("a"), member("b")).settle()
    world.admit()
    world.settle()
    world.run_pod("a")
    world.settle()
    assert world.status_of("PodsReady") is None
    world.run_pod("b")
    world.settle()
    assert world.is_true("PodsReady")


def test_excess_pod_that_is_being_deleted_is_let_go() -> None:
    world = started()
    extra = member("extra")
    extra["metadata"]["deletionTimestamp"] = stamp()
    world.put(extra).settle()
    assert "extra" not in world.pods()


DEAR: list[dict[str, Any]] = [{"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "8"}}}]


def test_pods_that_only_say_that_they_are_alike_do_not_make_a_group() -> None:
    """The role is an annotation, which its user can write."""
    world = World().put(member("cheap", age=9), member("dear", containers=DEAR)).settle()
    assert world.workloads() == []
    assert "ask for different amounts" in world.told("dear")[-1]


def test_a_pod_that_only_says_that_it_is_like_the_others_is_not_let_go() -> None:
    world = World().put(member("a", age=9), member("b", age=8)).settle()
    world.admit()
    world.delete("Pod", "b")
    world.put(member("dear", containers=DEAR)).settle()
    assert names.ADMISSION_GATE in world.gates("dear")
    assert not any("dear" in effect.ref.name for effect in world.done if isinstance(effect, Patch))

"""Jobs that were admitted, and that run, with their Workloads."""

from typing import Any

from tests.unit.jobs.builders import World, job, stamp

TOLERATION = {"key": "gpu", "operator": "Exists"}


def admitted(raw: dict[str, Any] | None = None, **world: Any) -> World:
    result = World(**world).put(raw or job()).settle()
    result.admit()
    return result.settle()


def running(raw: dict[str, Any] | None = None, active: int = 2, **world: Any) -> World:
    result = admitted(raw, **world)
    result.change("Job", "j", {"status": {"active": active, "ready": active, "startTime": stamp()}})
    return result.settle()


def stopped(world: World) -> None:
    world.change("Job", "j", {"status": {"active": 0, "ready": 0}})

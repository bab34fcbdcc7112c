"""Whatever is written into the spec of a custom job, it is led without a fault and never left running by itself."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admission.api.decoding import convert
from admission.api.job_kinds import CustomJob
from tests.unit.jobs.custom_jobs import KINDS, Kind, world
from tests.unit.webhook.asking import ask
from tests.unit.webhook.test_custom_jobs import every

NONSENSE: list[Any] = [None, [], {}, "text", 7, True, {"a": [None]}, [[]], [None]]


def disturbed(value: Any, chance: Random, *, is_spec: bool = True) -> Any:
    """The value with nonsense in some places of it."""
    if not is_spec and chance.random() < 0.1:
        return copy.deepcopy(chance.choice(NONSENSE))
    if isinstance(value, dict):
        return {key: disturbed(each, chance, is_spec=False) for key, each in value.items()}
    if isinstance(value, list):
        return [disturbed(each, chance, is_spec=False) for each in value]
    return value


@given(kind=st.sampled_from(KINDS), chance=st.randoms(use_true_random=False))
def test_nonsense_in_a_spec_is_no_fault(kind: Kind, chance: Random) -> None:
    job = kind.make()
    job["spec"] = disturbed(job["spec"], chance)
    for verb in ("mutate", "validate"):
        ask(verb, job, with_settings=every())
    ask("validate", job, kind.make(), with_settings=every())
    w = world(job, *kind.parts(job)).settle()
    if not w.workloads():
        return
    w.admit()
    w.settle()
    w.evict()
    w.settle()
    assert convert(w.objects[job["kind"], "j"], CustomJob).is_suspended

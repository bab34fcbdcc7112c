"""TrainJobs, which have no templates of their own: what is read of their JobSets, and what they are patched with."""

from __future__ import annotations

from admission.api import names
from admission.jobs.effects import Patch
from tests.unit.jobs.custom_jobs import (
    job_set_of,
    spec,
    train_job,
    world,
)


def test_a_train_job_waits_until_the_trainer_has_made_its_job_set() -> None:
    job = train_job()
    w = world(job).settle()
    assert w.workloads() == []
    w.put(job_set_of(job)).settle()
    assert [each["name"] for each in w.wl["spec"]["podSets"]] == ["driver", "workers"]


def test_a_train_job_gets_its_patches_before_it_is_let_go() -> None:
    job = train_job()
    w = world(job, job_set_of(job)).settle()
    w.admit()
    w.settle()
    written = [effect.body for effect in w.done if isinstance(effect, Patch) and effect.ref.kind == "TrainJob"]
    assert ["runtimePatches" in each["spec"] for each in written if isinstance(each, dict)] == [True, False]
    [entry] = spec(w, "TrainJob")["runtimePatches"]
    [driver, _] = entry["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pods = driver["template"]["spec"]["template"]
    assert pods["spec"]["nodeSelector"] == {"pool": "a"}
    assert pods["metadata"]["labels"][names.PODSET_LABEL] == "driver"
    assert "app" not in pods["metadata"]["labels"], "what the runtime says already is not said again"


def test_patches_of_others_stay_with_a_train_job() -> None:
    job = train_job()
    others = {"manager": "someone", "trainingRuntimeSpec": {"template": {}}}
    job["spec"]["runtimePatches"] = [others]
    w = world(job, job_set_of(job)).settle()
    w.admit()
    w.settle()
    assert spec(w, "TrainJob")["runtimePatches"][0] == others
    assert len(spec(w, "TrainJob")["runtimePatches"]) == 2


def test_what_the_trainer_has_not_taken_out_yet_is_not_taken_for_the_runtimes() -> None:
    job = train_job()
    made = job_set_of(job)
    for each in made["spec"]["replicatedJobs"]:
        template = each["template"]["spec"]["template"]
        template["metadata"]["labels"][names.PODSET_LABEL] = each["name"]
        template["spec"]["nodeSelector"] = {"pool": "old"}
    w = world(job, made).settle()
    assert w.workloads() == []

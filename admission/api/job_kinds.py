"""The kinds of jobs that come with operators of their own: names, where each is suspended, and where its pods stand.

One table that watching, writing, the webhook and the settings are made from; what a kind means is its adapter's matter.
An object stays the plain dicts that the API server sent but for its metadata, so that no field of an operator's own is
ever lost in a write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from admission.api.meta import ObjectMeta
from admission.api.schema import Object, always

#: Marks in a path for every item of a list and for every value of a map.
EACH: Final = "[]"
EVERY: Final = "{}"

Path = tuple[str, ...]


class CustomJob(Object, frozen=True):
    """An object of any of these kinds."""

    api_version: str = always("")
    kind: str = always("")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def is_suspended(self) -> bool:
        kind = BY_NAME.get(self.kind)
        found: Any = self.spec
        for part in () if kind is None else kind.suspend:
            found = found.get(part) if isinstance(found, Mapping) else None
        return found is True


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind.

    `suspend` is a path in the spec. `templates` are the paths in the spec to all pod specs, as far as the object itself
    has them; none where only the adapter can tell. `gate`: the feature gate that switches the kind on.
    """

    framework: str
    group: str
    version: str
    kind: str
    suspend: Path = ("suspend",)
    templates: tuple[Path, ...] = ()
    takes_prebuilt: bool = True
    gate: str = ""

    @property
    def plural(self) -> str:
        return f"{self.kind.lower()}s"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


_POD: Final = ("template", "spec")


def _kubeflow(kind: str, replicas: str, *, takes_prebuilt: bool = True, version: str = "v1") -> JobKind:
    return JobKind(
        framework=f"kubeflow.org/{kind.lower()}",
        group="kubeflow.org",
        version=version,
        kind=kind,
        suspend=("runPolicy", "suspend"),
        templates=((replicas, EVERY, *_POD),),
        takes_prebuilt=takes_prebuilt,
    )


def _cluster(*at: str) -> tuple[Path, ...]:
    return (*at, "headGroupSpec", *_POD), (*at, "workerGroupSpecs", EACH, *_POD)


def _ray(kind: str, templates: tuple[Path, ...], suspend: Path = ("suspend",)) -> JobKind:
    return JobKind(f"ray.io/{kind.lower()}", "ray.io", "v1", kind, suspend, templates)


JOB_SET: Final = JobKind(
    framework="jobset.x-k8s.io/jobset",
    group="jobset.x-k8s.io",
    version="v1alpha2",
    kind="JobSet",
    templates=(("replicatedJobs", EACH, "template", "spec", *_POD),),
)
PYTORCH_JOB: Final = _kubeflow("PyTorchJob", "pytorchReplicaSpecs")
TF_JOB: Final = _kubeflow("TFJob", "tfReplicaSpecs")
XGBOOST_JOB: Final = _kubeflow("XGBoostJob", "xgbReplicaSpecs")
PADDLE_JOB: Final = _kubeflow("PaddleJob", "paddleReplicaSpecs")
JAX_JOB: Final = _kubeflow("JAXJob", "jaxReplicaSpecs", takes_prebuilt=False)
MPI_JOB: Final = _kubeflow("MPIJob", "mpiReplicaSpecs", version="v2beta1")
RAY_CLUSTER: Final = _ray("RayCluster", _cluster())
RAY_JOB: Final = _ray("RayJob", (*_cluster("rayClusterSpec"), ("submitterPodTemplate", "spec")))
RAY_SERVICE: Final = _ray("RayService", _cluster("rayClusterConfig"), ("rayClusterConfig", "suspend"))
TRAIN_JOB: Final = JobKind("trainer.kubeflow.org/trainjob", "trainer.kubeflow.org", "v1alpha1", "TrainJob")
APP_WRAPPER: Final = JobKind("workload.codeflare.dev/appwrapper", "workload.codeflare.dev", "v1beta2", "AppWrapper")
SPARK_APPLICATION: Final = JobKind(
    framework="sparkoperator.k8s.io/sparkapplication",
    group="sparkoperator.k8s.io",
    version="v1beta2",
    kind="SparkApplication",
    takes_prebuilt=False,
    gate="SparkApplicationIntegration",
)

#: What wraps others comes before them.
JOB_KINDS: Final = (
    APP_WRAPPER,
    TRAIN_JOB,
    JOB_SET,
    PYTORCH_JOB,
    TF_JOB,
    XGBOOST_JOB,
    PADDLE_JOB,
    JAX_JOB,
    MPI_JOB,
    RAY_JOB,
    RAY_SERVICE,
    RAY_CLUSTER,
    SPARK_APPLICATION,
)
BY_NAME: Final[Mapping[str, JobKind]] = {each.kind: each for each in JOB_KINDS}

#: A TrainJob's pods are those of the JobSet that its operator makes, so that one is read with it.
_READ_WITH: Final = {TRAIN_JOB.framework: JOB_SET}


def enabled(frameworks: Iterable[str]) -> tuple[JobKind, ...]:
    """The kinds of these frameworks."""
    names = frozenset(frameworks)
    return tuple(each for each in JOB_KINDS if each.framework in names)


def observed(frameworks: Iterable[str]) -> tuple[JobKind, ...]:
    """The kinds to follow for these frameworks."""
    names = frozenset(frameworks)
    wanted = names | {_READ_WITH[name].framework for name in names if name in _READ_WITH}
    return enabled(wanted)

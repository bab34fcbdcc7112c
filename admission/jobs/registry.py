"""Which adapters are switched on, by the frameworks that the settings name.

A new kind of job is a module that implements `interface.Adapter` and one entry here. Frameworks that have no adapter
are refused by name, never ignored.
"""

from __future__ import annotations

from admission.api.names import DEPLOYMENT_INTEGRATION
from admission.jobs.app_wrappers import APP_WRAPPERS
from admission.jobs.batch_job import BatchJobs
from admission.jobs.described import Description
from admission.jobs.described_jobs import DescribedJobs
from admission.jobs.interface import Adapter
from admission.jobs.job_sets import JOB_SETS
from admission.jobs.kubeflow import KUBEFLOW
from admission.jobs.leader_worker_sets import LeaderWorkerSets
from admission.jobs.pod_groups import PodGroups
from admission.jobs.pods import SinglePods
from admission.jobs.ray import RAY
from admission.jobs.spark import SPARK_APPLICATIONS
from admission.jobs.stateful_sets import StatefulSets
from admission.jobs.topology_ungating import TopologyUngater
from admission.jobs.train_jobs import TRAIN_JOBS
from admission.settings import Settings

#: Kinds whose operators take a suspend field. A TrainJob comes before the JobSet that is made of it.
DESCRIPTIONS: tuple[Description, ...] = (
    APP_WRAPPERS,
    TRAIN_JOBS,
    JOB_SETS,
    *KUBEFLOW,
    *RAY,
    SPARK_APPLICATIONS,
)

#: In the order in which they are asked whether an object is theirs.
ADAPTERS: tuple[Adapter, ...] = (
    BatchJobs(),
    StatefulSets(),
    LeaderWorkerSets(),
    *map(DescribedJobs, DESCRIPTIONS),
    PodGroups(),
    SinglePods(),
    TopologyUngater(),
)

#: The pods of a Deployment are queued one by one, so that it needs no adapter.
FRAMEWORKS = frozenset(adapter.framework for adapter in ADAPTERS if adapter.framework) | {DEPLOYMENT_INTEGRATION}


def adapters(settings: Settings) -> tuple[Adapter, ...]:
    """The adapters of the enabled frameworks, and those that every framework needs. ValueError for an unknown one."""
    enabled = settings.integrations.enabled
    if unknown := sorted(enabled - FRAMEWORKS):
        raise ValueError(f"integrations.frameworks: no adapter for {', '.join(unknown)}")
    return tuple(adapter for adapter in ADAPTERS if not adapter.framework or adapter.framework in enabled)

"""Which adapters are switched on, by the frameworks that the settings name.

A new kind of job is a module that implements `interface.Adapter` and one entry here. Frameworks that have no adapter
are refused by name, never ignored.
"""

from __future__ import annotations

from admission.jobs.batch_job import BatchJobs
from admission.jobs.interface import Adapter
from admission.jobs.pod_groups import PodGroups
from admission.jobs.pods import SinglePods
from admission.jobs.topology_ungating import TopologyUngater
from admission.settings import Settings

#: In the order in which they are asked whether an object is theirs.
ADAPTERS: tuple[Adapter, ...] = (BatchJobs(), PodGroups(), SinglePods(), TopologyUngater())

FRAMEWORKS = frozenset(adapter.framework for adapter in ADAPTERS if adapter.framework)


def adapters(settings: Settings) -> tuple[Adapter, ...]:
    """The adapters of the enabled frameworks, and those that every framework needs. ValueError for an unknown one."""
    enabled = set(settings.integrations.frameworks)
    if unknown := sorted(enabled - FRAMEWORKS):
        raise ValueError(f"integrations.frameworks: no adapter for {', '.join(unknown)}")
    return tuple(adapter for adapter in ADAPTERS if not adapter.framework or adapter.framework in enabled)

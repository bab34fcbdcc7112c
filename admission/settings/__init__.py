"""The settings of every Muster process: Kueue's Configuration with Muster's own section beside it.

`load` reads a file and names the field that is wrong; `Settings` is the frozen result. Nothing here acts on a setting.
"""

from admission.settings.configuration import (
    AdmissionFairSharing,
    FairSharing,
    GpuPods,
    GpuShares,
    Inspection,
    Integrations,
    Journal,
    LabelSelector,
    LabelSelectorRequirement,
    LeaderElection,
    Muster,
    ObjectRetentionPolicies,
    QuotaCheckStrategy,
    RequeuingStrategy,
    RequeuingTimestamp,
    Resources,
    ResourceTransformation,
    Settings,
    Tracing,
    TransformationStrategy,
    WaitForPodsReady,
    WithoutQueue,
)
from admission.settings.durations import Seconds
from admission.settings.loading import SettingsError, dump, load, parse
from admission.settings.problems import warnings

__all__ = [
    "AdmissionFairSharing",
    "FairSharing",
    "GpuPods",
    "GpuShares",
    "Inspection",
    "Integrations",
    "Journal",
    "LabelSelector",
    "LabelSelectorRequirement",
    "LeaderElection",
    "Muster",
    "ObjectRetentionPolicies",
    "QuotaCheckStrategy",
    "RequeuingStrategy",
    "RequeuingTimestamp",
    "ResourceTransformation",
    "Resources",
    "Seconds",
    "Settings",
    "SettingsError",
    "Tracing",
    "TransformationStrategy",
    "WaitForPodsReady",
    "WithoutQueue",
    "dump",
    "load",
    "parse",
    "warnings",
]

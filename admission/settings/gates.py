"""Knows Kueue's feature gates: their defaults, and which of them can be set here.

Decides from the name and the value alone whether a gate may be given, and why not. A gate that would change behaviour
that Muster does not have is refused by name; it never lets a setting pass that would silently do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Read by the code: both values do what Kueue's do.
SWITCHED: Final = {
    "CustomMetricLabels": False,
    "DisableWaitForPodsReady": False,
    "FairSharingPreemptWithinNominal": True,
    "FastQuotaReleaseInPodIntegration": False,
    "FlavorFungibility": True,
    "FairSharingPrioritizeNonBorrowing": True,
    "KueueDRAIntegration": True,
    "KueueDRAIntegrationConsumableCapacity": False,
    "KueueDRAIntegrationExtendedResource": True,
    "KueueDRAIntegrationPartitionableDevices": True,
    "LWSImmutableGroupSize": True,
    "LocalQueueMetrics": True,
    "MetricForWorkloadCreationLatency": True,
    "MetricsForCohorts": True,
    "PartialAdmission": True,
    "PriorityBoost": False,
    "PrioritySortingWithinCohort": True,
    "SchedulingEquivalenceHashing": True,
    "ShortWorkloadNames": False,
    "SparkApplicationIntegration": False,
    "TASBalancedPlacement": False,
    "TASFailedNodeReplacement": True,
    "TASFailedNodeReplacementFailFast": True,
    "TASProfileMixed": True,
    "TASReplaceNodeOnNodeTaints": True,
    "TASReplaceNodeOnPodTermination": True,
    "TASRespectNodeAffinityPreferred": False,
    "UnadmittedWorkloadsExplicitStatus": False,
    "VisibilityOnDemand": True,
    "WorkloadPriorityClassDefaulting": True,
}

#: How Kueue does something inside, or a feature that is reached through other objects and settings only, which say
#: themselves when it is missing. Either value is accepted and nothing observable follows from it.
NEUTRAL: Final = {
    "CleanupProvisioningRequestsOnEviction": True,
    "DeferRayServiceFinalizationForRedisCleanup": True,
    "MultiKueue": True,
    "MultiKueueAdaptersForCustomJobs": True,
    "MultiKueueIncrementalDispatcherConfig": True,
    "MultiKueueIncrementalDispatcherRespectConfigOrder": True,
    "MultiKueueKubeConfigPathValidation": True,
    "MultiKueueRemoteSpecSync": True,
    # What an eviction frees is kept for the workload that it was made for, whatever the order of the others.
    "PrioritizePreemptorWorkloads": False,
    "RecomputeAssignmentUponPreemptionTargetsOverlap": True,
    "RemoveFinalizersWithStrictPatch": True,
    "SkipAncestorCheckForDeletedWorkloads": True,
    "TASAssignmentsEncodingByHostnamePrefix": True,
    "TASCacheNodeMatchResults": True,
    "TASCacheTopologyTree": True,
    "TASCachingRemainingResources": True,
    "TASRecomputeAssignmentWithinSchedulingCycle": True,
    "ValidateRayAndSparkJobUpdates": True,
    "VectorizedResourceRequests": True,
    "WorkloadRequestUseMergePatch": False,
}

#: Behaviour that is always as the default says; the other value is refused.
FIXED: Final = {
    "AdmissionFairSharing": True,
    "AdmissionGatedBy": True,
    "AssignQueueLabelsForPods": True,
    "ConcurrentAdmission": False,
    "ElasticJobsViaWorkloadSlices": True,
    "ElasticJobsViaWorkloadSlicesWithTAS": False,
    "FailureRecoveryPolicy": False,
    "FinishOrphanedWorkloads": True,
    "FlavorFungibilityPreserveScanProgress": True,
    "KueueDRARejectWorkloadsWhenDRADisabled": True,
    "ManagedJobsNamespaceSelectorAlwaysRespected": True,
    "MultiKueueClusterProfile": False,
    "MultiKueueManagerQuotaAutomation": False,
    "MultiKueueOrchestratedPreemption": False,
    "PodIntegrationValidateGroupOwner": True,
    "QuotaCheckStrategy": True,
    "ReclaimablePods": True,
    "RejectUpdatesToCQWithInvalidOnFlavors": False,
    "SchedulerLibraryIntegration": False,
    "SkipReassignmentForPodOwnedWorkloads": True,
    "TASHandleOverlappingFlavors": True,
    "TASMultiLayerTopology": True,
    "TASReplaceNodeDueToNotReadyOverFixedTime": False,
    "TASValidateWorkloadSliceSize": True,
    "TLSOptions": True,
    "TopologyAwareScheduling": True,
    "UnadmittedWorkloadsObservability": True,
    "WorkloadIdentifierAnnotations": True,
    "WorkloadValidateResourcesAreNonNegative": True,
    "WorkloadValidationForPodSetMetadata": True,
}

#: Gates that mean nothing without another one.
NEEDS: Final = {
    "KueueDRAIntegrationConsumableCapacity": "KueueDRAIntegration",
    "KueueDRAIntegrationExtendedResource": "KueueDRAIntegration",
    "KueueDRAIntegrationPartitionableDevices": "KueueDRAIntegration",
    "TASFailedNodeReplacementFailFast": "TASFailedNodeReplacement",
    "TASReplaceNodeOnPodTermination": "TASFailedNodeReplacement",
    "UnadmittedWorkloadsExplicitStatus": "UnadmittedWorkloadsObservability",
}

DEFAULTS: Final[Mapping[str, bool]] = {**SWITCHED, **NEUTRAL, **FIXED}


def problem(name: str, value: bool) -> str | None:
    """Why this gate cannot be set to `value`, and what to do; None when it can."""
    if name not in DEFAULTS:
        return "there is no feature gate of this name; remove it or correct its spelling"
    if name in FIXED and value != FIXED[name]:
        wanted = str(FIXED[name]).lower()
        return f"{str(value).lower()} is not available here; Muster always behaves as with {wanted}: remove the gate"
    return None

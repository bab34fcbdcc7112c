"""Every label, annotation, finalizer, gate, condition type, reason and event of Kueue's API that Muster speaks.

They are Kueue's words, so manifests, dashboards and controllers made for it work unchanged. Reasons that the core gives
are in `queues.core`. This module only names things: what a name means is decided where it is read.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
API_VERSION: Final = f"{GROUP}/{VERSION}"
#: Served by the overlay only.
V1BETA1: Final = "v1beta1"
V1BETA1_API_VERSION: Final = f"{GROUP}/{V1BETA1}"
VISIBILITY_GROUP: Final = "visibility.kueue.x-k8s.io"
INSPECTION_GROUP: Final = "inspection.muster.dev"

# ------------------------------------------------------------------ on jobs and pods, set by their users

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS_LABEL: Final = "kueue.x-k8s.io/priority-class"
#: Annotation first, label as a fallback.
PREBUILT_WORKLOAD: Final = "kueue.x-k8s.io/prebuilt-workload-name"
MAX_EXEC_TIME_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
JOB_MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
JOB_COMPLETIONS_EQUAL_PARALLELISM: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
ELASTIC_JOB: Final = "kueue.x-k8s.io/elastic-job"
ADMISSION_GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"
PROVREQ_PREFIX: Final = "provreq.kueue.x-k8s.io/"
PRIORITY_BOOST: Final = "kueue.x-k8s.io/priority-boost"

# ------------------------------------------------------------------ Muster's own

#: On a ResourceFlavor: Pack (as without it), Spread or FragmentationAware.
PACKING: Final = "muster.dev/packing"

# ------------------------------------------------------------------ topology, on pod templates

PODSET_REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
PODSET_PREFERRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-preferred-topology"
PODSET_UNCONSTRAINED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
PODSET_SLICE_REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-slice-required-topology"
PODSET_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
PODSET_SLICE_CONSTRAINTS: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
PODSET_GROUP_NAME: Final = "kueue.x-k8s.io/podset-group-name"
POD_INDEX_OFFSET: Final = "kueue.x-k8s.io/pod-index-offset"

# ------------------------------------------------------------------ pods and pod groups

#: Label (value "true") and, under the same name, the finalizer of managed pods.
MANAGED_LABEL: Final = "kueue.x-k8s.io/managed"
#: Annotation first, label as a fallback.
POD_GROUP_NAME: Final = "kueue.x-k8s.io/pod-group-name"
POD_GROUP_TOTAL_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
POD_GROUP_FAST_ADMISSION: Final = "kueue.x-k8s.io/pod-group-fast-admission"
POD_GROUP_SERVING: Final = "kueue.x-k8s.io/pod-group-serving"
POD_GROUP_POD_INDEX: Final = "kueue.x-k8s.io/pod-group-pod-index"
POD_GROUP_POD_INDEX_LABEL: Final = "kueue.x-k8s.io/pod-group-pod-index-label"
RETRIABLE_IN_GROUP: Final = "kueue.x-k8s.io/retriable-in-group"
ROLE_HASH: Final = "kueue.x-k8s.io/role-hash"
#: Muster's own, only where traces are on: when the webhook gated the object, and how long that took it.
REVIEWED: Final = "muster.dev/reviewed"
POD_SUSPENDING_PARENT: Final = "kueue.x-k8s.io/pod-suspending-parent"
IS_GROUP_WORKLOAD: Final = "kueue.x-k8s.io/is-group-workload"

# ------------------------------------------------------------------ written by the queueing system

JOB_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
JOB_OWNER_GVK: Final = "kueue.x-k8s.io/job-owner-gvk"
JOB_OWNER_NAME: Final = "kueue.x-k8s.io/job-owner-name"
COMPONENT_WORKLOAD_INDEX: Final = "kueue.x-k8s.io/component-workload-index"
PODSET_LABEL: Final = "kueue.x-k8s.io/podset"
CLUSTER_QUEUE_LABEL: Final = "kueue.x-k8s.io/cluster-queue-name"
LOCAL_QUEUE_LABEL: Final = "kueue.x-k8s.io/local-queue-name"
WORKLOAD_ANNOTATION: Final = "kueue.x-k8s.io/workload"
WORKLOAD_SLICE_REPLACEMENT_FOR: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
STOPPING: Final = "kueue.x-k8s.io/stopping"

# ------------------------------------------------------------------ finalizers, gates, defaults

RESOURCE_IN_USE_FINALIZER: Final = "kueue.x-k8s.io/resource-in-use"
POD_FINALIZER: Final = MANAGED_LABEL
ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
ELASTIC_JOB_GATE: Final = "kueue.x-k8s.io/elastic-job"
DEFAULT_LOCAL_QUEUE: Final = "default"
DEFAULT_WORKLOAD_PRIORITY_CLASS: Final = "default"
DEFAULT_POD_SET: Final = "main"
POD_INTEGRATION: Final = "pod"
JOB_INTEGRATION: Final = "batch/job"
DEPLOYMENT_INTEGRATION: Final = "deployment"
STATEFUL_SET_INTEGRATION: Final = "statefulset"
LEADER_WORKER_SET_INTEGRATION: Final = "leaderworkerset.x-k8s.io/leaderworkerset"
#: Queued by their pods, so that these have to be queued as well.
SERVING_INTEGRATIONS: Final = (DEPLOYMENT_INTEGRATION, STATEFUL_SET_INTEGRATION, LEADER_WORKER_SET_INTEGRATION)

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"

MULTIKUEUE_CONTROLLER: Final = "kueue.x-k8s.io/multikueue"

WORKLOAD_PRIORITY_CLASS_GROUP: Final = GROUP
WORKLOAD_PRIORITY_CLASS_KIND: Final = "WorkloadPriorityClass"
POD_PRIORITY_CLASS_GROUP: Final = "scheduling.k8s.io"
POD_PRIORITY_CLASS_KIND: Final = "PriorityClass"

# ------------------------------------------------------------------ condition types of Workloads

QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
PREEMPTED: Final = "Preempted"
BLOCKED_ON_PREEMPTION_GATES: Final = "BlockedOnPreemptionGates"
PODS_READY: Final = "PodsReady"
REQUEUED: Final = "Requeued"
DEACTIVATION_TARGET: Final = "DeactivationTarget"
FINISHED: Final = "Finished"
WAITING_FOR_REPLACEMENT_PODS: Final = "WaitingForReplacementPods"

#: Condition of queues, admission checks and worker clusters.
ACTIVE: Final = "Active"

# Conditions of pods that Muster writes or reads.
POD_SCHEDULED: Final = "PodScheduled"
POD_READY: Final = "Ready"
TERMINATION_TARGET: Final = "TerminationTarget"
TERMINATED_BY_KUEUE: Final = "TerminatedByKueue"

# ------------------------------------------------------------------ reasons of QuotaReserved=False

REASON_MISCONFIGURED: Final = "Misconfigured"
REASON_SUSPENDED: Final = "Suspended"
REASON_PENDING_EVALUATION: Final = "PendingEvaluation"
REASON_ADMISSION_GATED: Final = "AdmissionGated"
REASON_ON_HOLD: Final = "OnHold"
REASON_DEACTIVATED: Final = "Deactivated"

# ------------------------------------------------------------------ reasons of Admitted=False

REASON_NO_RESERVATION: Final = "NoReservation"
REASON_UNSATISFIED_ADMISSION_CHECKS: Final = "UnsatisfiedAdmissionChecks"
REASON_PENDING_DELAYED_TOPOLOGY_REQUESTS: Final = "PendingDelayedTopologyRequests"

# ------------------------------------------------------------------ reasons of Evicted=True

EVICTED_BY_PREEMPTION: Final = "Preempted"
EVICTED_BY_PODS_READY_TIMEOUT: Final = "PodsReadyTimeout"
EVICTED_BY_ADMISSION_CHECK: Final = "AdmissionCheck"
EVICTED_BY_CLUSTER_QUEUE_STOPPED: Final = "ClusterQueueStopped"
EVICTED_BY_LOCAL_QUEUE_STOPPED: Final = "LocalQueueStopped"
EVICTED_BY_NODE_FAILURES: Final = "NodeFailures"
EVICTED_BY_DEACTIVATION: Final = "Deactivated"
EVICTED_BY_DEACTIVATION_PREFIX: Final = "DeactivatedDueTo"

# ------------------------------------------------------------------ reasons of Preempted=True

PREEMPTED_IN_COHORT_RECLAIM_WHILE_BORROWING: Final = "InCohortReclaimWhileBorrowing"
REASON_PREEMPTION_GATED: Final = "PreemptionGated"

# ------------------------------------------------------------------ reasons of the other Workload conditions

REASON_WAIT_FOR_START: Final = "WaitForStart"
REASON_STARTED: Final = "Started"
REASON_WAIT_FOR_RECOVERY: Final = "WaitForRecovery"
REASON_RECOVERED: Final = "Recovered"

REASON_REACTIVATED: Final = "Reactivated"
REASON_BACKOFF_FINISHED: Final = "BackoffFinished"
REASON_CLUSTER_QUEUE_RESTARTED: Final = "ClusterQueueRestarted"
REASON_LOCAL_QUEUE_RESTARTED: Final = "LocalQueueRestarted"

REASON_REQUEUING_LIMIT_EXCEEDED: Final = "RequeuingLimitExceeded"
REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED: Final = "MaximumExecutionTimeExceeded"

REASON_SUCCEEDED: Final = "Succeeded"
REASON_FAILED: Final = "Failed"
REASON_OUT_OF_SYNC: Final = "OutOfSync"
REASON_OWNER_NOT_FOUND: Final = "OwnerNotFound"
REASON_FAILED_TO_START: Final = "FailedToStart"

REASON_PODS_FAILED: Final = "PodsFailed"
REASON_UNSCHEDULABLE_ON_ASSIGNED_NODE: Final = "UnschedulableOnAssignedNode"

# ------------------------------------------------------------------ states of admission checks on a Workload

CHECK_PENDING: Final = "Pending"
CHECK_READY: Final = "Ready"
CHECK_RETRY: Final = "Retry"
CHECK_REJECTED: Final = "Rejected"

DELAYED_TOPOLOGY_PENDING: Final = "Pending"
DELAYED_TOPOLOGY_READY: Final = "Ready"

GATE_OPEN: Final = "Open"
GATE_CLOSED: Final = "Closed"

# ------------------------------------------------------------------ Events on Workloads

EVENT_QUOTA_RESERVED: Final = "QuotaReserved"
EVENT_ADMITTED: Final = "Admitted"
EVENT_SECOND_PASS_FAILED: Final = "SecondPassFailed"  # noqa: S105 - an event, no password
EVENT_PREEMPTED: Final = "Preempted"
EVENT_PREEMPTED_WORKLOAD: Final = "PreemptedWorkload"
EVENT_EVICTED_PREFIX: Final = "EvictedDueTo"
EVENT_CHECK_REJECTED: Final = "AdmissionCheckRejected"
EVENT_MAXIMUM_EXECUTION_TIME_EXCEEDED: Final = "MaximumExecutionTimeExceeded"
EVENT_ADMISSION_GATED: Final = "AdmissionGated"
EVENT_ADMISSION_GATE_CLEARED: Final = "AdmissionGateCleared"

# ------------------------------------------------------------------ admission modes of ClusterQueues

USAGE_BASED: Final = "UsageBasedAdmissionFairSharing"

# ------------------------------------------------------------------ Events on jobs and pods

EVENT_STARTED: Final = "Started"
EVENT_STOPPED: Final = "Stopped"
EVENT_DELETED: Final = "Deleted"
EVENT_SUSPENDED: Final = "Suspended"
EVENT_DELETED_WORKLOAD: Final = "DeletedWorkload"
EVENT_UPDATED_WORKLOAD: Final = "UpdatedWorkload"
EVENT_NESTING_TOO_DEEP: Final = "JobNestingTooDeep"
EVENT_CREATED_WORKLOAD: Final = "CreatedWorkload"
EVENT_FINISHED_WORKLOAD: Final = "FinishedWorkload"
EVENT_COMPOSE_FAILED: Final = "ErrWorkloadCompose"
EVENT_PRIORITY_CLASS_NOT_FOUND: Final = "WorkloadPriorityClassNotFound"
EVENT_EXCESS_POD_DELETED: Final = "ExcessPodDeleted"
EVENT_WORKLOAD_NAME_CONFLICT: Final = "WorkloadNameConflict"
EVENT_POD_TERMINATED: Final = "PodTerminatedByKueue"

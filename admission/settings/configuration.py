"""The settings as typed values: Kueue's Configuration (config.kueue.x-k8s.io/v1beta2) and Muster's section beside it.

Names and defaults are Kueue's; fields that Kueue has and Muster does not act on are here as well, so that they can be
refused by name. These are plain values: they never read a file, the environment or the cluster.
"""

from __future__ import annotations

import ssl
from enum import Enum
from typing import Any

import msgspec

from admission.api import meta
from admission.api.names import NAMESPACE_NAME_LABEL, POD_INTEGRATION, SERVING_INTEGRATIONS
from admission.settings import cipher_suites, gates
from admission.settings.durations import Seconds

API_GROUP = "config.kueue.x-k8s.io"
V1BETA1 = f"{API_GROUP}/v1beta1"
V1BETA2 = f"{API_GROUP}/v1beta2"


class Section(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """Camel case outside, snake case inside; what it does not know is an error."""


class LabelSelectorRequirement(meta.LabelSelectorRequirement, frozen=True, forbid_unknown_fields=True):
    """The API's, but strict."""


class LabelSelector(meta.LabelSelector, frozen=True, forbid_unknown_fields=True):
    """The API's, but strict; `admission.api.meta.selects` says what it matches."""

    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


# ------------------------------------------------------------------ serving and process


class Webhook(Section, frozen=True):
    port: int = 9443
    host: str = ""
    cert_dir: str = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108  # Kueue's default, mounted there by its manifests


class LeaderElection(Section, frozen=True):
    leader_elect: bool = True
    lease_duration: Seconds = Seconds(15)
    renew_deadline: Seconds = Seconds(10)
    retry_period: Seconds = Seconds(2)
    resource_lock: str = "leases"
    resource_name: str = "c1f6bfd2.kueue.x-k8s.io"
    resource_namespace: str = ""


class CustomLabel(Section, frozen=True):
    name: str
    source_kind: str = "ClusterQueue"
    source_label_key: str = ""
    source_annotation_key: str = ""


class LocalQueueMetrics(Section, frozen=True):
    enable: bool = False
    local_queue_selector: LabelSelector | None = None


class Metrics(Section, frozen=True):
    """`bind_address` "0" (or empty) turns the endpoint off."""

    bind_address: str = ":8443"
    enable_cluster_queue_resources: bool = False
    custom_labels: tuple[CustomLabel, ...] = ()
    local_queue_metrics: LocalQueueMetrics | None = None


class Health(Section, frozen=True):
    health_probe_bind_address: str = ":8081"
    readiness_endpoint_name: str = "readyz"
    liveness_endpoint_name: str = "healthz"


class ControllerOptions(Section, frozen=True):
    """`group_kind_concurrency` are sizes of worker pools, which Muster has not: one task owns the state.

    `cache_sync_timeout`: a controller that does not know the whole cluster by then ends, and is started again.
    """

    group_kind_concurrency: dict[str, int] = {}
    cache_sync_timeout: Seconds = Seconds(120)


class TLSOptions(Section, frozen=True):
    """Of everything that is served. `curve_preferences` are known so that they can be refused by name."""

    min_version: str = "VersionTLS12"
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[int, ...] = ()


class InternalCertManagement(Section, frozen=True):
    enable: bool = True
    webhook_service_name: str = "kueue-webhook-service"
    webhook_secret_name: str = "kueue-webhook-server-cert"  # noqa: S105  # a name, not a secret


class ClientConnection(Section, frozen=True):
    qps: float = 300.0
    burst: int = 500


class VisibilityServer(Section, frozen=True):
    bind_address: str = "0.0.0.0"
    bind_port: int = 8082


# ------------------------------------------------------------------ behaviour


class RequeuingTimestamp(Enum):
    EVICTION = "Eviction"
    CREATION = "Creation"


class RequeuingStrategy(Section, frozen=True):
    """`backoff_limit_count` None: requeued for ever."""

    timestamp: RequeuingTimestamp = RequeuingTimestamp.EVICTION
    backoff_limit_count: int | None = None
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600


class WaitForPodsReady(Section, frozen=True):
    timeout: Seconds = Seconds(30 * 60)
    block_admission: bool = False
    recovery_timeout: Seconds | None = None
    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()

    @property
    def recovery(self) -> Seconds:
        """How long pods may be gone again after all were ready."""
        return self.timeout if self.recovery_timeout is None else self.recovery_timeout


class Integrations(Section, frozen=True):
    frameworks: tuple[str, ...] = ("batch/job",)
    external_frameworks: tuple[str, ...] = ()
    label_keys_to_copy: tuple[str, ...] = ()

    @property
    def enabled(self) -> frozenset[str]:
        """The frameworks, with pods where something is queued by its pods."""
        named = frozenset(self.frameworks)
        return named | {POD_INTEGRATION} if named.intersection(SERVING_INTEGRATIONS) else named


class MultiKueueExternalFramework(Section, frozen=True):
    name: str


class MultiKueue(Section, frozen=True):
    """Known so that it can be refused by name."""

    gc_interval: Seconds = Seconds(60)
    origin: str = "multikueue"
    worker_lost_timeout: Seconds = Seconds(900)
    dispatcher_name: str = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
    external_frameworks: tuple[MultiKueueExternalFramework, ...] = ()
    cluster_profile: dict[str, Any] = {}
    incremental_dispatcher_config: dict[str, Any] = {}


class PreemptionStrategy(Enum):
    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


class FairSharing(Section, frozen=True):
    preemption_strategies: tuple[PreemptionStrategy, ...]


class AdmissionFairSharing(Section, frozen=True):
    usage_half_life_time: Seconds = Seconds(0)
    usage_sampling_interval: Seconds = Seconds(5 * 60)
    resource_weights: dict[str, float] = {}


class QuotaCheckStrategy(Enum):
    BLOCK_UNDECLARED = "BlockUndeclared"
    IGNORE_UNDECLARED = "IgnoreUndeclared"


class TransformationStrategy(Enum):
    RETAIN = "Retain"
    REPLACE = "Replace"


class ResourceTransformation(Section, frozen=True):
    """`outputs` are quantities for each unit of `input` (and of `multiply_by`, where that is set)."""

    input: str
    strategy: TransformationStrategy = TransformationStrategy.RETAIN
    outputs: dict[str, str] = {}
    multiply_by: str = ""


class CelSelector(Section, frozen=True):
    expression: str


class SourceSelector(Section, frozen=True):
    cel: CelSelector


class DeviceSource(Section, frozen=True):
    """What devices of a `driver` count: their counter, or their capacity, of this `name`."""

    name: str
    driver: str
    device_selector: SourceSelector


class DeviceClassSource(Section, frozen=True):
    """One of them is set."""

    counter: DeviceSource | None = None
    capacity: DeviceSource | None = None


class DeviceClassMapping(Section, frozen=True):
    """Devices of these classes count as the resource `name`: one for each device, or what its `sources` say."""

    name: str
    device_class_names: tuple[str, ...] = ()
    sources: tuple[DeviceClassSource, ...] = ()


class Resources(Section, frozen=True):
    quota_check_strategy: QuotaCheckStrategy = QuotaCheckStrategy.BLOCK_UNDECLARED
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[ResourceTransformation, ...] = ()
    device_class_mappings: tuple[DeviceClassMapping, ...] = ()


class WorkloadRetention(Section, frozen=True):
    """None keeps for ever."""

    after_finished: Seconds | None = None
    after_deactivated_by_kueue: Seconds | None = None


class ObjectRetentionPolicies(Section, frozen=True):
    workloads: WorkloadRetention = WorkloadRetention()


# ------------------------------------------------------------------ Muster's own section


class WithoutQueue(Enum):
    """What happens to a GPU pod that names no queue."""

    DEFAULT_LOCAL_QUEUE = "DefaultLocalQueue"
    DENY = "Deny"
    ALLOW = "Allow"


class GpuPods(Section, frozen=True):
    """Which pods and jobs are queued for the GPUs they ask for, without naming a queue.

    `resources` are names or patterns with `*`; `device_classes` names of DRA device classes. `exempt_namespaces` None
    is kube-system, Muster's own namespace and gpu-operator, whose validators ask for a GPU on every node.
    """

    enabled: bool = True
    resources: tuple[str, ...] = (
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-*",
        "amd.com/gpu",
        "gpu.intel.com/*",
        "habana.ai/gaudi",
        "google.com/tpu",
        "aws.amazon.com/neuron*",
    )
    device_classes: tuple[str, ...] = ()
    namespace_selector: LabelSelector = LabelSelector()
    exempt_namespaces: tuple[str, ...] | None = None
    without_queue: WithoutQueue = WithoutQueue.DEFAULT_LOCAL_QUEUE


class PricedBy(Enum):
    """Which fraction of a GPU a MIG slice costs."""

    MULTIPROCESSORS = "Multiprocessors"
    MEMORY = "Memory"
    LARGER = "Larger"


class GpuShares(Section, frozen=True):
    """Shares of GPUs priced in parts of a GPU, so that they and whole GPUs draw on one quota.

    `presets` name the GPUs whose MIG profiles have a price: their share of the GPU, `by` one measure. `replicas` are
    the resources that are shared by time-slicing or MPS, with the number of replicas. What is priced counts as
    `resource`, `parts_per_gpu` for a whole GPU.
    """

    presets: tuple[str, ...] = ()
    by: PricedBy = PricedBy.MULTIPROCESSORS
    replicas: dict[str, int] = {}
    resource: str = "muster.dev/gpu-parts"
    parts_per_gpu: int = 840
    strategy: TransformationStrategy = TransformationStrategy.REPLACE


class Journal(Section, frozen=True):
    """`url` is SQLAlchemy's; empty means a SQLite file in the state directory. MUSTER_JOURNAL_URL wins over it.

    `capacity` bounds what waits for a slow database, `retention` how long decisions are kept (None: for ever).
    """

    url: str = ""
    capacity: int = 100_000
    retention: Seconds | None = Seconds(30 * 24 * 3600)
    migrate_at_start: bool = True


class Inspection(Section, frozen=True):
    """REST and pages for people. The visibility API has Kueue's own section, `visibilityServer`."""

    enabled: bool = True
    bind_address: str = "127.0.0.1"
    bind_port: int = 8083


class Control(Section, frozen=True):
    """How hard the controller works.

    `api_concurrency` bounds the writes under way at once; `sweep_period` is the time between two slow looks at
    everything, `status_interval` that between two status writes of one queue; `batch_window` is the shortest time
    between two looks at what has happened, for which a lone event never waits. Events: so many a second, and so many at
    once after a quiet time.
    """

    api_concurrency: int = 32
    sweep_period: Seconds = Seconds(300)
    status_interval: Seconds = Seconds(1)
    batch_window: Seconds = Seconds(0.01)
    events_per_second: float = 5.0
    event_burst: int = 50


class PastUse(Section, frozen=True):
    """Beyond Kueue's `admissionFairSharing`, whose half-life and weights it takes.

    `across_cohorts`: whoever used least lately goes first among the ClusterQueues of a whole cohort tree as well,
    after those who stay within their own quota.
    """

    across_cohorts: bool = False


class DomainReservation(Section, frozen=True):
    """A workload that has waited `after` for a place in a topology has a domain kept for it, for `at_most` so long.

    Meanwhile no workload of its priority or a lower one starts there. Of one ClusterQueue one has a domain at a time.
    """

    after: Seconds = Seconds(600)
    at_most: Seconds = Seconds(3600)


class Tracing(Section, frozen=True):
    """`endpoint`: where an OpenTelemetry collector takes OTLP over HTTP; empty switches traces off.

    `sample_ratio` is the share of gangs that are traced, `export_interval` the time between two batches.
    """

    endpoint: str = ""
    sample_ratio: float = 1.0
    export_interval: Seconds = Seconds(5)


class Muster(Section, frozen=True):
    """`state_dir` empty: `muster` under the user's state directory.

    `serve_v1beta1`: the CRDs serve v1beta1 as well (the overlay of that name), and the webhook converts.
    """

    gpu_pods: GpuPods = GpuPods()
    gpu_shares: GpuShares = GpuShares()
    journal: Journal = Journal()
    inspection: Inspection = Inspection()
    controller: Control = Control()
    admission_fair_sharing: PastUse = PastUse()
    domain_reservation: DomainReservation | None = None
    tracing: Tracing = Tracing()
    state_dir: str = ""
    serve_v1beta1: bool = msgspec.field(default=False, name="serveV1beta1")


class Settings(Section, frozen=True):
    """Everything that can be set. `load` has put in what depends on the surroundings (`namespace`, selectors)."""

    api_version: str = V1BETA2
    kind: str = "Configuration"
    namespace: str = ""
    webhook: Webhook = Webhook()
    leader_election: LeaderElection = LeaderElection()
    metrics: Metrics = Metrics()
    health: Health = Health()
    pprof_bind_address: str = ""
    controller: ControllerOptions = ControllerOptions()
    tls: TLSOptions | None = None
    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: LabelSelector | None = None
    internal_cert_management: InternalCertManagement = InternalCertManagement()
    wait_for_pods_ready: WaitForPodsReady | None = None
    client_connection: ClientConnection = ClientConnection()
    integrations: Integrations = Integrations()
    multi_kueue: MultiKueue | None = None
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    resources: Resources = Resources()
    feature_gates: dict[str, bool] = {}
    object_retention_policies: ObjectRetentionPolicies | None = None
    visibility_server: VisibilityServer = VisibilityServer()
    muster: Muster = Muster()

    def gate(self, name: str) -> bool:
        """Whether the feature gate `name` is on. KeyError for a name that does not exist: that is a bug."""
        default = gates.DEFAULTS[name]
        return self.feature_gates.get(name, default)

    @property
    def oldest_tls(self) -> ssl.TLSVersion:
        """The oldest version that is spoken: `tls.minVersion`."""
        newest_only = self.tls is not None and self.tls.min_version == "VersionTLS13"
        return ssl.TLSVersion.TLSv1_3 if newest_only else ssl.TLSVersion.TLSv1_2

    @property
    def ciphers(self) -> str:
        """What `tls.cipherSuites` names, as OpenSSL's list; empty leaves it at OpenSSL's own choice."""
        return cipher_suites.openssl(self.tls.cipher_suites) if self.tls is not None else ""

    @property
    def managed_namespaces(self) -> LabelSelector:
        """Which namespaces have their jobs managed, by the namespaces' labels."""
        return self.managed_jobs_namespace_selector or LabelSelector(
            match_expressions=(
                LabelSelectorRequirement(NAMESPACE_NAME_LABEL, "NotIn", ("kube-system", self.namespace)),
            )
        )

    @property
    def gpu_exempt_namespaces(self) -> frozenset[str]:
        """Namespaces whose GPU pods are never touched."""
        named = self.muster.gpu_pods.exempt_namespaces
        return frozenset(("kube-system", self.namespace, "gpu-operator") if named is None else named)

"""Decides which values of well-formed settings cannot be used, and what is asked for and not there.

Works from the settings alone; each sentence begins with the field's path and ends with what to do. Never lets a setting
pass that would silently do nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from admission.api.job_kinds import JOB_KINDS
from admission.api.meta import selects
from admission.api.names import NAMESPACE_NAME_LABEL, SERVING_INTEGRATIONS
from admission.settings import cipher_suites, custom_labels, device_classes, gates, gpu_shares
from admission.settings.configuration import (
    LabelSelector,
    PreemptionStrategy,
    Settings,
    TLSOptions,
)

#: Integrations that Muster has an adapter for.
FRAMEWORKS: Final = ("batch/job", "pod", *SERVING_INTEGRATIONS, *(kind.framework for kind in JOB_KINDS))
_GATES: Final = {kind.framework: kind.gate for kind in JOB_KINDS if kind.gate}

STRATEGY_LISTS: Final = (
    (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,),
    (PreemptionStrategy.LESS_THAN_INITIAL_SHARE,),
    (PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, PreemptionStrategy.LESS_THAN_INITIAL_SHARE),
)
_LABEL_KEY: Final = re.compile(
    r"^(?:(?=[^/]{1,253}/)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)


def warnings(settings: Settings) -> tuple[str, ...]:
    """What these settings ask for and do not get, or do not need."""
    found = []
    usage = settings.admission_fair_sharing
    if usage is not None and usage.usage_half_life_time <= 0:
        found.append(
            "admissionFairSharing without usageHalfLifeTime remembers nothing, so that all LocalQueues are equal; "
            "set it to how long past use is to count by half"
        )
    if usage is None and settings.muster.admission_fair_sharing.across_cohorts:
        found.append(
            "muster.admissionFairSharing.acrossCohorts has no effect without admissionFairSharing; add that section"
        )
    if settings.controller.group_kind_concurrency:
        found.append(
            "controller.groupKindConcurrency has no effect: one task looks at everything in turn; "
            "muster.controller.apiConcurrency bounds the writes that are under way at once"
        )
    suites = () if settings.tls is None else settings.tls.cipher_suites
    if suites and not cipher_suites.serves_ecdsa(suites):
        found.append(
            "tls.cipherSuites names no suite for ECDSA: with certificates that Muster makes, and for its metrics, only "
            "TLS 1.3 will be spoken; add TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        )
    if settings.muster.gpu_pods.enabled and "pod" not in settings.integrations.enabled:
        found.append(
            "muster.gpuPods queues only Jobs that ask for GPUs: the integration pod is not enabled; "
            "add it to integrations.frameworks, or set muster.gpuPods.enabled to false"
        )
    return tuple(found)


def problems(settings: Settings) -> Iterator[str]:
    """Each field with a value that cannot be used, its reason and the way out."""
    yield from _process_problems(settings)
    yield from _behaviour_problems(settings)
    yield from _integration_problems(settings)
    yield from _absent(settings)
    for name, value in settings.feature_gates.items():
        parent = gates.NEEDS.get(name)
        if why := gates.problem(name, value):
            yield f"featureGates.{name}: {why}"
        elif value and parent is not None and not settings.gate(parent):
            yield f"featureGates.{name}: needs {parent}, which is off; switch that on or remove this"


def _process_problems(settings: Settings) -> Iterator[str]:
    for path, port in (
        ("webhook.port", settings.webhook.port),
        ("visibilityServer.bindPort", settings.visibility_server.bind_port),
        ("muster.inspection.bindPort", settings.muster.inspection.bind_port),
    ):
        if not 0 <= port <= 65535:
            yield f"{path}: {port} is not a port; write 1 to 65535, or 0 for any free one"
    for path, address in (
        ("metrics.bindAddress", settings.metrics.bind_address),
        ("health.healthProbeBindAddress", settings.health.health_probe_bind_address),
    ):
        if address not in {"", "0"} and not re.fullmatch(r".*:\d{1,5}", address):
            yield f"{path}: {address!r} is not an address; write HOST:PORT, :PORT, or 0 to turn it off"
    election = settings.leader_election
    if election.resource_lock != "leases":
        yield f"leaderElection.resourceLock: {election.resource_lock!r} is not supported; write leases"
    if election.leader_elect and not election.lease_duration > election.renew_deadline > 1.2 * election.retry_period:
        yield "leaderElection: leaseDuration has to be above renewDeadline, and that above 1.2 times retryPeriod"
    if election.leader_elect and election.retry_period < 1:
        yield "leaderElection.retryPeriod: has to be 1s or more"
    if settings.client_connection.qps <= 0 or settings.client_connection.burst <= 0:
        yield "clientConnection: qps and burst have to be above 0"


def _behaviour_problems(settings: Settings) -> Iterator[str]:
    for path, number in _numbers(settings):
        if number is not None and number < 0:
            yield f"{path}: {number:g} is negative; write 0 or more"
    fair = settings.fair_sharing
    if fair is not None and fair.preemption_strategies not in STRATEGY_LISTS:
        allowed = " or ".join(str([strategy.value for strategy in strategies]) for strategies in STRATEGY_LISTS)
        yield f"fairSharing.preemptionStrategies: write {allowed}"
    usage = settings.admission_fair_sharing
    if usage is not None and usage.usage_sampling_interval <= 0:
        yield "admissionFairSharing.usageSamplingInterval: has to be above 0s"
    priced = gpu_shares.prices(settings.muster.gpu_shares)
    inputs = [transformation.input for transformation in settings.resources.transformations]
    for index, name in enumerate(inputs):
        if name in inputs[:index]:
            place, remedy = index, "merge the two"
            if name in priced:  # the prices come last
                place, remedy = inputs.index(name), "muster.gpuShares prices it as well; remove one"
            yield f"resources.transformations[{place}].input: {name!r} is there twice; {remedy}"
    yield from gpu_shares.problems(settings)
    yield from device_classes.problems(settings)
    yield from custom_labels.problems(settings)
    yield from _tracing_problems(settings)
    reservation = settings.muster.domain_reservation
    if reservation is not None:
        for name, seconds in (("after", reservation.after), ("atMost", reservation.at_most)):
            if seconds <= 0:
                yield f"muster.domainReservation.{name}: has to be more than 0"
    if settings.muster.journal.capacity < 1:
        yield "muster.journal.capacity: has to be 1 or more"
    yield from _control_problems(settings)


def _control_problems(settings: Settings) -> Iterator[str]:
    for name, number in settings.controller.group_kind_concurrency.items():
        if not re.fullmatch(r"[A-Z][A-Za-z0-9]*(\.[a-z0-9.-]+)?", name):
            yield f"controller.groupKindConcurrency: {name!r} is not a kind; write Kind.group, such as Job.batch"
        elif number < 1:
            yield f"controller.groupKindConcurrency.{name}: {number} is not a number of workers; write 1 or more"
    if settings.controller.cache_sync_timeout <= 0:
        yield "controller.cacheSyncTimeout: has to be above 0s"
    control = settings.muster.controller
    for path, value, unit in (
        ("apiConcurrency", control.api_concurrency, 1),
        ("eventsPerSecond", control.events_per_second, 0),
        ("eventBurst", control.event_burst, 1),
        ("sweepPeriod", control.sweep_period, 0),
        ("statusInterval", control.status_interval, 0),
    ):
        if value < unit or value <= 0:
            yield f"muster.controller.{path}: {value:g} is too little; {'1 or more' if unit else 'has to be above 0'}"
    if not 0 <= control.batch_window <= 1:
        yield "muster.controller.batchWindow: write 0s to 1s; decisions wait for it"


def _tracing_problems(settings: Settings) -> Iterator[str]:
    tracing = settings.muster.tracing
    try:
        where = urlsplit(tracing.endpoint)
        is_usable = where.scheme in {"http", "https"} and bool(where.hostname) and where.port != 0
    except ValueError:
        is_usable = False
    if tracing.endpoint and not is_usable:
        yield f"muster.tracing.endpoint: {tracing.endpoint!r} is no address; write http://HOST:4318 or https://HOST:4318"
    if not 0 <= tracing.sample_ratio <= 1:
        yield f"muster.tracing.sampleRatio: {tracing.sample_ratio:g} is no share; write 0 to 1"
    if tracing.export_interval <= 0:
        yield "muster.tracing.exportInterval: has to be above 0s"


def _numbers(settings: Settings) -> Iterator[tuple[str, float | None]]:
    """Everything that may be zero and not less."""
    ready = settings.wait_for_pods_ready
    if ready is not None:
        yield "waitForPodsReady.timeout", ready.timeout
        yield "waitForPodsReady.recoveryTimeout", ready.recovery_timeout
        strategy = ready.requeuing_strategy
        yield "waitForPodsReady.requeuingStrategy.backoffLimitCount", strategy.backoff_limit_count
        yield "waitForPodsReady.requeuingStrategy.backoffBaseSeconds", strategy.backoff_base_seconds
        yield "waitForPodsReady.requeuingStrategy.backoffMaxSeconds", strategy.backoff_max_seconds
    usage = settings.admission_fair_sharing
    if usage is not None:
        yield "admissionFairSharing.usageHalfLifeTime", usage.usage_half_life_time
        for name, weight in usage.resource_weights.items():
            yield f"admissionFairSharing.resourceWeights.{name}", weight
    retention = settings.object_retention_policies
    if retention is not None:
        yield "objectRetentionPolicies.workloads.afterFinished", retention.workloads.after_finished
        deactivated = retention.workloads.after_deactivated_by_kueue
        yield "objectRetentionPolicies.workloads.afterDeactivatedByKueue", deactivated
    yield "muster.journal.retention", settings.muster.journal.retention


def _integration_problems(settings: Settings) -> Iterator[str]:
    frameworks = settings.integrations.frameworks
    for index, name in enumerate(frameworks):
        path = f"integrations.frameworks[{index}]"
        if name in frameworks[:index]:
            yield f"{path}: {name!r} is there twice; remove one"
        elif name not in FRAMEWORKS:
            yield f"{path}: {name!r} is not known; write one of {', '.join(FRAMEWORKS)}"
        elif (gate := _GATES.get(name)) is not None and not settings.gate(gate):
            yield f"{path}: {name!r} is behind the feature gate {gate}; set featureGates.{gate} to true as well"
    for index, key in enumerate(settings.integrations.label_keys_to_copy):
        if not _LABEL_KEY.fullmatch(key):
            yield f"integrations.labelKeysToCopy[{index}]: {key!r} is not a label key"
    selector = settings.managed_namespaces
    for name in ("kube-system", settings.namespace):
        if selects(selector, {NAMESPACE_NAME_LABEL: name}):
            yield (
                f"managedJobsNamespaceSelector: matches the namespace {name}, which has to stay out; "
                "add the expression kubernetes.io/metadata.name NotIn with its name"
            )
    yield from _selector_problems("managedJobsNamespaceSelector", selector)
    yield from _selector_problems("muster.gpuPods.namespaceSelector", settings.muster.gpu_pods.namespace_selector)


def _selector_problems(path: str, selector: LabelSelector) -> Iterator[str]:
    for index, expression in enumerate(selector.match_expressions):
        place, operator = f"{path}.matchExpressions[{index}]", expression.operator
        if operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
            yield f"{place}.operator: {operator!r} is not known; write In, NotIn, Exists or DoesNotExist"
        elif (operator in {"In", "NotIn"}) != bool(expression.values):
            yield f"{place}.values: {operator} {'takes none' if expression.values else 'needs some'}"
        if not _LABEL_KEY.fullmatch(expression.key):
            yield f"{place}.key: {expression.key!r} is not a label key"


def _absent(settings: Settings) -> Iterator[str]:
    """Fields that name behaviour which is not there."""
    external = "jobs of other controllers cannot be queued from outside yet; remove it"
    asked = {
        "multiKueue": (settings.multi_kueue, "dispatching to other clusters is not there yet; remove it"),
        "integrations.externalFrameworks": (settings.integrations.external_frameworks, external),
        "pprofBindAddress": (settings.pprof_bind_address not in {"", "0"}, "there is no pprof in Python; remove it"),
    }
    for path, (value, why) in asked.items():
        if value:
            yield f"{path}: {why}"
    if settings.tls is not None:
        yield from _tls_problems(settings.tls)


def _tls_problems(tls: TLSOptions) -> Iterator[str]:
    if tls.min_version not in {"VersionTLS12", "VersionTLS13"}:
        yield f"tls.minVersion: {tls.min_version!r} is not supported; write VersionTLS12 or VersionTLS13"
    for name in cipher_suites.unknown(tls.cipher_suites):
        yield f"tls.cipherSuites: {name!r} is not supported; name suites of TLS 1.2 with ECDHE, as Kubernetes does"
    if tls.cipher_suites and tls.min_version == "VersionTLS13":
        yield "tls.cipherSuites: those of TLS 1.3 cannot be chosen; remove them, or write minVersion: VersionTLS12"
    elif tls.cipher_suites and not cipher_suites.openssl(tls.cipher_suites):
        yield "tls.cipherSuites: names no suite of TLS 1.2; write minVersion: VersionTLS13 instead, or add one"
    if tls.curve_preferences:
        yield "tls.curvePreferences: cannot be chosen; remove them (OpenSSL's own order is used)"

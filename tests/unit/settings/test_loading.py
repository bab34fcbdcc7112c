"""Settings files: what is read, what is refused and in which words."""

from __future__ import annotations

import math
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from admission.api.meta import selects
from admission.settings import Settings, SettingsError, cipher_suites, dump, durations, gates, load, parse, warnings
from admission.settings.configuration import TLSOptions

V1BETA2 = "config.kueue.x-k8s.io/v1beta2"


def configuration(version: str = V1BETA2, **fields: Any) -> str:
    return yaml.safe_dump({"apiVersion": version, "kind": "Configuration", **fields})


def read(version: str = V1BETA2, **fields: Any) -> Settings:
    return parse(configuration(version, **fields))


def metered(name: str = "memory", driver: str = "gpu.example.com", selector: str = "true") -> dict[str, Any]:
    return {"name": name, "driver": driver, "deviceSelector": {"cel": {"expression": selector}}}


def source(resource: str = "a", **kinds: Any) -> dict[str, Any]:
    return {"name": resource, "deviceClassNames": ["x"], "sources": [kinds]}


@dataclass(frozen=True)
class Refusal:
    id: str
    fields: dict[str, Any]
    want: str


REFUSALS = [
    Refusal("an unknown section is named", {"webhok": {}}, "webhok: unknown field; did you mean webhook?"),
    Refusal("an unknown field is named with its path", {"webhook": {"prt": 1}}, "webhook.prt: unknown field"),
    Refusal(
        "an unknown field in a list is named",
        {"resources": {"transformations": [{"input": "cpu", "strat": "Retain"}]}},
        "resources.transformations[0].strat: unknown field; did you mean strategy?",
    ),
    Refusal(
        "an unknown field of Muster's own section is named",
        {"muster": {"gpuPods": {"enable": True}}},
        "muster.gpuPods.enable: unknown field; did you mean enabled?",
    ),
    Refusal(
        "a number is no duration", {"waitForPodsReady": {"timeout": 5}}, "waitForPodsReady.timeout: Expected a dur"
    ),
    Refusal("a duration needs a unit", {"waitForPodsReady": {"timeout": "5"}}, "like 30s, 5m or 1h30m"),
    Refusal("a port is a number", {"webhook": {"port": "9443"}}, "webhook.port: Expected `int`, got `str`"),
    Refusal("a port is in range", {"webhook": {"port": 70000}}, "webhook.port: 70000 is not a port"),
    Refusal("a bind address has a port", {"metrics": {"bindAddress": "here"}}, "metrics.bindAddress: 'here' is not an"),
    Refusal("an enum names a value", {"resources": {"quotaCheckStrategy": "Maybe"}}, "resources.quotaCheckStrategy: "),
    Refusal(
        "a framework is there once", {"integrations": {"frameworks": ["pod", "pod"]}}, "frameworks[1]: 'pod' is th"
    ),
    Refusal("a framework is known", {"integrations": {"frameworks": ["x"]}}, "write one of batch/job, pod"),
    Refusal(
        "a framework behind a gate needs the gate",
        {"integrations": {"frameworks": ["sparkoperator.k8s.io/sparkapplication"]}},
        "set featureGates.SparkApplicationIntegration to true",
    ),
    Refusal("other controllers' jobs are refused", {"integrations": {"externalFrameworks": ["A.v1.b"]}}, "externalF"),
    Refusal("dispatching to clusters is refused", {"multiKueue": {"gcInterval": "1m"}}, "multiKueue: dispatching"),
    Refusal(
        "a mapping of no device class is refused",
        {"resources": {"deviceClassMappings": [{"name": "x"}]}},
        "deviceClassMappings[0].deviceClassNames: name 1 to 8",
    ),
    Refusal(
        "a device class counts as one resource only",
        {"resources": {"deviceClassMappings": [{"name": n, "deviceClassNames": ["gpu"]} for n in ("a", "b")]}},
        "deviceClassMappings[1].deviceClassNames[0]: 'gpu' counts as a already",
    ),
    Refusal(
        "a resource is mapped once",
        {"resources": {"deviceClassMappings": [{"name": "a", "deviceClassNames": [n]} for n in ("x", "y")]}},
        "deviceClassMappings[1].name: 'a' is there twice",
    ),
    Refusal(
        "a source is one of both",
        {"resources": {"deviceClassMappings": [{"name": "a", "deviceClassNames": ["x"], "sources": [{}]}]}},
        "sources[0]: write one of counter and capacity",
    ),
    Refusal(
        "a source is complete",
        {"resources": {"deviceClassMappings": [source(counter={"name": "memory"})]}},
        "sources[0].counter: Object missing required field `driver`",
    ),
    Refusal(
        "a counter has a name",
        {"resources": {"deviceClassMappings": [source(counter=metered(name="Memory!"))]}},
        "sources[0].counter.name: 'Memory!' is not the name of a counter",
    ),
    Refusal(
        "a driver has a name",
        {"resources": {"deviceClassMappings": [source(counter=metered(driver="a b"))]}},
        "sources[0].counter.driver: 'a b' is not the name of a driver",
    ),
    Refusal(
        "a selector is understood",
        {"resources": {"deviceClassMappings": [source(counter=metered(selector="device.driver =="))]}},
        "sources[0].counter.deviceSelector.cel.expression: ends too early",
    ),
    Refusal(
        "capacity needs its gate",
        {"resources": {"deviceClassMappings": [source(capacity=metered())]}},
        "sources[0].capacity: needs the feature gate KueueDRAIntegrationConsumableCapacity",
    ),
    Refusal(
        "counters need their gate",
        {
            "resources": {"deviceClassMappings": [source(counter=metered())]},
            "featureGates": {"KueueDRAIntegrationPartitionableDevices": False},
        },
        "sources[0].counter: needs the feature gate KueueDRAIntegrationPartitionableDevices",
    ),
    Refusal(
        "a class counts by one counter once",
        {"resources": {"deviceClassMappings": [source(counter=metered()), source("b", counter=metered())]}},
        "deviceClassMappings[1].deviceClassNames[0]: 'x' counts as a already",
    ),
    Refusal(
        "device classes without the integration are refused",
        {
            "resources": {"deviceClassMappings": [{"name": "a", "deviceClassNames": ["x"]}]},
            "featureGates": {"KueueDRAIntegration": False},
        },
        "deviceClassMappings: needs the feature gate KueueDRAIntegration",
    ),
    Refusal(
        "a gate without the one that it needs is refused",
        {"featureGates": {"KueueDRAIntegration": False, "KueueDRAIntegrationExtendedResource": True}},
        "KueueDRAIntegrationExtendedResource: needs KueueDRAIntegration",
    ),
    Refusal("pprof is refused", {"pprofBindAddress": ":1"}, "pprofBindAddress: "),
    Refusal("custom labels need their gate", {"metrics": {"customLabels": [{"name": "x"}]}}, "gate CustomMetricLabels"),
    Refusal(
        "a custom label has a name",
        {"metrics": {"customLabels": [{"name": "a-b"}]}, "featureGates": {"CustomMetricLabels": True}},
        "metrics.customLabels[0].name: 'a-b' is not the name of a label",
    ),
    Refusal(
        "a custom label is there once",
        {"metrics": {"customLabels": [{"name": "x"}, {"name": "x"}]}, "featureGates": {"CustomMetricLabels": True}},
        "metrics.customLabels[1].name: 'x' is there twice for ClusterQueue",
    ),
    Refusal(
        "a custom label has one source",
        {
            "metrics": {"customLabels": [{"name": "x", "sourceLabelKey": "a", "sourceAnnotationKey": "b"}]},
            "featureGates": {"CustomMetricLabels": True},
        },
        "metrics.customLabels[0]: write one of",
    ),
    Refusal(
        "custom labels of Workloads are refused",
        {
            "metrics": {"customLabels": [{"name": "x", "sourceKind": "Workload"}]},
            "featureGates": {"CustomMetricLabels": True},
        },
        "metrics.customLabels[0].sourceKind: Workloads are summed up",
    ),
    Refusal(
        "custom labels are few",
        {
            "metrics": {"customLabels": [{"name": f"x{index}"} for index in range(7)]},
            "featureGates": {"CustomMetricLabels": True},
        },
        "metrics.customLabels: 7 of ClusterQueue are too many; at most 6",
    ),
    Refusal("a suite is known", {"tls": {"cipherSuites": ["X"]}}, "tls.cipherSuites: 'X' is not supported"),
    Refusal(
        "a suite that is broken is refused",
        {"tls": {"cipherSuites": ["TLS_RSA_WITH_RC4_128_SHA"]}},
        "tls.cipherSuites: 'TLS_RSA_WITH_RC4_128_SHA' is not supported",
    ),
    Refusal(
        "suites of TLS 1.3 are not chosen",
        {"tls": {"minVersion": "VersionTLS13", "cipherSuites": ["TLS_AES_128_GCM_SHA256"]}},
        "tls.cipherSuites: those of TLS 1.3 cannot be chosen",
    ),
    Refusal(
        "some suite is of TLS 1.2", {"tls": {"cipherSuites": ["TLS_AES_128_GCM_SHA256"]}}, "names no suite of TLS 1.2"
    ),
    Refusal("curves are not chosen", {"tls": {"curvePreferences": [23]}}, "tls.curvePreferences: cannot be chosen"),
    Refusal("an old TLS is refused", {"tls": {"minVersion": "VersionTLS10"}}, "tls.minVersion: "),
    Refusal(
        "an unknown gate is refused", {"featureGates": {"Foo": True}}, "featureGates.Foo: there is no feature gate"
    ),
    Refusal(
        "a gate without behaviour is refused", {"featureGates": {"ConcurrentAdmission": True}}, "featureGates.Concurre"
    ),
    Refusal(
        "a gate whose words are always there is refused",
        {"featureGates": {"UnadmittedWorkloadsObservability": False}},
        "featureGates.UnadmittedWorkloadsObservability: false is not available here",
    ),
    Refusal(
        "a worker pool is of a kind",
        {"controller": {"groupKindConcurrency": {"job batch": 5}}},
        "controller.groupKindConcurrency: 'job batch' is not a kind; write Kind.group",
    ),
    Refusal(
        "a worker pool has workers",
        {"controller": {"groupKindConcurrency": {"Job.batch": 0}}},
        "controller.groupKindConcurrency.Job.batch: 0 is not a number of workers",
    ),
    Refusal("a cache has time to fill", {"controller": {"cacheSyncTimeout": "0s"}}, "controller.cacheSyncTimeout: has"),
    Refusal(
        "somebody has to write",
        {"muster": {"controller": {"apiConcurrency": 0}}},
        "muster.controller.apiConcurrency: 0 is too little; 1 or more",
    ),
    Refusal(
        "a sweep takes time",
        {"muster": {"controller": {"sweepPeriod": "0s"}}},
        "muster.controller.sweepPeriod: 0 is too little; has to be above 0",
    ),
    Refusal(
        "decisions do not wait for long",
        {"muster": {"controller": {"batchWindow": "2s"}}},
        "muster.controller.batchWindow: write 0s to 1s",
    ),
    Refusal("preemption strategies are required", {"fairSharing": {}}, "preemptionStrategies"),
    Refusal(
        "preemption strategies have an order",
        {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare", "LessThanOrEqualToFinalShare"]}},
        "fairSharing.preemptionStrategies: write",
    ),
    Refusal("a sampling interval is above zero", {"admissionFairSharing": {"usageSamplingInterval": "0s"}}, "above 0s"),
    Refusal(
        "a weight is not negative", {"admissionFairSharing": {"resourceWeights": {"cpu": -1}}}, "Weights.cpu: -1 is"
    ),
    Refusal(
        "a timeout is not negative", {"waitForPodsReady": {"timeout": "-5m"}}, "waitForPodsReady.timeout: -300 is n"
    ),
    Refusal(
        "a back-off is not negative",
        {"waitForPodsReady": {"requeuingStrategy": {"backoffBaseSeconds": -1}}},
        "requeuingStrategy.backoffBaseSeconds: -1 is negative",
    ),
    Refusal(
        "a retention is not negative",
        {"objectRetentionPolicies": {"workloads": {"afterFinished": "-1s"}}},
        "objectRetentionPolicies.workloads.afterFinished: -1 is negative",
    ),
    Refusal(
        "an input is transformed once",
        {"resources": {"transformations": [{"input": "cpu"}, {"input": "cpu"}]}},
        "resources.transformations[1].input: 'cpu' is there twice",
    ),
    Refusal("system namespaces stay out", {"managedJobsNamespaceSelector": {}}, "matches the namespace kube-system"),
    Refusal(
        "Muster's own namespace stays out",
        {
            "namespace": "ours",
            "managedJobsNamespaceSelector": {
                "matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
                ]
            },
        },
        "matches the namespace ours",
    ),
    Refusal(
        "a selector has known operators",
        {"muster": {"gpuPods": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}}},
        "muster.gpuPods.namespaceSelector.matchExpressions[0].operator: 'Is' is not known",
    ),
    Refusal(
        "a selector is strict too",
        {"managedJobsNamespaceSelector": {"matchLabel": {"a": "b"}}},
        "managedJobsNamespaceSelector.matchLabel: unknown field; did you mean matchLabels?",
    ),
    Refusal("a lease outlives its renewals", {"leaderElection": {"leaseDuration": "5s"}}, "leaderElection: leaseDurat"),
    Refusal("only leases lock", {"leaderElection": {"resourceLock": "endpoints"}}, "resourceLock: 'endpoints'"),
    Refusal("a rate is above zero", {"clientConnection": {"qps": 0}}, "clientConnection: qps and burst"),
    Refusal("a label key is one", {"integrations": {"labelKeysToCopy": ["a b"]}}, "labelKeysToCopy[0]: 'a b' is not"),
    Refusal(
        "a domain is kept for some time",
        {"muster": {"domainReservation": {"after": "1m", "atMost": "0s"}}},
        "muster.domainReservation.atMost: ",
    ),
    Refusal("a journal holds something", {"muster": {"journal": {"capacity": 0}}}, "muster.journal.capacity: "),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_a_setting_that_cannot_be_used_is_refused(case: Refusal) -> None:
    with pytest.raises(SettingsError) as refused:
        read(**case.fields)
    assert case.want in str(refused.value)
    assert str(refused.value).startswith("settings: ")


def test_all_bad_values_are_said_at_once() -> None:
    with pytest.raises(SettingsError) as refused:
        read(webhook={"port": -1}, clientConnection={"qps": -1}, featureGates={"Foo": True})
    assert len(refused.value.problems) == 3


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("a: [", "is not YAML"),
        ("- a", "is not a mapping"),
        ("kind: Configuration", "apiVersion: None is not supported"),
        ("apiVersion: v1\nkind: Configuration", "apiVersion: 'v1' is not supported"),
        (f"apiVersion: {V1BETA2}\nkind: Config", "kind: 'Config' is not supported"),
    ],
)
def test_what_is_no_configuration_is_refused(text: str, want: str) -> None:
    with pytest.raises(SettingsError, match=want):
        parse(text)


def test_a_file_that_is_not_there_is_said_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothere\.yaml: cannot be read"):
        load(tmp_path / "nothere.yaml")


def test_a_class_may_count_by_several_counters() -> None:
    mappings = [source("a", counter=metered()), source("b", counter=metered("cores"))]
    assert len(read(resources={"deviceClassMappings": mappings}).resources.device_class_mappings) == 2


def test_defaults_are_kueues() -> None:
    settings = load()
    assert (settings.webhook.port, settings.webhook.host) == (9443, "")
    assert settings.webhook.cert_dir == "/tmp/k8s-webhook-server/serving-certs"
    assert (settings.namespace, settings.integrations.frameworks) == ("kueue-system", ("batch/job",))
    election = settings.leader_election
    assert (election.leader_elect, election.resource_name) == (True, "c1f6bfd2.kueue.x-k8s.io")
    assert (election.lease_duration, election.renew_deadline, election.retry_period) == (15, 10, 2)
    assert (settings.metrics.bind_address, settings.health.health_probe_bind_address) == (":8443", ":8081")
    ready = settings.wait_for_pods_ready
    assert ready is not None
    assert (ready.timeout, ready.recovery, ready.block_admission) == (1800, 1800, False)
    assert (ready.requeuing_strategy.backoff_base_seconds, ready.requeuing_strategy.backoff_max_seconds) == (60, 3600)
    assert (settings.client_connection.qps, settings.client_connection.burst) == (300, 500)
    assert settings.fair_sharing is settings.admission_fair_sharing is settings.object_retention_policies is None
    managed = settings.managed_namespaces
    name = "kubernetes.io/metadata.name"
    assert [selects(managed, {name: each}) for each in ("team", "kube-system", "kueue-system")] == [True, False, False]
    assert settings.gpu_exempt_namespaces == {"kube-system", "kueue-system", "gpu-operator"}


def test_an_empty_section_means_its_defaults() -> None:
    assert parse(configuration() + "webhook:\nwaitForPodsReady:\n") == parse("")


def test_waiting_for_pods_can_be_turned_off() -> None:
    assert read(featureGates={"DisableWaitForPodsReady": True}).wait_for_pods_ready is None


class TestOlderVersion:
    V1BETA1 = "config.kueue.x-k8s.io/v1beta1"

    def test_waiting_for_pods_is_off_unless_enabled(self) -> None:
        assert read(self.V1BETA1).wait_for_pods_ready is None
        assert read(self.V1BETA1, waitForPodsReady={"enable": False, "timeout": "1m"}).wait_for_pods_ready is None
        ready = read(self.V1BETA1, waitForPodsReady={"enable": True, "timeout": "1m"}).wait_for_pods_ready
        assert ready is not None
        assert ready.timeout == 60

    def test_fair_sharing_is_enabled_by_a_switch(self) -> None:
        assert read(self.V1BETA1, fairSharing={"enable": False}).fair_sharing is None
        fair = read(self.V1BETA1, fairSharing={"enable": True}).fair_sharing
        assert fair is not None
        assert [each.value for each in fair.preemption_strategies] == [
            "LessThanOrEqualToFinalShare",
            "LessThanInitialShare",
        ]

    def test_what_is_gone_is_said(self) -> None:
        with pytest.raises(SettingsError, match=r"integrations\.podOptions: is gone in v1beta2"):
            read(self.V1BETA1, integrations={"podOptions": {}})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}},
        {"waitForPodsReady": {"timeout": "90s", "requeuingStrategy": {"backoffLimitCount": 3}}},
        {"featureGates": {"DisableWaitForPodsReady": True, "PartialAdmission": False}},
        {"managedJobsNamespaceSelector": {"matchLabels": {"kueue": "on"}}, "manageJobsWithoutQueueName": True},
        {"muster": {"gpuPods": {"withoutQueue": "Deny"}, "journal": {"url": "sqlite:///x", "retention": "1h30m"}}},
        {"resources": {"transformations": [{"input": "cpu", "strategy": "Replace", "outputs": {"a/b": "1m"}}]}},
    ],
)
def test_dumped_settings_are_read_back_the_same(fields: dict[str, Any]) -> None:
    settings = read(**fields)
    assert parse(dump(settings)) == settings


def test_what_is_asked_for_and_not_given_is_warned_of() -> None:
    pods = {"integrations": {"frameworks": ["batch/job", "pod"]}}
    assert warnings(read(**pods)) == ()
    assert [text.split(" ")[0] for text in warnings(load())] == ["muster.gpuPods"]
    assert warnings(read(muster={"gpuPods": {"enabled": False}})) == ()
    assert warnings(read(**pods, admissionFairSharing={"usageHalfLifeTime": "168h"})) == ()
    told = warnings(read(**pods, muster={"admissionFairSharing": {"acrossCohorts": True}}))
    assert [text.split(" ")[0] for text in told] == ["muster.admissionFairSharing.acrossCohorts"]
    told = warnings(
        read(
            **pods,
            fairSharing={"preemptionStrategies": ["LessThanInitialShare"]},
            admissionFairSharing={},
            controller={"groupKindConcurrency": {"Job.batch": 5, "Pod": 5}},
        )
    )
    assert [text.split(" ")[0] for text in told] == ["admissionFairSharing", "controller.groupKindConcurrency"]


@pytest.mark.parametrize("name", sorted(gates.DEFAULTS))
def test_every_gate_can_be_given_its_default(name: str) -> None:
    default = gates.DEFAULTS[name]
    assert read(featureGates={name: default}).gate(name) is default


def test_gates_are_each_in_one_group() -> None:
    assert len(gates.DEFAULTS) == len(gates.SWITCHED) + len(gates.NEUTRAL) + len(gates.FIXED) == 80


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("0s", 0), ("30s", 30), ("5m", 300), ("1h30m", 5400), ("1.5h", 5400), ("300ms", 0.3), ("-2s", -2)],
)
def test_durations_are_read_as_go_does(text: str, seconds: float) -> None:
    assert math.isclose(durations.parse(text), seconds)


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5d", "1h-3m", "5mm", "٣s."])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        durations.parse(text)


@given(st.integers(min_value=-(10**9), max_value=10**9))
def test_a_rendered_duration_is_read_back_the_same(thousandths: int) -> None:
    length = thousandths / 1000
    assert math.isclose(durations.parse(durations.render(length)), length, abs_tol=1e-6)


@pytest.mark.parametrize(
    ("tls", "oldest"),
    [
        (None, ssl.TLSVersion.TLSv1_2),
        (TLSOptions(), ssl.TLSVersion.TLSv1_2),
        (TLSOptions(min_version="VersionTLS13"), ssl.TLSVersion.TLSv1_3),
    ],
)
def test_the_oldest_version_of_tls_is_that_of_the_settings(tls: TLSOptions | None, oldest: ssl.TLSVersion) -> None:
    assert Settings(tls=tls).oldest_tls is oldest


def test_every_suite_that_may_be_named_is_one_of_openssls() -> None:
    names = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name, openssl in cipher_suites._OPENSSL.items():
        assert cipher_suites.openssl([name, "TLS_AES_128_GCM_SHA256"]) == openssl
        names.set_ciphers(openssl)
        assert openssl in [each["name"] for each in names.get_ciphers()]


def test_suites_that_muster_cannot_serve_itself_are_warned_of() -> None:
    only_rsa = TLSOptions(cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",))
    assert [each for each in warnings(Settings(tls=only_rsa)) if each.startswith("tls.cipherSuites")]
    both = TLSOptions(cipher_suites=(*only_rsa.cipher_suites, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"))
    assert not [each for each in warnings(Settings(tls=both)) if each.startswith("tls.cipherSuites")]

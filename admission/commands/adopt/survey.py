"""Reads what there is of Kueue in a cluster: its objects as they are stored, its installation, its settings.

Raw objects, since what matters here is also what Muster's own types leave out: versions, managers of fields, fields
that it does not know. It changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from admission.api import names

if TYPE_CHECKING:
    from admission.kube.client import Client
    from admission.kube.resources import Resource

Object = dict[str, Any]

#: plural, kind, whether it is in a namespace; in the order in which they are shown.
KINDS: Final = (
    ("clusterqueues", "ClusterQueue", False),
    ("cohorts", "Cohort", False),
    ("localqueues", "LocalQueue", True),
    ("resourceflavors", "ResourceFlavor", False),
    ("workloadpriorityclasses", "WorkloadPriorityClass", False),
    ("topologies", "Topology", False),
    ("admissionchecks", "AdmissionCheck", False),
    ("provisioningrequestconfigs", "ProvisioningRequestConfig", False),
    ("multikueueconfigs", "MultiKueueConfig", False),
    ("multikueueclusters", "MultiKueueCluster", False),
    ("workloads", "Workload", True),
)

#: How Kueue's manifests label its Deployment.
_BY_LABEL: Final = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
_OURS: Final = "muster"


@dataclass(frozen=True, slots=True)
class Manager:
    """A Deployment that runs Kueue, with the settings that it was started with."""

    deployment: Object
    settings: str = ""
    #: Where they stand: NAMESPACE/NAME of the ConfigMap.
    settings_at: str = ""
    gates: Mapping[str, bool] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return str(self.deployment["metadata"]["namespace"])

    @property
    def name(self) -> str:
        return str(self.deployment["metadata"]["name"])

    @property
    def replicas(self) -> int:
        return int(self.deployment["spec"].get("replicas", 1))

    @property
    def image(self) -> str:
        containers = self.deployment["spec"]["template"]["spec"]["containers"]
        return str(containers[0].get("image", "")) if containers else ""


@dataclass(frozen=True, slots=True)
class Survey:
    """`objects` by kind. `webhooks` and `api_services` are Kueue's; `muster_webhooks` those that Muster published."""

    objects: Mapping[str, tuple[Object, ...]] = field(default_factory=dict)
    crds: tuple[Object, ...] = ()
    webhooks: tuple[Object, ...] = ()
    muster_webhooks: tuple[Object, ...] = ()
    api_services: tuple[Object, ...] = ()
    managers: tuple[Manager, ...] = ()
    #: Managed pods.
    pods: tuple[Object, ...] = ()

    @property
    def is_running(self) -> bool:
        return any(manager.replicas for manager in self.managers)

    @property
    def namespaces(self) -> set[str]:
        """Where Kueue is installed."""
        found = {manager.namespace for manager in self.managers}
        return found | {namespace for webhook in self.webhooks for namespace, _ in _services((webhook,))}


async def survey_webhooks(client: Client) -> tuple[tuple[Object, ...], tuple[Object, ...]]:
    """The webhook configurations of Kueue, and those of Muster. Each says its kind, as in lists they do not."""
    from admission.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS

    mutating, validating = await asyncio.gather(client.list(MUTATING_WEBHOOKS), client.list(VALIDATING_WEBHOOKS))
    lists = ((MUTATING_WEBHOOKS, mutating), (VALIDATING_WEBHOOKS, validating))
    every = [_named(resource, each) for resource, found in lists for each in found.items]
    return tuple(each for each in every if is_of_kueue(each)), tuple(each for each in every if is_musters(each))


def _named(resource: Resource[Object], obj: Object) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}


async def survey(client: Client) -> Survey:
    """Everything at once; kinds that are not served are left out."""
    from admission.kube.errors import NotFound
    from admission.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS

    crds, (kueues, musters) = await asyncio.gather(client.list(CUSTOM_RESOURCE_DEFINITIONS), survey_webhooks(client))
    ours = tuple(crd for crd in crds.items if crd["spec"]["group"] == names.GROUP)
    versions = {crd["spec"]["names"]["plural"]: version(crd) for crd in ours}
    objects: dict[str, tuple[Object, ...]] = {}
    for plural, kind, namespaced in KINDS:
        if plural in versions:
            try:
                found = await client.list(raw(names.GROUP, versions[plural], plural, kind, namespaced=namespaced))
            except NotFound:
                continue
            objects[kind] = found.items
    selector = f"{names.MANAGED_LABEL}=true"
    pods = await client.list(raw("", "v1", PODS.plural, PODS.kind, namespaced=True), label_selector=selector)
    return Survey(
        objects=objects,
        crds=ours,
        webhooks=kueues,
        muster_webhooks=musters,
        api_services=await _api_services(client),
        managers=await _managers(client, kueues),
        pods=pods.items,
    )


def raw(group: str, api_version: str, plural: str, kind: str, *, namespaced: bool) -> Resource[Object]:
    """A resource of which objects are read as they are."""
    from admission.kube.resources import Resource

    return Resource(group, api_version, plural, kind, namespaced, Object)


def version(crd: Object) -> str:
    """The version in which objects are read: the one that Muster speaks, else the one in which they are stored."""
    served = [each["name"] for each in crd["spec"]["versions"] if each["served"]]
    if names.VERSION in served:
        return names.VERSION
    return next((each["name"] for each in crd["spec"]["versions"] if each["storage"]), served[0] if served else "")


def is_of_kueue(configuration: Object) -> bool:
    """Whether a webhook configuration asks about Kueue's kinds and is not Muster's own."""
    if is_musters(configuration):
        return False
    return any(names.GROUP in (rule.get("apiGroups") or ()) for rule in rules_of(configuration))


def rules_of(configuration: Object) -> Iterator[Object]:
    """What all webhooks of a configuration are asked about."""
    for webhook in configuration.get("webhooks") or ():
        yield from webhook.get("rules") or ()


def is_musters(obj: Object) -> bool:
    """Whether it is of Muster's own manifests."""
    return (obj["metadata"].get("labels") or {}).get("app.kubernetes.io/name") == _OURS


def is_published(configurations: Iterable[Object]) -> bool:
    """Whether the API server asks Muster: there are both configurations, and every webhook says whom to trust."""
    found = list(configurations)
    kinds = {each["kind"] for each in found}
    return kinds == {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} and all(
        webhook["clientConfig"].get("caBundle") for each in found for webhook in each.get("webhooks") or ()
    )


def _services(configurations: Iterable[Object]) -> set[tuple[str, str]]:
    services = (
        webhook["clientConfig"].get("service")
        for configuration in configurations
        for webhook in configuration.get("webhooks") or ()
    )
    return {(service["namespace"], service["name"]) for service in services if service}


async def _api_services(client: Client) -> tuple[Object, ...]:
    """Those of the visibility API that do not lead to Muster."""
    resource = raw("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
    return tuple(
        _named(resource, each)
        for each in (await client.list(resource)).items
        if each["spec"].get("group") == names.VISIBILITY_GROUP and not is_musters(each)
    )


async def _managers(client: Client, webhooks: Iterable[Object]) -> tuple[Manager, ...]:
    """The Deployments behind Kueue's webhooks, and those that are labelled as its manifests do."""
    from admission.kube.errors import NotFound

    selectors: list[tuple[str | None, Mapping[str, str]]] = [(None, _BY_LABEL)]
    services = raw("", "v1", "services", "Service", namespaced=True)
    for namespace, name in sorted(_services(webhooks)):
        try:
            service = await client.get(services, namespace, name)
        except NotFound:
            continue
        if selector := service["spec"].get("selector"):
            selectors.append((namespace, selector))
    resource = raw("apps", "v1", "deployments", "Deployment", namespaced=True)
    deployments = (await client.list(resource)).items
    found = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): _named(resource, each)
        for each in deployments
        for namespace, selector in selectors
        if namespace in {None, each["metadata"]["namespace"]}
        and selector.items() <= (each["spec"]["template"]["metadata"].get("labels") or {}).items()
        and not is_musters(each)
    }
    return tuple([await _manager(client, found[key]) for key in sorted(found)])


async def _manager(client: Client, deployment: Object) -> Manager:
    from admission.kube.errors import NotFound

    pod = deployment["spec"]["template"]["spec"]
    namespace = deployment["metadata"]["namespace"]
    config_maps = raw("", "v1", "configmaps", "ConfigMap", namespaced=True)
    for volume in pod.get("volumes") or ():
        name = (volume.get("configMap") or {}).get("name")
        if not name:
            continue
        try:
            data = (await client.get(config_maps, namespace, name)).get("data") or {}
        except NotFound:
            continue
        for text in data.values():
            if "config.kueue.x-k8s.io/" in text:
                return Manager(deployment, text, f"{namespace}/{name}", gates_of(pod))
    return Manager(deployment, gates=gates_of(pod))


def gates_of(pod: Object) -> dict[str, bool]:
    """The feature gates of the command line."""
    found: dict[str, bool] = {}
    for container in pod.get("containers") or ():
        arguments = [*(container.get("command") or ()), *(container.get("args") or ())]
        for index, argument in enumerate(arguments):
            flag, equals, value = argument.partition("=")
            if flag.lstrip("-") != "feature-gates":
                continue
            text = value if equals else "".join(arguments[index + 1 : index + 2])
            for pair in filter(None, text.split(",")):
                name, _, state = pair.partition("=")
                found[name.strip()] = state.strip().lower() in {"true", "1", "t"}
    return found

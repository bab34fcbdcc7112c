"""Shows the trees of domains that flavors with a topology have: capacity and use of each domain, and what is wrong.

Read with the rights of the one who asks, from the API server alone, so it works from anywhere and while Muster is down.
It changes nothing, and what it calls wrong it leaves to people.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from admission.api import core, names
from admission.api.kueue import ResourceFlavor, Topology, Workload
from admission.api.meta import is_true
from admission.api.topology_assignment import decode
from admission.commands import output
from admission.commands.faults import told
from admission.commands.output import Form
from admission.commands.reach import Reach
from admission.controllers import observe
from admission.jobs.pod_sets import pod_spec
from admission.jobs.requests import Misconfigured, Surroundings, pod_requests

if TYPE_CHECKING:
    from rich.tree import Tree

#: Resources counted as GPUs where the settings do not say otherwise.
_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")

#: So many nodes of one kind are named in a problem; the rest is counted.
_NAMED = 5


@dataclass(slots=True)
class Domain:
    """`usable` of its nodes take pods. GPUs are those of usable nodes; `used` those that assignments and pods hold."""

    level: str
    value: str
    nodes: int = 0
    usable: int = 0
    gpus: int = 0
    used: int = 0
    domains: list[Domain] = field(default_factory=list)

    @property
    def free(self) -> int:
        return max(0, self.gpus - self.used)


@dataclass(frozen=True, slots=True)
class FlavorTree:
    """One flavor over one topology, and what is wrong with its nodes."""

    flavor: str
    topology: str
    levels: tuple[str, ...]
    root: Domain
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class Holdings:
    """GPUs in use: by hostname, by whole path of a lowest domain that is no host, and by node."""

    by_host: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    by_path: dict[tuple[str, tuple[str, ...]], int] = field(default_factory=lambda: defaultdict(int))
    by_node: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def trees(
    topologies: Iterable[Topology],
    flavors: Iterable[ResourceFlavor],
    nodes: Iterable[core.Node],
    workloads: Iterable[Workload],
    pods: Iterable[core.Pod],
) -> list[FlavorTree]:
    """One tree for each flavor with a topology, by name. Cost: the nodes for each flavor, workloads and pods."""
    levels_of = {each.metadata.name: tuple(level.node_label for level in each.spec.levels) for each in topologies}
    every = sorted(nodes, key=lambda node: node.metadata.name)
    held = holdings(list(workloads), pods)
    found = []
    for flavor in sorted(flavors, key=lambda each: each.metadata.name):
        topology = flavor.spec.topology_name
        if not topology:
            continue
        levels = levels_of.get(topology)
        name = flavor.metadata.name
        if levels is None:
            missing = (f"Topology {topology} does not exist",)
            found.append(FlavorTree(name, topology, (), Domain("", name), missing))
            continue
        labels = flavor.spec.node_labels
        own = [node for node in every if labels.items() <= node.metadata.labels.items()]
        found.append(_tree(name, topology, levels, own, held))
    return found


def holdings(workloads: list[Workload], pods: Iterable[core.Pod]) -> Holdings:
    """What assignments hold, and the pods that none of them accounts for."""
    held = Holdings()
    by_key = {(each.metadata.namespace, each.metadata.name): each for each in workloads}
    for workload in workloads:
        admission = workload.status.admission
        if admission is None or is_true(workload.status.conditions, names.FINISHED):
            continue
        gpus = {pod_set.name: _gpus_of_template(pod_spec(pod_set)) for pod_set in workload.spec.pod_sets}
        for one in admission.pod_set_assignments:
            if one.topology_assignment is None:
                continue
            is_host = one.topology_assignment.levels[-1:] == (names.HOSTNAME_LABEL,)
            for domain in decode(one.topology_assignment):
                amount = domain.count * gpus.get(one.name, 0)
                if is_host:
                    held.by_host[domain.values[-1]] += amount
                else:
                    for flavor in set(one.flavors.values()):
                        held.by_path[flavor, domain.values] += amount
    for pod in pods:
        name = observe.workload_name(pod)
        workload_of = None if name is None else by_key.get((pod.metadata.namespace, name))
        if workload_of is not None and is_true(workload_of.status.conditions, names.FINISHED):
            workload_of = None
        if observe.occupies_node(pod, workload_of):
            held.by_node[pod.spec.node_name] += _gpus_of_template(pod.spec)
    return held


def _gpus_of_template(spec: core.PodSpec | Misconfigured) -> int:
    requests = spec if isinstance(spec, Misconfigured) else pod_requests(spec, Surroundings())
    return 0 if isinstance(requests, Misconfigured) else sum(requests.node.get(name, 0) for name in _GPUS)


def _tree(flavor: str, topology: str, levels: tuple[str, ...], nodes: list[core.Node], held: Holdings) -> FlavorTree:
    root = Domain("", flavor)
    index: dict[tuple[str, ...], Domain] = {}
    members = [node for node in nodes if all(level in node.metadata.labels for level in levels)]
    torn = _torn(members, levels) if levels[-1] == names.HOSTNAME_LABEL else {}
    for node in members:
        if node.metadata.labels[levels[-1]] not in torn:
            _add(root, index, levels, node, held)
    if levels[-1] != names.HOSTNAME_LABEL:
        _charge(root, index, flavor, held)
    _sort(root)
    problems = [*_missing(nodes, levels), *torn.values(), *_split(members, levels), *_empty(root)]
    return FlavorTree(flavor, topology, levels, root, tuple(problems))


def _add(
    root: Domain, index: dict[tuple[str, ...], Domain], levels: tuple[str, ...], node: core.Node, held: Holdings
) -> None:
    seen = observe.node(node)
    is_usable = seen.ready and not seen.unschedulable
    gpus = sum(seen.allocatable.get(name, 0) for name in _GPUS) if is_usable else 0  # type: ignore[call-overload]
    used = held.by_node.get(node.metadata.name, 0)
    if levels[-1] == names.HOSTNAME_LABEL:
        used += held.by_host.get(node.metadata.labels[levels[-1]], 0)
    path = [root]
    values: tuple[str, ...] = ()
    for level in levels:
        values = (*values, node.metadata.labels[level])
        below = index.get(values)
        if below is None:
            below = index[values] = Domain(level, values[-1])
            path[-1].domains.append(below)
        path.append(below)
    for domain in path:
        domain.nodes += 1
        domain.usable += is_usable
        domain.gpus += gpus
        domain.used += used


def _charge(root: Domain, index: Mapping[tuple[str, ...], Domain], flavor: str, held: Holdings) -> None:
    """Use of domains that are no hosts is known of the domain alone."""
    for (of, values), amount in held.by_path.items():
        if of == flavor and values in index:
            for domain in (root, *(index[values[:length]] for length in range(1, len(values) + 1))):
                domain.used += amount


def _sort(domain: Domain) -> None:
    domain.domains.sort(key=lambda each: each.value)
    for each in domain.domains:
        _sort(each)


# ------------------------------------------------------------------ what is wrong


def _missing(nodes: list[core.Node], levels: tuple[str, ...]) -> Iterator[str]:
    if not nodes:
        yield "no node has the labels of the flavor"
    for level in levels:
        without = [node.metadata.name for node in nodes if level not in node.metadata.labels]
        if without:
            yield f"{len(without)} node(s) have no label {level} and are left out: {_listed(without)}"


def _torn(nodes: list[core.Node], levels: tuple[str, ...]) -> Mapping[str, str]:
    """Hostnames that stand in several places: an assignment could not say which is meant."""
    places: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for node in nodes:
        labels = node.metadata.labels
        places[labels[levels[-1]]].add(tuple(labels[level] for level in levels[:-1]))
    return {
        host: f"host {host} is in {len(found)} places and left out: {_listed('/'.join(each) for each in found)}"
        for host, found in sorted(places.items())
        if len(found) > 1
    }


def _split(nodes: list[core.Node], levels: tuple[str, ...]) -> Iterator[str]:
    """The same name below two parents is two domains; mostly one of the labels is wrong."""
    for depth in range(1, len(levels)):
        if levels[depth] == names.HOSTNAME_LABEL:
            continue
        parents: dict[str, set[str]] = defaultdict(set)
        for node in nodes:
            labels = node.metadata.labels
            parents[labels[levels[depth]]].add("/".join(labels[level] for level in levels[:depth]))
        for value, found in sorted(parents.items()):
            if len(found) > 1:
                yield f"{levels[depth]}={value} is below {len(found)} domains, as if it were several: {_listed(found)}"


def _empty(root: Domain) -> Iterator[str]:
    """Domains without any usable node; of nested ones the outermost."""
    for domain in root.domains:
        if not domain.usable:
            yield f"{domain.level}={domain.value} has no node that takes pods ({domain.nodes} cordoned or not ready)"
        else:
            yield from _empty(domain)


def _listed(found: Iterable[str]) -> str:
    return output.first_of(sorted(found), _NAMED)


# ------------------------------------------------------------------ showing


def drawn(found: FlavorTree, *, with_hosts: bool) -> Tree:
    """The tree for a terminal; single hosts only when they are asked for."""
    from rich.markup import escape
    from rich.tree import Tree as Drawing

    drawing = Drawing(f"[bold]{escape(found.flavor)}[/] ({escape(found.topology)}): {_figures(found.root)}")
    _draw(drawing, found.root, with_hosts=with_hosts)
    for problem in found.problems:
        drawing.add(f"[red]{escape(problem)}[/]")
    return drawing


def _draw(drawing: Tree, domain: Domain, *, with_hosts: bool) -> None:
    from rich.markup import escape

    for each in domain.domains:
        if each.level == names.HOSTNAME_LABEL and not with_hosts:
            continue
        _draw(drawing.add(f"{escape(each.value)}: {_figures(each)}"), each, with_hosts=with_hosts)


def _figures(domain: Domain) -> str:
    nodes = f"{domain.usable} of {domain.nodes} nodes" if domain.usable != domain.nodes else f"{domain.nodes} nodes"
    over = f", {domain.used - domain.gpus} more in use than there are" if domain.used > domain.gpus else ""
    return f"{domain.free} of {domain.gpus} GPUs free, {nodes}{over}"


async def _read(reach: Reach) -> list[FlavorTree]:
    from admission.kube.resources import NODES, PODS, RESOURCE_FLAVORS, TOPOLOGIES, WORKLOADS

    async with reach.client() as client:
        topologies, flavors, nodes, workloads, pods = await asyncio.gather(
            client.list(TOPOLOGIES),
            client.list(RESOURCE_FLAVORS),
            client.list(NODES),
            client.list(WORKLOADS),
            client.list(PODS, field_selector="status.phase!=Succeeded,status.phase!=Failed"),
        )
    return trees(topologies.items, flavors.items, nodes.items, workloads.items, pods.items)


def plain(found: list[FlavorTree]) -> list[dict[str, object]]:
    """The trees with what is free in each domain, for programs."""
    raw = [asdict(each) for each in found]
    for made, each in zip(raw, found, strict=True):
        _add_free(made["root"], each.root)
    return raw


def as_json(found: list[FlavorTree]) -> str:
    return msgspec.json.format(msgspec.json.encode(plain(found))).decode()


def _add_free(raw: dict[str, Any], domain: Domain) -> None:
    raw["free"] = domain.free
    for made, each in zip(raw["domains"], domain.domains, strict=True):
        _add_free(made, each)


def run(reach: Reach, form: Form, *, with_hosts: bool) -> None:
    """`muster topology`; wide shows single hosts as well."""
    from rich.text import Text

    with told():
        found = asyncio.run(_read(reach))
    hosts = with_hosts or form is Form.WIDE
    nothing = [Text("No ResourceFlavor has a topology")]
    output.show(form, plain(found), lambda: [drawn(each, with_hosts=hosts) for each in found] or nothing)

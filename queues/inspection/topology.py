"""The map of a flavor: its nodes as domains in domains, how much of one resource is held there, and by whom.

It adds up the nodes' rows along the levels of the flavor's topology, as `domains` counts them. It must never be shown
to those who may see one namespace alone: it says who uses which host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from queues.inspection import answers, parameters
from queues.inspection.domains import HOSTNAME, Domain, Path, fragmentation, free_of, is_member, natural
from queues.inspection.quantities import is_device, unit
from queues.inspection.source import Source
from queues.journal import surroundings
from queues.journal.entries import FlavorRow, NodeRow

Json = dict[str, Any]


PARAMETERS = frozenset({"flavor", "resource", "at"})
#: More levels than any topology may have.
DEEPEST = 16
LONGEST_PATH = 1024


def asked_for(source: Source, query: Mapping[str, str]) -> Json | None:
    """`at` is the path of a domain, its steps with slashes between; label values have none."""
    path = parameters.text(query, "at", longest=LONGEST_PATH)
    at = () if path is None else tuple(path.split("/"))
    if len(at) > DEEPEST:
        raise parameters.ParameterError("at", f"has more than {DEEPEST} steps")
    flavor, resource = parameters.text(query, "flavor"), parameters.text(query, "resource")
    with source.engine.connect() as connection:
        return topology(connection, source.clock(), flavor=flavor, resource=resource, at=at)


def topology(
    connection: Connection, now: float, *, flavor: str | None, resource: str | None, at: Path = ()
) -> Json | None:
    """The domains of a flavor below `at`; None where there is no such flavor or domain.

    Without a flavor the first one with devices and a topology; without a resource the device that there is most of.
    """
    flavors = surroundings.flavors(connection)
    nodes = list(surroundings.nodes(connection))
    members = {row.name: [node for node in nodes if is_member(row, node)] for row in flavors}
    chosen = _chosen(flavors, members, flavor)
    if chosen is None and (flavor is not None or at):
        return None
    answer: Json = {
        "freshness": answers.freshness(connection, now),
        "flavors": [
            {"name": row.name, "topology": row.topology or None, "hosts": len(members[row.name])} for row in flavors
        ],
        "flavor": None if chosen is None else chosen.name,
        "levels": [] if chosen is None else list(_levels(chosen)),
        "resources": [],
        "resource": resource,
        "at": list(at),
        "domain": None,
    }
    if chosen is None:
        return answer
    resources = resources_of(members[chosen.name])
    answer["resources"] = resources
    answer["resource"] = resource = resource or next(iter(resources), None)
    if resource is None:
        return answer
    root = _tree(chosen, members[chosen.name], resource)
    users = _users(connection, chosen, resource, root)
    for step in at:
        if step not in root.children:
            return None
        root = root.children[step]
    answer["unit"] = unit(resource)
    answer["domain"] = _domain(root, resource, users)
    return answer


def holes(answer: Json) -> list[Json]:
    """For each level, from the largest: the domain with the most hosts that hold nothing."""
    found: dict[int, Json] = {}

    def visit(domain: Json) -> None:
        depth = len(domain["path"])
        best = found.get(depth)
        if best is None or domain["freeOnEmptyHosts"] > best["free"]:
            found[depth] = {
                "path": domain["path"],
                "free": domain["freeOnEmptyHosts"],
                "level": answer["levels"][depth - 1] if depth else None,
            }
        for child in domain["domains"]:
            visit(child)

    if answer["domain"] is not None:
        visit(answer["domain"])
    return [found[depth] for depth in sorted(found) if depth]


def hosts(answer: Json) -> int:
    return 0 if answer["domain"] is None else int(answer["domain"]["hosts"])


def resources_of(nodes: Iterable[NodeRow]) -> list[str]:
    """Devices first, what there is most of before the rest."""
    found: dict[str, int] = {}
    for node in nodes:
        for resource, amount in node.capacity.items():
            if amount > 0:
                found[resource] = found.get(resource, 0) + amount
    return sorted(found, key=lambda name: (not is_device(name), -found[name] if is_device(name) else 0, name))


def _chosen(flavors: Sequence[FlavorRow], members: Mapping[str, list[NodeRow]], wanted: str | None) -> FlavorRow | None:
    if wanted is not None:
        return next((row for row in flavors if row.name == wanted), None)

    def standing(row: FlavorRow) -> tuple[bool, bool, int, str]:
        devices = sum(amount for node in members[row.name] for name, amount in node.capacity.items() if is_device(name))
        return not devices, not row.levels, -devices, row.name

    return min(flavors, key=standing, default=None)


def _levels(flavor: FlavorRow) -> tuple[str, ...]:
    """Those above the host, which is always there."""
    return tuple(level for level in flavor.levels if level != HOSTNAME)


def _tree(flavor: FlavorRow, nodes: Iterable[NodeRow], resource: str) -> Domain:
    root = Domain(())
    levels = _levels(flavor)
    for node in nodes:
        domain = root
        domain.add(node, resource)
        for level in levels:
            value = node.labels[level]
            domain = domain.children.setdefault(value, Domain((*domain.path, value)))
            domain.add(node, resource)
        domain.nodes.append(node)
    return root


Users = Mapping[str, Sequence[tuple[str, str, int]]]


def _users(connection: Connection, flavor: FlavorRow, resource: str, root: Domain) -> Users:
    """By hostname: namespace and name of workloads with pods there, and how much of the resource these take.

    What was placed in larger domains of this flavor is held there, and no node's row has it.
    """
    found: dict[str, list[tuple[str, str, int]]] = {}
    for namespace, name, pod_set in surroundings.placed(connection):
        each = pod_set.requests.get(resource, 0)
        if pod_set.levels[-1:] == (HOSTNAME,):
            for values, pods in pod_set.domains:
                found.setdefault(values[-1], []).append((namespace, name, pods * each))
        elif pod_set.levels == flavor.levels and flavor.name in pod_set.flavors.values():
            for values, pods in pod_set.domains:
                _hold(root, values, pods * each)
    return found


def _hold(root: Domain, values: Path, amount: int) -> None:
    path = [root]
    for step in values:
        child = path[-1].children.get(step)
        if child is None:
            return  # none of its nodes is there any more
        path.append(child)
    for domain in path:
        domain.hold(amount)


def _domain(domain: Domain, resource: str, users: Users) -> Json:
    return {
        "path": list(domain.path),
        "hosts": domain.hosts,
        "closedHosts": domain.closed,
        "capacity": domain.capacity,
        "used": domain.used,
        "free": domain.free,
        "shut": domain.shut,
        "freeOnEmptyHosts": domain.whole_free,
        "fragmentation": fragmentation(domain),
        "domains": [_domain(domain.children[name], resource, users) for name in sorted(domain.children, key=natural)],
        "nodes": [_node(node, resource, users) for node in sorted(domain.nodes, key=lambda node: natural(node.name))],
    }


def _node(node: NodeRow, resource: str, users: Users) -> Json:
    capacity = node.capacity.get(resource, 0)
    return {
        "name": node.name,
        "state": node.state.value,
        "capacity": capacity,
        "used": capacity - free_of(node, resource),
        "workloads": [
            {"namespace": namespace, "name": name, "amount": amount}
            for namespace, name, amount in users.get(node.labels.get(HOSTNAME, node.name), ())
        ],
    }

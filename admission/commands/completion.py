"""Completes command lines: scripts for bash, zsh and fish, the names in a cluster, and what kubectl asks a plugin for.

Names are read with the rights and the options of the line that is being typed. Whatever goes wrong there, a completion
is silent and short: it must never print an error into somebody's prompt, nor keep it waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from admission.commands.faults import USAGE, Fault
from admission.commands.naming import QUEUE_KINDS
from admission.commands.reach import Reach

if TYPE_CHECKING:
    from admission.kube.resources import Resource

SHELLS: Final = ("bash", "zsh", "fish")
_VARIABLE: Final = "_MUSTER_COMPLETE"
_SECONDS: Final = 3.0
_MOST: Final = 500
#: What kubectl is told about the list: no files beside it.
_NO_FILES: Final = 4


def script(cli: click.Command, shell: str) -> str:
    """The script that makes a shell ask `muster` for completions."""
    kind = get_completion_class(shell)
    if kind is None:
        raise Fault(f"there is no completion for {shell}; there is for {', '.join(SHELLS)}", USAGE)
    return kind(cli, {}, "muster", _VARIABLE).source()


def items(cli: click.Command, words: list[str], incomplete: str) -> list[CompletionItem]:
    """What may stand in place of `incomplete` after these words."""
    return ShellComplete(cli, {}, "muster", _VARIABLE).get_completions(words, incomplete)


def for_kubectl(cli: click.Command, arguments: list[str]) -> None:
    """One completion a line, in the form that kubectl reads."""
    *words, incomplete = arguments or [""]
    with contextlib.suppress(Exception):  # a bug in a completion neither: nothing may end in a prompt
        for item in items(cli, words, incomplete):
            if item.type == "plain":
                click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(f":{_NO_FILES}")


# ------------------------------------------------------------------ names in the cluster


def contexts(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from admission.kube import access

    with contextlib.suppress(Exception):  # whatever is wrong with a kubeconfig, nothing may end in a prompt
        return _starting(access.contexts(context.params.get("kubeconfig")), incomplete)
    return []


def namespaces(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from admission.kube.resources import NAMESPACES

    return _starting(_names(context, NAMESPACES), incomplete)


def cluster_queues(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from admission.kube.resources import CLUSTER_QUEUES

    return _starting(_names(context, CLUSTER_QUEUES), incomplete)


def local_queues(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from admission.kube.resources import LOCAL_QUEUES

    return _starting(_names(context, LOCAL_QUEUES), incomplete)


def priority_classes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from admission.kube.resources import WORKLOAD_PRIORITY_CLASSES

    return _starting(_names(context, WORKLOAD_PRIORITY_CLASSES), incomplete)


def workloads(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names in the namespace that holds; NAMESPACE/NAME where one is being typed."""
    from admission.kube.resources import WORKLOADS

    namespace, slash, _ = incomplete.rpartition("/")
    found = _names(context, WORKLOADS, namespace or None)
    return _starting([f"{namespace}/{name}" for name in found] if slash else found, incomplete)


def queues(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Of `hold` and `resume`: first the kind, then names of it."""
    from admission.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES

    words = context.params.get("queues") or ()
    if not words:
        return _starting(["clusterqueue", "localqueue"], incomplete)
    kind = QUEUE_KINDS.get(str(words[0]).lower())
    if kind is None:
        return []
    found = _names(context, CLUSTER_QUEUES if kind == "ClusterQueue" else LOCAL_QUEUES)
    return _starting([name for name in found if name not in words], incomplete)


def _starting(found: list[str], incomplete: str) -> list[str]:
    return sorted({name for name in found if name.startswith(incomplete)})


def _names(context: click.Context, resource: Resource[Any], namespace: str | None = None) -> list[str]:
    given = context.params
    reach = Reach(
        kubeconfig=given.get("kubeconfig"),
        context=given.get("context"),
        namespace=namespace or given.get("namespace"),
        as_user=given.get("as_user"),
        as_groups=tuple(given.get("as_groups") or ()),
        seconds=_SECONDS,
    )

    async def read() -> list[str]:
        async with asyncio.timeout(_SECONDS), reach.client() as client:
            within = client.namespace if resource.namespaced else None
            body = await client.raw("GET", resource.path(within), query={"limit": str(_MOST)})
            return [each["metadata"]["name"] for each in msgspec.json.decode(body)["items"]]

    with contextlib.suppress(Exception):  # whatever a cluster or its credentials raise, nothing may end in a prompt
        return asyncio.run(read())
    return []

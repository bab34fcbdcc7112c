"""The options that commands share, in kubectl's words, and a group that takes them before a command's name as well.

Read from the command line alone. Nothing is loaded for them but click: help has to be there at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = Callable[..., Any]

#: How often a command asks for the words that complete an option: lazily, as that needs the cluster.
Completer = Callable[[click.Context, click.Parameter, str], "list[str] | list[CompletionItem]"]


def completing(name: str) -> Completer:
    """The completion of this name, loaded when somebody asks for it."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from admission.commands import completion

        found: list[str] = getattr(completion, name)(context, parameter, incomplete)
        return found

    return complete


kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    help="How to reach the cluster. Default: $KUBECONFIG, the pod's service account, or ~/.kube/config.",
)
output_option = click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Form of the answer.",
)
everywhere_option = click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Of all namespaces.")

_REACH: Final = (
    kubeconfig_option,
    click.option("--context", shell_complete=completing("contexts"), help="One of the kubeconfig's contexts."),
    click.option(
        "-n", "--namespace", shell_complete=completing("namespaces"), help="Namespace. Default: the context's own."
    ),
    click.option("--as", "as_user", metavar="USER", help="Ask as somebody else."),
    click.option("--as-group", "as_groups", metavar="GROUP", multiple=True, help="Ask as a member of these groups."),
    click.option("--request-timeout", metavar="DURATION", help="How long one request may take; 0: no limit."),
)
_WITH_VALUE: Final = frozenset(
    {
        "--kubeconfig",
        "--context",
        "-n",
        "--namespace",
        "--as",
        "--as-group",
        "--request-timeout",
        "-o",
        "--output",
    }
)
_FLAGS: Final = frozenset({"-A", "--all-namespaces"})


def cluster_options(command: Command) -> Command:
    """Gives a command kubectl's flags for reaching a cluster; it gets them as its first argument, a `Reach`."""

    @functools.wraps(command)
    def with_reach(
        *args: Any,
        kubeconfig: str | None,
        context: str | None,
        namespace: str | None,
        as_user: str | None,
        as_groups: tuple[str, ...],
        request_timeout: str | None,
        **more: Any,
    ) -> Any:
        from admission.commands.reach import Reach, seconds

        if as_groups and as_user is None:
            raise click.UsageError("--as-group needs --as USER")
        try:
            limit = seconds(request_timeout)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--request-timeout") from None
        return command(Reach(kubeconfig, context, namespace, as_user, as_groups, limit), *args, **more)

    wrapped: Command = with_reach
    for option in reversed(_REACH):
        wrapped = option(wrapped)
    return wrapped


class Kubectl(click.Group):
    """A group whose commands' options may also stand before the command's name, as with kubectl."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, hoisted(args))


def hoisted(args: list[str]) -> list[str]:
    """The words with the options that stand before the command's name moved behind it."""
    rest, head = list(args), list[str]()
    while rest and rest[0].startswith("-"):
        name, with_value, _ = rest[0].partition("=")
        if name in _FLAGS or (with_value and name in _WITH_VALUE):
            head.append(rest.pop(0))
        elif name in _WITH_VALUE and len(rest) > 1:
            head += [rest.pop(0), rest.pop(0)]
        elif name[:2] in {"-n", "-o"} and len(name) > 2:
            head.append(rest.pop(0))
        else:
            break
    return [rest[0], *head, *rest[1:]] if rest else list(args)

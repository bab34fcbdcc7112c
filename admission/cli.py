"""The `muster` command: the names and options of its subcommands, and nothing of what they do.

Each subcommand imports its module when it is called. What a user did wrong ends with one sentence and status 2, never
with a traceback.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from admission.commands.options import (
    Kubectl,
    cluster_options,
    completing,
    everywhere_option,
    kubeconfig_option,
    output_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.commands.reach import Reach

config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False),
    help="Settings: Kueue's Configuration (config.kueue.x-k8s.io/v1beta2), with a section 'muster' beside it.",
)


def process_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every process of Muster takes."""
    verbose = click.option("-v", "--verbose", is_flag=True, help="Log every detail.")
    return kubeconfig_option(config_option(verbose(command)))


only_option = click.option("--only", metavar="KIND,...", help="Run just these kinds of jobs: Job, Pod, JobSet ...")


def narrowing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What processes with a controller take besides, for tests and for looking for faults."""
    without = click.option(
        "--without",
        type=click.Choice(["scheduler"]),
        multiple=True,
        help="Keep every controller, but decide nothing.",
    )
    return only_option(without(command))


@click.group(cls=Kubectl, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="muster-queue", prog_name="muster")
def cli() -> None:
    """Muster: job queueing admission for GPU clusters on Kubernetes.

    Commands for people take kubectl's --kubeconfig, --context, --namespace, --as and -o, before their name or after it.
    """


@cli.command()
@process_options
@narrowing_options
def run(kubeconfig: str | None, config: str | None, verbose: bool, only: str | None, without: tuple[str, ...]) -> None:
    """Run the webhook, the controller and the inspection API as one process tree."""
    from admission.commands import run as command

    command.run(kubeconfig, config, verbose=verbose, only=only, without=without)


@cli.command()
@process_options
@only_option
def webhook(kubeconfig: str | None, config: str | None, verbose: bool, only: str | None) -> None:
    """Serve admission reviews."""
    from admission.commands import webhook as command

    command.run(kubeconfig, config, verbose=verbose, only=only)


@cli.command()
@process_options
@narrowing_options
def controller(
    kubeconfig: str | None, config: str | None, verbose: bool, only: str | None, without: tuple[str, ...]
) -> None:
    """Decide and release: needs an API server that has the CRDs, and nothing else."""
    from admission.commands import controller as command

    command.run(kubeconfig, config, verbose=verbose, only=only, without=without)


@cli.command()
@process_options
def inspection(kubeconfig: str | None, config: str | None, verbose: bool) -> None:
    """Serve the inspection API, its pages and the visibility API."""
    from admission.commands import inspection as command

    command.run(kubeconfig, config, verbose=verbose)


@cli.command()
@process_options
@narrowing_options
@click.option(
    "--listen", default="127.0.0.1:0", show_default=True, help="Where the webhook listens; port 0: any free one."
)
@click.option("--dir", "folder", type=click.Path(file_okay=False), help="Keeps the CA, the address and the journal.")
@click.option(
    "--work-as",
    metavar="KUBECONFIG",
    type=click.Path(dir_okay=False),
    help="Whose rights the processes have once all is installed, such as the shipped ServiceAccount's."
    " Default: --kubeconfig.",
)
@click.option("--ready-file", type=click.Path(dir_okay=False), help="Is touched when everything answers.")
@click.option("--remove", is_flag=True, help="Take the webhook configurations and policies away, and end.")
@click.option(
    "--rotate", is_flag=True, help="Have the Muster that runs with this --dir replace its certificate, and end."
)
def dev(  # noqa: PLR0913, PLR0917  # one for each option
    kubeconfig: str | None,
    config: str | None,
    verbose: bool,
    only: str | None,
    without: tuple[str, ...],
    listen: str,
    folder: str | None,
    work_as: str | None,
    ready_file: str | None,
    remove: bool,
    rotate: bool,
) -> None:
    """Try Muster on any cluster from here: install, point the API server at this machine, and run."""
    from admission.commands import dev as command

    if remove:
        command.remove(kubeconfig)
    elif rotate:
        command.rotate(folder)
    else:
        command.run(
            kubeconfig,
            config,
            listen=listen,
            folder=folder,
            work_as=work_as,
            ready_file=ready_file,
            verbose=verbose,
            only=only,
            without=without,
        )


@cli.command()
@config_option
@click.option("--url", help="SQLAlchemy URL of the journal. Default: the one of the settings.")
@click.option(
    "--to", "revision", default="head", show_default=True, help="Revision to migrate to; base removes all tables."
)
def migrate(config: str | None, url: str | None, revision: str) -> None:
    """Bring the journal's schema to a revision."""
    from admission.commands import migrate as command

    command.run(config, url, revision)


@cli.command()
@cluster_options
@output_option
@everywhere_option
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=completing("cluster_queues"))
def queues(reach: Reach, form: str, names: tuple[str, ...], *, everywhere: bool) -> None:
    """Show the ClusterQueues: quota, use, what is borrowed, who waits.

    With -n or -A the LocalQueues of a namespace, or of all.
    """
    from admission.commands import queues as command
    from admission.commands.output import Form

    command.run(reach, Form(form), names, everywhere=everywhere)


@cli.command()
@cluster_options
@output_option
@everywhere_option
@click.option("-q", "--queue", default="", shell_complete=completing("local_queues"), help="Of this LocalQueue.")
@click.option("--cluster-queue", default="", shell_complete=completing("cluster_queues"), help="Of this ClusterQueue.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(
        ["Pending", "QuotaReserved", "Admitted", "Evicted", "Inactive", "Finished"], case_sensitive=False
    ),
    help="In this state; may be given several times.",
)
@click.option("-l", "--selector", help="With these labels, as for kubectl.")
def workloads(  # one for each option
    reach: Reach,
    form: str,
    queue: str,
    cluster_queue: str,
    states: tuple[str, ...],
    selector: str | None,
    *,
    everywhere: bool,
) -> None:
    """List workloads: their queue, their state, and why they wait."""
    from admission.commands import workloads as command
    from admission.commands.output import Form

    wanted = command.Filter(queue, cluster_queue, tuple(state.lower() for state in states))
    command.run(reach, Form(form), wanted, selector, everywhere=everywhere)


@cli.command()
@cluster_options
@output_option
@click.argument("workload", metavar="[NAMESPACE/]NAME", shell_complete=completing("workloads"))
def explain(reach: Reach, form: str, workload: str) -> None:
    """Say why a workload waits, or what it was given: NAME is that of a Workload, or of its Job or pod."""
    from admission.commands import explain as command
    from admission.commands.output import Form

    command.run(reach, workload, Form(form))


@cli.command()
@cluster_options
@output_option
@click.option("--hosts", is_flag=True, help="Show single hosts as well, as -o wide does.")
def topology(reach: Reach, form: str, *, hosts: bool) -> None:
    """Show the tree of topology domains with free and used GPUs, and what is wrong with it."""
    from admission.commands import topology as command
    from admission.commands.output import Form

    command.run(reach, Form(form), with_hosts=hosts)


@cli.command()
@cluster_options
@output_option
@click.option("--from", "since", metavar="TIME", help="2026-01-31, 2026-01-31T12:00:00Z, or how long ago: 7d, 12h.")
@click.option("--to", "until", metavar="TIME", help="The same. Default: now.")
@click.option("--by", type=click.Choice(["queue", "namespace"]), default="queue", show_default=True)
def usage(reach: Reach, form: str, since: str | None, until: str | None, by: str) -> None:
    """Show resource-hours held, such as GPU-hours, of the last day or between two times."""
    from admission.commands import usage as command
    from admission.commands.output import Form

    command.run(reach, Form(form), since, until, by)


queues_argument = click.argument(
    "queues", metavar="KIND NAME... | KIND/NAME...", nargs=-1, shell_complete=completing("queues")
)


@cli.command()
@cluster_options
@click.option("--drain", is_flag=True, help="Evict what runs as well.")
@click.option("--wait", is_flag=True, help="With --drain: until nothing holds quota there any more.")
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds to wait at most.")
@queues_argument
def hold(reach: Reach, queues: tuple[str, ...], timeout: float, *, drain: bool, wait: bool) -> None:
    """Start nothing more from queues: clusterqueue (cq) or localqueue (lq). What runs goes on."""
    from admission.commands import holding as command

    command.run(reach, queues, command.DRAIN if drain else command.HOLD, timeout if wait else None)


@cli.command()
@cluster_options
@queues_argument
def resume(reach: Reach, queues: tuple[str, ...]) -> None:
    """Let queues that were held go on."""
    from admission.commands import holding as command

    command.run(reach, queues, command.NONE)


@cli.command()
@cluster_options
@output_option
@click.option("--class", "class_name", metavar="NAME", shell_complete=completing("priority_classes"))
@click.argument("workload", metavar="[NAMESPACE/]NAME", shell_complete=completing("workloads"))
@click.argument("number", metavar="[NUMBER]", type=click.IntRange(-(2**31), 2**31 - 1), required=False)
def priority(reach: Reach, form: str, workload: str, number: int | None, class_name: str | None) -> None:
    """Show the priority of a workload, or give it a number or a WorkloadPriorityClass."""
    from admission.commands import priority as command
    from admission.commands.output import Form

    if number is not None and class_name is not None:
        raise click.UsageError("give a number or a --class, not both")
    command.run(reach, Form(form), workload, number, class_name)


@cli.command()
@cluster_options
@output_option
@click.option("--dry-run", is_flag=True, help="Say what would differ, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--accept-losses", is_flag=True, help="Go on though something is not there in Muster.")
@click.option("--write-settings", type=click.Path(dir_okay=False), help="Write Kueue's settings as Muster takes them.")
@click.option(
    "--backup",
    type=click.Path(dir_okay=False),
    default="kueue-before-muster.yaml",
    show_default=True,
    help="Keeps what is deleted or scaled down.",
)
@click.option("--muster-namespace", default="muster-system", show_default=True, help="Where Muster is installed.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Until Muster has taken Kueue's place.")
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds to wait at most.")
@click.option("--import-pods", is_flag=True, help="Instead, bring running pods into queues.")
@click.option("--import-namespace", "namespaces", metavar="NAME", multiple=True, help="Of these namespaces.")
@click.option("--queue-label", metavar="LABEL", help="The label that tells pods apart.")
@click.option("--queue-mapping", "pairs", metavar="VALUE=QUEUE,...", multiple=True, help="Its values' LocalQueues.")
@click.option("--queue-mapping-file", type=click.Path(dir_okay=False), help="Rules, as Kueue's importer reads them.")
@config_option
def adopt(  # noqa: PLR0913, PLR0917  # one for each option
    reach: Reach,
    form: str,
    backup: str,
    muster_namespace: str,
    timeout: float,
    namespaces: tuple[str, ...],
    pairs: tuple[str, ...],
    write_settings: str | None,
    queue_label: str | None,
    queue_mapping_file: str | None,
    config: str | None,
    *,
    dry_run: bool,
    yes: bool,
    accept_losses: bool,
    wait: bool,
    import_pods: bool,
) -> None:
    """Take a cluster over from Kueue without evicting anything: look first, with --dry-run."""
    from admission.commands.adopt import command, takeover
    from admission.commands.output import Form

    if import_pods:
        pods = command.PodWishes(dry_run, queue_label, pairs, queue_mapping_file, config)
        command.run_import(reach, Form(form), namespaces, pods)
        return
    if namespaces or pairs or queue_label or queue_mapping_file:
        raise click.UsageError("what says where pods belong needs --import-pods")
    options = takeover.Options(Path(backup), muster_namespace, timeout, wait)
    command.run(reach, Form(form), command.Wishes(dry_run, yes, accept_losses, write_settings, options))


@cli.command()
@cluster_options
@click.option("--dry-run", is_flag=True, help="Say what there is, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--muster-namespace", default="muster-system", show_default=True, help="Where Muster is installed.")
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds to wait for its end at most.")
def leave(reach: Reach, muster_namespace: str, timeout: float, *, dry_run: bool, yes: bool) -> None:
    """Take Muster out of a cluster: nothing is refused or stuck when it is gone. Queues and what runs stay."""
    from admission.commands import leave as command

    command.run(reach, command.Wishes(muster_namespace, timeout, dry_run, yes))


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes `muster` in a shell: source <(muster completion bash)."""
    from admission.commands import completion as command

    click.echo(command.script(cli, shell))


def _called() -> str:
    """As a plugin of kubectl it is called `kubectl muster`."""
    return "kubectl muster" if Path(sys.argv[0]).name.startswith("kubectl-") else "muster"


@cli.command("log-level")
@click.argument("level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option("--pid", default=1, show_default=True, help="A process of Muster; those below it are told as well.")
def log_level(level: str, pid: int) -> None:
    """Change how much is logged, while Muster runs: inside its container, or wherever its processes are."""
    from admission.commands import levels as command

    command.run(level, pid)


def complete_for_kubectl() -> None:
    """`kubectl_complete-muster WORD...`: kubectl runs this where somebody completes `kubectl muster`."""
    from admission.commands import completion as command

    command.for_kubectl(cli, sys.argv[1:])


def main() -> None:
    """Entry point."""
    from admission import lifeline
    from admission.commands.faults import Fault

    try:
        cli.main(prog_name=_called(), standalone_mode=False)
    except BrokenPipeError:
        # Who read the answer has seen enough; nor may the interpreter find out at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except SystemExit as end:  # so gunicorn ends
        if end.code in {0, None}:
            lifeline.leave()
        raise
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except Fault as fault:
        click.echo(f"muster: {fault}", err=True)
        sys.exit(fault.status)
    lifeline.leave()


if __name__ == "__main__":
    main()

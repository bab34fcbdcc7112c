"""The `muster` command: the names and options of its subcommands, and nothing of what they do.

Each subcommand imports its module when it is called. What a user did wrong ends with one sentence and status 2, never
with a traceback.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

kubeconfig_option = click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    help="How to reach the cluster. Default: $KUBECONFIG, the pod's service account, or ~/.kube/config.",
)
config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False),
    help="Settings: Kueue's Configuration (config.kueue.x-k8s.io/v1beta2), with a section 'muster' beside it.",
)
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Form of the answer.",
)


def process_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every process of Muster takes."""
    verbose = click.option("-v", "--verbose", is_flag=True, help="Log every detail.")
    return kubeconfig_option(config_option(verbose(command)))


only_option = click.option("--only", metavar="KIND,...", help="Run just these kinds of jobs: Job, Pod.")


def narrowing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What processes with a controller take besides, for tests and for looking for faults."""
    without = click.option(
        "--without",
        type=click.Choice(["scheduler"]),
        multiple=True,
        help="Keep every controller, but decide nothing.",
    )
    return only_option(without(command))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="muster-queue", prog_name="muster")
def cli() -> None:
    """Muster: job queueing admission for GPU clusters on Kubernetes."""


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
@kubeconfig_option
@output_option
def queues(kubeconfig: str | None, output: str) -> None:
    """Show the ClusterQueues: quota, use, what is borrowed, who waits."""
    from admission.commands import queues as command

    command.run(kubeconfig, output)


@cli.command()
@kubeconfig_option
@output_option
@click.argument("workload", metavar="NAMESPACE/NAME")
def explain(kubeconfig: str | None, output: str, workload: str) -> None:
    """Say why a workload waits, or what it was given: NAME is that of a Workload, or of its Job or pod."""
    from admission.commands import explain as command

    command.run(kubeconfig, workload, output)


@cli.command()
@kubeconfig_option
@output_option
@click.option("--hosts", is_flag=True, help="Show single hosts as well.")
def topology(kubeconfig: str | None, output: str, *, hosts: bool) -> None:
    """Show the tree of topology domains with free and used GPUs, and what is wrong with it."""
    from admission.commands import topology as command

    command.run(kubeconfig, output, with_hosts=hosts)


@cli.command("log-level")
@click.argument("level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option("--pid", default=1, show_default=True, help="A process of Muster; those below it are told as well.")
def log_level(level: str, pid: int) -> None:
    """Change how much is logged, while Muster runs: inside its container, or wherever its processes are."""
    from admission.commands import levels as command

    command.run(level, pid)


def main() -> None:
    """Entry point."""
    from admission import lifeline
    from admission.commands.faults import Fault

    try:
        cli.main(standalone_mode=False)
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

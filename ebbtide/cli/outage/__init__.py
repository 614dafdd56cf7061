"""``ebbtide outage``: nodes that went down without a graceful shutdown; and ``run``, the controller."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.app import Entry, LazyGroup
from ebbtide.cli.common.guard import DONE, Refused, warn_of_wide_bounds
from ebbtide.cli.common.shared_options import need_command

SECTIONS: dict[str, dict[str, Entry]] = {
    "Run it": {
        "run": Entry("outage:run", "The controller: watch, prove, taint, follow, remove the taint."),
    },
    "See what it does": {
        "ls": Entry("outage.outage_status:ls", "The open outages of all nodes."),
        "status": Entry(
            "outage.outage_status:status", "One node's outage: proof, taint, and what everything waits for."
        ),
        "explain": Entry("outage.outage_explain:explain", "Why a pod is still Terminating."),
        "doctor": Entry("outage.outage_doctor:doctor", "Would an outage of each node be recovered?"),
    },
    "Tell the controller": {
        "declare": Entry("outage.outage_declare:declare", "A machine is off (a proof), or it runs."),
        "pause": Entry("outage.outage_requests:pause", "No taint and no power-off, of one node or of all."),
        "close": Entry("outage.outage_requests:close", "Stop waiting for what still hangs."),
    },
}

EPILOG = """\b
Examples:
  ebbtide outage run --config outage.yaml --kubeconfig ~/.kube/config --dry-run
  ebbtide outage declare worker-2 --off
  ebbtide outage explain shop/db-0
  ebbtide outage doctor --config outage.yaml
"""


@click.group(cls=LazyGroup, sections=SECTIONS, invoke_without_command=True, epilog=EPILOG)
@click.pass_context
def outage(ctx: click.Context) -> None:
    """Recover failed nodes: proof that they are off, taint, detach, all on record."""
    need_command(ctx)


RUN_EPILOG = """\b
Examples:
  ebbtide outage run --config outage.yaml --kubeconfig ~/.kube/config --dry-run
  ebbtide outage run --config /etc/ebbtide/config.yaml              # in a pod, by its service account

Two replicas with one Lease are enough: one leads, the other waits. At SIGTERM the leader gives the Lease
back; taints stay.
"""


@click.command(epilog=RUN_EPILOG)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An OutageConfiguration (docs/outage-configuration.md).  [default: everything at its default]",
)
@click.option(
    "--kubeconfig",
    metavar="PATH",
    help="The API server and your identity there: a file, or in-cluster for the pod's service account."
    "  [default: in-cluster in a pod]",
)
@click.option(
    "--replica",
    metavar="NAME",
    help="This replica's name in the Lease and in journals.  [default: the host name]",
)
@click.option("--dry-run", is_flag=True, help="Decide and record, and change nothing on any Node.")
def run(config: Path | None, kubeconfig: str | None, replica: str | None, dry_run: bool) -> int:
    """Watch nodes, prove that failed ones are off, taint them, follow their pods and volumes, and remove
    the taint.
    """
    from ebbtide.extras import require

    require("node", "outage run")
    import trio

    from ebbtide.config.schema import IN_CLUSTER
    from ebbtide.host import host_name
    from ebbtide.log import LogOutput
    from ebbtide.modes import ModeUnavailable, in_a_pod, require_readable
    from ebbtide.outage.configuration import OutageConfiguration, load_outage
    from ebbtide.outage.controller import Options, run_controller

    loaded = load_outage(config) if config is not None else OutageConfiguration()
    in_cluster = kubeconfig == IN_CLUSTER or (kubeconfig is None and in_a_pod())
    if kubeconfig is None and not in_cluster:
        raise Refused("this is no pod of a cluster: name a kubeconfig with --kubeconfig PATH")
    access = None if in_cluster or kubeconfig is None else Path(kubeconfig)
    if access is not None:
        try:
            require_readable(access)
        except ModeUnavailable as error:
            raise Refused(str(error)) from None
    options = Options(loaded, access, replica or host_name(), dry_run)
    warn_of_wide_bounds()
    trio.run(run_controller, options, LogOutput())
    return DONE

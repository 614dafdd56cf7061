"""``ebbtide run``: the daemon. Import as little as possible here: it stays resident."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ebbtide.cli.common.guard import DONE, Refused, warn_of_wide_bounds
from ebbtide.cli.common.shared_options import refuse_node_options, run_options
from ebbtide.options import MODES, PROCESS, RunOptions

KEEP_LOCK = "--keep-lock"
#: The kubelet's own graceful shutdown and its metrics stay active in this mode.
OBSERVE = "observe"

EPILOG = """\b
Examples:
  sudo ebbtide run                                         # on a Kubernetes node
  sudo ebbtide run --mode cri                              # end pods through the container runtime alone
  sudo ebbtide run --node-name worker-3 --kubeconfig /etc/ebbtide/kubeconfig
  ebbtide run --mode process --pods ./pods --journal ./journal --runtime ./run
  ebbtide run --keep-lock --kubeconfig in-cluster          # in a DaemonSet
"""


@click.command(epilog=EPILOG)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="auto",
    show_default=True,
    help="How pods are ended: deleted (api), stopped through the container runtime (cri), either by the kind"
    " of shutdown (auto), by the kubelet itself (observe), or as local processes (process).",
)
@click.option(
    "--pods",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Mode process: a manifest, or a folder of them, which is watched.",
)
@run_options("cri", "kubeconfig", "node_name", "config", "journal", "runtime")
@click.option(
    KEEP_LOCK,
    is_flag=True,
    help="Without a service manager: a small parent process keeps the delay lock, and starts the daemon again"
    " after a crash.",
)
def run(mode: str, pods: Path | None, options: RunOptions, keep_lock: bool) -> int:
    """Arm, wait, and carry out shutdowns until the machine is down.

    Uses DBUS_SYSTEM_BUS_ADDRESS. SIGHUP reads the configuration again. The end of the daemon leaves pods
    alone.
    """
    options = options._replace(mode=mode, pods=pods)
    if keep_lock:
        # Before any import: the parent lives as long as the machine, and must stay small.
        from ebbtide.supervisor import become_supervisor

        become_supervisor([sys.executable, *(word for word in sys.orig_argv[1:] if word != KEEP_LOCK)])
    import trio

    from ebbtide.config import load_named
    from ebbtide.daemon import daemon_under_logind

    loaded, parts = load_named(options.config), None
    if mode == OBSERVE and loaded.config.metrics_kubelet_names:
        raise Refused(
            f"metricsKubeletNames is not for mode {OBSERVE}, whose kubelet exports these: remove it"
        )
    if options.of_node:
        from ebbtide.modes import ModeUnavailable, find_node_parts

        if pods is not None:
            raise Refused(f"--pods is for mode {PROCESS}: add --mode {PROCESS}, or leave it out")
        try:
            parts = find_node_parts(options, loaded.config.node)
        except ModeUnavailable as error:
            raise Refused(str(error)) from None
    else:
        refuse_node_options(options)
        if pods is None:
            raise Refused("mode process needs manifests: name a file or a folder with --pods")
        if not pods.exists():
            raise Refused(f"{pods} does not exist: name a file or a folder with --pods")
    warn_of_wide_bounds()

    async def live() -> None:
        daemon = await daemon_under_logind(options, loaded, parts)
        await daemon.run()

    trio.run(live)
    return DONE

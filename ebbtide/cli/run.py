"""``ebbtide run``: the daemon.

This module imports as little as it can: what is imported here stays resident.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ebbtide.cli.guard import DONE, Refused
from ebbtide.cli.options import config_option, journal_option, runtime_option, socket_option

MODES = ("auto", "api", "cri", "observe", "process")
#: What this version can run.
READY = ("process", "cri")
KEEP_LOCK = "--keep-lock"
#: In which the kubelet's own graceful shutdown, and its metrics, go on.
OBSERVE = "observe"

EPILOG = """\b
Examples:
  sudo ebbtide run --mode process --pods /etc/ebbtide/pods
  ebbtide run --mode process --pods ./pods --journal ./journal --runtime ./run
  ebbtide run --keep-lock --mode process --pods /pods      # in a container
  sudo ebbtide run --mode cri                              # a node without a running kubelet
"""


@click.command(epilog=EPILOG)
@click.option(
    "--mode", type=click.Choice(MODES), default="auto", show_default=True, help="How pods are ended."
)
@click.option(
    "--pods",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Mode process: a manifest, or a folder of them, which is watched.",
)
@click.option(
    "--cri",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Mode cri: the container runtime's socket.  [default: containerd's or CRI-O's own]",
)
@config_option
@journal_option
@runtime_option
@socket_option
@click.option(
    "--capture-lines",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    metavar="N",
    help="Newest lines of a straggler's output in its autopsy; 0 keeps output out of the journal.",
)
@click.option(
    KEEP_LOCK,
    is_flag=True,
    help="Where no service manager does: a small parent process holds the delay lock while the daemon is"
    " away, and starts it again after a crash.",
)
def run(
    mode: str,
    pods: Path | None,
    cri: Path | None,
    configs: tuple[Path, ...],
    journal: Path,
    runtime: Path,
    socket: Path | None,
    capture_lines: int,
    keep_lock: bool,
) -> int:
    """Arm, wait, and carry shutdowns out, until the machine is down.

    DBUS_SYSTEM_BUS_ADDRESS is honoured. SIGHUP reads the configuration again. Ending the daemon leaves pods
    alone.
    """
    if mode == OBSERVE:
        _check_names(configs)
    if mode not in READY:
        raise Refused(f"mode {mode} is not in this version: use --mode process --pods PATH, or --mode cri")
    _check(mode, pods, cri)
    if keep_lock:
        from ebbtide.keeper import become

        become([sys.executable, *(word for word in sys.orig_argv[1:] if word != KEEP_LOCK)])
    import trio

    from ebbtide.assemble import real
    from ebbtide.options import RunOptions

    options = RunOptions(configs, pods, journal, runtime, socket, capture_lines, mode, cri)

    async def live() -> None:
        daemon = await real(options)
        await daemon.run()

    trio.run(live)
    return DONE


def _check_names(configs: tuple[Path, ...]) -> None:
    """Where the kubelet exports its metrics itself, nobody else may use their names. Raises Refused."""
    from ebbtide.config import default_paths, load

    if load(configs or default_paths()).options.metrics_kubelet_names:
        raise Refused(
            f"metricsKubeletNames cannot be used in mode {OBSERVE}: the kubelet exports these itself"
        )


def _check(mode: str, pods: Path | None, cri: Path | None) -> None:
    """Each mode needs its own kind of pods. Raises Refused."""
    if mode == "cri":
        from ebbtide.runtimes import NoRuntime, cri_socket

        try:
            cri_socket(cri)
        except NoRuntime as error:
            raise Refused(str(error)) from None
    elif pods is None:
        raise Refused("mode process needs manifests: name a file or a folder with --pods")
    elif not pods.exists():
        raise Refused(f"{pods} does not exist: name a file or a folder with --pods")

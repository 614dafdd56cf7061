"""A whole Kubernetes node for a person: up, until it is told to go down.

python -m tests.node up                  # a node, its kubeconfig, its sockets
python -m tests.node up --nodes 2 --no-graceful-shutdown
python -m tests.node down                # and nothing of it is left
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import trio

from tests.beds.rootfs import Unavailable, cache_folder
from tests.node.bed import Bed, Unready
from tests.node.bringing_up import node_bed
from tests.node.programs import version

#: The kubelet's settings without its own graceful node shutdown.
UNGRACEFUL = {"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"}
HELP = {
    "up": "bring a node up and leave it up",
    "hold": "the same, in the foreground, until a signal comes",
    "down": "end the one that is up",
}
DOWN_SECONDS_MAX = 60
#: Exit codes, as shells and `ebbtide` have them.
WRONG, INTERRUPTED = 2, 128 + signal.SIGINT
POLL_SECONDS = 0.05

SAID = """{nodes} Ready in {seconds:.1f} s, Kubernetes {version}
export KUBECONFIG={kubeconfig}
export DBUS_SYSTEM_BUS_ADDRESS={bus}
{sockets}
logs      {logs}
a shell   {enter}
end it    python -m tests.node down"""


def state_file() -> Path:
    return cache_folder() / "node.json"


def started(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty when there is none. A pid alone may be another's."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def holder() -> int:
    """The process that holds the node that is up; 0 when none is."""
    with contextlib.suppress(FileNotFoundError):
        state = json.loads(state_file().read_text())
        if started(state["pid"]) == state["started"]:
            return int(state["pid"])
    return 0


def describe(bed: Bed) -> str:
    sockets = [f"CRI       unix://{member.socket} ({member.name})" for member in bed.members.values()]
    return SAID.format(
        nodes=", ".join(bed.members),
        seconds=bed.times["Ready"],
        version=version(),
        kubeconfig=bed.kubeconfig,
        bus=bed.logind.address,
        sockets="\n".join(sockets),
        logs=bed.folder / "log",
        enter=" ".join([*bed.enter, "sh"]),
    )


def up(nodes: int, graceful: bool) -> int:
    """Start the holder and leave it behind once the node is Ready; its exit code when it gets nowhere."""
    if pid := holder():
        print(f"a node is up already (process {pid}): python -m tests.node down", file=sys.stderr)
        return 1
    argv = [sys.executable, "-m", "tests.node", "hold", "--nodes", str(nodes)]
    if not graceful:
        argv.append("--no-graceful-shutdown")
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        said = process.stdout.read()
    except BaseException:
        _end(process)
        raise
    print(said, end="")
    return 0 if said else process.wait()


def _end(process: subprocess.Popen[str]) -> None:
    """It cleans up, however impatient somebody is with Ctrl-C; in a session of its own it hears none."""
    process.terminate()
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            process.wait()
            return


async def hold(nodes: int, graceful: bool) -> None:
    """Keep a node up until a signal comes. It says where the node is, once, and then no more."""
    names = [f"node-{number}" for number in range(1, nodes + 1)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_leave_on_signal, nursery.cancel_scope)
        async with node_bed(names, **({} if graceful else UNGRACEFUL)) as bed:
            pid = os.getpid()
            state_file().write_text(json.dumps({"pid": pid, "started": started(pid)}))
            print(describe(bed), flush=True)
            _be_silent()
            try:
                await trio.sleep_forever()
            finally:
                state_file().unlink()


async def _leave_on_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            scope.cancel()


def _be_silent() -> None:
    """Who started it waits for the end of what it says."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)


def down() -> int:
    """End the holder, and wait until it has cleaned up."""
    pid = holder()
    if not pid:
        print("no node is up", file=sys.stderr)
        return 1
    began = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    while holder() == pid or started(pid):
        if time.monotonic() - began > DOWN_SECONDS_MAX:
            print(f"process {pid} does not end", file=sys.stderr)
            return 1
        time.sleep(POLL_SECONDS)
    print(f"down in {time.monotonic() - began:.1f} s")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.node", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("up", "hold"):
        command = commands.add_parser(name, help=HELP[name])
        command.add_argument("--nodes", type=int, default=1, help="how many (1)")
        command.add_argument(
            "--no-graceful-shutdown", dest="graceful", action="store_false", help="the kubelet takes no lock"
        )
    commands.add_parser("down", help=HELP["down"])
    return parser.parse_args()


def main() -> int:
    asked = _parse()
    if asked.command != "down" and asked.nodes < 1:
        print(f"--nodes {asked.nodes}: a bed has one node at least", file=sys.stderr)
        return WRONG
    try:
        if asked.command == "down":
            return down()
        if asked.command == "up":
            return up(asked.nodes, asked.graceful)
        return _hold(asked)
    except KeyboardInterrupt:
        print(
            "\ninterrupted: nothing of the node is left" if asked.command == "up" else "\ninterrupted",
            file=sys.stderr,
        )
        return INTERRUPTED


def _hold(asked: argparse.Namespace) -> int:
    failures: list[BaseException] = []
    try:
        trio.run(hold, asked.nodes, asked.graceful)
    except* (Unavailable, Unready) as group:
        failures.extend(_leaves(group))
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


if __name__ == "__main__":
    sys.exit(main())

"""A whole Kubernetes node for a person: up until Ctrl-C.

python -m tests.node [--nodes 2] [--no-graceful-shutdown]
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import AsyncIterator

import trio

from tests.beds.rootfs import Unavailable, leaves
from tests.node.bed import Bed, Unready
from tests.node.bringing_up import node_bed
from tests.node.programs import version

#: Kubelet settings without its own graceful node shutdown.
UNGRACEFUL = {"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"}

SAID = """{nodes} Ready in {seconds:.1f} s, Kubernetes {version}
export KUBECONFIG={kubeconfig}
export DBUS_SYSTEM_BUS_ADDRESS={bus}
{sockets}
logs      {logs}
a shell   {enter}
end it    Ctrl-C"""


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


async def hold(nodes: int, graceful: bool) -> None:
    names = [f"node-{number}" for number in range(1, nodes + 1)]
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_signal, signals, nursery.cancel_scope)
            async with node_bed(names, **({} if graceful else UNGRACEFUL)) as bed:
                print(describe(bed), flush=True)
                await trio.sleep_forever()


async def _until_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.node", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1, help="how many (1)")
    parser.add_argument(
        "--no-graceful-shutdown", dest="graceful", action="store_false", help="the kubelet takes no lock"
    )
    asked = parser.parse_args()
    if asked.nodes < 1:
        parser.error(f"--nodes {asked.nodes}: at least 1")
    try:
        trio.run(hold, asked.nodes, asked.graceful)
    except* (Unavailable, Unready) as group:
        sys.exit("\n".join(str(failure) for failure in leaves(group)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

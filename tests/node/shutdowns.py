"""Measure a node shutdown from outside: logind and the API server.

Independent of the lock's holder, so the kubelet's own shutdown and ours compare on the same pods.

python -m tests.node.shutdowns --pods 105 --runs 5     # the kubelet's, pods that end at once
python -m tests.node.shutdowns --pods 20 --stubborn    # one in each wave ignores the stop signal
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import trio

from tests.node.bed import Bed
from tests.node.bringing_up import node_bed
from tests.node.client import Object
from tests.node.pods import OBEDIENT, PODS, STUBBORN, is_ready, pod, remove_all
from tests.proc import each_process
from tests.waiting import until

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
#: The waves, in their order: name to priority.
PRIORITIES = {"low": 1000, "middle": 2000, "high": 3000}
WAVE_SECONDS = 10
UP_SECONDS_MAX = 1200
#: Hundreds of parallel starts exceed the kubelet's two minutes, and each starts again.
FILL_AT_ONCE = 50
#: Listing hundreds of pods burdens the server that starts them.
UP_POLL_SECONDS = 1.0
OVER_SECONDS_MAX = 120
FINAL = ("Succeeded", "Failed")
MIB = 1024
NS = 1_000_000_000


class Shutdown(NamedTuple):
    """``seconds`` from request until logind went on; ``told``: pods final in the API by then; all were
    after ``all_told_seconds``. ``memory_mib``: the kubelet's before.
    """

    seconds: float
    told: int
    all_told_seconds: float
    memory_mib: float


def waves(seconds: int = WAVE_SECONDS) -> dict[str, Any]:
    """The kubelet's settings: one wave per priority."""
    groups = [{"priority": each, "shutdownGracePeriodSeconds": seconds} for each in PRIORITIES.values()]
    return {
        "shutdownGracePeriod": "0s",
        "shutdownGracePeriodCriticalPods": "0s",
        "shutdownGracePeriodByPodPriority": groups,
    }


async def make_priorities(bed: Bed) -> None:
    """The classes that `many` pods name."""
    for name, value in PRIORITIES.items():
        await bed.api.post(CLASSES, {"metadata": {"name": name}, "value": value})


def many(count: int, stubborn: bool) -> list[Object]:
    """Pods of all priorities in turn; ``stubborn``: the first of each ignores SIGTERM."""
    names = tuple(PRIORITIES)
    return [
        pod(
            f"pod-{number}",
            "node-1",
            STUBBORN if stubborn and number < len(names) else OBEDIENT,
            priorityClassName=names[number % len(names)],
        )
        for number in range(count)
    ]


async def fill(bed: Bed, pods: list[Object]) -> None:
    """Create all and wait until each is Ready."""
    for begin in range(0, len(pods), FILL_AT_ONCE):
        async with trio.open_nursery() as nursery:
            for each in pods[begin : begin + FILL_AT_ONCE]:
                nursery.start_soon(bed.api.post, PODS, each)
        await bed.api.until(
            PODS, lambda made: all(map(is_ready, made["items"])), UP_SECONDS_MAX, UP_POLL_SECONDS
        )


async def shut_down(bed: Bed) -> Shutdown:
    """Request a power-off and observe the pods."""
    memory_mib = memory_of(bed, "kubelet")
    asked_ns, over_ns = await power_off(bed)
    told = sum(map(_is_final, (await bed.api.get(PODS))["items"]))
    await bed.api.until(PODS, lambda made: all(map(_is_final, made["items"])), seconds=OVER_SECONDS_MAX)
    all_told_ns = time.monotonic_ns()
    return Shutdown((over_ns - asked_ns) / NS, told, (all_told_ns - asked_ns) / NS, memory_mib)


async def power_off(bed: Bed, kind: str = "poweroff") -> tuple[int, int]:
    """The monotonic times of the request and of logind's continuation."""
    before = len(await bed.logind.starts())
    asked_ns = await bed.logind.power_off(kind)

    async def started() -> list[tuple[str, int]]:
        starts: list[tuple[str, int]] = await bed.logind.starts()
        return starts[before:]

    starts = await until(started, "logind does not go on")
    return asked_ns, starts[-1][1]


def _is_final(made: Object) -> bool:
    return made["status"]["phase"] in FINAL


def memory_of(bed: Bed, name: str) -> float:
    """Resident MiB of the node's process of that name; the largest one."""
    found = [0]
    for status in each_process("status", bed.place(Path("/proc"))).values():
        fields = dict(line.split(":", 1) for line in status.decode().splitlines())
        if fields["Name"].strip() == name:
            found.append(int(fields["VmRSS"].split()[0]))
    return max(found) / MIB


async def measure(pods: int, runs: int, stubborn: bool) -> list[Shutdown]:
    done = []
    async with node_bed(**waves()) as bed:
        await make_priorities(bed)
        for run in range(runs):
            await bed.locks(1)
            await fill(bed, many(pods, stubborn))
            done.append(await shut_down(bed))
            print(f"run {run + 1}: {_row(done[-1], pods)}", flush=True)
            await remove_all(bed)
            await bed.start_over(**waves())
    return done


def _row(each: Shutdown, pods: int) -> str:
    return (
        f"{each.seconds:6.2f} s, {each.told} of {pods} final in the API by then, "
        f"all after {each.all_told_seconds:.2f} s, {each.memory_mib:.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=105, help="how many (105)")
    parser.add_argument("--runs", type=int, default=5, help="how often (5)")
    parser.add_argument("--stubborn", action="store_true", help="one pod in each wave ignores SIGTERM")
    asked = parser.parse_args()
    done = trio.run(measure, asked.pods, asked.runs, asked.stubborn)
    columns = [statistics.median(column) for column in zip(*done, strict=True)]
    print(f"median: {_row(Shutdown(columns[0], int(columns[1]), *columns[2:]), asked.pods)}")


if __name__ == "__main__":
    main()

"""What an armed daemon costs while nothing happens: memory, wake-ups, processor time.

Armed under the real logind with 100 pods running. Wake-ups are the voluntary context switches of all its
threads; processor time is what the scheduler accounts to them, scaled to ten minutes.

    sudo python -m benchmarks.idle --seconds 120
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

import trio

from benchmarks.node import node
from benchmarks.report import Figure, conclude, parser, say

PODS = 100
#: After arming and starting pods there is a little more to do (a limit read again, output trimmed).
SETTLE_SECONDS = 15.0
TEN_MINUTES = 600
KIB_PER_MIB = 1024
NS_PER_SECOND = 1_000_000_000
LIMIT_MIB, LIMIT_WAKE_UPS, LIMIT_CPU_SECONDS = 40, 1.0, 0.5


class Look(NamedTuple):
    """``wake_ups`` and ``cpu_ns`` by thread, since each began; ``rss_mib`` is now."""

    rss_mib: float
    wake_ups: dict[str, int]
    cpu_ns: dict[str, int]


def look(pid: int) -> Look:
    status = Path(f"/proc/{pid}/status").read_text()
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    return Look(
        field(status, "VmRSS") / KIB_PER_MIB,
        {task.name: field((task / "status").read_text(), "voluntary_ctxt_switches") for task in tasks},
        {task.name: int((task / "schedstat").read_text().split()[0]) for task in tasks},
    )


def grown(before: dict[str, int], after: dict[str, int]) -> int:
    """A thread that ended takes its figures with it: they are lost."""
    return sum(figure - before.get(task, 0) for task, figure in after.items())


def field(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+)", status, re.MULTILINE)
    assert found is not None, name
    return int(found[1])


class Idle(NamedTuple):
    empty_mib: float
    mib: float
    wake_ups_a_second: float
    cpu_seconds: float


async def measure(seconds: float) -> Idle:
    async with node() as on:
        on.start()
        await on.until_said("armed: ")
        await trio.sleep(1)
        empty = look(on.pid)
        for pod in range(PODS):
            on.pod(f"pod-{pod:04}", ["sleep", "36000"], pod % 3 * 1000)
        await on.until_running(PODS)
        say(f"armed with {PODS} pods; idle for {SETTLE_SECONDS + seconds:.0f} s")
        await trio.sleep(SETTLE_SECONDS)
        before, since = look(on.pid), trio.current_time()
        await trio.sleep(seconds)
        after, lasted = look(on.pid), trio.current_time() - since
    return Idle(
        empty.rss_mib,
        after.rss_mib,
        grown(before.wake_ups, after.wake_ups) / lasted,
        grown(before.cpu_ns, after.cpu_ns) / NS_PER_SECOND / lasted * TEN_MINUTES,
    )


def figures(idle: Idle) -> list[Figure]:
    return [
        Figure("resident memory when idle, no pods", idle.empty_mib, LIMIT_MIB, "MiB"),
        Figure(f"resident memory when idle, {PODS} pods", idle.mib, LIMIT_MIB, "MiB"),
        Figure(f"wake-ups a second when idle, {PODS} pods", idle.wake_ups_a_second, LIMIT_WAKE_UPS, "/s"),
        Figure(f"processor time over 10 idle minutes, {PODS} pods", idle.cpu_seconds, LIMIT_CPU_SECONDS, "s"),
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=120.0, help="how long to look (default 120)")
    arguments = options.parse_args()
    idle = trio.run(measure, arguments.seconds)
    return conclude("idle", arguments, figures(idle), {"seconds": arguments.seconds})


if __name__ == "__main__":
    sys.exit(main())

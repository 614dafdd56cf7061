"""A week in a day: one daemon through many failed shutdowns, with changing pods.

After a failed shutdown the machine stays up. Each is drawn from three on a real logind: logind restarts
without state in the middle, the shutdown job fails after the last lock, or it hangs then and logind forgets
it. Power-offs and reboots alternate, so mode ``auto`` uses both means. Between two shutdowns ended pods, and
some running ones, are replaced.

After each the lock is held, the taint is gone, and all pods run. The journal replays at the end.

python -m tests.node.week --shutdowns 200             # about half an hour
python -m tests.node.week --shutdowns 8 --every 2 --seed 5
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import trio

from benchmarks.report import Figure, conclude, parser, say
from ebbtide.control import ControlError, ask
from ebbtide.events import decisions
from ebbtide.events.facts import EffectPanicked, StorageFailed
from ebbtide.options import control_socket
from tests.node.bed import Bed
from tests.node.bringing_up import node_bed
from tests.node.client import POLL_SECONDS, Object, Refused
from tests.node.contenders import OFF
from tests.node.ebbtide import NAME
from tests.node.going import Going, calm, make_classes, tainted
from tests.node.growth import Look, Observer, growth
from tests.node.pods import OBEDIENT, PODS, STUBBORN, container, is_ready, pod
from tests.node.shutdowns import FINAL

OVER = 200
#: Bounded caches are full by then: 128 URLs (five or six new ones per shutdown), and Trio's unused timeouts,
#: which it removes above a thousand.
WARM_UP = 25
#: The part of a shorter run.
WARM_UP_SHARE = 0.25
MEMORY_MIB_MAX = 2.0
#: Finds a count that grows by one in two hundred shutdowns.
COUNT_MAX = 0.5
COUNTED = ("descriptors", "threads", "tasks", "groups", "files", "marks", "leases")
#: The daemon's default.
JOURNAL_BYTES_MAX = 64 * 1024 * 1024

WAVES = ((1000, 5), (2000, 5), (3000, 5))
CLASSES = ("low", "middle", "high")
PODS_AT_ONCE = 9
#: Concurrent calls: one per pod, the watch, the node's own, and the health probe.
CONNECTIONS_MAX = PODS_AT_ONCE + 4
#: A late recovery may come with the next one; after so many breaks the rest is no proof.
BROKEN_MAX = 5
#: Never recorded by a correct daemon on a healthy machine.
WRONG = (decisions.ActorFailed, EffectPanicked, decisions.FallbackEngaged, StorageFailed)
#: Waves of these pods take 2 to 4 s.
EARLY_SECONDS_MAX = 4.0
HUNG_SECONDS_MAX = 1.5
RELEASED_SECONDS_MAX = 30
BACK_SECONDS_MAX = 60
SLOW = "trap 'sleep 0.6; exit 0' TERM; while :; do sleep 3600 & wait $!; done"
HOOK = {"preStop": {"exec": {"command": ["/bin/sh", "-c", "sleep 0.2"]}}}


class Drawn(NamedTuple):
    """``end``: ``early`` (forgotten after ``seconds``), ``failed`` (after the lock), ``hung`` (forgotten
    ``seconds`` later). ``replaced``: running pods removed afterwards.
    """

    kind: str
    end: str
    seconds: float
    replaced: int


def draws(seed: int) -> Iterator[Drawn]:
    luck = random.Random(seed)
    for kind in itertools.cycle(("poweroff", "reboot")):
        end = luck.choice(("early", "early", "failed", "hung"))
        seconds = luck.uniform(0, HUNG_SECONDS_MAX if end == "hung" else EARLY_SECONDS_MAX)
        yield Drawn(kind, end, round(seconds, 2), luck.randrange(3))


class Week:
    def __init__(self, node: Going, observer: Observer, seed: int, pods_at_once: int) -> None:
        self.node, self.bed, self.observer = node, node.bed, observer
        self.pods_at_once = pods_at_once
        self.drawn = draws(seed)
        self.luck = random.Random(seed + 1)
        self.made = itertools.count()
        self.done = 0
        self.ends: Counter[str] = Counter()
        #: Counts by name at the first look after a shutdown.
        self.first_named: Counter[str] = Counter()
        #: Differences from the expected state.
        self.broken: list[str] = []

    async def begin(self) -> None:
        await self.pods_run()
        await self.node.arm(*WAVES)

    async def shut_down(self) -> None:
        """One shutdown and recovery; `broken` gets each difference."""
        drawn = next(self.drawn)
        logind = self.bed.logind
        await logind.start_unit("failed" if drawn.end == "failed" else "hang")
        before = len(await logind.starts())
        await logind.power_off(drawn.kind)
        if drawn.end != "early":
            with trio.fail_after(RELEASED_SECONDS_MAX):
                while len(await logind.starts()) == before:
                    await trio.sleep(POLL_SECONDS)
        if drawn.end != "failed":
            await trio.sleep(drawn.seconds)
            await logind.reset()
        try:
            with trio.fail_after(BACK_SECONDS_MAX):
                await self.back()
                await self.replace(drawn.replaced)
                await self.pods_run()
        except trio.TooSlowError:
            self.broken.append(f"after shutdown {self.done + 1}, {drawn}: {await self.state()}")
            say(self.broken[-1])
        self.done += 1
        self.ends[f"{drawn.kind}, {drawn.end}"] += 1

    async def back(self) -> None:
        """One lock is held, the kubelet runs, and the node accepts pods."""
        while not await self.is_back():
            await trio.sleep(POLL_SECONDS)

    async def is_back(self) -> bool:
        if (await self.status()).get("phase") != "idle" or len(await self.bed.logind.ours()) != 1:
            return False
        node = await self.node.node()
        alive = await self.bed.inside.do("alive")
        free = not tainted(node) and not node["spec"].get("unschedulable")
        return free and f"kubelet-{self.node.member.name}" in alive

    async def status(self) -> dict[str, Any]:
        socket = control_socket(self.bed.place(self.node.daemon.folder / "run"))
        with contextlib.suppress(ControlError):
            said: dict[str, Any] = await trio.to_thread.run_sync(lambda: ask("status", socket))
            return said
        return {}

    def judge(self) -> None:
        """The record: each shutdown cancelled and closed, no failures."""
        events = [record.event for record in self.node.daemon.records()]
        counts = Counter(type(event).__name__ for event in events)
        for kind in (decisions.ShutdownBegan, decisions.ShutdownCancelled, decisions.EpisodeClosed):
            if counts[kind.__name__] != self.done:
                self.broken.append(f"{counts[kind.__name__]} of {kind.__name__} in {self.done} shutdowns")
        for event in events:
            if isinstance(event, WRONG) or (
                isinstance(event, decisions.PodEnded) and event.outcome == "failed"
            ):
                self.broken.append(str(event))
            if isinstance(event, decisions.MeansChosen):
                self.ends[f"by {event.means}"] += 1
            if isinstance(event, decisions.PodEnded):
                self.ends[f"pods {event.outcome}"] += 1
        if "Traceback" in self.bed.log(NAME):
            self.broken.append("a traceback in the log")

    async def state(self) -> str:
        found = {"locks": await self.bed.logind.ours(), "alive": await self.bed.inside.do("alive")}
        pods = {each["metadata"]["name"]: each["status"]["phase"] for each in await self.pods()}
        return f"{found}, {pods}, {await self.status()}"

    async def pods(self) -> list[Object]:
        found: list[Object] = (await self.bed.api.get(PODS))["items"]
        return found

    async def replace(self, count: int) -> None:
        names = sorted(each["metadata"]["name"] for each in await self.pods() if is_ready(each))
        for name in self.luck.sample(names, min(count, len(names))):
            await self.delete(name, 1)

    async def delete(self, name: str, grace_seconds: int) -> None:
        with contextlib.suppress(Refused):
            await self.bed.api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": grace_seconds})

    async def pods_run(self) -> None:
        """Replace ended and missing pods, until all are Ready."""
        while True:
            pods = await self.pods()
            for each in pods:
                if each["status"]["phase"] in FINAL:
                    await self.delete(each["metadata"]["name"], 0)
            living = [each for each in pods if each["status"]["phase"] not in FINAL and not _goes(each)]
            for _ in range(self.pods_at_once - len(living)):
                await self.bed.api.post(PODS, self.pod())
            if len(living) == len(pods) == self.pods_at_once and all(map(is_ready, pods)):
                return
            await trio.sleep(POLL_SECONDS)

    def pod(self) -> Object:
        """The next pod: rotating priorities and behaviour, a unique name."""
        number = next(self.made)
        how: dict[str, Any] = {"priorityClassName": CLASSES[number % len(CLASSES)]}
        script = (OBEDIENT, SLOW, OBEDIENT, STUBBORN)[number // len(CLASSES) % 4]
        fields: dict[str, Any] = {"lifecycle": HOOK} if number % 4 == 2 else {}
        if script == STUBBORN:
            how["terminationGracePeriodSeconds"] = 1
        return pod(f"pod-{number}", self.node.member.name, containers=[container(script, **fields)], **how)


def _goes(each: Object) -> bool:
    return "deletionTimestamp" in each["metadata"]


@contextlib.asynccontextmanager
async def week(
    bed: Bed, folder: Path, seed: int, more: str = "", pods_at_once: int = PODS_AT_ONCE
) -> AsyncIterator[Week]:
    """An armed daemon with pods. At the end its journal replays."""
    await calm(bed)
    node = Going(bed, "auto", folder)
    made = Week(node, Observer(bed, node.daemon, more), seed, pods_at_once)
    try:
        await made.begin()
        yield made
    finally:
        await bed.logind.start_unit("hang")
        await node.end()


async def live(week: Week, shutdowns: int, every: int, minutes_max: float) -> list[Look]:
    """Run the shutdowns, with a look after each ``every``."""
    looks, until = [await week.observer.look(0)], trio.current_time() + minutes_max * 60
    while week.done < shutdowns and len(week.broken) < BROKEN_MAX and trio.current_time() < until:
        await week.shut_down()
        if week.done % every == 0:
            looks.append(await week.observer.look(week.done))
            say(json.dumps(looks[-1]._asdict()))
            week.first_named = week.first_named or week.observer.named
    week.judge()
    return looks


def figures(looks: list[Look]) -> list[Figure]:
    """Growth after the warm-up, over 200 shutdowns."""
    last = looks[-1].after
    warm = [each for each in looks if each.after >= min(WARM_UP, last * WARM_UP_SHARE)]
    by = f"{last} shutdowns, {len(warm)} looks, the first after {warm[0].after}"
    first, end = warm[0], looks[-1]
    heap = growth(warm, "heap_mib", OVER)
    rows = [
        Figure(
            f"growth over {OVER} shutdowns: resident memory",
            growth(warm, "rss_mib", OVER),
            MEMORY_MIB_MAX,
            "MiB",
            by,
        )
    ]
    for name in COUNTED:
        span = f"{getattr(first, name)} to {getattr(end, name)}"
        rows.append(
            Figure(f"growth over {OVER} shutdowns: {name}", growth(warm, name, OVER), COUNT_MAX, name, span)
        )
    most = max(each.connections for each in looks)
    rows.append(Figure("kept connections to the API server", most, CONNECTIONS_MAX, "connections"))
    kib = growth(warm, "journal_bytes", 1) / 1024
    rows.append(Figure("journal, a shutdown", kib, None, "KiB"))
    rows.append(
        Figure("journal, in all", end.journal_bytes, JOURNAL_BYTES_MAX, "bytes", f"{end.segments} segments")
    )
    rows.append(
        Figure("Events of ours in the API server, a shutdown", growth(warm, "events", 1), None, "Events")
    )
    rows.append(Figure(f"growth over {OVER} shutdowns: the C library's memory in use", heap, None, "MiB"))
    rows.append(Figure("resident memory at the end", end.rss_mib, None, "MiB"))
    return rows


async def measure(asked: argparse.Namespace, seed: int, folder: Path) -> tuple[list[Look], Week]:
    async with node_bed(**OFF) as bed:
        await make_classes(bed)
        async with week(bed, folder, seed, asked.more) as made:
            return await live(made, asked.shutdowns, asked.every, asked.minutes), made


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--shutdowns", type=int, default=OVER, help=f"how many ({OVER})")
    options.add_argument("--every", type=int, default=10, help="shutdowns between two looks (10)")
    options.add_argument(
        "--more", default="", help="Python that runs in the daemon first, such as a leak to be found"
    )
    options.add_argument("--minutes", type=float, default=60, help="no shutdown begins after so many (60)")
    options.add_argument("--folder", type=Path, help="where the journal is kept (it is not)")
    options.add_argument("--seed", type=int, default=None, help="of what is drawn (a new one)")
    asked = options.parse_args()
    seed = random.randrange(1 << 32) if asked.seed is None else asked.seed
    say(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="ebbtide-week.") as temporary:
        folder = asked.folder or Path(temporary)
        looks, made = trio.run(measure, asked, seed, folder)
    command = f"tests.node.week --shutdowns {made.done} --seed {seed}"
    rows = figures(looks)
    if any(row.verdict == "missed" for row in rows):
        first, last = made.first_named, made.observer.named
        say(f"since the first look more of {dict(last - first)}, and less of {dict(first - last)}")
    extra: dict[str, object] = {
        "command": command,
        "ends": made.ends,
        "looks": [each._asdict() for each in looks],
    }
    rows.append(Figure("shutdowns after which something was not as before", len(made.broken), 0, ""))
    for each in made.broken:
        say(each)
    say(f"{dict(made.ends)}")
    return conclude("node_week", asked, rows, extra)


if __name__ == "__main__":
    sys.exit(main())

"""A node that shuts down under Ebbtide, with recording pods: the base of every scenario.

Three independent sources report: the pods' notes, the API server and the journal. The journal must replay to
the byte.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ebbtide.events.decisions import MeansChosen, PodEnded, PodPlanned, ReleaseLock, SendSignal
from tests.node.bare import ask
from tests.node.bed import Bed
from tests.node.client import Object, Refused
from tests.node.contenders import OFF, TAINT, restore, set_limit
from tests.node.ebbtide import Daemon
from tests.node.pods import PODS, remove_all
from tests.node.shutdowns import CLASSES, fill, power_off
from tests.node.weather import Weather
from tests.node.witness import TICK_NS, Witness
from tests.waiting import until

#: Class to priority, for the scenarios' waves.
PRIORITIES = {"low": 1000, "middle": 2000, "high": 3000, "higher": 4000, "highest": 5000}


class Going:
    """``mode``: the means; ``daemon`` runs between `arm` and `end`."""

    def __init__(self, bed: Bed, mode: str, folder: Path) -> None:
        self.bed, self.mode = bed, mode
        self.member = next(iter(bed.members.values()))
        self.witness = Witness(bed)
        self.daemon = Daemon(bed, folder / "journal", mode, self.member)
        self.weather: Weather | None = None

    async def under_weather(self) -> Weather:
        """Before `arm`: put the fault proxy between the daemon and the API server."""
        self.weather = Weather(self.bed)
        await self.weather.start()
        self.daemon.server = self.weather.server
        return self.weather

    async def arm(self, *periods: tuple[int, int], **fields: Any) -> None:
        """Start with waves of (priority, seconds); returns in the quiet state."""
        waves = [{"priority": each, "shutdownGracePeriodSeconds": seconds} for each, seconds in periods]
        settings = {"shutdownGracePeriodByPodPriority": waves} if waves else {}
        self.daemon.configure(reserve="2s", **settings, **fields)
        await self.daemon.start_ready()

    async def run(self, *pods: Object) -> None:
        await fill(self.bed, list(pods))

    async def down(self, kind: str = "poweroff") -> tuple[int, int]:
        """The monotonic times of request and release; the release is recorded."""
        times = await power_off(self.bed, kind=kind)
        await self.released()
        return times

    async def released(self) -> None:
        await self.daemon.until(lambda: self.daemon.events(ReleaseLock), "it did not order the release")

    async def signalled(self, *names: str) -> None:
        """Wait until these have got the stop signal."""
        await until(
            lambda: all(self.witness.times(name, "signal") for name in names), f"no signal for {names}"
        )

    async def kubelet_runs(self) -> None:
        """Wait for the kubelet and a Ready node."""
        name = f"kubelet-{self.member.name}"

        async def runs() -> bool:
            return name in await self.bed.inside.do("alive")

        await until(runs, "the kubelet does not run")
        await self.bed.node_ready(self.member)

    async def end(self) -> None:
        """Stop the daemon and replay its journal."""
        if self.weather is not None:
            self.weather.becomes()
        await self.daemon.stop()
        if self.weather is not None:
            await self.weather.stop()
        await self.daemon.verify()

    def outcomes(self) -> dict[str, str]:
        """Each pod's outcome by name, from the journal."""
        names = {each.pod.uid: each.pod.name for each in self.daemon.events(PodPlanned)}
        return {names[each.uid]: each.outcome for each in self.daemon.events(PodEnded)}

    def means(self) -> str:
        return str(self.daemon.events(MeansChosen)[-1].means)

    def in_order(self, *names: str) -> None:
        """Each got one signal, after the previous pod's end."""
        for name in names:
            times = self.witness.times(name, "signal")
            assert len(times) == 1, f"{name}: {times}; the journal: {self.daemon.events(SendSignal)}"
        for first, second in itertools.pairwise(names):
            ended, begun = self.witness.times(first, "ended"), self.witness.times(second, "signal")
            assert ended, f"{first} has not ended by itself"
            assert ended[0] <= begun[0] + TICK_NS, f"{second} was signalled before {first} had ended"

    async def object(self, name: str) -> Object | None:
        """The pod's object or None."""
        try:
            found: Object = await self.bed.api.get(f"{PODS}/{name}")
        except Refused as error:
            if error.code != 404:
                raise
            return None
        return found

    async def final(self, *names: str) -> None:
        """The API server shows each pod final or gone, as the mode requires."""
        for name in names:
            found = await self.object(name)
            assert found is None or found["status"]["phase"] in ("Succeeded", "Failed"), found

    async def node(self) -> Object:
        found: Object = await self.bed.api.get(f"/api/v1/nodes/{self.member.name}")
        return found


def tainted(node: Object) -> bool:
    return any(each["key"] == TAINT for each in node["spec"].get("taints", []))


async def make_classes(bed: Bed) -> None:
    for name, value in PRIORITIES.items():
        with contextlib.suppress(Refused):
            await bed.api.post(CLASSES, {"metadata": {"name": name}, "value": value})


async def calm(bed: Bed) -> None:
    """As after a boot: only the node's parts run, no locks, no leftovers."""
    await remove_all(bed)
    await set_limit(bed, "")
    await bed.logind.reset()
    for member in bed.members.values():
        alive = await bed.inside.do("alive")
        if f"kubelet-{member.name}" not in alive:
            await ask(member, "wipe")
            await bed.start_kubelet(member, **OFF)
    for member in bed.members.values():
        await bed.node_ready(member)
    await restore(bed)


@contextlib.asynccontextmanager
async def going(bed: Bed, mode: str, folder: Path) -> AsyncIterator[Going]:
    """A calm node; at the end its journal replays."""
    await calm(bed)
    made = Going(bed, mode, folder)
    try:
        yield made
    finally:
        await made.end()

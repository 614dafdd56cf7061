"""Ways to end pods at a shutdown behind one interface: the kubelet, Ebbtide's modes, and bare runtime calls.

All use the same node, pods and logind. A contender sets the kubelet's configuration and holds the lock for a
block.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

import trio
from jeepney import MatchRule, new_method_call
from jeepney.bus_messages import message_bus
from jeepney.io.trio import Proxy
from jeepney.wrappers import unwrap_msg

from tests.beds.logind import LOGIN1, MEMORY
from tests.node.bare import ask, bare
from tests.node.bed import Bed
from tests.node.client import Object
from tests.node.ebbtide import Daemon
from tests.node.pods import remove_all

#: The kubelet without its own graceful node shutdown.
OFF = {"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"}
#: Read after everybody else's.
LIMIT = "/run/systemd/logind.conf.d/zzzz-bed.conf"
BARE_LIMIT = "60"
TAINT = "ebbtide.dev/shutting-down"
SIGNALS_KEPT = 16


class Setting(NamedTuple):
    """A shutdown's settings: the kubelet's waves, and a folder for output.

    ``limit``: logind's delay limit, fixed. ``keep_lock``: a parent holds Ebbtide's lock, like a service
    manager.
    """

    waves: dict[str, Any]
    folder: Path
    limit: str = ""
    keep_lock: bool = False


Holds = Callable[[Bed, Setting], AbstractAsyncContextManager[Daemon | None]]


class Contender(NamedTuple):
    """``holds`` protects the node for a block and yields the daemon, if any."""

    name: str
    label: str
    graceful_kubelet: bool
    holds: Holds

    def kubelet(self, setting: Setting) -> dict[str, Any]:
        return setting.waves if self.graceful_kubelet else OFF


@contextlib.asynccontextmanager
async def _kubelet(bed: Bed, setting: Setting) -> AsyncIterator[None]:
    await bed.locks(0 if setting.limit else 1)
    yield


def _ebbtide(mode: str) -> Holds:
    @contextlib.asynccontextmanager
    async def hold(bed: Bed, setting: Setting) -> AsyncIterator[Daemon]:
        # When hundreds of pods end the disk may hang; the journal then continues in memory.
        with tempfile.TemporaryDirectory(prefix="ebbtide-run.", dir=MEMORY) as second:
            daemon = Daemon(bed, setting.folder / "journal", mode)
            daemon.locations = (daemon.journal, Path(second))
            daemon.keep_lock = setting.keep_lock
            daemon.configure(
                shutdownGracePeriodByPodPriority=periods(setting.waves), journalFallbacks=[second]
            )
            await daemon.start_ready(granted=not setting.limit)
            try:
                yield daemon
            finally:
                await daemon.stop()

    return hold


def periods(settings: dict[str, Any]) -> list[dict[str, int]]:
    """The kubelet's waves in both configurations' form."""
    found: list[dict[str, int]] = settings["shutdownGracePeriodByPodPriority"]
    return found


def _bare(*, told: bool) -> Holds:
    """A lock, and the stop calls on the signal; ``told``: with final statuses."""

    @contextlib.asynccontextmanager
    async def hold(bed: Bed, setting: Setting) -> AsyncIterator[None]:
        member = bed.members["node-1"]
        await set_limit(bed, BARE_LIMIT)
        await bed.logind.hang_up()
        await bed.stop(f"kubelet-{member.name}")
        order = await _order(bed)
        async with bare(bed, member, order, told=told) as client, trio.open_nursery() as nursery:
            await nursery.start(_wait_and_stop, bed, client.stop)
            yield
            nursery.cancel_scope.cancel()
        await set_limit(bed, "")

    return hold


async def _wait_and_stop(
    bed: Bed, stop: Callable[[], Any], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    rule = MatchRule(type="signal", interface=LOGIN1.interface, member="PrepareForShutdown")
    async with bed.logind.client() as router:
        await Proxy(message_bus, router).AddMatch(rule)
        async with router.filter(rule, bufsize=SIGNALS_KEPT) as signals:
            asked = new_method_call(LOGIN1, "Inhibit", "ssss", ("shutdown", "bare", "a peer", "delay"))
            (lock,) = unwrap_msg(await router.send_and_get_reply(asked))
            task_status.started()
            await signals.receive()
            with lock:
                await stop()


async def _order(bed: Bed) -> list[list[str]]:
    pods: list[Object] = (await bed.api.get("/api/v1/namespaces/default/pods"))["items"]
    by_priority: dict[int, list[str]] = {}
    for each in pods:
        by_priority.setdefault(each["spec"].get("priority", 0), []).append(each["metadata"]["name"])
    return [by_priority[priority] for priority in sorted(by_priority)]


KUBELET = Contender("kubelet", "the kubelet's graceful node shutdown", True, _kubelet)
CRI = Contender("cri", "ebbtide, mode cri", False, _ebbtide("cri"))
API = Contender("api", "ebbtide, mode api", False, _ebbtide("api"))
AUTO = Contender("auto", "ebbtide, mode auto", False, _ebbtide("auto"))
BARE = Contender("bare", "bare StopContainer calls", False, _bare(told=False))
TOLD = Contender("told", "bare calls with the final statuses beside them", False, _bare(told=True))
ALL = {each.name: each for each in (KUBELET, CRI, API, AUTO, BARE, TOLD)}


async def fresh(bed: Bed, contender: Contender, setting: Setting) -> None:
    """Reset as after a reboot: no pod, container or shutdown; kubelets Ready. Only the first node's
    kubelet may shut down gracefully: one logind serves all.
    """
    await remove_all(bed)
    for member in bed.members.values():
        await bed.stop(f"kubelet-{member.name}")
        await ask(member, "wipe")
    await set_limit(bed, setting.limit)
    await bed.logind.reset()
    for member in bed.members.values():
        first = member.number == 1
        await bed.start_kubelet(member, **(contender.kubelet(setting) if first else OFF))
    for member in bed.members.values():
        await bed.node_ready(member)
    await restore(bed)


async def restore(bed: Bed) -> None:
    """Revert a shutdown's changes on the nodes, as the next boot's daemon does."""
    for member in bed.members.values():
        path = f"/api/v1/nodes/{member.name}"
        node = await bed.api.get(path)
        kept = [each for each in node["spec"].get("taints", []) if each["key"] != TAINT]
        marks = {name: None for name in node["metadata"].get("annotations", {}) if "ebbtide.dev/" in name}
        spec = {"taints": kept or None, "unschedulable": None}
        await bed.api.patch(path, {"metadata": {"annotations": marks}, "spec": spec})


async def set_limit(bed: Bed, limit: str) -> None:
    """Set the delay limit in the last drop-in; empty removes it."""
    place = bed.logind.root / LIMIT.lstrip("/")
    place.unlink(missing_ok=True)
    if limit:
        await bed.logind.config(LIMIT, limit)

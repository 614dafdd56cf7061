"""Who ends the pods when a node goes down, each behind the same face: the kubelet itself, Ebbtide in its
modes, and bare calls to the runtime.

The node, its pods and its logind are the same; a contender says how the kubelet is set, and holds the node's
lock for a block.
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
    """What a shutdown is given: the kubelet's settings of its waves, and a folder for what is written.

    ``limit``: logind's own limit of the delay, which nobody can raise. ``keep_lock``: Ebbtide has a parent
    that holds its lock, as a service manager would.
    """

    waves: dict[str, Any]
    folder: Path
    limit: str = ""
    keep_lock: bool = False


Holds = Callable[[Bed, Setting], AbstractAsyncContextManager[Daemon | None]]


class Contender(NamedTuple):
    """``holds`` is a block in which the node is protected; it gives the daemon where there is one."""

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
        # Where hundreds of pods end at once a disk may hang, and the journal then goes on in memory.
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
    """The waves of the kubelet's settings, as both configurations name them."""
    found: list[dict[str, int]] = settings["shutdownGracePeriodByPodPriority"]
    return found


def _bare(*, told: bool) -> Holds:
    """A lock, and on the signal the calls; ``told``: with the final statuses beside them."""

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
    """The pods' names by ascending priority."""
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
    """As after a reboot, for this contender on the first node: no pod, no container, no shutdown, and the
    kubelets Ready. The others' have no graceful shutdown: there is one logind for all.
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
    """What a shutdown changed on the nodes: a daemon of the next boot would take it back."""
    for member in bed.members.values():
        path = f"/api/v1/nodes/{member.name}"
        node = await bed.api.get(path)
        kept = [each for each in node["spec"].get("taints", []) if each["key"] != TAINT]
        marks = {name: None for name in node["metadata"].get("annotations", {}) if "ebbtide.dev/" in name}
        spec = {"taints": kept or None, "unschedulable": None}
        await bed.api.patch(path, {"metadata": {"annotations": marks}, "spec": spec})


async def set_limit(bed: Bed, limit: str) -> None:
    """Of the delay, by a file that no other one overrides; empty: no such file."""
    place = bed.logind.root / LIMIT.lstrip("/")
    place.unlink(missing_ok=True)
    if limit:
        await bed.logind.config(LIMIT, limit)

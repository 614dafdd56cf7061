"""The kubelet's unit, and the volumes that it has mounted for pods.

Only a stopped kubelet does not restart a wave's containers, so a stop ends with SIGKILL: a kubelet handles a
crash like any restart.

A volume that is mounted here must not be attached elsewhere, whatever the API says: the edge reads the
kernel's mount table.
"""

from __future__ import annotations

import math
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import trio
from jeepney import DBusAddress

from ebbtide.actors.edges.documents import object_of_file
from ebbtide.actors.edges.linux.bus import Bus, BusError, BusRefused, ask_once, system_bus_address
from ebbtide.actors.edges.linux.proc import read_stat
from ebbtide.actors.edges.service_manager import SYSTEMD
from ebbtide.actors.interfaces import WARNING, Edge, Effect, Ending, Outlet, Tell
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND, Order
from ebbtide.events.decisions import AwaitUnmounts, CheckMounts, StartKubelet, StopKubelet
from ebbtide.events.facts import KubeletRead, MountsRead, VolumesUnmounted
from ebbtide.events.units import span_s

#: A unit restarts a dead kubelet after ten.
LOOK_SECONDS = 5.0
#: With `kubelet_silent_seconds` a hung kubelet costs its pods less than half of a usual wave (10 s).
HEALTH_SECONDS = 1.0
#: Before the look at a kubelet that was started during the stop.
AGAIN_SECONDS = 0.5
#: The kubelet looks every 300 ms.
UNMOUNT_SECONDS = 0.1

KUBELET_ROOT = Path("/var/lib/kubelet")
MOUNT_TABLE = Path("/proc/self/mountinfo")


class KubeletEdge(Edge):
    """``mount_table``: ``/proc/1/mountinfo`` in a container that shares the node's processes."""

    def __init__(
        self,
        unit: str,
        root: Path = KUBELET_ROOT,
        *,
        tell: Tell = lambda level, line: None,
        address: str | None = None,
        mount_table: Path = MOUNT_TABLE,
    ) -> None:
        self._unit = KubeletUnit(address or system_bus_address(), unit)
        self._root = root
        self._mount_table = mount_table
        self._tell = tell
        self._stopped = self._stopping = self._starting = False
        self._reported: tuple[bool | None, bool | None] | None = None
        self._healthy: bool | None = None
        self._asked = trio.Event()
        self._turn = trio.Lock()
        self._returned = trio.Event()
        self.effects: Mapping[type[Order], Effect] = {
            StopKubelet: self._stop,
            StartKubelet: self._start,
            CheckMounts: self._check_mounts,
            AwaitUnmounts: self._await_unmounts,
        }

    async def run(self, outlet: Outlet) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask_health, outlet)
            with trio.move_on_after(bounds.now.kubelet_first_answer_seconds):
                await self._asked.wait()
            while True:
                await self._look(outlet)
                with trio.move_on_after(LOOK_SECONDS):
                    await self._returned.wait()
                if self._returned.is_set():
                    self._returned = trio.Event()
                    await trio.sleep(AGAIN_SECONDS)
                    self._reported = None

    async def _ask_health(self, outlet: Outlet) -> None:
        endpoint = await trio.to_thread.run_sync(
            health_endpoint, self._root / KUBELET_CONFIG, abandon_on_cancel=True
        )
        while endpoint is not None:
            healthy = await ask_health(*endpoint)
            changed, self._healthy = healthy is not self._healthy, healthy
            if changed and self._asked.is_set():
                await self._look(outlet)
            self._asked.set()
            await trio.sleep(HEALTH_SECONDS)
        self._asked.set()

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Repeats the order. `AwaitUnmounts` then has its whole time again, within its wave's."""
        ending = self.effects[type(order)](order, outlet)
        return ending if isinstance(ending, Ending) else await ending

    @property
    def starts_pods(self) -> bool:
        """Not between the stop of the kubelet and its start."""
        known_away = self._reported is not None and self._reported[0] is False
        return self._starting or not (self._stopping or known_away)

    async def _look(self, outlet: Outlet) -> None:
        """An older look is never reported after a newer one."""
        async with self._turn:
            active = await self._unit.active()
            # If the unit is stopped, the answer came from the kubelet before.
            healthy = self._healthy if active else None
            if self._reported == (active, healthy):
                return
            self._reported = (active, healthy)
            if active and self._stopped:
                self._tell(WARNING, f"{self._unit.name} was stopped for a shutdown, and somebody started it")
                self._stopped = False
            unit, stoppable = self._unit.name, self._unit.stoppable
            await outlet.put(KubeletRead(unit=unit, active=active, stoppable=stoppable, healthy=healthy))

    async def _stop(self, order: StopKubelet, outlet: Outlet) -> Ending:
        # Before the first await: no pod starts any more.
        self._stopping, self._starting = True, False
        ending = await self._unit.stop()
        self._stopped = ending.result == "done"
        if not self._unit.answered:
            # Report the state once it is known.
            self._returned.set()
            return ending
        await self._look(outlet)
        if ending.result == "done" and self._reported and self._reported[0]:
            # Started again: report it soon, so that the core stops it again.
            self._returned.set()
        return ending

    async def _start(self, order: StartKubelet, outlet: Outlet) -> Ending:
        self._stopped = self._stopping = False
        self._starting = True
        ending = await self._unit.start()
        await self._look(outlet)
        self._starting = False
        return ending

    async def _check_mounts(self, order: CheckMounts, outlet: Outlet) -> Ending:
        try:
            found = await self._mounted()
        except OSError as error:
            return Ending("failed", f"cannot read {self._mount_table}: {error.strerror or error}")
        await outlet.put(MountsRead(key=order.key, mounted=found))
        return Ending()

    async def _await_unmounts(self, order: AwaitUnmounts, outlet: Outlet) -> Ending:
        waiting = list(order.uids)
        with trio.move_on_after(order.timeout_ns / NS_PER_SECOND):
            try:
                while True:
                    used = {uid for uid, _ in await self._mounted()}
                    for uid in [each for each in waiting if each not in used]:
                        await outlet.put(VolumesUnmounted(uid=uid))
                        waiting.remove(uid)
                    if not waiting:
                        return Ending()
                    await trio.sleep(UNMOUNT_SECONDS)
            except OSError as error:
                return Ending("failed", f"cannot read {self._mount_table}: {error.strerror or error}")
        return Ending("timed-out", f"{len(waiting)} of {len(order.uids)} pods have volumes mounted")

    async def _mounted(self) -> tuple[MountedVolume, ...]:
        """Bounded: the root's disk may hang. Raises OSError."""
        work = read_mounted_volumes
        with trio.move_on_after(bounds.now.file_seconds):
            return await trio.to_thread.run_sync(work, self._mount_table, self._root, abandon_on_cancel=True)
        raise OSError(f"no answer in {span_s(bounds.now.file_seconds)}")


#: kubeadm writes it.
KUBELET_CONFIG = "config.yaml"
CONFIG_BYTES_MAX = 256 * 1024
#: The kubelet's defaults of ``healthzBindAddress`` and ``healthzPort``.
HEALTH_ADDRESS = "127.0.0.1"
HEALTH_PORT = 10248
HEALTH_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})")
STATUS_BYTES = len(b"HTTP/1.1 200")


def health_endpoint(config: Path) -> tuple[str, int] | None:
    """None: switched off. An unreadable file means the defaults."""
    try:
        found = object_of_file(config, CONFIG_BYTES_MAX)
    except (OSError, ValueError):
        found = None
    fields = found if isinstance(found, dict) else {}
    address, port = fields.get("healthzBindAddress") or HEALTH_ADDRESS, fields.get("healthzPort", HEALTH_PORT)
    # A bool is an int in Python.
    is_port = isinstance(port, int) and not isinstance(port, bool) and 0 <= port < 65536
    if not isinstance(address, str) or not is_port:
        return HEALTH_ADDRESS, HEALTH_PORT
    return (address, port) if port else None


async def ask_health(address: str, port: int) -> bool | None:
    """False also for a hung kubelet, which the service manager shows as active. None: no process listens.
    Does not raise.
    """
    with trio.move_on_after(bounds.now.kubelet_silent_seconds):
        try:
            async with await trio.open_tcp_stream(address, port) as stream:
                await stream.send_all(HEALTH_REQUEST)
                answer = b""
                while len(answer) < STATUS_BYTES:
                    piece = await stream.receive_some()
                    if not piece:
                        return None
                    answer += piece
        except (OSError, ValueError, trio.BrokenResourceError):
            return None  # ValueError: not an address.
        status = STATUS_LINE.match(answer)
        return status is not None and status[1] == b"200"
    return False


UNIT_INTERFACE = "org.freedesktop.systemd1.Unit"
SERVICE_INTERFACE = "org.freedesktop.systemd1.Service"
JOB_INTERFACE = "org.freedesktop.systemd1.Job"

#: A look takes half a millisecond.
UNIT_POLL_SECONDS = 0.02

#: ``ActiveState``.
ACTIVE_STATES = ("active", "reloading")
ENDED_STATES = ("inactive", "failed")
ENDING_STATE = "deactivating"
LOAD_STATE_MISSING = "not-found"
#: ``JobType``. All others lead to a running unit.
STOP_JOB = "stop"

#: Kubelet and container runtime in one unit (k3s, rke2, k0s).
KUBELET_WITH_RUNTIME = ("k3s", "k3s-agent", "rke2-server", "rke2-agent", "k0scontroller", "k0sworker")


class NoSuchUnit(BusError):
    """The service manager has no such unit."""


class MainProcess(NamedTuple):
    """``started_us``: on the service manager's monotonic clock."""

    pid: int
    started_us: int
    pidfd: int


class KubeletUnit:
    """``name``: such as ``kubelet.service``."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self.name = name
        self._main: MainProcess | None = None
        #: Has the service manager answered the last stop?
        self.answered = True

    @property
    def stoppable(self) -> bool:
        """Would the container runtime keep running?"""
        return self.name.removesuffix(".service") not in KUBELET_WITH_RUNTIME

    async def active(self) -> bool | None:
        """Does it run, or will it (a crashed one is ``activating``)? None: unknown."""
        try:
            return await ask_once(self._address, self._active)
        except BusError:
            return None

    async def stop(self) -> Ending:
        """Kills after `kubelet_stop_seconds`. Idempotent, does not raise. If the service manager does not
        answer, a known main process gets SIGTERM directly.
        """
        if not self.stoppable:
            both = "is the kubelet and the container runtime in one: without it no container could be stopped"
            return Ending("failed", f"{self.name} {both}")
        kill_at = trio.current_time() + bounds.now.kubelet_stop_seconds
        bound = bounds.now.unit_answer_seconds
        why, self.answered = f"the service manager did not answer within {span_s(bound)}", False
        with trio.move_on_after(bound):
            try:
                ended = await ask_once(self._address, self._order_stop)
                why, self.answered = "", True
                if ended:
                    return Ending()
            except (NoSuchUnit, BusRefused) as error:
                self.answered = True
                return Ending("failed", str(error))
            except BusError as error:
                why = str(error)
        if self._main is None:
            return Ending("failed", why) if why else Ending()
        # A look that finds a newer process closes the original.
        try:
            pidfd = os.dup(self._main.pidfd)
        except OSError as error:
            return Ending("failed", f"no descriptor is left: {error.strerror}")
        try:
            return await _end_process(pidfd, why, kill_at)
        finally:
            os.close(pidfd)

    async def start(self) -> Ending:
        """Idempotent. Does not raise."""
        try:
            return await ask_once(self._address, self._start)
        except BusError as error:
            return Ending("failed", str(error))

    async def _active(self, bus: Bus) -> bool:
        unit = await self._unit(bus)
        state = await self._state(bus, unit)
        if state in ENDED_STATES:
            return await _job_type(bus, unit) not in ("", STOP_JOB)
        await self._note_main(bus, unit)
        return state != ENDING_STATE or await _job_type(bus, unit) != STOP_JOB

    async def _note_main(self, bus: Bus, unit: DBusAddress) -> None:
        """This process gets direct signals if the service manager does not answer."""
        service = DBusAddress(unit.object_path, SYSTEMD.bus_name, SERVICE_INTERFACE)
        try:
            pid = int(await bus.get(service, "MainPID"))
            started_us = int(await bus.get(service, "ExecMainStartTimestampMonotonic"))
        except (BusRefused, TypeError, ValueError):
            return  # No service, or one without a main process.
        if self._main is not None:
            if self._main[:2] == (pid, started_us):
                return
            os.close(self._main.pidfd)
        self._main = main_process(pid, started_us) if pid else None

    async def _order_stop(self, bus: Bus) -> bool:
        """True: it does not run."""
        unit = await self._unit(bus)
        state = await self._state(bus, unit)
        if state in ENDED_STATES and not await _job_type(bus, unit):
            return True
        # Before the stop: only the present process has to end.
        await self._note_main(bus, unit)
        await self._job(bus, "StopUnit")
        return False

    async def _start(self, bus: Bus) -> Ending:
        with trio.move_on_after(bounds.now.unit_start_seconds):
            await self._job(bus, "StartUnit")
            unit = await self._unit(bus)
            while await self._state(bus, unit) not in ACTIVE_STATES:
                await trio.sleep(UNIT_POLL_SECONDS)
            return Ending()
        return Ending("timed-out", f"{self.name} is not active after {span_s(bounds.now.unit_start_seconds)}")

    async def _job(self, bus: Bus, method: str) -> None:
        """Without interactive authorization polkit answers at once."""
        await bus.method(SYSTEMD, method, "ss", self.name, "replace")

    async def _unit(self, bus: Bus) -> DBusAddress:
        try:
            (path,) = await bus.method(SYSTEMD, "LoadUnit", "s", self.name, answer="o")
        except BusRefused as error:
            if error.name.endswith(".NoSuchUnit"):
                raise NoSuchUnit(f"there is no unit {self.name}") from None
            raise
        return DBusAddress(path, SYSTEMD.bus_name, UNIT_INTERFACE)

    async def _state(self, bus: Bus, unit: DBusAddress) -> str:
        state = str(await bus.get(unit, "ActiveState"))
        if state == "inactive" and await bus.get(unit, "LoadState") == LOAD_STATE_MISSING:
            raise NoSuchUnit(f"there is no unit {self.name}")
        return state


def main_process(pid: int, started_us: int) -> MainProcess | None:
    """None: it has ended, or the service manager is in another process namespace."""
    try:
        pidfd = os.pidfd_open(pid)
    except (OSError, ValueError, OverflowError):
        return None
    stat = read_stat(pid)
    # ``start_ticks`` count the time asleep too; how much of it came before this start is unknown.
    slept_seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    slept_before = stat.start_ticks / os.sysconf("SC_CLK_TCK") - started_us / 1_000_000 if stat else math.inf
    if not -bounds.now.unit_note_seconds <= slept_before <= slept_seconds + bounds.now.unit_note_seconds:
        os.close(pidfd)
        return None
    return MainProcess(pid, started_us, pidfd)


async def _end_process(pidfd: int, why: str, kill_at: float) -> Ending:
    """``why``: the service manager has not sent SIGTERM. ``kill_at``: Trio's time."""
    killed_by = max(kill_at, trio.current_time()) + bounds.now.kubelet_kill_seconds
    told = f": {why}" if why else ""
    for number, until in ((signal.SIGTERM if why else 0, kill_at), (signal.SIGKILL, killed_by)):
        try:
            # Signal 0 only checks.
            signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            return Ending("done", f"it has ended{told}" if why else "")
        except OSError as error:
            return Ending("failed", f"its process takes no signal ({error.strerror}){told}")
        with trio.move_on_at(until):
            await trio.lowlevel.wait_readable(pidfd)
            by = f"by {signal.Signals(number).name} to its process{told}" if number else ""
            return Ending("done", by)
    after = f"{span_s(bounds.now.kubelet_kill_seconds)} after SIGKILL"
    return Ending("failed", f"its process lives on, {after}{told}")


async def _job_type(bus: Bus, unit: DBusAddress) -> str:
    """``JobType``; empty: no job."""
    try:
        match await bus.get(unit, "Job"):
            case (int(number), str(path)) if number:
                return str(await bus.get(DBusAddress(path, SYSTEMD.bus_name, JOB_INTERFACE), "JobType"))
    except BusRefused:
        pass
    return ""


#: The kubelet's folder names. Volumes of these plugins end with the boot, or exist on one node only.
NODE_LOCAL_PLUGINS = (
    "kubernetes.io~empty-dir",
    "kubernetes.io~secret",
    "kubernetes.io~configmap",
    "kubernetes.io~projected",
    "kubernetes.io~downward-api",
)
#: File systems and block devices.
VOLUME_FOLDERS = ("volumes", "volumeDevices")
#: For a mounted part of a volume. Its path does not name the plugin.
SUBPATH_FOLDER = "volume-subpaths"
TMPFS = "tmpfs"
#: One record has to stay below 1 MiB. A node has some hundred mounts.
MOUNTS_MAX = 2048
#: The kernel escapes space, tab, newline and backslash.
OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")

#: A pod's UID and the volume's name; or an empty text and a path in the kubelet's plugin folder.
MountedVolume = tuple[str, str]


class Mount(NamedTuple):
    """See proc_pid_mountinfo(5). ``device``: major and minor number."""

    path: PurePosixPath
    device: str
    kind: str


def parse_mountinfo(text: str, root: PurePosixPath) -> Iterator[Mount]:
    """The mounts above and below ``root``. Skips malformed lines."""
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")[0]
        if not dash or len(fields) < 6:
            continue
        path = OCTAL_ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4])
        # A node has a thousand other mounts: compare first.
        if path.startswith(str(root)) or str(root).startswith(path):
            yield Mount(PurePosixPath(path), fields[2], kind)


def mounted_volumes(text: str, root: PurePosixPath) -> tuple[MountedVolume, ...]:
    """The volumes below the kubelet's ``root``, each once, in the order of mountinfo's ``text``."""
    table = list(parse_mountinfo(text, root))
    # A path's file system is the deepest mount above it; of several, the last.
    above = [mount for mount in reversed(table) if root.is_relative_to(mount.path)]
    own = max(above, key=lambda mount: len(mount.path.parts)).device if above else ""
    found: dict[MountedVolume, None] = {}
    for mount in table:
        match mount.path.relative_to(root).parts if mount.path.is_relative_to(root) else ():
            case ("pods", uid, folder, plugin, volume, *_) if (
                folder in VOLUME_FOLDERS and plugin not in NODE_LOCAL_PLUGINS
            ):
                found[uid, volume] = None
            case ("pods", uid, folder, volume, *_) if folder == SUBPATH_FOLDER:
                if mount.kind != TMPFS and mount.device != own:
                    found[uid, volume] = None
            case ("plugins", _, *_):
                found["", str(mount.path)] = None
    return tuple(found)[:MOUNTS_MAX]


def read_mounted_volumes(table: Path, root: Path) -> tuple[MountedVolume, ...]:
    """Follows a link at ``root``. Raises OSError."""
    return mounted_volumes(table.read_text(errors="replace"), PurePosixPath(os.path.realpath(root)))

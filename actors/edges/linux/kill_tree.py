"""Ends whole process trees, as the end of a pid namespace would: no process of a container is left.

The kernel does it with a cgroup (v2 with ``cgroup.kill``, Linux 5.14) that is delegated to us: marked as
delegated by the service manager (``Delegate=yes``), owned by our user, or the root of a machine or
container without a service manager. No controller is switched on, so pods may run beside the daemon in one
group.

Without a cgroup, one look at all processes decides what belongs to a tree: the descendants of the first
process, its session and group, and all with the container's marks in their environment, which children
inherit. Looks are repeated until one finds no new process. A process that has cleared its environment and
left session and parent escapes; only a cgroup finds it.

Reading the environment of a process that hangs in its memory lock hangs the reader. So a thread takes the
look, and after `scan_seconds` it is given up: for a while looks then do without marks.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import string
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import trio

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.proc import parse_environ
from ebbtide.events import bounds
from ebbtide.events.files import own_directory, write_atomically

#: (pod's UID, container); for a hook ("", its order's key).
TreeKey = tuple[str, str]

#: A tree that still grows then forks faster than it can be killed.
LOOKS_MAX = 50
#: Containers that ended by themselves are cleaned up together: at most so often, and in at most a tenth of
#: the time.
GAP_NS = 50_000_000
GAP_SHARE = 10
#: A killed cgroup is empty within milliseconds. One that is not holds a process that cannot die.
REMOVALS_MAX = 100


class TreeRoot(NamedTuple):
    """Start ticks 0: the first process has ended, and only marks count."""

    pid: int = 0
    start_ticks: int = 0


def tree_keys(process: ScannedProcess) -> tuple[TreeKey, ...]:
    """By its marks: its container's tree and its order's."""
    mark = process.mark
    return ((mark.uid, mark.container), ("", mark.order)) if mark is not None else ()


def tree_members(look: Iterable[ScannedProcess], roots: Mapping[TreeKey, TreeRoot]) -> list[ScannedProcess]:
    """The processes of a look that belong to one of the trees, without zombies.

    A session or group counts only while its root is in the look with its own start time, since numbers are
    reused.
    """
    processes = list(look)
    starts = {process.pid: process.stat.start_ticks for process in processes}
    alive = {root.pid for root in roots.values() if root.pid and starts.get(root.pid) == root.start_ticks}
    found = {
        process.pid
        for process in processes
        if process.pid in alive
        or process.stat.session in alive
        or process.stat.group in alive
        or any(key in roots for key in tree_keys(process))
    }
    children: dict[int, list[int]] = {}
    for process in processes:
        children.setdefault(process.stat.parent_pid, []).append(process.pid)
    todo = list(found)
    while todo:
        new = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
        found.update(new)
        todo.extend(new)
    return [process for process in processes if process.pid in found and process.stat.state not in "ZX"]


def kill_exactly(pid: int, start_ticks: int) -> None:
    """SIGKILL to this process only, never to a later one of its number. Number 0 means none."""
    if not pid:
        return
    with suppress(OSError):
        # The descriptor first: a process looked at afterwards cannot be replaced.
        pidfd = os.pidfd_open(pid)
        try:
            if proc.is_same_process(pid, start_ticks):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


class TreeKiller:
    """Kills ordered trees at once, and the remains of ended ones soon and together."""

    def __init__(self, scanner: ProcessScanner, mono_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._scanner = scanner
        self._mono_ns = mono_ns
        self._roots: dict[TreeKey, TreeRoot] = {}
        #: Ordered since the last strike.
        self._fresh: dict[TreeKey, TreeRoot] = {}
        self._groups: dict[str, int] = {}
        self._waiting: list[trio.Event] = []
        self._wake = trio.Event()
        self._urgent = trio.Event()
        self._struck = trio.Event()
        self._next_ns = 0
        self.closed = False

    async def kill(self, key: TreeKey, root: TreeRoot, group: str = "") -> None:
        """Return when a look finds no more of the tree, or its cgroup was killed."""
        if not self.kill_soon(key, root, group):
            done = trio.Event()
            self._waiting.append(done)
            await done.wait()

    def kill_soon(self, key: TreeKey, root: TreeRoot, group: str = "") -> bool:
        """Without waiting. True: done, by its cgroup."""
        if group:
            # First, so that it ends by SIGKILL and not because a child of it did. A process that has just
            # started may not be in its group yet.
            kill_exactly(*root)
        if self._kill_group(group):
            return True
        self._roots[key] = self._fresh[key] = root
        self._wake.set()
        self._urgent.set()
        self._struck.set()
        return False

    def leftovers(self, key: TreeKey, group: str = "") -> None:
        """The first process has ended by itself: kill the rest soon. A group that can be removed is empty."""
        if not (group and remove_group(group)) and not self._kill_group(group):
            self._roots.setdefault(key, TreeRoot())
            self._wake.set()

    def _kill_group(self, group: str) -> bool:
        if not group or not kill_group(group):
            return False
        self._groups[group] = REMOVALS_MAX
        self._wake.set()
        return True

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._strike_loop)
            nursery.start_soon(self._look_loop)

    async def _strike_loop(self) -> None:
        """Kill what is known without marks at once: a process that hangs its readers must not delay other
        SIGKILLs.
        """
        while True:
            await self._struck.wait()
            self._struck = trio.Event()
            roots, self._fresh = self._fresh, {}
            try:
                self._strike(roots)
            except OSError:
                # Without a look: the first processes by their numbers.
                for root in () if self.closed else roots.values():
                    kill_exactly(*root)

    async def _look_loop(self) -> None:
        while True:
            await self._wake.wait()
            seconds = (self._next_ns - self._mono_ns()) / 1_000_000_000
            if seconds > 0:
                with trio.move_on_after(seconds):
                    await self._urgent.wait()
            self._wake, self._urgent = trio.Event(), trio.Event()
            roots, self._roots = self._roots, {}
            waiting, self._waiting = self._waiting, []
            began_ns = self._mono_ns()
            try:
                if roots:
                    await self._finish(roots, set())
            except OSError:
                # No order waits, but it is tried again.
                self._roots = roots | self._roots
                self._wake.set()
            left = {group: tries - 1 for group, tries in self._groups.items() if not remove_group(group)}
            self._groups = {group: tries for group, tries in left.items() if tries}
            if self._groups:
                self._wake.set()
            # A look at a thousand processes costs 20 ms of the processor that the pods need.
            now_ns = self._mono_ns()
            self._next_ns = now_ns + max(GAP_NS, GAP_SHARE * (now_ns - began_ns))
            for done in waiting:
                done.set()

    async def kill_now(self, roots: Mapping[TreeKey, TreeRoot]) -> None:
        """On the caller's task."""
        await self._finish(roots, self._strike(roots))

    def _strike(self, roots: Mapping[TreeKey, TreeRoot]) -> set[tuple[int, int]]:
        if not any(root.pid for root in roots.values()):
            return set()
        return self._kill_new(self._scanner.look_without_marks(), roots, set())

    async def _finish(self, roots: Mapping[TreeKey, TreeRoot], killed: set[tuple[int, int]]) -> None:
        # A fork between a look and its SIGKILL is in the next look. Without a new process, none is left to
        # fork.
        for _ in range(LOOKS_MAX):
            new = self._kill_new(await self._scanner.look(), roots, killed)
            if not new:
                return
            killed |= new

    def _kill_new(
        self, look: list[ScannedProcess], roots: Mapping[TreeKey, TreeRoot], killed: set[tuple[int, int]]
    ) -> set[tuple[int, int]]:
        found = {(process.pid, process.stat.start_ticks) for process in tree_members(look, roots)}
        new = set() if self.closed else found - killed
        # Parents first: the first process has to end by SIGKILL, not because its child did.
        for pid, start_ticks in sorted(new, key=lambda one: (one[1], one[0])):
            kill_exactly(pid, start_ticks)
        return new


#: After a look hung, so long the next ones do without marks.
WITHOUT_MARKS_NS = 5_000_000_000
#: The age of a shared look.
SHARED_NS = 50_000_000

#: A process that becomes another program has an empty environment for a shorter time. One without an
#: environment costs every look this time once.
EMPTY_READS_MAX = 4
EMPTY_SECONDS = 0.0005


class ScannedProcess(NamedTuple):
    """``mark`` None: none of ours, or unreadable."""

    stat: proc.ProcessStat
    mark: Mark | None

    @property
    def pid(self) -> int:
        return self.stat.pid


class ProcessScanner:
    """Looks at ``/proc`` for one state directory."""

    def __init__(self, marker: Marker, mono_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._marker = marker
        self._mono_ns = mono_ns
        self._blind_until_ns = 0
        self._sharing = trio.Lock()
        self._shared: list[ScannedProcess] = []
        self._shared_ns = mono_ns() - SHARED_NS - 1
        self._limiter = trio.CapacityLimiter(1)

    async def learn_token(self) -> None:
        await self._marker.learn_token()

    async def look(self, seconds: float | None = None) -> list[ScannedProcess]:
        """All processes, with marks unless reading them hangs or has just hung."""
        if self._mono_ns() >= self._blind_until_ns:
            with trio.move_on_after(bounds.now.scan_seconds if seconds is None else seconds):
                return await trio.to_thread.run_sync(
                    self.look_now, abandon_on_cancel=True, limiter=self._limiter
                )
            self._blind_until_ns = self._mono_ns() + WITHOUT_MARKS_NS
            # The hung thread keeps its token.
            self._limiter = trio.CapacityLimiter(1)
        return self.look_without_marks()

    async def look_shared(self) -> list[ScannedProcess]:
        """A look that is at most `SHARED_NS` old."""
        async with self._sharing:
            if self._mono_ns() - self._shared_ns > SHARED_NS:
                self._shared = await self.look()
                self._shared_ns = self._mono_ns()
            return self._shared

    async def look_briefly(self) -> list[ScannedProcess]:
        """For evidence: without marks if those would take more than half of an autopsy."""
        with trio.move_on_after(bounds.now.autopsy_seconds / 2):
            return await self.look_shared()
        return self.look_without_marks()

    def look_without_marks(self) -> list[ScannedProcess]:
        """Never waits for a process."""
        return [ScannedProcess(stat, None) for stat in _all_stats()]

    def look_now(self) -> list[ScannedProcess]:
        """On the caller's thread; may hang."""
        found = [(stat, self._environ(stat)) for stat in _all_stats()]
        for _ in range(EMPTY_READS_MAX):
            if all(environ != b"" for _, environ in found):
                break
            time.sleep(EMPTY_SECONDS)
            found = [(stat, self._environ(stat) if environ == b"" else environ) for stat, environ in found]
        return [
            ScannedProcess(stat, self._marker.read(environ) if environ else None) for stat, environ in found
        ]

    def _environ(self, stat: proc.ProcessStat) -> bytes | None:
        """None: no environment to read (a zombie, a kernel thread, another user's process)."""
        if stat.state in "ZX" or 2 in (stat.pid, stat.parent_pid):
            return None
        return proc.read_bytes(f"/proc/{stat.pid}/environ", proc.ENVIRON_BYTES_MAX)


def _all_stats() -> Iterator[proc.ProcessStat]:
    for pid in proc.all_pids():
        stat = proc.read_stat(pid)
        if stat is not None:
            yield stat


# The marks in the environment of a pod's processes find them again when its record is lost. Children inherit
# them, so they also find what a pod left in other sessions. They name the state directory, which tells
# daemons on one machine apart, and a token drawn for it: without it any user's program could pose as a pod of
# root's. A pod's programs know the token, also after they have changed their user. So a pod's first process
# or hook must also run as our user, or be in one of our cgroups, which no other user can enter.

MARK_UID = "EBBTIDE_POD_UID"
MARK_CONTAINER = "EBBTIDE_CONTAINER"
MARK_ORDER = "EBBTIDE_ORDER"
MARK_STATE = "EBBTIDE_STATE"
MARK_TOKEN = "EBBTIDE_TOKEN"
MARK_NAMES = (MARK_UID, MARK_CONTAINER, MARK_ORDER, MARK_STATE, MARK_TOKEN)

#: 128 bits in hexadecimal digits.
TOKEN_DIGITS = 32

#: What a pod inherits from the daemon's environment.
INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME")
PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Mark(NamedTuple):
    """Whose process it is, and the order that started it."""

    uid: str
    container: str
    order: str


def kept_token(path: Path) -> str:
    """Makes the file if need be. If it cannot be kept, the token is valid for this process's life."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with own_directory(path.parent):
            pass
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.read(fd, TOKEN_DIGITS + 1).decode(errors="replace")
        finally:
            os.close(fd)
        if len(found) == TOKEN_DIGITS and set(found) <= set(string.hexdigits):
            return found
    token = secrets.token_hex(TOKEN_DIGITS // 2)
    with suppress(OSError):
        write_atomically(path, token.encode())
    return token


class Marker:
    """The marks of one state directory. ``token``: the file of its token, which must stay while pods run,
    also when the directory goes with a stopped unit; by default in the directory.
    """

    def __init__(self, state_dir: Path, token: Path | None = None) -> None:
        self._state = str(state_dir.resolve())
        self._token_path = token or state_dir / "token"

    async def learn_token(self) -> None:
        """Read it before it is needed, bounded, and not on the event loop."""
        token = secrets.token_hex(TOKEN_DIGITS // 2)
        with trio.move_on_after(bounds.now.side_file_seconds):
            token = await trio.to_thread.run_sync(kept_token, self._token_path, abandon_on_cancel=True)
        self._token = token

    @cached_property
    def _token(self) -> str:
        return kept_token(self._token_path)

    def environ(self, mark: Mark, own: dict[str, str]) -> dict[str, str]:
        """A process's environment. Our marks replace those of a manifest, and come first."""
        marks = {
            MARK_UID: mark.uid,
            MARK_CONTAINER: mark.container,
            MARK_ORDER: mark.order,
            MARK_STATE: self._state,
            MARK_TOKEN: self._token,
        }
        inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        rest = {"PATH": PATH_DEFAULT} | inherited | own
        return marks | {name: value for name, value in rest.items() if name not in MARK_NAMES}

    def read(self, environ: bytes) -> Mark | None:
        """From an ``environ`` file; None: not ours."""
        if f"{MARK_TOKEN}={self._token}\0".encode() not in environ:
            return None
        found = parse_environ(environ)
        ours = found.get(MARK_STATE) == self._state and found.get(MARK_TOKEN) == self._token
        if not ours or not all(found.get(name) for name in MARK_NAMES):
            return None
        return Mark(found[MARK_UID], found[MARK_CONTAINER], found[MARK_ORDER])


DELEGATE_ATTRIBUTES = ("user.delegate", "trusted.delegate")


def delegated_group(mounts: str, own: str) -> Path | None:
    """Our own cgroup v2 group, from the texts of mountinfo and ``/proc/self/cgroup``.

    None without cgroup v2, and for a group outside of the mount.
    """
    group = next((line[3:] for line in own.splitlines() if line.startswith("0::/")), None)
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        if group is not None and kind.startswith("cgroup2 "):
            root, point = fields.split()[3:5]
            if ".." not in group and Path(group).is_relative_to(root):
                return Path(point) / Path(group).relative_to(root)
    return None


def _unified_group(text: bytes | None) -> str:
    lines = (text or b"").decode(errors="surrogateescape").splitlines()
    return next((line[3:] for line in lines if line.startswith("0::/")), "")


def is_ours(pid: int, groups: Cgroups | None) -> bool:
    """Did we start this marked process?"""
    return proc.runs_as_us(pid) or (groups is not None and groups.holds(pid))


def is_delegated(group: Path) -> bool:
    """May we divide this group? See the module's text."""
    if not os.access(group, os.W_OK):
        return False
    for name in DELEGATE_ATTRIBUTES:
        with suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    is_root = not (group / "cgroup.type").exists() and not Path("/run/systemd/system").exists()
    return is_root or group.stat().st_uid == os.geteuid() != 0


class Cgroups:
    """One group per container, below one group per state directory."""

    def __init__(self, parent: Path, state_dir: Path) -> None:
        name = hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:12]
        self.base = parent / f"ebbtide-{name}"

    @classmethod
    def detect(cls, state_dir: Path) -> Cgroups | None:
        """None: no delegated group, or the kernel cannot kill one."""
        try:
            mounts = Path("/proc/self/mountinfo").read_text()
            group = delegated_group(mounts, Path("/proc/self/cgroup").read_text())
        except OSError:
            return None
        if group is None or not is_delegated(group):
            return None
        found = cls(group, state_dir)
        return found if found.usable() else None

    def make(self, name: str) -> str:
        """Empty: the kernel refuses (a limit on groups), so do without."""
        group = self.base / name
        try:
            group.mkdir(parents=True, exist_ok=True)
        except OSError:
            return ""
        return str(group)

    def holds(self, pid: int) -> bool:
        own, its = (_unified_group(proc.read_bytes(f"/proc/{one}/cgroup")) for one in ("self", pid))
        return bool(own) and its.startswith(f"{own.rstrip('/')}/{self.base.name}/")

    def prune(self, keep: Collection[str] = ()) -> None:
        """Remove empty groups but these: a process that has just started may not be in its group yet. The
        base comes back with the next pod.
        """
        for group in map(str, [*self.base.glob("*/"), self.base]):
            if group not in keep:
                remove_group(group)

    def usable(self) -> bool:
        """Can groups be made here, and killed?"""
        try:
            self.base.mkdir(exist_ok=True)
        except OSError:
            return False
        return (self.base / "cgroup.kill").exists()


def kill_group(group: str) -> bool:
    """SIGKILL to all in it at once. A group that is gone is empty."""
    try:
        fd = os.open(f"{group}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        os.write(fd, b"1")
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def remove_group(group: str) -> bool:
    """False while a process in it lives."""
    try:
        os.rmdir(group)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True

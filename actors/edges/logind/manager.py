"""logind's manager: its names on the bus, its properties, and its schedule file.

Several properties take one round trip, since calls run side by side. The property ``ScheduledShutdown``
announces no change and stays stale after a failed shutdown, so the file is read instead: when, of what kind,
and by whom. It is an early warning and evidence, never a trigger.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from jeepney import DBusAddress

from ebbtide.actors.edges.linux.bus import Bus, BusError, BusRefused, TooLong, side_by_side
from ebbtide.actors.edges.logind.drop_ins import grant_ns_of_usec
from ebbtide.events.facts import ScheduleRead
from ebbtide.events.values import ShutdownKind

LOGIND_NAME = "org.freedesktop.login1"
LOGIND_PATH = "/org/freedesktop/login1"
MANAGER_INTERFACE = "org.freedesktop.login1.Manager"
MANAGER = DBusAddress(LOGIND_PATH, LOGIND_NAME, MANAGER_INTERFACE)
LOGIND_UNIT = "systemd-logind.service"
PREPARE_FOR_SHUTDOWN = "PrepareForShutdown"
#: systemd 255 and later: carries the kind, and comes first.
PREPARE_FOR_SHUTDOWN_WITH_METADATA = "PrepareForShutdownWithMetadata"
OWNER_CHANGED = "NameOwnerChanged"
OPERATION_IN_PROGRESS = "org.freedesktop.login1.OperationInProgress"

INHIBIT_WHO = "ebbtide"
INHIBIT_WHY = "Ends the pods of this node in order before it goes down"
KUBELET_WHO = "kubelet"

#: What, who, why, mode, uid, pid.
INHIBITORS = "a(ssssuu)"

SHUTDOWN_KINDS = frozenset(get_args(ShutdownKind))


def kind_of(name: object) -> ShutdownKind:
    """Also for an empty name: nothing is scheduled."""
    return name if isinstance(name, str) and name in SHUTDOWN_KINDS else "unknown"  # type: ignore[return-value]  # one of KINDS


def kind_in_metadata(metadata: object) -> ShutdownKind:
    """The key ``type`` of an ``a{sv}``, in jeepney's form: name to (signature, value)."""
    match metadata:
        case {"type": (_, value)}:
            return kind_of(value)
    return "unknown"


def is_kubelet_lock(row: tuple[str, str, str, str, int, int]) -> bool:
    """Does a kubelet run its own graceful node shutdown?"""
    what, who, _, mode, uid, _ = row
    # Of root: any user may take a lock under any name, and we would give ours up.
    return who == KUBELET_WHO and mode == "delay" and uid == 0 and "shutdown" in what.split(":")


ValueT = TypeVar("ValueT")
Question = Callable[[Bus], Awaitable[Any]]


class ManagerState(NamedTuple):
    """At one moment."""

    preparing: bool
    grant_ns: int
    kind: ShutdownKind
    kubelet_lock: bool


async def ask_all(bus: Bus, *parts: Question) -> list[Any]:
    """The answers in order. Raises the first BusError after all have ended."""
    return await side_by_side(BusError, *(partial(part, bus) for part in parts))


def _checked(kind: type[ValueT], value: object) -> ValueT:
    """Raises BusError for another type than documented."""
    if not isinstance(value, kind):
        raise BusError(f"logind answered {value!r} where a {kind.__name__} was expected")
    return value


async def read_preparing(bus: Bus) -> bool:
    """True from the signal until the machine goes down or does not."""
    return _checked(bool, await bus.get(MANAGER, "PreparingForShutdown"))


async def read_grant_ns(bus: Bus) -> int:
    """In force, in nanoseconds."""
    return grant_ns_of_usec(_checked(int, await bus.get(MANAGER, "InhibitDelayMaxUSec")))


async def read_scheduled_kind(bus: Bus) -> ShutdownKind:
    """On 252 ``ScheduledShutdown`` is the only place, also for an immediate reboot."""
    return kind_of(_checked(tuple, await bus.get(MANAGER, "ScheduledShutdown"))[0])


async def read_kind(bus: Bus) -> ShutdownKind:
    """Of the running shutdown: the metadata property (newer systemd), else the schedule."""
    try:
        metadata = await bus.get(MANAGER, "PreparingForShutdownWithMetadata")
    except BusRefused:
        return await read_scheduled_kind(bus)
    found = kind_in_metadata(metadata)
    return await read_scheduled_kind(bus) if found == "unknown" else found


async def read_kubelet_lock(known: bool, bus: Bus) -> bool:
    """``known``: the answer for a list that is too long to be read, which any user can cause."""
    try:
        (rows,) = await bus.method(MANAGER, "ListInhibitors", answer=INHIBITORS)
    except TooLong:
        return known
    return any(is_kubelet_lock(row) for row in rows)


async def read_manager(bus: Bus, kubelet_lock: bool = False) -> ManagerState:
    """``kubelet_lock``: as known before. Raises BusError. A machine that does not go down has no kind."""
    going, limit, coming, kubelet = await ask_all(
        bus, read_preparing, read_grant_ns, read_kind, partial(read_kubelet_lock, kubelet_lock)
    )
    return ManagerState(going, limit, coming if going else "unknown", kubelet)


SCHEDULE_FOLDER = "run/systemd/shutdown"
SCHEDULE_FILE = "scheduled"
#: Only its wall message is unbounded.
SCHEDULE_BYTES_MAX = 64 * 1024
#: In the journal.
WALL_CHARACTERS_MAX = 1024
#: Far beyond any schedule, and an integer in every format.
USEC_MAX = 2**62 // 1000
#: ``shutdown`` with SYSTEMD_DRY_RUN.
DRY_RUN = "dry-"

NO_SCHEDULE = ScheduleRead()


def unescape(text: str) -> str:
    """logind escapes as C does, a space as ``\\s``, and bytes above ASCII one by one."""
    with contextlib.suppress(UnicodeError):
        return text.replace("\\s", " ").encode("ascii").decode("unicode_escape").encode("latin-1").decode()
    return text


def parse_schedule(text: str, now_ns: int) -> ScheduleRead:
    """At wall time ``now_ns``. A time of 0, past, or unreadable is no schedule."""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    at_ns = _integer(fields.get("USEC"), USEC_MAX) * 1_000
    mode = fields.get("MODE", "")
    if at_ns <= now_ns or mode.startswith(DRY_RUN):
        return NO_SCHEDULE
    return ScheduleRead(
        at_wall_ns=at_ns,
        kind=kind_of(mode),
        uid=_integer(fields["UID"], 2**32 - 1) if "UID" in fields else None,
        tty=_unquoted(fields.get("TTY", "")),
        wall_message=_unquoted(fields.get("WALL_MESSAGE", "")),
    )


def _unquoted(text: str) -> str:
    return unescape(text.strip('"'))[:WALL_CHARACTERS_MAX]


def _integer(text: str | None, largest: int) -> int:
    digits = (text or "").strip()
    return min(int(digits[:20]), largest) if digits.isascii() and digits.isdigit() else 0


class ScheduleFile:
    """Read when its folder changes."""

    def __init__(self, root: Path, wall_ns: Callable[[], int]) -> None:
        self.folder = root / SCHEDULE_FOLDER
        self._wall_ns = wall_ns

    def read(self) -> ScheduleRead:
        try:
            with open(self.folder / SCHEDULE_FILE, "rb") as file:
                text = file.read(SCHEDULE_BYTES_MAX).decode(errors="replace")
        except OSError:
            return NO_SCHEDULE
        return parse_schedule(text, self._wall_ns())

"""Reads logind's properties, its schedule file, and its configuration files.

The property ``ScheduledShutdown`` announces no change and stays stale after a failed shutdown, so the
schedule file is read: an early warning, never a trigger.

logind sorts the files of all folders by *file name*, and the last ``InhibitDelayMaxSec`` wins. So
``99-kubelet.conf`` loses against ``unattended-upgrades-logind-maxdelay.conf`` (kubernetes#102818), and ours
is called ``zz-``.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

from jeepney import DBusAddress

from ebbtide.actors.edges.linux.bus import Bus, BusError, BusRefused, TooLong, side_by_side
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import DropInsRead, ScheduleRead
from ebbtide.events.values import LockHolder, ShutdownKind

LOGIND_NAME = "org.freedesktop.login1"
LOGIND_PATH = "/org/freedesktop/login1"
MANAGER_INTERFACE = "org.freedesktop.login1.Manager"
MANAGER = DBusAddress(LOGIND_PATH, LOGIND_NAME, MANAGER_INTERFACE)
LOGIND_UNIT = "systemd-logind.service"
PREPARE_FOR_SHUTDOWN = "PrepareForShutdown"
#: systemd 255 and later, before the other signal.
PREPARE_FOR_SHUTDOWN_WITH_METADATA = "PrepareForShutdownWithMetadata"
OWNER_CHANGED = "NameOwnerChanged"
OPERATION_IN_PROGRESS = "org.freedesktop.login1.OperationInProgress"

INHIBIT_WHO = "ebbtide"
INHIBIT_WHY = "Ends the pods of this node in order before it goes down"
KUBELET_WHO = "kubelet"

INHIBITORS = "a(ssssuu)"

SHUTDOWN_KINDS = frozenset(get_args(ShutdownKind))


def kind_of(name: object) -> ShutdownKind:
    return name if isinstance(name, str) and name in SHUTDOWN_KINDS else "unknown"  # type: ignore[return-value]  # one of KINDS


def kind_in_metadata(metadata: object) -> ShutdownKind:
    """An ``a{sv}`` in jeepney's form: name to (signature, value)."""
    match metadata:
        case {"type": (_, value)}:
            return kind_of(value)
    return "unknown"


#: What, who, why, mode, uid, pid: a row of `INHIBITORS`.
InhibitorRow = tuple[str, str, str, str, int, int]


def is_delay_lock(row: InhibitorRow) -> bool:
    """Does a shutdown wait for it?"""
    what, _, _, mode, _, _ = row
    return mode == "delay" and "shutdown" in what.split(":")


def is_kubelet_lock(row: InhibitorRow) -> bool:
    """Does a kubelet run its own graceful node shutdown?"""
    _, who, _, _, uid, _ = row
    # Any user may take a lock under any name; for the kubelet's we give ours up.
    return who == KUBELET_WHO and uid == 0 and is_delay_lock(row)


#: Any user may take many locks with long texts.
HOLDER_CHARACTERS_MAX = 200
HOLDERS_MAX = 16


def other_holders(rows: Iterable[InhibitorRow]) -> tuple[LockHolder, ...]:
    """The other delay locks on shutdown, root's first, in a stable order."""
    found = {
        LockHolder(who=who[:HOLDER_CHARACTERS_MAX], why=why[:HOLDER_CHARACTERS_MAX], pid=pid, uid=uid)
        for row in rows
        if is_delay_lock(row)
        for _, who, why, _, uid, pid in [row]
        if who != INHIBIT_WHO or uid != os.geteuid()
    }
    return tuple(sorted(found, key=lambda each: (each.uid, each.pid, each.who, each.why))[:HOLDERS_MAX])


ValueT = TypeVar("ValueT")
Question = Callable[[Bus], Awaitable[Any]]


class ManagerState(NamedTuple):
    preparing: bool
    grant_ns: int
    kind: ShutdownKind
    kubelet_lock: bool


async def ask_all(bus: Bus, *parts: Question) -> list[Any]:
    """Raises the first BusError after all have ended."""
    return await side_by_side(BusError, *(partial(part, bus) for part in parts))


def _checked(kind: type[ValueT], value: object) -> ValueT:
    if not isinstance(value, kind):
        raise BusError(f"logind answered {value!r} where a {kind.__name__} was expected")
    return value


async def read_preparing(bus: Bus) -> bool:
    return _checked(bool, await bus.get(MANAGER, "PreparingForShutdown"))


async def read_grant_ns(bus: Bus) -> int:
    return grant_ns_of_usec(_checked(int, await bus.get(MANAGER, "InhibitDelayMaxUSec")))


async def read_scheduled_kind(bus: Bus) -> ShutdownKind:
    """On systemd 252 the only place, also for an immediate reboot."""
    return kind_of(_checked(tuple, await bus.get(MANAGER, "ScheduledShutdown"))[0])


async def read_kind(bus: Bus) -> ShutdownKind:
    """The metadata property (newer systemd), else the schedule."""
    try:
        metadata = await bus.get(MANAGER, "PreparingForShutdownWithMetadata")
    except BusRefused:
        return await read_scheduled_kind(bus)
    found = kind_in_metadata(metadata)
    return await read_scheduled_kind(bus) if found == "unknown" else found


async def read_inhibitors(bus: Bus) -> list[InhibitorRow] | None:
    """None: the list is too long to read. Any user can cause that."""
    try:
        (rows,) = await bus.method(MANAGER, "ListInhibitors", answer=INHIBITORS)
    except TooLong:
        return None
    return list(rows)


async def read_kubelet_lock(known: bool, bus: Bus) -> bool:
    """``known``: the result without a list."""
    rows = await read_inhibitors(bus)
    return known if rows is None else any(map(is_kubelet_lock, rows))


async def read_manager(bus: Bus, kubelet_lock: bool = False) -> ManagerState:
    """``kubelet_lock``: as known before. Raises BusError."""
    going, limit, coming, kubelet = await ask_all(
        bus, read_preparing, read_grant_ns, read_kind, partial(read_kubelet_lock, kubelet_lock)
    )
    return ManagerState(going, limit, coming if going else "unknown", kubelet)


SCHEDULE_FOLDER = "run/systemd/shutdown"
SCHEDULE_FILE = "scheduled"
SCHEDULE_BYTES_MAX = 64 * 1024
WALL_CHARACTERS_MAX = 1024
#: An integer in every format.
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
    """A time of 0, past, or unreadable is no schedule."""
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
    def __init__(self, root: Path) -> None:
        self.folder = root / SCHEDULE_FOLDER

    def read(self) -> ScheduleRead:
        try:
            with open(self.folder / SCHEDULE_FILE, "rb") as file:
                text = file.read(SCHEDULE_BYTES_MAX).decode(errors="replace")
        except OSError:
            return NO_SCHEDULE
        return parse_schedule(text, time.time_ns())


#: From the highest priority to the lowest.
FOLDER_PREFIXES = ("etc", "run", "usr/local/lib", "usr/lib")
DROP_IN_FOLDERS = tuple(f"/{prefix}/systemd/logind.conf.d" for prefix in FOLDER_PREFIXES)
DROP_IN_FOLDER_DEFAULT = "/run/systemd/logind.conf.d"
DROP_IN_NAME = "zz-ebbtide.conf"
#: Not a ``.conf``: logind ignores a half-written file.
TEMPORARY_NAME = ".zz-ebbtide.new"
#: logind.conf(5).
LOGIND_DEFAULT_NS = 5 * NS_PER_SECOND
FILE_BYTES_MAX = 256 * 1024
FILE_TEXT = """# Written by ebbtide: it needs this long to end the pods of this node before a shutdown.
[Login]
InhibitDelayMaxSec={seconds}
"""
KEY = re.compile(r"\s*InhibitDelayMaxSec\s*=(.*)", re.ASCII)
SECTION = re.compile(r"\s*\[(.*)\]\s*", re.ASCII)


class Setting(NamedTuple):
    """``path`` as logind sees it."""

    path: str
    value_ns: int


def setting_in(text: str) -> int | None:
    section, value_ns = "", None
    for line in text.replace("\\\n", " ").splitlines():
        if line.lstrip()[:1] in ("", "#", ";"):
            continue
        if header := SECTION.fullmatch(line):
            section = header[1]
        elif section == "Login" and (found := KEY.fullmatch(line)):
            parsed_ns = parse_timespan_ns(found[1])
            value_ns = value_ns if parsed_ns is None else parsed_ns
    return value_ns


class DropIns:
    """``root``: ``/``, or a namespace's ``/proc/PID/root``. ``folder``: for our file. Raises ValueError for a
    folder that logind does not read.
    """

    def __init__(self, root: Path = Path("/"), folder: str = DROP_IN_FOLDER_DEFAULT) -> None:
        if folder not in DROP_IN_FOLDERS:
            raise ValueError(f"logind does not read {folder}; use one of {', '.join(DROP_IN_FOLDERS)}")
        self._root = root
        self._folder = self._inside(folder)
        #: As logind sees it.
        self.ours = str(Path(folder, DROP_IN_NAME))

    @property
    def folders(self) -> tuple[Path, ...]:
        """The drop-in folders and the main file's."""
        return (*(self._inside(folder) for folder in DROP_IN_FOLDERS), self._inside("/etc/systemd"))

    def _inside(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _settings(self) -> list[Setting]:
        """As logind applies them, the winner last."""
        by_name: dict[str, str] = {}
        for folder in DROP_IN_FOLDERS:
            with contextlib.suppress(OSError):
                for name in os.listdir(self._inside(folder)):
                    if name.endswith(".conf") and not name.startswith("."):
                        # A name in a higher folder hides the same name below (logind.conf(5)).
                        by_name.setdefault(name, f"{folder}/{name}")
        # The highest existing main file counts (systemd 256 also looks below /run and /usr).
        mains = (f"/{prefix}/systemd/logind.conf" for prefix in FOLDER_PREFIXES)
        main = next((name for name in mains if self._inside(name).exists()), "/etc/systemd/logind.conf")
        found = []
        for path in (main, *(by_name[name] for name in sorted(by_name, key=os.fsencode))):
            # A mask (a link to /dev/null) is no setting.
            with contextlib.suppress(OSError):
                if (file := self._inside(path)).is_file():
                    with open(file, "rb") as opened:
                        value_ns = setting_in(opened.read(FILE_BYTES_MAX).decode(errors="replace"))
                    if value_ns is not None:
                        found.append(Setting(path, value_ns))
        return found

    def read(self) -> DropInsRead:
        settings = self._settings()
        others = [setting for setting in settings if setting.path != self.ours]
        largest = max(others, key=lambda setting: setting.value_ns, default=Setting("", 0))
        if largest.value_ns < LOGIND_DEFAULT_NS:
            largest = Setting("", LOGIND_DEFAULT_NS)
        # It wins against ours, whether ours exists or not.
        last = Path(settings[-1].path) if settings and settings[-1].path != self.ours else Path()
        wins = "logind.conf.d" in last.parts and os.fsencode(last.name) >= os.fsencode(DROP_IN_NAME)
        return DropInsRead(
            others_ns=largest.value_ns,
            others_path=largest.path,
            ours_ns=next((setting.value_ns for setting in settings if setting.path == self.ours), None),
            overridden_by=str(last) if wins else "",
        )

    def effective_ns(self) -> int:
        settings = self._settings()
        return settings[-1].value_ns if settings else LOGIND_DEFAULT_NS

    def write(self, seconds: int) -> None:
        """Whole or not at all. Raises OSError."""
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        temporary = self._folder / TEMPORARY_NAME
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        with open(descriptor, "w") as file:
            os.fchmod(descriptor, 0o644)
            file.write(FILE_TEXT.format(seconds=seconds))
            file.flush()
            # Before the rename: after a crash logind would read an empty file.
            os.fsync(descriptor)
        os.rename(temporary, self._folder / DROP_IN_NAME)

    def remove(self) -> bool:
        """False: there was none. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            (self._folder / DROP_IN_NAME).unlink()
            return True
        return False


#: For logind's "infinity". It fits every integer format.
GRANT_NS_MAX = 366 * 24 * 3600 * NS_PER_SECOND

#: systemd.time(7).
UNITS_NS = {
    "": NS_PER_SECOND,
    **dict.fromkeys(("us", "usec", "µs", "μs"), 1_000),
    **dict.fromkeys(("ms", "msec"), 1_000_000),
    **dict.fromkeys(("s", "sec", "second", "seconds"), NS_PER_SECOND),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60 * NS_PER_SECOND),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600 * NS_PER_SECOND),
    **dict.fromkeys(("d", "day", "days"), 86_400 * NS_PER_SECOND),
    **dict.fromkeys(("w", "week", "weeks"), 604_800 * NS_PER_SECOND),
    **dict.fromkeys(("M", "month", "months"), 2_629_800 * NS_PER_SECOND),
    **dict.fromkeys(("y", "year", "years"), 31_557_600 * NS_PER_SECOND),
}
SPAN_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Zµμ]*)\s*", re.ASCII)
SPAN_CHARACTERS_MAX = 256


def parse_timespan_ns(text: str) -> int | None:
    """None where systemd ignores the line too."""
    text = text.strip()
    if text == "infinity":
        return GRANT_NS_MAX
    if not text or len(text) > SPAN_CHARACTERS_MAX:
        return None
    total, at = Fraction(0), 0
    while at < len(text):
        part = SPAN_PART.match(text, at)
        if part is None or part[2] not in UNITS_NS:
            return None
        total += Fraction(part[1]) * UNITS_NS[part[2]]
        at = part.end()
    return min(int(total), GRANT_NS_MAX)


def grant_ns_of_usec(microseconds: int) -> int:
    """From ``InhibitDelayMaxUSec``; all bits set means infinity."""
    return min(microseconds * 1_000, GRANT_NS_MAX)

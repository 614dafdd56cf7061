"""logind's configuration files: their ``InhibitDelayMaxSec``, and our own file.

Files of all folders are sorted by *file name*, and the last with the key wins. A file hides files of its name
in lower folders. So ``99-kubelet.conf`` loses against a vendor's ``unattended-upgrades-logind-maxdelay.conf``
(kubernetes#102818), and ours is called ``zz-``.

Values are systemd's time spans ("1min 30s"), read as nanoseconds.
"""

from __future__ import annotations

import contextlib
import os
import re
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import DropInsRead

#: From the highest priority to the lowest.
FOLDER_PREFIXES = ("etc", "run", "usr/local/lib", "usr/lib")
DROP_IN_FOLDERS = tuple(f"/{prefix}/systemd/logind.conf.d" for prefix in FOLDER_PREFIXES)
DROP_IN_FOLDER_DEFAULT = "/run/systemd/logind.conf.d"
DROP_IN_NAME = "zz-ebbtide.conf"
#: Not a ``.conf``: logind ignores a half-written file.
TEMPORARY_NAME = ".zz-ebbtide.new"
#: Without any file (logind.conf(5)).
LOGIND_DEFAULT_NS = 5 * NS_PER_SECOND
#: A configuration has a few lines.
FILE_BYTES_MAX = 256 * 1024
FILE_TEXT = """# Written by ebbtide: it needs this long to end the pods of this node before a shutdown.
[Login]
InhibitDelayMaxSec={seconds}
"""
KEY = re.compile(r"\s*InhibitDelayMaxSec\s*=(.*)", re.ASCII)
SECTION = re.compile(r"\s*\[(.*)\]\s*", re.ASCII)


class Setting(NamedTuple):
    """A file with the key. ``path`` as logind sees it."""

    path: str
    value_ns: int


def setting_in(text: str) -> int | None:
    """The last valid ``InhibitDelayMaxSec`` of the ``[Login]`` section."""
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
    """The files below ``root`` (``/``, or a namespace's ``/proc/PID/root``), and ours in ``folder``.

    Raises ValueError for a folder that logind does not read.
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
        """To watch: the drop-in folders and the main file's."""
        return (*(self._inside(folder) for folder in DROP_IN_FOLDERS), self._inside("/etc/systemd"))

    def _inside(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _settings(self) -> list[Setting]:
        """In the order in which logind applies them."""
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
            # An unreadable file sets nothing, and neither does a mask (a link to /dev/null).
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
        # No file means less than logind's default.
        if largest.value_ns < LOGIND_DEFAULT_NS:
            largest = Setting("", LOGIND_DEFAULT_NS)
        # The file that wins against ours, even if ours does not exist.
        last = Path(settings[-1].path) if settings and settings[-1].path != self.ours else Path()
        wins = "logind.conf.d" in last.parts and os.fsencode(last.name) >= os.fsencode(DROP_IN_NAME)
        return DropInsRead(
            others_ns=largest.value_ns,
            others_path=largest.path,
            ours_ns=next((setting.value_ns for setting in settings if setting.path == self.ours), None),
            overridden_by=str(last) if wins else "",
        )

    def effective_ns(self) -> int:
        """logind's limit with these files."""
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


#: logind's limit may be "infinity". This one fits every integer format.
GRANT_NS_MAX = 366 * 24 * 3600 * NS_PER_SECOND

#: systemd.time(7). "m" is minutes, "M" months.
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
#: A sensible span names each unit once.
SPAN_CHARACTERS_MAX = 256


def parse_timespan_ns(text: str) -> int | None:
    """At most `GRANT_NS_MAX`; None where systemd ignores the line too."""
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

"""logind's configuration files: what they ask for, and the one file of ours among them.

Files of all folders are sorted together by *file name*; the last that sets the key wins. A file masks the
files of the same name in lower folders. This is why ``99-kubelet.conf`` loses against a vendor's
``unattended-upgrades-logind-maxdelay.conf`` (kubernetes#102818), and why ours is called ``zz-``.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from actors.edges.logind.timespan import parse_timespan_ns
from events.base import NS_PER_SECOND
from events.facts import DropInsRead

#: From the highest priority to the lowest.
PREFIXES = ("etc", "run", "usr/local/lib", "usr/lib")
FOLDERS = tuple(f"/{prefix}/systemd/logind.conf.d" for prefix in PREFIXES)
FOLDER_DEFAULT = "/run/systemd/logind.conf.d"
FILE_NAME = "zz-ebbtide.conf"
#: Not a ``.conf``: logind passes over a half-written file.
TEMPORARY_NAME = ".zz-ebbtide.new"
LOGIND_DEFAULT_NS = 5 * NS_PER_SECOND
FILE_BYTES_MAX = 256 * 1024
TEXT = """# Written by ebbtide: it needs this long to end the pods of this node before a shutdown.
[Login]
InhibitDelayMaxSec={seconds}
"""
KEY = re.compile(r"\s*InhibitDelayMaxSec\s*=(.*)", re.ASCII)
SECTION = re.compile(r"\s*\[(.*)\]\s*", re.ASCII)


class Setting(NamedTuple):
    """One file that sets the key. ``path`` is as logind sees it."""

    path: str
    value_ns: int


def setting_in(text: str) -> int | None:
    """The last usable ``InhibitDelayMaxSec`` of the ``[Login]`` section; None if it is not set."""
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

    def __init__(self, root: Path = Path("/"), folder: str = FOLDER_DEFAULT) -> None:
        if folder not in FOLDERS:
            raise ValueError(f"logind does not read {folder}; use one of {', '.join(FOLDERS)}")
        self._root = root
        self._folder = self._inside(folder)
        #: As logind sees it.
        self.ours = str(Path(folder, FILE_NAME))

    @property
    def folders(self) -> tuple[Path, ...]:
        """What to watch: the drop-in folders, and the folder of the main file."""
        return (*(self._inside(folder) for folder in FOLDERS), self._inside("/etc/systemd"))

    def _inside(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _main(self) -> str:
        """The main file: the highest that exists (systemd 256 looks below /run and /usr as well)."""
        names = (f"/{prefix}/systemd/logind.conf" for prefix in PREFIXES)
        return next((name for name in names if self._inside(name).exists()), "/etc/systemd/logind.conf")

    def _in_order(self) -> list[str]:
        """The drop-ins that count, in the order in which they are applied."""
        by_name: dict[str, str] = {}
        for folder in FOLDERS:
            for name in self._names(folder):
                by_name.setdefault(name, f"{folder}/{name}")
        return [self._main(), *(by_name[name] for name in sorted(by_name, key=os.fsencode))]

    def _names(self, folder: str) -> list[str]:
        try:
            names = os.listdir(self._inside(folder))
        except OSError:
            return []
        return [name for name in names if name.endswith(".conf") and not name.startswith(".")]

    def _settings(self) -> list[Setting]:
        found = ((path, self._value(path)) for path in self._in_order())
        return [Setting(path, value_ns) for path, value_ns in found if value_ns is not None]

    def _value(self, path: str) -> int | None:
        """None also for what cannot be read and for a mask (a link to /dev/null is no regular file)."""
        place = self._inside(path)
        try:
            if not place.is_file():
                return None
            with open(place, "rb") as file:
                return setting_in(file.read(FILE_BYTES_MAX).decode(errors="replace"))
        except OSError:
            return None

    def read(self) -> DropInsRead:
        """What the files say now."""
        settings = self._settings()
        others = [setting for setting in settings if setting.path != self.ours]
        largest = max(others, key=lambda setting: setting.value_ns, default=Setting("", 0))
        if largest.value_ns < LOGIND_DEFAULT_NS:
            largest = Setting("", LOGIND_DEFAULT_NS)
        return DropInsRead(
            others_ns=largest.value_ns,
            others_path=largest.path,
            ours_ns=next((setting.value_ns for setting in settings if setting.path == self.ours), None),
            overridden_by=self._overrider(settings),
        )

    def _overrider(self, settings: list[Setting]) -> str:
        """The file that wins against ours; it need not be there for this to be asked."""
        if settings and settings[-1].path != self.ours:
            last = Path(settings[-1].path)
            if "logind.conf.d" in last.parts and os.fsencode(last.name) >= os.fsencode(FILE_NAME):
                return str(last)
        return ""

    def effective_ns(self) -> int:
        """The limit that logind has after it has read these files."""
        settings = self._settings()
        return settings[-1].value_ns if settings else LOGIND_DEFAULT_NS

    def write(self, seconds: int) -> None:
        """Place our file, whole or not at all; raises OSError."""
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        temporary = self._folder / TEMPORARY_NAME
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        with open(descriptor, "w") as file:
            os.fchmod(descriptor, 0o644)
            file.write(TEXT.format(seconds=seconds))
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, self._folder / FILE_NAME)

    def remove(self) -> bool:
        """Take our file away; False when there was none. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            (self._folder / FILE_NAME).unlink()
            return True
        return False

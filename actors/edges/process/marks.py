"""The marks in a pod process's environment, by which it is found again when its record is lost.

Children inherit them, so they also find what a pod has left behind in other sessions. They name the
state directory too: a second daemon on the same machine, with the same pods, has marks of its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from actors.edges.process.proc import parse_environ

UID = "EBBTIDE_POD_UID"
CONTAINER = "EBBTIDE_CONTAINER"
ORDER = "EBBTIDE_ORDER"
STATE = "EBBTIDE_STATE"
NAMES = (UID, CONTAINER, ORDER, STATE)

#: What a pod inherits from the daemon's environment; anything else there is none of its business.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME")
PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Mark(NamedTuple):
    """Whose process it is, and which order started it."""

    uid: str
    container: str
    order: str


class Marker:
    """Writes and reads the marks of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._state = str(state_dir.resolve())
        self._needle = f"{STATE}={self._state}\0".encode("utf-8", "surrogateescape")

    def environ(self, mark: Mark, own: dict[str, str]) -> dict[str, str]:
        """A process's whole environment. The marks win over what a manifest says, and stand first."""
        marks = {UID: mark.uid, CONTAINER: mark.container, ORDER: mark.order, STATE: self._state}
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        rest = {"PATH": PATH_DEFAULT} | inherited | own
        return marks | {name: value for name, value in rest.items() if name not in NAMES}

    def read(self, environ: bytes) -> Mark | None:
        """The marks in the bytes of an ``environ`` file; None when they are not ours."""
        if self._needle not in environ:
            return None
        found = parse_environ(environ)
        if found.get(STATE) != self._state or not all(found.get(name) for name in NAMES):
            return None
        return Mark(found[UID], found[CONTAINER], found[ORDER])

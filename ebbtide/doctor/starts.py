"""How the last daemon began, from the journal: in which mode, and which pods it could not start.

Such a pod has neither a process nor a record.
"""

from __future__ import annotations

from typing import Any

from ebbtide.cli.labels import Labels, payload_of
from ebbtide.lines.forms import START
from events.frames import RawRecord


class Starts:
    """Folded from the records of a journal; a daemon that begins tries all of its manifests again."""

    def __init__(self) -> None:
        self._labels = Labels()
        self._failed: dict[str, str] = {}
        #: Of the last daemon that began; empty where the journal has none.
        self.mode = ""

    def take(self, raw: RawRecord) -> None:
        self._labels.learn(raw)
        if raw.tag == "DaemonStarted":
            self._failed = {}
            self._began(payload_of(raw))
        elif raw.tag == "OrderEnded" and START.encode() in raw.payload:
            self._ended(payload_of(raw))

    def _began(self, data: Any) -> None:
        self.mode = str(data.get("mode", "")) if isinstance(data, dict) else ""

    def _ended(self, data: Any) -> None:
        """Only an edited journal holds anything but a mapping here."""
        if not isinstance(data, dict):
            return
        uid = str(data.get("key")).removeprefix(START).rpartition("/")[0]
        self._failed.pop(uid, None)
        if data.get("result") == "failed":
            self._failed[uid] = str(data.get("reason") or "no reason was given")

    @property
    def failed(self) -> tuple[tuple[str, str], ...]:
        """(namespace/name, reason) of each."""
        return tuple((self._labels.get(uid, uid), reason) for uid, reason in self._failed.items())

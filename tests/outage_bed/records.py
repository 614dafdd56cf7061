"""The controller's journals in the API server, read with independent code."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import trio

from ebbtide.events.base import Event, Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from tests.node.bed import Bed
from tests.node.ebbtide import COMMAND
from tests.waiting import WATCHDOG_SECONDS

NAMESPACE = "ebbtide"
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
UID_LABEL, OFFSET = "ebbtide.dev/node-uid", "ebbtide.dev/offset"

E = TypeVar("E", bound=Event)


class Journal:
    """One Node's journal, copied to ``folder``, a file per segment."""

    def __init__(self, bed: Bed, node_uid: str, folder: Path) -> None:
        self.bed, self.node_uid, self.folder = bed, node_uid, folder

    async def read(self) -> list[Record]:
        found = await self.bed.api.get(f"{MAPS}?labelSelector={UID_LABEL}%3D{self.node_uid}")
        segments: dict[str, bytearray] = {}
        for each in sorted(found["items"], key=lambda each: str(each["metadata"]["name"])):
            ((name, data),) = each["binaryData"].items()
            segment, offset = segments.setdefault(name, bytearray()), each["metadata"]["annotations"][OFFSET]
            assert len(segment) == int(offset), f"{each['metadata']['name']}: a hole before {offset}"
            segment += base64.b64decode(data)
        if not segments:
            return []
        self.folder.mkdir(exist_ok=True)
        for name, content in segments.items():
            (self.folder / name).write_bytes(content)
        return list(History([DirectorySource(self.folder)]).records())

    async def replays(self) -> str:
        """Empty if the records follow from their facts, to the byte."""
        argv = [*COMMAND, "replay", "verify", f"--journal={self.folder}", "-o", "json"]
        done = await trio.to_thread.run_sync(
            lambda: subprocess.run(argv, capture_output=True, text=True, timeout=WATCHDOG_SECONDS)
        )
        if done.returncode or not json.loads(done.stdout)["identical"]:
            return f"the journal does not replay: {done.stdout[-500:]} {done.stderr[-500:]}"
        return ""


def events(records: Sequence[Record], kind: type[E]) -> list[E]:
    return [each.event for each in records if isinstance(each.event, kind)]


def first_ns(records: Sequence[Record], *kinds: type[Event]) -> int | None:
    return next((each.mono_ns for each in records if isinstance(each.event, kinds)), None)

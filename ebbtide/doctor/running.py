"""The pods that a daemon runs as local processes, from the records it keeps for its own next life.

Only read: a record that cannot be used is passed over, and stays.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from actors.edges.process import proc
from actors.edges.process.forecast import Forecast, forecast
from actors.edges.process.record import RECORD_VERSION, PodRecord

_decoder = msgspec.msgpack.Decoder(PodRecord)


def running_pods(runtime: Path) -> list[PodRecord]:
    """The pods of this boot with at least one process alive, oldest first. Raises PermissionError."""
    folder = runtime / "process" / "pods"
    try:
        paths = sorted(folder.iterdir(), key=lambda path: path.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    records = filter(None, map(_read, paths))
    return [record for record in records if record.boot_id == proc.boot_id() and _alive(record)]


def forecasts(pod: PodRecord) -> list[Forecast]:
    """What the stop signal would do to the first process of each container that runs."""
    signals = {container.name: container.stop_signal for container in pod.pod.containers}
    found = [
        forecast(pod.pod.uid, each.name, each.pid, signals.get(each.name, "SIGTERM"))
        for each in pod.containers
        if proc.is_same(each.pid, each.start_ticks)
    ]
    return [each for each in found if each is not None]


def _read(path: Path) -> PodRecord | None:
    if path.name.startswith("."):
        return None
    try:
        record = _decoder.decode(path.read_bytes())
    except (FileNotFoundError, ValueError, msgspec.DecodeError):  # ValueError: bad UTF-8
        return None
    return record if record.version == RECORD_VERSION else None


def _alive(record: PodRecord) -> bool:
    return any(proc.is_same(each.pid, each.start_ticks) for each in record.containers)

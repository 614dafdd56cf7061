"""Pods by name: which UID is whose, learned from the records that introduce them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from events.frames import RawRecord

#: Events that introduce a pod by name, and where in their payload it stands.
INTRODUCTIONS = {"PodAppeared": "pod", "PodPlanned": "pod", "InventoryTaken": "pods", "PodRejected": ""}

#: UIDs as the API server and the manifest reader give them.
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")

_decode = msgspec.msgpack.Decoder().decode


def payload_of(raw: RawRecord) -> Any:
    """A payload as plain values; hexadecimal digits where it cannot be read."""
    try:
        return _decode(raw.payload)
    except (msgspec.DecodeError, ValueError):
        return raw.payload.hex()


def introduced(raw: RawRecord) -> Iterator[tuple[str, str]]:
    """(UID, namespace/name) of each pod that a record introduces; nothing for most records."""
    where = INTRODUCTIONS.get(raw.tag)
    data = payload_of(raw) if where is not None else None
    if not isinstance(data, dict):
        return
    if not where:
        yield str(data.get("uid")), str(data.get("label"))
        return
    entries = data.get(where) or []
    for pod in entries if isinstance(entries, list) else [entries]:
        if isinstance(pod, dict):
            yield str(pod.get("uid")), f"{pod.get('namespace')}/{pod.get('name')}"


class Labels(dict[str, str]):
    """Names by UID, because people read names; and the UIDs of the one pod that is ``wanted``.

    ``wanted`` is namespace/name, a name, or a UID; a pod that was made anew has several UIDs.
    """

    def __init__(self, wanted: str = "") -> None:
        super().__init__()
        self.wanted = wanted
        self.uids: set[str] = set()
        self._needles: list[bytes] = []

    def learn(self, raw: RawRecord) -> None:
        for uid, label in introduced(raw):
            self[uid] = label
            if self.wanted in (uid, label, label.partition("/")[2]) and uid not in self.uids:
                self.uids.add(uid)
                # As a value of its own, and as the subject in an order's key.
                self._needles += [msgspec.msgpack.encode(uid), f"/{uid}/".encode()]

    def concerns(self, raw: RawRecord) -> bool:
        """Whether a record names the wanted pod, or comes from its actor."""
        if raw.actor.partition(":")[2] in self.uids:
            return True
        return any(needle in raw.payload for needle in self._needles)

    def named(self, text: str) -> str:
        """``text`` with names in the place of UIDs."""
        return _UID.sub(lambda match: self.get(match[0], match[0]), text)

"""Types of text fields by what they name: a redacted journal's pseudonyms depend on it (`replay.redact`).

A plain ``str`` is a message, which may name anything, unless `FIELD_NAMES` has its field. Redaction keeps
words, versions, signals, bus names, hashes and kernel symbols.
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from ebbtide.events.base import BoundedTuple

CSI_VOLUME = "kubernetes.io/csi/"


def _names(kind: str) -> Meta:
    return Meta(extra={"names": kind})


Word = Annotated[str, _names("word")]
Field = Annotated[str, _names("field")]
Version = Annotated[str, _names("version")]
Signal = Annotated[str, _names("signal")]
BusName = Annotated[str, _names("bus name")]
Hash = Annotated[str, _names("hash")]
KernelSymbol = Annotated[str, _names("kernel symbol")]
Unit = Annotated[str, _names("unit")]
WorkloadKind = Annotated[str, _names("workload kind")]
Uid = Annotated[str, _names("uid")]
PodName = Annotated[str, _names("pod")]
#: A UID, ``namespace/name``, or a name.
PodReference = Annotated[str, _names("pod reference")]
Container = Annotated[str, _names("container")]
BootId = Annotated[str, _names("boot")]
Path = Annotated[str, _names("path")]
#: ``path:line``.
FilePosition = Annotated[str, _names("file position")]
Volume = Annotated[str, _names("volume")]
#: The kubelet's name for an attachable volume; for a CSI volume `CSI_VOLUME`, driver, ``^``, handle.
VolumeInUse = Annotated[str, _names("volume in use")]
Command = Annotated[str, _names("command")]
HookDetail = Annotated[str, _names("hook")]
Tty = Annotated[str, _names("tty")]
#: `events.base.order_key`.
Key = Annotated[str, _names("key")]
ProofSource = Annotated[str, _names("source")]
OutageWait = Annotated[str, _names("outage waits")]
#: ``Kind/name``; and ``namespace/Kind/name``.
Owner = Annotated[str, _names("owner")]
NamespacedOwner = Annotated[str, _names("namespaced owner")]
#: The Node, or a workload.
EventSubject = Annotated[str, _names("event subject")]
Person = Annotated[int, _names("person")]
#: A process's output: a redacted journal has none.
LastLines = Annotated[BoundedTuple[str], _names("dropped")]

#: A pod's UID and a volume, or "" and the path of a volume driver's mount.
Mount = tuple[Uid, Volume]
ExitCode = tuple[Container, int]
#: UID, phase, reason, message, known exit codes.
PodStatus = tuple[Uid, Word, Word, Word, BoundedTuple[ExitCode]]

#: By a field's name.
FIELD_NAMES = {
    "key": re.compile(r"(\w+_)?key"),
    "uid": re.compile(r"(\w+_)?uids?|\w+_uuid|provider_id"),
    "container": re.compile(r"container"),
    "namespace": re.compile(r"namespace"),
    "node": re.compile(r"(\w+_)?node"),
    "boot": re.compile(r"(boot|userspace)_id|\w+_boot"),
    "boot pair": re.compile(r"home"),
    "revision": re.compile(r"resource_version"),
}

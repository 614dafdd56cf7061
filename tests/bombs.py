"""Journals that fill the memory of their readers: hand-made records with a valid chain, packed small."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

from msgspec import Raw
from msgspec.msgpack import encode

from ebbtide.events import decisions as d
from ebbtide.events import outage_events as o
from ebbtide.events.base import Event
from ebbtide.events.codec import FLAG_LAST, HASH_BYTES, _frame, encode_event
from ebbtide.events.pack import MANIFEST, SEGMENTS_FOLDER, UNPACKED_PER_BYTE_MAX
from ebbtide.events.segment import (
    JOURNAL_ID_BYTES,
    OUTAGE_LOGIC,
    Header,
    Identity,
    Link,
    encode_header,
    segment_file_name,
)
from tests.journals import IDENTITY, VERSION, began

NODE_UID = "00000000-1111-2222-3333-444444444444"
#: Of the lists in one record: near the reader's own limit.
ITEMS = 32_000

#: Tag and payload; the second word of the journal is its shutdown's begin.
Records = Iterator[tuple[str, bytes]]


def array(count: int, item: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + item * count


def with_list(name: str, items: bytes, /, **fields: Any) -> bytes:
    """A map of these fields and a list."""
    made = bytearray(encode(fields | {name: None}))
    assert made[-1:] == b"\xc0"
    return bytes(made[:-1]) + items


def always(tag: str, payload: bytes) -> Records:
    while True:
        yield tag, payload


def autopsy_lines() -> Records:
    """Two-letter texts: three bytes each, and sixty in memory."""
    yield from always(
        "AutopsyTaken", with_list("last_lines", array(ITEMS, b"\xa2ab"), uid="u", container="c")
    )


def autopsy_processes() -> Records:
    one = encode({"pid": 1 << 20, "parent_pid": 1 << 20, "command": "ab", "state": "R"})
    yield from always("AutopsyTaken", with_list("processes", array(ITEMS, one), uid="u", container="c"))


def autopsies_of_one_pod() -> Records:
    yield from always("AutopsyTaken", encode({"uid": "u", "container": "c"}))


def hooks_of_one_pod() -> Records:
    yield from always("HookStarted", encode({"uid": "u", "container": "c", "kind": "exec", "until_ns": 1}))


def containers_of_one_pod() -> Records:
    number = 0
    while True:
        number += 1
        yield "KillContainer", encode({"key": f"kill/u/{number}", "uid": "u", "container": f"c{number}"})


def pods() -> Records:
    number = 0
    while True:
        listed = [{"uid": f"u{number + at}", "namespace": "n", "name": "p"} for at in range(ITEMS)]
        number += ITEMS
        yield "InventoryTaken", encode({"key": "k", "as_of_ns": 1, "source": "process", "pods": listed})


def a_far_wave() -> Records:
    yield (
        "WaveStarted",
        encode({"wave": 1 << 31, "priority": 0, "period_ns": 1, "deadline_ns": 1, "kill_by_ns": 1}),
    )


def notices() -> Records:
    yield from always("ClockStepped", encode({"delta_ns": 5}))


def long_texts() -> Records:
    text = "x" * (15 << 20)
    yield from always("HookEnded", encode({"uid": "u", "container": "c", "result": "failed", "reason": text}))


def unknown_types() -> Records:
    number = 0
    while True:
        number += 1
        yield f"T{number:0>200}", b"\x80"


def shutdowns() -> Records:
    yield from always("ShutdownBegan", encode_event(began()))


def ends_of_boots() -> Records:
    ended = d.LastBootEnded(boot_id="b", ending="abrupt", why="unrecorded", wave=-1, recorded=False)
    yield from always("LastBootEnded", encode_event(ended))


def an_endless_step() -> Records:
    yield from always("X", b"")


def a_wide_checkpoint() -> Records:
    """Small maps: three values each, and three hundred bytes in memory."""
    state = Raw(b"\x81\xa1a" + array(390_000, b"\x81\xa0\x80"))
    actors = [{"actor": "EpisodeActor", "subject": "", "state": state}]
    yield "Checkpoint", encode({"episode": 0, "actors": actors})


# --- of an outage

LOST = {"namespace": "n", "name": "p"}
LED = {"version": "1", "replica": "r", "node": "n", "node_uid": NODE_UID}


def numbered(tag: str, made: Callable[[int], object]) -> Records:
    number = 0
    while True:
        number += 1
        yield tag, encode(made(number))


def lost_pods() -> Records:
    yield from numbered("PodLost", lambda number: {"pod": LOST | {"uid": f"u{number}"}})


def finalizers_of_lost_pods() -> Records:
    number = 0
    while True:
        number += 1
        pod = with_list("finalizers", array(ITEMS, b"\xa2ab"), uid=f"u{number}", **LOST)
        yield "PodLost", b"\x81\xa3pod" + pod


def attachments() -> Records:
    yield from numbered("AttachmentLeft", lambda number: {"attachment": {"name": f"a{number}"}})


def waits_of_lost_pods() -> Records:
    """Few of each pod: their number is bounded."""
    for number in range(100_000):
        yield "PodLost", encode({"pod": LOST | {"uid": f"u{number}"}})
        for _ in range(200):
            yield "PodWaits", encode({"uid": f"u{number}", "reason": "r"})


def stages() -> Records:
    yield from numbered("OutageWaits", lambda number: {"reason": f"r{number}"})


def long_reasons() -> Records:
    yield from numbered("OutageWaits", lambda number: {"reason": f"{number}" + "x" * (1 << 20)})


def refusals() -> Records:
    yield from numbered("ProofRefused", lambda number: {"source": "ipmi", "name": "", "reason": f"{number}"})


def alarms() -> Records:
    yield from numbered("DetachForced", lambda number: {"name": f"a{number}", "volume": "v"})


def long_alarms() -> Records:
    yield from numbered("DetachForced", lambda number: {"name": "a", "volume": f"{number}" + "v" * (1 << 20)})


def orders() -> Records:
    yield from numbered("RequestPermit", lambda number: {"key": f"OutageActor/permit//{number}", "node": "n"})


def sources() -> Records:
    yield from numbered(
        "EvidenceRead",
        lambda number: {"source": "ipmi", "name": f"{number}", "verdict": "unknown", "begun_ns": 1},
    )


def boots() -> Records:
    yield from numbered(
        "NodeRead",
        lambda number: {"uid": "u", "boot_id": f"b{number}", "ready": "True", "resource_version": "1"},
    )


def leaders() -> Records:
    yield from numbered(
        "LeaderStarted",
        lambda number: {"version": "1", "replica": f"r{number}", "node": "n", "node_uid": "u"},
    )


def wide_leaders() -> Records:
    settings = {"resource": {f"k{number}": "v" for number in range(ITEMS)}}
    yield from always("LeaderStarted", encode(LED | {"settings": settings}))


def wide_lists_of_work() -> Records:
    listed = [LOST | {"uid": f"u{number}"} for number in range(ITEMS)]
    yield from always("WorkListed", encode({"key": "k", "pods": listed}))


def outages() -> Records:
    yield from always("OutageBegan", encode_event(OUTAGE))


OUTAGE = o.OutageBegan(node="node-1", node_uid=NODE_UID, boot_id="b", reason="r")
OUTAGE_BOMBS: dict[str, Callable[[], Records]] = {
    each.__name__: each
    for each in (
        *(
            lost_pods,
            finalizers_of_lost_pods,
            attachments,
            waits_of_lost_pods,
            stages,
            long_reasons,
            refusals,
        ),
        *(alarms, long_alarms, orders, sources, boots, leaders, wide_leaders, wide_lists_of_work, outages),
    )
}

BOMBS: dict[str, Callable[[], Records]] = OUTAGE_BOMBS | {
    each.__name__: each
    for each in (
        *(autopsy_lines, autopsy_processes, autopsies_of_one_pod, hooks_of_one_pod, containers_of_one_pod),
        *(pods, a_far_wave, notices, long_texts, unknown_types, shutdowns, ends_of_boots, an_endless_step),
        a_wide_checkpoint,
    )
}


def segment(name: str, size_bytes: int, node: str = "node-1") -> tuple[str, bytes]:
    """File name and bytes of a journal with this bomb, about so large."""
    journal_id = sha256(name.encode()).digest()[:JOURNAL_ID_BYTES]
    identity, first = IDENTITY._replace(node=node), cast(Event, began())
    if name in OUTAGE_BOMBS:
        identity, first = Identity(node, NODE_UID, "replica", VERSION, OUTAGE_LOGIC), OUTAGE
    header = encode_header(Header(journal_id, 1, 0, 0, False, Link(), identity))
    parts, size, link, seq = [header], len(header), header[-HASH_BYTES:], 0

    def add(tag: str, payload: bytes, episode: int, flags: int = FLAG_LAST) -> None:
        nonlocal size, link, seq
        seq += 1
        frame = _frame((seq, 0, seq, seq, episode, 0), flags, b"edge", tag.encode(), payload, link)
        parts.append(frame)
        size, link = size + len(frame), frame[-HASH_BYTES:]

    add(type(first).__name__, encode_event(first), 1)
    for tag, payload in BOMBS[name]():
        if size + len(payload) > size_bytes:
            break
        each_its_own = dict.fromkeys(("shutdowns", "outages"), seq + 1)
        episode = (each_its_own | {"ends_of_boots": 0, "a_wide_checkpoint": 0}).get(name, 1)
        add(tag, payload, episode, 0 if name == "an_endless_step" else FLAG_LAST)
    return segment_file_name(1, journal_id), b"".join(parts)


def packed(path: Path, name: str, size_bytes: int) -> Path:
    """As small as a reader takes it."""
    member, data = segment(name, size_bytes)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, "{}")
        archive.writestr(SEGMENTS_FOLDER + member, data)
    # Its own size bounds how much it unpacks to: noise makes it larger.
    lacking = len(data) * 105 // 100 // UNPACKED_PER_BYTE_MAX - path.stat().st_size
    if lacking > 0:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("noise", os.urandom(lacking))
    return path


class Measured(NamedTuple):
    code: int
    peak_mib: float
    out: str
    err: str


#: The machine survives a bomb that goes off.
SPACE_BYTES_MAX, CPU_SECONDS_MAX = 2 << 30, 120


def measured(*arguments: str | Path) -> Measured:
    """A command in a process of its own, with its peak of resident memory."""
    # Not RUSAGE_SELF: that counts the parent's memory before the exec, too.
    code = (
        "import resource, sys\n"
        "from ebbtide.cli.common.guard import guarded\n"
        "code = guarded(sys.argv[1:])\n"
        "sys.stdout.flush()\n"
        "own = int(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])\n"
        "print(max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_limit,
    )
    *lines, peak = done.stderr.splitlines() or [""]
    assert peak.isdecimal(), f"it ended with {done.returncode}: {done.stderr[-2000:]}"
    return Measured(done.returncode, int(peak) / 1024, done.stdout, "\n".join(lines))


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (SPACE_BYTES_MAX, SPACE_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX))

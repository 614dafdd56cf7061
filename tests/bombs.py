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
from typing import Any, NamedTuple

from msgspec import Raw
from msgspec.msgpack import encode

from ebbtide.events import decisions as d
from ebbtide.events.codec import FLAG_LAST, HASH_BYTES, _frame, encode_event
from ebbtide.events.pack import MANIFEST, SEGMENTS_FOLDER, UNPACKED_PER_BYTE_MAX
from ebbtide.events.segment import (
    JOURNAL_ID_BYTES,
    OUTAGE_LOGIC,
    Header,
    Link,
    encode_header,
    segment_file_name,
)
from tests.journals import IDENTITY, began

#: Of the lists in one record: near the reader's own limit.
ITEMS = 32_000

#: Tag and payload; the second word of the journal is its shutdown's begin.
Records = Iterator[tuple[str, bytes]]


def array(count: int, item: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + item * count


def with_list(name: str, items: bytes, **fields: Any) -> bytes:
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


def pods_of_an_outage() -> Records:
    number = 0
    while True:
        number += 1
        yield "PodLost", encode({"pod": {"uid": f"u{number}", "namespace": "n", "name": "p"}, "place": 0})


BOMBS: dict[str, Callable[[], Records]] = {
    each.__name__: each
    for each in (
        *(autopsy_lines, autopsy_processes, autopsies_of_one_pod, hooks_of_one_pod, containers_of_one_pod),
        *(pods, a_far_wave, notices, long_texts, unknown_types, shutdowns, ends_of_boots, an_endless_step),
        *(a_wide_checkpoint, pods_of_an_outage),
    )
}


def segment(name: str, size_bytes: int, node: str = "node-1") -> tuple[str, bytes]:
    """File name and bytes of a journal with this bomb, about so large."""
    journal_id = sha256(name.encode()).digest()[:JOURNAL_ID_BYTES]
    identity, begun = IDENTITY._replace(node=node), ("ShutdownBegan", encode_event(began()))
    if name == pods_of_an_outage.__name__:
        identity = identity._replace(logic=OUTAGE_LOGIC)
        begun = "OutageBegan", encode({"node": node, "node_uid": "u", "boot_id": "b", "reason": "r"})
    header = encode_header(Header(journal_id, 1, 0, 0, False, Link(), identity))
    parts, size, link, seq = [header], len(header), header[-HASH_BYTES:], 0

    def add(tag: str, payload: bytes, episode: int, flags: int = FLAG_LAST) -> None:
        nonlocal size, link, seq
        seq += 1
        frame = _frame((seq, 0, seq, seq, episode, 0), flags, b"edge", tag.encode(), payload, link)
        parts.append(frame)
        size, link = size + len(frame), frame[-HASH_BYTES:]

    add(*begun, 1)
    for tag, payload in BOMBS[name]():
        if size + len(payload) > size_bytes:
            break
        episode = {"shutdowns": seq + 1, "ends_of_boots": 0, "a_wide_checkpoint": 0}.get(name, 1)
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

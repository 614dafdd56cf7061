"""The fuzzed parsers, one row each. A new parser of outside input needs a row.

A row reads bytes like the program. Any error but its refusals is a finding, and so is excess time or memory.
Findings stay in ``tests/corpus/NAME``, which every test run reads again (`tests.fuzz.test_corpora`).
"""

from __future__ import annotations

import json
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from ebbtide.actors.edges.http_request import RequestFailed
from ebbtide.actors.edges.kubernetes.api_calls import Unanswered
from ebbtide.actors.edges.kubernetes.credentials import UnusableCredentials
from ebbtide.actors.system import take_checkpoint
from ebbtide.config import ConfigError
from ebbtide.events import codec, recovery, segment
from ebbtide.events.base import Stamp
from ebbtide.events.messages import Names
from ebbtide.events.pack import (
    MANIFEST,
    NotPacked,
    PackedSource,
    around_records,
    document_of,
    whole_journal,
    write_pack,
)
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.manifests import ManifestError
from ebbtide.recover import Unreadable, recover
from ebbtide.replay.divergence import explain
from ebbtide.replay.redact import Diverged, NoBegin, Pseudonyms, redact
from ebbtide.replay.verify import verify
from tests.fuzz import documents, node, sockets
from tests.journals import GOLDEN, IDENTITY, JOURNAL_ID, NEW, Journal, Memory

#: Per input: a hundred times the slowest valid one.
SECONDS_MAX = 5.0
#: The whole process in MiB, with interpreter and coverage tables.
MEMORY_MIB_MAX = 512
#: Small inputs break parsers too and run more often.
INPUT_BYTES_MAX = 16_384

#: In memory if possible: a packed journal is opened by path.
FAST_FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None

#: In a journal from one input.
SEGMENTS_MAX = 6

CORPUS = Path(__file__).parents[1] / "corpus"


class Target(NamedTuple):
    """A parser. ``seeds``: small valid inputs for the fuzzer's start."""

    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    seeds: Callable[[], Iterable[bytes]]

    def accepts(self, data: bytes) -> bool:
        """True if read, False if refused. Raises findings."""
        try:
            self.read(data)
        except self.refusals:
            return False
        return True


# --- a segment

NAME = segment.segment_file_name(1, JOURNAL_ID)


def with_valid_hashes(data: bytes, number: int = 1, link: segment.Link | None = None) -> bytes:
    """The segment with correct checksums, numbers, hashes and this link.

    Otherwise nearly every input ends at the first hash.
    """
    made = bytearray(data)
    length = int.from_bytes(made[12:16], "little")
    if (
        len(made) < segment.HEADER_PREFIX.size + codec.HASH_BYTES
        or not segment.HEADER_PREFIX.size + codec.HASH_BYTES <= length <= len(made)
    ):
        return bytes(made)
    made[:8] = segment.SEGMENT_MAGIC
    # Those of the file's name.
    made[24:48] = JOURNAL_ID + number.to_bytes(8, "little")
    if (
        link is not None
        and length >= segment.HEADER_PREFIX.size + segment.HEADER_FIXED.size + codec.HASH_BYTES
    ):
        _LINK.pack_into(made, 72, *link)
    _seal(made, 0, length, b"")
    pos, seq = length, int.from_bytes(made[88:96], "little")
    carries = any(made[64:72]) and length >= segment.HEADER_PREFIX.size + segment.HEADER_FIXED.size
    before = made[96:128] if carries else made[length - codec.HASH_BYTES : length]
    while pos + codec.FRAME_BYTES_MIN <= len(made):
        head = list(codec.FRAME_HEAD.unpack_from(made, pos))
        length = head[2] if codec.FRAME_BYTES_MIN <= head[2] <= len(made) - pos else len(made) - pos
        # Trailers and boundaries repeat the number.
        seq = seq + 1 if head[9] < 2 else seq
        head[0], head[2] = int.from_bytes(codec.FRAME_MAGIC_BYTES, "little"), length
        head[3] = seq % (1 << 64)
        codec.FRAME_HEAD.pack_into(made, pos, *head)
        made[pos + 4 : pos + 8] = zlib.crc32(made[pos + 8 : pos + length - codec.HASH_BYTES]).to_bytes(
            4, "little"
        )
        _seal(made, pos, length, bytes(before))
        pos += length
        before = made[pos - codec.HASH_BYTES : pos]
    return bytes(made)


#: A header's link: segment, offset, record, hash.
_LINK = struct.Struct("<QQQ32s")


def linked(data: bytes) -> dict[str, bytes]:
    """Segments after their lengths (2 bytes), each linked to its predecessor; by name.

    A header with a non-zero spare field keeps its own link.
    """
    files: dict[str, bytes] = {}
    link = segment.Link()
    while len(data) > 2 and len(files) < SEGMENTS_MAX:
        length = int.from_bytes(data[:2], "little")
        piece, data = data[2 : 2 + length], data[2 + length :]
        number = len(files) + 1
        name = segment.segment_file_name(number, JOURNAL_ID)
        files[name] = made = with_valid_hashes(piece, number, None if piece[10:12] != bytes(2) else link)
        seqs = [raw.seq for raw in History([Memory({name: made})]).raw()]
        link = segment.Link(number, len(made), seqs[-1] if seqs else link.seq, made[-codec.HASH_BYTES :])
    return files


def _seal(made: bytearray, pos: int, length: int, before: bytes) -> None:
    end = pos + length
    made[end - codec.HASH_BYTES : end] = sha256(before + made[pos : end - codec.HASH_BYTES]).digest()


def _segment(data: bytes) -> None:
    """As it is, and with correct hashes: a verdict, and records or refusals."""
    for each in (data, with_valid_hashes(data)):
        history = History([Memory({NAME: each})])
        history.read()
        str(history.verdict.banner)
        history.verdict.start(JOURNAL_ID)
        for raw in history.raw():
            codec.plain_payload(raw.payload)


def _journal(data: bytes) -> None:
    """Several segments: the valid ones, and their pack."""
    source = Memory(linked(data))
    begun_late = History([source], from_checkpoint=True)
    begun_late.read()
    for raw in begun_late.earlier(INPUT_BYTES_MAX):
        codec.plain_payload(raw.payload)
    history = History([source])
    verdict = history.read()
    str(verdict.banner)
    parts = [whole_journal(history)]
    if 0 < verdict.first_seq <= verdict.end.seq:  # as of a shutdown, which has records
        parts.append(around_records(history, verdict.first_seq, verdict.end.seq))
    for part in parts:
        found = History([part]).read()
        # A copy's verdict is never better than the original's.
        assert recovery.SEVERITY.index(found.state) >= recovery.SEVERITY.index(verdict.state)
        recovery.findings_from_documents(recovery.findings_to_documents(found.findings))


def _journals() -> Iterator[bytes]:
    """Two golden segments, three, and one that carries another's records."""
    first, second = (path.read_bytes() for path in sorted((GOLDEN / "journal-v1" / "main").glob("*.ebj"))[:2])
    carrying = next((GOLDEN / "journal-v1" / "fallback").glob("*.ebj")).read_bytes()
    for pieces in ((first, second), (first, second, second), (first, second, carrying), (carrying, first)):
        yield b"".join(len(piece).to_bytes(2, "little") + piece for piece in pieces)


def _replay(data: bytes) -> None:
    """Records executed, and the first difference explained."""
    source = Memory({NAME: with_valid_hashes(data)})
    found = verify(History([source], logics=segment.LOGICS))
    if found.divergence is not None:
        explain(History([source], logics=segment.LOGICS), found.divergence, "0")


def _recover(data: bytes) -> None:
    """A daemon's start."""
    source = Memory({NAME: with_valid_hashes(data)})
    header = History([source]).read().header
    recovered = recover([source], header.identity.machine_id if header else "", JOURNAL_ID)
    codec.encode_event(take_checkpoint(recovered.system))


def _redact(data: bytes) -> None:
    """The same journal without names."""
    history = History([Memory({NAME: with_valid_hashes(data)})], logics=segment.LOGICS)
    for _ in redact(history, Pseudonyms()):
        pass


def _tell(data: bytes) -> None:
    """A shutdown's record, and each record's sentence."""
    source = Memory({NAME: with_valid_hashes(data)})
    for account in shutdown_records(History([source])):
        repr(account)
    names = Names()
    for raw in History([source]).raw():
        codec.learn_record(names, raw)
        try:
            record = codec.decode_record(raw)
        except (codec.UnknownType, codec.BadPayload):
            continue
        record.event.describe(names, Stamp(record.mono_ns, record.wall_ns))


def _segments() -> Iterator[bytes]:
    """Small parts of golden journals: a short start of each segment, and a longer one."""
    for folder in ("shutdown-v1", "cancelled-v1", "node-v1/api"):
        for path in sorted((GOLDEN / folder).glob("*.ebj"))[:6]:
            data = path.read_bytes()
            ends = [0, *_frame_ends(data)]
            for bytes_max in (INPUT_BYTES_MAX // 4, INPUT_BYTES_MAX):
                yield data[: max(end for end in ends if end <= bytes_max)]


def _frame_ends(data: bytes) -> Iterator[int]:
    pos = int.from_bytes(data[12:16], "little")
    while pos + codec.FRAME_BYTES_MIN <= len(data):
        pos += codec.FRAME_HEAD.unpack_from(data, pos)[2]
        yield pos


# --- a packed journal


def _pack(data: bytes) -> None:
    """Open, list, read to the end, and repeat the manifest."""
    with tempfile.NamedTemporaryFile(dir=FAST_FOLDER, suffix=".zip") as file:
        file.write(data)
        file.flush()
        source = PackedSource(file.name)
        try:
            history = History([source])
            history.read()
            str(history.verdict.banner)
        finally:
            source.close()


def _packs() -> Iterator[bytes]:
    files = Journal(IDENTITY, NEW).begin(Stamp(5, 7)).seal().files
    finding = recovery.Finding(recovery.Case(damage="record"), NAME, 300, 4, "a frame's checksum is wrong")
    for findings in ((), (finding,)):
        made = BytesIO()
        write_pack(
            made,
            {"kind": "PackedJournal", "findings": recovery.findings_to_documents(findings)},
            files.items(),
        )
        yield made.getvalue()


def _manifest(data: bytes) -> None:
    """A manifest's statements about the original."""
    found = recovery.findings_from_documents(document_of(data).get("findings", ()))
    for finding in found:
        str(finding)
    json.dumps(recovery.findings_to_documents(found))


def _manifests() -> Iterator[bytes]:
    for pack in _packs():
        with zipfile.ZipFile(BytesIO(pack)) as archive:
            yield archive.read(MANIFEST)


# --- the table

TARGETS: dict[str, Target] = {
    # Any file has a history and a verdict, without an error.
    "segment": Target(_segment, (), _segments),
    "journal": Target(_journal, (), _journals),
    "replay": Target(_replay, (codec.UnknownType, codec.BadPayload), _segments),
    "recover": Target(_recover, (Unreadable, recovery.ForeignJournal), _segments),
    "redact": Target(_redact, (Diverged, NoBegin, codec.UnknownType, codec.BadPayload), _segments),
    "tell": Target(_tell, (), _segments),
    "pack": Target(_pack, (NotPacked, OSError), _packs),
    "manifest": Target(_manifest, (ValueError,), _manifests),
    "config": Target(documents.config, (ConfigError,), documents.of_corpus("config")),
    "manifests": Target(documents.manifests, (ManifestError,), documents.of_corpus("manifests")),
    "kubeconfig": Target(documents.kubeconfig, (UnusableCredentials,), documents.kubeconfigs),
    "pod-list": Target(documents.pod_list, (Unanswered,), documents.pod_lists),
    "annotations": Target(documents.annotations, (), documents.annotation_texts),
    "image-state": Target(documents.runtime_states, (), documents.image_states),
    "cri": Target(node.cri, (), node.cri_answers),
    "api-objects": Target(node.api_objects, (), node.api_object_lines),
    "hook-answer": Target(documents.hook_answer, (RequestFailed,), documents.hook_answers),
    "answers": Target(documents.answers, (), documents.answer_messages),
    "bus": Target(sockets.bus, (), sockets.bus_messages),
    "control": Target(sockets.control_request, (), sockets.control_requests),
    "scrape": Target(sockets.scrape, (), sockets.scrapes),
}


def kept_inputs(name: str) -> list[Path]:
    """A target's corpus."""
    return sorted((CORPUS / name).iterdir()) if (CORPUS / name).is_dir() else []

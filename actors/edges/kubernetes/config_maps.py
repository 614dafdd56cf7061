"""An outage's journal in the API server, as numbered, immutable ConfigMaps (docs/outage.md, How it works).

Each write creates one object, a *piece*: the next bytes of a segment. Numbers run over the whole journal. Of
two leaders one creates the next number; the other is *fenced*. The content shows whether a taken number is
our own.

Retention frees numbers. A leader that was paused meanwhile could create a freed number, which no reader would
see. Retention removes the oldest pieces first, so the sync after a create looks for the piece before it: if
that exists, no later number was removed. Each piece also names the journal's first piece, and readers ignore
all below. Retention writes such a piece before it removes others.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import math
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import count
from typing import NamedTuple, TypeVar, TypeVarTuple, Unpack
from urllib.parse import quote

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import StoredFile
from ebbtide.events.disk import Waits
from ebbtide.events.segment import DamagedHeader, IncompatibleHeader, parse_header, parse_segment_file_name
from ebbtide.events.units import size_text

PREFIX = "ebbtide-outage"
NODE_LABEL, SEGMENT_LABEL, NUMBER_LABEL = "ebbtide.dev/node-uid", "ebbtide.dev/segment", "ebbtide.dev/number"
#: On a journal's last piece, without an open outage: the next leader need not open it.
REST_LABEL = "ebbtide.dev/at-rest"
OFFSET_ANNOTATION, WRITER_ANNOTATION = "ebbtide.dev/offset", "ebbtide.dev/writer"
FIRST_ANNOTATION, NODE_ANNOTATION = "ebbtide.dev/first", "ebbtide.dev/node"
AFTER_ANNOTATION, HASH_ANNOTATION = "ebbtide.dev/after", "ebbtide.dev/hash"
#: For the list of all journals, which may be large.
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PART_METADATA = 500
PART_OF_ALL = 250
#: In one selector: a UID has 36 characters, a URL a few KiB.
NAMED_MAX = 100
#: A Node's UID.
_UID = re.compile(r"[0-9a-z](?:[0-9a-z-]{0,61}[0-9a-z])?")
_DIGITS, _NUMBER = re.compile("[0-9]{1,17}"), re.compile("[0-9]{10}")
_NODE = re.compile(r"[0-9a-z][0-9a-z.-]{0,252}")

#: A ConfigMap may hold 1 MiB, and etcd is quick with small ones.
PIECE_BYTES_MAX = 512 * 1024
#: A piece behind a larger hole does not count.
HOLE_BYTES_MAX = 1024 * 1024
#: Of one journal in memory. A week's outage takes 1 MiB.
JOURNAL_BYTES_MAX = 32 * 1024 * 1024
#: Even a small one takes a kilobyte.
PIECES_MAX, PIECE_BYTES = 32_768, 1024
#: Higher ones are forged (20 a second take 14 years). Behind one a leader would have no number left.
NUMBER_MAX = 9 * 10**9
#: Most outages fit one answer.
PART_PIECES = 100
#: While the API server is away: a hundred journals may wait.
AGAIN_SECONDS_MAX = 5.0
#: A server's restart behind a load balancer takes less. People see a block within 15 s.
BLOCKED_SECONDS = 4.0
#: An admission webhook may take 30 s; the end of our request would cancel it.
PATIENCE_SECONDS_MAX = 35.0
GOES_ON = "another leader goes on with this journal"
REMOVED = "another leader has gone on with this journal, and has removed its oldest part"
NO_ANSWER = "no answer in time"
#: After any other answer the request is repeated.
FINAL = {"POST": (api.HTTP_CONFLICT,), "GET": (api.HTTP_NOT_FOUND, api.HTTP_GONE)}
CHANGED = "a mutating webhook changes the journal's objects"
#: No Node has it.
DRY_RUN_UID = "00000000-0000-0000-0000-000000000000"

#: While no task waits, one check of the fence covers this time.
UNSYNCED_SECONDS = 30.0
#: Writes without a waiting task gather: a hundred quiet outages stay within their rate. A leader that dies
#: loses so much.
GATHER_SECONDS = 2.0

#: Its own threads: the shared ones may hang with a name server or a disk.
READING = trio.CapacityLimiter(4)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Fenced(OSError):
    """Another leader goes on with this journal."""


class TooLarge(OSError):
    """No reader holds this journal in memory."""


class Piece(NamedTuple):
    """``segment``: a file name, or empty. ``first``: the journal's first piece at that time. ``after``: the
    hash of the piece before. ``number`` 0: a foreign name.
    """

    number: int
    first: int
    uid: str
    segment: str
    offset: int
    data: bytes
    writer: str
    modified_ns: int
    after: str = ""
    hash: str = ""
    node_uid: str = DRY_RUN_UID
    node: str = ""
    at_rest: bool = False

    def hashed(self) -> Piece:
        words = f"{self.number} {self.first} {self.after} {self.segment} {self.offset} ".encode()
        return self._replace(hash=hashlib.sha256(words + self.data).hexdigest())

    def continues(self, hash_before: str) -> bool:
        """Does another leader go on behind this hash?"""
        try:
            return self.after == hash_before and bool(self.offset or parse_header(self.data))
        except IncompatibleHeader:
            return True
        except DamagedHeader:
            return False


def chains_of(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """``pieces`` by number: the first that continues a chain counts."""
    chains: list[list[Piece]] = []
    tips: dict[str, list[Piece]] = {}
    seen: set[str] = set()
    for piece in pieces:
        if piece.hash in seen or piece.number > NUMBER_MAX:
            continue
        seen.add(piece.hash)
        if (chain := tips.pop(piece.after, None)) is None:
            chains.append(chain := [])
        chain.append(piece)
        tips[piece.hash] = chain
    return chains


def chain_of(pieces: Iterable[Piece]) -> list[Piece]:
    """The oldest chain. Within a second the one that retention has shortened, else the first."""
    return min(chains_of(pieces), key=lambda chain: (chain[0].modified_ns, -chain[-1].first), default=[])


class Pieces:
    """One journal's objects, added in the order of their numbers."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        #: The last piece without data in memory.
        self._left_out = 0
        self.found: list[Piece] = []
        self._bytes = 0

    def add(self, piece: Piece) -> None:
        self.numbers.add(piece.number)
        if piece.segment:
            self.found.append(piece)
            self._bytes += len(piece.data)
        if self._bytes > JOURNAL_BYTES_MAX or len(self.found) > PIECES_MAX:
            # Without foreign objects.
            self.found = self.chain()
            self._bytes = sum(len(each.data) for each in self.found)
            if self._bytes > JOURNAL_BYTES_MAX // 2 or len(self.found) > PIECES_MAX // 2:
                self._left_out = self.found[-1].number
                self.found = [each._replace(data=b"") for each in self.found[-PIECES_MAX // 2 :]]
                self._bytes = 0

    def chain(self) -> list[Piece]:
        chain = chain_of(self.found)
        return [each for each in chain if each.number >= chain[-1].first]

    @property
    def is_too_large(self) -> bool:
        return any(each.number <= self._left_out for each in self.chain())

    def free_after(self, number: int) -> int:
        return next(each for each in count(number + 1) if each not in self.numbers)

    def whole(self) -> list[Piece]:
        """The chain, and the pieces behind a missing number: they show that a piece was deleted."""
        chain = self.chain()
        if not chain:
            return []
        last = chain[-1]
        gap, end = self.free_after(last.number), last.offset + len(last.data)
        for piece in self.found:
            # Without a gap in the bytes no piece is missing: this is another client's.
            follows = piece.number > gap and piece.segment == last.segment
            if follows and end < piece.offset <= end + HOLE_BYTES_MAX:
                chain.append(piece)
        return chain


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: api.ObjectMeta
    binary_data: dict[str, bytes] = {}


_decoder = msgspec.json.Decoder(_ConfigMap)
_part_decoder = msgspec.json.Decoder(api.ListPart[_ConfigMap])


def _piece_of(found: _ConfigMap) -> Piece:
    """A foreign object takes its number, and has no data."""
    meta, names = found.metadata, list(found.binary_data)
    digits, node = meta.name.rpartition("-")[2], meta.annotations.get(NODE_ANNOTATION, "")
    offset, first = (meta.annotations.get(each, "") for each in (OFFSET_ANNOTATION, FIRST_ANNOTATION))
    numbered = _DIGITS.fullmatch(offset) and _DIGITS.fullmatch(first)
    is_ours = numbered and len(names) == 1 and parse_segment_file_name(names[0])
    segment = names[0] if is_ours else ""
    number = int(digits) if _NUMBER.fullmatch(digits) else 0
    if meta.name != _name_of(meta.labels.get(NODE_LABEL, ""), number):
        number, segment = 0, ""
    try:
        modified_ns = int(datetime.fromisoformat(meta.creation_timestamp).timestamp()) * NS_PER_SECOND
    except (ValueError, OverflowError):
        modified_ns = 0
    piece = Piece(
        number=number,
        first=min(int(first), number) if numbered else 0,
        uid=meta.uid,
        segment=segment,
        offset=int(offset) if segment else 0,
        data=found.binary_data[segment] if segment else b"",
        writer=meta.annotations.get(WRITER_ANNOTATION, ""),
        modified_ns=modified_ns,
        after=meta.annotations.get(AFTER_ANNOTATION, ""),
        hash=meta.annotations.get(HASH_ANNOTATION, ""),
        node_uid=meta.labels.get(NODE_LABEL, ""),
        node=node if _NODE.fullmatch(node) else "",
        at_rest=REST_LABEL in meta.labels,
    )
    if not segment or (made := piece.hashed()).hash == piece.hash:
        return piece
    return piece._replace(segment="", first=0, offset=0, data=b"", after="", hash=made.hash)


def _location(namespace: str, node_uid: str) -> str:
    return f"configmaps {namespace}/{PREFIX}-{node_uid}"


def maps_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"


class ConfigMapSource:
    """`events.catalog.Source` over pieces."""

    def __init__(self, location: str) -> None:
        self.location = location
        #: By name: offsets and data, and the last piece's time.
        self._files: dict[str, tuple[list[tuple[int, bytes]], int]] | None = None
        self._is_too_large = False

    @property
    def loaded(self) -> bool:
        return self._files is not None

    def load(self, pieces: Pieces, first: int = 1) -> None:
        files: dict[str, tuple[list[tuple[int, bytes]], int]] = {}
        for piece in pieces.whole():
            parts = files.get(piece.segment, ([], 0))[0]
            # The pieces behind show that missing bytes were durable.
            if piece.number >= first and piece.offset >= _end_of(parts):
                parts.append((piece.offset, piece.data))
                files[piece.segment] = parts, piece.modified_ns
        self._files, self._is_too_large = files, pieces.is_too_large

    def forget(self) -> None:
        self._files, self._is_too_large = None, False

    def files(self) -> list[StoredFile]:
        files = self._there()
        return sorted(StoredFile(name, _end_of(parts), ns) for name, (parts, ns) in files.items())

    def read(self, name: str, offset: int, size: int) -> bytes:
        if name not in self._there():
            raise FileNotFoundError(errno.ENOENT, "no such segment", name)
        parts = self._there()[name][0]
        read = bytearray(max(0, min(offset + size, _end_of(parts)) - offset))
        for at, data in parts:
            if at < offset + len(read) and at + len(data) > offset:
                part = data[max(0, offset - at) : offset + len(read) - at]
                start = max(0, at - offset)
                read[start : start + len(part)] = part
        return bytes(read)

    def _there(self) -> dict[str, tuple[list[tuple[int, bytes]], int]]:
        # Unread is not empty: a writer would begin an empty journal anew.
        if self._is_too_large:
            text = f"the journal has more than {size_text(JOURNAL_BYTES_MAX // 2)}"
            raise TooLarge(errno.EFBIG, text, self.location)
        if self._files is None:
            raise OSError(errno.EAGAIN, "the journal has not been read from the API server", self.location)
        return self._files


def _end_of(parts: list[tuple[int, bytes]]) -> int:
    return parts[-1][0] + len(parts[-1][1]) if parts else 0


def _object_of(piece: Piece) -> api.JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _name_of(piece.node_uid, piece.number),
            "labels": {
                NODE_LABEL: piece.node_uid,
                SEGMENT_LABEL: piece.segment.partition("-")[0],
                NUMBER_LABEL: f"{piece.number:010d}",
                **({REST_LABEL: "true"} if piece.at_rest else {}),
            },
            "annotations": {
                OFFSET_ANNOTATION: str(piece.offset),
                FIRST_ANNOTATION: str(piece.first),
                WRITER_ANNOTATION: piece.writer,
                AFTER_ANNOTATION: piece.after,
                HASH_ANNOTATION: piece.hash,
                **({NODE_ANNOTATION: piece.node} if piece.node else {}),
            },
        },
        "immutable": True,
        "binaryData": {piece.segment: base64.b64encode(piece.data).decode()},
    }


def _name_of(node_uid: str, number: int) -> str:
    return f"{PREFIX}-{node_uid}-{number:010d}"


def _decoded(answer: api.Answer) -> Piece:
    try:
        return _piece_of(_decoder.decode(answer.body))
    except (ValueError, RecursionError) as error:
        raise OSError(errno.EIO, f"the journal cannot be read: {error}") from None


async def try_create(caller: api.ApiCaller, namespace: str) -> api.Answer:
    """Create a piece as a dry run: rights, quotas, webhooks and policies decide. Raises Unanswered."""
    piece = Piece(1, 1, "", "dry-run", 0, b"", "dry-run", 0)
    path = f"{maps_path(namespace)}?dryRun=All"
    call = api.ApiCall(caller, BLOCKED_SECONDS, "")
    return await call.once("POST", path, _object_of(piece))


class ConfigMapFile:
    """Useless once fenced."""

    def __init__(self, storage: ConfigMapStorage, name: str) -> None:
        self._storage, self._name, self._offset = storage, name, 0

    async def write(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES_MAX):
            part = data[at : at + PIECE_BYTES_MAX]
            await self._storage.append(self._name, self._offset, part)
            self._offset += len(part)

    async def sync(self) -> None:
        await self._storage.confirm()

    async def watch(self) -> None:
        """No-op."""

    async def close(self) -> None:
        """No-op."""


class ConfigMapStorage:
    """`events.disk.Storage` of one Node's journal. ``writer``: unique to this process. ``node``: for people.
    Raises ValueError for a UID that fits no name.
    """

    #: No bound: an action needs a record that another leader can read.
    waits = Waits(math.inf, math.inf, UNSYNCED_SECONDS, GATHER_SECONDS)

    def __init__(
        self, caller: api.ApiCaller, namespace: str, node_uid: str, writer: str, node: str = ""
    ) -> None:
        if not _UID.fullmatch(node_uid):
            raise ValueError(f"no UID of a Node that a ConfigMap could be named after: {node_uid!r}")
        self._caller, self._writer = caller, writer
        self._namespace, self._node_uid, self._node = namespace, node_uid, node
        #: The next writes end a journal without an open outage.
        self.at_rest = False
        self.fenced = False
        self._path = maps_path(namespace)
        self.location = _location(namespace, node_uid)
        self.source = ConfigMapSource(self.location)
        #: By number, without data; also pieces that wait for their deletion.
        self._index: dict[int, Piece] = {}
        #: As objects, by number, from the journal's first piece on; and their sum.
        self._sizes: dict[int, int] = {}
        self._bytes = 0
        #: 0 before the journal was read.
        self._next = 0
        self._last = self._proved = (0, "")
        #: The last piece's.
        self._hash = ""
        #: The journal's first piece, for this writer and in the newest piece.
        self._first = self._said_first = 1
        self._confirming = trio.Lock()
        #: When each waiting request began; the last failure; how long the next try may take.
        self._waits_since = list[float]()
        self._problem, self._patience_seconds = "", 0.0

    async def acquire(self, program: str) -> None:
        """Read the journal. The first create decides between two writers."""
        if self._next:
            return
        read = await self._read()
        chain = read.chain()
        self._index = {each.number: each._replace(data=b"") for each in chain_of(read.found)}
        self._sizes = {each.number: len(each.data) + PIECE_BYTES for each in chain}
        if chain:
            self._last = self._proved = (chain[-1].number, chain[-1].uid)
            self._said_first = chain[-1].first
            self._hash = chain[-1].hash
        self._begin_at(self._said_first)
        self._next = read.free_after(self._last[0])
        self.source.load(read, self._first)

    def begin_anew(self) -> None:
        """The next piece is the journal's first."""
        self._begin_at(self._next)
        self.source.load(Pieces())

    def _begin_at(self, first: int) -> None:
        self._first = first
        self._sizes = {number: size for number, size in self._sizes.items() if number >= first}
        self._bytes = sum(self._sizes.values())

    async def release(self) -> None:
        """No lock is held."""

    async def create(self, name: str) -> ConfigMapFile:
        """The first write creates it."""
        if any(each.segment == name for each in self._index.values()):
            raise FileExistsError(errno.EEXIST, "a segment of that name is there", name)
        # As large as the whole outage.
        self.source.forget()
        return ConfigMapFile(self, name)

    async def sync_file(self, name: str) -> None:
        """No-op: creates are durable."""

    async def put(self, name: str, data: bytes) -> None:
        raise OSError(errno.ENOTSUP, "only a journal is kept here, and it is only appended to")

    async def set_reserve(self, size_bytes: int) -> None:
        """The API server cannot reserve space."""

    async def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Holds the pieces in memory meanwhile."""
        read = not self.source.loaded
        if read:
            self.source.load(await self._read(), self._first)
        try:
            return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=True, limiter=READING)
        finally:
            if read:
                self.source.forget()

    async def append(self, segment: str, offset: int, data: bytes) -> None:
        """Raises Fenced, OSError."""
        first = self._first
        piece = Piece(self._next, first, "", segment, offset, data, self._writer, 0, self._hash)
        piece = piece._replace(node_uid=self._node_uid, node=self._node, at_rest=self.at_rest).hashed()
        with self._waiting():
            while True:
                answer = await self._ask("POST", self._path, _object_of(piece))
                # Ours (the answer was lost), another leader's, or a conflict such as the quota's.
                found = _decoded(answer) if answer.ok else await self._get(piece.number)
                if found is None:
                    self._problem = api.answer_text(answer)
                    await trio.sleep(AGAIN_SECONDS_MAX)
                elif (found.hash, found.writer) == (piece.hash, self._writer):
                    break
                elif answer.ok:
                    raise OSError(errno.EIO, CHANGED)
                elif found.continues(self._hash):
                    raise self._fence(f"{GOES_ON}: {found.writer or 'unnamed'}")
                elif found.segment and not await self._stands():
                    raise self._fence(REMOVED)
                else:
                    # Another client's object. A leader may go on behind it.
                    read = await self._read()
                    if any(each.continues(self._hash) for each in read.chain()):
                        raise self._fence(GOES_ON)
                    piece = piece._replace(number=read.free_after(piece.number)).hashed()
        self._next, self._last, self._said_first = piece.number + 1, (piece.number, found.uid), first
        self._hash, self._index[piece.number] = piece.hash, found._replace(data=b"")
        self._sizes[piece.number] = len(data) + PIECE_BYTES
        self._bytes += len(data) + PIECE_BYTES

    async def confirm(self) -> None:
        """Afterwards the next leader will read all that was appended. Raises Fenced, OSError."""
        async with self._confirming:
            last = self._last
            if last == self._proved:
                return
            if not await self._stands():
                raise self._fence(REMOVED)
            self._proved = last

    async def _stands(self) -> bool:
        """Was no number removed behind the last proved piece?"""
        number, uid = self._proved
        if number:
            found = await self._get(number)
            return found is not None and found.uid == uid
        # The journal was empty: the last piece has to be in its chain.
        return self._last[1] in ("", *(each.uid for each in (await self._read()).chain()))

    def _fence(self, what: str) -> Fenced:
        self.fenced = True
        return Fenced(errno.EBUSY, what)

    async def remove(self, name: str) -> None:
        """The next piece excludes it from the journal; a later removal deletes its objects."""
        await self.confirm()
        newest = max((number for number, each in self._index.items() if each.segment == name), default=0)
        if newest >= self._proved[0]:
            raise OSError(errno.EBUSY, "the journal's last segment stays", name)
        self._begin_at(max(self._first, newest + 1))
        await self.delete_excluded()

    async def delete_excluded(self) -> None:
        """Raises OSError."""
        for number in sorted(each for each in self._index if each < self._said_first):
            ours = {"preconditions": {"uid": self._index[number].uid}}
            call = api.ApiCall(self._caller, bounds.now.api_unhurried_seconds, "")
            try:
                answer = await call.until_answered("DELETE", self._path_of(number), ours)
            except api.Unanswered as error:
                raise OSError(errno.EIO, str(error)) from None
            if not answer.ok and answer.code not in (api.HTTP_NOT_FOUND, api.HTTP_CONFLICT):
                raise OSError(errno.EIO, api.answer_text(answer))
            del self._index[number]

    def _path_of(self, number: int) -> str:
        return f"{self._path}/{_name_of(self._node_uid, number)}"

    async def _get(self, number: int) -> Piece | None:
        answer = await self._ask("GET", self._path_of(number))
        return _decoded(answer) if answer.ok else None

    async def _read(self) -> Pieces:
        """All pieces at one moment."""
        ask = partial(self._ask, "GET")
        while True:
            found = Pieces()
            with suppress(_Expired):
                await _list_pieces(
                    ask, self._namespace, f"{NODE_LABEL}={self._node_uid}", found.add, PART_PIECES
                )
                return found

    @property
    def fill(self) -> float:
        """Above 1 the journal begins anew: a kubelet can cause records without an end."""
        return self._bytes / JOURNAL_BYTES_MAX

    @property
    def blocked(self) -> str:
        """Why a request has waited for `BLOCKED_SECONDS`, or empty."""
        since = min(self._waits_since, default=math.inf)
        return self._problem or NO_ANSWER if since <= trio.current_time() - BLOCKED_SECONDS else ""

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        since = trio.current_time()
        self._waits_since.append(since)
        try:
            yield
        finally:
            self._waits_since.remove(since)
            self._problem = self._problem if self._waits_since else ""

    async def _ask(self, method: str, path: str, body: object = None) -> api.Answer:
        """Repeat for ever: a person may restore a right or a quota."""
        again, is_read = api.AGAIN_SECONDS, method == "GET"
        with self._waiting():
            while True:
                asked, pause, patience = trio.current_time(), again, bounds.now.api_try_seconds
                patience = patience if is_read else max(patience, self._patience_seconds)
                call = api.ApiCall(self._caller, math.inf, "")
                try:
                    answer = await call.once(method, path, body, seconds_max=patience)
                    if answer.ok or answer.code in FINAL[method]:
                        if not is_read and trio.current_time() - asked < bounds.now.api_try_seconds:
                            self._patience_seconds = 0.0
                        return answer
                    self._problem = (
                        f"{api.answer_text(answer)} to {method} of ConfigMaps in {self._namespace}"
                    )
                    pause = answer.retry_after_seconds or again
                except api.AnswerTooLong:
                    raise
                except api.Unanswered as error:
                    self._problem = NO_ANSWER if error.sent else str(error)
                    if error.sent and not is_read:
                        self._patience_seconds = min(2 * patience, PATIENCE_SECONDS_MAX)
                await trio.sleep(pause)
                again = min(again * 2, AGAIN_SECONDS_MAX)


class StoredJournal(NamedTuple):
    node_uid: str
    node: str
    at_rest: bool


async def list_journals(caller: api.ApiCaller, namespace: str) -> list[StoredJournal]:
    """From metadata alone. Raises OSError."""
    found: dict[str, list[Piece]] = {}

    def take(piece: Piece) -> None:
        if 0 < piece.number <= NUMBER_MAX and _UID.fullmatch(piece.node_uid):
            found.setdefault(piece.node_uid, []).append(piece)

    ask = partial(caller.call, "GET", seconds_max=bounds.now.api_try_seconds, accept=METADATA_LIST)
    await _list_pieces(ask, namespace, NODE_LABEL, take, PART_METADATA)
    return [
        # Metadata does not prove a hash: each chain has to be at rest.
        StoredJournal(uid, chain_of(pieces)[-1].node, all(each[-1].at_rest for each in chains_of(pieces)))
        for uid, pieces in sorted(found.items())
    ]


async def read_journals(
    caller: api.ApiCaller,
    namespace: str,
    wanted: Collection[str],
    take: Callable[[str, ConfigMapSource], None],
) -> None:
    """One list: for each the server looks through all pieces. ``take`` gets a journal with its Node's UID.
    Raises OSError, also in the middle.
    """
    node_uid, pieces = "", Pieces()

    def end() -> None:
        source = ConfigMapSource(_location(namespace, node_uid))
        source.load(pieces)
        if pieces.numbers and node_uid in wanted:
            take(node_uid, source)

    def take_piece(piece: Piece) -> None:
        nonlocal node_uid, pieces
        # A made-up UID may sort into the middle of a journal.
        if not piece.number or piece.node_uid.startswith(f"{node_uid}-"):
            return
        if piece.node_uid != node_uid:
            end()
            node_uid, pieces = piece.node_uid, Pieces()
        pieces.add(piece)

    few = len(wanted) <= NAMED_MAX
    selector = f"{NODE_LABEL} in ({','.join(sorted(wanted))})" if few else NODE_LABEL
    ask = partial(caller.call, "GET", seconds_max=bounds.now.api_try_seconds)
    await _list_pieces(ask, namespace, selector, take_piece, PART_OF_ALL)
    end()


async def _list_pieces(
    ask: Callable[[str], Awaitable[api.Answer]],
    namespace: str,
    selector: str,
    take: Callable[[Piece], None],
    limit: int,
) -> None:
    """In the order of their names."""

    async def answered(path: str) -> api.Answer:
        answer = await ask(path)
        if not answer.ok:
            kind = _Expired if answer.code == api.HTTP_GONE else OSError
            raise kind(errno.EIO, f"the journals cannot be read: {api.answer_text(answer)}")
        return answer

    def take_part(part: Sequence[_ConfigMap]) -> None:
        for each in part:
            take(_piece_of(each))

    path = partial(api.listed_path, maps_path(namespace), labelSelector=selector)
    try:
        await api.take_parts(answered, path, _part_decoder, take_part, limit)
    except api.Unanswered as error:
        raise OSError(errno.EIO, f"the journals cannot be read: {error}") from None


async def read_journal(caller: api.ApiCaller, namespace: str, node: str) -> ConfigMapSource:
    """``node``: UID or name. Raises LookupError, with the known journals, and OSError."""
    journals = await list_journals(caller, namespace)
    found = [each for each in journals if node in (each.node_uid, each.node)]
    if len(found) != 1:
        # A recreated Node has the same name and another UID.
        several = [f"{each.node or 'unnamed'} ({each.node_uid})" for each in found or journals]
        what = "several journals are of" if found else "no journal is of"
        there = f": there are those of {', '.join(several)}" if several else ""
        raise LookupError(f"{what} Node {node!r} in namespace {namespace}{there}")
    storage = ConfigMapStorage(caller, namespace, found[0].node_uid, "")
    await storage.acquire("")
    return storage.source


class _Expired(OSError):
    """The server has forgotten the list's begin."""

"""An outage's journal in the API server, as numbered, immutable ConfigMaps.

Each write creates one object, a *piece*: the next bytes of a segment. Pieces are numbered over the whole
journal. Two leaders that continue from the same place create the same number. The API server takes one, and
the other leader is *fenced*: its journal ends. The object's content shows whether a taken number is our own.

Retention frees numbers: a leader that was stopped until its next number was written and removed would create
it again, and no reader would see it. But the oldest pieces go first. So the sync after a create looks for the
piece before it: if that exists, no number behind it was ever removed. Each piece also names the journal's
first piece, and a reader ignores all pieces below. Retention writes such a piece before it removes others.

The journal waits for the API server however long it is away.
"""

from __future__ import annotations

import base64
import errno
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar, TypeVarTuple, Unpack
from urllib.parse import quote

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import StoredFile
from ebbtide.events.disk import Waits
from ebbtide.events.segment import parse_segment_file_name

PREFIX = "ebbtide-outage"
NODE_LABEL, SEGMENT_LABEL, NUMBER_LABEL = "ebbtide.dev/node-uid", "ebbtide.dev/segment", "ebbtide.dev/number"
#: On the last piece of a journal without an open outage: the next leader need not open it.
REST_LABEL = "ebbtide.dev/at-rest"
OFFSET_ANNOTATION, WRITER_ANNOTATION = "ebbtide.dev/offset", "ebbtide.dev/writer"
FIRST_ANNOTATION, NODE_ANNOTATION = "ebbtide.dev/first", "ebbtide.dev/node"
#: For a list of all journals: the pieces may fill etcd.
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PART_METADATA = 500
PART_OF_ALL = 250
#: A Node's UID, as a part of names and labels.
_UID = re.compile(r"[0-9a-z](?:[0-9a-z-]{0,61}[0-9a-z])?")
_DIGITS = re.compile("[0-9]{1,17}")

#: A ConfigMap may hold 1 MiB, and etcd is quick with small ones.
PIECE_BYTES_MAX = 512 * 1024
#: Missing pieces in the middle of a segment.
HOLE_BYTES_MAX = 16 * 1024 * 1024
#: Most outages fit one answer.
PART_PIECES = 100
#: While the API server is away. A hundred journals wait together.
AGAIN_SECONDS_MAX = 5.0
#: More than a server's restart behind a load balancer takes. With the leader's looks, the Lease's renewal and
#: a person's command it is seen within 15 s.
BLOCKED_SECONDS = 4.0
#: An admission webhook may take 30 s, and the server ends it with the request that waits for it.
PATIENCE_SECONDS_MAX = 35.0
NO_ANSWER = "no answer in time"
#: Answers that say what is there. After any other one the request is repeated.
FINAL = {
    "POST": (api.HTTP_CONFLICT,),
    "GET": (api.HTTP_NOT_FOUND, api.HTTP_GONE),
    "DELETE": (api.HTTP_NOT_FOUND,),
}
#: No Node's, and no journal's number: a dry run's.
DRY_RUN_UID, DRY_RUN_NUMBER = "00000000-0000-0000-0000-000000000000", 0

#: A created piece is stored. While no task waits, one check covers this time.
UNSYNCED_SECONDS = 30.0
#: Writes that no task waits for gather, so that a hundred quiet outages stay within their rate. A leader that
#: dies loses so much.
GATHER_SECONDS = 2.0

#: Its own threads: the shared ones may hang with a name server or a disk.
READING = trio.CapacityLimiter(4)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Fenced(OSError):
    """Another leader goes on with this journal."""


class Piece(NamedTuple):
    """``segment``: a file name; empty: the object names none. ``first``: the journal's first piece at that
    time.
    """

    number: int
    first: int
    uid: str
    segment: str
    offset: int
    data: bytes
    writer: str
    modified_ns: int


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: api.ObjectMeta
    binary_data: dict[str, bytes] = {}


_decoder = msgspec.json.Decoder(_ConfigMap)
_part_decoder = msgspec.json.Decoder(api.ListPart[_ConfigMap])


def _piece_of(found: _ConfigMap) -> Piece:
    """A foreign object under our name takes its number, and has no data."""
    meta, names = found.metadata, list(found.binary_data)
    digits = meta.name.rpartition("-")[2]
    offset, first = (meta.annotations.get(each, "") for each in (OFFSET_ANNOTATION, FIRST_ANNOTATION))
    numbered = _DIGITS.fullmatch(offset) and _DIGITS.fullmatch(first)
    is_ours = numbered and len(names) == 1 and parse_segment_file_name(names[0])
    segment = names[0] if is_ours else ""
    number = int(digits) if _DIGITS.fullmatch(digits) else 0
    try:
        modified_ns = int(datetime.fromisoformat(meta.creation_timestamp).timestamp()) * NS_PER_SECOND
    except (ValueError, OverflowError):
        modified_ns = 0
    return Piece(
        number=number,
        first=min(int(first), number) if is_ours else 0,
        uid=meta.uid,
        segment=segment,
        offset=int(offset) if is_ours else 0,
        data=found.binary_data[segment] if is_ours else b"",
        writer=meta.annotations.get(WRITER_ANNOTATION, ""),
        modified_ns=modified_ns,
    )


def _location(namespace: str, node_uid: str) -> str:
    return f"configmaps {namespace}/{PREFIX}-{node_uid}"


def maps_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"


class ConfigMapSource:
    """`events.catalog.Source` over pieces."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._files: dict[str, tuple[bytes, int]] | None = None

    @property
    def loaded(self) -> bool:
        return self._files is not None

    def load(self, pieces: Sequence[Piece]) -> None:
        """``pieces`` in the order of their numbers."""
        data: dict[str, bytearray] = {}
        modified: dict[str, int] = {}
        for piece in pieces:
            if piece.segment:
                found = data.setdefault(piece.segment, bytearray())
                # The pieces behind show that missing bytes were durable. A piece further away was made up.
                missing = max(0, piece.offset - len(found))
                found += bytes(missing if missing <= HOLE_BYTES_MAX else 0) + piece.data
                modified[piece.segment] = piece.modified_ns
        self._files = {name: (bytes(found), modified[name]) for name, found in data.items()}

    def forget(self) -> None:
        self._files = None

    def files(self) -> list[StoredFile]:
        files = self._there()
        return sorted(StoredFile(name, len(data), ns) for name, (data, ns) in files.items())

    def read(self, name: str, offset: int, size: int) -> bytes:
        if name not in self._there():
            raise FileNotFoundError(errno.ENOENT, "no such segment", name)
        return self._there()[name][0][offset : offset + size]

    def _there(self) -> dict[str, tuple[bytes, int]]:
        # Unread is not empty: a writer would begin an empty journal anew.
        if self._files is None:
            raise OSError(errno.EAGAIN, "the journal has not been read from the API server", self.location)
        return self._files


def _object_of(piece: Piece, node_uid: str, node: str = "", *, at_rest: bool = False) -> api.JsonObject:
    """``node``: the Node's name, for people."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _name_of(node_uid, piece.number),
            "labels": {
                NODE_LABEL: node_uid,
                SEGMENT_LABEL: piece.segment.partition("-")[0],
                NUMBER_LABEL: f"{piece.number:010d}",
                **({REST_LABEL: "true"} if at_rest else {}),
            },
            "annotations": {
                OFFSET_ANNOTATION: str(piece.offset),
                FIRST_ANNOTATION: str(piece.first),
                WRITER_ANNOTATION: piece.writer,
                **({NODE_ANNOTATION: node} if node else {}),
            },
        },
        "immutable": True,
        "binaryData": {piece.segment: base64.b64encode(piece.data).decode()},
    }


def _name_of(node_uid: str, number: int) -> str:
    return f"{PREFIX}-{node_uid}-{number:010d}"


async def try_create(caller: api.ApiCaller, namespace: str) -> api.Answer:
    """The answer to a piece's create, as a dry run: rights, quotas, webhooks and policies decide as for a
    real one. Raises Unanswered.
    """
    piece = Piece(DRY_RUN_NUMBER, 0, "", "dry-run", 0, b"", "dry-run", 0)
    path = f"{maps_path(namespace)}?dryRun=All"
    call = api.ApiCall(caller, BLOCKED_SECONDS, "")
    return await call.once("POST", path, _object_of(piece, DRY_RUN_UID))


def _whole(pieces: Sequence[Piece], first: int = 1) -> list[Piece]:
    """Without pieces below the journal's first."""
    first = max((first, *(piece.first for piece in pieces)))
    return [piece for piece in pieces if piece.number >= first]


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
        """No-op: each write reads what is there."""

    async def close(self) -> None:
        """No-op."""


class ConfigMapStorage:
    """`events.disk.Storage` of one Node's journal. ``writer``: unique to this process. ``node``: the Node's
    name, for people. Raises ValueError for a UID that fits no name.
    """

    #: No bound: an action needs a record that another leader can read.
    waits = Waits(math.inf, math.inf, UNSYNCED_SECONDS, GATHER_SECONDS)

    def __init__(
        self,
        caller: api.ApiCaller,
        namespace: str,
        node_uid: str,
        writer: str,
        node: str = "",
    ) -> None:
        if not _UID.fullmatch(node_uid):
            raise ValueError(f"no UID of a Node that a ConfigMap could be named after: {node_uid!r}")
        self._caller, self._writer = caller, writer
        self._namespace, self._node_uid, self._node = namespace, node_uid, node
        #: The next writes end a journal without an open outage.
        self.at_rest = False
        #: Another leader goes on with it.
        self.fenced = False
        self._path = maps_path(namespace)
        self._source = ConfigMapSource(_location(namespace, node_uid))
        self._index: dict[int, str] = {}
        #: 0 before the journal was read.
        self._next = 0
        self._last = self._proved = (0, "")
        #: The journal's first piece, for this writer and in the newest piece.
        self._first = self._said_first = 1
        self._confirming = trio.Lock()
        #: Since when each request waits, the last one's failure, and how long the next try may take.
        self._waits_since = list[float]()
        self._problem, self._patience_seconds = "", 0.0

    @property
    def location(self) -> str:
        return self._source.location

    @property
    def source(self) -> ConfigMapSource:
        return self._source

    async def acquire(self, program: str) -> None:
        """Read what exists, to continue from exactly that. The first create decides between two writers."""
        if self._next:
            return
        pieces = await self._read()
        self._index = {piece.number: piece.segment for piece in pieces}
        if pieces:
            self._last = self._proved = (pieces[-1].number, pieces[-1].uid)
            self._first = self._said_first = max(piece.first for piece in pieces)
        self._next = self._last[0] + 1
        self._load(pieces)

    async def release(self) -> None:
        """No lock is held."""

    async def create(self, name: str) -> ConfigMapFile:
        """The first write creates it."""
        if name in self._index.values():
            raise FileExistsError(errno.EEXIST, "a segment of that name is there", name)
        # It is as large as the whole outage.
        self._source.forget()
        return ConfigMapFile(self, name)

    async def sync_file(self, name: str) -> None:
        """No-op: creates are durable."""

    async def put(self, name: str, data: bytes) -> None:
        raise OSError(errno.ENOTSUP, "only a journal is kept here, and it is only appended to")

    async def set_reserve(self, size_bytes: int) -> None:
        """The API server cannot reserve space."""

    async def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """With the pieces in memory."""
        read = not self._source.loaded
        if read:
            self._load(await self._read())
        try:
            return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=True, limiter=READING)
        finally:
            if read:
                self._source.forget()

    def _load(self, pieces: Sequence[Piece]) -> None:
        self._source.load(_whole(pieces, self._first))

    async def append(self, segment: str, offset: int, data: bytes) -> None:
        """Raises Fenced, OSError."""
        number, first = self._next, self._first
        piece = Piece(number, first, "", segment, offset, data, self._writer, 0)
        made = _object_of(piece, self._node_uid, self._node, at_rest=self.at_rest)
        found: Piece | None = None
        with self._waiting():
            while found is None:
                answer = await self._ask("POST", self._path, made)
                if answer.ok:
                    found = self._decode(answer)
                # Our own with its answer lost, another leader's, or a conflict such as the quota's.
                elif (found := await self._get(number)) is None:
                    self._problem = api.answer_text(answer)
                    await trio.sleep(AGAIN_SECONDS_MAX)
        if (found.segment, found.offset, found.data, found.writer) != (segment, offset, data, self._writer):
            raise self._fence(f"another leader goes on with this journal: {found.writer or 'unnamed'}")
        self._next, self._last, self._said_first = number + 1, (number, found.uid), first
        self._index[number] = segment

    async def confirm(self) -> None:
        """Confirm that the next leader will read all that was appended. Raises Fenced, OSError."""
        async with self._confirming:
            last, (number, uid) = self._last, self._proved
            if last == self._proved:
                return
            if number:
                found = await self._get(number)
                stands = found is not None and found.uid == uid
            else:
                # The journal was empty, so all pieces must be ours.
                stands = all(piece.writer == self._writer for piece in await self._read())
            if not stands:
                what = "another leader has gone on with this journal, and has removed its oldest part"
                raise self._fence(what)
            self._proved = last

    def _fence(self, what: str) -> Fenced:
        self.fenced = True
        return Fenced(errno.EBUSY, what)

    async def remove(self, name: str) -> None:
        """The next piece excludes it from the journal; a later removal deletes its objects."""
        await self.confirm()
        newest = max((number for number, segment in self._index.items() if segment == name), default=0)
        if newest >= self._proved[0]:
            raise OSError(errno.EBUSY, "the journal's last segment stays", name)
        self._first = max(self._first, newest + 1)
        for number in sorted(each for each in self._index if each < self._said_first):
            await self._ask("DELETE", self._path_of(number), {})
            del self._index[number]

    def _path_of(self, number: int) -> str:
        return f"{self._path}/{_name_of(self._node_uid, number)}"

    async def _get(self, number: int) -> Piece | None:
        answer = await self._ask("GET", self._path_of(number))
        return self._decode(answer) if answer.ok else None

    def _decode(self, answer: api.Answer) -> Piece:
        try:
            return _piece_of(_decoder.decode(answer.body))
        except (ValueError, RecursionError) as error:
            raise OSError(errno.EIO, f"the journal cannot be read: {error}") from None

    async def _read(self) -> list[Piece]:
        """All pieces of one moment, in the order of their numbers."""

        async def ask(path: str) -> api.Answer:
            answer = await self._ask("GET", path)
            if answer.code == api.HTTP_GONE:
                raise _Expired
            if not answer.ok:
                raise OSError(errno.EIO, f"the journal cannot be read: {api.answer_text(answer)}")
            return answer

        path = partial(api.listed_path, self._path, labelSelector=f"{NODE_LABEL}={self._node_uid}")
        while True:
            try:
                found, _ = await api.list_in_parts(ask, path, _part_decoder, _piece_of, PART_PIECES)
            except _Expired:
                continue
            except api.Unanswered as error:
                raise OSError(errno.EIO, f"the journal cannot be read: {error}") from None
            return sorted(found, key=lambda piece: piece.number)

    @property
    def blocked(self) -> str:
        """Why a request has waited for `BLOCKED_SECONDS`; empty: none has."""
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
        """Until the server says what is there, however long: rights and quotas are given back."""
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
    """``at_rest``: closed without an open outage."""

    node_uid: str
    node: str
    at_rest: bool


async def list_journals(caller: api.ApiCaller, namespace: str) -> list[StoredJournal]:
    """From metadata alone. Raises OSError."""
    found: list[tuple[int, api.ObjectMeta]] = []

    def take(part: Sequence[_ConfigMap]) -> None:
        found.extend((_piece_of(each).number, each.metadata) for each in part)

    await _list_all(caller, namespace, take, PART_METADATA, accept=METADATA_LIST)
    newest = {meta.labels.get(NODE_LABEL, ""): meta for _, meta in sorted(found, key=itemgetter(0))}
    return [
        StoredJournal(uid, meta.annotations.get(NODE_ANNOTATION, ""), REST_LABEL in meta.labels)
        for uid, meta in sorted(newest.items())
        if _UID.fullmatch(uid)
    ]


async def read_journals(
    caller: api.ApiCaller, namespace: str, take: Callable[[str, ConfigMapSource], None]
) -> None:
    """Read all journals of a namespace with one list, since a list of one would make the server look through
    all pieces. ``take`` gets one at a time, with its Node's UID; a journal with foreign pieces in between
    comes in parts. Raises OSError, also in the middle.
    """
    node_uid, pieces = "", list[Piece]()

    def end() -> None:
        if pieces:
            source = ConfigMapSource(_location(namespace, node_uid))
            source.load(_whole(sorted(pieces, key=lambda piece: piece.number)))
            take(node_uid, source)

    def take_part(part: Sequence[_ConfigMap]) -> None:
        nonlocal node_uid, pieces
        for each in part:
            uid = each.metadata.labels.get(NODE_LABEL, "")
            if uid != node_uid:
                end()
                node_uid, pieces = uid, []
            pieces.append(_piece_of(each))

    await _list_all(caller, namespace, take_part, PART_OF_ALL)
    end()


async def _list_all(
    caller: api.ApiCaller,
    namespace: str,
    take: Callable[[Sequence[_ConfigMap]], None],
    limit: int,
    **how: Any,
) -> None:
    """In the order of their names. Raises OSError."""

    async def ask(path: str) -> api.Answer:
        answer = await caller.call("GET", path, seconds_max=bounds.now.api_try_seconds, **how)
        if not answer.ok:
            raise OSError(errno.EIO, f"the journals cannot be listed: {api.answer_text(answer)}")
        return answer

    path = partial(api.listed_path, maps_path(namespace), labelSelector=NODE_LABEL)
    try:
        await api.take_parts(ask, path, _part_decoder, take, limit)
    except api.Unanswered as error:
        raise OSError(errno.EIO, f"the journals cannot be listed: {error}") from None


async def read_journal(caller: api.ApiCaller, namespace: str, node: str) -> ConfigMapSource:
    """By UID or name. Raises LookupError, with the known journals, and OSError."""
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


class _Expired(Exception):
    """The server has forgotten the list's begin."""

"""An outage's journal in the API server: numbered, immutable ConfigMaps behind the protocol of a location.

Each write is one object more, a *piece*: the next bytes of one segment. Pieces are numbered over the whole
journal, whatever segment they are of, and are only ever created. So two leaders that go on from the same
place create the same number: the API server takes one, and the other is *fenced*, which ends its journal for
good. Whether a number that is taken is our own, by a request whose answer was lost, the object's content
tells.

Retention makes numbers free again. A leader that was stopped for so long that its next number has been
written and removed meanwhile would create it once more, and nobody would ever read it. But pieces are removed
oldest first. So after a create the piece before it is looked for: where that still stands, no number behind
it was ever removed. That look is what a sync is. And each piece says which is the journal's first: what
stands below the first of the newest (a removal that was cut short, a create that came late) is no part of it.
So nothing is removed before a piece that says so is there.

The journal waits for the API server as long as it is away: without it nothing could be done anyway.
"""

from __future__ import annotations

import base64
import errno
import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar, TypeVarTuple, Unpack
from urllib.parse import quote, urlencode

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import (
    HTTP_CONFLICT,
    HTTP_FORBIDDEN,
    HTTP_GONE,
    HTTP_NOT_FOUND,
    Answer,
    ApiCall,
    ApiCaller,
    JsonObject,
    ListPart,
    Unanswered,
    answer_text,
    list_in_parts,
    take_parts,
)
from ebbtide.actors.edges.kubernetes.api_client import UNAUTHORIZED
from ebbtide.actors.interfaces import NOTICE, WARNING, Tell
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import StoredFile
from ebbtide.events.disk import Waits
from ebbtide.events.segment import parse_segment_file_name

PREFIX = "ebbtide-outage"
NODE_LABEL, SEGMENT_LABEL, NUMBER_LABEL = "ebbtide.dev/node-uid", "ebbtide.dev/segment", "ebbtide.dev/number"
#: On the piece with which a journal was closed outside of an outage: the next leader need not open it.
REST_LABEL = "ebbtide.dev/at-rest"
OFFSET_ANNOTATION, WRITER_ANNOTATION = "ebbtide.dev/offset", "ebbtide.dev/writer"
FIRST_ANNOTATION, NODE_ANNOTATION = "ebbtide.dev/first", "ebbtide.dev/node"
#: A list of all journals asks for metadata alone: the pieces themselves are as much as etcd holds.
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
#: Of these half a KiB each in one part of that list.
PART_METADATA = 500
#: Of the pieces of all journals, some KiB each; after a part of some MiB the next ones are smaller.
PART_OF_ALL = 250
#: Of a Node's UID, which is part of names and a label: a UUID, or whatever else fits there.
_UID = re.compile(r"[0-9a-z](?:[0-9a-z-]{0,61}[0-9a-z])?")
#: Of what any writer says: no journal comes to a hundred million gibibytes.
_DIGITS = re.compile("[0-9]{1,17}")

#: A ConfigMap may hold 1 MiB, and etcd is quick with small ones: a larger write becomes several pieces.
PIECE_BYTES_MAX = 512 * 1024
#: Of pieces that are missing in the middle of a segment: more than retention lets any journal have.
HOLE_BYTES_MAX = 16 * 1024 * 1024
#: Of one journal read at a time, some KiB each: most outages come in one answer, and a leader that begins
#: with hundreds of them may not ask often. Where so many are too long for one answer, fewer are asked for.
PART_PIECES = 100
#: Between two tries while the API server is away: a hundred journals wait together.
AGAIN_SECONDS_MAX = 5.0
#: Between two tries of what we may not do, or where our namespace is missing: somebody has to mend that.
REFUSED_SECONDS = 5.0

#: What was created is stored; when nobody waits, the look whether it counts covers all of so long. A leader
#: that is fenced does nothing meanwhile that it would not look for before.
UNSYNCED_SECONDS = 30.0
#: What nobody waits for gathers before it is created: a reading of the sources comes to one object and not
#: to four, so that a hundred outages in which nothing moves make no more requests than they may. A leader
#: that dies takes so much of what it saw along; what it did had to be stored before.
GATHER_SECONDS = 2.0

#: Journals that are read at the same time: that is work for a processor.
READ_AT_ONCE_MAX = 4
#: In threads of their own, because those that all others share may hang, with a name server or a disk that
#: does not answer.
_threads: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("ebbtide-journals")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def _limiter() -> trio.CapacityLimiter:
    try:
        return _threads.get()
    except LookupError:
        _threads.set(limiter := trio.CapacityLimiter(READ_AT_ONCE_MAX))
        return limiter


class Fenced(OSError):
    """Another leader goes on with this journal; ours is over."""


class Piece(NamedTuple):
    """``segment`` is a file name, empty where the object says none; ``offset`` its place in that file.
    ``first``: the number of the journal's first piece, when this one was made.
    """

    number: int
    first: int
    uid: str
    segment: str
    offset: int
    data: bytes
    writer: str
    modified_ns: int


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str = ""


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: _Meta
    binary_data: dict[str, bytes] = {}


_decoder = msgspec.json.Decoder(_ConfigMap)
_part_decoder = msgspec.json.Decoder(ListPart[_ConfigMap])


def _piece_of(found: _ConfigMap) -> Piece:
    """What somebody else has put there under one of our names takes its number, and says nothing."""
    meta, names = found.metadata, list(found.binary_data)
    digits = meta.name.rpartition("-")[2]
    offset, first = (meta.annotations.get(each, "") for each in (OFFSET_ANNOTATION, FIRST_ANNOTATION))
    numbered = _DIGITS.fullmatch(offset) and _DIGITS.fullmatch(first)
    is_ours = numbered and len(names) == 1 and parse_segment_file_name(names[0])
    segment = names[0] if is_ours else ""
    number = int(digits) if _DIGITS.fullmatch(digits) else 0
    return Piece(
        number=number,
        first=min(int(first), number) if is_ours else 0,
        uid=meta.uid,
        segment=segment,
        offset=int(offset) if is_ours else 0,
        data=found.binary_data[segment] if is_ours else b"",
        writer=meta.annotations.get(WRITER_ANNOTATION, ""),
        modified_ns=_to_ns(meta.creation_timestamp),
    )


def _to_ns(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp()) * NS_PER_SECOND
    except (ValueError, OverflowError):
        return 0


def _location(namespace: str, node_uid: str) -> str:
    return f"configmaps {namespace}/{PREFIX}-{node_uid}"


class ConfigMapSource:
    """`events.catalog.Source` over pieces that were read: `ConfigMapStorage.call` reads them."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._files: dict[str, tuple[bytes, int]] | None = None

    @property
    def loaded(self) -> bool:
        return self._files is not None

    def load(self, pieces: Sequence[Piece]) -> None:
        """In the order of their numbers."""
        self._files = _files_of(pieces)

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
        # Never an empty journal where it is only not in memory: a writer would begin it anew.
        if self._files is None:
            raise OSError(errno.EAGAIN, "the journal has not been read from the API server", self.location)
        return self._files


def _whole(pieces: Sequence[Piece], first: int = 1) -> list[Piece]:
    """Without what stands below the journal's first, as far as anybody has said which that is."""
    first = max((first, *(piece.first for piece in pieces)))
    return [piece for piece in pieces if piece.number >= first]


def _files_of(pieces: Sequence[Piece]) -> dict[str, tuple[bytes, int]]:
    """Each segment's bytes, and when it was last written."""
    found: dict[str, bytearray] = {}
    modified: dict[str, int] = {}
    for piece in pieces:
        if not piece.segment:
            continue
        data = found.setdefault(piece.segment, bytearray())
        # What is missing in between is as good as zeros: what stands behind it tells the reader that it was
        # durable. A piece that would be further away was made up.
        missing = max(0, piece.offset - len(data))
        data += bytes(missing if missing <= HOLE_BYTES_MAX else 0)
        data += piece.data
        modified[piece.segment] = piece.modified_ns
    return {name: (bytes(data), modified[name]) for name, data in found.items()}


class ConfigMapFile:
    """A segment while it is written. Fenced once, it is not to be used again."""

    def __init__(self, storage: ConfigMapStorage, name: str) -> None:
        self._storage, self._name, self._offset = storage, name, 0

    async def write(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES_MAX):
            part = data[at : at + PIECE_BYTES_MAX]
            await self._storage.append(self._name, self._offset, part)
            self._offset += len(part)

    async def sync(self) -> None:
        await self._storage.confirm()

    async def close(self) -> None:
        """There is nothing to give back."""


class ConfigMapStorage:
    """The journal of one Node, by UID, for the life of one writer. `events.disk.Storage`.

    ``writer`` is this process's own, and no other's: who it is, and what tells it from all others. ``tell``
    takes a line for the operator, with its level. ``node`` is the Node's name, for people and for
    `list_journals`. Raises ValueError for a UID that no name can hold.
    """

    #: Nothing here is waited for with a bound: what another leader cannot read must not take place.
    waits = Waits(math.inf, math.inf, UNSYNCED_SECONDS, GATHER_SECONDS)

    def __init__(
        self,
        caller: ApiCaller,
        namespace: str,
        node_uid: str,
        writer: str,
        tell: Tell = lambda level, line: None,
        node: str = "",
    ) -> None:
        if not _UID.fullmatch(node_uid):
            raise ValueError(f"no UID of a Node that a ConfigMap could be named after: {node_uid!r}")
        self._caller, self._tell, self._writer = caller, tell, writer
        self._namespace, self._node_uid, self._node = namespace, node_uid, node
        #: What is written from now on is the end of a journal in which no outage is open.
        self.at_rest = False
        #: Another leader goes on with it.
        self.fenced = False
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"
        self._source = ConfigMapSource(_location(namespace, node_uid))
        #: Every piece that is there, as far as we know: its segment by its number.
        self._index: dict[int, str] = {}
        #: The number that is created next: 0 before the journal was read.
        self._next = 0
        self._last = self._proved = (0, "")
        #: The journal's first piece: as this writer has it, and as the newest piece says.
        self._first = self._said_first = 1
        self._confirming = trio.Lock()
        self._told = ""

    @property
    def location(self) -> str:
        return self._source.location

    @property
    def source(self) -> ConfigMapSource:
        return self._source

    # --- becoming the writer -------------------------------------------------------------------

    async def acquire(self, program: str) -> None:
        """Read what is there: this writer goes on from exactly that, or not at all.

        There is no lock: whoever else goes on from there is told apart by the first create.
        """
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
        """Nothing is held: a Lease of the process's own says who tries."""

    async def create(self, name: str) -> ConfigMapFile:
        """Its first write makes it."""
        if name in self._index.values():
            raise FileExistsError(errno.EEXIST, "a segment of that name is there", name)
        # From now on what was read is not all any more; and it is as large as all that ever happened.
        self._source.forget()
        return ConfigMapFile(self, name)

    async def sync_file(self, name: str) -> None:
        """What is there is durable."""

    async def put(self, name: str, data: bytes) -> None:
        raise OSError(errno.ENOTSUP, "only a journal is kept here, and it is only appended to")

    async def set_reserve(self, size_bytes: int) -> None:
        """The API server has no space to be kept aside."""

    async def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """With the pieces in memory, read anew where they are not."""
        read = not self._source.loaded
        if read:
            self._load(await self._read())
        try:
            return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=True, limiter=_limiter())
        finally:
            if read:
                self._source.forget()

    def _load(self, pieces: Sequence[Piece]) -> None:
        self._source.load(_whole(pieces, self._first))

    # --- writing -------------------------------------------------------------------------------

    async def append(self, segment: str, offset: int, data: bytes) -> None:
        """One piece. Raises Fenced where somebody else has made the piece of that number, and OSError."""
        number, first = self._next, self._first
        made = self._object(number, segment, offset, data)
        while True:
            answer = await self._ask("POST", self._path, made)
            if answer.ok:
                found: Piece | None = self._decode(answer)
                break
            if answer.code != HTTP_CONFLICT:
                raise OSError(errno.EIO, f"the API server does not take the journal: {answer_text(answer)}")
            # Ours, by a request whose answer was lost, or another leader's; or a conflict about something
            # else, as the namespace's quota.
            found = await self._get(number)
            if found is not None:
                break
            await trio.sleep(AGAIN_SECONDS_MAX)
        assert found is not None
        if (found.segment, found.offset, found.data, found.writer) != (segment, offset, data, self._writer):
            raise self._fence(f"another leader goes on with this journal: {found.writer or 'unnamed'}")
        self._next, self._last, self._said_first = number + 1, (number, found.uid), first
        self._index[number] = segment

    async def confirm(self) -> None:
        """That all that was appended will be read by whoever comes. Raises Fenced, OSError."""
        async with self._confirming:
            last, (number, uid) = self._last, self._proved
            if last == self._proved:
                return
            if number:
                found = await self._get(number)
                stands = found is not None and found.uid == uid
            else:
                # Nothing was there: then nothing is there but what we have made.
                stands = all(piece.writer == self._writer for piece in await self._read())
            if not stands:
                what = "another leader has gone on with this journal, and has removed its oldest part"
                raise self._fence(what)
            self._proved = last

    def _fence(self, what: str) -> Fenced:
        self.fenced = True
        return Fenced(errno.EBUSY, what)

    async def remove(self, name: str) -> None:
        """It is no part of the journal any more with the next piece; its objects go with a later removal."""
        await self.confirm()
        newest = max((number for number, segment in self._index.items() if segment == name), default=0)
        if newest >= self._proved[0]:
            raise OSError(errno.EBUSY, "the journal's last segment stays", name)
        self._first = max(self._first, newest + 1)
        for number in sorted(each for each in self._index if each < self._said_first):
            answer = await self._ask("DELETE", self._path_of(number), {})
            if not answer.ok and answer.code != HTTP_NOT_FOUND:
                raise OSError(errno.EIO, f"the API server does not remove {name}: {answer_text(answer)}")
            del self._index[number]

    # --- objects -------------------------------------------------------------------------------

    def _object(self, number: int, segment: str, offset: int, data: bytes) -> JsonObject:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self._name(number),
                "labels": {
                    NODE_LABEL: self._node_uid,
                    SEGMENT_LABEL: segment.partition("-")[0],
                    NUMBER_LABEL: f"{number:010d}",
                    **({REST_LABEL: "true"} if self.at_rest else {}),
                },
                "annotations": {
                    OFFSET_ANNOTATION: str(offset),
                    FIRST_ANNOTATION: str(self._first),
                    WRITER_ANNOTATION: self._writer,
                    **({NODE_ANNOTATION: self._node} if self._node else {}),
                },
            },
            "immutable": True,
            "binaryData": {segment: base64.b64encode(data).decode()},
        }

    def _name(self, number: int) -> str:
        return f"{PREFIX}-{self._node_uid}-{number:010d}"

    def _path_of(self, number: int) -> str:
        return f"{self._path}/{self._name(number)}"

    async def _get(self, number: int) -> Piece | None:
        answer = await self._ask("GET", self._path_of(number))
        if answer.code == HTTP_NOT_FOUND:
            return None
        if not answer.ok:
            raise OSError(errno.EIO, f"the journal cannot be read: {answer_text(answer)}")
        return self._decode(answer)

    def _decode(self, answer: Answer) -> Piece:
        try:
            return _piece_of(_decoder.decode(answer.body))
        except (ValueError, RecursionError) as error:
            raise OSError(errno.EIO, f"the journal cannot be read: {error}") from None

    async def _read(self) -> list[Piece]:
        """All pieces, at one moment, in the order of their numbers."""
        while True:
            try:
                found, _ = await list_in_parts(
                    self._ask_for_part, self._list_path, _part_decoder, _piece_of, PART_PIECES
                )
            except _Expired:
                continue
            except Unanswered as error:
                raise OSError(errno.EIO, f"the journal cannot be read: {error}") from None
            return sorted(found, key=lambda piece: piece.number)

    def _list_path(self, **fields: Any) -> str:
        query = urlencode({"labelSelector": f"{NODE_LABEL}={self._node_uid}", **fields}, quote_via=quote)
        return f"{self._path}?{query}"

    async def _ask_for_part(self, path: str) -> Answer:
        answer = await self._ask("GET", path)
        if answer.code == HTTP_GONE:
            raise _Expired
        if not answer.ok:
            raise OSError(errno.EIO, f"the journal cannot be read: {answer_text(answer)}")
        return answer

    async def _ask(self, method: str, path: str, body: object = None) -> Answer:
        """The server's word, however long it is away, and however long we may not ask."""
        while True:
            call = ApiCall(self._caller, math.inf, "")
            answer = await call.until_answered(method, path, body, again_seconds_max=AGAIN_SECONDS_MAX)
            no_namespace = method == "POST" and answer.code == HTTP_NOT_FOUND
            refused = (
                f"the journal waits: {answer_text(answer)} to {method} of ConfigMaps in {self._namespace}"
            )
            if answer.code not in (UNAUTHORIZED, HTTP_FORBIDDEN) and not no_namespace:
                break
            if refused != self._told:
                self._told = refused
                self._tell(WARNING, refused)
            await trio.sleep(REFUSED_SECONDS)
        if self._told:
            self._tell(NOTICE, "the journal goes on")
        self._told = ""
        return answer


class StoredJournal(NamedTuple):
    """One of a namespace. ``at_rest``: it was closed, and no outage was open in it."""

    node_uid: str
    node: str
    at_rest: bool


async def list_journals(caller: ApiCaller, namespace: str) -> list[StoredJournal]:
    """By UID, of their metadata alone. Raises OSError where they cannot be listed now."""
    found: list[tuple[int, _Meta]] = []

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
    caller: ApiCaller, namespace: str, take: Callable[[str, ConfigMapSource], None]
) -> None:
    """All of a namespace, in one list, and one at a time in memory: each is given to ``take`` with its Node's
    UID. Their pieces lie together, since that is how they are named; one of which others lie in between comes
    more than once, and never whole. Raises OSError where they cannot be listed now, or not to the end.

    A list of one journal alone has the server look through all pieces that there are.
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
    caller: ApiCaller,
    namespace: str,
    take: Callable[[Sequence[_ConfigMap]], None],
    limit: int,
    **how: Any,
) -> None:
    """The pieces of all journals, in the order of their names. Raises OSError."""

    async def ask(path: str) -> Answer:
        answer = await caller.call("GET", path, seconds_max=bounds.now.api_try_seconds, **how)
        if not answer.ok:
            raise OSError(errno.EIO, f"the journals cannot be listed: {answer_text(answer)}")
        return answer

    def path(**fields: Any) -> str:
        query = urlencode({"labelSelector": NODE_LABEL, **fields}, quote_via=quote)
        return f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps?{query}"

    try:
        await take_parts(ask, path, _part_decoder, take, limit)
    except Unanswered as error:
        raise OSError(errno.EIO, f"the journals cannot be listed: {error}") from None


async def read_journal(caller: ApiCaller, namespace: str, node: str) -> ConfigMapSource:
    """The journal of a Node, by its UID or its name, as it stands now, in memory. Nothing is written.

    Raises LookupError, with what there is instead, and OSError where it cannot be read now.
    """
    journals = await list_journals(caller, namespace)
    found = [each for each in journals if node in (each.node_uid, each.node)]
    if len(found) != 1:
        # A Node that was made anew has its name, and another UID.
        several = [f"{each.node or 'unnamed'} ({each.node_uid})" for each in found or journals]
        what = "several journals are of" if found else "no journal is of"
        there = f": there are those of {', '.join(several)}" if several else ""
        raise LookupError(f"{what} Node {node!r} in namespace {namespace}{there}")
    storage = ConfigMapStorage(caller, namespace, found[0].node_uid, "")
    await storage.acquire("")
    return storage.source


class _Expired(Exception):
    """The list took so long that the server has forgotten its begin."""

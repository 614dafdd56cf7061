"""Which objects of a store are one journal: first by their names, with one LIST and no GET, then by content.

A store grants each node its prefix, so below ``v1/`` a name is an identity. In plain folders every writer is
trusted.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache, partial
from hashlib import sha256
from http.client import HTTPException
from itertools import chain
from os.path import abspath, dirname, isdir, islink, join, realpath
from stat import S_ISREG
from threading import Thread
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import urlopen

from msgspec.structs import replace

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import PEEK_BYTES, StoredFile
from ebbtide.events.record.episodes import EpisodeRecord
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.events.segment import DamagedHeader, IncompatibleHeader, header_length, parse_header
from ebbtide.events.units import size_text
from ebbtide.memory import WORKER_BYTES_MAX, MemoryWatch, too_large_text
from ebbtide.replay.journal_library import Journal, utc
from ebbtide.shipping.shipping_destination import LAYOUT

# --- stores by their URLs

_CREDENTIALS = re.compile(r"(?i)(key|token|secret|signature|sig|password|credential)[^=&]*=")


class BadUrl(ValueError):
    """The URL names no known store, or holds credentials."""


#: Problems of the reading program, not of a journal.
OF_THE_READER = (BadUrl, ImportError)


class StoreFailed(Exception):
    """The store failed, not the journal."""


class BadName(StoreFailed):
    """A name with `//`, `..` or a control character ends the client's list."""


def store_url(place: str) -> str:
    """Also for a plain path. Raises BadUrl."""
    if not place:
        raise BadUrl("the name is empty: name a folder, or a URL such as s3://BUCKET/PREFIX")
    if "://" not in place:
        return f"file://{quote(abspath(place))}"
    parts = urlsplit(place)
    if parts.scheme in ("http", "https"):
        raise BadUrl(
            f"{parts.scheme}:// names no bucket: write s3://BUCKET/PREFIX, and the server's address into"
            " AWS_ENDPOINT_URL (AWS_ALLOW_HTTP=true without TLS)"
        )
    # Engines log URLs, and all users of a machine see its command lines.
    if "@" in parts.netloc or _CREDENTIALS.search(parts.query):
        raise BadUrl(
            f"the URL of {parts.scheme}://{parts.hostname or ''} holds credentials: leave them out, and give"
            " them by the environment (AWS_*, GOOGLE_*, AZURE_*) or the machine's role"
        )
    return place


@cache
def store(url: str) -> Any:
    """One client for a process and URL. Raises BadUrl."""
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    try:
        return from_url(url)
    except (BaseError, ValueError) as error:
        raise BadUrl(
            f"{place_name(url)}: {in_a_line(error)}; name a folder, or a URL such as s3://BUCKET/PREFIX,"
            " gs:// or az://"
        ) from None


_VARIABLES = {"s3": "AWS_*", "s3a": "AWS_*", "gs": "GOOGLE_*", "az": "AZURE_*"}


def cure_text(url: str) -> str:
    names = _VARIABLES.get(urlsplit(url).scheme)
    return f" (endpoint, credentials and region come from {names} or the machine's role)" if names else ""


def place_name(url: str) -> str:
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else url


#: The rest is a dump of the client's values, or a body. The status comes after URLs.
_CLIENT_CHARACTERS_MAX, _STATUS_CHARACTERS_MAX = 300, 8192
_STATUS = re.compile(r"status code: (\d{3})")


def in_a_line(error: Exception) -> str:
    said = str(error)[:_STATUS_CHARACTERS_MAX]
    status = f"HTTP {found[1]}: " if (found := _STATUS.search(said)) else ""
    return status + " ".join(said.partition("\n\nDebug source")[0].split())[:_CLIENT_CHARACTERS_MAX]


#: Memory for one answer: a range has 4 MiB, a part of a list less than 2. The client keeps and copies the
#: whole body of an error.
ANSWER_BYTES_MAX = 16 << 20
LOOK_SECONDS, STATUS_SECONDS_MAX = 0.01, 5.0


@cache
def _runner() -> asyncio.Runner:
    # The loop of another library's policy may work in one thread only.
    return asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)


def answer_of(url: str, path: str, ask: Callable[[], Any]) -> Any:
    """An object at ``path``, or without one a list. A folder needs no event loop, which costs milliseconds.
    Raises StoreFailed.
    """
    import obstore

    kind: type[StoreFailed] = StoreFailed
    try:
        return ask() if url.startswith("file:") else _runner().run(_bounded(ask))
    except MemoryError:
        said = f"{_status_text(url, path)} with more than {size_text(ANSWER_BYTES_MAX)}: see the store's log"
    except (OSError, obstore.exceptions.BaseError) as error:
        said = in_a_line(error)
        kind = BadName if isinstance(error, obstore.exceptions.InvalidPathError) else StoreFailed
    what = f"/{path} cannot be read" if path else " cannot be listed"
    raise kind(f"{place_name(url).rstrip('/')}{what}{cure_text(url)}: {said}")


async def _bounded(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Raises MemoryError. A cancel stops the client's request."""
    watch = MemoryWatch(ANSWER_BYTES_MAX)
    asked = asyncio.ensure_future(ask())
    try:
        while not (await asyncio.wait([asked], timeout=LOOK_SECONDS))[0]:
            watch.look()
        return asked.result()
    finally:
        asked.cancel()


def _status_text(url: str, path: str) -> str:
    """Asks again, because the client reports a status only after the whole body."""
    import obstore

    found = ["an answer"]

    def ask(signed: str) -> None:
        with suppress(OSError, ValueError, HTTPException):
            try:
                with urlopen(signed, timeout=STATUS_SECONDS_MAX) as answer:
                    found.append(f"HTTP {answer.status}")
            except HTTPError as error:
                found.append(f"HTTP {error.code}")

    sign = partial(obstore.sign_async, store(url), "GET", path, timedelta(minutes=1))
    with suppress(OSError, ValueError, MemoryError, obstore.exceptions.BaseError):
        # `urlopen`'s timeout does not end a slow line of headers.
        asking = Thread(target=ask, args=(_runner().run(_bounded(sign)),), daemon=True)
        asking.start()
        asking.join(STATUS_SECONDS_MAX)
    return found[-1]


# --- planned

#: Digits of a journal's id in its objects' names.
ID_BEGIN = 8
_NAME = re.compile(r"([0-9]{10})-([0-9a-f]{8})(?:-([0-9a-f]{64})(\.redacted)?)?\.ebj")
#: Below `LAYOUT`.
_SHIPPED = re.compile(r"cluster=([^/]+)/node=([^/]+)/journal=([0-9a-f]{32})")
_NODE = re.compile("(?:[^/]+/)*?node=[^/]+(?=/)")
#: The end of a URL to a part of the shipped objects.
_PART = re.compile(rf"(?:^|/){LAYOUT}(/cluster=[^/]+(?:/node=[^/]+(?:/journal=[^/]+)?)?)?/*$")
#: A node's credentials can put any number, and a plan stays in memory. A node ships some thousands in ten
#: years.
NODE_OBJECTS_MAX = 16_384
#: No node ships a larger segment.
OBJECT_BYTES_MAX = 64 << 20
#: Of one node: a plan stays in memory.
REFUSED_SHOWN_MAX = 8


class File(NamedTuple):
    """``name``: for the journal's reader. ``sha256``, ``redacted``: from the object's name."""

    name: str
    path: str
    size: int
    modified_ns: int
    sha256: str = ""
    redacted: bool = False

    @property
    def id_begin(self) -> str:
        return self.name[11:19]


class Key(NamedTuple):
    """From a shipped object's path."""

    cluster: str
    node: str
    journal: str


class Ref(NamedTuple):
    """The objects that may be one journal, by their names.

    ``key`` None: a plain folder, where two ids may have the same first eight digits: see `open_journals`.
    Without ``files`` the objects of ``folder`` are not used; ``error`` says why.
    """

    url: str
    folder: str
    files: tuple[File, ...]
    error: str = ""
    key: Key | None = None

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.files)

    @property
    def fingerprint(self) -> str:
        files = sorted(each._replace(path="") for each in self.files)
        return sha256(repr((self.key, files)).encode()).hexdigest()


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


@cache
def _part_of(url: str) -> str | None:
    """The URL's own path below `LAYOUT`, with a slash at its end."""
    match = _PART.search(unquote(urlsplit(url).path))
    return f"{match[1] or ''}/".lstrip("/") if match else None


def _shipped_path(url: str, path: str) -> str | None:
    """Below the URL's `LAYOUT`, else below the path's first one; None: in a plain folder."""
    part = _part_of(url)
    if part is not None:
        return part + path
    _, found, below = f"/{path}".partition(f"/{LAYOUT}/")
    return below if found else None


def _key_of(shipped_path: str) -> Key | None:
    """None: `shipping_destination.object_key` does not make such a path."""
    folder, _, name = shipped_path.rpartition("/")
    match, named = _SHIPPED.fullmatch(folder), _NAME.fullmatch(name)
    if not match or not named or not named[3] or not match[3].startswith(named[2]):
        return None
    key = Key(unquote(match[1]), unquote(match[2]), match[3])
    # With two spellings of its name one node would have two prefixes.
    return key if (quote(key.cluster, safe=""), quote(key.node, safe="")) == match.group(1, 2) else None


def journals(url: str) -> list[Ref]:
    """In the order of their folders. Raises BadUrl, StoreFailed."""
    url = store_url(url)
    if url.startswith("file://"):
        if not isdir(place_name(url)):
            raise BadUrl(
                f"{place_name(url) or url} is no folder: name one with journals below it, or a URL of a store"
            )
        return _plan_folders(url)
    try:
        return plan(url, listed(url))
    except BadName:
        broken: list[Ref] = []
        return sorted((*plan(url, _by_node(url, None, broken)), *broken), key=_order)


def _by_node(url: str, folder: str | None, broken: list[Ref]) -> Iterator[Any]:
    """One list for each node: its credentials can put a bad name below its prefix."""
    import obstore

    found = answer_of(url, "", partial(obstore.list_with_delimiter_async, store(url), folder))
    yield from found["objects"]
    for each in found["common_prefixes"]:
        if not each.rpartition("/")[2].startswith("node="):
            yield from _by_node(url, each, broken)
            continue
        try:
            yield from listed(url, each)
        except BadName as error:
            broken.append(Ref(url, each, (), f"refused: {error}"))


def listed(url: str, folder: str | None = None) -> Iterator[Any]:
    """As `plan` takes them: of a node's millions as many as show it. Raises BadUrl, StoreFailed."""
    import obstore

    after, node, count = None, "", 0
    while True:
        parts = aiter(obstore.list(store(url), prefix=folder, offset=after, chunk_size=1000))
        for info in chain.from_iterable(iter(partial(answer_of, url, "", partial(anext, parts, None)), None)):
            yield info
            before, node = node, found[0] if (found := _NODE.match(info["path"])) else ""
            count = count + 1 if node == before else 1
            if node and count > NODE_OBJECTS_MAX:
                after = f"{node}0"  # sorts after all of the node's: "0" follows "/"
                break
        else:
            return


def _plan_folders(url: str) -> list[Ref]:
    """An unreadable path, or a symbolic link to a folder around it, is a `Ref` with an ``error``: the
    client's listing would end there.
    """
    root = place_name(url)
    found: list[dict[str, Any]] = []
    broken: list[Ref] = []
    #: Targets of links, once each: links to links multiply.
    seen = set[str]()

    def refuse(path: str, error: str) -> None:
        broken.append(Ref(url, os.path.relpath(path, root), (), error))

    def unreadable(error: OSError) -> None:
        refuse(str(error.filename), f"it cannot be read: {error.strerror}")

    for folder, names, files in os.walk(root, onerror=unreadable, followlinks=True):
        for name in [each for each in names if islink(join(folder, each))]:
            above, around = folder, [realpath(folder)]
            while above != root:
                above = dirname(above)
                around.append(realpath(above))
            to = realpath(join(folder, name))
            if to in around or to in seen:
                names.remove(name)
            if to in around:
                refuse(join(folder, name), "it is a symbolic link to a folder around it")
            seen.add(to)
        for name in files:
            try:
                told = os.stat(join(folder, name))
            except FileNotFoundError:
                continue  # a link to no file
            except OSError as error:
                unreadable(error)
                continue
            # A pipe's reader would wait for its writer.
            if S_ISREG(told.st_mode):
                path = os.path.relpath(join(folder, name), root)
                found.append({"path": path, "size": told.st_size, "last_modified": utc(told.st_mtime_ns)})
    return sorted((*plan(url, found), *broken), key=_order)


def _order(ref: Ref) -> str:
    return ref.files[0].path if ref.files else ref.folder


def plan(url: str, listed: Iterable[Any]) -> list[Ref]:
    """From a listing with ``path``, ``size`` and ``last_modified``."""
    found: dict[Key | str, list[File]] = defaultdict(list)
    #: By cluster and node.
    counts, refused = Counter[str](), defaultdict[str, list[Ref]](list)
    for info in listed:
        path, size = info["path"], info["size"]
        shipped = _shipped_path(url, path)
        match = _NAME.fullmatch(path.rpartition("/")[2])
        of: Key | str = match[2] if match else ""
        if shipped is not None:
            place = "/".join(shipped.split("/")[:2])
            counts[place] += 1
            key = _key_of(shipped)
            why = "" if key else f"below {LAYOUT}/ no node ships an object of this name"
            if size > OBJECT_BYTES_MAX:
                why = f"it has more than {size_text(OBJECT_BYTES_MAX)}"
            elif counts[place] > NODE_OBJECTS_MAX:
                why = f"its node has more than {NODE_OBJECTS_MAX} objects"
            of = key if key and not why else ""
            # Some clients make empty objects for folders.
            if why and (size or match) and len(refused[place]) < REFUSED_SHOWN_MAX:
                refused[place].append(Ref(url, path, (), f"refused: {why}"))
        # An empty file is a segment before its first byte. With a hash in its name it had bytes.
        if match and of and (size or match[3]):
            moment = info["last_modified"]
            modified_ns = int(moment.timestamp()) * NS_PER_SECOND + moment.microsecond * 1000
            name = f"{match[1]}-{match[2]}.ebj"
            found[of].append(File(name, path, size, modified_ns, match[3] or "", bool(match[4])))
    refs = []
    for of, files in found.items():
        files.sort(key=lambda file: file.path)
        key = of if isinstance(of, Key) else None
        refs.append(Ref(url, folder_of(files[0].path), tuple(files), key=key))
    return sorted((*refs, *chain.from_iterable(refused.values())), key=_order)


class HasBytes(Protocol):
    @property
    def bytes(self) -> int: ...


HasBytesT = TypeVar("HasBytesT", bound=HasBytes)


def bins(refs: Sequence[HasBytesT], bytes_max: int = 32 << 20, count_max: int = 500) -> list[list[HasBytesT]]:
    """Small journals together, in order."""
    made: list[list[HasBytesT]] = []
    room = 0
    for ref in refs:
        if not made or room < ref.bytes or len(made[-1]) >= count_max:
            made.append([])
            room = bytes_max
        made[-1].append(ref)
        room -= ref.bytes
    return made


def location_of(ref: Ref, folder: str | None = None) -> str:
    """For people, and for ``--journal``."""
    return f"{place_name(ref.url).rstrip('/')}/{ref.folder if folder is None else folder}".rstrip("/")


# --- opened


EpisodeRecordT = TypeVar("EpisodeRecordT", bound=EpisodeRecord)

#: For one journal: the oldest blocks go first.
KEPT_BYTES_MAX = 16 << 20
#: Most segments are one range.
RANGE_BYTES = 4 << 20
#: Rows must not depend on the reading machine.
ELSEWHERE = "another machine"


class _Reader:
    def __init__(self, url: str) -> None:
        self._url = url
        self._kept: dict[tuple[str, int], bytes] = {}
        self.memory = MemoryWatch(WORKER_BYTES_MAX)

    def read(self, file: File, offset: int, size: int) -> bytes:
        """Raises StoreFailed, MemoryError."""
        self.memory.look()
        end = min(offset + size, file.size)
        found = b""
        while offset < end:
            begin = offset - offset % RANGE_BYTES
            block = self._block(file, begin, min(begin + RANGE_BYTES, file.size))
            found += block[offset - begin : end - begin]
            offset = begin + RANGE_BYTES
        return found

    def _block(self, file: File, begin: int, end: int) -> bytes:
        if (file.path, begin) in self._kept:
            return self._kept[file.path, begin]
        import obstore

        read = obstore.get_range if self._url.startswith("file:") else obstore.get_range_async
        ask = partial(read, store(self._url), file.path, start=begin, end=end)
        data = bytes(answer_of(self._url, file.path, ask))
        if len(data) != end - begin:
            raise StoreFailed(f"{file.path} has not the bytes that were listed: ask again")
        while self._kept and sum(map(len, self._kept.values())) + len(data) > KEPT_BYTES_MAX:
            self._kept.pop(next(iter(self._kept)))
        self._kept[file.path, begin] = data
        return data


class StoreSource:
    """`events.catalog.Source` over objects of different names."""

    def __init__(self, location: str, files: Iterable[File], reader: _Reader) -> None:
        self.location = location
        self._files, self._reader = {each.name: each for each in files}, reader

    def files(self) -> list[StoredFile]:
        return sorted(StoredFile(each.name, each.size, each.modified_ns) for each in self._files.values())

    def read(self, name: str, offset: int, size: int) -> bytes:
        return self._reader.read(self._files[name], offset, size)


class Opened(NamedTuple):
    """``id``: 32 digits, or eight without a header and a shipped path. ``node``: from the header, or from a
    shipped path. ``lies``: unused objects whose content contradicts their name. ``error``: why it could not
    be read.
    """

    id: str
    cluster: str
    node: str
    location: str
    files: tuple[File, ...]
    sources: tuple[StoreSource, ...]
    lies: tuple[str, ...] = ()
    error: str = ""

    def journal(self) -> Journal:
        """Raises NoJournal."""
        return _NamedJournal(self) if self.names_node else Journal(self.sources, boot_id=ELSEWHERE)

    @property
    def names_node(self) -> bool:
        """Its name decides, because a header may name another node."""
        return bool(self.cluster) or any(file.redacted for file in self.files)

    def named(self, record: EpisodeRecordT) -> EpisodeRecordT:
        return replace(record, node=self.node) if self.names_node else record


class _NamedJournal(Journal):
    def __init__(self, opened: Opened) -> None:
        super().__init__(opened.sources, boot_id=ELSEWHERE)
        self._opened = opened

    def shutdown_records(self) -> Iterator[ShutdownRecord]:
        return map(self._opened.named, super().shutdown_records())


def open_journals(ref: Ref) -> list[Opened]:
    """Nearly always one."""
    if ref.error:
        return [Opened("", "", "", location_of(ref), (), (), error=ref.error)]
    try:
        return list(_open(ref))
    except OF_THE_READER:
        raise
    except Exception as problem:
        key = ref.key or Key("", "", ref.files[0].id_begin)
        error = error_text(problem)
        return [Opened(key.journal, key.cluster, key.node, location_of(ref), ref.files, (), error=error)]


def error_text(problem: Exception) -> str:
    if isinstance(problem, MemoryError):
        return too_large_text(WORKER_BYTES_MAX)
    return f"{type(problem).__name__}: {problem}"


def _open(ref: Ref) -> Iterator[Opened]:
    reader = _Reader(ref.url)
    ours: dict[str, list[File]] = defaultdict(list)
    lies: dict[str, list[str]] = defaultdict(list)
    liars: dict[str, list[File]] = defaultdict(list)
    nameless: list[File] = []
    nodes: dict[str, str] = {}
    for file in ref.files:
        journal_id, node, problem = _look(file, ref.key, reader)
        if ref.key is not None:
            _, node, journal_id = ref.key
        nodes[journal_id] = node or nodes.get(journal_id, "")
        if problem:
            lies[journal_id or file.id_begin].append(problem)
            liars[journal_id or file.id_begin].append(file)
        elif journal_id:
            ours[journal_id].append(file)
        else:
            nameless.append(file)
    # An object without a header belongs to the journal in its folder, else to the first journal.
    for file in nameless:
        beside = [
            each for each in ours if any(folder_of(of.path) == folder_of(file.path) for of in ours[each])
        ]
        owner = next(iter(beside or ours), file.id_begin)
        ours[owner].append(file)
    for journal_id in sorted({**ours, **lies}):
        files = (*ours[journal_id], *liars[journal_id])
        yield Opened(
            journal_id,
            ref.key.cluster if ref.key else "",
            nodes.get(journal_id, ""),
            location_of(ref, folder_of(files[0].path) if files else None),
            files,
            tuple(_sources(ref, ours[journal_id], reader)),
            tuple(lies[journal_id]),
        )


def _look(file: File, key: Key | None, reader: _Reader) -> tuple[str, str, str]:
    """Id and node from its header, and a contradiction; each may be empty.

    A redacted object's node comes from its path, where only this node may write.
    """
    if file.sha256:
        digest = sha256()
        for offset in range(0, file.size, RANGE_BYTES):
            digest.update(reader.read(file, offset, RANGE_BYTES))
        if digest.hexdigest() != file.sha256:
            return "", "", f"{file.path}: its bytes do not match the hash in its name"
    data = reader.read(file, 0, PEEK_BYTES)
    try:
        if len(data) < (length := header_length(data)):
            data = reader.read(file, 0, length)
        header, _ = parse_header(data)
    except (DamagedHeader, IncompatibleHeader):
        return "", "", ""
    journal_id, node = header.journal_id.hex(), header.identity.node
    # Pseudonyms have a ~, nodes' names do not.
    if file.redacted and node and "~" not in node:
        return journal_id, node, f"{file.path}: it is not redacted, its header is of node {node}"
    if file.redacted and key is not None:
        node = key.node
    if key is not None and (key.journal, key.node) != (journal_id, node):
        return journal_id, node, f"{file.path}: its header is of journal {journal_id} of node {node}"
    # In a folder the journal's reader reports a wrong name.
    return (journal_id, node, "") if journal_id.startswith(file.id_begin) else ("", "", "")


def _sources(ref: Ref, files: Sequence[File], reader: _Reader) -> Iterator[StoreSource]:
    """One for each folder, and one more for a second object of one name."""
    groups: dict[tuple[str, int], list[File]] = defaultdict(list)
    seen: dict[tuple[str, str], int] = defaultdict(int)
    for file in files:
        folder = folder_of(file.path)
        groups[folder, seen[folder, file.name]].append(file)
        seen[folder, file.name] += 1
    for (folder, _), members in groups.items():
        yield StoreSource(location_of(ref, folder), members, reader)

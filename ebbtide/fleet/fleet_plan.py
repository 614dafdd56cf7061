"""Which objects of a store are one journal: planned by their names, with one LIST and no GET."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from os.path import isdir
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.fleet.fleet_stores import BadUrl, StoreFailed, cure_text, in_a_line, place_name, store, store_url

#: Digits of a journal's id that its objects' names have.
ID_BEGIN = 8
_NAME = re.compile(r"(\d{10})-([0-9a-f]{8})(?:-([0-9a-f]{64})(\.redacted)?)?\.ebj")
#: The path of a shipped object.
_SHIPPED = re.compile(r"(?:^|/)v1/cluster=([^/]*)/node=([^/]*)/journal=([0-9a-f]{32})$")


class File(NamedTuple):
    """An object. ``name``: for the journal's own reader. ``sha256``, ``redacted``: from the object's name."""

    name: str
    path: str
    size: int
    modified_ns: int
    sha256: str = ""
    redacted: bool = False

    @property
    def id_begin(self) -> str:
        """The begin of its journal's id, from its name."""
        return self.name[11:19]


class Key(NamedTuple):
    """The parts of a shipped object's path."""

    cluster: str
    node: str
    journal: str


class Ref(NamedTuple):
    """The objects that may be one journal, by their names alone.

    A name in a folder has only the first eight digits of the journal's id. Two journals may share them:
    `open_journals` separates these by their headers.
    """

    url: str
    folder: str
    files: tuple[File, ...]

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.files)

    @property
    def id_begin(self) -> str:
        return self.files[0].id_begin

    def key(self, file: File) -> Key | None:
        """None where the folder's name has no parts."""
        return _key_of(self.url, folder_of(file.path))


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


#: A folder is used while its own journal is planned or read: more would grow with the fleet.
FOLDERS_KEPT_MAX = 1024


@lru_cache(FOLDERS_KEPT_MAX)
def _key_of(url: str, folder: str) -> Key | None:
    # For a part of a store the URL has the begin of the path.
    match = _SHIPPED.search(f"{unquote(urlsplit(url).path).strip('/')}/{folder}".strip("/"))
    return Key(unquote(match[1]), unquote(match[2]), match[3]) if match else None


def journals(url: str) -> list[Ref]:
    """Every journal below ``url``, in the order of their folders whatever the order of the listing: one LIST.

    Raises BadUrl, StoreFailed.
    """
    import obstore

    url = store_url(url)
    if url.startswith("file://") and not isdir(place_name(url)):
        raise BadUrl(
            f"{place_name(url) or url} is no folder: name one with journals below it, or a URL of a store"
        )
    try:
        return plan(url, (info for chunk in obstore.list(store(url), chunk_size=1000) for info in chunk))
    except (OSError, obstore.exceptions.BaseError) as error:
        raise StoreFailed(
            f"{place_name(url)} cannot be listed{cure_text(url)}: {in_a_line(error)}"
        ) from error


def plan(url: str, listed: Iterable[Any]) -> list[Ref]:
    """The journals of a listing, whose entries have ``path``, ``size`` and ``last_modified``."""
    found: dict[str, list[File]] = defaultdict(list)
    for info in listed:
        last = info["path"].rpartition("/")[2]
        match = _NAME.fullmatch(last)
        # An empty file is a segment before its first byte. A name with a hash had bytes.
        if match and (info["size"] or match[3]):
            moment = info["last_modified"]
            modified_ns = int(moment.timestamp()) * NS_PER_SECOND + moment.microsecond * 1000
            name = f"{match[1]}-{match[2]}.ebj"
            file = File(name, info["path"], info["size"], modified_ns, match[3] or "", bool(match[4]))
            found[match[2]].append(file)
    refs = []
    for alike in found.values():
        for files in _by_journal(url, alike):
            files.sort(key=lambda file: file.path)
            refs.append(Ref(url, folder_of(files[0].path), tuple(files)))
    return sorted(refs, key=lambda ref: ref.files[0].path)


def _by_journal(url: str, alike: list[File]) -> list[list[File]]:
    """Objects with the same eight digits, separated by journal where all paths name one."""
    if len({folder_of(file.path) for file in alike}) == 1:
        return [alike]
    of_journals: dict[str, list[File]] = defaultdict(list)
    for file in alike:
        key = _key_of(url, folder_of(file.path))
        of_journals[key.journal if key is not None else ""].append(file)
    # An object without a named path may be a copy from any of them.
    return [alike] if "" in of_journals else list(of_journals.values())


class HasBytes(Protocol):
    """Has a size, like a journal."""

    @property
    def bytes(self) -> int: ...


HasBytesT = TypeVar("HasBytesT", bound=HasBytes)


def bins(refs: Sequence[HasBytesT], bytes_max: int = 32 << 20, count_max: int = 500) -> list[list[HasBytesT]]:
    """Small journals together, in order. A journal is never split."""
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
    """For people, and for ``--journal`` where it is a folder."""
    return f"{place_name(ref.url).rstrip('/')}/{ref.folder if folder is None else folder}".rstrip("/")

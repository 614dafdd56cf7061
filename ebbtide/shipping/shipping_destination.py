"""Segments' names in a store; which are closed, which the store has, and which retention keeps."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from ebbtide.events.catalog import Segment, Source, find_path, find_segments
from ebbtide.events.files import read_own, replace_file

SCHEMES = ("s3", "gs", "az", "file")
#: A key may have 1 024 bytes (S3), a folder's name 255; a node's name has up to 253.
URL_BYTES_MAX, CLUSTER_BYTES_MAX = 256, 200
#: The names' version.
LAYOUT = "v1"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


class BadStore(ValueError):
    """One line, without a possible password."""


class Store(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    url: str = ""
    cluster: str = ""
    redact: bool = False

    @property
    def identity(self) -> str:
        """A cursor is valid for one identity."""
        return f"{self.url.rstrip('/')} {self.cluster}{' redacted' if self.redact else ''}"


def checked_url(text: str) -> str:
    """Without a slash at its end. Raises BadStore."""
    try:
        parts = urlsplit(text)
        signed = parts.username is not None or parts.password is not None or parts.query or parts.fragment
    except ValueError:
        raise BadStore("it must be a URL such as s3://bucket/prefix") from None
    if signed:
        raise BadStore(
            "credentials and options do not stand in it: give them by the environment (AWS_ACCESS_KEY_ID …), "
            "a role, or a file that the environment names"
        )
    there = parts.path.startswith("/") and not parts.netloc if parts.scheme == "file" else True
    bucket = parts.scheme == "file" or _BUCKET.fullmatch(parts.netloc)
    if parts.scheme not in SCHEMES or not there or not bucket:
        raise BadStore("it must be a URL such as s3://bucket/prefix, gs://…, az://… or file:///folder")
    if len(quote(text)) > URL_BYTES_MAX:
        raise BadStore(f"it may have {URL_BYTES_MAX} bytes, percent-encoded")
    if not text.isprintable() or any(
        part in (".", "..", "") for part in parts.path.strip("/").split("/")[1:]
    ):
        raise BadStore("its prefix must be printable, without empty parts, . and ..")
    return text.rstrip("/")


def checked_cluster(text: str) -> str:
    """Raises BadStore."""
    if not text or len(quote(text, safe="")) > CLUSTER_BYTES_MAX or not text.isprintable():
        raise BadStore(f"it must be a printable name of 1 to {CLUSTER_BYTES_MAX} bytes, percent-encoded")
    return text


def node_prefix(cluster: str, node: str) -> str:
    """A node's rights may be limited to it."""
    return f"{LAYOUT}/cluster={quote(cluster, safe='')}/node={quote(node, safe='')}"


def object_key(cluster: str, node: str, journal_id: bytes, name: str, sha256: str, redacted: bool) -> str:
    """Below the store's prefix. ``name``: the segment's (``NNNNNNNNNN-JJJJJJJJ.ebj``)."""
    ending = ".redacted.ebj" if redacted else ".ebj"
    stem = name.removesuffix(".ebj")
    return f"{node_prefix(cluster, node)}/journal={journal_id.hex()}/{stem}-{sha256}{ending}"


def closed_segments(sources: Sequence[Source]) -> list[Segment]:
    """All before the last one, of every journal in these locations, oldest first. They are durable: the
    writer syncs one before it begins the next, or carries over the missing records. Raises OSError.
    """
    found = find_segments(sources)
    last = max((segment.number for segment in found if segment.header is not None), default=0)
    journals = dict.fromkeys(segment.journal for segment in found if segment.header is not None)
    paths = [find_path(sources, journal) for journal in journals]
    segments = [segment for path in paths for segment in (*path.older, *path.segments)]
    return sorted((each for each in segments if each.number < last), key=lambda each: each.number)


# --- the cursor

FILE_NAME, LOCK_NAME = "shipped.json", "shipped.lock"
FORMAT = 1
#: An entry has 180 bytes; the journal's hard cap allows a few thousand segments.
CURSOR_BYTES_MAX = 4 * 1024 * 1024

#: ``stored``: the store verified the checksum. ``present``: the name was taken, the content not verified.
#: ``unfit``: it is too large, or cannot be redacted, and is never sent.
Outcome = Literal["stored", "present", "unfit"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``sha256``: of the offered bytes; empty if unfit."""

    outcome: Outcome
    wall_ns: int
    sha256: str = ""
    reason: str = ""


class Shipped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cursor. ``reason``: why the store did not take the last segment, or empty."""

    store: str
    format: int = FORMAT
    segments: dict[str, Entry] = {}
    stored: int = 0
    present: int = 0
    failed: int = 0
    wall_ns: int = 0
    reason: str = ""


def load_shipped(directory: str | os.PathLike[str], store: Store) -> Shipped:
    """Empty without a cursor for this store."""
    with suppress(OSError, ValueError, RecursionError):
        data = read_own(Path(directory) / FILE_NAME, CURSOR_BYTES_MAX + 1)
        found = msgspec.json.decode(data, type=Shipped)
        if len(data) <= CURSOR_BYTES_MAX and (found.format, found.store) == (FORMAT, store.identity):
            return found
    return Shipped(store=store.identity)


def load_shipped_first(directories: Sequence[str | os.PathLike[str]], store: Store) -> Shipped:
    """The newest: a journal may have moved and returned."""
    return max((load_shipped(each, store) for each in directories), key=lambda each: each.wall_ns)


def save_shipped(directory: str | os.PathLike[str], shipped: Shipped) -> None:
    """Durable on return. Raises OSError."""
    data = msgspec.json.format(msgspec.json.encode(shipped), indent=2) + b"\n"
    replace_file(Path(directory) / FILE_NAME, data)


class Backlog(NamedTuple):
    """``names``: closed segments without an entry. ``keep_from_seq``: the journal's first record in one of
    them, else in its last segment.
    """

    names: frozenset[str]
    keep_from_seq: int


def backlog(locations: Sequence[str], sources: Sequence[Source], journal_id: bytes, store: Store) -> Backlog:
    """For retention. Raises OSError."""
    known = load_shipped_first(locations, store).segments
    names = frozenset(each.name for each in closed_segments(sources) if each.name not in known)
    path = find_path(sources, journal_id.hex()).segments
    first = next((each for each in path if each.name in names), path[-1] if path else None)
    header = first.header if first is not None else None
    return Backlog(names, header.link.seq + 1 if header is not None else 1)

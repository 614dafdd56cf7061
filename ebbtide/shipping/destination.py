"""Where segments go, under which names, and what is on record of them beside the journal.

Of the shipping the daemon imports this and `edge`: nothing here knows a client of any store.
"""

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
from ebbtide.events.files import replace_file
from ebbtide.otel.metrics import ShippingState

SCHEMES = ("s3", "gs", "az", "file")
#: A key may have 1 024 bytes (S3), and a file's name 255: with a node's name of 253 there is room for these.
URL_BYTES_MAX, CLUSTER_BYTES_MAX = 256, 200
#: Before every name: what comes after it may change only with another one.
LAYOUT = "v1"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


class BadStore(ValueError):
    """Segments cannot be shipped there; one line that never repeats what may be a password."""


class Store(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``url``: ``s3://bucket/prefix``, gs, az, or ``file:///folder``. ``cluster`` stands in each name."""

    url: str = ""
    cluster: str = ""
    redact: bool = False

    @property
    def identity(self) -> str:
        """What a record of shipped segments is about: another store or another form has none of them."""
        return f"{self.url.rstrip('/')} {self.cluster}{' redacted' if self.redact else ''}"


def checked_url(text: str) -> str:
    """The URL without a slash at its end. Raises BadStore."""
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
    """What a node's rights may be kept to."""
    return f"{LAYOUT}/cluster={quote(cluster, safe='')}/node={quote(node, safe='')}"


def object_key(cluster: str, node: str, journal_id: bytes, name: str, sha256: str, redacted: bool) -> str:
    """Of the segment ``name`` (``NNNNNNNNNN-JJJJJJJJ.ebj``) with these bytes, below the store's prefix."""
    ending = ".redacted.ebj" if redacted else ".ebj"
    stem = name.removesuffix(".ebj")
    return f"{node_prefix(cluster, node)}/journal={journal_id.hex()}/{stem}-{sha256}{ending}"


# --- what is closed --------------------------------------------------------------------------------


def closed_segments(sources: Sequence[Source]) -> list[Segment]:
    """Those that nobody will ever write to again, oldest first: a later one with a whole header is there.

    Of every journal in these locations the segments of its path; what failed beside it, or has no header that
    can be read, counts for nothing. Raises OSError.
    """
    # The writer begins a segment only behind a sync of the one before, or carries over what that lacks: what
    # is closed is durable.
    found = find_segments(sources)
    last = max((segment.number for segment in found if segment.header is not None), default=0)
    journals = dict.fromkeys(segment.journal for segment in found if segment.header is not None)
    paths = [find_path(sources, journal) for journal in journals]
    segments = [segment for path in paths for segment in (*path.older, *path.segments)]
    return sorted((each for each in segments if each.number < last), key=lambda each: each.number)


# --- what is on record -----------------------------------------------------------------------------

FILE_NAME, LOCK_NAME = "shipped.json", "shipped.lock"
FORMAT = 1
#: An entry has some 180 bytes, and the journal's hard cap leaves room for a few thousand segments.
CURSOR_BYTES_MAX = 4 * 1024 * 1024

#: ``stored``: the store took the bytes and verified their checksum. ``present``: something stood there under
#: that name already, and nobody has looked at its content. ``unfit``: it cannot be redacted, and stays here.
Outcome = Literal["stored", "present", "unfit"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one segment. ``sha256`` of the bytes that were offered; empty for an unfit one."""

    outcome: Outcome
    wall_ns: int
    sha256: str = ""
    reason: str = ""


class Shipped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cursor: it saves requests, and is evidence of nothing. The counts go on for the metrics.

    ``reason``: why the store has not taken what was offered last; empty where it has.
    """

    store: str
    format: int = FORMAT
    segments: dict[str, Entry] = {}
    stored: int = 0
    present: int = 0
    failed: int = 0
    #: Removed here before they were known to be in the store.
    lost: int = 0
    wall_ns: int = 0
    reason: str = ""


def load_shipped(directory: str | os.PathLike[str], store: Store) -> Shipped:
    """An empty one where there is none of this store: then everything is offered again. Raises nothing."""
    with suppress(OSError, ValueError, RecursionError), open(Path(directory) / FILE_NAME, "rb") as file:
        data = file.read(CURSOR_BYTES_MAX + 1)
        found = msgspec.json.decode(data, type=Shipped)
        if len(data) <= CURSOR_BYTES_MAX and (found.format, found.store) == (FORMAT, store.identity):
            return found
    return Shipped(store=store.identity)


def load_shipped_first(directories: Sequence[str | os.PathLike[str]], store: Store) -> Shipped:
    """The newest of those that are there: the journal may have moved and come back."""
    return max((load_shipped(each, store) for each in directories), key=lambda each: each.wall_ns)


def save_shipped(directory: str | os.PathLike[str], shipped: Shipped) -> None:
    """Durable when it returns. Raises OSError."""
    data = msgspec.json.format(msgspec.json.encode(shipped), indent=2) + b"\n"
    replace_file(Path(directory), FILE_NAME, data)


class Backlog(NamedTuple):
    """Closed segments of all journals that are not settled, as far as is known; ``keep_from_seq``: the first
    record of the journal that is written which is in one of them, else the first of its last segment.
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


# --- to the process and back -----------------------------------------------------------------------


class ShipJob(msgspec.Struct, frozen=True, kw_only=True):
    """``locations``: where the journal may stand; the cursor is kept in the first that can be written.
    ``lost``: how many segments retention removed that were not known to be in the store; they are to be put
    on record. The pipe's end says that the daemon has gone.
    """

    store: Store
    locations: tuple[str, ...]
    lost: int = 0


class ShipReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line for the log where ``text`` is not empty; ``state`` where it has changed; ``recorded``: so many
    of the job's ``lost`` ones stand in the cursor now.
    """

    text: str = ""
    level: int = 6
    state: ShippingState | None = None
    recorded: int = 0

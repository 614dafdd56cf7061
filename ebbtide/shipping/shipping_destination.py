"""Where segments go, and their names there. It imports no client of a store."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit

import msgspec

SCHEMES = ("s3", "gs", "az", "file")
#: A key may have 1 024 bytes (S3), and a node's name takes 253 of them. A folder's name may have 255.
URL_BYTES_MAX, CLUSTER_BYTES_MAX = 256, 200
#: The layout of the names after it.
LAYOUT = "v1"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


class BadStore(ValueError):
    """Segments cannot be shipped there. One line, without anything that may be a password."""


class Store(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``url``: ``s3://bucket/prefix``, gs, az, or ``file:///folder``. ``cluster`` is part of each name."""

    url: str = ""
    cluster: str = ""
    redact: bool = False

    @property
    def identity(self) -> str:
        """A cursor is valid for one store and one form."""
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
    """A node's rights may be limited to it."""
    return f"{LAYOUT}/cluster={quote(cluster, safe='')}/node={quote(node, safe='')}"


def object_key(cluster: str, node: str, journal_id: bytes, name: str, sha256: str, redacted: bool) -> str:
    """The segment ``name`` (``NNNNNNNNNN-JJJJJJJJ.ebj``) with these bytes, below the store's prefix."""
    ending = ".redacted.ebj" if redacted else ".ebj"
    stem = name.removesuffix(".ebj")
    return f"{node_prefix(cluster, node)}/journal={journal_id.hex()}/{stem}-{sha256}{ending}"

"""Object stores by their URLs; a plain path is a folder. No other module here knows the client."""

from __future__ import annotations

import re
from functools import cache
from os.path import abspath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

_CREDENTIALS = re.compile(r"(?i)(key|token|secret|signature|sig|password|credential)[^=&]*=")


class BadUrl(ValueError):
    """The URL names no known store, or holds credentials. The text says what to write instead."""


#: Problems of the reading program. They say nothing about a journal.
OF_THE_READER = (BadUrl, ImportError, MemoryError)


class StoreFailed(Exception):
    """A store did not answer, or did not return a listed object. The store failed, not the journal."""


def store_url(place: str) -> str:
    """The URL of a store, also for a plain path. Raises BadUrl."""
    if not place:
        raise BadUrl("an empty name is no place: name a folder, or a URL such as s3://BUCKET/PREFIX")
    if "://" not in place:
        return f"file://{quote(abspath(place))}"
    parts = urlsplit(place)
    if parts.scheme in ("http", "https"):
        raise BadUrl(
            f"{parts.scheme}:// names no bucket: write s3://BUCKET/PREFIX, and the server's address into"
            " AWS_ENDPOINT_URL (AWS_ALLOW_HTTP=true without TLS)"
        )
    # Engines log URLs, and every user of the machine can see a command line.
    if "@" in parts.netloc or _CREDENTIALS.search(parts.query):
        raise BadUrl(
            f"the URL of {parts.scheme}://{parts.hostname or ''} holds credentials: leave them out, and give"
            " them by the environment (AWS_*, GOOGLE_*, AZURE_*) or the machine's role"
        )
    return place


@cache
def store(url: str) -> Any:
    """One client for each process and URL. Raises BadUrl."""
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    try:
        return from_url(url)
    except (BaseError, ValueError) as error:
        raise BadUrl(
            f"{place_name(url)}: {in_a_line(error)}; name a folder, or a URL such as s3://BUCKET/PREFIX,"
            " gs:// or az://"
        ) from None


#: Environment variables with a store's credentials and endpoint.
_VARIABLES = {"s3": "AWS_*", "s3a": "AWS_*", "gs": "GOOGLE_*", "az": "AZURE_*"}


def cure_text(url: str) -> str:
    """The cure where a store refuses a request."""
    names = _VARIABLES.get(urlsplit(url).scheme)
    return f" (endpoint, credentials and region come from {names} or the machine's role)" if names else ""


def place_name(url: str) -> str:
    """The URL or path for people."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else url


#: A longer error text of the client is a dump of its own values.
_CLIENT_CHARACTERS_MAX = 300


def in_a_line(error: Exception) -> str:
    """The client's error in one line."""
    said = " ".join(str(error).partition("\n\nDebug source")[0].split())
    return said[:_CLIENT_CHARACTERS_MAX]

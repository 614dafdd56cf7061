"""A server's words without our secrets: one that repeats the request it got would carry the values of headers
into the log, the cursor, and the terminal.

What is found is starred out in place: the length stays, so that a protobuf message stays one.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import quote

#: Shorter values are found as words only: as letters they are in every sentence.
SHORT_BYTES_MAX = 4
BASIC = "basic"

Mask = Callable[[bytes], bytes]


def mask_for(headers: Sequence[tuple[str, str]]) -> Mask:
    """Stars out the values, their parts behind a scheme (``Bearer``), and Basic's name and password, also
    escaped as in HTML, JSON or a URL.
    """
    found = {form.encode() for _, value in headers for part in _parts(value) for form in _forms(part)}
    patterns = [_pattern(text) for text in sorted(found - {b""}, key=len, reverse=True)]
    if not patterns:
        return lambda data: data
    any_of_them = re.compile(b"|".join(patterns))
    return lambda data: any_of_them.sub(lambda match: b"*" * len(match[0]), data)


def _pattern(text: bytes) -> bytes:
    whole = re.escape(text)
    return whole if len(text) > SHORT_BYTES_MAX else rb"(?<!\w)" + whole + rb"(?!\w)"


def _parts(value: str) -> Iterator[str]:
    yield value
    scheme, _, rest = value.partition(" ")
    yield rest.strip()
    if scheme.lower() == BASIC:
        try:
            pair = base64.b64decode(rest.strip()).decode()
        except ValueError:
            return
        yield from (pair, pair.partition(":")[2])


def _forms(text: str) -> tuple[str, ...]:
    return text, html.escape(text), json.dumps(text)[1:-1], quote(text, safe="")

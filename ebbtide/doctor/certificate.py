"""Until when a client certificate is valid, read from its DER without a library for it.

A certificate's validity is all that is wanted here, at a fixed place near its begin (RFC 5280, 4.1):
Certificate, TBSCertificate, then version (optional), serialNumber, signature, issuer, *validity*.
"""

from __future__ import annotations

import binascii
import calendar
import re
import time

SEQUENCE, INTEGER, VERSION = 0x30, 0x02, 0xA0
#: Two digits of a year (UTCTime), or four (GeneralizedTime).
FORMATS = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


def validity(pem: bytes) -> tuple[int, int] | None:
    """Begin and end in seconds of Unix time, of the first certificate; None for what is none."""
    found = PEM.search(pem)
    if found is None:
        return None
    try:
        return _validity(binascii.a2b_base64(found[1]))
    except (ValueError, IndexError):  # binascii.Error, and a time that is none, are ValueErrors
        return None


def _validity(der: bytes) -> tuple[int, int]:
    _, certificate, _ = _value(der, SEQUENCE)
    _, rest, _ = _value(certificate, SEQUENCE)
    if rest[0] == VERSION:
        _, _, rest = _value(rest)
    for expected in (INTEGER, SEQUENCE, SEQUENCE):
        _, _, rest = _value(rest, expected)
    _, times, _ = _value(rest, SEQUENCE)
    first, begins, times = _value(times)
    second, ends, _ = _value(times)
    return _time(first, begins), _time(second, ends)


def _value(data: bytes, expected: int | None = None) -> tuple[int, bytes, bytes]:
    """A tag, its content, and what comes behind it. Raises ValueError, IndexError."""
    tag, length, at = data[0], data[1], 2
    if expected is not None and tag != expected:
        raise ValueError(f"tag {tag} where {expected} was expected")
    if length & 0x80:
        at += length & 0x7F
        length = int.from_bytes(data[2:at])
    if at + length > len(data):
        raise ValueError("it is cut off")
    return tag, data[at : at + length], data[at + length :]


def _time(tag: int, text: bytes) -> int:
    """UTCTime counts 50 to 99 as 19xx (RFC 5280), strptime 69 to 99; nothing here is that old."""
    if tag not in FORMATS:
        raise ValueError("not a time")
    return calendar.timegm(time.strptime(text.decode("ascii"), FORMATS[tag]))

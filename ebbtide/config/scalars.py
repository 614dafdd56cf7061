"""What one word of YAML means, and how it is shown in a message.

The rules are those by which Kubernetes' own tools read a manifest: YAML 1.1 without the base-60 numbers and
without dates.
"""

from __future__ import annotations

import re
from typing import TypeAlias

Scalar: TypeAlias = "str | int | float | bool | None"

#: Longest piece of someone's text that a message repeats.
QUOTE_LENGTH_MAX = 60

#: No number in use has more digits; int() on a long text is quadratic.
DIGITS_MAX = 40

_NULL = ("", "~", "null", "Null", "NULL")
_TRUE = ("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON")
_FALSE = ("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF")
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(_NULL, None),
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
}

_INTS = tuple(
    (re.compile(rf"[-+]?{pattern}"), base)
    for pattern, base in (
        (r"0b(?P<digits>_*[01][01_]*)", 2),
        (r"0x(?P<digits>_*[0-9a-fA-F][0-9a-fA-F_]*)", 16),
        (r"0o?(?P<digits>_*[0-7][0-7_]*)", 8),
        (r"(?P<digits>0|[1-9][0-9_]*)", 10),
    )
)
_FLOAT = re.compile(
    r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)

_STR, _INT_TAG, _FLOAT_TAG, _BOOL, _NULL_TAG = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")
)


class DocumentError(Exception):
    """A text cannot be used; ``message`` is one line with the cure, ``line`` 0 where it is not known."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = one_line(message)
        self.line = line


def one_line(text: str) -> str:
    """``text`` without line breaks and without characters that a terminal would obey."""
    joined = " ".join(text.split())
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in joined)


def quote(text: str) -> str:
    """Someone's text inside a message: in quotes, shortened, harmless."""
    cut = text if len(text) <= QUOTE_LENGTH_MAX else text[: QUOTE_LENGTH_MAX - 1] + "…"
    return one_line(repr(cut))


def resolve(text: str, tag: str | None, plain: bool, line: int) -> Scalar:
    """The value of a scalar: ``plain`` when it was written without quotes and without a tag.

    Raises DocumentError on a tag that is not in use, and where text and tag disagree.
    """
    if tag == _STR or tag == "!" or (tag is None and not plain):
        return text
    value = _plain(text, line)
    if tag is not None and not isinstance(value, _tagged(tag, line)):
        raise DocumentError(f"a value does not fit its tag {quote(tag)}: leave the tag out", line)
    return value


def _tagged(tag: str, line: int) -> type | tuple[type, ...]:
    kinds: dict[str, type | tuple[type, ...]] = {
        _INT_TAG: int,
        _FLOAT_TAG: (int, float),
        _BOOL: bool,
        _NULL_TAG: type(None),
    }
    if tag not in kinds:
        raise DocumentError(f"the tag {quote(tag)} is not used here: leave it out", line)
    return kinds[tag]


def _plain(text: str, line: int) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    for pattern, base in _INTS:
        if match := pattern.fullmatch(text):
            return _int(text, match["digits"], base, line)
    return _float(text) if _FLOAT.fullmatch(text) else text


def _int(text: str, digits: str, base: int, line: int) -> int:
    if len(digits) > DIGITS_MAX:
        raise DocumentError(f"a number of {len(digits)} digits: it is out of range", line)
    size = int(digits.replace("_", ""), base)
    return -size if text.startswith("-") else size


def _float(text: str) -> float:
    """Only ever to be refused by name: no field is a float."""
    return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))

"""From a node to a value and back: one reader and one shower for each kind of field.

A reader takes the node and the field's path (for the message) and raises DocumentError with one line. It
checks the value alone; rules over several fields are in `loading`. First the durations, which the kubelet's
configuration is written in.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ebbtide.actors.edges.documents import QUOTE_LENGTH_MAX, DocumentError, Node, quote
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Period

# --- Go's durations ----------------------------------------------------------------------------

# ``30s``, ``1m30s``, ``1.5h`` as integer nanoseconds, exactly: no float is involved.

#: Nanoseconds of each of Go's units; Go accepts both micro signs.
UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}

#: A duration is an int64 of nanoseconds, about 292 years.
DURATION_NS_MAX = 2**63 - 1

#: A longer text is a mistake, and int() of it would take long.
DURATION_LENGTH_MAX = 100

_DURATION_TERM = re.compile(rf"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)({'|'.join(UNITS_NS)})")
_DURATION_EXAMPLES = "write it like 30s, 1m30s or 500ms"


def parse_duration(text: str) -> int:
    """Nanoseconds of a Go duration. A sign and a bare ``0`` are allowed.

    Raises ValueError with one line: what is wrong, and how to write it.
    """
    if len(text) > DURATION_LENGTH_MAX:
        raise ValueError(f"a duration of {len(text)} characters: {_DURATION_EXAMPLES}")
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0
    terms = _DURATION_TERM.findall(body)
    if not terms or "".join(number + unit for number, unit in terms) != body:
        missing = " has no unit" if body.isascii() and body.isdecimal() else " is not a duration"
        raise ValueError(f"{text!r}{missing}: {_DURATION_EXAMPLES}")
    total_ns = 0
    for number, unit in terms:
        # Go cuts the fraction of each term alone.
        whole, _, fraction = number.partition(".")
        scale: int = 10 ** len(fraction)
        total_ns += int(whole or "0") * UNITS_NS[unit] + int(fraction or "0") * UNITS_NS[unit] // scale
    total_ns = -total_ns if text.startswith("-") else total_ns
    if not -DURATION_NS_MAX - 1 <= total_ns <= DURATION_NS_MAX:
        raise ValueError(f"duration {text!r} is out of range: at most about 292 years")
    return total_ns


def format_duration(duration_ns: int) -> str:
    """As Go prints it: ``0s``, ``1ms``, ``2s``, ``1m30s``, ``1h0m0.5s``."""
    sign, size_ns = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    # Below a second in the largest unit that gives a whole number before the point.
    for unit, digits in (("ms", 6), ("\u00b5s", 3), ("ns", 0)):
        if UNITS_NS[unit] <= size_ns < UNITS_NS["s"]:
            return sign + _decimal_text(*divmod(size_ns, UNITS_NS[unit]), digits) + unit
    seconds, rest_ns = divmod(size_ns, UNITS_NS["s"])
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    large = (f"{hours}h" if hours else "") + (f"{minute}m" if minutes else "")
    return f"{sign}{large}{_decimal_text(second, rest_ns, 9)}s"


def _decimal_text(whole: int, rest: int, digits: int) -> str:
    return f"{whole}.{rest:0{digits}d}".rstrip("0") if rest else str(whole)


# --- the kinds of fields -----------------------------------------------------------------------

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1

#: A period's seconds as nanoseconds must fit an int64, as Go's own durations do.
PERIOD_SECONDS_MAX = DURATION_NS_MAX // NS_PER_SECOND

#: More waves than anyone has priority classes; keeps the plan's record small.
PERIODS_MAX = 256

#: A reserve or a flush of more than an hour is a slip of the unit.
SHORT_SECONDS_MAX = 3600

#: Locations for the journal: a disk, a second one, memory, and one to spare.
PATHS_MAX = 4
HOSTS_MAX = 16

#: PATH_MAX of Linux.
PATH_LENGTH_MAX = 4096

#: Less cannot hold one shutdown of a full node together with a checkpoint.
SIZE_MIN, SIZE_MAX = 2**20, 2**40

#: A pod's and a Node's name (RFC 1123).
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
SUBDOMAIN_LENGTH_MAX = 253
#: A namespace's, which stands in paths (RFC 1123 too).
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_LENGTH_MAX = 63

#: The gates that concern shutdown.
GATES = (
    "GracefulNodeShutdown",
    "GracefulNodeShutdownBasedOnPodPriority",
    "PodLifecycleSleepAction",
    "PodLifecycleSleepActionAllowZero",
)

_PERIOD_FIELDS = ("priority", "shutdownGracePeriodSeconds")


def describe(node: Node) -> str:
    """What stands there, for a message."""
    if node.value is None:
        return "nothing"
    if isinstance(node.value, (dict, list)):
        return "a list" if isinstance(node.value, list) else "a mapping"
    if isinstance(node.value, bool):
        return str(node.value).lower()
    return quote(node.value) if isinstance(node.value, str) else str(node.value)


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like ``name``, upper and lower case alike."""
    # However far off it is (no cutoff): who has mistyped a field wants a name, not the remark that there is
    # none. Cut, since comparing two long texts takes the square of their length.
    by_lower = {each.lower(): each for each in known}
    wanted = name[:QUOTE_LENGTH_MAX].lower()
    return by_lower[difflib.get_close_matches(wanted, list(by_lower), n=1, cutoff=0.0)[0]]


def unknown(path: str, name: str, known: Iterable[str], line: int) -> DocumentError:
    """The error for a name that is not among ``known``; ``path`` is what it stands in, or empty."""
    where = f" in {path}" if path else ""
    cure = f"did you mean {nearest(name, known)}?"
    # As other tools' files have them, to hold what is used elsewhere in the file: no field of ours is meant.
    if name.startswith("x-"):
        cure = "fields of your own (x-…) are not taken, put the anchor where its value is used first"
    return DocumentError(f"unknown field {quote(name)}{where}: {cure}", line)


class DocumentErrors(DocumentError):
    """Several mistakes of one document, in its order."""

    def __init__(self, found: Sequence[DocumentError]) -> None:
        super().__init__("; ".join(error.message for error in found), found[0].line)
        self.found = tuple(found)


class Mistakes:
    """Reads on behind a mistake, so that all of a document are told at once, and not one a run."""

    def __init__(self) -> None:
        self._found: list[DocumentError] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A DocumentError within is kept."""
        try:
            yield
        except DocumentErrors as several:
            self._found += several.found
        except DocumentError as error:
            self._found.append(error)

    def report(self) -> None:
        """Raises DocumentError where any was kept."""
        if self._found:
            raise self._found[0] if len(self._found) == 1 else DocumentErrors(self._found)


def mapping(node: Node, path: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise _wrong(node, path, "a mapping")
    return node.value


def sequence(node: Node, path: str, count_max: int) -> list[Node]:
    if not isinstance(node.value, list):
        raise _wrong(node, path, "a list")
    if len(node.value) > count_max:
        raise DocumentError(
            f"{path} has {len(node.value)} entries: at most {count_max} can be used", node.line
        )
    return node.value


def text(node: Node, path: str) -> str:
    if not isinstance(node.value, str):
        raise _wrong(node, path, "a word; put it in quotes")
    if "\0" in node.value:
        raise DocumentError(f"{path} holds a NUL character: take it out", node.line)
    return node.value


def secret(node: Node, path: str) -> str:
    """A text that no message repeats, whatever it is: messages reach logs and the journal."""
    if not isinstance(node.value, str) or "\0" in node.value:
        raise DocumentError(f"{path} must be a word without NUL characters; put it in quotes", node.line)
    return node.value


def number(node: Node, path: str, least: int, most: int) -> int:
    """A whole number in bounds; true, 1.0 and .nan are none."""
    if not isinstance(node.value, int) or isinstance(node.value, bool):
        raise _wrong(node, path, "a whole number")
    if not least <= node.value <= most:
        raise DocumentError(f"{path} is {node.value}: it must be from {least} to {most}", node.line)
    return node.value


def flag(node: Node, path: str) -> bool:
    if not isinstance(node.value, bool):
        raise _wrong(node, path, "true or false")
    return node.value


def duration(node: Node, path: str) -> int:
    """Nanoseconds. Negative ones are read: it is a rule that refuses them, in the kubelet's words."""
    # To Go's own type a bare number is nanoseconds, which nobody means who writes 30.
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        raise DocumentError(
            f"{path} is {node.value}, without a unit: write {node.value}s for seconds", node.line
        )
    if not isinstance(node.value, str):
        raise _wrong(node, path, "a duration such as 30s")
    try:
        return parse_duration(node.value)
    except ValueError as error:
        raise DocumentError(f"{path}: {error}", node.line) from error


def whole_seconds(node: Node, path: str) -> int:
    duration_ns = duration(node, path)
    if duration_ns % NS_PER_SECOND or not 0 <= duration_ns <= SHORT_SECONDS_MAX * NS_PER_SECOND:
        shown = format_duration(duration_ns)
        raise DocumentError(f"{path} is {shown}: it must be whole seconds, from 0s to 1h", node.line)
    return duration_ns


def bounded_duration(least_ns: int, most_ns: int) -> Callable[[Node, str], int]:
    """Nanoseconds in bounds."""

    def read(node: Node, path: str) -> int:
        duration_ns = duration(node, path)
        if not least_ns <= duration_ns <= most_ns:
            bounds = f"from {format_duration(least_ns)} to {format_duration(most_ns)}"
            raise DocumentError(f"{path} is {format_duration(duration_ns)}: it must be {bounds}", node.line)
        return duration_ns

    return read


def one_of(words: tuple[str, ...]) -> Callable[[Node, str], str]:
    def read(node: Node, path: str) -> str:
        word = text(node, path)
        if word not in words:
            raise DocumentError(f"{path} is {quote(word)}: it must be {' or '.join(words)}", node.line)
        # The same object as a default that it may be: what equals a default leaves no byte in the journal.
        return words[words.index(word)]

    return read


def path(node: Node, name: str) -> str:
    value = text(node, name)
    if not value.startswith("/") or len(value) > PATH_LENGTH_MAX:
        raise DocumentError(f"{name} is {quote(value)}: it must be an absolute path", node.line)
    return value


def drop_in_folder(node: Node, name: str) -> str:
    """One of the folders that logind reads, however it is written (a trailing slash, ``..``)."""
    from ebbtide.actors.edges.logind.drop_ins import DROP_IN_FOLDERS  # late: with it comes the whole edge

    value = os.path.normpath(path(node, name)).replace("//", "/")
    if value not in DROP_IN_FOLDERS:
        raise DocumentError(
            f"{name} is {quote(value)}: logind reads only {', '.join(DROP_IN_FOLDERS)}", node.line
        )
    return value


def paths(node: Node, name: str) -> tuple[str, ...]:
    entries = sequence(node, name, PATHS_MAX)
    return tuple(path(each, f"{name}[{index}]") for index, each in enumerate(entries))


def hosts(node: Node, name: str) -> tuple[str, ...]:
    """In lower case, as they are compared."""
    entries = enumerate(sequence(node, name, HOSTS_MAX))
    return tuple(_host(each, f"{name}[{index}]") for index, each in entries)


def _host(node: Node, name: str) -> str:
    value = text(node, name)
    host = value.lower().removesuffix(".")
    if len(host) > SUBDOMAIN_LENGTH_MAX or not DNS_SUBDOMAIN.fullmatch(host):
        raise DocumentError(f"{name} is {quote(value)}: write a host name, without a port", node.line)
    return host


def size(node: Node, name: str) -> int:
    return number(node, name, SIZE_MIN, SIZE_MAX)


def periods(node: Node, name: str) -> tuple[Period, ...]:
    """As given: not sorted, duplicates kept. What is left out of an entry is 0, as in the kubelet."""
    found, mistakes = [], Mistakes()
    for index, each in enumerate(sequence(node, name, PERIODS_MAX)):
        with mistakes.kept():
            found.append(_period(each, f"{name}[{index}]"))
    mistakes.report()
    return tuple(found)


def _period(node: Node, path: str) -> Period:
    fields, mistakes = mapping(node, path), Mistakes()
    for field, value in fields.items():
        if field not in _PERIOD_FIELDS:
            with mistakes.kept():
                raise unknown(path, field, _PERIOD_FIELDS, value.line)
    bounds = zip(_PERIOD_FIELDS, (INT32_MIN, 0), (INT32_MAX, PERIOD_SECONDS_MAX), strict=True)
    found = []
    for field, least, most in bounds:
        with mistakes.kept():
            given = fields.get(field) or Node(0, node.line)
            found.append(number(given, f"{path}.{field}", least, most))
    mistakes.report()
    return Period(priority=found[0], seconds=found[1])


def gates(node: Node, name: str) -> dict[str, bool]:
    found, mistakes = dict[str, bool](), Mistakes()
    for gate, value in mapping(node, name).items():
        with mistakes.kept():
            if gate not in GATES:
                raise unknown(name, gate, GATES, value.line)
            found[gate] = flag(value, f"{name}.{gate}")
    mistakes.report()
    return found


# --- and back ----------------------------------------------------------------------------------


def show_plain(value: Any) -> Any:
    return value


def show_periods(value: Iterable[Period]) -> list[dict[str, int]]:
    return [{"priority": each.priority, "shutdownGracePeriodSeconds": each.seconds} for each in value]


def show_gates(value: dict[str, bool]) -> dict[str, bool]:
    """All of them, the ones that nobody named too."""
    return {gate: value.get(gate, True) for gate in GATES}


def _wrong(node: Node, path: str, wanted: str) -> DocumentError:
    return DocumentError(f"{path} is {describe(node)}: it must be {wanted}", node.line)


# A field that is a mapping with fields of its own: one table says how each is read and shown. The same rules
# hold in it as in the document: an unknown name is an error that names the nearest one, and a field without a
# value counts as absent.


class SectionField(NamedTuple):
    """One field of a section: its name in the section's Struct, and its way in and out."""

    attribute: str
    read: Callable[[Node, str], Any]
    show: Callable[[Any], Any] = show_plain


def read_section(node: Node, path: str, fields: Mapping[str, SectionField]) -> dict[str, Any]:
    """The values of a section, by attribute; an empty path is the document. Raises DocumentError."""
    values, mistakes = dict[str, Any](), Mistakes()
    for name, value in mapping(node, path or "the document").items():
        with mistakes.kept():
            if name not in fields:
                raise unknown(path, name, fields, value.line)
            if value.value is not None:
                at = f"{path}.{name}" if path else name
                values[fields[name].attribute] = fields[name].read(value, at)
    mistakes.report()
    return {attribute: value for attribute, value in values.items() if value is not None}


def show_section(values: Mapping[str, Any], fields: Mapping[str, SectionField]) -> dict[str, Any]:
    """``values`` are by attribute. One that is None is left out: it can be read again only so."""
    found = ((name, field, values.get(field.attribute)) for name, field in fields.items())
    return {name: field.show(value) for name, field, value in found if value is not None}


# Where to listen: a field that names an address and a port, or a socket's path.


PORT_MAX = 2**16 - 1


def listen_address(node: Node, name: str) -> str:
    """Only addresses, no names: a lookup may need a network that is not there."""
    value = text(node, name)
    host, _, port = value.rpartition(":")
    if value.startswith("unix:"):
        return "unix:" + path(Node(value.removeprefix("unix:"), node.line), name)
    if value and not (_is_address(host) and port.isascii() and port.isdecimal() and int(port) <= PORT_MAX):
        cure = "write an address and a port (127.0.0.1:9464, [::1]:9464) or unix:PATH"
        raise DocumentError(f"{name} is {quote(value)}: {cure}", node.line)
    return value


def _is_address(host: str) -> bool:
    import ipaddress  # late: few configurations name one

    try:
        version = ipaddress.ip_address(host.strip("[]")).version
    except ValueError:
        return False
    # Without the brackets the last part of an IPv6 address would be taken for the port.
    return (version == 6) == (host[:1] + host[-1:] == "[]")

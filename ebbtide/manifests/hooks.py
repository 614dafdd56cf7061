"""preStop hooks: one handler each, checked as the API server checks it.

So no pod starts with a hook that cannot run. The exception is tcpSocket, which old objects may have: it is
accepted, and fails when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from actors.edges.process.spec import (
    ExecAction,
    HookAction,
    HttpGetAction,
    SleepAction,
    TcpSocketAction,
)
from ebbtide.config import readers
from ebbtide.config.documents import Node
from ebbtide.config.scalars import DocumentError, quote
from ebbtide.manifests.environment import words
from ebbtide.manifests.model import Fields
from ebbtide.manifests.names import is_port_name
from events.model import Hook

PORT_MAX = 65_535
INT64_MAX = 2**63 - 1
HEADERS_MAX = 128
#: A hook's detail is for people: what does not fit a line says no more.
DETAIL_LENGTH_MAX = 100
#: Longest request target that servers commonly take.
URL_PART_LENGTH_MAX = 8192

_TOKEN = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_HOST = re.compile(r"[-._:\[\]%0-9A-Za-z]*")
_SCHEMES = ("HTTP", "HTTPS")


def pre_stop(
    lifecycle: Fields | None, grace_seconds: int | None, allow_zero_sleep: bool
) -> HookAction | None:
    """The handler of ``lifecycle.preStop``, if there is one. Raises DocumentError."""
    fields = lifecycle.child("preStop") if lifecycle else None
    if fields is None:
        return None
    kinds = [kind for kind in _HANDLERS if fields.get(kind) is not None]
    if len(kinds) != 1:
        found = "has no handler" if not kinds else f"has more than one handler ({', '.join(kinds)})"
        raise DocumentError(f"{fields.path} {found}: give one of {', '.join(_HANDLERS)}", fields.line)
    action = _HANDLERS[kinds[0]](Fields(fields.need(kinds[0]), fields.at(kinds[0])))
    if isinstance(action, SleepAction):
        check_sleep(action.seconds, grace_seconds, allow_zero_sleep, fields.at("sleep"), fields.line)
    return action


def check_sleep(seconds: int, grace_seconds: int | None, allow_zero: bool, path: str, line: int) -> None:
    """The API server's rule for a sleep (KEP-3960): equal to the grace is fine, whatever the text says.

    ``allow_zero`` is the gate PodLifecycleSleepActionAllowZero. Without a grace only the lower bound holds.
    """
    least = 0 if allow_zero else 1
    if seconds >= least and (grace_seconds is None or seconds <= grace_seconds):
        return
    bound = "" if grace_seconds is None else f" and less than terminationGracePeriodSeconds ({grace_seconds})"
    rule = "non-negative" if allow_zero else "greater than 0"
    hint = "" if allow_zero else "; a sleep of 0 needs the feature gate PodLifecycleSleepActionAllowZero"
    raise DocumentError(f"{path}.seconds is {seconds}: must be {rule}{bound}{hint}", line)


def hook_of(action: HookAction | None) -> Hook | None:
    """The whitelisted projection: no arguments, no headers, no query."""
    match action:
        case ExecAction():
            return Hook(kind="exec", detail=PurePosixPath(action.argv[0]).name[:DETAIL_LENGTH_MAX])
        case HttpGetAction():
            return Hook(kind="httpGet", detail=f":{action.port}{_public(action.path)}")
        case SleepAction():
            return Hook(kind="sleep", sleep_seconds=action.seconds)
        case TcpSocketAction():
            return Hook(kind="tcpSocket")
        case _:
            return None


def _exec(fields: Fields) -> HookAction:
    argv = tuple(word for word, _ in words(fields.get("command"), fields.at("command")))
    if not argv:
        raise DocumentError(f"{fields.at('command')} is empty: name a program", fields.line)
    return ExecAction(argv=argv)


def _http_get(fields: Fields) -> HookAction:
    return HttpGetAction(
        port=_port(fields.need("port"), fields.at("port")),
        host=_host(fields),
        scheme=_scheme(fields),
        path=_path(fields),
        headers=_headers(fields),
    )


def _sleep(fields: Fields) -> HookAction:
    node = fields.need("seconds")
    return SleepAction(seconds=readers.number(node, fields.at("seconds"), -INT64_MAX - 1, INT64_MAX))


def _tcp_socket(fields: Fields) -> HookAction:
    return TcpSocketAction()


_HANDLERS: dict[str, Callable[[Fields], HookAction]] = {
    "exec": _exec,
    "httpGet": _http_get,
    "sleep": _sleep,
    "tcpSocket": _tcp_socket,
}


def _port(node: Node, path: str) -> int | str:
    """A number, a number in quotes, or a port's name; which port that is, the hook finds out when it runs."""
    if not isinstance(node.value, str):
        return readers.number(node, path, 1, PORT_MAX)
    digits = node.value.isascii() and node.value.isdecimal()
    fits = digits and len(node.value) <= len(str(PORT_MAX)) and 1 <= int(node.value) <= PORT_MAX
    if not fits and (digits or not is_port_name(node.value)):
        raise DocumentError(f"{path} is {quote(node.value)}: it must be a port or a port's name", node.line)
    return node.value


def _host(fields: Fields) -> str:
    host = _short_text(fields, "host", "")
    if not _HOST.fullmatch(host):
        raise DocumentError(
            f"{fields.at('host')} is {quote(host)}: it must be a host's name or address", fields.line
        )
    return host


def _scheme(fields: Fields) -> str:
    scheme = _short_text(fields, "scheme", "HTTP")
    if scheme not in _SCHEMES:
        raise DocumentError(
            f"{fields.at('scheme')} is {quote(scheme)}: it must be HTTP or HTTPS", fields.line
        )
    return scheme


def _path(fields: Fields) -> str:
    path = _short_text(fields, "path", "")
    if not path.isprintable():
        raise DocumentError(f"{fields.at('path')} is {quote(path)}: it must be printable", fields.line)
    return path


def _headers(fields: Fields) -> tuple[tuple[str, str], ...]:
    node, path = fields.get("httpHeaders"), fields.at("httpHeaders")
    entries = readers.sequence(node, path, HEADERS_MAX) if node else []
    return tuple(_header(Fields(each, f"{path}[{index}]")) for index, each in enumerate(entries))


def _header(fields: Fields) -> tuple[str, str]:
    """A value with a line break could smuggle a second request; it is never repeated in a message."""
    name, value = _short_text(fields, "name", ""), _secret(fields)
    if not _TOKEN.fullmatch(name):
        raise DocumentError(f"{fields.at('name')} is {quote(name)}: it is no header's name", fields.line)
    if not value.replace("\t", " ").isprintable():
        raise DocumentError(f"{fields.at('value')} holds a line break or a control character", fields.line)
    return name, value


def _short_text(fields: Fields, name: str, default: str) -> str:
    node = fields.get(name)
    value = default if node is None else readers.text(node, fields.at(name))
    if len(value) > URL_PART_LENGTH_MAX:
        raise DocumentError(f"{fields.at(name)} is longer than {URL_PART_LENGTH_MAX} characters", fields.line)
    return value


def _secret(fields: Fields) -> str:
    node = fields.get("value")
    return "" if node is None else readers.secret(node, fields.at("value"))


def _public(path: str) -> str:
    return re.split(r"[?#]", path, maxsplit=1)[0][:DETAIL_LENGTH_MAX]

"""The scripts' notation: durations, pods and containers.

``30s`` and ``250ms`` are durations. A pod is a line: name, ``p=PRIORITY``, ``grace=SECONDS``, then a word per
container: ``app``, with ``*`` for a sidecar, ``!`` for not running, ``@SIGQUIT`` for its stop signal, and its
hook in brackets: ``app[exec]``, ``app[sleep:5]``. Without one it has ``main``; ``-`` means none.
``is=static,daemon,tolerant,volumes`` and ``owner=Deployment/web`` are the API's data.
"""

from __future__ import annotations

import re
from typing import cast

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Container, Hook, HookKind, Pod
from tests.scripts.parse import ScriptError

_UNITS = {"s": NS_PER_SECOND, "ms": 1_000_000}
_DURATION = re.compile(r"(\d+)(s|ms)")
_CONTAINER = re.compile(
    r"(?P<name>[a-z0-9-]+)(?P<marks>[*!]*)(@(?P<signal>[A-Z0-9+]+))?(\[(?P<hook>[^\]]+)\])?"
)


def duration_ns(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ScriptError(f"{text!r} is no duration: write 30s or 250ms")
    return int(found[1]) * _UNITS[found[2]]


def pod(line: str) -> Pod:
    name, *words = line.split()
    options = dict(word.split("=", 1) for word in words if "=" in word)
    traits = options.get("is", "").split(",")
    containers = tuple(_container(word) for word in words if "=" not in word and word != "-")
    return Pod(
        uid=name,
        namespace="default",
        name=name,
        priority=int(options["p"]) if "p" in options else None,
        grace_seconds=int(options["grace"]) if "grace" in options else None,
        containers=() if "-" in words else containers or (Container(name="main"),),
        static="static" in traits,
        daemon="daemon" in traits,
        tolerates_all="tolerant" in traits,
        volumes="volumes" in traits,
        owner=options.get("owner", ""),
    )


def _container(word: str) -> Container:
    found = _CONTAINER.fullmatch(word)
    if found is None:
        raise ScriptError(f"{word!r} is no container: write app, proxy*, done!, app@SIGQUIT, app[sleep:5]")
    return Container(
        name=found["name"],
        hook=_hook(found["hook"]),
        stop_signal=found["signal"] or "SIGTERM",
        sidecar="*" in found["marks"],
        running="!" not in found["marks"],
    )


def _hook(text: str | None) -> Hook | None:
    if text is None:
        return None
    kind, _, seconds = text.partition(":")
    return Hook(kind=cast("HookKind", kind), sleep_seconds=int(seconds or 0))

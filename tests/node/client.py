"""The tests' own API client: JSON over HTTPS with one of the node's identities.

It shares no code with the daemon, so its view is independent.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import trio

from tests.waiting import WATCHDOG_SECONDS

POLL_SECONDS = 0.05
KINDS = {"PATCH": "application/merge-patch+json"}
STRATEGIC = "application/strategic-merge-patch+json"

Object = dict[str, Any]


class Refused(Exception):
    """The API server's error; ``code`` is the HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Api:
    """Raises Refused on an error answer, and OSError without a server.

    The calling thread enters ``network``: `Bed.network` for a client in the node.
    """

    def __init__(
        self,
        server: str,
        authority: Path,
        token: str,
        network: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.server, self.token, self.network = server, token, network
        trusted = ssl.create_default_context(cafile=str(authority))
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
        )

    async def ask(
        self,
        method: str,
        path: str,
        body: Object | bytes | None = None,
        kind: str = "",
        seconds: float = WATCHDOG_SECONDS,
    ) -> Any:
        """The JSON or text of the answer. ``kind``: the body's content type if not the default."""
        text = await trio.to_thread.run_sync(self._ask, method, path, body, kind, seconds)
        return json.loads(text) if text.startswith("{") else text

    def _ask(
        self,
        method: str,
        path: str,
        body: Object | bytes | None,
        kind: str = "",
        seconds: float = WATCHDOG_SECONDS,
    ) -> str:
        request = urllib.request.Request(
            self.server + path,
            method=method,
            data=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.token}",
                "Content-Type": kind or KINDS.get(method, "application/json"),
            },
        )
        try:
            with self.network(), self._opener.open(request, timeout=seconds) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, error.read().decode(errors="replace")[:500]) from None

    async def watch(self, path: str, seconds: int) -> list[Object]:
        """The events of a watch within that time: ``type`` and ``object``."""
        asked = f"{path}?watch=1&timeoutSeconds={seconds}"
        text = await trio.to_thread.run_sync(self._ask, "GET", asked, None)
        return [json.loads(line) for line in text.splitlines()]

    async def get(self, path: str) -> Any:
        return await self.ask("GET", path)

    async def post(self, path: str, body: Object | bytes) -> Any:
        return await self.ask("POST", path, body)

    async def patch(self, path: str, body: Object | bytes) -> Any:
        return await self.ask("PATCH", path, body)

    async def delete(self, path: str, body: Object | None = None) -> Any:
        return await self.ask("DELETE", path, body)

    async def until(
        self,
        path: str,
        holds: Callable[[Any], Any],
        seconds: float = WATCHDOG_SECONDS,
        pause: float = POLL_SECONDS,
    ) -> Any:
        """Poll ``path`` until ``holds``. Raises AssertionError with the last answer."""
        last: Any = None
        with trio.move_on_after(seconds):
            while True:
                try:
                    last = await self.get(path)
                except (OSError, Refused) as error:
                    last = repr(error)
                else:
                    if holds(last):
                        return last
                await trio.sleep(pause)
        raise AssertionError(f"{path} after {seconds} s: {str(last)[:3000]}")


def condition(thing: Object, kind: str) -> str:
    """A condition's status of a node or a pod; empty if missing."""
    found = [each for each in thing.get("status", {}).get("conditions", []) if each["type"] == kind]
    return str(found[0]["status"]) if found else ""

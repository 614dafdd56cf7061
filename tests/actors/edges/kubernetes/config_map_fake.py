"""ConfigMaps in memory. Per request, a draw decides: answer, refuse, lose, or carry out (now or later)
without an answer.
"""

from __future__ import annotations

import copy
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import Answer, AnswerTooLong, Unanswered
from ebbtide.actors.edges.kubernetes.api_client import ANSWER_BYTES_MAX
from ebbtide.actors.edges.kubernetes.config_maps import METADATA_LIST, ConfigMapStorage
from ebbtide.events.codec import RawRecord
from ebbtide.events.reader import History
from ebbtide.events.recovery import Verdict
from ebbtide.events.writer import Writer
from ebbtide.replay.sim.scenario import Draws
from tests.actors.edges.kubernetes.write_fake import status
from tests.events.making import OTHER_ID, Told, running

CREATED = "2026-01-01T00:00:00Z"


class ConfigMaps:
    """``trouble``: percentage of failing requests. ``work`` carries out late requests."""

    def __init__(self, draws: Draws, work: trio.Nursery | None = None, trouble: int = 0) -> None:
        self.objects: dict[str, Any] = {}
        self.trouble, self.away = trouble, False
        self._draws, self._work, self._made = draws, work, 0
        self.creates = 0
        self.lean = False
        #: In place of each create: a dead webhook, a quota; None: it hangs.
        self.refuses: list[Answer | None] = []
        #: A webhook takes so long, and ends with the request that waits for it.
        self.webhook_seconds = 0.0
        #: A mutating webhook; and whether dry runs pass all of these.
        self.mutate: Callable[[Any], object] = lambda body: None
        self.spares_dry_runs = False
        #: The answer to each delete.
        self.keeps: Answer | None = None

    async def call(self, method: str, path: str, *, body: Any = None, **fields: Any) -> Answer:
        await trio.sleep(self._draws.between(1, 30) / 1000)
        if self.away:
            await trio.sleep(fields["seconds_max"])
            raise Unanswered("silence")
        spared = self.spares_dry_runs and "dryRun" in path
        if method == "DELETE" and self.keeps is not None:
            return self.keeps
        if method == "POST" and not spared and (self.refuses or self.webhook_seconds):
            refused = self.refuses[0] if self.refuses else None
            seconds = self.webhook_seconds if not self.refuses else 0.0 if refused else math.inf
            await trio.sleep(min(seconds, fields["seconds_max"]))
            if seconds > fields["seconds_max"]:
                raise Unanswered("silence")
            if refused is not None:
                return refused
        if self._draws.below(100) < self.trouble:
            match self._draws.below(4 if self._work else 3):
                case 0:
                    return status(self._draws.pick([429, 500, 503]), "later")
                case 1:
                    raise Unanswered("lost on its way there")
                case 2:
                    self.carry_out(method, path, body)
                    raise Unanswered("its answer was lost")
                case 3:
                    assert self._work is not None
                    self._work.start_soon(self._later, method, path, body)
                    raise Unanswered("it is still under way")
        self.lean = fields.get("accept") == METADATA_LIST
        return self.carry_out(method, path, body)

    async def _later(self, method: str, path: str, body: Any) -> None:
        await trio.sleep(self._draws.below(4000) / 1000)
        self.carry_out(method, path, body)

    def carry_out(self, method: str, path: str, body: Any) -> Answer:
        parts = urlsplit(path)
        name = parts.path.rpartition("/")[2]
        if method == "POST":
            return self._create(copy.deepcopy(body), dry=parts.query == "dryRun=All")
        if method == "GET" and name == "configmaps":
            return self._list({key: values[0] for key, values in parse_qs(parts.query).items()})
        if name not in self.objects:
            return status(404, "not found")
        found = self.objects.pop(name) if method == "DELETE" else self.objects[name]
        return Answer(200, msgspec.json.encode(found))

    def _list(self, query: dict[str, str]) -> Answer:
        """Sorted by name; a part starts after the previous part's last name."""
        label, one, value = query["labelSelector"].replace(" in (", "=").rstrip(")").partition("=")
        values = value.split(",")
        labels = ((name, each["metadata"]["labels"]) for name, each in sorted(self.objects.items()))
        names = [name for name, of in labels if (of.get(label) in values if one else label in of)]
        rest = [name for name in names if name > query.get("continue", "")]
        part = rest[: int(query.get("limit", len(rest)))]
        items = [self.objects[name] for name in part]
        if self.lean:
            items = [{"metadata": each["metadata"]} for each in items]
        # As the real client stops reading.
        size = sum(len(text) for each in items for text in each.get("binaryData", {}).values())
        if size > ANSWER_BYTES_MAX:
            raise AnswerTooLong("a large list")
        more = {"continue": part[-1]} if len(part) < len(rest) else {}
        return Answer(200, msgspec.json.encode({"metadata": more, "items": items}))

    def _create(self, body: Any, *, dry: bool) -> Answer:
        name = body["metadata"]["name"]
        if name in self.objects:
            return status(409, "already exists")
        self.mutate(body)
        if dry:
            return Answer(201, msgspec.json.encode(body))
        self._made += 1
        self.creates += 1
        body["metadata"] |= {"uid": f"uid-{self._made}", "creationTimestamp": CREATED}
        self.objects[name] = body
        return Answer(201, msgspec.json.encode(body))


async def read(place: ConfigMapStorage) -> tuple[list[RawRecord], Verdict]:
    def look() -> tuple[list[RawRecord], Verdict]:
        history = History([place.source])
        return list(history.raw()), history.verdict

    return await place.call(look)


@asynccontextmanager
async def leading(
    place: ConfigMapStorage, told: Told | None = None
) -> AsyncIterator[tuple[Writer, ConfigMapStorage]]:
    """A leader that resumes from the stored journal; leaving the block crashes it."""
    await place.acquire("")
    _, verdict = await read(place)
    async with running([place], verdict.start(OTHER_ID), told) as writer:
        yield writer, place

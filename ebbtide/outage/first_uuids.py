"""The first systemUUID of each machine, kept in the API server: a kubelet may write another one at any time.

One immutable ConfigMap holds all of them. A change creates the next number, and the lower ones are deleted.
Of two leaders one gets 409, and reads again. The ProofActor decides what a changed UUID means.
"""

from __future__ import annotations

import errno
import re

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.config_maps import PREFIX, maps_path
from ebbtide.actors.edges.kubernetes.node_view import ClusterView, machine_keys
from ebbtide.actors.interfaces import WARNING, Tell
from ebbtide.actors.outage_proof import is_junk
from ebbtide.events import bounds

LABEL, DATA = "ebbtide.dev/first-uuids", "first-uuids.json"
#: Twice the largest cluster, at 80 bytes each: a ConfigMap may hold 1 MiB.
MACHINES_MAX = 10_000
#: New machines gather: an autoscaler starts many at once.
LOOK_SECONDS = 5.0
#: Another leader was sooner.
ANSWERS = ("POST", api.HTTP_CONFLICT), ("DELETE", api.HTTP_NOT_FOUND)
_NAME = re.compile(rf"{PREFIX}-machines-[0-9]{{10}}")


class _ConfigMap(msgspec.Struct):
    metadata: api.ObjectMeta
    data: dict[str, str] = {}


_decoder = msgspec.json.Decoder(api.ListPart[_ConfigMap])
_uuids = msgspec.json.Decoder(dict[str, str])


def read_uuids(data: dict[str, str]) -> dict[str, str]:
    """By `machine_keys`. A spoilt object counts as empty."""
    try:
        return _uuids.decode(data.get(DATA, "{}"))
    except (ValueError, RecursionError):
        return {}


class FirstUuids:
    def __init__(self, caller: api.ApiCaller, namespace: str, view: ClusterView, tell: Tell) -> None:
        self._caller, self._path, self._view, self._tell = caller, maps_path(namespace), view, tell
        #: The stored objects, in the order of their numbers.
        self._names: list[str] = []
        self._stored: dict[str, str] = {}
        self._told = ""

    async def load(self) -> None:
        """What was recorded first counts: in the lowest number. Raises OSError."""
        answer = await self._ask("GET", api.listed_path(self._path, labelSelector=LABEL))
        try:
            found = _decoder.decode(answer.body).items or []
        except (ValueError, RecursionError) as error:
            raise OSError(errno.EIO, f"the record of machines cannot be read: {error}") from None
        by_name = {each.metadata.name: read_uuids(each.data) for each in found}
        self._names, self._stored = sorted(filter(_NAME.fullmatch, by_name)), {}
        for name in self._names:
            self._stored = by_name[name] | self._stored
        self._view.first_uuids |= self._stored

    async def run(self, link: ApiClient) -> None:
        """A failed write is repeated: meanwhile this process knows them."""
        while True:
            try:
                await self._store(self._learn())
                self._told = ""
            except OSError as error:
                if str(error) != self._told:
                    self._tell(WARNING, f"{error.strerror}: trying again")
                self._told = str(error)
            await trio.sleep(LOOK_SECONDS)

    def _learn(self) -> dict[str, str]:
        """Of present Nodes and, as far as there is room, of the last ones that are gone."""
        first = self._view.first_uuids
        there = set[str]()
        for node in self._view.there():
            keys = machine_keys(node)
            there.update(keys)
            uuid = "" if is_junk(node.system_uuid) else node.system_uuid
            # The UID counts first: it is older than a providerID that was set later.
            if keys[0] not in first and (known := first.get(keys[-1], uuid)):
                first[keys[0]] = known
        gone = [key for key in first if key not in there]
        for key in gone[: max(0, len(first) - MACHINES_MAX)]:
            del first[key]
        return dict(first)

    async def _store(self, first: dict[str, str]) -> None:
        """Raises OSError."""
        if first == self._stored:
            return
        number = int(self._names[-1].rpartition("-")[2]) + 1 if self._names else 1
        name = f"{PREFIX}-machines-{number:010d}"
        made: api.JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True}
        made["metadata"] = {"name": name, "labels": {LABEL: "true"}}
        made["data"] = {DATA: msgspec.json.encode(first).decode()}
        if (await self._ask("POST", self._path, made)).code == api.HTTP_CONFLICT:
            await self.load()
            return
        earlier, self._names, self._stored = self._names, [name], first
        for each in earlier:
            await self._ask("DELETE", f"{self._path}/{each}", {})

    async def _ask(self, method: str, path: str, body: object = None) -> api.Answer:
        """Raises OSError."""
        try:
            answer = await self._caller.call(method, path, body=body, seconds_max=bounds.now.api_try_seconds)
        except api.Unanswered as error:
            raise OSError(errno.EIO, f"the record of machines: {error}") from None
        if not answer.ok and (method, answer.code) not in ANSWERS:
            raise OSError(errno.EIO, f"the record of machines: {api.answer_text(answer)}")
        return answer

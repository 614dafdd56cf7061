"""The first systemUUID of each machine, kept in the API server: a kubelet may write another one at any time.

One immutable ConfigMap holds all of them. A change creates the next number, and the lower ones are deleted.
Of two leaders one gets 409, and reads again. The ProofActor decides what a changed UUID means.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from functools import partial

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.config_maps import PREFIX, maps_path
from ebbtide.actors.edges.kubernetes.node_view import ClusterView, NodeView, machine_key
from ebbtide.actors.interfaces import WARNING, Tell
from ebbtide.actors.outage_proof import is_junk
from ebbtide.events import bounds

LABEL, DATA = "ebbtide.dev/first-uuids", "first-uuids.json"
#: Twice the largest cluster, at 80 bytes each: a ConfigMap may hold 1 MiB.
MACHINES_MAX = 10_000
#: New machines gather: an autoscaler starts many at once.
LOOK_SECONDS = 5.0


class _ConfigMap(msgspec.Struct):
    metadata: api.ObjectMeta
    data: dict[str, str] = {}


_NAME = re.compile(rf"{PREFIX}-machines-[0-9]{{10}}")
_decoder = msgspec.json.Decoder(api.ListPart[_ConfigMap])
_uuids = msgspec.json.Decoder(dict[str, str])


def list_path(namespace: str) -> str:
    return api.listed_path(maps_path(namespace), labelSelector=LABEL)


def read_uuids(data: Mapping[str, str]) -> dict[str, str]:
    """A spoilt object counts as empty."""
    try:
        return _uuids.decode(data.get(DATA, "{}"))
    except (ValueError, RecursionError):
        return {}


class FirstUuids:
    def __init__(self, caller: api.ApiCaller, namespace: str, view: ClusterView, tell: Tell) -> None:
        self._namespace, self._view, self._tell = namespace, view, tell
        self._call = partial(caller.call, seconds_max=bounds.now.api_try_seconds)
        #: The stored objects' names, by their numbers' order.
        self._names: list[str] = []
        self._stored: dict[str, str] = {}
        self._told = ""

    async def load(self) -> None:
        """The lowest number's word counts: it is the oldest. Raises OSError."""
        try:
            answer = await self._call("GET", list_path(self._namespace))
            if not answer.ok:
                raise OSError(errno.EIO, f"the machines cannot be listed: {api.answer_text(answer)}")
            found = _decoder.decode(answer.body).items or []
        except (api.Unanswered, ValueError, RecursionError) as error:
            raise OSError(errno.EIO, f"the machines cannot be listed: {error}") from None
        ours = [each for each in found if _NAME.fullmatch(each.metadata.name)]
        by_name = {each.metadata.name: read_uuids(each.data) for each in ours}
        self._names, self._stored = sorted(by_name), {}
        for name in self._names:
            self._stored = by_name[name] | self._stored
        self._view.first_uuids |= self._stored

    async def run(self, link: ApiClient) -> None:
        """A failed write is repeated: meanwhile this process knows them."""
        while True:
            first = self._learn()
            if first != self._stored:
                try:
                    await self._store(first)
                    self._told = ""
                except OSError as error:
                    if str(error) != self._told:
                        self._told = str(error)
                        self._tell(WARNING, f"{error.strerror}: trying again")
            await trio.sleep(LOOK_SECONDS)

    def _learn(self) -> dict[str, str]:
        """Those of present Nodes and, as far as there is room, of the last ones that are gone."""
        first, there = self._view.first_uuids, dict[str, NodeView]()
        for node in self._view.there():
            if node.system_uuid and not is_junk(node.system_uuid):
                first.setdefault(machine_key(node), node.system_uuid)
                there[machine_key(node)] = node
        gone = [key for key in first if key not in there]
        for key in gone[: max(0, len(first) - MACHINES_MAX)]:
            del first[key]
        return dict(first)

    async def _store(self, first: dict[str, str]) -> None:
        """Raises OSError."""
        number = int(self._names[-1].rpartition("-")[2]) + 1 if self._names else 1
        meta = {"name": f"{PREFIX}-machines-{number:010d}", "labels": {LABEL: "true"}}
        made: api.JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True}
        made["data"] = {DATA: msgspec.json.encode(first).decode()}
        try:
            answer = await self._call("POST", maps_path(self._namespace), body=made)
            if answer.code == api.HTTP_CONFLICT:
                return await self.load()
            if not answer.ok:
                raise OSError(errno.EIO, f"the machines cannot be recorded: {api.answer_text(answer)}")
            earlier, self._names, self._stored = self._names, [meta["name"]], first  # type: ignore[list-item]
            for name in earlier:
                await self._call("DELETE", f"{maps_path(self._namespace)}/{name}", body={})
        except api.Unanswered as error:
            raise OSError(errno.EIO, f"the machines cannot be recorded: {error}") from None

"""The first systemUUID of each machine, kept in the API server: a kubelet may write another one at any time.

One immutable ConfigMap holds all of them. A change creates the next number, and the others are deleted. Of
two leaders one gets 409, and reads again. Others may create objects here too: list only names, and read the
oldest ones. The ProofActor judges a changed UUID.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from functools import partial
from itertools import count

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.config_maps import METADATA_LIST, PART_METADATA, PREFIX, maps_path
from ebbtide.actors.edges.kubernetes.known_pods import NAME_MAX
from ebbtide.actors.edges.kubernetes.node_view import KEY_CHARACTERS, ClusterView, machine_keys
from ebbtide.actors.interfaces import WARNING, Tell
from ebbtide.events import bounds

LABEL, DATA = "ebbtide.dev/first-uuids", "first-uuids.json"
#: Twice the largest cluster, at 80 bytes each: a ConfigMap may hold 1 MiB.
MACHINES_MAX = 10_000
#: New machines gather: an autoscaler starts many at once.
LOOK_SECONDS = 5.0
#: Another leader was sooner.
ANSWERS = ("POST", api.HTTP_CONFLICT), ("DELETE", api.HTTP_NOT_FOUND)
_NAME = re.compile(rf"{PREFIX}-machines-[0-9]{{10}}")
#: After this number, the lowest free one is the next: others may have created the last one.
NUMBER_MAX = 10**10 - 1
#: A leader that replaces one has two.
READ_MAX = 20


class _Named(msgspec.Struct):
    metadata: api.ObjectMeta


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


_names = msgspec.json.Decoder(api.ListPart[_Named])
_decoder = msgspec.json.Decoder(_ConfigMap)
_uuids = msgspec.json.Decoder(dict[str, str])


async def read_first(caller: api.ApiCaller, namespace: str) -> tuple[list[str], dict[str, str]]:
    """The names, oldest first, and the first UUIDs by `machine_keys`: the oldest readable record counts.
    Raises OSError.
    """
    path, found = maps_path(namespace), list[tuple[str, str]]()

    def take(part: Sequence[_Named]) -> None:
        metas = [each.metadata for each in part]
        found.extend((each.creation_timestamp, each.name) for each in metas if _NAME.fullmatch(each.name))

    listed = partial(api.listed_path, path, labelSelector=LABEL)
    ask = partial(_ask, caller, "GET", accept=METADATA_LIST)
    try:
        await api.take_parts(ask, listed, _names, take, PART_METADATA)
    except api.Unanswered as error:
        raise OSError(errno.EIO, f"the record of machines cannot be read: {error}") from None
    names, first = [name for _, name in sorted(found)], dict[str, str]()
    for name in names[:READ_MAX]:
        # Another leader may have replaced it: the next try finds the successor.
        answer = await _ask(caller, "GET", f"{path}/{name}")
        try:
            uuids = _uuids.decode(_decoder.decode(answer.body).data.get(DATA, "{}"))
        except (ValueError, RecursionError):
            continue
        for key, uuid in uuids.items():
            if len(first) < MACHINES_MAX and len(key) <= KEY_CHARACTERS and len(uuid) <= NAME_MAX:
                first.setdefault(key, uuid)
    return names, first


async def _ask(
    caller: api.ApiCaller, method: str, path: str, body: object = None, accept: str = api.JSON
) -> api.Answer:
    """Raises OSError."""
    try:
        seconds_max = bounds.now.api_try_seconds
        answer = await caller.call(method, path, body=body, seconds_max=seconds_max, accept=accept)
    except api.Unanswered as error:
        if isinstance(error, api.AnswerTooLong) and api.is_part(path):
            raise
        raise OSError(errno.EIO, f"the record of machines: {error}") from None
    if not answer.ok and (method, answer.code) not in ANSWERS:
        raise OSError(errno.EIO, f"the record of machines: {api.answer_text(answer)}")
    return answer


class FirstUuids:
    def __init__(self, caller: api.ApiCaller, namespace: str, view: ClusterView, tell: Tell) -> None:
        self._caller, self._namespace, self._view, self._tell = caller, namespace, view, tell
        self._names: list[str] = []
        self._stored: dict[str, str] = {}
        self._told = ""

    async def load(self) -> None:
        """Raises OSError."""
        self._names, self._stored = await read_first(self._caller, self._namespace)
        self._view.first_uuids |= self._stored

    async def run(self, link: ApiClient) -> None:
        """Repeats a failed write: meanwhile this process knows the UUIDs."""
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
        """Of present Nodes and, as far as there is room, of the last deleted ones."""
        first = self._view.first_uuids
        there = set[str]()
        for node in self._view.there():
            keys = machine_keys(node)
            there.update(keys)
            # The UID counts first: it is older than a providerID that was set later. Record firmware defaults
            # too, or a kubelet could later name any free machine.
            if keys[0] not in first and (known := first.get(keys[-1], node.system_uuid)):
                first[keys[0]] = known
        gone = [key for key in first if key not in there]
        for key in gone[: max(0, len(first) - MACHINES_MAX)]:
            del first[key]
        return dict(first)

    async def _store(self, first: dict[str, str]) -> None:
        """Raises OSError."""
        if first == self._stored:
            return
        taken = {int(each.rpartition("-")[2]) for each in self._names}
        number = max(taken, default=0) + 1
        if number > NUMBER_MAX:
            number = next(each for each in count(1) if each not in taken)
        name = f"{PREFIX}-machines-{number:010d}"
        made: api.JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True}
        made["metadata"] = {"name": name, "labels": {LABEL: "true"}}
        made["data"] = {DATA: msgspec.json.encode(first).decode()}
        path = maps_path(self._namespace)
        if (await _ask(self._caller, "POST", path, made)).code == api.HTTP_CONFLICT:
            await self.load()
            return
        earlier, self._names, self._stored = self._names, [name], first
        for each in earlier:
            await _ask(self._caller, "DELETE", f"{path}/{each}", {})

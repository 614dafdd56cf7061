"""Redfish: a management controller reports a machine's power, or switches it off.

The system is configured by its path, or found by its UUID, which each reading checks. Firmware may write the
UUID's first three fields in another byte order, which counts only if it is configured.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec
import trio

from ebbtide.actors.edges.http_request import Answer, Service
from ebbtide.actors.edges.proof_sources.proof_source import Identify, Machine, Said, Unread, read_secret
from ebbtide.events.outage_events import IdentityKind, Source, Verdict
from ebbtide.events.units import span_s

SYSTEMS = "/redfish/v1/Systems"
RESET = "#ComputerSystem.Reset"
FORCE_OFF = "ForceOff"
#: A search takes a request a system, all within one reading.
SYSTEMS_MAX = 32
#: So many systems are read at once: a controller that takes 4 s an answer is searched within one reading.
TOGETHER_MAX = 8
#: Controllers lock an account or an address after a few refused passwords within a minute.
REFUSED_AGAIN_SECONDS = 60.0

#: Like the Node's, or the first three fields' bytes turned.
UuidOrder = Literal["as-written", "swapped"]
VERDICTS: dict[str, Verdict] = {"On": "on", "Off": "off"}
BETWEEN = ("PoweringOn", "PoweringOff", "Paused")
UUID_TEXT = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
#: A path on the same server.
PATH = re.compile("/[!-~]*")

T = TypeVar("T")


class _Link(msgspec.Struct):
    path: str = msgspec.field(name="@odata.id")


class _Systems(msgspec.Struct):
    members: list[_Link] = msgspec.field(name="Members")
    next_page: object = msgspec.field(name="Members@odata.nextLink", default=None)


class _Reset(msgspec.Struct):
    target: str
    allowed: list[str] | None = msgspec.field(name="ResetType@Redfish.AllowableValues", default=None)


class _Actions(msgspec.Struct):
    reset: _Reset | None = msgspec.field(name=RESET, default=None)


class _System(msgspec.Struct, rename="pascal"):
    uuid: str | None = msgspec.field(name="UUID", default=None)
    power_state: str | None = None
    actions: _Actions | None = None


def system_path(system: str) -> str:
    return system if not system or system.startswith("/") else f"{SYSTEMS}/{quote(system, safe='')}"


class Redfish:
    source: Source = "redfish"

    def __init__(
        self,
        *,
        url: str,
        username_file: Path,
        password_file: Path,
        system: str = "",
        ca_file: Path | None = None,
        fingerprint: str = "",
        uuid_order: UuidOrder = "as-written",
        identify: Identify = "uuid",
    ) -> None:
        """``system``: its path, or its id below `SYSTEMS`; empty: found by UUID. Raises ValueError."""
        self._service = Service(url, ca_file=ca_file, fingerprint=fingerprint)
        path = system_path(system)
        if path and not PATH.fullmatch(path):
            raise ValueError(f"the system must be an id, or a path such as {SYSTEMS}/1")
        self.name = self._service.authority
        self._username_file, self._password_file = username_file, password_file
        self._path, self._order = path, uuid_order
        self.by_name = identify == "name"
        #: Path by UUID, from the last search.
        self._found: dict[str, str] = {}
        self._refused: tuple[str, float] | None = None

    async def read(self, machine: Machine) -> Said:
        """Raises Unread and RequestFailed."""
        system = await self._system(machine.system_uuid)
        kind, identity = self._named(system, machine)
        state = system.power_state
        if state in VERDICTS:
            return Said(VERDICTS[state], kind, identity)
        said = "it has no PowerState" if state is None else "its PowerState is none of Redfish's"
        return Said("unknown", kind, identity, error=f"PowerState {state}" if state in BETWEEN else said)

    async def power_off(self, system_uuid: str) -> None:
        system = await self._system(system_uuid)
        if not self.by_name and (not system_uuid or self._identity(system, system_uuid) != system_uuid):
            raise Unread("its UUID is not the Node's systemUUID")
        if system.power_state == "Off":
            return
        reset = system.actions.reset if system.actions is not None else None
        if reset is None or not PATH.fullmatch(reset.target):
            raise Unread("it offers no ComputerSystem.Reset")
        if reset.allowed is not None and FORCE_OFF not in reset.allowed:
            raise Unread(f"it does not allow {FORCE_OFF}")
        await self._request("POST", reset.target, msgspec.json.encode({"ResetType": FORCE_OFF}))

    async def _system(self, system_uuid: str) -> _System:
        if self._path:
            return await self._get(self._path, _System)
        if not system_uuid:
            raise Unread("the Node has no systemUUID to find its system by: name the system's path")
        if path := self._found.pop(system_uuid, ""):
            system = await self._get(path, _System)
            if self._identity(system, system_uuid) == system_uuid:
                self._found[system_uuid] = path
                return system
        listed = await self._get(SYSTEMS, _Systems)
        if listed.next_page is not None or len(listed.members) > SYSTEMS_MAX:
            raise Unread(f"it has more than {SYSTEMS_MAX} systems: name the system's path")
        fitting: dict[str, _System] = {}
        unread: OSError | None = None
        together = trio.CapacityLimiter(TOGETHER_MAX)

        async def look(path: str) -> None:
            nonlocal unread
            # An empty slot hides no other machine.
            try:
                async with together:
                    system = await self._get(path, _System)
                if self._identity(system, system_uuid) == system_uuid:
                    fitting[path] = system
            except OSError as error:
                unread = error

        async with trio.open_nursery() as nursery:
            for each in listed.members:
                nursery.start_soon(look, each.path)
        if not fitting and unread is not None:
            raise unread
        if len(fitting) != 1:
            what = "no system" if not fitting else "more than one system"
            raise Unread(f"it has {what} with the Node's systemUUID")
        self._found[system_uuid], system = next(iter(fitting.items()))
        return system

    def _named(self, system: _System, machine: Machine) -> tuple[IdentityKind, str]:
        if self.by_name:
            return "nodeName", machine.node
        identity = self._identity(system, machine.system_uuid)
        return "systemUUID" if identity else "none", identity

    def _identity(self, system: _System, system_uuid: str) -> str:
        """In the Node's byte order; empty: it has no UUID. Raises Unread if only the other order fits."""
        written = (system.uuid or "").lower()
        if not UUID_TEXT.fullmatch(written):
            return ""
        turned = str(UUID(bytes_le=UUID(written).bytes))
        identity, other = (written, turned) if self._order == "as-written" else (turned, written)
        if identity != system_uuid and other == system_uuid:
            needed: UuidOrder = "swapped" if self._order == "as-written" else "as-written"
            raise Unread(
                "its UUID is the Node's with the first three fields in the other byte order: "
                f"if that is right, configure {needed}"
            )
        return identity

    async def _get(self, path: str, kind: type[T]) -> T:
        if not PATH.fullmatch(path):
            raise Unread("it names a system by something that is no path")
        answer = await self._request("GET", path)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (ValueError, RecursionError):
            raise Unread("the answer is no resource of Redfish") from None

    async def _request(self, method: str, path: str, body: bytes = b"") -> Answer:
        """Raises without a status 2xx."""
        authorization = await self._authorization()
        kind = (("Content-Type", "application/json"),) if body else ()
        answer = await self._service.request(method, path, (("Authorization", authorization), *kind), body)
        status = answer.status
        if 200 <= status < 300:
            return answer
        if 300 <= status < 400:
            raise Unread(f"{status}: it names another address, which is not followed")
        if status == 401:
            self._refused = authorization, trio.current_time()
        reasons = {401: "user name or password refused", 403: "no right to it", 404: "it is not there"}
        raise Unread(": ".join(filter(None, (str(status), reasons.get(status, "")))))

    async def _authorization(self) -> str:
        """A session would outlive a killed process, and controllers have few."""
        username, password = [await read_secret(path) for path in (self._username_file, self._password_file)]
        if ":" in username:
            raise Unread(f"{self._username_file}: a user name cannot have a colon")
        value = f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"
        if self._refused is not None:
            refused, at = self._refused
            if value == refused and trio.current_time() < at + REFUSED_AGAIN_SECONDS:
                raise Unread(
                    "401: user name or password refused; "
                    f"not sent again within {span_s(REFUSED_AGAIN_SECONDS)}"
                )
            self._refused = None
        return value

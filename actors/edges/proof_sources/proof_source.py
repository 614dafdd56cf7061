"""Common parts of all sources of proof, and one node's edges that read them and switch its machine off."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import trio

from ebbtide.actors.edges.documents import read_file
from ebbtide.actors.interfaces import Clock, Edge, Effect, Ending, Outlet, error_text
from ebbtide.events import bounds
from ebbtide.events.base import Order
from ebbtide.events.outage_events import EvidenceRead, IdentityKind, PowerOff, ReadSources, Source, Verdict
from ebbtide.events.units import size_text, span_s

SECRET_BYTES_MAX = 4 * 1024
#: uuid: by the Node's systemUUID. name: by the configuration.
Identify = Literal["uuid", "name"]


class Machine(NamedTuple):
    """As in its Node; UUIDs in lower case."""

    node: str
    node_uid: str
    boot_id: str
    system_uuid: str
    provider_id: str


class Said(NamedTuple):
    """See `EvidenceRead`. ``error``: why the verdict is ``unknown``; it quotes no secret."""

    verdict: Verdict
    identity_kind: IdentityKind = "none"
    identity: str = ""
    boot_id: str = ""
    mark: str = ""
    valid_seconds: int = 0
    at: str = ""
    error: str = ""
    status_mark: str = ""


class Unread(OSError):
    """One line for the record."""


class ProofSource(Protocol):
    """``name``: a host, a region, an author."""

    @property
    def source(self) -> Source: ...

    @property
    def name(self) -> str: ...

    async def read(self, machine: Machine) -> Said | None:
        """None: no statement. Raises OSError and ValueError; their texts hold no secret."""


@runtime_checkable
class PowerSwitch(Protocol):
    @property
    def source(self) -> Source: ...

    @property
    def name(self) -> str: ...

    async def power_off(self, system_uuid: str) -> None:
        """Returns when the controller took the command, or the machine was off. Needs the same UUID, or a
        system that the configuration names for this node. Raises Unread and RequestFailed.
        """


async def read_secret(path: Path) -> str:
    """Read it each time: Secrets are renewed. Raises Unread."""
    try:
        data = await trio.to_thread.run_sync(read_file, path, SECRET_BYTES_MAX, abandon_on_cancel=True)
        text = data.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise Unread(f"{path}: {error.strerror or 'not readable'}") from None
    except ValueError:
        raise Unread(f"{path}: not UTF-8 text") from None
    if len(data) > SECRET_BYTES_MAX:
        raise Unread(f"{path}: larger than {size_text(SECRET_BYTES_MAX)}")
    if not text or not text.isprintable():
        raise Unread(f"{path}: not one line of text")
    return text


#: Readings that begin within this time share a request.
GATHER_SECONDS = 0.05
AnswerT = TypeVar("AnswerT")


class _Batch(Generic[AnswerT]):
    def __init__(self) -> None:
        self.wanted: list[str] = []
        self.answers: list[AnswerT] = []
        self.error = "the request was given up"
        self.answered = trio.Event()


class Gathering(Generic[AnswerT]):
    """One request for at most ``most`` nodes, after the begin of their readings. ``ask`` may raise OSError
    and ValueError. ``every_seconds``: the least time between two requests.
    """

    def __init__(
        self, ask: Callable[[list[str]], Awaitable[AnswerT]], most: int, every_seconds: float = 0.0
    ) -> None:
        self._ask, self._most, self._every_seconds = ask, most, every_seconds
        self._open: _Batch[AnswerT] | None = None
        self._next_at = -math.inf

    async def about(self, wanted: str) -> AnswerT:
        """The first caller asks for all; if it is cancelled, the others fail. Raises Unread."""
        batch = self._open
        if batch is not None and len(batch.wanted) < self._most:
            batch.wanted.append(wanted)
            await batch.answered.wait()
        else:
            self._open = batch = _Batch()
            batch.wanted.append(wanted)
            await self._send(batch)
        if batch.error:
            raise Unread(batch.error)
        return batch.answers[0]

    async def _send(self, batch: _Batch[AnswerT]) -> None:
        try:
            at = max(trio.current_time() + GATHER_SECONDS, self._next_at)
            self._next_at = at + self._every_seconds
            await trio.sleep_until(at)
            self._close(batch)
            batch.answers.append(await self._ask(list(dict.fromkeys(batch.wanted))))
            batch.error = ""
        except (OSError, ValueError) as error:
            batch.error = error_text(error)
        finally:
            self._close(batch)
            batch.answered.set()

    def _close(self, batch: _Batch[AnswerT]) -> None:
        if self._open is batch:
            self._open = None


NO_CONTROLLER = "no management controller is configured for this node"


async def reading(source: ProofSource, machine: Machine) -> Said | None:
    """Bounded; an error becomes ``unknown``."""
    seconds = bounds.now.source_ipmi_seconds if source.source == "ipmi" else bounds.now.source_seconds
    try:
        with trio.fail_after(seconds):
            return await source.read(machine)
    except trio.TooSlowError:
        return Said("unknown", error=f"no answer in {span_s(seconds)}")
    except (OSError, ValueError) as error:
        return Said("unknown", error=error_text(error))


class SourcesEdge(Edge):
    """``machine`` None: the Node is not known."""

    def __init__(
        self, sources: Sequence[ProofSource], machine: Callable[[], Machine | None], clock: Clock
    ) -> None:
        self._sources, self._machine, self._clock = sources, machine, clock
        self.effects: Mapping[type[Order], Effect] = {ReadSources: self._read_all}

    async def _read_all(self, order: ReadSources, outlet: Outlet) -> Ending:
        machine = self._machine()
        if machine is None:
            return Ending("failed", "the Node is not known")
        async with trio.open_nursery() as nursery:
            for source in self._sources:
                nursery.start_soon(self._read, source, machine, outlet)
        return Ending()

    async def _read(self, source: ProofSource, machine: Machine, outlet: Outlet) -> None:
        begun_ns = self._clock.mono_ns()
        if (said := await reading(source, machine)) is not None:
            fact = EvidenceRead(source=source.source, name=source.name, begun_ns=begun_ns, **said._asdict())
            await outlet.put(fact)


#: Why the order must not be carried out; None: it may.
Check = Callable[[PowerOff, Outlet], Awaitable[Ending | None]]


class PowerEdge(Edge):
    """Asks the ``switches`` in order until one takes the command. Node and lease are read again before each:
    a machine that gave a sign of life stays on.
    """

    def __init__(self, switches: Sequence[PowerSwitch], check: Check) -> None:
        self._switches, self._check = switches, check
        self.effects: Mapping[type[Order], Effect] = {PowerOff: self._power_off}

    async def _power_off(self, order: PowerOff, outlet: Outlet) -> Ending:
        failed: list[str] = []
        for switch in self._switches:
            if (refused := await self._check(order, outlet)) is not None:
                if not failed:
                    return refused
                # A failed switch may have worked.
                failed.append(refused.reason)
                break
            try:
                with trio.fail_after(bounds.now.power_off_seconds):
                    await switch.power_off(order.system_uuid)
                return Ending()
            except trio.TooSlowError:
                why = f"no answer in {span_s(bounds.now.power_off_seconds)}"
            except OSError as error:
                why = error_text(error)
            failed.append(f"{switch.source} {switch.name}: {why}")
        return Ending("failed", "; ".join(failed) or NO_CONTROLLER)

"""The edge that asks every source of proof about one node, and what a source is.

A source says what it has seen of the machine's power, and whose power that is; whether it counts, the
ProofActor decides. All are asked at once, and each within its own time: one that hangs delays no other.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

import trio

from ebbtide.actors.edges.documents import read_file
from ebbtide.actors.interfaces import Clock, Effect, Ending, Outlet, error_text
from ebbtide.events import bounds
from ebbtide.events.base import Order
from ebbtide.events.outage_events import EvidenceRead, IdentityKind, ReadSources, Source, Verdict
from ebbtide.events.units import size_text, span_s

#: A user name, a password.
SECRET_BYTES_MAX = 4 * 1024
#: SMBIOS: not set, and not present. Many machines have them.
NO_UUIDS = (str(UUID(int=0)), str(UUID(int=2**128 - 1)))


class Machine(NamedTuple):
    """Whose power is asked for, as its Node says it; UUIDs in lower case."""

    node: str
    node_uid: str
    boot_id: str
    system_uuid: str
    provider_id: str


class Said(NamedTuple):
    """One source's answer; the fields are those of `EvidenceRead`. ``error``: in our own words, why it is
    ``unknown``.
    """

    verdict: Verdict
    identity_kind: IdentityKind = "none"
    identity: str = ""
    boot_id: str = ""
    mark: str = ""
    valid_seconds: int = 0
    at: str = ""
    error: str = ""


class Unread(OSError):
    """A source could not be asked, or its answer is of no use; one line in our own words."""


#: Who is asked for at the same time is asked for at once: what a look at a thousand nodes takes, and more.
GATHER_SECONDS = 0.05
GIVEN_UP = "it was given up"
#: So early a turn may be taken: between two readings, so that a few nodes are asked about at each.
TURNS_AHEAD_SECONDS = 5.0
#: The longest pause between two readings of a node: who has not come for so long has no turn any more.
TURN_KEPT_SECONDS = 300.0
AnswerT = TypeVar("AnswerT")


class _Batch(Generic[AnswerT]):
    """What is asked for in one request."""

    def __init__(self) -> None:
        self.wanted: list[str] = []
        self.answers: list[AnswerT] = []
        self.error = GIVEN_UP
        self.answered = trio.Event()


class Gathering(Generic[AnswerT]):
    """Questions about many nodes that come within a moment, in one request of at most ``most``; ``ask`` may
    raise OSError and ValueError. A request is sent after all who share it began to ask: one that is under way
    serves nobody who comes later. ``every_seconds``: not more often, and who comes meanwhile shares the next.
    """

    def __init__(
        self, ask: Callable[[list[str]], Awaitable[AnswerT]], most: int, every_seconds: float = 0.0
    ) -> None:
        self._ask, self._most, self._every_seconds = ask, most, every_seconds
        self._open: _Batch[AnswerT] | None = None
        self._next_at = -math.inf

    async def about(self, wanted: str) -> AnswerT:
        """The answer to all. Whoever comes first asks; if that one is given up, so are the others. Raises
        Unread.
        """
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


class Turns:
    """Of many nodes, each of which takes a request of its own: ``per_second`` in all, everybody in turn, and
    at once while those are few. Whose turn it is not is not asked about in this reading.
    """

    def __init__(self, per_second: float) -> None:
        self._every_seconds = 1 / per_second
        #: By node, from when on it is its turn.
        self._turns: dict[str, float] = {}
        self._last_at = -math.inf

    def takes(self, node: str) -> bool:
        """Whether it is its turn, which ends that."""
        now = trio.current_time()
        if node not in self._turns:
            self._turns = {each: at for each, at in self._turns.items() if now - at < TURN_KEPT_SECONDS}
            self._turns[node] = self._following(now)
        if now < self._turns[node] - TURNS_AHEAD_SECONDS:
            return False
        self._turns[node] = self._following(now)
        return True

    def _following(self, now: float) -> float:
        """Behind all that others have."""
        self._last_at = max(now, self._last_at + self._every_seconds)
        return self._last_at


class ProofSource(Protocol):
    """``name`` tells sources of one kind apart: a host, a region, an author."""

    @property
    def source(self) -> Source: ...

    @property
    def name(self) -> str: ...

    async def read(self, machine: Machine) -> Said | None:
        """None: it knows nothing of this machine, and says so by being silent. Raises OSError and ValueError
        where it cannot be asked, in words that name no secret.
        """


async def read_bounded(path: Path, bytes_max: int) -> bytes:
    """A file, anew each time: Secrets are renewed. Raises Unread."""
    try:
        # Abandoned with a disk that hangs.
        data = await trio.to_thread.run_sync(read_file, path, bytes_max, abandon_on_cancel=True)
    except OSError as error:
        raise Unread(f"{path}: {error.strerror or 'not readable'}") from None
    except ValueError:
        raise Unread(f"{path}: no regular file") from None
    if len(data) > bytes_max:
        raise Unread(f"{path}: larger than {size_text(bytes_max)}")
    return data


async def read_secret(path: Path) -> str:
    """One line of text: a user name, a password. Raises Unread, which quotes none of it."""
    try:
        text = (await read_bounded(path, SECRET_BYTES_MAX)).decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Unread(f"{path}: not UTF-8 text") from None
    if not text or not text.isprintable():
        raise Unread(f"{path}: not one line of text")
    return text


class SourcesEdge:
    """Of one node. ``machine`` gives it as it was last read; None: the Node is not known, nobody is asked."""

    def __init__(
        self, sources: Sequence[ProofSource], machine: Callable[[], Machine | None], clock: Clock
    ) -> None:
        self._sources, self._machine, self._clock = sources, machine, clock
        self.effects: Mapping[type[Order], Effect] = {ReadSources: self._read_all}

    async def run(self, outlet: Outlet) -> None:
        """It speaks when it is asked."""

    def prewarm(self) -> None:
        """Nothing is to be opened."""

    def detach(self) -> None:
        """Nothing goes on without us."""

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """What an earlier leader was told, it took with it."""
        return None

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
        try:
            with trio.fail_after(bounds.now.source_seconds):
                said = await source.read(machine)
        except trio.TooSlowError:
            said = Said("unknown", error=f"no answer in {span_s(bounds.now.source_seconds)}")
        except (OSError, ValueError) as error:
            said = Said("unknown", error=error_text(error))
        if said is not None:
            await outlet.put(
                EvidenceRead(source=source.source, name=source.name, begun_ns=begun_ns, **said._asdict())
            )

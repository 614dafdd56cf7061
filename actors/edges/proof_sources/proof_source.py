"""What sources of proof share. The ProofActor decides what a report proves."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable
from uuid import UUID

import trio

from ebbtide.actors.edges.documents import read_file
from ebbtide.actors.interfaces import error_text
from ebbtide.events.outage_events import IdentityKind, Source, Verdict
from ebbtide.events.units import size_text

SECRET_BYTES_MAX = 4 * 1024
#: SMBIOS: not set, and not present. Many machines have them.
NO_UUIDS = (str(UUID(int=0)), str(UUID(int=2**128 - 1)))


class Machine(NamedTuple):
    """As its Node describes it; UUIDs in lower case."""

    node: str
    node_uid: str
    boot_id: str
    system_uuid: str
    provider_id: str


class Said(NamedTuple):
    """The fields of `EvidenceRead`. ``error``: why the verdict is ``unknown``, without a quotation."""

    verdict: Verdict
    identity_kind: IdentityKind = "none"
    identity: str = ""
    boot_id: str = ""
    mark: str = ""
    valid_seconds: int = 0
    at: str = ""
    error: str = ""


class Unread(OSError):
    """One line for the record."""


class ProofSource(Protocol):
    """``name``: a host, a region, an author."""

    @property
    def source(self) -> Source: ...

    @property
    def name(self) -> str: ...

    async def read(self, machine: Machine) -> Said | None:
        """None: no statement about this machine. Raises OSError and ValueError, whose texts hold no
        secret.
        """


@runtime_checkable
class PowerSwitch(Protocol):
    """A source that can also switch the machine off."""

    @property
    def source(self) -> Source: ...

    @property
    def name(self) -> str: ...

    async def power_off(self, system_uuid: str) -> None:
        """Returns when the controller took the command, or the machine was off. Never switches a machine with
        another UUID. Raises Unread and RequestFailed.
        """


async def read_secret(path: Path) -> str:
    """Each time, because Secrets are renewed. Raises Unread, without a quotation."""
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
    """Asks about many nodes in one request of at most ``most``. ``ask`` may raise OSError and ValueError. A
    request begins after all readings that share it began. ``every_seconds``: the least time between two
    requests.
    """

    def __init__(
        self, ask: Callable[[list[str]], Awaitable[AnswerT]], most: int, every_seconds: float = 0.0
    ) -> None:
        self._ask, self._most, self._every_seconds = ask, most, every_seconds
        self._open: _Batch[AnswerT] | None = None
        self._next_at = -math.inf

    async def about(self, wanted: str) -> AnswerT:
        """About all nodes. The first caller asks; if it is cancelled, the others fail. Raises Unread."""
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

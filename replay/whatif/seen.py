"""What a new run has to know of the recorded one: containers, hooks, answers, and what came from outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from events.facts import ContainerExited, OrderEnded
from events.model import Container
from replay.whatif.changes import Told

#: A container: its pod's UID and its name.
Whose = tuple[str, str]


class At(NamedTuple):
    """An event's place in the record."""

    seq: int
    mono_ns: int


class Answer(NamedTuple):
    """A fact, and how long after its order it came. ``restart``: after that start of a process instead."""

    delay_ns: int
    told: Told
    restart: int = 0


class Downtime(NamedTuple):
    """Between two processes of one boot: nobody heard anything. ``seq`` is the start's."""

    begin_ns: int
    end_ns: int
    seq: int


@dataclass
class HookSeen:
    """A hook that was run. ``cut``: when it was cancelled, by an order of its own."""

    began: At
    key: str
    timeout_ns: int
    cut: At | None = None
    cut_timed_out: bool = False
    ended: Told | None = None
    #: Where a restart lost its outcome: until then it ran for certain.
    alive_ns: int | None = None

    @property
    def ran_out(self) -> bool:
        """It came to its own end: how long it needs is known."""
        return self.cut is None and self._result in ("done", "failed")

    @property
    def lost(self) -> bool:
        """A restart lost its outcome."""
        return self._result == "unknown"

    @property
    def bounded(self) -> bool:
        """Its edge ended it when its time was over, before anybody cut it."""
        return self.cut is None and self._result == "timed-out"

    @property
    def _result(self) -> str:
        return self.ended.event.result if self.ended and isinstance(self.ended.event, OrderEnded) else ""


#: How a container ended: by SIGKILL, after its stop signal, in its hook, before anything was asked of it, or
#: not as far as the record goes.
How = Literal["killed", "stopped", "in-hook", "by-itself", "stays"]


@dataclass
class ContainerSeen:
    """A container's way down in the record; None: it did not come to that."""

    spec: Container | None = None
    planned: At | None = None
    hook: HookSeen | None = None
    signalled: At | None = None
    killed: At | None = None
    exited: Told | None = None
    #: Told again, by a daemon that came back.
    exited_again: list[Told] = field(default_factory=list)
    #: The runtime would not send its stop signal: nobody asked it to end.
    refused: bool = False
    #: It was found gone when a daemon came back: so long after its stop signal it was still there.
    gone_after_ns: int | None = None

    @property
    def how(self) -> How:
        if self.exited is None:
            return "stays"
        event, seq = self.exited.event, self.exited.seq
        assert isinstance(event, ContainerExited)
        if self.killed is not None and self.killed.seq < seq and _by_sigkill(event):
            return "killed"
        if self.signalled is not None and self.signalled.seq < seq:
            return "stopped"
        return "in-hook" if self.hook is not None and self.hook.began.seq < seq else "by-itself"


def _by_sigkill(event: ContainerExited) -> bool:
    """As `actors.logic.outcome` has it: a runtime may say it with 128 + 9, and of some nothing is known."""
    return event.signal == "SIGKILL" or (not event.signal and event.exit_code in (None, 137))


@dataclass
class Seen:
    """Everything that the world of a new run needs to know of the old one."""

    #: At their own time, in order.
    outside: list[Told] = field(default_factory=list)
    after_release: list[Answer] = field(default_factory=list)
    #: By order key; a key without answers was an order that nobody answered.
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    #: When each order was given.
    asked_ns: dict[str, int] = field(default_factory=dict)
    #: Orders whose outcome is not to come, by request.
    silenced: dict[str, None] = field(default_factory=dict)
    containers: dict[Whose, ContainerSeen] = field(default_factory=dict)
    #: The key of each hook, and of each order to cut it.
    hook_keys: dict[str, Whose] = field(default_factory=dict)
    downtimes: list[Downtime] = field(default_factory=list)
    listing: list[Answer] = field(default_factory=list)
    released: At | None = None
    #: The slowest outcome by the type of the order, for orders that the record does not have.
    slowest_ns: dict[str, int] = field(default_factory=dict)

    def container(self, uid: str, name: str) -> ContainerSeen:
        return self.containers.setdefault((uid, name), ContainerSeen())

"""Which signals of the bus count: from the owner of logind's name, with the right body, each once.

The kubelet matches without a sender and once crashed on a wrong body (kubernetes#97951). A broadcast in
logind's name is filtered by the bus; a signal sent to us alone is not, and any local user may send one.
"""

from __future__ import annotations

from typing import NamedTuple

from jeepney import HeaderFields, Message

from actors.edges.bus import member, sender
from actors.edges.logind.names import (
    INTERFACE,
    NAME,
    OWNER_CHANGED,
    PATH,
    PLAIN,
    WITH_METADATA,
    kind_in_metadata,
)
from events.facts import SignalRejected
from events.model import ShutdownKind

BUS_NAME = "org.freedesktop.DBus"
#: Rejections on record a connection: evidence, but no way to fill our disk.
REJECTED_MAX = 16
TEXT_CHARACTERS_MAX = 200


class Going(NamedTuple):
    """logind says that the machine goes down, or that it does not."""

    active: bool
    kind: ShutdownKind
    owner: str


class OwnerChanged(NamedTuple):
    """logind's name has another owner; empty: nobody."""

    owner: str


Sifted = Going | OwnerChanged | SignalRejected | None


class Sifter:
    """One connection's view. Called in the order of the bus, so ``owner`` is right for each signal."""

    def __init__(self) -> None:
        #: None until it was asked for, or seen to change.
        self.owner: str | None = None
        self._announced: Going | None = None
        self._rejected = 0

    def sift(self, message: Message) -> Sifted:
        name = member(message)
        if name == OWNER_CHANGED and sender(message) == BUS_NAME:
            return self._owner_changed(message.body)
        if name not in (PLAIN, WITH_METADATA) or not _of_manager(message):
            return None
        if not self.owner or sender(message) != self.owner:
            return self._reject(message, f"not sent by logind ({self.owner or 'not on the bus'})")
        return self._plain(message) if name == PLAIN else self._with_metadata(message)

    def _owner_changed(self, body: tuple[object, ...]) -> Sifted:
        if len(body) != 3 or body[0] != NAME:
            return None
        owner = str(body[2])
        self.owner, self._announced = owner, None
        return OwnerChanged(owner)

    def _plain(self, message: Message) -> Sifted:
        body = message.body
        if len(body) != 1 or not isinstance(body[0], bool):
            return self._reject(message, f"the body is {body!r}, not one boolean")
        announced, self._announced = self._announced, None
        if announced is not None and announced.active == body[0]:
            return None
        return Going(body[0], "unknown", sender(message))

    def _with_metadata(self, message: Message) -> Sifted:
        body = message.body
        if len(body) != 2 or not isinstance(body[0], bool) or not isinstance(body[1], dict):
            return self._reject(message, f"the body is {body!r}, not a boolean and a dictionary")
        self._announced = Going(body[0], kind_in_metadata(body[1]), sender(message))
        return self._announced

    def _reject(self, message: Message, reason: str) -> SignalRejected | None:
        self._rejected += 1
        if self._rejected > REJECTED_MAX:
            return None
        reason = reason[:TEXT_CHARACTERS_MAX]
        return SignalRejected(member=member(message), reason=reason, sender=sender(message))


def _of_manager(message: Message) -> bool:
    fields = message.header.fields
    return bool(fields.get(HeaderFields.path) == PATH and fields.get(HeaderFields.interface) == INTERFACE)

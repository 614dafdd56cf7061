"""A roll call of pods: who belongs here, who has ended. A value that is cheap to replace.

Marking one of a thousand pods copies a kilobyte, not a dict: the cost of a shutdown stays linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from actors.logic.actor import State

_OPEN, _ENDED = 0, 1


class Roll(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``places`` maps each UID to its byte in ``ended``, in the order in which the pods came."""

    places: dict[str, int] = {}
    ended: bytes = b""

    @classmethod
    def of(cls, uids: Iterable[str]) -> Roll:
        places = {uid: at for at, uid in enumerate(uids)}
        return cls(places=places, ended=bytes(len(places)))

    def is_open(self, uid: str) -> bool:
        """Does it belong here, and has it not ended?"""
        at = self.places.get(uid)
        return at is not None and self.ended[at] == _OPEN

    def mark(self, uid: str) -> Roll:
        """The roll after this pod, which is open, has ended."""
        at = self.places[uid]
        return replace(self, ended=b"%b\1%b" % (self.ended[:at], self.ended[at + 1 :]))

    def join(self, uid: str) -> Roll:
        """One more pod at the end."""
        return Roll(places={**self.places, uid: len(self.places)}, ended=self.ended + b"\0")

    @property
    def open_pods(self) -> int:
        return self.ended.count(_OPEN)

    def missing(self) -> Iterator[str]:
        """Who has not ended, in order."""
        return (uid for uid, at in self.places.items() if self.ended[at] == _OPEN)

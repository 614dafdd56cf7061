"""What a call to the runtime may fail with, without any word of gRPC's: known before that is imported."""

from __future__ import annotations


class CallFailed(Exception):
    """A call that has no answer of use; the text is one line for the record."""


class Lost(CallFailed):
    """Nobody answered: the runtime is away, or went in the middle, or the time was over."""


class Unsent(Lost):
    """The same, and the runtime has certainly done nothing about it: the call may be made again."""


class RuntimeRefused(CallFailed):
    """The runtime answered with an error."""


class NotFound(RuntimeRefused):
    """The runtime knows no such container or sandbox (any more)."""

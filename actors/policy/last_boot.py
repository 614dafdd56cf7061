"""How the last boot ended, from its journal and from the machine's own records of it.

The journal knows how far a shutdown had come, and whether one could have begun. Only the machine's records
show whether it went down in order, by force or by a crash, and each of them may be missing. A missing record
proves nothing. Without any record the ending is ``unknown``.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ebbtide.actors.policy.resume import LastEpisode
from ebbtide.events.facts import LastBootRead
from ebbtide.events.values import BootEnding, BootEndReason


class EndedBoot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A boot as its journal ends. ``enabled`` and ``armed`` None: unknown. ``overtime``: its shutdown began
    with our own stop. ``left``: the daemon had been stopped before it.
    """

    boot_id: str
    last: LastEpisode
    wave: int = -1
    overtime: bool = False
    enabled: bool | None = None
    armed: bool | None = None
    left: bool = False


class BootEnd(NamedTuple):
    ending: BootEnding
    why: BootEndReason


def boot_end(ended: EndedBoot, read: LastBootRead) -> BootEnd:
    """``read`` must be about the boot ``ended``."""
    in_order = "shutdown" in (read.wtmp, read.journal)
    by_software = (
        in_order or read.journal == "stopped" or read.crash in ("shutdown", "emergency") or read.kexec
    )
    crashed = _crashed(read, by_software=by_software)
    if ended.last == "released":
        # Whatever came after the release: the pods had ended.
        return BootEnd("graceful", crashed or ("bypassed" if ended.overtime else ""))
    if ended.last == "open":
        ending: BootEnding = "cut-short" if ended.wave >= 0 else "never-begun"
        if crashed:
            return BootEnd(ending, crashed)
        if ended.overtime:
            return BootEnd(ending, "bypassed")
        if in_order:
            return BootEnd(ending, "time-over")
        return BootEnd(ending, "bypassed" if by_software else "unrecorded")
    if crashed:
        return BootEnd("abrupt", crashed)
    unprotected = _unprotected(ended)
    if by_software:
        # Was there a lock to bypass?
        known = ended.armed is not None
        return BootEnd("never-begun", unprotected or ("bypassed" if known else ""))
    if "no-shutdown" in (read.wtmp, read.journal):
        return BootEnd("abrupt", "unrecorded")
    return BootEnd("unknown", unprotected)


def _crashed(read: LastBootRead, *, by_software: bool) -> BootEndReason:
    """An oops may be days older than the end, and is no cause of an orderly one."""
    if read.crash == "panic" or (not by_software and (read.crash == "oops" or read.kernel_emergency)):
        return "panic"
    return "watchdog" if read.watchdog and not by_software else ""


def _unprotected(ended: EndedBoot) -> BootEndReason:
    """Why no shutdown could have begun; empty: one could."""
    # In this order: a daemon that is switched off is not armed either.
    if ended.enabled is False:
        return "not-configured"
    if ended.left:
        return "not-running"
    return "not-armed" if ended.armed is False else ""

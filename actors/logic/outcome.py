"""A pod's fate in one word and one sentence, from its containers' ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from actors.logic.container import Down
from events.base import NS_PER_SECOND
from events.decisions import PodOutcome
from events.model import Pod


class Fate(NamedTuple):
    outcome: PodOutcome
    reason: str
    succeeded: bool


def describe(
    downs: Sequence[Down], grace_ns: int, pod: Pod, finding: str, *, by_number: bool = False
) -> Fate:
    """graceful: ended by itself; killed: by SIGKILL; failed: by nothing; unknown: not seen.

    ``by_number``: the runtime tells a signal as 128 and its number.
    """
    still = [down for down in downs if down.phase != "exited"]
    if still:
        return _unfinished(still)
    killed = [down for down in downs if down.killed and _by_sigkill(down)]
    if killed:
        return Fate("killed", _killed(killed, grace_ns, pod, finding) + _notes(downs), False)
    by_kubelet = [down for down in downs if down.delegated and down.stop_since_ns and _was_killed(down)]
    if by_kubelet:
        return Fate("killed", _killed(by_kubelet, grace_ns, pod, finding, "SIGKILL by the kubelet"), False)
    foreign = [
        down
        for down in downs
        if down.stop_since_ns and (_was_killed(down) if by_number else down.exit_signal == "SIGKILL")
    ]
    if foreign:
        names = ", ".join(down.spec.name for down in foreign)
        return Fate("killed", f"SIGKILL from elsewhere for {names}" + _notes(downs), False)
    succeeded = all(down.exit_code == 0 for down in downs)
    return Fate("graceful", _graceful(downs) + _notes(downs), succeeded)


def _by_sigkill(down: Down) -> bool:
    """A runtime may say it with 128 + 9; of an adopted process nothing is known, and ours came last."""
    return down.exit_signal == "SIGKILL" or (not down.exit_signal and down.exit_code in (None, 137))


def _was_killed(down: Down) -> bool:
    """A runtime says it with 128 + 9."""
    return down.exit_signal == "SIGKILL" or down.exit_code == 137


def _unfinished(still: Sequence[Down]) -> Fate:
    names = ", ".join(down.spec.name for down in still)
    if all(down.killed for down in still):
        why = next((down.error for down in still if down.error), "still there after SIGKILL")
        return Fate("failed", f"{names}: {why}", False)
    return Fate("unknown", f"{names} still running when the lock was released", False)


def _killed(killed: Sequence[Down], grace_ns: int, pod: Pod, finding: str, how: str = "SIGKILL") -> str:
    names = ", ".join(down.spec.name for down in killed)
    asked = pod.grace_seconds
    had = _seconds(grace_ns)
    cut = f", asked for {asked} s" if asked is not None and asked * NS_PER_SECOND > grace_ns else ""
    found = f", {finding}" if finding else ""
    return f"{how} for {names}: had {had} s{cut}{found}"


def _graceful(downs: Sequence[Down]) -> str:
    """The worst end tells most: a non-zero exit before a zero one."""
    if not downs:
        return "had no containers"
    worst = max(downs, key=lambda down: (down.exit_signal != "", down.exit_code or 0))
    if worst.stop_since_ns == 0 and all(down.stop_since_ns == 0 for down in downs):
        return f"had ended before its stop signal, {_end(worst)}"
    return _end(worst)


def _end(down: Down) -> str:
    if down.exit_signal:
        return f"ended by {down.exit_signal}"
    return "exit code not known" if down.exit_code is None else f"exit code {down.exit_code}"


def _notes(downs: Sequence[Down]) -> str:
    notes = [down.hook_note for down in downs if down.hook_note]
    return "; " + "; ".join(notes) if notes else ""


def _seconds(ns: int) -> str:
    whole, rest = divmod(ns, NS_PER_SECOND)
    return f"{whole}.{rest // 100_000_000}" if rest >= 100_000_000 else str(whole)

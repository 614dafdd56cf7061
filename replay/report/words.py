"""How verdicts and moments read on the page: for people, without a guess."""

from __future__ import annotations

from events.decisions import PodOutcome
from replay.account.damage import ENDS
from replay.account.model import Account, PodTold
from replay.account.words import span as systemd_span

KINDS = {
    "poweroff": "power-off",
    "reboot": "reboot",
    "halt": "halt",
    "kexec": "kexec reboot",
    "soft-reboot": "soft reboot",
    "unknown": "shutdown",
}

#: A pod's fate: what is said of one pod and of many, and the sign that stands beside the colour.
OUTCOMES: dict[PodOutcome, tuple[str, str, str]] = {
    "graceful": ("ended by itself", "ended by themselves", "✓"),
    "killed": ("was killed", "were killed", "✕"),
    "failed": ("could not be ended", "could not be ended", "!"),
    "spared": ("was spared", "were spared", "○"),
    "rejected": ("came late and was rejected", "came late and were rejected", "⊘"),
    "unknown": ("has no fate on record", "have no fate on record", "?"),
}

#: The sign of the whole shutdown.
SIGNS = {"complete": "✓", "cancelled": "○", "running": "…", "truncated": "✕", "never-begun": "✕"}


#: Of a shutdown that is complete, although not every pod ended well.
MIXED: tuple[PodOutcome, ...] = ("killed", "failed", "unknown")


def seal(account: Account) -> tuple[str, str]:
    """The sign before the headline, and its class: what became of the machine and of the pods."""
    if account.outcome == "complete" and any(map(account.count, MIXED)):
        return "!", "mixed"
    return SIGNS[account.outcome], account.outcome


def span(duration_ns: int) -> str:
    """As everywhere; only the sign of the microsecond is that of print."""
    return systemd_span(duration_ns).replace("us", "µs")


def visible(text: str) -> str:
    """``text`` with every character that is not printable spelt out: none can turn a line around."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def moment(at_ns: int | None) -> str:
    """Time since the signal; a dash where it did not happen."""
    if at_ns is None:
        return "–"
    return f"−{span(-at_ns)}" if at_ns < 0 else f"+{span(at_ns)}"


def counted(count: int, one: str, many: str = "") -> str:
    """``1 pod``, ``12 pods``."""
    return f"{grouped(count)} {one if count == 1 else many or one + 's'}"


def grouped(number: int) -> str:
    """Thousands apart."""
    return f"{number:,}".replace(",", " ")


def fate(pod: PodTold) -> PodOutcome:
    """A pod whose fate is not on record counts as unknown, as everywhere."""
    return pod.outcome or "unknown"


def fates(account: Account) -> str:
    """``11 pods ended by themselves, 1 was killed.``"""
    parts: list[str] = []
    for outcome, (one, many, _) in OUTCOMES.items():
        count = account.count(outcome)
        if count:
            noun = counted(count, "pod") if not parts else grouped(count)
            parts.append(f"{noun} {one if count == 1 else many}")
    words = ", ".join(parts)
    return f"{words}." if words else "There was no pod to end."


def verdict(account: Account) -> str:
    """The whole shutdown in a sentence."""
    what = f"The {KINDS[account.kind]} of {visible(account.node) or 'this node'}"
    if account.damage is not None and account.damage.here:
        return f"{what}, {_place(account)}: the record ends here: {ENDS[account.damage.state]}."
    if account.outcome == "complete":
        return (
            f"{what} is complete: the machine was let go after {span(account.ended_ns or account.last_ns)}."
        )
    if account.outcome == "cancelled":
        at_ns = account.last_ns if account.cancelled_ns is None else account.cancelled_ns
        return f"{what} was cancelled after {span(at_ns)}."
    if account.outcome == "running":
        return f"{what} is under way, {span(account.last_ns)} after the signal."
    if account.outcome == "never-begun":
        return f"{what} never began for the pods."
    return f"{what} was cut short {_place(account)}."


def _place(account: Account) -> str:
    where = f"in wave {account.last_wave}" if account.last_wave >= 0 else "before its first wave"
    return f"{where}, {span(account.last_ns)} after the signal"

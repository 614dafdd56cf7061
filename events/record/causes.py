"""One cause for each pod that did not end by itself, groups of like warnings, and the headline.

A shutdown with a hundred killed pods has one cause or two, and a hundred warnings. A cause is a pure function
of the record; headline, warnings, blame, a pod's reason and JSON use this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import PodOutcome
from ebbtide.events.messages import plural
from ebbtide.events.record import shutdown_record
from ebbtide.events.record.shutdown_record import SEVERITY_ORDER, Severity
from ebbtide.events.units import span

# --- the cause of a pod's fate -----------------------------------------------------------------

CauseCode = Literal[
    "stop-refused",
    "delete-refused",
    "kill-refused",
    "hurried",
    "killed-elsewhere",
    "hook-overran",
    "signal-ignored",
    "time-cut",
    "grace-over",
    "outlived-kill",
    "still-running",
    "end-unseen",
    "exit-unknown",
    "kill-unseen",
    "wave-not-begun",
    "found-late",
    "machine-down",
    "no-fate",
    "other",
]


class Cause(NamedTuple):
    """``code`` is stable, ``text`` is its sentence, ``detail`` a foreign error text."""

    code: CauseCode
    text: str
    detail: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.text} ({self.detail})" if self.text and self.detail else self.text or self.detail


class CauseRow(NamedTuple):
    """``find`` returns the detail (or ""), or None if this is not the cause."""

    code: CauseCode
    fates: tuple[PodOutcome, ...]
    text: str
    find: Callable[[shutdown_record.PodRecord], str | None]


def _stop_refusal(pod: shutdown_record.PodRecord) -> str | None:
    return next((each.stop_refusal for each in pod.containers if each.stop_refused), None)


def _delete_refusal(pod: shutdown_record.PodRecord) -> str | None:
    """A pod that was handed over and signalled had its time."""
    told = any(each.signalled_ns is not None for each in pod.containers)
    return pod.refused if pod.refused and not told else None


def _kill_refusal(pod: shutdown_record.PodRecord) -> str | None:
    return next((each.kill_refusal for each in pod.containers if each.kill_refusal), None)


def _where(
    holds: Callable[[shutdown_record.PodRecord], bool],
) -> Callable[[shutdown_record.PodRecord], str | None]:
    return lambda pod: "" if holds(pod) else None


def ignored_stop(pod: shutdown_record.PodRecord) -> bool:
    """Just before SIGKILL, a container's first process ignored the stop signal."""
    # Only the first process: it gets the stop signal.
    signals = {each.name: each.stop_signal for each in pod.containers}
    firsts = ((taken.container, taken.processes[0]) for taken in pod.autopsies if taken.processes)
    return any(signals.get(name, "SIGTERM") in first.signals_ignored for name, first in firsts)


def _killed_elsewhere(pod: shutdown_record.PodRecord) -> bool:
    """Neither we nor a kubelet sent SIGKILL."""
    ends = pod.containers
    return bool(ends) and all(each.killed_ns is None and each.asked_ns is None for each in ends)


def _had_less(pod: shutdown_record.PodRecord) -> bool:
    wanted = pod.wanted_grace_seconds
    return wanted is not None and pod.grace_ns is not None and pod.grace_ns < wanted * NS_PER_SECOND


_KILLED: tuple[PodOutcome, ...] = ("killed",)
_FAILED: tuple[PodOutcome, ...] = ("failed",)
_UNKNOWN: tuple[PodOutcome, ...] = ("unknown",)
#: Fates that have a cause.
BAD_FATES: tuple[PodOutcome, ...] = (*_KILLED, *_FAILED, *_UNKNOWN)


def _unknown(code: CauseCode, words: str) -> CauseRow:
    """Found by the actors' text: the rest of the reason has names."""
    return CauseRow(code, _UNKNOWN, words, _where(lambda pod: words in pod.reason))


#: The first row that holds is the cause: first a refused request, then the pod's behaviour, then too little
#: time.
CAUSES: tuple[CauseRow, ...] = (
    CauseRow("stop-refused", BAD_FATES, "the runtime refused the stop signal", _stop_refusal),
    CauseRow("delete-refused", BAD_FATES, "the API server did not take the delete", _delete_refusal),
    CauseRow("kill-refused", _FAILED, "the runtime refused SIGKILL", _kill_refusal),
    CauseRow("outlived-kill", _FAILED, "still there after SIGKILL", lambda pod: ""),
    CauseRow(
        "hurried",
        _KILLED,
        "a person asked not to wait for it",
        _where(lambda pod: pod.hurried_ns is not None),
    ),
    CauseRow("killed-elsewhere", _KILLED, "SIGKILL from elsewhere", _where(_killed_elsewhere)),
    CauseRow(
        "hook-overran",
        _KILLED,
        "the preStop hook had not ended when the grace was over",
        _where(lambda pod: any(hook.result == "timed-out" for hook in pod.hooks)),
    ),
    CauseRow("signal-ignored", _KILLED, "the first process ignores the stop signal", _where(ignored_stop)),
    CauseRow("time-cut", _KILLED, "had less time than its spec asks for", _where(_had_less)),
    CauseRow("grace-over", _KILLED, "had not ended when the grace was over", lambda pod: ""),
    CauseRow("no-fate", _UNKNOWN, "no fate on record", _where(lambda pod: not pod.reason)),
    _unknown("still-running", "still running when the lock was released"),
    _unknown("end-unseen", "gone, end not seen"),
    _unknown("exit-unknown", "ended under the kubelet, exit code not known"),
    _unknown("kill-unseen", "neither its end was seen nor what SIGKILL did"),
    _unknown("wave-not-begun", "the lock was released before its wave"),
    _unknown("found-late", "found when the shutdown had stopped waiting for pods"),
    _unknown("found-late", "started again when the shutdown had stopped waiting for pods"),
    _unknown("machine-down", "the machine went down before its end was seen"),
    CauseRow("other", BAD_FATES, "", lambda pod: pod.reason),
)


def cause_of(pod: shutdown_record.PodRecord) -> Cause | None:
    """Why it did not end by itself; None: it did, or was not to end. A pod without a fate is unknown."""
    for row in CAUSES:
        detail = row.find(pod) if pod.fate in row.fates else None
        if detail is not None:
            return Cause(row.code, row.text, detail)
    return None


#: Causes that the reason names late or not at all, and their text in it.
_SAID_LATE: dict[CauseCode, str] = {
    "stop-refused": " did not reach ",
    "delete-refused": "",
    "hook-overran": "preStop timed-out: ",
}


def reason_text(pod: shutdown_record.PodRecord) -> str:
    """Its reason in the record's words, with the cause first."""
    cause = cause_of(pod)
    if cause is None or cause.code not in _SAID_LATE:
        return pod.reason
    words, parts = _SAID_LATE[cause.code], pod.reason.split("; ")
    if words and len(pod.containers) <= 1:  # of several it also says which of them it was
        parts = [part for part in parts if words not in part]
    return "; ".join(part for part in (cause.sentence, *parts) if part)


# --- groups ------------------------------------------------------------------------------------


class CauseGroup(shutdown_record.RecordPart):
    """Warnings of one cause. ``count`` of ``pods`` (UIDs, in inventory order), or of ``notices`` without a
    pod; ``sentence`` is without the count.
    """

    code: str
    severity: Severity
    sentence: str
    count: int
    pods: tuple[str, ...]
    notices: tuple[shutdown_record.Notice, ...]
    #: The one pod's name.
    label: str = ""

    @property
    def text(self) -> str:
        """``106 pods: the runtime refused the stop signal (…)``."""
        if self.pods:
            return f"{self.label or plural(self.count, 'pod')}: {self.sentence}"
        return self.sentence if self.count == 1 else f"{self.sentence}; {self.count - 1} more like it"


#: For warnings other than fates and hooks; the default is mixed.
_NOTICE_SEVERITIES: dict[str, Severity] = {
    "lock-not-held": "bad",
    "lock-lost": "bad",
    "cut-short": "bad",
    "never-begun": "bad",
    "record-damaged": "bad",
    "begin-lost": "bad",
    "deadline-moved": "good",
    "pod-late": "good",
    "hurried": "good",
    "release-requested": "good",
    "cancelled": "good",
    "clock-stepped": "good",
}

_FATE_NOTICES = tuple(f"pod-{fate}" for fate in BAD_FATES)
_HOOK_TEXTS = {
    "failed": ("hook-failed", "failed"),
    "timed-out": ("hook-timed-out", "was cut"),
    "not-run": ("hook-not-run", "did not run"),
    "unknown": ("hook-unknown", "ended, and how is not known"),
}
_HOOK_NOTICES = tuple(code for code, _ in _HOOK_TEXTS.values())


class _Found(NamedTuple):
    """One pod, or one notice, before grouping."""

    code: str
    kind: int  # its place among those of one severity: the machine, pods, hooks, what is left
    severity: Severity
    sentence: str
    #: Without this pod's own words: for a group of several.
    general: str
    pod: str = ""
    notice: shutdown_record.Notice | None = None


def cause_groups(shutdown: shutdown_record.ShutdownRecord) -> tuple[CauseGroup, ...]:
    """Every warning, like ones together: the gravest first, then the largest group."""
    labels = {pod.uid: pod.label for pod in shutdown.pods}
    by_pod: dict[tuple[str, str], list[shutdown_record.Notice]] = {}
    for notice in shutdown.notices:
        kind = "fate" if notice.code in _FATE_NOTICES else notice.code
        by_pod.setdefault((kind, notice.pod), []).append(notice)
    groups: dict[str, list[_Found]] = {}
    for found in (*_fates(shutdown), *_hooks(shutdown), *_others(shutdown)):
        groups.setdefault(found.code, []).append(found)
    made: list[tuple[int, CauseGroup]] = []
    for members in groups.values():
        first = members[0]
        pods = tuple(dict.fromkeys(each.pod for each in members if each.pod))
        sentences = dict.fromkeys(each.sentence for each in members)
        kind = first.code if first.code in _HOOK_NOTICES else "fate"
        notices = [each.notice for each in members if each.notice is not None] or [
            notice for uid in pods for notice in by_pod.get((kind, uid), ())
        ]
        group = CauseGroup(
            code=first.code,
            severity=min((each.severity for each in members), key=SEVERITY_ORDER.index),
            sentence=first.sentence if len(sentences) == 1 or not pods else first.general,
            count=len(pods) or len(members),
            pods=pods,
            notices=tuple(notices),
            label=labels.get(pods[0], "") if len(pods) == 1 else "",
        )
        made.append((first.kind, group))
    made.sort(key=lambda each: (SEVERITY_ORDER.index(each[1].severity), each[0], -each[1].count))
    return tuple(group for _, group in made)


def _fates(shutdown: shutdown_record.ShutdownRecord) -> Iterator[_Found]:
    """Pods that did not end by themselves; an open pod of a running shutdown has no fate yet."""
    many = shutdown.summary.is_killing
    for pod in shutdown.pods:
        if pod.outcome is None and shutdown.outcome == "running":
            continue
        cause = cause_of(pod)
        if cause is not None:
            mixed = shutdown.is_accounted_for(pod) or (pod.outcome == "killed" and not many)
            general = cause.text or "for several reasons"
            yield _Found(cause.code, 1, "mixed" if mixed else "bad", cause.sentence, general, pod.uid)


def _hooks(shutdown: shutdown_record.ShutdownRecord) -> Iterator[_Found]:
    """Failed hooks, also of pods that ended by themselves."""
    for pod in shutdown.pods:
        for hook in pod.hooks:
            code, how = _HOOK_TEXTS.get(hook.result or "", ("", ""))
            if code:
                sentence = f"the preStop hook ({hook.kind}) {how}" + (
                    f" ({hook.reason})" if hook.reason else ""
                )
                yield _Found(code, 2, "mixed", sentence, f"the preStop hook {how}", pod.uid)


def _others(shutdown: shutdown_record.ShutdownRecord) -> Iterator[_Found]:
    for notice in shutdown.notices:
        if notice.code not in _FATE_NOTICES and notice.code not in _HOOK_NOTICES:
            severity = _NOTICE_SEVERITIES.get(notice.code, "mixed")
            place = 0 if severity == "bad" else 3
            yield _Found(notice.code, place, severity, notice.text, notice.text, notice=notice)


# --- the headline ------------------------------------------------------------------------------

KIND_TEXTS = {
    "poweroff": "power-off",
    "reboot": "reboot",
    "halt": "halt",
    "kexec": "kexec reboot",
    "soft-reboot": "soft reboot",
    "unknown": "shutdown",
}

#: A pod's fate: text for one pod, and for many.
FATE_TEXTS: dict[PodOutcome, tuple[str, str]] = {
    "graceful": ("ended by itself", "ended by themselves"),
    "killed": ("was killed", "were killed"),
    "failed": ("could not be ended", "could not be ended"),
    "spared": ("was spared", "were spared"),
    "rejected": ("came late and was rejected", "came late and were rejected"),
    "unknown": ("has no fate on record", "have no fate on record"),
}


def headline(shutdown: shutdown_record.ShutdownRecord) -> str:
    """A line that begins with the fault, if there is one, then the fate of machine and pods."""
    first = next(iter(cause_groups(shutdown)), None)
    cause = ""
    # Do not repeat a cause that the fates or the machine's end already name; for one pod the cause names it.
    said = first is not None and first.code in ("no-fate", "begin-lost") and not first.label
    if first is not None and shutdown.severity != "good" and not said:
        cause = f"{first.text}. "
    what = f"The {KIND_TEXTS[shutdown.kind]} of {shutdown.node or 'this node'}"
    return f"{cause}{what} {_end_text(shutdown)}: {fates_text(shutdown)}."


def fates_text(shutdown: shutdown_record.ShutdownRecord) -> str:
    """``106 of 110 pods were killed, 2 ended by themselves, 2 came late and were rejected``, worst first."""
    counts = {fate: shutdown.count(fate) for fate in (*BAD_FATES, *FATE_TEXTS)}
    found = [(fate, count) for fate, count in counts.items() if count]
    if not found:
        return "no pod is on record" if _lost_its_begin(shutdown) else "there was no pod to end"
    total = len(shutdown.pods)
    if len(found) == 1:
        one, many = FATE_TEXTS[found[0][0]]
        return f"its pod {one}" if total == 1 else f"all {total} pods {many}"
    parts = [f"{count} {FATE_TEXTS[fate][count > 1]}" for fate, count in found]
    (fate, count), *_ = found
    parts[0] = f"{count} of {total} pods {FATE_TEXTS[fate][count > 1]}"
    return ", ".join(parts)


def _lost_its_begin(shutdown: shutdown_record.ShutdownRecord) -> bool:
    return any(each.code == "begin-lost" for each in shutdown.notices)


def _end_text(shutdown: shutdown_record.ShutdownRecord) -> str:
    """The machine's end."""
    since = f"{span(shutdown.last_ns)} after the signal"
    begun = shutdown.last_wave >= 0
    reached = f"wave {shutdown.last_wave}, {since}" if begun else since
    if shutdown.damage is not None and shutdown.damage.here:
        end = shutdown_record.DAMAGED_ENDS[shutdown.damage.state]
        return f"is on record up to {reached}, then the record ends ({end})"
    if _lost_its_begin(shutdown):
        return "is on record without its begin"
    at_ns = shutdown.last_ns if shutdown.cancelled_ns is None else shutdown.cancelled_ns
    texts = {
        "complete": f"let the machine go after {span(shutdown.ended_ns or shutdown.last_ns)}",
        "cancelled": f"was cancelled after {span(at_ns)}",
        "running": f"is under way, {since}",
        "never-begun": "never began for the pods",
    }
    where = f"in {reached}" if begun else f"before its first wave, {since}"
    return texts.get(shutdown.outcome, f"was cut short {where}")

"""One cause for each pod that did not end by itself, the tree of causes above it (docs/replay.md), and the
headline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from operator import itemgetter
from typing import Literal, NamedTuple

from msgspec.structs import asdict

from ebbtide.events.base import NS_PER_SECOND, RESERVE_SECONDS_MIN
from ebbtide.events.decisions import PodOutcome
from ebbtide.events.facts import SLOW_STOP_NS
from ebbtide.events.messages import plural
from ebbtide.events.record import shutdown_record
from ebbtide.events.record.format import utc_text
from ebbtide.events.record.shutdown_record import BY_KUBELET_TEXTS, SEVERITY_ORDER, Severity
from ebbtide.events.units import span


class Cause(NamedTuple):
    """``code`` is stable, ``text`` is its sentence, ``detail`` a foreign error text."""

    code: str
    text: str
    detail: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.text} ({self.detail})" if self.text and self.detail else self.text or self.detail


class CauseRow(NamedTuple):
    """``find`` returns the detail, or True without one; None or False: this is not the cause."""

    code: str
    fates: tuple[PodOutcome, ...]
    text: str
    find: Callable[[shutdown_record.PodRecord], str | bool | None]


def ignored_stop(pod: shutdown_record.PodRecord) -> bool:
    # Only the first process gets the stop signal.
    signals = {each.name: each.stop_signal for each in pod.containers}
    firsts = ((taken.container, taken.processes[0]) for taken in pod.autopsies if taken.processes)
    return any(signals.get(name, "SIGTERM") in first.signals_ignored for name, first in firsts)


#: A pod that lost a smaller share of its time lacked grace, not the signal.
SLOW_STOP_SHARE_MIN = Fraction(1, 4)


def _slow_stop(pod: shutdown_record.PodRecord) -> str | None:
    """The stop signal was late, or not yet sent at SIGKILL."""
    for each in pod.containers:
        if each.signalled_ns is None or each.killed_ns is None:
            continue
        had_ns, lost_ns = each.killed_ns - each.signalled_ns, each.answered_ns
        if lost_ns is None or (each.taken_ns is not None and each.taken_ns > each.killed_ns):
            lost_ns = had_ns
        elif each.taken_ns is None:  # the runtime may only wait for the container
            continue
        if lost_ns >= SLOW_STOP_NS and lost_ns >= had_ns * SLOW_STOP_SHARE_MIN:
            return (
                f"no answer in {span(had_ns)}" if lost_ns == had_ns else f"{span(lost_ns)} of {span(had_ns)}"
            )
    return None


_KILLED: tuple[PodOutcome, ...] = ("killed",)
_FAILED: tuple[PodOutcome, ...] = ("failed",)
_UNKNOWN: tuple[PodOutcome, ...] = ("unknown",)
#: Fates that have a cause.
BAD_FATES: tuple[PodOutcome, ...] = (*_KILLED, *_FAILED, *_UNKNOWN)


def _unknown(code: str, words: str) -> CauseRow:
    """By the actors' text: the rest of the reason has names."""
    return CauseRow(code, _UNKNOWN, words, lambda pod: words in pod.reason)


#: The first matching row counts: first a refused request, then the pod's behaviour, then too little time.
CAUSES: tuple[CauseRow, ...] = (
    CauseRow(
        "stop-refused",
        BAD_FATES,
        "the stop signal was not sent",
        lambda pod: next((each.stop_refusal for each in pod.containers if each.stop_refused), None),
    ),
    CauseRow(
        "delete-refused",
        BAD_FATES,
        "the API server did not accept the delete",
        # A pod that was signalled after all had its time.
        lambda pod: (
            None if any(each.signalled_ns is not None for each in pod.containers) else pod.refused or None
        ),
    ),
    CauseRow(
        "kill-refused",
        _FAILED,
        "SIGKILL failed",
        lambda pod: next((each.kill_refusal for each in pod.containers if each.kill_refusal), None),
    ),
    CauseRow("outlived-kill", _FAILED, "still there after SIGKILL", lambda pod: True),
    CauseRow("hurried", _KILLED, "a person asked not to wait for it", lambda pod: pod.hurried_ns is not None),
    CauseRow(
        "killed-elsewhere",
        _KILLED,
        "SIGKILL from elsewhere",
        # Neither we nor a kubelet sent it.
        lambda pod: (
            "by the kubelet" not in pod.reason
            and [*dict.fromkeys((each.killed_ns, each.asked_ns) for each in pod.containers)] == [(None, None)]
        ),
    ),
    CauseRow(
        "hook-overran",
        _KILLED,
        "the preStop hook had not ended when the grace was over",
        lambda pod: any(hook.result == "timed-out" for hook in pod.hooks),
    ),
    CauseRow("signal-ignored", _KILLED, "the first process ignores the stop signal", ignored_stop),
    CauseRow("stop-slow", _KILLED, "the runtime was slow to send the stop signal", _slow_stop),
    CauseRow(
        "time-cut",
        _KILLED,
        "had less time than its spec asks for",
        lambda pod: (
            pod.grace_ns is not None and pod.grace_ns < (pod.wanted_grace_seconds or 0) * NS_PER_SECOND
        ),
    ),
    CauseRow("grace-over", _KILLED, "had not ended when the grace was over", lambda pod: True),
    CauseRow("no-fate", _UNKNOWN, "no fate on record", lambda pod: not pod.reason),
    _unknown("still-running", "still running when the lock was released"),
    _unknown("end-unseen", "gone, end not seen"),
    _unknown("exit-unknown", "ended under the kubelet, exit code not known"),
    _unknown("kill-unseen", "no end seen, and no answer to SIGKILL"),
    _unknown("wave-not-begun", "the lock was released before its wave"),
    _unknown("found-late", "found too late to be stopped"),
    _unknown("machine-down", "the machine went down before its end was seen"),
    CauseRow("other", BAD_FATES, "", lambda pod: pod.reason),
)
CAUSE_CODES = tuple(row.code for row in CAUSES)


def cause_of(pod: shutdown_record.PodRecord) -> Cause | None:
    """None: it ended by itself, or was not to end. A pod without a fate is unknown."""
    for row in CAUSES:
        found = pod.fate in row.fates and row.find(pod)
        if found is not None and found is not False:
            return Cause(row.code, row.text, "" if found is True else found)
    return None


#: Causes that the reason does not name first, and their text in it.
_SAID_LATE: dict[str, str] = {
    "stop-refused": " did not reach ",
    "delete-refused": "",
    "hook-overran": "preStop timed-out: ",
}


def reason_text(pod: shutdown_record.PodRecord) -> str:
    """The record's reason, with the cause first."""
    cause = cause_of(pod)
    if cause is None or cause.code not in _SAID_LATE:
        return pod.reason
    words, parts = _SAID_LATE[cause.code], pod.reason.split("; ")
    if words and len(pod.containers) <= 1:  # of several it also says which of them it was
        parts = [part for part in parts if words not in part]
    return "; ".join(part for part in (cause.sentence, *parts) if part)


# --- the tree of causes

# A root explains the pods that it hurt, and the notices that follow from it. The order: machine, part of the
# node, configuration, pod.

Level = Literal["machine", "part", "configuration", "pod", "remark"]


#: A root of these explains its pods; a pod's own cause is its root.
ABOVE_PODS: tuple[Level, ...] = ("machine", "part", "configuration")


class CauseGroup(shutdown_record.RecordPart):
    """Warnings of one kind. ``count``: of ``pods`` (UIDs, in inventory order), or of ``notices`` without a
    pod. ``sentence``: without the count.
    """

    code: str
    severity: Severity
    sentence: str
    count: int
    pods: tuple[str, ...] = ()
    notices: tuple[shutdown_record.Notice, ...] = ()
    #: A single pod's name.
    label: str = ""

    @property
    def who(self) -> str:
        return self.label or plural(self.count, "pod")

    @property
    def text(self) -> str:
        """``106 pods: the stop signal was not sent (…)``."""
        if self.pods:
            return f"{self.who}: {self.sentence}"
        return self.sentence if self.count == 1 else f"{self.sentence}; {self.count - 1} more like it"


class RootCause(CauseGroup):
    """``do``: one command or setting. ``within``: its consequences, pods before notices."""

    level: Level
    do: str
    within: tuple[CauseGroup, ...] = ()

    @property
    def text(self) -> str:
        """``logind granted 8 s of the 60 s that the waves ask for: it explains 16 pods``."""
        if self.pods and self.level in ABOVE_PODS:
            return f"{self.sentence}: it explains {self.who}"
        return super().text

    @property
    def fates(self) -> tuple[CauseGroup, ...]:
        """The pods that it explains."""
        return tuple(each for each in self.every if each.code in CAUSE_CODES)

    @property
    def every(self) -> tuple[CauseGroup, ...]:
        return (self, *self.within)


class _RootKind(NamedTuple):
    """``sentence``: for a root without a notice. `_Night.do` fills the names in ``do``."""

    level: Level
    do: str
    sentence: str = ""
    #: Their text is its sentence.
    notices: tuple[str, ...] = ()


TIMELINE = "ebbtide replay timeline"
_STORY = TIMELINE + " {episode} --pod {pod} --all"
_BOOTS = "{boots}"
_HOOK_CURE = "shorten the preStop hook, or raise terminationGracePeriodSeconds"

#: The highest first. Any other code is a pod's own fate, or a remark.
ROOTS: dict[str, _RootKind] = {
    # --- the machine
    "lock-not-held": _RootKind("machine", "sudo ebbtide doctor: it names why the daemon had no lock"),
    "lock-lost": _RootKind(
        "machine",
        "set FileDescriptorStoreMax=4 in the unit: systemd then keeps the lock",
        "the delay lock was lost: the machine went on before its grant was over",
    ),
    "another-holder": _RootKind(
        "machine", "systemd-inhibit --list names the program: have it hold no delay lock"
    ),
    "record-damaged": _RootKind("machine", "ebbtide journal check"),
    "begin-lost": _RootKind("machine", "ebbtide journal check"),
    "cut-short": _RootKind("machine", _BOOTS),
    "never-begun": _RootKind("machine", _BOOTS),
    "grant-too-small": _RootKind("machine", "set InhibitDelayMaxSec={needed} in {file}"),
    "reserve-not-granted": _RootKind("machine", "set InhibitDelayMaxSec={needed} in {file}"),
    "deadline-moved": _RootKind("machine", "journalctl -u systemd-logind --since '{since}'"),
    # --- parts of the node
    "runtime": _RootKind(
        "part",
        "journalctl -u containerd -u crio --since '{since}'",
        "the container runtime did not answer",
        ("runtime-lost",),
    ),
    "kubelet": _RootKind(
        "part",
        "journalctl -u kubelet --since '{since}'",
        "the kubelet did not end its pods",
        ("kubelet-failed",),
    ),
    "api-server": _RootKind(
        "part",
        "kubectl get --raw '/readyz?verbose'",
        "the API server did not accept every request",
        ("api-lost", "delete-refused"),
    ),
    "disk": _RootKind(
        "part", "dmesg, and df on the journal's folder", "", ("storage-failed", "storage-moved")
    ),
    "daemon": _RootKind(
        "part",
        "journalctl -u ebbtide --since '{since}'",
        "the daemon did not run all the time",
        ("actor-failed", "fallback", "effect-panicked", "restarted"),
    ),
    # --- the configuration
    "kubelet-not-armed": _RootKind(
        "configuration",
        "set shutdownGracePeriod in the kubelet's configuration, or mode auto in Ebbtide's",
        "mode observe leaves the pods to the kubelet, and the kubelet held no delay lock",
    ),
    "reserve-too-small": _RootKind(
        "configuration",
        "set reserve: 3s",
        "the reserve was too small for the end of the shutdown, and the last pods had less time",
    ),
    "period-too-short": _RootKind(
        "configuration",
        "set shutdownGracePeriodSeconds: {period}",
        "the period of the wave is shorter than the grace that its pods ask for",
    ),
    # --- pods
    "signal-ignored": _RootKind("pod", "handle SIGTERM in the first process, or name another stopSignal"),
    "hook-overran": _RootKind("pod", _HOOK_CURE),
    "grace-over": _RootKind("pod", "raise terminationGracePeriodSeconds"),
    "time-cut": _RootKind("pod", "ebbtide replay advise"),
    "killed-elsewhere": _RootKind("pod", "dmesg: look for the OOM killer"),
    "outlived-kill": _RootKind("pod", "dmesg: look for hung tasks; " + _STORY),
    "hook-timed-out": _RootKind("remark", _HOOK_CURE),
    "hook-failed": _RootKind("remark", _STORY),
}

#: The roots from which a notice follows. Empty: from the first root with pods.
_FOLLOWS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("wave-overran", "pods-unfinished", "volumes-mounted", "not-safe-to-detach"), ()),
    "handed-over": ("runtime", "kubelet", "api-server"),
    **dict.fromkeys(
        (
            *("withdraw-failed", "statuses-failed", "announce-failed", "certificate-failed"),
            *("statuses-undelivered", "await-failed", "final-statuses-missing"),
        ),
        ("api-server", "runtime", "kubelet", "grant-too-small"),
    ),
    "kubelet-left-running": ("runtime", "kubelet-not-armed", "grant-too-small", "kubelet"),
    **dict.fromkeys(("cut-short", "never-begun", "overtime", "restarted"), ("lock-lost", "lock-not-held")),
    "inventory-failed": ("runtime",),
    "mounts-failed": ("runtime",),
}
#: Failed orders to the API server.
_API_ORDERS = ("withdraw-failed", "statuses-failed", "announce-failed", "certificate-failed")
_ROOT_BY_NOTICE = dict.fromkeys(_API_ORDERS, "api-server") | {
    notice: code for code, kind in ROOTS.items() for notice in kind.notices
}

#: The pod's own behaviour, even if a part failed: more time would not have helped.
_ITS_OWN: tuple[str, ...] = ("hurried", "killed-elsewhere", "signal-ignored")
#: The machine or its record ended before the pod's end was seen.
_ENDLESS: tuple[str, ...] = ("machine-down", "no-fate")

#: The same, or the machine did not wait.
_LEFT: tuple[str, ...] = (*_ENDLESS, "still-running", "wave-not-begun", "found-late")

#: A root above the pods comes first if it explains this share of the hurt pods.
SHARE_MIN = Fraction(1, 5)


#: The service manager restarts a daemon in half a second, which costs no pod its end.
AWAY_NS_MIN = NS_PER_SECOND


class _Night:
    """The shutdown, for the attribution of each pod."""

    def __init__(self, shutdown: shutdown_record.ShutdownRecord) -> None:
        self.shutdown = shutdown
        self.codes = {each.code: None for each in shutdown.notices}
        self.periods = {each.priority: each.seconds for each in shutdown.configuration.periods}
        self.failed = {each.part: None for each in shutdown.failed_parts}
        short = ("grant-too-small", "reserve-not-granted")
        self.short_of: list[str] = [each for each in short if each in self.codes]
        if shutdown.configuration.reserve_ns < RESERVE_SECONDS_MIN * NS_PER_SECOND:
            self.short_of.append("reserve-too-small")
        self.cut_short = shutdown.outcome in ("truncated", "never-begun")

    def root_of(self, pod: shutdown_record.PodRecord, cause: Cause) -> str:
        code, by = cause.code, self.shutdown.by
        if code in _ITS_OWN:
            return code
        if self.shutdown.lock_lost_ns is not None and code in _LEFT:
            return "lock-lost" if self.shutdown.lock_held else "lock-not-held"
        if self.cut_short and code in _ENDLESS:
            if self.shutdown.boot_end_why == "time-over" and self.shutdown.last_ns < self.shutdown.grant_ns:
                return "lock-lost"
            ends = ("record-damaged", "begin-lost", "cut-short", "never-begun")
            return next((each for each in ends if each in self.codes), code)
        refused = code in ("stop-refused", "kill-refused", "stop-slow")
        if refused or self._overlaps("runtime", pod):
            return "runtime"
        if self._daemon_away(pod) or (pod.fallback and code == "other"):
            return "daemon"
        by_kubelet = pod.means in BY_KUBELET_TEXTS
        if by_kubelet and self._overlaps("kubelet", pod):
            return "kubelet"
        if code == "delete-refused" or (pod.means == "api" and self._overlaps("api-server", pod)):
            return "api-server"
        open_end = by_kubelet and code == "still-running"
        if self.short_of[:1] == ["grant-too-small"] and open_end:
            return "grant-too-small"
        # If a pod asks for more than its period, a whole reserve would not help it.
        fits = pod.wanted_grace_seconds in (None, self._asked_seconds(pod))
        cut_by_grant = pod.grace_seconds < self._asked_seconds(pod)
        if self.short_of and cut_by_grant and (fits or self.short_of[0] == "grant-too-small"):
            return self.short_of[0]
        if open_end:
            return "kubelet" if by.kubelet_lock or pod.means == "api" else "kubelet-not-armed"
        if self._began_late(pod):
            late = ("deadline-moved", "restarted")
            return next((_ROOT_BY_NOTICE.get(each, each) for each in late if each in self.codes), code)
        too_short = pod.grace_seconds < (pod.wanted_grace_seconds or 0) and not (pod.again and cut_by_grant)
        return "period-too-short" if code == "time-cut" and too_short else code

    def root_of_cut_hook(self, pod: shutdown_record.PodRecord) -> str:
        """For a pod that ended by itself; empty: it had the time that it asks for."""
        if self.short_of and pod.grace_seconds < self._asked_seconds(pod):
            return self.short_of[0]
        return "period-too-short" if pod.grace_seconds < (pod.wanted_grace_seconds or 0) else ""

    def _overlaps(self, part: str, pod: shutdown_record.PodRecord) -> bool:
        end_ns = shutdown_record.pod_end_ns(pod, self.shutdown)
        began_ns = pod.began_ns or 0
        return any(
            each.part == part and each.at_ns <= end_ns and (each.until_ns is None or each.until_ns > began_ns)
            for each in self.shutdown.failed_parts
        )

    def _daemon_away(self, pod: shutdown_record.PodRecord) -> bool:
        """A container got its signal only after a daemon's restart."""
        return any(
            each.at_ns is not None
            and each.quiet_since_ns is not None
            and each.at_ns - each.quiet_since_ns >= AWAY_NS_MIN
            and (pod.began_ns or 0) < each.at_ns
            and any((of.signalled_ns or 0) >= each.at_ns for of in pod.containers)
            for each in self.shutdown.own_processes
        )

    def _asked_seconds(self, pod: shutdown_record.PodRecord) -> int:
        """Its grace under the full grant."""
        wave = self.shutdown.waves[pod.wave] if 0 <= pod.wave < len(self.shutdown.waves) else None
        period = self.periods.get(wave.priority, 0) if wave is not None else 0
        wanted = pod.wanted_grace_seconds
        return period if wanted is None else min(wanted, period)

    def _began_late(self, pod: shutdown_record.PodRecord) -> bool:
        """It had less than its plan."""
        if pod.grace_ns is None or pod.began_ns is None:
            return False
        given_ns = (
            pod.grace_ns if pod.kill_by_ns is None else min(pod.grace_ns, pod.kill_by_ns - pod.began_ns)
        )
        return given_ns < pod.grace_seconds * NS_PER_SECOND

    def sentence(self, code: str, groups: Sequence[CauseGroup]) -> str:
        """For a root above the pods: the text of the failed part, of a notice, or of all its pods."""
        parts = [each.text for each in self.shutdown.failed_parts if each.part == code]
        states = (code, *ROOTS[code].notices)
        stated = [each.text for each in self.shutdown.notices if each.code in states]
        fates = dict.fromkeys(each.sentence for each in groups if each.pods)
        common = list(fates) if len(fates) == 1 and code == "runtime" else []
        return next(iter((*parts, *stated, *common)), ROOTS[code].sentence)

    def do(self, code: str, pods: Sequence[shutdown_record.PodRecord]) -> str:
        kind, shutdown = ROOTS.get(code), self.shutdown
        asked = shutdown.configuration
        needed_ns = asked.requested_ns + asked.reserve_ns
        waves = Counter(pod.wave for pod in pods)
        wave, _ = max(waves.items(), key=itemgetter(1), default=(-1, 0))
        seconds = max((pod.wanted_grace_seconds or 0 for pod in pods if pod.wave == wave), default=0)
        priority = shutdown.waves[wave].priority if 0 <= wave < len(shutdown.waves) else 0
        story = _STORY if pods else TIMELINE + " {episode}"
        since = utc_text(shutdown.started_wall_ns)
        boots = "ebbtide journal ls: it lists how each boot ended"
        return (story if kind is None else kind.do).format(
            episode=shutdown.id,
            pod=pods[0].label if pods else "POD",
            boots=boots if shutdown.boot_end_why else f"journalctl --since '{since}'",
            needed=str(-(-needed_ns // NS_PER_SECOND)),
            file=shutdown.grant_overridden_by or "/etc/systemd/logind.conf",
            period=f"{seconds} for priority {priority}",
            since=since,
        )


#: By code, except fates and hooks; the default is mixed.
_NOTICE_SEVERITIES: dict[str, Severity] = {
    **dict.fromkeys(("lock-not-held", "lock-lost", "cut-short", "never-begun"), "bad"),
    **dict.fromkeys(("record-damaged", "begin-lost"), "bad"),
    **dict.fromkeys(("deadline-moved", "pod-late", "hurried", "release-requested"), "good"),
    **dict.fromkeys(("cancelled", "clock-stepped"), "good"),
}

_FATE_NOTICES = tuple(f"pod-{fate}" for fate in BAD_FATES)
_HOOK_TEXTS = {
    "failed": ("hook-failed", "failed"),
    "timed-out": ("hook-timed-out", "was cut"),
    "not-run": ("hook-not-run", "did not run"),
    "unknown": ("hook-unknown", "has an unknown result"),
}
#: It makes a shutdown mixed.
_CUT_HOOK = "hook-timed-out"
_HOOK_NOTICES = tuple(code for code, _ in _HOOK_TEXTS.values())


class _Found(NamedTuple):
    """One pod, or one notice. ``general``: the sentence for several pods."""

    root: str
    code: str
    severity: Severity
    sentence: str
    general: str
    pod: str = ""
    notice: shutdown_record.Notice | None = None


def cause_tree(shutdown: shutdown_record.ShutdownRecord) -> tuple[RootCause, ...]:
    """First the root that explains the shutdown."""
    night = _Night(shutdown)
    fates = list(_fates(night))
    by_root: dict[str, dict[str, list[_Found]]] = {}
    for found in (*fates, *_hooks(night, {each.pod: each.root for each in fates})):
        by_root.setdefault(found.root, {}).setdefault(found.code, []).append(found)
    # Notices that state a root come before consequences.
    others = (each for each in shutdown.notices if each.code not in (*_FATE_NOTICES, *_HOOK_NOTICES))
    explained = [code for code in ROOTS if any(each.root == code for each in fates)]
    for notice in sorted(others, key=lambda each: each.code in _FOLLOWS):
        own = _ROOT_BY_NOTICE.get(notice.code, notice.code)
        above = _FOLLOWS.get(notice.code, (own,)) or explained
        root = next((code for code in above if code in by_root or code in night.failed), own)
        severity = _NOTICE_SEVERITIES.get(notice.code, "mixed")
        found = _Found(root, notice.code, severity, notice.text, notice.text, notice=notice)
        by_root.setdefault(root, {}).setdefault(notice.code, []).append(found)
    made = [_root(night, code, groups) for code, groups in by_root.items()]
    hurt = len(fates)
    return tuple(sorted(made, key=lambda root: _place(root, hurt)))


def _place(root: RootCause, hurt: int) -> tuple[int, int, int, int, int]:
    above = root.level in ABOVE_PODS
    explains = root.pods and len(root.pods) >= SHARE_MIN * hurt
    rank = 2 if root.pods and root.code not in _HOOK_NOTICES else 3
    if above and (explains or (not root.pods and root.severity == "bad")):
        # A root without pods is bad for the machine, and comes after one with pods.
        rank = 0 if explains else 1
    order = list(ROOTS).index(root.code) if root.code in ROOTS else len(ROOTS)
    return rank, SEVERITY_ORDER.index(root.severity), not root.pods, -root.count, order


def _root(night: _Night, code: str, kinds: dict[str, list[_Found]]) -> RootCause:
    """At a pod, its own group is the root. Above the pods, all but its own notices are consequences."""
    groups = [_group(night.shutdown, members) for members in kinds.values()]
    kind = ROOTS.get(code)
    harms = (*CAUSE_CODES, _CUT_HOOK)
    hurt = {uid: None for each in groups if each.code in harms for uid in each.pods}
    severity = min((each.severity for each in groups), key=SEVERITY_ORDER.index)
    level: Level = kind.level if kind is not None else "pod" if hurt else "remark"
    # Without harm no cure is needed.
    level = "remark" if severity == "good" else level
    own = [each for each in groups if each.code == code or (kind is not None and each.code in kind.notices)]
    within = tuple(each for each in groups if each not in own)
    pods = [pod for pod in night.shutdown.pods if pod.uid in hurt]
    do = night.do(code, pods)
    if own and level in ("pod", "remark"):
        return RootCause(**asdict(own[0]) | {"severity": severity}, level=level, do=do, within=within)
    notices = tuple(notice for each in own for notice in each.notices)
    return RootCause(
        code=code,
        severity=severity,
        sentence=night.sentence(code, groups),
        count=len(pods) or len(notices) or 1,
        pods=tuple(hurt),
        notices=notices,
        label=pods[0].label if len(pods) == 1 else "",
        level=level,
        do=do,
        within=within,
    )


def _group(shutdown: shutdown_record.ShutdownRecord, members: Sequence[_Found]) -> CauseGroup:
    first = members[0]
    pods = tuple(dict.fromkeys(each.pod for each in members if each.pod))
    sentences = dict.fromkeys(each.sentence for each in members)
    codes = (first.code,) if first.code in _HOOK_NOTICES else _FATE_NOTICES
    own = dict.fromkeys(pods)
    notices = [each.notice for each in members if each.notice is not None] or [
        each for each in shutdown.notices if each.pod in own and each.code in codes
    ]
    return CauseGroup(
        code=first.code,
        severity=min((each.severity for each in members), key=SEVERITY_ORDER.index),
        sentence=first.sentence if len(sentences) == 1 or not pods else first.general,
        count=len(pods) or len(members),
        pods=pods,
        notices=tuple(notices),
        label=next((pod.label for pod in shutdown.pods if pod.uid in own), "") if len(pods) == 1 else "",
    )


def _fates(night: _Night) -> Iterator[_Found]:
    """Pods that did not end by themselves."""
    shutdown = night.shutdown
    many = shutdown.summary.is_killing
    for pod in shutdown.pods:
        if pod.outcome is None and shutdown.outcome == "running":
            continue
        cause = cause_of(pod)
        if cause is not None:
            mixed = pod.gone or (pod.outcome == "killed" and not many)
            general, root = cause.text or "for several reasons", night.root_of(pod, cause)
            yield _Found(root, cause.code, "mixed" if mixed else "bad", cause.sentence, general, pod.uid)


def _hooks(night: _Night, roots: dict[str, str]) -> Iterator[_Found]:
    """Failed hooks, also of pods that ended by themselves. ``roots``: of the other pods."""
    for pod in night.shutdown.pods:
        for hook in pod.hooks:
            code, how = _HOOK_TEXTS.get(hook.result or "", ("", ""))
            if code:
                sentence = f"the preStop hook ({hook.kind}) {how}" + (
                    f" ({hook.reason})" if hook.reason else ""
                )
                cut_by = night.root_of_cut_hook(pod) if code == _CUT_HOOK else ""
                root = roots.get(pod.uid) or cut_by or code
                yield _Found(root, code, "mixed", sentence, f"the preStop hook {how}", pod.uid)


# --- the headline

KIND_TEXTS = {
    "poweroff": "power-off",
    "reboot": "reboot",
    "halt": "halt",
    "kexec": "kexec reboot",
    "soft-reboot": "soft reboot",
    "unknown": "shutdown",
}

#: For one pod, and for many.
FATE_TEXTS: dict[shutdown_record.Fate, tuple[str, str]] = {
    "graceful": ("ended by itself", "ended by themselves"),
    "killed": ("was killed", "were killed"),
    "failed": ("could not be ended", "could not be ended"),
    "spared": ("was spared", "were spared"),
    "rejected": ("came late and was rejected", "came late and were rejected"),
    "unknown": ("has no fate on record", "have no fate on record"),
    "goes-on": ("goes on in the next shutdown", "go on in the next shutdown"),
}


def root_cause(shutdown: shutdown_record.ShutdownRecord) -> RootCause | None:
    """None: the shutdown went well. Another program's lock hurts no pod, so a good shutdown may have it."""
    good = shutdown.severity == "good"
    return next((each for each in cause_tree(shutdown) if not good or each.code == "another-holder"), None)


def headline(shutdown: shutdown_record.ShutdownRecord) -> str:
    """The fault, if there is one, then the fate of machine and pods."""
    first = root_cause(shutdown)
    cause = ""
    # Do not repeat a cause that the fates or the machine's end name. For one pod the cause has its name.
    said = first is not None and first.code in ("no-fate", "begin-lost") and not first.label
    if first is not None and not said:
        cause = f"{first.text}. "
    what = f"The {KIND_TEXTS[shutdown.kind]} of {shutdown.node or 'this node'}"
    return f"{cause}{what} {_end_text(shutdown)}: {fates_text(shutdown)}."


def fates_text(shutdown: shutdown_record.ShutdownRecord) -> str:
    """``106 of 110 pods were killed, 2 ended by themselves``, worst first."""
    counts = {FATE_TEXTS[fate]: shutdown.count(fate) for fate in (*BAD_FATES, *FATE_TEXTS)}
    found = [(texts, count) for texts, count in counts.items() if count]
    if not found:
        return "no pod is on record" if _lost_its_begin(shutdown) else "there was no pod to end"
    total = len(shutdown.pods)
    if len(found) == 1:
        one, many = found[0][0]
        return f"its pod {one}" if total == 1 else f"all {total} pods {many}"
    parts = [f"{count} {texts[count > 1]}" for texts, count in found]
    (texts, count), *_ = found
    parts[0] = f"{count} of {total} pods {texts[count > 1]}"
    return ", ".join(parts)


def _lost_its_begin(shutdown: shutdown_record.ShutdownRecord) -> bool:
    return any(each.code == "begin-lost" for each in shutdown.notices)


def _end_text(shutdown: shutdown_record.ShutdownRecord) -> str:
    since = f"{span(shutdown.last_ns)} after the signal"
    begun = shutdown.last_wave >= 0
    reached = f"wave {shutdown.last_wave}, {since}" if begun else since
    if shutdown.damage is not None and shutdown.damage.here:
        end = shutdown_record.DAMAGED_ENDS[shutdown.damage.state]
        return f"is on record up to {reached}, then the record ends ({end})"
    if _lost_its_begin(shutdown):
        return "is on record without its begin"
    ended_ns = shutdown.last_ns if shutdown.ended_ns is None else shutdown.ended_ns
    cancelled_ns = ended_ns if shutdown.cancelled_ns is None else shutdown.cancelled_ns
    cancelled = f"was cancelled {span(cancelled_ns)} after the signal and over after {span(ended_ns)}"
    texts = {
        "complete": f"let the machine go after {span(ended_ns)}",
        "cancelled": cancelled,
        "running": f"is under way, {since}",
        "never-begun": "never began for the pods",
    }
    # The last record bounds the time of the cut: during the waves it is at most a second older (`Heartbeat`).
    where = f"in wave {shutdown.last_wave}" if begun else "before its first wave"
    return texts.get(shutdown.outcome, f"was cut short {where}, at least {since}")

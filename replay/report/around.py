"""The last parts of the page: the configuration, what ran beside the waves, and the daemons that wrote it."""

from __future__ import annotations

from replay.account.model import Account, ProcessTold
from replay.report.markup import Markup, row, section, table, tag
from replay.report.words import counted, moment, span

BUDGETS = {
    "strict": "strict: a wave keeps to its own period",
    "elastic": "elastic: what a wave leaves unused goes to the next",
}

BESIDE = {
    "inventory": "listing the pods",
    "announce": "showing the node as going down",
    "statuses": "delivering pod statuses",
    "release": "giving the lock back",
    "traces": "sending the trace",
    "kubelet": "stopping the kubelet",
    "kubelet-start": "starting the kubelet again",
    "withdraw": "taking pods out of their Services",
    "await": "waiting for the final statuses",
    "mounts": "looking at what is mounted",
    "certificate": "publishing the certificate",
}

#: What a start did about the shutdown that it found, by the action of its record (`Resumed`).
DID = {
    "": "–",
    "begin": "found it under way",
    "resume": "went on where it stopped",
    "cancelled-while-away": "found it cancelled",
    "did-not-go-down": "found that the machine had stayed up",
    "release-again": "let go of the lock once more",
    "wait": "watched it go down",
}


def settings(account: Account) -> Markup:
    told = account.configuration
    rows = [
        ("Periods", _periods(account)),
        ("Requested in all", span(told.requested_ns)),
        ("Granted by logind", span(account.grant_ns)),
        ("Budget of the waves", span(account.budget_ns)),
        ("Reserve", span(told.reserve_ns)),
        ("Time left unused", BUDGETS[told.budget]),
        ("Sleep hooks", "honoured" if told.sleep_action else "switched off by a feature gate"),
        ("Flushing statuses", f"at most {span(told.status_flush_ns)}"),
        ("Deadline", moment(account.deadline_ns)),
        ("Delay lock", "held" if account.lock_held else "not held"),
        ("Overtime", "yes: logind's time was over" if account.overtime else "no"),
    ]
    body = [row(name, value) for name, value in rows]
    parts = [table("What applied to this shutdown", ("Setting", "Value"), body)]
    if told.sources:
        found = [row(name, source) for name, source in told.sources.items()]
        parts.append(table("Where the values came from", ("Field", "Source"), found))
    return section("settings", "Configuration and grant", *parts)


def _periods(account: Account) -> str:
    given = [f"priority {each.priority}: {each.seconds}s" for each in account.configuration.periods]
    return ", ".join(given) or "none"


def course(account: Account) -> Markup:
    """What ran beside the waves, and the daemons that carried the shutdown."""
    beside = [
        row(
            BESIDE[each.what],
            moment(each.began_ns),
            span(each.ended_ns - each.began_ns) if each.ended_ns is not None else "not ended",
            each.result + (f": {each.reason}" if each.reason else ""),
        )
        for each in account.beside
    ]
    parts = []
    if beside:
        headings = ("What", "Began", "Took", "Result")
        parts.append(table("Beside the waves", headings, beside))
    daemons = [
        row(
            "before the signal" if each.at_ns is None else moment(each.at_ns),
            _away(each),
            each.pid,
            each.version,
            each.mode,
            tag("code", each.boot_id),
            _did(each),
        )
        for each in account.processes
    ]
    columns = ("Started", "After", "PID", "Version", "Mode", "Boot", "What it did")
    parts.append(table(_caption(account), columns, daemons))
    return section("course", "Restarts and the rest", *parts)


def _caption(account: Account) -> str:
    restarts = sum(each.at_ns is not None and not each.came_after for each in account.processes)
    after = ", and one that came after it" if any(each.came_after for each in account.processes) else ""
    count = counted(restarts, "restart") if restarts else "no restart"
    return f"Daemons that wrote this shutdown: {count}{after}"


def _did(process: ProcessTold) -> str:
    if process.came_after:
        return f"came after it, and noted: {process.previous}"
    words = DID.get(process.action, process.action)
    return f"{words}; before it: {process.previous}" if process.previous else words


def _away(process: ProcessTold) -> str:
    """How long no daemon ran before it."""
    if process.at_ns is None or process.quiet_since_ns is None:
        return "–"
    return f"{span(process.at_ns - process.quiet_since_ns)} of silence"

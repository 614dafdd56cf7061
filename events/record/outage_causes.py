"""An outage's one root cause (its gravest alarm, else what it waits for), and its headline."""

from __future__ import annotations

from typing import NamedTuple

from ebbtide.events.messages import plural
from ebbtide.events.record.format import visible
from ebbtide.events.record.outage_record import (
    BRAKE_SAYS,
    DRY_SAYS,
    OPEN,
    PAUSED_SAYS,
    Alarm,
    OutageRecord,
    Phase,
    PhaseKind,
)
from ebbtide.events.record.shutdown_record import Severity
from ebbtide.events.units import span


class OutageCause(NamedTuple):
    """``code`` is stable; ``do``: one command or setting."""

    code: str
    severity: Severity
    text: str
    do: str


_STATUS = "ebbtide outage status {node}"
#: What a person can do. The gravest alarm first.
CURES: dict[str, tuple[Severity, str]] = {
    "proof-wrong": ("bad", "stop the workloads of its volumes and check their data; then repair the source"),
    "six-minute-detach": ("bad", "switch {node} off, then check the volume's data"),
    "abandoned": ("bad", "delete the leader's pod: the other replica takes over"),
    "actor-failed": ("mixed", "delete the leader's pod: the other replica takes over"),
    "power-off-given-up": ("mixed", _STATUS),
    "write-failed": (
        "mixed",
        "kubectl auth can-i patch nodes --as system:serviceaccount:ebbtide:ebbtide-outage",
    ),
    "paused": ("mixed", "ebbtide outage pause {node} --withdraw; of all nodes: without {node}"),
    "dry-run": ("mixed", "set dryRun: false in the controller's configuration"),
    "brake": (
        "mixed",
        "wait: a place is free when another node's work is elsewhere, at the latest in 15 min",
    ),
    "brake-control-plane": ("mixed", "bring the other control-plane node back, or delete its Node"),
    "brake-etcd": ("mixed", "bring etcd's other members back: kubectl get poddisruptionbudgets -A"),
    "brake-view": ("mixed", "look at the API server and the network of the controller"),
    "taken-away": ("mixed", "if the machine is off: ebbtide outage declare {node} --off"),
    "not-proved": ("mixed", f"{_STATUS}; if the machine is off: ebbtide outage declare {{node}} --off"),
    "hanging": ("mixed", "ebbtide outage explain {node}"),
    "unrecovered": ("mixed", "ebbtide outage explain {node}"),
}

#: By the begin of a reason (`actors.outage`); the first one counts.
_REASONS = {
    f"{BRAKE_SAYS}control-plane nodes": "brake-control-plane",
    f"{BRAKE_SAYS}etcd's": "brake-etcd",
    f"{BRAKE_SAYS}the controller's own view": "brake-view",
    BRAKE_SAYS: "brake",
    PAUSED_SAYS: "paused",
    DRY_SAYS: "dry-run",
    "another client has removed our taint": "taken-away",
}
#: Stages that wait for others than the controller.
_WAITS: tuple[PhaseKind, ...] = ("proof", "permit")
_WRITES: tuple[PhaseKind, ...] = ("tainting", "untainting", "quarantined", "powering")
#: In the text of a stage after a failed write (`outage_record`).
_FAILED = "could not be"


def outage_cause(outage: OutageRecord) -> OutageCause | None:
    """None: the outage has no obstacle."""
    code, text = _code(outage)
    if not code:
        return None
    severity, do = CURES[code]
    return OutageCause(code, severity, text, do.format(node=visible(outage.node) or "NODE"))


def wait_code(reason: str) -> str:
    """For a reason before the taint."""
    return _coded(reason) or "not-proved"


def _coded(reason: str) -> str:
    return next((code for said, code in _REASONS.items() if reason.startswith(said)), "")


def _code(outage: OutageRecord) -> tuple[str, str]:
    codes = list(CURES)
    gravest: Alarm | None = min(
        (each for each in outage.alarms if each.code in CURES),
        key=lambda each: codes.index(each.code),
        default=None,
    )
    if gravest is not None:
        return gravest.code, gravest.text.removesuffix(".")
    if outage.outcome != OPEN:
        left = ", ".join(outage.unrecovered) if outage.outcome != "false-alarm" else ""  # its pods run on
        return ("unrecovered", f"{left} did not recover") if left else ("", "")
    last: Phase | None = outage.course[-1] if outage.course else None
    if last is not None and last.what == "permit" and not last.text.startswith(BRAKE_SAYS):
        return "", ""  # the brake has not answered yet
    if last is not None and (code := _coded(last.text)):
        return code, last.text
    if last is not None and (last.what in _WAITS or (last.what in _WRITES and _FAILED in last.text)):
        return wait_code(last.text) if last.what in _WAITS else "write-failed", last.text
    hangs = [
        plural(count, kind)
        for kind, subjects in (("pod", outage.pods), ("volume", outage.attachments))
        if (count := sum(each.ended_ns is None for each in subjects))
    ]
    if not hangs or outage.out_ns is None:
        return "", ""
    return "hanging", f"{' and '.join(hangs)} of {visible(outage.node)} are waited for"


#: By outcome, with the name of a sign.
HEADLINES: dict[str, tuple[str, str]] = {
    "recovered": ("{node} was out of service for {out}, and is back.", "good"),
    "proof-wrong": ("{node} was put out of service, and was not off.", "bad"),
    "false-alarm": ("{node} came back before it was put out of service.", "cancelled"),
    "rebooted": ("{node} rebooted.", "cancelled"),
    "left-to-other": ("{node} was left to another controller's taint.", "cancelled"),
    "node-deleted": ("The Node object of {node} was deleted.", "mixed"),
}


def outage_headline(outage: OutageRecord) -> str:
    cause = outage_cause(outage)
    return f"{cause.text}. {outage_sentence(outage)}" if cause is not None else outage_sentence(outage)


def outage_sentence(outage: OutageRecord) -> str:
    node = visible(outage.node) or "The node"
    if outage.outcome in HEADLINES:
        end_ns = outage.untainted_ns if outage.untainted_ns is not None else outage.end_ns
        out_ns = 0 if outage.out_ns is None else end_ns - outage.out_ns
        return HEADLINES[outage.outcome][0].format(node=node, out=span(out_ns))
    if outage.out_ns is None:
        return f"{node} is suspected, and not out of service."
    if outage.untainted_ns is not None:
        return f"Our taint on {node} is gone; the outage is still followed."
    if outage.out_ns == 0:
        # The journal begins with our taint.
        return f"{node} was out of service before its record began, and is not back."
    return f"{node} was put out of service {span(outage.out_ns)} after it was suspected, and is not back."


def outage_seal(outage: OutageRecord) -> str:
    """The name of the sign before the headline."""
    cause = outage_cause(outage)
    if outage.outcome not in HEADLINES:
        return "bad" if cause is not None and cause.severity == "bad" else "running"
    kind = HEADLINES[outage.outcome][1]
    return "mixed" if kind in ("good", "cancelled") and cause is not None else kind

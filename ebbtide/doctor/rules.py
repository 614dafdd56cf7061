"""The doctor's rules: from what was seen to findings, each with its cure.

Each rule is a function that yields findings; the table at the end is the only list of them, in the order in
which they are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from actors.edges.logind.dropins import FILE_NAME
from actors.policy.explain import seconds_text
from ebbtide.doctor import rules_access, rules_node, rules_pods
from ebbtide.doctor.sight import Bus, Finding, Level, Sight
from events.base import NS_PER_SECOND

#: A shutdown of a thousand pods writes some 8 MB; the daemon keeps as much in reserve.
FREE_BYTES_MIN = 32 * 1024 * 1024

#: From here on ``shutdown -h now`` goes through logind (systemd#22058, kubernetes#124039).
SYSTEMD_MIN = 251


def examine(sight: Sight) -> list[Finding]:
    """Every finding, the gravest first, otherwise in the order of the rules."""
    found = [finding for rule in RULES for finding in rule(sight)]
    grades: tuple[Level, ...] = ("critical", "warning", "note")
    return sorted(found, key=lambda finding: grades.index(finding.level))


# --- configuration and daemon ------------------------------------------------------------------


def _config(sight: Sight) -> Iterator[Finding]:
    if sight.config_error:
        yield Finding("critical", "config-invalid", sight.config_error, "see 'ebbtide config check'")
    elif sight.plan is not None and not sight.plan.enabled:
        yield Finding(
            "critical",
            "switched-off",
            "graceful shutdown is off by configuration: no lock is taken, pods die with the machine",
            "set shutdownGracePeriod or shutdownGracePeriodByPodPriority; leave gate GracefulNodeShutdown on",
        )


def _daemon(sight: Sight) -> Iterator[Finding]:
    if sight.status is None:
        yield Finding(
            "critical", "daemon-silent", sight.status_error, "systemctl start ebbtide, or 'ebbtide run'"
        )


def _armed(sight: Sight) -> Iterator[Finding]:
    status = sight.status
    if status is None or status["armed"] or status["phase"] != "idle" or not status["enabled"]:
        return
    why = status["whyNot"] or "no reason was given"
    yield Finding(
        "critical", "not-armed", f"the daemon is not armed: {why}", "see its log; it goes on trying"
    )


def _lock(sight: Sight) -> Iterator[Finding]:
    if sight.status is None or sight.bus is None or not sight.status["armed"] or sight.bus.our_lock:
        return
    yield Finding(
        "critical",
        "lock-missing",
        "the daemon believes it is armed, but logind lists no delay lock of ours",
        "systemctl restart ebbtide, and compare with 'systemd-inhibit --list'",
    )


# --- logind ------------------------------------------------------------------------------------


def _logind(sight: Sight) -> Iterator[Finding]:
    if sight.bus is None:
        yield Finding(
            "critical",
            "no-logind",
            f"logind does not answer: {sight.bus_error}",
            "systemctl status dbus systemd-logind; DBUS_SYSTEM_BUS_ADDRESS names another bus",
        )


def _grant(sight: Sight) -> Iterator[Finding]:
    """What is asked against what is granted, and who stands in the way."""
    bus, plan = sight.bus, sight.plan
    if bus is None or plan is None or not plan.enabled:
        return
    requested_ns = plan.requested_seconds * NS_PER_SECOND
    needed_ns = requested_ns + plan.reserve_seconds * NS_PER_SECOND
    if bus.grant_ns >= needed_ns:
        return
    needed = seconds_text(needed_ns)
    said = f"logind grants {seconds_text(bus.grant_ns)}, the waves and the reserve need {needed}"
    if sight.raise_grant and sight.status is None and not sight.files.overridden_by:
        yield Finding("note", "grant-will-be-raised", said, "none needed: the daemon raises it when it arms")
        return
    level: Level = "critical" if bus.grant_ns < requested_ns else "warning"
    yield Finding(level, "grant-too-small", said, _grant_cure(sight, needed_ns))


def _grant_cure(sight: Sight, needed_ns: int) -> str:
    overrider = sight.files.overridden_by
    seconds = -(-needed_ns // NS_PER_SECOND)
    if overrider:
        name = overrider.rpartition("/")[2]
        return (
            f"{overrider} is read after our {FILE_NAME}: remove it, or mask it with "
            f"'ln -s /dev/null /etc/systemd/logind.conf.d/{name}'; 'systemctl kill -s HUP systemd-logind'"
        )
    if not sight.raise_grant:
        return f"set raiseGrant: true, or InhibitDelayMaxSec={seconds} in a drop-in of logind.conf.d"
    return "see the daemon's log for why its drop-in was not taken up"


def _preparing(sight: Sight) -> Iterator[Finding]:
    if sight.bus is not None and sight.bus.preparing and not sight.bus.our_lock:
        yield Finding(
            "note", "going-down", "the machine is going down already", "no lock can be had until it is over"
        )


# --- ways around logind ------------------------------------------------------------------------


def _old_systemd(sight: Sight) -> Iterator[Finding]:
    number = _version(sight.bus)
    if number and number < SYSTEMD_MIN:
        yield Finding(
            "warning",
            "systemd-old",
            f"systemd {number}: root's 'shutdown -h now', 'reboot', 'halt' go around logind (systemd#22058)",
            f"use 'systemctl poweroff', or systemd {SYSTEMD_MIN} or newer",
        )


def _version(bus: Bus | None) -> int:
    digits = bus.systemd.split(".")[0].split("~")[0].split(" ")[0] if bus is not None else ""
    return int(digits) if digits.isascii() and digits.isdecimal() else 0


def _power_key(sight: Sight) -> Iterator[Finding]:
    """As logind says; where it does not, as its files do."""
    said = sight.bus.power_key if sight.bus is not None else "unknown"
    if said == "ignore" or (not said and sight.power_key_file):
        where = sight.power_key_file or "logind.conf"
        yield Finding(
            "warning",
            "power-key-ignored",
            "the power key is ignored: whoever needs the machine off will hold it down, and no signal comes",
            f"set HandlePowerKey=poweroff in {where}; 'systemctl kill -s HUP systemd-logind'",
        )


def _acpid(sight: Sight) -> Iterator[Finding]:
    if sight.acpid:
        yield Finding(
            "warning",
            "acpid",
            "acpid runs: the power key is its business too, and what its scripts call may go around logind",
            "systemctl disable --now acpid.service acpid.socket: logind handles the power key by itself",
        )


# --- the journal -------------------------------------------------------------------------------


def _journal_place(sight: Sight) -> Iterator[Finding]:
    store = sight.store
    elsewhere = "the daemon goes on at a fallback, which a power loss may take"
    if store.error:
        yield Finding(
            "warning", "journal-unreadable", store.error, "use sudo, or name the directory with --journal"
        )
    elif store.exists and not store.writable:
        message = f"the journal's directory {store.path} cannot be written: {elsewhere}"
        yield Finding(
            "warning", "journal-read-only", message, "make it writable for root, or mount it read-write"
        )
    if store.free_bytes is not None and store.free_bytes < FREE_BYTES_MIN:
        message = f"only {store.free_bytes // 2**20} MiB are free at {store.path}: {elsewhere}"
        yield Finding("warning", "journal-space", message, f"free {FREE_BYTES_MIN // 2**20} MiB or more")


def _journal_state(sight: Sight) -> Iterator[Finding]:
    verdict = sight.store.verdict
    if verdict is None or verdict.state == "intact":
        return
    levels: dict[str, Level] = {"torn": "note", "corrupt": "warning", "incompatible": "critical"}
    cures = {
        "torn": "none needed: a start goes on behind the last whole step",
        "corrupt": "keep a copy; the daemon begins a new journal beside it",
        "incompatible": "run the version that wrote it, or move the directory away",
    }
    code = f"journal-{verdict.state}"
    yield Finding(levels[verdict.state], code, verdict.banner, cures[verdict.state])


RULES: tuple[Callable[[Sight], Iterator[Finding]], ...] = (
    _config,
    _daemon,
    _logind,
    _armed,
    _lock,
    _grant,
    rules_node.graceful_kubelet,
    _preparing,
    _journal_state,
    _journal_place,
    _old_systemd,
    _power_key,
    _acpid,
    *rules_node.RULES,
    *rules_access.RULES,
    *rules_pods.RULES,
)

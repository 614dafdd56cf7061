"""``ebbtide status``: armed or not, the lock, the grant, a node's parts, and the last shutdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click

from ebbtide.actors.policy.planning import first_names
from ebbtide.cli.common.guard import DONE, NOT_SO, Refused, say, worst
from ebbtide.cli.common.output import pairs, remark, show, show_json, table
from ebbtide.cli.common.reading import open_journal
from ebbtide.cli.common.shared_options import journals_option, output_option, runtime_option
from ebbtide.events.decisions import PodOutcome
from ebbtide.events.messages import boot_end_text, plural
from ebbtide.events.recovery import EXIT_CODES
from ebbtide.events.units import short_span, span_s
from ebbtide.options import PROCESS, RunOptions

EPILOG = """\b
Examples:
  sudo ebbtide status
  sudo ebbtide status -o json | jq .armed
  ebbtide status --ready                       # in a probe: only the exit code
"""

#: The protection is at work.
GOING_DOWN = ("running", "cancelling", "released")
DAMAGED = {code: state for state, code in EXIT_CODES.items() if code}


@click.command(epilog=EPILOG)
@journals_option
@runtime_option
@click.option(
    "--ready",
    is_flag=True,
    help="For probes: ask only the daemon, and print a line only if it is not ready. A daemon that is"
    " switched off by configuration is ready.",
)
@output_option("table", "json")
def status(journals: tuple[Path, ...], runtime: Path, ready: bool, output: str) -> int:
    """Show whether this node is protected, and the last shutdown's outcome.

    Exit code 1: not protected; the daemon does not answer, or is not armed. 4, 5, 6: the journal is torn,
    corrupt, incompatible.
    """
    from ebbtide.node import LocalNode

    options = RunOptions(runtime=runtime)
    # Another machine's journal has no part in this daemon.
    options = options._replace(journal=journals[0]) if journals and not ready else options
    answered, why, foreign, answers = LocalNode(options).status
    if ready:
        # The meaning of READY: armed with a list of pods, in a shutdown, or switched off on purpose. If the
        # last were not ready, a rollout that switches it off could not end.
        if answered is not None:
            why = f"armed, but no answer yet: {answered['unheard']}" if answered["unheard"] else ""
            if not _protected(answered) and answered["enabled"]:
                why = f"not armed: {answered['whyNot']}"
        if why:
            say(why)
        return NOT_SO if why else DONE
    # Not in the probe, which runs every few seconds.
    from ebbtide.cli.common.selection import read_episodes
    from ebbtide.events.record.format import json_values

    unknown = {"armed": None, "phase": None} if foreign else {"armed": False, "phase": "down"}
    answer = answered or {"kind": "Status", "version": 1, **unknown}
    last, code = None, DONE
    damage: str | None = None
    try:
        found, code = read_episodes(open_journal(journals))
        last = json_values(found[-1]) if found else None
        damage = DAMAGED.get(code)
    except Refused:
        # Without a journal, a node had no daemon yet; but a named place must be a folder.
        if not all(map(Path.is_dir, journals)):
            raise
    except OSError as error:
        remark(f"ebbtide: the journal cannot be read: {error.filename or ''}: {error.strerror}; use sudo")
        damage = "unreadable"
    document = {**answer, "running": not why, "error": why or None, "lastShutdown": last}
    document["journalDamage"] = damage
    if output == "json":
        show_json(document)
    else:
        show(pairs(_rows(document)))
        if document.get("phase") in GOING_DOWN and document.get("shutdown"):
            pods = document["shutdown"]["pods"]
            rows = [(pod["pod"], str(pod["wave"]), pod["phase"], pod["reason"]) for pod in pods]
            show(table(("POD", "WAVE", "PHASE", "WHY"), rows, right=("WAVE",)))
    # A daemon that writes another journal may well be armed.
    return worst((code, DONE if (foreign and answers) or _protected(document) else NOT_SO))


def _protected(document: dict[str, Any]) -> bool:
    return bool(document["armed"]) or document["phase"] in GOING_DOWN


def _rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from ebbtide.cli.common.selection import outcomes_text
    from ebbtide.events.record.format import time_text

    if not document["running"]:
        yield "daemon", document["error"]
    else:
        off = "graceful shutdown is off by configuration"
        why = document["whyNot"] if document["enabled"] else off
        shutdown = document["shutdown"]
        runs = document["phase"] == "running" and shutdown
        unlocked = LOCK_TEXTS.get(shutdown.get("lock"), "") if runs else ""
        yield "lock", unlocked
        since = f" since {time_text(document['armedSince'])}" if document["armedSince"] else ""
        armed = f"yes{since}, the delay lock is held"
        yield "armed", armed if document["armed"] and not unlocked else f"no: {why or 'without the lock'}"
        yield "mode", document["mode"]
        granted, needed = span_s(document["grantSeconds"]), span_s(document["neededSeconds"])
        enough = "" if document["sufficient"] else ": not enough"
        yield "grant", f"{granted} granted, {needed} needed{enough}"
        progress = []
        if runs:
            pods, waves = shutdown["pods"], shutdown["waves"]
            progress = [f"{sum(pod['phase'] in OVER for pod in pods)} of {len(pods)} pods ended"]
            for number, wave in enumerate(waves, start=1):
                progress += [f"wave {wave['wave']} ({number} of {len(waves)})"] * (wave["phase"] == "running")
            progress.append(f"{short_span(shutdown['leftSeconds'])} left")
        yield "phase", document["phase"] + (f": {', '.join(progress)}" if progress else "")
        if boot := document["lastBoot"]:
            ended = boot_end_text(boot["ending"], boot["why"], -1 if boot["wave"] is None else boot["wave"])
            # After an orderly end the shutdown has the time.
            seen = boot["aliveTime"] is not None and boot["ending"] != "graceful"
            yield "last boot", f"{ended}; last seen {time_text(boot['aliveTime'])}" if seen else ended
        yield "scheduled", time_text(document["scheduledTime"])
        yield from node_rows(document)
        if document["endedPods"]:
            ended = first_names(document["endedPods"])
            yield "pods", f"ended and not started again: {ended}; touch a manifest to start its pod"
        journal = document["journal"]
        written, synced = journal["writtenSeq"], journal["syncedSeq"]
        yield "journal", f"{journal['location'] or 'lost'}, record {written}, synced {synced}"
        yield "", f"head {journal['head']}" if journal["head"] else ""
        if shipping := document["shipping"]:
            waits, oldest, lost = shipping["pending"], shipping["oldestTime"], shipping["lost"]
            text = f"{plural(waits, 'closed segment') if waits else 'no closed segment'} to store"
            text += f", the oldest since {time_text(oldest)}" if oldest else ""
            text += f": {shipping['reason']}" if shipping["reason"] else ""
            text += f"; {lost} were removed before they were known to be there" if lost else ""
            yield "shipping", "not checked yet" if waits is None else text
    last, damage = document["lastShutdown"], document["journalDamage"]
    if last is None:
        yield "last shutdown", f"not known: the journal is {damage}" if damage else "none in the journal"
        return
    # The outcome is the machine's: it may be complete with every pod killed.
    sign = f"{last['sign']} " if last["sign"] else ""
    kind = "outage" if last["kind"] == "outage" else "shutdown"
    shown = f"{last['id']}, {last['kind']}, {time_text(last['started'])}: {sign}{last['outcome']}"
    yield f"last {kind}", shown
    yield "", last["headline"] or outcomes_text(last["pods"], last["podsRunning"]) or "no pods"
    yield "", f"trace {last['traceId']}"
    if damage in ("corrupt", "incompatible"):
        yield "", f"or a later one that cannot be read: the journal is {damage}"


#: ``ended``: from actors' states only, without its fate.
OVER = (*get_args(PodOutcome), "ended")

UNPROTECTED = "logind does not wait: the machine may go down before the pods have ended"
LOCK_TEXTS = {
    "lost": f"LOCK LOST: a restart in this shutdown did not get the lock back; {UNPROTECTED}",
    "none": f"NO LOCK: this shutdown began without one; {UNPROTECTED}",
}


def node_rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    node = document["node"]
    if document["mode"] == PROCESS:
        return
    own = ", holds a delay lock of its own" if node["kubeletLock"] else ""
    yield "kubelet", {True: "active", False: "not active", None: "not known"}[node["kubelet"]] + own
    taint = ", may not taint this node" if node["api"] and not node["mayTaint"] else ""
    for name, part, more in (("runtime", "runtime", ""), ("API server", "api", taint)):
        answer = {True: "answers", False: "does not answer", None: "not known yet"}[node[part]]
        error = f": {node[f'{part}Error']}" if node[f"{part}Error"] and not node[part] else ""
        yield name, answer + error + more
    yield "pods ended by", f"{node['means']} ({node['meansReason']})" if node["means"] else ""
    yield "handed over", node["handedOver"]
    yield "left undone", ", ".join(node["leftUndone"])
    if certificate := node["certificate"]:
        running, mounted = len(certificate["running"]), len(certificate["mounted"])
        safe = f"safe to detach: {certificate['ended']} pods ended, nothing is mounted"
        again = ", the kubelet may have started pods again" if certificate["restarts"] else ""
        unsafe = f"not safe to detach: {running} pods running, {mounted} volumes mounted{again}"
        yield "volumes", safe if certificate["safe"] else unsafe

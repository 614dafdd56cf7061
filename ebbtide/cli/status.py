"""``ebbtide status``: armed or not, the lock, the grant, a node's parts, and the last shutdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ebbtide.cli.common.guard import CORRUPT, DONE, INCOMPATIBLE, NOT_SO, TORN, Refused, say, worst
from ebbtide.cli.common.output import pairs, remark, show, show_json, table
from ebbtide.cli.common.reading import open_journal
from ebbtide.cli.common.shared_options import journals_option, output_option, runtime_option, socket_option
from ebbtide.events.units import span_s
from ebbtide.options import JOURNAL_PATH, RunOptions

EPILOG = """\b
Examples:
  sudo ebbtide status
  sudo ebbtide status -o json | jq .armed
  ebbtide status --ready                       # in a probe: only the exit code

"""
#: The phases of a shutdown: the protection is at work.
GOING_DOWN = ("running", "cancelling", "released")


@click.command(epilog=EPILOG)
@journals_option
@runtime_option
@socket_option
@click.option(
    "--ready",
    is_flag=True,
    help="For probes: only ask the daemon, read no journal, and say a line only where it is not ready."
    " A daemon that is switched off by configuration is.",
)
@output_option("table", "json")
def status(journals: tuple[Path, ...], runtime: Path, socket: Path | None, ready: bool, output: str) -> int:
    """Show whether this node is protected, and the last shutdown's outcome.

    Exit code 1: not protected; the daemon does not answer, or is not armed. 4, 5, 6: the journal is torn,
    corrupt, incompatible.
    """
    from ebbtide.node import LocalNode

    answered, why = LocalNode(RunOptions(runtime=runtime, socket=socket)).status
    if ready:
        # The meaning of READY: armed with a list of pods, in a shutdown, or switched off on purpose. If the
        # last were not ready, a rollout that switches it off could not end.
        if answered is not None and not (unready := _unready(answered)):
            return DONE
        say(why if answered is None else unready)
        return NOT_SO
    # After the probe, which runs every few seconds and does not need them.
    from ebbtide.cli.common.selection import episode_document, read_episodes
    from ebbtide.daemon_status import cached_pods

    answer = answered or {"kind": "Status", "version": 1, "armed": False, "phase": "down"}
    last, code, damage = None, DONE, None
    try:
        found, code = read_episodes(open_journal(journals))
        last = episode_document(found[-1]) if found else None
        damage = _STATES_BY_CODE.get(code)
    except Refused:
        # A node before its first daemon has no journal: no error.
        pass
    except OSError as error:
        remark(f"ebbtide: the journal cannot be read: {error.filename or ''}: {error.strerror}; use sudo")
        damage = "unreadable"
    document = {**answer, "running": not why, "error": why or None, "lastShutdown": last}
    document["journalDamage"] = damage
    # The journal of the daemon, else the named one.
    location = document.get("journal", {}).get("location")
    document["knownPods"] = cached_pods(
        Path(location) if location else journals[0] if journals else JOURNAL_PATH
    )
    if output == "json":
        show_json(document)
    else:
        show(pairs(_rows(document)))
        if document.get("phase") in GOING_DOWN and document.get("shutdown"):
            pods = document["shutdown"]["pods"]
            rows = [(pod["pod"], str(pod["wave"]), pod["phase"], pod["reason"]) for pod in pods]
            show(table(("POD", "WAVE", "PHASE", "WHY"), rows, right=("WAVE",)))
    return worst((code, DONE if _protected(document) else NOT_SO))


#: ``journalDamage`` for a journal that is not intact.
_STATES_BY_CODE = {TORN: "torn", CORRUPT: "corrupt", INCOMPATIBLE: "incompatible"}


def _unready(document: dict[str, Any]) -> str:
    """Why it is not ready; empty: it is."""
    if not _protected(document) and document["enabled"]:
        return f"not armed: {document['whyNot']}"
    # A daemon of an earlier release lacks this field.
    return f"armed, but not heard of yet: {unheard}" if (unheard := document.get("unheard")) else ""


def _protected(document: dict[str, Any]) -> bool:
    return bool(document["armed"]) or document["phase"] in GOING_DOWN


def _rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from ebbtide.cli.common.selection import outcomes_text
    from ebbtide.daemon_status import (
        LOCK_TEXTS,
        ended_text,
        last_boot_text,
        node_rows,
        progress_text,
        shipping_text,
        time_text,
    )
    from ebbtide.events.record.format import utc_text
    from ebbtide.events.record.severity import SEVERITY_SIGNS

    if not document["running"]:
        yield "daemon", document["error"]
    else:
        off = "graceful shutdown is off by configuration"
        why = document["whyNot"] if document["enabled"] else off
        shutdown = document["shutdown"]
        runs = document["phase"] == "running" and shutdown
        if runs and (text := LOCK_TEXTS.get(shutdown.get("lock"))):
            yield "lock", text
        since = document.get("armedSince")  # a daemon of an earlier release does not say it
        since = f" since {time_text(since)}" if since else ""
        yield "armed", f"yes{since}, the delay lock is held" if document["armed"] else f"no: {why}"
        if mode := document.get("mode"):  # likewise
            yield "mode", mode
        enough = "" if document["sufficient"] else ", more is needed"
        yield (
            "grant",
            f"{span_s(document['grantSeconds'])} of {span_s(document['neededSeconds'])}{enough}",
        )
        yield "phase", f"{document['phase']}: {progress_text(shutdown)}" if runs else document["phase"]
        if last_boot := document.get("lastBoot"):  # likewise
            yield "last boot", last_boot_text(last_boot)
        if document.get("scheduledWallNs"):
            yield "scheduled", utc_text(document["scheduledWallNs"])
        yield from node_rows(document)
        if ended := document.get("endedPods"):
            yield "pods", ended_text(ended)
        journal = document["journal"]
        written, synced = journal["writtenSeq"], journal["syncedSeq"]
        yield "journal", f"{journal['location'] or 'lost'}, record {written}, synced {synced}"
        if journal.get("head"):  # a daemon of an earlier release does not say it
            yield "", f"head {journal['head']}"
        if shipping := document.get("shipping"):  # likewise
            yield "shipping", shipping_text(shipping)
    last = document["lastShutdown"]
    damage = document["journalDamage"]
    if last is None:
        # An unreadable journal may contain shutdowns.
        yield "last shutdown", f"not known: the journal is {damage}" if damage else "none in the journal"
        return
    started = time_text(last["started"])
    # The outcome is the machine's: it may be complete with every pod killed.
    sign = f"{SEVERITY_SIGNS[last['severity']]} " if last["severity"] else ""
    yield (
        f"last {'outage' if last['kind'] == 'outage' else 'shutdown'}",
        f"{last['id']}, {last['kind']}, {started}: {sign}{last['outcome']}",
    )
    yield "", outcomes_text(last["pods"], last["podsRunning"]) or "no pods"
    yield "", f"trace {last['traceId']}"
    if damage in ("corrupt", "incompatible"):
        yield "", f"or a later one that cannot be read: the journal is {damage}"

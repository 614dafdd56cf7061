"""``ebbtide status``: armed or not, the lock, the grant, a node's parts, and how the last shutdown went."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ebbtide.cli.common.options import output_option, runtime_option, socket_option
from ebbtide.cli.common.reading import journals_option
from ebbtide.options import JOURNAL_PATH

EPILOG = """\b
Examples:
  sudo ebbtide status
  sudo ebbtide status -o json | jq .armed
  ebbtide status --ready                       # in a probe: only the exit code

"""
#: The phases of a shutdown: what is protected then is under way.
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
    """Show whether this node is protected, and what became of the last shutdown.

    Exit code 1: it is not protected; the daemon does not answer, or is not armed. 4, 5, 6: the journal is
    torn, corrupt, incompatible.
    """
    from ebbtide.cli.common.guard import DONE, NOT_SO, worst
    from ebbtide.cli.common.output import show_json
    from ebbtide.node import LocalNode
    from ebbtide.options import RunOptions

    answered, why = LocalNode(RunOptions(runtime=runtime, socket=socket)).status
    if ready:
        return _probe(answered, why)
    from ebbtide.status import cached_pods

    answer = answered or {"kind": "Status", "version": 1, "armed": False, "phase": "down"}
    last, code = _last(journals)
    document = {**answer, "running": not why, "error": why or None, "lastShutdown": last}
    # The journal that the daemon writes, else the named one: its pods are kept beside it.
    location = document.get("journal", {}).get("location")
    document["knownPods"] = cached_pods(
        Path(location) if location else journals[0] if journals else JOURNAL_PATH
    )
    if output == "json":
        show_json(document)
    else:
        from ebbtide.cli.common.output import pairs, show, table

        show(pairs(_rows(document)))
        if document.get("phase") in GOING_DOWN and document.get("shutdown"):
            pods = document["shutdown"]["pods"]
            rows = [(pod["pod"], str(pod["wave"]), pod["phase"], pod["reason"]) for pod in pods]
            show(table(("POD", "WAVE", "PHASE", "WHY"), rows, right=("WAVE",)))
    return worst((code, DONE if _protected(document) else NOT_SO))


def _protected(document: dict[str, Any]) -> bool:
    return bool(document["armed"]) or document["phase"] in GOING_DOWN


def _probe(answer: dict[str, Any] | None, why: str) -> int:
    """What a service manager hears as READY: it is armed, in a shutdown, or switched off on purpose, so that
    a rollout that switches it off can end.
    """
    from ebbtide.cli.common.guard import DONE, NOT_SO, say

    if answer is None:
        say(why)
        return NOT_SO
    if _protected(answer) or not answer["enabled"]:
        return DONE
    say(f"not armed: {answer['whyNot']}")
    return NOT_SO


def _last(journals: tuple[Path, ...]) -> tuple[dict[str, Any] | None, int]:
    """The journal's last episode, None where it tells of none; and its exit code, with a remark on why."""
    from ebbtide.cli.common.episodes import episode_document, read_episodes
    from ebbtide.cli.common.guard import DONE, Refused
    from ebbtide.cli.common.output import remark
    from ebbtide.cli.common.reading import open_journal

    try:
        found, code = read_episodes(open_journal(journals))
    except Refused:
        return None, DONE
    except OSError as error:
        remark(f"ebbtide: the journal cannot be read: {error.filename or ''}: {error.strerror}; use sudo")
        return None, DONE
    return episode_document(found[-1]) if found else None, code


def _rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if not document["running"]:
        yield "daemon", document["error"]
    else:
        yield from _running(document)
    last = document["lastShutdown"]
    if last is not None:
        pods = ", ".join(f"{count} {outcome}" for outcome, count in last["pods"].items() if count)
        yield "last shutdown", f"{last['id']}, {last['kind']}, {last['started'][:19]}Z: {last['outcome']}"
        yield "", pods or "no pods"
        yield "", f"trace {last['traceId']}"
    else:
        yield "last shutdown", "none in the journal"


def _running(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from ebbtide.cli.common.records import rfc3339
    from ebbtide.status import node_rows

    off = "graceful shutdown is off by configuration"
    why = document["whyNot"] if document["enabled"] else off
    yield "armed", "yes, the delay lock is held" if document["armed"] else f"no: {why}"
    enough = "" if document["sufficient"] else ", more is needed"
    yield "grant", f"{document['grantSeconds']:g} s of {document['neededSeconds']:g} s{enough}"
    yield "phase", document["phase"]
    if document.get("scheduledWallNs"):
        yield "scheduled", rfc3339(document["scheduledWallNs"])[:19] + "Z"
    shutdown = document["shutdown"]
    if document["phase"] == "running" and shutdown:
        yield "time left", f"{shutdown['leftSeconds']:.1f} s"
    yield from node_rows(document)
    journal = document["journal"]
    yield (
        "journal",
        f"{journal['location'] or 'lost'}, record {journal['writtenSeq']}, synced {journal['syncedSeq']}",
    )

"""A run that is over, checked: does its journal read back and replay, and does every invariant hold?"""

from __future__ import annotations

from collections.abc import Iterator

from events.record import Record
from replay.engine import Replayer
from replay.virtual.book import Unsound, read_back
from replay.virtual.invariants import Breach, breaches
from replay.virtual.machine import Booted, Machine
from replay.virtual.view import Boot, BootView


def check(machine: Machine) -> list[Breach]:
    """Every breach; empty: all held."""
    return [*_replays(machine), *breaches(views(machine))]


def _replays(machine: Machine) -> Iterator[Breach]:
    """Re-execution of the written bytes gives the same decisions, from the first record to the last."""
    replayer = Replayer()
    try:
        replayer.feed(read_back(machine.book.files()))
    except Unsound as error:
        yield Breach("the_journal_is_sound", str(error))
        return
    divergence = replayer.finish()
    if divergence is not None:
        told = f"{divergence.field}: {divergence.expected} / {divergence.produced}"
        yield Breach("the_journal_replays", f"record {divergence.seq}: {told}")


def views(machine: Machine) -> list[BootView]:
    """Each boot as the invariants look at it."""
    journal: list[Record] = []
    found = []
    for index, booted in enumerate(machine.boots):
        journal = [*journal, *booted.records]
        found.append(BootView(_boot(machine, index, booted, journal)))
    return found


def _boot(machine: Machine, index: int, booted: Booted, journal: list[Record]) -> Boot:
    node, faults = booted.node, booted.node.faults
    return Boot(
        number=index + 1,
        seen=[seen for seen in machine.trail.seen if seen.boot == index + 1],
        records=booted.records,
        journal=journal,
        boxes=list(node.pods.boxes.values()),
        offset_ns=booted.since_ns,
        settings=(machine.plan.settings,),
        preparing=node.logind.preparing,
        shown_ready=node.shown.ready,
        api_answers=faults.api == "works" and node.api.reachable,
        slow_ns=faults.runtime_takes_ns,
        mode=faults.mode,
        kubelet_stays=faults.kubelet == "stays",
        kubelet_lock=faults.kubelet_lock,
    )

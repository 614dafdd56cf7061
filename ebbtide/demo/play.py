"""The demo's plot: pods come up, the power goes off, a late pod knocks, the machine is let go.

It is the real daemon with the real process edge and the real journal; only logind is its own.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

import trio

from actors.edges.embedded_logind import EmbeddedLogindEdge
from actors.edges.process.marks import Marker
from actors.edges.process.scan import Scanner
from actors.edges.process.sweep import kill_exactly
from ebbtide.assemble import embedded
from ebbtide.config import load
from ebbtide.daemon import Daemon
from ebbtide.demo.chronicle import Chronicle
from ebbtide.demo.stage import Stage, bring_late_pod
from ebbtide.options import RunOptions
from ebbtide.standing import Standing
from ebbtide.surroundings import Tell
from events.decisions import PodRejected, WaveStarted
from events.record import Record
from events.storage import RESERVE_NAME

#: Time to read who is there, before the power goes off.
PAUSE_SECONDS = 1.5
#: A machine on which twelve small programs are not up by then has other worries.
UP_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.05
#: When the late pod knocks: the number of the wave that has just begun.
LATE_WAVE = 1
#: An interrupted demo takes its pods with it: looks until none is left.
SWEEPS_MAX = 20

#: What ends a demo early, and how soon the daemon's own handlers of it are there.
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LISTEN_SECONDS = 0.001

#: Draws the standing at this monotonic time; called some ten times a second.
Draw = Callable[[Standing, int], None]


class Played(NamedTuple):
    """How it went; ``whole``: the machine was let go, nothing interrupted it. ``ended_by``: what did."""

    told: Chronicle
    trace_id: str
    whole: bool
    ended_by: signal.Signals | None = None


async def play(stage: Stage, say: Callable[[str], None], tell: Tell, draw: Draw) -> Played:
    """Run the whole plot. ``say`` gets the director's words, ``tell`` the daemon's lines.

    Raises what `ebbtide.assemble.embedded` raises.
    """
    logind = EmbeddedLogindEdge()
    options = RunOptions(
        config=(stage.config,), pods=stage.pods, journal=stage.journal, runtime=stage.runtime, capture_lines=2
    )
    daemon = await embedded(options, load(options.config), logind, tell)
    told, caught = Chronicle(), list[signal.Signals]()
    daemon.sequencer.observers += [told.fold, _late(stage, say)]
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_draw, daemon, draw)
            nursery.start_soon(_watch, caught, partial(_direct, daemon, logind, told, say))
            await daemon.run()
            nursery.cancel_scope.cancel()
    finally:
        sweep(stage)
        (stage.journal / RESERVE_NAME).unlink(missing_ok=True)
    return Played(told, daemon.trace_id, logind.released.is_set(), *caught)


async def _watch(caught: list[signal.Signals], direct: Callable[[], Awaitable[None]]) -> None:
    """Direct until the end, or until a signal says otherwise; then the daemon is stopped as it always is.

    To a daemon SIGHUP means to read its configuration again; here it means that the terminal has gone. So
    signals are taken over from the daemon as soon as it listens to them, and given back for its stop.
    """
    while signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        await trio.sleep(LISTEN_SECONDS)
    with trio.open_signal_receiver(*ENDINGS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_catch, signals, caught, nursery.cancel_scope)
            await direct()
            nursery.cancel_scope.cancel()
    os.kill(os.getpid(), signal.SIGTERM)


async def _catch(signals: AsyncIterator[int], caught: list[signal.Signals], scope: trio.CancelScope) -> None:
    async for number in signals:
        caught[:] = [signal.Signals(number)]
        scope.cancel()


async def _direct(
    daemon: Daemon, logind: EmbeddedLogindEdge, told: Chronicle, say: Callable[[str], None]
) -> None:
    """What happens when, on this stage."""
    with trio.move_on_after(UP_SECONDS_MAX):
        while not (told.all_up and daemon.standing.armed and daemon.standing.sufficient):
            await trio.sleep(LOOK_SECONDS)
    say(f"{len(told.wanted)} pods are up, the delay lock is held. Now the power goes off.")
    await trio.sleep(PAUSE_SECONDS)
    await logind.begin("poweroff")
    await logind.released.wait()


def _late(stage: Stage, say: Callable[[str], None]) -> Callable[[Sequence[Record]], None]:
    def look(records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record.event, WaveStarted) and record.event.wave == LATE_WAVE:
                bring_late_pod(stage)
            elif isinstance(record.event, PodRejected):
                say(f"A manifest appeared while the node goes down: {record.event.label} is turned away.")

    return look


async def _draw(daemon: Daemon, draw: Draw) -> None:
    while True:
        draw(daemon.standing, time.monotonic_ns())
        await trio.sleep(LOOK_SECONDS * 2)


def sweep(stage: Stage) -> None:
    """End what the demo has started and not ended: after Ctrl-C, or when the budget was over."""
    scanner = Scanner(Marker(stage.runtime / "process"))
    for _ in range(SWEEPS_MAX):
        ours = [item for item in scanner.look_now() if item.mark is not None]
        if not ours:
            return
        for item in ours:
            kill_exactly(item.stat.pid, item.stat.start_ticks)
        time.sleep(LOOK_SECONDS)

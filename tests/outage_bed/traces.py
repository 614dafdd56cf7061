"""The traces of a run's outages, as a real Jaeger has them, against what the journal comes to.

The controller sends them while it runs. What an outage that is still open comes to when it is stopped is sent
from the journal, as people do it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.backends.backends import Backend
from tests.backends.compare import Shutdown, assert_same, shutdowns
from tests.node.ebbtide import COMMAND
from tests.waiting import WATCHDOG_SECONDS

MESSAGE_CHARACTERS = 300


def arrived(backend: Backend, journal: Path) -> list[str]:
    """What the controller should have sent by now, and has not: of outages that are over, a line each."""
    late = []
    for outage in shutdowns(journal):
        if is_over(outage):
            own = {(span.trace_id, span.span_id): span.name for span in outage.own}
            kept = backend.wait(outage.trace_id, lambda kept, own=own: own.keys() <= kept.spans.keys())
            if missing := sorted(name for key, name in own.items() if key not in kept.spans):
                late.append(f"of trace {outage.trace_id} the controller has not sent {', '.join(missing)}")
    return late


def is_over(outage: Shutdown) -> bool:
    """Its first span ends with it."""
    return any(not span.parent_id for span in outage.own)


def differs(backend: Backend, journal: Path, stored: str = "", **environ: str) -> list[str]:
    """Of the traces, once all that there is of them was sent: a line for each that is not the journal's.
    ``stored``: where it lies in the API server, whose word it is that the last step is durable too.
    """
    found = []
    outages = shutdowns(journal)
    for place, outage in enumerate(outages):
        argv = [*COMMAND, "export", "otlp", str(place - len(outages)), f"--journal={stored or journal}"]
        argv += [f"--endpoint={backend.http}"]
        environ = {**os.environ, **environ}
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=WATCHDOG_SECONDS)
        kept = backend.wait(outage.trace_id, lambda kept, outage=outage: kept.count >= len(outage.own))
        try:
            assert_same(kept, outage)
        except AssertionError as error:
            said = f"{str(error)[:MESSAGE_CHARACTERS]} {done.stderr[-MESSAGE_CHARACTERS:]}".strip()
            found.append(f"trace {outage.trace_id} is not what its journal comes to: {said}")
    return found

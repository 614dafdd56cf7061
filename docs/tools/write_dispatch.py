"""Writes docs/dispatch.txt from the actors' tables: each event's handlers in the order of delivery.

    python docs/tools/write_dispatch.py          # writes the file
    python docs/tools/write_dispatch.py --check  # exits 1 if it is not current; line numbers may differ

To follow a fact, look its event up, open the handlers, and look up what they decide.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ebbtide.actors.actor import IGNORED, Handler, Row  # noqa: E402
from ebbtide.actors.system import OUTAGES, SHUTDOWN, ActorSet  # noqa: E402
from ebbtide.events.base import TYPES, Event, Fact, Order  # noqa: E402

FILE = ROOT / "docs" / "dispatch.txt"

HEAD = """\
From an event to its handlers. Made by docs/tools/write_dispatch.py from the actors' tables.

An edge makes a fact. `Sequencer.admit` (actors/runner.py) gives it a time. `System.trace` (actors/system.py)
passes it, and each decision that follows, to the handlers below, from top to bottom. The journal has the
records before `Effects` (actors/runner.py) begins the orders. OrderEnded goes to the actor that gave the
order, Tick to each actor whose deadline has come.

event (kind)
    actor: phases -> phases that it may lead to
        handler at file:line; what it may decide
"""


def pages() -> str:
    return "\n".join([HEAD, *_lines("A node's shutdown", SHUTDOWN), *_lines("Outages", OUTAGES)])


def _lines(title: str, actors: ActorSet) -> Iterator[str]:
    yield from (title, "=" * len(title), "")
    for event in TYPES.values():
        rows = [
            (actor.name, row)
            for actor in actors.types
            for row in actor.transitions.table
            if row.event is event and row.handler is not IGNORED
        ]
        if rows:
            yield f"{event.__name__} ({_kind(event)})"
            for name, row in rows:
                yield from _row(name, row)
            yield ""


def _kind(event: type[Event]) -> str:
    return "fact" if issubclass(event, Fact) else "order" if issubclass(event, Order) else "decision"


def _row(actor: str, row: Row) -> Iterator[str]:
    yield f"    {actor}: {'every phase' if row.phases == '*' else row.phases} -> {row.to}"
    decides = ", ".join(kind.__name__ for kind in row.decides)
    yield f"        {' of '.join(_places(row.handler))}{f'; {decides}' if decides else ''}"


def _places(handler: Handler) -> list[str]:
    """A handler that another one wraps is named behind it."""
    code = handler.__code__
    name = handler.__qualname__.partition(".<locals>")[0].replace("<lambda>", "in the table")
    path = Path(code.co_filename).resolve().relative_to(ROOT).as_posix()
    inner = [cell.cell_contents for cell in handler.__closure__ or ()]
    wrapped = [place for each in inner if hasattr(each, "__code__") for place in _places(each)]
    return [f"{name} at {path}:{code.co_firstlineno}", *wrapped]


def main() -> int:
    if "--check" not in sys.argv:
        FILE.write_text(pages())
        return 0
    lines = re.compile(r"(?<=\.py):\d+")
    current = FILE.exists() and lines.sub("", FILE.read_text()) == lines.sub("", pages())
    if not current:
        print("docs/dispatch.txt is not current: run python docs/tools/write_dispatch.py", file=sys.stderr)
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())

"""Draws the actors from their tables: a picture of each set (docs/actors.svg, docs/outage-actors.svg), and
docs/states-<actor>.svg for each actor.

    python docs/tools/draw_actors.py          # writes the pictures
    python docs/tools/draw_actors.py --check  # exits 1 if one is not current

A set: which facts reach which actor, what it orders, and who hears it. A state diagram: one column a
phase, one line a row of the table, from the phases in which the event is heard to those to which it leads.
Recipients come from the route table, all else from the tables that the actors are dispatched from, so the
pictures cannot say what the code does not.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ebbtide.actors.actor import EVERY, IGNORED, SAME, ActorType, Row, Transitions  # noqa: E402
from ebbtide.actors.detach_certificate import CERTIFICATE  # noqa: E402
from ebbtide.actors.node_marks import MARKS  # noqa: E402
from ebbtide.actors.node_status import NODE_STATUS, STATUSES  # noqa: E402
from ebbtide.actors.system import OUTAGES, SHUTDOWN, ActorSet  # noqa: E402
from ebbtide.events.base import TYPES, Decision, Fact, Order  # noqa: E402

DOCS = ROOT / "docs"

#: Delivered by key and by deadline; every actor that orders or waits hears them.
DYNAMIC = ("OrderEnded", "Tick")

COLORS = ("#2f6f9f", "#8a5a00", "#4b7f3a", "#7a3f8f", "#a33d3d", "#1f7a72", "#5b5bd0", "#8f4a6b")
ROW, TOP, FACTS_X, ACTORS_X, ORDERS_X, WIDTH = 31, 60, 20, 400, 840, 1130
BOX = 210


#: The machines of the NodeStatusActor.
MACHINES = {"marks": MARKS, "certificate": CERTIFICATE, "statuses": STATUSES}


class Node(NamedTuple):
    name: str
    x: float
    y: float


def decided(actor: ActorType) -> list[str]:
    """The names of all that its table states, orders among them."""
    kinds = (kind for row in actor.transitions.table for kind in row.decides)
    return list(dict.fromkeys(kind.__name__ for kind in kinds))


def column(names: list[str], x: float, height: int) -> dict[str, Node]:
    step = (height - TOP) / max(1, len(names))
    return {name: Node(name, x, TOP + step * (at + 0.5)) for at, name in enumerate(names)}


def curve(a: tuple[float, float], b: tuple[float, float], color: str, dashed: bool = False) -> str:
    middle = (a[0] + b[0]) / 2
    dash = ' stroke-dasharray="3 4"' if dashed else ""
    return (
        f'<path d="M{a[0]:.0f} {a[1]:.1f} '
        f'C{middle:.0f} {a[1]:.1f} {middle:.0f} {b[1]:.1f} {b[0]:.0f} {b[1]:.1f}"'
        f' fill="none" stroke="{color}" stroke-opacity="0.65"{dash}/>'
    )


def arc(a: Node, b: Node, color: str) -> str:
    """A decision from one actor to another, along the right side of the boxes."""
    x, bend = ACTORS_X + BOX, 40 + abs(a.y - b.y) * 0.28
    return (
        f'<path d="M{x} {a.y:.1f} '
        f'C{x + bend:.0f} {a.y:.1f} {x + bend:.0f} {b.y:.1f} {x} {b.y:.1f}"'
        f' fill="none" stroke="{color}" stroke-opacity="0.35" stroke-dasharray="3 4"/>'
    )


def draw(actors: ActorSet) -> str:
    makes = {actor.name: decided(actor) for actor in actors.types}
    facts = [name for name, kind in TYPES.items() if issubclass(kind, Fact) and kind in actors.routes]
    made = {name for names in makes.values() for name in names}
    orders = [name for name, kind in TYPES.items() if issubclass(kind, Order) and name in made]
    height = TOP + ROW * (max(len(facts), len(orders)) + 1)
    left, right = column(facts, FACTS_X, height), column(orders, ORDERS_X, height)
    middle = column(list(makes), ACTORS_X, height)
    colors = dict(zip(middle, COLORS, strict=False))
    parts = [*_fact_lines(actors, left, middle, colors), *_order_lines(makes, middle, right, colors)]
    parts += _decision_lines(actors, makes, middle, colors)
    parts += [_label(node, "end") for node in left.values()]
    parts += [_label(node, "start") for node in right.values()]
    parts += [_box(node, colors[name], makes[name]) for name, node in middle.items()]
    return _page(height + 40, parts)


def _fact_lines(
    actors: ActorSet, left: dict[str, Node], middle: dict[str, Node], colors: dict[str, str]
) -> list[str]:
    return [
        curve(
            (FACTS_X + 172, left[kind.__name__].y),
            (ACTORS_X, middle[route.name].y),
            colors[route.name],
        )
        for kind, routes in actors.routes.items()
        for route in routes
        if kind.__name__ in left
    ]


def _order_lines(
    makes: dict[str, list[str]], middle: dict[str, Node], right: dict[str, Node], colors: dict[str, str]
) -> list[str]:
    return [
        curve((ACTORS_X + BOX, middle[actor].y), (ORDERS_X, right[name].y), colors[actor])
        for actor, names in makes.items()
        for name in names
        if name in right
    ]


def _decision_lines(
    actors: ActorSet, makes: dict[str, list[str]], middle: dict[str, Node], colors: dict[str, str]
) -> list[str]:
    pairs: dict[tuple[str, str], None] = {}
    for actor, names in makes.items():
        for name in names:
            kind = TYPES[name]
            if issubclass(kind, Decision):
                pairs |= {(actor, route.name): None for route in actors.routes.get(kind, ())}
    return [arc(middle[a], middle[b], colors[a]) for a, b in pairs if a != b]


def _label(node: Node, anchor: str) -> str:
    x = node.x + 168 if anchor == "end" else node.x + 6
    where = f'x="{x}" y="{node.y + 4:.1f}" text-anchor="{anchor}"'
    return f'<text {where} class="event">{escape(node.name)}</text>'


def _box(node: Node, color: str, names: list[str]) -> str:
    decisions = sum(1 for name in names if not issubclass(TYPES[name], Order))
    orders, center = len(names) - decisions, node.x + BOX / 2
    return (
        f'<rect x="{node.x}" y="{node.y - 24:.1f}" width="{BOX}" height="48" rx="7" '
        f'class="box" stroke="{color}"/>'
        f'<text x="{center}" y="{node.y - 2:.1f}" text-anchor="middle" class="actor">{node.name}</text>'
        f'<text x="{center}" y="{node.y + 15:.1f}" text-anchor="middle" class="note">'
        f"{decisions} kinds of decisions, {orders} of orders</text>"
    )


def _page(height: float, parts: list[str]) -> str:
    style = (
        "text{font-family:system-ui,sans-serif;fill:#1d2733}.event{font-size:12px}"
        ".actor{font-size:14px;font-weight:600}.note{font-size:10.5px;fill:#5b6773}"
        ".head{font-size:13px;font-weight:600;fill:#5b6773}.box{fill:#fff;stroke-width:2}"
    )
    heads = (
        f'<text x="{FACTS_X + 168}" y="36" text-anchor="end" class="head">facts, from the edges</text>'
        f'<text x="{ACTORS_X + BOX / 2}" y="36" text-anchor="middle" class="head">actors</text>'
        f'<text x="{ORDERS_X + 6}" y="36" class="head">orders, to the edges</text>'
        f'<text x="{ACTORS_X}" y="{height - 12:.0f}" class="note">'
        f"dashed: decisions that another actor hears; {' and '.join(DYNAMIC)} go to whom they concern</text>"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="Facts, actors and orders of Ebbtide"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#fbfcfd"/>{heads}{chr(10).join(parts)}</svg>\n'
    )


# --- one actor's phases --------------------------------------------------------------------------

LINE, COLUMN, LEFT, HEAD, DECIDES_PER_LINE = 26, 88, 190, 74, 3


def draw_states(name: str, table: Transitions) -> str:
    """Circles are where an event is heard, squares where it leads; what is ignored has neither."""
    regions = table.regions
    columns: dict[str, float] = {}
    x = LEFT + COLUMN / 2
    for region in regions:
        for phase in region:
            columns[phase] = x
            x += COLUMN
        x += COLUMN / 4
    right = x - COLUMN / 2
    width = right + 340
    parts, y, before = [], float(HEAD), None
    order = table.events.index
    heard = [row for row in table.table if row.handler is not IGNORED]
    rows = sorted(heard, key=lambda row: order(row.event))
    for row in rows:
        if row.event is not before:
            parts.append(f'<line x1="10" x2="{width - 10}" y1="{y}" y2="{y}" class="rule"/>')
            parts.append(
                f'<text x="{LEFT - 14}" y="{y + 17}" text-anchor="end" class="event">'
                f"{row.event.__name__}</text>"
            )
        before = row.event
        names = [kind.__name__ for kind in row.decides]
        lines = [
            ", ".join(names[at : at + DECIDES_PER_LINE]) for at in range(0, len(names), DECIDES_PER_LINE)
        ]
        parts += _transition(row, columns, y + LINE / 2)
        parts += [
            f'<text x="{right}" y="{y + 17 + 14 * at}" class="note">{line}</text>'
            for at, line in enumerate(lines)
        ]
        y += LINE + 14 * max(0, len(lines) - 1)
    grid = [
        f'<line x1="{at}" x2="{at}" y1="{HEAD - 12}" y2="{y}" class="grid"/>'
        f'<rect x="{at - COLUMN / 2 + 4}" y="{HEAD - 36}" width="{COLUMN - 8}" height="24" rx="6" '
        f'class="box"/>'
        f'<text x="{at}" y="{HEAD - 20}" text-anchor="middle" class="phase">{phase}</text>'
        for phase, at in columns.items()
    ]
    return _states_page(name, width, y + 40, right, [*grid, *parts])


def _transition(row: Row, columns: dict[str, float], y: float) -> list[str]:
    """Hollow: the actor may stay as it is."""
    sources = list(columns) if row.phases == EVERY else row.phases.split()
    to = row.to.split()
    targets = [name for name in to if name != SAME]
    places = [columns[name] for name in (*sources, *targets)]
    found = [f'<line x1="{min(places)}" x2="{max(places)}" y1="{y}" y2="{y}" class="move"/>'] * bool(targets)
    found += [
        f'<rect x="{columns[name] - 7}" y="{y - 7}" width="14" height="14" rx="2" class="target"/>'
        for name in targets
    ]
    kind = "stays" if SAME in to else "leaves"
    found += [f'<circle cx="{columns[name]}" cy="{y}" r="4" class="{kind}"/>' for name in sources]
    return found


def _states_page(name: str, width: float, height: float, right: float, parts: list[str]) -> str:
    style = (
        "text{font-family:system-ui,sans-serif;fill:#1d2733}.event{font-size:12px}"
        ".phase{font-size:12px;font-weight:600}.note{font-size:11px;fill:#5b6773}"
        ".head{font-size:14px;font-weight:600}.box{fill:#fff;stroke:#2f6f9f;stroke-width:1.5}"
        ".grid{stroke:#d5dbe1}.rule{stroke:#e8ecf0}.move{stroke:#2f6f9f;stroke-width:1.5}"
        ".target{fill:#fff;stroke:#2f6f9f;stroke-width:1.5}.leaves{fill:#2f6f9f;stroke:#2f6f9f}"
        ".stays{fill:#fff;stroke:#2f6f9f;stroke-width:1.5}"
    )
    y = height - 16
    legend = (
        f'<circle cx="20" cy="{y - 4}" r="4" class="leaves"/>'
        f'<text x="30" y="{y}" class="note">heard here</text>'
        f'<circle cx="110" cy="{y - 4}" r="4" class="stays"/>'
        f'<text x="120" y="{y}" class="note">heard here, and may stay</text>'
        f'<rect x="270" y="{y - 11}" width="14" height="14" rx="2" class="target"/>'
        f'<text x="290" y="{y}" class="note">leads here</text>'
        f'<text x="370" y="{y}" class="note">nothing: ignored</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="The phases of the {name}"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#fbfcfd"/>'
        f'<text x="10" y="24" class="head">{name}</text>'
        f'<text x="{LEFT - 14}" y="{HEAD - 20}" text-anchor="end" class="note">on</text>'
        f'<text x="{right}" y="{HEAD - 20}" class="note">may decide</text>'
        f"{chr(10).join(parts)}{legend}</svg>\n"
    )


def pictures() -> dict[Path, str]:
    """By file."""
    actors = (*SHUTDOWN.types, *OUTAGES.types)
    tables = {actor.name: actor.transitions for actor in actors if actor.name != NODE_STATUS.name}
    tables |= {f"{NODE_STATUS.name}, {what}": table for what, table in MACHINES.items()}
    diagrams = {
        DOCS / f"states-{file_word(name)}.svg": draw_states(name, table) for name, table in tables.items()
    }
    return {DOCS / "actors.svg": draw(SHUTDOWN), DOCS / "outage-actors.svg": draw(OUTAGES), **diagrams}


def file_word(name: str) -> str:
    """``config`` of the ConfigReconciler, ``certificate`` of that machine of the NodeStatusActor."""
    name = name.rpartition(", ")[2]
    return re.sub(r"(?<=.)([A-Z])", r"_\1", re.sub("Actor$|Reconciler$", "", name)).lower()


def main() -> int:
    """1 with ``--check`` if a picture is not what the code draws."""
    drawn = pictures()
    if "--check" in sys.argv[1:]:
        stale = [path.name for path, text in drawn.items() if not path.exists() or path.read_text() != text]
        print(f"draw again: {', '.join(stale)}" if stale else "the pictures are current")
        return int(bool(stale))
    for path, text in drawn.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

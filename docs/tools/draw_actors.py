"""Draws docs/actors.svg from the code: which facts reach which actor, what it orders, and who hears it.

    python docs/tools/draw_actors.py          # writes docs/actors.svg
    python docs/tools/draw_actors.py --check  # exits 1 if it is not current

Facts and recipients come from the route table, orders and decisions from the constructors that an actor's
modules call, so the picture cannot say what the code does not.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from actors.logic.actor import ActorType  # noqa: E402
from actors.logic.routes import ALL, ROUTES  # noqa: E402
from events.base import TYPES, Decision, Fact, Order  # noqa: E402

PICTURE = ROOT / "docs" / "actors.svg"

#: Delivered by key and by deadline; every actor that orders or waits hears them.
DYNAMIC = ("OrderEnded", "Tick")

COLORS = ("#2f6f9f", "#8a5a00", "#4b7f3a", "#7a3f8f", "#a33d3d", "#1f7a72", "#5b5bd0", "#8f4a6b")
ROW, TOP, FACTS_X, ACTORS_X, ORDERS_X, WIDTH = 31, 60, 20, 400, 840, 1130
BOX = 210


class Node(NamedTuple):
    name: str
    x: float
    y: float


def emitted(module_names: set[str]) -> list[str]:
    """The event classes whose constructors these modules call."""
    found: dict[str, None] = {}
    for name in sorted(module_names):
        if name.count(".") != 2:
            continue
        path = import_module(name).__file__
        assert path is not None
        for node in ast.walk(ast.parse(Path(path).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TYPES:
                found[node.func.id] = None
    return list(found)


def modules_of(actor: ActorType) -> set[str]:
    """Where an actor's handlers live, and the modules of the same layer that only it is made of."""
    own = {handler.__module__ for handler in actor.handlers.values()}
    others = {h.__module__ for other in ALL if other is not actor for h in other.handlers.values()}
    imported = {name for module in own for name in imports(module) if name.startswith("actors.logic.")}
    return own | (imported - others)


def imports(module: str) -> set[str]:
    path = import_module(module).__file__
    assert path is not None
    tree = ast.parse(Path(path).read_text())
    froms = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return froms | {name for name in names if name.startswith("actors.logic.") and name.count(".") == 2}


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


def draw() -> str:
    makes = {actor.name: emitted(modules_of(actor)) for actor in ALL}
    facts = [name for name, kind in TYPES.items() if issubclass(kind, Fact) and kind in ROUTES]
    made = {name for names in makes.values() for name in names}
    orders = [name for name, kind in TYPES.items() if issubclass(kind, Order) and name in made]
    height = TOP + ROW * (max(len(facts), len(orders)) + 1)
    left, right = column(facts, FACTS_X, height), column(orders, ORDERS_X, height)
    middle = column([actor.name for actor in ALL], ACTORS_X, height)
    colors = dict(zip(middle, COLORS, strict=True))
    parts = [*_fact_lines(left, middle, colors), *_order_lines(makes, middle, right, colors)]
    parts += _decision_lines(makes, middle, colors)
    parts += [_label(node, "end") for node in left.values()]
    parts += [_label(node, "start") for node in right.values()]
    parts += [_box(node, colors[name], makes[name]) for name, node in middle.items()]
    return _page(height + 40, parts)


def _fact_lines(left: dict[str, Node], middle: dict[str, Node], colors: dict[str, str]) -> list[str]:
    return [
        curve(
            (FACTS_X + 172, left[kind.__name__].y),
            (ACTORS_X, middle[route.name].y),
            colors[route.name],
        )
        for kind, routes in ROUTES.items()
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
    makes: dict[str, list[str]], middle: dict[str, Node], colors: dict[str, str]
) -> list[str]:
    pairs: dict[tuple[str, str], None] = {}
    for actor, names in makes.items():
        for name in names:
            kind = TYPES[name]
            if issubclass(kind, Decision):
                pairs |= {(actor, route.name): None for route in ROUTES.get(kind, ())}
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


def main() -> int:
    picture = draw()
    if "--check" in sys.argv[1:]:
        current = PICTURE.read_text() if PICTURE.exists() else ""
        print(
            "docs/actors.svg is current" if current == picture else "docs/actors.svg is stale: draw it again"
        )
        return int(current != picture)
    PICTURE.write_text(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())

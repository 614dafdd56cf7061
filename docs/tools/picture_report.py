"""Draws docs/report.png: the report of a modelled shutdown, as Chromium shows it.

    python docs/tools/picture_report.py

A pod that ignores its stop signal, and a hook that holds its wave. The shutdown is a function of its seed, so
the picture changes only with the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ebbtide.events.base import NS_PER_SECOND  # noqa: E402
from ebbtide.events.model import Container, Hook, Pod  # noqa: E402
from ebbtide.replay.sim.scenario import Behaviour, BehaviourRule, DurationQuantiles  # noqa: E402
from ebbtide.replay.sim.simulate import SimulationRequest  # noqa: E402
from tests.replay.report import journals  # noqa: E402
from tests.replay.report.browser import browser  # noqa: E402

PICTURE = ROOT / "docs" / "report.png"
WIDTH, HEIGHT = 1120, 1320

#: Namespace, name, priority, preStop hook.
PODS = (
    ("shop", "web-7d9c5-x2k4z", 0, "drain"),
    ("shop", "web-7d9c5-q7zwt", 0, "drain"),
    ("shop", "cart-5b8f6-lm2vd", 0, ""),
    ("batch", "reports-28731", 0, ""),
    ("batch", "thumbs-4xkq9", 0, ""),
    ("shop", "search-0", 1000, "hand-over"),
    ("shop", "orders-0", 1000, ""),
    ("shop", "orders-1", 1000, ""),
    ("data", "postgres-0", 2000, "checkpoint"),
    ("data", "redis-0", 2000, ""),
)

SECOND = NS_PER_SECOND
BEHAVIOUR = Behaviour(
    rules=(
        BehaviourRule(pod="*", stop=DurationQuantiles((SECOND // 5, 2 * SECOND))),
        BehaviourRule(pod="web-*", hook=DurationQuantiles((SECOND, 3 * SECOND))),
        BehaviourRule(pod="reports-*", ignores=True),
        BehaviourRule(pod="search-0", hook=DurationQuantiles((9 * SECOND,))),
        BehaviourRule(pod="postgres-0", hook=DurationQuantiles((SECOND,))),
    )
)


def pods() -> tuple[Pod, ...]:
    made = []
    for at, (namespace, name, priority, hook) in enumerate(PODS):
        runs = Hook(kind="exec", detail=hook) if hook else None
        made.append(
            Pod(
                uid=f"00000000-0000-4000-8000-{at:012}",
                namespace=namespace,
                name=name,
                priority=priority,
                grace_seconds=60 if hook == "" and priority == 0 else 30,
                containers=(Container(name="main", hook=runs),),
            )
        )
    return tuple(made)


def main() -> None:
    page = journals.page(journals.run(SimulationRequest(pods=pods(), behaviour=BEHAVIOUR, calm=True), seed=3))
    with browser() as chromium:
        path = Path(chromium.profile) / "report.html"
        path.write_text(page, encoding="utf-8")
        chromium.media(prefers_color_scheme="light")
        chromium.size(WIDTH, HEIGHT)
        chromium.open(path.as_uri())
        chromium.picture(PICTURE)


if __name__ == "__main__":
    main()

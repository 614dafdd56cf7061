"""Draws docs/report*.png: the reports of modelled shutdowns, as Chromium shows them.

    python docs/tools/picture_report.py

A pod that ignores its stop signal, and a hook that holds its wave; then the timelines of 115 pods and of a
thousand. The shutdowns are functions of their seeds, so the pictures change only with the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ebbtide.events.base import NS_PER_SECOND  # noqa: E402
from ebbtide.events.values import Container, Hook, Pod  # noqa: E402
from ebbtide.replay.sim.scenario import Behaviour, BehaviourRule, DurationQuantiles  # noqa: E402
from ebbtide.replay.sim.simulate import SimulationRequest  # noqa: E402
from tests.replay.report import journals  # noqa: E402
from tests.replay.report.browser import browser  # noqa: E402

DOCS = ROOT / "docs"
WIDTH, HEIGHT = 1120, 1140
#: Of a timeline alone.
SCREEN_WIDTH = 1280

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
    story = journals.run(SimulationRequest(pods=pods(), behaviour=BEHAVIOUR, calm=True), seed=3)
    thousand = journals.run(SimulationRequest(synthetic=1020, calm=True), seed=5)
    with browser() as chromium:
        path = Path(chromium.profile) / "report.html"
        chromium.media(prefers_color_scheme="light")
        chromium.size(WIDTH, HEIGHT)
        path.write_text(journals.page(story), encoding="utf-8")
        chromium.open(path.as_uri())
        chromium.picture(DOCS / "report.png")
        for name, files, height in (("hundred", journals.hundred(), 820), ("thousand", thousand, 660)):
            chromium.size(SCREEN_WIDTH, height)
            path.write_text(journals.page(files), encoding="utf-8")
            chromium.open(path.as_uri())
            chromium.run("document.getElementById('timeline').scrollIntoView()")
            chromium.frame()
            chromium.picture(DOCS / f"report-{name}.png")


if __name__ == "__main__":
    main()

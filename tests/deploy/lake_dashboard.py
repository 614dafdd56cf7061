"""deploy/grafana/ebbtide-lake.json, made of the ten questions as docs/fleet.md has them.

    python -m tests.deploy.lake_dashboard

A question is asked of Parquet files there, and of the lake's tables here, for the dashboard's nodes and time.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.replay.sim.questions import FILE, questions

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "ebbtide-lake.json"


DATASOURCE = {"type": "motherduck-duckdb-datasource", "uid": "${datasource}"}
#: Of the dashboard's time, and of the nodes that are chosen in it.
CHOSEN = "$__timeFilter(started) and node in (${node:sqlstring})"
WIDTH = 24

#: Beside the questions: title, what it says, its kind, its SQL.
OVERVIEW = (
    (
        "Shutdowns",
        "All of the chosen nodes and time.",
        "stat",
        "select count(*) as shutdowns from 'shutdowns'",
    ),
    (
        "Nodes",
        "That went down at least once.",
        "stat",
        "select count(distinct node) as nodes from 'shutdowns'",
    ),
    (
        "Pods killed",
        "Killed, or failed at their end.",
        "stat",
        "select count(*) as killed from 'pods' where outcome in ('killed', 'failed')",
    ),
    (
        "Cut short",
        "Shutdowns that went down before the lock was released.",
        "stat",
        "select count(*) as cut_short from 'shutdowns' where outcome in ('truncated', 'never-begun')",
    ),
    (
        "Shutdowns a day",
        "By how they ended, in UTC.",
        "timeseries",
        "select date_trunc('day', started) as time, outcome, count(*) as shutdowns\nfrom 'shutdowns'\n"
        "group by all\norder by time, outcome",
    ),
    (
        "Pods killed a day",
        "Of all that ended, in UTC.",
        "timeseries",
        "select date_trunc('day', started) as time,\n"
        "       count(*) filter (outcome in ('killed', 'failed')) as killed, count(*) as ended\n"
        "from 'pods'\nwhere outcome in ('graceful', 'killed', 'failed')\n"
        "group by all\norder by time",
    ),
)
#: Of all nodes and times: what is not in the tables cannot be chosen by them.
NOT_WHOLE = (
    "Journals that are not whole",
    "Of all nodes and times: rows of these are missing from the panels above.",
    "select node, state, left_out, findings, error, location\nfrom journals\n"
    "where exit_code <> 0 or left_out <> ''\norder by node, journal_id",
)


def chosen(sql: str) -> str:
    """The same of what the dashboard has chosen."""
    named = FILE.sub(r"'\1'", sql)
    return re.sub(
        r"'(shutdowns|waves|pods|hooks|containers|notices)'", rf"(select * from \1 where {CHOSEN})", named
    )


def panel(
    at: int, kind: str, title: str, text: str, sql: str, place: tuple[int, int, int, int]
) -> dict[str, Any]:
    """``place``: x, y, width, height."""
    shape = "time_series" if kind == "timeseries" else "table"
    made: dict[str, Any] = {
        "id": at,
        "type": kind,
        "title": title,
        "description": text,
        "datasource": DATASOURCE,
        "gridPos": dict(zip("xywh", place, strict=True)),
        "targets": [
            {
                "datasource": DATASOURCE,
                "refId": "A",
                "rawQuery": True,
                "editorMode": "code",
                "format": shape,
                "rawSql": sql,
            }
        ],
        "fieldConfig": {"defaults": {}, "overrides": []},
    }
    if kind == "stat":
        made["options"] = {"reduceOptions": {"calcs": ["lastNotNull"], "values": False}, "graphMode": "none"}
    if kind == "timeseries":
        made["fieldConfig"]["defaults"] = {"custom": {"drawStyle": "bars", "fillOpacity": 70}}
    return made


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    for at, (title, text, kind, sql) in enumerate(OVERVIEW):
        small = kind == "stat"
        place = (6 * at, 0, 6, 4) if small else (12 * (at % 2), 4, 12, 8)
        panels.append(panel(len(panels) + 1, kind, title, text, chosen(sql), place))
    y = 12
    for number, title, sql in questions():
        place = (12 * (number % 2 == 0), y, 12, 9)
        y += 9 * (number % 2 == 0)
        text = f"Question {number} of docs/fleet.md, of the chosen nodes and time."
        panels.append(panel(len(panels) + 1, "table", title, text, chosen(sql), place))
    title, text, sql = NOT_WHOLE
    panels.append(panel(len(panels) + 1, "table", title, text, sql, (0, y, WIDTH, 8)))
    nodes = "select distinct node from shutdowns order by node"
    return {
        "title": "Ebbtide: a fleet's lake",
        "uid": "ebbtide-lake",
        "tags": ["ebbtide", "kubernetes"],
        "timezone": "utc",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "time": {"from": "now-90d", "to": "now"},
        "annotations": {"list": []},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "type": "datasource",
                    "query": DATASOURCE["type"],
                    "label": "Lake",
                },
                {
                    "name": "node",
                    "type": "query",
                    "label": "Node",
                    "datasource": DATASOURCE,
                    "query": nodes,
                    "definition": nodes,
                    "includeAll": True,
                    # Not a hundred thousand names in each query.
                    "allValue": "select node from shutdowns",
                    "multi": True,
                    "current": {"text": "All", "value": "$__all"},
                    "refresh": 1,
                },
            ]
        },
        "panels": panels,
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DASHBOARD.write_text(text())

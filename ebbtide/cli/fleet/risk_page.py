"""``fleet what-if --html``: a `FleetWhatIf` as one self-contained page, without a script.

The verdict comes first, then the terminal's tables, each with the worst first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ebbtide import __version__
from ebbtide.cli.common.output import struct_cells
from ebbtide.cli.fleet.fleet_risk import FleetWhatIf, Night
from ebbtide.events.units import span_s
from ebbtide.replay.report.markup import Markup, counted, escaped, grouped, join, section, table, tag
from ebbtide.replay.report.page import filled, resource, whole_page

#: Lines of a table: a fleet may have a hundred thousand nodes, and no browser opens such a page.
LINES_MAX = 500
#: Pods of a night.
PODS_MAX = 6
#: Lines of a table on paper, as risk.css has them.
PRINTED_MAX = 15


def risk_page(found: FleetWhatIf) -> str:
    same = "Nothing changes for any."
    no_pools = "No journal knows its node's pool: --pools FILE names them."
    no_gate = "No gate was set: --gate lost=0 makes the exit code 1 where a pod would be lost."
    all_asked = "Every shutdown of every journal was asked."
    no_night = "No shutdown would have lost a pod."
    sections = join(
        _section("gates", "Gates", found.gates, no_gate),
        _section("pools", "Node pools", found.pools or [], no_pools if found.pools is None else same),
        _section("workloads", "Workloads", found.workloads, same),
        _section("nodes", "Nodes", found.nodes, same),
        _section("nights", "Worst nights", found.nights, no_night, found.nights_count),
        _section("not-asked", "Not asked", found.not_asked, all_asked),
    )
    footer = tag(
        "p",
        f"Made by Ebbtide {__version__}, which decided each shutdown of {counted(found.journals, 'journal')}"
        " again. What a record leaves open is “perhaps”. ",
        tag("code", "ebbtide replay what-if"),
        " explains a shutdown that is named here.",
    )
    style = resource("page.css") + resource("risk.css")
    return whole_page(
        headline(found), filled("risk.html", {"header": _header(found), "sections": sections}), footer, style
    )


def headline(found: FleetWhatIf) -> str:
    lost, saved = _interval(found.lost, found.perhaps_lost), _interval(found.saved, found.perhaps_saved)
    if not found.asked:
        return "No shutdown could be asked: the effect of this configuration is unknown."
    if found.lost or found.perhaps_lost:
        pods = "pod" if lost == "1" else "pods"
        return f"This configuration would have lost {lost} {pods}, and saved {saved}."
    if found.saved or found.perhaps_saved:
        return f"This configuration would have lost no pod, and saved {saved}."
    return "No pod would have ended otherwise under this configuration."


def _interval(certain: int, perhaps: int) -> str:
    if not perhaps:
        return grouped(certain) if certain else "none"
    return f"{grouped(certain)} to {grouped(certain + perhaps)}"


def _header(found: FleetWhatIf) -> Markup:
    failed = [gate for gate in found.gates if not gate.holds]
    sign, kind = "✓", "good"
    if found.perhaps_lost or found.not_asked_count or not found.asked:
        sign, kind = "!", "mixed"
    if found.lost or failed:
        sign, kind = "✕", "bad"
    lede = ["No gate was set." if not found.gates else "Every gate holds."]
    if failed:
        lede = [
            f"Gates that do not hold: {', '.join(f'{each.gate} (found: {each.found})' for each in failed)}."
        ]
    if found.not_asked_count:
        unasked = counted(found.not_asked_count, "shutdown or journal", "shutdowns and journals")
        lede.append(f"{unasked} could not be asked.")
    periods = ", ".join(f"priority {each.priority}: {span_s(each.seconds)}" for each in found.periods)
    facts = [
        ("Changed", ", ".join(found.changed)),
        ("Periods", periods or "none"),
        ("Journals", grouped(found.journals)),
        ("Shutdowns", f"{grouped(found.asked)} of {grouped(found.shutdowns)} decided again"),
        ("Unchanged", grouped(found.same)),
        ("Pods", grouped(found.pods)),
    ]
    return join(
        tag("p", "Risk report of a fleet", class_="kicker"),
        tag("h1", tag("span", sign, class_=f"seal {kind}", aria_hidden="true"), headline(found)),
        tag("p", " ".join(lede), class_="lede"),
        tag("dl", *(join(tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts"),
    )


def _section(name: str, title: str, rows: Sequence[Any], none: str, count: int = 0) -> Markup:
    """``count``: of the rows that the fleet had, if more than ``rows``."""
    count = max(count, len(rows))
    heading = Markup(f"{escaped(title)} {tag('small', grouped(count))}")
    if not rows:
        return section(name, heading, tag("p", none, class_="none"))
    shown = rows[:LINES_MAX]
    headings, cells = struct_cells(shown)
    names = [each.text.capitalize() for each in headings]
    if isinstance(shown[0], Night):
        names.append("Pods")
        cells = [[*row, _pods_text(night)] for row, night in zip(cells, shown, strict=True)]
    made = table(f"{title}, the worst first", tuple(names), [tuple(row) for row in cells])
    left = count - len(shown)
    more = tag("p", f"The worst {grouped(len(shown))} and {grouped(left)} more.", class_="help")
    paper = tag("p", f"Printed are the first {PRINTED_MAX}.", class_="paper")
    return section(name, heading, made, *[more] * bool(left), *[paper] * (len(shown) > PRINTED_MAX))


def _pods_text(night: Night) -> str:
    shown = [f"{each.change.replace('-', ' ')}: {each.pod}" for each in night.pods[:PODS_MAX]]
    left = len(night.pods) - len(shown)
    return "; ".join(shown) + (f"; and {grouped(left)} more" if left else "")

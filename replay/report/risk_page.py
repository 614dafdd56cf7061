"""What another configuration would have done to a fleet, as one self-contained page.

Without a script. The verdict comes first: pods saved, lost and perhaps, and the gates; then by pool, workload
and node, each the worst first, the worst nights, and the journals left out. All of it is the document of
``fleet what-if -o json``, with its names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ebbtide.events.units import span_s
from ebbtide.replay.report.markup import (
    Markup,
    counted,
    escaped,
    grouped,
    join,
    section,
    table,
    tag,
)
from ebbtide.replay.report.page import filled, resource, whole_page

Document = Mapping[str, Any]

#: Lines of a table, at most, the worst: a fleet may have a hundred thousand nodes, and no browser opens such
#: a page.
LINES_MAX = 500
#: Open pods of a night; the rest unfolds.
PODS_MAX = 6
#: Lines of a table on paper, as risk.css has them.
PRINTED_MAX = 15

#: Changes for a pod, by field in the document: its sign and its words, the worst first.
CHANGES = {
    "lost": ("✕", "lost"),
    "perhapsLost": ("✕?", "perhaps lost"),
    "saved": ("✓", "saved"),
    "perhapsSaved": ("✓?", "perhaps saved"),
}
#: The same for a pod of a night.
FIELDS = {words.replace(" ", "-"): field for field, (_, words) in CHANGES.items()}
#: Parts of the whole width of a bar.
BAR_SCALE, BAR_HEIGHT = 1000, 10


def risk_page(document: Document, reports: Mapping[tuple[str, str], str], version: str) -> str:
    """The whole page. ``document``: a `FleetWhatIf`. ``reports``: addresses of the nights' reports relative
    to this page, by journal and shutdown; a night without one has no link.
    """
    slots = {
        "header": _header(document),
        "figures": _figures(document),
        "gates": _gates(document),
        "pools": _pools(document),
        "workloads": _workloads(document),
        "nodes": _nodes(document),
        "nights": _nights(document, reports),
        "not-asked": _not_asked(document),
    }
    style = resource("page.css") + resource("risk.css")
    return whole_page(headline(document), filled("risk.html", slots), _footer(document, version), style)


# --- the verdict -------------------------------------------------------------------------------


def headline(document: Document) -> str:
    """The whole of it in a sentence."""
    lost = _interval(document["lost"], document["perhapsLost"])
    saved = _interval(document["saved"], document["perhapsSaved"])
    if not document["asked"]:
        return "No shutdown could be asked: nothing is known of this configuration."
    if document["lost"] or document["perhapsLost"]:
        pods = "pod" if lost == "1" else "pods"
        return f"This configuration would have lost {lost} {pods}, and saved {saved}."
    if document["saved"] or document["perhapsSaved"]:
        return f"This configuration would have lost no pod, and saved {saved}."
    return "No pod would have ended otherwise under this configuration."


def _interval(certain: int, perhaps: int) -> str:
    if not perhaps:
        return grouped(certain) if certain else "none"
    return f"{grouped(certain)} to {grouped(certain + perhaps)}"


def _seal(document: Document) -> tuple[str, str]:
    if document["lost"] or not all(gate["holds"] for gate in document["gates"]):
        return "✕", "bad"
    if document["perhapsLost"] or document["notAskedCount"] or not document["asked"]:
        return "!", "mixed"
    return "✓", "good"


def _lede(document: Document) -> str:
    """The gates' verdict, and the share of the fleet behind it."""
    gates = document["gates"]
    failed = [gate for gate in gates if not gate["holds"]]
    if failed:
        told = ", ".join(f"{gate['gate']} (found: {_found(gate, document)})" for gate in failed)
        parts = [f"{'The gate does' if len(failed) == 1 else 'Gates do'} not hold: {told}."]
    elif gates:
        parts = [f"{'The gate holds' if len(gates) == 1 else f'All {len(gates)} gates hold'}."]
    else:
        parts = ["No gate was set."]
    if document["notAskedCount"]:
        unasked = counted(document["notAskedCount"], "shutdown or journal", "shutdowns and journals")
        parts.append(f"{unasked} could not be asked.")
    return " ".join(parts)


def _found(gate: Document, document: Document) -> str:
    return grouped(gate["found"]) if document["asked"] else "nothing, since nothing was asked"


def _header(document: Document) -> Markup:
    sign, kind = _seal(document)
    periods = ", ".join(
        f"priority {each['priority']}: {span_s(each['seconds'])}" for each in document["periods"]
    )
    facts: list[tuple[str, object]] = [
        ("Changed", ", ".join(document["changed"])),
        ("Periods", periods or "none"),
        ("Journals", grouped(document["journals"])),
        ("Shutdowns", f"{grouped(document['asked'])} of {grouped(document['shutdowns'])} decided anew"),
    ]
    pairs = [join(tag("dt", name), tag("dd", value)) for name, value in facts]
    return join(
        tag("p", "Risk report of a fleet", class_="kicker"),
        tag("h1", tag("span", sign, class_=f"seal {kind}", aria_hidden="true"), headline(document)),
        tag("p", _lede(document), class_="lede"),
        tag("dl", *pairs, class_="facts"),
    )


def _figures(document: Document) -> Markup:
    """The most important numbers."""
    pods = f"of {counted(document['pods'], 'pod')}"
    rows = [(f"{sign} {words}", document[field], pods) for field, (sign, words) in CHANGES.items()]
    rows.append(("Unchanged shutdowns", document["same"], f"of {grouped(document['asked'])} asked"))
    rows.append(("Not asked", document["notAskedCount"], "shutdowns and journals"))
    boxes = [
        tag("div", tag("dt", name), tag("dd", grouped(value)), tag("dd", note, class_="note"))
        for name, value, note in rows
    ]
    return tag("dl", *boxes, class_="figures")


def _gates(document: Document) -> Markup:
    items = []
    for gate in document["gates"]:
        name, _, most = gate["gate"].partition("=")
        sign, kind = ("✓", "good") if gate["holds"] else ("✕", "bad")
        words = f"{name.replace('-', ' ')}: at most {grouped(int(most))}, found {_found(gate, document)}: "
        outcome = "holds" if gate["holds"] else "does not hold"
        mark = tag("span", tag("span", sign, aria_hidden="true"), f" {outcome}", class_=f"fate {kind}")
        items.append(tag("li", tag("span", words, class_="what"), mark))
    if not items:
        none = "No gate was set: --gate lost=0 makes the exit code 1 where a pod would be lost."
        return section("gates", "Gates", tag("p", none, class_="none"))
    return section("gates", "Gates", tag("ul", *items, class_="notices"))


# --- whom it hits ------------------------------------------------------------------------------


def _pools(document: Document) -> Markup:
    pools = document["pools"]
    if pools is None:
        none = "No journal knows its node's pool: --pools FILE tells which node is of which."
        return section("pools", "Node pools", tag("p", none, class_="none"))

    def cells(each: Document) -> tuple[object, ...]:
        name = "in no pool that was named" if each["pool"] is None else each["pool"]
        return (name, grouped(each["shutdowns"]), grouped(each["pods"]))

    return _changed("pools", "Node pools", ("Pool", "Shutdowns", "Pods"), pools, cells)


def _workloads(document: Document) -> Markup:
    def cells(each: Document) -> tuple[object, ...]:
        return (each["workload"], "–" if each["priority"] is None else each["priority"])

    return _changed("workloads", "Workloads", ("Workload", "Priority"), document["workloads"], cells)


def _nodes(document: Document) -> Markup:
    nodes = document["nodes"]
    if not any(each["cluster"] for each in nodes):
        return _changed("nodes", "Nodes", ("Node",), nodes, lambda each: (each["node"],))
    names = ("Cluster", "Node")
    return _changed("nodes", "Nodes", names, nodes, lambda each: (each["cluster"] or "", each["node"]))


def _changed(
    name: str,
    title: str,
    headings: tuple[str, ...],
    found: Sequence[Document],
    cells: Callable[[Document], tuple[object, ...]],
) -> Markup:
    """A line each, the worst first, with bars to one scale."""
    heading = Markup(f"{escaped(title)} {tag('small', grouped(len(found)))}")
    if not found:
        return section(name, heading, tag("p", "Nothing changes for any.", class_="none"))
    longest = max(1, *(sum(each[field] for field in CHANGES) for each in found))
    rows = [
        (*cells(each), *(grouped(each[field]) for field in CHANGES), _bar(each, longest))
        for each in found[:LINES_MAX]
    ]
    columns = (*headings, *(words.capitalize() for _, words in CHANGES.values()), "Share")
    made = table(f"{title}, the worst first", columns, rows)
    return section(name, heading, _legend(), made, _more(len(found)))


def _legend() -> Markup:
    items = []
    for field, (sign, words) in CHANGES.items():
        box = tag("rect", y=2, width=22, height=10, class_=f"f-{field}")
        picture = tag("svg", box, width=22, height=14, aria_hidden="true")
        items.append(tag("li", picture, f"{sign} {words}"))
    return tag("ul", *items, class_="legend")


def _bar(each: Document, longest: int) -> Markup:
    """How many of each kind, side by side; the numbers beside it say the same."""
    parts, left = [tag("rect", width=BAR_SCALE, height=BAR_HEIGHT, class_="rest")], 0
    for field in CHANGES:
        if count := each[field]:
            # Even a single one is visible.
            width = max(4, BAR_SCALE * count // longest)
            parts.append(tag("rect", x=left, width=width, height=BAR_HEIGHT, class_=f"f-{field}"))
            left += width
    box = f"0 0 {BAR_SCALE} {BAR_HEIGHT}"
    return tag("svg", *parts, viewBox=box, preserveAspectRatio="none", class_="share", aria_hidden="true")


def _more(count: int) -> Markup:
    """The lines that a table leaves out: on the page, and on paper."""
    left = f" and {grouped(count - LINES_MAX)} more, which -o json has" if count > LINES_MAX else ""
    text = tag("p", f"The worst {grouped(LINES_MAX)}{left}.", class_="help") if left else Markup("")
    return (
        join(text, tag("p", f"Printed are the first {PRINTED_MAX}.", class_="paper"))
        if count > PRINTED_MAX
        else text
    )


def _nights(document: Document, reports: Mapping[tuple[str, str], str]) -> Markup:
    """The costliest shutdowns, each with its pods and its report, if there is one."""
    nights = document["nights"]
    title = Markup(f"Worst nights {tag('small', grouped(document['nightsCount']))}")
    if not nights:
        return section("nights", title, tag("p", "No shutdown would have lost a pod.", class_="none"))
    rows = []
    for night in nights:
        address = reports.get((night["journalId"], night["shutdown"]))
        name = tag("code", night["shutdown"])
        counts = [sum(FIELDS[pod["change"]] == field for pod in night["pods"]) for field in CHANGES]
        started = night["started"]
        rows.append(
            (
                night["node"],
                name if address is None else tag("a", name, href=address),
                tag("time", f"{started[:10]} {started[11:19]} UTC", datetime=started),
                *map(grouped, counts),
                _pods_of(night),
                night["location"],
            )
        )
    headings = ("Node", "Shutdown", "Started", *(words.capitalize() for _, words in CHANGES.values()))
    made = table("Shutdowns by what they would cost", (*headings, "Pods", "Journal"), rows)
    left = document["nightsCount"] - len(nights)
    said = [f"{counted(left, 'night')} that would cost less: left out."] if left else []
    if not reports:
        said.append("No reports were written: --reports DIR writes that of each night beside this page.")
    elif without := len(nights) - sum((each["journalId"], each["shutdown"]) in reports for each in nights):
        said.append(f"{counted(without, 'report')} could not be made.")
    text = tag("p", " ".join(said), class_="help") if said else Markup("")
    return section("nights", title, made, text, _more(len(nights)))


def _pods_of(night: Document) -> Markup:
    """The lost ones first."""
    order = list(FIELDS.values())
    found = sorted(night["pods"], key=lambda pod: (order.index(FIELDS[pod["change"]]), pod["pod"]))
    items = []
    for pod in found:
        field = FIELDS[pod["change"]]
        sign, words = CHANGES[field]
        mark = tag("span", tag("span", sign, aria_hidden="true"), f" {words}", class_=f"fate {field}")
        items.append(tag("li", mark, f" {pod['pod']}"))
    shown, rest = items[:PODS_MAX], items[PODS_MAX:]
    if not rest:
        return tag("ul", *shown)
    unfold = tag("summary", f"and {counted(len(rest), 'more', 'more')}")
    return join(tag("ul", *shown), tag("details", unfold, tag("ul", *rest), class_="more"))


def _not_asked(document: Document) -> Markup:
    """The journals that this page leaves out, each with its reason; a torn tail is only mentioned."""
    found = document["notAsked"]
    title = Markup(f"Not asked {tag('small', grouped(document['notAskedCount']))}")
    if not found:
        return section(
            "not-asked", title, tag("p", "Every shutdown of every journal was asked.", class_="none")
        )
    rows = [
        (
            each["node"] or "–",
            "the journal" if each["shutdown"] is None else tag("code", each["shutdown"]),
            each["state"] or "–",
            each["why"],
            each["location"],
        )
        for each in found[:LINES_MAX]
    ]
    made = table(
        "Shutdowns that could not be decided anew, and journals that are not whole",
        ("Node", "Shutdown", "State", "Why", "Journal"),
        rows,
    )
    return section("not-asked", title, made, _more(len(found)))


def _footer(document: Document, version: str) -> Markup:
    return tag(
        "p",
        f"Made from {counted(document['journals'], 'journal')} by Ebbtide {version}, which decided each"
        " shutdown anew. What a record leaves open is “perhaps”. ",
        tag("code", "ebbtide replay what-if"),
        " tells all of one that is named here.",
    )

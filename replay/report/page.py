"""A shutdown as one self-contained page, which makes no request.

Its content policy allows this script and this style by their hashes: a name that got through as markup could
neither run nor load anything.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

import msgspec
from msgspec.structs import replace

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.messages import Names, shortened_list
from ebbtide.events.record import shutdown_record
from ebbtide.events.record.causes import (
    BAD_FATES,
    KIND_TEXTS,
    CauseGroup,
    RootCause,
    cause_tree,
    fates_text,
    headline,
)
from ebbtide.events.record.format import visible
from ebbtide.events.record.outage_record import OutageRecord
from ebbtide.events.record.shutdown_record import SIGNS
from ebbtide.events.units import span, span_s
from ebbtide.replay.advise import curve_text, wave_curves
from ebbtide.replay.report.markup import (
    NS_PER_US,
    PAGE_BYTES_MAX,
    Markup,
    PageTooLarge,
    at,
    counted,
    escaped,
    figures,
    fitting,
    frame,
    grouped,
    join,
    moment,
    page_head,
    section,
    sign_of,
    size_of,
    table,
    tag,
    time_of,
)
from ebbtide.replay.time_spent import Chain, Segment, critical_chain
from ebbtide.replay.timeline import Line, one_line

#: In JSON inside HTML these could end the element, or begin a comment.
SCRIPT_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


POLICY = "img-src data:; base-uri 'none'; form-action 'none'"


def report(shutdown: shutdown_record.ShutdownRecord, lines: Iterable[Line], started: str) -> str:
    """``lines``: all of the shutdown's. ``started``: the signal's time, RFC 3339."""
    found = critical_chain(shutdown)
    data = chart(shutdown, lines, holders(found))
    slots = {
        "header": header_section(shutdown, started, held_up(shutdown, found)),
        "damage": damage_section(shutdown.damage),
        "warnings": notices_section(shutdown),
        "figures": figures_section(shutdown),
        "chain": chain_section("What took the time", found, held_up(shutdown, found)),
        "waves": waves_section(shutdown),
        "pods": pods_section(shutdown),
        "pod-count": counted(len(shutdown.pods), "pod"),
        "settings": settings_section(shutdown),
        "course": progress_section(shutdown),
        "event-count": grouped(len(data["events"]["seq"])),
        "last-seq": str(shutdown.last_seq),
        "first-seq": str(shutdown.first_seq),
    }
    style, script = resource("page.css"), resource("timeline.js") + resource("page.js")
    title = f"{KIND_TEXTS[shutdown.kind]} of {shutdown.node}: {fates_text(shutdown)}"
    body = filled("page.html", slots)
    return whole_page(title, body, journal_footer(shutdown), style, script, as_script(data))


def journal_footer(episode: shutdown_record.ShutdownRecord | OutageRecord) -> Markup:
    made = join(
        escaped("Made from the journal "),
        tag("code", episode.journal_id),
        escaped(
            f", written by Ebbtide {episode.version}. Everything here is a function of the facts on record: "
        ),
        tag("code", f"ebbtide replay verify {episode.id}"),
        escaped(" proves it."),
    )
    return tag("p", made)


def whole_page(title: str, body: str, footer: Markup, style: str, script: str = "", data: str = "") -> str:
    """Its content policy allows only this style and this script."""
    scripts = f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script>\n'
    runs = f"script-src {_hash(script)}; " if script else ""
    slots = {
        "policy": f"default-src 'none'; {runs}style-src {_hash(style)}; {POLICY}",
        "title": escaped(title),
        "style": style,
        "body": body,
        "footer": footer,
        "scripts": scripts if script else "",
    }
    return filled("frame.html", slots)


def filled(skeleton: str, slots: Mapping[str, str]) -> str:
    """Fills each ``{{slot}}`` of a skeleton's file."""
    # Never look at a slot's content again: `str.replace` would also fill a pod's name ``{{data}}``.
    parts = resource(skeleton).split("{{")
    made = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}}")
        made += (slots[name], rest)
    if sum(map(size_of, made)) > PAGE_BYTES_MAX:
        raise PageTooLarge
    return "".join(made)


def as_script(data: dict[str, Any]) -> str:
    made = fitting(msgspec.json.encode(data)).decode()
    for sign, escape in SCRIPT_ESCAPES.items():
        made = made.replace(sign, escape)
    return made


def resource(name: str) -> str:
    return files("ebbtide.replay.report").joinpath(name).read_text(encoding="utf-8")


def _hash(body: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"


#: The rest unfolds.
NOTICES_MAX = 8


#: The most serious come first. The script gets a fate, and its sign, by its place here.
FATES: tuple[shutdown_record.Fate, ...] = (*BAD_FATES, "rejected", "graceful", "spared", "goes-on")


def worst_first(pods: Iterable[shutdown_record.PodRecord]) -> list[shutdown_record.PodRecord]:
    """The order of the page's table and of its data."""
    return sorted(pods, key=lambda pod: FATES.index(pod.fate))


def outcome_badge(name: shutdown_record.Fate) -> Markup:
    return tag("span", tag("span", SIGNS[name], aria_hidden="true"), f" {name}", class_=f"fate {name}")


def header_section(shutdown: shutdown_record.ShutdownRecord, started: str, held: str) -> Markup:
    """``held``: the longest stage, in a sentence."""
    facts: list[tuple[str, object]] = [
        ("First record" if shutdown.headless else "Signal", time_of(started, id="signal")),
        ("Node", shutdown.node),
        ("Shutdown", tag("code", shutdown.id)),
        ("Trace", tag("code", shutdown.trace_id)),
    ]
    if shutdown.asked_by_uid is not None or shutdown.wall_message:
        where = f" on {shutdown.asked_tty}" if shutdown.asked_tty else ""
        who = "" if shutdown.asked_by_uid is None else f"uid {shutdown.asked_by_uid}{where}"
        message = f"“{shutdown.wall_message}”" if shutdown.wall_message else ""
        facts.append(("Asked for by", ": ".join(part for part in (who, message) if part)))
    by = shutdown.by
    if by.means:
        means = f"{by.means} ({by.reason})"
        if by.handed_over_ns is not None:
            means += f"; handed over at {moment(by.handed_over_ns)}: {by.handed_over_reason}"
        facts.append(("Means", means))
        if by.certificate is not None:
            facts.append(("Safe to detach", "yes" if by.certificate.safe else "no"))
    kicker = f"Shutdown report · {shutdown.node} · {KIND_TEXTS[shutdown.kind]}"
    return page_head(kicker, shutdown.severity, headline(shutdown), held, facts)


def damage_section(damage: shutdown_record.DamageRecord | None) -> Markup:
    """Empty for an intact journal."""
    if damage is None:
        return Markup("")
    return tag("p", f"⚠ {damage.state}: {damage.banner}", class_="damage", role="note")


def notice_texts(at_ns: int, seq: int, code: str, text: str) -> Markup:
    when = join(at(at_ns), escaped(f" · record {seq} · {code}"))
    return join(tag("span", text, class_="what"), Markup(" "), tag("span", when, class_="when"))


def notices_section(shutdown: shutdown_record.ShutdownRecord) -> Markup:
    """Every root cause with its cure, never folded away; its warnings unfold. Then the remarks."""
    roots = cause_tree(shutdown)
    if not roots:
        return Markup("")
    causes = [root for root in roots if root.level != "remark"]
    remarks = [_cause_item(root) for root in roots if root.level == "remark"]
    items = [*map(_root_item, causes), *remarks[:NOTICES_MAX]]
    parts = [tag("ul", *items, class_="notices")]
    if more := remarks[NOTICES_MAX:]:
        unfold = tag("summary", f"and {counted(len(more), 'more', 'more')}")
        parts.append(tag("details", unfold, tag("ul", *more, class_="notices"), class_="more"))
    count = sum(max(1, len(each.notices)) for root in roots for each in root.every)
    title = f"{counted(len(causes), 'cause')}, {counted(count, 'warning')}" if causes else ""
    return section("warnings", title or counted(count, "warning"), *parts)


def _root_item(root: RootCause) -> Markup:
    what = tag("span", root.text, class_="what")
    cure = tag("p", f"do: {root.do}", class_="do")
    own = [replace(root, within=())] if root.notices else []
    below = tag("ul", *map(_cause_item, (*own, *root.within)), class_="notices")
    unfold = tag("summary", counted(sum(max(1, len(each.notices)) for each in root.every), "warning"))
    return tag("li", sign_of(root.severity), " ", what, cure, tag("details", unfold, below, class_="more"))


def _cause_item(group: CauseGroup) -> Markup:
    sign = sign_of(group.severity)
    if len(group.notices) == 1:
        (only,) = group.notices
        return tag("li", sign, " ", notice_texts(only.at_ns, only.seq, only.code, group.text))
    if not group.notices:  # as for pods without a fate on record
        return tag("li", sign, " ", tag("span", group.text, class_="what"))
    items = [tag("li", notice_texts(each.at_ns, each.seq, each.code, each.text)) for each in group.notices]
    count = tag("span", counted(len(items), "warning"), class_="when")
    unfold = tag("summary", sign, " ", tag("span", group.text, class_="what"), " ", count)
    return tag("li", tag("details", unfold, tag("ul", *items, class_="notices"), class_="more"))


def figures_section(shutdown: shutdown_record.ShutdownRecord) -> Markup:
    if shutdown.ended_ns is None or shutdown.headless:
        name, length_ns = "On record", shutdown.last_ns
    else:
        name = "Signal to release" if shutdown.outcome == "complete" else "Signal to its end"
        length_ns = shutdown.ended_ns
    used = f"{100 * length_ns // shutdown.budget_ns} % used" if shutdown.budget_ns else ""
    configured = shutdown.configuration
    reserve = f", {span(configured.reserve_ns)} of it in reserve" if configured.reserve_ns else ""
    asked_for = f"asked {span(configured.requested_ns + configured.reserve_ns)}{reserve}"
    rows = [(name, span(length_ns), "")]
    # Without its begin, a record has no decisions of that time.
    if not shutdown.headless:
        rows.append(("Budget", span(shutdown.budget_ns), used))
        rows.append(("Grant of logind", span(shutdown.grant_ns), asked_for))
    counts = ((fate, shutdown.count(fate)) for fate in FATES)
    of_all = f"of {counted(len(shutdown.pods), 'pod')}"
    rows += [(f"{SIGNS[fate]} {fate}", grouped(count), of_all) for fate, count in counts if count]
    return figures(rows)


def waves_section(shutdown: shutdown_record.ShutdownRecord) -> Markup:
    if not shutdown.waves:
        return section("waves", "Waves", tag("p", "No plan was made.", class_="none"))
    labels = {pod.uid: pod.label for pod in shutdown.pods}
    rows = []
    for wave in shutdown.waves:
        took = "–" if (taken_ns := shutdown_record.took_ns(wave)) is None else span(taken_ns)
        given_ns = wave.planned_ns if wave.period_ns is None else wave.period_ns
        more = f" (planned {span(wave.planned_ns)})" if given_ns != wave.planned_ns else ""
        late = shortened_list([labels.get(uid, uid) for uid in wave.stragglers])
        cells = (
            wave.index,
            wave.priority,
            len(wave.pods),
            span(given_ns) + more,
            at(wave.began_ns),
            took,
            span(wave.unused_ns) if wave.unused_ns else "–",
            shutdown_record.wave_outcome_text(wave, shutdown),
            late or "–",
        )
        rows.append(cells)
    headings = ("Wave", "Priority", "Pods", "Period", "Began", "Took", "Unused", "Outcome", "Late")
    items = [tag("li", f"wave {wave}: {curve_text(times)}") for wave, times in wave_curves(shutdown).items()]
    lede = tag("p", "Stops that end by themselves, by the seconds of their wave:")
    curves = (lede, tag("ul", *items)) if items else ()
    return section("waves", "Waves", table("Waves in their order", headings, rows), *curves)


BAR_SCALE = 1000
BAR_HEIGHT = 6


def held_up(shutdown: shutdown_record.ShutdownRecord, chain: Chain) -> str:
    """The longest stage and its pod, in a sentence; empty if no stage took time."""
    longest = max(chain.segments, key=lambda segment: segment.took_ns, default=None)
    if longest is None:
        return ""
    names = {pod.uid: pod.label for pod in shutdown.pods}
    pods = [names[each.uid] for each in longest.within if each.what == "pod" and each.uid in names]
    what = f"wave {longest.wave}" if longest.what == "wave" else f"“{longest.text}”"
    several = [each.text for each in longest.within if each.what == "several"]
    who = f", held by {pods[-1]}" if pods else "".join(f"; {text}" for text in several)
    return f"The longest of it was {what}: {span(longest.took_ns)} of {span(chain.total_ns)}{who}."


def holders(chain: Chain) -> tuple[str, ...]:
    """UIDs of its pods."""
    return tuple(each.uid for segment in chain.segments for each in segment.within if each.what == "pod")


def chain_section(title: str, chain: Chain, lede: str = "") -> Markup:
    if not chain.segments:
        return section("chain", title, tag("p", "No stage took any time.", class_="none"))
    total = f"Stages follow each other and add up to {span(chain.total_ns)}. {lede}".rstrip()
    away = [
        f"No daemon ran for {span(each.ended_ns - each.began_ns)}, from {moment(each.began_ns)} on."
        for each in chain.daemon_away
    ]
    beside = (tag("ul", *(tag("li", sentence) for sentence in away)),) if away else ()
    items = tag("ol", *(_chain_item(each, chain.total_ns) for each in chain.segments), class_="chain")
    return section("chain", title, tag("p", total), items, *beside)


def _chain_item(segment: Segment, total_ns: int) -> Markup:
    sentence = tag("span", segment.text, class_="what")
    when = tag("span", f"{span(segment.took_ns)}", class_="took")
    since = tag("span", at(segment.began_ns), class_="when")
    within = [_chain_item(each, total_ns) for each in segment.within]
    inner = (tag("ol", *within),) if within else ()
    # The shortest stage is two parts wide: an invisible bar would mean "no time".
    left = BAR_SCALE * segment.began_ns // total_ns
    width = max(2, BAR_SCALE * segment.took_ns // total_ns)
    ground = tag("rect", width=BAR_SCALE, height=BAR_HEIGHT, class_="rest")
    filled = tag("rect", x=left, width=width, height=BAR_HEIGHT)
    box = f"0 0 {BAR_SCALE} {BAR_HEIGHT}"
    chain_bar = tag("svg", ground, filled, viewBox=box, preserveAspectRatio="none", aria_hidden="true")
    return tag("li", tag("div", when, sentence, since, chain_bar), *inner)


# The table of pods is markup: the browser's search finds a pod, and the table prints without a script.

POD_HEADINGS = (
    ("Pod", "text"),
    ("Wave", "number"),
    ("Grace", "number"),
    ("Outcome", "text"),
    ("Took", "number"),
)


def pods_section(shutdown: shutdown_record.ShutdownRecord) -> Markup:
    """The script relies on this order."""
    sorts = [
        tag(
            "th",
            tag("button", name, type="button", class_="sort"),
            scope="col",
            data_kind=kind,
            aria_sort="none",
        )
        for name, kind in POD_HEADINGS
    ]
    head = tag("tr", *sorts, tag("th", "Why", scope="col"))
    rows = (_pod_row(shutdown, pod) for pod in worst_first(shutdown.pods))
    body = tag("tbody", *rows, id="pod-rows")
    caption = tag("caption", "Pods, their fate and why")
    made = tag("table", caption, tag("thead", head), body, id="pod-table", class_="pods")
    return frame(made, "Table of pods", len(shutdown.pods))


def _pod_row(shutdown: shutdown_record.ShutdownRecord, pod: shutdown_record.PodRecord) -> Markup:
    took_ns, took = -1, escaped("–") if pod.rejected_ns is None else join(Markup("at "), at(pod.rejected_ns))
    if pod.began_ns is not None:
        took_ns = (shutdown.last_ns if pod.ended_ns is None else pod.ended_ns) - pod.began_ns
        took = escaped(f"{'>' if pod.ended_ns is None else ''}{span(took_ns)}")
    # A pod has less than planned if its stop began late in its wave, and more from an elastic budget.
    had_ns = planned_ns = pod.grace_seconds * NS_PER_SECOND
    grace, sorts_as = span_s(pod.grace_seconds), str(pod.grace_seconds)
    if pod.grace_ns is not None and pod.grace_ns != planned_ns:
        had_ns, grace = pod.grace_ns, f"{span(pod.grace_ns)} (planned {grace})"
        sorts_as = f"{had_ns // NS_PER_SECOND}.{had_ns % NS_PER_SECOND // NS_PER_US:06d}"
    why = tag("span", pod.reason or "The record ends before its fate.", class_="why")
    return tag(
        "tr",
        tag("th", tag("bdi", pod.label, title=pod.label), " late" if pod.late else "", scope="row"),
        tag("td", pod.wave if pod.wave >= 0 else "–", data_v=pod.wave, data_l="wave "),
        tag("td", grace, data_v=sorts_as, data_l="grace "),
        tag("td", outcome_badge(pod.fate)),
        tag("td", took, data_v=took_ns // NS_PER_US),
        tag("td", why, _pod_details(shutdown, pod, had_ns)),
    )


def _pod_details(
    shutdown: shutdown_record.ShutdownRecord, pod: shutdown_record.PodRecord, had_ns: int
) -> Markup:
    """Empty for a pod of one container that ended when asked. ``had_ns``: its grace."""
    asked = pod.wanted_grace_seconds
    cut = asked is not None and asked * NS_PER_SECOND > had_ns and pod.wave >= 0
    remarks = (
        (cut, f"Its spec asks for {span_s(asked)}."),
        (pod.hurried_ns is not None, f"Hurried at {moment(pod.hurried_ns)}."),
        (bool(pod.means), f"Ended by means of {pod.means}."),
        (bool(pod.owner) and pod.fate == "killed", f"It belongs to {pod.owner}."),
        (bool(pod.refused), f"The API server did not take its delete: {pod.refused}."),
        (pod.unmounted_ns is not None, f"Its volumes were unmounted at {moment(pod.unmounted_ns)}."),
        (pod.fallback, "The fallback ended it, after a failure of its actor."),
    )
    stops = list(shutdown_record.stop_parts(pod, shutdown))
    parts = [
        f"{each.container}: {each.text}, from {moment(each.began_ns)}"
        + (f" to {moment(each.ended_ns)}" if each.seen else "")
        for each in stops
        if len(stops) > 1 or each.what == "killed"
    ]
    parts += [sentence for holds, sentence in remarks if holds]
    autopsies = [_autopsy_detail(each) for each in pod.autopsies]
    if not parts and not autopsies:
        return Markup("")
    summary = tag("summary", "Autopsy and details" if autopsies else "Details")
    items = tag("ul", *(tag("li", part) for part in parts)) if parts else Markup("")
    # Print only autopsies: people pass the page on for them.
    return tag("details", summary, *autopsies, items, data_print=bool(autopsies))


def _autopsy_detail(autopsy: shutdown_record.AutopsyRecord) -> Markup:
    headings = ("PID", "Command", "Doing", "Ignores", "Catches", "Connections")
    caption = f"Autopsy of {autopsy.container} at {moment(autopsy.at_ns)}, just before SIGKILL"
    rows = [
        (
            f"{process.pid} of {process.parent_pid}",
            process.command,
            process.state + (f" in {process.wait_channel}" if process.wait_channel else ""),
            ", ".join(process.signals_ignored) or "–",
            ", ".join(process.signals_caught) or "–",
            process.connections,
        )
        for process in autopsy.processes
    ]
    lines = [Markup(f"{escaped(line)}\n") for line in autopsy.last_lines]
    sentence = join(tag("p", "Its last words:"), tag("pre", *lines)) if lines else Markup("")
    return join(table(caption, headings, rows), sentence)


def settings_section(shutdown: shutdown_record.ShutdownRecord) -> Markup:
    configured = shutdown.configuration
    periods = ", ".join(f"priority {each.priority}: {span_s(each.seconds)}" for each in configured.periods)
    rows: list[tuple[object, ...]] = [
        ("Periods", periods or "none"),
        ("Requested in all", span(configured.requested_ns)),
        ("Granted by logind", span(shutdown.grant_ns)),
        ("Budget of the waves", span(shutdown.budget_ns)),
        ("Reserve", span(configured.reserve_ns)),
        ("Time left unused", "to the next wave" if configured.budget == "elastic" else "not used"),
        ("Sleep hooks", "honoured" if configured.sleep_action else "switched off by a feature gate"),
        ("Flushing statuses", f"at most {span(configured.status_flush_ns)}"),
        ("Deadline", moment(shutdown.deadline_ns)),
        ("Delay lock", "held" if shutdown.lock_held else "not held"),
        ("Overtime", "yes: logind's time was over" if shutdown.overtime else "no"),
    ]
    parts = [table("What applied to this shutdown", ("Setting", "Value"), rows)]
    # Do not guess: retention may have taken the record of the sources.
    if configured.sources:
        found = list(configured.sources.items())
        parts.append(table("Where the values came from", ("Field", "Source"), found))
    return section("settings", "Configuration and grant", *parts)


def progress_section(shutdown: shutdown_record.ShutdownRecord) -> Markup:
    parts = []
    beside = [
        (
            each.text,
            at(each.began_ns),
            span(each.ended_ns - each.began_ns) if each.ended_ns is not None else "not ended",
            each.result + (f": {each.reason}" if each.reason else ""),
        )
        for each in shutdown.beside
    ]
    if beside:
        parts.append(table("Beside the waves", ("What", "Began", "Took", "Result"), beside))
    daemons = []
    for each in shutdown.processes:
        found = f"{each.action} (found it {each.previous})" if each.previous else each.action
        started = "before the signal" if each.at_ns is None else at(each.at_ns)
        boot = tag("code", each.boot_id)
        daemons.append((started, each.pid, each.version, each.mode, boot, found or "–"))
    # The next boot's daemon only closes the shutdown.
    restarts = sum(each.at_ns is not None and not each.came_after for each in shutdown.processes)
    caption = (
        f"Daemons that wrote this shutdown: {counted(restarts, 'restart') if restarts else 'no restart'}"
    )
    parts.append(table(caption, ("Started", "PID", "Version", "Mode", "Boot", "What it did"), daemons))
    return section("course", "Restarts and the rest", *parts)


# The script's data, without the tables' content. Times are microseconds since the signal. Pods and events
# refer to each other by place: a UID is longer.


#: ``ebbtide journal show`` has the whole event.
TEXT_CHARACTERS_MAX, DATA_CHARACTERS_MAX = 200, 240


#: A wave: index, priority, begin, end, deadline, outcome. A hook: begin, end, latest end, kind, result. A
#: pod: label, wave, fate, begin, end, latest end, signals, kills, hurried, hooks, rejected, its group of
#: like failures (-1: it did not fail).
ChartRow = tuple[Any, ...]


#: Columns, because the page of a thousand pods must pass as an attachment. ``type`` and ``actor`` are places
#: in ``types`` and ``actors``; ``pod`` -1: no pod.
EVENT_COLUMNS = ("seq", "at", "cause", "type", "actor", "pod", "bad", "text", "data")


def _us(at_ns: int | None) -> int | None:
    return None if at_ns is None else at_ns // NS_PER_US


class TextIndex(dict[str, int]):
    """Distinct texts, in the order of their first use."""

    def place(self, value: str) -> int:
        return self.setdefault(value, len(self))


def chart(
    shutdown: shutdown_record.ShutdownRecord, lines: Iterable[Line], holders: Iterable[str]
) -> dict[str, Any]:
    """``holders`` are UIDs. In the result ``lines`` are marks across the timeline, and ``beside`` has each
    kind of order with its begins and ends.
    """
    pods = worst_first(shutdown.pods)
    index = {pod.uid: place for place, pod in enumerate(pods)}
    causes, alike = common_causes(shutdown), TextIndex()
    places = [alike.place(visible(causes[pod.uid])) if pod.uid in causes else -1 for pod in pods]
    # Only own processes: another boot has another clock.
    limits: list[tuple[str, int | None]] = [
        ("signal", 0),
        ("deadline", shutdown.deadline_ns or None),
        ("handed over", shutdown.by.handed_over_ns),
        ("cancelled", shutdown.cancelled_ns),
        ("released" if shutdown.outcome == "complete" else "closed", shutdown.ended_ns),
        *(("restart", each.at_ns) for each in shutdown.own_processes),
    ]
    orders: dict[str, list[tuple[int | None, int | None]]] = {}
    for beside in shutdown.beside:
        orders.setdefault(beside.text, []).append((_us(beside.began_ns), _us(beside.ended_ns)))
    return {
        "first": shutdown.first_seq,
        "started": shutdown.started_wall_ns // NS_PER_US,
        "last": shutdown.last_ns // NS_PER_US,
        "fates": FATES,
        "signs": [SIGNS[fate] for fate in FATES],
        "lines": [(name, at_ns // NS_PER_US) for name, at_ns in limits if at_ns is not None],
        "beside": list(orders.items()),
        "waves": [
            (of.index, of.priority, *map(_us, (of.began_ns, of.ended_ns, of.deadline_ns)), of.outcome)
            for of in shutdown.waves
        ],
        "pods": [_chart_pod(pod, place) for pod, place in zip(pods, places, strict=True)],
        "alike": list(alike),
        "holders": [index[uid] for uid in holders if uid in index],
        "events": _chart_events(shutdown, index, lines),
    }


def _chart_pod(pod: shutdown_record.PodRecord, alike: int) -> ChartRow:
    begun = [shutdown_record.stop_began_ns(each) for each in pod.containers]
    kills = [each.killed_ns for each in pod.containers]
    # The end of its grace, or of the shutdown's time.
    bound_ns = pod.kill_by_ns
    if pod.began_ns is not None and pod.grace_ns is not None:
        end_ns = pod.began_ns + pod.grace_ns
        bound_ns = end_ns if bound_ns is None else min(end_ns, bound_ns)
    hooks = [
        (
            *map(_us, (of.began_ns, of.ended_ns, of.until_ns)),
            of.kind,
            "early" if of.early else of.result or "open",
        )
        for of in pod.hooks
    ]
    return (
        *(visible(pod.label), pod.wave, FATES.index(pod.fate)),
        *map(_us, (pod.began_ns, pod.ended_ns, bound_ns)),
        *(sorted(at_ns // NS_PER_US for at_ns in each if at_ns is not None) for each in (begun, kills)),
        *(_us(pod.hurried_ns), hooks, _us(pod.rejected_ns), alike),
    )


def common_causes(shutdown: shutdown_record.ShutdownRecord) -> dict[str, str]:
    """By UID."""
    rejected = {pod.uid: pod.reason for pod in shutdown.pods if pod.outcome == "rejected"}
    roots = cause_tree(shutdown)
    return rejected | {uid: group.sentence for root in roots for group in root.fates for uid in group.pods}


def _chart_events(
    shutdown: shutdown_record.ShutdownRecord, index: dict[str, int], lines: Iterable[Line]
) -> dict[str, list[Any]]:
    names = Names({pod.uid: pod.label for pod in shutdown.pods})
    types, actors = TextIndex(), TextIndex()
    rows = [
        (
            *(line.seq, line.since_ns // NS_PER_US, line.cause),
            *(types.place(visible(line.type)), actors.place(visible(line.short))),
            *(index.get(line.uid, -1), int(line.bad), visible(_cut(line.text, TEXT_CHARACTERS_MAX))),
            visible(_cut(one_line(line.data, names), DATA_CHARACTERS_MAX)),
        )
        for line in lines
    ]
    columns = {name: [row[at] for row in rows] for at, name in enumerate(EVENT_COLUMNS)}
    return columns | {"types": list(types), "actors": list(actors)}


def _cut(sentence: str, length_max: int) -> str:
    return sentence if len(sentence) <= length_max else sentence[: length_max - 1] + "…"

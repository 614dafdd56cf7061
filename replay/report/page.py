"""A shutdown as one self-contained page: skeleton, style, script and data in one file.

It asks nobody for anything. A strict content policy allows this script and this style by their hashes, and
nothing else: a name that slipped through as markup could neither run nor load anything. Below, in the order
of the page: header, damage, warnings and figures, waves and hooks; the critical chain; the pods;
configuration and daemons; last the document, the compact JSON that the page's script draws.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable
from importlib.resources import files
from typing import Any, get_args

import msgspec

from ebbtide.events.decisions import PodOutcome
from ebbtide.events.model import ProcessReport
from ebbtide.events.record.model import (
    AutopsyRecord,
    ContainerRecord,
    HookRecord,
    Notice,
    PodRecord,
    ProcessRecord,
    ShutdownRecord,
    WaveRecord,
)
from ebbtide.events.record.stops import stop_began_ns
from ebbtide.replay.critical_chain import Chain, Segment, critical_chain
from ebbtide.replay.report.markup import (
    KIND_TEXTS,
    OUTCOME_TEXTS,
    Markup,
    Row,
    counted,
    escaped,
    fate,
    fates,
    frame,
    grouped,
    join,
    moment,
    outcome_seal,
    row,
    section,
    span,
    table,
    tag,
    verdict,
    visible,
)
from ebbtide.replay.timeline import Line

# Puts the page together: skeleton, style, script and data in one file that asks nobody for anything.
#
# A strict content policy allows this script and this style by their hashes, and nothing else: a name that
# slipped through as markup could neither run nor load anything.


#: In JSON inside of HTML these could end the element, or begin a comment.
SCRIPT_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def report(account: ShutdownRecord, lines: Iterable[Line], started: str) -> str:
    """The whole page. ``lines`` are all of the shutdown's, ``started`` is the signal's time (RFC 3339)."""
    found = critical_chain(account)
    data = document(account, lines, holders(found))
    style, script = _resource("page.css"), _resource("page.js")
    # Each ``{{slot}}`` of the skeleton once; what stands in a slot is never looked at again.
    skeleton = _resource("page.html")
    slots = {
        "policy": (
            f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        ),
        "title": escaped(f"{account.node}: {verdict(account)}"),
        "style": style,
        "header": header_section(account, started, held_up(account, found)),
        "damage": damage_section(account),
        "warnings": notices_section(account),
        "figures": figures_section(account),
        "chain": chain_section(account, found),
        "waves": waves_section(account),
        "pods": pods_section(account),
        "pod-count": counted(len(account.pods), "pod"),
        "hooks": hooks_section(account),
        "settings": settings_section(account),
        "course": progress_section(account),
        "event-count": grouped(len(data["events"]["seq"])),
        "last-seq": str(account.last_seq),
        "first-seq": str(account.first_seq),
        "episode": escaped(account.id),
        "version": escaped(account.version),
        "journal": escaped(account.journal_id),
        "data": as_script(data),
        "script": script,
    }
    parts = skeleton.split("{{")
    filled = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}}")
        filled += (slots[name], rest)
    return "".join(filled)


def as_script(data: Any) -> str:
    """JSON that can stand in a script element."""
    made = msgspec.json.encode(data).decode()
    for sign, escape in SCRIPT_ESCAPES.items():
        made = made.replace(sign, escape)
    return made


def _resource(name: str) -> str:
    return files("ebbtide.replay.report").joinpath(name).read_text(encoding="utf-8")


def _hash(body: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"


# The parts of the page around its pods: the verdict, damage, warnings, figures, waves, hooks.


#: So many stand open; the rest unfolds.
NOTICES_MAX = 8
LATE_MAX = 8


def outcome_badge(name: PodOutcome) -> Markup:
    """A fate as a word with its sign; its colour is only the third way to tell."""
    sign = tag("span", OUTCOME_TEXTS[name][2], aria_hidden="true")
    return tag("span", sign, f" {name}", class_=f"fate {name}")


def header_section(account: ShutdownRecord, started: str, held: str) -> Markup:
    """``started``: the signal's time, RFC 3339. ``held``: what took longest, in a sentence."""
    sentence, kind = outcome_seal(account)
    sign = tag("span", sentence, class_=f"seal {kind}", aria_hidden="true")
    what = tag("p", f"Shutdown report · {account.node} · {KIND_TEXTS[account.kind]}", class_="kicker")
    facts = tag(
        "dl",
        *_pair("Signal", tag("time", f"{started[:10]} {started[11:19]} UTC", datetime=started)),
        *_pair("Node", account.node),
        *_pair("Shutdown", tag("code", account.id)),
        *_pair("Trace", tag("code", account.trace_id)),
        *_asked_facts(account),
        *_termination_facts(account),
        class_="facts",
    )
    title = tag("h1", sign, verdict(account))
    return join(what, title, tag("p", f"{fates(account)} {held}", class_="lede"), facts)


def damage_section(account: ShutdownRecord) -> Markup:
    """The journal's verdict, before all that was told of it; nothing where it is intact."""
    if account.damage is None:
        return Markup("")
    return tag("p", f"⚠ {account.damage.state}: {account.damage.banner}", class_="damage", role="note")


def _asked_facts(account: ShutdownRecord) -> tuple[Markup, ...]:
    """Who scheduled it, where logind knew."""
    if account.asked_by_uid is None and not account.wall_message:
        return ()
    where = f" on {account.asked_tty}" if account.asked_tty else ""
    who = "" if account.asked_by_uid is None else f"uid {account.asked_by_uid}{where}"
    said = f"“{account.wall_message}”" if account.wall_message else ""
    return _pair("Asked for by", ": ".join(part for part in (who, said) if part))


def _termination_facts(account: ShutdownRecord) -> tuple[Markup, ...]:
    """Of a Kubernetes node: by which means, and what became of its volumes."""
    by = account.by
    if not by.means:
        return ()
    over = f"; handed over at {moment(by.handed_over_ns)}: {by.handed_over_reason}"
    means = f"{by.means} ({by.reason}){over if by.handed_over_ns is not None else ''}"
    found = () if by.certificate is None else _pair("Safe to detach", "yes" if by.certificate.safe else "no")
    return (*_pair("Means", means), *found)


def _pair(name: str, value: object) -> tuple[Markup, Markup]:
    return tag("dt", name), tag("dd", value)


def notices_section(account: ShutdownRecord) -> Markup:
    """What an operator should know, before everything else; nothing where there is nothing."""
    if not account.notices:
        return Markup("")
    items = [_notice(each) for each in account.notices]
    parts = [tag("ul", *items[:NOTICES_MAX], class_="notices")]
    if more := items[NOTICES_MAX:]:
        unfold = tag("summary", counted(len(more), "more warning"))
        parts.append(tag("details", unfold, tag("ul", *more, class_="notices"), data_print=True))
    return section("warnings", counted(len(items), "warning"), *parts)


def _notice(notice: Notice) -> Markup:
    when = tag("span", f"{moment(notice.at_ns)} · record {notice.seq} · {notice.code}", class_="when")
    return tag("li", tag("span", notice.text, class_="what"), " ", when)


def figures_section(account: ShutdownRecord) -> Markup:
    """The numbers one looks for first."""
    length_ns = account.last_ns if account.ended_ns is None else account.ended_ns
    share = 100 * length_ns // account.budget_ns if account.budget_ns else None
    # All that logind was asked to grant, or would have been.
    configured = account.configuration
    reserve = f", {span(configured.reserve_ns)} of it in reserve" if configured.reserve_ns else ""
    asked_for = f"asked {span(configured.requested_ns + configured.reserve_ns)}{reserve}"
    rows = [
        (_length_text(account), span(length_ns), ""),
        ("Budget", span(account.budget_ns), f"{share} % used" if share is not None else ""),
        ("Grant of logind", span(account.grant_ns), asked_for),
    ]
    for name, (_, _, sign) in OUTCOME_TEXTS.items():
        if count := account.count(name):
            rows.append((f"{sign} {name}", grouped(count), f"of {counted(len(account.pods), 'pod')}"))
    boxes = [_figure(*each) for each in rows]
    return tag("dl", *boxes, class_="figures")


def _length_text(account: ShutdownRecord) -> str:
    if account.ended_ns is None:
        return "On record"
    return "Signal to release" if account.outcome == "complete" else "Signal to its end"


def _figure(name: str, value: str, note: str) -> Markup:
    return tag("div", tag("dt", name), tag("dd", value), tag("dd", note, class_="note") if note else "")


def waves_section(account: ShutdownRecord) -> Markup:
    if not account.waves:
        return section("waves", "Waves", tag("p", "No plan was made.", class_="none"))
    labels = {pod.uid: pod.label for pod in account.pods}
    headings = ("Wave", "Priority", "Pods", "Period", "Began", "Took", "Unused", "Outcome", "Late")
    rows = [_wave_row(wave, labels) for wave in account.waves]
    return section("waves", "Waves", table("Waves in their order", headings, rows))


def _wave_row(wave: WaveRecord, labels: dict[str, str]) -> Row:
    took = "–"
    if wave.began_ns is not None and wave.ended_ns is not None:
        took = span(wave.ended_ns - wave.began_ns)
    given_ns = wave.planned_ns if wave.period_ns is None else wave.period_ns
    more = f" (planned {span(wave.planned_ns)})" if given_ns != wave.planned_ns else ""
    return row(
        wave.index,
        wave.priority,
        len(wave.pods),
        span(given_ns) + more,
        moment(wave.began_ns),
        took,
        span(wave.unused_ns) if wave.unused_ns else "–",
        wave.outcome,
        _late_pods([labels.get(uid, uid) for uid in wave.stragglers]),
    )


def _late_pods(names: list[str]) -> Markup:
    """The first of them by name; the rest unfolds."""
    if len(names) <= LATE_MAX + 1:
        return escaped(", ".join(names) or "–")
    unfold = tag("summary", f"and {counted(len(names) - LATE_MAX, 'more', 'more')}")
    rest = tag("details", unfold, ", ".join(names[LATE_MAX:]), data_print=True)
    return join(escaped(", ".join(names[:LATE_MAX])), rest)


def hooks_section(account: ShutdownRecord) -> Markup:
    """Every run of a hook, the longest first."""
    runs = [(pod, run) for pod in account.pods for run in pod.hooks]
    if not runs:
        return section("hooks", "Hooks", tag("p", "No preStop hook ran.", class_="none"))
    runs.sort(key=lambda each: -hook_length_ns(account, each[1]))
    headings = ("Pod", "Container", "Hook", "Began", "Took", "Allowed", "Result")
    rows = [
        (
            row(
                pod.label,
                run.container,
                f"{run.kind} {run.detail}".strip(),
                moment(run.began_ns),
                span(hook_length_ns(account, run)) if run.ended_ns is not None else "not ended",
                span(run.until_ns - run.began_ns),
                hook_result(run),
            )
        )
        for pod, run in runs
    ]
    return section("hooks", "Hooks", table("preStop hooks, the longest first", headings, rows))


def hook_length_ns(account: ShutdownRecord, run: HookRecord) -> int:
    """How long a hook ran; one without an end, as far as the record goes."""
    return (account.last_ns if run.ended_ns is None else run.ended_ns) - run.began_ns


def hook_result(run: HookRecord) -> str:
    sentence = f"{run.result or 'open'}{' early' if run.early else ''}"
    return f"{sentence}: {run.reason}" if run.reason else sentence


# The critical chain on the page: what the time went into, down to the hook that held a wave.


#: Parts of the whole width of a bar.
BAR_SCALE = 1000
BAR_HEIGHT = 6


def held_up(account: ShutdownRecord, chain: Chain) -> str:
    """The longest stage in a sentence, and who held it; empty where nothing took any time."""
    longest = max(chain.segments, key=lambda segment: segment.took_ns, default=None)
    if longest is None:
        return ""
    names = {pod.uid: pod.label for pod in account.pods}
    pods = [names[each.uid] for each in longest.within if each.what == "pod" and each.uid in names]
    what = f"wave {longest.wave}" if longest.what == "wave" else f"“{longest.text}”"
    who = f", held by {pods[-1]}" if pods else "".join(f"; {each.text}" for each in _named_segments(longest))
    return f"The longest of it was {what}: {span(longest.took_ns)} of {span(chain.total_ns)}{who}."


def _named_segments(segment: Segment) -> list[Segment]:
    """Where no single pod is known to have held it."""
    return [each for each in segment.within if each.what == "several"]


def holders(chain: Chain) -> tuple[str, ...]:
    """UIDs of the pods that the chain goes through."""
    return tuple(each.uid for segment in chain.segments for each in segment.within if each.what == "pod")


def chain_section(account: ShutdownRecord, found: Chain) -> Markup:
    title = "What took the time"
    if not found.segments:
        return section("chain", title, tag("p", "Nothing took any time.", class_="none"))
    items = [_chain_item(each, found.total_ns) for each in found.segments]
    said = tag(
        "p", f"Stages follow each other and add up to {span(found.total_ns)}. {held_up(account, found)}"
    )
    away = [
        tag(
            "li", f"No daemon ran for {span(each.ended_ns - each.began_ns)}, from {moment(each.began_ns)} on."
        )
        for each in found.away
    ]
    beside = (tag("ul", *away),) if away else ()
    return section("chain", title, said, tag("ol", *items, class_="chain"), *beside)


def _chain_item(segment: Segment, total_ns: int) -> Markup:
    sentence = tag("span", segment.text, class_="what")
    when = tag("span", f"{span(segment.took_ns)}", class_="took")
    since = tag("span", moment(segment.began_ns), class_="when")
    within = [_chain_item(each, total_ns) for each in segment.within]
    inner = (tag("ol", *within),) if within else ()
    # Where the segment lies in the whole; the numbers beside it say the same.
    left = BAR_SCALE * segment.began_ns // total_ns
    width = max(2, BAR_SCALE * segment.took_ns // total_ns)
    ground = tag("rect", width=BAR_SCALE, height=BAR_HEIGHT, class_="rest")
    filled = tag("rect", x=left, width=width, height=BAR_HEIGHT)
    box = f"0 0 {BAR_SCALE} {BAR_HEIGHT}"
    chain_bar = tag("svg", ground, filled, viewBox=box, preserveAspectRatio="none", aria_hidden="true")
    return tag("li", tag("div", when, sentence, since, chain_bar), *inner)


# The table of pods: each with its fate and why, and all that is known of it where one unfolds the row.
#
# It stands in the page as it is: it can be searched by the browser, printed and read where no script runs.


POD_HEADINGS = (
    ("Pod", "text"),
    ("Wave", "number"),
    ("Grace", "number"),
    ("Outcome", "text"),
    ("Took", "number"),
)


def pods_section(account: ShutdownRecord) -> Markup:
    """Rows in the order of ``account.pods``; the script finds them by this order."""
    head = tag(
        "tr",
        *(
            tag(
                "th",
                tag("button", name, type="button", class_="sort"),
                scope="col",
                data_kind=kind,
                aria_sort="none",
            )
            for name, kind in POD_HEADINGS
        ),
        tag("th", "Why", scope="col"),
    )
    body = tag("tbody", *(_pod_row(account, pod) for pod in account.pods), id="pod-rows")
    caption = tag("caption", "Pods, their fate and why")
    columns = tag(
        "colgroup", *(tag("col", class_=f"c-{name.lower()}") for name, _ in POD_HEADINGS), tag("col")
    )
    made = tag("table", caption, columns, tag("thead", head), body, id="pod-table", class_="pods")
    return frame(made, "Table of pods", len(account.pods))


def pod_took_ns(account: ShutdownRecord, pod: PodRecord) -> int | None:
    """From the begin of its stop to its end, or as far as the record goes."""
    if pod.began_ns is None:
        return None
    return (account.last_ns if pod.ended_ns is None else pod.ended_ns) - pod.began_ns


def _pod_row(account: ShutdownRecord, pod: PodRecord) -> Markup:
    took = pod_took_ns(account, pod)
    open_end = took is not None and pod.ended_ns is None
    more = _pod_details(pod)
    why = tag("span", pod.reason or "The record ends before its fate.", class_="why")
    cells = (
        tag("th", tag("bdi", pod.label), " late" if pod.late else "", scope="row"),
        tag("td", pod.wave if pod.wave >= 0 else "–", data_v=pod.wave, data_l="wave "),
        tag("td", f"{pod.grace_seconds}s", data_v=pod.grace_seconds, data_l="grace "),
        tag("td", outcome_badge(fate(pod))),
        tag(
            "td",
            "–" if took is None else f"{'>' if open_end else ''}{span(took)}",
            data_v=(-1 if took is None else took // 1000),
        ),
        tag("td", why, more),
    )
    return tag("tr", *cells)


def _pod_details(pod: PodRecord) -> Markup:
    """What unfolds; nothing for a pod of one container that did as it was told."""
    asked = pod.wanted_grace_seconds
    said = (
        (asked is not None and asked > pod.grace_seconds and pod.wave >= 0, f"Its spec asks for {asked}s."),
        (pod.hurried_ns is not None, f"Hurried at {moment(pod.hurried_ns)}."),
        (bool(pod.means), f"Ended by means of {pod.means}."),
        (bool(pod.owner) and fate(pod) == "killed", f"It belongs to {pod.owner}."),
        (bool(pod.refused), f"The API server did not take its delete: {pod.refused}."),
        (pod.unmounted_ns is not None, f"Its volumes were unmounted at {moment(pod.unmounted_ns)}."),
        (pod.fallback, "The fallback ended it, after a failure of its actor."),
    )
    remarks = [tag("li", sentence) for holds, sentence in said if holds]
    parts = [
        *(
            _container_detail(each)
            for each in pod.containers
            if (len(pod.containers) > 1 or each.killed_ns is not None or bool(pod.hooks))
        ),
        *map(_hook_detail, pod.hooks),
        *remarks,
    ]
    autopsies = [_autopsy_detail(each) for each in pod.autopsies]
    if not parts and not autopsies:
        return Markup("")
    summary = tag("summary", "Autopsy and details" if autopsies else "Details")
    inside = join(*autopsies, tag("ul", *parts) if parts else Markup(""))
    return tag("details", summary, inside, data_print=bool(autopsies))


def _hook_detail(run: HookRecord) -> Markup:
    what = f"preStop {run.kind} {run.detail}".strip()
    when = f"{moment(run.began_ns)} to {moment(run.ended_ns)}"
    return tag("li", f"{what} in {run.container}: {hook_result(run)}, {when}")


def _container_detail(container: ContainerRecord) -> Markup:
    name = f"{'sidecar' if container.sidecar else 'container'} {container.name}"
    steps = [
        f"asked to end {moment(container.asked_ns)}" if container.asked_ns is not None else "",
        f"{container.stop_signal} {moment(container.signalled_ns)}"
        if container.signalled_ns is not None
        else "",
        f"SIGKILL {moment(container.killed_ns)}" if container.killed_ns is not None else "",
        f"gone {moment(container.exited_ns)}{_exit_text(container)}"
        if container.exited_ns is not None
        else "",
        "" if container.running else "was not running",
    ]
    return tag("li", f"{name}: {', '.join(step for step in steps if step) or 'nothing on record'}")


def _exit_text(container: ContainerRecord) -> str:
    if container.exit_signal:
        return f" by {container.exit_signal}"
    return "" if container.exit_code is None else f" with code {container.exit_code}"


def _autopsy_detail(autopsy: AutopsyRecord) -> Markup:
    """The process tree just before SIGKILL, and the last lines that it wrote."""
    headings = ("PID", "Command", "Doing", "Ignores", "Catches", "Connections")
    caption = f"Autopsy of {autopsy.container} at {moment(autopsy.at_ns)}, just before SIGKILL"
    rows = [_process_row(each) for each in autopsy.processes]
    lines = [Markup(f"{escaped(line)}\n") for line in autopsy.last_lines]
    sentence = join(tag("p", "Its last words:"), tag("pre", *lines)) if lines else Markup("")
    return join(table(caption, headings, rows), sentence)


def _process_row(process: ProcessReport) -> Row:
    doing = process.state + (f" in {process.wait_channel}" if process.wait_channel else "")
    return row(
        f"{process.pid} of {process.parent_pid}",
        process.command,
        doing,
        ", ".join(process.signals_ignored) or "–",
        ", ".join(process.signals_caught) or "–",
        process.connections,
    )


# The last parts of the page: the configuration, what ran beside the waves, and the daemons that wrote it.


BUDGET_TEXTS = {
    "strict": "strict: a wave keeps to its own period",
    "elastic": "elastic: what a wave leaves unused goes to the next",
}

ORDER_TEXTS = {
    "inventory": "listing the pods",
    "announce": "showing the node as going down",
    "statuses": "delivering pod statuses",
    "release": "giving the lock back",
    "traces": "sending the trace",
    "kubelet": "stopping the kubelet",
    "kubelet-start": "starting the kubelet again",
    "withdraw": "taking pods out of their Services",
    "await": "waiting for the final statuses",
    "mounts": "looking at what is mounted",
    "certificate": "publishing the certificate",
}

#: What a start did about the shutdown that it found, by the action of its record (`Resumed`).
RESUME_TEXTS = {
    "": "–",
    "begin": "found it under way",
    "resume": "went on where it stopped",
    "cancelled-while-away": "found it cancelled",
    "did-not-go-down": "found that the machine had stayed up",
    "release-again": "let go of the lock once more",
    "wait": "watched it go down",
}


def settings_section(account: ShutdownRecord) -> Markup:
    configured = account.configuration
    given = [f"priority {each.priority}: {each.seconds}s" for each in account.configuration.periods]
    periods = ", ".join(given) or "none"
    rows = [
        ("Periods", periods),
        ("Requested in all", span(configured.requested_ns)),
        ("Granted by logind", span(account.grant_ns)),
        ("Budget of the waves", span(account.budget_ns)),
        ("Reserve", span(configured.reserve_ns)),
        ("Time left unused", BUDGET_TEXTS[configured.budget]),
        ("Sleep hooks", "honoured" if configured.sleep_action else "switched off by a feature gate"),
        ("Flushing statuses", f"at most {span(configured.status_flush_ns)}"),
        ("Deadline", moment(account.deadline_ns)),
        ("Delay lock", "held" if account.lock_held else "not held"),
        ("Overtime", "yes: logind's time was over" if account.overtime else "no"),
    ]
    body = [row(name, value) for name, value in rows]
    parts = [table("What applied to this shutdown", ("Setting", "Value"), body)]
    if configured.sources:
        found = [row(name, source) for name, source in configured.sources.items()]
        parts.append(table("Where the values came from", ("Field", "Source"), found))
    return section("settings", "Configuration and grant", *parts)


def progress_section(account: ShutdownRecord) -> Markup:
    """What ran beside the waves, and the daemons that carried the shutdown."""
    beside = [
        row(
            ORDER_TEXTS[each.what],
            moment(each.began_ns),
            span(each.ended_ns - each.began_ns) if each.ended_ns is not None else "not ended",
            each.result + (f": {each.reason}" if each.reason else ""),
        )
        for each in account.beside
    ]
    parts = []
    if beside:
        headings = ("What", "Began", "Took", "Result")
        parts.append(table("Beside the waves", headings, beside))
    daemons = [
        row(
            "before the signal" if each.at_ns is None else moment(each.at_ns),
            _downtime_text(each),
            each.pid,
            each.version,
            each.mode,
            tag("code", each.boot_id),
            _process_text(each),
        )
        for each in account.processes
    ]
    columns = ("Started", "After", "PID", "Version", "Mode", "Boot", "What it did")
    parts.append(table(_progress_caption(account), columns, daemons))
    return section("course", "Restarts and the rest", *parts)


def _progress_caption(account: ShutdownRecord) -> str:
    restarts = sum(each.at_ns is not None and not each.came_after for each in account.processes)
    after = ", and one that came after it" if any(each.came_after for each in account.processes) else ""
    count = counted(restarts, "restart") if restarts else "no restart"
    return f"Daemons that wrote this shutdown: {count}{after}"


def _process_text(process: ProcessRecord) -> str:
    if process.came_after:
        return f"came after it, and noted: {process.previous}"
    sentence = RESUME_TEXTS.get(process.action, process.action)
    return f"{sentence}; before it: {process.previous}" if process.previous else sentence


def _downtime_text(process: ProcessRecord) -> str:
    """How long no daemon ran before it."""
    if process.at_ns is None or process.quiet_since_ns is None:
        return "–"
    return f"{span(process.at_ns - process.quiet_since_ns)} of silence"


# What the page's script draws, as compact JSON: rows of the timeline, and the events column by column.
#
# Times are microseconds since the signal: exact for a screen, and a third shorter than nanoseconds. Whatever
# the tables say already is not here again.


DOCUMENT_VERSION = 1
NS_PER_US = 1000

#: The page shows so much of an event; ``ebbtide journal show`` has all of it.
TEXT_CHARACTERS_MAX, DATA_CHARACTERS_MAX, ENTRIES_MAX = 200, 240, 8

FATES: tuple[PodOutcome, ...] = get_args(PodOutcome)

EVENT_COLUMNS = ("seq", "at", "cause", "type", "actor", "pod", "bad", "text", "data")


def _microseconds_of(at_ns: int | None) -> int | None:
    return None if at_ns is None else at_ns // NS_PER_US


def document(account: ShutdownRecord, lines: Iterable[Line], holders: Iterable[str]) -> dict[str, Any]:
    """The page's data; its shape is this module's and the script's own matter. ``holders`` are UIDs."""
    index = {pod.uid: at for at, pod in enumerate(account.pods)}
    return {
        "version": DOCUMENT_VERSION,
        "first": account.first_seq,
        "last": _microseconds_of(account.last_ns),
        "fates": list(FATES),
        "lines": [
            [name, _microseconds_of(at_ns)] for name, at_ns in _limit_lines(account) if at_ns is not None
        ],
        "beside": _orders_data(account),
        "waves": list(map(_wave_data, account.waves)),
        "pods": list(map(_pod_data, account.pods)),
        "holders": [index[uid] for uid in holders if uid in index],
        "events": _events_data(account, index, lines),
    }


def _limit_lines(account: ShutdownRecord) -> list[tuple[str, int | None]]:
    """What stands across the whole timeline."""
    here = [each for each in account.processes if each.boot_id == account.boot_id and not each.came_after]
    restarts = [("restart", each.at_ns) for each in here]
    return [
        ("signal", 0),
        ("deadline", account.deadline_ns or None),
        ("handed over", account.by.handed_over_ns),
        ("cancelled", account.cancelled_ns),
        ("released" if account.outcome == "complete" else "closed", account.ended_ns),
        *restarts,
    ]


def _orders_data(account: ShutdownRecord) -> list[list[Any]]:
    """One row a kind: its name, and from when to when each of its orders was open."""
    rows: dict[str, list[Any]] = {}
    for beside in account.beside:
        rows.setdefault(ORDER_TEXTS[beside.what], []).append(
            [_microseconds_of(beside.began_ns), _microseconds_of(beside.ended_ns)]
        )
    return [[name, spans] for name, spans in rows.items()]


def _wave_data(wave: WaveRecord) -> list[Any]:
    times = (wave.began_ns, wave.ended_ns, wave.deadline_ns)
    return [wave.index, wave.priority, *map(_microseconds_of, times), wave.outcome]


def _pod_data(pod: PodRecord) -> list[Any]:
    """Label, wave, fate, began, ended, bound, signals, kills, hurried, hooks."""
    begun = (stop_began_ns(each) for each in pod.containers)
    signals = sorted(_microseconds_of(began_ns) or 0 for began_ns in begun if began_ns is not None)
    kills = sorted(
        _microseconds_of(each.killed_ns) or 0 for each in pod.containers if each.killed_ns is not None
    )
    times = (pod.began_ns, pod.ended_ns, _bound_ns(pod))
    hooks = list(map(_hook_data, pod.hooks))
    return [
        visible(pod.label),
        pod.wave,
        FATES.index(fate(pod)),
        *map(_microseconds_of, times),
        signals,
        kills,
        _microseconds_of(pod.hurried_ns),
        hooks,
    ]


def _bound_ns(pod: PodRecord) -> int | None:
    """Until when it could have run: the end of its grace, or of the shutdown's own time."""
    if pod.began_ns is None or pod.grace_ns is None:
        return pod.kill_by_ns
    end_ns = pod.began_ns + pod.grace_ns
    return end_ns if pod.kill_by_ns is None else min(end_ns, pod.kill_by_ns)


def _hook_data(hook: HookRecord) -> list[Any]:
    result = "early" if hook.early else hook.result or "open"
    return [
        _microseconds_of(hook.began_ns),
        _microseconds_of(hook.ended_ns),
        _microseconds_of(hook.until_ns),
        hook.kind,
        result,
    ]


# --- events ------------------------------------------------------------------------------------


class TextIndex(dict[str, int]):
    """Each distinct text once, by the order in which it came."""

    def place(self, value: str) -> int:
        return self.setdefault(value, len(self))


def _events_data(account: ShutdownRecord, index: dict[str, int], lines: Iterable[Line]) -> dict[str, Any]:
    """Columns; ``pod`` points into the table of pods, -1 where an event is about none."""
    names = {pod.uid: pod.label for pod in account.pods}
    types, actors = TextIndex(), TextIndex()
    columns: dict[str, list[Any]] = {name: [] for name in EVENT_COLUMNS}
    for line in lines:
        row = (
            line.seq,
            _microseconds_of(line.since_ns),
            line.cause,
            types.place(visible(line.type)),
            actors.place(visible(line.short)),
            index.get(line.uid, -1),
            int(line.bad),
            visible(_cut(line.text, TEXT_CHARACTERS_MAX)),
            visible(_cut(_event_text(line.data, names), DATA_CHARACTERS_MAX)),
        )
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return {**columns, "types": list(types), "actors": list(actors)}


def _event_text(data: Any, names: dict[str, str]) -> str:
    """Fields that are not at their default, pods by name; long lists only by their length."""
    if not isinstance(data, dict):
        return str(data)
    return " ".join(f"{name}={_value_text(value, names)}" for name, value in data.items())


def _value_text(value: Any, names: dict[str, str]) -> str:
    if isinstance(value, list | tuple | dict) and len(value) > ENTRIES_MAX:
        return f"({len(value)} of them)"
    if isinstance(value, str):
        return names.get(value) or "/".join(names.get(part, part) for part in value.split("/"))
    return f"({len(value)} bytes)" if isinstance(value, bytes) else str(value)


def _cut(sentence: str, length_max: int) -> str:
    return sentence if len(sentence) <= length_max else sentence[: length_max - 1] + "…"

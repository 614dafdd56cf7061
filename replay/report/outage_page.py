"""An outage as one self-contained page, without a script: an outage has few pods and volumes."""

from __future__ import annotations

from collections.abc import Iterable

from ebbtide.events.messages import boot_end_text
from ebbtide.events.record.format import visible
from ebbtide.events.record.outage_causes import outage_cause, outage_headline, outage_seal
from ebbtide.events.record.outage_record import OutageRecord, Subject
from ebbtide.events.units import span
from ebbtide.replay.report.markup import (
    Markup,
    counted,
    escaped,
    figures,
    moment,
    page_head,
    section,
    table,
    tag,
    time_of,
)
from ebbtide.replay.report.page import (
    chain_section,
    damage_section,
    filled,
    journal_footer,
    notice_texts,
    resource,
    whole_page,
)
from ebbtide.replay.time_spent import recovery_chain, subject_kind, waits_of
from ebbtide.replay.timeline import Line

#: For an outage of weeks the page has the first and the last lines.
LINES_MAX = 1000


def outage_report(outage: OutageRecord, lines: Iterable[Line], started: str) -> str:
    """``lines``: all of the outage's. ``started``: RFC 3339."""
    style = resource("page.css") + resource("outage.css")
    slots = {
        "header": _header(outage, started),
        "damage": damage_section(outage.damage),
        "alarms": _alarms(outage),
        "figures": _figures(outage),
        "chain": chain_section("What it waited for", recovery_chain(outage)),
        "hanging": _hanging(outage),
        "proof": _proof(outage),
        "events": _events(outage, lines),
    }
    return whole_page(outage_headline(outage), filled("outage.html", slots), journal_footer(outage), style)


def _lede(outage: OutageRecord) -> str:
    cause = outage_cause(outage)
    parts = [] if cause is None else [f"do: {cause.do}."]
    parts += [f"Suspected because of: {outage.reason}." if outage.reason else "Its begin is not on record."]
    if outage.out_ns is not None:
        whose = f", proved by {outage.proof}" if outage.proof else ""
        parts.append(f"Out of service after {span(outage.out_ns)}{whose}.")
    elif outage.course and outage.ended_ns is None:
        parts.append(f"Now: {outage.course[-1].text}.")
    waiting = [each for each in outage.subjects if each.ended_ns is None]
    if waiting:
        parts.append(f"{counted(len(waiting), 'pod or volume', 'pods and volumes')} still waited for.")
    return " ".join(parts)


def _header(outage: OutageRecord, started: str) -> Markup:
    facts: list[tuple[str, object]] = [
        ("Suspected", time_of(started)),
        ("Outcome", outage.outcome),
        ("Node", outage.node),
        ("Node UID", tag("code", outage.node_uid)),
        ("Boot", tag("code", outage.boot_id)),
        ("Outage", tag("code", outage.id)),
        ("Leader", ", ".join(dict.fromkeys(each.replica for each in outage.leaders)) or "not on record"),
        ("Trace", tag("code", outage.trace_id)),
    ]
    if (ended := outage.last_boot) is not None:
        facts.append(("Last boot", boot_end_text(ended.ending, ended.why, ended.wave)))
        for name, text in (("Its journal", ended.journal_id), ("Its trace", ended.trace_id)):
            facts += [(name, tag("code", text))] if text else []
    if outage.settings.dry_run:
        facts.append(("Dry run", "no change in the cluster"))
    seal, head = outage_seal(outage), outage_headline(outage)
    return page_head(f"Outage report · {outage.node}", seal, head, _lede(outage), facts)


def _alarms(outage: OutageRecord) -> Markup:
    if not outage.alarms:
        return Markup("")
    items = [tag("li", notice_texts(each.at_ns, each.seq, each.code, each.text)) for each in outage.alarms]
    title = counted(len(items), "alarm")
    return section("warnings", title, tag("ul", *items, class_="notices"))


def _figures(outage: OutageRecord) -> Markup:
    end_ns = outage.end_ns
    rows = [("Suspected to its end" if outage.ended_ns is not None else "On record", span(end_ns), "")]
    if outage.out_ns is not None:
        rows.append(("To the taint", span(outage.out_ns), outage.effect))
        if outage.recovered_ns is not None:
            rows.append(("Taint to recovered", span(outage.recovered_ns - outage.out_ns), "pods and volumes"))
    if outage.returned_ns is not None:
        boot = "same boot id" if outage.same_boot else "another boot id"
        rows.append(("Back after", span(outage.returned_ns), boot))
    for name, subjects in (("Pods", outage.pods), ("Volumes", outage.attachments)):
        left = sum(each.ended_ns is None for each in subjects)
        rows.append((name, str(len(subjects)), f"{left} waited for" if left else ""))
    return figures(rows)


# --- what it waited for


def _hanging(outage: OutageRecord) -> Markup:
    if not outage.subjects:
        none = tag("p", "No pod or volume of it is on record.", class_="none")
        return section("hanging", "Pods and volumes", none)
    headings = ("Name", "What", "Outcome", "Took", "Where", "Waited for")
    rows = [
        (
            tag("bdi", each.label),
            subject_kind(each),
            tag("span", each.outcome, class_=f"fate {each.outcome}"),
            _took(outage, each),
            _where(each),
            _waits(outage, each),
        )
        for each in outage.subjects
    ]
    return section("hanging", "Pods and volumes", table("What hung on the node", headings, rows))


def _took(outage: OutageRecord, subject: Subject) -> str:
    if subject.ended_ns is None:
        return f">{span(outage.end_ns - subject.began_ns)}"
    return span(subject.ended_ns - subject.began_ns)


def _where(subject: Subject) -> str:
    """Its successor's node, or its owner."""
    node = getattr(subject, "node", "")
    owner = getattr(subject, "owner", getattr(subject, "driver", ""))
    before = "before the node was out of service" if getattr(subject, "before_taint", False) else ""
    return ", ".join(each for each in (f"Ready on {node}" if node else "", owner, before) if each) or "–"


def _waits(outage: OutageRecord, subject: Subject) -> Markup:
    items = [
        tag("li", f"{span(each.took_ns)}{'' if each.seen else ' so far'}: {each.text}")
        for each in waits_of(outage, subject)
    ]
    return tag("ul", *items) if items else escaped("–")


def _proof(outage: OutageRecord) -> Markup:
    parts = []
    if outage.statements:
        rows: list[tuple[object, ...]] = []
        for each in outage.statements:
            until = f"until {moment(each.until_ns)}" if each.until_ns is not None else ""
            rows.append((moment(each.at_ns), each.what, each.who or "–", each.text or until))
        parts.append(table("In their order", ("When", "What", "Who", "Why"), rows))
    if outage.sources:
        last = [(who, answer.reason, moment(answer.at_ns)) for who, answer in outage.sources.items()]
        parts.append(table("The last answer of each source", ("Source", "Answer", "When"), last))
    if not parts:
        parts.append(tag("p", "No source has answered.", class_="none"))
    return section("proof", "Proof", *parts)


def _events(outage: OutageRecord, lines: Iterable[Line]) -> Markup:
    kept = [line for line in lines if line.brief]
    shown, left = kept, len(kept) - LINES_MAX
    if left > 0:
        shown = [*kept[: LINES_MAX // 2], *kept[-LINES_MAX // 2 :]]
    rows = [
        (
            str(line.seq),
            moment(line.since_ns),
            line.short,
            line.pod or "–",
            tag("span", f"! {line.text}", class_="bad") if line.bad else line.text,
        )
        for line in shown
    ]
    made = table("Records of the journal in their order", ("Record", "When", "Actor", "Pod", "What"), rows)
    more = (
        tag("p", f"{counted(left, 'line')} in the middle left out.", class_="help")
        if left > 0
        else Markup("")
    )
    text = tag("p", Markup("All of them: <code>ebbtide replay timeline --all</code>."), class_="help")
    return section("events", f"Events of {visible(outage.node)}", made, more, text)

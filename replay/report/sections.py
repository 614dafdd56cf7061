"""The parts of the page around its pods: the verdict, damage, warnings, figures, waves, hooks."""

from __future__ import annotations

from events.decisions import PodOutcome
from replay.account.model import Account, HookTold, Notice, PodTold, WaveTold
from replay.report.markup import Markup, Row, join, row, section, table, tag, text
from replay.report.words import (
    KINDS,
    OUTCOMES,
    counted,
    fates,
    grouped,
    moment,
    seal,
    span,
    verdict,
)

#: So many stand open; the rest unfolds.
NOTICES_MAX = 8
LATE_MAX = 8


def outcome(name: PodOutcome) -> Markup:
    """A fate as a word with its sign; its colour is only the third way to tell."""
    sign = tag("span", OUTCOMES[name][2], aria_hidden="true")
    return tag("span", sign, f" {name}", class_=f"fate {name}")


def header(account: Account, started: str, held: str) -> Markup:
    """``started``: the signal's time, RFC 3339. ``held``: what took longest, in a sentence."""
    words, kind = seal(account)
    sign = tag("span", words, class_=f"seal {kind}", aria_hidden="true")
    what = tag("p", f"Shutdown report · {account.node} · {KINDS[account.kind]}", class_="kicker")
    facts = tag(
        "dl",
        *_pair("Signal", tag("time", _people(started), datetime=started)),
        *_pair("Node", account.node),
        *_pair("Shutdown", tag("code", account.id)),
        *_pair("Trace", tag("code", account.trace_id)),
        *_asked(account),
        *_by(account),
        class_="facts",
    )
    title = tag("h1", sign, verdict(account))
    return join(what, title, tag("p", f"{fates(account)} {held}", class_="lede"), facts)


def damage(account: Account) -> Markup:
    """The journal's verdict, before all that was told of it; nothing where it is intact."""
    if account.damage is None:
        return Markup("")
    return tag("p", f"⚠ {account.damage.state}: {account.damage.banner}", class_="damage", role="note")


def _asked(account: Account) -> tuple[Markup, ...]:
    """Who scheduled it, where logind knew."""
    if account.asked_by_uid is None and not account.wall_message:
        return ()
    where = f" on {account.asked_tty}" if account.asked_tty else ""
    who = "" if account.asked_by_uid is None else f"uid {account.asked_by_uid}{where}"
    said = f"“{account.wall_message}”" if account.wall_message else ""
    return _pair("Asked for by", ": ".join(part for part in (who, said) if part))


def _by(account: Account) -> tuple[Markup, ...]:
    """Of a Kubernetes node: by which means, and what became of its volumes."""
    by = account.by
    if not by.means:
        return ()
    over = f"; handed over at {moment(by.handed_over_ns)}: {by.handed_over_reason}"
    means = f"{by.means} ({by.reason}){over if by.handed_over_ns is not None else ''}"
    found = () if by.certificate is None else _pair("Safe to detach", "yes" if by.certificate.safe else "no")
    return (*_pair("Means", means), *found)


def _people(started: str) -> str:
    return f"{started[:10]} {started[11:19]} UTC"


def _pair(name: str, value: object) -> tuple[Markup, Markup]:
    return tag("dt", name), tag("dd", value)


def notices(account: Account) -> Markup:
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


def figures(account: Account) -> Markup:
    """The numbers one looks for first."""
    length_ns = account.last_ns if account.ended_ns is None else account.ended_ns
    share = 100 * length_ns // account.budget_ns if account.budget_ns else None
    rows = [
        (_length(account), span(length_ns), ""),
        ("Budget", span(account.budget_ns), f"{share} % used" if share is not None else ""),
        ("Grant of logind", span(account.grant_ns), _asked_for(account)),
    ]
    for name, (_, _, sign) in OUTCOMES.items():
        if count := account.count(name):
            rows.append((f"{sign} {name}", grouped(count), f"of {counted(len(account.pods), 'pod')}"))
    boxes = [_figure(*each) for each in rows]
    return tag("dl", *boxes, class_="figures")


def _asked_for(account: Account) -> str:
    """All that logind was asked to grant, or would have been."""
    told = account.configuration
    reserve = f", {span(told.reserve_ns)} of it in reserve" if told.reserve_ns else ""
    return f"asked {span(told.requested_ns + told.reserve_ns)}{reserve}"


def _length(account: Account) -> str:
    if account.ended_ns is None:
        return "On record"
    return "Signal to release" if account.outcome == "complete" else "Signal to its end"


def _figure(name: str, value: str, note: str) -> Markup:
    return tag("div", tag("dt", name), tag("dd", value), tag("dd", note, class_="note") if note else "")


def waves(account: Account) -> Markup:
    if not account.waves:
        return section("waves", "Waves", tag("p", "No plan was made.", class_="none"))
    labels = {pod.uid: pod.label for pod in account.pods}
    headings = ("Wave", "Priority", "Pods", "Period", "Began", "Took", "Unused", "Outcome", "Late")
    rows = [_wave(wave, labels) for wave in account.waves]
    return section("waves", "Waves", table("Waves in their order", headings, rows))


def _wave(wave: WaveTold, labels: dict[str, str]) -> Row:
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
        _late([labels.get(uid, uid) for uid in wave.stragglers]),
    )


def _late(names: list[str]) -> Markup:
    """The first of them by name; the rest unfolds."""
    if len(names) <= LATE_MAX + 1:
        return text(", ".join(names) or "–")
    unfold = tag("summary", f"and {counted(len(names) - LATE_MAX, 'more', 'more')}")
    rest = tag("details", unfold, ", ".join(names[LATE_MAX:]), data_print=True)
    return join(text(", ".join(names[:LATE_MAX])), rest)


def hooks(account: Account) -> Markup:
    """Every run of a hook, the longest first."""
    runs = [(pod, run) for pod in account.pods for run in pod.hooks]
    if not runs:
        return section("hooks", "Hooks", tag("p", "No preStop hook ran.", class_="none"))
    runs.sort(key=lambda each: -length_ns(account, each[1]))
    headings = ("Pod", "Container", "Hook", "Began", "Took", "Allowed", "Result")
    rows = [_hook(account, pod, run) for pod, run in runs]
    return section("hooks", "Hooks", table("preStop hooks, the longest first", headings, rows))


def length_ns(account: Account, run: HookTold) -> int:
    """How long a hook ran; one without an end, as far as the record goes."""
    return (account.last_ns if run.ended_ns is None else run.ended_ns) - run.began_ns


def _hook(account: Account, pod: PodTold, run: HookTold) -> Row:
    return row(
        pod.label,
        run.container,
        f"{run.kind} {run.detail}".strip(),
        moment(run.began_ns),
        span(length_ns(account, run)) if run.ended_ns is not None else "not ended",
        span(run.until_ns - run.began_ns),
        hook_result(run),
    )


def hook_result(run: HookTold) -> str:
    words = f"{run.result or 'open'}{' early' if run.early else ''}"
    return f"{words}: {run.reason}" if run.reason else words

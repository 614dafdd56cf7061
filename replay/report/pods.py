"""The table of pods: each with its fate and why, and all that is known of it where one unfolds the row.

It stands in the page as it is: it can be searched by the browser, printed and read where no script runs.
"""

from __future__ import annotations

from events.model import ProcessReport
from replay.account.model import Account, AutopsyTold, ContainerTold, HookTold, PodTold
from replay.report.markup import Markup, Row, frame, join, row, table, tag, text
from replay.report.sections import hook_result, outcome
from replay.report.words import fate, moment, span

HEADINGS = (("Pod", "text"), ("Wave", "number"), ("Grace", "number"), ("Outcome", "text"), ("Took", "number"))


def pods(account: Account) -> Markup:
    """Rows in the order of ``account.pods``; the script finds them by this order."""
    head = tag(
        "tr",
        *(tag("th", _sorter(name), scope="col", data_kind=kind, aria_sort="none") for name, kind in HEADINGS),
        tag("th", "Why", scope="col"),
    )
    body = tag("tbody", *(_pod(account, pod) for pod in account.pods), id="pod-rows")
    caption = tag("caption", "Pods, their fate and why")
    columns = tag("colgroup", *(tag("col", class_=f"c-{name.lower()}") for name, _ in HEADINGS), tag("col"))
    made = tag("table", caption, columns, tag("thead", head), body, id="pod-table", class_="pods")
    return frame(made, "Table of pods", len(account.pods))


def _sorter(name: str) -> Markup:
    return tag("button", name, type="button", class_="sort")


def took_ns(account: Account, pod: PodTold) -> int | None:
    """From the begin of its stop to its end, or as far as the record goes."""
    if pod.began_ns is None:
        return None
    return (account.last_ns if pod.ended_ns is None else pod.ended_ns) - pod.began_ns


def _pod(account: Account, pod: PodTold) -> Markup:
    took = took_ns(account, pod)
    open_end = took is not None and pod.ended_ns is None
    more = _more(pod)
    why = tag("span", pod.reason or "The record ends before its fate.", class_="why")
    cells = (
        tag("th", tag("bdi", pod.label), " late" if pod.late else "", scope="row"),
        tag("td", pod.wave if pod.wave >= 0 else "–", data_v=pod.wave, data_l="wave "),
        tag("td", f"{pod.grace_seconds}s", data_v=pod.grace_seconds, data_l="grace "),
        tag("td", outcome(fate(pod))),
        tag(
            "td",
            "–" if took is None else f"{'>' if open_end else ''}{span(took)}",
            data_v=_microseconds(took),
        ),
        tag("td", why, more),
    )
    return tag("tr", *cells)


def _microseconds(length_ns: int | None) -> int:
    return -1 if length_ns is None else length_ns // 1000


def _more(pod: PodTold) -> Markup:
    """What unfolds; nothing for a pod of one container that did as it was told."""
    parts = [
        *(_container(each) for each in pod.containers if _notable(pod, each)),
        *map(_hook, pod.hooks),
        *_remarks(pod),
    ]
    autopsies = [_autopsy(each) for each in pod.autopsies]
    if not parts and not autopsies:
        return Markup("")
    summary = tag("summary", "Autopsy and details" if autopsies else "Details")
    inside = join(*autopsies, tag("ul", *parts) if parts else Markup(""))
    return tag("details", summary, inside, data_print=bool(autopsies))


def _hook(run: HookTold) -> Markup:
    what = f"preStop {run.kind} {run.detail}".strip()
    when = f"{moment(run.began_ns)} to {moment(run.ended_ns)}"
    return tag("li", f"{what} in {run.container}: {hook_result(run)}, {when}")


def _notable(pod: PodTold, container: ContainerTold) -> bool:
    return len(pod.containers) > 1 or container.killed_ns is not None or bool(pod.hooks)


def _remarks(pod: PodTold) -> list[Markup]:
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
    return [tag("li", words) for holds, words in said if holds]


def _container(container: ContainerTold) -> Markup:
    name = f"{'sidecar' if container.sidecar else 'container'} {container.name}"
    steps = [
        f"asked to end {moment(container.asked_ns)}" if container.asked_ns is not None else "",
        f"{container.stop_signal} {moment(container.signalled_ns)}"
        if container.signalled_ns is not None
        else "",
        f"SIGKILL {moment(container.killed_ns)}" if container.killed_ns is not None else "",
        f"gone {moment(container.exited_ns)}{_exit(container)}" if container.exited_ns is not None else "",
        "" if container.running else "was not running",
    ]
    return tag("li", f"{name}: {', '.join(step for step in steps if step) or 'nothing on record'}")


def _exit(container: ContainerTold) -> str:
    if container.exit_signal:
        return f" by {container.exit_signal}"
    return "" if container.exit_code is None else f" with code {container.exit_code}"


def _autopsy(autopsy: AutopsyTold) -> Markup:
    """The process tree just before SIGKILL, and the last lines that it wrote."""
    headings = ("PID", "Command", "Doing", "Ignores", "Catches", "Connections")
    caption = f"Autopsy of {autopsy.container} at {moment(autopsy.at_ns)}, just before SIGKILL"
    rows = [_process(each) for each in autopsy.processes]
    lines = [Markup(f"{text(line)}\n") for line in autopsy.last_lines]
    words = join(tag("p", "Its last words:"), tag("pre", *lines)) if lines else Markup("")
    return join(table(caption, headings, rows), words)


def _process(process: ProcessReport) -> Row:
    doing = process.state + (f" in {process.wait_channel}" if process.wait_channel else "")
    return row(
        f"{process.pid} of {process.parent_pid}",
        process.command,
        doing,
        ", ".join(process.signals_ignored) or "–",
        ", ".join(process.signals_caught) or "–",
        process.connections,
    )

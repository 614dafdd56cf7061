"""The advice as something to paste: the configuration, the drop-in's value, and a sentence a problem."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from events.base import NS_PER_SECOND
from replay.account.words import plural, span
from replay.advise.advising import Advice, Kept, Verdict, Wave, Workload
from replay.advise.stops import Stop

_DROP_IN = "/run/systemd/logind.conf.d"

#: Nodes that are named one by one.
NAMED = 3

#: How long the lines of a comment are, where there is room.
COMMENT_COLUMNS = 76


def to_paste(advice: Advice, columns: int = COMMENT_COLUMNS) -> str:
    """An Ebbtide configuration in YAML; the last lines say what logind has to grant.

    What it does not name stays as it is: name it after the configuration in force. Comments stand on lines of
    their own, of so many columns, so that what is copied from a terminal is still YAML.
    """
    lines = [
        "apiVersion: ebbtide/v1alpha1",
        "kind: EbbtideConfiguration",
        "shutdownGracePeriodByPodPriority:",
        *(line for wave in advice.waves for line in _period(wave, columns)),
        f"reserve: {advice.reserve_seconds}s",
        *_comment(
            f"logind must grant {advice.requested_seconds} s requested + {advice.reserve_seconds} s reserved."
            f" The daemon {'asks for' if advice.short else 'sees to'} it unless raiseGrant is false;"
            f" by hand, in a file below {_DROP_IN} or /etc/systemd/logind.conf.d:",
            columns,
        ),
        "#   [Login]",
        f"#   InhibitDelayMaxSec={advice.drop_in_seconds}",
        *(line for said in grants(advice) for line in _comment(said, columns)),
    ]
    return "\n".join(lines) + "\n"


def grants(advice: Advice) -> Iterator[str]:
    """A sentence for each node that does not grant what the advice asks for, three of them by name."""
    for short in advice.short[:NAMED]:
        yield (
            f"On {_plain(short.node)} the grant was not raised: {span(short.grant_ns)} of the"
            f" {span(short.asked_ns)} asked for. Find out why ('ebbtide doctor'): until then these"
            " periods are cut there."
        )
    if len(advice.short) > NAMED:
        yield f"So it was on {plural(len(advice.short) - NAMED, 'other node')}."


def _period(wave: Wave, columns: int) -> Iterator[str]:
    yield from _comment(why(wave), columns, "  # ")
    yield f"  - priority: {wave.priority}"
    yield f"    shutdownGracePeriodSeconds: {wave.seconds}"


def _comment(text: str, columns: int, lead: str = "# ") -> list[str]:
    return wrap(
        text,
        columns,
        initial_indent=lead,
        subsequent_indent=lead,
        break_long_words=False,
        break_on_hyphens=False,
    )


_KEPT: dict[Kept, str] = {
    "never-stopped": "as it is: no pod of it was ever stopped",
    "never-ended": "as it is: no pod of it ever ended by itself",
    "too-short": "as it is: a pod of it was killed before its own grace was over",
}


def why(wave: Wave) -> str:
    """What decides a wave's period."""
    return _KEPT.get(wave.kept) or f"the slowest, {_plain(wave.because)}, took {_longest(wave)}"


def _plain(name: str) -> str:
    """A name in a comment stays on its line, whatever a journal says."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)


def _longest(wave: Wave) -> str:
    ended = [step.ns for step in wave.survival.steps]
    return span(ended[-1]) if ended else "-"


def problems(advice: Advice) -> Iterator[tuple[Workload, str]]:
    """Every workload with a pod that no period can save on this evidence, and what to do about it."""
    cut = {(stop.shutdown, stop.uid): None for stop in advice.cut}
    hopeless = {(stop.shutdown, stop.uid): None for stop in advice.hopeless}
    hopeless = {each: None for each in hopeless if each not in cut}
    for each in advice.workloads:
        longest = each.longest_killed
        if longest is not None and any((stop.shutdown, stop.uid) in hopeless for stop in each.stops):
            yield each, _sentence(each, longest)


_SENTENCES: dict[Verdict, str] = {
    "mostly": (
        # Its replicas ask for different times, or one of them has hooks that another has not.
        "was killed {killed}, at the latest after {had} ({asks}), and takes up to {need} where it has that:"
        " raise its terminationGracePeriodSeconds to {enough}"
    ),
    "deaf": (
        "ignored its stop signal until SIGKILL {killed}: no period helps; let its first process handle the"
        " signal, or name another with stopSignal"
    ),
    "own-grace": (
        "was killed {killed} after all the time that it asks for ({wanted} s): no period helps; raise its"
        " terminationGracePeriodSeconds above {wanted}"
    ),
    "too-short": (
        "was killed {killed}, at the latest after {had}, and {asks}: how much it needs is not known; give its"
        " wave more and see"
    ),
    "unsteady": (
        "ended within {ended}, or was killed ({killed}), at the latest after all the time that it asks for"
        " ({wanted} s): find out what it waits for, or raise its terminationGracePeriodSeconds"
    ),
}


def _sentence(each: Workload, longest: Stop) -> str:
    count, total = each.survival.censored, each.survival.total
    need_ns, wanted = each.need_ns or 0, longest.wanted_seconds
    return _SENTENCES[each.verdict].format(
        killed="every time" if count == total else f"{count} of {plural(total, 'time')}",
        had=span(longest.observed.ns),
        asks="asks for no grace of its own" if wanted is None else f"asks for {wanted} s",
        wanted=wanted,
        ended=span(each.ended_ns or 0),
        need=span(need_ns),
        enough=need_ns // NS_PER_SECOND + 1,
    )

"""The critical chain on the page: what the time went into, down to the hook that held a wave."""

from __future__ import annotations

from replay.account.model import Account
from replay.chain import Chain, Segment
from replay.report.markup import Markup, section, tag
from replay.report.words import moment, span

#: Parts of the whole width of a bar.
SCALE = 1000
BAR_HEIGHT = 6


def held_up(account: Account, chain: Chain) -> str:
    """The longest stage in a sentence, and who held it; empty where nothing took any time."""
    longest = max(chain.segments, key=lambda segment: segment.took_ns, default=None)
    if longest is None:
        return ""
    names = {pod.uid: pod.label for pod in account.pods}
    pods = [names[each.uid] for each in longest.within if each.what == "pod" and each.uid in names]
    what = f"wave {longest.wave}" if longest.what == "wave" else f"“{longest.text}”"
    who = f", held by {pods[-1]}" if pods else "".join(f"; {each.text}" for each in _several(longest))
    return f"The longest of it was {what}: {span(longest.took_ns)} of {span(chain.total_ns)}{who}."


def _several(segment: Segment) -> list[Segment]:
    """Where no single pod is known to have held it."""
    return [each for each in segment.within if each.what == "several"]


def holders(chain: Chain) -> tuple[str, ...]:
    """UIDs of the pods that the chain goes through."""
    return tuple(each.uid for segment in chain.segments for each in segment.within if each.what == "pod")


def chain(account: Account, found: Chain) -> Markup:
    title = "What took the time"
    if not found.segments:
        return section("chain", title, tag("p", "Nothing took any time.", class_="none"))
    items = [_item(each, found.total_ns) for each in found.segments]
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


def _item(segment: Segment, total_ns: int) -> Markup:
    words = tag("span", segment.text, class_="what")
    when = tag("span", f"{span(segment.took_ns)}", class_="took")
    since = tag("span", moment(segment.began_ns), class_="when")
    within = [_item(each, total_ns) for each in segment.within]
    inner = (tag("ol", *within),) if within else ()
    return tag("li", tag("div", when, words, since, _bar(segment, total_ns)), *inner)


def _bar(segment: Segment, total_ns: int) -> Markup:
    """Where the segment lies in the whole; the numbers beside it say the same."""
    left = SCALE * segment.began_ns // total_ns
    width = max(2, SCALE * segment.took_ns // total_ns)
    ground = tag("rect", width=SCALE, height=BAR_HEIGHT, class_="rest")
    filled = tag("rect", x=left, width=width, height=BAR_HEIGHT)
    box = f"0 0 {SCALE} {BAR_HEIGHT}"
    return tag("svg", ground, filled, viewBox=box, preserveAspectRatio="none", aria_hidden="true")

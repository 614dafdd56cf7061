"""The sentences: every event type has one, and the log and the timeline say the same."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from events import decisions as d
from events import facts as f
from events.base import TYPES, Event
from events.model import Pod
from events.record import Stamp
from events.words import TELL, WARNING, Names, say
from events.words.base import ORDERED, ORDERED_BY, elapsed, ordered, parse_key, seconds
from tests.reading.conftest import golden
from tests.reading.vocabulary import EVERY

NOW = Stamp(0, 0)
LOGIC = Path(__file__).parents[2] / "actors/logic"
#: As an actor writes the key of an order: its word, which a container's name may follow.
KEY_WORDS = re.compile(
    r'(?:order_key\((?:NAME|OWNER), |\.key\()f?"([a-z-]+)|^STOP_KUBELET = "([a-z-]+)"', re.MULTILINE
)


def test_every_event_type_has_words() -> None:
    """A new type without a sentence would be a hole in every timeline."""
    assert {kind.__name__ for kind in TELL} == {
        name for name, kind in TYPES.items() if kind.__module__.startswith("events.")
    }


@pytest.mark.parametrize(
    "ns, words", [(0, "0.00"), (3_070_000_000, "3.07"), (9_999_000_000, "10.00"), (-1_500_000_000, "-1.50")]
)
def test_elapsed_is_to_the_hundredth(ns: int, words: str) -> None:
    """Rounded, with integers only."""
    assert elapsed(ns) == words


def test_seconds_have_no_decimal_that_says_nothing() -> None:
    """20 s is 20, and half a second is 0.5."""
    assert (seconds(20_000_000_000), seconds(500_000_000)) == ("20", "0.5")


def test_names_are_learned_before_they_are_used() -> None:
    """A straggler is called by the name that the plan gave it."""
    names = Names()
    pod = msgspec.convert({"uid": "u1", "namespace": "shop", "name": "web-0"}, type=Pod)
    say(names, d.PodPlanned(wave=2, grace_seconds=3, pod=pod), NOW)
    said = say(names, d.WaveEnded(wave=2, outcome="overran", stragglers=("u1",)), NOW)
    assert said is not None
    assert said.text == "wave 2 overran; still running: shop/web-0"
    assert said.level == WARNING
    assert names.waves == {"u1": 2}


def test_a_key_that_is_none_stays_as_it_is() -> None:
    """Somebody else's text is not taken apart."""
    assert ordered(Names(), "not a key") == "not a key"
    assert parse_key("not a key").uid == ""


def test_an_order_is_named_by_its_pod_and_container() -> None:
    """Keys hold UIDs; people read names."""
    key = "HookActor/stop:main/u1/0"
    assert ordered(Names({"u1": "shop/web-0"}), key) == "the stop signal for shop/web-0/main"


def test_every_order_has_words() -> None:
    """Of each word that the core puts into an order's key, and of no other. What cancels an order is called
    by the order's.
    """
    text = "".join(path.read_text() for path in sorted(LOGIC.glob("*.py")))
    written = {word for pair in KEY_WORDS.findall(text) for word in pair if word}
    assert {*written, *ORDERED_BY.values()} == {*ORDERED, "cancel-release", "cut", "look-away", "uncertify"}


def test_a_failed_order_says_why() -> None:
    """With the reason where there is one, else with the kind of failure."""
    key = "EpisodeActor/inventory//0"
    said = [
        say(Names(), f.OrderEnded(key=key, result=result, reason=reason), NOW)  # type: ignore[arg-type]
        for result, reason in (("failed", "no route"), ("timed-out", ""), ("unknown", ""), ("done", ""))
    ]
    assert [each.text for each in said if each] == [
        "listing the pods failed: no route",
        "listing the pods failed: timed-out",
        "listing the pods ended unknown",
        "listing the pods is done",
    ]


def test_golden() -> None:
    """Every sentence, with how grave it is; the tries lack no type."""
    assert {type(event) for event in EVERY} == set(TELL)
    names = Names({"u1": "shop/web-0"})
    told = [(type(event).__name__, say(names, event, NOW)) for event in EVERY]
    golden("words.txt", "".join(f"{said.level} {tag:<20} {said.text}\n" for tag, said in told if said))


def test_a_type_of_another_version_has_no_words() -> None:
    """Whoever prints it shows what it holds."""

    class Other(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False):
        pass

    assert say(Names(), Other(), NOW) is None

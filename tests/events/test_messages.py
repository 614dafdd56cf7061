"""Each event class's text, severity, log form and names."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from ebbtide.events import base
from ebbtide.events import decisions as d
from ebbtide.events.facts import ORDER_TEXTS, ORDER_TEXTS_BY_ACTOR, order_text
from ebbtide.events.messages import DEBUG, ERROR, INFO, NOTICE, WARNING, Names
from ebbtide.events.values import Pod
from tests.events.vocabulary import EVERY

NOW = base.Stamp(0, 0)
GOLDEN = Path(__file__).parent / "messages.txt"
CORE = sorted((Path(__file__).parents[2] / "actors").glob("*.py"))
OURS = {name: kind for name, kind in base.TYPES.items() if kind.__module__.startswith("ebbtide.events.")}
#: An order's key: its word, perhaps followed by a container's name.
KEY_WORDS = re.compile(
    r'(?:order_key\((?:NAME|OWNER), |_(?:key|call_back)\(state, |\.key\()f?"([a-z-]+)'
    r'|_ordered\([^)]*?"([a-z-]+)",\s*[od]\.'
    r'|_ordered\(\s*replace\(.*\),\s*"([a-z-]+)"'
    r'|^STOP_KUBELET = "([a-z-]+)"',
    re.MULTILINE,
)


# --- the columns


def test_every_event_has_a_text_of_its_own() -> None:
    for name, kind in OURS.items():
        assert (kind.template != "") != (kind.text is not base.Event.text), name


def test_only_classes_of_the_vocabulary_are_types() -> None:
    """A reader's helper class never becomes a type tag."""

    class Other(base.Event):
        pass

    assert "Other" not in base.TYPES


def levels(kind: type[base.Event]) -> set[int]:
    return {event.level for event in EVERY if type(event) is kind}


def test_a_level_is_one_of_five_and_a_property_gives_more_than_one() -> None:
    """A constant property would hide a fixed level."""
    for kind in OURS.values():
        assert levels(kind) <= {ERROR, WARNING, NOTICE, INFO, DEBUG}
        given = kind.level
        assert given is base.Event.level or not isinstance(given, property) or len(levels(kind)) > 1, kind


def test_a_form_in_the_log_knows_its_places() -> None:
    """It has the text; the rest is the time and the pod."""
    for kind in OURS.values():
        if kind.log:
            assert "TEXT" in kind.log.format(text="TEXT", since="+1.000 s", pod="shop/web-0"), kind.__name__


# --- the texts


def test_names_are_learned_before_they_are_used() -> None:
    """A straggler gets its name from the plan."""
    names = Names()
    pod = msgspec.convert({"uid": "u1", "namespace": "shop", "name": "web-0"}, type=Pod)
    d.PodPlanned(wave=2, grace_seconds=3, pod=pod).describe(names, NOW)
    found = d.WaveEnded(wave=2, outcome="overran", stragglers=("u1",)).describe(names, NOW)
    assert found.text == "wave 2 overran; still running: shop/web-0"
    assert found.level == WARNING
    assert names.waves == {"u1": 2}


def test_a_key_that_is_none_stays_as_it_is() -> None:
    """Foreign text is not parsed."""
    assert order_text(Names(), "not a key") == "not a key"
    assert not any(base.parse_order_key("not a key"))


def test_every_order_has_a_text() -> None:
    """For exactly the core's key words. A cancel uses its order's text."""
    text = "".join(path.read_text() for path in CORE)
    written = {word for pair in KEY_WORDS.findall(text) for word in pair if word}
    assert {*written, *ORDER_TEXTS_BY_ACTOR.values()} == {
        *ORDER_TEXTS,
        "cancel",
        "cancel-release",
        "cut",
        "look-away",
        "uncertify",
    }


def test_golden() -> None:
    """Each text with its severity, for all types. To change one: write the file anew."""
    assert {type(event) for event in EVERY} == set(OURS.values())
    names = Names({"u1": "shop/web-0"})
    found = [(type(event).__name__, event.describe(names, NOW)) for event in EVERY]
    assert "".join(f"{each.level} {tag:<20} {each.text}\n" for tag, each in found) == GOLDEN.read_text()

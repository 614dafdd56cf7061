"""One row an event: its text, how severe it is, its form in the log, and what it names."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import TYPES, Event, Fact, Order, Stamp, parse_order_key
from ebbtide.events.messages import (
    COMMON_NAMES,
    DEBUG,
    DERIVED,
    ERROR,
    INFO,
    NOTICE,
    ORDER_TEXTS,
    ORDER_TEXTS_BY_ACTOR,
    ROWS,
    VALUE_NAMES,
    WARNING,
    Names,
    Row,
    describe,
    order_text,
)
from ebbtide.events.model import Pod
from ebbtide.replay.redact import has_text
from tests.events.vocabulary import EVERY

NOW = Stamp(0, 0)
GOLDEN = Path(__file__).parent / "messages.txt"
CORE = sorted((Path(__file__).parents[2] / "actors").glob("*.py"))
OURS = {name: kind for name, kind in TYPES.items() if kind.__module__.startswith("ebbtide.events.")}
#: As an actor writes the key of an order: its word, which a container's name may follow.
KEY_WORDS = re.compile(
    r'(?:order_key\((?:NAME|OWNER), |_(?:key|call_back)\(state, |\.key\()f?"([a-z-]+)'
    r'|^STOP_KUBELET = "([a-z-]+)"',
    re.MULTILINE,
)


# --- the columns -------------------------------------------------------------------------------


def test_every_event_has_a_row() -> None:
    """A new type without one would be a hole in every timeline, log and redacted journal."""
    assert {kind.__name__ for kind in ROWS} == set(OURS)


def test_no_column_of_a_row_has_a_default_but_the_rare_ones() -> None:
    """Whoever adds an event decides about its text, its severity, its form in the log and what it names."""
    assert Row._fields[:4] == ("text", "level", "log", "names")
    assert set(Row._field_defaults) == set(Row._fields[4:])


@pytest.mark.parametrize("name", OURS)
def test_a_row_says_what_each_text_of_its_event_names(name: str) -> None:
    """Facts and orders stand in a redacted journal as they are, but for their names; the rest is derived
    anew. A row says it of each field with text that has no common meaning, and of no other.
    """
    kind, row = OURS[name], ROWS[OURS[name]]
    fields = inspect.type_info(kind).fields  # type: ignore[attr-defined]
    if not issubclass(kind, Fact | Order) and kind not in (d.GrantAssessed, d.LastBootEnded):
        assert row.names is DERIVED
        return
    texts = {field.name for field in fields if has_text(field.type)} - set(COMMON_NAMES)
    numbers = {field for field, names in row.names.items() if names == "person"}
    assert set(row.names) == texts | numbers
    assert row.names is not DERIVED


@pytest.mark.parametrize("value", VALUE_NAMES)
def test_so_do_the_values_that_events_are_made_of(value: type) -> None:
    """By field, in the table beside the rows'."""
    fields = inspect.type_info(value).fields  # type: ignore[attr-defined]
    texts = {field.name for field in fields if has_text(field.type)} - set(COMMON_NAMES)
    assert set(VALUE_NAMES[value]) == texts


def levels(kind: type[Event]) -> set[int]:
    return {
        found.level for event in EVERY if type(event) is kind and (found := describe(Names(), event, NOW))
    }


def test_a_level_is_one_of_five_and_a_function_of_the_event_gives_more_than_one() -> None:
    """A function that always gives the same would hide a number."""
    for kind, row in ROWS.items():
        assert levels(kind) <= {ERROR, WARNING, NOTICE, INFO, DEBUG}
        assert not callable(row.level) or len(levels(kind)) > 1, kind.__name__


def test_a_form_in_the_log_knows_its_places() -> None:
    """The text is always in it; the rest is the time and the pod."""
    for kind, row in ROWS.items():
        if row.log and not callable(row.log):
            assert "TEXT" in row.log.format(text="TEXT", since="+1.000 s", pod="shop/web-0"), kind.__name__
        assert not row.console or row.log, "what is on the console is in the log"


# --- the texts ---------------------------------------------------------------------------------


def test_names_are_learned_before_they_are_used() -> None:
    """A straggler is called by the name that the plan gave it."""
    names = Names()
    pod = msgspec.convert({"uid": "u1", "namespace": "shop", "name": "web-0"}, type=Pod)
    describe(names, d.PodPlanned(wave=2, grace_seconds=3, pod=pod), NOW)
    found = describe(names, d.WaveEnded(wave=2, outcome="overran", stragglers=("u1",)), NOW)
    assert found is not None
    assert found.text == "wave 2 overran; still running: shop/web-0"
    assert found.level == WARNING
    assert names.waves == {"u1": 2}


def test_a_key_that_is_none_stays_as_it_is() -> None:
    """Somebody else's text is not taken apart."""
    assert order_text(Names(), "not a key") == "not a key"
    assert not any(parse_order_key("not a key"))


def test_an_order_is_named_by_its_pod_and_container() -> None:
    """Keys hold UIDs; people read names."""
    key = "HookActor/stop:main/u1/0"
    assert order_text(Names({"u1": "shop/web-0"}), key) == "the stop signal for shop/web-0/main"


def test_every_order_has_a_text() -> None:
    """Of each word that the core puts into an order's key, and of no other. What cancels an order is called
    by the order's.
    """
    text = "".join(path.read_text() for path in CORE)
    written = {word for pair in KEY_WORDS.findall(text) for word in pair if word}
    assert {*written, *ORDER_TEXTS_BY_ACTOR.values()} == {
        *ORDER_TEXTS,
        "cancel-release",
        "cut",
        "look-away",
        "uncertify",
    }


def test_a_failed_order_says_why() -> None:
    """With the reason where there is one, else with the kind of failure."""
    key = "EpisodeActor/inventory//0"
    found = [
        describe(Names(), f.OrderEnded(key=key, result=result, reason=reason), NOW)  # type: ignore[arg-type]
        for result, reason in (("failed", "no route"), ("timed-out", ""), ("unknown", ""), ("done", ""))
    ]
    assert [each.text for each in found if each] == [
        "listing the pods failed: no route",
        "listing the pods failed: timed-out",
        "listing the pods ended unknown",
        "listing the pods is done",
    ]


def test_golden() -> None:
    """Every text, with how severe it is; the examples lack no type. To change one: write the file anew."""
    assert {type(event) for event in EVERY} == set(ROWS)
    names = Names({"u1": "shop/web-0"})
    found = [(type(event).__name__, describe(names, event, NOW)) for event in EVERY]
    assert (
        "".join(f"{each.level} {tag:<20} {each.text}\n" for tag, each in found if each) == GOLDEN.read_text()
    )


def test_a_type_of_another_version_has_no_text() -> None:
    """Whoever prints it shows what it holds."""

    class Other(Event):
        pass

    assert describe(Names(), Other(), NOW) is None

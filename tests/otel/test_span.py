"""Trace and span IDs: derived from the journal, stable and unique."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ebbtide.events.decisions import RunHook
from ebbtide.otel import span as ids

TRACE = bytes(range(16))
HASH = bytes(range(32))

Text = st.text(max_size=6)


@given(st.tuples(Text, Text, st.integers(0, 11)), st.tuples(Text, Text, st.integers(0, 11)))
def test_spans_with_different_names_have_different_ids(
    one: tuple[str, str, int], other: tuple[str, str, int]
) -> None:
    """Different splits of role, key and attempt give different IDs."""
    assert (ids.span_id_of(TRACE, *one) == ids.span_id_of(TRACE, *other)) == (one == other)


def test_ids_never_change() -> None:
    """Sent IDs must never change: they are part of the format."""
    assert ids.trace_id_of(HASH).hex() == "66978f0f440a22e48df621c6dd8cf783"
    assert ids.boot_trace_id(HASH).hex() == "80347730e7b0eae74495ce1c9d4fe0b0"
    assert ids.span_id_of(TRACE, "pod", "uid-1", 2).hex() == "8046f78105bfb21e"


def test_an_order_names_its_span_beforehand() -> None:
    """Each order with a span has a role; a hook's order is ``RunHook``."""
    key = "HookActor/hook:main/uid-1/0"
    assert RunHook.span_role == "hook"
    assert ids.hook_span_id(TRACE, key) == ids.span_id_of(TRACE, "hook", key)
    assert ids.span_of(
        TRACE, RunHook(key=key, uid="uid-1", container="main", timeout_ns=1)
    ) == ids.hook_span_id(TRACE, key)


def test_traceparent_is_that_of_the_w3c() -> None:
    """Version, trace, span, flags: lower-case hex, sampled."""
    assert ids.traceparent(TRACE, TRACE[8:]) == "00-000102030405060708090a0b0c0d0e0f-08090a0b0c0d0e0f-01"

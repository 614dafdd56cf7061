"""Equality of spans, without a back end."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from ebbtide.otel import attributes as at
from ebbtide.otel.span import Resource
from tests.backends.compare import told, wired
from tests.otel.outage_story import wrong

RESOURCE = Resource((), 1)


def root() -> WireSpan:
    """The root of an outage that closes while pods still hang."""
    return next(span for span in wired(wrong().spans(), RESOURCE).values() if not span.parent_span_id)


@pytest.mark.parametrize(
    ("names", "same"),
    [(["shop/db-0", "shop/bare"], True), (["shop/bare", "shop/db-0"], False), (["shop/db-0"], False)],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_list_kept_as_json_is_that_list(names: list[str], same: bool, separators: tuple[str, str]) -> None:
    kept = root()
    (given,) = (each for each in kept.attributes if each.key == at.UNRECOVERED)
    given.value.string_value = json.dumps(names, separators=separators)
    assert (told(kept) == told(root())) == same

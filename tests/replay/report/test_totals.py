"""One shutdown, one length: the page's headline, its figures and its chain count to the same moment."""

from __future__ import annotations

import pytest

from ebbtide import replay
from ebbtide.events.record.format import span
from ebbtide.replay.critical_chain import critical_chain
from ebbtide.replay.report.markup import verdict
from ebbtide.replay.report.page import figures_section, held_up


@pytest.mark.parametrize("seed", [1, 5, 12, 39])
def test_one_total(seed: int) -> None:
    """To the order of the release, as ``journal ls`` counts."""
    (account,) = replay.simulate(seed, synthetic=7).shutdown_records()
    assert account.ended_ns is not None
    total = span(account.ended_ns)
    chain = critical_chain(account)
    assert chain.total_ns == account.ended_ns
    assert total in verdict(account)
    assert f" of {total}" in held_up(account, chain)
    assert f"<dd>{total}</dd>" in figures_section(account)


def test_nobody_is_said_to_have_held_what_many_held() -> None:
    """The power went while most pods were on their way down: none of them is called the holder."""
    (account,) = replay.simulate(9, synthetic=30).shutdown_records()
    assert account.outcome == "truncated"
    assert account.count("unknown") > 1
    said = held_up(account, critical_chain(account))
    assert "held by" not in said
    assert "pods had not ended: " in said

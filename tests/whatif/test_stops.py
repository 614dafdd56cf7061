"""How long each pod took to stop, and what that says of it under other periods."""

from __future__ import annotations

import pytest

from events.decisions import HookResult
from replay.account.model import ContainerTold, HookTold
from replay.advise.advising import advise
from replay.advise.stops import stops
from replay.advise.survival import Observation
from tests.whatif.bed import SECOND
from tests.whatif.test_advise import account, ended, killed


def hook(result: HookResult, seconds: int = 0) -> HookTold:
    until_ns = SECOND + seconds * SECOND
    return HookTold(
        container="main", kind="exec", began_ns=SECOND, until_ns=until_ns, ended_ns=until_ns, result=result
    )


@pytest.mark.parametrize(
    "result, hope", [("done", "saved"), ("not-run", "perhaps"), ("timed-out", "perhaps")]
)
def test_a_hook_that_was_not_whole_may_take_longer_with_more_time(result: HookResult, hope: str) -> None:
    """It ended in 1 s without its hook, or with half of it: how long the whole takes is not known."""
    short = ended("web-1", 1, grace_ns=SECOND, hooks=(hook(result),))
    advice = advise([account(ended("api-0", 9), short)])
    assert [stop.label for stop in getattr(advice, hope)] == (
        ["shop/api-0", "shop/web-1"] if hope == "saved" else ["shop/web-1"]
    )


def test_a_hook_whose_container_ended_was_whole_enough() -> None:
    """It was cut because there was nothing left to stop."""
    gone = ContainerTold(name="main", exited_ns=2 * SECOND)
    short = ended("web-1", 1, grace_ns=SECOND, hooks=(hook("cancelled", 1),), containers=(gone,))
    advice = advise([account(ended("api-0", 9), short)])
    assert not advice.perhaps

"""The metrics under Prometheus's own linter (Debian's ``prometheus`` has ``promtool``)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.otel.meters import Meters, fold
from ebbtide.otel.metrics import ReadContext, exposition
from tests.journals import SHUTDOWN

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"

pytestmark = pytest.mark.root


def promtool(*words: str, feed: str = "") -> str:
    """What it says of its input; it fails by its exit code."""
    argv = ["promtool", *words]
    return subprocess.run(argv, input=feed, text=True, check=True, capture_output=True, cwd=DEPLOY).stdout


@pytest.mark.parametrize("prefix", ["", "kubelet_"])
def test_the_linter_has_nothing_to_say(prefix: str) -> None:
    """With every metric there is, neither an error nor a remark."""
    meters = Meters()
    fold(meters, History([DirectorySource(SHUTDOWN)]).records())
    around = ReadContext(1_700_000_100 * NS_PER_SECOND, 1, 2, False, False, 3, NS_PER_SECOND)
    assert promtool("check", "metrics", feed=exposition(meters, around, prefix)) == ""


def test_the_rules_are_rules() -> None:
    """Prometheus accepts every alert."""
    assert "SUCCESS" in promtool("check", "rules", "ebbtide.rules.yaml")


def test_each_alert_fires_when_it_should_and_only_then() -> None:
    """The unit tests of the rules: a series in, alerts out."""
    assert "SUCCESS" in promtool("test", "rules", "ebbtide.rules.test.yaml")

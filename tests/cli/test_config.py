"""Output of `config show` and `config check`, and the reference from the types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.cli import config as view
from ebbtide.config import Loaded, parse
from ebbtide.events.base import NS_PER_SECOND

ROOT = Path(__file__).parents[2]
OWN = "apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n"
PAIR = OWN + "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n"


def loaded(text: str) -> Loaded:
    return parse([("a.yaml", text.encode())])


@settings(max_examples=30)
@given(
    seconds=st.integers(1, 10**6),
    listed=st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 10**6)), max_size=4),
    gate=st.booleans(),
    paths=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9), max_size=4),
)
def test_the_yaml_is_a_document_that_loads_to_the_same(
    seconds: int, listed: list[tuple[int, int]], gate: bool, paths: list[str]
) -> None:
    """`config show -o yaml` is itself a configuration."""
    entries = [f"{{priority: {p}, shutdownGracePeriodSeconds: {s}}}" for p, s in listed]
    form = f"ByPodPriority: [{', '.join(entries)}]" if listed else f": {seconds}s"
    quoted = [view.yaml_line("/" + path) for path in paths]
    first = loaded(
        OWN + f"shutdownGracePeriod{form}\nfeatureGates: {{PodLifecycleSleepAction: {str(gate).lower()}}}\n"
        f"journalFallbacks:{''.join(f'{chr(10)}- {path}' for path in quoted) or ' []'}\n"
    )
    again = loaded(view.configuration_yaml(first))
    assert (again.settings, again.config) == (first.settings, first.config)
    assert "  GracefulNodeShutdown: true  # default" in view.configuration_yaml(first).splitlines()


@pytest.mark.parametrize(
    "extra, grant_seconds, overrider, honoured, codes",
    [
        ("", None, "", True, []),
        ("", 40, "zzz.conf", True, []),
        ("", 32, "", True, ["grant-raised"]),
        ("", 32, "/zzz.conf", True, ["reserve-not-granted", "grant-overridden"]),
        ("", 15, "/zzz.conf", False, ["grant-too-small", "wave-cut", "grant-overridden"]),
        ("raiseGrant: false\n", 15, "", False, ["grant-too-small", "wave-cut"]),
        ("raiseGrant: false\n", 32, "", True, ["reserve-not-granted"]),
        ("reserve: 2s\n", None, "", True, ["reserve-too-small"]),
        ("reserve: 2s\n", 30, "", True, ["grant-raised", "reserve-too-small"]),
        ("reserve: 3s\n", None, "", True, []),
    ],
)
def test_a_valid_configuration_is_checked_against_the_limit(
    extra: str,
    grant_seconds: int | None,
    overrider: str,
    honoured: bool,
    codes: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Fails only if the periods do not fit and the daemon cannot raise the limit."""
    grant_ns = None if grant_seconds is None else grant_seconds * NS_PER_SECOND
    checked = view.check_configuration(loaded(PAIR + extra), grant_ns, overrider)
    assert checked["honoured"] is honoured
    assert [each["code"] for each in checked["findings"]] == codes
    verdict = "valid, and can be honoured" if honoured else "valid, but it cannot be honoured"
    view.show_check(checked)
    assert capsys.readouterr().out.startswith(verdict)


def test_the_committed_references_are_current() -> None:
    """docs/configuration.md and docs/outage-configuration.md match the types."""
    check = subprocess.run(
        [sys.executable, "docs/tools/write_configuration.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert check.returncode == 0, check.stderr

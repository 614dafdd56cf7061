"""The last resort: one line a transition, wherever it may survive."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ebbtide.events import writer as lastresort
from ebbtide.events.decisions import PodEnded, WaveStarted
from ebbtide.events.writer import LINE_BYTES_MAX, transition_line, write_last_resort
from tests.events.making import step


def test_a_transition_is_one_line_of_plain_fields() -> None:
    """Tuples are counted, texts are quoted."""
    ended = PodEnded(uid="u1", wave=0, outcome="killed", reason="ignored SIGTERM")
    record = msgspec.structs.replace(step(5)[1], event=ended)
    line = transition_line(record)
    assert line is not None
    assert line.startswith(
        "ebbtide: 6 5000000 PodEnded uid='u1' wave=0 outcome='killed' reason='ignored SIGTERM'"
    )
    started = WaveStarted(wave=1, priority=0, period_ns=1, deadline_ns=2, kill_by_ns=3)
    assert "pods=0" in (transition_line(msgspec.structs.replace(record, event=started)) or "")


def test_what_is_no_transition_has_no_line() -> None:
    """A log in trouble is not flooded."""
    assert [transition_line(record) for record in step(1)] == [None, None, None]


def test_a_line_is_bounded() -> None:
    """The kernel's log refuses longer ones."""
    record = msgspec.structs.replace(
        step(1)[0], event=PodEnded(uid="u", wave=0, outcome="killed", reason="x" * 5000)
    )
    assert len(transition_line(record) or "") == LINE_BYTES_MAX


def test_the_kernel_log_and_pstore_get_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both, where both are there."""
    places = [tmp_path / "kmsg", tmp_path / "pmsg0"]
    for place, name in zip(places, ("KERNEL_LOG", "PSTORE"), strict=True):
        place.touch()
        monkeypatch.setattr(lastresort, name, str(place))
    write_last_resort("ebbtide: 1 WaveEnded")
    assert [place.read_text() for place in places] == ["ebbtide: 1 WaveEnded\n"] * 2


def test_without_them_standard_error_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is raised, whatever is missing or refuses."""
    monkeypatch.setattr(lastresort, "KERNEL_LOG", str(tmp_path / "none"))
    monkeypatch.setattr(lastresort, "PSTORE", "/dev/full")
    write_last_resort("ebbtide: 1 WaveEnded")
    assert capsys.readouterr().err == "ebbtide: 1 WaveEnded\n"

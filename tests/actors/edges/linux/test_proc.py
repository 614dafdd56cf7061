"""The ``/proc`` parsers read the kernel's output and survive anything else."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.proc import FIRST_PROCESS_TEXT, signal_name, signal_number, verdict_of

NUMBERS = st.integers(min_value=0, max_value=2**31)
COMMANDS = st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]), max_size=15)


@given(NUMBERS, COMMANDS, st.sampled_from("RSDTtZXI"), NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_a_stat_line_comes_back(
    pid: int, command: str, state: str, parent: int, group: int, session: int, start: int
) -> None:
    """Program names with brackets and spaces keep the fields in place."""
    rest = " ".join("0" for _ in range(15))
    text = f"{pid} ({command}) {state} {parent} {group} {session} {rest} {start} 0 0\n"
    assert proc.parse_stat(text) == proc.ProcessStat(pid, command, state, parent, group, session, start)


@given(st.integers(min_value=1, max_value=64).filter(lambda n: n not in (32, 33)))
def test_every_signal_s_name_is_its_number(number: int) -> None:
    """Signals 32 and 33 belong to the C library and have no name."""
    assert signal_number(signal_name(number)) == number
    assert signal_number(str(number)) == number


def test_connections_are_counted_when_they_are_established() -> None:
    """A listening socket is no connection; the inode is read from its column."""
    text = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1\n"
        "   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 12 1\n"
    )
    assert proc.parse_tcp(text) == {12}
    assert proc.socket_inode("socket:[12]") == 12
    assert proc.socket_inode("pipe:[12]") is None


def status_of(
    blocked: int = 0, ignored: int = 0, caught: int = 0, pids: tuple[int, ...] = (7,)
) -> proc.ProcessStatus:
    return proc.ProcessStatus("S (sleeping)", blocked, ignored, caught, pids)


TERM = 1 << (signal.SIGTERM - 1)


@pytest.mark.parametrize(
    "status, name, verdict",
    [
        (status_of(), "SIGTERM", "ends"),
        (status_of(ignored=TERM), "SIGTERM", "ignores"),
        (status_of(caught=TERM), "SIGTERM", "handles"),
        (status_of(caught=TERM, blocked=TERM), "SIGTERM", "handles"),
        (status_of(blocked=TERM), "SIGTERM", "unclear"),
        (status_of(ignored=TERM), "SIGINT", "ends"),
        (status_of(pids=(7, 1)), "SIGTERM", "ignores"),
        (status_of(pids=(7, 1), caught=TERM), "SIGTERM", "handles"),
        (status_of(pids=(7, 2)), "SIGTERM", "ends"),
        (status_of(), "SIGWINCH", "ignores"),
        (status_of(pids=(7, 1), ignored=TERM), "SIGKILL", "ends"),
    ],
)
def test_a_forecast_follows_from_the_masks(status: proc.ProcessStatus, name: str, verdict: str) -> None:
    """Ignored, caught, blocked, or PID 1 of a namespace: each has its consequence and fix."""
    assert verdict_of(status, name)[0] == verdict
    if status == status_of(pids=(7, 1)):
        assert verdict_of(status, name)[1] == FIRST_PROCESS_TEXT

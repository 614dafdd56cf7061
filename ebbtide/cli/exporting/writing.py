"""Writing a shutdown's records into the formats of other tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ebbtide.cli.episodes import choose_account
from ebbtide.cli.events import json_line
from ebbtide.cli.reading import open_journal
from ebbtide.cli.saving import save
from events.history import History
from replay.perfetto import perfetto
from replay.timeline import timeline


def write_perfetto(journals: Sequence[Path], name: str, output: Path | None) -> int:
    """Exit code 0, or that of the journal's verdict. Raises Refused for what is not there."""
    account, code = choose_account(journals, name)
    lines = timeline(open_journal(journals).batches(), account.first_seq)
    save(output, perfetto(account, lines), readable=False, example="shutdown.pftrace")
    return code


def write_jsonl(journals: Sequence[Path], name: str, output: Path | None) -> int:
    """Exit code 0, or that of the journal's verdict. Raises Refused for what is not there."""
    account, code = choose_account(journals, name)
    lines = json_lines(open_journal(journals), account.first_seq)
    save(output, lines, readable=True, example="shutdown.jsonl")
    return code


def json_lines(history: History, episode: int) -> Iterator[bytes]:
    """The records of the shutdown whose first record has this number, a batch at a time."""
    for header, records in history.batches():
        wanted = [raw for raw in records if episode in (raw.episode, raw.seq)]
        yield b"".join(json_line(header, raw) for raw in wanted)

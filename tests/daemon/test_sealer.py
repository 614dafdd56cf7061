"""A daemon's seals: where somebody has asked for them, of what is durable, and never a reason to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.daemon import Sealer
from ebbtide.events.disk import DirectoryStorage
from ebbtide.events.reader import History
from ebbtide.events.seal import (
    SEALS_FILE,
    Seals,
    checked_seals,
    encode_seals,
    parse_seals,
    with_seal,
)
from tests.events import making
from tests.journals import JOURNAL_ID

FIRST = bytes(range(32))


def seals(folder: Path) -> list[int]:
    found = parse_seals((folder / SEALS_FILE).read_bytes())
    return [seal.seq for seal in checked_seals(found, FIRST)]


async def test_what_is_durable_is_sealed_once(tmp_path: Path) -> None:
    """Nothing new, no seal; and each head is that of the journal's record."""
    storage = DirectoryStorage(tmp_path)
    (tmp_path / SEALS_FILE).write_bytes(encode_seals(Seals(FIRST.hex())))
    async with making.running([storage]) as writer:
        sealer = Sealer(writer, storage, lambda: 7, lambda level, line: pytest.fail(line))
        await making.write_steps(writer, 2, synced=True)
        first_seq, _ = writer.head
        await sealer.seal()
        await sealer.seal()
        await making.write_steps(writer, 1, synced=True)
        await sealer.seal()
        assert seals(tmp_path) == [first_seq, writer.head[0]]
    heads = {raw.seq: raw.hash.hex() for raw in History([storage.source]).raw()}
    for seal in parse_seals((tmp_path / SEALS_FILE).read_bytes()).seals:
        assert heads[seal.seq] == seal.head


@pytest.mark.parametrize("kind", ["damaged", "full"])
async def test_what_cannot_be_sealed_is_said_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays as it is: a new file would hide that something was done to it."""
    storage, said = DirectoryStorage(tmp_path), list[str]()
    monkeypatch.setattr("ebbtide.daemon.SEALS_MAX", 1)
    full = with_seal(Seals(FIRST.hex()), JOURNAL_ID, 1, bytes(32), 0)
    before = encode_seals(full) if kind == "full" else b"{"
    (tmp_path / SEALS_FILE).write_bytes(before)
    async with making.running([storage]) as writer:
        await making.write_steps(writer, 1, synced=True)
        sealer = Sealer(writer, storage, lambda: 7, lambda level, line: said.append(line))
        await sealer.seal()
        await sealer.seal()
    assert len(said) == 1
    assert said[0].startswith("the journal cannot be sealed: ")
    assert (tmp_path / SEALS_FILE).read_bytes() == before

"""A fixed sample of `tests.node.matrix`: every part, with different faults, times and modes."""

from __future__ import annotations

import pytest

from tests.beds.skipping import or_skip
from tests.node.bed import Bed
from tests.node.matrix import Cell, command, run_cell

pytestmark = [pytest.mark.node]

SAMPLE = (
    "api:api-server:killed:at",
    "cri:api-server:killed:before",
    "api:api-server:hung:wave-1",
    "api:containerd:killed:at",
    "cri:containerd:killed:wave-1",
    "api:containerd:hung:wave-1",
    "cri:containerd:hung:wave-1",
    "api:kubelet:hung:before",
    "api:kubelet:hung:at",
    "api:kubelet:killed:wave-1",
    "cri:logind:killed:wave-1",
    "api:bus:killed:before",
    "cri:disk:hung:at",
    "api:daemon:killed:between",
    "auto:network:killed:before",
)


@pytest.mark.parametrize("name", SAMPLE)
async def test_cell(bed: Bed, name: str) -> None:
    """Check lock, order, signals, hooks, outcomes, the API after the next boot, and the replay."""
    cell = Cell(*name.split(":"))
    with or_skip():
        made = await run_cell(bed, cell)
    assert not made["broken"], f"{made['broken']}: {command(cell)}"
    assert not made["without_sigterm"]

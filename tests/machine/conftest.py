"""A whole machine per test, with the oldest supported systemd and a new one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.beds.machine import Machine, machine_bed
from tests.beds.rootfs import SUITES
from tests.beds.skipping import or_skip


@pytest.fixture(params=SUITES)
async def machine(request: pytest.FixtureRequest) -> AsyncIterator[Machine]:
    """An off machine: install first, then `boot`."""
    with or_skip():
        async with machine_bed(request.param) as made:
            yield made
            # Shown on failure: the machine's disk is removed.
            print(made.console(), await made.system_log("-u", "ebbtide", "-o", "short-precise"), sep="\n")

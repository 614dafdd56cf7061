"""A whole machine for each test, once with the oldest systemd that we know and once with a new one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.beds.machine import Machine, machine_bed
from tests.beds.rootfs import SUITES
from tests.beds.skipping import or_skip


@pytest.fixture(params=SUITES)
async def machine(request: pytest.FixtureRequest) -> AsyncIterator[Machine]:
    """A machine that is not booted yet: put in what it needs, then `boot`."""
    with or_skip():
        async with machine_bed(request.param) as made:
            yield made
            # Shown where the test failed: the machine goes with its disk.
            print(made.console(), await made.system_log("-u", "ebbtide", "-o", "short-precise"), sep="\n")

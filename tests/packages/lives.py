"""What `test_machine.py` leaves out, because CI has no time for it.

pytest tests/packages/lives.py
"""

from __future__ import annotations

import subprocess
from itertools import product

import pytest

from deploy.packages.build import FORMATS
from tests.beds.rootfs import SUITES
from tests.machine.node import Node
from tests.packages.made import Packages
from tests.packages.test_machine import SAMPLE, life
from tests.packages.test_machine import node as node

LINTIAN_SECONDS_MAX = 300
OTHERS = [each for each in product(SUITES, FORMATS) if each not in SAMPLE]


@pytest.mark.parametrize("machine, form", OTHERS, indirect=["machine"])
async def test_the_life_of_a_package(node: Node, packages: Packages, form: str) -> None:
    """The same on the other machines."""
    await life(node, packages, form)


def test_debians_own_judgement(packages: Packages) -> None:
    """No tag of lintian's that is not overridden with its reason, but one: Debian's archive has no zstd, its
    dpkg does.
    """
    argv = ("lintian", "--allow-root", "--suppress-tags", "malformed-deb-archive", str(packages.first["deb"]))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LINTIAN_SECONDS_MAX)
    assert (done.returncode, done.stdout) == (0, "")

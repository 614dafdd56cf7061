"""Build the packages once for all tests."""

from __future__ import annotations

import pytest

from tests.beds.skipping import or_skip
from tests.machine.conftest import machine  # noqa: F401  # a fixture
from tests.packages.made import Packages, make


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    with or_skip():
        return make(tmp_path_factory.mktemp("packages"))

"""One of each real back end for all tests of this folder; skipped where it cannot be built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.backends import backends
from tests.backends.backends import Backend, Collector, Jaeger, Tempo
from tests.beds.skipping import or_skip


def _one(make: Callable[[Path], AbstractContextManager[Backend]], folder: Path) -> Iterator[Backend]:
    with or_skip():
        bed = make(folder)
        with bed as backend:
            yield backend


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    yield from _one(backends.jaeger, tmp_path_factory.mktemp("jaeger"))


@pytest.fixture(scope="session")
def tempo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    yield from _one(backends.tempo, tmp_path_factory.mktemp("tempo"))


@pytest.fixture(scope="session")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    yield from _one(backends.collector, tmp_path_factory.mktemp("collector"))


__all__ = ["Collector", "Jaeger", "Tempo"]

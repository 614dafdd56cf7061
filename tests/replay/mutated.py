"""The logic with one changed comparison: freshly loaded modules; the real ones stay."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.core_modules import MODULES

#: These depend on the logic and must be reloaded with it.
FAMILIES = (*MODULES, "ebbtide.replay", "tests.scripts", "tests.handlers")


class _Mutant(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Finds one module, and changes its source."""

    def __init__(self, module: str, change: Callable[[str], str]) -> None:
        self._module, self._change = module, change
        found = importlib.util.find_spec(module)
        assert found is not None
        assert found.origin is not None
        self._path = found.origin

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._module:
            return None
        return importlib.util.spec_from_loader(name, self, origin=self._path)

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str) -> bytes:
        return self._change(Path(self._path).read_text()).encode()


@contextmanager
def mutated(module: str, before: str, after: str) -> Iterator[Any]:
    """`replay.verify` with this unique source text replaced."""

    def change(source: str) -> str:
        assert source.count(before) == 1, f"{before!r} stands in {module} not exactly once"
        return source.replace(before, after)

    with rewritten(module, change) as verification:
        yield verification


@contextmanager
def rewritten(module: str, change: Callable[[str], str]) -> Iterator[Any]:
    """`replay.verify` with one module's source rewritten."""
    mutant = _Mutant(module, change)
    kept = {name: loaded for name, loaded in sys.modules.items() if _is_of(name)}
    # `from package import module` reads the package's attribute before it imports.
    attributes = [
        (sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2])
        for name in (*MODULES, "ebbtide.replay")
    ]
    before = [(parent, name, getattr(parent, name)) for parent, name in attributes if hasattr(parent, name)]
    for parent, name, _ in before:
        delattr(parent, name)
    for name in kept:
        del sys.modules[name]
    sys.meta_path.insert(0, mutant)
    try:
        yield importlib.import_module("ebbtide.replay.verify")
    finally:
        sys.meta_path.remove(mutant)
        for name in [name for name in sys.modules if _is_of(name)]:
            del sys.modules[name]
        sys.modules.update(kept)
        for parent, name, loaded in before:
            setattr(parent, name, loaded)


def _is_of(name: str) -> bool:
    return any(name == family or name.startswith(f"{family}.") for family in FAMILIES)

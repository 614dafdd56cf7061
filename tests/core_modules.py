"""The modules of the deterministic core, for mutation, reloading and house rules."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Parts of ``actors/`` outside the core: the edges' interface, the runner, a logind model.
NOT_CORE = ("__init__", "interfaces", "runner", "simulated_logind")

FILES = sorted(
    path
    for path in (*(ROOT / "actors").glob("*.py"), *(ROOT / "actors" / "policy").glob("*.py"))
    if path.stem not in NOT_CORE
)


def module_name(path: Path) -> str:
    """``ebbtide.actors.wave`` for ``actors/wave.py``."""
    return ".".join(("ebbtide", *path.relative_to(ROOT).with_suffix("").parts))


MODULES = tuple(map(module_name, FILES))

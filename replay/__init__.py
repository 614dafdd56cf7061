"""The replay of recorded shutdowns, as a library: what the commands do, a notebook can do.

``import replay`` costs nothing: each name below is loaded when it is first used (``docs/replay.md``).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

#: What may be asked of this package by name, and where it lives.
EXPORTS: dict[str, str] = {
    "open": "replay.journal:open_journal",
    "Journal": "replay.journal:Journal",
    "Shutdown": "replay.journal:Shutdown",
    "NoJournal": "replay.journal:NoJournal",
    "NoSuchShutdown": "replay.choice:NoSuchShutdown",
    "Account": "replay.account.model:Account",
    "accounts": "replay.account.fold:accounts",
    "verify": "replay.front:verify",
    "timeline": "replay.front:timeline_of",
    "states_at": "replay.front:states_at",
    "step": "replay.front:step",
    "blame": "replay.front:blame",
    "critical_chain": "replay.front:critical_chain",
    "diff": "replay.front:diff",
    "what_if": "replay.front:what_if",
    "WrongChange": "replay.whatif.changes:WrongChange",
    "advise": "replay.front:advise",
    "NoEvidence": "replay.advise.advising:NoEvidence",
    "simulate": "replay.front:simulate",
    "rows": "replay.front:rows",
    "report_html": "replay.front:report_html",
    "perfetto": "replay.front:perfetto_trace",
}

__all__ = tuple(EXPORTS)


class _Front(ModuleType):
    """This package. A submodule that is called like an export does not stand in its way."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in EXPORTS or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        target = EXPORTS.get(name)
        if target is None:
            raise AttributeError(f"module 'replay' has no attribute {name!r}")
        module, attribute = target.split(":")
        value = getattr(import_module(module), attribute)
        super().__setattr__(name, value)
        return value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *EXPORTS]


# The import system sets a submodule as an attribute of its package; only a class can say otherwise.
import_module(__name__).__class__ = _Front

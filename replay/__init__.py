"""The replay of recorded shutdowns as a library: a notebook can do what the commands do.

``from ebbtide import replay`` costs no time: each name is loaded at its first use (``docs/replay.md``).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

#: The package's names, and their modules.
EXPORTS: dict[str, str] = {
    "open": "ebbtide.replay.journal_library:open_journal",
    "Journal": "ebbtide.replay.journal_library:Journal",
    "Shutdown": "ebbtide.replay.journal_library:Shutdown",
    "Outage": "ebbtide.replay.journal_library:Outage",
    "NoJournal": "ebbtide.replay.journal_library:NoJournal",
    "NoSuchShutdown": "ebbtide.replay.journal_library:NoSuchShutdown",
    "ShutdownRecord": "ebbtide.events.record.shutdown_record:ShutdownRecord",
    "OutageRecord": "ebbtide.events.record.outage_record:OutageRecord",
    "outage_records": "ebbtide.events.record.episodes:outage_records",
    "shutdown_records": "ebbtide.events.record.episodes:shutdown_records",
    "verify": "ebbtide.replay.library:verify",
    "timeline": "ebbtide.replay.library:timeline_of",
    "states_at": "ebbtide.replay.library:states_at",
    "blame": "ebbtide.replay.library:blame",
    "critical_chain": "ebbtide.replay.library:critical_chain",
    "diff": "ebbtide.replay.library:diff",
    "what_if": "ebbtide.notebook:what_if",
    "load_settings": "ebbtide.notebook:load_settings",
    "load_pods": "ebbtide.notebook:load_pods",
    "WrongChange": "ebbtide.replay.whatif.record:WrongChange",
    "advise": "ebbtide.replay.library:advise",
    "Caution": "ebbtide.replay.advise:Caution",
    "NoEvidence": "ebbtide.replay.advise:NoEvidence",
    "simulate": "ebbtide.replay.library:simulate",
    "rows": "ebbtide.replay.library:rows",
    "utc": "ebbtide.replay.journal_library:utc",
    "report_html": "ebbtide.replay.library:report_html",
}

__all__ = tuple(EXPORTS)


class _Front(ModuleType):
    """This package. A submodule with an export's name does not hide the export."""

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


# The import system sets a submodule as an attribute of its package; only a class can refuse it.
import_module(__name__).__class__ = _Front

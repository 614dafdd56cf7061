"""Configurations and manifests as files for the replay in a notebook, read as the commands do.

Part of ``from ebbtide import replay``, which finds this module by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from ebbtide.actors.policy.planning import PlanWarning
from ebbtide.config import load
from ebbtide.events.record.format import visible
from ebbtide.events.values import Pod, Settings
from ebbtide.manifests import load_pods as load_pods_under
from ebbtide.replay.journal_library import Shutdown
from ebbtide.replay.library import what_if as what_if_settings
from ebbtide.replay.whatif.whatif_run import Comparison

#: Of several files, later ones win field by field.
Files = str | PathLike[str] | Iterable[str | PathLike[str]]


def _paths(files: Files) -> list[Path]:
    return [Path(files)] if isinstance(files, str | PathLike) else [Path(each) for each in files]


def load_settings(config: Files) -> Settings:
    """The settings of a configuration: Ebbtide's, or a kubelet's file. Raises config.ConfigError."""
    return load(_paths(config)).settings


def load_pods(manifests: Files, settings: Settings | None = None) -> tuple[Pod, ...]:
    """The pods of these manifests, under ``settings``' feature gates. Warns of objects that cannot be read.
    Raises manifests.ManifestError.
    """
    notes: list[PlanWarning] = []
    pods = load_pods_under(_paths(manifests), settings or Settings(), notes)
    for code, message in notes:
        warnings.warn(visible(f"{code}: {message}"), stacklevel=2)
    return pods


def what_if(
    shutdown: Shutdown,
    *,
    config: Files | None = None,
    manifests: Files | None = None,
    settings: Settings | None = None,
    pods: Iterable[Pod] = (),
    **changes: Any,
) -> Comparison:
    """The same shutdown under other settings, beside the record (`replay.library.what_if`).

    ``config`` and ``manifests`` are files, in the place of ``settings`` and ``pods``. Raises also the errors
    of `load_settings` and `load_pods`, and ValueError where a file and a value are given for the same.
    """
    pods = tuple(pods)
    if config is not None and settings is not None:
        raise ValueError("config and settings both say what the settings are: leave one out")
    if manifests is not None and pods:
        raise ValueError("manifests and pods both say which pods there are: leave one out")
    if config is not None:
        settings = load_settings(config)
    if manifests is not None:
        pods = load_pods(manifests, settings)
    return what_if_settings(shutdown, settings=settings, pods=pods, **changes)

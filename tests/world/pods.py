"""Pods of the world: the model of every simulation (`replay.virtual.pods`), its waits being Trio's tasks."""

from __future__ import annotations

import trio

from replay.virtual import pods
from replay.virtual.manner import HookPlan, Manner, PodPlan
from replay.virtual.pods import Box, HookProcess, Parent
from tests.world.trail import Tasks, Trail

__all__ = ["Box", "HookPlan", "HookProcess", "Manner", "Parent", "PodPlan", "Pods"]


class Pods(pods.Pods):
    """All containers of one boot. ``nursery`` ends with the boot."""

    def __init__(self, trail: Trail, nursery: trio.Nursery) -> None:
        super().__init__(trail, Tasks(nursery))

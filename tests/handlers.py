"""Replace an event's handler in every phase for a test."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.actors.actor import ActorType, Handler, Machines
from ebbtide.events.base import Event


def handler_columns(actor: ActorType) -> list[dict[type[Event], Handler]]:
    """Each phase's handlers, of each machine."""
    table = actor.transitions
    tables = table.machines if isinstance(table, Machines) else (table,)
    return [column for each in tables for column in each.handlers.values()]


def replace_handler(
    patch: pytest.MonkeyPatch, actor: ActorType, event: type[Event], handler: Handler | Any
) -> None:
    """From now on ``actor`` does this on ``event`` until the patch is undone."""
    columns = [column for column in handler_columns(actor) if event in column]
    assert columns, f"{actor.name} does not hear of {event.__name__}"
    for column in columns:
        patch.setitem(column, event, handler)

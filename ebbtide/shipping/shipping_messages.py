"""Messages between the daemon and the shipper's process, one JSON line each."""

from __future__ import annotations

import msgspec

from ebbtide.otel.metric_table import ShippingState
from ebbtide.shipping.shipping_destination import Store


class ShipJob(msgspec.Struct, frozen=True, kw_only=True):
    """``locations``: possible places of the journal; the cursor is in the first writable one. ``lost``: the
    number of unconfirmed segments that retention removed, to record in the cursor. The end of the pipe
    means that the daemon has ended.
    """

    store: Store
    locations: tuple[str, ...]
    lost: int = 0


class ShipReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``text``: a line for the log. ``state``: after a change. ``recorded``: so many of the job's ``lost``
    segments are in the cursor now.
    """

    text: str = ""
    level: int = 6
    state: ShippingState | None = None
    recorded: int = 0

"""What the daemon and the shipper's process say to each other, a line of JSON each."""

from __future__ import annotations

import msgspec

from ebbtide.otel.metric_table import ShippingState
from ebbtide.shipping.shipping_destination import Store


class ShipJob(msgspec.Struct, frozen=True, kw_only=True):
    """``locations``: where the journal may stand; the cursor is kept in the first that can be written.
    ``lost``: how many segments retention removed that were not known to be in the store; they are to be put
    on record. The pipe's end says that the daemon has gone.
    """

    store: Store
    locations: tuple[str, ...]
    lost: int = 0


class ShipReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line for the log where ``text`` is not empty; ``state`` where it has changed; ``recorded``: so many
    of the job's ``lost`` ones stand in the cursor now.
    """

    text: str = ""
    level: int = 6
    state: ShippingState | None = None
    recorded: int = 0

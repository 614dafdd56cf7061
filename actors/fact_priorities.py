"""What is admitted first when several facts wait: logind and people, then outcomes, then the rest.

The runner's inbox and the loop in virtual time both keep to this table, so that a simulated node admits its
facts in the order in which a real one does.
"""

from __future__ import annotations

from ebbtide.events.base import Fact
from ebbtide.events.facts import (
    BusLost,
    ContainerExited,
    DropInsRead,
    EffectPanicked,
    HurryRequested,
    LogindRead,
    MountsRead,
    OrderEnded,
    PrepareForShutdown,
    PreparingRead,
    ReleaseRequested,
    ScheduleRead,
    SignalRejected,
    StatusesSeen,
    StopRequested,
    VolumesUnmounted,
)

#: Lanes in the order in which they are emptied. Ticks stand between the first and the second.
URGENT, OUTCOMES, REST = range(3)

FACT_PRIORITIES: dict[type[Fact], int] = {
    PrepareForShutdown: URGENT,
    LogindRead: URGENT,
    PreparingRead: URGENT,
    BusLost: URGENT,
    ScheduleRead: URGENT,
    DropInsRead: URGENT,
    SignalRejected: URGENT,
    StopRequested: URGENT,
    HurryRequested: URGENT,
    ReleaseRequested: URGENT,
    OrderEnded: OUTCOMES,
    EffectPanicked: OUTCOMES,
    ContainerExited: OUTCOMES,
    # What an order found comes before its outcome, which may not overtake it.
    MountsRead: OUTCOMES,
    StatusesSeen: OUTCOMES,
    VolumesUnmounted: OUTCOMES,
}

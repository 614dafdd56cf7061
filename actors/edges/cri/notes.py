"""What an operator has to know of a runtime and stands in no record, said once each time."""

from __future__ import annotations

from collections.abc import Callable

from actors.edges.cri.annotations import PRIORITY
from events.model import Pod

#: Takes a line with its sd-daemon(3) level.
Tell = Callable[[int, str], None]

WARNING, NOTICE = 4, 5
#: Pods that one line names.
NAMED_MAX = 5


class Notes:
    """Remembers what was said."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._away = False
        self._direct = False

    def away(self, error: Exception) -> None:
        """The runtime does not answer."""
        if not self._away:
            self._tell(WARNING, f"container runtime: {error}; pods that appear are not seen")
        self._away = True

    def back(self) -> None:
        """It answers."""
        if self._away:
            self._tell(NOTICE, "container runtime: it answers again")
        self._away = self._direct = False

    def direct(self) -> None:
        """A stop signal went without it."""
        if not self._direct:
            self._tell(WARNING, "container runtime: away; stop signals go to the containers' first processes")
        self._direct = True

    def without_priority(self, pods: list[Pod], *, informed: bool) -> None:
        """Priorities are not in CRI: whoever relies on waves has to know which pods have none. ``informed``:
        the API server, or what is kept of it, was asked.
        """
        unknown = [pod.label for pod in pods if pod.priority is None]
        if not unknown:
            return
        more = f" and {len(unknown) - NAMED_MAX} more" if len(unknown) > NAMED_MAX else ""
        names = ", ".join(unknown[:NAMED_MAX]) + more
        why = f"known priority (nor an annotation {PRIORITY})" if informed else f"annotation {PRIORITY}"
        of = f"{len(unknown)} of {len(pods)} pods have no {why} and count as priority 0"
        self._tell(WARNING, f"{of}: {names}")

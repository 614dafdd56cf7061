"""The real clocks. The monotonic one is what deadlines are made of; it starts anew at each boot."""

from __future__ import annotations

import time


class SystemClock:
    def mono_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()

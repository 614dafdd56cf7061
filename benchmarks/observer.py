"""A program on the bus that notes when logind's signal came: one line of monotonic nanoseconds each.

Run as ``python -m benchmarks.observer ADDRESS``.
"""

from __future__ import annotations

import sys
import time

from jeepney import HeaderFields, MatchRule, message_bus
from jeepney.io.blocking import open_dbus_connection

MEMBER = "PrepareForShutdown"


def main() -> None:
    connection = open_dbus_connection(sys.argv[1])
    rule = MatchRule(type="signal", interface="org.freedesktop.login1.Manager", member=MEMBER)
    connection.send_and_get_reply(message_bus.AddMatch(rule))
    print("ready", flush=True)
    while True:
        message = connection.receive()
        now_ns = time.monotonic_ns()
        if message.header.fields.get(HeaderFields.member) == MEMBER and message.body == (True,):
            print(now_ns, flush=True)


if __name__ == "__main__":
    main()

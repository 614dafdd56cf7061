"""Exec the daemon with the descriptors of its earlier life, from 3 on as in systemd.

``launch.py SOCKET COUNT COMMAND...``: they arrive on the inherited socket. A duplicate elsewhere would hold
the lock.
"""

from __future__ import annotations

import os
import socket
import sys

FIRST = 3
OUT_OF_THE_WAY = 100
FDS_MAX = 16


def main(inherited: str, count: str, *command: str) -> None:
    with socket.socket(fileno=int(inherited)) as channel:
        _, fds, _, _ = socket.recv_fds(channel, 1, FDS_MAX)
    for index, fd in enumerate(fds):
        os.dup2(fd, OUT_OF_THE_WAY + index, inheritable=False)
        os.close(fd)
    for index in range(len(fds)):
        os.dup2(OUT_OF_THE_WAY + index, FIRST + index)
    if int(count):
        os.environ["LISTEN_PID"] = str(os.getpid())
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])

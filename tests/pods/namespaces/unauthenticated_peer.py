#!/usr/bin/env python3
"""An unauthenticated peer that holds a connection to every port on which a host listens:

    unauthenticated_peer.py PID ADDRESS BYTES SKIPPED...

Looks at /proc/PID/net for listening sockets a few hundred times a second, connects to each of them at ADDRESS unless its
port is SKIPPED, sends BYTES bytes and keeps the connection. Prints the ports that it has reached when it is told to end
by closing its standard input."""

import select
import socket
import sys
from pathlib import Path

LISTEN = "0A"
PAUSE_S = 0.003


def listening_ports(pid: str, loopback: bool) -> set[int]:
    """The ports that can be reached at the host's loopback address, or from outside."""
    ports = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            return set()  # the job is over
        for line in lines:
            local, _, state = line.split()[1:4]
            host, port = local.split(":")
            if state == LISTEN and (loopback or host != "0100007F"):
                ports.add(int(port, 16))
    return ports


def main() -> None:
    pid, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    skipped = {int(word) for word in sys.argv[4:]}
    attempts: dict[int, socket.socket] = {}
    tried: set[int] = set()
    reached: set[int] = set()
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        for port, made in list(attempts.items()):
            if select.select([], [made], [], 0)[1] and made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                attempts.pop(port).close()  # refused: the port may be opened again
        for port in listening_ports(pid, address.startswith("127.")) - skipped - set(attempts):
            made = attempts[port] = socket.socket()
            made.setblocking(False)
            made.connect_ex((address, port))
            tried.add(port)
        for port in set(attempts) - reached:
            try:
                attempts[port].send(b"x" * count)
                if count == 0:
                    attempts[port].getpeername()
                reached.add(port)
            except OSError:
                pass  # not connected
    print("tried", *sorted(tried))
    print("reached", *sorted(reached))


if __name__ == "__main__":
    main()

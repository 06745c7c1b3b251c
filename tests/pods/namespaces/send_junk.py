#!/usr/bin/env python3
"""Sends junk to a port: connections with random bytes, and slow ones that send one byte per second.

    send_junk.py ADDRESS PORT CONNECTIONS SLOW SECONDS SEED

Slow connections open at the start, the others evenly over the duration. Prints the number of each."""

import random
import selectors
import socket
import struct
import sys
import time

LATEST_S = 2.0  # lifetime limit of a junk connection


def junk(chance: random.Random) -> bytes:
    return chance.choice((
        b"GET / HTTP/1.1\r\nHost: worker-0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(200),  # the beginning of TLS
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
        chance.randbytes(chance.randrange(1, 5000)),
        bytes(1 << 20),
        b"x",
        b"LSTP" + struct.pack("<HHI", 1, 1, 0xFFFFFFFF),  # a Hello of 4 GiB
        b"LSTP" + struct.pack("<HHI", 1, 1, 100) + chance.randbytes(chance.randrange(200)),
        b"LSTP" + struct.pack("<HHI", 999, 1, 0),
    ))


def main() -> None:
    address, port = sys.argv[1], int(sys.argv[2])
    connections, slow, seconds = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    chance = random.Random(int(sys.argv[6]))
    selector = selectors.DefaultSelector()
    slow_ones: dict[socket.socket, int] = {}
    until: dict[socket.socket, float] = {}  # when to close the other connections
    made = 0
    dripped = 0.0

    def begin(is_slow: bool) -> None:
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex((address, port))
        selector.register(connection, selectors.EVENT_READ | (0 if is_slow else selectors.EVENT_WRITE))
        if is_slow:
            slow_ones[connection] = 0
        else:
            until[connection] = time.monotonic() + LATEST_S

    def end(connection: socket.socket) -> None:
        selector.unregister(connection)
        connection.close()
        slow_ones.pop(connection, None)
        until.pop(connection, None)

    began = time.monotonic()
    for _ in range(slow):
        begin(True)
    while (now := time.monotonic()) < began + seconds:
        while made < connections * (now - began) / seconds:
            begin(False)
            made += 1
        if now > dripped + 1:
            dripped = now
            for connection, sent in list(slow_ones.items()):  # one byte per second of a possible frame
                try:
                    connection.send(b"LSTP\x01\x00\x01\x00\x40\x00\x00\x00"[sent % 12:][:1])
                    slow_ones[connection] = sent + 1
                except BlockingIOError:
                    pass
                except OSError:
                    end(connection)
        for key, events in selector.select(0.01):
            assert isinstance(key.fileobj, socket.socket)
            try:
                if events & selectors.EVENT_WRITE:
                    key.fileobj.send(junk(chance))
                    selector.modify(key.fileobj, selectors.EVENT_READ)
                elif not key.fileobj.recv(4096):
                    end(key.fileobj)
            except OSError:
                end(key.fileobj)
        for connection in [each for each, latest in until.items() if latest < now]:
            end(connection)
    print(f"{made} junk and {slow} slow connections in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()

"""Measures a link from within a host: runs in a network namespace, like the training programs.

probe.py rtt ADDRESS             median round trip of pings, in milliseconds
probe.py sink PORT               accepts one connection; prints the received Mbit/s
probe.py source ADDRESS PORT S   sends for S seconds
"""

from __future__ import annotations

import socket
import statistics
import struct
import sys
import time

CHUNK = 1 << 18
PINGS = 40


def echo_request(number: int) -> bytes:
    words = (8 << 8, 0, 0, number)  # type and code, checksum, identifier, sequence number
    checksum = 0xFFFF & ~sum(words)
    return struct.pack("!4H", words[0], checksum, *words[2:])


def round_trip_ms(address: str) -> float:
    round_trips = []
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as icmp:
        icmp.settimeout(2)
        for number in range(1, PINGS + 1):
            time.sleep(0.01)
            began = time.perf_counter()
            icmp.sendto(echo_request(number), (address, 0))
            while struct.unpack_from("!BxxxHH", icmp.recv(2048), 20) != (0, 0, number):
                pass
            round_trips.append(time.perf_counter() - began)
    return 1000 * statistics.median(round_trips)


def receive_mbit_per_s(port: int) -> float:
    with socket.create_server(("", port)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
    with connection:
        buffer, size = bytearray(CHUNK), 0
        began = time.perf_counter()
        while count := connection.recv_into(buffer):
            size += count
        return size * 8 / 1e6 / (time.perf_counter() - began)


def send(address: str, port: int, seconds: float) -> None:
    chunk = bytes(CHUNK)
    with socket.create_connection((address, port), timeout=5) as connection:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            connection.sendall(chunk)


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "rtt":
        print(round_trip_ms(words[0]))
    elif what == "sink":
        print(receive_mbit_per_s(int(words[0])))
    else:
        send(words[0], int(words[1]), float(words[2]))

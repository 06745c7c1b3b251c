"""Measures the cost of sending bytes during compute between two hosts of one core each: the floor of
bench/save_cost.py.

    python3 bench/bare_sending.py (--listen | --to ADDRESS) --step-ms 10 --exchange-bytes 65536 --bytes 16700000

In each step both ends count for --step-ms and then exchange --exchange-bytes, as ranks that all-reduce activations do.
In every other round the connecting end also sends --bytes, one chunk per step, after its half of the exchange. The
sockets are plain and the data is not inspected. The listening end prints by how much that prolongs a round:
{"added_ms": ...}.
"""

import argparse
import json
import socket
import statistics
import time

PORT = 5577


def count(times: int) -> int:
    total = 0
    for number in range(times):
        total += number
    return total


def counts_in(seconds: float) -> int:
    times = 100_000
    found = []
    for _ in range(20):
        begin = time.monotonic()
        count(times)
        found.append(time.monotonic() - begin)
    return max(1, round(times * seconds / statistics.median(found)))


def send(link: socket.socket, data: memoryview) -> None:
    while data:
        try:
            data = data[link.send(data):]
        except BlockingIOError:
            continue


def receive(link: socket.socket, data: memoryview) -> None:
    while data:
        try:
            received = link.recv_into(data)
        except BlockingIOError:
            continue
        if received == 0:
            raise ConnectionError("the other end closed the connection")
        data = data[received:]


def connect(options: argparse.Namespace) -> socket.socket:
    if options.listen:
        with socket.create_server(("", PORT)) as server:
            server.settimeout(10)
            link, _ = server.accept()
    else:
        for _ in range(200):
            try:
                link = socket.create_connection((options.to, PORT), timeout=5)
                break
            except OSError:
                time.sleep(0.05)
        else:
            raise ConnectionError(f"cannot connect to {options.to} within 10 s; start the other end with --listen")
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setblocking(False)
    return link


def run_round(options: argparse.Namespace, link: socket.socket, times: int, sends: bool) -> float:
    """Returns the duration of a round in milliseconds."""
    steps = -(-options.bytes // options.chunk)
    exchanged = memoryview(bytearray(options.exchange_bytes))
    chunk = memoryview(bytearray(options.chunk))
    begin = time.monotonic()
    for step in range(steps + 1):
        count(times)
        send(link, exchanged)
        if sends and options.listen and step > 0:
            receive(link, chunk)
        receive(link, exchanged)
        if sends and not options.listen and step < steps:
            send(link, chunk)
    return 1000 * (time.monotonic() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    end = parser.add_mutually_exclusive_group(required=True)
    end.add_argument("--listen", action="store_true")
    end.add_argument("--to", metavar="ADDRESS")
    parser.add_argument("--step-ms", type=float, required=True)
    parser.add_argument("--exchange-bytes", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--chunk", type=int, default=1 << 17, help="bytes per step")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    times = counts_in(options.step_ms / 1000)
    with connect(options) as link:
        run_round(options, link, times, True)  # warm-up
        plain = []
        sending = []
        for _ in range(options.rounds):
            plain.append(run_round(options, link, times, False))
            sending.append(run_round(options, link, times, True))
    if options.listen:
        longer = statistics.median(sent - silent for sent, silent in zip(sending, plain))
        print(json.dumps({"added_ms": longer}))


if __name__ == "__main__":
    main()

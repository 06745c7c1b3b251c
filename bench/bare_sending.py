"""What it costs two hosts of a core each merely to send bytes beside their work: the floor of bench/save_cost.py.

    python3 bench/bare_sending.py (--listen | --to ADDRESS) --step-ms 10 --exchange-bytes 65536 --bytes 16700000

Both ends count for so long a step and then hand each other an exchange's bytes, as ranks that sum activations do. In
every other round the one that connected also sends the bytes, a piece a step, when its own part of the exchange has
left. Nothing else is in the way: plain sockets, no message is looked at. The one that listens prints how much longer
such a round takes: {"longer_ms": ...}.
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
            raise ConnectionError("the other end is gone")
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
            raise ConnectionError(f"nobody listens at {options.to}")
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setblocking(False)
    return link


def play_round(options: argparse.Namespace, link: socket.socket, times: int, sends: bool) -> float:
    """In ms."""
    steps = -(-options.bytes // options.piece)
    exchanged = memoryview(bytearray(options.exchange_bytes))
    piece = memoryview(bytearray(options.piece))
    begin = time.monotonic()
    for step in range(steps + 1):
        count(times)
        send(link, exchanged)
        if sends and options.listen and step > 0:
            receive(link, piece)
        receive(link, exchanged)
        if sends and not options.listen and step < steps:
            send(link, piece)
    return 1000 * (time.monotonic() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    end = parser.add_mutually_exclusive_group(required=True)
    end.add_argument("--listen", action="store_true")
    end.add_argument("--to", metavar="ADDRESS")
    parser.add_argument("--step-ms", type=float, required=True)
    parser.add_argument("--exchange-bytes", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--piece", type=int, default=1 << 17)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    times = counts_in(options.step_ms / 1000)
    with connect(options) as link:
        play_round(options, link, times, True)  # finds the link cold
        plain = []
        sending = []
        for _ in range(options.rounds):
            plain.append(play_round(options, link, times, False))
            sending.append(play_round(options, link, times, True))
    if options.listen:
        longer = statistics.median(sent - silent for sent, silent in zip(sending, plain))
        print(json.dumps({"longer_ms": longer}))


if __name__ == "__main__":
    main()

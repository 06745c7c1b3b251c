"""What a launcher answers on its status port: its health and its metrics."""

import http.client
import re

SAMPLE = re.compile(r'([a-z_]+(?:\{[a-z]+="[^"\\]*"(?:,[a-z]+="[^"\\]*")*\})?) (\S+)')


def get(port: int, path: str) -> tuple[int, str]:
    """The HTTP status and the text. Raises OSError if nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def metrics(port: int) -> dict[str, float]:
    """Samples by their names and labels, or none if nobody answers."""
    try:
        code, text = get(port, "/metrics")
    except OSError:
        return {}
    assert code == 200, text
    values: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            values[match[1]] = float(match[2])
    return values

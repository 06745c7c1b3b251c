"""How bench.py gives jobs to a peer's program: one JSON object per line, answered by a line with its results or error."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any


def answer_jobs(description: str | None, make_peer: Callable[[str, str], Any]) -> None:
    """Reads the options, makes the peer for a device and a data folder, and calls its `run` for each job."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data-dir", default="")
    options = parser.parse_args()
    peer = make_peer(options.device, options.data_dir)
    for line in sys.stdin:
        try:
            answer = peer.run(**json.loads(line))
        except Exception as error:  # noqa: BLE001: one job may fail where others work
            answer = {"error": f"{type(error).__name__}: {error}"[-500:]}
        print(json.dumps(answer), flush=True)

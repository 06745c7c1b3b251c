#!/usr/bin/env python3
"""Measures predictions per second of `lockstep serve`, and of a Keras server with FastAPI, under wrk.

    bench/serve.py BUILD_DIR [--peer PYTHON] [--seconds S] [--connections N] [--repeats N] [--save]

Trains keras_mnist on embedded digits first. wrk is Debian's. PYTHON has keras, a backend, fastapi and uvicorn; without it
only Lockstep is measured. --save writes bench/results/serve-CPU-DATE.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench" / "peers"))

from harness.results import lockstep_version, this_machine  # noqa: E402

PEER = """
import sys
import keras, numpy as np, uvicorn
from fastapi import FastAPI

model = keras.models.load_model(sys.argv[1], compile=False)
predict = model.predict_on_batch
predict(np.zeros((1, 28, 28), "float32"))
app = FastAPI()

@app.get("/healthz")
def health() -> str:
    return "ok"

@app.post("/v1/models/model:predict")
async def answer(body: dict) -> dict:  # one thread: Keras' predict is not thread-safe
    return {"predictions": np.asarray(predict(np.asarray(body["instances"], "float32"))).tolist()}

uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""


def free_port() -> int:
    with socket.create_server(("", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], port: int, environment: dict[str, str]) -> Iterator[None]:
    server = subprocess.Popen(command, env=os.environ | environment, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1):
                    break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def measure(port: int, script: Path, given: argparse.Namespace) -> dict[str, float]:
    command = ["wrk", "-t1", f"-c{given.connections}", f"-d{given.seconds}s", "--latency", "-s", str(script),
               f"http://127.0.0.1:{port}/v1/models/model:predict"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}
    found = {}
    for percent in ("50", "99"):
        number, scale = re.search(rf"{percent}%\s+([\d.]+)(us|ms|s)", shown).groups()  # type: ignore[union-attr]
        found[f"p{percent}_ms"] = float(number) * unit[scale]
    rate = re.search(r"Requests/sec:\s+([\d.]+)", shown)
    assert rate is not None and "Non-2xx" not in shown, shown
    return {"per_second": float(rate[1]), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    programs = given.build.resolve() / "bin"
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        subprocess.run([programs / "keras_mnist", "--epochs", "1", "--verbose", "0", "--model-dir", model], check=True,
                       stdout=subprocess.DEVNULL)
        draw = random.Random(1)
        picture = [[round(draw.random(), 3) if draw.random() < 0.2 else 0 for _ in range(28)] for _ in range(28)]
        body = json.dumps({"instances": [picture]})
        script = Path(folder) / "post.lua"
        script.write_text(f"wrk.method = 'POST'\nwrk.body = [[{body}]]\nwrk.headers['Content-Type'] = 'application/json'\n".replace(
            "[[{", "[=[{").replace("}]]", "}]=]"))
        peer = Path(folder) / "peer.py"
        peer.write_text(PEER)
        servers = {"lockstep": ([str(programs / "lockstep"), "serve", "--model", str(model), "--rest-api-port"], {})}
        if given.peer:
            servers["fastapi"] = ([given.peer, str(peer), str(model / "model.h5")], {"TF_CPP_MIN_LOG_LEVEL": "3"})
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
        for _ in range(given.repeats):  # in turns
            for name, (command, environment) in servers.items():
                port = free_port()
                with running([*command, str(port)], port, environment):
                    measure(port, script, argparse.Namespace(seconds=1, connections=given.connections))  # warms up
                    rows[name].append(measure(port, script, given))
    medians = {name: {key: statistics.median(row[key] for row in taken) for key in taken[0]} for name, taken in rows.items()}
    for name, row in medians.items():
        print(f"{name}: {row['per_second']:.0f} predictions/s, p50 {row['p50_ms']:.2f} ms, p99 {row['p99_ms']:.2f} ms")
    if "fastapi" in medians:
        print(f"ratio: {medians['lockstep']['per_second'] / medians['fastapi']['per_second']:.1f}")
    if given.save:
        machine = this_machine()
        name = f"serve-{machine.slug}-{datetime.date.today()}.json"
        result = {"machine": machine.cpu, "cores": machine.cores, "lockstep": lockstep_version(ROOT),
                  "connections": given.connections, "medians": medians, "runs": rows}
        (ROOT / "bench" / "results" / name).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""The wheel: it needs nothing but Python and what pip installs with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
MAX_MB = 60
_MODEL = {
    "class_name": "Sequential",
    "config": {
        "name": "small",
        "layers": [
            {"class_name": "InputLayer", "config": {"batch_shape": [None, 4], "dtype": "float32", "name": "input"}},
            {"class_name": "Dense", "config": {"name": "dense", "units": 2, "activation": "linear"}},
        ],
    },
}


def _run(*command: str | Path, folder: Path) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"], "OMP_NUM_THREADS": "1"}
    environment |= {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "CC", "CXX", "CMAKE_"))
    }
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


class FullTest(unittest.TestCase):
    def test_a_wheel_trains_on_two_workers(self) -> None:
        with tempfile.TemporaryDirectory(prefix="lockstep-wheel-") as name:
            folder = Path(name)
            _run(sys.executable, ROOT / "scripts" / "build_wheels.py", "--output", folder / "dist", folder=folder)
            (wheel,) = (folder / "dist").iterdir()
            self.assertLess(wheel.stat().st_size, MAX_MB * 1e6)

            _run(sys.executable, "-m", "venv", folder / "env", folder=folder)
            programs = folder / "env" / "bin"
            _run(programs / "python", "-m", "pip", "install", "--quiet", wheel, folder=folder)
            where = "import lockstep._native, sys; print(lockstep._native.__file__)"
            module = _run(programs / "python", "-c", where, folder=folder).strip()
            for line in _run("ldd", module, folder=folder).splitlines():
                if "libmpi.so" in line or "libhdf5" in line or "libdnnl" in line:
                    self.assertIn(str(folder.resolve()), line)

            (folder / "model.json").write_text(json.dumps(_MODEL))
            x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
            np.savez(folder / "data.npz", x_train=x, y_train=(x[:, 0] > 0).astype("uint8"))
            train = ["train", "--model", "model.json", "--data-dir", "data.npz", "--optimizer", "adam", "--loss"]
            train += ["sparse_categorical_crossentropy", "--global-batch-size", "16", "--epochs", "2"]
            lockstep = programs / "lockstep"
            printed = _run(lockstep, "launch", "--workers", "2", "--", lockstep, *train, folder=folder)
            self.assertIn("2 workers", printed)
            self.assertTrue((folder / "model" / "model.h5").exists(), printed)


if __name__ == "__main__":
    unittest.main()

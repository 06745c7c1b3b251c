"""Runs the code of docs/from-keras.md: Keras defines a model, Lockstep trains it, Keras continues.

    documentation_test.py BIN_DIR     the folder of lockstep
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import support
from support import Scratch, np, options, output_of, program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-keras.md"


def learnable(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a bright bar, whose position is the class."""
    chance = np.random.default_rng(seed)
    images = chance.integers(0, 64, (count, 28, 28), dtype=np.uint8)
    labels = chance.integers(0, 10, count, dtype=np.uint8)
    images[np.arange(count), 2 * labels + 4, 4:24] = 255
    return images, labels


class Documentation(Scratch):
    def run_lines(self, mark: str) -> str:
        """Runs the Python block after the comment that begins with `mark`."""
        found = re.search(rf"<!-- {mark}[^>]*-->\n```python\n(.*?)```", PAGE.read_text(), re.S)
        assert found is not None, mark
        environment = os.environ | {"PATH": f"{options.bin}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        result = subprocess.run([sys.executable, "-W", "ignore", "-c", found[1]], cwd=self.folder, env=environment,
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def test_round_trip(self):
        (x_train, y_train), (x_test, y_test) = learnable(1500, 1), learnable(300, 2)
        np.savez(self.folder / "mnist.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
        printed = self.run_lines("round trip")
        self.assertIn("2 workers", printed)
        loss, accuracy = json.loads(printed.splitlines()[-1])  # Keras' evaluation of the trained model
        history = json.loads((self.folder / "model" / "history.json").read_text())
        self.assertEqual(len(history["epochs"]), 3)
        self.assertGreater(accuracy, 0.9)
        self.assertAlmostEqual(accuracy, history["evaluation"]["accuracy"], delta=1e-6)
        self.assertAlmostEqual(loss, history["evaluation"]["loss"], delta=1e-4 * max(1, loss))

        model = self.folder / "model" / "model.keras"
        twin = support.keras.models.load_model(model)
        self.assertEqual(int(twin.optimizer.iterations), 3 * 12)
        output_of(program("lockstep"), "predict", "--model", model, "--data-dir", self.folder / "mnist.npz", "--output",
                  self.folder / "ours.npy")
        theirs = twin.predict(x_test, verbose=0)
        np.testing.assert_allclose(np.load(self.folder / "ours.npy"), theirs, atol=1e-5)


if __name__ == "__main__":
    support.main(__doc__)

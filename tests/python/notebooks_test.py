"""The notebooks of examples/, executed by a kernel, on small data."""

from __future__ import annotations

import os
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
from nbclient import NotebookClient
from support import LIMIT_S, JobTest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples"
# Runs in the kernel before the notebook: Keras' data sets without a network.
STARTUP = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy
def pictures(count, *shape):
    random = numpy.random.default_rng(count)
    y = random.integers(0, 10, count).astype("uint8")
    x = random.integers(0, 100, (count, *shape)) + 15 * y.reshape(-1, *[1] * len(shape))
    return x.astype("uint8"), y
keras.datasets.mnist.load_data = lambda: (pictures(2000, 28, 28), pictures(500, 28, 28))
def cifar10():
    (x, y), (x_test, y_test) = pictures(2000, 32, 32, 3), pictures(500, 32, 32, 3)
    return (x, y.reshape(-1, 1)), (x_test, y_test.reshape(-1, 1))
keras.datasets.cifar10.load_data = cifar10
"""


class NotebooksTest(JobTest):
    def run_notebook(self, name: str) -> list[dict[str, Any]]:
        """Return the outputs of all cells."""
        startup = self.folder / "ipython" / "profile_default" / "startup"
        startup.mkdir(parents=True)
        (startup / "data.py").write_text(STARTUP)
        notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
        with mock.patch.dict(os.environ, {"IPYTHONDIR": str(self.folder / "ipython"), "OMP_NUM_THREADS": "1"}):
            NotebookClient(notebook, timeout=LIMIT_S, resources={"metadata": {"path": str(self.folder)}}).execute()
        return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]

    def pages(self, outputs: list[dict[str, Any]]) -> list[str]:
        return [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]

    def texts(self, outputs: list[dict[str, Any]]) -> list[str]:
        shown = [output["data"]["text/plain"] for output in outputs if "text/plain" in output.get("data", {})]
        return shown + [output["text"] for output in outputs if output["output_type"] == "stream"]


class QuickTest(NotebooksTest):
    def test_notebooks_are_stored_without_outputs(self) -> None:
        paths = sorted(NOTEBOOKS.glob("*.ipynb"))
        self.assertEqual([path.stem for path in paths], ["fine_tune", "kill_a_worker", "mnist"])
        for path in paths:
            notebook = nbformat.read(path, as_version=4)
            nbformat.validate(notebook)
            self.assertFalse([cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")])


class FullTest(NotebooksTest):
    def test_mnist(self) -> None:
        outputs = self.run_notebook("mnist")
        (page,) = self.pages(outputs)
        self.assertIn("3 epochs, 2 workers", page)
        self.assertIn("native engine", "".join(self.texts(outputs)))
        self.assertTrue((self.folder / "mnist.keras").exists())

    def test_fine_tuning(self) -> None:
        first, second = self.pages(self.run_notebook("fine_tune"))
        self.assertIn("3 epochs, 2 workers", first)
        self.assertIn("5 epochs, 2 workers", second)

    def test_killing_a_worker(self) -> None:
        outputs = self.run_notebook("kill_a_worker")
        texts = self.texts(outputs)
        self.assertIn("True", texts)
        self.assertEqual("".join(texts).count("training goes on from the last backup"), 1)
        (page,) = self.pages(outputs)
        self.assertIn("killed by signal 9", page)


if __name__ == "__main__":
    unittest.main()

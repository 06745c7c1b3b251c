"""`lockstep export --format saved-model`: what Keras writes, TensorFlow runs.

    saved_model_test.py BIN_DIR     with a Python that has TensorFlow
"""

import os
import subprocess
import sys
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import support  # noqa: E402
import tensorflow  # noqa: E402
from support import Scratch, np, program  # noqa: E402


class SavedModel(Scratch):
    def export(self, file: Path) -> subprocess.CompletedProcess[str]:
        """Exports to the folder `saved`, with this Python as python3."""
        command = [program("lockstep"), "export", "--model", file, "--output", self.folder / "saved",
                   "--format", "saved-model"]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)

    def test_predicts_what_keras_does(self) -> None:
        model = support.custom_training_mnist()
        model.save(self.folder / "model.keras")
        done = self.export(self.folder / "model.keras")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        inputs = support.some_input(model)
        loaded = tensorflow.saved_model.load(str(self.folder / "saved"))
        np.testing.assert_allclose(loaded.serve(inputs), model.predict(inputs, verbose=0), atol=1e-5)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["model.keras", "saved"])

    def test_tells_what_keras_says(self) -> None:
        (self.folder / "model.keras").write_text("no archive")
        done = self.export(self.folder / "model.keras")
        self.assertEqual(done.returncode, 65)
        self.assertRegex(done.stderr, r"Keras: .+\nerror: Keras could not export .+; its message is above\n$")
        self.assertFalse((self.folder / "saved").exists())


if __name__ == "__main__":
    support.main(__doc__)

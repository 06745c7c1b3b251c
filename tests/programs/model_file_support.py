"""What the tests of `lockstep train`, `evaluate` and `predict` share: one small model in a file."""

import io
import json
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import Ended, ProgramTest, Running, program


def description(*layers: tuple[str, dict[str, Any]], shape: tuple[int, ...] = (28, 28)) -> str:
    """A minimal model.to_json() of Keras."""
    named = [{"class_name": kind, "config": {"name": f"layer_{i}", **config}} for i, (kind, config) in enumerate(layers)]
    given = {"class_name": "InputLayer", "config": {"batch_shape": [None, *shape], "dtype": "float32", "name": "given"}}
    return json.dumps({"class_name": "Sequential", "config": {"name": "sequential", "layers": [given, *named]}})


SMALL = (("Flatten", {}), ("Dense", {"units": 12, "activation": "relu"}), ("Dense", {"units": 10}))
COMPILED = ("--optimizer", "adam", "--loss", "sparse_categorical_crossentropy")
SCALED = ("--input-scale", "1/255")  # of the bytes in an .npz file
SHORT = ("--global-batch-size", 20, "--epochs", 2)


class ModelFileTest(ProgramTest):
    default_program = "lockstep"

    def setUp(self) -> None:
        super().setUp()
        self.plain = self.scratch / "plain.json"
        self.plain.write_text(description(*SMALL))

    def command(self, *options: object, workers: int = 1, name: str = "") -> list[str]:
        lockstep = program("lockstep")
        words = super().command(*options, workers=workers, name=name)
        return [more for word in words for more in
                ([lockstep, "train"] if word == lockstep else [word.replace(lockstep + " ", lockstep + " train ")])]

    def use(self, command: str, *options: object, **environment: str) -> Ended:
        """Runs `lockstep evaluate` or `predict`."""
        call = [program("lockstep"), command, "--data-dir", str(self.data), *map(str, options)]
        return Running(call, self.cwd, environment).end()

    def trained(self, name: str, *options: object, workers: int = 1) -> Path:
        """Trains the plain model in a first run and returns the saved file."""
        self.model = self.scratch / f"made_{name}"
        self.succeed("--model", self.plain, *COMPILED, *SHORT, "--save-as", name, *options, workers=workers)
        made, self.model = self.model / name, self.scratch / "model"
        return made

    def inspect(self, *options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program("lockstep"), "inspect", *map(str, options)], capture_output=True, text=True)

    def describe(self, file: Path) -> dict[str, Any]:
        shown = self.inspect("--json", "--check", file)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        read: dict[str, Any] = json.loads(shown.stdout)
        return read

    def same_weights(self, left: Path, right: Path) -> bool:
        return self.inspect("--compare", left, right).returncode == 0

    def losses(self) -> list[float]:
        return [epoch["loss"] for epoch in self.history()["epochs"]]

    def refused(self, code: int, *options: object, says: tuple[str, ...], workers: int = 1) -> None:
        with self.earlier_model_kept():
            ended = self.run_program(*options, workers=workers)
        self.assert_fails(ended, code, *says)
        self.assertNotIn("Epoch", ended.stdout)

    # --- valid use ------------------------------------------------------------------------------------------------

    @contextmanager
    def config_changed(self, archive: Path) -> Iterator[dict[str, Any]]:
        """Yields the config.json of a .keras file for changes, and writes it back. The weights get the attributes of
        another program, so that they hold no digest."""
        with zipfile.ZipFile(archive) as old:
            members = {name: old.read(name) for name in old.namelist()}
        config = json.loads(members["config.json"])
        yield config
        members["config.json"] = json.dumps(config).encode()
        members["model.weights.h5"] = members["model.weights.h5"].replace(b"lockstep_", b"elsewhere")
        new = io.BytesIO()
        with zipfile.ZipFile(new, "w") as written:
            for name, content in members.items():
                written.writestr(name, content)
        archive.write_bytes(new.getvalue())

    def trained_after(self, text: str) -> Path:
        self.plain.write_text(text)
        return self.trained("other.keras")

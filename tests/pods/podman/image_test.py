"""The image has its labels and size limit, runs as any user, and can be extended by a program."""

import tempfile
import unittest
from pathlib import Path

from engine import Engine, image_command

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = sorted(path.stem for path in (ROOT / "models").glob("*.cpp"))
LIMIT = 172_000_000  # unpacked bytes beyond the base: packages have 127 million, each of the five programs 7 to 9

OWN_PROGRAM = """
FROM {dev} AS mine
COPY my_model.cpp models/
RUN build-programs
FROM {image}
COPY --from=mine /opt/lockstep/bin/my_model /usr/local/bin/
"""

# A user unknown to the image, without capabilities, who can write only to /tmp.
ANYBODY = ("--user", "54321:54321", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--network", "none",
           "--security-opt", "no-new-privileges", "--env", "OMP_NUM_THREADS=1")

_engine: Engine
_image = ""


def use(engine: Engine, image: str) -> None:
    global _engine, _image
    _engine, _image = engine, image


class ImageTest(unittest.TestCase):
    def test_the_image_has_labels_and_a_size_limit(self) -> None:
        config = _engine.read("image", "inspect", _image)[0]["Config"]
        self.assertEqual((config["Entrypoint"], config["User"]), (["lockstep", "launch", "--"], "1000:1000"))
        self.assertIn("HOME=/tmp", config["Env"])
        labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
        self.assertEqual((labels["title"], labels["licenses"]), ("Lockstep", "Apache-2.0"))
        self.assertIn(f"VERSION {labels['version']} ", (ROOT / "CMakeLists.txt").read_text())
        self.assertNotEqual(labels["revision"], "")
        whole, base = (_engine.read("image", "inspect", name)[0]["Size"] for name in (_image, labels["base.name"]))
        print(f"{(whole - base) / 1e6:.0f} MB beyond {labels['base.name']}")
        self.assertLess(whole - base, LIMIT)

    def test_runs_as_any_user(self) -> None:
        found = _engine.podman("run", "--rm", *ANYBODY, "--entrypoint", "/bin/bash", _image, "-c",
                               f"test -x /bin/sh && command -v lockstep curl fetch_data.sh {' '.join(PROGRAMS)}")
        self.assertEqual(len(found.split()), 3 + len(PROGRAMS))
        said = _engine.podman("run", "--rm", *ANYBODY, _image, "keras_mnist", "--epochs", "1", "--steps-per-epoch", "2",
                              "--model-dir", "/tmp/model")
        self.assertIn("/tmp/model/model.h5", said)

    def test_exit_codes_are_passed_through(self) -> None:
        ended = _engine.run("podman", "run", "--rm", *ANYBODY, _image, "keras_mnist", "--no-such-option")
        self.assertEqual(ended.returncode, 64, ended.stderr)

    def test_a_program_can_be_added(self) -> None:
        """Builds an image with the five lines that docker/Dockerfile shows."""
        with tempfile.TemporaryDirectory() as name:
            context = Path(name)
            (context / "my_model.cpp").write_text((ROOT / "models/keras_mnist.cpp").read_text())
            (context / "Dockerfile").write_text(OWN_PROGRAM.format(dev=f"{_image}-dev", image=_image))
            for command in (image_command(f"{_image}-dev", "--target", "dev"),
                            ("buildah", "build", "--isolation", "chroot", "--pull=missing", "--tag", f"{_image}-own", name)):
                ended = _engine.run(*command, limit=600)
                self.assertEqual(ended.returncode, 0, ended.stdout[-3000:] + ended.stderr[-3000:])
        self.assertIn("--learning-rate", _engine.podman("run", "--rm", *ANYBODY, f"{_image}-own", "my_model", "--help"))

"""scripts/gpu_check.sh: what its package holds, what a stage records and tries next, and that it ends in time."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import ProgramTest, program

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
STAGES = SCRIPTS / "gpu_stages.py"
PROGRAMS = ("keras_mnist", "custom_training_mnist", "test_gpu")
OF_EVERY_MACHINE = r"/(ld-linux|lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+)\.so)"
FAILS_WITH_GRAPHS = """#!/bin/sh
[ "$LOCKSTEP_CUDA_GRAPHS" = 0 ] && exec "$(dirname "$0")/keras_mnist" "$@"
echo "error: cudaStreamEndCapture failed" >&2
exit 70
"""


class StagesTest(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        if "LOCKSTEP_FAKE_GPUS" not in os.environ:
            self.skipTest("the stages themselves are for a GPU")
        self.folder = self.scratch / "package"
        self.programs = self.folder / "usr" / "bin"
        self.programs.mkdir(parents=True)
        self.programs.joinpath("keras_mnist").symlink_to(program(self.default_program))

    def add_script(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run_stage(self, stage: str, seconds: float, **variables: str) -> tuple[int, dict[str, dict[str, Any]]]:
        call = [sys.executable, str(STAGES), stage, "--folder", str(self.folder), "--seconds", str(seconds),
                "--steps", "2"]
        environment = {**os.environ, "LOCKSTEP_MNIST_DIR": str(self.data), **variables}
        done = subprocess.run(call, capture_output=True, text=True, timeout=seconds + 20, env=environment)
        written = json.loads((self.folder / "out" / f"stage_{stage}.json").read_text())
        self.assertEqual(written["stage"], stage, done.stdout + done.stderr)
        self.assertTrue((self.folder / "out" / f"stage_{stage}.log").exists())
        return done.returncode, {result["name"]: result for result in written["results"]}

    def test_measurements_are_kept_and_what_fails_is_tried_again(self) -> None:
        self.add_script(self.programs / "custom_training_mnist", FAILS_WITH_GRAPHS)
        code, results = self.run_stage("A", 100)
        self.assertEqual(code, 1)  # there is no nvidia-smi
        self.assertEqual(results["nvidia-smi"]["outcome"], "failed")
        self.assertGreater(min(results["keras_mnist, float32, batch 128"]["values"]["ms_per_step"]), 0)
        failed = results["custom_training_mnist, float32, batch 128"]
        self.assertEqual((failed["outcome"], failed["exit"]), ("failed", 70))
        self.assertIn("cudaStreamEndCapture failed", failed["cause"])
        self.assertEqual([(each["name"], each["outcome"]) for each in failed["next"]],
                         [("without CUDA graphs", "passed")])

    def test_what_has_no_time_left_is_not_run(self) -> None:
        self.add_script(self.folder / "tests" / "gpu" / "ranks_test.sh", "#!/bin/sh\nsleep 1000\n")
        code, results = self.run_stage("C", 7)
        self.assertEqual(code, 1)
        self.assertEqual(results["2 ranks, nccl"]["outcome"], "failed")
        self.assertIn("longer than", results["2 ranks, nccl"]["cause"])
        self.assertEqual(results["killed and resumed, on GPU and CPU"]["outcome"], "not run")

    def test_a_stage_without_a_gpu_says_so(self) -> None:
        if any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/nvidia0")):
            self.skipTest("this machine has a GPU")
        for stage in "ABCDE":
            code, results = self.run_stage(stage, 5, LOCKSTEP_FAKE_GPUS="")
            self.assertEqual((code, list(results)), (77, ["the device"]))
            self.assertEqual(results["the device"]["outcome"], "skipped")
            self.assertIn("no NVIDIA device", results["the device"]["cause"])
            self.assertIn("no NVIDIA device", (self.folder / "out" / f"stage_{stage}.log").read_text())

    def libraries_of(self, binary: Path, package: Path) -> dict[str, str]:
        """Paths by name, "" for what is missing, as found on a machine that has the package."""
        listed = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False,
                                env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(package / "usr" / "lib")})
        found = {}
        for line in listed.stdout.splitlines():
            name, arrow, path = line.strip().partition(" => ")
            if arrow:
                found[name] = "" if path.startswith("not found") else path.split(" (")[0]
        return found

    def test_the_package_holds_all_libraries(self) -> None:
        """The programs of the fake device stand for those of a GPU: the libraries besides NVIDIA's are the same."""
        programs, package = self.scratch / "programs", self.scratch / "gpu-check"
        programs.mkdir()
        for name in PROGRAMS:
            programs.joinpath(name).symlink_to(program(self.default_program))
        done = subprocess.run([str(SCRIPTS / "gpu_check.sh"), "pack", str(package)], capture_output=True, text=True,
                              env={**os.environ, "GPU_CHECK_PROGRAMS": str(programs), "LOCKSTEP_MNIST_DIR": ""})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(Path(f"{package}.tar.gz").exists())
        binaries = [*package.glob("usr/bin/*"), *package.rglob("*.so"), *package.rglob("*.so.*")]
        self.assertIn(package / "usr" / "bin" / "mpirun", binaries)
        for binary in binaries:
            for name, path in self.libraries_of(binary, package).items():
                if path.startswith(str(package)) or re.search(OF_EVERY_MACHINE, f"/{name}"):
                    continue
                self.fail(f"{binary.relative_to(package)} needs {name}, which the package lacks (here: {path})")
        prefix = ("import sys; sys.path.insert(0, sys.argv[1] + '/scripts'); import gpu_stages, pathlib; "
                  "package = pathlib.Path(sys.argv[1]); (package / 'out').mkdir(); "
                  "print(gpu_stages.Stage('C', package, package / 'out', 5, 1).environment.get('OPAL_PREFIX'))")
        found = subprocess.run([sys.executable, "-c", prefix, str(package)], capture_output=True, text=True)
        self.assertEqual(found.stdout.strip(), str(package / "usr"), found.stderr)  # or mpirun finds no plugins
        outside = {**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LOCKSTEP_FAKE_GPUS": ""}
        done = subprocess.run([str(package / "scripts" / "gpu_check.sh"), "run", "C"], capture_output=True, text=True,
                              env=outside)
        self.assertIn("stage C skipped", done.stdout, str(done))
        self.assertTrue((package / "out" / "stage_C.json").exists())

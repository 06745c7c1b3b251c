"""scripts/gpu_stages.py: what it records, what it tries next, and that it ends in time."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import ProgramTest, program

STAGES = Path(__file__).resolve().parents[2] / "scripts" / "gpu_stages.py"
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

    def run_stage(self, stage: str, seconds: float) -> tuple[int, dict[str, dict[str, Any]]]:
        call = [sys.executable, str(STAGES), stage, "--folder", str(self.folder), "--seconds", str(seconds),
                "--steps", "2"]
        environment = {**os.environ, "LOCKSTEP_MNIST_DIR": str(self.data)}
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

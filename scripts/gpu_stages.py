#!/usr/bin/env python3
"""Runs one stage of the checks on a GPU and writes what came out. gpu_check.sh calls it.

    gpu_stages.py STAGE --folder DIR [--out DIR] [--seconds 500] [--steps 100]

A: versions; both programs with and without CUDA graphs, in all precisions and at three batch sizes; times of each
   operation; PyTorch and JAX at batch 128.
B: the tests on a GPU. A case that fails is tried again without CUDA graphs and without cuDNN's convolutions.
C: 2 and 4 ranks on one GPU, by NCCL and MPI; a rank that is killed; resuming.
D: compute-sanitizer on a short training.
E: large batches, all of PyTorch's modes, and JAX.

A stage ends after --seconds: what has not begun by then is "not run". --out gets stage_STAGE.json, written after each
check, and stage_STAGE.log. The exit code is 1 if a check failed in every way, and 77 if there is no GPU; both files say
so then.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = ("keras_mnist", "custom_training_mnist")
LOG_BYTES = 16 << 20
SKIPPED = 77
NO_GRAPHS = ("without CUDA graphs", {"LOCKSTEP_CUDA_GRAPHS": "0"})
OWN_CONVOLUTIONS = ("with our own convolutions", {"LOCKSTEP_CUDA_DIRECT_CONVOLUTIONS": "1"})
PRECISIONS = {"float32": (), "TF32": ("--allow-tf32",), "bfloat16": ("--precision", "mixed_bfloat16")}


@dataclass(frozen=True)
class Check:
    """A command with what is tried next if it fails: a name, and variables or options in addition."""

    name: str
    command: tuple[str, ...]
    seconds: float = 60
    environment: dict[str, str] = field(default_factory=dict)
    next: tuple[tuple[str, dict[str, str]], ...] = ()
    reads: Callable[[Path], dict[str, Any]] | None = None  # gets the folder in which the command ran


def steps_of(folder: Path) -> dict[str, Any]:
    """What a training wrote: milliseconds per step of each epoch, by kind of work and by operation."""
    history = json.loads((folder / "model" / "history.json").read_text())
    steps = history["config"]["steps_per_epoch"]
    each = [1000 * epoch["seconds"] / steps for epoch in history["epochs"]]
    found = {"device": history["world"]["device"], "ms_per_step": each[1:] or each}
    return found | {key: history["timing"][key] for key in ("profile_ms_per_step", "operations_ms_per_step")}


class Stage:
    """Runs checks until the time is over."""

    def __init__(self, name: str, folder: Path, out: Path, seconds: float, steps: int) -> None:
        self.name, self.folder, self.out, self.steps = name, folder, out, steps
        self.programs = folder / "usr" / "bin"
        self.ends = time.monotonic() + seconds
        self.results: list[dict[str, Any]] = []
        self.log = (out / f"stage_{name}.log").open("wb")
        nvidia = ["/usr/local/cuda/lib64", "/usr/local/cuda/lib"]
        nvidia += map(str, Path(sysconfig.get_path("purelib")).glob("nvidia/*/lib"))
        given = os.environ.get("LD_LIBRARY_PATH", "")
        self.libraries = ":".join([str(folder / "usr" / "lib"), *nvidia, given]).rstrip(":")
        self.environment = {**os.environ, "LD_LIBRARY_PATH": self.libraries, "OPAL_PREFIX": str(folder / "usr"),
                            "PATH": f"{self.programs}:{os.environ.get('PATH', '')}", "OMPI_MCA_plm": "isolated",
                            "PMIX_MCA_pcompress_base_silence_warning": "1", "PYTHONUNBUFFERED": "1"}
        if not (self.programs / "mpirun").exists():  # programs of this machine, not packed ones
            del self.environment["OPAL_PREFIX"]
        data = folder / "mnist"
        self.data = os.environ.get("LOCKSTEP_MNIST_DIR") or (str(data) if data.is_dir() else "")

    def left(self) -> float:
        return self.ends - time.monotonic()

    def run(self, check: Check) -> None:
        """Runs a check, and what is tried next until something passes."""
        result = self.try_once(check.name, check, check.environment)
        self.results.append(result)
        if result["outcome"] == "failed" and check.next:
            result["next"] = []
            for name, variables in check.next:
                again = self.try_once(name, check, {**check.environment, **variables})
                result["next"].append(again)
                if again["outcome"] == "passed":
                    break
        self.write()

    def skip(self, cause: str) -> None:
        """Records that the stage runs no checks."""
        self.results.append({"name": "the device", "outcome": "skipped", "seconds": 0, "cause": cause})
        self.add_to_log(f"stage {self.name} skipped: {cause}\n")
        self.write()
        print(f"stage {self.name} skipped: {cause}; see {self.out}")

    def try_once(self, name: str, check: Check, variables: dict[str, str]) -> dict[str, Any]:
        if self.left() < 5:
            return {"name": name, "outcome": "not run", "seconds": 0, "cause": "the stage's time was over"}
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            output = Path(scratch) / "output"
            with output.open("wb") as stream:
                code = self.call(check, {**self.environment, **variables}, stream, Path(scratch))
            text = output.read_text(errors="replace")
            self.add_to_log(f"== {name}: {' '.join(check.command)}\n{text}\n")
            result: dict[str, Any] = {"name": name, "seconds": round(time.monotonic() - began, 1)}
            if code is None:
                limit = min(check.seconds, self.ends - began)
                result |= {"outcome": "failed", "cause": f"longer than {limit:.0f} s"}
            elif code == SKIPPED:
                result |= {"outcome": "skipped", "cause": self.cause(text)}
            elif code != 0:
                result |= {"outcome": "failed", "exit": code, "cause": self.cause(text)}
            else:
                result["outcome"] = "passed"
                try:
                    result |= {"values": check.reads(Path(scratch))} if check.reads is not None else {}
                except (OSError, ValueError, KeyError) as error:
                    result |= {"outcome": "failed", "cause": f"its history cannot be read: {error!r}"}
        cause = str(result.get("cause", ""))[:200]
        print(f"{name:<60} {result['outcome']:<8}{result['seconds']:>7.1f} s  {cause}", flush=True)
        return result

    def call(self, check: Check, environment: dict[str, str], stream: Any, cwd: Path) -> int | None:
        """The exit code; None after the time limit, which ends the whole process group."""
        try:
            process = subprocess.Popen(check.command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       env=environment, cwd=cwd, start_new_session=True)
        except OSError as error:
            stream.write(f"{error}\n".encode())
            return 127
        try:
            return process.wait(min(check.seconds, max(self.left(), 1)))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None

    @staticmethod
    def cause(text: str) -> str:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        telling = [line for line in lines if re.search(r"error|FAILED|skipped|not found|Error", line)]
        return " | ".join((telling or lines)[-3:])[-1000:]

    def add_to_log(self, text: str) -> None:
        room = LOG_BYTES - self.log.tell()
        self.log.write(text.encode()[-max(room, 0):] if room > 0 else b"")
        self.log.flush()

    def write(self) -> None:
        document = {"stage": self.name, "results": self.results}
        (self.out / f"stage_{self.name}.json").write_text(json.dumps(document, indent=1))

    # The stages.

    def training(self, program: str, batch: int, *options: str, epochs: int = 3) -> tuple[str, ...]:
        call = [str(self.programs / program), "--device", "cuda", "--epochs", str(epochs), "--verbose", "0",
                "--steps-per-epoch", str(self.steps), "--global-batch-size", str(batch), "--model-dir", "model", "--resume",
                "never", *options]
        return (*call, "--data-dir", self.data) if self.data else tuple(call)

    def stage_a(self) -> Iterator[Check]:
        yield Check("nvidia-smi", ("nvidia-smi",), 20)
        for program in PROGRAMS:
            yield Check(f"{program} --version", (str(self.programs / program), "--version"), 20)
        for batch in (128, 64, 1024):
            for program in PROGRAMS:
                for precision, options in PRECISIONS.items():
                    for graphs in ("1", "0"):
                        name = f"{program}, {precision}, batch {batch}{'' if graphs == '1' else ', no CUDA graphs'}"
                        later = (OWN_CONVOLUTIONS,) if graphs == "0" else (NO_GRAPHS, OWN_CONVOLUTIONS)
                        yield Check(name, self.training(program, batch, *options), 60, {"LOCKSTEP_CUDA_GRAPHS": graphs},
                                    later, steps_of)
            for program in PROGRAMS:
                yield Check(f"{program}, batch {batch}, each operation", self.training(program, batch, epochs=1), 60,
                            {"LOCKSTEP_CUDA_PROFILE": "1"}, (), steps_of)
        yield self.peers(128, "--quick")

    def peers(self, *options: int | str) -> Check:
        batches = [str(option) for option in options if isinstance(option, int)]
        others = [option for option in options if isinstance(option, str)]
        call = [sys.executable, str(self.folder / "bench" / "gpu" / "bench.py"), "--programs", str(self.programs),
                "--libraries", self.libraries, "--out", str(self.out / f"bench_{self.name}.json"), *others,
                "--batches", *batches, "--minutes", f"{max(self.left() / 60 - 1, 0.5):.1f}"]
        if self.data:
            call += ["--data-dir", self.data]
        return Check(f"PyTorch and JAX at batch {', '.join(batches)}", tuple(call), 480)

    def stage_b(self) -> Iterator[Check]:
        test = str(self.programs / "test_gpu")
        report = self.out / "test_gpu.xml"
        yield Check("all cases", (test, "-r", "junit", "-o", str(report)), 400, {"LOCKSTEP_TEST_MODELS": "20"})
        if not report.exists():
            return
        for case in self.failed_cases(report):
            yield Check(case, (test, case.replace(",", "\\,")), 60, {"LOCKSTEP_TEST_MODELS": "20"},
                        (NO_GRAPHS, OWN_CONVOLUTIONS))

    @staticmethod
    def failed_cases(report: Path) -> list[str]:
        try:
            root = ElementTree.parse(report).getroot()
        except ElementTree.ParseError:  # the program was killed
            return []
        failed = [case for case in root.iter("testcase") if {"failure", "error"} & {child.tag for child in case}]
        return sorted({case.get("name", "").split("/")[0] for case in failed})

    def stage_c(self) -> Iterator[Check]:
        tests, program = self.folder / "tests" / "gpu", str(self.programs / "keras_mnist")
        for ranks in ("2", "4"):
            for communication in ("nccl", "mpi"):
                test = (str(tests / "ranks_test.sh"), program, communication, ranks)
                yield Check(f"{ranks} ranks, {communication}", test, 120, {}, (NO_GRAPHS,))
        lost_rank = (str(tests / "lost_rank_test.sh"), program, "3")
        yield Check("a rank of three is killed", lost_rank, 200, {}, (NO_GRAPHS,))
        yield Check("killed and resumed, on GPU and CPU", (str(tests / "resume_test.sh"), program), 120)

    def stage_d(self) -> Iterator[Check]:
        found = shutil.which("compute-sanitizer", path=self.environment["PATH"] + ":/usr/local/cuda/bin")
        for tool in ("memcheck", "racecheck"):
            call = self.training("custom_training_mnist", 64, "--steps-per-epoch", "20", epochs=1)
            command = (found or "compute-sanitizer", "--tool", tool, "--error-exitcode", "1", *call)
            yield Check(f"compute-sanitizer {tool}", command, 240, {}, (NO_GRAPHS, OWN_CONVOLUTIONS))

    def stage_e(self) -> Iterator[Check]:
        for program in PROGRAMS:
            for batch in (4096, 16384):
                yield Check(f"{program}, batch {batch}", self.training(program, batch), 60, {}, (NO_GRAPHS,), steps_of)
        yield self.peers(128, 1024, 8192)


STAGES: dict[str, Callable[[Stage], Iterator[Check]]] = {
    "A": Stage.stage_a, "B": Stage.stage_b, "C": Stage.stage_c, "D": Stage.stage_d, "E": Stage.stage_e}


def has_gpu() -> bool:
    if os.environ.get("LOCKSTEP_FAKE_GPUS"):
        return True
    return any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/nvidia0"))


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--folder", type=Path, required=True, help="what gpu_check.sh has packed")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--steps", type=int, default=100, help="in an epoch of a measured training")
    given = parser.parse_args()
    folder = given.folder.resolve()
    out = (given.out or folder / "out").resolve()
    out.mkdir(parents=True, exist_ok=True)
    stage = Stage(given.stage, folder, out, given.seconds, given.steps)
    if not has_gpu():
        stage.skip("no NVIDIA device: there is neither /dev/nvidiactl nor /dev/nvidia0")
        return SKIPPED
    for check in STAGES[given.stage](stage):
        stage.run(check)
    failed = [result["name"] for result in stage.results if result["outcome"] == "failed"
              and not any(each["outcome"] == "passed" for each in result.get("next", []))]
    print(f"stage {given.stage}: {len(stage.results)} checks, {len(failed)} failed in every way; see {out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

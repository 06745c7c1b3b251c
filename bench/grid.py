#!/usr/bin/env python3
"""Is `--parallelism auto` right? For twenty models and three links, compares `auto` with both fixed choices and with
one worker, and the predicted step time with the measured one.

    python3 bench/grid.py --save bench/results/grid.json              # all cells, 20 minutes
    python3 bench/grid.py --save bench/results/grid.json --resume     # continue after an interruption
    python3 bench/grid.py --again bench/results/grid.json             # more runs of the cells that miss a bound
    python3 bench/grid.py --from bench/results/grid.json              # only print its tables
    python3 bench/grid.py --models tiny lenet --links host --repeats 3

There are two workers with one core each. With link `host` mpirun starts them on one machine, where they share memory.
The other links join two network namespaces and are shaped by `tc`, which needs root. Contestants take turns. A run is
one warm-up epoch and four measured ones, of half a second each. Its speed is that of the median epoch; a figure is the
median of the runs. Where `auto` replicates the model, two independent workers also run at the same time: the slower
one's speed is the upper bound there. The images are random, which does not affect the speed."""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/programs", "tests/pods/namespaces", "bench/peers")]
import data_files  # noqa: E402
import support  # noqa: E402
from grid_models import MODELS  # noqa: E402
from grid_tables import CONTESTANTS, LEGEND, LINKS, Sample, cells_from_samples, summary, table  # noqa: E402
from harness.packing import unpack  # noqa: E402
from harness.results import lockstep_version, this_machine, write_atomically  # noqa: E402
from network import NoNetwork  # noqa: E402
from pods import Hang  # noqa: E402
from two_hosts import run_on_two_hosts, two_hosts  # noqa: E402

EPOCHS, EPOCH_SECONDS, MIN_STEPS, MAX_STEPS = 5, 0.5, 4, 2000
TIMEOUT_S = 180

Ended = tuple[int, str, dict[str, Any]]  # exit code, output, and history.json


class BackgroundLoad:
    """The processor time that other processes use from the construction on."""

    def __init__(self) -> None:
        self.began = self.now()

    @staticmethod
    def now() -> tuple[float, float]:
        """Elapsed seconds, and core-seconds used by processes other than this one and its children."""
        user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
        times = os.times()
        return times.elapsed, (user + nice + system) / os.sysconf("SC_CLK_TCK") - sum(times[:4])

    def cores(self) -> float:
        elapsed, busy = (now - began for now, began in zip(self.now(), self.began))
        return round(max(0.0, busy / elapsed), 3)  # the two clocks tick differently


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.scratch_folder = tempfile.TemporaryDirectory(prefix="lockstep-grid-", ignore_cleanup_errors=True)
        self.scratch = Path(self.scratch_folder.name)
        self.data = data_files.write_idx(self.scratch / "data", train=4096, test=32)
        try:
            self.network = two_hosts() if set(given.links) - {"host"} else None
        except NoNetwork as why:
            raise SystemExit(f"grid.py: cannot create network namespaces ({why}); use --links host") from why
        self.cores = [str(core) for core in sorted(os.sched_getaffinity(0))[:2]]
        self.model_probes: dict[str, tuple[float, int]] = {}  # by model: seconds per step, parameters

    def command(self, name: str, contestant: str, epochs: int, steps: int) -> list[str]:
        model = MODELS[name]
        file = self.scratch / f"{name}.json"
        file.write_text(model.to_json())
        return [support.program("lockstep"), "train", "--model", str(file), "--optimizer", model.optimizer,
                "--loss", "sparse_categorical_crossentropy", "--data-dir", str(self.data), "--epochs", str(epochs),
                "--steps-per-epoch", str(steps), "--global-batch-size", str(model.batch), "--backup-save-freq", "never",
                "--resume", "never", "--parallelism", "data" if contestant in ("single", "two-independent") else contestant]

    def one_host(self, command: list[str], workers: int, core: int = 0) -> Ended:
        model_dir = self.scratch / f"model-{core}"
        launcher = ["taskset", "-c", self.cores[core]] if workers == 1 else ["mpirun", "--bind-to", "core", "-np", "2"]
        environment = support.clean_environment({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        ended = subprocess.run([*launcher, *command, "--model-dir", str(model_dir)], env=environment, check=False,
                               capture_output=True, text=True, timeout=TIMEOUT_S)
        text = ended.stdout + ended.stderr
        return ended.returncode, text, load_history(model_dir) if ended.returncode == 0 else {}

    def two_independent(self, command: list[str]) -> Ended:
        """Runs an independent worker on each core. Returns the slower one's result."""
        with ThreadPoolExecutor(2) as both:
            ended = list(both.map(lambda core: self.one_host(command, 1, core), (0, 1)))
        return max(ended, key=lambda each: (each[0], -median_rate(each[2]) if each[2] else 0.0))

    def two_hosts(self, command: list[str], link: str) -> Ended:
        assert self.network is not None
        job, codes = run_on_two_hosts(self.network, self.scratch, link, command, TIMEOUT_S)
        code = max(abs(code or 0) for code in codes)
        return code, job.text(), load_history(job.model) if code == 0 else {}

    def probe_model(self, name: str) -> tuple[float, int]:
        if name not in self.model_probes:
            code, text, history = self.one_host(self.command(name, "single", 3, 3), 1)
            found = re.search(r"Trainable params: ([\d,]+)", text)
            if code != 0 or not found:
                raise RuntimeError(f"{name}: {text}")
            rate = max(epoch["examples_per_second"] for epoch in history["epochs"][1:])
            self.model_probes[name] = MODELS[name].batch / rate, int(found[1].replace(",", ""))
        return self.model_probes[name]

    def steps(self, name: str, link: str, contestant: str) -> int:
        """Steps for an epoch of about half a second. Assumes that `auto` takes the faster choice."""
        single, parameters = self.probe_model(name)
        all_reduce = 0.0 if link == "host" else 4 * 8 * parameters / bits_per_second(link)
        expected = {"single": single, "two-independent": single, "data": max(single / 2, all_reduce),
                    "tensor": single / 2, "auto": min(max(single / 2, all_reduce), single)}[contestant]
        return min(MAX_STEPS, max(MIN_STEPS, math.ceil(EPOCH_SECONDS / expected)))

    def run(self, name: str, link: str, contestant: str) -> Sample:
        sample = Sample(name, link, contestant)
        background_load = BackgroundLoad()
        try:
            sample.steps = self.steps(name, link, contestant)
            command = self.command(name, contestant, EPOCHS, sample.steps)
            if contestant == "two-independent":
                code, text, history = self.two_independent(command)
            elif link == "host" or contestant == "single":
                code, text, history = self.one_host(command, 1 if contestant == "single" else 2)
            else:
                code, text, history = self.two_hosts(command, link)
        except (subprocess.TimeoutExpired, Hang, RuntimeError) as error:
            sample.error = str(error)[-2000:]
            return sample
        finally:
            sample.background_cores = background_load.cores()
        if code == 64:
            why = re.search(r"the model cannot be sharded, because (.*); use --parallelism", text)
            sample.refused = why[1] if why else "refused"
        elif code != 0:
            sample.error = text[-2000:]
        else:
            sample.epochs = [epoch["examples_per_second"] for epoch in history["epochs"]]
            sample.examples_per_second = median_rate(history)
            sample.world, sample.profile_ms = history["world"], history["timing"].get("profile_ms_per_step", {})
        return sample


def median_rate(history: dict[str, Any]) -> float:
    """Median examples per second of the epochs after the warm-up."""
    return statistics.median(epoch["examples_per_second"] for epoch in history["epochs"][1:])


def bits_per_second(rate: str) -> float:
    """Converts a rate in tc's notation, such as 10gbit."""
    return float(rate[:-4]) * {"mbit": 1e6, "gbit": 1e9}[rate[-4:]]


def load_history(model_dir: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((model_dir / "history.json").read_text())
    return read


class Results:
    """The samples of a file. The file is rewritten after each new sample."""

    def __init__(self, path: Path | None, resume: bool) -> None:
        self.path = path
        self.about = {"machine": asdict(this_machine()), "version": lockstep_version(ROOT)}
        self.samples: list[Sample] = []
        if path and resume and path.exists():
            self.load(path)
        elif path and path.exists():
            raise SystemExit(f"grid.py: {path} exists: continue it with --resume, or name another file")

    def load(self, path: Path, to_add: bool = True) -> None:
        read = json.loads(path.read_text())
        if to_add and read["machine"] != self.about["machine"]:
            raise SystemExit(f"grid.py: {path} was measured on {read['machine']['cpu']}; ratios need one machine")
        self.samples = [Sample(**each) for each in unpack(read["samples"])]

    def count(self, model: str, link: str, contestant: str) -> int:
        return sum(sample.cell == (model, link) and sample.contestant == contestant for sample in self.samples)

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)
        if self.path:
            write_atomically(self.path, {**self.about, "samples": [asdict(each) for each in self.samples]})


def pending_runs(given: argparse.Namespace, results: Results) -> Iterator[tuple[str, str, str]]:
    """Yields (model, link, contestant) of the missing runs; contestants take turns."""
    cells = [(model, link) for model in given.models for link in given.links]
    if given.again:
        cells = [(cell.model, cell.link) for cell in cells_from_samples(results.samples) if cell.violations]
    done = {(*cell, who): 0 if given.again else results.count(*cell, who) for cell in cells for who in CONTESTANTS}
    for repeat in range(given.repeats):
        for cell in cells:
            yield from ((*cell, who) for who in CONTESTANTS if done[*cell, who] <= repeat)


def self_check() -> None:
    assert len({(model.to_json(), model.batch) for model in MODELS.values()}) == 20
    predicted = {"parallelism": "tensor", "predicted_ms_tensor": 10.0, "predicted_ms_data": 30.0}
    speeds = {"single": 6400.0, "data": 3200.0, "tensor": 12800.0, "auto": 12000.0}
    good = [Sample("tiny", "host", who, examples_per_second=speed, world=predicted) for who, speed in speeds.items()]
    [cell] = cells_from_samples(good)
    assert not cell.violations and abs(cell.speedup_over_best - 12 / 12.8) < 1e-9 and abs(cell.prediction_ratio - 12 / 12.8) < 1e-9
    assert abs(cell.prediction("data", "data") - 0.75) < 1e-9
    slow = [*good[:3], Sample("tiny", "host", "auto", examples_per_second=6000.0, world=predicted)]
    assert cells_from_samples(slow)[0].violations == ["best", "one", "step"]
    failed = [*good[:3], Sample("tiny", "host", "auto", error="it hung")]
    assert cells_from_samples(failed)[0].violations == ["run"] and "it hung" in summary(failed, cells_from_samples(failed))
    beside = [*slow, Sample("tiny", "host", "two-independent", examples_per_second=6000.0)]
    assert cells_from_samples(beside)[0].violations == cells_from_samples(slow)[0].violations and cells_from_samples(beside)[0].speedup_over_two_independent == 1
    refused = [*good[:2], Sample("tiny", "host", "tensor", refused="reasons"),
               Sample("tiny", "host", "auto", examples_per_second=6400.0, world={"parallelism": "data"})]
    assert not cells_from_samples(refused)[0].violations and "reasons" in summary(refused, cells_from_samples(refused))
    assert table(cells_from_samples(slow)).count("!") == 3 and table(cells_from_samples(good)).count("!") == 0
    assert bits_per_second("10gbit") == 1e10 and bits_per_second("200mbit") == 2e8
    assert not cells_from_samples(good[:3]), "an incomplete cell must not have a row"


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="MODEL",
                        help=", ".join(MODELS))
    parser.add_argument("--links", nargs="+", default=list(LINKS), help="host, or a rate in mbit or gbit: 1gbit")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each contestant; 3 more with --again")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write each sample to FILE at once")
    parser.add_argument("--resume", action="store_true", help="skip runs that the file of --save contains")
    parser.add_argument("--again", type=Path, metavar="FILE", help="add runs of the cells that miss a bound")
    parser.add_argument("--from", dest="shown", type=Path, metavar="FILE")
    parser.add_argument("--self-check", action="store_true")
    given = parser.parse_args()
    if given.self_check:
        self_check()
        return 0
    if given.again and "--repeats" not in sys.argv:
        given.repeats = 3
    results = Results(given.again or given.save, bool(given.again) or given.resume)
    if given.shown:
        results.load(given.shown, to_add=False)
    else:
        support.use_build(given.binaries)
        bench = Bench(given)
        plan = deque(pending_runs(given, results))
        while plan:
            model, link, contestant = plan.popleft()
            sample = bench.run(model, link, contestant)
            results.add(sample)
            if contestant == "auto" and sample.world.get("parallelism") == "replicated":
                plan.appendleft((model, link, "two-independent"))
            print(f"{model} {link} {contestant}: " + (f"refused, {sample.refused}" if sample.refused else
                  f"failed, {sample.error}" if sample.error else
                  f"{sample.examples_per_second:,.0f} examples/s in epochs of {sample.steps} steps"), flush=True)
    cells = cells_from_samples(results.samples)
    print(f"{table(cells)}\n{LEGEND}\n{summary(results.samples, cells)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

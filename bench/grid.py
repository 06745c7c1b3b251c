#!/usr/bin/env python3
"""Is `--division auto` right? Twenty models, three links: `auto` beside both fixed choices and one worker, and the step
that it predicted beside the step that came.

    python3 bench/grid.py --save bench/results/grid.json              # all cells, 20 minutes
    python3 bench/grid.py --save bench/results/grid.json --resume     # go on after an interruption
    python3 bench/grid.py --again bench/results/grid.json             # more runs of the cells that break a bound
    python3 bench/grid.py --from bench/results/grid.json              # its tables; measures nothing
    python3 bench/grid.py --models tiny lenet --links host --repeats 3

Two workers of a core each: `host` is mpirun on one machine, whose ranks share memory; the other links join two network
namespaces, shaped by `tc`, so they take root. Contestants take turns. A run is an epoch to warm up and four that count,
of half a second each; its speed is the median epoch's, and a figure the median of the runs. Where `auto` lets every
worker compute all, two lone workers that know nothing of each other run at once as well: more than the slower one's
speed cannot be had there. Images are made up: what they show costs no time."""

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
sys.path[:0] = [str(ROOT / place) for place in ("tests/programs", "tests/pods/namespaces", "bench/peers")]
import data_files  # noqa: E402
import support  # noqa: E402
from grid_models import MODELS  # noqa: E402
from grid_tables import CONTESTANTS, LEGEND, LINKS, Sample, cells_of, summary, table  # noqa: E402
from harness.results import lockstep_version, this_machine, write_whole  # noqa: E402
from network import NoNetwork  # noqa: E402
from pods import Hang  # noqa: E402
from two_hosts import run_on_two_hosts, two_hosts  # noqa: E402

EPOCHS, EPOCH_SECONDS, LEAST_STEPS, MOST_STEPS = 5, 0.5, 4, 2000
TIMEOUT_S = 180

Ended = tuple[int, str, dict[str, Any]]  # exit code, what was said, and history.json


class Others:
    """What other processes take of the machine from now on."""

    def __init__(self) -> None:
        self.began = self.now()

    @staticmethod
    def now() -> tuple[float, float]:
        """Seconds, and those of cores that worked for others than this process and its children."""
        user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
        times = os.times()
        return times.elapsed, (user + nice + system) / os.sysconf("SC_CLK_TCK") - sum(times[:4])

    def cores(self) -> float:
        elapsed, busy = (now - began for now, began in zip(self.now(), self.began))
        return round(busy / elapsed, 3)


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.scratch_folder = tempfile.TemporaryDirectory(prefix="lockstep-grid-", ignore_cleanup_errors=True)
        self.scratch = Path(self.scratch_folder.name)
        self.data = data_files.write_idx(self.scratch / "data", train=4096, test=32)
        try:
            self.network = two_hosts() if set(given.links) - {"host"} else None
        except NoNetwork as why:
            raise SystemExit(f"grid.py: there can be no network namespaces here ({why}): try --links host") from why
        self.cores = [str(core) for core in sorted(os.sched_getaffinity(0))[:2]]
        self.first_looks: dict[str, tuple[float, int]] = {}  # by model: seconds a step of one worker, and parameters

    def command(self, name: str, contestant: str, epochs: int, steps: int) -> list[str]:
        model = MODELS[name]
        file = self.scratch / f"{name}.json"
        file.write_text(model.to_json())
        return [support.program("lockstep"), "train", "--model", str(file), "--optimizer", model.optimizer,
                "--loss", "sparse_categorical_crossentropy", "--data-dir", str(self.data), "--epochs", str(epochs),
                "--steps-per-epoch", str(steps), "--global-batch-size", str(model.batch), "--backup-save-freq", "never",
                "--resume", "never", "--division", "examples" if contestant in ("alone", "beside") else contestant]

    def one_host(self, command: list[str], workers: int, core: int = 0) -> Ended:
        place = self.scratch / f"model-{core}"
        launcher = ["taskset", "-c", self.cores[core]] if workers == 1 else ["mpirun", "--bind-to", "core", "-np", "2"]
        environment = support.clean_environment({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        ended = subprocess.run([*launcher, *command, "--model-dir", str(place)], env=environment, check=False,
                               capture_output=True, text=True, timeout=TIMEOUT_S)
        text = ended.stdout + ended.stderr
        return ended.returncode, text, history_of(place) if ended.returncode == 0 else {}

    def twice(self, command: list[str]) -> Ended:
        """A worker alone on each core, which know nothing of each other; the slower one."""
        with ThreadPoolExecutor(2) as both:
            ended = list(both.map(lambda core: self.one_host(command, 1, core), (0, 1)))
        return max(ended, key=lambda each: (each[0], -median_rate(each[2]) if each[2] else 0.0))

    def two_hosts(self, command: list[str], link: str) -> Ended:
        assert self.network is not None
        job, codes = run_on_two_hosts(self.network, self.scratch, link, command, TIMEOUT_S)
        code = max(abs(code or 0) for code in codes)
        return code, job.text(), history_of(job.model) if code == 0 else {}

    def first_look(self, name: str) -> tuple[float, int]:
        if name not in self.first_looks:
            code, text, history = self.one_host(self.command(name, "alone", 3, 3), 1)
            found = re.search(r"Trainable params: ([\d,]+)", text)
            if code != 0 or not found:
                raise RuntimeError(f"{name}: {text}")
            rate = max(epoch["images_per_second"] for epoch in history["epochs"][1:])
            self.first_looks[name] = MODELS[name].batch / rate, int(found[1].replace(",", ""))
        return self.first_looks[name]

    def steps(self, name: str, link: str, contestant: str) -> int:
        """For an epoch of about half a second; of `auto` as of the faster choice."""
        alone, parameters = self.first_look(name)
        sums = 0.0 if link == "host" else 4 * 8 * parameters / bits_per_second(link)
        expected = {"alone": alone, "beside": alone, "examples": max(alone / 2, sums), "features": alone / 2,
                    "auto": min(max(alone / 2, sums), alone)}[contestant]
        return min(MOST_STEPS, max(LEAST_STEPS, math.ceil(EPOCH_SECONDS / expected)))

    def run(self, name: str, link: str, contestant: str) -> Sample:
        sample = Sample(name, link, contestant)
        others = Others()
        try:
            sample.steps = self.steps(name, link, contestant)
            command = self.command(name, contestant, EPOCHS, sample.steps)
            if contestant == "beside":
                code, text, history = self.twice(command)
            elif link == "host" or contestant == "alone":
                code, text, history = self.one_host(command, 1 if contestant == "alone" else 2)
            else:
                code, text, history = self.two_hosts(command, link)
        except (subprocess.TimeoutExpired, Hang, RuntimeError) as error:
            sample.error = str(error)[-2000:]
            return sample
        finally:
            sample.others = others.cores()
        if code == 64:
            why = re.search(r"cannot be divided by features, since (.*); use --division", text)
            sample.refused = why[1] if why else "refused"
        elif code != 0:
            sample.error = text[-2000:]
        else:
            sample.epochs = [epoch["images_per_second"] for epoch in history["epochs"]]
            sample.images_per_second = median_rate(history)
            sample.world, sample.profile_ms = history["world"], history["timing"].get("profile_ms_per_step", {})
        return sample


def median_rate(history: dict[str, Any]) -> float:
    """Of the epochs behind the first."""
    return statistics.median(epoch["images_per_second"] for epoch in history["epochs"][1:])


def bits_per_second(rate: str) -> float:
    """Of a rate as tc takes it."""
    return float(rate[:-4]) * {"mbit": 1e6, "gbit": 1e9}[rate[-4:]]


def history_of(place: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((place / "history.json").read_text())
    return read


class Results:
    """The samples of a file, which is written anew with each one that is added."""

    def __init__(self, path: Path | None, resume: bool) -> None:
        self.path = path
        self.about = {"machine": asdict(this_machine()), "version": lockstep_version(ROOT)}
        self.samples: list[Sample] = []
        if path and resume and path.exists():
            self.load(path)
        elif path and path.exists():
            raise SystemExit(f"grid.py: {path} is there already: go on with it by --resume, or name another file")

    def load(self, path: Path) -> None:
        read = json.loads(path.read_text())
        if read["machine"] != self.about["machine"]:
            raise SystemExit(f"grid.py: {path} comes from {read['machine']['cpu']}; a ratio comes from one machine")
        self.samples = [Sample(**each) for each in read["samples"]]

    def count(self, model: str, link: str, contestant: str) -> int:
        return sum(sample.cell == (model, link) and sample.contestant == contestant for sample in self.samples)

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)
        if self.path:
            write_whole(self.path, {**self.about, "samples": [asdict(each) for each in self.samples]})


def work(given: argparse.Namespace, results: Results) -> Iterator[tuple[str, str, str]]:
    """What is to be run, contestants in turns."""
    cells = [(model, link) for model in given.models for link in given.links]
    if given.again:
        cells = [(cell.model, cell.link) for cell in cells_of(results.samples) if cell.broken]
    done = {(*cell, who): 0 if given.again else results.count(*cell, who) for cell in cells for who in CONTESTANTS}
    for repeat in range(given.repeats):
        for cell in cells:
            yield from ((*cell, who) for who in CONTESTANTS if done[*cell, who] <= repeat)


def self_check() -> None:
    assert len({(model.to_json(), model.batch) for model in MODELS.values()}) == 20
    predicted = {"division": "features", "predicted_ms_by_features": 10.0, "predicted_ms_by_examples": 30.0}
    speeds = {"alone": 6400.0, "examples": 3200.0, "features": 12800.0, "auto": 12000.0}
    good = [Sample("tiny", "host", who, images_per_second=speed, world=predicted) for who, speed in speeds.items()]
    [cell] = cells_of(good)
    assert not cell.broken and abs(cell.of_best - 12 / 12.8) < 1e-9 and abs(cell.of_step - 12 / 12.8) < 1e-9
    assert abs(cell.prediction("examples", "examples") - 0.75) < 1e-9
    slow = [*good[:3], Sample("tiny", "host", "auto", images_per_second=6000.0, world=predicted)]
    assert cells_of(slow)[0].broken == ["best", "one", "step"]
    failed = [*good[:3], Sample("tiny", "host", "auto", error="it hung")]
    assert cells_of(failed)[0].broken == ["run"] and "it hung" in summary(failed, cells_of(failed))
    beside = [*slow, Sample("tiny", "host", "beside", images_per_second=6000.0)]
    assert cells_of(beside)[0].broken == cells_of(slow)[0].broken and cells_of(beside)[0].of_beside == 1
    refused = [*good[:2], Sample("tiny", "host", "features", refused="reasons"),
               Sample("tiny", "host", "auto", images_per_second=6400.0, world={"division": "examples"})]
    assert not cells_of(refused)[0].broken and "reasons" in summary(refused, cells_of(refused))
    assert table(cells_of(slow)).count("!") == 3 and table(cells_of(good)).count("!") == 0
    assert bits_per_second("10gbit") == 1e10 and bits_per_second("200mbit") == 2e8
    assert not cells_of(good[:3]), "a cell that is not whole has no row"


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="MODEL",
                        help=", ".join(MODELS))
    parser.add_argument("--links", nargs="+", default=list(LINKS), help="host, or a rate in mbit or gbit: 1gbit")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each contestant; 3 more with --again")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep every sample as soon as it is made")
    parser.add_argument("--resume", action="store_true", help="leave out what the file of --save has")
    parser.add_argument("--again", type=Path, metavar="FILE", help="add runs of the cells that break a bound")
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
        results.load(given.shown)
    else:
        support.use_build(given.binaries)
        bench = Bench(given)
        plan = deque(work(given, results))
        while plan:
            model, link, contestant = plan.popleft()
            sample = bench.run(model, link, contestant)
            results.add(sample)
            if contestant == "auto" and sample.world.get("division") == "none":
                plan.appendleft((model, link, "beside"))
            print(f"{model} {link} {contestant}: " + (f"refused, {sample.refused}" if sample.refused else
                  f"failed, {sample.error}" if sample.error else
                  f"{sample.images_per_second:,.0f} images/s in epochs of {sample.steps} steps"), flush=True)
    cells = cells_of(results.samples)
    print(f"{table(cells)}\n{LEGEND}\n{summary(results.samples, cells)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Trains the same model in Lockstep, TensorFlow, PyTorch and JAX on the same cores and compares them.

Within each case the contestants take turns (A B C A B C …). Each result is the median of the repetitions. This program
needs only the standard library. The peers run in a virtual environment that the first run creates from
bench/peers/requirements.txt.

    python3 bench/compare.py --data-dir MNIST                       the whole grid: about three hours
    python3 bench/compare.py --batches 128 --precisions float32     the main part: about forty minutes
    python3 bench/compare.py --from bench/results/FILE.json --docs docs/appendix/peers.md
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench" / "peers"))

from harness import environment  # noqa: E402
from harness.cases import ARRANGEMENTS, BATCHES, CONTESTANTS, LOCKSTEP, MODELS, PRECISIONS, Case, grid, steps_for  # noqa: E402
from harness.children import Runner  # noqa: E402
from harness.options import add_options, data_in  # noqa: E402
from harness.plot import chart  # noqa: E402
from harness.results import Results, lockstep_version, new_path, this_machine  # noqa: E402
from harness.selfcheck import self_check  # noqa: E402
from harness.tables import rewrite, rows_of, terminal  # noqa: E402


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    subset = parser.add_argument_group("which part of the grid")
    subset.add_argument(
        "--only", nargs="+", choices=list(CONTESTANTS), default=list(CONTESTANTS), metavar="WHO", help="%(choices)s"
    )
    subset.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    subset.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    subset.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    subset.add_argument("--arrangements", nargs="+", choices=list(ARRANGEMENTS), default=list(ARRANGEMENTS))
    subset.add_argument("--repeats", type=int, default=5)
    subset.add_argument("--steps", type=int, default=350, help="measured steps at batch 128 (fewer at larger ones)")
    add_options(parser, timeout=600)
    return parser.parse_args(arguments)


def open_results(options: argparse.Namespace) -> tuple[Results, Path]:
    """The results to extend, and their file."""
    machine = this_machine()
    if options.resume:
        results = Results.load(options.resume)
        if results.machine != machine or results.steps != options.steps:
            origin = f"{results.machine} with --steps {results.steps}"
            raise SystemExit(f"{options.resume} was measured on {origin}; ratios need one machine and one --steps")
        return results, options.resume
    results = Results(machine, steps=options.steps)
    return results, new_path(options.results, machine, results.date)


def measure(options: argparse.Namespace, results: Results, path: Path) -> None:
    contestants = [CONTESTANTS[name] for name in CONTESTANTS if name in options.only]
    python = Path(sys.executable)
    if any(c.program for c in contestants):
        python = environment.prepare(options.environment)
        results.installed_mb |= environment.peer_sizes_mb(python)
    if LOCKSTEP in contestants:
        results.versions[LOCKSTEP.name] = lockstep_version(ROOT)
        results.installed_mb[LOCKSTEP.name] = environment.lockstep_size_mb(options.binaries)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` ends running children
    results.data, data_dir = data_in(options.data_dir)
    cores = sorted(os.sched_getaffinity(0))
    runner = Runner(python, options.binaries, data_dir, cores, options.timeout)
    for case in grid(options.models, options.batches, options.precisions, options.arrangements):
        if ARRANGEMENTS[case.arrangement].cores > len(cores):
            print(f"{case.arrangement}: skipped, because this machine has {len(cores)} core(s)")
            continue
        for turn in range(options.repeats):
            for contestant in contestants:
                if contestant.runs(case) and len(results.of(contestant.name, case)) <= (
                    0 if contestant.only_once else turn
                ):
                    run_contestant(runner, contestant.name, case, turn, options, results)
                    results.save(path)


def run_contestant(runner: Runner, name: str, case: Case, turn: int, options: argparse.Namespace, results: Results) -> None:
    sample = runner.run(CONTESTANTS[name], case, steps_for(case.batch, options.steps))
    results.add(name, case, sample)
    outcome = sample.error or f"{sample.examples_per_second:,.0f} examples/s, loss {sample.last_loss:.3f}"
    print(
        f"{case.model} {case.batch} {case.precision} {case.arrangement} [{turn + 1}/{options.repeats}] {name}: {outcome}",
        flush=True,
    )


def main() -> int:
    options = parse()
    if options.self_check:
        self_check()
        return 0
    if options.shown:
        results = Results.load(options.shown)
    else:
        results, path = open_results(options)
        measure(options, results, path)
        print(f"\nall samples: {path}\n")
    print(terminal(results))
    if options.docs:
        plot = options.docs.with_suffix(".svg")
        plot.write_text(
            chart(rows_of(results), f"{results.machine.cpu}, {results.machine.cores} cores, {results.date}")
        )
        rewrite(options.docs, results, plot.name)
        print(f"\nrewritten: {options.docs}, {plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compares Lockstep's parallelisms with TensorFlow's MultiWorkerMirroredStrategy and PyTorch's DistributedDataParallel,
with two workers of one core each, joined by links of given rates and latencies.

    python3 bench/network.py --data-dir MNIST --repeats 5        batch 128, links without latency: 20 minutes
    python3 bench/network.py --data-dir MNIST --latencies 0 0.2 2 --batches 128 1024 --repeats 1 --resume FILE
                                                                 the other batches and latencies: 17 minutes more
    python3 bench/network.py --from bench/results/FILE.json --docs docs/appendix/network.md
    python3 bench/network.py --check-links                       round trips and rates, no training

Hosts are network namespaces and `tc` shapes their links, which needs root. `lockstep launch` forms the worlds from
TF_CONFIG, as in pods. With link `host`, mpirun starts both ranks on one machine, where they share memory. Contestants
take turns. A figure is the median of the runs; a run is the median of five parts.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench" / "peers"), str(ROOT / "tests" / "pods")]

from harness import environment  # noqa: E402
from harness.cases import MODELS  # noqa: E402
from harness.children import cpu_use  # noqa: E402
from harness.options import add_options, data_in  # noqa: E402
from harness.results import lockstep_version, new_path, this_machine  # noqa: E402
from harness.tables import replace_between_markers  # noqa: E402
from links.contestants import CONTESTANTS, RATES, Contestant, Setting, expected_ms, settings, steps_for  # noqa: E402
from links.hosts import HOST, Hosts, Link  # noqa: E402
from links.plot import chart  # noqa: E402
from links.report import BEGIN, END, markdown  # noqa: E402
from links.runs import Runner  # noqa: E402
from links.samples import Sample, Samples  # noqa: E402
from links.selfcheck import self_check  # noqa: E402
from namespaces.network import NoNetwork  # noqa: E402


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    subset = parser.add_argument_group("which part of the grid")
    subset.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="WHO",
                        help="%(choices)s; single and tensorflow-1x2 run only with the link 'host'")  # fmt: skip
    subset.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    subset.add_argument("--links", nargs="+", default=list(RATES), help="host, unlimited, or a rate in tc's notation: 1gbit")
    subset.add_argument("--latencies", nargs="+", type=float, default=[0.0], metavar="MS", help="one way")
    subset.add_argument("--batches", nargs="+", type=int, default=[128])
    subset.add_argument("--repeats", type=int, default=3)
    subset.add_argument("--seconds", type=float, default=2.0, help="approximate duration of a run")
    add_options(parser, timeout=180)
    parser.add_argument("--check-links", action="store_true", help="print round trips and rates of the links, and exit")
    return parser.parse_args(arguments)


def open_results(options: argparse.Namespace) -> tuple[Samples, Path]:
    """The samples to extend, and their file."""
    machine = this_machine()
    if not options.resume:
        samples = Samples(machine)
        return samples, new_path(options.results, machine, samples.date, "network")
    samples = Samples.load(options.resume)
    if samples.machine != machine:
        raise SystemExit(f"{options.resume} was measured on {samples.machine}; ratios need one machine")
    return samples, options.resume


def steps_of(contestant: Contestant, setting: Setting, samples: Samples, seconds: float) -> int:
    """The number of steps, from the last run's step time or else from a rough estimate."""
    known = [s.ms_per_step for s in samples.of(contestant, setting) if s.ms_per_step]
    return steps_for(known[-1] if known else expected_ms(contestant, setting), seconds)


def run_contestant(runner: Runner, contestant: Contestant, setting: Setting, samples: Samples, seconds: float) -> Sample:
    steps = steps_of(contestant, setting, samples, seconds)
    load, busy = os.getloadavg()[0], cpu_use()
    run = runner.run(contestant, setting, steps)
    outcome = run.outcome
    sample = Sample(
        contestant=contestant.name, model=setting.model, batch=setting.batch, rate=setting.link.rate,
        latency_ms=setting.link.latency_ms, steps=steps, cpu=samples.machine.cpu, commit=lockstep_version(ROOT),
        load_before=round(load, 2), cpu_use_before=busy, examples_per_second=outcome.examples_per_second,
        ms_per_step=outcome.ms_per_step, seconds_to_first_step=outcome.seconds_to_first_step,
        peak_memory_mb=outcome.peak_memory_mb, version=outcome.version, error=outcome.error, world=run.world,
        profile_ms_per_step=run.profile_ms_per_step,
    )  # fmt: skip
    samples.samples.append(sample)
    return sample


def measure(options: argparse.Namespace, samples: Samples, path: Path, hosts: Hosts | None) -> None:
    contestants = [CONTESTANTS[name] for name in CONTESTANTS if name in options.only]
    for contestant in contestants:
        program = options.binaries / "keras_mnist"
        if not contestant.peer and not program.is_file():
            raise SystemExit(f"{program} is not built: cmake --preset release && cmake --build --preset release")
    python = environment.prepare(options.environment) if any(c.peer for c in contestants) else Path(sys.executable)
    samples.data, data_dir = data_in(options.data_dir)
    cores = sorted(os.sched_getaffinity(0))[:2]
    runner = Runner(python, options.binaries.resolve(), data_dir, cores, options.timeout, hosts)
    grid = list(settings(options.models, options.batches, options.links, options.latencies))
    for link in dict.fromkeys(setting.link for setting in grid):
        if hosts and link.rate != HOST and not samples.has_measured(link):
            samples.links.append(hosts.measure(link))
            print(samples.links[-1], flush=True)
    for turn in range(options.repeats):
        for setting in grid:
            for contestant in contestants:
                made = sum(1 for s in samples.of(contestant, setting) if not s.error)
                if contestant.runs(setting) and made <= turn:
                    sample = run_contestant(runner, contestant, setting, samples, options.seconds)
                    samples.save(path)
                    chosen = f" ({sample.world['parallelism']})" if contestant.name == "auto" and sample.world else ""
                    outcome = sample.error or f"{sample.examples_per_second:,.0f} examples/s, {sample.ms_per_step:.2f} ms/step"
                    print(f"{turn + 1}/{options.repeats} {setting.model} {setting.batch} {setting.link.label} "
                          f"{contestant.name}: {outcome}{chosen}", flush=True)  # fmt: skip


def main() -> int:
    options = parse()
    if options.self_check:
        self_check()
        return 0
    if options.shown:
        samples = Samples.load(options.shown)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` ends running children
        samples, path = open_results(options)
        hosts = Hosts(options.binaries) if set(options.links) - {HOST} else None
        if options.check_links:
            for latency in options.latencies:
                for rate in options.links:
                    if hosts and rate != HOST:
                        print(hosts.measure(Link(rate, latency)), flush=True)
            return 0
        measure(options, samples, path, hosts)
        print(f"\nall samples: {path}\n")
    print(markdown(samples))
    if options.docs:
        plot = options.docs.with_suffix(".svg")
        plot.write_text(chart(samples))
        options.docs.write_text(replace_between_markers(options.docs.read_text(), markdown(samples, plot.name), BEGIN, END))
        print(f"\nrewritten: {options.docs}, {plot}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoNetwork as error:
        sys.exit(f"cannot create links between hosts: {error}; use --links host")

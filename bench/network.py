#!/usr/bin/env python3
"""Two workers of a core each, joined by links of given rates and latencies: what each division of the work is worth
there, beside TensorFlow's MultiWorkerMirroredStrategy and PyTorch's DistributedDataParallel.

    python3 bench/network.py --data-dir MNIST --repeats 5        batch 128, links without latency, its heart: 20 minutes
    python3 bench/network.py --data-dir MNIST --latencies 0 0.2 2 --batches 128 1024 --repeats 1 --resume FILE       17 more
    python3 bench/network.py --from bench/results/FILE.json --docs docs/scaling.md
    python3 bench/network.py --check-links                               round trips and rates, no training

Hosts are network namespaces, so links take root; `tc` shapes them. Worlds are formed by `lockstep launch` from TF_CONFIG,
as in pods; `host` is mpirun on one machine, whose ranks share memory. Contestants take turns, and a figure is the median
of the runs, each of them the median of five parts.
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
from harness.children import busy_share  # noqa: E402
from harness.options import add_options, data_in  # noqa: E402
from harness.results import lockstep_version, new_path, this_machine  # noqa: E402
from harness.tables import replace_between_markers  # noqa: E402
from links.contestants import CONTESTANTS, RATES, Contestant, Setting, expected_ms, settings, steps_for  # noqa: E402
from links.hosts import HOST, Hosts, Link  # noqa: E402
from links.plot import chart  # noqa: E402
from links.report import BEGIN, END, markdown  # noqa: E402
from links.runs import Track  # noqa: E402
from links.samples import Sample, Samples  # noqa: E402
from links.selfcheck import self_check  # noqa: E402
from namespaces.network import NoNetwork  # noqa: E402


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    subset = parser.add_argument_group("which part of the grid")
    subset.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="WHO",
                        help="%(choices)s; one process (alone, tensorflow-1x2) runs with the link 'host'")  # fmt: skip
    subset.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    subset.add_argument("--links", nargs="+", default=list(RATES), help="host, unshaped, or a rate of tc: 1gbit")
    subset.add_argument("--latencies", nargs="+", type=float, default=[0.0], metavar="MS", help="one way")
    subset.add_argument("--batches", nargs="+", type=int, default=[128])
    subset.add_argument("--repeats", type=int, default=3)
    subset.add_argument("--seconds", type=float, default=2.0, help="measured in each run, about")
    add_options(parser, timeout=180)
    parser.add_argument("--check-links", action="store_true", help="tell round trips and rates of the links, and end")
    return parser.parse_args(arguments)


def opened(options: argparse.Namespace) -> tuple[Samples, Path]:
    """The samples to add to and their file."""
    machine = this_machine()
    if not options.resume:
        samples = Samples(machine)
        return samples, new_path(options.results, machine, samples.date, "network")
    samples = Samples.load(options.resume)
    if samples.machine != machine:
        raise SystemExit(f"{options.resume} comes from {samples.machine}; a ratio comes from one machine")
    return samples, options.resume


def steps_of(contestant: Contestant, setting: Setting, samples: Samples, seconds: float) -> int:
    """From the last run of the same, else from a rough idea."""
    known = [s.ms_per_step for s in samples.of(contestant, setting) if s.ms_per_step]
    return steps_for(known[-1] if known else expected_ms(contestant, setting), seconds)


def take(track: Track, contestant: Contestant, setting: Setting, samples: Samples, seconds: float) -> Sample:
    steps = steps_of(contestant, setting, samples, seconds)
    load, busy = os.getloadavg()[0], busy_share()
    run = track.run(contestant, setting, steps)
    outcome = run.outcome
    sample = Sample(
        contestant=contestant.name, model=setting.model, batch=setting.batch, rate=setting.link.rate,
        latency_ms=setting.link.latency_ms, steps=steps, cpu=samples.machine.cpu, commit=lockstep_version(ROOT),
        load_before=round(load, 2), busy_before=busy, images_per_second=outcome.images_per_second,
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
    track = Track(python, options.binaries.resolve(), data_dir, cores, options.timeout, hosts)
    grid = list(settings(options.models, options.batches, options.links, options.latencies))
    for link in dict.fromkeys(setting.link for setting in grid):
        if hosts and link.rate != HOST and not samples.knows(link):
            samples.links.append(hosts.measure(link))
            print(samples.links[-1], flush=True)
    for turn in range(options.repeats):
        for setting in grid:
            for contestant in contestants:
                made = sum(1 for s in samples.of(contestant, setting) if not s.error)
                if contestant.runs(setting) and made <= turn:
                    sample = take(track, contestant, setting, samples, options.seconds)
                    samples.save(path)
                    took = f" (by {sample.world['division']})" if contestant.name == "auto" and sample.world else ""
                    said = sample.error or f"{sample.images_per_second:,.0f} images/s, {sample.ms_per_step:.2f} ms a step"
                    print(f"{turn + 1}/{options.repeats} {setting.model} {setting.batch} {setting.link.label} "
                          f"{contestant.name}: {said}{took}", flush=True)  # fmt: skip


def main() -> int:
    options = parse()
    if options.self_check:
        self_check()
        return 0
    if options.shown:
        samples = Samples.load(options.shown)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that running children are ended too
        samples, path = opened(options)
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
        sys.exit(f"no links between hosts: {error}; --links host needs none")

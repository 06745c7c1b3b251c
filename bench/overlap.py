#!/usr/bin/env python3
"""Does the all-reduce of gradients between hosts overlap compute, and how much time does that save?

    python3 bench/overlap.py                          # compute and all-reduce, alone and together, on each link
    python3 bench/overlap.py --trace                  # also when the bytes of one step left the host
    python3 bench/overlap.py --train build/release --against build/before --data-dir MNIST --save FILE

The third form trains keras_mnist data parallel, with and without --gradient-compression bfloat16, and in turns with
another build, without compression. Hosts are network namespaces with one core each and `tc` shapes their links, which
needs root."""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "programs"))
import support  # noqa: E402
from two_hosts import Job, succeed_on_two_hosts, two_hosts  # noqa: E402

COMPRESSIONS = ("none", "bfloat16")


class Hosts:
    def __init__(self) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="lockstep-overlap-"))
        self.network = two_hosts()

    def run(self, link: str, command: list[str], **environment: str) -> Job:
        return succeed_on_two_hosts(self.network, self.scratch, link, ["chrt", "-f", "10", *command], **environment)


def measure_overlap(hosts: Hosts, link: str, compression: str, milliseconds: float) -> dict[str, Any]:
    job = hosts.run(link, [support.program("overlap_bench"), str(milliseconds), compression, "link0"])
    text = "".join(line.text for line in job.chief.lines)
    found: dict[str, Any] = json.loads(text[text.index("{"):text.rindex("}") + 1])
    return found


def fraction_sent_during_compute(step: list[list[float]]) -> float:
    """The fraction of a step's bytes that had left the host when its compute ended."""
    return step[-2][1] / step[-1][1]


def train(hosts: Hosts, link: str, compression: str, given: argparse.Namespace) -> dict[str, Any]:
    data = ["--data-dir", str(given.data_dir.resolve())] if given.data_dir else []
    environment = {"LOCKSTEP_PARALLELISM": "data"}  # variables, because older builds ignore unknown ones
    if compression != "none":
        environment["LOCKSTEP_GRADIENT_COMPRESSION"] = compression
    job = hosts.run(link, [support.program(given.model), *data, "--epochs", str(given.epochs), "--steps-per-epoch",
                           str(given.steps), "--backup-save-freq", "never", "--verbose", "0"], **environment)
    history = job.history()
    return {"examples_per_second": statistics.median(e["examples_per_second"] for e in history["epochs"][1:]),
            "loss": history["epochs"][-1]["loss"], "profile": history["timing"]["profile_ms_per_step"]}


def compare_training(hosts: Hosts, given: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    contestants = [(given.train, compression) for compression in COMPRESSIONS]
    if given.against:
        contestants.insert(0, (given.against, "none"))
    for repeat in range(given.repeats):
        for link in given.links:
            for build, compression in contestants:
                support.use_build(build)
                result = {"link": link, "build": build.name, "compression": compression, "repeat": repeat,
                          **train(hosts, link, compression, given)}
                results.append(result)
                print(f"{repeat + 1}/{given.repeats} {link} {build.name} {compression}: "
                      f"{result['examples_per_second']:,.0f} examples/s, loss {result['loss']:.4f}, "
                      f"{result['profile'].get('communication', 0):.2f} ms of communication per step", flush=True)
    return results


def compare_parts(hosts: Hosts, given: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    support.use_build(given.binaries)
    for repeat in range(given.repeats):
        for link in given.links:
            for compression in COMPRESSIONS:
                found = measure_overlap(hosts, link, compression, given.milliseconds)
                results.append({"link": link, "compression": compression, "repeat": repeat, **found})
                print(f"{repeat + 1}/{given.repeats} {link} {compression}: compute {found['compute_ms']:.2f} ms, all-reduce "
                      f"{found['all_reduce_ms']:.2f}, both {found['overlapped_ms']:.2f}; "
                      f"{100 * fraction_sent_during_compute(found['last_step']):.0f} % of the bytes had left when compute ended",
                      flush=True)
                if given.trace:
                    for before, after in zip(found["last_step"], found["last_step"][1:]):
                        print(f"  {before[0]:8.3f} to {after[0]:8.3f} ms: {(after[1] - before[1]) / 1000:9.1f} kB sent")
    return results


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "release", help="build folder of overlap_bench")
    parser.add_argument("--links", nargs="+", default=["unlimited", "10gbit", "1gbit"], help="unlimited, or a rate in tc's notation")
    parser.add_argument("--milliseconds", type=float, default=4, help="compute per step")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--train", type=Path, help="build folder of the model program to train")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--model", default="keras_mnist")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    hosts = Hosts()
    results = compare_training(hosts, given) if given.train else compare_parts(hosts, given)
    if given.save:
        given.save.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Do gradients travel between hosts while these compute, and what does it gain?

    python3 bench/overlap.py                                   # arithmetic and sums, alone and together, on each link
    python3 bench/overlap.py --trace                           # and when which bytes left the host, in one step
    python3 bench/overlap.py --train build/release --against build/before --data-dir MNIST --save FILE

The second form trains keras_mnist by examples, with and without --gradient-compression bfloat16, with one build and
another in turns (the other may be too old to know the option). Hosts are network namespaces with a core each, so it
takes root; `tc` shapes their links."""

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


def overlap(hosts: Hosts, link: str, compression: str, milliseconds: float) -> dict[str, Any]:
    job = hosts.run(link, [support.program("overlap_bench"), str(milliseconds), compression, "link0"])
    text = "".join(line.text for line in job.chief.lines)
    found: dict[str, Any] = json.loads(text[text.index("{"):text.rindex("}") + 1])
    return found


def sent_meanwhile(step: list[list[float]]) -> float:
    """Which part of a step's bytes had left the host when its arithmetic ended."""
    return step[-2][1] / step[-1][1]


def train(hosts: Hosts, link: str, compression: str, given: argparse.Namespace) -> dict[str, Any]:
    data = ["--data-dir", str(given.data_dir.resolve())] if given.data_dir else []
    environment = {"LOCKSTEP_DIVISION": "examples"}  # variables, which older builds do not mind
    if compression != "none":
        environment["LOCKSTEP_GRADIENT_COMPRESSION"] = compression
    job = hosts.run(link, [support.program(given.model), *data, "--epochs", str(given.epochs), "--steps-per-epoch",
                           str(given.steps), "--backup-save-freq", "never", "--verbose", "0"], **environment)
    history = job.history()
    return {"images_per_second": statistics.median(e["images_per_second"] for e in history["epochs"][1:]),
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
                      f"{result['images_per_second']:,.0f} images/s, loss {result['loss']:.4f}, "
                      f"{result['profile'].get('communication', 0):.2f} ms of communication a step", flush=True)
    return results


def compare_parts(hosts: Hosts, given: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    support.use_build(given.binaries)
    for repeat in range(given.repeats):
        for link in given.links:
            for compression in COMPRESSIONS:
                found = overlap(hosts, link, compression, given.milliseconds)
                results.append({"link": link, "compression": compression, "repeat": repeat, **found})
                print(f"{repeat + 1}/{given.repeats} {link} {compression}: arithmetic {found['compute_ms']:.2f} ms, sums "
                      f"{found['sums_ms']:.2f}, both {found['both_ms']:.2f}; "
                      f"{100 * sent_meanwhile(found['last_step']):.0f} % of the bytes had left when the arithmetic ended",
                      flush=True)
                if given.trace:
                    for before, after in zip(found["last_step"], found["last_step"][1:]):
                        print(f"  {before[0]:8.3f} to {after[0]:8.3f} ms: {(after[1] - before[1]) / 1000:9.1f} kB sent")
    return results


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "release", help="where overlap_bench is")
    parser.add_argument("--links", nargs="+", default=["unshaped", "10gbit", "1gbit"], help="unshaped, or a rate of tc")
    parser.add_argument("--milliseconds", type=float, default=4, help="of arithmetic in a step")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--train", type=Path, help="build whose keras_mnist is to train")
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

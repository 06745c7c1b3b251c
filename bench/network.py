#!/usr/bin/env python3
"""Two workers of a core each, on hosts joined by a link of a given rate: what each division of the work is worth.

    python3 bench/network.py --data-dir MNIST                          # both models, one host and links of all rates
    python3 bench/network.py --links 1gbit --models keras_mnist --repeats 3
    python3 bench/network.py --save bench/results/network.json

Hosts are network namespaces, so it takes root; `tc` shapes their links. Worlds are formed by `lockstep launch` from
TF_CONFIG, as in pods; `host` is mpirun on one machine, whose ranks share memory. Contestants take turns, and a figure is
the median of the runs, each of them its median epoch but the first. `alone` is one worker with the whole batch."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / place) for place in ("programs", "pods/namespaces")]
import support  # noqa: E402
from network import Network  # noqa: E402
from pods import Job  # noqa: E402

MODELS = ("keras_mnist", "custom_training_mnist")
LINKS = ("host", "unshaped", "10gbit", "1gbit")
DIVISIONS = ("alone", "examples", "features", "auto")


def speed(history: dict[str, Any]) -> float:
    """Images a second: the median epoch after the first."""
    return statistics.median(epoch["images_per_second"] for epoch in history["epochs"][1:])


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.scratch = Path(tempfile.mkdtemp(prefix="lockstep-network-"))
        self.network = Network(("worker-0", "worker-1")) if set(given.links) - {"host"} else None

    def command(self, model: str, division: str) -> list[str]:
        given = self.given
        steps = ["--steps-per-epoch", str(given.steps)]
        data = ["--data-dir", str(given.data_dir)] if given.data_dir else []
        return ["chrt", "-f", "10", support.program(model), *data, "--epochs", str(given.epochs), *steps,
                "--global-batch-size", str(given.batch), "--backup-save-freq", "never", "--resume", "never",
                "--verbose", "0", "--division", "examples" if division == "alone" else division]

    def one_host(self, model: str, division: str) -> dict[str, Any]:
        place = self.scratch / "model"
        workers = 1 if division == "alone" else 2
        launcher = [] if workers == 1 else ["mpirun", "--bind-to", "core", "-np", str(workers)]
        environment = support.clean_environment({"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        subprocess.run([*launcher, *self.command(model, division), "--model-dir", str(place)], check=True,
                       env=environment, stdout=subprocess.DEVNULL)
        read: dict[str, Any] = json.loads((place / "history.json").read_text())
        return read

    def two_hosts(self, model: str, division: str, link: str) -> dict[str, Any]:
        assert self.network is not None
        for host in self.network.hosts:
            host.restore()
            if link != "unshaped":
                host.limit(link)
        # A core each, as a pod with a limit of one has it.
        pinned = ["sh", "-c", 'exec taskset -c "${LOCKSTEP_BENCH_CORE:-0}" "$@"', "sh"]
        job = Job(self.network, self.scratch, [*pinned, *self.command(model, division)], workers=2)
        try:
            for number, core in enumerate(sorted(os.sched_getaffinity(0))[:2]):
                job._environment["LOCKSTEP_BENCH_CORE"] = str(core)
                job.start(number)
            codes = job.wait(600)
            if codes != [0, 0]:
                raise RuntimeError(job.text())
            return job.history()
        finally:
            job.end()

    def run(self, model: str, division: str, link: str) -> dict[str, Any]:
        history = self.one_host(model, division) if link == "host" or division == "alone" else \
            self.two_hosts(model, division, link)
        timing = history["timing"]
        predicted = {name: value for name, value in history["world"].items()
                     if name.startswith(("division", "predicted_ms", "ms_to_sum"))}
        return {"model": model, "division": division, "link": link, "images_per_second": speed(history),
                "profile_ms_per_step": timing["profile_ms_per_step"], "chosen": predicted}


def table(results: list[dict[str, Any]], models: list[str], links: list[str], divisions: list[str]) -> str:
    lines = []
    for model in models:
        lines += [f"**{model}**", "", "| link | " + " | ".join(divisions) + " |", "| --- |" + " ---: |" * len(divisions)]
        for link in links:
            cells = []
            for division in divisions:
                found = [r["images_per_second"] for r in results
                         if (r["model"], r["link"], r["division"]) == (model, link, division)]
                cells.append(f"{statistics.median(found):,.0f}" if found else "–")
            lines.append(f"| {link} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--links", nargs="+", default=list(LINKS), help="host, unshaped, or a rate of tc: 1gbit")
    parser.add_argument("--divisions", nargs="+", choices=DIVISIONS, default=list(DIVISIONS))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    if given.data_dir:
        given.data_dir = given.data_dir.resolve()
    support.use_build(given.binaries)
    bench = Bench(given)
    results: list[dict[str, Any]] = []
    for repeat in range(given.repeats):
        for model in given.models:
            for link in given.links:
                for division in given.divisions:
                    result = bench.run(model, division, link)
                    results.append(result)
                    communication = result["profile_ms_per_step"].get("communication", 0.0)
                    print(f"{repeat + 1}/{given.repeats} {model} {link} {division}: "
                          f"{result['images_per_second']:,.0f} images/s, {communication:.2f} ms of communication a step",
                          flush=True)
        if given.save:
            given.save.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results, given.models, given.links, given.divisions))
    return 0


if __name__ == "__main__":
    sys.exit(main())

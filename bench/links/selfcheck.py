"""`network.py --self-check`: tests grid, steps, commands, tables, targets and plot on synthetic samples, without
root."""

from __future__ import annotations

import struct
import sys
import tempfile
import xml.etree.ElementTree as xml
from dataclasses import asdict
from pathlib import Path

from harness.cases import EPOCHS
from harness.results import Machine
from harness.selfcheck import expect
from harness.tables import replace_between_markers

from .contestants import CONTESTANTS, Setting, expected_ms, settings, steps_for
from .hosts import HOST, Link, LinkMeasurement
from .plot import chart
from .probe import echo_request
from .report import BEGIN, BEST_PEER, END, TARGETS, Figures, markdown
from .runs import Runner, run_of_history
from .samples import Sample, Samples

ONE_HOST = Setting("keras_mnist", 128, Link(HOST))
SLOW = Setting("keras_mnist", 128, Link("1gbit"))
SLOW_AND_FAR = Setting("keras_mnist", 128, Link("1gbit", 2.0))


def check_grid() -> None:
    grid = list(settings(["a", "b"], [1, 2], [HOST, "1gbit"], [0.0, 2.0]))
    expect("HOST runs once, without latency", len(grid), 4 * (1 + 2))
    expect("near links first", [s.link.latency_ms for s in grid], [0.0] * 8 + [2.0] * 4)
    expect("labels", [s.link.label for s in (ONE_HOST, SLOW, SLOW_AND_FAR)], ["one host", "1 Gbit/s", "1 Gbit/s, 2 ms"])
    expect("one process", [c.name for c in CONTESTANTS.values() if not c.runs(SLOW)], ["single", "tensorflow-1x2"])
    expect("steps", (steps_for(10, 4), steps_for(2000, 4), steps_for(9, 4) % EPOCHS), (400, 2 * EPOCHS, 0))
    slow, fast = (expected_ms(CONTESTANTS["ddp"], s) for s in (SLOW, ONE_HOST))
    expect("gradients take time", 80 < slow - fast < 100, True)
    far = expected_ms(CONTESTANTS["tensor"], SLOW_AND_FAR) - expected_ms(CONTESTANTS["tensor"], SLOW)
    expect("latency takes time", far, 20.0)


def check_runs() -> None:
    epochs = [{"epoch": i, "loss": 1.0, "examples_per_second": rate} for i, rate in enumerate((10, 100, 400, 200))]
    world = {"workers": 2, "parallelism": "tensor", "predicted_ms_tensor": 5.0}
    run = run_of_history({"epochs": epochs, "world": world, "timing": {"profile_ms_per_step": {"total": 6.0}}}, 128)
    expect("median", run.outcome.examples_per_second, 200)
    expect("recorded world", sorted(run.world), ["parallelism", "predicted_ms_tensor"])
    expect("profile", run.profile_ms_per_step, {"total": 6.0})
    runner = Runner(Path(sys.executable), Path("/nowhere"), "", [0, 1], 10, None)
    with tempfile.TemporaryDirectory() as folder:
        words = runner.launch_command(1, ["program"], ["a:1", "b:2"], folder)
    expect("one core per worker", words[3:], ["taskset", "-c", "1", "/nowhere/lockstep", "launch", "--max-restarts", "0", "--", "program"])
    config = '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}'
    expect("TF_CONFIG", words[:2], ["env", f"TF_CONFIG={config}"])
    halves = struct.unpack("!4H", echo_request(3))
    expect("checksum of a ping", sum(halves) % 0xFFFF, 0)


def sample(contestant: str, setting: Setting, rate: float, error: str = "") -> Sample:
    made = Sample(contestant, setting.model, setting.batch, setting.link.rate, setting.link.latency_ms, 100, "Some CPU",
                  "abc", 0.1, 0.0, rate, 128000 / rate if rate else 0.0, error=error)  # fmt: skip
    if contestant == "auto":
        made.world = {"parallelism": "tensor", "predicted_ms_data": 90.0, "predicted_ms_tensor": 5.0}
    return made


def synthetic_samples() -> Samples:
    samples = Samples(Machine("Some CPU family 1 model 2", ["avx2"], 2), "2026-01-02", "MNIST")
    samples.links = [LinkMeasurement("1gbit", 2.0, "delay_link", 4.05, 950.0, 0.1)]
    for rate in (30000.0, 10000.0, 20000.0):
        samples.samples.append(sample("auto", ONE_HOST, rate))
        samples.samples.append(sample("auto", SLOW, rate - 1000))
        samples.samples.append(sample("auto", SLOW_AND_FAR, rate / 2))
    samples.samples += [sample("single", ONE_HOST, 10000.0), sample("mwms", SLOW, 1000.0), sample("mwms", ONE_HOST, 2000.0)]
    samples.samples += [sample("tensorflow-1x2", ONE_HOST, 9000.0), sample("ddp", SLOW, 0.0, "ValueError: a <b> | c")]
    return samples


def check_report() -> None:
    samples = synthetic_samples()
    figures = Figures(samples)
    auto, single = CONTESTANTS["auto"], CONTESTANTS["single"]
    expect("median", figures.rate(auto, SLOW), 19000)
    expect("one worker needs no link", figures.ratio(auto, single, SLOW), 1.9)
    expect("unknown rate", figures.rate(CONTESTANTS["ddp"], SLOW), 0.0)
    expect("predicted", figures.predicted_ms(SLOW), {"data": 90.0, "tensor": 5.0})
    ratios = {target.over: figures.measured_ratio(target) for target in TARGETS if target.model == SLOW.model and target.rate == "1gbit"}
    expect("ratios of the targets", ratios, {"mwms": 19.0, "ddp": 0.0, "single": 1.9, "unlimited": 0.0})
    best = next(target for target in TARGETS if target.over == BEST_PEER)
    expect("best peer, one missing", figures.measured_ratio(best), 0.0)
    samples.samples.append(sample("ddp", ONE_HOST, 3000.0))
    expect("best peer", round(figures.measured_ratio(best), 3), 2.222)
    text = markdown(samples, "p.svg")
    expect("row in the table", "| 1 Gbit/s, 2 ms | 10,000 | – | – | 10,000 | – | – |" in text, True)
    expect("prediction", "| 1 Gbit/s | tensor | 5.00 → 6.74 (-26%) |" in text, True)
    expect("failure", "- failed: PyTorch DDP, keras_mnist, batch 128, 1 Gbit/s: ValueError: a &lt;b> \\| c" in text, True)
    expect("order of rows", Samples(samples.machine, samples=samples.samples[::-1]).settings(), samples.settings())
    expect("no target missed", "**!**" in text, False)
    samples.samples += 3 * [sample("auto", SLOW, 14000.0)]
    expect("targets missed", markdown(samples).count("**!**"), 2)
    page = replace_between_markers(f"a\n{BEGIN}\nold\n{END}\nb\n", text, BEGIN, END)
    expect("replaced", ("old" in page, page[:2], page[-3:]), (False, "a\n", "\nb\n"))
    tables = [[line.count("|") for line in part.splitlines()] for part in text.split("\n\n") if part.startswith("| ")]
    expect("columns", [len(set(counts)) for counts in tables], [1] * len(tables))


def check_plot() -> None:
    drawing = xml.fromstring(chart(synthetic_samples()))
    kinds = [element.tag.rpartition("}")[2] for element in drawing.iter()]
    expect("bars", kinds.count("rect"), 1 + 6 + (3 + 3 + 2))  # the page, the legend, a bar per figure


def check_file() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.json"
        synthetic_samples().save(path)
        expect("read back", asdict(Samples.load(path)), asdict(synthetic_samples()))
        expect("links", (synthetic_samples().has_measured(Link("1gbit", 2.0)), synthetic_samples().has_measured(Link("1gbit"))), (True, False))


def self_check() -> None:
    for check in (check_grid, check_runs, check_report, check_plot, check_file):
        check()
    print("self-check: passed")

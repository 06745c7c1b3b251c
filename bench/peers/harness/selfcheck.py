"""`compare.py --self-check`: tests parsing, medians, tables and plot on synthetic samples, without the peers."""

from __future__ import annotations

import json
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

from .cases import CONTESTANTS, EPOCHS, Case, grid, lockstep_command, peer_commands, steps_for
from .children import Sample, error_line, free_ports, run_together, sample_of_history, sample_of_peer
from .plot import chart
from .results import Machine, Results, new_path, this_machine
from .tables import BEGIN, END, markdown, median_row, ratio, replace_between_markers, rows_of, terminal

CASE = Case("keras_mnist", 128, "float32", "2x1")


def expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise SystemExit(f"self-check: {what}: got {got!r}, wanted {wanted!r}")


def report_line(rate: float, memory: float) -> str:
    return json.dumps({"peer": "jax", "version": "1", "examples_per_second": rate, "ms_per_step": 128000 / rate,
                       "seconds_to_first_step": 1.5, "peak_memory_mb": memory, "last_loss": 2.0})  # fmt: skip


def check_parsing() -> None:
    joined = sample_of_peer([f"noise\n{report_line(1000, 300)}\n", report_line(900, 400)])
    expect("slowest worker", joined.examples_per_second, 900)
    expect("largest worker", joined.peak_memory_mb, 400)
    expect("no line", sample_of_peer(["nothing"]).error, "no result line")
    epochs = [{"epoch": i, "loss": 1.0 / (i + 1), "accuracy": 0.5, "seconds": 1.0, "examples_per_second": rate}
              for i, rate in enumerate((10, 100, 400, 200))]  # fmt: skip
    history = sample_of_history({"epochs": epochs, "timing": {"seconds_to_first_step": 0.4, "peak_memory_mb": 90}}, 128)
    expect("median after the first epoch", history.examples_per_second, 200)
    expect("step", history.ms_per_step, 640)
    expect("short history", bool(sample_of_history({"epochs": epochs[:1]}, 128).error), True)
    trace = "Traceback\n  File x\nValueError: bad thing (\n [0., 0.]\n) with an unsupported type"
    expect("error line", error_line(trace), "ValueError: bad thing ( … ) with an unsupported type")


def check_children() -> None:
    python = sys.executable
    good, _, problem = run_together([[python, "-c", "print(1)"]], {}, 10)
    expect("good child", (good, problem), (["1\n"], ""))
    _, _, problem = run_together([[python, "-c", "raise ValueError('no')"]], {}, 10)
    expect("failing child", problem, "exit 1: ValueError: no")
    _, _, problem = run_together([[python, "-c", "import time; time.sleep(60)"]], {}, 0.3)
    expect("late child", problem, "timed out after 0 s")
    report = """import time; print('{"peer": 1}', flush=True); time.sleep(60)"""
    said, _, problem = run_together([[python, "-c", report]] * 2, {}, 10, until_reported=True)
    expect("all have reported", (said, problem), (['{"peer": 1}\n'] * 2, ""))
    _, _, problem = run_together([[python, "-c", report], [python, "-c", ""]], {}, 0.3, until_reported=True)
    expect("one has not reported", problem, "timed out after 0 s")
    expect("ports differ", len(set(free_ports(3))), 3)


def check_cases() -> None:
    expect("grid", len(list(grid(["a", "b"], [1, 2], ["x"], ["1x1", "2x1", "1x2"]))), 12)
    expect("steps", (steps_for(128, 350), steps_for(1024, 350), steps_for(128, 5)), (350, 50, 5))
    expect("whole epochs", steps_for(1024, 4000) % EPOCHS, 0)
    commands = peer_commands(Path("py"), CONTESTANTS["jax"], CASE, 350, "d", [4, 7], ["a:1", "b:2"])
    expect("one core per worker", [c[2] for c in commands], ["4", "7"])
    expect("addresses", commands[1][-1], "a:1,b:2")
    own = lockstep_command(Path("bin"), CASE, 350, "", [4, 7], Path("m"))
    expect("mpirun", own[:8], ["taskset", "-c", "4,7", "mpirun", "-np", "2", "--bind-to", "core"])
    expect("epochs", own[own.index("--steps-per-epoch") + 1], "70")


def synthetic_results() -> Results:
    results = Results(Machine("Some CPU family 1 model 2", ["avx2"], 2), "2026-01-02", "MNIST", 350)
    for rate in (3000, 1000, 2000):
        results.add("lockstep", CASE, Sample(rate, 128000 / rate, 0.4, 90, 2.0))
        results.add("jax", CASE, Sample(rate / 4, 512000 / rate, 1, 300, 2.0, "0.1"))
        results.add("tensorflow-keras3", CASE, Sample(error="ValueError: PerReplica <x>"))
    results.installed_mb = {"jax": 400.0}
    return results


def check_tables() -> None:
    results = synthetic_results()
    rows = rows_of(results)
    expect("who", [r.contestant for r in rows], ["lockstep", "tensorflow-keras3", "jax"])
    expect("median", rows[0].examples_per_second, 2000)
    expect("ratio", ratio(rows, rows[2]), 4.0)
    expect("failed row", (rows[1].runs, rows[1].error), (0, "ValueError: PerReplica <x>"))
    expect("partly failed", median_row("jax", CASE, [Sample(5.0), Sample(error="e")]).error, "1 of 2 runs failed: e")
    table = terminal(results)
    expect("failure shown", "failed: ValueError: PerReplica <x>" in table, True)
    expect("undisturbed", "less certain" in table, False)
    results.samples[0]["cpu_use_before"] = 0.5
    expect("disturbed", "1 of 9 samples" in terminal(results), True)
    expect("best peer", "over that: 4.00" in table, True)
    page = replace_between_markers(f"a\n{BEGIN}\nold\n{END}\nb\n", markdown(results, "p.svg"))
    expect("old text gone", "old" in page, False)
    expect("text around the markers", (page[:2], page[-3:]), ("a\n", "\nb\n"))
    expect("idempotent", replace_between_markers(page, markdown(results, "p.svg")), page)
    expect("columns", len({line.count("|") for line in page.splitlines() if line.startswith("|")}), 1)
    drawing = xml.fromstring(chart(rows, "a <machine>"))
    expect("bars", sum(1 for e in drawing.iter() if e.tag.endswith("rect")), 1 + 2)


def check_files() -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = synthetic_results()
        path = new_path(Path(folder), results.machine, results.date)
        expect("name", path.name, "compare-some-cpu-family-1-model-2-2026-01-02.json")
        results.save(path)
        expect("read back", Results.load(path), results)
        expect("next name", new_path(Path(folder), results.machine, results.date).name[-7:], "-2.json")
    expect("this machine has cores", this_machine().cores > 0, True)


def self_check() -> None:
    for check in (check_parsing, check_children, check_cases, check_tables, check_files):
        check()
    print("self-check: passed")

"""Makes rows of samples (medians, ratios), and terminal or Markdown tables of rows."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from .cases import ARRANGEMENTS, CONTESTANTS, LOCKSTEP, Case
from .children import Sample
from .results import Results

BEGIN, END = "<!-- compare:begin -->", "<!-- compare:end -->"
QUIET = 0.1  # fraction of all cores that other processes may use in an undisturbed run
COLUMNS = (
    "who",
    "arrangement",
    "examples/s",
    "min–max",
    "runs",
    "ms/step",
    "first step s",
    "peak MB",
    "installed MB",
    "Lockstep ×",
)


@dataclass(frozen=True)
class Row:
    contestant: str
    case: Case
    runs: int
    examples_per_second: float
    slowest: float
    fastest: float
    ms_per_step: float
    seconds_to_first_step: float
    peak_memory_mb: float
    error: str = ""


def median_row(contestant: str, case: Case, samples: list[Sample]) -> Row:
    """Medians of the successful samples, or the last error if all failed."""
    good = [s for s in samples if not s.error]
    if not good:
        return Row(contestant, case, 0, 0, 0, 0, 0, 0, 0, samples[-1].error if samples else "not run")
    rates = [s.examples_per_second for s in good]
    failed = [s.error for s in samples if s.error]
    return Row(
        contestant,
        case,
        len(good),
        statistics.median(rates),
        min(rates),
        max(rates),
        statistics.median(s.ms_per_step for s in good),
        statistics.median(s.seconds_to_first_step for s in good),
        statistics.median(s.peak_memory_mb for s in good),
        f"{len(failed)} of {len(samples)} runs failed: {failed[-1]}" if failed else "",
    )


def rows_of(results: Results) -> list[Row]:
    rows = []
    for case in results.cases():
        for name in CONTESTANTS:
            samples = results.of(name, case)
            if samples:
                rows.append(median_row(name, case, samples))
    return rows


def groups_of(rows: list[Row]) -> dict[tuple[str, int, str], list[Row]]:
    groups: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.case.group, []).append(row)
    return groups


def ratio(rows: list[Row], row: Row) -> float:
    """Lockstep's rate in the same arrangement divided by this row's; 0 if unknown."""
    own = next((r for r in rows if r.contestant == LOCKSTEP.name and r.case == row.case), None)
    if own is None or not own.examples_per_second or not row.examples_per_second:
        return 0.0
    return own.examples_per_second / row.examples_per_second


def cells(row: Row, rows: list[Row], results: Results) -> list[str]:
    label, arrangement = CONTESTANTS[row.contestant].label, ARRANGEMENTS[row.case.arrangement].label
    if not row.runs:
        return [label, arrangement, "–", row.error]
    size = results.installed_mb.get(row.contestant, 0)
    times = ratio(rows, row)
    return [
        label,
        arrangement,
        f"{row.examples_per_second:,.0f}",
        f"{row.slowest:,.0f}–{row.fastest:,.0f}",
        str(row.runs),
        f"{row.ms_per_step:.2f}",
        f"{row.seconds_to_first_step:.2f}" if row.seconds_to_first_step else "–",
        f"{row.peak_memory_mb:,.0f}" if row.peak_memory_mb else "–",
        f"{size:,.0f}" if size else "–",
        f"{times:.2f}" if times else "–",
    ]


def best_peer_lines(rows: list[Row]) -> list[str]:
    """Lockstep's speed in each arrangement relative to the best peer in any arrangement."""
    peers = [r for r in rows if r.contestant != LOCKSTEP.name and r.runs]
    if not peers:
        return []
    best = max(peers, key=lambda r: r.examples_per_second)
    name = f"{CONTESTANTS[best.contestant].label}, {ARRANGEMENTS[best.case.arrangement].label}"
    lines = [f"Best peer in any arrangement: {name}: {best.examples_per_second:,.0f} examples/s."]
    for row in rows:
        if row.contestant == LOCKSTEP.name and row.runs:
            times = row.examples_per_second / best.examples_per_second
            lines.append(f"Lockstep, {ARRANGEMENTS[row.case.arrangement].label}, over that: {times:.2f}.")
    return lines


def title(group: tuple[str, int, str]) -> str:
    model, batch, precision = group
    return f"{model}, global batch {batch}, {precision}"


def heading(results: Results) -> str:
    versions = "; ".join(f"{name} {version}" for name, version in results.versions.items())
    machine = f"{results.machine.cpu} ({', '.join(results.machine.flags)}), {results.machine.cores} cores"
    return f"{machine}; {results.date}; {results.data}. {versions}."


def problems_of(rows: list[Row]) -> list[str]:
    return [f"{CONTESTANTS[r.contestant].label}, {r.case.arrangement}: {r.error}" for r in rows if r.runs and r.error]


def disturbances(results: Results) -> list[str]:
    """One sentence that counts the samples disturbed by other processes; empty if there are none."""
    disturbed = sum(1 for s in results.samples if s["cpu_use_before"] > QUIET)
    if not disturbed:
        return []
    count = f"{disturbed} of {len(results.samples)} samples"
    return [f"{count} began while other processes used over {QUIET:.0%} of the cores; their figures are less certain."]


def terminal(results: Results) -> str:
    rows = rows_of(results)
    out = [heading(results)]
    for group, members in groups_of(rows).items():
        table = [list(COLUMNS)] + [cells(row, members, results) for row in members]
        # A failed row has an error in place of figures, which must not widen the columns.
        full = [line for line in table if len(line) == len(COLUMNS)]
        widths = [max(len(line[i]) for line in (table if i < 2 else full)) for i in range(len(COLUMNS))]
        out += ["", title(group)]
        for line in table:
            left = [text.ljust(width) for text, width in zip(line[:2], widths)]
            right = [text.rjust(width) for text, width in zip(line[2:], widths[2:])]
            out.append("  ".join(left + right) if line in full else "  ".join([*left, f"failed: {line[3]}"]))
        out += best_peer_lines(members) + problems_of(members)
    return "\n".join(out + disturbances(results))


def markdown(results: Results, plot: str) -> str:
    rows = rows_of(results)
    out = [heading(results), "", f"![examples per second]({plot})"]
    for group, members in groups_of(rows).items():
        out += [
            "",
            f"**{title(group)}**",
            "",
            "| " + " | ".join(COLUMNS) + " |",
            "| --- | --- |" + " ---: |" * (len(COLUMNS) - 2),
        ]
        for row in members:
            line = [text.replace("|", "\\|").replace("<", "&lt;") for text in cells(row, members, results)]
            line += [""] * (len(COLUMNS) - len(line))
            out.append("| " + " | ".join(line) + " |")
        out += ["", " ".join(best_peer_lines(members) + problems_of(members))]
    return "\n".join(out + ["", *disturbances(results)]).rstrip()


def replace_between_markers(text: str, content: str, begin: str = BEGIN, end: str = END) -> str:
    start, stop = text.find(begin), text.find(end)
    if start < 0 or stop < start:
        raise ValueError(f"the document needs a line {begin} and, below it, a line {end}")
    return f"{text[: start + len(begin)]}\n\n{content}\n\n{text[stop:]}"


def rewrite(document: Path, results: Results, plot: str) -> None:
    document.write_text(replace_between_markers(document.read_text(), markdown(results, plot)))

"""Packs samples: a value that all runs of a case share is written once, other values as a list."""

from __future__ import annotations

from typing import Any

# Fields that no table reads.
NOT_IN_SUMMARIES = ("load_before", "cpu", "steps", "epochs", "profile_ms", "profile_ms_per_step")
# Fields that tables read only from samples of compare.py, which have a precision.
OF_PEERS_ONLY = ("ms_per_step", "seconds_to_first_step", "peak_memory_mb")
PREDICTED = "predicted_ms_"  # prefix of the fields of "world" that tables read, besides "parallelism"


def rounded(value: Any) -> Any:
    """Rounds floats to five significant digits, more than runs reproduce."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return value


def slim(sample: dict[str, Any]) -> dict[str, Any]:
    kept = {key: rounded(value) for key, value in sample.items() if key not in NOT_IN_SUMMARIES and value not in ("", {})}
    if "precision" not in sample:
        kept = {key: value for key, value in kept.items() if key not in OF_PEERS_ONLY}
    world = kept.pop("world", {})
    if world and sample["contestant"] == "auto":
        kept["world"] = {key: value for key, value in world.items()
                         if key == "parallelism" or key.startswith(PREDICTED)}
    return kept


def pack(samples: list[dict[str, Any]], case: tuple[str, ...]) -> list[dict[str, Any]]:
    """Makes one record of all runs that agree in the fields `case`. `unpack` restores all that tables read."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for sample in samples:
        fields = tuple(sorted(slim(sample)))  # failed runs have other fields
        groups.setdefault((fields, *(sample[name] for name in case)), []).append(slim(sample))
    packed = []
    for runs in groups.values():
        record: dict[str, Any] = {"runs": len(runs)}
        for key, value in runs[0].items():
            record[key] = value if all(run[key] == value for run in runs) else [run[key] for run in runs]
        packed.append(record)
    return packed


def unpack(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Undoes `pack`. Returns samples that were not packed unchanged."""
    samples = []
    for record in records:
        runs = record.get("runs", 0)
        for i in range(max(runs, 1)):
            samples.append({key: value[i] if runs and isinstance(value, list) else value
                            for key, value in record.items() if key != "runs"})
    return samples

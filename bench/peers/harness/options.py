"""Options shared by the comparisons with peers: paths and result files."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
IMAGES = "train-images-idx3-ubyte"
NO_DATA = "random images (no MNIST in --data-dir)"


def add_options(parser: argparse.ArgumentParser, timeout: float) -> None:
    where = parser.add_argument_group("paths")
    where.add_argument(
        "--data-dir", default=os.environ.get("LOCKSTEP_MNIST_DIR", ""), help="folder with MNIST as IDX files, gzipped or not"
    )
    where.add_argument("--binaries", type=Path, default=ROOT / "build" / "release" / "bin", help="Lockstep's programs")
    where.add_argument(
        "--environment", type=Path, default=ROOT / "build" / "peers-venv", help="the peers' virtual environment"
    )
    where.add_argument("--results", type=Path, default=ROOT / "bench" / "results", help="folder of result files")
    parser.add_argument("--timeout", type=float, default=timeout, help="seconds for one run")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="continue a result file of this machine")
    parser.add_argument("--from", dest="shown", type=Path, metavar="FILE", help="show a result file without measuring")
    parser.add_argument(
        "--docs", type=Path, metavar="FILE", help="rewrite the tables between this document's markers, and its plot"
    )
    parser.add_argument("--self-check", action="store_true", help="test this program and exit")


def data_in(folder: str) -> tuple[str, str]:
    """The data's name for reports and its folder, which is empty if programs have to use random images."""
    found = bool(folder) and any((Path(folder) / f"{IMAGES}{end}").exists() for end in ("", ".gz"))
    return ("MNIST", str(Path(folder).resolve())) if found else (NO_DATA, "")

"""Renders the job's template, and compares the records of jobs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "render_template.py"
TEMPLATE = ROOT / "jinja" / "MultiWorkerMirroredTemplate.yaml.jinja"


def render(**parameters: object) -> str:
    """Calls the script as a user does. Raises RuntimeError with its message if it refuses."""
    call = [sys.executable, str(SCRIPT), str(TEMPLATE)]
    for name, value in parameters.items():
        call += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    ended = subprocess.run(call, text=True, capture_output=True, check=False)
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(call)}: exit code {ended.returncode}\n{ended.stderr}")
    return ended.stdout


def losses(history: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of the epochs of a history.json that do not depend on the clock."""
    timed = ("seconds", "examples_per_second")
    return [{key: value for key, value in epoch.items() if key not in timed} for epoch in history["epochs"]]

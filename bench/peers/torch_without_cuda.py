"""Lets PyPI's x86-64 PyTorch run on a machine without CUDA's libraries.

That wheel is the CUDA build: it trains on a CPU as well as the CPU-only build does (the same
libtorch_cpu), but does not load before some three gigabytes of CUDA packages are installed. None of
them is ever called on a CPU. So this script compiles one library that answers "no CUDA device" to
every function the wheel lacks, and an empty library under the name of each that is missing.

    python bench/peers/torch_without_cuda.py build/peers-venv
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# Symbol owners, as `nm` prints them after the @, and plain C names of the libraries without versions.
CUDA_VERSION = re.compile(r"@(lib(cu|nv)\w*\.so\.\d+|NVSHMEM)$")
CUDA_NAME = re.compile(r"^(nccl[A-Z]|cu[A-Z]|cusparseLt|cuFile|nvshmem|nvrtc)\w*$")
CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)\w*\.so\.\d+")
NO_DEVICE = 100  # cudaErrorNoDevice
STUB = "libno_cuda.so"


def undefined_functions(libraries: list[Path]) -> list[str]:
    """Names of CUDA functions that these libraries expect from others."""
    names = set()
    for library in libraries:
        listing = subprocess.run(
            ["nm", "-D", "--undefined-only", str(library)], check=True, capture_output=True, text=True
        )
        for line in listing.stdout.splitlines():
            symbol = line.split()[-1]
            name = symbol.split("@")[0]
            if CUDA_VERSION.search(symbol) or CUDA_NAME.match(symbol):
                names.add(name)
    return sorted(names)


def needed_libraries(libraries: list[Path]) -> list[str]:
    """CUDA's shared libraries that these name as needed."""
    names = set()
    for library in libraries:
        dynamic = subprocess.run(["readelf", "-d", str(library)], check=True, capture_output=True, text=True).stdout
        names |= {
            m.group(0) for line in dynamic.splitlines() if "(NEEDED)" in line for m in [CUDA_LIBRARY.search(line)] if m
        }
    return sorted(names)


def compile_library(target: Path, source: str, arguments: list[str]) -> None:
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-O1",
        "-w",
        "-x",
        "c",
        "-",
        "-o",
        str(target),
        f"-Wl,-soname,{target.name}",
        *arguments,
    ]
    subprocess.run(command, input=source, text=True, check=True)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 64
    folder = next(Path(sys.argv[1]).glob("lib/python3*/site-packages/torch/lib"), None)
    if folder is None:
        print(f"no torch under {sys.argv[1]}")
        return 65
    libraries = (
        sorted(folder.glob("libtorch*.so")) + sorted(folder.glob("libc10*.so")) + sorted(folder.parent.glob("_C*.so"))
    )
    needed = needed_libraries(libraries)
    functions = undefined_functions(libraries)
    body = "\n".join(f"long {name}(void) {{ return {NO_DEVICE}; }}" for name in functions)
    compile_library(folder / STUB, body, [])
    for name in needed:
        compile_library(folder / name, "", ["-Wl,--no-as-needed", f"-L{folder}", f"-l:{STUB}", "-Wl,-rpath,$ORIGIN"])
    print(f"{len(functions)} functions of {len(needed)} CUDA libraries answer 'no device' in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Lets PyPI's x86-64 PyTorch run on a machine without CUDA's libraries.

PyPI's wheel is the CUDA build. It trains on a CPU as fast as the CPU-only build (both have the same libtorch_cpu), but
it loads only if three gigabytes of CUDA packages are installed, which are never called on a CPU. This script compiles a
library that returns "no CUDA device" from every missing function, and an empty library for each missing soname.

    python bench/peers/torch_without_cuda.py build/peers-venv
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# Symbol versions, as `nm` prints them after the @, and names of functions in libraries without symbol versions.
CUDA_VERSION = re.compile(r"@(lib(cu|nv)\w*\.so\.\d+|NVSHMEM)$")
CUDA_NAME = re.compile(r"^(nccl[A-Z]|cu[A-Z]|cusparseLt|cuFile|nvshmem|nvrtc)\w*$")
CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)\w*\.so\.\d+")
NO_DEVICE = 100  # cudaErrorNoDevice
STUB = "libno_cuda.so"


def undefined_functions(libraries: list[Path]) -> list[str]:
    """Names of the CUDA functions that these libraries import."""
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
    """Sonames of the CUDA libraries that these libraries link."""
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
        print(f"PyTorch is not installed in {sys.argv[1]}")
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
    print(f"{folder}: {len(functions)} functions of {len(needed)} CUDA libraries now return cudaErrorNoDevice")
    return 0


if __name__ == "__main__":
    sys.exit(main())

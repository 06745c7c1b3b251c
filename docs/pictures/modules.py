"""The modules of src/ as their CMakeLists.txt declare them: each may include only what stands below it."""

import re
from pathlib import Path

from drawing import Picture

MAX_BOXES = 4  # in a row
SOURCE = Path(__file__).resolve().parents[2] / "src"

PURPOSE = {
    "core": "shapes, errors, time, randomness, environment, log",
    "ownership": "who may write in a directory",
    "layers": "what a model is",
    "optimizers": "rules and schedules",
    "losses": "formulas, gradients",
    "metrics": "sums over examples",
    "data": "datasets, order of examples",
    "report": "progress, history, TensorBoard",
    "cluster": "TF_CONFIG, launcher, world",
    "graph": "operations; lowering",
    "collective": "communicators",
    "checkpoint": "Keras files, backups",
    "backend": "kernels: cpu, cuda",
    "plan": "memory, buckets, schedule",
    "parallel": "sharding, cost model",
    "options": "one row per option",
    "export": "models as ONNX",
    "session": "one model on one rank",
    "training": "Model, fit, callbacks, options",
    "serve": "predictions over HTTP",
    "cli": "the program lockstep",
}


def declared_modules() -> dict[str, set[str]]:
    """For each module, those it may include: what its lockstep_module() names, or what its own targets link."""
    folders = {file.parent.name for file in SOURCE.glob("*/CMakeLists.txt")}
    found: dict[str, set[str]] = {}
    for folder in sorted(folders):
        text = re.sub(r"#.*", "", (SOURCE / folder / "CMakeLists.txt").read_text())
        declared = re.search(rf"lockstep_module\({folder}\s([^)]*)\)", text)
        arguments = declared[1].split() if declared else []
        if "MODULES" in arguments:
            modules = arguments[arguments.index("MODULES") + 1 :]
            names = modules[: modules.index("LIBRARIES")] if "LIBRARIES" in modules else modules
        else:
            names = re.findall(r"lockstep_(\w+)", text)
        found[folder] = {name if name in folders else name.partition("_")[0] for name in names} & folders - {folder}
    return found


def levels_of(modules: dict[str, set[str]]) -> dict[str, int]:
    """A module stands one level above the highest that it includes."""
    levels: dict[str, int] = {}

    def level(name: str, path: tuple[str, ...] = ()) -> int:
        if name in path:
            raise ValueError(f"modules include each other: {' -> '.join((*path, name))}")
        if name not in levels:
            levels[name] = max((level(other, (*path, name)) + 1 for other in modules[name]), default=0)
        return levels[name]

    for name in modules:
        level(name)
    return levels


def direct(name: str, modules: dict[str, set[str]]) -> list[str]:
    """What a module includes and none of its other modules does already; `core` goes without saying."""
    reached: set[str] = set()
    stack = [other for first in modules[name] for other in modules[first]]
    while stack:
        other = stack.pop()
        if other not in reached:
            reached.add(other)
            stack.extend(modules[other])
    return sorted(modules[name] - reached - {"core"})


def picture() -> Picture:
    modules = declared_modules()
    levels = levels_of(modules)
    rows = []
    for i in range(max(levels.values()), -1, -1):
        level = [name for name in modules if levels[name] == i]
        count = -(-len(level) // MAX_BOXES)  # a wide level takes several rows
        each = -(-len(level) // count)
        rows += [level[begin : begin + each] for begin in range(0, len(level), each)]
    row_height, width = 76, 980
    p = Picture(
        width,
        60 + row_height * len(rows) + 10,
        "The modules of src/",
        "Each module is a CMake target and may include only modules in rows below it.",
    )
    p.text(20, 28, "The modules of src/: each includes only what stands in rows below", 16, bold=True)
    p.text(20, 48, "every module may include core; ↓ names what else it builds on", 13, ink="muted")
    for i, row in enumerate(rows):
        y = 60 + row_height * i
        each = (width - 40 - 12 * (len(row) - 1)) / len(row)
        each = min(each, 460 if len(row) == 1 and row != ["core"] else each)
        left = (width - each * len(row) - 12 * (len(row) - 1)) / 2
        for j, name in enumerate(row):
            uses = direct(name, modules)
            lines = [name, PURPOSE.get(name, "")]
            if uses:
                lines.append("↓ " + ", ".join(uses))
            p.box(
                left + j * (each + 12),
                y,
                each,
                row_height - 14,
                "compute" if uses else "plain",
                tuple(line for line in lines if line),
                size=12.5,
                bold_first=True,
            )
    return p

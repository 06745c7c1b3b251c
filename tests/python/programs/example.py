"""Runs Keras' examples of tests/python/examples, as they are and with the changes of docs/keras-examples.md.

example.py compare NAME...: compares the losses of the program with those of `lockstep.fit` on 1 and 2 workers.
example.py write NAME FORM RESULT: writes the losses of a form, "keras" or "lockstep", as JSON to RESULT.RANK.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
PAGE = Path(__file__).parents[3] / "docs" / "keras-examples.md"
TOLERANCE = 1e-3  # of float32 sums in another order, after some steps of Adam


def diffs() -> dict[str, list[str]]:
    """Return the lines of each program's diff."""
    return {
        name: diff.splitlines() for name, diff in re.findall(r"(?ms)^## (\w+)\n+```diff\n(.*?)\n```$", PAGE.read_text())
    }


def changed_lines(diff: list[str]) -> int:
    """Return how many lines of the program with Lockstep are not lines of the program before."""
    return sum(line.startswith("+") for line in diff)


def with_lockstep(name: str) -> str:
    """Return the program with its diff applied. Each hunk must be there, once."""
    text = (EXAMPLES / f"{name}.py").read_text()
    for hunk in "\n".join(diffs()[name]).split("\n@@\n"):
        lines = hunk.split("\n")
        before = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
        after = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
        if text.count(f"\n{before}") != 1:
            raise ValueError(f"{name}.py does not have once: {before}")
        text = text.replace(f"\n{before}", f"\n{after}")
    return text


def losses_of(text: str) -> Any:
    """Run a program and return its losses."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "example", "exec"), names)
    return names["losses"]


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "write":
        name, form, result = arguments
        losses = losses_of(with_lockstep(name) if form == "lockstep" else (EXAMPLES / f"{name}.py").read_text())
        import lockstep

        Path(f"{result}.{lockstep.rank() if lockstep.is_initialized() else 0}").write_text(json.dumps(losses))
        return
    import numpy as np

    for name in arguments:
        expected = losses_of((EXAMPLES / f"{name}.py").read_text())
        for workers in (1, 2):
            found = losses_of(with_lockstep(name).replace("workers=2", f"workers={workers}"))
            np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{name} {workers}")
            print(f"equal: {name} {workers}", flush=True)


if __name__ == "__main__":
    main()

"""A sample of docs/coverage.md is still true: what the page says runs like Keras is run again. coverage.py runs all.

    coverage_test.py BIN_DIR [--count N] [--seed S]
"""

import re
import subprocess
from pathlib import Path

import coverage
import support
from support import Scratch, np, options


def claims(kind: str) -> dict[str, tuple[bool, ...]]:
    """By name: whether the page says that it is read, predicted and trained alike."""
    section = coverage.PAGE.read_text().split(f"## {coverage.KINDS[kind][0]}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (\S+) \| (\S+) \|$", section, re.MULTILINE)
    return {name: tuple(word == "yes" for word in words) for name, *words in rows}


def seed() -> int:
    """By default another sample for each commit."""
    if options.seed is not None:
        return options.seed
    here = Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True).stdout.strip()
    return int(commit[:8] or "0", 16)


class Coverage(Scratch):
    def test_sample(self) -> None:
        random = np.random.default_rng(seed())
        print(f"coverage: seed {seed()}", flush=True)
        for kind in ("layer", "activation"):
            known = claims(kind)
            self.assertTrue(known)
            for name in random.choice(sorted(known), size=min(options.count, len(known)), replace=False):
                with self.subTest(f"{kind} {name}"):
                    folder = self.folder / f"{kind}-{name}"
                    folder.mkdir()
                    result = coverage.run(kind, str(name), folder)
                    self.assertEqual((result["reads"], result["predicts"], result["trains"]), known[name], result)


if __name__ == "__main__":
    support.main(__doc__, count=dict(type=int, default=5, help="number of cases of each kind"),
                 seed=dict(type=int, help="of the sample; default: from the commit's id"))

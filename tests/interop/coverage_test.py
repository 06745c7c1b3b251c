"""A sample of docs/coverage.md is still true: what the page claims is run again. coverage.py runs everything.

    coverage_test.py BIN_DIR [--count N] [--seed S]
"""

import shutil
import subprocess
from pathlib import Path

import coverage
import support
from support import Scratch, np, options


def claims(kind: str) -> dict[str, dict[str, bool]]:
    """What the page says by name: of those in the table, and of those that are refused, which can do nothing."""
    return {name: {claim: result.get(claim) == "yes" for claim in coverage.KINDS[kind].claims}
            for (of, name), result in coverage.read_page().items() if of == kind}


def seed() -> int:
    """By default another sample for each commit, and always the same one without git."""
    if options.seed is not None:
        return options.seed
    if shutil.which("git") is None:
        return 0
    here = Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True).stdout.strip()
    return int(commit[:8] or "0", 16)


class Coverage(Scratch):
    def test_sample(self) -> None:
        random = np.random.default_rng(seed())
        print(f"coverage: seed {seed()}", flush=True)
        for kind in coverage.KINDS:
            if kind == "application":
                continue  # takes minutes
            known = claims(kind)
            self.assertEqual(sorted(known), coverage.KINDS[kind].names, "coverage.py --write was not run")
            names = sorted(known)
            if kind == "tutorial":  # of the others, Keras' own changes are measured, which takes minutes
                names = [name for name in names if all(known[name].values())]
            for name in random.choice(names, size=1 if kind == "tutorial" else min(options.count, len(names)),
                                      replace=False):
                with self.subTest(f"{kind} {name}"):
                    folder = self.folder / f"{kind}-{name}"
                    folder.mkdir()
                    result = coverage.run(kind, str(name), folder)
                    self.assertEqual({claim: result.get(claim, False) for claim in known[name]}, known[name], result)


if __name__ == "__main__":
    support.main(__doc__, count=dict(type=int, default=3, help="number of cases of each kind"),
                 seed=dict(type=int, help="of the sample; default: from the commit's id"))

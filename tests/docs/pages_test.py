"""Checks README.md, docs/ and bench/README.md against the source and the built programs.

pages_test.py BUILD_DIR CXX_COMPILER
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = sorted(
    {README, ROOT / "CHANGELOG.md", ROOT / "bench" / "README.md", *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")}
)
GENERATED = re.compile(
    r"<!-- (options|compare:begin|network:begin).*?<!-- (/options|compare:end|network:end) -->", re.S
)
MAX_ROWS = 10
REFERENCES = {"cluster.md", "coverage.md"}  # reference pages, which may have long tables
MIN_FONT_SIZE = 12
build, compiler = Path(), ""


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", lambda code: re.sub(r"[\[\]()|]", "_", code[0]), text)


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub generates from a page's headings, and the page's explicit ids."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    found = set(re.findall(r'<a id="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        plain = re.sub(r"<[^>]+>|[`*]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))
        found.add(re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-"))
    return found


def masked(line: str) -> str:
    """A line of output with all numbers replaced by #."""
    return re.sub(r"\d+(\.\d+)?", "#", line).strip()


class Pages(unittest.TestCase):
    def test_link_targets_exist(self) -> None:
        for page in PAGES:
            for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
                if "://" in target:
                    continue
                path, _, anchor = target.partition("#")
                other = (page.parent / path).resolve() if path else page
                with self.subTest(page=page.name, link=target):
                    self.assertTrue(other.exists())
                    if anchor and other.suffix == ".md":
                        self.assertIn(anchor, anchors_of(other))

    def test_named_files_exist(self) -> None:
        """`scripts/train.sh`, `parallel/sharding.cpp`, `bench/results/x-*.json`: in the tree, in src/ or in
        include/lockstep/; or made by one of CONTRIBUTING.md's worked examples."""
        examples = (ROOT / "tests" / "contributing").glob("*.patch")
        made = {name for patch in examples for name in re.findall(r"^\+\+\+ b/(.+)$", patch.read_text(), re.M)}
        known = {folder.name for root in (ROOT, ROOT / "src") for folder in root.iterdir() if folder.is_dir()} - {
            "build"
        }
        for page in PAGES:
            for name in re.findall(r"`((\w+)/[\w./*-]+)(?: [^`\n]*)?`", page.read_text()):
                if name[1] in known and "FILE" not in name[0] and not name[0].startswith("model"):
                    with self.subTest(page=page.name, file=name[0]):
                        in_tree = any(list(root.glob(name[0] + "*")) for root in (ROOT, ROOT / "src"))
                        self.assertTrue(in_tree or name[0] in made)

    def test_tables_are_short_outside_the_appendix(self) -> None:
        for page in PAGES:
            if page.parent.name == "appendix" or page.name in REFERENCES:
                continue
            for table in re.findall(r"(?:^\|.*\n)+", GENERATED.sub("", page.read_text()), re.M):
                with self.subTest(page=page.name, table=table.splitlines()[0]):
                    self.assertLessEqual(table.count("\n") - 2, MAX_ROWS)


class Supported(unittest.TestCase):
    """The tables of docs/from-keras.md list what the registries of src/ have."""

    def listed(self, *words: str) -> list[str]:
        """The names in the rows whose first cell contains one of the words."""
        text = (ROOT / "docs" / "from-keras.md").read_text()
        rows = re.findall(r"^\| ([^|`]+) \| ([^|]*`[^|]+) \|$", text[text.index("## Which models") :], re.M)
        cells = [cell for name, cell in rows if any(re.search(rf"\b{word}\b", name) for word in words)]
        self.assertTrue(cells, f"no row of {words}")
        return sorted(name for cell in cells for name in re.findall(r"`(\w+)`", cell))

    def declared(self, files: str, before: str = "class_name = ") -> set[str]:
        """The names in quotes that files of src/ have after some code."""
        sources = [file.read_text() for file in sorted((ROOT / "src").glob(files))]
        found = {name for text in sources for name in re.findall(rf'\b{before}"(\w+)"', text)}
        self.assertTrue(found, f"no {before} in {files}")
        return found

    def test_layers(self) -> None:
        listed = [name for name in self.listed("layers", "convolutions", "poolings") if name[0].isupper()]
        self.assertEqual(listed, sorted(self.declared("layers/*.hpp") - {"Sequential"}))
        self.assertIn(f"[{len(listed)} layer types](docs/from-keras.md#which-models)", (ROOT / "README.md").read_text())

    def test_activations(self) -> None:
        """Functions with a parameter are layers and have no name of their own."""
        rows = (ROOT / "src" / "layers" / "activation_functions.hpp").read_text().split("\nstruct ActivationRow<")[1:]
        named = [row for row in rows if "has_parameter = true" not in row]
        found = [name for row in named for name in re.findall(r'\bkeras_name = "(\w+)"', row)]
        self.assertEqual(self.listed("activations"), sorted(found))

    def test_initializers(self) -> None:
        rows = self.declared("layers/initializers.hpp", r"InitializerRow\{Initializer::\w+, ")
        self.assertEqual(self.listed("initializers"), sorted(rows))

    def test_constraints(self) -> None:
        rows = self.declared("layers/constraints.hpp", r"ConstraintRow\{Constraint::Kind::\w+, ")
        self.assertEqual(self.listed("constraints"), sorted(rows))

    def test_losses(self) -> None:
        listed = [name for name in self.listed("losses") if name[0].isupper()]
        self.assertEqual(listed, sorted(self.declared("losses/*.hpp")))

    def test_optimizers_and_schedules(self) -> None:
        schedules = self.declared("optimizers/schedules.hpp")
        self.assertEqual(self.listed("learning rates"), sorted(schedules))
        listed = [name for name in self.listed("optimizers") if name[0].isupper()]
        self.assertEqual(listed, sorted(self.declared("optimizers/*.hpp") - schedules))

    def test_metrics(self) -> None:
        """A metric is in the list, or is the mean of a loss that the list does not exclude."""
        listed = {name for name in self.listed("metrics") if name[0].isupper()}
        named_by_loss = (ROOT / "src" / "metrics" / "mean_loss.hpp").read_text()
        metrics = self.declared("metrics/*.hpp") - {"Accuracy"}
        metrics |= set(re.findall(r"MetricTraits<metrics::(\w+)> : MeanLossMetricTraits<\1>", named_by_loss))
        means = {name for name in self.declared("losses/*.hpp") if "Focal" not in name}
        self.assertEqual(metrics, (listed | means) - {"Huber", "LogCosh"})


class Pictures(unittest.TestCase):
    def test_are_up_to_date(self) -> None:
        drawn = subprocess.run(
            [sys.executable, ROOT / "scripts" / "draw_pictures.py", "--check"], capture_output=True, text=True
        )
        self.assertEqual(drawn.returncode, 0, drawn.stderr)

    def test_are_legible(self) -> None:
        for picture in sorted(ROOT.glob("docs/**/*.svg")):
            with self.subTest(picture=picture.name):
                text = picture.read_text()
                root = xml.fromstring(text)
                scale = float(root.get("width", 0)) / float(root.get("viewBox", "").split()[2])
                sizes = [float(e.get("font-size", 0)) * scale for e in root.iter() if e.tag.endswith("}text")]
                self.assertGreaterEqual(min(sizes), MIN_FONT_SIZE)
                self.assertIn("prefers-color-scheme: dark", text)


    def test_contours_enclose_what_is_bright(self) -> None:
        """A ring of two pixels' width around a hole: the outer polygon and the hole's, which have opposite directions."""
        sys.path.insert(0, str(ROOT / "docs" / "pictures"))
        from contours import contours

        rows = [[255 if 2 <= max(abs(x - 10), abs(y - 10)) <= 3 else 0 for x in range(20)] for y in range(20)]
        areas = []
        for polygon in contours(rows):
            pairs = zip(polygon, [*polygon[1:], polygon[0]], strict=True)
            areas.append(sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in pairs) / 2)
        self.assertEqual(sorted(areas), [-8.5, 48.5])


class Code(unittest.TestCase):
    def test_compiles(self) -> None:
        """Blocks without main() are compiled as the body of a function that has a strategy, a model and data."""
        before = (
            "#include <lockstep/lockstep.hpp>\n#include <cstdint>\n#include <vector>\nusing namespace lockstep;\n"
            "void page(MultiWorkerMirroredStrategy& strategy, Model& model, const TrainTestSplit& data,"
            " const TrainTestSplit& mnist) { (void)strategy; (void)model; (void)data; (void)mnist; {\n"
        )
        for page in (README, ROOT / "docs" / "keras-to-cpp.md", ROOT / "docs" / "from-keras.md"):
            for block in re.findall(r"^```cpp\n(.*?)^```", page.read_text(), re.M | re.S):
                source = block if "int main" in block else f"{before}{block}}} }}\n"
                with self.subTest(page=page.name, block=block.splitlines()[0]):
                    done = subprocess.run(
                        [compiler, "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'include'}", "-x", "c++", "-"],
                        input=source,
                        capture_output=True,
                        text=True,
                    )
                    self.assertEqual(done.returncode, 0, done.stderr)


class Run(unittest.TestCase):
    """The run that README.md shows, as on a terminal."""

    def test_matches_the_output_of_the_program(self) -> None:
        found = re.search(r"<!-- run -->\n```\n(.*?)```\n<!-- /run -->", README.read_text(), re.S)
        assert found is not None
        shown = found[1].splitlines()
        with tempfile.TemporaryDirectory() as folder:
            mpirun, program = ROOT / "scripts" / "mpirun.sh", build / "bin" / "keras_mnist"
            command = f"stty cols 80; exec {mpirun} -np 2 {program} --epochs 2 --steps-per-epoch 4"
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "TF_CONFIG"))}
            done = subprocess.run(
                ["script", "-qec", command, "/dev/null"],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=120,
                stdin=subprocess.DEVNULL,
                # Assumed links and kernels: on a busy machine, measured ones may give another choice and explanation.
                env=environment | {"OMP_NUM_THREADS": "1", "TERM": "xterm", "LOCKSTEP_ASSUMED_HARDWARE": "1e-6,1e9,1e11"},
            )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        output = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", done.stdout).replace("\x08", "")
        printed = [line.rpartition("\r")[2] for line in output.replace("\r\n", "\n").splitlines()]

        table = shown[1 : next(i for i, line in enumerate(shown) if line.startswith("Parallelism"))]
        self.assertEqual(printed[1 : 1 + len(table)], table)
        self.assertRegex(
            printed[0], r"^Lockstep [\d.]+: 2 workers, shared memory \(2 ranks\); .*, 1 thread, oneDNN [\d.]+$"
        )
        self.assertRegex(
            shown[0], r"^Lockstep [\d.]+: 2 workers, shared memory \(2 ranks\); .*, 1 thread, oneDNN [\d.]+$"
        )
        for begin in ("Parallelism", "Epoch", "Test loss"):

            def first(lines: list[str]) -> str:
                return masked(next(line for line in lines if line.startswith(begin)))

            self.assertEqual(first(printed), first(shown))
        bar = [masked(line) for line in shown if "━ " in line and "step" in line]
        self.assertEqual({masked(line) for line in printed if "━ " in line and "step" in line}, set(bar))

    def test_ends_with_the_message_of_train_sh(self) -> None:
        found = re.search(r"<!-- run -->\n```\n(.*?)```\n<!-- /run -->", README.read_text(), re.S)
        assert found is not None
        script = (ROOT / "scripts" / "train.sh").read_text()
        message = re.search(r'printf "([^"]*%\.1f[^"]*)\\n"', script)
        assert message is not None
        pattern = re.escape(message[1]).replace(r"%s", ".+").replace(r"%\.1f", r"[\d.]+").replace("%%", "%")
        self.assertRegex(found[1].splitlines()[-1], f"^{pattern}$")


if __name__ == "__main__":
    build, compiler = Path(sys.argv[1]).resolve(), sys.argv[2]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])

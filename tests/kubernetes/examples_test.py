"""jinja/examples holds the current output for each *.values.yaml, and plain Jinja renders the template, too.
tests/kubernetes/run.py BUILD_DIR --update rewrites the examples."""

from pathlib import Path

import jinja2
import support
import yaml

EXAMPLES = support.ROOT / "jinja" / "examples"


def values_files() -> list[Path]:
    return sorted(EXAMPLES.glob("*.values.yaml"))


def rendered(values: Path) -> str:
    """The output of the script, below a comment with the command that renders it."""
    template, example = support.TEMPLATE.relative_to(support.ROOT), values.relative_to(support.ROOT)
    ended = support.render_by_script(support.TEMPLATE, "--values", values)
    assert ended.code == 0, f"{values}: {ended.stderr}"
    return f"# scripts/render_template.py {template} --values {example}\n" + ended.stdout


def result_of(values: Path) -> Path:
    return values.with_name(values.name.replace(".values.yaml", ".yaml"))


def update() -> None:
    for values in values_files():
        result_of(values).write_text(rendered(values), encoding="utf-8")


class Examples(support.TestCase):
    def test_examples_match_the_template(self) -> None:
        self.assertGreater(len(values_files()), 4)
        for values in values_files():
            with self.subTest(example=result_of(values).name):
                self.assertEqual(
                    result_of(values).read_text(encoding="utf-8"),
                    rendered(values),
                    "the template has changed: run tests/kubernetes/run.py BUILD_DIR --update and review the difference",
                )

    def test_no_example_is_left_over(self) -> None:
        expected = {it.name for values in values_files() for it in (values, result_of(values))}
        self.assertEqual({it.name for it in EXAMPLES.iterdir()}, expected)


class PlainJinja(support.TestCase):
    """Plain Jinja, as the TensorFlow ecosystem's script uses it, renders the template too, with fewer checks."""

    def test_plain_jinja_renders_the_same_text(self) -> None:
        for values in ({}, {"deploy": "True", "worker_replicas": "3", "job_token": '"a-token-of-these-tests"'}, {"create_volume_inspector": "True"}):
            plain = jinja2.Template(support.edited(**values)).render()
            parameters = {name: yaml.safe_load(value) for name, value in values.items()}
            self.assertEqual(plain, support.render(**parameters))

    def test_plain_jinja_rejects_the_main_contradictions(self) -> None:
        for values, expected in (
            ({"deploy": "True", "create_volume_inspector": "True"}, "deploy and create_volume_inspector exclude"),
            ({"deploy": "True", "fetch_data": "True"}, "deploy and fetch_data exclude"),
            ({"fetch_data": "True"}, "data_pvc_name"),
            ({"deploy": '"False"'}, "True or False"),
            ({"worker_replicas": "0"}, "worker_replicas"),
            ({"deploy": "True"}, "job_token"),
            ({"script": '"mine.py"'}, "script"),
            ({"kubernetes_version": "1.30"}, "in quotes"),
        ):
            with self.subTest(values=values), self.assertRaisesRegex(jinja2.UndefinedError, expected):
                jinja2.Template(support.edited(**values)).render()

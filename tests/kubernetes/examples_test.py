"""jinja/examples holds what its *.values.yaml give today: tests/kubernetes/run.py BUILD_DIR --update writes it anew."""

from pathlib import Path

import support

EXAMPLES = support.ROOT / "jinja" / "examples"


def values_files() -> list[Path]:
    return sorted(EXAMPLES.glob("*.values.yaml"))


def rendered(values: Path) -> str:
    """By the command that stands in its first line."""
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
    def test_they_are_what_the_template_gives_today(self) -> None:
        self.assertGreater(len(values_files()), 4)
        for values in values_files():
            with self.subTest(example=result_of(values).name):
                self.assertEqual(
                    result_of(values).read_text(encoding="utf-8"),
                    rendered(values),
                    "the template has changed: look at what tests/kubernetes/run.py BUILD_DIR --update makes of it",
                )

    def test_none_is_left_over(self) -> None:
        expected = {it.name for values in values_files() for it in (values, result_of(values))}
        self.assertEqual({it.name for it in EXAMPLES.iterdir()}, expected)

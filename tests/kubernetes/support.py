"""Renders the template, in this process or by the script, and finds objects in the output."""

import os
import re
import subprocess
import sys
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "render_template.py"
TEMPLATE = ROOT / "jinja" / "MultiWorkerMirroredTemplate.yaml.jinja"
USAGE, IO = 64, 74

sys.path.insert(0, str(SCRIPT.parent))
import crds
import render_template

Object = dict[str, Any]

_build = Path()
_full = False
_text = TEMPLATE.read_text(encoding="utf-8")
_template = render_template.Template(_text)
_defaults = _template.parameters()


def use(build: Path, full: bool) -> None:
    global _build, _full
    _build, _full = build.resolve(), full


def build() -> Path:
    return _build


def full() -> bool:
    return _full


def program(name: str) -> str:
    return str(_build / "bin" / name)


def defaults() -> dict[str, Any]:
    return dict(_defaults)


def render(**parameters: Any) -> str:
    """Renders as render_template.py does, with one token for all; raises render_template.Refusal if it refuses."""
    _template.replaced.clear()
    _template.replace("job_token", "a-token-of-these-tests", "job_token")
    for name, value in parameters.items():
        _template.replace(name, value, name)
    return _template.render()


def objects(**parameters: Any) -> list[Object]:
    return load(render(**parameters))


def load(text: str) -> list[Object]:
    return [document for document in yaml.load_all(text, render_template.FAST_LOADER) if document is not None]


def named(documents: list[Object], kind: str, name: str) -> Object:
    found = [it for it in documents if it["kind"] == kind and it["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}: there are {len(found)}"
    return found[0]


def pod_of(document: Object) -> Object:
    """The pod specification of an object that creates pods."""
    spec: Object = document["spec"]
    return spec["template"]["spec"] if "template" in spec else spec


def pods(documents: list[Object]) -> list[Object]:
    """Objects that create pods; of custom resources, the Jobs and pods within them."""
    found = []
    for document in documents:
        found += crds.Check(document).embedded if crds.is_custom(document) else [document]
    return [it for it in found if it["kind"] in ("Pod", "Job", "Deployment")]


def workers(documents: list[Object]) -> list[Object]:
    return [it for it in pods(documents) if it["metadata"]["labels"]["job"] == "worker"]


def trainer(job: Object) -> Object:
    containers = pod_of(job)["containers"]
    assert len(containers) == 1
    container: Object = containers[0]
    return container


def environment(container: Object) -> dict[str, str]:
    return {it["name"]: it["value"] for it in container.get("env", []) if "value" in it}


def edited(**values: str) -> str:
    """The template as edited by a user: `values` replace the values of `set NAME =`."""
    text = _text
    for name, value in values.items():
        text, times = re.subn(
            rf"(?s)(\{{%- set {name} = ).*?( -%\}})",
            lambda found, new=value: found[1] + new + found[2],
            text,
            count=1,
        )
        assert times == 1, name
    return text


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    stderr: str


def run(*command: str | Path, environment: dict[str, str] | None = None, timeout: float = 60) -> Ended:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "TF_CONFIG", "OMPI_", "PMIX_"))}
    ended = subprocess.run(
        [str(part) for part in command],
        env=clean | (environment or {}),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def render_by_script(*arguments: str | Path) -> Ended:
    return run(sys.executable, SCRIPT, *arguments)


class TestCase(unittest.TestCase):
    def assert_refused(self, *expected: str, **parameters: Any) -> str:
        """Asserts a refusal whose message contains all of `expected`."""
        with self.assertRaises(render_template.Refusal) as caught:
            render(**parameters)
        message = str(caught.exception)
        for text in expected:
            self.assertIn(text, message)
        return message

#!/usr/bin/env python3
"""Renders a job's template for kubectl and rejects invalid parameters before they reach a cluster.

    render_template.py myjob.template.jinja | kubectl create -n NAMESPACE -f -
    render_template.py myjob.template.jinja --set deploy=True --set worker_replicas=4 | kubectl create -f -

Parameters are the {% set NAME = VALUE %} lines at the top of the template. They can be edited there, or replaced
by a YAML file (--values) and single values (--set, which wins).
"""

import argparse
import difflib
import os
import secrets
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from job_contradictions import contradictions
from job_parameters import wrong_values

try:
    import jinja2
    import yaml
    from jinja2 import meta, nodes
except ImportError as error:
    print(
        f"render_template.py: the Python package {error.name} is missing: as root, run apt-get install "
        "python3-jinja2 python3-yaml (or pip install jinja2 PyYAML)",
        file=sys.stderr,
    )
    sys.exit(64)

USAGE, IO = 64, 74
GENERATED = "generated"  # the job_token that stands for a new random one
TOKEN_BYTES = 16
# Raised by Jinja, and by Python when it evaluates a template's expressions.
RENDERING_ERRORS = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Refusal(Exception):
    """The parameters or the template are invalid. The message has one line for each error, for the user."""


class Template:
    """A template's text and the parameters at its top."""

    def __init__(self, text: str) -> None:
        # Default options, as the TensorFlow ecosystem's script uses, but undefined names are errors.
        self.environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
        try:
            self.syntax = self.environment.parse(text)
        except jinja2.TemplateSyntaxError as error:
            raise Refusal(f"line {error.lineno} of the template has a syntax error: {error.message}") from error
        self.assignments: dict[str, nodes.Assign] = {}
        for node in self.syntax.body:
            if isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name):
                name = node.target.name
                if name in self.assignments:
                    line = self.assignments[name].lineno
                    raise Refusal(f"lines {line} and {node.lineno} both set {name}: keep one of them")
                self.assignments[name] = node
            elif not self._is_white_space(node):
                break
        self._check_names()
        own = {id(node) for node in self.assignments.values()}  # by id, because nodes with equal content are equal
        self.syntax.body = [node for node in self.syntax.body if id(node) not in own]
        self.template = self.environment.from_string(self.syntax)  # without the assignments; render() passes values
        self.replaced: dict[str, Any] = {}

    def parameters(self) -> dict[str, Any]:
        """The values of all parameters. Some may be computed from others."""
        kept: list[nodes.Node] = [node for name, node in self.assignments.items() if name not in self.replaced]
        try:
            values = self.environment.from_string(nodes.Template(kept, lineno=1)).make_module(self.replaced)
        except RENDERING_ERRORS as error:
            raise Refusal(f"the template's parameters cannot be computed: {error}") from error
        return {name: self.replaced.get(name, getattr(values, name, None)) for name in self.assignments}

    @staticmethod
    def _is_white_space(node: nodes.Node) -> bool:
        return isinstance(node, nodes.Output) and all(
            isinstance(part, nodes.TemplateData) and not part.data.strip() for part in node.nodes
        )

    def _check_names(self) -> None:
        """Raises Refusal unless exactly the parameters that the template uses are set. Finds misspelled names."""
        used = {name.name for name in self.syntax.find_all(nodes.Name) if name.ctx == "load"}
        unused = [name for name in self.assignments if name not in used]
        missing = sorted(meta.find_undeclared_variables(self.syntax) - set(self.environment.globals))
        sentences = [
            f"the template sets {name} but does not use it{did_you_mean(name, used - set(self.assignments))}"
            for name in unused
        ]
        sentences += [
            f"the template needs {name}, which is not set at its top: add {{% set {name} = ... %}}"
            for name in missing
        ]
        if sentences:
            raise Refusal("\n".join(sentences))

    def replace(self, name: str, value: Any, source: str) -> None:
        if name not in self.assignments:
            raise Refusal(f"{source}: the template has no parameter {name}{did_you_mean(name, self.assignments)}")
        self.replaced[name] = value

    def render(self) -> str:
        """Returns the manifests. Raises Refusal if anything is invalid."""
        parameters = self.parameters()
        wrong = wrong_values(parameters) or contradictions(parameters)
        if wrong:
            raise Refusal("\n".join(wrong))
        if parameters.get("deploy") and parameters.get("job_token") == GENERATED:
            parameters["job_token"] = secrets.token_hex(TOKEN_BYTES)
        try:
            text = self.template.render(parameters)
        except RENDERING_ERRORS as error:
            raise Refusal(f"the template cannot be rendered: {error}") from error
        check_objects(text)
        return text


def did_you_mean(name: str, names: Any) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        print(f"render_template.py: {path} cannot be read: {error.strerror}", file=sys.stderr)
        sys.exit(IO)
    except UnicodeDecodeError as error:
        raise Refusal(f"{path} is not text in UTF-8") from error


def value_like(current: Any, name: str, text: str) -> Any:
    """Parses the value of --set according to the parameter's type: 123 may be a number or a name."""
    if isinstance(current, str):
        return text
    if isinstance(current, bool) and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Refusal(f"--set {name}={text}: the value is not valid YAML") from error


def replace_from_file(template: Template, path: Path) -> None:
    try:
        values = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise Refusal(f"{path} is not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise Refusal(f"{path} must contain lines of the form NAME: VALUE")
    for name, value in values.items():
        template.replace(str(name), value, str(path))


def replace_from_options(template: Template, settings: list[str]) -> None:
    current = template.parameters()
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator:
            raise Refusal(f"--set {setting}: write --set NAME=VALUE")
        template.replace(name, value_like(current.get(name), name, text), f"--set {setting}")


def check_objects(text: str) -> None:
    """Raises Refusal unless the text is YAML with unique objects. kubectl would fail after creating some of them."""
    try:
        documents = [document for document in yaml.load_all(text, FAST_LOADER) if document is not None]
    except yaml.YAMLError as error:
        raise Refusal(f"the template's output is not valid YAML: {error}") from error
    names: Counter[str] = Counter()
    for document in documents:
        try:
            names[f"{document['kind']} {document['metadata']['name']}"] += 1
        except (KeyError, TypeError) as error:
            raise Refusal("the template's output has an object without a kind or a name") from error
    for name, times in names.items():
        if times > 1:
            raise Refusal(f"the template's output has {times} objects with the same kind and name, {name}")


def rendered(path: Path, values: list[Path], settings: list[str]) -> str:
    template = Template(read_text(path))
    for file in values:
        replace_from_file(template, file)
    replace_from_options(template, settings)
    return template.render()


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"render_template.py: {message}; see --help", file=sys.stderr)
        sys.exit(USAGE)


def main() -> int:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("template", type=Path, help="a template or your copy of it")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="replace a parameter; write lists and mappings in YAML: --set 'cmdline_args=[--seed, \"7\"]'",
    )
    parser.add_argument(
        "--values",
        action="append",
        default=[],
        type=Path,
        metavar="FILE.yaml",
        help="replace parameters by those in the file, as lines of the form NAME: VALUE",
    )
    given = parser.parse_args()
    try:
        print(rendered(given.template, given.values, given.settings), flush=True)
    except BrokenPipeError:  # the reader has exited; keep Python's final flush from failing too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return IO
    except Refusal as refusal:
        for sentence in str(refusal).splitlines():
            print(f"render_template.py: {sentence}", file=sys.stderr)
        return USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())

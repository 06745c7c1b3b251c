"""Checks that expressions of PromQL are well-formed and name only metrics and labels that exist. Not a whole parser: it
knows the functions that docs/monitoring uses. promtool, where there is one, checks the rules' types."""

import re
from collections.abc import Mapping

FUNCTIONS = {"abs", "changes", "deriv", "increase", "rate", "time"}
AGGREGATIONS = {"bottomk", "max", "min", "sum"}
KEYWORDS = {"and", "by", "ignoring", "on", "or", "unless", "without", "Inf", "NaN"}
OF_PROMETHEUS = {"instance", "job"}  # labels that Prometheus adds to every series
TOKEN = re.compile(r"""\s*(?:(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<number>\d+(?:\.\d+)?)|(?P<labels>\{[^}]*\})|
                       (?P<range>\[\d+[smhd]\])|(?P<sign>==|!=|>=|<=|[-+*/<>(),]))""", re.VERBOSE)
SELECTOR = re.compile(r'([a-z_]+)(=|!=|=~|!~)"[^"]*"')


def problems(expression: str, metrics: Mapping[str, set[str]]) -> list[str]:
    """What is wrong with an expression, given the labels of each metric."""
    found: list[str] = []
    depth = 0
    at = 0
    words: list[str] = []
    labels_expected = False  # after by, on
    text = expression.strip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            return [*found, f"cannot read '{text[at:]}'"]
        at = match.end()
        if name := match["name"]:
            if labels_expected:
                if name not in OF_PROMETHEUS and not any(name in labels for labels in metrics.values()):
                    found.append(f"no metric has the label {name}")
            elif name in FUNCTIONS | AGGREGATIONS:
                rest = text[at:].lstrip()
                if not (rest.startswith("(") or name in AGGREGATIONS and rest.startswith(("by", "without"))):
                    found.append(f"{name} without arguments")
            elif name not in KEYWORDS:
                if name not in metrics:
                    found.append(f"nothing exports {name}")
                words.append(name)
            if name in ("by", "on", "without", "ignoring"):
                labels_expected = True
        elif labels := match["labels"]:
            for selector in filter(None, labels[1:-1].split(",")):
                part = SELECTOR.fullmatch(selector.strip())
                if not part or not words:
                    found.append(f"cannot read the selector {labels}")
                elif part[1] not in metrics.get(words[-1], set()) | OF_PROMETHEUS:
                    found.append(f"{words[-1]} has no label {part[1]}")
        elif match["sign"] == "(":
            depth += 1
        elif match["sign"] == ")":
            depth -= 1
            labels_expected = False
            if depth < 0:
                found.append("a bracket closes that was not opened")
    return found + (["a bracket is not closed"] if depth > 0 else [])

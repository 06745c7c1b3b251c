"""Validates documents against the schemas of kubernetes-validate. Runs in the virtual environment that contains it.

Reads a JSON list of [version, document] and prints a JSON list of [index, error]. It searches two folders of schemas,
since no release of the package has all versions. Validators are cached, because a definitions file is megabytes large.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry
from referencing.jsonschema import DRAFT202012

FOLDERS = [Path(folder) for folder in sys.argv[1:]]


def read(version: str, file: str) -> Any:
    for folder in FOLDERS:
        path = folder / f"v{version}.0-local-strict" / file
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
    raise FileNotFoundError(f"there is no schema {file} of Kubernetes {version}")


@cache
def validator(version: str, kind: str, api: str) -> jsonschema.Draft202012Validator:
    definitions = DRAFT202012.create_resource(read(version, "_definitions.json"))
    schema = read(version, f"{kind.lower()}-{api.replace('.k8s.io', '').replace('/', '-')}.json")
    schema.pop("$schema", None)  # old schemas name a draft that this registry does not have
    # Before 1.25 the definitions have no id.
    registry = Registry().with_resources(
        [("_definitions.json", definitions), (definitions.id() or "", definitions)]
    )
    return jsonschema.Draft202012Validator(schema, registry=registry)


def main() -> None:
    wrong = []
    for index, (version, document) in enumerate(json.load(sys.stdin)):
        for error in validator(version, document["kind"], document["apiVersion"]).iter_errors(document):
            wrong.append([index, f"{error.json_path}: {error.message}"])
    json.dump(wrong, sys.stdout)


if __name__ == "__main__":
    main()

"""Manifests are valid for Kubernetes 1.21 and later, for all combinations of the switches; contradictory combinations
are refused."""

import itertools
import json
import subprocess
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import render_template
import support

HERE = Path(__file__).resolve().parent
# The output changes at 1.26 and 1.29. Of the versions with a schema, 1.21 is the oldest and 1.37 the newest.
VERSIONS = ("1.21", "1.25", "1.26", "1.29", "1.37")
ALL_VERSIONS = tuple(f"1.{minor}" for minor in range(21, 38))

SWITCHES = (
    "deploy",
    "create_pvc_checkpoint",
    "create_volume_inspector",
    "inspect_once",
    "create_pvc_data",
    "fetch_data",
    "tensorboard",
)
# The first value of each is the default.
CHOICES: dict[str, tuple[Any, ...]] = {
    "restart": ("Never", "OnFailure"),
    "num_gpus_per_worker": (0, 2),
    "ranks_per_worker": (0, 2),
    "worker_replicas": (2, 1, 3),
    "job_token": ("", "0123456789abcdef"),
    "network_policy": (True, False),
    "min_workers": (0, 1),
    "status_port": (8080, 0),
    "run_as_user": (1000, 0),
}
EVERYTHING: dict[str, Any] = {
    "cmdline_args": ["--learning-rate", "0.1", "--verbose=2"],
    "epochs": 3,
    "batch_size": 256,
    "env": {"LOCKSTEP_SEED": "7", "QUOTED": "'a' \"b\" $(c) {{d}} #e: - f"},
    "cpu_limit": "2",
    "memory_limit": "2Gi",
    "active_deadline": 3600,
    "storage_class": "fast.example",
    "image": "registry.example:5000/team/lockstep:v1@sha256:" + 64 * "0",
    "image_pull_secrets": ["one", "two"],
    "node_selector": {"pool": "training", "zone": "1"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "runtime_class": "nvidia",
    "data_mirror": "http://mirror.example/mnist",
}


def products(full: bool) -> Iterator[dict[str, Any]]:
    """Combinations of all switches, of all choices for jobs, and each switch with all other parameters set."""
    for switches in itertools.product((False, True), repeat=len(SWITCHES)):
        for data, mode in itertools.product(("", "data"), ("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")):
            yield dict(zip(SWITCHES, switches)) | {"data_pvc_name": data, "checkpoint_access_mode": mode}
    for choices in itertools.product(*CHOICES.values()):
        if full or choices[0] == "Never" or sum(a != b[0] for a, b in zip(choices, CHOICES.values())) < 4:
            yield dict(zip(CHOICES, choices)) | {"deploy": True, "data_pvc_name": "data"}
    for switch in SWITCHES:
        yield EVERYTHING | {switch: True, "create_volume_inspector": "inspect" in switch, "data_pvc_name": "data"}


def contradicts(given: dict[str, Any]) -> bool:
    """The rules of docs/kubernetes.md."""
    is_on = {switch: given.get(switch, False) for switch in SWITCHES}
    of_the_claim = is_on["deploy"] + is_on["create_volume_inspector"] + is_on["tensorboard"]
    mode = given.get("checkpoint_access_mode", "ReadWriteOnce")
    return (
        (is_on["deploy"] and is_on["create_volume_inspector"] and mode != "ReadWriteMany")
        or (is_on["deploy"] and is_on["fetch_data"])
        or (mode == "ReadWriteOncePod" and of_the_claim > 1)
        or (is_on["inspect_once"] and not is_on["create_volume_inspector"])
        or ((is_on["fetch_data"] or is_on["create_pvc_data"]) and not given.get("data_pvc_name"))
        or not any(value for switch, value in is_on.items() if switch != "inspect_once")
        or (given.get("ranks_per_worker", 0) not in (0, given.get("num_gpus_per_worker", 0) or 2))
    )


def make_environment(directory: Path) -> None:
    """Creates the virtual environment unless it is complete. The file `done` is written last."""
    done = directory / "done"
    wanted = "".join((HERE / name).read_text() for name in ("requirements.txt", "requirements-old.txt"))
    if done.exists() and done.read_text() == wanted:
        return
    pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(directory)],
        [*pip, "--requirement", str(HERE / "requirements.txt")],
        [
            *pip,
            "--no-deps",
            "--target",
            str(directory / "old"),
            "--requirement",
            str(HERE / "requirements-old.txt"),
        ],
    ):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            last = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise unittest.SkipTest(f"the schemas of Kubernetes cannot be installed: {last}")
    done.write_text(wanted)


class Schemas(support.TestCase):
    def test_renderings_are_valid_and_contradictions_rejected(self) -> None:
        directory = support.build() / "venv-kubernetes"
        make_environment(directory)
        accepted = refused = 0
        documents: set[tuple[str, str]] = set()  # as text, to validate equal documents once
        for given in products(support.full()):
            try:
                rendered = support.render(**given)
            except render_template.Refusal as refusal:
                self.assertTrue(contradicts(given), f"{given} is refused: {refusal}")
                refused += 1
                continue
            self.assertFalse(contradicts(given), f"{given} is not refused")
            accepted += 1
            for version in ALL_VERSIONS if support.full() else VERSIONS:
                of_pod = given.get("checkpoint_access_mode") == "ReadWriteOncePod"
                if of_pod and float(version[2:]) < 27:
                    continue
                if given.get("deploy"):  # otherwise the text does not depend on the version, as the next test checks
                    rendered = support.render(**given, kubernetes_version=version)
                documents |= {(version, document) for document in rendered.split("\n---\n")}
        self.assertGreater(accepted, 200)
        self.assertGreater(refused, 200)
        objects = [(version, it) for version, document in sorted(documents) for it in support.load(document)]
        self.assert_valid(objects, directory)
        print(f"{accepted} renderings accepted, {refused} refused; {len(objects)} different objects are valid")

    def test_only_workers_depend_on_the_version(self) -> None:
        for switch in SWITCHES[1:]:
            given = {switch: True, "create_volume_inspector": "inspect" in switch, "data_pvc_name": "data"}
            texts = {support.render(**given, kubernetes_version=version) for version in ALL_VERSIONS}
            self.assertEqual(len(texts), 1, switch)

    def assert_valid(self, pairs: list[tuple[str, dict[str, Any]]], directory: Path) -> None:
        package = Path("kubernetes_validate") / "kubernetes-json-schema"
        folders = [directory / "old" / package, *directory.glob(f"lib/python3*/site-packages/{package}")]
        ended = subprocess.run(
            [str(directory / "bin" / "python"), str(HERE / "schemas.py"), *map(str, folders)],
            input=json.dumps(pairs),
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        wrong = json.loads(ended.stdout)
        errors = [
            f"{pairs[i][0]} {pairs[i][1]['kind']} {pairs[i][1]['metadata']['name']}: {what}" for i, what in wrong
        ]
        self.assertEqual(errors[:10], [])

    def test_unknown_fields_are_detected(self) -> None:
        directory = support.build() / "venv-kubernetes"
        make_environment(directory)
        job = support.workers(support.objects(deploy=True))[0]
        with self.assertRaisesRegex(AssertionError, "podFailurePolicy"):
            self.assert_valid([("1.21", job)], directory)
        job["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
        with self.assertRaisesRegex(AssertionError, "livenessprobe"):
            self.assert_valid([("1.37", job)], directory)


if __name__ == "__main__":
    unittest.main()

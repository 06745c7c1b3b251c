"""Manifests are valid for Kubernetes 1.21 and later, for all combinations of the switches; contradictory combinations
are refused. Resources of controllers that Kubernetes does not have are valid by crds.py."""

import fcntl
import itertools
import json
import subprocess
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crds
import render_template
import support
from job_parameters import KINDS

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
    "evaluator",
    "serve",
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
CHOICES_OF_KINDS: dict[str, tuple[Any, ...]] = {
    "kind": KINDS,
    "worker_replicas": (2, 1),
    "restart": ("Never", "OnFailure"),
    "checkpoint_access_mode": ("ReadWriteOnce", "ReadWriteMany"),
    "affinity": ("spread", "pack"),
    "queue": ("", "team"),
    "ps_replicas": (0, 2),
}
EVERYTHING: dict[str, Any] = {
    "cmdline_args": ["--learning-rate", "0.1", "--verbose=2"],
    "evaluator_args": ["--monitor", "accuracy"],
    "serve_args": ["--max-rate", "100"],
    "serve_model": "export/best",
    "evaluator_resources": {"limits": {"cpu": "8", "ephemeral-storage": "1Gi"}},
    "serve_resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
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
    "secret_env": {"API_KEY": "credentials/api.key"},
    "secret_volumes": {"credentials": "/credentials", "more": "/more"},
    "script_config_map": "scripts",
    "command": ["python", "/scripts/train.py"],
    "ephemeral_storage": "2Gi",
    "min_available": 1,
    "affinity": "pack",
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
    for choices in itertools.product(*CHOICES_OF_KINDS.values()):
        yield dict(zip(CHOICES_OF_KINDS, choices)) | {"deploy": True}
    for kind in KINDS:
        if kind not in ("tfjob", "mpijob"):
            yield EVERYTHING | {"deploy": True, "kind": kind, "checkpoint_access_mode": "ReadWriteMany"}
        yield EVERYTHING | {"deploy": True, "kind": kind, "checkpoint_access_mode": "ReadWriteMany", "restart": "OnFailure"}
    for switch in SWITCHES:
        yield EVERYTHING | {switch: True, "create_volume_inspector": "inspect" in switch, "data_pvc_name": "data"}


def contradicts(given: dict[str, Any]) -> bool:
    """The rules of docs/kubernetes.md."""
    is_on = {switch: given.get(switch, False) for switch in SWITCHES}
    of_the_claim = sum(is_on[it] for it in ("deploy", "create_volume_inspector", "tensorboard", "evaluator", "serve"))
    mode = given.get("checkpoint_access_mode", "ReadWriteOnce")
    return (
        (is_on["deploy"] and is_on["create_volume_inspector"] and mode != "ReadWriteMany")
        or (is_on["deploy"] and is_on["fetch_data"])
        or (mode == "ReadWriteOncePod" and of_the_claim > 1)
        or (is_on["inspect_once"] and not is_on["create_volume_inspector"])
        or ((is_on["fetch_data"] or is_on["create_pvc_data"] or is_on["evaluator"]) and not given.get("data_pvc_name"))
        or not any(value for switch, value in is_on.items() if switch != "inspect_once")
        or contradicts_kind(given)
        or (given.get("ranks_per_worker", 0) not in (0, given.get("num_gpus_per_worker", 0) or 2))
    )


def contradicts_kind(given: dict[str, Any]) -> bool:
    kind, workers, servers = given.get("kind", "jobs"), given.get("worker_replicas", 2), given.get("ps_replicas", 0)
    has_equal_pods = kind in ("indexed-job", "trainjob") and workers > 1
    one_node = given.get("checkpoint_access_mode", "ReadWriteOnce") == "ReadWriteOnce"
    return (
        (kind in ("tfjob", "mpijob") and given.get("restart", "Never") == "Never")
        or (has_equal_pods and one_node and given.get("affinity", "spread") != "pack")
        or (kind == "jobs" and workers + servers > 1 and bool(given.get("queue")))
        or (servers > 0 and kind not in ("jobs", "jobset", "tfjob"))
    )


def make_environment(directory: Path) -> None:
    """Creates the virtual environment unless it is complete. Of two tests at once, one creates it."""
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_locked_environment(directory)


def make_locked_environment(directory: Path) -> None:
    """The file `done` is written last."""
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


def assert_valid(test: unittest.TestCase, given: list[tuple[str, dict[str, Any]]]) -> None:
    """Asserts that objects are valid for their version of Kubernetes; custom resources, by crds.py."""
    directory = support.build() / "venv-kubernetes"
    make_environment(directory)
    pairs, errors = [], []
    for version, document in given:
        if not crds.is_custom(document):
            pairs.append((version, document))
            continue
        check = crds.Check(document)
        errors += check.errors
        pairs += [(version, it) for it in check.embedded]
    package = Path("kubernetes_validate") / "kubernetes-json-schema"
    folders = [directory / "old" / package, *directory.glob(f"lib/python3*/site-packages/{package}")]
    ended = subprocess.run(
        [str(directory / "bin" / "python"), str(HERE / "schemas.py"), *map(str, folders)],
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        check=False,
    )
    test.assertEqual(ended.returncode, 0, ended.stderr)
    wrong = json.loads(ended.stdout)
    errors += [
        f"{pairs[i][0]} {pairs[i][1]['kind']} {pairs[i][1]['metadata']['name']}: {what}" for i, what in wrong
    ]
    test.assertEqual(errors[:10], [])


class Schemas(support.TestCase):
    def test_renderings_are_valid_and_contradictions_rejected(self) -> None:
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
            kind, mode = given.get("kind", "jobs"), given.get("checkpoint_access_mode")
            versions = ALL_VERSIONS if support.full() else VERSIONS if kind == "jobs" else VERSIONS[-2:]
            oldest = 27 if mode == "ReadWriteOncePod" else 21 if kind == "jobs" else 24
            for version in versions:
                if int(version[2:]) < oldest:
                    continue
                if given.get("deploy") or given.get("evaluator"):  # otherwise the text does not depend on the version, as the next test checks
                    rendered = support.render(**given, kubernetes_version=version)
                documents |= {(version, document) for document in rendered.split("\n---\n")}
        self.assertGreater(accepted, 200)
        self.assertGreater(refused, 200)
        objects = [(version, it) for version, document in sorted(documents) for it in support.load(document)]
        assert_valid(self, objects)
        print(f"{accepted} renderings accepted, {refused} refused; {len(objects)} different objects are valid")

    def test_only_workers_and_evaluators_depend_on_the_version(self) -> None:
        for switch in set(SWITCHES) - {"deploy", "evaluator"}:
            given = {switch: True, "create_volume_inspector": "inspect" in switch, "data_pvc_name": "data"}
            texts = {support.render(**given, kubernetes_version=version) for version in ALL_VERSIONS}
            self.assertEqual(len(texts), 1, switch)

    def test_unknown_fields_are_detected(self) -> None:
        job = support.workers(support.objects(deploy=True))[0]
        with self.assertRaisesRegex(AssertionError, "podFailurePolicy"):
            assert_valid(self, [("1.21", job)])
        job["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
        with self.assertRaisesRegex(AssertionError, "livenessprobe"):
            assert_valid(self, [("1.37", job)])

    def test_wrong_fields_of_custom_resources_are_detected(self) -> None:
        for change, expected in (
            (lambda it: it["spec"].update(replicas=1), "unknown field replicas"),
            (lambda it: it["spec"]["replicatedJobs"][0].pop("name"), "name is missing"),
            (lambda it: it["spec"].update(ttlSecondsAfterFinished="1"), "is no integer"),
            (lambda it: it["spec"]["replicatedJobs"][0]["template"]["spec"].update(completion=1), "completion"),
        ):
            (job_set,) = [it for it in support.objects(deploy=True, kind="jobset") if it["kind"] == "JobSet"]
            change(job_set)
            with self.assertRaisesRegex(AssertionError, expected):
                assert_valid(self, [("1.37", job_set)])


if __name__ == "__main__":
    unittest.main()

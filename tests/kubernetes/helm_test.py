"""The chart in helm/lockstep, rendered by render_chart.go: its objects are valid, its pods are those of the job's template,
and wrong values are refused by its schema or by the chart. Skipped where Go or sprig is not installed."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from functools import cache
from pathlib import Path
from typing import Any

import schemas_test
import support
import yaml
from job_contradictions import PATH_OPTIONS, PATH_VARIABLES, RESERVED_PATH, TEMPLATE_OPTIONS

CHART = support.ROOT / "helm" / "lockstep"
SOURCE = Path(__file__).with_name("render_chart.go")
GOPATH = Path("/usr/share/gocode")
VERSIONS = ("1.29", "1.37")  # Chart.yaml asks for the first


@cache
def renderer() -> Path:
    for needed, package in (
        (shutil.which("go"), "golang-go"),
        ((GOPATH / "src/github.com/Masterminds/sprig").exists(), "golang-github-masterminds-sprig-dev"),
        ((GOPATH / "src/gopkg.in/yaml.v3").exists(), "golang-gopkg-yaml.v3-dev"),
    ):
        if not needed:
            raise unittest.SkipTest(f"the chart is not rendered, since {package} is not installed")
    program = support.build() / "kubernetes" / "render_chart"
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        settings = {"GO111MODULE": "off", "GOPATH": str(GOPATH), "GOCACHE": str(program.with_name("go-cache"))}
        subprocess.run(["go", "build", "-o", program, SOURCE], env=os.environ | settings, check=True)
    return program


def render(values: dict[str, Any] | None = None, release: str = "rel") -> support.Ended:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values or {}, file)
        file.flush()
        return support.run(renderer(), CHART, release, "training", file.name)


def defaults() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return values


def merged(values: Any, own: Any) -> Any:
    if not isinstance(values, dict) or not isinstance(own, dict):
        return own
    return values | {name: merged(values.get(name), item) for name, item in own.items()}


CHECK = """
import json, sys, jsonschema
schema, all_values = json.load(sys.stdin)
check = jsonschema.Draft7Validator(schema)
json.dump([[error.json_path + ": " + error.message for error in check.iter_errors(it)] for it in all_values], sys.stdout)
"""

# Values of the chart, and the parameters of the job's template with the same meaning.
EQUAL: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {}),
    (
        {
            "image": {"repository": "registry.example/lockstep", "tag": "v1", "pullPolicy": "Always", "pullSecrets": ["x"]},
            "jobs": [{"name": "train", "program": "custom_training_mnist", "args": ["--seed", "7 {{x}} \"'"]}],
            "cluster": {
                "workers": 12, "ranksPerWorker": 2, "minWorkers": 3, "port": 6000, "statusPort": 9000,
                "unreachableAfter": 30, "minAvailable": 2, "runAsUser": 0, "runtimeClass": "fast",
                "nodeSelector": {"pool": "1"}, "tolerations": [{"key": "a", "operator": "Exists"}], "affinity": "pack",
                "resources": {"cpuRequest": "1", "cpuLimit": "2", "memoryRequest": "1Gi", "memoryLimit": "8Gi", "shm": "2Gi",
                              "ephemeralStorage": "3Gi"},
            },
            "settings": {
                "epochs": 3, "batchSize": 12000000, "rendezvousTimeout": 90, "gracePeriod": 45, "backoffLimit": 2,
                "activeDeadline": 7200, "ttlAfterFinished": 5000000, "env": {"LOCKSTEP_SEED": "7"},
                "secretEnv": {"API_KEY": "of.team/key"}, "secretVolumes": {"a.b": "/one", "c": "/two"},
            },
            "dataset": {"claim": "digits", "path": "/mnist"},
            "checkpoints": {"path": "/m"},
            "evaluator": {"enabled": True, "args": ["--monitor", "accuracy {{x}} \"'", "--export", "latest,best"]},
            "serve": {"enabled": True, "model": "export/best"},
        },
        {
            "image": "registry.example/lockstep:v1", "image_pull_policy": "Always", "image_pull_secrets": ["x"],
            "script": "custom_training_mnist", "cmdline_args": ["--seed", "7 {{x}} \"'"],
            "worker_replicas": 12, "ranks_per_worker": 2, "min_workers": 3, "port": 6000, "status_port": 9000,
            "unreachable_after": 30, "min_available": 2, "ephemeral_storage": "3Gi", "run_as_user": 0, "runtime_class": "fast", "node_selector": {"pool": "1"},
            "tolerations": [{"key": "a", "operator": "Exists"}], "affinity": "pack",
            "cpu_request": "1", "cpu_limit": "2", "memory_request": "1Gi", "memory_limit": "8Gi", "shm_size": "2Gi",
            "epochs": 3, "batch_size": 12000000, "rendezvous_timeout": 90, "grace_period": 45, "backoff_limit": 2,
            "active_deadline": 7200, "ttl_after_finished": 5000000, "env": {"LOCKSTEP_SEED": "7"},
            "secret_env": {"API_KEY": "of.team/key"}, "secret_volumes": {"a.b": "/one", "c": "/two"},
            "data_pvc_name": "digits", "data_dir": "/mnist", "model_checkpoint_dir": "/m",
            "evaluator": True, "evaluator_args": ["--monitor", "accuracy {{x}} \"'", "--export", "latest,best"],
            "serve": True, "serve_model": "export/best",
        },
    ),
    ({"isGpu": True, "gpusPerNode": 4, "cluster": {"workers": 1}}, {"num_gpus_per_worker": 4, "worker_replicas": 1}),
    ({"serve": {"enabled": True}}, {"serve": True}),
    (
        {
            "cluster": {"parameterServers": 2, "workers": 3, "affinity": "pack"}, "dataset": {"claim": "digits"},
            "evaluator": {"enabled": True, "resources": {"limits": {"cpu": "8"}}},
            "serve": {"enabled": True, "resources": {"requests": {"memory": "1Gi"}}},
        },
        {
            "ps_replicas": 2, "worker_replicas": 3, "affinity": "pack", "data_pvc_name": "digits",
            "evaluator": True,
            "evaluator_resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"cpu": "8", "memory": "4Gi"}},
            "serve": True,
            "serve_resources": {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}},
        },
    ),
)
DOWNLOAD: dict[str, Any] = {
    "dataset": {"download": "fashion_mnist", "mirror": "http://m/x"},
    "evaluator": {"enabled": True},
    "serve": {"enabled": True, "args": ["--max-batch", "128"], "port": 9000},
}
# The chart's names of parameters of the job's template.
NAMES = {"cmdline_args": "jobs[].args", "evaluator_args": "evaluator.args", "serve_args": "serve.args"}


def with_arguments(parameter: str, arguments: list[str]) -> dict[str, Any]:
    if parameter == "cmdline_args":
        return {"jobs": [{"name": "a", "program": "x", "args": arguments}]}
    return {parameter.removesuffix("_args"): {"args": arguments}}


class Helm(support.TestCase):
    def objects(self, values: dict[str, Any] | None = None) -> list[support.Object]:
        ended = render(values)
        self.assertEqual((ended.code, ended.stderr), (0, ""))
        return support.load(ended.stdout)

    def test_objects_are_valid(self) -> None:
        pairs = []
        for values in (*[it for it, _ in EQUAL], DOWNLOAD):
            pairs += [(version, it) for version in VERSIONS for it in self.objects(values)]
        schemas_test.assert_valid(self, pairs)

    def test_objects_are_those_of_the_job_template(self) -> None:
        for values, parameters in EQUAL:
            chart = {(it["kind"], it["metadata"]["name"]): it for it in self.objects(values)}
            template = {
                (it["kind"], it["metadata"]["name"]): it
                for it in support.objects(
                    deploy=True, name="rel-train", create_pvc_checkpoint=True,
                    checkpoint_pvc_name="rel-train-checkpoints", **{"image": "lockstep:cpu"} | parameters,
                )
            }
            self.assertEqual(set(chart), set(template))
            for name, it in chart.items():
                with self.subTest(name=name):
                    self.assertEqual(comparable(it), comparable(template[name]))

    def test_jobs_have_their_own_objects(self) -> None:
        names = ["keras", "custom"]
        jobs = [{"name": name, "program": "keras_mnist"} for name in names]
        documents = self.objects(DOWNLOAD | {"jobs": jobs})
        tokens = set()
        for name in names:
            own = [it for it in documents if it["metadata"]["labels"]["name"] == f"rel-{name}"]
            self.assertEqual(len(own), len(documents) / 2)
            secret = support.named(own, "Secret", f"rel-{name}-job-token")
            tokens.add(secret["stringData"]["token"])
            for it in at_checkpoints(own):
                volumes = support.pod_of(it)["volumes"]
                claims = [it["persistentVolumeClaim"]["claimName"] for it in volumes if "persistentVolumeClaim" in it]
                self.assertEqual(claims, [f"rel-{name}-checkpoints"])
        self.assertEqual({len(it) for it in tokens}, {32})
        self.assertEqual(len(tokens), 2)

    def test_workers_download_the_data(self) -> None:
        documents = self.objects(DOWNLOAD)
        for job in support.workers(documents):
            self.assertEqual(support.environment(support.trainer(job))["DATA_DIR"], "/data")
        for job in (*support.workers(documents), support.named(documents, "Job", "rel-train-evaluator")):
            (fetch,) = support.pod_of(job)["initContainers"]
            self.assertEqual(fetch["command"], ["fetch_data.sh", "fashion_mnist", "/data"])
            self.assertEqual(support.environment(fetch), {"LOCKSTEP_DATA_MIRROR": "http://m/x"})
            self.assertIn({"name": "data", "emptyDir": {}}, support.pod_of(job)["volumes"])
            mount = {"name": "data", "mountPath": "/data", "readOnly": True}
            self.assertIn(mount, support.trainer(job)["volumeMounts"])

    def test_evaluator_and_server_are_off_by_default_and_on_one_by_one(self) -> None:
        data = {"dataset": {"claim": "digits"}}
        for values, expected in (
            ({}, set()),
            ({"evaluator": {"enabled": True}}, {("Job", "evaluator")}),
            ({"serve": {"enabled": True}}, {("Deployment", "serve"), ("Service", "serve")}),
            ({"evaluator": {"args": ["--monitor", "accuracy"]}, "serve": {"args": ["--max-batch", "1"]}}, set()),
        ):
            with self.subTest(values=values):
                documents = self.objects(data | values)
                found = {(it["kind"], it["metadata"]["labels"].get("job")) for it in documents}
                self.assertEqual({it for it in found if it[1] in ("evaluator", "serve")}, expected)

    def test_the_server_has_the_port_and_options_of_the_values(self) -> None:
        documents = self.objects(DOWNLOAD)
        service = support.named(documents, "Service", "rel-train-serve")["spec"]
        deployment = support.named(documents, "Deployment", "rel-train-serve")["spec"]
        container = support.trainer({"spec": deployment})
        known = support.run(support.program("lockstep"), "serve", "--help").stdout
        for option in container["args"]:
            if option.startswith("--"):
                self.assertIn(f"{option} ", known)
        of_the_chart = ["--model", "/pvcmnt", "--model-name", "rel-train", "--rest-api-port", "9000"]
        self.assertEqual(container["args"], [*of_the_chart, "--max-batch", "128"])
        self.assertEqual(service["ports"], [{"name": "http", "port": 9000, "targetPort": 9000}])
        self.assertEqual(container["ports"], [{"name": "http", "containerPort": 9000}])
        self.assertEqual(container["readinessProbe"]["httpGet"], {"path": "/healthz", "port": 9000})
        self.assertEqual(container["readinessProbe"]["timeoutSeconds"], 5)
        self.assertEqual(container["livenessProbe"], {"tcpSocket": {"port": 9000}})
        labels = deployment["template"]["metadata"]["labels"]
        self.assertLessEqual(service["selector"].items(), labels.items())
        self.assertLessEqual(deployment["selector"]["matchLabels"].items(), labels.items())
        for it in support.pods(documents):
            chosen = service["selector"].items() <= it["spec"]["template"]["metadata"]["labels"].items()
            self.assertEqual(chosen, it["kind"] == "Deployment", it["metadata"]["name"])
        policy = support.named(documents, "NetworkPolicy", "rel-train-workers")["spec"]
        self.assertFalse(policy["podSelector"]["matchLabels"].items() <= labels.items(), "its clients are no workers")

    def test_pods_that_mount_the_checkpoints_run_on_one_node(self) -> None:
        pods = at_checkpoints(self.objects(DOWNLOAD))
        names = {it["metadata"]["name"] for it in pods}
        self.assertEqual(names, {"rel-train-worker-0", "rel-train-evaluator", "rel-train-serve"})
        for it in pods:
            wants = support.pod_of(it)["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            self.assertEqual([term["topologyKey"] for term in wants], ["kubernetes.io/hostname"])
            # Also itself: otherwise the first of them could not be scheduled.
            for other in pods:
                labels = other["spec"]["template"]["metadata"]["labels"]
                self.assertLessEqual(wants[0]["labelSelector"]["matchLabels"].items(), labels.items())

    def test_the_notes_name_objects_that_exist(self) -> None:
        text = notes()
        self.assertIn("job/rel-train-worker-0", text)
        self.assertIn("claim rel-train-checkpoints", text)
        self.assertIn("digits of the image", text)
        self.assertNotIn("digits of the image", notes({"dataset": {"claim": "x"}}))

    def test_the_notes_tell_of_evaluator_and_server_if_they_run(self) -> None:
        log = "kubectl logs -n training -f job/rel-train-evaluator\n"
        forward = "kubectl port-forward -n training service/rel-train-serve 9000\n"
        for off, expected in (((), (log, forward)), (("evaluator",), (forward,)), (("evaluator", "serve"), ())):
            text = notes(DOWNLOAD | {name: {} for name in off})
            for command in (log, forward):
                self.assertEqual(text.count(command), int(command in expected), text)
            self.assertEqual("evaluator" in text, log in expected)
            self.assertEqual("serve" in text, forward in expected)

    def test_contradictions_are_refused(self) -> None:
        for values, expected in (
            ({"dataset": {"claim": "x", "download": "mnist"}}, "keep one of them"),
            ({"dataset": {"mirror": "http://m/x"}}, "without dataset.download"),
            ({"cluster": {"minWorkers": 3}}, "cluster.minWorkers is more"),
            ({"cluster": {"minAvailable": 3}}, "cluster.minAvailable is more"),
            ({"cluster": {"port": 8080}}, "use two ports"),
            ({"cluster": {"resources": {"memoryLimit": "64Mi"}}}, "cluster.resources requests 512Mi of memory"),
            ({"cluster": {"resources": {"cpuLimit": "200m"}}}, "more than the limit of 200m"),
            ({"serve": {"resources": {"requests": {"cpu": "4"}}}}, "serve.resources requests 4 of cpu"),
            ({"evaluator": {"resources": {"limits": {"memory": "0.4Gi"}}}}, "evaluator.resources requests 512Mi"),
            ({"cluster": {"parameterServers": 1, "minWorkers": 1}}, "all workers are needed"),
            ({"cluster": {"parameterServers": 1, "ranksPerWorker": 2}}, "each worker is one trainer"),
            ({"cluster": {"parameterServers": 1}, "isGpu": True}, "each worker is one trainer"),
            ({"settings": {"env": {"LOCKSTEP_STRATEGY": "x"}}}, "settings.env has LOCKSTEP_STRATEGY"),
            ({"isGpu": True, "gpusPerNode": 4, "cluster": {"ranksPerWorker": 2}}, "each rank has one GPU"),
            ({"settings": {"env": {"TF_CONFIG": "x"}}}, "settings.env has TF_CONFIG"),
            ({"settings": {"env": {"LOCKSTEP_MODEL_DIR": "/x"}}}, "settings.env has LOCKSTEP_MODEL_DIR"),
            ({"settings": {"env": {"PMIX_RANK": "0"}}}, "settings.env has PMIX_RANK"),
            ({"settings": {"secretEnv": {"MODEL_DIR": "s/k"}}}, "settings.secretEnv has MODEL_DIR"),
            ({"settings": {"env": {"A": "1"}, "secretEnv": {"A": "s/k"}}}, "settings.env and settings.secretEnv both have A"),
            ({"jobs": [{"name": "a", "program": "x"}] * 2}, "two jobs have the name a"),
            ({"jobs": [{"name": "a" * 43, "program": "x"}]}, "use shorter ones"),
            ({"evaluator": {"enabled": True}}, "evaluator.enabled needs a dataset"),
            ({"serve": {"enabled": True}, "isGpu": True}, "needs cluster.nodeSelector"),
            ({"evaluator": {"enabled": True}, "isGpu": True, "dataset": {"claim": "x"}}, "needs cluster.nodeSelector"),
        ):
            self.assert_refused(expected, values)
        self.assertIn("has a dot", render(release="a.b").stderr)
        gpus = {"isGpu": True, "cluster": {"nodeSelector": {"gpu": "present"}}}
        self.assertEqual(render(gpus | {"serve": {"enabled": True}}).stderr, "")

    def assert_refused(self, sentence: str, values: dict[str, Any]) -> None:
        with self.subTest(values=values):
            ended = render(values)
            self.assertEqual(ended.code, 1)
            self.assertIn(sentence, ended.stderr)

    def assert_accepted(self, values: dict[str, Any]) -> None:
        with self.subTest(values=values):
            self.assertEqual(render(values).stderr, "")

    def test_arguments_that_the_job_template_refuses_are_refused(self) -> None:
        for parameter, volumes in PATH_OPTIONS.items():
            for option, volume in volumes.items():
                value = {"model_checkpoint_dir": "checkpoints", "data_dir": "dataset"}[volume]
                own = {value: {"path": "/v"}}
                for path in ("/tmp/b", "/v2", "/v/../b", "b"):
                    sentence = f"{NAMES[parameter]} has {option} {path}, outside of the volume at {value}.path: use /v"
                    self.assert_refused(sentence, own | with_arguments(parameter, [option, path]))
                    self.assert_refused(sentence, own | with_arguments(parameter, [f"{option}={path}"]))
                self.assert_refused("outside of the volume", own | with_arguments(parameter, [option]))
                self.assert_accepted(own | with_arguments(parameter, [option, "/v/b", f"{option}=/v/"]))
        for variable, volume in PATH_VARIABLES.items():
            value = {"model_checkpoint_dir": "checkpoints"}[volume]
            own = {value: {"path": "/v"}}
            for path in ("/tmp/b", "/v2", "/v/../b", "b"):
                sentence = f"settings.env has {variable} {path}, outside of the volume at {value}.path: use /v or"
                self.assert_refused(sentence, own | {"settings": {"env": {variable: path}}})
            for path in ("/v", "/v/b", ""):
                self.assert_accepted(own | {"settings": {"env": {variable: path}}})
            secret = {"settings": {"secretEnv": {variable: "s/k"}}}
            self.assert_refused(f"settings.secretEnv has {variable}, whose path must be known", secret)
        for parameter, options in TEMPLATE_OPTIONS.items():
            for option in options:
                for arguments in ([option, "9999"], [f"{option}=9999"]):
                    sentence = f"{NAMES[parameter]} has {option}, which the chart sets: "
                    self.assert_refused(sentence, with_arguments(parameter, arguments))
        remedy = "use cluster.workers and cluster.parameterServers instead"
        self.assert_refused(remedy, with_arguments("cmdline_args", ["--job_name=worker", "--task_index=0"]))
        self.assert_refused("use serve.port", with_arguments("serve_args", ["--rest-api-port", "80"]))
        self.assert_accepted(with_arguments("evaluator_args", ["--follow-timeout", "60"]))
        second = {"name": "b", "program": "x", "args": ["--model-dir", "/models"]}
        self.assert_refused("--model-dir /models", {"jobs": [{"name": "a", "program": "x"}, second]})

    def test_the_evaluator_and_the_server_find_the_job(self) -> None:
        evaluator = {"dataset": {"claim": "x"}, "evaluator": {"enabled": True}}
        model_dir = with_arguments("cmdline_args", ["--model-dir=/pvcmnt/m"])
        self.assert_accepted(model_dir)
        self.assert_refused("the evaluator follows /pvcmnt: omit the option", model_dir | evaluator)
        for served in ("", "other", "m2"):
            server = {"serve": {"enabled": True, "model": served}}
            self.assert_refused("the server takes models from /pvcmnt", model_dir | server)
        for served in ("m", "m/export/best"):
            self.assert_accepted(model_dir | {"serve": {"enabled": True, "model": served}})
        self.assert_accepted(with_arguments("cmdline_args", ["--model-dir", "/pvcmnt/"]) | evaluator)
        server = {"serve": {"enabled": True, "model": "export/best"}}
        self.assert_accepted(server)  # of an evaluator that another release has
        self.assert_refused("the evaluator exports no best", evaluator | server)
        for args, exports in ((["--export", "latest,best"], True), (["--export=latest"], False),
                              (["--export-dir", "/pvcmnt/e"], True)):
            values = evaluator | server | {"evaluator": {"enabled": True, "args": args}}
            if exports:
                self.assert_accepted(values)
            else:
                self.assert_refused('add "--export", "best" to evaluator.args', values)
        backups = with_arguments("cmdline_args", ["--backup-dir", "/pvcmnt/b"])
        self.assert_accepted(backups)
        self.assert_refused("add --follow-backups /pvcmnt/b to evaluator.args", backups | evaluator)
        follow = {"enabled": True, "args": ["--follow-backups=/pvcmnt/b/"]}
        self.assert_accepted(backups | evaluator | {"evaluator": follow})

    def test_paths_of_volumes_that_the_job_template_refuses_are_refused(self) -> None:
        self.assertIn(RESERVED_PATH.pattern, (CHART / "templates/_helpers.tpl").read_text())
        for path in ("/tmp", "/dev/shm", "/usr", "/usr/local", "/run/secrets"):
            for value in ("checkpoints", "dataset"):
                self.assert_refused(f"{value}.path is {path}, which containers use", {value: {"path": path}})
            self.assert_refused(f"settings.secretVolumes is {path}", {"settings": {"secretVolumes": {"s": path}}})
        for path in ("/pvcmnt", "/pvcmnt/secrets", "/data/secrets"):
            volumes = {"checkpoints": {"path": "/pvcmnt"}, "dataset": {"path": "/data/d"}}
            self.assert_accepted(volumes | {"settings": {"secretVolumes": {"s": path.replace("pvcmnt", "own")}}})
            volumes |= {"dataset": {"path": "/data"}}
            self.assert_refused("within or around another volume", volumes | {"settings": {"secretVolumes": {"s": path}}})
        two = {"settings": {"secretVolumes": {"a": "/own", "b": "/own/b"}}}
        self.assert_refused("within or around another volume", two)
        for path in ("/tmpfs", "/library"):
            self.assert_accepted({"checkpoints": {"path": path}, "dataset": {"path": path}})
        for dataset in ({"claim": "x"}, {"download": "mnist"}):
            for path in ("/data", "/data/models"):
                sentence = f"checkpoints.path is {path}, within dataset.path"
                self.assert_refused(sentence, {"checkpoints": {"path": path}, "dataset": dataset})
            self.assert_accepted({"checkpoints": {"path": "/database"}, "dataset": dataset})

    def test_names_of_objects_and_labels_are_not_too_long(self) -> None:
        documents = self.objects(DOWNLOAD | {"jobs": [{"name": "a" * 42, "program": "x"}]})
        longest = "rel-" + "a" * 42
        texts = {it["metadata"]["name"] for it in documents}
        self.assertLessEqual({f"{longest}-evaluator", f"{longest}-serve"}, texts)
        for it in support.pods(documents):
            texts |= set(it["spec"]["template"]["metadata"]["labels"].values())
        self.assertIn(f"{longest}-checkpoints", texts)
        self.assertLessEqual(max(len(text) for text in texts), 63)

    def test_every_value_is_used(self) -> None:
        text = "".join(path.read_text(encoding="utf-8") for path in (CHART / "templates").iterdir())

        def check(values: dict[str, Any], path: str) -> None:
            for name, item in values.items():
                self.assertRegex(text, rf"\.{name}\b")
                is_copied = f"toJson {path}.{name} " in text
                if isinstance(item, dict) and not is_copied:
                    check(item, f"{path}.{name}")

        check(defaults(), "$.Values")

    def test_versions_are_those_of_the_project(self) -> None:
        found = re.search(r"project\(lockstep VERSION ([0-9.]+)", (support.ROOT / "CMakeLists.txt").read_text())
        assert found is not None
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
        self.assertEqual((chart["version"], chart["appVersion"]), (found[1], found[1]))


class Values(support.TestCase):
    """The schema that Helm checks values with."""

    def errors(self, all_own: list[dict[str, Any]]) -> list[list[str]]:
        directory = support.build() / "venv-kubernetes"
        schemas_test.make_environment(directory)
        schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
        sent = json.dumps([schema, [merged(defaults(), own) for own in all_own]])
        command = [str(directory / "bin" / "python"), "-c", CHECK]
        ended = subprocess.run(command, input=sent, capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        errors: list[list[str]] = json.loads(ended.stdout)
        return errors

    def test_good_values_are_accepted(self) -> None:
        good = [{"image": {"repository": "registry.example:5000/team/lockstep"}}, DOWNLOAD, *[values for values, _ in EQUAL]]
        self.assertEqual(self.errors(good), [[]] * len(good))

    def test_wrong_values_are_refused(self) -> None:
        wrong: list[dict[str, Any]] = [
            {"isGPU": True},
            {"isGpu": "true"},
            {"gpusPerNode": 0},
            {"image": {"repository": "a b"}},
            {"image": {"tag": ""}},
            {"image": {"repository": "registry.example/lockstep:v1"}},
            {"image": {"repository": "registry.example:5000/lockstep:v1"}},
            {"jobs": []},
            {"jobs": [{"name": "A", "program": "x"}]},
            {"jobs": [{"name": "a", "program": "x y"}]},
            {"jobs": [{"name": "a", "program": "x", "args": "--seed 7"}]},
            {"cluster": {"workers": 0}},
            {"cluster": {"workers": "2"}},
            {"cluster": {"port": 80}},
            {"cluster": {"parameterServers": -1}},
            {"evaluator": {"enabled": True, "resources": {"cpu": "1"}}},
            {"serve": {"enabled": True, "resources": {"limits": {"cpu": 1}}}},
            {"cluster": {"token": "short"}},
            {"cluster": {"affinity": "packed"}},
            {"cluster": {"unreachableAfter": 0}},
            {"cluster": {"nodeSelector": {"a": 1}}},
            {"cluster": {"tolerations": [{"key": "node.kubernetes.io/unreachable"}]}},
            {"cluster": {"resources": {"cpuRequest": "1 cpu"}}},
            {"settings": {"epochs": -1}},
            {"settings": {"env": {"A": 1}}},
            {"settings": {"env": {"A-B": "1"}}},
            {"settings": {"secretEnv": {"A": "s"}}},
            {"settings": {"secretEnv": {"A": "s/k/l"}}},
            {"settings": {"secretVolumes": {"s": "p"}}},
            {"settings": {"activeDeadline": -1}},
            {"cluster": {"minAvailable": "1"}},
            {"dataset": {"download": "cifar"}},
            {"dataset": {"path": "data"}},
            {"checkpoints": {"path": "/a/../b"}},
            {"checkpoints": {"size": "10GB"}},
            {"evaluator": {"enabled": "true"}},
            {"evaluator": {"enabled": True, "args": "--monitor accuracy"}},
            {"evaluator": {"port": 8501}},
            {"evaluator": None},
            {"serve": {"enabled": 1}},
            {"serve": {"args": [128]}},
            {"serve": {"port": 80}},
            {"serve": {"port": "8501"}},
            {"serve": {"model": "../x"}},
            {"serve": {"model": "/x"}},
            {"serve": {"ports": 8501}},
            {"serve": None},
        ]
        for own, errors in zip(wrong, self.errors(wrong), strict=True):
            self.assertNotEqual(errors, [], own)


def notes(values: dict[str, Any] | None = None) -> str:
    text = render(values).stdout
    (found,) = [part for part in text.split("---\n") if part.startswith("# Source: NOTES.txt")]
    return found


def at_checkpoints(documents: list[support.Object]) -> list[support.Object]:
    """Those whose pods mount the claim for checkpoints."""
    volumes = [(it, [volume["name"] for volume in support.pod_of(it)["volumes"]]) for it in support.pods(documents)]
    return [it for it, names in volumes if "checkpoints" in names]


def comparable(document: support.Object) -> support.Object:
    """Without what the chart and the template do for reasons of their own."""
    it: support.Object = json.loads(json.dumps(document))
    if it["kind"] == "Secret":
        it.pop("stringData")
    if it["kind"] == "PersistentVolumeClaim":
        it["metadata"].pop("annotations", None)
    if it["kind"] == "Job":
        for variable in support.trainer(it).get("env", []):
            if variable["name"] == "TF_CONFIG":
                variable["value"] = json.loads(variable["value"])
    return it

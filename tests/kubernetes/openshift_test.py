"""openshift/lockstep.yaml, processed as `oc process` does: its objects are valid, its pods are those of the template's
kind jobset but for what OpenShift needs, and each finds its task."""

import json
import re
from typing import Any

import crds
import schemas_test
import support
import yaml

TEMPLATE = support.ROOT / "openshift" / "lockstep.yaml"


def process(**given: str) -> list[support.Object]:
    """The objects, with ${NAME} replaced within strings, and ${{NAME}} by a value of any type."""
    template = yaml.safe_load(TEMPLATE.read_text(encoding="utf-8"))
    values = {}
    for parameter in template["parameters"]:
        name = parameter["name"]
        generated = "0123456789abcdef0123456789abcdef" if parameter.get("generate") == "expression" else ""
        values[name] = given.pop(name, parameter.get("value", generated))
        assert values[name] or not parameter.get("required"), f"{name} is required"
    assert not given, f"unknown parameters: {given}"

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {replaced(key): replaced(item) for key, item in value.items()}
        if isinstance(value, list):
            return [replaced(item) for item in value]
        if not isinstance(value, str):
            return value
        if whole := re.fullmatch(r"\$\{\{(\w+)\}\}", value):
            return json.loads(values[whole[1]])
        return re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], value)

    objects = [replaced(it) for it in template["objects"]]
    for it in objects:
        it["metadata"]["labels"] = it["metadata"].get("labels", {}) | replaced(template["labels"])
    return objects


class OpenShift(support.TestCase):
    given = {"JOB_NAME": "mnist", "IMAGE_NAME": "registry.example/lockstep:v1"}

    def test_parameters_are_used(self) -> None:
        text = TEMPLATE.read_text(encoding="utf-8")
        names = {it["name"] for it in yaml.safe_load(text)["parameters"]}
        self.assertLessEqual({"JOB_NAME", "IMAGE_NAME", "BUCKET", "WORKERS"}, names)
        self.assertEqual(set(re.findall(r"\$\{+(\w+)\}", text)), names)
        with self.assertRaisesRegex(AssertionError, "IMAGE_NAME is required"):
            process(JOB_NAME="mnist")

    def test_objects_are_valid(self) -> None:
        template = yaml.safe_load(TEMPLATE.read_text(encoding="utf-8"))
        self.assertEqual(crds.Check(template).errors, [])
        objects = process(**self.given, WORKERS="3", BUCKET="https://storage.example/mnist")
        pairs = [(version, it) for version in ("1.29", "1.37") for it in objects]
        schemas_test.assert_valid(self, pairs)

    def test_pods_find_their_tasks(self) -> None:
        jobs = support.workers(process(**self.given, WORKERS="2"))
        hosts = ["mnist-chief-0", "mnist-worker-0", "mnist-worker-1"]
        for job in jobs:
            config = support.environment(support.trainer(job))["CLUSTER_CONFIG"]
            made = job["spec"]["completions"]
            self.assertEqual(support.pod_of(job)["subdomain"], "mnist")
            self.assertIn(job["metadata"]["name"] + f"-{made - 1}", hosts)
            for rank, host in enumerate(hosts):
                values = {"CLUSTER_CONFIG": config, "POD_NAME": host + "-x7k2p"}
                command = [support.program("lockstep"), "cluster", "--no-probe", "--json"]
                ended = support.run(*command, environment=values)
                self.assertEqual(ended.code, 0, ended.stderr)
                seen = json.loads(ended.stdout)
                self.assertEqual((seen["rank"], seen["workers"]), (rank, 3))
                self.assertEqual(seen["tasks"][rank]["host"], f"{host}.mnist")

    def test_pods_are_those_of_the_job_template(self) -> None:
        rendered = support.objects(
            deploy=True, kind="jobset", name="mnist", image="registry.example/lockstep:v1", run_as_user=0,
            checkpoint_pvc_name="mnist-checkpoints", checkpoint_access_mode="ReadWriteMany",
        )
        ours = support.workers(process(**self.given))
        for job, other in zip(ours, support.workers(rendered), strict=True):
            spec, wanted = job["spec"], other["spec"]
            for field in ("backoffLimit", "completionMode", "podFailurePolicy", "podReplacementPolicy"):
                self.assertEqual(spec[field], wanted[field])
            pod, wanted = spec["template"]["spec"], wanted["template"]["spec"]
            own = ("containers", "initContainers", "subdomain", "volumes")
            self.assertEqual(without(pod, own), without(wanted, own))
            for volume in wanted["volumes"]:
                self.assertIn(volume, pod["volumes"])
            container, wanted = pod["containers"][0], wanted["containers"][0]
            own = ("command", "args", "env", "volumeMounts", "imagePullPolicy")
            self.assertEqual(without(container, own), without(wanted, own))
            for mount in wanted["volumeMounts"]:
                self.assertIn(mount, container["volumeMounts"])
            # Defaults of `lockstep launch`.
            left_out = {"LOCKSTEP_RANKS_PER_WORKER", "LOCKSTEP_RENDEZVOUS_TIMEOUT"}
            ours_env, wanted_env = ({it["name"]: it for it in c["env"]} for c in (container, wanted))
            self.assertEqual(set(ours_env), set(wanted_env) - left_out | {"BUCKET", "ARGUMENTS"})
            for name in set(ours_env) - {"BUCKET", "ARGUMENTS", "CLUSTER_CONFIG"}:
                self.assertEqual(ours_env[name], wanted_env[name])

    def test_no_user_id_is_asked_for(self) -> None:
        text = TEMPLATE.read_text(encoding="utf-8")
        self.assertNotIn("runAsUser", text)
        self.assertNotIn("fsGroup", text)

    def test_a_bucket_is_the_data(self) -> None:
        (chief, _) = support.workers(process(**self.given, BUCKET="https://storage.example/mnist"))
        container = support.trainer(chief)
        for bucket, expected in (("https://storage.example/mnist", "/data"), ("", "unset")):
            script = container["command"][2].replace("exec lockstep launch --", "exec echo")
            ended = support.run("sh", "-c", script + ' "${DATA_DIR-unset}"', "sh", environment={"BUCKET": bucket})
            self.assertEqual((ended.code, ended.stdout.strip()), (0, expected))
        (fetch,) = support.pod_of(chief)["initContainers"]
        self.assertEqual(support.environment(fetch), {"LOCKSTEP_DATA_MIRROR": "https://storage.example/mnist"})
        script = fetch["command"][2].replace("exec fetch_data.sh", "exec echo")
        for bucket, expected in (("https://storage.example/mnist", "mnist /data"), ("", "")):
            ended = support.run("sh", "-c", script, environment={"LOCKSTEP_DATA_MIRROR": bucket})
            self.assertEqual((ended.code, ended.stdout.strip()), (0, expected))

    def test_arguments_are_the_program_s_options(self) -> None:
        (chief, _) = support.workers(process(**self.given, ARGUMENTS="--epochs 20 --save-as *.h5"))
        container = support.trainer(chief)
        command = [word.replace("exec lockstep launch --", "exec echo") for word in container["command"]]
        given = {"ARGUMENTS": support.environment(container)["ARGUMENTS"]}
        ended = support.run(*command, *container["args"], environment=given)
        self.assertEqual((ended.code, ended.stdout.strip()), (0, "keras_mnist --epochs 20 --save-as *.h5"))


def without(value: support.Object, names: tuple[str, ...]) -> support.Object:
    return {name: item for name, item in value.items() if name not in names}

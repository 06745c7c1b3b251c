"""The meaning of the manifests: names, mounts, permissions, and the reaction to each exit code.

One file, because all tests read one rendering.
"""

import json
import socket
import tempfile
from typing import Any

import support
from support import environment, objects, pod_of, pods, trainer, workers

EVERYTHING: tuple[dict[str, Any], ...] = (
    {"deploy": True, "tensorboard": True, "serve": True, "evaluator": True, "data_pvc_name": "data", "create_pvc_data": True, "job_token": "x" * 16},
    {"create_volume_inspector": True},
    {"create_volume_inspector": True, "inspect_once": True},
    {"fetch_data": True, "data_pvc_name": "data"},
    {"deploy": True, "ranks_per_worker": 2, "min_workers": 1},
    {"deploy": True, "num_gpus_per_worker": 4},
    {"deploy": True, "kind": "jobset"},
    {"deploy": True, "kind": "indexed-job", "checkpoint_access_mode": "ReadWriteMany"},
    {"deploy": True, "kind": "trainjob", "checkpoint_access_mode": "ReadWriteMany"},
    {"deploy": True, "kind": "tfjob", "restart": "OnFailure"},
    {"deploy": True, "ps_replicas": 2},
    {"deploy": True, "kind": "mpijob", "restart": "OnFailure"},
)


def mounts(container: support.Object) -> dict[str, str]:
    return {it["name"]: it["mountPath"] for it in container["volumeMounts"]}


def claims(pod: support.Object) -> list[str]:
    return [
        it["persistentVolumeClaim"]["claimName"] for it in pod.get("volumes", []) if "persistentVolumeClaim" in it
    ]


class Names(support.TestCase):
    def test_each_worker_is_a_job_and_a_service_named_in_tf_config(self) -> None:
        for count, name, port in ((1, "one", 5000), (2, "null", 1024), (12, "a-b-c", 65535)):
            with self.subTest(count=count):
                documents = objects(deploy=True, worker_replicas=count, name=name, port=port)
                self.assertEqual(len(workers(documents)), count)
                expected = [f"{name}-worker-{i}:{port}" for i in range(count)]
                for i, job in enumerate(workers(documents)):
                    self.assertEqual(job["metadata"]["name"], f"{name}-worker-{i}")
                    tf_config = json.loads(environment(trainer(job))["TF_CONFIG"])
                    task = {"type": "worker", "index": i}
                    self.assertEqual(tf_config, {"cluster": {"worker": expected}, "task": task})
                    self.check_service(documents, f"{name}-worker-{i}", port)

    def check_service(self, documents: list[support.Object], name: str, port: int, type: str = "worker") -> None:
        spec = support.named(documents, "Service", name)["spec"]
        self.assertTrue(spec["publishNotReadyAddresses"])
        self.assertEqual([(it["port"], it["targetPort"]) for it in spec["ports"]], [(port, port)])
        chosen = [
            job["metadata"]["name"]
            for job in pods(documents)
            if job["metadata"]["labels"]["job"] == type
            if spec["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
        ]
        self.assertEqual(chosen, [name])
        job = support.named(documents, "Job", name)
        self.assertIn(port, [it["containerPort"] for it in trainer(job)["ports"]])

    def test_lockstep_parses_tf_config(self) -> None:
        documents = objects(deploy=True, worker_replicas=3, name="tf-learning", port=6000)
        digests = set()
        for i, job in enumerate(workers(documents)):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                file.write(environment(trainer(job))["TF_CONFIG"])
                file.flush()
                command = [support.program("lockstep"), "cluster", "--no-probe", "--json"]
                ended = support.run(*command, "--tf-config", f"@{file.name}")
            self.assertEqual((ended.code, ended.stderr), (0, ""))
            seen = json.loads(ended.stdout)
            digests.add(seen["digest"])
            self.assertEqual((seen["rank"], seen["chief"]), (i, i == 0))
        self.assertEqual(len(digests), 1)

    def test_pods_of_one_template_find_their_task_by_their_name(self) -> None:
        """Starts with what the controllers make of the template: pods' names, and host names below a Service."""
        pods_of_kind: dict[str, tuple[dict[str, Any], list[str], str]] = {
            "jobset": ({}, ["n-chief-0-0", "n-worker-0-0", "n-worker-1-0"], "n"),
            "mpijob": ({"restart": "OnFailure"}, ["n-launcher", "n-worker-0", "n-worker-1"], "n"),
            "indexed-job": ({"affinity": "pack"}, ["n-worker-0", "n-worker-1", "n-worker-2"], "n-worker"),
            "trainjob": ({"affinity": "pack"}, ["n-node-0-0", "n-node-0-1", "n-node-0-2"], "n"),
        }
        for kind, (given, hosts, service) in pods_of_kind.items():
            documents = objects(deploy=True, kind=kind, name="n", worker_replicas=3, port=6000, **given)
            described = {environment(trainer(job))["CLUSTER_CONFIG"] for job in workers(documents)}
            self.assertEqual(len(described), 1)
            for rank, host in enumerate(hosts):
                with self.subTest(kind=kind, host=host):
                    command = [support.program("lockstep"), "cluster", "--no-probe", "--json"]
                    values = {"CLUSTER_CONFIG": described.copy().pop(), "POD_NAME": host + "-x7k2p"}
                    ended = support.run(*command, environment=values)
                    self.assertEqual((ended.code, ended.stderr), (0, ""))
                    seen = json.loads(ended.stdout)
                    self.assertEqual((seen["rank"], seen["chief"]), (rank, rank == 0))
                    self.assertEqual([it["host"] for it in seen["tasks"]], [f"{it}.{service}" for it in hosts])
                    self.assertEqual({it["port"] for it in seen["tasks"]}, {6000})

    def test_only_the_chief_of_a_kind_with_its_own_template_mounts_the_checkpoints(self) -> None:
        for kind, given, count in (
            ("jobset", {}, 1), ("tfjob", {"restart": "OnFailure"}, 1), ("mpijob", {"restart": "OnFailure"}, 1),
            ("indexed-job", {"affinity": "pack"}, 1), ("trainjob", {"affinity": "pack"}, 1),
        ):
            jobs = workers(objects(deploy=True, kind=kind, worker_replicas=3, **given))
            mounted = [claims(pod_of(job)) for job in jobs]
            self.assertEqual(mounted, [["pvc-demo"], []] if "-" not in kind and kind != "trainjob" else [["pvc-demo"]])
            self.assertEqual(sum(it == ["pvc-demo"] for it in mounted), count)

    def test_kubeflow_finds_its_container_and_port(self) -> None:
        documents = objects(deploy=True, kind="tfjob", restart="OnFailure", worker_replicas=3, port=6000)
        for pod in workers(documents):
            self.assertEqual(trainer(pod)["name"], "tensorflow")
            self.assertIn({"name": "tfjob-port", "containerPort": 6000}, trainer(pod)["ports"])
            self.assertFalse({"TF_CONFIG", "CLUSTER_CONFIG"} & set(environment(trainer(pod))))
        (job,) = [it for it in documents if it["kind"] == "TFJob"]
        replicas = {type: it["replicas"] for type, it in job["spec"]["tfReplicaSpecs"].items()}
        self.assertEqual(replicas, {"Chief": 1, "Worker": 2})
        alone = objects(deploy=True, kind="tfjob", restart="OnFailure", worker_replicas=1)[-1]
        self.assertEqual(set(alone["spec"]["tfReplicaSpecs"]), {"Chief"})

    def test_parameter_servers(self) -> None:
        """Each task finds itself among all; the chief alone stores; and the pods of all tasks reach each other."""
        cases: tuple[tuple[dict[str, Any], list[tuple[str, str]]], ...] = (
            ({"kind": "jobs"}, [("worker 0", ""), ("worker 1", ""), ("ps 0", ""), ("ps 1", "")]),
            ({"kind": "jobset"}, [("worker 0", "n-chief-0-0"), ("worker 1", "n-worker-0-0"), ("ps 0", "n-ps-0-0"), ("ps 1", "n-ps-1-0")]),
        )
        for given, tasks in cases:
            documents = objects(deploy=True, name="n", ps_replicas=2, port=6000, **given)
            found = [it for it in pods(documents) if it["metadata"]["labels"]["job"] in ("worker", "ps")]
            self.assertEqual([claims(pod_of(it)) for it in found], [["pvc-demo"]] + [[]] * (len(found) - 1))
            for index, (task, pod_name) in enumerate(tasks):
                variables = environment(trainer(found[min(index, len(found) - 1)]))
                self.assertEqual(variables["LOCKSTEP_STRATEGY"], "parameter-server")
                names = ("TF_CONFIG", "CLUSTER_CONFIG", "LOCKSTEP_STRATEGY")
                own = {name: variables[name] for name in names if name in variables} | {"POD_NAME": pod_name + "-x7k2p"}
                ended = support.run(support.program("lockstep"), "cluster", "--no-probe", "--json", environment=own)
                self.assertEqual((ended.code, ended.stderr), (0, ""))
                seen = json.loads(ended.stdout)
                states = [(f"{it['type']} {it['index']}", it["state"] == "this_process") for it in seen["tasks"]]
                self.assertEqual(states, [(name, name == task) for name, _ in tasks], given)
            (policy,) = [it for it in documents if it["kind"] == "NetworkPolicy"]
            (expression,) = policy["spec"]["podSelector"]["matchExpressions"]
            self.assertEqual(expression, {"key": "job", "operator": "In", "values": ["worker", "ps"]})
            self.assertEqual(policy["spec"]["ingress"][0]["from"][0]["podSelector"], policy["spec"]["podSelector"])
        for index in range(2):
            self.check_service(objects(deploy=True, name="n", ps_replicas=2, port=6000), f"n-ps-{index}", 6000, "ps")
        (job,) = [it for it in objects(deploy=True, kind="tfjob", restart="OnFailure", ps_replicas=3) if it["kind"] == "TFJob"]
        self.assertEqual({type: it["replicas"] for type, it in job["spec"]["tfReplicaSpecs"].items()}, {"Chief": 1, "Worker": 1, "PS": 3})

    def test_kueue_finds_its_queue(self) -> None:
        for kind, owner in (("jobset", "JobSet"), ("indexed-job", "Job"), ("trainjob", "TrainJob"), ("jobs", "Job")):
            given = {"kind": kind, "worker_replicas": 1, "queue": "team"}
            (job,) = [it for it in objects(deploy=True, **given) if it["kind"] == owner]
            self.assertEqual(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team")

    def test_labels_select_the_objects_of_a_job(self) -> None:
        for parameters in EVERYTHING:
            for it in objects(name="mine", **parameters):
                self.assertEqual(it["metadata"]["labels"]["name"], "mine", it["metadata"]["name"])

    def test_names_that_look_like_other_yaml_types_stay_strings(self) -> None:
        for name in ("null", "true", "on", "e1"):
            for it in objects(name=name, deploy=True, checkpoint_pvc_name="1e3"):
                self.assertEqual(it["metadata"]["labels"]["name"], name)


class Volumes(support.TestCase):
    def test_only_the_chief_mounts_the_checkpoints(self) -> None:
        documents = objects(deploy=True, worker_replicas=4, checkpoint_pvc_name="models", model_checkpoint_dir="/m")
        for i, job in enumerate(workers(documents)):
            self.assertEqual(claims(pod_of(job)), ["models"] if i == 0 else [])
            self.assertEqual(mounts(trainer(job)).get("checkpoints"), "/m" if i == 0 else None)
            self.assertEqual(environment(trainer(job))["MODEL_DIR"], "/m")

    def test_all_workers_mount_the_data_read_only(self) -> None:
        documents = objects(deploy=True, data_pvc_name="digits", data_dir="/mnist", checkpoint_pvc_name="models")
        for job in workers(documents):
            self.assertIn("digits", claims(pod_of(job)))
            self.assertIn({"name": "data", "mountPath": "/mnist", "readOnly": True}, trainer(job)["volumeMounts"])
            self.assertEqual(environment(trainer(job))["DATA_DIR"], "/mnist")
        self.assertNotIn("DATA_DIR", environment(trainer(workers(objects(deploy=True))[0])))

    def test_shared_memory_has_the_requested_size_if_ranks_share_a_pod(self) -> None:
        for parameters, is_there in (
            ({}, False),
            ({"ranks_per_worker": 1}, False),
            ({"ranks_per_worker": 2}, True),
            ({"num_gpus_per_worker": 1}, True),
        ):
            pod = pod_of(workers(objects(deploy=True, shm_size="3Gi", **parameters))[1])
            volume = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "3Gi"}}
            self.assertEqual(volume in pod["volumes"], is_there, parameters)
            self.assertEqual(mounts(pod["containers"][0]).get("shm"), "/dev/shm" if is_there else None)

    def test_inspectors_mount_read_only_and_run_where_the_volume_is(self) -> None:
        for parameters, kind, name in (
            ({"create_volume_inspector": True}, "Pod", "tf-learning-volume-inspector"),
            ({"create_volume_inspector": True, "inspect_once": True}, "Job", "tf-learning-volume-inspector"),
            ({"tensorboard": True}, "Deployment", "tf-learning-tensorboard"),
            ({"serve": True}, "Deployment", "tf-learning-serve"),
            ({"deploy": True}, "Job", "tf-learning-worker-0"),
        ):
            with self.subTest(kind=kind, name=name):
                document = support.named(objects(**parameters), kind, name)
                pod = pod_of(document)
                metadata = document["metadata"] if kind == "Pod" else document["spec"]["template"]["metadata"]
                if "worker" not in name:
                    for mount in pod["containers"][0]["volumeMounts"]:
                        self.assertEqual(mount.get("readOnly", False), mount["name"] == "checkpoints")
                wants = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                self.assertEqual(wants[0]["topologyKey"], "kubernetes.io/hostname")
                # A pod must match its own affinity: otherwise the first such pod could not be scheduled.
                self.assertLessEqual(wants[0]["labelSelector"]["matchLabels"].items(), metadata["labels"].items())
                free = objects(checkpoint_access_mode="ReadWriteMany", **parameters)
                self.assertNotIn("affinity", pod_of(support.named(free, kind, name)))

    def test_mounts_and_volumes_match(self) -> None:
        for parameters in EVERYTHING:
            for document in pods(objects(**parameters)):
                pod = pod_of(document)
                self.assertEqual(set(mounts(pod["containers"][0])), {it["name"] for it in pod["volumes"]})

    def test_claims_have_the_given_sizes_and_access_modes(self) -> None:
        parameters = {"create_pvc_data": True, "data_pvc_name": "data", "storage_size": "20Gi"}
        documents = objects(storage_class="fast", data_storage_size="2Gi", **parameters)
        made = {it["metadata"]["name"]: it["spec"] for it in documents}
        self.assertEqual(set(made), {"pvc-demo", "data"})
        self.assertEqual(made["pvc-demo"]["accessModes"], ["ReadWriteOnce"])
        self.assertEqual(made["data"]["accessModes"], ["ReadWriteMany"])
        sizes = {name: spec["resources"]["requests"]["storage"] for name, spec in made.items()}
        self.assertEqual(sizes, {"pvc-demo": "20Gi", "data": "2Gi"})
        self.assertEqual({spec["storageClassName"] for spec in made.values()}, {"fast"})
        self.assertNotIn("storageClassName", objects()[0]["spec"])


class Pods(support.TestCase):
    def test_pods_run_with_least_privilege(self) -> None:
        for parameters in EVERYTHING:
            for document in pods(objects(**parameters)):
                with self.subTest(name=document["metadata"]["name"]):
                    pod = pod_of(document)
                    self.assertFalse(pod["automountServiceAccountToken"])
                    self.assertFalse(pod["enableServiceLinks"])
                    self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                    self.assertEqual(pod["securityContext"]["runAsUser"], 1000)
                    self.assertEqual(pod["securityContext"]["fsGroup"], 1000)
                    self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                    for container in pod["containers"]:
                        own = container["securityContext"]
                        self.assertEqual(own["capabilities"], {"drop": ["ALL"]})
                        self.assertFalse(own["allowPrivilegeEscalation"])
                        self.assertTrue(own["readOnlyRootFilesystem"])
                        self.assertEqual(mounts(container)["tmp"], "/tmp")

    def test_the_cluster_may_choose_the_user(self) -> None:
        for document in pods(objects(deploy=True, run_as_user=0)):
            self.assertEqual(set(pod_of(document)["securityContext"]), {"runAsNonRoot", "seccompProfile"})

    def test_no_sidecar_keeps_a_job_from_ending(self) -> None:
        for parameters in EVERYTHING:
            for document in pods(objects(**parameters)):
                is_pod = document["kind"] == "Pod"
                metadata = document["metadata"] if is_pod else document["spec"]["template"]["metadata"]
                self.assertEqual(metadata["annotations"]["sidecar.istio.io/inject"], "false")
                self.assertEqual(metadata["labels"]["sidecar.istio.io/inject"], "false")
                self.assertEqual(metadata["annotations"]["linkerd.io/inject"], "disabled")

    def test_node_selectors_and_tolerations_are_rendered(self) -> None:
        tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
        for parameters in EVERYTHING:
            sent = {"node_selector": {"pool": "a"}, "tolerations": tolerations, "image_pull_secrets": ["x", "y"]}
            for document in pods(objects(**parameters, **sent)):
                pod = pod_of(document)
                self.assertEqual(pod["nodeSelector"], {"pool": "a"})
                self.assertEqual(pod["tolerations"][:-2], tolerations)
                self.assertEqual(pod["imagePullSecrets"], [{"name": "x"}, {"name": "y"}])

    def test_pods_leave_silent_nodes(self) -> None:
        for parameters in EVERYTHING:
            for document in pods(objects(unreachable_after=30, **parameters)):
                given_up = {it["key"]: it["tolerationSeconds"] for it in pod_of(document)["tolerations"]}
                expected = {f"node.kubernetes.io/{state}": 30 for state in ("not-ready", "unreachable")}
                self.assertEqual(given_up, expected)

    def test_packed_workers_want_each_others_node(self) -> None:
        for job in workers(objects(deploy=True, affinity="pack")):
            self.assertNotIn("topologySpreadConstraints", pod_of(job))
            (wanted,) = pod_of(job)["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
            labels = job["spec"]["template"]["metadata"]["labels"]
            chosen = wanted["podAffinityTerm"]["labelSelector"]["matchLabels"]
            self.assertLessEqual(chosen.items(), labels.items())
        self.assertIn("requiredDuringSchedulingIgnoredDuringExecution",
                      pod_of(workers(objects(deploy=True, affinity="pack"))[0])["affinity"]["podAffinity"])

    def test_a_budget_keeps_workers_running(self) -> None:
        documents = objects(deploy=True, worker_replicas=3, min_available=2)
        budget = support.named(documents, "PodDisruptionBudget", "tf-learning-workers")["spec"]
        self.assertEqual(budget["minAvailable"], 2)
        for job in workers(documents):
            labels = job["spec"]["template"]["metadata"]["labels"]
            self.assertLessEqual(budget["selector"]["matchLabels"].items(), labels.items())
        self.assertNotIn("PodDisruptionBudget", support.render(deploy=True))

    def test_secrets_are_variables_and_files(self) -> None:
        given = {"secret_env": {"API_KEY": "credentials/api.key"}, "secret_volumes": {"credentials": "/credentials"}}
        for job in workers(objects(deploy=True, **given)):
            (key,) = [it for it in trainer(job)["env"] if it["name"] == "API_KEY"]
            self.assertEqual(key["valueFrom"], {"secretKeyRef": {"name": "credentials", "key": "api.key"}})
            volume = {"name": "secret-1", "secret": {"secretName": "credentials", "defaultMode": 0o440}}
            self.assertIn(volume, pod_of(job)["volumes"])
            mount = {"name": "secret-1", "mountPath": "/credentials", "readOnly": True}
            self.assertIn(mount, trainer(job)["volumeMounts"])

    def test_workers_are_spread_over_nodes(self) -> None:
        for job in workers(objects(deploy=True)):
            (spread,) = pod_of(job)["topologySpreadConstraints"]
            self.assertEqual(spread["whenUnsatisfiable"], "ScheduleAnyway")
            labels = job["spec"]["template"]["metadata"]["labels"]
            self.assertLessEqual(spread["labelSelector"]["matchLabels"].items(), labels.items())

    def test_workers_get_gpus_and_the_runtime_class(self) -> None:
        for job in workers(objects(deploy=True, num_gpus_per_worker=4, runtime_class="nvidia")):
            container = trainer(job)
            self.assertEqual(container["resources"]["limits"]["nvidia.com/gpu"], 4)
            self.assertEqual(environment(container)["LOCKSTEP_RANKS_PER_WORKER"], "4")
            self.assertEqual(environment(container)["LOCKSTEP_DEVICE"], "cuda")
            self.assertEqual(pod_of(job)["runtimeClassName"], "nvidia")
        self.assertNotIn("limits", trainer(workers(objects(deploy=True))[0])["resources"])


class Helpers(support.TestCase):
    """Objects that are not workers."""

    def container(self, kind: str, name: str, **parameters: Any) -> support.Object:
        (container,) = pod_of(support.named(objects(**parameters), kind, f"tf-learning-{name}"))["containers"]
        found: support.Object = container
        return found

    def test_all_run_the_image_of_the_job(self) -> None:
        for parameters in EVERYTHING:
            for document in pods(objects(image="own:v1", tensorboard_image="board:v2", **parameters)):
                (container,) = pod_of(document)["containers"]
                self.assertEqual(container["image"], "board:v2" if container["name"] == "tensorboard" else "own:v1")
                self.assertIn("requests", container["resources"])

    def test_data_is_fetched_into_the_claim(self) -> None:
        given = {"fetch_data": True, "data_pvc_name": "digits", "data_dir": "/d", "data_set": "fashion_mnist"}
        container = self.container("Job", "fetch-data", **given)
        self.assertEqual(container["command"], ["fetch_data.sh", "fashion_mnist", "/d"])
        self.assertTrue((support.ROOT / "scripts" / container["command"][0]).exists())
        self.assertIn({"name": "data", "mountPath": "/d"}, container["volumeMounts"])
        job = support.named(objects(**given), "Job", "tf-learning-fetch-data")
        self.assertEqual(claims(pod_of(job)), ["digits"])
        self.assertEqual(pod_of(job)["restartPolicy"], "Never")
        self.assertNotIn("env", container)
        container = self.container("Job", "fetch-data", data_mirror="http://m/x", **given)
        self.assertEqual(environment(container), {"LOCKSTEP_DATA_MIRROR": "http://m/x"})

    def test_the_inspector_waits_or_inspects_once(self) -> None:
        waits = self.container("Pod", "volume-inspector", create_volume_inspector=True)
        self.assertEqual(waits["command"][:2], ["/bin/sh", "-c"])
        ended = support.run("bash", "-c", 'timeout --signal=TERM 1 "$0" "$@"', *waits["command"])
        self.assertEqual(ended.code, 124, "the inspector must wait and exit on SIGTERM")
        given = {"create_volume_inspector": True, "inspect_once": True, "model_checkpoint_dir": "/m"}
        inspects = self.container("Job", "volume-inspector", **given)
        self.assertEqual(inspects["command"], ["lockstep", "inspect", "--check", "/m"])
        job = support.named(objects(**given), "Job", "tf-learning-volume-inspector")
        self.assertEqual((job["spec"]["backoffLimit"], pod_of(job)["restartPolicy"]), (0, "Never"))
        self.assertEqual(claims(pod_of(job)), ["pvc-demo"])

    def behind_service(self, documents: list[support.Object], name: str) -> tuple[support.Object, int]:
        """The container of a Deployment, and the port to which its Service leads from within the cluster."""
        service = support.named(documents, "Service", name)["spec"]
        deployment = support.named(documents, "Deployment", name)["spec"]
        labels = deployment["template"]["metadata"]["labels"]
        self.assertLessEqual(service["selector"].items(), labels.items())
        self.assertLessEqual(deployment["selector"]["matchLabels"].items(), labels.items())
        (container,) = deployment["template"]["spec"]["containers"]
        (port,) = [it["containerPort"] for it in container["ports"]]
        self.assertEqual([it["targetPort"] for it in service["ports"]], [port])
        self.assertNotIn("type", service, "it has no password and must not be exposed outside the cluster")
        return container, port

    def test_tensorboard_has_a_service(self) -> None:
        documents = objects(tensorboard=True, model_checkpoint_dir="/m")
        container, port = self.behind_service(documents, "tf-learning-tensorboard")
        self.assertIn(f"--port={port}", container["args"])
        self.assertIn("--logdir=/m", container["args"])

    def test_the_evaluator_writes_beside_the_models_and_reads_the_data(self) -> None:
        given: dict[str, Any] = {"evaluator": True, "data_pvc_name": "data", "data_dir": "/d", "model_checkpoint_dir": "/m"}
        container = self.container("Job", "evaluator", evaluator_args=["--monitor", "accuracy"], **given)
        self.assertEqual(container["command"] + container["args"],
                         ["lockstep", "evaluate", "--follow", "/m", "--data-dir", "/d", "--monitor", "accuracy"])
        read_only = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
        self.assertEqual(read_only, {"/m": False, "/d": True, "/tmp": False})

    def test_serving_has_a_service_and_is_ready_with_its_first_model(self) -> None:
        documents = objects(serve=True, model_checkpoint_dir="/m")
        container, port = self.behind_service(documents, "tf-learning-serve")
        self.assertEqual(container["command"] + container["args"],
                         ["lockstep", "serve", "--model", "/m", "--model-name", "tf-learning", "--rest-api-port", "8501"])
        self.assertEqual(container["readinessProbe"]["httpGet"], {"path": "/healthz", "port": port})
        self.assertEqual(container["readinessProbe"]["timeoutSeconds"], 5)
        self.assertNotIn("httpGet", container["livenessProbe"], "a server without a model yet must not be restarted")

    def test_requests_and_limits_are_rendered(self) -> None:
        given = {"cpu_request": "1", "cpu_limit": "2", "memory_request": "1Gi", "memory_limit": "3Gi"}
        resources = trainer(workers(objects(deploy=True, **given))[1])["resources"]
        self.assertEqual(resources["requests"], {"cpu": "1", "memory": "1Gi"})
        self.assertEqual(resources["limits"], {"cpu": "2", "memory": "3Gi"})
        resources = trainer(workers(objects(deploy=True, ephemeral_storage="2Gi"))[1])["resources"]
        self.assertEqual(resources["requests"]["ephemeral-storage"], "2Gi")
        self.assertEqual(resources["limits"], {"ephemeral-storage": "2Gi"})


class Program(support.TestCase):
    def test_the_launcher_is_process_1_and_runs_the_script(self) -> None:
        for script in ("keras_mnist", "keras_mnist.py"):
            container = trainer(
                workers(objects(deploy=True, script=script, cmdline_args=["--seed", "{{7}} $x"]))[0]
            )
            self.assertEqual(container["command"], ["lockstep", "launch", "--"])
            self.assertEqual(container["args"], ["keras_mnist", "--seed", "{{7}} $x"])

    def test_a_command_replaces_the_script(self) -> None:
        given = {"command": ["python", "/scripts/train.py"], "script_config_map": "mine", "cmdline_args": ["--x"]}
        for job in workers(objects(deploy=True, **given)):
            self.assertEqual(trainer(job)["command"], ["lockstep", "launch", "--"])
            self.assertEqual(trainer(job)["args"], ["python", "/scripts/train.py", "--x"])
            self.assertIn({"name": "scripts", "configMap": {"name": "mine"}}, pod_of(job)["volumes"])
            self.assertEqual(mounts(trainer(job))["scripts"], "/scripts")

    def test_parameters_become_environment_variables(self) -> None:
        odd = "'a' \"b\" \\n #: - {x} & <y> ü"
        given = {"epochs": 3, "batch_size": 64, "env": {"ODD": odd, "LOCKSTEP_SEED": "7"}, "rendezvous_timeout": 90}
        values = environment(trainer(workers(objects(deploy=True, **given))[1]))
        for name, value in (
            ("NUM_TRAIN_EPOCH", "3"),
            ("BATCH_SIZE", "64"),
            ("ODD", odd),
            ("LOCKSTEP_SEED", "7"),
            ("LOCKSTEP_RENDEZVOUS_TIMEOUT", "90"),
            ("LOCKSTEP_RANKS_PER_WORKER", "1"),
            ("LOCKSTEP_STATUS_PORT", "8080"),
            ("LOCKSTEP_LEAVE_TIMEOUT", "110"),
            ("LOCKSTEP_JOB_NAME", "tf-learning"),
        ):
            self.assertEqual(values[name], value)
        self.assertFalse({"LOCKSTEP_MIN_WORKERS", "LOCKSTEP_REJOIN_TIMEOUT", "LOCKSTEP_DEVICE"} & set(values))
        values = environment(trainer(workers(objects(deploy=True, min_workers=1, rejoin_timeout=30))[0]))
        self.assertEqual((values["LOCKSTEP_MIN_WORKERS"], values["LOCKSTEP_REJOIN_TIMEOUT"]), ("1", "30"))

    def test_the_token_is_a_secret(self) -> None:
        token = "0123456789\"'abcdef"
        documents = objects(deploy=True, job_token=token)
        secret = support.named(documents, "Secret", "tf-learning-job-token")
        self.assertEqual(secret["stringData"], {"token": token})
        for job in workers(documents):
            self.assertEqual(environment(trainer(job))["LOCKSTEP_JOB_TOKEN_FILE"], "/run/secrets/lockstep/token")
            self.assertEqual(mounts(trainer(job))["job-token"], "/run/secrets/lockstep")
            volume = {"secretName": "tf-learning-job-token", "defaultMode": 0o440}
            self.assertIn({"name": "job-token", "secret": volume}, pod_of(job)["volumes"])
            self.assertNotIn(token, json.dumps(job))

    def test_each_rendering_has_a_token_of_its_own_unless_told_not_to(self) -> None:
        rendered = [support.render_by_script(support.TEMPLATE, "--set", "deploy=True").stdout for _ in range(2)]
        tokens = {support.named(support.load(text), "Secret", "tf-learning-job-token")["stringData"]["token"]
                  for text in rendered}
        self.assertEqual(len(tokens), 2)
        for token in tokens:
            self.assertRegex(token, "^[0-9a-f]{32}$")
        without = objects(deploy=True, job_token="")
        self.assertFalse([it for it in without if it["kind"] == "Secret"])
        for job in workers(without):
            self.assertEqual(environment(trainer(job))["LOCKSTEP_INSECURE"], "true")
            self.assertNotIn("job-token", mounts(trainer(job)))

    def test_workers_admit_each_other_on_all_ports_and_all_on_the_status_port(self) -> None:
        policy = support.named(objects(deploy=True), "NetworkPolicy", "tf-learning-workers")["spec"]
        self.assertEqual(policy["policyTypes"], ["Ingress"])  # egress stays open
        chosen = policy["podSelector"]["matchLabels"]
        for job in workers(objects(deploy=True)):
            self.assertLessEqual(chosen.items(), job["spec"]["template"]["metadata"]["labels"].items())
        members, status = policy["ingress"]
        self.assertEqual(members, {"from": [{"podSelector": {"matchLabels": chosen}}]})
        self.assertEqual(status, {"ports": [{"port": 8080, "protocol": "TCP"}]})
        closed = support.named(objects(deploy=True, status_port=0), "NetworkPolicy", "tf-learning-workers")
        self.assertEqual(len(closed["spec"]["ingress"]), 1)
        self.assertNotIn("NetworkPolicy", support.render(deploy=True, network_policy=False))

    def test_programs_accept_all_options_of_the_pods(self) -> None:
        given = {"num_gpus_per_worker": 1, "min_workers": 1, "rejoin_timeout": 9, "job_token": "x" * 16}
        container = trainer(workers(objects(deploy=True, **given))[0])
        known = support.run(support.program("lockstep"), "launch", "--help").stdout
        known += support.run(support.program("keras_mnist"), "--help").stdout
        known += "--job-token "  # only a variable: an option would be visible in the process list
        for variable in container["env"]:
            if variable["name"].startswith("LOCKSTEP_"):
                option = "--" + variable["name"].removeprefix("LOCKSTEP_").lower().replace("_", "-")
                self.assertIn(option + " ", known)

    def test_a_rendered_worker_trains(self) -> None:
        """Runs the command of a container in its environment, with the paths of this machine."""
        with tempfile.TemporaryDirectory() as directory:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port = listener.getsockname()[1]  # unlike in a pod, port 5000 may be in use here
            (job,) = workers(objects(deploy=True, job_token="", worker_replicas=1, epochs=1, port=port, status_port=0))
            container = trainer(job)
            values = environment(container) | {"MODEL_DIR": directory, "OMP_NUM_THREADS": "1"}
            bin_directory = support.build() / "bin"
            ended = support.run(
                bin_directory / container["command"][0],
                *container["command"][1:],
                bin_directory / container["args"][0],
                *container["args"][1:],
                environment=values,
            )
            self.assertEqual(ended.code, 0, ended.stderr)
            self.assertIn("Test loss:", ended.stdout)
            inspector = pod_of(objects(create_volume_inspector=True, inspect_once=True)[-1])["containers"][0]
            command = [support.program(inspector["command"][0]), *inspector["command"][1:-1], directory]
            self.assertEqual(inspector["command"][-1], "/pvcmnt")
            inspected = support.run(*command)
            self.assertEqual(inspected.code, 0, inspected.stderr)
            self.assertIn("model.h5", inspected.stdout)


class Ends(support.TestCase):
    """How a Job reacts when a worker exits."""

    def rules(self, job: support.Object) -> list[tuple[str, Any]]:
        return [
            (rule["action"], rule["onExitCodes"]["values"] if "onExitCodes" in rule else "disruption")
            for rule in job["spec"]["podFailurePolicy"]["rules"]
        ]

    def test_each_exit_code_has_its_action(self) -> None:
        for version in ("1.26", "1.29", "1.37"):
            for job in workers(objects(deploy=True, kubernetes_version=version)):
                expected = [("FailJob", [64, 65]), ("Ignore", "disruption"), ("Ignore", [75])]
                self.assertEqual(self.rules(job), expected)
                for rule in job["spec"]["podFailurePolicy"]["rules"]:
                    if "onExitCodes" in rule:
                        self.assertEqual(rule["onExitCodes"]["containerName"], trainer(job)["name"])
                replacement = "Failed" if version != "1.26" else None
                self.assertEqual(job["spec"].get("podReplacementPolicy"), replacement)

    def test_pod_failure_policy_is_omitted_for_old_clusters_and_restarting_pods(self) -> None:
        for parameters in ({"kubernetes_version": "1.25"}, {"restart": "OnFailure"}):
            for job in workers(objects(deploy=True, **parameters)):
                self.assertFalse({"podFailurePolicy", "podReplacementPolicy"} & set(job["spec"]))
                self.assertEqual(pod_of(job)["restartPolicy"], parameters.get("restart", "Never"))
                self.assertEqual(job["spec"]["backoffLimit"], 6)

    def test_limits_are_rendered(self) -> None:
        given = {"backoff_limit": 9, "grace_period": 45, "active_deadline": 60, "ttl_after_finished": 5}
        job = workers(objects(deploy=True, **given))[0]["spec"]
        self.assertEqual((job["completions"], job["parallelism"]), (1, 1))
        self.assertEqual((job["backoffLimit"], job["ttlSecondsAfterFinished"]), (9, 5))
        self.assertEqual(job["activeDeadlineSeconds"], 60)
        self.assertEqual(job["template"]["spec"]["terminationGracePeriodSeconds"], 45)
        self.assertNotIn("activeDeadlineSeconds", workers(objects(deploy=True))[0]["spec"])

    def test_the_liveness_probe_outlasts_the_rendezvous(self) -> None:
        for timeout in (1, 600, 3600):
            container = trainer(workers(objects(deploy=True, rendezvous_timeout=timeout, status_port=9000))[0])
            self.assertIn({"name": "status", "containerPort": 9000}, container["ports"])
            for probe in (container["readinessProbe"], container["livenessProbe"]):
                self.assertEqual(probe["httpGet"], {"path": "/healthz", "port": 9000})
            tolerated = container["livenessProbe"]["periodSeconds"] * container["livenessProbe"]["failureThreshold"]
            self.assertGreater(tolerated, timeout + 60)
        container = trainer(workers(objects(deploy=True, status_port=0))[0])
        self.assertFalse({"readinessProbe", "livenessProbe"} & set(container))
        self.assertNotIn("LOCKSTEP_STATUS_PORT", environment(container))

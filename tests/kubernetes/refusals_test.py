"""Parameters that cannot work are refused before any output, with a message that says what to change."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import support
from job_contradictions import CLUSTER_OPTIONS, PATH_OPTIONS, PATH_VARIABLES, TEMPLATE_OPTIONS

GOOD = {"deploy": True, "data_pvc_name": "data"}


class Values(support.TestCase):
    """One parameter alone."""

    def test_invalid_values_are_rejected(self) -> None:
        long_claim = "c" * 64
        wrong: dict[str, list[Any]] = {
            "deploy": ["False", 1, "yes"],
            "name": ["", "Tf", "1st", "a_b", "a.b", "-a", "a-", "a b", 'x"', "a\n", "ü", 7, "n" * 47],
            "worker_replicas": [0, -1, "2", 2.0, True, 10001],
            "ps_replicas": [-1, "1", 10001],
            "port": [0, 80, 1023, 65536, "5000", -1],
            "status_port": [80, 65536],
            "image": ["", "a b", "-x", 'x"y', "a\nb"],
            "script": ["", "a/b", "../x", "a b", "-x"],
            "programs": ["keras_mnist", [1], ["a/b"]],
            "kind": ["", "job", "Jobs"],
            "command": ["python", [1], ["a\nb"]],
            "script_config_map": ["A", "a b"],
            "cmdline_args": ["--epochs 3", [1], ["a\nb"]],
            "evaluator_args": ["--monitor loss", [1]],
            "serve_args": ["--max-rate 1", [1]],
            "evaluator_resources": [[], {"cpu": "1"}, {"limits": "1"}, {"limits": {"cpu": 1}}, {"requests": {"memory": "1GB"}}],
            "serve_resources": [{"requests": {"cpu": "2"}, "limits": {"cpu": "500m"}}],
            "serve_model": ["/export", "a/../b", "a b", 1],
            "epochs": [-1, "3"],
            "batch_size": [-1],
            "env": [{"A-B": "1"}, {"A": 1}, ["A=1"], {"1A": "x"}],
            "secret_env": [{"A": "secret"}, {"A": "s/k/x"}, {"1A": "s/k"}, {"A": "S/k"}, ["A=s/k"]],
            "secret_volumes": [{"s": "relative"}, {"S": "/a"}, {"s": 1}, {"s": "/"}, ["s"]],
            "checkpoint_pvc_name": ["", "Pvc", "a_b", "-a", long_claim],
            "data_pvc_name": ["Pvc", "a_b", "a-", long_claim],
            "model_checkpoint_dir": ["", "pvcmnt", "/", "/a/../b", "/a/", "/a b", "/a:b", "/./a", "//a"],
            "data_dir": ["data", "/", "/a/.."],
            "checkpoint_access_mode": ["", "RWO", "ReadOnlyMany"],
            "data_access_mode": ["", "readwritemany"],
            "storage_size": ["", "10 G", "ten", "-1G", "0", "10GB"],
            "data_storage_size": ["", "1GB"],
            "storage_class": ["A", "a b", "-a"],
            "cpu_request": ["", "-1", "1 cpu"],
            "cpu_limit": ["x"],
            "memory_request": ["", "1GB"],
            "memory_limit": ["1gb"],
            "shm_size": ["", "1g"],
            "ephemeral_storage": ["1GB"],
            "affinity": ["", "packed"],
            "queue": ["A", "a_b"],
            "unreachable_after": [0, "60"],
            "min_available": [-1],
            "num_gpus_per_worker": [-1, "1", 65],
            "ranks_per_worker": [-1],
            "job_token": ["short", "has blanks in its midst", "line\nline line line line"],
            "restart": ["Always", "never", ""],
            "backoff_limit": [-1, "6"],
            "rendezvous_timeout": [0, -1, "600"],
            "min_workers": [-1],
            "rejoin_timeout": [-1],
            "grace_period": [0, "2m"],
            "active_deadline": [-1],
            "ttl_after_finished": [-1],
            "kubernetes_version": ["1.20", "1", "2.0", "v1.29", "1.29.3", 1.29, ""],
            "image_pull_policy": ["Sometimes"],
            "image_pull_secrets": ["registry", ["A"]],
            "node_selector": [{"a": 1}, ["a=b"]],
            "tolerations": [{"key": "a"}, ["a"], [{"kye": "a"}]],
            "runtime_class": ["A"],
            "run_as_user": [-1, "1000"],
            "data_set": ["cifar", ""],
            "data_mirror": ["mirror.example", "ftp://x/y", "http://a b"],
            "tensorboard_image": [""],
        }
        tried = set(wrong) | {"create_pvc_checkpoint", "create_volume_inspector", "inspect_once"}
        self.assertEqual(set(support.defaults()) - tried, {"create_pvc_data", "evaluator", "fetch_data", "network_policy", "serve", "tensorboard"})
        for name, values in wrong.items():
            for value in values:
                with self.subTest(name=name, value=value):
                    message = self.assert_refused(name, **(GOOD | {name: value}))
                    self.assertNotIn("Traceback", message)

    def test_boundary_values_are_accepted(self) -> None:
        right: dict[str, list[Any]] = {
            "name": ["a", "null", "true", "n" * 46],
            "worker_replicas": [1, 12],
            "port": [1024, 65535],
            "checkpoint_pvc_name": ["1", "a.b-c", "c" * 63],
            "model_checkpoint_dir": ["/a", "/mnt/models.d/x_y", "/tmpfs", "/library"],
            "storage_size": ["1", "0.5Gi", "500M"],
            "cpu_request": ["1", "0.1", "100m"],
            "script": ["keras_mnist.py", "custom_training_mnist"],
            "kubernetes_version": ["1.21", "1.99"],
            "job_token": ["0123456789abcdef", "\"quotes'and{{braces}}"],
        }
        for name, values in right.items():
            for value in values:
                with self.subTest(name=name, value=value):
                    support.objects(**(GOOD | {name: value}))

    def test_all_invalid_values_are_reported_at_once(self) -> None:
        message = self.assert_refused(name="A", port=1, worker_replicas=0)
        self.assertEqual(len(message.splitlines()), 3)


class Contradictions(support.TestCase):
    """Values that are valid alone but not together. The message must say what to change."""

    def test_switches(self) -> None:
        self.assert_refused(
            "ReadWriteOnce", "set create_volume_inspector to False", deploy=True, create_volume_inspector=True
        )
        support.objects(deploy=True, create_volume_inspector=True, checkpoint_access_mode="ReadWriteMany")
        self.assert_refused(
            "set deploy to False", "kubectl wait", deploy=True, fetch_data=True, data_pvc_name="data"
        )
        self.assert_refused("data_pvc_name is empty", fetch_data=True)
        self.assert_refused("data_pvc_name is empty", create_pvc_data=True)
        self.assert_refused("create_volume_inspector", inspect_once=True)
        self.assert_refused("creates no objects", create_pvc_checkpoint=False)

    def test_volumes(self) -> None:
        once = {"checkpoint_access_mode": "ReadWriteOncePod"}
        self.assert_refused("all but one", deploy=True, tensorboard=True, **once)
        self.assert_refused("ReadWriteOnce", kubernetes_version="1.26", **once)
        self.assert_refused("use two claims", deploy=True, data_pvc_name="pvc-demo")
        self.assert_refused("data_dir is empty", deploy=True, data_pvc_name="data", data_dir="")
        self.assert_refused("read-only", deploy=True, data_pvc_name="data", model_checkpoint_dir="/data")
        self.assert_refused("read-only", deploy=True, data_pvc_name="data", model_checkpoint_dir="/data/models")
        for path in ("/tmp", "/dev/shm", "/usr/local", "/etc", "/proc/1"):
            with self.subTest(path=path):
                self.assert_refused("another path", model_checkpoint_dir=path)
                self.assert_refused("another path", data_dir=path)

    def test_program(self) -> None:
        self.assert_refused("keras_mnist, custom_training_mnist", 'add "mine"', deploy=True, script="mine.py")
        support.objects(deploy=True, script="mine.py", programs=["mine"])
        self.assert_refused('"train"', deploy=True, script="lockstep")
        support.objects(deploy=True, script="lockstep", cmdline_args=["train", "--model", "/data/model.keras"])
        for variable, parameter in (("TF_CONFIG", "worker_replicas"), ("BATCH_SIZE", "batch_size")):
            self.assert_refused(f"use {parameter} instead", deploy=True, env={variable: "1"})
        for variable in ("LOCKSTEP_JOB_ID", "LOCKSTEP_CONTROL_FD", "PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_SIZE"):
            self.assert_refused("which launchers set for their trainers: leave it out", deploy=True, env={variable: "1"})

    def test_paths_outside_of_the_volumes(self) -> None:
        for parameter, volumes in PATH_OPTIONS.items():
            for option, volume in volumes.items():
                inside = support.defaults()[volume]
                for path in ("/tmp/b", inside + "2", inside + "/../b", "b"):
                    for arguments in ([option, path], [f"{option}={path}"]):
                        with self.subTest(arguments=arguments):
                            sentence = f"{parameter} has {option} {path}, outside of the volume at {volume}"
                            self.assert_refused(sentence, f"use {inside} or", deploy=True, **{parameter: arguments})
                self.assert_refused("outside of the volume", deploy=True, **{parameter: [option]})
                for path in (inside, inside + "/", inside + "/b"):
                    support.objects(deploy=True, **{parameter: [f"{option}={path}"]})

    def test_paths_in_variables(self) -> None:
        self.assertEqual(set(PATH_VARIABLES), {"LOCKSTEP_CSV_LOG", "LOCKSTEP_TENSORBOARD_DIR"})
        for variable, volume in PATH_VARIABLES.items():
            inside = support.defaults()[volume]
            for path in ("/tmp/b", inside + "2", inside + "/../b", "b"):
                with self.subTest(variable=variable, path=path):
                    sentence = f"env has {variable} {path}, outside of the volume at {volume}"
                    self.assert_refused(sentence, f"use {inside} or", deploy=True, env={variable: path})
            for path in (inside, inside + "/b", ""):
                support.objects(deploy=True, env={variable: path})
            secret = {variable: "s/k"}
            self.assert_refused(f"secret_env has {variable}", "set it in env", deploy=True, secret_env=secret)

    def test_options_of_the_cluster(self) -> None:
        remedy = "use worker_replicas and ps_replicas instead"
        self.assertEqual({TEMPLATE_OPTIONS["cmdline_args"].get(option) for option in CLUSTER_OPTIONS}, {remedy})
        self.assertEqual(len(CLUSTER_OPTIONS), 5)
        arguments = ["--job_name=worker", "--task_index=0", "--worker_hosts=a:1"]
        message = self.assert_refused(remedy, deploy=True, cmdline_args=arguments)
        self.assertEqual(message.count(remedy), 3)

    def test_options_of_the_template(self) -> None:
        for parameter, remedies in TEMPLATE_OPTIONS.items():
            for option, remedy in remedies.items():
                for arguments in ([option, "9999"], [f"{option}=9999"]):
                    self.assert_refused(f"{parameter} has {option}", f"sets: {remedy}", **{parameter: arguments})
        support.objects(serve_args=["--max-rate", "--model-size"], evaluator_args=["--follow-timeout", "60"])

    def test_the_evaluator_and_the_server_find_the_job(self) -> None:
        evaluator = {"evaluator": True, "data_pvc_name": "data"}
        model_dir = "--model-dir=/pvcmnt/m"
        for arguments in (["--model-dir", "/pvcmnt/m"], [model_dir], ["--model-dir=/pvcmnt", model_dir]):
            with self.subTest(arguments=arguments):
                self.assert_refused("the evaluator follows /pvcmnt: omit", cmdline_args=arguments, **evaluator)
                self.assert_refused("takes models from /pvcmnt: set serve_model", cmdline_args=arguments, serve=True)
                other = {"serve": True, "serve_model": "export/best"}
                beside = other | {"evaluator": True, "data_pvc_name": "d"}
                self.assert_refused('add "--export", "best" to evaluator_args', **beside, evaluator_args=["--export", "final"])
                support.objects(**beside, evaluator_args=["--export=best,final"])
                self.assert_refused("takes models from /pvcmnt/export/best", cmdline_args=arguments, **other)
                support.objects(cmdline_args=arguments, serve=True, serve_model="m/export/best")
        support.objects(cmdline_args=["--model-dir", "/pvcmnt/"], serve=True, **evaluator)
        backups = ["--backup-dir", "/pvcmnt/b"]
        remedy = 'add "--follow-backups", "/pvcmnt/b" to evaluator_args'
        self.assert_refused(remedy, cmdline_args=backups, **evaluator)
        self.assert_refused(remedy, cmdline_args=backups, evaluator_args=["--follow-backups=/pvcmnt/c"], **evaluator)
        support.objects(cmdline_args=backups, evaluator_args=["--follow-backups", "/pvcmnt/b/"], **evaluator)
        support.objects(cmdline_args=["--backup-dir=/pvcmnt/backup"], **evaluator)
        support.objects(evaluator_args=["--follow-backups", "/pvcmnt/b"], **evaluator)

    def test_kinds(self) -> None:
        for kind in ("tfjob", "mpijob"):
            self.assert_refused("set restart to OnFailure", deploy=True, kind=kind)
            support.objects(deploy=True, kind=kind, restart="OnFailure")
        for kind in ("indexed-job", "trainjob"):
            self.assert_refused("set checkpoint_access_mode to ReadWriteMany", "affinity to pack", deploy=True, kind=kind)
            support.objects(deploy=True, kind=kind, checkpoint_access_mode="ReadWriteMany")
            support.objects(deploy=True, kind=kind, affinity="pack")
            support.objects(deploy=True, kind=kind, worker_replicas=1)
            once = {"checkpoint_access_mode": "ReadWriteOncePod", "affinity": "pack"}
            self.assert_refused("ReadWriteOncePod", deploy=True, kind=kind, **once)
        self.assert_refused("set kind to jobs", deploy=True, kind="jobset", kubernetes_version="1.23")
        self.assert_refused("shorten it by 1", deploy=True, kind="jobset", name="n" * 46, worker_replicas=11)
        support.objects(deploy=True, kind="jobset", name="n" * 45, worker_replicas=11)
        self.assert_refused("set kind to jobset", deploy=True, queue="team")
        support.objects(deploy=True, queue="team", kind="jobset")
        support.objects(deploy=True, queue="team", worker_replicas=1)

    def test_commands(self) -> None:
        python = {"command": ["python", "/scripts/train.py"], "script_config_map": "scripts"}
        support.objects(deploy=True, **python)
        self.assert_refused("set it to what runs one of the files", deploy=True, script_config_map="scripts")
        for command in (["lockstep", "launch", "--", "keras_mnist"], ["mpirun", "keras_mnist"]):
            self.assert_refused("workers run lockstep launch already", deploy=True, command=command)
        support.objects(deploy=True, command=["lockstep", "train", "--model", "/data/model.keras"])
        self.assert_refused("/pvcmnt", deploy=True, command=["python", "x.py", "--model-dir", "/models"])

    def test_secrets(self) -> None:
        self.assert_refused("both have A", deploy=True, env={"A": "1"}, secret_env={"A": "s/k"})
        self.assert_refused("use job_token instead", deploy=True, secret_env={"LOCKSTEP_JOB_TOKEN": "s/k"})
        for variable in ("CLUSTER_CONFIG", "POD_NAME", "LOCKSTEP_MODEL_DIR", "PMIX_RANK"):
            self.assert_refused(f"secret_env has {variable}", deploy=True, secret_env={variable: "s/k"})
            self.assert_refused(f"env has {variable}", deploy=True, env={variable: "1"})
        for path in ("/pvcmnt", "/pvcmnt/secret", "/run/secrets", "/scripts", "/data"):
            self.assert_refused("use another path", deploy=True, secret_volumes={"s": path})
        self.assert_refused("use another path", deploy=True, secret_volumes={"s": "/a", "t": "/a/b"})

    def test_parameter_servers(self) -> None:
        for kind in ("indexed-job", "trainjob", "mpijob"):
            self.assert_refused("set kind to jobs or jobset or tfjob", deploy=True, kind=kind, ps_replicas=1)
        for other in ("num_gpus_per_worker", "ranks_per_worker"):
            self.assert_refused("each worker is one trainer", deploy=True, ps_replicas=1, **{other: 2})
        self.assert_refused("all workers are needed", ps_replicas=2, min_workers=1)
        python = {"command": ["python", "/scripts/train.py"], "script_config_map": "s"}
        self.assert_refused("programs in Python do not use parameter servers", deploy=True, ps_replicas=2, **python)
        self.assert_refused("use ps_replicas instead", env={"LOCKSTEP_STRATEGY": "parameter-server"})
        self.assert_refused("set kind to jobset", deploy=True, worker_replicas=1, ps_replicas=1, queue="team")

    def test_sizes(self) -> None:
        taint = "node.kubernetes.io/unreachable"
        self.assert_refused("use unreachable_after instead", tolerations=[{"key": taint, "operator": "Exists"}])
        self.assert_refused("min_available", min_available=3)
        self.assert_refused("two ports", port=8080)
        self.assert_refused("to the same number", num_gpus_per_worker=2, ranks_per_worker=1)
        self.assert_refused("min_workers", min_workers=3)
        self.assert_refused("min_workers", rejoin_timeout=60)
        self.assert_refused("at least 4", batch_size=3, ranks_per_worker=2)
        self.assert_refused("raise the limit", cpu_request="2", cpu_limit="1500m")
        self.assert_refused("raise the limit", memory_request="1Gi", memory_limit="1G")
        self.assert_refused("raise memory_limit", memory_limit="1Gi", ranks_per_worker=2)
        self.assert_refused("shorten it by 1", name="n" * 47)


class CommandLine(support.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def file(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        return path

    def assert_ends(self, code: int, *expected: str, arguments: tuple[str | Path, ...]) -> None:
        ended = support.render_by_script(*arguments)
        self.assertEqual((ended.code, ended.stdout), (code, ""), ended.stderr)
        self.assertNotIn("Traceback", ended.stderr)
        for text in expected:
            self.assertIn(text, ended.stderr)
        for line in ended.stderr.splitlines():
            self.assertTrue(line.startswith("render_template.py: "), line)

    def test_usage_errors(self) -> None:
        template = support.TEMPLATE
        self.assert_ends(64, "--help", arguments=())
        self.assert_ends(64, "--help", arguments=(template, "--no-such-option"))
        self.assert_ends(74, "No such file", arguments=(self.directory / "absent",))
        self.assert_ends(74, "directory", arguments=(self.directory,))
        self.assert_ends(74, "No such file", arguments=(template, "--values", self.directory / "absent"))
        self.assert_ends(64, "did you mean worker_replicas?", arguments=(template, "--set", "worker_replica=4"))
        self.assert_ends(64, "NAME=VALUE", arguments=(template, "--set", "deploy"))
        self.assert_ends(64, "True or False", arguments=(template, "--set", "deploy=maybe"))
        self.assert_ends(64, "YAML", arguments=(template, "--set", "cmdline_args=[a"))
        self.assert_ends(64, "whole number", arguments=(template, "--set", "worker_replicas=two"))
        for text in ("just a text", "- a\n- b\n", "deploy: [", "unknown: 1\n", "kubernetes_version: 1.30\n"):
            with self.subTest(text=text):
                self.assert_ends(64, arguments=(template, "--values", self.file("values.yaml", text)))
        for content in (b"\xff\xfe", b"{% if %}", b"{{ unclosed"):
            with self.subTest(content=content):
                path = self.directory / "wrong"
                path.write_bytes(content)
                self.assert_ends(64, arguments=(path,))

    def test_values_and_settings(self) -> None:
        values = self.file("values.yaml", "deploy: true\nname: from-file\nworker_replicas: 3\nenv: {A: 'x'}\n")
        ended = support.render_by_script(
            support.TEMPLATE, "--values", values, "--set", "name=n123", "--set", "worker_replicas=1"
        )
        self.assertEqual((ended.code, ended.stderr), (0, ""))
        jobs = support.workers(support.load(ended.stdout))
        self.assertEqual([job["metadata"]["name"] for job in jobs], ["n123-worker-0"])
        self.assertEqual(support.environment(support.trainer(jobs[0]))["A"], "x")
        more = ("--set", 'cmdline_args=["--seed", "7"]', "--set", "storage_size=5", "--set", "deploy=TRUE")
        ended = support.render_by_script(support.TEMPLATE, *more)
        self.assertEqual(ended.code, 0, ended.stderr)
        documents = support.load(ended.stdout)
        self.assertEqual(support.trainer(support.workers(documents)[0])["args"], ["keras_mnist", "--seed", "7"])
        claim = support.named(documents, "PersistentVolumeClaim", "pvc-demo")
        self.assertEqual(claim["spec"]["resources"]["requests"]["storage"], "5")

    def test_missing_misspelled_and_repeated_parameters_of_an_edited_template(self) -> None:
        text = support.edited()
        lacking = "".join(line for line in text.splitlines(True) if "set port =" not in line)
        self.assert_ends(64, "needs port", arguments=(self.file("lacking", lacking),))
        misspelt = text.replace("set port =", "set prot =")
        self.assert_ends(64, "needs port", "sets prot", arguments=(self.file("misspelt", misspelt),))
        twice = text.replace("{%- set port =", "{%- set port = 6000 -%}{%- set port =")
        self.assert_ends(64, "both set port", arguments=(self.file("twice", twice),))
        quoted = support.edited(deploy='"False"')
        self.assert_ends(64, 'deploy is "False"', "without quotes", arguments=(self.file("quoted", quoted),))
        comma = support.edited(cmdline_args='("--seed", "7")')
        self.assert_ends(64, "cmdline_args", arguments=(self.file("tuple", comma),))

    def test_other_templates(self) -> None:
        """Templates with other parameters, such as the TensorFlow ecosystem's."""
        own = "{%- set worker_replicas = 2 -%}\n{%- set deploy = False -%}\n\n{% if deploy %}\nkind: Never\n{% endif %}"
        for_each = "{% for i in range(worker_replicas) %}kind: Pod\nmetadata: {name: p-{{ i }}}\n---\n{% endfor %}"
        ended = support.render_by_script(self.file("own", own + for_each), "--set", "worker_replicas=3")
        self.assertEqual(ended.code, 64, "a template that creates no objects must be refused")
        ended = support.render_by_script(self.file("own", own.replace("deploy", "go") + for_each))
        self.assertEqual((ended.code, ended.stderr), (0, ""))
        self.assertEqual(len(support.load(ended.stdout)), 2)
        same = for_each.replace("p-{{ i }}", "p").replace("worker_replicas", "2")
        self.assert_ends(64, "2 objects", "Pod p", arguments=(self.file("same", same),))
        self.assert_ends(64, "kind or a name", arguments=(self.file("nameless", "kind: Pod"),))
        self.assert_ends(64, "not valid YAML", arguments=(self.file("no-yaml", "{{ '{' }}"),))

    def test_computed_parameters(self) -> None:
        path = self.file("computed", support.edited(image='"registry.example/" ~ name ~ ":v1"', deploy="1 == 1"))
        for settings, image in (
            ((), "registry.example/tf-learning:v1"),
            (("--set", "name=mine"), "registry.example/mine:v1"),
            (("--set", "image=own:v2"), "own:v2"),
        ):
            ended = support.render_by_script(path, *settings)
            self.assertEqual((ended.code, ended.stderr), (0, ""))
            job = support.workers(support.load(ended.stdout))[0]
            self.assertEqual(support.trainer(job)["image"], image)
        path = self.file("computed", support.edited(image='"a b" ~ name'))
        self.assert_ends(64, 'image is "a btf-learning"', arguments=(path,))
        path = self.file("computed", support.edited(port="5000 + name"))
        self.assert_ends(64, "cannot be computed", arguments=(path,))
        path = self.file(
            "later", "{% set a = 1 %}{% if a %}{% endif %}{% set a = a + 1 %}kind: X{{ a }}\nmetadata: {name: b}"
        )
        self.assertIn("kind: X2", support.render_by_script(path).stdout)
        self.assert_ends(64, "cannot be rendered", arguments=(self.file("wrong", "{{ 1 + 'a' }}"),))

    def test_a_closed_pipe_does_not_crash(self) -> None:
        command = f"{support.SCRIPT} {support.TEMPLATE} --set deploy=True --set worker_replicas=500 | head -n 1"
        ended = support.run("bash", "-c", command)
        self.assertEqual(ended.stderr, "")

    def test_missing_packages_are_named(self) -> None:
        (self.directory / "jinja2.py").write_text("raise ImportError(name='jinja2')", encoding="utf-8")
        ended = support.run(
            sys.executable, support.SCRIPT, support.TEMPLATE, environment={"PYTHONPATH": str(self.directory)}
        )
        self.assertEqual((ended.code, ended.stdout), (64, ""))
        self.assertIn("python3-jinja2", ended.stderr)

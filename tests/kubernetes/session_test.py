"""The session of the TensorFlow ecosystem's README (copy the template, edit it, create the claim, the job and the
inspector in turn) and the sessions of docs/kubernetes.md and docs/walkthrough.md, command by command. A fake kubectl
records created objects. As a cluster does, it refuses those that already exist, and names and labels of no object."""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import support

KUBECTL = f"""#!{sys.executable}
import pathlib, re, sys, yaml
state, labelled = (pathlib.Path(__file__).with_name(name) for name in ("state", "labels"))
known = set(state.read_text().split()) if state.exists() else set()
labels = [set(line.split()) for line in labelled.read_text().splitlines()] if labelled.exists() else []
verb, code = sys.argv[1], 0
for word, following in zip(sys.argv[2:], [*sys.argv[3:], ""]):
    if word == "--":
        break
    if re.fullmatch("(deployment|job|pod|service)/.*", word) and word not in known:
        sys.exit("Error from server (NotFound): " + word)
    if word == "-l" and not any(set(following.split(",")) <= each for each in labels):
        sys.exit("error: no matching resources found for " + following)
if verb in ("create", "delete") and "-" in sys.argv:
    documents = [it for it in yaml.safe_load_all(sys.stdin) if it]
    if not documents:
        sys.exit("error: no objects passed to " + verb)
    for it in documents:
        name = it["kind"].lower() + "/" + it["metadata"]["name"]
        if (name in known) == (verb == "create"):
            print("Error from server: " + name, file=sys.stderr)
            code = 1
        else:
            known ^= {{name}}
            print(name, verb + "d")
            template = it.get("spec", {{}}).get("template", {{}}).get("metadata", {{}})
            for each in (it["metadata"], template):
                labels.append({{k + "=" + v for k, v in each.get("labels", {{}}).items()}})
elif verb not in ("create", "delete", "get", "describe", "logs", "wait", "exec", "port-forward", "cp", "config"):
    sys.exit("error: unknown command " + verb)
state.write_text(" ".join(sorted(known)))
labelled.write_text("\\n".join(" ".join(sorted(each)) for each in labels))
sys.exit(code)
"""


class Session(support.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        (self.directory / "bin").mkdir()
        kubectl = self.directory / "bin" / "kubectl"
        kubectl.write_text(KUBECTL, encoding="utf-8")
        kubectl.chmod(0o755)
        for name in ("jinja", "scripts"):
            (self.directory / name).symlink_to(support.ROOT / name)

    def shell(self, commands: str) -> str:
        path = f"{self.directory / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        script = f"set -euo pipefail; cd {self.directory}\n{commands}"
        ended = support.run("bash", "-c", script, environment={"PATH": path})
        self.assertEqual(ended.code, 0, f"{commands}\n{ended.stdout}{ended.stderr}")
        return ended.stdout

    def edit(self, **values: str) -> None:
        (self.directory / "myjob.template.jinja").write_text(support.edited(**values), encoding="utf-8")

    def create(self) -> list[str]:
        command = "python3 scripts/render_template.py myjob.template.jinja | kubectl create -n training -f -"
        return [line.split()[0] for line in self.shell(command).splitlines()]

    def test_reference_session(self) -> None:
        self.shell("cp jinja/MultiWorkerMirroredTemplate.yaml.jinja myjob.template.jinja")
        self.shell("kubectl create namespace training")
        # The reference's names, including the program's .py.
        own = {"script": '"keras_mnist.py"', "name": '"tf-learning"', "worker_replicas": "2", "port": "5000"}
        own |= {"model_checkpoint_dir": '"/pvcmnt"', "checkpoint_pvc_name": '"pvc-demo"', "image": '"lockstep:v1"'}
        self.edit(**own, deploy="False", create_pvc_checkpoint="True")
        self.assertEqual(self.create(), ["persistentvolumeclaim/pvc-demo"])
        self.edit(**own, deploy="True", create_pvc_checkpoint="False")
        workers = [f"{kind}/tf-learning-worker-{i}" for i in range(2) for kind in ("service", "job")]
        guards = ["secret/tf-learning-job-token", "networkpolicy/tf-learning-workers"]
        created = [name.replace("networkpolicy.networking.k8s.io", "networkpolicy") for name in self.create()]
        self.assertEqual(created, [*guards, *workers])
        self.edit(**own, deploy="False", create_pvc_checkpoint="False", create_volume_inspector="True")
        self.assertEqual(self.create(), ["pod/tf-learning-volume-inspector"])
        self.edit(**own, deploy="True", create_pvc_checkpoint="False")
        self.shell("python3 scripts/render_template.py myjob.template.jinja | kubectl delete -n training -f -")

    def test_documented_session(self) -> None:
        ten_steps, rest = self.page("kubernetes").split("## Parameters")
        created = self.shell("\n".join(self.commands(ten_steps)))
        for name in ("claim/pvc-demo", "job/tf-learning-worker-1", "pod/tf-learning-volume-inspector"):
            self.assertIn(f"{name} created", created)
        left = (self.directory / "bin" / "state").read_text(encoding="utf-8")
        self.assertEqual(left, "", "the last step must delete all objects")
        created = self.shell("\n".join(self.commands(rest)))
        for name in ("claim/mnist", "job/tf-learning-fetch-data", "job/tf-learning-worker-1"):
            self.assertIn(f"{name} created", created)

    def test_walkthrough(self) -> None:
        created = self.shell("\n".join(self.commands(self.page("walkthrough"), "cluster")))
        names = [line.removesuffix(" created") for line in created.splitlines()]
        claims = ["persistentvolumeclaim/pvc-demo", "persistentvolumeclaim/mnist-data", "job/mnist-fetch-data"]
        guards = ["secret/mnist-job-token", "networkpolicy/mnist-workers"]
        workers = [f"{kind}/mnist-worker-{i}" for i in range(2) for kind in ("service", "job")]
        beside = ["job/mnist-evaluator", "service/mnist-serve", "deployment/mnist-serve"]
        self.assertEqual(names, [*claims, *guards, *workers, *beside])

    def page(self, name: str) -> str:
        return (support.ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")

    def commands(self, text: str, kind: str = "session") -> list[str]:
        return re.findall(rf"<!-- {kind} -->\n+```sh\n(.*?)```", text, re.DOTALL)

    def test_the_documentation_lists_all_parameters(self) -> None:
        text = self.page("kubernetes")
        documented = set(
            re.findall(r"`(\w+)`", "".join(line for line in text.splitlines(True) if line.startswith("| `")))
        )
        self.assertEqual(set(support.defaults()) - documented, set())

    def test_fake_kubectl_rejects_existing_and_unknown_objects(self) -> None:
        shutil.copy(support.TEMPLATE, self.directory / "myjob.template.jinja")
        self.create()
        with self.assertRaisesRegex(AssertionError, "persistentvolumeclaim/pvc-demo"):
            self.create()
        with self.assertRaisesRegex(AssertionError, r"NotFound\): job/other"):
            self.shell("kubectl logs -n training job/other")
        with self.assertRaisesRegex(AssertionError, "no matching resources found for name=other"):
            self.shell("kubectl delete pod -n training -l name=other")

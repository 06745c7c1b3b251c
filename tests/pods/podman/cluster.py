"""The parts of Kubernetes that Podman lacks: Jobs replace their pods, Services name them, volumes belong to the pod's
group, and probes run.

`podman kube play` runs the pod of the Job's template.
"""

import copy
import http.client
import re
import secrets
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from engine import NETWORK, Engine, Failed

Manifest = dict[str, Any]


@dataclass
class Pod:
    """A pod, running or ended."""

    name: str
    manifest: Manifest
    address: str
    code: int | None = None  # exit code of its only container; None while it runs
    log: str = ""
    was_ready: bool = False
    next_probe: float = 0
    failed_probes: int = 0

    @property
    def container(self) -> Manifest:
        found: Manifest = self.manifest["spec"]["containers"][0]
        return found

    @property
    def container_name(self) -> str:
        return f"{self.name}-{self.container['name']}"


@dataclass
class Job:
    manifest: Manifest
    uid: str = field(default_factory=lambda: secrets.token_hex(8))
    pods: list[Pod] = field(default_factory=list)  # the last one is current
    failures: int = 0
    state: str = "active"  # then Complete or Failed

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    def judge(self, pod: Pod) -> None:
        """Decides after a pod's end whether the Job ends or creates another pod."""
        if pod.code == 0:
            self.state = "Complete"
            return
        for rule in self.manifest["spec"].get("podFailurePolicy", {}).get("rules", []):
            codes = rule.get("onExitCodes")
            if codes and (pod.code in codes["values"]) == (codes["operator"] == "In"):
                if rule["action"] == "FailJob":
                    self.state = "Failed"
                if rule["action"] != "Count":
                    return
                break
        self.failures += 1
        if self.failures > self.manifest["spec"].get("backoffLimit", 6):
            self.state = "Failed"


def port_number(container: Manifest, port: int | str) -> int:
    """Resolves named ports of probes, which Podman 4.3 does not."""
    if isinstance(port, int):
        return port
    return int(next(each["containerPort"] for each in container["ports"] if each["name"] == port))


class Cluster:
    """apply() creates objects as kubectl does. wait() lets time pass and runs the controllers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.services: list[Manifest] = []
        self.secrets: dict[str, dict[str, str]] = {}
        self.directories: list[tempfile.TemporaryDirectory[str]] = []
        self.jobs: dict[str, Job] = {}
        self.bare_pods: dict[str, Pod] = {}

    def apply(self, manifests: str) -> None:
        documents = [document for document in yaml.safe_load_all(manifests) if document]
        for document in documents:
            kind, name = document["kind"], document["metadata"]["name"]
            if kind == "PersistentVolumeClaim":
                self._play(document)
            elif kind == "Secret":
                self.secrets[name] = document["stringData"]
            elif kind == "Service":
                self.services.append(document)
            elif kind == "Job":
                self.jobs[name] = Job(document)
            elif kind == "Deployment":
                self.bare_pods[name] = self._start(name, document["spec"]["template"])
            elif kind == "Pod":
                self.bare_pods[name] = self._start(name, document)
            elif kind == "NetworkPolicy":
                pass  # as in clusters whose network enforces none
            else:
                raise Failed(f"this fake cluster does not support the kind {kind}")
        for job in self.jobs.values():
            if not job.pods:
                self._replace(job)

    def _play(self, document: Manifest, *options: str) -> None:
        self.engine.podman("kube", "play", *options, "-", stdin=yaml.safe_dump(document))

    def _replace(self, job: Job) -> None:
        template = copy.deepcopy(job.manifest["spec"]["template"])
        template["metadata"]["labels"]["controller-uid"] = job.uid
        job.pods.append(self._start(f"{job.name}-{secrets.token_hex(3)}", template))

    def _start(self, name: str, template: Manifest) -> Pod:
        pod = copy.deepcopy(template) | {"apiVersion": "v1", "kind": "Pod"}
        pod["metadata"] = pod["metadata"] | {"name": name}
        labels = pod["metadata"].get("labels", {})
        aliases = [f"alias={service['metadata']['name']}" for service in self.services
                   if service["spec"]["selector"].items() <= labels.items()]
        for volume in pod["spec"].get("volumes", []):
            if "persistentVolumeClaim" in volume:
                self._give_to_group(volume["persistentVolumeClaim"]["claimName"], pod["spec"]["securityContext"])
        manifest = copy.deepcopy(pod)
        for volume in manifest["spec"].get("volumes", []):
            if "secret" in volume:
                volume["hostPath"] = {"path": self._files_of(volume.pop("secret")), "type": "Directory"}
        for container in manifest["spec"]["containers"]:
            container.pop("ports", None)  # Podman 4.3 would publish them on this machine
            for probe in ("readinessProbe", "livenessProbe"):  # _probe() runs them from outside the pod, as a kubelet does
                container.pop(probe, None)
            for variable in container.get("env", []):  # Podman 4.3 can read neither its secrets nor labels
                if "valueFrom" in variable:
                    variable["value"] = self._value_of(variable.pop("valueFrom"), labels)
        self._play(manifest, "--network", ":".join([NETWORK, ",".join(aliases)]).rstrip(":"))
        infra = self.engine.podman("pod", "inspect", "--format", "{{.InfraContainerID}}", name).strip()
        networks = self.engine.read("inspect", infra)[0]["NetworkSettings"]["Networks"]
        return Pod(name, pod, networks[NETWORK]["IPAddress"])

    def _files_of(self, source: Manifest) -> str:
        """A directory with the keys of a secret as files that every user can read; Podman 4.3 mounts no secrets."""
        directory = tempfile.TemporaryDirectory(prefix="lockstep_secret_")
        self.directories.append(directory)
        Path(directory.name).chmod(0o755)
        for key, value in self.secrets[source["secretName"]].items():
            (Path(directory.name) / key).write_text(value)
        return directory.name

    def _value_of(self, source: Manifest, labels: Manifest) -> str:
        label = re.fullmatch(r"metadata\.labels\['(.+)'\]", source["fieldRef"]["fieldPath"])
        assert label is not None
        return str(labels[label[1]])

    def volume(self, claim: str) -> Path:
        return Path(self.engine.podman("volume", "inspect", "--format", "{{.Mountpoint}}", claim).strip())

    def _give_to_group(self, claim: str, security: Manifest) -> None:
        if "fsGroup" in security:
            place = self.volume(claim)
            if place.stat().st_gid != security["fsGroup"]:
                place.chmod(0o2775)
                self.engine.run("chgrp", "--recursive", str(security["fsGroup"]), str(place))

    def _probe(self, pod: Pod) -> None:
        container = pod.container
        if "readinessProbe" not in container or time.monotonic() < pod.next_probe:
            return
        pod.next_probe = time.monotonic() + 1

        def answers(probe: Manifest) -> bool:
            get = probe["httpGet"]
            try:
                status, _ = self.request(pod, port_number(container, get["port"]), "GET", get["path"])
            except OSError:
                return False
            return 200 <= status < 400

        pod.was_ready = pod.was_ready or answers(container["readinessProbe"])
        if "livenessProbe" in container:
            pod.failed_probes = 0 if answers(container["livenessProbe"]) else pod.failed_probes + 1

    def request(self, pod: Pod, port: int, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        """Speaks HTTP with a pod. Raises OSError if it does not answer."""
        connection = http.client.HTTPConnection(pod.address, port, timeout=2 if body is None else 20)
        try:
            connection.request(method, path, body)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def _look(self, pod: Pod, seen: dict[str, Manifest]) -> bool:
        """Returns whether the pod has ended. If so, saves its log and exit code and removes it."""
        state = seen.get(pod.container_name)
        if state is not None and state["State"] in ("running", "created", "configured", "initialized", "stopping"):
            self._probe(pod)
            return False
        pod.log = self.log(pod)
        pod.code = state["ExitCode"] if state is not None else 137
        self.engine.podman("pod", "rm", "--force", "--time", "0", pod.name)
        return True

    def step(self) -> None:
        """Checks all pods once and reacts."""
        seen = {name: container for container in self.engine.read("ps", "--all", "--format", "json")
                for name in container["Names"]}
        for job in self.jobs.values():
            if job.state == "active" and self._look(job.pods[-1], seen):
                job.judge(job.pods[-1])
                if job.state == "active":
                    self._replace(job)

    def wait(self, until: Callable[[], bool], limit: float) -> None:
        deadline = time.monotonic() + limit
        while not until():
            if time.monotonic() > deadline:
                raise Failed(f"timed out after {limit} s\n{self.story()}")
            self.step()
            time.sleep(0.2)

    def finish(self, limit: float = 300) -> None:
        """Waits until all Jobs have ended. Raises Failed unless all have succeeded."""
        self.wait(lambda: all(job.state != "active" for job in self.jobs.values()), limit)
        if any(job.state != "Complete" for job in self.jobs.values()):
            raise Failed(f"not all Jobs succeeded\n{self.story()}")

    def stop(self, pod: Pod, *, force: bool = False) -> None:
        """kubectl delete pod: sends SIGTERM with a grace period, or kills the pod at once, as when a node is lost."""
        grace = 0 if force else pod.manifest["spec"].get("terminationGracePeriodSeconds", 30)
        self.engine.run("podman", "pod", "kill" if force else "stop", *([] if force else ["--time", str(grace)]), pod.name,
                        limit=grace + 60)

    def exec(self, pod: Pod, *command: str) -> str:
        return self.engine.podman("exec", pod.container_name, *command)

    def log(self, pod: Pod) -> str:
        if pod.code is not None:
            return pod.log
        ended = self.engine.run("podman", "logs", pod.container_name)
        return ended.stdout + ended.stderr

    def story(self) -> str:
        """All output, to find the cause of a failure."""
        lines = []
        for job in self.jobs.values():
            lines.append(f"=== Job {job.name}: {job.state}, {job.failures} failures")
            for pod in job.pods:
                lines.append(f"--- pod {pod.name} ({pod.address}), exit code {pod.code}\n{self.log(pod)}")
        return "\n".join(lines)

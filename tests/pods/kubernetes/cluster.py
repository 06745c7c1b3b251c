"""A namespace of a real cluster, by kubectl: creates rendered objects, waits for them, and tells what happened."""

import json
import secrets
import subprocess
import time
import unittest
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import manifests

Object = dict[str, Any]

NAME, CLAIM, MOUNTED = "tf-learning", "pvc-demo", "/pvcmnt"


@dataclass(frozen=True)
class Settings:
    """What run.py was given."""

    image: str
    storage_class: str = ""
    new_volume: Sequence[str] = ()
    may_drain: bool = False


settings: Settings


def seconds(stamp: str) -> float:
    """Of a time stamp of Kubernetes, since 1970."""
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


@dataclass
class Cluster:
    namespace: str = field(default_factory=lambda: f"lockstep-test-{secrets.token_hex(4)}")
    volumes: int = 0

    def kubectl(self, *arguments: str, given: str | bytes = "", check: bool = True) -> str:
        """The output. Raises AssertionError with its message if it fails."""
        call = ["kubectl", "--namespace", self.namespace, *arguments]
        data = given.encode() if isinstance(given, str) else given
        ended = subprocess.run(call, input=data, capture_output=True, check=False, timeout=180)
        if check and ended.returncode != 0:
            raise AssertionError(f"{' '.join(call)}: exit code {ended.returncode}\n{ended.stderr.decode(errors='replace')}")
        return ended.stdout.decode(errors="replace")

    def create_namespace(self) -> None:
        self.kubectl("create", "namespace", self.namespace)

    def delete_namespace(self) -> None:
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def render(self, **parameters: object) -> str:
        fixed = {"name": NAME, "image": settings.image, "checkpoint_pvc_name": CLAIM, "create_pvc_checkpoint": False,
                 "storage_class": settings.storage_class}
        return manifests.render(**(fixed | parameters))

    def create(self, text: str) -> None:
        self.kubectl("create", "--filename", "-", given=text)

    def create_claim(self, claim: str = CLAIM, mode: str = "ReadWriteOnce") -> None:
        if settings.new_volume:
            self.volumes += 1
            name = f"{self.namespace}-{self.volumes}"
            subprocess.run([*settings.new_volume, name, "1Gi", mode], check=True, capture_output=True)
        self.create(self.render(create_pvc_checkpoint=True, checkpoint_pvc_name=claim, checkpoint_access_mode=mode,
                                storage_size="1Gi"))

    def get(self, kind: str, name: str) -> Object:
        found: Object = json.loads(self.kubectl("get", kind, name, "--output", "json"))
        return found

    def pods(self, **labels: str) -> list[Object]:
        """Oldest first."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        text = self.kubectl("get", "pods", "--selector", selector, "--output", "json")
        found: list[Object] = json.loads(text)["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def log(self, *arguments: str) -> str:
        """Of a pod or a Job; empty while there is none."""
        return self.kubectl("logs", "--tail=-1", *arguments, check=False)

    def state(self, job: str) -> str:
        """Complete, Failed, or empty while it runs."""
        conditions = self.get("job", job).get("status", {}).get("conditions", [])
        ended = [str(it["type"]) for it in conditions if it["type"] in ("Complete", "Failed") and it["status"] == "True"]
        return ended[0] if ended else ""

    def wait(self, condition: Callable[[], bool], limit: float, what: str) -> None:
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {limit:.0f} s\n{self.story()}")
            time.sleep(0.3)

    def wait_for_jobs(self, *jobs: str, limit: float = 300) -> None:
        for job in jobs:
            self.wait(lambda job=job: bool(self.state(job)), limit, f"the end of job {job}")

    def story(self) -> str:
        """Pods, events and the ends of logs."""
        told = self.kubectl("get", "pods", "--output", "wide", check=False)
        told += self.kubectl("get", "events", "--sort-by=.lastTimestamp", check=False)[-4000:]
        for pod in json.loads(self.kubectl("get", "pods", "--output", "json"))["items"]:
            name = pod["metadata"]["name"]
            told += f"\n--- {name}\n{self.kubectl('logs', '--tail=30', name, check=False)}"
        return told


class ClusterTest(unittest.TestCase):
    """Each test has a namespace of its own, with a claim for checkpoints."""

    def setUp(self) -> None:
        self.cluster = Cluster()
        self.cluster.create_namespace()
        self.addCleanup(self.cluster.delete_namespace)
        self.cluster.create_claim()

    def deploy(self, workers: int = 2, epochs: int = 12, servers: int = 0, **more: object) -> list[str]:
        """Starts a job, and returns the names of its Jobs, the chief's first."""
        options = ["--deterministic", "--steps-per-epoch", "20", "--backup-save-freq", "10", "--verbose", "2"]
        given: dict[str, object] = {"cmdline_args": options, "epochs": epochs, "batch_size": 24,
                                    "job_token": "for-these-pods-only-0123456789", "active_deadline": 600}
        self.cluster.create(self.cluster.render(deploy=True, worker_replicas=workers, ps_replicas=servers, **(given | more)))
        return [f"{NAME}-worker-{i}" for i in range(workers)] + [f"{NAME}-ps-{i}" for i in range(servers)]

    def remove(self, jobs: Sequence[str]) -> None:
        """Deletes what deploy() made."""
        self.cluster.kubectl("delete", "job,service,secret,networkpolicy", "--selector", f"name={NAME}", "--wait=true")
        self.cluster.wait(lambda: not self.cluster.pods(name=NAME), 120, f"the end of the pods of {', '.join(jobs)}")

    def assert_completed(self, jobs: Sequence[str], limit: float = 300) -> None:
        self.cluster.wait_for_jobs(*jobs, limit=limit)
        self.assertEqual({job: self.cluster.state(job) for job in jobs}, dict.fromkeys(jobs, "Complete"),
                         self.cluster.story())

    def read_checkpoints(self, *files: str) -> list[str]:
        """The text of files in the claim, read by the template's inspector after the job."""
        self.cluster.create(self.cluster.render(create_volume_inspector=True))
        inspector = f"{NAME}-volume-inspector"
        self.cluster.kubectl("wait", "--for=condition=Ready", "pod", inspector, "--timeout=120s")
        texts = [self.cluster.kubectl("exec", inspector, "--", "cat", f"{MOUNTED}/{file}") for file in files]
        self.cluster.kubectl("delete", "pod", inspector, "--grace-period=1")
        return texts

    def losses(self) -> list[dict[str, Any]]:
        return manifests.losses(json.loads(self.read_checkpoints("history.json")[0]))

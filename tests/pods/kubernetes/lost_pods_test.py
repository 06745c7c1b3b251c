"""Pods that are deleted, gracefully or by force, and a node that is drained: the job ends with the bits of an undisturbed
one, and goes on soon after Kubernetes has replaced the pod."""

import time
from collections.abc import Callable
from typing import Any

import cluster
from cluster import NAME, ClusterTest, seconds

EPOCHS = 15
# Time stamps of containers are whole seconds.
SECONDS_TO_THE_NEXT_STEP = 3 + 1


class LostPodsTest(ClusterTest):
    def progress(self) -> list[tuple[float, str]]:
        """The chief's lines with their times, of all its pods that are still there."""
        lines = []
        for pod in self.cluster.pods(name=NAME, job="worker", task="0"):
            for line in self.cluster.log("--timestamps", pod["metadata"]["name"]).splitlines():
                stamp, _, text = line.partition(" ")
                if stamp[:1].isdigit():
                    lines.append((seconds(stamp[:26] + "Z"), text))
        return lines

    def wait_for_step_after(self, moment: float) -> float:
        """When the chief resumed or finished an epoch after this time."""
        found: list[float] = []

        def has_gone_on() -> bool:
            found[:] = [at for at, text in self.progress() if at > moment and ("Resuming from" in text or "ms/step" in text)]
            return bool(found)

        self.cluster.wait(has_gone_on, 240, "a step after the loss")
        return found[0]

    def lose(self, job: str, task: str, remove: Callable[[str], object], limit: float = SECONDS_TO_THE_NEXT_STEP) -> None:
        """Removes the newest pod of a task, and checks how soon after its replacement's start training goes on."""
        victim = self.cluster.pods(name=NAME, job=job, task=task)[-1]["metadata"]["name"]
        began = time.time()
        remove(victim)

        def replacement() -> float:
            for pod in reversed(self.cluster.pods(name=NAME, job=job, task=task)):
                for status in pod["status"].get("containerStatuses", []):
                    running = status["state"].get("running")
                    if pod["metadata"]["name"] != victim and running:
                        return seconds(running["startedAt"])
            return 0

        self.cluster.wait(lambda: replacement() > 0, 240, f"a pod instead of {victim}")
        resumed = self.wait_for_step_after(replacement() - 1)
        print(f"{victim}: replaced after {replacement() - began:.1f} s, next step after {resumed - began:.1f} s")
        self.assertLess(resumed - replacement(), limit, self.cluster.story())

    def delete(self, *options: str) -> Callable[[str], object]:
        return lambda pod: self.cluster.kubectl("delete", "pod", pod, *options)

    def wait_for_epoch(self, epoch: int) -> None:
        self.cluster.wait(lambda: any(f"Epoch {epoch}/" in text for _, text in self.progress()), 120, f"epoch {epoch}")

    def deploy_long(self, servers: int = 0) -> list[str]:
        options = ["--deterministic", "--steps-per-epoch", "100", "--backup-save-freq", "50", "--verbose", "2"]
        return self.deploy(2, epochs=EPOCHS, servers=servers, batch_size=64, cmdline_args=options)

    def undisturbed(self, servers: int = 0) -> list[dict[str, Any]]:
        jobs = self.deploy_long(servers)
        self.assert_completed(jobs)
        losses = self.losses()
        self.remove(jobs)
        return losses

    def test_deleted_pods(self) -> None:
        expected = self.undisturbed()
        jobs = self.deploy_long()
        for epoch, task, options in ((2, "1", ()), (4, "0", ()), (6, "1", ("--force", "--grace-period=0"))):
            self.wait_for_epoch(epoch)
            self.lose("worker", task, self.delete(*options))
        self.assert_completed(jobs, 600)
        self.assertEqual(self.losses(), expected)

    def test_deleted_pods_of_a_job_with_a_parameter_server(self) -> None:
        expected = self.undisturbed(servers=1)
        jobs = self.deploy_long(servers=1)
        for epoch, job, task in ((2, "ps", "0"), (4, "worker", "1")):
            self.wait_for_epoch(epoch)
            self.lose(job, task, self.delete(), SECONDS_TO_THE_NEXT_STEP + 2)  # three tasks may share two cores
        self.assert_completed(jobs, 600)
        self.assertEqual(self.losses(), expected)

    def test_a_drained_node(self) -> None:
        if not cluster.settings.may_drain:
            self.skipTest("draining a node needs --drain")
        jobs = self.deploy_long()
        self.wait_for_epoch(2)
        pods = {task: self.cluster.pods(name=NAME, job="worker", task=task)[-1] for task in ("0", "1")}
        node = pods["1"]["spec"]["nodeName"]
        self.assertNotEqual(node, pods["0"]["spec"]["nodeName"], "workers are spread over nodes")
        drain = ("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s",
                 "--pod-selector", f"name={NAME}")
        try:
            self.lose("worker", "1", lambda _: self.cluster.kubectl(*drain))
        finally:
            self.cluster.kubectl("uncordon", node)
        self.assert_completed(jobs, 600)

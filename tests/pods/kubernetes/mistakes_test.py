"""Configurations that cannot work end the job at once, with a sentence in the log; so does a limit of memory."""

from cluster import NAME, ClusterTest


class MistakesTest(ClusterTest):
    def assert_failed(self, code: int, *phrases: str, limit: float = 90) -> None:
        """Asserts that the chief's Job has failed, in one pod, with this exit code."""
        chief = f"{NAME}-worker-0"
        self.cluster.wait_for_jobs(chief, limit=limit)
        self.assertEqual(self.cluster.state(chief), "Failed", self.cluster.story())
        (pod,) = self.cluster.pods(name=NAME, job="worker", task="0")
        (status,) = pod["status"]["containerStatuses"]
        self.assertEqual(status["state"]["terminated"]["exitCode"], code, self.cluster.story())
        log = self.cluster.log(pod["metadata"]["name"])
        for phrase in phrases:
            self.assertIn(phrase, log)

    def test_a_path_that_does_not_exist(self) -> None:
        self.deploy(cmdline_args=["--data-dir", "/nowhere"])
        self.assert_failed(64, "/nowhere")

    def test_a_wrong_tf_config(self) -> None:
        text = self.cluster.render(deploy=True, job_token="for-these-pods-only-0123456789", restart="Never")
        wrong = text.replace(f'"{NAME}-worker-1:5000"', f'"{NAME}-worker-1"')
        self.assertNotEqual(wrong, text)
        self.cluster.create(wrong)
        self.assert_failed(64, "TF_CONFIG's cluster.worker[1]")

    def test_a_limit_of_memory(self) -> None:
        jobs = self.deploy(memory_request="40Mi", memory_limit="40Mi", backoff_limit=1)
        self.cluster.wait_for_jobs(jobs[0], limit=240)
        self.assertEqual(self.cluster.state(jobs[0]), "Failed", self.cluster.story())
        reasons = [status["state"]["terminated"] for pod in self.cluster.pods(name=NAME, job="worker", task="0")
                   for status in pod["status"]["containerStatuses"]]
        told = "".join(self.cluster.log(pod["metadata"]["name"]) for pod in self.cluster.pods(name=NAME, job="worker"))
        is_told = "out of memory: the limit of this container is 40 MiB" in told
        self.assertTrue(is_told or all(it["reason"] == "OOMKilled" for it in reasons), f"{reasons}\n{self.cluster.story()}")

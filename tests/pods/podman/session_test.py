"""A user's session, from claim to inspection, with rendered manifests in pods of the built image; also with pods that
are lost during training."""

import json
import sys
import unittest
from contextlib import suppress
from pathlib import Path
from typing import Any

from cluster import Cluster, Job, Pod
from engine import Engine, Failed

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "programs"), str(ROOT / "tests" / "pods")]
import data_files  # noqa: E402
import manifests  # noqa: E402
from manifests import losses  # noqa: E402

NAME, CLAIM, DATA, MOUNTED = "tf-learning", "pvc-demo", "pvc-data", "/pvcmnt"
SERVED = 8501

LOOK_AROUND = """
cat /proc/1/status /proc/mounts
for place in / /usr/local/bin /run /var/tmp /tmp; do
  if touch $place/written 2>/dev/null; then echo "can write $place"; fi
done
"""

_engine: Engine
_image = ""


def use(engine: Engine, image: str) -> None:
    global _engine, _image
    _engine, _image = engine, image


def render(**parameters: object) -> str:
    return manifests.render(**(parameters | {"name": NAME, "image": _image, "checkpoint_pvc_name": CLAIM}))


class SessionTest(unittest.TestCase):
    def setUp(self) -> None:
        self.cluster = Cluster(_engine)
        self.addCleanup(self.clean)

    def clean(self) -> None:
        """kubectl delete pods,pvc --all"""
        _engine.podman("pod", "rm", "--all", "--force", "--time", "0")
        _engine.podman("volume", "rm", "--all", "--force")

    def deploy(self, workers: int, epochs: int, **more: object) -> list[Job]:
        options = ["--deterministic", "--steps-per-epoch", "20", "--backup-save-freq", "10", "--verbose", "2"]
        self.cluster.apply(render(create_pvc_checkpoint=False, deploy=True, worker_replicas=workers, epochs=epochs,
                                  cmdline_args=options, job_token="for-these-pods-only-0123456789", **more))
        return [self.cluster.jobs[f"{NAME}-worker-{index}"] for index in range(workers)]

    def wait_for_epoch(self, chief: Job, epoch: int) -> None:
        self.cluster.wait(lambda: f"Epoch {epoch}/" in self.cluster.log(chief.pods[-1]) or chief.state != "active", 180)

    def history(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.cluster.volume(CLAIM) / "history.json").read_text())
        return read

    def assert_as_the_manifest_says(self, pod: Pod) -> None:
        """Checks user, capabilities, file systems and process 1 from inside the container."""
        seen = self.cluster.exec(pod, "/bin/sh", "-c", LOOK_AROUND)
        fields = dict(line.split(":\t", 1) for line in seen.splitlines() if ":\t" in line)
        self.assertEqual(fields["Name"], "lockstep")
        self.assertEqual(set(fields["Uid"].split()) | set(fields["Gid"].split()), {"1000"})
        for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(fields[capabilities], 16), 0, capabilities)
        self.assertEqual((fields["NoNewPrivs"], fields["Seccomp"]), ("1", "2"))
        self.assertEqual([line for line in seen.splitlines() if line.startswith("can write")], ["can write /tmp"])
        is_chief = pod.name.startswith(f"{NAME}-worker-0")
        self.assertEqual(f" {MOUNTED} " in seen, is_chief, "only the chief may mount the claim")

    def inspect(self) -> None:
        """Runs both inspectors of the template."""
        self.cluster.apply(render(create_pvc_checkpoint=False, create_volume_inspector=True))
        inspector = self.cluster.bare_pods[f"{NAME}-volume-inspector"]
        report = self.cluster.exec(inspector, "lockstep", "inspect", "--check", MOUNTED)
        self.assertIn("model.h5", report)
        self.assertIn("model.h5", self.cluster.exec(inspector, "/bin/bash", "-c", f"ls {MOUNTED}"))
        with self.assertRaises(Failed, msg="the inspector must mount the claim read-only"):
            self.cluster.exec(inspector, "touch", f"{MOUNTED}/written")
        self.cluster.stop(inspector)
        self.cluster.apply(render(create_pvc_checkpoint=False, create_volume_inspector=True, inspect_once=True))
        self.cluster.finish()
        once = self.cluster.jobs[f"{NAME}-volume-inspector"]
        self.assertEqual((once.state, len(once.pods)), ("Complete", 1))
        self.assertIn("model.h5", once.pods[0].log)

    def session(self, workers: int, epochs: int) -> None:
        self.cluster.apply(render(create_pvc_checkpoint=True))
        jobs = self.deploy(workers, epochs)
        self.assertEqual(len({job.pods[0].address for job in jobs}), workers, "an address each")
        for job in jobs:
            self.assert_as_the_manifest_says(job.pods[0])
        self.cluster.finish()
        for job in jobs:
            pod = job.pods[0]
            self.assertEqual((len(job.pods), pod.code), (1, 0), self.cluster.story())
            self.assertTrue(pod.was_ready, f"{pod.name} was never ready\n{pod.log}")
            self.assertLess(pod.failed_probes, pod.container["livenessProbe"]["failureThreshold"], self.cluster.story())
        self.assertIn(f"{workers} workers", jobs[0].pods[0].log)
        self.assertEqual(len(self.history()["epochs"]), epochs)
        for file in self.cluster.volume(CLAIM).iterdir():
            self.assertEqual((file.stat().st_uid, file.stat().st_gid), (1000, 1000), file)
        self.inspect()

    def test_two_workers(self) -> None:
        self.session(2, 5)

    def test_four_workers(self) -> None:
        self.session(4, 5)

    def test_an_evaluator_and_a_server_beside_training(self) -> None:
        self.cluster.apply(render(create_pvc_checkpoint=True, create_pvc_data=True, data_pvc_name=DATA))
        data_files.write_idx(self.cluster.volume(DATA), train=2000, test=200)
        beside = {"create_pvc_checkpoint": False, "data_pvc_name": DATA, "model_checkpoint_dir": MOUNTED}
        self.cluster.apply(render(serve=True, **beside))
        self.cluster.apply(render(evaluator=True, evaluator_args=["--monitor", "accuracy", "--export", "best"], **beside))
        server = self.cluster.bare_pods[f"{NAME}-serve"]

        def health() -> int:
            with suppress(OSError):
                return self.cluster.request(server, SERVED, "GET", "/healthz")[0]
            return 0

        self.cluster.wait(lambda: health() == 503, 60)  # there is no model yet
        self.deploy(2, 5, data_pvc_name=DATA)
        self.cluster.finish()
        self.assertEqual(self.cluster.jobs[f"{NAME}-evaluator"].failures, 0, self.cluster.story())
        evaluated = json.loads((self.cluster.volume(CLAIM) / "eval" / "evaluation.json").read_text())
        last = evaluated["evaluations"][-1]
        self.assertEqual((evaluated["monitor"], last["file"], last["iteration"]), ("accuracy", "model.h5", 100))
        self.assertTrue(list((self.cluster.volume(CLAIM) / "export" / "best").glob("*/model.h5")))
        self.cluster.wait(lambda: health() == 200, 60)
        body = json.dumps({"instances": [[[0.5] * 28] * 28] * 3})
        code, reply = self.cluster.request(server, SERVED, "POST", f"/v1/models/{NAME}:predict", body)
        self.assertEqual((code, len(json.loads(reply)["predictions"])), (200, 3), reply)
        code, page = self.cluster.request(server, SERVED, "GET", "/")
        self.assertEqual((code, "<canvas" in page), (200, True))

    def lose_pod(self, lost: Job, *, force: bool) -> None:
        """Deletes a pod, as a user does or as when its node is lost. Another pod must replace it."""
        before = lost.pods[-1]
        self.cluster.stop(before, force=force)
        self.cluster.wait(lambda: lost.pods[-1] is not before or lost.state != "active", 120)
        self.assertEqual(before.code, 137 if force else 75, self.cluster.story())

    def test_replaced_pods_reach_the_same_bits(self) -> None:
        """Deletes different pods, gracefully and not. The result must have the same bits as an undisturbed job's."""
        epochs = 12
        self.cluster.apply(render(create_pvc_checkpoint=True))
        self.deploy(2, epochs)
        self.cluster.finish()
        undisturbed = losses(self.history())
        for who, index in (("chief", 0), ("another worker", 1)):
            with self.subTest(who=who):
                jobs = self.deploy(2, epochs)
                for epoch, force in ((3, False), (6, True)):
                    self.wait_for_epoch(jobs[0], epoch)
                    self.lose_pod(jobs[index], force=force)
                self.cluster.finish()
                self.assertEqual([len(job.pods) for job in jobs], [3 if job is jobs[index] else 1 for job in jobs],
                                 self.cluster.story())
                self.assertEqual(losses(self.history()), undisturbed, self.cluster.story())

    def test_wrong_options_end_the_job_at_once(self) -> None:
        self.cluster.apply(render(create_pvc_checkpoint=True))
        self.cluster.apply(render(create_pvc_checkpoint=False, deploy=True, cmdline_args=["--no-such-option"]))
        chief = self.cluster.jobs[f"{NAME}-worker-0"]
        self.cluster.wait(lambda: all(job.state != "active" for job in self.cluster.jobs.values()), 120)
        self.assertEqual((chief.state, len(chief.pods), chief.pods[0].code), ("Failed", 1, 64), self.cluster.story())

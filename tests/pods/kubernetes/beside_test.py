"""An evaluator and a server beside training."""

import http.client
import io
import json
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cluster
import data_files
from cluster import MOUNTED, NAME, ClusterTest

DATA = "pvc-data"
FILLER: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "filler"},
    "spec": {
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
        "containers": [{"name": "filler", "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": DATA}}],
    },
}


class BesideTest(ClusterTest):
    def fill_data(self) -> None:
        """Copies a data set into a claim, by a pod that mounts it."""
        self.cluster.create_claim(DATA, "ReadWriteMany")
        FILLER["spec"]["containers"][0]["image"] = cluster.settings.image
        self.cluster.create(json.dumps(FILLER))
        self.cluster.kubectl("wait", "--for=condition=Ready", "pod", "filler", "--timeout=120s")
        with tempfile.TemporaryDirectory() as made:
            data_files.write_idx(Path(made), train=2000, test=200)
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                for file in Path(made).iterdir():
                    archive.add(file, arcname=file.name)
        self.cluster.kubectl("exec", "--stdin", "filler", "--", "tar", "--extract", "--no-same-owner", "--file=-",
                             "--directory=/data", given=packed.getvalue())
        self.cluster.kubectl("delete", "pod", "filler", "--grace-period=1")

    @contextmanager
    def forwarded(self, service: str, port: int) -> Iterator[http.client.HTTPConnection]:
        """A connection to a Service, as `kubectl port-forward` makes it."""
        call = ["kubectl", "--namespace", self.cluster.namespace, "port-forward", service, f":{port}"]
        with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as forwarding:
            try:
                assert forwarding.stdout is not None
                line = forwarding.stdout.readline()
                found = re.search(r"127\.0\.0\.1:(\d+)", line)
                assert found, line
                yield http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
            finally:
                forwarding.terminate()

    def test_an_evaluator_and_a_server(self) -> None:
        self.fill_data()
        beside = {"data_pvc_name": DATA, "model_checkpoint_dir": MOUNTED}
        jobs = self.deploy(2, epochs=8, data_pvc_name=DATA)
        self.cluster.create(self.cluster.render(serve=True, **beside))
        self.cluster.create(self.cluster.render(evaluator=True, evaluator_args=["--monitor", "accuracy"], **beside))
        self.assert_completed([*jobs, f"{NAME}-evaluator"])
        self.cluster.kubectl("wait", "--for=condition=Available", f"deployment/{NAME}-serve", "--timeout=120s")
        with self.forwarded(f"service/{NAME}-serve", 8501) as connection:
            body = json.dumps({"instances": [[[0.5] * 28] * 28] * 3})
            connection.request("POST", f"/v1/models/{NAME}:predict", body)
            reply = connection.getresponse()
            predictions = json.loads(reply.read())["predictions"]
            self.assertEqual((reply.status, len(predictions)), (200, 3))
            connection.request("GET", "/")
            self.assertIn(b"<canvas", connection.getresponse().read())
        (text,) = self.read_checkpoints("eval/evaluation.json")
        evaluated = json.loads(text)
        self.assertEqual((evaluated["monitor"], evaluated["evaluations"][-1]["file"]), ("accuracy", "model.h5"))

"""Launchers report the health of their job and detect stalled training."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import launch_test
import status_port
from launch_test import EXAMPLES, children, free_ports
from support import Ended, eventually, library

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import promql  # noqa: E402

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
LONG = ("--epochs", 20, *EXAMPLES[2:])


class HealthTest(launch_test.Launched):
    def setUp(self) -> None:
        super().setUp()
        self.status: list[int] = []

    def end(self) -> list[Ended]:
        return [self.started.pop(index).end(200) for index in sorted(self.started)]  # generous, for busy machines

    def launch_with_status(self, workers: int, *options: object, **environment: str) -> None:
        ports = free_ports(2 * workers)
        self.ports, self.status = ports[:workers], ports[workers:]
        for index in range(workers):
            self.launch_one(index, *options, **environment)

    def launch_one(self, index: int, *options: object, **environment: str) -> None:
        self.launch(index, options, LOCKSTEP_STATUS_PORT=str(self.status[index]), **environment)

    def get(self, index: int, path: str) -> tuple[int, str]:
        return status_port.get(self.status[index], path)

    def health(self, index: int) -> str:
        """Returns the health line, or an empty string if the port does not answer."""
        try:
            code, text = self.get(index, "/healthz")
            return f"{code} {text}"
        except OSError:
            return ""

    def metrics(self, index: int) -> dict[str, float]:
        return status_port.metrics(self.status[index])

    def wait_for_step(self, index: int, step: int) -> None:
        """Waits for a step of the launcher's own rank."""
        name = f'lockstep_rank_step{{rank="{index}",worker="worker {index}"}}'
        self.assertTrue(eventually(lambda: self.metrics(index).get(name, 0) >= step, 60),
                        f"step {step} was not reached: {self.metrics(index)}")

    def test_a_stopped_trainer_is_detected_and_training_resumes(self) -> None:
        """SIGSTOP is detected within 5 s and named. Training resumes from the backup with the same bits."""
        whole = self.whole_run(2, *LONG)
        for rank in (0, 1):
            with self.subTest(rank=rank):
                self.model = self.scratch / f"stopped_{rank}"
                self.launch_with_status(2, *LONG, "--backup-save-freq", "10")
                self.wait_for_step(0, 3)
                os.kill(children(self.started[rank].process.pid)[rank], signal.SIGSTOP)
                began = time.monotonic()
                self.assertTrue(eventually(lambda: all(
                    "generation 1 ended" in self.started[index].stderr for index in (0, 1)), 20))
                noticed = time.monotonic() - began
                self.assertTrue(eventually(lambda: "generation 2 begins" in self.started[0].stderr, 20))
                print(f"rank {rank} stopped: noticed after {noticed:.1f} s, "
                      f"the next world after {time.monotonic() - began:.1f} s")
                for one in self.assert_ended(0):
                    self.assertRegex(one.stderr, rf"worker {rank} \(rank {rank}\): (no step for [34]|the trainer of rank .* stopped)")
                self.assertLess(noticed, 5)
                self.assert_same_model(whole)

    def test_a_trainer_stopped_before_training_is_detected(self) -> None:
        """Before the first step no step is overdue, and a trainer may be busy for minutes."""
        self.launch_with_status(2, *EXAMPLES)
        self.assertTrue(eventually(lambda: 1 in children(self.started[1].process.pid), 30))
        os.kill(children(self.started[1].process.pid)[1], signal.SIGSTOP)
        began = time.monotonic()
        self.assertTrue(eventually(lambda: "generation 1 ended" in self.started[0].stderr, 30))
        noticed = time.monotonic() - began
        print(f"stopped before training: noticed after {noticed:.1f} s")
        for one in self.assert_ended(0):
            self.assertIn("worker 1 (rank 1): the trainer of rank 1 was stopped (SIGSTOP)", one.stderr)
        self.assertLess(noticed, 6)

    def test_a_stopped_pmix_server_is_detected(self) -> None:
        """Trainers wait for it when they end."""
        whole = self.whole_run(2, *LONG)
        self.launch_with_status(2, *LONG, "--backup-save-freq", "10")
        self.wait_for_step(0, 3)
        launcher = self.started[0].process.pid
        family = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        (server,) = [pid for pid in family if b"pmix-server" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(int(server), signal.SIGSTOP)
        self.assertIn("worker 0 (rank 0): the PMIx server was stopped (SIGSTOP)", self.assert_ended(0)[0].stderr)
        self.assert_same_model(whole)

    def test_metrics_follow_the_state_of_the_job(self) -> None:
        """Metrics of waiting launchers and of training ones."""
        ports = free_ports(4)
        self.ports, self.status = ports[:2], ports[2:]
        options = ("--epochs", 100000, *EXAMPLES[2:], "--parallelism", "data")
        self.launch_one(0, *options)
        self.assertTrue(eventually(lambda: self.health(0).startswith("200 ok: waiting for worker 1 ("), 20),
                        self.health(0))
        self.assertEqual(self.metrics(0)["lockstep_peers_missing"], 1)
        self.launch_one(1, *options)
        self.wait_for_step(0, 30)
        self.assertRegex(self.health(1), r"200 ok: training in generation 1, step \d+\n")
        before = self.metrics(0)
        self.assertEqual(before["lockstep_peers_missing"], 0)
        self.assertEqual(before['lockstep_state{state="training"}'], 1)
        self.assertLess(before['lockstep_peer_heartbeat_age_seconds{peer="worker 1"}'], 3)
        self.wait_for_step(0, int(before["lockstep_step"]) + 30)
        self.assertGreater(self.metrics(0)["lockstep_examples_per_second"], 0)
        self.started[1].process.terminate()
        self.assertTrue(eventually(lambda: self.health(0).startswith("200 ok: waiting for worker 1 (left: "), 20),
                        self.health(0))
        self.started.pop(1).end()
        self.started[0].process.terminate()
        self.started.pop(0).end()

    def test_a_report_is_served_while_training_runs(self) -> None:
        self.launch_with_status(2, *LONG, "--backup-save-freq", "10")
        self.assertTrue(eventually(lambda: self.metrics(0) and self.get(0, "/report")[0] == 200, 60), "no report")
        self.assertIn("Training goes on", self.get(0, "/report")[1])
        self.assertEqual(self.get(1, "/report")[0], 404, "only the chief's launcher has it")
        os.kill(children(self.started[1].process.pid)[1], signal.SIGKILL)
        self.assert_ended(0)
        first, second = json.loads((self.model / "history.json").read_text())["generations"]
        self.assertIn("worker 1 (rank 1)", first["reason"])
        self.assertLess(first["began"], first["ended"])
        self.assertLess(first["ended"], second["ended"])
        page = (self.model / "report.html").read_text()
        self.assertIn("Workers over time", page)
        self.assertNotIn("Training goes on", page)

    def test_failed_backups_are_counted(self) -> None:
        backups, read_only = self.model / "backup", self.scratch / "read_only"
        self.launch_with_status(1, *LONG, "--backup-save-freq", "10", "--on-checkpoint-failure", "continue",
                                LD_PRELOAD=library("failing_calls"), LOCKSTEP_TEST_WATCH=str(backups),
                                LOCKSTEP_TEST_READ_ONLY=str(read_only))
        self.assertTrue(eventually(lambda: self.metrics(0).get("lockstep_backup_step", 0) >= 10, 60), "no backup came")
        self.assertEqual(self.metrics(0)["lockstep_backups_failed_total"], 0)
        read_only.touch()
        self.assertTrue(eventually(lambda: self.metrics(0).get("lockstep_backups_failed_total", 0) >= 1, 30))

    def test_unauthenticated_peers_do_not_disturb_the_job(self) -> None:
        """Junk, slow connections and floods on the status port do not disturb training or other clients."""
        self.launch_with_status(2, *LONG)
        self.wait_for_step(1, 1)
        held = []
        for index in range(300):
            one = socket.create_connection(("127.0.0.1", self.status[index % 2]), timeout=5)
            one.sendall((b"", b"GET /metr", b"\x16\x03\x01\0\xff", b"POST / HTTP/1.1\r\n\r\n")[index % 4])
            held.append(one)
        self.assertIn(self.health(0).split(":")[0], ("200 ok", ""))
        for index in (0, 1):
            with self.subTest(worker=index):
                try:
                    self.assertEqual(self.get(index, "/nothing")[0], 404)
                except OSError:
                    pass  # the job has ended
        for one in self.assert_ended(0):
            self.assertNotIn("warning: generation", one.stderr)
        for one in held:
            one.close()
        self.assert_same_model(self.whole_run(2, *LONG))

    def test_a_status_port_in_use_is_reported(self) -> None:
        with socket.create_server(("", 0)) as taken:
            self.ports, self.status = free_ports(1), [taken.getsockname()[1]]
            self.launch_one(0, *EXAMPLES)
            ended = self.started.pop(0).end()
        self.assertEqual(ended.code, 75, str(ended))
        self.assertIn(f"cannot listen on port {self.status[0]}: it is already in use; stop the other program, or choose "
                      "another port with --status-port", ended.stderr)

    def test_dashboard_and_alerts_use_metrics_that_are_exported(self) -> None:
        """docs/monitoring, against the pages of a job; and what belongs to the job or to a rank is exported once."""
        self.launch_with_status(2, "--epochs", 100000, *EXAMPLES[2:], "--backup-save-freq", "10")
        self.assertTrue(eventually(lambda: self.metrics(0).get("lockstep_backup_step", 0) >= 10, 60), "no backup came")
        self.wait_for_step(1, 1)
        pages = [self.metrics(index) for index in (0, 1)]
        text = self.get(0, "/metrics")[1]
        for running in self.started.values():
            running.process.terminate()
        self.assertGreater(pages[0]["lockstep_backup_timestamp_seconds"], time.time() - 600)
        self.assertIn('lockstep_peer_up{peer="worker 0"}', pages[1])  # named as the chief names its peers
        self.assertIn('lockstep_peer_up{peer="worker 1"}', pages[0])
        twice = {name for name in pages[0] if name in pages[1]}
        self.assertEqual({name for name in twice if not name.startswith(("process_", "lockstep_state{"))},
                         {"lockstep_healthy", "lockstep_peers_missing"})
        exported: dict[str, set[str]] = {}
        for series in {**pages[0], **pages[1]}:
            name, _, labels = series.partition("{")
            exported.setdefault(name, set()).update(re.findall(r'([a-z]+)="', labels))
        dashboard = json.loads((MONITORING / "grafana.json").read_text())
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        rules = (MONITORING / "alerts.yaml").read_text()
        alerts = re.findall(r"expr: (?:>-\n)?((?:.*\n)+?)(?= +(?:for|labels):)", rules)
        self.assertEqual(len(alerts), rules.count("alert: "))
        self.assertGreater(len(expressions), 15)
        for expression in [*expressions, *alerts]:
            with self.subTest(expression=expression):
                self.assertEqual(promql.problems(expression, exported), [])
        for wrong in ("lockstep_steps", "rate(lockstep_step", 'lockstep_step{peer="worker 1"}', "sum by (x) (lockstep_step)"):
            self.assertNotEqual(promql.problems(wrong, exported), [], wrong)
        for alert in re.findall(r"alert: (\w+)", rules):
            self.assertIn(f"`{alert}`", (MONITORING.parent / "monitoring.md").read_text())
        if promtool := shutil.which("promtool"):
            subprocess.run([promtool, "check", "rules", str(MONITORING / "alerts.yaml")], check=True, capture_output=True)
            checked = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

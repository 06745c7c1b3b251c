"""`lockstep train` that is killed or interrupted, and started again."""

import os
import signal
import time
import zipfile
from pathlib import Path

import data_files
from model_file_support import COMPILED, SCALED, ModelFileTest
from support import TEMPORARY, USAGE, Running, eventually, program


class InterruptionTest(ModelFileTest):
    @staticmethod
    def catches(pid: int, number: int) -> bool:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1 == 1

    def test_a_killed_run_resumes(self) -> None:
        first = self.trained("first.keras")
        options = ("--model", first, "--global-batch-size", 20, "--epochs", 1000, "--deterministic", "--backup-save-freq", 3)
        self.succeed(*options, workers=2)
        whole = self.model / "model.keras"
        self.model = self.scratch / "broken"
        running = self.start(*options, workers=2)
        self.assertTrue(eventually(lambda: any((self.model / "backup").glob("fit-1-step-*.h5")), 60), "no backup came")
        os.kill(running.ranks()[1], signal.SIGKILL)
        self.assertNotEqual(running.end().code, 0)
        self.assertFalse((self.model / "model.keras").exists(), "the run had ended before it was killed")
        ended = self.succeed(*options, workers=2)
        self.assertIn("Resuming from", ended.stdout)
        self.assertTrue(self.same_weights(whole, self.model / "model.keras"))
        self.assertFalse((self.model / "backup").exists())

    def test_predictions_go_to_the_directory_of_a_running_job(self) -> None:
        first = self.trained("first.keras")
        running = self.start("--model", first, "--global-batch-size", 20, "--epochs", 4000)
        running.wait_for_output("Epoch 2/")
        ended = self.use("predict", "--model", first, "--output", self.model / "p.npy")
        running.process.send_signal(signal.SIGINT)
        running.end()
        self.assertEqual(ended.code, 0, str(ended))
        self.assertTrue((self.model / "p.npy").exists())

    def test_an_interrupted_run_goes_on(self) -> None:
        first = self.trained("first.keras")
        options = ("--model", first, "--global-batch-size", 20, "--epochs", 1000, "--deterministic")
        self.succeed(*options)
        whole = self.model / "model.keras"
        for workers in (1, 2):
            with self.subTest(workers=workers):
                self.model = self.scratch / f"interrupted_{workers}"
                running = self.start(*options, workers=workers)
                running.wait_for_output("Epoch 3/")
                running.process.send_signal(signal.SIGINT)
                ended = running.end()
                self.assertEqual(ended.code, TEMPORARY, str(ended))
                self.assertIn("interrupted: stopping soon", ended.stderr)
                self.assertRegex(ended.stderr, r"Interrupted (before|after step \d+ of) epoch \d+; the same command")
                self.assertIn("Resuming from", self.succeed(*options, workers=workers).stdout)
                if workers == 1:
                    self.assertTrue(self.same_weights(whole, self.model / "model.keras"))

    def test_an_interrupted_run_that_ignores_backups_says_how_to_go_on(self) -> None:
        options = ("--model", self.trained("first.keras"), "--global-batch-size", 20, "--epochs", 300)
        running = self.start(*options, "--resume", "never")
        running.wait_for_output("Epoch 3/")
        running.process.send_signal(signal.SIGINT)
        ended = running.end()
        self.assertEqual(ended.code, TEMPORARY, str(ended))
        self.assertIn("the same command with --resume auto goes on from there", ended.stderr)
        self.assertIn("Resuming from", self.succeed(*options, "--resume", "auto").stdout)

    def test_an_interrupt_while_programs_start_is_explained(self) -> None:
        """SIGUSR1, by which mpirun passes the interrupt on, waits until all programs expect it: mpirun would hang if it ended
        one of them before all have started."""
        for delay_s in (0.1, 0.05, 0.0):
            running = self.start("--model", self.plain, *COMPILED, "--epochs", 1000, workers=2)
            self.assertTrue(eventually(lambda: self.catches(running.process.pid, signal.SIGHUP)))
            time.sleep(delay_s)
            running.process.send_signal(signal.SIGINT)
            ended = running.end()
            self.assertEqual(ended.code, TEMPORARY, str(ended))
            self.assertRegex(ended.stderr, "interrupted (while the programs started|before training|: stopping)")

    def test_an_interrupt_of_one_worker_while_it_loads_is_explained(self) -> None:
        images, labels = data_files.digits(1000, seed=1)
        self.data = self.scratch / "large.npz"
        with zipfile.ZipFile(self.data, "w") as archive:
            archive.writestr("x_train.npy", data_files.npy((100_000, 28, 28), 100 * images))
            archive.writestr("y_train.npy", data_files.npy((100_000,), 100 * labels))
        for _ in range(5):
            running = self.start("--model", self.plain, *COMPILED, *SCALED, "--epochs", 1000)
            self.assertTrue(eventually(lambda: self.catches(running.process.pid, signal.SIGINT), interval=0.001))
            running.process.send_signal(signal.SIGINT)
            ended = running.end()
            self.assertEqual(ended.code, TEMPORARY, str(ended))
            self.assertRegex(ended.stderr + ended.stdout, "interrupted before training|Interrupted")
            if "interrupted before training" in ended.stderr:
                break
        else:
            self.fail("no interrupt came early enough")

    def test_a_step_may_take_its_time_after_an_interrupt(self) -> None:
        """mpirun alone would kill the ranks one second after an interrupt."""
        options = ("--model", self.plain, *COMPILED, "--epochs", 4000)
        running = self.start(*options, workers=2)
        running.wait_for_output("Epoch 2/")
        straggler = running.ranks()[1]
        os.kill(straggler, signal.SIGSTOP)
        running.process.send_signal(signal.SIGINT)
        running.wait_for_error("interrupted: stopping")
        time.sleep(3)
        os.kill(straggler, signal.SIGCONT)
        ended = running.end()
        self.assertEqual(ended.code, TEMPORARY, str(ended))
        again = self.start(*options, workers=2)
        again.wait_for_output("Resuming from")
        again.process.send_signal(signal.SIGINT)
        again.end()

    def test_an_interrupted_loop_of_ones_own_goes_on(self) -> None:
        options = ("--global-batch-size", 20, "--epochs", 4000)
        running = self.start(*options, name="custom_training_mnist")
        running.wait_for_output("Epoch 2, ")
        running.process.send_signal(signal.SIGINT)
        ended = running.end()
        self.assertEqual(ended.code, TEMPORARY, str(ended))
        self.assertIn("interrupted: stopping soon", ended.stderr)
        again = self.start(*options, name="custom_training_mnist")
        again.wait_for_output("Resuming from")
        again.process.kill()
        again.end()

    def test_a_second_interrupt_stops_all_ranks_at_once(self) -> None:
        running = self.start("--model", self.plain, *COMPILED, "--epochs", 4000, workers=2)
        running.wait_for_output("Epoch 2/")
        os.kill(running.ranks()[1], signal.SIGSTOP)  # else the first interrupt might be enough
        running.process.send_signal(signal.SIGINT)
        running.wait_for_error("interrupted: stopping")
        running.process.send_signal(signal.SIGINT)
        ended = running.end()
        self.assertEqual(ended.code, TEMPORARY, str(ended))
        self.assertIn("interrupted twice, so stopped at once; the same command goes on", ended.stderr)
        self.assertNotIn("Segmentation fault", ended.stderr)

    def test_a_second_interrupt_ends_a_rank_that_waits(self) -> None:
        running = self.start("--model", self.plain, *COMPILED, "--epochs", 4000, workers=2)
        running.wait_for_output("Epoch 2/")
        ranks = running.ranks()
        os.kill(ranks[1], signal.SIGSTOP)
        os.kill(ranks[0], signal.SIGINT)
        running.wait_for_error("interrupted: stopping")
        os.kill(ranks[0], signal.SIGINT)  # it would wait for rank 1 for ten minutes
        self.assertNotEqual(running.end().code, 0)

    def test_a_backup_with_another_input_scale_is_rejected(self) -> None:
        options = ("--model", self.plain, *COMPILED, "--epochs", 4000, "--backup-save-freq", 1)
        running = self.start(*options)
        self.assertTrue(eventually(lambda: any((self.model / "backup").glob("fit-1-step-*.h5")), 60), "no backup came")
        running.process.kill()
        running.end()
        self.assert_fails(self.run_program(*options, "--input-scale", 0.5), USAGE,
                          "--input-scale was none in the backup", "0.5 now", "--resume never")

    def test_a_job_that_is_started_again_goes_on_whatever_resume_never_says(self) -> None:
        """Its id tells a job: the second launcher counts generations from 1 again."""
        lockstep, launch = program("lockstep"), ("launch", "--job-id", "mine", "--model-dir", str(self.model), "--")
        train = ("train", "--model", str(self.plain), "--data-dir", str(self.data), "--model-dir", str(self.model))
        command = [lockstep, *launch, lockstep, *train, *COMPILED, "--epochs", "4000", "--resume", "never"]
        running = Running(command, self.cwd, {})
        self.assertTrue(eventually(lambda: any((self.model / "backup").glob("fit-1-step-*.h5")), 60), "no backup came")
        os.killpg(running.process.pid, signal.SIGKILL)
        running.end()
        again = Running(command, self.cwd, {})
        again.wait_for_output("Resuming from")
        os.killpg(again.process.pid, signal.SIGKILL)
        again.end()

"""A run resumes only its own job's backups, and outputs are checked before the first step."""

import errno
import os
import signal
import zipfile
from pathlib import Path

import data_files
from model_file_support import COMPILED, SMALL, description
from support import DATA, IO, USAGE, Ended, ProgramTest, Running, eventually, library, program

LONG = ("--epochs", 100000)
REST = ("--global-batch-size", 20, "--backup-save-freq", 1000, "--epochs", 200, "--steps-per-epoch", 5)
EACH_STEP = ("--global-batch-size", 20, "--backup-save-freq", 1)


class CommandTest(ProgramTest):
    """Accepts "lockstep train" as a program."""

    def command(self, *options: object, workers: int = 1, name: str = "") -> list[str]:
        words = super().command(*options, workers=workers, name=name)
        return [part for word in words for part in
                ([word.removesuffix(" train"), "train"] if word == program("lockstep train") else [word])]


class JobIdentityTest(CommandTest):
    default_program = "keras_mnist"

    def backups(self) -> list[Path]:
        return sorted((self.model / "backup").glob("fit-1-step-*.h5"))

    def kill_after_backups(self, *options: object, **environment: str) -> None:
        """Kills a run that has taken two backups."""
        running = self.start(*EACH_STEP, *options, **environment)
        came = eventually(lambda: len(self.backups()) >= 2 or running.process.poll() is not None, 60)
        running.process.kill()
        ended = running.end()
        self.assertTrue(came and ended.code == -signal.SIGKILL, str(ended))

    def assert_refused(self, ended: Ended, *phrases: str) -> None:
        before = self.backups()
        self.assert_fails(ended, USAGE, *phrases)
        self.assertEqual(self.backups(), before)
        self.assertGreater(len(before), 0)

    def trained(self, seed: int) -> Path:
        """A model of keras_mnist that this seed gives."""
        at, self.model = self.model, self.scratch / f"seed_{seed}"
        self.succeed("--epochs", 1, "--steps-per-epoch", 2, "--seed", seed)
        made, self.model = self.model / "model.h5", at
        return made

    def test_other_initial_weights_are_another_job(self) -> None:
        mine, other = self.trained(1), self.trained(2)
        self.kill_after_backups(*LONG, "--steps-per-epoch", 5, "--initial-weights", mine)
        self.assert_refused(self.run_program(*REST, "--initial-weights", other),
                            "another job", "the digest of the initial weights was")
        ended = self.succeed(*REST, "--initial-weights", mine)
        self.assertIn("Resuming from", ended.stdout)

    def test_what_the_launcher_sets_where_workers_left_makes_no_other_job(self) -> None:
        # The launcher computes the digest of the command before it sets the variable.
        job = {"LOCKSTEP_JOB_ID": "one", "LOCKSTEP_COMMAND": "1f09c3d2"}
        alone = job | {"LOCKSTEP_BATCH_NORM_REPLICAS": "1"}
        options = ("--epochs", 40, "--steps-per-epoch", 5, "--resume", "never")
        self.kill_after_backups(*options, **alone)
        self.assertIn("Resuming from", self.succeed(*EACH_STEP, *options, **job).stdout)
        self.assertIn("Job one has finished", self.succeed(*EACH_STEP, *options, **alone).stderr)

    def test_no_restart_takes_a_first_file_that_others_have_overwritten(self) -> None:
        given = self.trained(1)
        job = {"LOCKSTEP_JOB_ID": "one", "LOCKSTEP_GENERATION": "1"}
        self.kill_after_backups(*LONG, "--steps-per-epoch", 5, "--initial-weights", given, **job)
        given.write_bytes(self.trained(2).read_bytes())
        restart = (*REST, "--initial-weights", given)
        self.assert_refused(self.run_program(*restart), "another job")
        self.assert_refused(self.run_program(*REST, "--initial-weights", self.trained(2), **job), "another job")
        self.assert_refused(self.run_program(*restart, **job | {"LOCKSTEP_GENERATION": "2"}), "another job")

    def test_fewer_epochs_than_were_trained(self) -> None:
        self.kill_after_backups(*LONG, "--steps-per-epoch", 1)
        self.assert_refused(self.run_program(*EACH_STEP, "--epochs", 1, "--steps-per-epoch", 1),
                            "a backup of a longer job", "--epochs is 1 now", "--resume never")

    def test_other_settings_of_callbacks_are_another_job(self) -> None:
        model = self.scratch / "model.json"
        model.write_text(description(*SMALL))
        train = lambda *more: (*EACH_STEP, *LONG, "--model", model, *COMPILED, *more)  # noqa: E731
        self.default_program = "lockstep train"
        log = self.scratch / "log.csv"
        kept = "epoch,loss\r\n"
        log.write_text(kept, newline="")
        self.kill_after_backups(*train("--csv-log", self.scratch / "first.csv", "--early-stopping", 300))
        self.assert_refused(self.run_program(*train("--csv-log", log, "--early-stopping", 300)),
                            "the list of callbacks was", "first.csv", "log.csv")
        self.assertEqual(log.read_bytes(), kept.encode())
        self.assert_refused(self.run_program(*train("--csv-log", self.scratch / "first.csv", "--early-stopping", 400)),
                            "patience=300", "patience=400")

    def test_a_log_that_another_job_has_written_since(self) -> None:
        model = self.scratch / "model.json"
        model.write_text(description(*SMALL))
        self.default_program = "lockstep train"
        log = self.scratch / "log.csv"
        options = (*LONG, "--model", model, *COMPILED, "--steps-per-epoch", 1, "--csv-log", log)
        self.kill_after_backups(*options)
        other = b"epoch,accuracy,loss,val_accuracy,val_loss\r\n" + 1000 * b"0,0.5,0.25,NA,NA\r\n"
        log.write_bytes(other)
        self.assert_refused(self.run_program(*EACH_STEP, *options), str(log), "another job has written it",
                            "move it away")
        self.assertEqual(log.read_bytes(), other)

    def test_other_validation_data_are_another_job(self) -> None:
        model = self.scratch / "model.json"
        model.write_text(description(*SMALL))
        self.default_program = "lockstep train"
        self.data = self.scratch / "with_validation.npz"

        def write(seed: int) -> None:
            self.data.write_bytes(data_files.npz())
            images, labels = data_files.digits(20, seed)
            with zipfile.ZipFile(self.data, "a") as archive:
                archive.writestr("x_val.npy", data_files.npy((20, 28, 28), images))
                archive.writestr("y_val.npy", data_files.npy((20,), labels))

        write(1)
        train = (*EACH_STEP, *LONG, "--model", model, *COMPILED, "--input-scale", "1/255")
        self.kill_after_backups(*train)
        write(2)
        self.assert_refused(self.run_program(*train), "another job", "the validation data")

    def test_a_finished_job_behind_a_script_is_told_by_its_options(self) -> None:
        """The launched command is the same."""
        script = self.scratch / "train.sh"

        def run(name: str, *options: object) -> Ended:
            words = [program(name), "--model-dir", self.model, "--verbose", 0, "--steps-per-epoch", 2, *options]
            script.write_text("exec " + " ".join(map(str, words)))
            launch = [program("lockstep"), "launch", "--workers", "1", "--job-id", "one", "--", "/bin/sh", str(script)]
            return Running(launch, self.cwd, {}).end()

        for name in ("keras_mnist", "custom_training_mnist"):
            self.model = self.scratch / name
            self.assertEqual(run(name, "--epochs", 1).code, 0)
            self.assertIn("Job one has finished", run(name, "--epochs", 1).stderr)
            self.assertFalse((self.model / "backup").exists(), "a job that had finished made a directory")
            for other in (("--epochs", 2), ("--epochs", 1, "--seed", 3), ("--epochs", 1, "--learning-rate", 0.5)):
                ended = run(name, *other)
                self.assertEqual(ended.code, USAGE, str(ended))
                self.assertIn("other settings", ended.stderr)

    def test_a_finished_job_stays_finished(self) -> None:
        short = ("--epochs", 1, "--steps-per-epoch", 2)
        self.succeed(*short, LOCKSTEP_JOB_ID="one")
        made = (self.model / "model.h5").read_bytes()
        ended = self.succeed(*short, LOCKSTEP_JOB_ID="one")
        self.assertIn("Job one has finished", ended.stderr)
        self.assert_fails(self.run_program(*short, "--seed", 5, LOCKSTEP_JOB_ID="one"), USAGE,
                          "job one has finished", "another command line")
        self.assert_fails(self.run_program(*short, LOCKSTEP_JOB_ID="one", LOCKSTEP_SEED="5"), USAGE,
                          "job one has finished", "other variables")
        self.assert_fails(self.run_program(*short, LOCKSTEP_JOB_ID="one", BATCH_SIZE="32"), USAGE, "other variables")
        self.assertEqual((self.model / "model.h5").read_bytes(), made)
        self.succeed(*short, "--seed", 5, LOCKSTEP_JOB_ID="two")
        (self.model / "model.h5").unlink()
        self.assertIn("Saved", self.succeed(*short, "--seed", 5, LOCKSTEP_JOB_ID="two").stdout, "the model was gone")
        self.assertTrue((self.model / "model.h5").exists())
        for wrong in ("x" * 300, "caf\udce9"):
            self.assert_fails(self.run_program(*short, LOCKSTEP_JOB_ID=wrong), USAGE, "must be at most 256 characters of ASCII")
        self.assertNotEqual((self.model / "model.h5").read_bytes(), made)

    def change_a_label(self) -> None:
        labels = self.data / data_files.TRAIN_LABELS
        content = bytearray(labels.read_bytes())
        content[-1] = (content[-1] + 1) % 10
        labels.write_bytes(content)

    def test_a_finished_job_is_told_from_one_with_other_data(self) -> None:
        short = ("--epochs", 1, "--steps-per-epoch", 2)
        self.succeed(*short, LOCKSTEP_JOB_ID="one")
        self.change_a_label()
        for workers in (1, 2):
            self.assert_fails(self.run_program(*short, workers=workers, LOCKSTEP_JOB_ID="one"), USAGE,
                              "job one has finished", "other data", "name this job otherwise")

    def test_a_finished_job_is_told_from_one_with_other_weights(self) -> None:
        mine, other = self.trained(1), self.trained(2)
        short = ("--epochs", 1, "--steps-per-epoch", 2, "--initial-weights", mine)
        self.succeed(*short, LOCKSTEP_JOB_ID="one")
        other.replace(mine)  # keeps the file's time
        self.assert_fails(self.run_program(*short, LOCKSTEP_JOB_ID="one"), USAGE, "job one has finished",
                          "other initial weights")

    def test_a_finished_job_whose_files_are_gone_runs_again(self) -> None:
        short = ("--epochs", 1, "--steps-per-epoch", 2)
        self.succeed(*short, LOCKSTEP_JOB_ID="one")
        for file in self.model.glob("[!.]*"):
            file.unlink()
        self.assertIn("Saved", self.succeed(*short, LOCKSTEP_JOB_ID="one").stdout)
        self.assertTrue((self.model / "model.h5").exists())

    def test_a_refused_job_leaves_the_first_its_backups(self) -> None:
        def launch(job: str, *options: object) -> Running:
            command = [program("lockstep"), "launch", "--workers", "1", "--job-id", job, "--max-restarts", "0", "--",
                       *self.command(*EACH_STEP, *LONG, "--steps-per-epoch", 5, *options)]
            return Running(command, self.cwd, {})

        never = ("--resume", "never")
        first = launch("one", *never)
        self.assertTrue(eventually(lambda: len(self.backups()) >= 2, 60))
        first.process.kill()
        self.assertTrue(eventually(lambda: not first.processes("keras_mnist")))
        first.end()
        refused = launch("two", "--seed", 4).end()
        self.assertEqual(refused.code, USAGE, str(refused))
        self.assertIn("is a backup of another job", refused.stderr)
        again = launch("one", *never)
        self.assertTrue(eventually(lambda: "Resuming from" in again.stdout, 60), again.stdout + again.stderr)
        again.process.kill()
        self.assertTrue(eventually(lambda: not again.processes("keras_mnist")))
        again.end()

    def test_resume_never_starts_a_refused_job_anew(self) -> None:
        job = {"LOCKSTEP_JOB_ID": "one", "LOCKSTEP_RESUME": "never"}
        self.kill_after_backups(*LONG, "--steps-per-epoch", 5, **job)
        running = self.start(*EACH_STEP, *LONG, "--steps-per-epoch", 5, **job)
        running.wait_for_output("Resuming from")  # its own backups are no earlier job's
        running.process.kill()
        running.end()
        self.change_a_label()
        ended = self.run_program(*REST, LOCKSTEP_JOB_ID="one")
        self.assert_refused(ended, "the data was", "start over with --resume never")
        self.assertNotIn("Resuming from", self.succeed(*REST, **job).stdout)

    def test_a_backup_that_cannot_be_removed_belongs_to_nobody(self) -> None:
        short = ("--global-batch-size", 20, "--epochs", 1, "--steps-per-epoch", 2, "--backup-save-freq", 1)
        self.succeed(*short, LD_PRELOAD=library("failing_calls"), LOCKSTEP_TEST_WATCH=str(self.model / "backup"),
                     LOCKSTEP_TEST_FAULT_CALL="remove", LOCKSTEP_TEST_FAULT=f"1 {errno.EIO}")
        self.assertEqual(len(self.backups()), 1)
        self.assertNotIn("Resuming", self.succeed(*short, "--seed", 7).stdout)
        self.assertEqual(self.backups(), [])

    def test_resume_require_removes_no_backup(self) -> None:
        self.succeed("--backup-dir", self.model, LOCKSTEP_JOB_ID="finished")
        backup = self.model / "fit-1-step-0000000005.h5"
        backup.write_bytes(b"put here since")
        ended = self.run_program("--backup-dir", self.model, "--resume", "require")
        self.assert_fails(ended, DATA, "fit-1-step-0000000005.h5")
        self.assertEqual([path.read_bytes() for path in self.model.glob("fit-1-step-*")], [b"put here since"])

    def test_initial_weights_are_not_where_the_model_goes(self) -> None:
        given = self.trained(1)
        self.model = given.parent
        self.assert_fails(self.run_program("--initial-weights", given), USAGE, "--initial-weights", "another --model-dir")

    def test_resume_require_needs_backups(self) -> None:
        self.assert_fails(self.run_program("--resume", "require", "--backup-save-freq", "never"), USAGE,
                          "--resume require needs backups", "--backup-save-freq is never")

    def test_other_batch_norm_replicas_are_another_job(self) -> None:
        model = self.scratch / "model.json"
        model.write_text(description(("Flatten", {}), ("Dense", {"units": 12}), ("BatchNormalization", {}),
                                     ("Dense", {"units": 10})))
        self.default_program = "lockstep train"
        train = (*EACH_STEP, *LONG, "--model", model, *COMPILED, "--input-scale", "1/255")
        self.kill_after_backups(*train, "--batch-norm-replicas", 2)
        self.assert_refused(self.run_program(*train, "--batch-norm-replicas", 4),
                            "--batch-norm-replicas was 2 in the backup and is 4 now")


class OutputsTest(CommandTest):
    default_program = "lockstep train"

    def setUp(self) -> None:
        super().setUp()
        self.plain = self.scratch / "plain.json"
        self.plain.write_text(description(*SMALL))

    def train(self, *options: object, model: Path | None = None) -> Ended:
        return self.run_program("--model", model or self.plain, *COMPILED, "--epochs", 1, *options)

    def assert_refused_before_training(self, ended: Ended, code: int, *phrases: str) -> None:
        self.assert_fails(ended, code, *phrases)
        self.assertNotIn("Epoch", ended.stdout)

    def test_outputs_may_be_beside_the_data(self) -> None:
        self.model = self.data
        for _ in range(2):  # the second time, all of them are there
            ended = self.train("--csv-log", self.data / "log.csv", "--backup-dir", self.data / "backups")
            self.assertEqual(ended.code, 0, ended.stderr)

    def test_links_name_one_output(self) -> None:
        """The files that they name do not exist yet."""
        self.model.mkdir()
        for link, target in ((self.model / "model.h5", "history.json"), (self.model / "report.html", "model.h5"),
                             (self.scratch / "log.csv", str(self.model / "model.h5"))):
            with self.subTest(link=link):
                link.symlink_to(target)
                options = ("--csv-log", link) if link.suffix == ".csv" else ()
                self.assert_refused_before_training(self.train(*options), USAGE, "which the run writes", "choose another")
                link.unlink()
        with self.subTest("a relative path that does not exist yet"):
            self.assert_refused_before_training(self.train("--csv-log", os.path.relpath(self.model / "model.h5", self.cwd)),
                                                USAGE, "which the run writes")
            model, self.model = self.model, Path(".")
            self.assert_refused_before_training(self.train("--csv-log", "model.h5"), USAGE, "which the run writes")
            self.model = model
        (self.model / "model.h5").symlink_to(self.scratch / "new")
        self.assert_refused_before_training(self.train("--backup-dir", self.scratch / "new" / "b"), USAGE,
                                            "writes as a file because of --model-dir")

    def test_no_input_is_an_output(self) -> None:
        self.assertEqual(self.train("--save-as", "a.keras").code, 0)
        made = self.model / "a.keras"
        before = made.read_bytes()
        labels = self.data / data_files.TRAIN_LABELS
        for options, phrase in ((("--csv-log", self.plain), "--csv-log would overwrite"),
                                (("--csv-log", self.model / "model.h5"), "which the run writes because of --model-dir"),
                                (("--csv-log", labels), "which --data-dir reads"),
                                (("--csv-log", self.model / "backup"), "which the run writes because of --backup-dir"),
                                (("--tensorboard-dir", self.model / "model.h5"), "--tensorboard-dir is"),
                                (("--backup-dir", self.model / "history.json"), "which the run writes"),
                                (("--backup-dir", self.model / "model.h5" / "b"), "writes as a file because of --model-dir"),
                                (("--csv-log", self.model / "new.csv", "--tensorboard-dir", self.model / "new.csv/a/b"),
                                 "writes as a file because of --csv-log")):
            with self.subTest(options=options):
                self.assert_refused_before_training(self.train(*options), USAGE, phrase, "choose another")
        self.assert_refused_before_training(self.train("--save-as", "a.keras", model=made), USAGE,
                                            "--save-as would overwrite", "which --model reads")
        predict = [program("lockstep"), "predict", "--model", str(made), "--data-dir", str(self.data)]
        device, folder, inputs = (self.scratch / f"{name}.npy" for name in ("device", "folder", "inputs"))
        device.symlink_to("/dev/null")
        folder.mkdir()
        inputs.symlink_to(labels)
        for output, code, phrase in ((made, USAGE, "ending in .npy"), (inputs, USAGE, "which --data-dir reads"),
                                     (device, IO, "it is a device"), (folder, IO, "it is a directory")):
            with self.subTest(output=output):
                self.assert_fails(Running([*predict, "--output", str(output)], self.cwd, {}).end(), code, phrase)
        self.assertEqual(made.read_bytes(), before)
        self.assertFalse(Path("/dev/null").is_file())

    def test_outputs_are_checked_before_training(self) -> None:
        self.model.mkdir()
        (self.model / "taken.h5").mkdir()
        self.assert_refused_before_training(self.train("--save-as", "taken.h5"), IO, "taken.h5", "it is a directory")
        self.assert_refused_before_training(self.train("--save-as", 250 * "x" + ".h5"), IO, "File name too long")
        (self.model / "history.json").mkdir()
        self.assert_refused_before_training(self.train(), IO, "history.json", "it is a directory")

    def test_a_wrong_label_for_the_test_is_reported_before_training(self) -> None:
        labels = self.data / data_files.TEST_LABELS
        content = bytearray(labels.read_bytes())
        content[-1] = 200
        labels.write_bytes(content)
        self.assert_refused_before_training(self.train(), DATA, "is class 200")
        self.default_program = "keras_mnist"
        ended = self.run_program("--epochs", 1)
        self.assert_refused_before_training(ended, DATA, "is class 200")

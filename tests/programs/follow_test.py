"""`lockstep evaluate --follow`: an evaluator beside a job."""

import json
import os
import re
import signal
from pathlib import Path

import data_files
from follow_support import BRIEFLY, FollowTest
from model_file_support import COMPILED, SCALED
from support import DATA, IO, TEMPORARY, USAGE, Running, eventually, library, program


class FollowJobTest(FollowTest):
    def test_each_backup_and_the_model_are_evaluated_until_the_job_ends(self) -> None:
        follower = self.follow("--monitor", "accuracy")
        self.assertTrue(eventually(lambda: "waiting for models of" in follower.stderr))
        trained = self.start("--model", self.plain, *COMPILED, "--global-batch-size", 20, "--epochs", 1000,
                             "--backup-save-freq", 50)
        self.assertTrue(eventually(lambda: any(self.model.glob("backup/fit-*.h5")), interval=0.001))
        trained.process.send_signal(signal.SIGSTOP)  # else it may end before the evaluator looks
        self.assertTrue(eventually(lambda: (self.model / "eval" / "evaluation.json").exists(), 30))
        trained.process.send_signal(signal.SIGCONT)
        ended = trained.end()
        self.assertEqual(ended.code, 0, str(ended))
        ended = follower.end()
        self.assertEqual((ended.code, ended.errors), (0, []), str(ended))
        found = self.evaluations()
        self.assertGreater(len(found["evaluations"]), 1, str(ended))
        self.assertEqual(found["monitor"], "accuracy")
        self.assertEqual(found["best"]["accuracy"], max(each["accuracy"] for each in found["evaluations"]))
        last = found["evaluations"][-1]
        self.assertEqual((last["file"], last["iteration"]), ("model.h5", 5000))
        self.assertAlmostEqual(last["loss"], self.history()["evaluation"]["loss"], places=4)
        self.assertIn("The job has ended.", ended.stdout)
        kept = self.use("evaluate", "--model", self.model / "eval" / "best.h5", "--verbose", 0)
        self.assertIn(f"accuracy: {found['best']['accuracy']:.4f}", kept.stdout, str(kept))
        names = sorted(re.sub(r"tfevents.*", "tfevents", path.name) for path in (self.model / "eval").iterdir())
        self.assertEqual(names, [".evaluator.lock", "best.h5", "evaluation.json", "events.out.tfevents"])

    def test_a_job_that_has_ended_is_evaluated_once(self) -> None:
        self.model = self.trained("model.keras").parent
        (self.model / "damaged.h5").write_bytes(b"no model")  # not the one that the job wrote
        ended = self.follow_to_end("--eval-dir", self.scratch / "there", *SCALED)
        self.assertIn("1 evaluations; best loss", ended.stdout)
        self.assertNotIn("left out", ended.stderr)
        self.assertTrue((self.scratch / "there" / "best.keras").exists())
        self.assertFalse((self.model / "eval").exists())

    def test_a_directory_without_a_record_has_no_job_that_ended(self) -> None:
        """As of a job in Python, or of a volume that is gone."""
        self.model = self.trained("model.keras").parent
        (self.model / ".lockstep.lock").unlink()
        (self.model / "damaged.h5").write_bytes(b"no model")
        ended = self.follow("--export", "final", *BRIEFLY).end()
        self.assertIn(f"warning: {self.model / 'damaged.h5'} is left out: ", ended.stderr)
        (self.model / "damaged.h5").unlink()
        ended = self.follow("--export", "final", *BRIEFLY).end()
        self.assert_fails(ended, TEMPORARY, "holds no record of a job", "nothing tells whether", "best loss")
        self.assertTrue((self.model / "eval" / "best.keras").exists())
        self.assertEqual(list((self.model / "export").glob("*/*")), [])

    def test_a_record_that_cannot_be_read_ends_no_job(self) -> None:
        made = self.trained("model.keras")
        self.model.mkdir()
        self.put_model(made)
        (self.model / ".lockstep.lock").write_text("{")
        self.assert_fails(self.follow(*BRIEFLY).end(), DATA, ".lockstep.lock is damaged")
        follower = self.follow("--export", "final", "--follow-timeout", 60)
        self.assert_says(follower, "is damaged: it is not the record of a job; remove it if no job uses this "
                                   "directory any more; trying again for 60 s")
        self.record()
        follower.wait_for_output("model.keras, step")
        self.assertIsNone(follower.process.poll(), "the job runs")
        self.record(has_finished=True, model="model.keras")
        ended = follower.end()
        self.assertEqual((ended.code, ended.stderr.count("trying again")), (0, 1), str(ended))

    def test_an_earlier_job_s_record_does_not_end_the_next_job(self) -> None:
        second = self.trained("second.keras", "--seed", 7)
        made = self.trained("model.keras")
        earlier = made.read_bytes()
        self.model = made.parent
        follower = self.follow("--export", "final", "--follow-timeout", 8)
        follower.wait_for_output("model.keras, step")  # the earlier job's model is evaluated
        self.record()
        with self.held():
            self.assert_says(follower, "still waiting for news")
            self.assertEqual(list((self.model / "export").glob("*/*")), [])
            self.put_model(second)
            self.record(has_finished=True, model="model.keras")
        ended = follower.end()
        self.assertEqual((ended.code, ended.errors), (0, []), str(ended))
        (final,) = (self.model / "export" / "final").glob("*/model.keras")
        self.assertNotEqual(final.read_bytes(), earlier)
        self.assertEqual(final.read_bytes(), second.read_bytes())

    def test_a_test_set_that_is_being_written_costs_no_model(self) -> None:
        self.model = self.trained("model.keras").parent
        labels = self.data / data_files.TEST_LABELS
        whole = labels.read_bytes()
        labels.write_bytes(whole[:-1])
        self.assert_fails(self.follow(*BRIEFLY).end(), DATA, labels.name)
        follower = self.follow("--export", "final", "--follow-timeout", 8)
        self.assert_says(follower, "trying again for 8 s")
        labels.write_bytes(whole)
        ended = follower.end()
        self.assertEqual((ended.code, ended.stderr.count("trying again")), (0, 1), str(ended))
        self.assertEqual(len(list((self.model / "export" / "final").glob("*/model.keras"))), 1)

    def test_a_test_set_that_nobody_writes_ends_the_evaluator_at_once(self) -> None:
        self.model = self.trained("model.keras").parent
        labels = self.data / data_files.TEST_LABELS
        labels.write_bytes(labels.read_bytes()[:-1])
        for file in self.data.iterdir():
            os.utime(file, (1e9, 1e9))
        ended = self.follow().end()
        self.assert_fails(ended, DATA, labels.name)
        self.assertNotIn("trying again", ended.stderr)

    def test_swapped_directories_are_refused_before_a_model_comes(self) -> None:
        self.model = self.trained("model.keras").parent
        self.model, self.data = self.data, self.model
        self.assert_fails(self.follow().end(), USAGE, "--data-dir is ", "where job ", "writes its models")
        self.data = self.data / "model.keras"
        self.assert_fails(self.follow().end(), USAGE, "model.keras, which is neither a directory nor a .npz file")
        self.data = self.cwd
        self.assert_fails(self.follow().end(), USAGE, "which holds no data set")

    def test_a_full_disk_costs_no_model(self) -> None:
        made = self.trained("model.keras")
        with self.mounted("256k") as disk:
            self.model.mkdir()
            follower = self.follow("--eval-dir", disk, "--follow-timeout", 60)
            self.assert_says(follower, "waiting for models of")
            filler = disk / "filler"
            filler.write_bytes(bytes(256 * 1024 - 16 * 1024 - sum(each.stat().st_size for each in disk.iterdir())))
            self.record()
            self.put_model(made)
            self.record(has_finished=True, model="model.keras")
            self.assert_says(follower, "No space left on device")
            filler.unlink()
            ended = follower.end()
            self.assertEqual((ended.code, ended.errors), (0, []), str(ended))
            self.assertEqual((disk / "best.keras").read_bytes(), made.read_bytes())

    def test_a_job_whose_last_model_cannot_be_evaluated(self) -> None:
        self.model = self.trained("m.weights.h5").parent
        self.assert_fails(self.follow(*BRIEFLY).end(), DATA, "the job's last model was not evaluated",
                          "holds weights without the model")
        self.model = self.trained("model.keras").parent
        (self.model / "model.keras").unlink()
        self.assert_fails(self.follow(*BRIEFLY).end(), IO, "its model", "model.keras is not there")

    def test_a_job_s_directory_is_no_evaluator_s(self) -> None:
        self.model = self.trained("model.keras").parent
        files = sorted(self.model.iterdir())
        self.assert_fails(self.follow("--eval-dir", self.model).end(), USAGE, "--eval-dir would overwrite")
        other, self.model = self.model, self.scratch / "another"
        self.model.mkdir()
        self.record()
        with self.held():
            running, self.model = self.model, other
            self.assert_fails(self.follow("--eval-dir", running).end(), USAGE, f"--eval-dir is {running}", "job job-1")
        self.assertEqual([path.name for path in running.iterdir()], [".lockstep.lock"])
        finished, self.model = self.model, running
        self.assert_fails(self.follow("--eval-dir", finished).end(), USAGE, f"--eval-dir is {finished}",
                          "writes its models", "another directory")
        self.assertEqual(sorted(finished.iterdir()), files)

    def test_a_job_on_a_file_system_without_locks_may_be_running(self) -> None:
        self.model.mkdir()
        self.record()
        follower = self.follow(*BRIEFLY, LD_PRELOAD=library("failing_calls"), LOCKSTEP_TEST_NO_LOCKS=str(self.model))
        self.assert_says(follower, "still waiting for news")
        self.record(has_finished=True)
        self.assert_fails(follower.end(), DATA, "has ended without a model")

    def test_another_program_s_lock_is_no_job(self) -> None:
        trained = self.start("--model", self.plain, *COMPILED, "--epochs", 100_000, "--backup-save-freq", 50)
        self.assertTrue(eventually(lambda: any(self.model.glob("backup/fit-*.h5")), 30))
        trained.process.kill()
        trained.end()
        with self.held():
            self.assert_fails(self.follow(*BRIEFLY).end(), TEMPORARY, f"no process trains in {self.model}")

    def test_file_names_of_other_encodings_and_times_before_1970(self) -> None:
        self.model = self.trained("model.keras").parent
        os.rename(os.fsencode(self.model / "model.keras"), os.fsencode(self.model) + b"/m\xff.keras")
        old = self.model / "old.keras"
        old.write_bytes(b"no model")
        os.utime(old, (-1000, -1000))
        self.record(has_finished=True)
        ended = self.follow_to_end()
        self.assertNotIn("left out", ended.stderr)
        self.assertEqual(self.evaluations()["best"]["file"], "m\ufffd.keras")
        self.follow_to_end()
        self.assertEqual(len(self.evaluations()["evaluations"]), 1)

    def test_an_evaluator_that_is_started_again_goes_on(self) -> None:
        self.model = self.trained("model.keras").parent
        self.follow_to_end(*SCALED)
        path = self.model / "eval" / "evaluation.json"
        first = path.read_bytes()
        best = (self.model / "eval" / "best.keras").read_bytes()
        self.follow_to_end(*SCALED)
        self.assertEqual(path.read_bytes(), first, "the file has not changed since")
        found = self.evaluations()
        found["best"]["loss"] = found["evaluations"][0]["loss"] = 1e-9
        path.write_text(json.dumps(found))
        os.utime(self.model / "model.keras")
        ended = self.follow_to_end(*SCALED)
        self.assertIn("2 evaluations; best loss 0.0000", ended.stdout)
        self.assertEqual(self.evaluations()["best"], found["best"])
        self.assertEqual((self.model / "eval" / "best.keras").read_bytes(), best)
        self.assert_fails(self.follow(*SCALED, "--monitor", "accuracy").end(), DATA, "with --monitor loss", "--eval-dir")
        for damage in ("{", "[]", '{"best": 1, "evaluations": []}', '{"monitor": 3, "best": null, "evaluations": {}}'):
            path.write_text(damage)
            self.assert_fails(self.follow(*SCALED).end(), DATA, "evaluation.json is", "--eval-dir")

    def test_two_evaluators_of_one_directory(self) -> None:
        self.model.mkdir()
        first = self.follow()
        self.assertTrue(eventually(lambda: "waiting for models of" in first.stderr))
        second = self.follow().end()
        self.assert_fails(second, TEMPORARY, f"another evaluator writes to {self.model / 'eval'}; wait", "--eval-dir")
        self.assertIn("waiting 10 s for it to end", second.stderr)
        other = self.follow("--eval-dir", self.scratch / "other")
        self.assertTrue(eventually(lambda: "waiting for models of" in other.stderr))
        for running in (first, other):
            running.process.kill()
            running.end()

    def test_a_job_that_nobody_runs_is_given_up(self) -> None:
        self.model.mkdir()
        self.record()
        self.assert_fails(self.follow(*BRIEFLY).end(), TEMPORARY, f"no process trains in {self.model}",
                          "its job has not ended")

    def test_an_evaluator_that_is_a_container_s_first_process_ends_on_request(self) -> None:
        """Which ignores every signal that it does not handle."""
        if os.geteuid() != 0:
            self.skipTest("a namespace of processes needs root")
        command = ["unshare", "--pid", "--fork", program("lockstep"), "evaluate", "--data-dir", str(self.data), "--follow",
                   str(self.model)]
        follower = Running(command, self.cwd, {})
        follower.wait_for_error("waiting for models of")
        pid = follower.process.pid
        (first,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        self.assertEqual(follower.end(10).code, 128 + signal.SIGTERM)

    def test_what_an_evaluator_waits_for_is_told(self) -> None:
        model, self.model = self.model, self.scratch / "nowhere"
        lost = self.follow()
        lost.wait_for_error("nowhere, which does not exist yet")
        lost.process.kill()
        lost.end()
        self.model = model
        self.succeed("--model", self.plain, *COMPILED, *SCALED, "--epochs", 1)
        late = self.follow(*SCALED)
        late.wait_for_error("had ended before; waiting 600 s for another (--follow-timeout)")
        late.process.kill()
        late.end()

    def test_data_that_are_not_there_are_told_before_the_first_model(self) -> None:
        self.data = self.scratch / "nowhere.npz"
        self.assert_fails(self.follow().end(), USAGE, "nowhere.npz, which does not exist")

    def test_wrong_usage(self) -> None:
        model = self.trained("model.keras")
        self.assert_fails(self.follow("--model", model).end(), USAGE, "--model and --follow are both given")
        self.assert_fails(self.use("evaluate", "--model", model, "--monitor", "loss2"), USAGE, "need --follow MODEL_DIR")
        self.assert_fails(self.use("evaluate", "--model", model, "--export", "best"), USAGE, "need --follow MODEL_DIR")
        for wrong in ("", "newest", "best,newest"):
            self.assert_fails(self.follow("--export", wrong).end(), USAGE, f"--export is '{wrong}'", "latest, best, final")
        self.model = model
        self.assert_fails(self.follow().end(), USAGE, "--follow takes a directory", f"{model} is a file")
        self.model = model.parent
        there = self.scratch / "there"
        self.assert_fails(self.follow("--export-dir", there).end(), USAGE, "--export-dir", "need --export")
        for export_dir in (there, f"{there}/"):
            ended = self.follow("--export", "best", "--eval-dir", there, "--export-dir", export_dir).end()
            self.assert_fails(ended, USAGE, f"--export-dir is {there}", "--eval-dir", "choose another")
        self.assertFalse(there.exists())

    def test_a_model_that_ends_the_evaluator_leaves_no_copy(self) -> None:
        self.model = self.trained("model.keras").parent
        self.assert_fails(self.follow("--monitor", "auc").end(), USAGE, "--monitor is 'auc'", "loss")
        self.assertEqual([path.name for path in (self.model / "eval").iterdir()], [".evaluator.lock"])

"""`lockstep evaluate --follow`: an evaluator beside a job."""

import errno
import fcntl
import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import data_files
from model_file_support import COMPILED, SCALED, SHORT, ModelFileTest
from support import DATA, IO, TEMPORARY, USAGE, Ended, Running, eventually, library, program

BRIEFLY = ("--follow-timeout", 1)  # of a job that had finished before: there may come another one


class FollowTest(ModelFileTest):
    def follow(self, *options: object, **environment: str) -> Running:
        command = [program("lockstep"), "evaluate", "--data-dir", str(self.data), "--follow", str(self.model),
                   *map(str, options)]
        return Running(command, self.cwd, environment)

    def follow_to_end(self, *options: object, **environment: str) -> Ended:
        """Of a job that has finished."""
        ended = self.follow(*options, *BRIEFLY, **environment).end()
        self.assertEqual((ended.code, ended.errors), (0, []), str(ended))
        return ended

    def record(self, **fields: object) -> None:
        """Writes what a job records in its model directory, as of a process elsewhere."""
        record = {"job": "job-1", "process": "elsewhere-1-1-1", "has_begun": True, "has_finished": False} | fields
        (self.model / ".lockstep.lock").write_text(json.dumps(record))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lock of the model directory."""
        with (self.model / ".lockstep.lock").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def put_model(self, made: Path) -> None:
        """Replaces the job's model as a whole."""
        new = self.model / ".new"
        new.write_bytes(made.read_bytes())
        new.rename(self.model / "model.keras")

    def assert_says(self, running: Running, text: str) -> None:
        self.assertTrue(eventually(lambda: text in running.stderr, 30), running.stderr)

    def evaluations(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.model / "eval" / "evaluation.json").read_text())
        return read

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

    def test_the_best_of_a_metric_with_a_name_of_its_own(self) -> None:
        made = self.trained("model.keras")
        with self.config_changed(made) as config:
            config["compile_config"]["metrics"] = [
                {"module": "keras.metrics", "class_name": "SparseCategoricalAccuracy", "registered_name": None,
                 "config": {"name": "hits", "dtype": "float32"}}]
        self.model = made.parent
        self.follow_to_end("--monitor", "hits")
        found = self.evaluations()
        found["best"]["hits"] = found["evaluations"][0]["hits"] = 1.5
        (self.model / "eval" / "evaluation.json").write_text(json.dumps(found))
        os.utime(made)
        self.assertIn("best hits 1.5", self.follow_to_end("--monitor", "hits").stdout)

    def test_values_of_two_test_sets_are_not_compared(self) -> None:
        self.model = self.trained("model.keras").parent
        self.follow_to_end()
        before = (self.model / "eval" / "evaluation.json").read_bytes()
        data_files.write_idx(self.data, test=30)
        self.assert_fails(self.follow(*BRIEFLY).end(), USAGE, "of another test set", "40 examples", "30 examples",
                          "--eval-dir")
        self.assertEqual((self.model / "eval" / "evaluation.json").read_bytes(), before)

    def test_values_of_two_losses_are_not_compared(self) -> None:
        """Nor of other metrics or settings. What is said by default may also be said aloud."""
        self.model = self.trained("model.keras").parent
        self.follow_to_end()
        path = self.model / "eval" / "evaluation.json"
        before = path.read_bytes()
        for option, value, now in (("--loss", "categorical_crossentropy", '"CategoricalCrossentropy"'),
                                   ("--metrics", "none", "here"), ("--clip-probabilities", None, "no there, yes here")):
            with self.subTest(option=option):
                os.utime(self.model / "model.keras")
                ended = self.follow(option, *([value] if value else []), *BRIEFLY).end()
                self.assert_fails(ended, USAGE, f"is of other values of {option} (", now, "--eval-dir")
                self.assertEqual(path.read_bytes(), before)
        self.follow_to_end("--loss", "sparse_categorical_crossentropy", "--metrics", "accuracy",
                           "--precision", "float32")
        self.assertEqual(len(self.evaluations()["evaluations"]), 2)

    def make_best(self) -> None:
        """Lets the best model have a loss that no other one reaches."""
        found = self.evaluations()
        found["best"]["loss"] = found["evaluations"][-1]["loss"] = 1e-9
        (self.model / "eval" / "evaluation.json").write_text(json.dumps(found))

    def test_another_job_in_the_directory_begins_anew(self) -> None:
        self.model = self.trained("model.keras").parent
        self.follow_to_end("--export", "best")
        self.make_best()
        earlier = self.evaluations()
        for name, kept in (("model.keras", "best.keras"), ("second.h5", "best.h5")):
            with self.subTest(name=name):
                self.succeed("--model", self.plain, *COMPILED, *SHORT, "--save-as", name, "--resume", "never")
                ended = self.follow_to_end("--export", "best")
                self.assertEqual(ended.stderr.count("is of another job"), 1, str(ended))
                best = self.evaluations()["best"]
                self.assertIn(f"1 evaluations; best loss {best['loss']:.4f}, {name}", ended.stdout)
                made = (self.model / name).read_bytes()
                self.assertEqual([path.name for path in (self.model / "eval").glob("best*")], [kept])
                self.assertEqual((self.model / "eval" / kept).read_bytes(), made)
                served = max((self.model / "export" / "best").iterdir(), key=lambda path: int(path.name))
                self.assertEqual([path.read_bytes() for path in served.glob("model.*")], [made])
                found = self.evaluations()
                self.assertEqual(found["evaluations"], [found["best"]])
                (first, *_) = found["earlier_evaluations"]
                self.assertEqual(first, earlier["best"] | {"job": earlier["job"], "directory": ".."})
                again = self.follow_to_end("--export", "best")
                self.assertNotIn("another job", again.stderr)
                self.assertEqual(self.evaluations(), found)
        self.assertEqual(len(list((self.model / "export" / "best").iterdir())), 3)

    def test_the_model_of_the_job_before_is_not_the_next_job_s(self) -> None:
        """Until the next job has written one."""
        self.model = self.trained("model.keras").parent
        self.follow_to_end()
        before = self.evaluations()
        self.record(job="job-2", training="job-2")
        with self.held():
            follower = self.follow(*BRIEFLY)
            self.assert_says(follower, "still waiting for news")
            follower.process.kill()
            ended = follower.end()
        self.assertNotIn("another job", ended.stderr)
        self.assertEqual(self.evaluations(), before)
        os.utime(self.model / "model.keras")
        self.assertIn("is of another job", self.follow(*BRIEFLY).end().stderr)
        self.assertEqual(len(self.evaluations()["evaluations"]), 1)

    def test_a_job_that_resumes_goes_on_with_its_best_model(self) -> None:
        """Also without a launcher, where each process is a job, and after two starts without an evaluation between."""
        command = ("--model", self.plain, *COMPILED, "--global-batch-size", 20, "--epochs", 1000,
                   "--backup-save-freq", 50)

        def backups() -> set[str]:
            return {path.name for path in self.model.glob("backup/fit-*.h5")}

        jobs = set()
        for _ in range(2):
            before = backups()
            trained = self.start(*command)
            self.assertTrue(eventually(lambda: bool(backups() - before), 30, interval=0.001))
            trained.process.kill()
            trained.end()
            record = json.loads((self.model / ".lockstep.lock").read_text())
            jobs.add(record["job"])
            if not before:
                self.assertEqual(record["training"], record["job"])
                self.follow(*BRIEFLY).end()
                self.make_best()
        best = self.evaluations()["best"]
        self.assertEqual(len(jobs), 2)
        self.assertIn("Resuming from", self.succeed(*command).stdout)
        ended = self.follow_to_end()
        self.assertNotIn("another job", ended.stderr)
        self.assertEqual(self.evaluations()["best"], best)
        self.assertGreater(len(self.evaluations()["evaluations"]), 1)

    def test_an_evaluation_json_that_names_no_job_is_this_job_s(self) -> None:
        self.model = self.trained("model.keras").parent
        self.follow_to_end()
        self.make_best()
        found = self.evaluations()
        best = found["best"]
        for key in ("job", "directory", "settings"):
            self.assertTrue(found.pop(key))
        (self.model / "eval" / "evaluation.json").write_text(json.dumps(found))
        os.utime(self.model / "model.keras")
        self.assertNotIn("another job", self.follow_to_end().stderr)
        found = self.evaluations()
        self.assertEqual((found["best"], len(found["evaluations"])), (best, 2))
        self.assertTrue(found["job"] and found["settings"])

    def test_two_jobs_with_one_directory_of_evaluations(self) -> None:
        there = ("--eval-dir", self.scratch / "there")
        first = self.trained("first.keras").parent
        second = self.trained("second.keras", "--seed", 7).parent
        for name, other in (("first.keras", None), ("second.keras", first), ("first.keras", second)):
            self.model = first if other != first else second
            ended = self.follow_to_end(*there)
            self.assertEqual(f"is of the job in {other}, " in ended.stderr, other is not None, str(ended))
            self.assertIn("1 evaluations; best loss", ended.stdout)
            self.assertEqual((self.scratch / "there" / "best.keras").read_bytes(), (self.model / name).read_bytes())

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

    def test_models_that_no_evaluator_wrote_stay(self) -> None:
        made = self.trained("model.keras")
        self.model = made.parent
        results = self.scratch / "results"
        results.mkdir()
        for name in ("best.keras", "best.h5"):
            mine = results / name
            mine.write_bytes(b"MINE")
            ended = self.follow("--eval-dir", results, *BRIEFLY).end()
            self.assert_fails(ended, USAGE, str(mine), "move it away, or give another --eval-dir")
            self.assertEqual(mine.read_bytes(), b"MINE")
            self.assertEqual(sorted(path.name for path in results.iterdir()), [".evaluator.lock", name])
            mine.unlink()
        self.follow_to_end("--eval-dir", results)
        mine = results / "best.h5"
        mine.write_bytes(b"MINE")
        os.utime(made)
        self.assert_fails(self.follow("--eval-dir", results, *BRIEFLY).end(), USAGE, str(mine))
        self.assertEqual((mine.read_bytes(), (results / "best.keras").read_bytes()), (b"MINE", made.read_bytes()))

    def test_a_best_model_in_another_format_replaces_the_former_one(self) -> None:
        """Also after an evaluator that was killed between the two."""
        later = self.trained("model.keras")
        self.model = self.trained("model.h5").parent
        self.follow_to_end()
        path = self.model / "eval" / "evaluation.json"
        former = self.model / "eval" / "best.h5"
        content = former.read_bytes()
        found = self.evaluations()
        found["best"]["loss"] = found["evaluations"][0]["loss"] = 1e9
        path.write_text(json.dumps(found))
        self.put_model(later)
        self.record(has_finished=True, model="model.keras")
        for _ in range(2):
            self.follow_to_end()
            self.assertFalse(former.exists())
            self.assertTrue((self.model / "eval" / "best.keras").exists())
            former.write_bytes(content)

    def test_a_best_model_that_is_gone_is_replaced_by_the_next_one(self) -> None:
        """By the model itself if it is still there, else by a worse one."""
        made = self.trained("model.keras")
        self.model = made.parent
        self.follow_to_end(*SCALED)
        path = self.model / "eval" / "evaluation.json"
        best = self.model / "eval" / "best.keras"
        first = path.read_bytes()
        for is_replaced in (False, True):
            with self.subTest(is_replaced=is_replaced):
                best.unlink()
                if is_replaced:
                    found = self.evaluations()
                    found["best"]["loss"] = found["evaluations"][0]["loss"] = 1e-9
                    path.write_text(json.dumps(found))
                    os.utime(made)
                ended = self.follow_to_end(*SCALED, "--export", "best")
                self.assertEqual(ended.stderr.count(f"warning: {best} is gone (best loss"), 1, str(ended))
                self.assertIn("; best loss", ended.stdout)
                self.assertEqual(best.read_bytes(), made.read_bytes())
                found = self.evaluations()
                self.assertEqual(found["best"], found["evaluations"][-1])
                self.assertGreater(found["best"]["loss"], 1e-9)
                self.assertEqual(len(list((self.model / "export" / "best").iterdir())), 1 + is_replaced)
                if not is_replaced:
                    self.assertEqual(path.read_bytes(), first)

    def test_a_best_model_that_is_lost_while_the_evaluator_waits(self) -> None:
        made = self.trained("model.keras")
        self.model = made.parent
        self.record()
        follower = self.follow("--follow-timeout", 60)
        follower.wait_for_output("model.keras, step")
        best = self.model / "eval" / "best.keras"
        self.assertTrue(eventually(best.exists))
        best.unlink()
        self.record(has_finished=True, model="model.keras")
        ended = follower.end()
        self.assertEqual((ended.code, ended.errors), (0, []), str(ended))
        self.assertIn(f"{best} is gone", ended.stderr)
        self.assertEqual(best.read_bytes(), made.read_bytes())

    def test_a_damaged_best_model_is_not_exported(self) -> None:
        made = self.trained("model.keras")
        self.model = made.parent
        self.follow_to_end()
        best = self.model / "eval" / "best.keras"
        best.write_bytes(b"garbage")
        ended = self.follow_to_end("--export", "best")
        aside = best.with_name("best.keras.damaged")
        self.assertIn(f"warning: {best} is damaged, or another file, and is now {aside} (best loss", ended.stderr)
        self.assertEqual((aside.read_bytes(), best.read_bytes()), (b"garbage", made.read_bytes()))
        (exported,) = (self.model / "export" / "best").glob("*/model.*")
        self.assertEqual(exported.read_bytes(), made.read_bytes())

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

    def test_what_failed_exports_leave_is_no_version(self) -> None:
        made = self.trained("model.keras")
        self.model = made.parent
        best = self.model / "export" / "best"
        (best / ".exporting-7").mkdir(parents=True)
        self.follow_to_end("--export", "best")
        version = str(made.stat().st_mtime_ns // 1_000_000)
        self.assertEqual([path.name for path in best.iterdir()], [version])

    def test_versions_of_others_stay(self) -> None:
        made = self.trained("model.keras")
        self.model = made.parent
        latest = self.model / "export" / "latest"
        for number in (1, 2):
            (latest / str(number)).mkdir(parents=True)
            (latest / str(number) / "saved_model.pb").touch()
        (latest / "3").mkdir()
        versions = []
        for _ in range(2):
            os.utime(made)
            versions.append(str(made.stat().st_mtime_ns // 1_000_000))
            self.follow_to_end("--export", "latest", "--exports-to-keep", 1)
        self.assertEqual(sorted(path.name for path in latest.iterdir()), sorted(["1", "2", "3", versions[-1]]))
        highest = latest / str(2**64 - 1)
        highest.mkdir()
        os.utime(made)
        ended = self.follow("--export", "latest", *BRIEFLY).end()
        self.assertEqual(ended.code, IO, str(ended))
        self.assertIn(f"{highest} has the highest number that there is", ended.stderr)
        self.assertTrue((latest / versions[-1] / "model.keras").exists())

    def test_exports_are_one_job_s_and_one_evaluator_s(self) -> None:
        """All of it is told before the first model is evaluated."""
        self.model = self.trained("model.keras").parent
        there = ("--export", "best", "--export-dir", self.scratch / "there")
        self.follow_to_end(*there)
        before = sorted((self.scratch / "there" / "best").iterdir())
        other, self.model = self.model, self.scratch / "other"
        self.model.mkdir()
        ended = self.follow(*there, "--exports-to-keep", 1, *BRIEFLY).end()
        self.assert_fails(ended, USAGE, f"holds models of the job in {other}", "another --export-dir")
        self.assertEqual(sorted((self.scratch / "there" / "best").iterdir()), before)
        ended = self.follow("--export", "final", "--export-dir", "/proc/x", *BRIEFLY).end()
        self.assertEqual(ended.code, IO, str(ended))
        with (self.scratch / "there" / ".evaluator.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.model = other
            ended = self.follow(*there, "--eval-dir", self.scratch / "eval", *BRIEFLY).end()
            self.assert_fails(ended, TEMPORARY, "another evaluator exports to")
        (self.scratch / "there" / ".exports.json").write_text("{")
        self.assert_fails(self.follow(*there, *BRIEFLY).end(), DATA, ".exports.json is damaged")

    def test_an_export_that_failed_is_made_up_for(self) -> None:
        """By the same evaluator, and by the next one."""
        made = self.trained("model.keras")
        self.model = made.parent
        exported = self.model / "export"
        fault = {"LD_PRELOAD": library("failing_calls"), "LOCKSTEP_TEST_WATCH": str(exported / "best"),
                 "LOCKSTEP_TEST_FAULT": f"1 {errno.EIO}", "LOCKSTEP_TEST_FAULT_CALL": "rename"}
        ended = self.follow_to_end("--export", "best,final", **fault,
                                   LOCKSTEP_TEST_FAULT_ONCE=str(self.scratch / "once"))
        self.assertEqual(ended.stderr.count("Input/output error"), 1, str(ended))
        for name in ("best", "final"):
            self.assertEqual([path.read_bytes() for path in exported.glob(f"{name}/*/model.*")], [made.read_bytes()])
            self.assertEqual(len(list((exported / name).iterdir())), 1)
        os.utime(made)
        path = self.model / "eval" / "evaluation.json"
        found = json.loads(path.read_text())
        found["best"]["loss"] = found["evaluations"][0]["loss"] = 1e9
        path.write_text(json.dumps(found))
        fault["LOCKSTEP_TEST_READ_ONLY"] = str(self.scratch / "once")
        self.assertEqual(self.follow("--export", "best", *BRIEFLY, **fault).end().code, IO)
        self.follow_to_end("--export", "best")
        self.assertIn(str(made.stat().st_mtime_ns // 1_000_000), [path.name for path in (exported / "best").iterdir()])

    def test_files_are_durable_before_they_have_their_names(self) -> None:
        self.model = self.trained("model.keras").parent
        trace = self.scratch / "trace"
        self.follow_to_end("--export", "best", LD_PRELOAD=library("failing_calls"), LOCKSTEP_TEST_TRACE=str(trace),
                           LOCKSTEP_TEST_WATCH=str(self.model))
        calls = trace.read_text().splitlines()
        (synced,) = [call for call in calls if call.startswith("fsync ..candidate.keras.")]
        self.assertLess(calls.index(synced), calls.index("rename .candidate.keras"))
        (renamed,) = [call for call in calls if call.startswith("rename .exporting-")]
        self.assertLess(calls.index("fsync model.keras"), calls.index(renamed))
        self.assertIn("fsync best", calls[calls.index(renamed):])
        (pending,) = [call for call in calls if call.startswith("rename .best-")]
        self.assertIn("fsync eval", calls[calls.index(pending):])

    def test_models_are_exported(self) -> None:
        self.model = self.trained("model.keras").parent
        path = self.model / "eval" / "evaluation.json"

        def follow(*options: object) -> None:
            self.follow_to_end(*SCALED, "--export", "latest,best,final", "--exports-to-keep", 2, *options)

        def exported(name: str) -> list[int]:
            return sorted(int(each.name) for each in (self.model / "export" / name).iterdir())

        versions = []
        for _ in range(3):
            os.utime(self.model / "model.keras")
            versions.append((self.model / "model.keras").stat().st_mtime_ns // 1_000_000)
            follow()
        self.assertEqual(exported("latest"), versions[-2:])
        self.assertEqual(exported("final"), versions[-2:])
        self.assertEqual(exported("best"), versions[:1], "the others were no better")
        for name, key in (("best", "best"), ("latest", "evaluations")):
            found = json.loads(path.read_text())[key]
            scores = json.loads(max((self.model / "export" / name).glob("*/evaluation.json")).read_text())
            last = found[-1] if isinstance(found, list) else found
            self.assertEqual(scores, {name: last[name] for name in ("accuracy", "loss")} | {"input_scale": 1 / 255})
        for name in ("latest", "final"):
            copy = self.model / "export" / name / str(versions[-1]) / "model.keras"
            self.assertEqual(copy.read_bytes(), (self.model / "model.keras").read_bytes())
            self.assertEqual(copy.stat().st_mtime_ns // 1_000_000, versions[-1])
        ahead = self.model / "export" / "final" / str(versions[-1] + 10**9)  # of a clock that is ahead
        (self.model / "export" / "final" / str(versions[-1])).rename(ahead)
        os.utime(ahead / "model.keras", (1, 1))
        follow()
        self.assertEqual(exported("final")[-1], versions[-1] + 10**9 + 1)
        found = json.loads(path.read_text())
        found["best"]["loss"] = 1e9
        path.write_text(json.dumps(found))
        os.utime(self.model / "model.keras")
        follow("--export-dir", self.scratch / "there")
        self.assertEqual(len(list((self.scratch / "there" / "best").iterdir())), 1)
        self.assertEqual(exported("best"), versions[:1])
        follow("--export-dir", self.scratch / "there")  # nothing new: nothing is written again
        self.assertEqual(len(list((self.scratch / "there" / "latest").iterdir())), 1)

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

    def test_an_evaluator_that_was_killed_as_it_found_the_best_model(self) -> None:
        """Before it wrote evaluation.json, and after that."""
        self.model = self.trained("model.keras").parent
        self.follow_to_end(*SCALED)
        best = self.model / "eval" / "best.keras"
        content = best.read_bytes()
        pending = best.with_name(f".best-{self.evaluations()['best']['written']:.3f}.keras")
        unknown = best.with_name(".best-2000000000.000.keras")
        for is_written in (True, False):
            with self.subTest(is_written=is_written):
                unknown.write_bytes(b"not evaluated")
                if is_written:
                    best.rename(pending)
                self.follow_to_end(*SCALED)
                self.assertEqual(best.read_bytes(), content)
                self.assertFalse(pending.exists() or unknown.exists())

    def test_two_evaluators_of_one_directory(self) -> None:
        self.model.mkdir()
        first = self.follow()
        self.assertTrue(eventually(lambda: "waiting for models of" in first.stderr))
        second = self.follow().end()
        self.assert_fails(second, TEMPORARY, f"another evaluator writes to {self.model / 'eval'}", "--eval-dir")
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

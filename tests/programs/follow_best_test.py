"""`lockstep evaluate --follow`: which models it compares, and what becomes of the best one."""

import json
import os

import data_files
from follow_support import BRIEFLY, FollowTest
from model_file_support import COMPILED, SCALED, SHORT
from support import USAGE, eventually


class FollowBestTest(FollowTest):
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

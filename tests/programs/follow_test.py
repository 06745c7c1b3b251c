"""`lockstep evaluate --follow`: an evaluator beside a job."""

import json
import os
import re
import signal
from typing import Any

from model_file_support import COMPILED, SCALED, SHORT, ModelFileTest
from support import DATA, TEMPORARY, USAGE, Running, eventually, program


class FollowTest(ModelFileTest):
    def follow(self, *options: object) -> Running:
        command = [program("lockstep"), "evaluate", "--data-dir", str(self.data), "--follow", str(self.model),
                   *map(str, options)]
        return Running(command, self.cwd, {})

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
        (self.model / "damaged.h5").write_bytes(b"no model")
        ended = self.follow("--eval-dir", self.scratch / "there", "--follow-timeout", 1).end()
        self.assertEqual((ended.code, len(ended.stdout.splitlines())), (TEMPORARY, 1), str(ended))  # the banner
        self.assertIn(f"warning: {self.model / 'damaged.h5'} is left out: ", ended.stderr)
        (self.model / "damaged.h5").unlink()
        ended = self.follow("--eval-dir", self.scratch / "there", *SCALED).end()
        self.assertEqual((ended.code, ended.errors), (0, []), str(ended))
        self.assertIn("1 evaluations; best loss", ended.stdout)
        self.assertTrue((self.scratch / "there" / "best.keras").exists())
        self.assertFalse((self.model / "eval").exists())

    def test_models_are_exported(self) -> None:
        self.model = self.trained("model.keras").parent
        path = self.model / "eval" / "evaluation.json"

        def follow(*options: object) -> None:
            ended = self.follow(*SCALED, "--export", "latest,best,final", "--exports-to-keep", 2, *options).end()
            self.assertEqual((ended.code, ended.errors), (0, []), str(ended))

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
        self.assertEqual(self.follow(*SCALED).end().code, 0)
        path = self.model / "eval" / "evaluation.json"
        first = path.read_bytes()
        best = (self.model / "eval" / "best.keras").read_bytes()
        self.assertEqual(self.follow(*SCALED).end().code, 0)
        self.assertEqual(path.read_bytes(), first, "the file has not changed since")
        found = self.evaluations()
        found["best"]["loss"] = found["evaluations"][0]["loss"] = 1e-9
        path.write_text(json.dumps(found))
        os.utime(self.model / "model.keras")
        ended = self.follow(*SCALED).end()
        self.assertEqual(ended.code, 0, str(ended))
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
        self.assertEqual(self.follow(*SCALED).end().code, 0)
        best = self.model / "eval" / "best.keras"
        content = best.read_bytes()
        pending = best.with_name(f".best-{self.evaluations()['best']['written']:.3f}.keras")
        unknown = best.with_name(".best-2000000000.000.keras")
        for is_written in (True, False):
            with self.subTest(is_written=is_written):
                unknown.write_bytes(b"not evaluated")
                if is_written:
                    best.rename(pending)
                self.assertEqual(self.follow(*SCALED).end().code, 0)
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
        ended = self.follow("--follow-timeout", 1).end()
        self.assert_fails(ended, TEMPORARY, f"no process trains in {self.model}", "its job has not ended")

    def test_wrong_usage(self) -> None:
        model = self.trained("model.keras")
        self.assert_fails(self.follow("--model", model).end(), USAGE, "--model and --follow are both given")
        self.assert_fails(self.use("evaluate", "--model", model, "--monitor", "loss2"), USAGE, "need --follow MODEL_DIR")
        self.assert_fails(self.use("evaluate", "--model", model, "--export", "best"), USAGE, "need --follow MODEL_DIR")
        for wrong in ("", "newest", "best,newest"):
            self.assert_fails(self.follow("--export", wrong).end(), USAGE, f"--export is '{wrong}'", "latest, best, final")
        self.model = model.parent
        self.assert_fails(self.follow("--monitor", "auc").end(), USAGE, "--monitor is 'auc'", "loss")

"""`lockstep evaluate --follow --export`: the models that an evaluator keeps."""

import errno
import fcntl
import json
import os

from follow_support import BRIEFLY, FollowTest
from model_file_support import SCALED
from support import DATA, IO, TEMPORARY, USAGE, library


class FollowExportsTest(FollowTest):
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

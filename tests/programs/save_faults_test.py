"""Saves that are killed, fail or run out of space leave the earlier version or a complete new one.

    run.py BUILD_DIR save_faults --count 300 --seed 7    300 kills at random moments (30 without --count)
"""

import errno
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import support
from support import DATA, IO, Ended, ProgramTest

FORMS = (".h5", ".keras", ".weights.h5")
ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT)


class SaveFaultsTest(ProgramTest):
    def setUp(self) -> None:
        super().setUp()
        self.seed = support.seed()
        self.random = random.Random(self.seed)
        self.folder = self.scratch / "models"
        self.folder.mkdir()

    def probe(self, *arguments: object, before: tuple[str, ...] = (), **environment: str) -> Ended:
        command = [*before, support.program("checkpoint_probe"), *map(str, arguments)]
        return support.Running(command, self.cwd, environment).end()

    def save(self, file: Path, version: int, **environment: str) -> Ended:
        return self.probe("save", file, self.seed, version, 1, **environment)

    def version_of(self, file: Path) -> int:
        """The version in the file, which must be complete; 0 if there is no file."""
        if not os.path.lexists(file):
            return 0
        ended = self.probe("check", file, self.seed)
        self.assertEqual(ended.code, 0, f"seed {self.seed}{ended}")
        return int(ended.stdout)

    def leftovers(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name.startswith("."))

    def assert_fails_with(self, ended: Ended, code: int, path: Path) -> None:
        """Asserts one sentence that names the path and the error."""
        self.assertEqual(ended.code, IO, str(ended))
        self.assertEqual(len(ended.errors), 1, str(ended))
        for phrase in (str(path), os.strerror(code)):
            self.assertIn(phrase, ended.errors[0], str(ended))

    def test_killed_at_random_moments(self) -> None:
        count = support.count(300)
        print(f"seed {self.seed}: {count} kills")
        in_midst = 0
        for form in FORMS:
            with self.subTest(form=form):
                in_midst += self.kill_at_random(self.folder / f"m{form}", -(-count // len(FORMS)))
        self.assertGreater(in_midst, 0 if count < 100 else count // 20, "no kill hit a save")

    def kill_at_random(self, file: Path, count: int) -> int:
        """Returns how many kills left a partial temporary file."""
        version, in_midst, newly_named, save_takes_s = 0, 0, 0, 0.01
        earlier_leftovers: list[str] = []
        for _ in range(count):
            command = [support.program("checkpoint_probe"), "save", file, str(self.seed), str(version + 1), "1000000"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
                lines: list[str] = []
                wanted = 1 + 2 * self.random.randrange(4)  # the last line is then "saving"
                began = 0.0
                while len(lines) < wanted:
                    lines.append(process.stdout.readline().decode().strip())
                    save_takes_s = time.monotonic() - began if lines[-1].startswith("saved") else save_takes_s
                    began = time.monotonic()
                time.sleep(self.random.uniform(0, 1.2) * save_takes_s)
                process.send_signal(signal.SIGKILL)
                process.wait()
                lines += process.stdout.read().decode().splitlines()
            began_with = [int(line.split()[1]) for line in lines if line.startswith("saving ")]
            done = [int(line.split()[1]) for line in lines if line.startswith("saved ")]
            newest = done[-1] if done else version
            found = self.version_of(file)
            self.assertIn(found, (newest, began_with[-1]), f"seed {self.seed}: {lines}")
            # At most one temporary file may remain: a save first removes those of dead processes.
            leftovers = self.leftovers()
            self.assertLessEqual(len(leftovers), 1, f"seed {self.seed}: {lines}")
            if done:
                self.assertFalse(set(leftovers) & set(earlier_leftovers), f"seed {self.seed}: {lines}")
            in_midst += leftovers not in ([], earlier_leftovers)
            earlier_leftovers = leftovers
            newly_named += found > newest
            version = found
        print(f"{file.name}: {count} kills, {in_midst} left a partial temporary file, "
              f"{newly_named} came between the rename and the report; {version} versions")
        self.assertGreater(version, count)
        self.assertEqual(self.save(file, version + 1).code, 0)
        self.assertEqual(self.leftovers(), [])
        file.unlink()
        return in_midst

    def calls_of_a_save(self, file: Path) -> list[str]:
        trace = self.scratch / "trace"
        ended = self.save(file, 1, **self.shim(), LOCKSTEP_TEST_TRACE=str(trace))
        self.assertEqual(ended.code, 0, str(ended))
        calls = trace.read_text().splitlines()
        trace.unlink()
        return [re.sub(r"\S+\.tmp$", "tmp", call) for call in calls]

    def shim(self) -> dict[str, str]:
        library = support.library("failing_calls")
        return {"LD_PRELOAD": library, "LOCKSTEP_TEST_WATCH": str(self.folder)}

    def test_system_call_order_survives_power_failure(self) -> None:
        """The content is synced before the rename, and the directory before success is reported."""
        for form in FORMS:
            calls = self.calls_of_a_save(self.folder / f"m{form}")
            order = ["write tmp", "fsync tmp", "rename tmp", f"fsync {self.folder.name}"]
            found = [call for call, _ in itertools.groupby(call for call in calls if call in order)]
        self.assertEqual(found, order, str(calls))

    def test_killed_at_every_call(self) -> None:
        for form in FORMS:
            file = self.folder / f"m{form}"
            calls = self.calls_of_a_save(file)
            self.assertGreaterEqual(len(calls), 8)
            version, left_behind = 1, 0
            for number, call in enumerate(calls, 1):
                for how in ("before", "after"):
                    with self.subTest(form=form, call=call, how=how):
                        ended = self.save(file, version + 1, **self.shim(), LOCKSTEP_TEST_FAULT=f"{number} {how}")
                        self.assertEqual(ended.code, -signal.SIGKILL, str(ended))
                        found = self.version_of(file)
                        renamed = number > calls.index("rename tmp") + 1 or (call == "rename tmp" and how == "after")
                        self.assertEqual(found, version + 1 if renamed else version)
                        version = found
                        left = self.leftovers()
                        self.assertEqual(self.save(file, version).code, 0)
                        self.assertEqual(self.leftovers(), [])
                        left_behind += len(left)
            self.assertGreater(left_behind, 4)

    def test_every_failing_call_is_reported(self) -> None:
        for form in FORMS:
            file = self.folder / f"m{form}"
            calls = self.calls_of_a_save(file)
            version = 1
            reported = 0
            for number, call in enumerate(calls, 1):
                for code in ERRORS:
                    with self.subTest(form=form, call=call, code=errno.errorcode[code]):
                        ended = self.save(file, version + 1, **self.shim(), LOCKSTEP_TEST_FAULT=f"{number} {code}")
                        found = self.version_of(file)
                        self.assertEqual(self.leftovers(), [])
                        if ended.code == 0:  # close() may fail for files that were only read or are empty
                            self.assertTrue(call.startswith("close"), call)
                            self.assertEqual(found, version + 1)
                        else:
                            reported += 1
                            self.assert_fails_with(ended, code, file)
                            renamed = number > calls.index("rename tmp") + 1  # the directory is not synced yet
                            self.assertEqual(found, version + 1 if renamed else version)
                        version = found
            self.assertGreaterEqual(reported, 7 * len(ERRORS))

    def test_short_writes_are_completed(self) -> None:
        for form in FORMS:
            file = self.folder / f"m{form}"
            number = self.calls_of_a_save(file).index("write tmp") + 1
            ended = self.save(file, 2, **self.shim(), LOCKSTEP_TEST_FAULT=f"{number} half")
            self.assertEqual(ended.code, 0, str(ended))
            self.assertEqual(self.version_of(file), 2)

    def test_disk_too_small_for_two_files(self) -> None:
        for form in FORMS:
            with self.subTest(form=form):
                self.setUp()
                with self.mounted("1200k") as disk:
                    self.folder = disk
                    file = disk / f"m{form}"
                    self.assertEqual(self.save(file, 1).code, 0)
                    for _ in range(3):
                        self.assert_fails_with(self.save(file, 2), errno.ENOSPC, file)
                        self.assertEqual(self.version_of(file), 1)
                        self.assertEqual(self.leftovers(), [])

    def test_file_size_limit(self) -> None:
        file = self.folder / "m.keras"
        self.assertEqual(self.save(file, 1).code, 0)
        limit = ("bash", "-c", 'ulimit -f 64; exec "$@"', "bash")
        self.assert_fails_with(self.probe("save", file, self.seed, 2, 1, before=limit), errno.EFBIG, file)
        self.assertEqual(self.version_of(file), 1)
        self.assertEqual(self.leftovers(), [])

    def test_a_read_only_directory(self) -> None:
        if os.geteuid() == 0:
            self.skipTest("root can write everywhere (tests/unit/checkpoint/atomic_file_test.cpp drops privileges)")
        file = self.folder / "m.h5"
        self.assertEqual(self.save(file, 1).code, 0)
        self.folder.chmod(0o555)
        self.assert_fails_with(self.save(file, 2), errno.EACCES, file)
        self.folder.chmod(0o755)
        self.assertEqual(self.version_of(file), 1)

    def test_directory_removed_during_save(self) -> None:
        """Either an error is reported or the directory is created again. An existing file must be complete."""
        file = self.folder / "m.h5"
        for _ in range(support.count(50)):
            running = support.Running([support.program("checkpoint_probe"), "save", str(file), str(self.seed), "1", "8"],
                                      self.cwd, {})
            while "saving" not in running.stdout:
                time.sleep(0.001)
            time.sleep(self.random.uniform(0, 0.1))
            shutil.rmtree(self.folder, ignore_errors=True)
            ended = running.end()
            self.folder.mkdir(exist_ok=True)
            if ended.code != 0:
                self.assertEqual(ended.code, IO, str(ended))
                self.assertIn(str(self.folder), ended.errors[0])
                self.assertIn(os.strerror(errno.ENOENT), ended.errors[0])
            self.version_of(file)
            self.assertEqual(self.leftovers(), [], str(ended))

    def test_symbolic_links_stay(self) -> None:
        real = self.folder / "real"
        real.mkdir()
        (self.folder / "linked").symlink_to("real")
        self.assertEqual(self.save(self.folder / "linked" / "m.h5", 1).code, 0)
        self.assertEqual(self.version_of(real / "m.h5"), 1)

        link = self.folder / "latest.h5"
        link.symlink_to("real/m.h5")
        self.assertEqual(self.save(link, 2).code, 0)
        self.assertTrue(link.is_symlink())
        self.assertEqual(self.version_of(real / "m.h5"), 2)

        nowhere = self.folder / "nowhere.h5"
        nowhere.symlink_to("missing/m.h5")
        self.assertEqual(self.save(nowhere, 3).code, 0)
        self.assertTrue(nowhere.is_symlink())
        self.assertEqual(self.version_of(self.folder / "missing" / "m.h5"), 3)

        loop = self.folder / "loop"
        loop.symlink_to("loop")
        self.assert_fails_with(self.save(loop / "m.h5", 4), errno.ELOOP, loop)

    def test_inspect_reports_damage(self) -> None:
        """Files with flipped bits, zeroed or cut off: exit code 65 and one sentence, or an unchanged model."""
        count = support.count(300)
        print(f"seed {self.seed}: {count} damaged files")
        reported = 0
        for number in range(count):
            form = FORMS[number % len(FORMS)]
            whole, file = self.folder / f"whole{form}", self.folder / f"damaged{form}"
            if not whole.exists():
                self.assertEqual(self.save(whole, 5).code, 0)
            content = bytearray(whole.read_bytes())
            at = self.random.randrange(len(content) if number % 2 else 8192)  # half of the damage goes to the metadata
            how = self.random.choice(("flip", "zero", "cut"))
            if how == "flip":
                content[at] ^= 1 << self.random.randrange(8)
            elif how == "zero":
                content[at:at + 64] = bytes(len(content[at:at + 64]))
            else:
                del content[at:]
            file.write_bytes(content)
            inspected = support.Running([support.program("lockstep"), "inspect", "--check", str(file)], self.cwd, {}).end()
            same = self.probe("same", whole, file)
            with self.subTest(seed=self.seed, number=number, form=form, how=how, at=at):
                self.assertIn(inspected.code, (0, DATA), str(inspected))
                self.assertEqual(same.code, inspected.code, f"{same}{inspected}")
                if inspected.code == DATA:
                    reported += 1
                    self.assertRegex(inspected.stderr, rf"^error: [^\n]*{re.escape(str(file))}[^\n]*[^.\n]\n$")
        print(f"{reported} of {count} damaged files were reported, the others were unchanged models")
        self.assertGreater(reported, count // 3)

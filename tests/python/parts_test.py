"""Parts of the package in a world of one: the order of data, backups as files, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unittest
import unittest.mock
from itertools import chain

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import lockstep
import ml_dtypes
import numpy as np
from lockstep import _backup, _data, _folder, _memory, _stream, _world
from support import JobTest, directory_of_another_job

lockstep.init()


class WorldTest(unittest.TestCase):
    def test_jax_does_not_wait_for_itself(self) -> None:
        """With one thread, a callback may wait for ever; see _world.py."""
        self.assertFalse(jax.config.values["jax_cpu_enable_async_dispatch"])
        self.assertGreaterEqual(int(os.environ.get("PJRT_NPROC") or len(os.sched_getaffinity(0))), 3)


class ShardTest(unittest.TestCase):
    def test_ranks_slice_the_same_batches(self) -> None:
        x = np.arange(23)
        for ranks in (1, 2, 3, 4):
            seen = []
            for rank in range(ranks):
                with unittest.mock.patch.multiple(_data, rank=lambda r=rank: r, size=lambda n=ranks: n):
                    data = lockstep.shard(x, batch_size=5, seed=1)
                    data.on_epoch_begin()
                    seen.append([data[i][0].tolist() for i in range(data.num_batches)])
            batches = [list(chain.from_iterable(own[i] for own in seen if i < len(own))) for i in range(5)]
            data = lockstep.shard(x, batch_size=5, seed=1)
            data.on_epoch_begin()
            self.assertEqual(batches, [data[i][0].tolist() for i in range(5)])
            self.assertEqual(sorted(chain.from_iterable(batches)), x.tolist())

    def test_order_depends_on_seed_and_pass_and_position(self) -> None:
        data = lockstep.shard(np.arange(40), batch_size=8, seed=3)
        passes = []
        for _ in range(2):
            data.on_epoch_begin()
            passes.append([data[i][0].tolist() for i in range(5)])
            data.on_epoch_end()
        self.assertNotEqual(passes[0], passes[1])
        position = _data.feed.position()
        _data.feed.restore(position, 2)
        data.on_epoch_begin()
        self.assertEqual(data.num_batches, 3)
        self.assertEqual([data[i][0].tolist() for i in range(3)], passes[1][2:])

    def test_data_are_known_by_their_examples(self) -> None:
        x = np.arange(4000).reshape(1000, 4)

        def described(*arrays: np.ndarray, **options: int) -> str:
            return json.dumps(lockstep.shard(*arrays, **options).describe())

        for block in (16 << 20, 640):  # the latter is of 20 examples
            with unittest.mock.patch.object(_data, "_BLOCK_BYTES", block):
                given = described(x)
                self.assertEqual(described(x.copy(), batch_size=np.int64(32)), given)
                for change in (0, 577, -1):
                    other = x.copy()
                    other[change] += 1
                    self.assertNotEqual(described(other), given)
        words = [np.array([f"word {i}" for i in range(9)], object) for _ in range(2)]
        self.assertEqual(described(words[0]), described(words[1]))
        self.assertNotEqual(described(words[0]), described(words[1][::-1]))

    def test_batches_in_an_order_of_keras_are_refused(self) -> None:
        data = lockstep.shard(np.arange(40), batch_size=8)
        data.on_epoch_begin()
        self.assertEqual([len(data[i][0]) for i in (0, 1, 0, 2, 1)], [8] * 5)  # two iterations at once
        with self.assertRaisesRegex(ValueError, "shuffle=False"):
            data[4]

    def test_refusals(self) -> None:
        for arguments, text in (
            (((np.zeros(3), np.zeros(4)),), "3, 4 examples"),
            ((np.zeros(0),), "0 examples"),
            ((iter([1]),), "takes arrays or a PyDataset, not list_iterator"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                lockstep.shard(*arguments)


class StreamTest(unittest.TestCase):
    def test_batches_that_are_gone_are_not_trained_on_again(self) -> None:
        batch = (np.ones((4, 2), "float32"),)
        source = unittest.mock.Mock(first=batch, what="the data")
        source.read.side_effect = [batch, batch, batch, None]
        job = unittest.mock.Mock(memory_file=lambda name: self.enterContext(_memory.MemoryFile(name)))
        stream = _stream.Stream(job, source, 2)
        stream.begin(0, 0)
        while stream.work():
            pass
        stream.free(2)
        stream.begin(0, 2)
        with self.assertRaisesRegex(ValueError, "NaN or infinity.*the batches of the data since the last backup"):
            stream.begin(0, 1)


class BackupTest(JobTest):
    def backup(self) -> _backup.Backup:
        arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array(7, np.int64), np.ones(2, ml_dtypes.bfloat16)]
        return _backup.Backup(1, 2, 3, 27, {"next_passes": [2], "current": 0}, {"epoch": [0], "history": {}}, arrays)

    def test_round_trip(self) -> None:
        _backup.write(self.folder, self.backup(), _backup.RankState([np.array(2.5)], [np.zeros(3)]))
        read = _backup.read(self.folder)
        assert read is not None
        for got, want in zip(read.variables, self.backup().variables, strict=True):
            self.assertEqual((got.dtype, got.shape, got.tobytes()), (want.dtype, want.shape, want.tobytes()))
        self.assertEqual((read.epoch, read.step, read.total_steps), (2, 3, 27))
        self.assertEqual(read.ranks[0].metrics, [2.5])
        self.assertIsNone(read.ranks[0].layers, "what equals the chief's is kept once")
        _backup.remove(self.folder)
        self.assertIsNone(_backup.read(self.folder))

    def test_damage_is_told(self) -> None:
        good = self.backup().to_bytes()
        path = self.folder / _backup.FILE
        for at in range(0, len(good), 97):
            path.write_bytes(good[:at])
            with self.assertRaisesRegex(ValueError, "cannot use the backup .*remove it"):
                _backup.read(self.folder)

    def test_a_backup_of_lockstep_fit_is_not_taken_for_that_of_a_program(self) -> None:
        _backup.write(self.folder, self.backup(), _backup.RankState())
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(lockstep.DistributedOptimizer(keras.optimizers.SGD()), "mse")
        x, y = np.zeros((4, 3)), np.zeros(4)
        callback = lockstep.callbacks.BackupAndRestore(self.folder)
        with self.assertRaisesRegex(lockstep.UsageError, "holds the backup of a training with lockstep.fit"):
            model.fit(lockstep.shard(x, y, batch_size=2), shuffle=False, verbose=0, callbacks=[callback])

    def test_a_directory_holds_the_backups_of_one_model(self) -> None:
        callback = lockstep.callbacks.BackupAndRestore(self.folder)
        x, y = np.zeros((4, 3)), np.zeros(4)

        def fit(model: keras.Model) -> None:
            data = lockstep.shard(x, y, batch_size=2)
            model.fit(data, shuffle=False, verbose=0, callbacks=[callback])

        def made() -> keras.Model:
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile(lockstep.DistributedOptimizer(keras.optimizers.SGD()), "mse")
            return model

        first = made()
        fit(first)
        fit(first)
        with self.assertRaisesRegex(lockstep.UsageError, "of another model of this program; name a directory for each"):
            fit(made())

    def test_leftovers_of_a_killed_chief_are_removed(self) -> None:
        (self.folder / f".{_backup.FILE}.1").write_bytes(b"half")
        self.assertIsNone(_backup.read(self.folder))
        self.assertEqual(list(self.folder.glob(f".{_backup.FILE}.*")), [])


class LockTest(JobTest):
    """Backups have the lock and the record of a native job's directory; tests/unit/ownership has what those promise."""

    def test_no_link_is_followed_to_a_lock(self) -> None:
        precious = self.folder / "precious"
        precious.write_text("mine")
        (self.folder / ".lockstep.lock").symlink_to(precious)
        with self.assertRaisesRegex(lockstep.IoError, "is a link, not a record of a job"):
            _backup.read(self.folder)
        self.assertEqual(precious.read_text(), "mine")

    def test_another_job_has_the_directory(self) -> None:
        with (
            directory_of_another_job(self.folder),
            self.assertRaisesRegex(lockstep.PeerError, "belongs to job other .*, which is still running"),
        ):
            _backup.read(self.folder)
        self.assertIsNone(_backup.read(self.folder))

    def test_a_backup_is_neither_written_nor_removed_in_another_training_s_directory(self) -> None:
        mine, other = self.folder / "mine", self.folder / "other"
        link = self.folder / "link"
        for directory in (mine, other):
            directory.mkdir()
        link.symlink_to(mine)
        backup = BackupTest().backup()
        _backup.write(link, backup, _backup.RankState())
        (other / _backup.FILE).write_bytes(b"a backup")
        link.unlink()
        link.symlink_to(other)
        with self.assertRaisesRegex(lockstep.PeerError, "is not the directory that this job took"):
            _backup.write(link, backup, _backup.RankState())
        _backup.remove(link)
        self.assertEqual([path.name for path in other.iterdir()], [_backup.FILE])
        self.assertEqual((other / _backup.FILE).read_bytes(), b"a backup")


class FolderTest(JobTest):
    """Temporary folders, which the next job removes if their process was killed."""

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(unittest.mock.patch("tempfile.tempdir", str(self.folder)))

    def make_in_another_process(self) -> str:
        """Return the name of the folder of a process that ended without removing it."""
        code = "import lockstep._folder as f; print(f.TemporaryFolder().path.name)"
        made = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(self.folder)}, check=True, capture_output=True
        )
        return made.stdout.decode().split()[-1]

    def test_abandoned_folders_are_removed(self) -> None:
        abandoned = self.folder / self.make_in_another_process()
        (abandoned / "backup").mkdir()
        (abandoned / "backup" / "fit-1-step-1.h5").write_bytes(b"half")
        self.assertTrue(abandoned.is_dir())
        _folder.TemporaryFolder().remove()
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_folders_of_others_stay(self) -> None:
        running = _folder.TemporaryFolder()
        (self.folder / "lockstep-of-a-user").mkdir()
        (self.folder / "lockstep-link").symlink_to(self.make_in_another_process())
        failed = _folder.TemporaryFolder()
        (failed.path / "log").write_text("why")
        failed.remove(but=failed.path / "log")
        _folder.TemporaryFolder().remove()
        self.assertEqual(list(failed.path.iterdir()), [failed.path / "log"])
        self.assertTrue((self.folder / "lockstep-of-a-user").is_dir())
        self.assertTrue(running.path.is_dir())
        running.remove()


class RefusalsTest(unittest.TestCase):
    def test_optimizer(self) -> None:
        for options, text in (({"compression": "zip"}, "use 'bfloat16'"),):
            with self.assertRaisesRegex(lockstep.UsageError, text):
                lockstep.DistributedOptimizer("adam", **options)
        optimizer = lockstep.DistributedOptimizer("adam")
        with self.assertRaisesRegex(lockstep.UsageError, "distributed already"):
            lockstep.DistributedOptimizer(optimizer)
        keras.config.set_dtype_policy("mixed_float16")
        try:
            with self.assertRaisesRegex(lockstep.UsageError, "LossScaleOptimizer"):
                lockstep.DistributedOptimizer("adam")
        finally:
            keras.config.set_dtype_policy("float32")

    def test_backup_and_restore(self) -> None:
        for options in (
            {"backup_dir": ""},
            {"backup_dir": "x", "save_freq": 0},
            {"backup_dir": "x", "save_freq": True},
        ):
            with self.assertRaises(lockstep.UsageError):
                lockstep.callbacks.BackupAndRestore(**options)

    def test_exceptions_have_exit_codes(self) -> None:
        for error, code in (
            (lockstep.PeerError("x"), 75), (lockstep.InternalError("x"), 70), (lockstep.IoError("x"), 74),
            (KeyError("x"), 64), (FileNotFoundError("x"), 64), (PermissionError("x"), 74), (RuntimeError("x"), 70),
        ):  # fmt: skip
            self.assertEqual(_world.exit_code_of(error), code, error)

    def test_a_world_smaller_than_that_of_tf_config(self) -> None:
        """Without this, each worker would train alone."""
        config = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'
        code = (
            "import lockstep, os\nos.execv = lambda path, words: (print(words[1], flush=True), os._exit(0))\n"
            "try: lockstep.init()\nexcept lockstep.UsageError as error: print(error)\nelse: print(lockstep.size())"
        )
        smaller = "TF_CONFIG lists 2 workers, but this process is in a world of 1, because "
        for variables, said in (
            ({"PMI_RANK": "0"}, smaller + "PMI_RANK='0'"),
            ({"OMPI_COMM_WORLD_SIZE": "1"}, smaller + "OMPI_COMM_WORLD_SIZE='1'"),
            ({"LOCKSTEP_CONTROL_FD": "77"}, smaller + "LOCKSTEP_CONTROL_FD='77'"),
            ({"LOCKSTEP_CONTROL_FD": "", "PMI_RANK": ""}, "launch\n"),
            ({"PMI_RANK": "0", "TF_CONFIG": ""}, "1\n"),
            (
                {"LOCKSTEP_CONTROL_FD": "77", "LOCKSTEP_STRATEGY": "parameter-server", "TF_CONFIG": ""},
                "lockstep launch was told of parameter servers",
            ),
        ):
            environment = os.environ | {"TF_CONFIG": config} | variables
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            with self.subTest(variables):
                self.assertTrue(done.stdout.startswith(said), done.stdout + done.stderr)

    def test_without_keras(self) -> None:
        """The package imports without Keras, and says what needs it."""
        code = (
            "import sys, lockstep; assert 'keras' not in sys.modules; sys.modules['keras'] = None\n"
            "try: lockstep.DistributedOptimizer\n"
            "except ModuleNotFoundError as error: print(error)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertIn("pip install keras", done.stdout)


if __name__ == "__main__":
    unittest.main()

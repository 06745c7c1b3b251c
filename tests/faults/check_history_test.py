"""The history checker finds what it is there for."""

import json
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_history  # noqa: E402


class CheckHistoryTest(unittest.TestCase):
    def check(self, *events: tuple[float, int, str, int, str], elastic: bool = False) -> list[str]:
        return self.check_lines([{"t": t, "pid": pid, "rank": 0, "what": what, "step": step, "digest": digest or "0",
                                  "file": "/no/such/file"} for t, pid, what, step, digest in events], elastic)

    def check_lines(self, events: list[dict[str, object]], elastic: bool = False) -> list[str]:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "history"
            path.write_text("\n".join([*map(json.dumps, events), '{"t": 1, "cut']))
            return check_history.check(path, elastic)

    def test_a_restart_that_repeats_steps_is_right(self) -> None:
        self.assertEqual(self.check((1, 7, "step", 1, "a"), (2, 7, "publish", 0, ""), (3, 7, "step", 2, "b"),
                                    (4, 8, "step", 2, "b"), (5, 8, "publish", 0, "")), [])

    def test_two_writers_are_found(self) -> None:
        self.assertEqual(len(self.check((1, 7, "publish", 0, ""), (2, 8, "publish", 0, ""), (3, 7, "publish", 0, ""))), 1)

    def test_other_bits_are_found(self) -> None:
        events = ((1, 7, "step", 2, "a"), (2, 8, "step", 2, "b"))
        self.assertEqual(len(self.check(*events)), 1)
        self.assertEqual(self.check(*events, elastic=True), [])

    def test_two_processes_of_a_rank_are_found(self) -> None:
        self.assertEqual(len(self.check((1, 7, "step", 1, "a"), (2, 8, "step", 1, "a"), (3, 7, "step", 2, "b"))), 1)

    def check_launchers(self, *events: tuple[float, int, str, str, int], elastic: bool = False) -> list[str]:
        """Time, process, event, generation, trainer."""
        return self.check_lines([{"t": t, "pid": pid, "rank": 0, "what": what, "step": 0, "digest": "0", "file": "",
                                  "generation": generation, "trainer": trainer}
                                 for t, pid, what, generation, trainer in events], elastic)

    def test_generations_one_after_the_other_are_right(self) -> None:
        self.assertEqual(self.check_launchers(
            (1, 1, "start", "a-1", 11), (1.1, 2, "start", "a-1", 21), (2, 1, "end", "a-1", 11), (2.1, 2, "end", "a-1", 21),
            (3, 1, "start", "a-2", 12), (3.1, 2, "start", "a-2", 22), (4, 1, "end", "a-2", 12), (4.1, 2, "end", "a-2", 22),
            (5, 1, "exit", "", 0), (5, 2, "exit", "", 0)), [])

    def test_overlapping_generations_are_found(self) -> None:
        events = ((1, 1, "start", "a-1", 11), (1.1, 2, "start", "a-1", 21), (2, 1, "end", "a-1", 11),
                  (3, 1, "start", "a-2", 12), (3.1, 2, "end", "a-1", 21), (4, 1, "end", "a-2", 12))
        self.assertEqual(len(self.check_launchers(*events)), 1)
        self.assertEqual(self.check_launchers(*events, elastic=True), [])

    def test_a_killed_launcher_s_trainers_end_with_it(self) -> None:
        killed = ((1, 1, "start", "a-1", 11), (1, 2, "start", "a-1", 21), (2, 21, "wait", "a-1", 0),
                  (3, 1, "end", "a-1", 11), (4, 1, "start", "a-2", 12))
        self.assertEqual(self.check_launchers(*killed), [])
        self.assertEqual(len(self.check_launchers(*killed, (5, 21, "waited", "a-1", 0))), 1)

    def test_a_launcher_that_exits_before_its_trainer_is_found(self) -> None:
        self.assertEqual(len(self.check_launchers((1, 1, "start", "a-1", 11), (2, 1, "exit", "", 0))), 1)

    def test_a_wait_without_an_end_is_found(self) -> None:
        began = ((1, 1, "start", "a-1", 11), (2, 11, "wait", "a-1", 0))
        self.assertEqual(len(self.check_launchers(*began, (9, 1, "exit", "", 0))), 2)
        self.assertEqual(self.check_launchers(*began, (3, 11, "waited", "a-1", 0), (4, 1, "end", "a-1", 11)), [])
        self.assertEqual(self.check_launchers(*began, (4, 1, "end", "a-1", 11), (9, 1, "exit", "", 0)), [])

    def test_a_file_that_changed_after_it_was_published_is_found(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"whole")
            file.flush()
            published = {"t": 1, "pid": 7, "rank": 0, "what": "publish", "step": 0, "file": file.name}
            self.assertEqual(self.check_lines([published | {"digest": f"{zlib.crc32(b'whole'):x}"}]), [])
            self.assertEqual(len(self.check_lines([published | {"digest": f"{zlib.crc32(b'other'):x}"}])), 1)


if __name__ == "__main__":
    unittest.main()

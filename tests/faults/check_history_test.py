"""The history checker finds what it is there for."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_history  # noqa: E402


class CheckHistoryTest(unittest.TestCase):
    def check(self, *events: tuple[float, int, str, int, str], elastic: bool = False) -> list[str]:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "history"
            lines = [json.dumps({"t": t, "pid": pid, "rank": 0, "what": what, "step": step, "digest": digest, "file": "f"})
                     for t, pid, what, step, digest in events]
            path.write_text("\n".join([*lines, '{"t": 1, "cut']))
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

    def test_overlapping_generations_are_found(self) -> None:
        self.assertEqual(len(self.check((1, 7, "step", 1, "a"), (2, 8, "step", 1, "a"), (3, 7, "step", 2, "b"))), 1)


if __name__ == "__main__":
    unittest.main()

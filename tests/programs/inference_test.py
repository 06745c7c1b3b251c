"""`lockstep evaluate` and `predict` with models from files."""

import json
import math
import re
import struct

import data_files
from model_file_support import COMPILED, SCALED, SHORT, SMALL, ModelFileTest, description
from support import DATA, IO, USAGE, Running, program


class InferenceTest(ModelFileTest):
    def test_evaluate_matches_training(self) -> None:
        first = self.trained("first.keras")
        evaluation = json.loads((first.parent / "history.json").read_text())["evaluation"]
        ended = self.use("evaluate", "--model", first, "--verbose", 0)
        self.assertEqual(ended.code, 0, str(ended))
        self.assertEqual(ended.stdout, f"loss: {evaluation['loss']:.4f}\naccuracy: {evaluation['accuracy']:.4f}\n")
        self.assertEqual(list(self.cwd.iterdir()), [], "evaluating leaves nothing")
        self.assert_fails(self.use("evaluate", "--model", self.plain, "--initial-weights", first), USAGE, "give --loss,")
        for command in ("evaluate", "predict"):
            refused = self.use(command, "--model", self.plain)
            self.assert_fails(refused, USAGE, f"{self.plain} holds no weights; give --initial-weights FILE")
        with_loss = self.use("evaluate", "--model", self.plain, "--loss", "sparse_categorical_crossentropy",
                             "--initial-weights", first, "--verbose", 0)
        self.assertEqual(with_loss.stdout, ended.stdout)

    def test_a_part_of_the_test_set(self) -> None:
        first = self.trained("first.keras")
        lines = [self.use("evaluate", "--model", first, "--verbose", 0, "--global-batch-size", 16, *more).stdout
                 for more in ((), ("--eval-steps", 3), ("--eval-steps", 1), ("--eval-steps", 2))]
        self.assertEqual(lines[0], lines[1], "the third batch is the short last one")
        self.data = self.scratch / "part.npz"
        self.data.write_bytes(data_files.npz(test=16))
        whole = self.use("evaluate", "--model", first, "--verbose", 0, "--input-scale", "1/255").stdout
        self.assertEqual(whole, lines[2])
        self.assertNotEqual(lines[3], lines[2])
        self.assert_fails(self.use("evaluate", "--model", first, "--eval-steps", 0), USAGE, "--eval-steps is '0'")

    def test_predictions_are_a_numpy_array(self) -> None:
        first = self.trained("first.h5")
        for name, more in (("one", ()), ("two", ("--global-batch-size", 7))):
            ended = self.use("predict", "--model", first, "--output", f"sub/{name}.npy", *more)
            self.assertEqual(ended.code, 0, str(ended))
            self.assertIn(f"Saved sub/{name}.npy, an array (40, 10)", ended.stdout)
            self.assertIn(f"so those of {first} were not checked", ended.stdout)
        content = (self.cwd / "sub" / "one.npy").read_bytes()
        head = re.match(rb"\x93NUMPY\x01\x00(..)({.*?}) *\n", content, re.S)
        assert head is not None
        self.assertEqual(eval(head[2]), {"descr": "<f4", "fortran_order": False, "shape": (40, 10)})
        self.assertEqual((struct.unpack("<H", head[1])[0] + 10, head.end() % 64), (head.end(), 0))
        values = struct.unpack("<400f", content[head.end():])
        _, labels = data_files.digits(40, 1001)
        right = sum(max(range(10), key=lambda c, row=row: values[10 * row + c]) == labels[row] for row in range(40))
        evaluation = json.loads((first.parent / "history.json").read_text())["evaluation"]
        self.assertAlmostEqual(right / 40, evaluation["accuracy"])
        again = struct.unpack("<400f", (self.cwd / "sub" / "two.npy").read_bytes()[head.end():])
        for one, two in zip(values, again):
            self.assertAlmostEqual(one, two, places=4)

    def test_new_inputs_need_no_targets(self) -> None:
        first = self.trained("first.h5")
        images, _ = data_files.digits(7, 3)
        (self.scratch / "new.npy").write_bytes(data_files.npy((7, 28, 28), images))
        self.data = self.scratch / "new.npy"
        ended = self.use("predict", "--model", first, "--input-scale", "1/255")
        self.assertEqual(ended.code, 0, str(ended))
        self.assertIn("Saved predictions.npy, an array (7, 10)", ended.stdout)
        self.assert_fails(self.use("predict", "--model", first), USAGE, "new.npy holds bytes", "--input-scale 1/255")

    def test_predictions_replace_no_file_of_another_kind(self) -> None:
        first = self.trained("first.h5")
        other = self.trained("other.h5")
        before = other.read_bytes()
        for name in (other, "p.csv", ""):
            ended = self.use("predict", "--model", first, "--output", name)
            self.assert_fails(ended, USAGE, f"--output is '{name}'", "a file name ending in .npy")
        self.assertEqual(other.read_bytes(), before)

    def test_predict_refuses_what_is_not_finite(self) -> None:
        made = self.trained("made.keras")
        values = struct.pack("<784f", *[0.5] * 783, math.nan)
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 28, 28), }".encode().ljust(118 - 1) + b"\n"
        file = self.scratch / "nan.npy"
        file.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values)
        self.data = file
        ended = self.use("predict", "--model", made)
        self.assert_fails(ended, DATA, "nan.npy", "is NaN")

    def test_another_scale_than_that_of_training_is_told(self) -> None:
        self.data = self.scratch / "bytes.npz"
        self.data.write_bytes(data_files.npz())
        self.succeed("--model", self.plain, *COMPILED, *SHORT, *SCALED)
        for command in (("evaluate",), ("predict", "--output", self.scratch / "predicted.npy")):
            for scale, differs in (("1", True), ("1/255", False)):
                ended = self.use(*command, "--model", self.model / "model.h5", "--input-scale", scale)
                self.assertEqual(ended.code, 0, str(ended))
                told = "was trained with --input-scale 0.00392157, and this command has 1;" in ended.stderr
                self.assertEqual(told, differs, ended.stderr)
        # A neighbour's record of other training says nothing of a file.
        record = json.loads((self.model / "history.json").read_text())
        record["iteration"] += 1
        (self.model / "history.json").write_text(json.dumps(record))
        self.assertNotIn("was trained with", self.use("evaluate", "--model", self.model / "model.h5").stderr)

    def test_several_metrics(self) -> None:
        first = self.trained("first.h5")
        ended = self.use("evaluate", "--model", first, "--metrics", "sparse_top_k_categorical_accuracy,accuracy")
        self.assertEqual(ended.code, 0, str(ended))
        self.assertIn("\naccuracy: ", ended.stdout)
        self.assertIn("\nsparse_top_k_categorical_accuracy: ", ended.stdout)
        for wrong in ("accuracy,mean_iou", "accuracy,", ""):
            self.assert_fails(self.use("evaluate", "--model", first, "--metrics", wrong), USAGE, "--metrics")

    def test_the_data_is_told(self) -> None:
        """With the factor for bytes, unless the model has a layer that scales before its weights."""
        scales = ("Rescaling", {"scale": 1 / 255, "offset": 0.0})
        by_option = "multiplied by 1/255 (see --input-scale)"
        unscaled = "unscaled because the model has a layer that reads them so"
        for layers, how in ((SMALL, by_option), ((*SMALL, scales), by_option), ((scales, *SMALL), unscaled),
                            ((SMALL[0], scales, *SMALL[1:]), unscaled)):
            with self.subTest(layers=layers):
                self.plain.write_text(description(*layers))
                ended = self.succeed("--model", self.plain, *COMPILED, *SHORT)
                self.assertIn(f"Data: 100 training and 40 test examples of shape (28, 28), bytes {how}, "
                              f"from {self.data}", ended.stdout)
                told = self.use("evaluate", "--model", self.model / "model.h5").stderr
                self.assertIn(f"bytes {how}", told)

    def test_a_result_that_cannot_be_printed_is_an_error(self) -> None:
        made = self.trained("made.keras")
        for command, options in (("evaluate", ("--data-dir", self.data)), ("plan", ())):
            call = [program("lockstep"), command, "--model", str(made), *map(str, options)]
            ended = Running(["sh", "-c", 'exec "$@" >/dev/full', "sh", *call], self.cwd, {}).end()
            self.assertEqual(ended.code, IO, str(ended))
            self.assertIn("standard output", ended.stderr)

    def test_softmax_means_probabilities(self) -> None:
        """A model with logits and the same model with a softmax layer begin with the same loss."""
        self.succeed("--model", self.plain, *COMPILED, *SHORT)
        logits = self.losses()
        self.plain.write_text(description(*SMALL, ("Activation", {"activation": "softmax"})))
        self.succeed("--model", self.plain, *COMPILED, *SHORT)
        self.assertAlmostEqual(self.losses()[0], logits[0], delta=1e-3)

    def test_clipped_probabilities_bound_the_loss(self) -> None:
        """At -log(1e-7), however large the logits are."""
        self.plain.write_text(description(*SMALL, ("Activation", {"activation": "softmax"})))
        for options, is_clipped in (((), False), (("--clip-probabilities",), True)):
            self.succeed("--model", self.plain, *COMPILED, *SHORT, "--input-scale", 1000, *options)
            self.assertEqual(self.losses()[0] < 16.2, is_clipped, str(self.losses()))

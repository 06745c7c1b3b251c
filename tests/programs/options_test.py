"""Invalid, contradictory and different options of workers, and the precedence of their sources."""

import re
import subprocess
from pathlib import Path

from support import USAGE, ProgramTest, Running, has_bfloat16, program


def has_gpu() -> bool:
    return Path("/dev/nvidia0").exists()


class OptionsTest(ProgramTest):
    default_program = "keras_mnist"

    def refused(self, *options: object, says: tuple[str, ...], workers: int = 1, rank: int = 0,
                **environment: str) -> None:
        with self.earlier_model_kept():
            ended = self.run_program(*options, workers=workers, **environment)
        self.assert_fails(ended, USAGE, *says, rank=rank)
        self.assertNotIn("Epoch", ended.stdout)

    def test_invalid_values_are_rejected(self) -> None:
        for options, says in (
            (("--global-batch-size", 0), ("--global-batch-size is '0'", "at least 1", "--help")),
            (("--epochs", "many"), ("--epochs is 'many'", "--help")),
            (("--learning-rate", "-1"), ("--learning-rate is '-1'", "greater than 0")),
            (("--precision", "float16"), ("--precision is 'float16'", "float32 or mixed_bfloat16")),
            (("--convolutions", "winograd"), ("--convolutions is 'winograd'", "auto or direct")),
            (("--sed", 3), ("no option '--sed'", "--help")),
            (("--seed",), ("--seed needs a value", "--help")),
            (("more",), ("unexpected argument 'more'", "--help")),
            (("--batch-norm-replicas", 5, "--global-batch-size", 4), ("--batch-norm-replicas is 5", "at most the global batch size, 4")),
        ):
            with self.subTest(options):
                self.refused(*options, says=says)

    def test_invalid_values_on_three_workers_are_reported_once(self) -> None:
        self.refused("--global-batch-size", 0, workers=3, says=("--global-batch-size is '0'",))

    def test_train_sh_names_an_unknown_option_before_it_builds(self) -> None:
        script = Path(__file__).resolve().parents[2] / "scripts" / "train.sh"
        ended = subprocess.run([script, "--epoch", "3"], capture_output=True, text=True, cwd=self.cwd)
        self.assertEqual((ended.returncode, ended.stdout), (USAGE, ""))
        self.assertIn("there is no option '--epoch'", ended.stderr)

    def test_invalid_variables_are_named(self) -> None:
        self.refused(BATCH_SIZE="big", says=("BATCH_SIZE is 'big'", "at least 1"))
        self.refused(LOCKSTEP_EPOCHS="0", says=("LOCKSTEP_EPOCHS is '0'", "at least 1"))
        self.refused(LOCKSTEP_THREADS="3", says=("no option reads the variable LOCKSTEP_THREADS", "rename or unset it"))
        self.refused(LOCKSTEP_BATCH_SIZE="64", says=("LOCKSTEP_BATCH_SIZE; did you mean LOCKSTEP_GLOBAL_BATCH_SIZE?",))

    def test_variables_of_other_programs_are_left_alone(self) -> None:
        """One environment serves several commands. Each option of one command is in the list that all know."""
        variables: dict[str, str] = {}
        for command in ("train", "evaluate", "predict", "plan"):
            text = subprocess.run([program("lockstep"), command, "--help"], capture_output=True, text=True, check=True).stdout
            own = re.search(r"^This program:\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE)
            assert own is not None, text
            names = re.findall(r"^  --([a-z-]+)", own[1], re.MULTILINE)
            variables |= {"LOCKSTEP_" + name.upper().replace("-", "_"): "1" for name in names}
        self.assertIn("LOCKSTEP_BANDWIDTH", variables)
        self.assertIn("LOCKSTEP_OUTPUT", variables)
        del variables["LOCKSTEP_PS_PLACEMENT"]  # training has this option, too
        self.succeed("--epochs", 1, **variables)

    def test_options_not_supported_with_two_workers(self) -> None:
        for options, environment, says in (
            (("--batch-norm-replicas", 1), {}, ("--batch-norm-replicas 1", "2 workers", "leave it out")),
            (("--communication", "shared"), {"LOCKSTEP_SIMULATED_HOSTS": "0,1"}, ("--communication shared", "auto or mpi")),
            ((), {"LOCKSTEP_SIMULATED_HOSTS": "0,1,1"}, ("LOCKSTEP_SIMULATED_HOSTS is '0,1,1'", "unset it")),
            ((), {"LOCKSTEP_COLLECTIVE_TIMEOUT": "soon"}, ("LOCKSTEP_COLLECTIVE_TIMEOUT is 'soon'", "seconds")),
        ):
            with self.subTest(options, **environment):
                self.refused(*options, workers=2, says=says, **environment)

    def test_a_launcher_of_another_mpi_is_noticed(self) -> None:
        """Its variables say how many processes it started, but each is a world of one for Open MPI."""
        self.refused(PMI_RANK="0", PMI_SIZE="2", says=("PMI_SIZE is 2", "world has 1 process", "Open MPI's launcher"))
        self.refused(RANK="0", WORLD_SIZE="2", MASTER_ADDR="localhost", says=("WORLD_SIZE is 2", "lockstep launch"))
        self.refused(SLURM_PROCID="0", SLURM_MPI_TYPE="pmix", SLURM_STEP_NUM_TASKS="2",
                     says=("SLURM_STEP_NUM_TASKS is 2", "world has 1 process"))

    def test_missing_devices_are_reported(self) -> None:
        if has_gpu():
            self.skipTest("there is a GPU")
        self.refused("--device", "cuda", says=("--device cuda", "--device cpu"))
        self.refused("--device", "cuda", workers=2, says=("--device cuda", "--device cpu"))
        self.refused("--communication", "nccl", says=("--communication nccl", "use auto"))

    def test_an_unsupported_precision_is_rejected(self) -> None:
        options = ("--device", "cpu", "--precision", "mixed_bfloat16")
        if has_bfloat16():
            self.succeed(*options, "--epochs", 1, "--steps-per-epoch", 2)
        else:
            self.refused(*options, says=("mixed_bfloat16", "AVX-512 BF16", "--precision float32"))

    def test_workers_with_different_options(self) -> None:
        for option, first, second in (("--seed", "1", "2"), ("--learning-rate", "0.1", "0.25"),
                                      ("--communication", "auto", "mpi"), ("--convolutions", "auto", "direct")):
            with self.subTest(option):
                self.refused(option, first, None, option, second,
                             says=(f"disagree about {option}", f"worker 0 has {first}", f"worker 1 has {second}"))

    def test_an_invalid_option_of_one_worker_is_reported(self) -> None:
        self.refused(None, "--sed", 3, says=("no option '--sed'",), rank=1)

    def test_worker_2_of_3_is_named(self) -> None:
        self.refused(None, None, "--epochs", 7, says=("disagree about --epochs", "worker 2 has 7"))

    def test_help_and_version_are_printed_once(self) -> None:
        for option, says in (("--help", "--global-batch-size"), ("--version", "Lockstep")):
            for workers in (1, 2):
                with self.subTest(option, workers=workers):
                    ended = self.succeed(option, workers=workers)
                    self.assertEqual(ended.stdout.count(says), 1, str(ended))

    def config(self, *options: object, **environment: str) -> dict[str, object]:
        self.succeed("--steps-per-epoch", 1, *options, name="keras_mnist", **environment)
        config: dict[str, object] = self.history()["config"]
        return config

    def test_template_variables_set_options(self) -> None:
        environment = {"DATA_DIR": str(self.data), "MODEL_DIR": str(self.model), "BATCH_SIZE": "16",
                       "NUM_TRAIN_EPOCH": "2", "LOCKSTEP_SEED": "7", "LOCKSTEP_STEPS_PER_EPOCH": "1"}
        ended = Running([program("keras_mnist")], self.cwd, environment).end()
        self.assertEqual(ended.code, 0, str(ended))
        config = self.history()["config"]
        self.assertEqual((config["global_batch_size"], config["epochs"], config["seed"]), (16, 2, 7))
        self.assertEqual((config["data_dir"], config["model_dir"]), (str(self.data), str(self.model)))

    def test_lockstep_variables_override_template_variables(self) -> None:
        config = self.config(BATCH_SIZE="16", LOCKSTEP_GLOBAL_BATCH_SIZE="8", NUM_TRAIN_EPOCH="3", LOCKSTEP_EPOCHS="2")
        self.assertEqual((config["global_batch_size"], config["epochs"]), (8, 2))

    def test_command_line_overrides_all(self) -> None:
        config = self.config("--global-batch-size", 4, "--epochs", 1, BATCH_SIZE="16", LOCKSTEP_GLOBAL_BATCH_SIZE="8",
                             NUM_TRAIN_EPOCH="3", DATA_DIR="/nowhere", MODEL_DIR="/dev/null/nowhere")
        self.assertEqual((config["global_batch_size"], config["epochs"]), (4, 1))
        self.assertEqual((config["data_dir"], config["model_dir"]), (str(self.data), str(self.model)))

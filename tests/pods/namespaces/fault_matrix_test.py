"""The fault matrix: each cell ends with the bits of an undisturbed job, or with the documented code and sentence; then
its files are whole, and the job, started again, ends with these bits.

    tests/pods/namespaces/run.py BUILD_DIR fault_matrix --count 1000 [--seed 2] --results LEDGER

Appends a line of JSON per case to the ledger: seed, cell, result. Cases already in it are skipped, and the first has
number 0. The first cases are one of every cell, in an order drawn from the seed; then cells are drawn. Prints the count by result
and every cell that failed."""

import json
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import matrix
from fault_judge import LIMIT_S, FaultJudge
from matrix import CALLS, FAULTS, MOMENTS, STEPS, Moment, Scene
from pods import Hang, Job
from support import count, library, program, seed

ledger: Path | None = None


def cell_of(number: int, of_seed: int) -> tuple[str, str]:
    all_cells = matrix.cells()
    chance = random.Random(of_seed)
    chance.shuffle(all_cells)
    return all_cells[number] if number < len(all_cells) else random.Random(f"{of_seed}/{number}").choice(all_cells)


class FaultMatrixTest(FaultJudge):
    def start(self, moment: Moment, chance: random.Random, fault: str, scratch: Path) -> tuple[Job, int, Path, Path]:
        """Returns the job, the worker that is held, the marker of the point, and the directory on its own disk."""
        held = 0 if moment.chief else chance.randrange(2)
        marker = scratch / "marker"
        disk = scratch / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", str(disk)], capture_output=True)
        environment = {"LOCKSTEP_MODEL_DIR": str(disk / "model"), "LOCKSTEP_JOB_ID": scratch.name,
                       "LOCKSTEP_TEST_HISTORY": str(scratch / "history"),
                       "LOCKSTEP_TEST_READ_ONLY": str(scratch / "read_only"),
                       "LOCKSTEP_TEST_KILL_READER": str(scratch / "kill_reader")}
        if moment.elastic or moment.leaves:  # time for it before the last step
            environment["LOCKSTEP_TEST_STEP_MS"] = "100"
        if fault == "read-only" or fault in CALLS:
            environment |= {"LD_PRELOAD": library("failing_calls"), "LOCKSTEP_TEST_WATCH": str(disk / "model")}
        if fault in CALLS:
            call, error = CALLS[fault]
            environment |= {"LOCKSTEP_TEST_FAULT_CALL": call, "LOCKSTEP_TEST_FAULT_ONCE": str(marker),
                            "LOCKSTEP_TEST_FAULT": f"{chance.randrange(1, 6)} {error}"}
        else:
            environment |= {"LOCKSTEP_TEST_FAULT_POINT":
                            f"{moment.point} {chance.randint(moment.first, moment.last)} hold {marker}",
                            "LOCKSTEP_TEST_RANK": str(held), "LOCKSTEP_TEST_GENERATION": str(moment.generation)}
        elastic = ("--min-workers", 2, "--rejoin-timeout", 1) if moment.elastic else ()
        job = self.job(self.command(moment, "--backup-save-freq", 1 if moment.elastic else chance.choice((3, 7, "epoch"))),
                       moment.workers, ("--busy-timeout", 120, "--rendezvous-timeout", 120, *elastic), **environment)
        job.model = disk / "model"
        return job, held, marker, disk

    def command(self, moment: Moment, *options: object) -> list[object]:
        words = self.training(*STEPS, *moment.options, *options, model=self.model_of(moment))
        return [program("lockstep_with_faults"), *words[1:]]

    def reach(self, job: Job, moment: Moment, chance: random.Random, marker: Path) -> bool:
        """Leads the job to the moment. False if it ended before."""
        if moment.elastic:
            job.wait_for_backup(limit=LIMIT_S)
            job.pods[2].kill()
            since = time.monotonic()
            if moment.elastic == "grow":
                job.wait_for_line("Lockstep .* 2 workers", [job.chief], since, LIMIT_S)
                job.start(2)
        if moment.leaves:
            job.wait_for_backup(limit=LIMIT_S)  # before the first step, trainers would just end
            self.leaving = chance.randrange(2)
            job.pods[self.leaving].signal(signal.SIGTERM)
        deadline = time.monotonic() + LIMIT_S
        while not marker.exists():
            if not any(pod.running for pod in job.pods):
                return False
            if not moment.elastic:
                self.restart_pods(job)
            if time.monotonic() > deadline:
                raise Hang("the moment did not come" + job.text())
            time.sleep(0.005)
        return True

    def run_case(self, number: int) -> str:
        name, fault = cell_of(number, seed())
        moment = MOMENTS[name]
        self.leaving = None
        chance = random.Random(f"{seed()}/{number}/case")
        scratch = Path(matrix_scratch(self.scratch, number))
        job, held, marker, disk = self.start(moment, chance, fault, scratch)
        job.start_all()

        if fault in CALLS:
            result = self.judge(job, moment, self.wait_for_end(job), scratch / "history")
            return result if marker.exists() else "not reached"
        if not self.reach(job, moment, chance, marker):
            self.judge(job, moment, self.wait_for_end(job), scratch / "history")
            return "not reached"
        scene = Scene(job, chance, held, marker.with_name("marker.released").touch, disk)
        was_inflicted = FAULTS[fault](scene) is not False
        scene.release()
        result = self.judge(job, moment, self.wait_for_end(job), scratch / "history")
        return result if was_inflicted else "not reached"

    def test_fault_matrix(self) -> None:
        wanted = count(60)
        done: list[dict[str, Any]] = []
        if ledger and ledger.exists():
            done = [json.loads(line) for line in ledger.read_text().splitlines()]
        done = [case for case in done if case["seed"] == seed()]
        numbers = {case["number"] for case in done}
        for number in range(wanted):
            if number in numbers:
                continue
            began = time.monotonic()
            try:
                result, detail = self.run_case(number), ""
            except AssertionError as error:
                result, detail = "no end" if isinstance(error, Hang) else "wrong", str(error)
            finally:
                self.doCleanups()
            case = {"seed": seed(), "number": number, "cell": list(cell_of(number, seed())), "result": result,
                    "seconds": round(time.monotonic() - began, 1), "detail": detail}
            done.append(case)
            if ledger:
                with ledger.open("a") as file:
                    file.write(json.dumps(case) + "\n")
        self.report(done)

    def report(self, done: list[dict[str, Any]]) -> None:
        results = Counter(case["result"].split(":")[0] for case in done)
        cells = {tuple(case["cell"]) for case in done}
        print(f"{len(done)} faults in {len(cells)} of {len(matrix.cells())} cells, seed {seed()}: {dict(results)}")
        failed = [case for case in done if case["result"] in ("wrong", "no end")]
        for case in failed:
            print(f"{case['number']}: {case['cell']}: {case['result']}{case['detail']}")
        self.assertEqual(len(failed), 0, "cases failed")


def matrix_scratch(scratch: Path, number: int) -> str:
    place = scratch / f"case-{number}-{time.monotonic_ns()}"
    place.mkdir()
    return str(place)

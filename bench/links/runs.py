"""Runs a contestant over a link: the peers' programs as compare.py runs them, Lockstep's under `lockstep launch`."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.cases import CONTESTANTS as PEERS
from harness.cases import Case, lockstep_command, lockstep_program, peer_commands
from harness.children import Sample as Outcome
from harness.children import free_ports, run_together, sample_of_history, sample_of_peer
from namespaces.network import Host

from .contestants import Contestant, Setting
from .hosts import HOST, Hosts

REMOVED_VARIABLES = ("LOCKSTEP_", "OMPI_", "PMIX_", "TF_CONFIG")
RECORDED_WORLD_KEYS = ("parallelism", "predicted_ms", "all_reduce_ms")


@dataclass
class Run:
    outcome: Outcome
    world: dict[str, Any] = field(default_factory=dict)
    profile_ms_per_step: dict[str, float] = field(default_factory=dict)


def run_of_history(history: dict[str, Any], batch: int) -> Run:
    world = {name: value for name, value in history.get("world", {}).items() if name.startswith(RECORDED_WORLD_KEYS)}
    return Run(sample_of_history(history, batch), world, history.get("timing", {}).get("profile_ms_per_step", {}))


@dataclass(frozen=True)
class Runner:
    """Runs contestants on this machine's cores, on one host or between two."""

    python: Path  # of the peers' virtual environment
    binaries: Path
    data_dir: str
    cores: list[int]
    timeout: float
    hosts: Hosts | None
    ports: itertools.count[int] = field(default_factory=lambda: itertools.count(20000))

    def run(self, contestant: Contestant, setting: Setting, steps: int) -> Run:
        try:
            if setting.link.rate != HOST:
                assert self.hosts is not None
                self.hosts.join(setting.link)
            case = contestant.case(setting)
            if contestant.peer:
                return Run(self._run_peer(contestant, case, steps, setting))
            return self._run_lockstep(contestant, case, steps, setting)
        except (OSError, KeyError, ValueError) as error:
            return Run(Outcome(error=f"{type(error).__name__}: {error}"))
        finally:
            if self.hosts is not None:
                self.hosts.kill_all()

    def _environment(self, threads: int) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(REMOVED_VARIABLES)}
        overrides = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "LOCKSTEP_JOB_TOKEN": "a secret"}
        # Waiting ranks must yield, because the kernel's network processing runs on the same cores.
        overrides["OMPI_MCA_mpi_yield_when_idle"] = "1"
        peer_overrides = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
        return inherited | overrides | peer_overrides | {"OMP_NUM_THREADS": str(threads)}

    def _hosts_and_addresses(self, setting: Setting) -> tuple[list[Host], list[str]]:
        """The two workers' hosts (empty if both run on this machine) and an address for each worker."""
        if setting.link.rate == HOST:
            return [], [f"127.0.0.1:{port}" for port in free_ports(2)]
        assert self.hosts is not None
        return self.hosts.hosts, [f"{host.name}:{next(self.ports)}" for host in self.hosts.hosts]

    def _run_peer(self, contestant: Contestant, case: Case, steps: int, setting: Setting) -> Outcome:
        hosts, addresses = self._hosts_and_addresses(setting)
        peer = PEERS[contestant.peer]
        commands = peer_commands(self.python, peer, case, steps, self.data_dir, self.cores, addresses)
        if hosts:
            commands = [host.command(words) for host, words in zip(hosts, commands)]
        threads = 2 if contestant.arrangement == "1x2" else 1
        outputs, _, problem = run_together(commands, self._environment(threads), self.timeout, until_reported=True)
        return Outcome(error=problem) if problem else sample_of_peer(outputs)

    def _run_lockstep(self, contestant: Contestant, case: Case, steps: int, setting: Setting) -> Run:
        hosts, addresses = self._hosts_and_addresses(setting)
        with tempfile.TemporaryDirectory(prefix="lockstep-network-") as scratch:
            model_dir = Path(scratch) / "model"
            more = ["--resume", "never", "--parallelism", contestant.parallelism]
            if hosts:
                program = lockstep_program(self.binaries, case, steps, self.data_dir, model_dir) + more
                commands = [
                    host.command(self.launch_command(number, program, addresses, scratch))
                    for number, host in enumerate(hosts)
                ]
            else:
                commands = [lockstep_command(self.binaries, case, steps, self.data_dir, self.cores, model_dir) + more]
            _, _, problem = run_together(commands, self._environment(1), self.timeout)
            if problem:
                return Run(Outcome(error=problem))
            return run_of_history(json.loads((model_dir / "history.json").read_text()), case.batch)

    def launch_command(self, number: int, program: list[str], addresses: list[str], scratch: str) -> list[str]:
        """The command that a pod runs, pinned to one core."""
        task = {"type": "worker", "index": number}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        temporary = tempfile.mkdtemp(prefix=f"worker-{number}-", dir=scratch)
        launcher = [str(self.binaries / "lockstep"), "launch", "--max-restarts", "0", "--", *program]
        own_core = ["taskset", "-c", str(self.cores[number])]
        return ["env", f"TF_CONFIG={config}", f"TMPDIR={temporary}", *own_core, *launcher]

"""Podman and buildah with their own settings, images, volumes and network, separate from the machine's.

Images stay in the build directory for the next run; everything else is in a scratch directory and is removed at the
end. The settings work as root without a daemon, also without CAP_SYS_RESOURCE and with version 1 control groups (with
runc, since crun 1.8 rejects them).
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
NETWORK = "lockstep-pods"

CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=10000:10000", "nproc=10000:10000"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
tmp_dir = "{scratch}/tmp"
volume_path = "{scratch}/volumes"
[network]
network_backend = "netavark"
network_config_dir = "{scratch}/networks"
"""

STORAGE_CONF = """
[storage]
driver = "overlay"
runroot = "{scratch}/run"
graphroot = "{home}/storage"
"""

REGISTRIES_CONF = """
unqualified-search-registries = ["docker.io"]
short-name-mode = "permissive"
"""


class Unavailable(Exception):
    """Why containers cannot run here."""


class Failed(AssertionError):
    """A command of the engine failed."""


def image_command(tag: str, *options: str) -> list[str]:
    """Builds an image of this checkout. What this machine has compiled is not compiled again, if it has ccache."""
    command = [str(ROOT / "scripts/build_image.sh"), "--engine", "buildah", "--tag", tag, *options]
    if shutil.which("ccache"):
        found = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True, check=True)
        command += ["--ccache", found.stdout.strip()]
    return command


def missing() -> str:
    """Returns why Podman cannot be used, or an empty string."""
    if os.geteuid() != 0:
        return "the tests with Podman need root"
    for program in ("podman", "buildah", "runc", "catatonit"):
        if not shutil.which(program):
            return f"{program} is not installed (scripts/install_packages.sh --full)"
    for program in ("netavark", "aardvark-dns"):
        if not any(Path(place, "podman", program).exists() for place in ("/usr/lib", "/usr/libexec")):
            return f"{program} is not installed (scripts/install_packages.sh --full)"
    return ""


class Engine:
    def __init__(self, home: Path) -> None:
        self.home = home.resolve()
        self.scratch = Path(tempfile.mkdtemp(prefix="lockstep-pods-"))
        (self.home / "tmp").mkdir(parents=True, exist_ok=True)
        # Databases of Podman 4 and 5 refer to an earlier scratch directory.
        shutil.rmtree(self.home / "storage" / "libpod", ignore_errors=True)
        (self.home / "storage" / "db.sql").unlink(missing_ok=True)
        names = {"scratch": self.scratch, "home": self.home}
        for name, text in (("containers", CONTAINERS_CONF), ("storage", STORAGE_CONF), ("registries", REGISTRIES_CONF)):
            (self.scratch / f"{name}.conf").write_text(text.format(**names))
        self.environment = os.environ | {
            "CONTAINERS_CONF": f"{self.scratch}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{self.scratch}/storage.conf",
            "CONTAINERS_REGISTRIES_CONF": f"{self.scratch}/registries.conf",
            "PODMAN_IGNORE_CGROUPSV1_WARNING": "1",
            "TMPDIR": f"{self.home}/tmp",  # for layers and build caches
        }

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.run("podman", "pod", "rm", "--all", "--force", "--time", "0")
        self.run("podman", "rm", "--all", "--force", "--time", "0")
        self.run("podman", "network", "rm", "--force", NETWORK)
        for mounted in [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]:
            if mounted.startswith(f"{self.scratch}/"):
                subprocess.run(["umount", "--lazy", mounted], capture_output=True)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def run(self, *command: str, stdin: str | None = None, limit: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environment, input=stdin, text=True, capture_output=True, timeout=limit)

    def podman(self, *arguments: str, stdin: str | None = None) -> str:
        """Returns the output; raises an error with the error output on failure."""
        ended = self.run("podman", *arguments, stdin=stdin)
        if ended.returncode != 0:
            raise Failed(f"podman {' '.join(arguments)}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
        return ended.stdout

    def read(self, *arguments: str) -> Any:
        return json.loads(self.podman(*arguments) or "null")

    def make_network(self, image: str) -> None:
        """Creates a network on which pods see only each other. Raises Unavailable if containers cannot run on it."""
        trial = ("--name", "trial", "--network", NETWORK, "--entrypoint", "/bin/sleep", image, "60")
        for command in (("podman", "network", "create", "--internal", NETWORK), ("podman", "run", "--detach", *trial)):
            ended = self.run(*command)
            if ended.returncode != 0:
                reason = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
                raise Unavailable(f"containers do not run here ({' '.join(command[:3])}: {reason})")
        # In a chroot, runc enters a container's namespaces but not its root.
        entered = self.run("podman", "exec", "trial", "cat", "/proc/1/comm").stdout.strip()
        self.podman("rm", "--force", "--time", "0", "trial")
        if entered != "sleep":
            raise Unavailable("podman exec does not enter containers here, as in a chroot")

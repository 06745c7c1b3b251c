"""Hosts on one machine: network namespaces, each with its own address, on a bridge in a separate namespace. Like a pod,
each has its own host name, hosts file and shared memory. The machine's own network is not touched.

All names contain the process id of their creator, so that the next test can remove what a killed test left behind."""

import atexit
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

PREFIX = "lockstep-pods-"
FILES = Path("/etc/netns")  # `ip netns exec` mounts FILES/NAME/hosts over /etc/hosts, and so on
LARGEST_PACKET = 65536
CONGESTION_CONTROL = "cubic"
CONGESTION_FILE = "/proc/sys/net/ipv4/tcp_congestion_control"
ENTER = 'hostname "$0" && mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'


class NoNetwork(Exception):
    """Why network namespaces are unavailable."""


def run(*words: object) -> str:
    command = [str(word) for word in words]
    try:
        ended = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise NoNetwork(f"cannot run {command[0]}: {error.strerror}") from error
    if ended.returncode != 0:
        raise NoNetwork(f"{' '.join(command)}: {ended.stderr.strip()}")
    return ended.stdout


class Host:
    def __init__(self, namespace: str, hub: str, number: int, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.address = f"10.87.32.{number + 1}"
        self._hub = hub
        self._port = f"port{number}"
        self._weak = False
        files = FILES / namespace
        files.mkdir(parents=True)
        (files / "nsswitch.conf").write_text("hosts: files\n")
        self.hosts_file = files / "hosts"
        run("ip", "netns", "add", namespace)
        run("ip", "-n", namespace, "link", "set", "lo", "up")
        run("ip", "link", "add", "link0", "netns", namespace, "type", "veth", "peer", "name", self._port, "netns", hub)
        run("ip", "-n", hub, "link", "set", self._port, "master", "bridge", "up")
        run("ip", "-n", namespace, "address", "add", f"{self.address}/24", "dev", "link0")
        run("ip", "-n", namespace, "link", "set", "link0", "up")
        self._control_congestion()

    def command(self, words: Sequence[str]) -> list[str]:
        """Returns a command line that runs `words` on this host, without a process in between. It dies with its
        parent."""
        return ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.namespace, "unshare", "--uts", "--ipc",
                "sh", "-c", ENTER, self.name, *words]

    def _control_congestion(self) -> None:
        """Sets Linux' default congestion control, if permitted, independently of this machine's setting."""
        run("ip", "netns", "exec", self.namespace, "sh", "-c", f"echo {CONGESTION_CONTROL} > {CONGESTION_FILE} || true")

    def congestion_control(self) -> str:
        return run("ip", "netns", "exec", self.namespace, "cat", CONGESTION_FILE).strip()

    def know(self, hosts: Sequence["Host"]) -> None:
        """Sets the names that resolve on this host."""
        lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in hosts)]
        self.hosts_file.write_text("\n".join(lines) + "\n")

    def plug(self, connected: bool) -> None:
        """Unplugs at the bridge: senders are not notified of lost packets."""
        run("ip", "-n", self._hub, "link", "set", self._port, "up" if connected else "down")

    def limit(self, rate: str, queue: str = "50ms") -> None:
        """Limits both directions of the link. The burst, which passes at full speed, is the bytes of 0.2 ms. Packets
        are smaller than a burst, because tbf would segment larger ones into 1500 bytes each, which takes much of a core
        at 1 Gbit/s (network cards segment for free)."""
        units = {"mbit": 1e6, "gbit": 1e9}
        burst = max(20_000, int(float(rate[:-4]) * units[rate[-4:]] / 8 * 0.2e-3))
        for place, name in ((self._hub, self._port), (self.namespace, "link0")):
            run("tc", "-n", place, "qdisc", "replace", "dev", name, "root", "tbf", "rate", rate, "burst", burst,
                "latency", queue)
        self._send_packets_of(min(LARGEST_PACKET, burst * 4 // 5))

    def _send_packets_of(self, size: int) -> None:
        """The largest packets before segmentation to the link's MTU."""
        run("ip", "-n", self.namespace, "link", "set", "dev", "link0", "gso_max_size", size)

    def delay(self, milliseconds: float) -> None:
        """Delays incoming packets, whose rate is then no longer limited; outgoing packets stay limited."""
        run("tc", "-n", self._hub, "qdisc", "replace", "dev", self._port, "root", "netem", "delay",
            f"{milliseconds}ms", "limit", "100000")

    def weaken(self, loss: int, delay: int) -> str:
        """Drops a percentage of packets and delays the others, in both directions; returns a description."""
        places = ((self._hub, self._port), (self.namespace, "link0"))
        try:
            for place, device in places:
                run("tc", "-n", place, "qdisc", "replace", "dev", device, "root", "netem", "delay", f"{delay}ms",
                    f"{delay // 2}ms", "loss", f"{loss}%")
            return "netem"
        except NoNetwork:  # a kernel without netem: a filter drops packets, and the queue of a slow link delays them
            for chain, direction in (("INPUT", "-i"), ("OUTPUT", "-o")) if shutil.which("iptables") else ():
                run("ip", "netns", "exec", self.namespace, "iptables", "-A", chain, direction, "link0",
                    "-m", "statistic", "--mode", "random", "--probability", loss / 100, "-j", "DROP")
            for place, device in places:
                run("tc", "-n", place, "qdisc", "replace", "dev", device, "root", "tbf", "rate", "5mbit",
                    "burst", "5kb", "latency", f"{4 * delay}ms")
            return "a filter and a slow link"

    def restore(self) -> None:
        """Undoes limit(), delay(), weaken() and plug(False)."""
        for place, device in ((self._hub, self._port), (self.namespace, "link0")):
            subprocess.run(["tc", "-n", place, "qdisc", "delete", "dev", device, "root"], capture_output=True)
        self._send_packets_of(LARGEST_PACKET)
        for chain in ("INPUT", "OUTPUT"):
            subprocess.run(["ip", "netns", "exec", self.namespace, "iptables", "-F", chain], capture_output=True)
        self.plug(True)

    def processes(self) -> list[int]:
        return [int(word) for word in run("ip", "netns", "pids", self.namespace).split()]


class Network:
    def __init__(self, names: Sequence[str]) -> None:
        if os.geteuid() != 0:
            raise NoNetwork("they take root")
        remove_what_is_left()
        own = f"{PREFIX}{os.getpid()}-"
        self._hub = own + "hub"
        atexit.register(self.close)
        try:
            run("ip", "netns", "add", self._hub)
            run("ip", "-n", self._hub, "link", "add", "bridge", "type", "bridge")
            run("ip", "-n", self._hub, "link", "set", "bridge", "up")
            self.hosts = [Host(own + name, self._hub, number, name) for number, name in enumerate(names)]
            for host in self.hosts:
                host.know(self.hosts)
            subprocess.run(self.hosts[0].command(["true"]), check=True, capture_output=True)
        except (NoNetwork, OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise error if isinstance(error, NoNetwork) else NoNetwork(str(error)) from error

    def close(self) -> None:
        remove(f"{PREFIX}{os.getpid()}-")
        atexit.unregister(self.close)


def existing() -> set[str]:
    """Names of namespaces and of their directories."""
    return {path.name for place in (Path("/run/netns"), FILES) if place.is_dir() for path in place.glob(PREFIX + "*")}


def remove(prefix: str) -> None:
    for name in existing():
        if not name.startswith(prefix):
            continue
        if (Path("/run/netns") / name).exists():
            for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split():
                subprocess.run(["kill", "-KILL", pid], capture_output=True)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        shutil.rmtree(FILES / name, ignore_errors=True)


def remove_what_is_left() -> None:
    for name in existing():
        owner = re.match(PREFIX + r"(\d+)-", name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            remove(owner[0])

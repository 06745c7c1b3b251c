"""Two network namespaces that act as hosts, joined by a link of a given rate and latency.

`tc` limits the rate. Latency comes from netem if the kernel has it. Otherwise an iptables rule queues all packets that
reach a host, and `delay_link` releases them when they are due. Without latency the link is a plain veth pair."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from namespaces.network import Network, NoNetwork, run

HOST = "host"  # both workers on one host: no link
UNLIMITED = "unlimited"
QUEUE_PACKETS = ("iptables", "-A", "INPUT", "-i", "link0", "-j", "NFQUEUE")
PROBE = str(Path(__file__).with_name("probe.py"))
PROBE_PORT = 5400


@dataclass(frozen=True)
class Link:
    rate: str  # in tc's notation, or HOST, or UNLIMITED
    latency_ms: float = 0.0  # one way

    @property
    def label(self) -> str:
        rate = {HOST: "one host", UNLIMITED: "unlimited"}.get(self.rate, self.rate.replace("gbit", " Gbit/s"))
        return f"{rate}, {self.latency_ms:g} ms" if self.latency_ms else rate


@dataclass(frozen=True)
class LinkMeasurement:
    """A link's measured properties. `relay_cpu_fraction`: cores that delay_link uses while the link is saturated."""

    rate: str
    latency_ms: float
    mechanism: str
    round_trip_ms: float
    mbit_per_s: float
    relay_cpu_fraction: float = 0.0

    def as_dict(self) -> dict[str, float | str]:
        return asdict(self)

    def __str__(self) -> str:
        cost = f" (delay_link uses {self.relay_cpu_fraction:.0%} of a core)" if self.relay_cpu_fraction else ""
        return (
            f"{Link(self.rate, self.latency_ms).label} ({self.mechanism}): round trip {self.round_trip_ms:.3f} ms, "
            f"{self.mbit_per_s:,.0f} Mbit/s{cost}"
        )


class Hosts:
    def __init__(self, binaries: Path) -> None:
        self._delay_link = binaries / "delay_link"
        self._network = Network(("worker-0", "worker-1"))
        self.hosts = self._network.hosts
        self._relay: subprocess.Popen[str] | None = None
        self._link: Link | None = None
        self.mechanism = ""

    def join(self, link: Link) -> None:
        """Configures the link between the hosts. Does nothing if it already has these properties."""
        if link == self._link:
            if self._relay is not None and self._relay.poll() is not None:
                raise OSError("delay_link has ended")
            return
        self._restore()
        self._link, self.mechanism = link, "veth"
        if link.rate != UNLIMITED:
            for host in self.hosts:
                host.limit(link.rate)
        if link.latency_ms:
            try:
                for host in self.hosts:
                    host.delay(link.latency_ms)
                self.mechanism = "netem"
            except NoNetwork:  # this kernel has none
                self._start_delay_link(link.latency_ms)
                self.mechanism = "delay_link"

    def _start_delay_link(self, milliseconds: float) -> None:
        if not self._delay_link.is_file():
            raise NoNetwork(f"this kernel has no netem, and {self._delay_link} is not built: -DLOCKSTEP_BENCHES=ON")
        names = [host.namespace for host in self.hosts]
        # Real-time priority: it mostly sleeps, and any scheduling delay would add to the link's latency.
        command = ["chrt", "-f", "10", str(self._delay_link), str(round(1000 * milliseconds)), *names]
        self._relay = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._relay.stdout is not None
        if self._relay.stdout.readline() != "ready\n":
            raise NoNetwork("delay_link has ended")
        for name in names:
            run("ip", "netns", "exec", name, *QUEUE_PACKETS)

    def _restore(self) -> None:
        for host in self.hosts:
            host.restore()
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait()
            self._relay = None
        self._link = None

    def close(self) -> None:
        self._restore()
        self._network.close()

    def measure(self, link: Link, seconds: float = 1.0) -> LinkMeasurement:
        """Measures the round trip with pings and the rate with one TCP stream."""
        self.join(link)
        first, second = self.hosts
        # Real-time priority, so that the round trip does not include waiting for a core.
        pings = ["chrt", "-f", "10", sys.executable, PROBE, "rtt", second.address]
        trip = subprocess.run(first.command(pings), check=True, capture_output=True, text=True)
        sink = subprocess.Popen(
            second.command([sys.executable, PROBE, "sink", str(PROBE_PORT)]), stdout=subprocess.PIPE, text=True
        )
        assert sink.stdout is not None
        sink.stdout.readline()
        before = self._relay_seconds()
        source = [sys.executable, PROBE, "source", second.address, str(PROBE_PORT), str(seconds)]
        subprocess.run(first.command(source), check=True)
        mbit_per_s = float(sink.communicate()[0])
        relay_cpu_fraction = (self._relay_seconds() - before) / seconds
        mechanism = f"{self.mechanism}, TCP with {first.congestion_control()}"
        return LinkMeasurement(
            link.rate, link.latency_ms, mechanism, float(trip.stdout), mbit_per_s, round(relay_cpu_fraction, 3)
        )

    def _relay_seconds(self) -> float:
        if self._relay is None:
            return 0.0
        return int(Path(f"/proc/{self._relay.pid}/schedstat").read_text().split()[0]) / 1e9

    def kill_all(self) -> None:
        """Kills all processes that still run in the hosts."""
        for host in self.hosts:
            for pid in host.processes():
                subprocess.run(["kill", "-KILL", str(pid)], capture_output=True)

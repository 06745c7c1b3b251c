"""Two hosts of one machine, joined by a link of a given rate and latency.

`tc` shapes the rate. Latency comes from netem where the kernel has it; elsewhere a rule gives all packets that come to a
host to `delay_link`, which lets them go so much later. Without latency the link is the veth pair alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from namespaces.network import Network, NoNetwork, run

HOST = "host"  # both workers on one host: no link
UNSHAPED = "unshaped"
HOLD = ("iptables", "-A", "INPUT", "-i", "link0", "-j", "NFQUEUE")
PROBE = str(Path(__file__).with_name("probe.py"))
PROBE_PORT = 5400


@dataclass(frozen=True)
class Link:
    rate: str  # of tc, or HOST, or UNSHAPED
    latency_ms: float = 0.0  # one way

    @property
    def label(self) -> str:
        rate = {HOST: "one host", UNSHAPED: "unshaped"}.get(self.rate, self.rate.replace("gbit", " Gbit/s"))
        return f"{rate}, {self.latency_ms:g} ms" if self.latency_ms else rate


@dataclass(frozen=True)
class Measured:
    """What a link is really like, and what it costs: `relay_share` of a core while the link is full."""

    rate: str
    latency_ms: float
    means: str
    round_trip_ms: float
    mbit: float
    relay_share: float = 0.0

    def as_dict(self) -> dict[str, float | str]:
        return asdict(self)

    def __str__(self) -> str:
        cost = f" (which takes {self.relay_share:.0%} of a core from the workers)" if self.relay_share else ""
        return (
            f"{Link(self.rate, self.latency_ms).label} ({self.means}): round trip {self.round_trip_ms:.3f} ms, "
            f"{self.mbit:,.0f} Mbit/s{cost}"
        )


class Hosts:
    def __init__(self, binaries: Path) -> None:
        self._delay_link = binaries / "delay_link"
        self._network = Network(("worker-0", "worker-1"))
        self.hosts = self._network.hosts
        self._relay: subprocess.Popen[str] | None = None
        self._link: Link | None = None
        self.means = ""

    def join(self, link: Link) -> None:
        """Makes the link between them so."""
        if link == self._link:
            if self._relay is not None and self._relay.poll() is not None:
                raise OSError("delay_link has ended")
            return
        self._restore()
        self._link, self.means = link, "veth"
        if link.rate != UNSHAPED:
            for host in self.hosts:
                host.limit(link.rate)
        if link.latency_ms:
            try:
                for host in self.hosts:
                    host.delay(link.latency_ms)
                self.means = "netem"
            except NoNetwork:  # this kernel has none
                self._delay_by_process(link.latency_ms)
                self.means = "delay_link"

    def _delay_by_process(self, milliseconds: float) -> None:
        if not self._delay_link.is_file():
            raise NoNetwork(f"this kernel has no netem, and {self._delay_link} is not built: -DLOCKSTEP_BENCHES=ON")
        names = [host.namespace for host in self.hosts]
        # It sleeps nearly always, and what it lets go late would be the link's latency: first to get a core.
        command = ["chrt", "-f", "10", str(self._delay_link), str(round(1000 * milliseconds)), *names]
        self._relay = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._relay.stdout is not None
        if self._relay.stdout.readline() != "ready\n":
            raise NoNetwork("delay_link has ended")
        for name in names:
            run("ip", "netns", "exec", name, *HOLD)

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

    def measure(self, link: Link, seconds: float = 1.0) -> Measured:
        """By pings, which the other kernel answers, and by one stream of TCP."""
        self.join(link)
        first, second = self.hosts
        # Pings are few and tell of the link, not of who else wants the core.
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
        mbit = float(sink.communicate()[0])
        share = (self._relay_seconds() - before) / seconds
        means = f"{self.means}, TCP with {first.congestion_control()}"
        return Measured(link.rate, link.latency_ms, means, float(trip.stdout), mbit, round(share, 3))

    def _relay_seconds(self) -> float:
        if self._relay is None:
            return 0.0
        return int(Path(f"/proc/{self._relay.pid}/schedstat").read_text().split()[0]) / 1e9

    def end_all(self) -> None:
        """Whatever still runs in them."""
        for host in self.hosts:
            for pid in host.processes():
                subprocess.run(["kill", "-KILL", str(pid)], capture_output=True)

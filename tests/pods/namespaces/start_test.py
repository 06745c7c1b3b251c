"""Pods that start late, in any order, before their names or addresses exist: waiting pods log whom they wait for and
why, and the world forms soon after the last start."""

import random
import time

import scale
from network import Host
from pods import STANDS, wait_for
from pods_test_case import PodsTest
from support import seed

STANDS_S = 2.0
# How others describe a pod that is not running: first the chief about a worker, then a worker about the chief.
ABSENT = {
    "it refuses": ("connection refused: no launcher runs there yet",) * 2,
    "it has no name": ("its name does not resolve",) * 2,
    "it has no address": ("its host (does not answer|is unreachable)", "it does not answer|No route to host"),
}


class StartTest(PodsTest):
    def hide(self, host: Host, how: str) -> None:
        if how == "it has no name":
            for each in self.network.hosts:
                each.know([other for other in self.network.hosts if other is not host])
        elif how == "it has no address":
            host.plug(False)

    def show(self, host: Host) -> None:
        for each in self.network.hosts:
            each.know(self.network.hosts)
        host.plug(True)

    def test_any_order(self) -> None:
        chance = random.Random(seed())
        orders = [(1, 2, 0), (0, 2, 1), (2, 0, 1), (0, 1, 2), (1, 0, 2), (2, 1, 0)]
        for place, order in enumerate(orders if scale.full else orders[:3]):
            how = list(ABSENT)[place % len(ABSENT)]
            with self.subTest(order=order, last=how):
                job = self.job(self.training(1, 3), LOCKSTEP_REPORT_INTERVAL="10" if scale.full else "0.5")
                last = job.pods[order[-1]]
                self.hide(last.host, how)
                try:
                    for number in order[:-1]:
                        job.start(number)
                        time.sleep(30 if scale.full else 0.5)
                    why = ABSENT[how][1 if last is job.chief else 0]
                    waiting = f"still waiting after .*worker {last.number} .*({why})"
                    told = job.wait_for_line(waiting, [job.pods[number] for number in order[:-1]], limit=30)
                    if not scale.full:
                        time.sleep(max(0.0, told + chance.uniform(0.0, 2.0) - time.monotonic()))
                finally:
                    self.show(last.host)
                job.start(last.number)
                wait_for(last.trainers, lambda: "trainer" + job.text())
                began = time.monotonic() - last.started
                took = job.wait_for_line(STANDS, [job.chief]) - last.started
                print(f"order {order}, {how}: trainers start {began:.2f} s after the last start, and are a world after "
                      f"{took:.2f} s")
                self.assert_ended(job)
                self.assertLess(took, STANDS_S, job.text())

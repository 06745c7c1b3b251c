"""A user's session: claim, job, inspection. Workers and parameter servers compute the same."""

from cluster import NAME, ClusterTest


class SessionTest(ClusterTest):
    def test_claim_job_inspection(self) -> None:
        self.assert_completed(self.deploy(3))
        chief = self.cluster.log(f"job/{NAME}-worker-0")
        self.assertIn("3 workers", chief)
        self.cluster.create(self.cluster.render(create_volume_inspector=True, inspect_once=True))
        self.assert_completed([f"{NAME}-volume-inspector"])
        report = self.cluster.log(f"job/{NAME}-volume-inspector")
        self.assertIn("model.h5", report)
        self.assertIn("no damage was found", report)

    def test_parameter_servers_compute_what_mirrored_workers_do(self) -> None:
        """Not to the bit: workers of several nodes add up in another order than a server does."""
        shared = ["--deterministic", "--steps-per-epoch", "20", "--verbose", "2"]
        mirrored = self.deploy(2, epochs=4, cmdline_args=[*shared, "--parallelism", "data"])
        self.assert_completed(mirrored)
        expected = self.losses()
        self.remove(mirrored)
        self.assert_completed(self.deploy(2, epochs=4, servers=2, cmdline_args=shared))
        self.assertIn("2 workers, 2 parameter servers", self.cluster.log(f"job/{NAME}-worker-0"))
        for epoch, of_mirrored in zip(self.losses(), expected, strict=True):
            self.assertAlmostEqual(epoch["loss"], of_mirrored["loss"], places=4)

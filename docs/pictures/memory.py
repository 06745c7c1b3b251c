"""The memory of a host with two data-parallel ranks."""

from drawing import Picture


def picture() -> Picture:
    p = Picture(
        900,
        470,
        "The memory of a host with two ranks",
        "One shared-memory window holds one copy of weights and optimizer slots, and a gradient arena of each rank. "
        "Each rank updates its shard of every bucket. Activations and data are private to a rank.",
    )
    p.text(24, 30, "A host with two ranks, data parallel", 16, bold=True)
    p.box(20, 46, 860, 262, "plain")
    p.text(36, 70, "shared-memory window (/dev/shm): one per host", 14, bold=True)
    columns = [(230, 180, "bucket 0"), (420, 250, "bucket 1"), (680, 180, "bucket 2")]
    for x, width, name in columns:
        p.text(x + width / 2, 96, name, 13, "middle", ink="muted")
    rows = [(106, "weights"), (146, "optimizer slots"), (206, "gradients of rank 0"), (246, "gradients of rank 1")]
    for y, name in rows:
        p.text(40, y + 21, name, 14)
        for x, width, _ in columns:
            if y < 200:
                half = width / 2
                p.box(x, y, half, 32, "update", ("shard 0",))
                p.box(x + half, y, half, 32, "update", ("shard 1",))
            else:
                p.box(x, y, width, 32, "communicate", ("all elements",))
    p.text(
        40,
        298,
        "rank r updates shard r of each bucket: it adds both gradients where they lie and steps the weights once",
        13,
        ink="muted",
    )
    for x, rank in ((20, 0), (455, 1)):
        p.box(x, 322, 425, 132, "plain")
        p.text(x + 16, 346, f"private memory of rank {rank}", 14, bold=True)
        p.box(x + 16, 358, 190, 38, "compute", ("activations",))
        p.box(x + 218, 358, 190, 38, "compute", ("kernels' scratch",))
        p.box(x + 16, 404, 190, 38, "file", ("dataset",))
        p.box(x + 218, 404, 190, 38, "plain", ("the plan",))
    return p

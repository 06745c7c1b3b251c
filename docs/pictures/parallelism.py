"""Data against tensor parallelism, for the layers of keras_mnist on two ranks."""

from drawing import Picture


def picture() -> Picture:
    p = Picture(
        940,
        520,
        "Data parallel and tensor parallel",
        "Data parallel: each rank computes half of the batch with all weights, and 11 MB of gradients are "
        "all-reduced. Tensor parallel: each rank computes the whole batch with half of the channels, and 65.5 kB of "
        "partial sums are all-reduced.",
    )
    for x, name, what in (
        (20, "data parallel", "each rank: half of the batch, all weights"),
        (490, "tensor parallel", "each rank: the whole batch, half of each sharded layer"),
    ):
        p.text(x + 215, 30, name, 17, "middle", bold=True)
        p.text(x + 215, 52, what, 13, "middle", ink="muted")
    p.line(470, 16, 470, 504, dashed=True)
    # data parallel
    for x, rank in ((20, 0), (245, 1)):
        p.text(x + 100, 84, f"rank {rank}", 14, "middle", bold=True)
        p.box(x, 96, 200, 44, "file", (f"examples {64 * rank}–{64 * rank + 63}",))
        p.arrow(x + 100, 140, x + 100, 158)
        p.box(x, 158, 200, 52, "compute", ("conv2d", "all 32 channels"))
        p.arrow(x + 100, 210, x + 100, 228)
        p.box(x, 228, 200, 52, "compute", ("dense", "21,632 × 128"))
        p.arrow(x + 100, 280, x + 100, 298)
        p.box(x, 298, 200, 52, "compute", ("dense_1", "128 × 10"))
        p.arrow(x + 100, 350, x + 100, 396, "communicate")
    p.box(
        20, 396, 425, 48, "communicate", ("all-reduce the gradients of all weights", "11.1 MB a step"), bold_first=True
    )
    p.text(232, 472, "Grows with the model, not with the batch.", 13, "middle", ink="muted")
    p.text(232, 492, "For small weights, large batches, fast links.", 13, "middle", ink="muted")
    # tensor parallel
    for x, rank in ((490, 0), (715, 1)):
        p.text(x + 100, 84, f"rank {rank}", 14, "middle", bold=True)
        p.box(x, 96, 200, 44, "file", ("examples 0–127",))
        p.arrow(x + 100, 140, x + 100, 158)
        p.box(x, 158, 200, 52, "compute", ("conv2d, column-parallel", f"channels {16 * rank}–{16 * rank + 15}"))
        p.arrow(x + 100, 210, x + 100, 228)
        p.box(x, 228, 200, 52, "compute", ("dense, row-parallel", "10,816 × 128"))
        p.arrow(x + 100, 280, x + 100, 302, "communicate")
        p.arrow(x + 100, 350, x + 100, 372)
        p.box(x, 372, 200, 52, "compute", ("dense_1, replicated", "128 × 10"))
    p.box(
        490, 302, 425, 48, "communicate", ("all-reduce partial sums of the outputs", "65.5 kB a step"), bold_first=True
    )
    p.text(702, 452, "Gradients and updates of a shard stay on its rank.", 13, "middle", ink="muted")
    p.text(702, 472, "Grows with the batch, not with the model.", 13, "middle", ink="muted")
    p.text(702, 492, "For large dense layers, slow links.", 13, "middle", ink="muted")
    return p

"""A data-parallel training step of two ranks on two hosts, over time."""

from drawing import Picture

LEFT, RIGHT = 110, 940
LAG = 8  # px that rank 1 computes longer


def rank(p: Picture, y: int, name: str, lag: int) -> None:
    """A rank's timeline. Times are in px; updates come between two operations, once their bucket is reduced."""
    p.text(16, y + 34, name, 14, bold=True)
    spans = [
        ("compute", 110, 164, ("input",)),
        ("compute", 164, 314, ("forward",)),
        ("compute", 314, 358, ("loss",)),
        ("compute", 358, 448, ("backward", "bucket 0")),
        ("compute", 448, 552, ("backward", "bucket 1")),
        ("update", 552, 580, ("0",)),
        ("compute", 580, 670, ("backward", "bucket 2")),
        ("update", 670, 698, ("1",)),
    ]
    for kind, begin, end, lines in spans:
        shift = (lag if begin > LEFT + 54 else 0, lag if end > LEFT + 54 else 0)
        p.box(begin + shift[0], y, end + shift[1] - begin - shift[0], 58, kind, lines)
    p.box(698 + lag, y, 92 - lag, 58, "plain", ("wait",), dashed=True)
    p.box(790, y, 28, 58, "update", ("2",))
    p.box(818, y, RIGHT - 818, 58, "compute", ("next step's", "forward"))


def picture() -> Picture:
    p = Picture(
        960,
        400,
        "A data-parallel training step of two ranks over time",
        "Both ranks run forward and backward; each bucket of gradients is all-reduced while backward computes the "
        "next one, then updated; the next forward pass waits for the buckets whose weights it reads.",
    )
    p.text(16, 28, "One training step, data parallel, one rank per host", 16, bold=True)
    rank(p, 50, "rank 0", 0)
    rank(p, 252, "rank 1", LAG)
    p.text(16, 186, "in flight", 14, bold=True)
    for bucket, (ready, end, y) in enumerate(((448, 548, 122), (552, 666, 164), (670, 790, 206))):
        begin = ready + LAG + 4
        p.box(begin, y, end - begin, 30, "communicate", (f"all-reduce {bucket}",))
        p.arrow(ready, 108, begin, y + 6, "communicate")
        p.arrow(ready + LAG, 252, begin, y + 30, "communicate")
    for y, words in (
        (150, "A rank marks a bucket ready when its gradient"),
        (168, "is complete; the all-reduce then runs while"),
        (186, "backward computes the next bucket. A rank"),
        (204, "updates weights between two operations and"),
        (222, "waits for the last ones before the next step."),
    ):
        p.text(LEFT, y, words, ink="muted")
    p.arrow(LEFT, 332, RIGHT, 332)
    p.text(RIGHT, 350, "time", 12, "end", ink="muted")
    for x, kind, words in (
        (LEFT, "compute", "compute"),
        (LEFT + 120, "communicate", "communication between hosts"),
        (LEFT + 360, "update", "update of a bucket's weights"),
        (LEFT + 610, "plain", "waiting"),
    ):
        p.box(x, 364, 16, 16, kind, dashed=kind == "plain")
        p.text(x + 24, 377, words)
    return p

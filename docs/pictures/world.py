"""How launchers form a world, lose a rank, and form the next one."""

from drawing import Picture

LEFT, RIGHT = 132, 980


def picture() -> Picture:
    p = Picture(
        1000,
        400,
        "A world forms and heals",
        "Launchers start in any order and meet at the chief's; generation 1 trains; a trainer dies; the launchers "
        "end the others; generation 2 resumes from the last backup.",
    )
    p.text(20, 28, "Three workers: a world forms, loses a rank, and forms again", 16, bold=True)
    starts = (150, 210, 180)
    for i, start in enumerate(starts):
        y = 64 + 84 * i
        p.text(20, y + 24, f"worker {i}", 14, bold=True)
        if i == 0:
            p.text(20, y + 44, "chief", ink="muted")
        p.box(start, y, 290 - start, 60, "plain", ("wait",), dashed=True)
        p.box(290, y, 70, 60, "communicate", ("rendez-", "vous"))
        if i == 1:
            p.box(360, y, 190, 60, "compute", ("generation 1", "trains"))
            p.box(550, y, 66, 60, "failure", ("trainer", "dies"))
        else:
            p.box(360, y, 216, 60, "compute", ("generation 1", "trains"))
            p.box(576, y, 40, 60, "plain", ("end",), dashed=True)
        p.box(616, y, 70, 60, "communicate", ("rendez-", "vous"))
        p.box(686, y, 84, 60, "file", ("restore", "step 420"))
        p.box(770, y, RIGHT - 770, 60, "compute", ("generation 2", "resumes at step 421"))
    p.box(400, 314, 160, 30, "file", ("chief's backup, step 420",), size=12)
    p.arrow(560, 329, 728, 294, "file")
    p.arrow(LEFT, 366, RIGHT, 366)
    p.text(RIGHT, 386, "time", 12, "end", ink="muted")
    p.text(
        LEFT,
        386,
        "Launchers may start in any order. The chief's coordinator forms one MPI world per generation.",
        13,
        ink="muted",
    )
    return p

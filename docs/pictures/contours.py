"""The outline of what is bright in a picture of grey pixels, as polygons (marching squares)."""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = tuple[float, float]
THRESHOLD = 127.5


def contours(rows: Sequence[Sequence[int]], tolerance: float = 0.15) -> list[list[Point]]:
    """Closed polygons between the pixels' centres, which leave the true outline by at most `tolerance` pixels."""
    width = len(rows[0]) + 2
    padded = [[0] * width, *([0, *row, 0] for row in rows), [0] * width]
    following: dict[Point, Point] = {}
    for y in range(len(padded) - 1):
        for x in range(width - 1):
            corners = [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)]
            levels = [padded[row][column] for column, row in corners]
            if min(levels) > THRESHOLD or max(levels) < THRESHOLD:
                continue
            # Clockwise around the cell, the outline leaves where bright becomes dark, and enters at the next change.
            changes = [i for i in range(4) if (levels[i] > THRESHOLD) != (levels[(i + 1) % 4] > THRESHOLD)]
            for k, i in enumerate(changes):
                if levels[i] > THRESHOLD:
                    j = changes[(k + 1) % len(changes)]
                    following[crossing(corners, levels, i)] = crossing(corners, levels, j)
    polygons = []
    while following:
        first, point = following.popitem()
        polygon = [first]
        while point != first:
            polygon.append(point)
            point = following.pop(point)
        polygons.append(simplified([*polygon, first], tolerance)[:-1])
    return polygons


def crossing(corners: list[tuple[int, int]], levels: list[int], i: int) -> Point:
    """Where the level between corner i and the next one is the threshold. Both cells of an edge compute the same."""
    (a, level_a), (b, level_b) = sorted([(corners[i], levels[i]), (corners[(i + 1) % 4], levels[(i + 1) % 4])])
    part = (THRESHOLD - level_a) / (level_b - level_a)
    # The padding's pixel is at -1, and a pixel's centre is half a pixel from its corner.
    return a[0] - 0.5 + part * (b[0] - a[0]), a[1] - 0.5 + part * (b[1] - a[1])


def simplified(points: list[Point], tolerance: float) -> list[Point]:
    """Ramer, Douglas and Peucker's algorithm."""
    (x1, y1), (x2, y2) = points[0], points[-1]
    length = math.hypot(x2 - x1, y2 - y1)

    def distance(point: Point) -> float:
        x, y = point[0] - x1, point[1] - y1
        return abs(x * (y2 - y1) - y * (x2 - x1)) / length if length > 0 else math.hypot(x, y)

    far = max(range(len(points)), key=lambda i: distance(points[i]))
    if distance(points[far]) <= tolerance or far in (0, len(points) - 1):
        return [points[0], points[-1]]
    return simplified(points[: far + 1], tolerance)[:-1] + simplified(points[far:], tolerance)

"""Split points into two clusters by k-means, exactly as the reference of TrustRAG has it done.

It uses scikit-learn's ``KMeans(n_clusters=2, n_init=10, max_iter=500, random_state=0)``: the best of ten k-means++
starts (the second centre is the better of two that are drawn), each improved by Lloyd's algorithm. The same random
numbers are drawn here in the same order, so the clusters are the same. To try every split of up to 12 points would find
a better one now and then (in 20 of 300 random sets), and then decide otherwise than the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_STARTS = 10
_DRAWS = 2
_ROUNDS = 500
_STILL = 1e-4  # of the mean variance: centres that move less have arrived


def two_means(points: np.ndarray) -> np.ndarray:
    """The cluster of each of two or more points (n, width): shape (n,), bool."""
    import numpy as np

    points = points.astype(np.float64)
    still = _STILL * points.var(axis=0).mean()
    points = points - points.mean(axis=0)
    random = np.random.RandomState(0)
    best, least = _descend(points, _start(points, random), still)
    for _ in range(_STARTS - 1):
        split, squares = _descend(points, _start(points, random), still)
        same = (split == best).all() or (split != best).all()
        if squares < least and not same:
            best, least = split, squares
    return best


def standardised(points: np.ndarray) -> np.ndarray:
    """Every column with mean 0 and variance 1, then every row with length 1; float64.

    A column without variance stays 0, and so does a row that is 0 in every column.
    """
    import numpy as np

    rows = points.astype(np.float64)
    mean, variance = rows.mean(axis=0), rows.var(axis=0)
    tiny = np.finfo(np.float64).eps
    noise = len(rows) * tiny * variance + (len(rows) * mean * tiny) ** 2  # what rounding alone can give
    rows = (rows - mean) / np.sqrt(np.where(variance <= noise, 1.0, variance))
    rows[:, variance <= noise] = 0.0
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: np.ndarray = rows / np.where(lengths == 0, 1.0, lengths)
    return unit


def _start(points: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """A point drawn evenly, and the better of two that are drawn by their squared distance to it: shape (2, width)."""
    import numpy as np

    first = points[random.choice(len(points), p=np.full(len(points), 1 / len(points)))]
    distances = _squares(points, first[None])[:, 0]
    drawn = np.searchsorted(np.cumsum(distances), random.uniform(size=_DRAWS) * distances.sum())
    drawn = np.minimum(drawn, len(points) - 1)
    rest = np.minimum(distances[:, None], _squares(points, points[drawn])).sum(axis=0)
    return np.stack([first, points[drawn[np.argmin(rest)]]])


def _descend(points: np.ndarray, centres: np.ndarray, still: float) -> tuple[np.ndarray, float]:
    """Lloyd's algorithm from two centres: the clusters, and the sum of squared distances to the centres."""
    import numpy as np

    split, before = np.zeros(len(points), bool), None
    for _ in range(_ROUNDS):
        split = _nearer(points, centres)
        if split.all() or not split.any():
            break
        moved = np.stack([points[~split].mean(axis=0), points[split].mean(axis=0)])
        shift, centres = ((moved - centres) ** 2).sum(), moved
        if before is not None and (split == before).all():
            break
        if shift <= still:
            split = _nearer(points, centres)
            break
        before = split
    return split, float(((points - centres[split.astype(int)]) ** 2).sum())


def _nearer(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Which points are nearer to the second of two centres."""
    squares = _squares(points, centres)
    nearer: np.ndarray = squares[:, 1] < squares[:, 0]
    return nearer


def _squares(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The squared distance of every point to every centre: shape (points, centres)."""
    distances: np.ndarray = ((points[:, None] - centres) ** 2).sum(axis=2)
    return distances

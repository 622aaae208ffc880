"""Two clusters: plain cases by hand, and the clusters of scikit-learn with the settings of the reference."""

from __future__ import annotations

import numpy as np
import pytest

from arbitrag.stages.filters.two_means import standardised, two_means


def split(points: list[list[float]]) -> set[frozenset[int]]:
    found = two_means(np.array(points))
    return {frozenset(np.flatnonzero(found == side).tolist()) for side in (False, True)}


def test_two_heaps() -> None:
    assert split([[0, 0], [10, 10], [0, 1], [10, 11], [1, 0]]) == {frozenset({0, 2, 4}), frozenset({1, 3})}
    assert split([[0.0], [5.0]]) == {frozenset({0}), frozenset({1})}


def test_one_far_point_is_a_cluster_of_its_own() -> None:
    assert split([[0.0], [0.1], [0.2], [9.0]]) == {frozenset({0, 1, 2}), frozenset({3})}


def test_equal_points_make_one_cluster() -> None:
    assert split([[1.0, 2.0]] * 4) == {frozenset({0, 1, 2, 3}), frozenset()}


def test_it_is_the_same_every_time_and_leaves_numpys_own_generator_alone() -> None:
    points = np.random.default_rng(1).normal(size=(30, 5))
    first = two_means(points)
    np.random.seed(3)
    assert (two_means(points) == first).all()
    assert np.random.random() == np.random.RandomState(3).random_sample()


def test_standardised_by_hand() -> None:
    rows = standardised(np.array([[1.0, 5.0, 7.0], [3.0, 5.0, 11.0]]))
    # columns: -1 and 1; none, since it has no variance; -1 and 1
    assert rows == pytest.approx(np.array([[-1, 0, -1], [1, 0, 1]]) / np.sqrt(2))
    assert not standardised(np.full((3, 4), 0.3, np.float32)).any()


@pytest.mark.parametrize("seed", range(25))
def test_the_clusters_of_scikit_learn(seed: int) -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    scaler = pytest.importorskip("sklearn.preprocessing").StandardScaler()
    rng = np.random.default_rng(seed)
    count, width = int(rng.integers(2, 20)), int(rng.choice([4, 64]))
    points = rng.normal(size=(count, width)) + rng.integers(0, 2, size=(count, 1)) * rng.random() * 3
    points[-1] = points[0] if seed % 3 == 0 and count > 3 else points[-1]
    rows = scaler.fit_transform(points.astype(np.float32))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    theirs = cluster.KMeans(n_clusters=2, n_init=10, max_iter=500, random_state=0).fit(rows).labels_.astype(bool)
    ours = two_means(standardised(points.astype(np.float32)))
    assert standardised(points.astype(np.float32)) == pytest.approx(rows, abs=1e-5)
    assert (ours == theirs).all()

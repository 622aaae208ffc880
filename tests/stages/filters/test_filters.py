"""The passage filters: by hand, at their boundaries, and on lists that are odd."""

from __future__ import annotations

import numpy as np
import pytest

from arbitrag.encode.hashed import HashEncoder
from arbitrag.errors import UsageError
from arbitrag.kit import Kit
from arbitrag.methods.base import settings_of
from arbitrag.methods.stack import Stack
from arbitrag.methods.trustrag import TrustRag
from arbitrag.stages.filters import FILTERS, filter_named
from arbitrag.stages.filters.reference import reference
from arbitrag.stages.filters.robust import CALIBRATED, UNKNOWN, RobustFilter, calibrate, robust, similar_for
from arbitrag.testing import FixedRetriever, ScriptedLLM
from arbitrag.types import Passage, Question

WHO = Question("Who directed The Silent Orchard?")


def at(*degrees: float) -> np.ndarray:
    """Unit vectors in the plane."""
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def passages(*texts: str) -> list[Passage]:
    return [Passage(text, id=str(number)) for number, text in enumerate(texts, 1)]


BREND = "Oskar Brend directed it in the spring of 1931."
AGAIN = "In the spring of 1931 it was directed by Oskar Brend."
OTHER = "Rivers of the north freeze over early."


def kept(*texts: str, vectors: np.ndarray, similar: float = 0.9) -> tuple[list[str], list[str]]:
    found = robust(WHO, passages(*texts), vectors, similar)
    return [each.id for each in found.kept], [each.reason for each in found.dropped]


def test_an_echo_of_the_question_is_dropped() -> None:
    echo = "WHO directed the silent orchards? Mira Talven did."
    assert kept(echo, BREND, vectors=at(0, 90)) == (["2"], ["repeats the question word for word"])
    assert kept("Who directed The Silent Hall?", vectors=at(0)) == (["1"], [])
    assert kept(WHO.text, WHO.text, vectors=at(0, 90))[0] == []


def test_a_question_of_two_words_may_stand_in_an_honest_text() -> None:
    for question, ids in ((Question("Oskar Brend?"), ["1"]), (Question("Oskar Brend directed?"), [])):
        assert [each.id for each in robust(question, passages(BREND), at(0), 0.9).kept] == ids


def test_of_passages_that_say_the_same_the_first_stays() -> None:
    assert kept(BREND, OTHER, AGAIN, vectors=at(0, 90, 10)) == (["1", "2"], ["says the same as passage 1"])
    assert kept(AGAIN, OTHER, BREND, vectors=at(0, 90, 10)) == (["1", "2"], ["says the same as passage 1"])


def test_words_and_vectors_have_both_to_be_alike() -> None:
    assert kept(BREND, AGAIN, vectors=at(0, 90))[0] == ["1", "2"]  # alike in words alone
    assert kept(BREND, OTHER, vectors=at(0, 0))[0] == ["1", "2"]  # alike in vectors alone
    assert kept(BREND, BREND.upper(), vectors=at(0, 180))[0] == ["1"]  # the same words are the same passage


def test_the_cosine_at_the_boundary_is_not_above_it() -> None:
    vectors = np.array([[1, 0], [0.5, 0.8660254]], np.float32)
    assert kept(BREND, AGAIN, vectors=vectors, similar=0.5)[0] == ["1", "2"]
    assert kept(BREND, AGAIN, vectors=vectors, similar=0.4999)[0] == ["1"]


def test_what_is_like_a_dropped_passage_alone_stays() -> None:
    """Passage 2 is near to 1 and to 3, which are not near to one another."""
    assert kept(BREND, AGAIN, AGAIN + " They say.", vectors=at(0, 20, 40))[0] == ["1", "3"]


def test_the_decision_holds_the_numbers() -> None:
    found = robust(WHO, passages(BREND, WHO.text, AGAIN), at(0, 90, 60), 0.4)
    (decision,) = found.decisions
    assert decision.outcome == "1 of 3 kept"
    assert (decision.inputs["echoes"], decision.inputs["repetitions"]) == (1, 1)
    assert decision.inputs["highest_cosine"] == pytest.approx(np.cos(np.radians(30)), abs=1e-6)
    # Oskar Brend, or in the spring of 1931: 5 of 9 and of 11 words
    assert decision.inputs["highest_rouge"] == pytest.approx(2 * 5 / (9 + 11))


def test_chinese_duplicates_do_not_get_through() -> None:
    text = "北京是中国的首都，也是一座古老的城市。"
    assert kept(text, text.replace("。", "！"), vectors=at(0, 5)) == (["1"], ["says the same as passage 1"])


@pytest.mark.parametrize("similar", [0.0, 0.5, 1.0])
def test_odd_lists(similar: float) -> None:
    assert robust(WHO, [], np.empty((0, 2), np.float32), similar).kept == ()
    assert kept("", vectors=at(0), similar=similar)[0] == ["1"]
    assert kept(*[BREND] * 500, vectors=at(*[0] * 500), similar=similar)[0] == ["1"]
    many = [f"{number} {OTHER}" for number in range(500)]
    assert len(kept(*many, vectors=at(*np.arange(500) / 2), similar=1.0)[0]) == 500


@pytest.mark.parametrize(("name", "left"), [("none", ["1", "2", "3"]), ("robust", ["1", "3"]), ("reference", ["3"])])
async def test_each_filter_by_its_name(name: str, left: list[str]) -> None:
    kit = Kit.of(ScriptedLLM(), FixedRetriever(()), encoder=HashEncoder())
    chosen = filter_named(name)
    found = await chosen.keep(WHO, passages(BREND, BREND, OTHER), kit)
    assert [each.id for each in found.kept] == left
    assert (await chosen.keep(WHO, [], kit)).kept == ()


def test_the_filters_are_listed_once() -> None:
    assert list(FILTERS) == ["none", "robust", "reference"]
    assert all(kind.name == name for name, kind in FILTERS.items())
    for method in (TrustRag, Stack):
        (setting,) = (each for each in settings_of(method) if each.name == "filter")
        shown = setting.choices or setting.meaning.partition(": ")[2].replace(" or ", ", ").split(", ")
        assert list(shown) == list(FILTERS)


def test_the_options_of_a_filter() -> None:
    assert filter_named("robust", similar=0.5) == RobustFilter(0.5)
    with pytest.raises(UsageError, match=r"unknown filter 'robst'\. Did you mean 'robust'"):
        filter_named("robst")
    for name in FILTERS:
        with pytest.raises(UsageError, match="similar is a cosine from 0 to 1; got 2"):
            filter_named(name, similar=2)


def test_calibration_by_hand() -> None:
    """Best partners: cos 60 twice; cos 30, cos 30 and cos 60; a passage alone has none."""
    found = calibrate([at(0, 60), at(0, 30, 90), at(0)], quantile=0.5)
    assert found == pytest.approx(0.5, abs=1e-6)
    assert calibrate([at(0, 60), at(0, 30, 90)], quantile=1.0) == pytest.approx(np.sqrt(3) / 2, abs=1e-6)
    assert similar_for("hash") == CALIBRATED["hash"]
    assert similar_for("st:unheard-of") == UNKNOWN


def of_reference(*texts: str, vectors: np.ndarray) -> list[str]:
    return [each.id for each in reference(passages(*texts), vectors).kept]


ALIKE = [f"Oskar Brend directed it in the spring of 19{year}." for year in range(31, 36)]
APART = ["Rivers freeze.", "Bread rises slowly.", "Nobody knew why.", "Old coins shine.", "It rained."]


def test_reference_keeps_all_where_no_words_are_shared() -> None:
    assert of_reference(*APART, vectors=at(0, 0, 0, 0, 0)) == ["1", "2", "3", "4", "5"]
    assert of_reference(BREND, vectors=at(0)) == ["1"]
    assert reference([], np.empty((0, 2), np.float32)).kept == ()


def test_reference_drops_a_dense_cluster_and_repetitions_in_the_other() -> None:
    vectors = at(0, 1, 2, 120, 200)  # densities: about 1, and cos 80
    assert of_reference(*ALIKE[:3], *APART[:2], vectors=vectors) == ["4", "5"]
    assert of_reference(*APART[:3], *ALIKE[:2], vectors=vectors) == []  # both of a pair are dropped


def test_reference_drops_two_dense_clusters() -> None:
    assert of_reference(*ALIKE[:4], vectors=at(0, 1, 180, 181)) == []


def test_reference_drops_repetitions_where_no_cluster_is_dense() -> None:
    vectors = at(0, 60, 180, 240)  # densities: cos 60 twice
    assert of_reference(ALIKE[0], ALIKE[1], *APART[:2], vectors=vectors) == ["3", "4"]
    assert of_reference(ALIKE[0], APART[0], ALIKE[1], APART[1], vectors=vectors) == ["1", "2", "3", "4"]


def test_reference_and_a_passage_alone_in_its_cluster() -> None:
    """It is dropped, unless the others are dense; of two passages that overlap, one is dropped."""
    assert of_reference(*ALIKE[:3], vectors=at(0, 50, 180)) == ["1", "2"]
    assert of_reference(*ALIKE[:3], vectors=at(0, 5, 180)) == ["3"]
    assert len(of_reference(*ALIKE[:2], vectors=at(0, 90))) == 1


def test_reference_with_equal_vectors_keeps_the_first() -> None:
    assert of_reference(*ALIKE, vectors=at(30, 30, 30, 30, 30)) == ["1"]


def test_reference_names_clusters_and_densities() -> None:
    found = reference(passages(*ALIKE[:3], *APART[:2]), at(0, 1, 2, 120, 200))
    (decision,) = found.decisions
    assert decision.outcome == "2 of 5 kept"
    clusters = {tuple(decision.inputs[f"{name}_cluster"]): decision.inputs[f"{name}_density"] for name in NAMES}
    assert clusters[(1, 2, 3)] == pytest.approx((2 * np.cos(np.radians(1)) + np.cos(np.radians(2))) / 3, abs=1e-6)
    assert clusters[(4, 5)] == pytest.approx(np.cos(np.radians(80)), abs=1e-6)
    assert {each.reason for each in found.dropped} == {"in a cluster of density 1.00"}


NAMES = ("first", "second")


def test_reference_on_500_passages() -> None:
    rng = np.random.default_rng(0)
    texts = [f"{rng.integers(1000)} {BREND}" for _ in range(500)]
    found = reference(passages(*texts), rng.normal(size=(500, 8)).astype(np.float32))
    assert len(found.kept) + len(found.dropped) == 500

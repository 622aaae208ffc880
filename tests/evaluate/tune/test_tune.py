"""Tuning on runs whose best settings are known by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tune_parts import FAILED, UNTRACED, WAITING, ThreeHeads, bridge, margin, recorded

from arbitrag.encode.similarity import HEADS, normalised_weights
from arbitrag.errors import DataError, TraceError, UsageError
from arbitrag.evaluate.run.store import Store
from arbitrag.evaluate.tune.bridge import BridgeNumbers
from arbitrag.evaluate.tune.grid import Grid, Numbers
from arbitrag.evaluate.tune.page import LEVELS, scale
from arbitrag.evaluate.tune.recorded import joined_trace
from arbitrag.evaluate.tune.recorded import recorded as find_recorded
from arbitrag.evaluate.tune.result import Tuned, level
from arbitrag.evaluate.tune.search import TUNABLE, tune
from arbitrag.evaluate.tune.trustmargin import MarginNumbers
from arbitrag.methods.base import Method
from arbitrag.methods.bridge.decision_tree import REFLECT, Agreement, decide
from arbitrag.methods.bridge.knowledge_scores import weighed
from arbitrag.methods.bridge.method import Bridge
from arbitrag.methods.rag import Rag
from arbitrag.methods.trustmargin import TrustMargin
from arbitrag.replay import replay
from arbitrag.trace import Trace
from arbitrag.types import Strategy

FOUR = (
    margin(1, -1.0, 0.0, "evidence"),  # right above a margin of -1
    margin(2, -3.0, 0.0, "memory"),  # right at a threshold of -3 and above
    margin(3, -2.0, 0.0, "evidence"),  # right below a threshold of -2
    margin(4, 0.0, 0.0, "memory", agree=True),
)
EVERYTHING = bridge(1, 70, "east", "east")  # S1 = S4 = 1: both
MEMORY = bridge(2, 10, "north", "north", ("Mira",))  # T_ret 0.1, T_llm 0.9
EVIDENCE = bridge(3, 90, "north", "nothing", ("Brend",))  # T_ret 1.8, T_llm 0
BETWEEN = bridge(4, 40, "I don't know", "nothing", ("Brend",))  # T_ret 0.8, T_llm 0: reflects by default


def tuned(path: Path, method: str, **more: Any) -> Tuned:
    with Store.open(path) as store:
        return tune(store, method, **{"resamples": 200, **more})


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("runs") / "four.db", {"trustmargin": TrustMargin()}, FOUR)


def test_the_best_threshold_is_found_and_ties_go_to_the_defaults(four: Path) -> None:
    found = tuned(four, "trustmargin")
    assert found.best.settings == {"weight": 0.5, "threshold": -2.1}
    assert found.default.settings == {"weight": 0.5, "threshold": -1.5}
    assert (found.best.accuracy.mean, found.default.accuracy.mean) == (1.0, 0.75)
    assert (found.difference.mean, found.difference.questions) == (0.25, 4)
    assert (found.points, found.tied) == (21 * 71, 21 * 10)  # thresholds from -3 to -2.1, at any weight
    assert (found.best.undecided, found.undecided_points, found.reasons, found.decided) == ((), 0, {}, None)
    assert found.notes == ("1 of 4 questions were decided without a margin, so no setting changes them.",)
    assert found.options == "--set weight=0.5 --set threshold=-2.1"
    assert found.typed == "trustmargin weight=0.5 threshold=-2.1"


def test_at_the_threshold_memory_keeps_the_answer(four: Path) -> None:
    found = tuned(four, "trustmargin", grid=["weight=0.5", "threshold=-3.000001,-3,-2.000001,-2"])
    (drawn,) = found.maps
    assert drawn.accuracy == ((0.75, 1.0, 1.0, 0.75),)
    assert (drawn.rows, drawn.columns, drawn.best, drawn.default) == ("weight", "threshold", (0, 2), None)


def test_defaults_that_are_as_good_stay(four: Path, tmp_path: Path) -> None:
    path = recorded(tmp_path / "run.db", {"trustmargin": TrustMargin()}, FOUR[:2])
    found = tuned(path, "trustmargin")
    assert found.best.settings == found.default.settings == {"weight": 0.5, "threshold": -1.5}
    assert (found.difference.mean, found.difference.low, found.difference.high) == (0.0, 0.0, 0.0)
    assert found.tied == 21 * 20  # thresholds from -3 to -1.1


def test_the_weight_counts(tmp_path: Path) -> None:
    """A prior of -4 and a binding of 4: evidence above -1.5 from a weight of 0.7 on."""
    path = recorded(tmp_path / "run.db", {"trustmargin": TrustMargin()}, [margin(1, -4.0, 4.0, "evidence")])
    found = tuned(path, "trustmargin", grid=["threshold=-1.5"])
    assert found.best.settings == {"weight": 0.7, "threshold": -1.5}
    assert found.tied == 14  # 0.7 to 2
    assert (found.difference.low, found.difference.high) == (None, None)  # of one question nothing can be said


def test_what_lies_within_the_noise_is_counted(tmp_path: Path) -> None:
    """At -2.1 all 40 are right; a threshold of -1.5 loses 1 of them, -0.5 loses 21: a mean of 0.525, far beyond."""
    many = [margin(n, -1.0, 0.0, "evidence") for n in range(1, 21)] + [margin(21, -2.0, 0.0, "evidence")]
    many += [margin(n, -3.0, 0.0, "memory") for n in range(22, 41)]
    path = recorded(tmp_path / "run.db", {"trustmargin": TrustMargin()}, many)
    found = tuned(path, "trustmargin", grid=["weight=0.5", "threshold=-2.1,-1.5,-0.5"])
    assert found.best.settings["threshold"] == -2.1
    (drawn,) = found.maps
    assert drawn.accuracy == ((1.0, 39 / 40, 19 / 40),)
    assert drawn.near == ((True, True, False),)  # one of 40: 0.025 is less than 1.96 times 0.025
    assert (found.tied, found.near) == (1, 2)


def test_rows_that_cannot_be_decided_again_are_counted(tmp_path: Path) -> None:
    kept = {("trustmargin", "q1"): FAILED, ("trustmargin", "q2"): WAITING, ("trustmargin", "q4"): UNTRACED}
    found = tuned(recorded(tmp_path / "run.db", {"trustmargin": TrustMargin()}, FOUR, kept=kept), "trustmargin")
    assert (found.questions, found.compared, found.failed) == (4, 2, 1)
    assert found.left_out == {"waiting": ("q2",), "untraced": ("q4",)}
    assert (found.best.accuracy.mean, found.default.accuracy.mean) == (0.5, 0.0)  # the failed one is wrong


def test_a_damaged_trace_is_left_out(tmp_path: Path) -> None:
    def edit(system: str, question: str, trace: dict[str, Any]) -> dict[str, Any]:
        damage: dict[str, dict[str, Any]] = {"q1": {"format": 99}, "q2": {"decisions": []}, "q3": {"calls": 3}}
        return trace | damage.get(question, {})

    found = tuned(recorded(tmp_path / "run.db", {"trustmargin": TrustMargin()}, FOUR, edit=edit), "trustmargin")
    assert (found.compared, found.left_out) == (2, {"damaged": ("q1", "q2")})
    assert found.reasons == {"has a damaged trace": 1}  # its decision could be read, its calls cannot
    assert (found.best.undecided, found.best.accuracy.mean, found.best.at_most) == (("q3",), 0.5, 1.0)


@pytest.mark.parametrize("value", ["much", None, 10**400, [1.0], "nan"])
def test_a_number_that_is_none_is_damage(tmp_path: Path, value: Any) -> None:
    def edit(system: str, question: str, trace: dict[str, Any]) -> dict[str, Any]:
        if question in ("q1", "b1"):
            for decision in trace["decisions"]:
                inputs = decision["inputs"]
                inputs |= {key: value for key in ("prior", "s2_dense") if key in inputs}
        return trace

    path = recorded(tmp_path / "tm.db", {"trustmargin": TrustMargin()}, FOUR, edit=edit)
    assert tuned(path, "trustmargin").left_out == {"damaged": ("q1",)}
    path = recorded(tmp_path / "bridge.db", {"bridge": Bridge()}, [EVERYTHING, MEMORY], edit=edit)
    assert tuned(path, "bridge", grid=["alpha=0.5", "beta=1.1"]).left_out == {"damaged": ("b1",)}


def test_a_call_that_had_failed_is_told(tmp_path: Path) -> None:
    """The memory's call of the third question is edited into a failure, so that no setting answers it."""

    def edit(system: str, question: str, trace: dict[str, Any]) -> dict[str, Any]:
        if question == "q3":
            call = next(call for call in trace["calls"] if call["kind"] == "generate")
            call |= {"error": "BackendError: HTTP 500", "result": None}
        return trace

    found = tuned(recorded(tmp_path / "run.db", {"trustmargin": TrustMargin()}, FOUR, edit=edit), "trustmargin")
    assert found.reasons == {"fails: BackendError": 1}
    assert found.default.undecided == ("q3",)


def test_numbers_that_the_calls_contradict_are_told(tmp_path: Path) -> None:
    """The decision says a margin; the calls are of answers that agree."""

    def edit(system: str, question: str, trace: dict[str, Any]) -> dict[str, Any]:
        if question != "q4":
            return trace
        return trace | {
            "decisions": [{"stage": "margin", "rule": "", "inputs": {"prior": -1.0, "binding": 0.0}, "outcome": ""}]
        }

    found = tuned(recorded(tmp_path / "run.db", {"trustmargin": TrustMargin()}, FOUR, edit=edit), "trustmargin")
    assert found.reasons == {"decides otherwise than its recorded numbers say": 1}
    assert found.best.undecided == found.default.undecided == ("q4",)


def test_other_settings_stay_and_are_typed(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run.db", {"trustmargin k=3 threshold=-2.5": TrustMargin(k=3, threshold=-2.5)}, FOUR)
    found = tuned(path, "trustmargin")
    assert found.best.settings == {"weight": 0.5, "threshold": -2.1}  # ties go to the defaults, not to what was run
    assert found.options == "--set k=3 --set weight=0.5 --set threshold=-2.1"


def test_several_forms_of_a_method_are_to_be_chosen_from(tmp_path: Path) -> None:
    systems: dict[str, Method] = {"trustmargin": TrustMargin(), "trustmargin k=3": TrustMargin(k=3), "rag": Rag()}
    path = recorded(tmp_path / "run.db", systems, FOUR)
    with pytest.raises(UsageError, match="in 2 forms; choose one with --system: trustmargin; trustmargin k=3"):
        tuned(path, "trustmargin")
    assert tuned(path, "trustmargin", system="trustmargin k=3").fixed["k"] == 3
    with pytest.raises(UsageError, match="unknown system 'trustmargn'"):
        tuned(path, "trustmargin", system="trustmargn")


def test_a_run_of_another_method_is_an_error(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run.db", {"rag": Rag()}, FOUR)
    with pytest.raises(UsageError, match="the run has no trustmargin; its methods: rag"):
        tuned(path, "trustmargin")
    with pytest.raises(UsageError, match="settings to tune in trustmargin and bridge; got 'rag'"):
        tuned(path, "rag")


def test_a_run_without_traces_is_an_error(tmp_path: Path) -> None:
    kept = {("trustmargin", f"q{n}"): UNTRACED for n in range(1, 4)} | {("trustmargin", "q4"): FAILED}
    path = recorded(tmp_path / "run.db", {"trustmargin": TrustMargin()}, FOUR, kept=kept)
    with pytest.raises(DataError, match="can be decided again: 1 failed, 3 answered without a trace") as error:
        tuned(path, "trustmargin")
    assert "--method trustmargin --traces" in str(error.value)


def test_a_set_without_a_row_is_an_error(tmp_path: Path) -> None:
    kept = {("trustmargin", f"q{n}"): WAITING for n in range(1, 5)}
    path = recorded(tmp_path / "run.db", {"trustmargin": TrustMargin()}, FOUR, kept=kept)
    with pytest.raises(DataError, match="can be decided again: 4 not yet answered"):
        tuned(path, "trustmargin")


@pytest.mark.parametrize("name", ["test", "trd-test", "Test", "test?poisoned=1", "my_tests", "test set"])
def test_a_set_to_test_on_is_refused(tmp_path: Path, name: str) -> None:
    path = recorded(tmp_path / "run.db", {"trustmargin": TrustMargin()}, FOUR, name=name)
    for wanted in (None, name):
        with pytest.raises(UsageError, match=r"is a set to test on.*\n.*--on-test"):
            tuned(path, "trustmargin", set=wanted)
    assert tuned(path, "trustmargin", on_test=True).set == name


@pytest.mark.parametrize("name", ["validation", "contest", "latest", "attestation", "lab:questions?count=5"])
def test_other_sets_are_not(tmp_path: Path, name: str) -> None:
    path = recorded(tmp_path / "run.db", {"trustmargin": TrustMargin()}, FOUR, name=name)
    assert tuned(path, "trustmargin").set == name


def test_an_unknown_set_is_an_error(four: Path) -> None:
    with pytest.raises(UsageError, match="unknown question set 'validaton'"):
        tuned(four, "trustmargin", set="validaton")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("threshold", "--grid takes NAME=FIRST:LAST:STEP"),
        ("threshold=", "--grid takes"),
        ("threshold=a,b", "--grid takes"),
        ("threshold=1:2", "--grid takes"),
        ("threshold=nan", "--grid takes"),
        ("threshold=2:1:0.1", "--grid goes up"),
        ("threshold=1:2:0", "--grid goes up"),
        ("threshold=0:1:0.0001", "more than 1,000 values"),
        ("treshold=1", "unknown setting to tune 'treshold'. Did you mean 'threshold'?"),
    ],
)
def test_a_grid_that_is_none_is_an_error(four: Path, typed: str, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("?", "\\?")):
        tuned(four, "trustmargin", grid=[typed])


def test_a_grid_of_too_many_settings_is_an_error_before_it_is_made(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run.db", {"bridge": Bridge()}, [EVERYTHING])
    many = [f"{name}_weight=0:1:0.002" for name in HEADS]
    with pytest.raises(UsageError, match="50,300,600,400 settings are more than 20,000,000"):
        tuned(path, "bridge", grid=many)


def test_a_best_at_the_edge_and_defaults_off_the_grid_are_told(four: Path) -> None:
    found = tuned(four, "trustmargin", grid=["threshold=-2.5,-2.4", "weight=0.5"])
    assert "The best lies at the edge of the values tried of threshold; try more with --grid." in found.notes
    worse = tuned(four, "trustmargin", grid=["threshold=0,1", "weight=0.5"])
    assert "The defaults are not on this grid, and they do better than the best that is." in worse.notes
    assert (worse.difference.mean, worse.maps[0].default) == (-0.25, None)


def test_bridge_is_tuned_and_what_was_not_recorded_is_named(tmp_path: Path) -> None:
    """Alpha from 0.9 on refuses where memory is right; beta to 0.8 would answer b4, for which no call was recorded."""
    path = recorded(tmp_path / "run.db", {"bridge": Bridge()}, [EVERYTHING, MEMORY, EVIDENCE, BETWEEN])
    found = tuned(path, "bridge", grid=["alpha=0.5,1", "beta=0.5,1.1,2"])
    assert found.default.accuracy.mean == 0.75  # b4 is refused after three reflections
    assert found.best.settings == {"alpha": 0.5, "beta": 1.1}
    (drawn,) = found.maps
    # alpha 1: b2 is refused; beta 2: b3 is not answered, but reflected on, which was not recorded (1.8 >= alpha)
    assert drawn.accuracy == ((0.75, 0.75, 0.5), (0.5, 0.5, 0.25))
    assert found.reasons == {"needs a call that was not recorded": 2}  # b4 at a beta of 0.5, b3 at one of 2
    assert found.undecided_points == 4
    assert found.best.undecided == ()
    assert found.best.at_most == 0.75
    assert (found.points, found.tied) == (6, 2)
    assert "The encoder compares by its dense head alone, so no weight matters: none is tuned." in found.notes


def test_what_another_system_recorded_serves(tmp_path: Path) -> None:
    """With a run of beta 0.5 beside it, b4 is answered there, and rightly; an undecided point counts as wrong."""
    systems = {"bridge": Bridge(), "bridge beta=0.5": Bridge(beta=0.5)}
    path = recorded(tmp_path / "run.db", systems, [EVERYTHING, MEMORY, EVIDENCE, BETWEEN])
    found = tuned(path, "bridge", grid=["alpha=0.5,1", "beta=0.5,1.1"])
    assert found.systems == ("bridge", "bridge beta=0.5")
    assert found.best.settings == {"alpha": 0.5, "beta": 0.5}
    assert (found.best.accuracy.mean, found.default.accuracy.mean, found.difference.mean) == (1.0, 0.75, 0.25)
    assert found.reasons == {}


def test_the_difference_over_what_both_decide(tmp_path: Path) -> None:
    """Only a beta of 0.5 was run: the defaults leave b4 undecided, and it counts as wrong for them."""
    path = recorded(tmp_path / "run.db", {"bridge beta=0.5": Bridge(beta=0.5)}, [EVERYTHING, MEMORY, BETWEEN])
    found = tuned(path, "bridge", grid=["alpha=0.5", "beta=0.5,1.1"])
    assert found.best.accuracy.mean == 1.0
    assert found.default.accuracy.mean == pytest.approx(2 / 3)
    assert (found.default.undecided, found.default.at_most) == (("b4",), 1.0)
    assert found.decided is not None
    assert (found.decided.mean, found.decided.questions) == (0.0, 2)


@pytest.mark.parametrize("first", [0.5, 1.1])
def test_of_systems_that_recorded_other_numbers_the_first_counts(tmp_path: Path, first: float) -> None:
    """A beta of 0.5 answers b4, one of 1.1 reflects on it: each recorded what the other lacks."""
    names = {0.5: "bridge beta=0.5", 1.1: "bridge"}
    second = 1.1 if first == 0.5 else 0.5

    def edit(system: str, question: str, trace: dict[str, Any]) -> dict[str, Any]:
        if system == names[second] and question == "b4":
            for decision in trace["decisions"]:
                if decision["stage"] == "agreement":
                    decision["inputs"]["s3_dense"] = 0.5
        return trace

    systems = {names[beta]: Bridge(beta=beta) for beta in (first, second)}
    path = recorded(tmp_path / "run.db", systems, [EVERYTHING, BETWEEN], edit=edit)
    found = tuned(path, "bridge", grid=["alpha=0.5", "beta=0.5,1.1"])
    assert found.left_out == {"apart": ("b4",)}
    assert found.reasons == {"needs a call that was not recorded": 1}
    assert found.maps[0].accuracy == ((1.0 if first == 0.5 else 0.5, 0.5),)
    assert any(note.startswith("Of 1 questions the systems recorded different numbers") for note in found.notes)


def test_the_weights_are_tuned_by_their_ratios(tmp_path: Path) -> None:
    """Dense S1 and S4 are 1, the others 0.25: both are trusted above a dense ratio of 1/3; else a call is missing."""
    path = recorded(tmp_path / "run.db", {"bridge": Bridge()}, [bridge(1, 70, "east", "east", encoder=ThreeHeads())])
    found = tuned(
        path,
        "bridge",
        grid=["dense_weight=0.2,0.4,0.8", "sparse_weight=0.2,0.4,2", "multi_weight=0.15,0.3", "alpha=0.5"],
    )
    best = {"alpha": 0.5, "beta": 1.1, "dense_weight": 0.4, "sparse_weight": 0.2, "multi_weight": 0.3}
    assert found.best.settings == best
    assert found.points == 20 * (18 - 2)  # 2 of the ratios come twice
    alphas, weights = found.maps
    assert (alphas.rows, alphas.columns) == ("alpha", "beta")
    assert (weights.rows, weights.columns, weights.best, weights.default) == (
        *("dense_weight", "sparse_weight"),
        *((1, 0), (1, 0)),
    )
    assert weights.accuracy == ((0.0, 0.0, 0.0), (1.0, 1.0, 0.0), (1.0, 1.0, 0.0))  # with a multi_weight of 0.3


def agreements(*heads: str) -> list[dict[str, float]]:
    """One round in which everything is 0.5."""
    return [{f"s{n}_{head}": 0.5 for n in range(1, 5) for head in heads} | {"r_p": 0.5, "g_p": 0.5}]


def test_without_grid_options_the_ratios_of_a_thousand_weights_are_tried_once() -> None:
    grid = Grid.of(BridgeNumbers([agreements(*HEADS)]), BridgeNumbers.values)
    every = list(product(range(1, 11), repeat=3))
    ratios = [tuple(Fraction(each, sum(weights)) for each in weights) for weights in every]
    assert len(grid.weights) == len(set(ratios))
    assert grid.weights[0].tolist() == [0.4, 0.2, 0.4]
    assert len(grid.index) == 1000
    for number, ratio in zip(grid.index.tolist(), ratios, strict=True):
        assert grid.weights[number] / grid.weights[number].sum() == pytest.approx([float(each) for each in ratio])


def test_a_head_that_is_missing_keeps_its_weight() -> None:
    numbers = BridgeNumbers([agreements("dense", "sparse")])
    assert numbers.notes == ("The encoder has no multi-vector head, so its weight is not tuned.",)
    grid = Grid.of(numbers, BridgeNumbers.values)
    assert set(grid.values) == {"alpha", "beta", "dense_weight", "sparse_weight"}
    assert set(grid.weights[:, 2].tolist()) == {0.4}
    with pytest.raises(DataError, match="compared by different heads"):
        BridgeNumbers([agreements("dense", "sparse"), agreements("dense")])


def test_weights_that_are_all_0_are_not_tried() -> None:
    values = {"dense_weight": (0.0, 0.4), "sparse_weight": (-1.0, 0.0), "multi_weight": (0.0,)}
    weights, index = BridgeNumbers([agreements(*HEADS)]).combinations(values)
    assert (weights.tolist(), index.tolist()) == ([[0.4, 0.0, 0.0]], [-1, -1, -1, 0])
    with pytest.raises(UsageError, match="one of them is more"):
        BridgeNumbers([agreements(*HEADS)]).combinations({**values, "dense_weight": (0.0,)})


def painted(numbers: Numbers, weights: Sequence[Sequence[float]], *thresholds: Sequence[float]) -> np.ndarray:
    """The paths (weights, rows, columns, questions) of the rectangles, each cell of which is painted once."""
    rows = len(thresholds[0]) if len(thresholds) > 1 else 1
    paths = np.full((len(weights), rows, len(thresholds[-1]), numbers.questions), -1)
    found = numbers.regions(np.array(weights), *map(np.array, thresholds))
    for weight, question, path, top, bottom, left, right in found.T.tolist():
        cells = paths[weight, top:bottom, left:right, question]
        assert (cells == -1).all()
        cells[...] = path
    assert (paths >= 0).all()
    return paths


def test_the_margin_is_compared_as_the_method_compares_it() -> None:
    """On tenths, so that many margins lie exactly at a threshold, or miss it by their last bit."""
    draw = random.Random(1)
    pairs = [(draw.randrange(-30, 10) / 10, draw.randrange(-20, 20) / 10) for _ in range(200)]
    numbers = MarginNumbers([[{"prior": prior, "binding": binding}] for prior, binding in pairs])
    weights, thresholds = (MarginNumbers.values[name] for name in ("weight", "threshold"))
    paths = painted(numbers, [[weight] for weight in weights], thresholds)
    at_threshold = 0
    for row, column, question in product(range(len(weights)), range(len(thresholds)), range(len(pairs))):
        prior, binding = pairs[question]
        margin = prior + weights[row] * binding  # as in TrustMargin.decide
        assert paths[row, 0, column, question] == (2 if margin > thresholds[column] else 1)
        at_threshold += margin == thresholds[column]
    assert at_threshold > 500


def walked(rounds: Sequence[Mapping[str, float]], alpha: float, beta: float) -> int:
    """The code of the path by the tree itself, a round after the other."""
    for reached, numbers in enumerate(rounds):
        agreement = Agreement(*(numbers[f"s{n}_dense"] for n in range(1, 5)))
        outcome = decide(agreement, numbers["r_p"], numbers["g_p"], alpha, beta)
        if outcome != REFLECT:
            return 5 * reached + list(Strategy).index(outcome)
    return 5 * len(rounds) - 1


def test_the_regions_lead_where_the_tree_leads() -> None:
    """Against ``decide`` on tenths, so that many numbers lie exactly at a threshold, through up to three rounds."""
    draw = random.Random(1)
    rounds = []
    for number in range(300):
        bias = draw.choice((0.1, 0.4, 0.5, 0.9))
        tenths = [[draw.randrange(11) / 10 for _ in range(4)] for _ in range(1 + number % 3)]
        rounds.append(
            [
                {f"s{n}_dense": each[n - 1] for n in range(1, 5)} | {"r_p": bias, "g_p": round(1 - bias, 1)}
                for each in tenths
            ]
        )
    alphas, betas = (0.1, 0.3, 0.4, 0.5, 0.6, 0.9, 1.2), (0.1, 0.4, 0.5, 0.8, 1.2)
    paths = painted(BridgeNumbers(rounds), [[0.4, 0.2, 0.4]], alphas, betas)
    for row, column, question in product(range(len(alphas)), range(len(betas)), range(len(rounds))):
        assert paths[0, row, column, question] == walked(rounds[question], alphas[row], betas[column])
    assert set(paths.ravel().tolist()) == set(range(15))


def test_heads_are_weighed_as_the_method_weighs_them() -> None:
    """With every head and weights in tenths, on sums that come to 1 but for their last bit."""
    draw = random.Random(2)
    each = [{head: Agreement(*(draw.randrange(11) / 10 for _ in range(4))) for head in HEADS} for _ in range(200)]
    rounds = [
        [
            {f"{s}_{head}": value for head in HEADS for s, value in asdict(by_head[head]).items()}
            | {"r_p": 0.6, "g_p": 0.4}
        ]
        for by_head in each
    ]
    weights = [[draw.randrange(1, 11) / 10 for _ in HEADS] for _ in range(30)]
    paths = painted(BridgeNumbers(rounds), weights, (0.5,), (0.9,))
    for row, question in product(range(len(weights)), range(len(each))):
        ratios = normalised_weights(dict(zip(HEADS, weights[row], strict=True)), tuple(HEADS), "")
        outcome = decide(weighed(each[question], ratios), 0.6, 0.4, 0.5, 0.9)
        assert paths[row, 0, 0, question] == [*Strategy, REFLECT].index(outcome)


def test_in_small_blocks_the_same_is_found(four: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tuned(four, "trustmargin")
    monkeypatch.setattr("arbitrag.evaluate.tune.grid._PAIRS", 1)
    assert tuned(four, "trustmargin") == whole


@pytest.mark.parametrize("method", ["trustmargin", "bridge"])
def test_every_cell_of_a_map_is_what_the_method_itself_answers(tmp_path: Path, method: str) -> None:
    """Each question is decided again under the settings of each cell; one that cannot be is wrong."""
    systems: dict[str, Method] = {"trustmargin": TrustMargin()}
    asked, grid = FOUR, ["weight=0.4,0.5,1", "threshold=-3,-2.5,-2,-1,0"]
    if method == "bridge":
        systems = {"bridge": Bridge(), "bridge beta=0.5": Bridge(beta=0.5)}
        asked, grid = (EVERYTHING, MEMORY, EVIDENCE, BETWEEN), ["alpha=0.5,0.9,1", "beta=0.5,0.8,1.1,1.8,2"]
    path = recorded(tmp_path / "run.db", systems, asked)
    (drawn,) = tuned(path, method, grid=grid).maps
    with Store.open(path) as store:
        record = find_recorded(store, "validation", store.systems, TUNABLE[method].read, lambda *_: None)
        traces = {case.item: joined_trace(store, "validation", case) for case in record.cases}
    for row, column in product(range(len(drawn.row_values)), range(len(drawn.column_values))):
        changes = {drawn.rows: str(drawn.row_values[row]), drawn.columns: str(drawn.column_values[column])}
        right = [item for item, trace in traces.items() if answered(trace, changes) in item.answers]
        assert drawn.accuracy[row][column] == len(right) / len(traces)


def answered(trace: Trace, changes: Mapping[str, str]) -> str | None:
    try:
        return replay(trace, changes).answer
    except TraceError:
        return None


def test_bridge_without_a_tree_has_nothing_to_tune(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run.db", {"bridge tree=False": Bridge(tree=False)}, [EVERYTHING])
    with pytest.raises(UsageError, match="tree=False decides by no threshold"):
        tuned(path, "bridge")


def test_progress_is_shown(four: Path) -> None:
    shown: list[tuple[int, int, str]] = []
    tuned(four, "trustmargin", show=lambda done, total, what: shown.append((done, total, what)))
    assert {what for _, _, what in shown} == {
        "reading what was recorded",
        "deciding again",
        "trying settings",
        "comparing with the best",
    }
    assert all(0 <= done < total for done, total, _ in shown)


def test_the_scale_of_a_map_names_the_lower_end_of_every_colour() -> None:
    steps = scale(0.175, 0.425)
    assert [low for low, _ in steps] == [f"{17.5 + 2.5 * step:.1f}" for step in range(10)]
    assert steps[0][1] == "17.5 to 20.0"
    for value in (0.18, 0.21, 0.333, 0.42):
        words = steps[level(value, 0.175, 0.425, LEVELS)][1]
        low, high = (float(each) / 100 for each in words.split(" to "))
        assert low <= value <= high
    assert scale(0.5, 0.5)[-1] == ("50.0", "50.0 percent everywhere")


def test_sums_of_the_same_scores_are_equal_in_any_order() -> None:
    """Each of 60 questions scores 1/3 or 2/3 at half of the thresholds, and 0 elsewhere; 20 of each at any."""
    priors = [float(n % 3) for n in range(60)]
    grid = Grid.of(
        MarginNumbers([[{"prior": prior, "binding": 0.0}] for prior in priors]),
        {"weight": (0.0,), "threshold": (-0.5, 0.5, 1.5, 2.5)},
    )
    scores = np.array([[0.0, 2 / 3, 1 / 3] if n % 2 else [0.0, 1 / 3, 2 / 3] for n in range(60)])
    (sums,) = grid.sums(scores, show=lambda *_: None, what="")
    assert sums.tolist() == [[30.0] * 4]

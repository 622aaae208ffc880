"""Every error is one family, and says what to type next."""

from __future__ import annotations

import inspect
import pickle

import pytest

from arbitrag import errors
from arbitrag.errors import ArbitragError, BackendError, BudgetError, MissingExtra, UsageError, unknown


def test_the_tree_in_the_docstring_names_every_error() -> None:
    found = {
        name for name, thing in vars(errors).items() if inspect.isclass(thing) and issubclass(thing, ArbitragError)
    }
    drawn = {
        line.lstrip("│├└─ ").split()[0]
        for line in (errors.__doc__ or "").splitlines()
        if "Error" in line or "Extra" in line
    }
    assert found <= drawn


@pytest.mark.parametrize(
    "error", [BackendError("busy", status=503), MissingExtra("hf", "hf:model"), UsageError("one\ntwo")]
)
def test_an_error_of_another_process_is_the_same_here(error: ArbitragError) -> None:
    here = pickle.loads(pickle.dumps(error))
    assert (type(here), str(here), vars(here)) == (type(error), str(error), vars(error))


def test_a_usage_error_ends_with_status_2_a_budget_with_3_and_others_with_1() -> None:
    own = {UsageError: 2, BudgetError: 3}
    assert {kind: kind.exit_status for kind in ArbitragError.__subclasses__() if kind.exit_status != 1} == own


def test_a_missing_extra_says_what_to_type() -> None:
    assert str(MissingExtra("hf", "the backend hf")) == (
        "the backend hf needs the extra 'hf'; type: pip install 'arbitrag[hf]'"
    )


def test_a_backend_error_carries_its_status() -> None:
    assert BackendError("busy", status=429).status == 429
    assert BackendError("cut off").status is None


@pytest.mark.parametrize(
    ("name", "known", "hint", "text"),
    [
        (
            "trustmargn",
            ["rag", "trustmargin"],
            "",
            "unknown method 'trustmargn'. Did you mean 'trustmargin'? Known: rag, trustmargin.",
        ),
        ("zzz", ["rag"], "", "unknown method 'zzz'. Known: rag."),
        ("rga", ["rag"], "See them: x", "unknown method 'rga'. Did you mean 'rag'? Known: rag. See them: x"),
        ("x", [], "", "unknown method 'x'."),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_one(name: str, known: list[str], hint: str, text: str) -> None:
    error = unknown("method", name, known, hint=hint)
    assert isinstance(error, UsageError)
    assert str(error) == text

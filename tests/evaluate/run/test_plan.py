"""What may take part in a run together."""

from __future__ import annotations

import pytest

from arbitrag.errors import UsageError
from arbitrag.evaluate.questions import Item, QuestionSet
from arbitrag.evaluate.run.plan import entries, plan
from arbitrag.methods import method_from
from arbitrag.run import open_kit
from arbitrag.types import Question


async def test_two_sets_of_one_name_are_refused() -> None:
    towns, others = (
        QuestionSet(name, [Item(Question("Which town?", id="1"), ("Ardenfall",))]) for name in ("towns", "others")
    )
    async with open_kit("lab", passages=[]) as kit:
        systems = entries([method_from("direct")], [kit])
        assert [each.name for each in plan(systems, [towns, others], passages="retrieved").sets] == ["towns", "others"]
        with pytest.raises(UsageError, match="2 question sets are called towns; rename a file"):
            plan(systems, [towns, others, towns], passages="retrieved")

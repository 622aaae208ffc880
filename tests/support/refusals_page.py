"""Write the tables of docs/refusals.md from ``arbitrag.worked_examples``: python tests/support/refusals_page.py"""

from __future__ import annotations

from pathlib import Path

from arbitrag.methods import METHODS
from arbitrag.worked_examples import examples_of, work

PAGE = Path(__file__).parents[2] / "docs" / "refusals.md"
BEGIN, END = "<!-- refusals -->\n", "<!-- end of refusals -->\n"


def tables() -> str:
    """A heading and a table for each method."""
    parts = []
    for name in METHODS:
        examples = examples_of(name)
        assert examples is not None
        rows = [f"| {each.when} | {_cell(work(each.case).verdict.why)} |" for each in examples.refusals]
        parts.append("\n".join([f"## {name}", "", "| gives no answer when | says |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def page(text: str) -> str:
    """The page with its tables made anew."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{tables()}\n{END}{rest.partition(END)[2]}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")

"""Question sets as CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from arbitrag.data import open_set
from arbitrag.data.reading import Read, open_source
from arbitrag.errors import DataError
from arbitrag.types import Strategy


def read(tmp_path: Path, content: str | bytes) -> list[Read]:
    (tmp_path / "set.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    return list(open_source(tmp_path / "set.csv").rows())


def faults(rows: list[Read]) -> list[tuple[int, str]]:
    return [(problem.line, problem.text) for row in rows for problem in row.problems]


def test_a_row_with_everything(tmp_path: Path) -> None:
    heading = "id,question,answers,options,passages,scenario,wrong_answer,poisoned,group\r\n"
    row = '7,"Which town, then?",Ardenfall | New Ardenfall,Brackwater|Ardenfall,One.|Two.,FE,Brackwater,Two.,towns\r\n'
    (read_,) = read(tmp_path, heading + row)
    item = read_.item
    assert item is not None
    assert (item.id, item.question.text, item.question.options) == (
        "7",
        "Which town, then?",
        ("Brackwater", "Ardenfall"),
    )
    assert (item.answers, item.planted, item.group) == (("Ardenfall", "New Ardenfall"), ("Brackwater",), "towns")
    assert item.scenario is Strategy.EVIDENCE
    assert [passage.text for passage in item.passages or ()] == ["One.", "Two."]
    assert item.poisoned == {passage.id for passage in item.passages or () if passage.text == "Two."}


def test_passages_as_json_and_a_cell_over_two_lines(tmp_path: Path) -> None:
    cell = '"[{""text"": ""One | a."", ""id"": ""x""}]"'
    rows = read(tmp_path, f'question,answers,passages,poisoned\n"Who\nis it?",Ada,{cell},x\nWho?,Bea,,\n')
    assert [(row.line, row.item and row.item.id) for row in rows] == [(2, "2"), (4, "4")]
    first, second = (row.item for row in rows)
    assert first is not None
    assert first.question.text == "Who\nis it?"
    assert [passage.text for passage in first.passages or ()] == ["One | a."]
    assert len(first.poisoned) == 1
    assert second is not None
    assert second.passages is None  # an empty cell is not an empty list


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_what_separates_the_cells(delimiter: str, tmp_path: Path) -> None:
    rows = read(tmp_path, "\ufeffquestion|answers\nWho?|Ada\n".replace("|", delimiter))
    assert [row.item and row.item.answers for row in rows] == [("Ada",)]


def test_bad_rows_have_their_lines(tmp_path: Path) -> None:
    content = (
        b"id,question,answers,passages\n"
        b"a,Who?,Ada,\n"
        b"\n"
        b"b,Who?\n"
        b"c,Who?,Ada,One,Two\n"
        b"d,W\xe4r?,Ada,\n"
        b"e,Who?,,\n"
        b'f,Who?,Ada,"[oops"\n'
        b"a,Who?,Ada,\n"
        b'g,"Who?" now,Ada,\n'
    )
    rows = read(tmp_path, content)
    assert faults(rows) == [
        (4, "2 cells; the heading has 4"),
        (5, "5 cells; the heading has 4"),
        (6, "not UTF-8 at byte 4"),
        (7, '\'answers\' is missing; a question that it is right to refuse has "scenario": "REFUSE"'),
        (8, "'passages' begins with '[', but is no JSON (Expecting value: line 1 column 2 (char 1))"),
        (9, "the id 'a' is that of line 2 already"),
        (10, "not a row of a table (',' expected after '\"')"),
    ]
    assert [row.item is not None for row in rows] == [True, *[False] * 7]


def test_a_quote_that_never_ends_is_one_bad_row(tmp_path: Path) -> None:
    rows = read(tmp_path, 'question,answers\nWho?,Ada\n"Who?,Bea\nWho?,Cy\n')
    assert faults(rows) == [(3, "not a row of a table (unexpected end of data)")]
    assert len(rows) == 2


def test_a_cell_longer_than_the_bound_of_the_module(tmp_path: Path) -> None:
    bound = csv.field_size_limit()
    (row,) = read(tmp_path, f"question,answers,passages\nWho?,Ada,{'a' * (bound + 1)}\n")
    assert row.item is not None
    assert len((row.item.passages or ())[0].text) == bound + 1
    assert csv.field_size_limit() == bound


@pytest.mark.parametrize(
    ("heading", "message"),
    [
        ("question,answer", "line 1: the column 'answer' is not known; did you mean 'answers'?"),
        ("question,answers,question", "line 1: the column 'question' is there twice"),
    ],
)
def test_a_heading_that_is_wrong(heading: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text(heading + "\nWho?,Ada,x\n")
    with pytest.raises(DataError) as error:
        open_set(tmp_path / "set.csv")
    assert str(error.value) == f"{tmp_path / 'set.csv'} {message}"


def test_a_heading_alone(tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text("question,answers\n")
    with pytest.raises(DataError, match="the question set set is empty"):
        open_set(tmp_path / "set.csv")


def test_a_heading_with_a_line_end_in_it_is_none(tmp_path: Path) -> None:
    path = tmp_path / "set.csv"
    path.write_bytes(b"id,question\rx,answers\n1,Who?,Paris\n")
    with pytest.raises(DataError):
        list(open_source(path).rows())

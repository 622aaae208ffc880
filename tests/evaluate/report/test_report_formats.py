"""A report as text, markdown, CSV and a page: what stands in it, and that hostile names cannot act."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_parts import EVIL, FAILED, LEFT, LEFT_TAKEN, M, by_hand, item, made, rows, system

from arbitrag.evaluate.report.formats import about, comma_separated, escaped, markdown, plain_table, text
from arbitrag.evaluate.report.page import _ticks, page
from arbitrag.evaluate.report.report import Report, report
from arbitrag.evaluate.report.tables import Table, mark, percent, tables
from arbitrag.evaluate.run.store import Store


def reported(path: Path, **more: Any) -> Report:
    with Store.open(path) as store:
        return report(store, name=path.name, command="arbitrag bench report run.db", **{"resamples": 200, **more})


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return reported(by_hand(tmp_path_factory.mktemp("runs") / "run.db"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Everything that a person or a file may name bears the same text."""
    items = [item(1, EVIL, group=EVIL), item(2, "b", group="=2+2")]
    systems = [system(EVIL, note=EVIL), system("+left")]
    found = [*rows(EVIL, [EVIL, FAILED], [M, None], of=EVIL), *rows("+left", ["b", EVIL], [M, M], of=EVIL)]
    path = tmp_path_factory.mktemp("runs") / "run.db"
    return reported(made(path, found, systems=systems, items=items, name=EVIL, note=EVIL))


def test_the_tables_for_a_terminal(hand: Report) -> None:
    lines = text(hand, 100).split("\n")
    assert lines[:3] == [
        "hand",
        f"  8 questions, digest {hand.sets[0].digest}",
        "  2 failed rows, which count as wrong; ask them again: arbitrag bench retry",
    ]
    start = lines.index("Answers and refusals")
    assert lines[start + 1 : start + 4] == [
        "System  Right  Answered  Refused   Due  Failed  Risk  Reliability",
        "left     25.0      62.5     25.0  12.5    12.5  80.0        -25.0",
        "right    62.5      75.0     12.5   0.0    12.5  16.7         50.0",
    ]
    start = lines.index("Attack success")
    assert lines[start + 2] == "left           2           100.0                   50.0"
    rules = lines[lines.index("Every comparison is over the same questions: those for which each system has a row.") :]
    assert rules[1].startswith("A failed row scores 0 and stays in every count of questions")


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_table_is_wider_than_the_terminal(hand: Report, width: int) -> None:
    for table in tables(hand.sets[0]):
        widest = max(map(len, plain_table(table, width)))
        assert widest <= width or widest <= 25 + 2 + 24, table.title  # one column beside the first is the least


def test_a_wide_table_is_cut_between_columns_and_long_names_are_folded() -> None:
    table = Table("t", ("System", "one", "two"), (("a system of a long name", "1" * 15, "2" * 15),))
    assert plain_table(table, 60) == [
        "System                               one              two",
        "a system of a long name  111111111111111  222222222222222",
    ]
    assert plain_table(table, 32) == [
        "System                       one",
        "a system of a    111111111111111",
        "long name",
        "System                       two",
        "a system of a    222222222222222",
        "long name",
    ]


def test_of_many_pairs_a_terminal_shows_those_with_the_baseline(tmp_path: Path) -> None:
    found = [row for name in "abcd" for row in rows(name, ["x", "y"], [M, M])]
    items = [item(1, "x"), item(2, "z")]
    path = made(tmp_path / "run.db", found, systems=[system(name) for name in "abcd"], items=items)
    (four,) = reported(path).sets

    def pairs(most: int | None) -> list[Table]:
        return [each for each in tables(four, most_pairs=most) if each.head[0] == "Systems"]

    assert pairs(None) == pairs(6)
    assert {len(each.rows) for each in pairs(6)} == {6}
    few = pairs(5)
    assert [each.title for each in few[:1]] == ["EM: pairs with a"]
    assert len(few) == len(pairs(6))
    for each in few:
        assert [row[0] for row in each.rows] == ["a – b", "a – c", "a – d"]
        assert each.notes[-1] == "3 other pairs are in the formats md, csv, html and json"


def test_marks_are_against_the_baseline(tmp_path: Path) -> None:
    items = [item(number, "x") for number in range(1, 13)]
    answers = {"low": ["no"] * 12, "same": ["no"] * 11 + ["x"], "high": ["x"] * 12}
    found = [row for name, given in answers.items() for row in rows(name, given, [M] * 12)]
    path = made(tmp_path / "run.db", found, systems=[system(name) for name in answers], items=items)
    (each,) = reported(path).sets
    assert [mark(each, "em", name) for name in answers] == ["", "", "▲"]
    (each,) = reported(path, baseline="high").sets
    assert [mark(each, "em", name) for name in answers] == ["▼", "▼", ""]
    shown = text(reported(path, baseline="high"))
    assert "▲ better and ▼ worse than high (p ≤ 0.05); without a mark the difference could be noise" in shown
    assert re.search(r"^low +0\.0 \[0\.0, 0\.0\] ▼", shown, re.MULTILINE)


def test_the_source_trusted_by_scenario(hand: Report) -> None:
    """q1 to q4 have a scenario; left takes what is right for the first and the last of them."""
    lines = text(hand, 80).split("\n")
    start = lines.index("Scenario and source trusted")
    assert lines[start + 1 : start + 7] == [
        "System  Scenario  Both  Memory  Evidence  Refuse  Right",
        "left        both     1       0         0       0  100.0",
        "left      memory     0       0         0       1    0.0",
        "left    evidence     0       1         0       0    0.0",
        "left      refuse     0       0         0       1  100.0",
        "left         all     1       1         0       2   50.0",
    ]


def test_how_the_questions_were_asked_is_said_first(tmp_path: Path) -> None:
    limits = {"context_tokens": 2048, "answer_tokens": 32}
    for passages, words in (("given", "the questions' own passages"), ("retrieved", "retrieved passages")):
        path = made(tmp_path / f"{passages}.db", rows("left", LEFT, LEFT_TAKEN), passages=passages, limits=limits)
        found = reported(path)
        asked = f"Every system had {words}, of up to 2,048 tokens, and 32 tokens for an answer; model: made up."
        assert found.rules[0] == asked
        assert asked in page(found).replace("&#39;", "'")
    assert reported(made(tmp_path / "bare.db", rows("left", LEFT, LEFT_TAKEN))).rules[0].startswith("Every comparison")


@pytest.mark.parametrize(
    ("first", "last", "ticks"),
    [
        (0.0, 0.207, [0, 5, 10, 15, 20]),
        (0.0, 1.0, [0, 20, 40, 60, 80, 100]),
        (-0.011, 0.196, [0, 5, 10, 15]),
        (0.421, 0.441, [42.5, 43, 43.5, 44]),
        (-0.01, 0.01, [-1, -0.5, 0, 0.5, 1]),
    ],
)
def test_scales_have_round_numbers(first: float, last: float, ticks: list[float]) -> None:
    assert [100 * tick for tick in _ticks(first, last)] == pytest.approx(ticks)


def test_nothing_is_a_dash() -> None:
    assert (percent(None), percent(0.0), percent(-0.0), percent(-0.25)) == ("–", "0.0", "0.0", "-25.0")
    assert (percent(-0.0004), percent(-0.0006)) == ("0.0", "-0.1")


def test_markdown(hand: Report) -> None:
    lines = markdown(hand).split("\n")
    start = lines.index("### Answers and refusals")
    assert lines[start + 2 : start + 5] == [
        "| System | Right | Answered | Refused | Due | Failed | Risk | Reliability |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| left | 25.0 | 62.5 | 25.0 | 12.5 | 12.5 | 80.0 | -25.0 |",
    ]
    assert escaped("a|b <i> [x](http://y) `c` *d* & 1 [2, 3]") == (
        "a\\|b &lt;i&gt; [x]\\(http://y) \\`c\\` \\*d\\* &amp; 1 [2, 3]"
    )


def test_csv_has_a_line_for_each_figure(hand: Report) -> None:
    found = list(csv.DictReader(io.StringIO(comma_separated(hand))))
    values = {(row["system"], row["other"], row["figure"]): row for row in found}
    assert len(values) == len(found)
    assert values["left", "", "em"] | {"low": "", "high": ""} == {
        "set": "hand",
        "system": "left",
        "other": "",
        "figure": "em",
        "value": "0.25",
        "low": "",
        "high": "",
        "questions": "8",
    }
    assert values["left", "right", "difference em"]["value"] == "-0.375"
    assert values["left", "right", "only_right em"]["value"] == "4"
    assert values["left", "", "risk"]["value"] == "0.8"
    assert values["right", "", "attack rate"]["value"] == "0.0"
    assert values["left", "", "standalone money"]["value"] == ""
    assert "nan" not in comma_separated(hand).lower()


def test_a_spreadsheet_takes_no_name_for_a_formula(hostile: Report) -> None:
    found = list(csv.reader(io.StringIO(comma_separated(hostile))))
    assert {len(row) for row in found} == {8}
    text_cells = [cell for row in found[1:] for cell in row[:4]]
    assert not [cell for cell in text_cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert "'+left" in text_cells
    assert any(row[4].startswith("-") for row in found if row[3] == "reliability")  # numbers stay numbers


@pytest.mark.parametrize("render", [text, markdown, comma_separated, page])
def test_hostile_names_cannot_act(hostile: Report, render: Any) -> None:
    shown = render(hostile)
    assert not {"\x1b", "\u202e"} & set(shown)
    assert "alert(1)" in shown  # it is there, as a text
    if render in (markdown, page):
        assert "<script" not in shown
    assert "nan" not in re.sub(r"finan|dominan", "", shown.lower())


class Reader(HTMLParser):
    """Checks that tags nest, and collects what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag not in ("meta", "line", "circle", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone(hand: Report, hostile: Report) -> None:
    for each in (hand, hostile):
        shown, reader = page(each), Reader()
        reader.feed(shown)
        assert reader.open == []
        assert reader.loads == []
        assert not reader.tags & {"script", "link", "img", "iframe", "object", "form"}
        assert "default-src &#39;none&#39;" in shown or "default-src 'none'" in shown
        assert "url(" not in shown
        assert "@import" not in shown


def test_the_page_says_how_it_was_made(hand: Report) -> None:
    shown = page(hand)
    for words in (
        "arbitrag bench report run.db",
        "arbitrag bench run",
        "0.1.0",
        hand.sets[0].digest,
        "200 resamples, seed 0",
        "A failed row scores 0",
        "made up",
    ):
        assert words in shown, words


def test_the_page_draws_every_interval_within_the_chart(hand: Report) -> None:
    shown = page(hand)
    places = [float(each) for each in re.findall(r'(?:x1|x2|cx)="(-?[\d.]+)%"', shown)]
    assert places
    assert min(places) >= 0
    assert max(places) <= 100
    assert shown.count('class="mean"') == 2 * 2 + 2  # two systems by two metrics, and the difference by each
    assert "EM: difference from left" in shown
    assert "37.5 [" in shown  # right - left, although the pair is the other way round


@pytest.mark.parametrize("answers", [[], [FAILED] * 8, ["red"]])
@pytest.mark.parametrize("render", [text, markdown, comma_separated, page])
def test_runs_with_next_to_nothing_are_shown(tmp_path: Path, answers: list[Any], render: Any) -> None:
    taken = [None if answer is FAILED else M for answer in answers]
    found = reported(made(tmp_path / "run.db", rows("left", answers, taken)))
    shown = render(found)
    assert "nan" not in shown.lower()
    if not answers and render is not comma_separated:
        assert "nothing has been answered yet" in shown


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    found = [*rows("left", LEFT, LEFT_TAKEN), *rows("right", ["red"], [M])]
    path = made(tmp_path / "run.db", found, systems=[system("left"), system("right"), system("idle")])
    shown = text(reported(path), 200)
    assert "idle has no row yet and is left out" in shown
    assert "compared over the 1 questions for which every system here has a row; 7 are left out" in shown
    assert "unfinished: right 1 rows" in shown


def test_what_a_run_says_of_itself_is_flat(hand: Report) -> None:
    found = dict(about(hand))
    assert found["run"] == "run.db"
    assert found["report"] == "arbitrag bench report run.db"
    assert found["arbitrag"] == "0.1.0"
    assert found["sets hand"] == hand.sets[0].digest
    assert not [name for name in found if name.startswith("sessions")]  # a single one says nothing more

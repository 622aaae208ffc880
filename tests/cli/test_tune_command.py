"""``arbitrag tune`` as it is typed, on runs whose best settings are known by hand."""

from __future__ import annotations

import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tune_parts import UNTRACED, margin, recorded

from arbitrag.evaluate.run.store import Store
from arbitrag.evaluate.tune.page import page
from arbitrag.evaluate.tune.result import Tuned
from arbitrag.evaluate.tune.search import tune
from arbitrag.evaluate.tune.text import text
from arbitrag.methods.trustmargin import TrustMargin
from arbitrag.types import Strategy

if TYPE_CHECKING:
    from tests.conftest import Command

ASKED = (
    margin(1, -1.0, 0.0, "evidence"),
    margin(2, -3.0, 0.0, "memory"),
    margin(3, -2.0, 0.0, "evidence"),
    margin(4, 0.0, 0.0, "memory", agree=True),
)
EVIL = "<b>\x1b[31m"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return recorded(tmp_path / "run.db", {"trustmargin": TrustMargin()}, ASKED)


def test_the_best_settings_are_printed(command: Command, run: Path) -> None:
    done = command("tune", run, "--method", "trustmargin", "--grid", "weight=0.5", "--grid", "threshold=-3.5:-1:0.5")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "trustmargin on validation"
    assert "best        0.5       -2.5  100.0 [100.0, 100.0]" in lines
    assert re.search(r"^default     0\.5       -1\.5 +75\.0 \[", done.out, re.MULTILINE)
    assert re.search(
        r"^The best minus the defaults: 25\.0 \[.*\] percent points, n = 4, which could be noise\.$", done.out, re.M
    )
    assert "0.5 |++@@BB++DD  |" in lines  # 75, 100, 100, 75, 75 and 50 percent
    assert lines[lines.index("0.5 |++@@BB++DD  |") + 1] == "     -3.5      -1"
    assert "  arbitrag ask --method trustmargin --set weight=0.5 --set threshold=-2.5" in lines
    assert '  arbitrag bench run RUN.db --method "trustmargin weight=0.5 threshold=-2.5"' in lines


def test_json_and_the_files(command: Command, run: Path, tmp_path: Path) -> None:
    out, html = tmp_path / "best.json", tmp_path / "map.html"
    found = json.loads(command("tune", run, "--method", "trustmargin", "--json", "-o", out, "--html", html).out)
    assert found["best"]["settings"] == {"weight": 0.5, "threshold": -2.1}
    assert found["difference"]["mean"] == 0.25
    assert found["points"] == 1491
    assert len(found["maps"][0]["accuracy"]) == 21
    assert found["command"] == f"arbitrag tune {run} --method trustmargin"
    written = json.loads(out.read_text("utf-8"))
    assert (written["method"], written["settings"]) == ("trustmargin", {"weight": 0.5, "threshold": -2.1})
    assert (written["typed"], written["set"]) == ("trustmargin weight=0.5 threshold=-2.1", "validation")
    assert html.read_text("utf-8").startswith("<!doctype html>")


def test_what_was_found_decides_so_when_it_is_used(command: Command, run: Path, tmp_path: Path) -> None:
    """The options printed, given to replay on the trace of the third question, choose the evidence."""
    found = json.loads(command("tune", run, "--method", "trustmargin", "--json").out)
    with Store.open(run) as store:
        trace = store.trace("trustmargin", "validation", "q3")
    (tmp_path / "q3.json").write_text(json.dumps(trace), "utf-8")
    before = json.loads(command("replay", tmp_path / "q3.json", "--json").out)
    after = json.loads(command("replay", tmp_path / "q3.json", "--json", *shlex.split(found["options"])).out)
    assert (before["strategy"], after["strategy"]) == (Strategy.MEMORY.value, Strategy.EVIDENCE.value)
    assert after["answer"] == "evidence 3"


def test_what_is_wrong_is_said_in_a_line(command: Command, run: Path, tmp_path: Path) -> None:
    nothing = recorded(
        tmp_path / "nothing.db", {"trustmargin": TrustMargin()}, ASKED[:1], kept={("trustmargin", "q1"): UNTRACED}
    )
    to_test = recorded(tmp_path / "test.db", {"trustmargin": TrustMargin()}, ASKED[:1], name="test")
    for status, arguments, words in (
        (2, (run, "--method", "bridge"), "UsageError: the run has no bridge; its methods: trustmargin"),
        (2, (run, "--method", "rag"), "UsageError: there are settings to tune in trustmargin and bridge"),
        (2, (run,), "UsageError: Missing option '--method'"),
        (2, (run, "--method", "trustmargin", "--set", "val"), "UsageError: unknown question set 'val'"),
        (2, (run, "--method", "trustmargin", "--metric", "emm"), "UsageError: unknown metric 'emm'"),
        (2, (run, "--method", "trustmargin", "--grid", "tau=1"), "UsageError: unknown setting to tune 'tau'"),
        (2, (to_test, "--method", "trustmargin"), "UsageError: 'test' is a set to test on"),
        (2, (to_test, "--method", "trustmargin", "--split", "test"), "UsageError: 'test' is a set to test on"),
        (1, (nothing, "--method", "trustmargin"), "DataError: nothing of trustmargin on validation can be decided"),
        (1, (tmp_path / "no.db", "--method", "trustmargin"), "DataError: there is no run file"),
        (1, (run, "--method", "trustmargin", "--html", tmp_path / "no" / "x.html"), "DataError: cannot write"),
    ):
        done = command("tune", *arguments)
        assert (done.status, done.out) == (status, ""), arguments
        assert done.err.startswith(words)
    assert command("tune", to_test, "--method", "trustmargin", "--on-test").status == 0


def test_the_page_needs_nothing_and_acts_on_nobody(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run.db", {f"trustmargin {EVIL}": TrustMargin()}, ASKED, name=EVIL)
    with Store.open(path) as store:
        found = tune(store, "trustmargin", resamples=100, name=EVIL)
    written, printed = page(found), text(found)
    assert "\x1b" not in written + printed
    assert "<b>" not in written
    assert "&lt;b&gt;" in written
    tags: list[str] = []
    cells: list[dict[str, str | None]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            assert not {"src", "href"} & dict(attrs).keys()
            if tag == "td" and "title" in dict(attrs):
                cells.append(dict(attrs))

    Reader().feed(written)
    assert not {"script", "img", "link", "iframe"} & set(tags)
    assert "default-src 'none'" in written
    assert len(cells) == 21 * 71
    (best,) = [cell for cell in cells if "best" in (cell["class"] or "").split()]
    assert best["title"] == "0.5, -2.1: 100.0"
    assert set((best["class"] or "").split()) == {"l9", "best", "near"}
    (default,) = [cell for cell in cells if "default" in (cell["class"] or "").split()]
    assert default["title"] == "0.5, -1.5: 75.0"
    lowest = [cell for cell in cells if "l0" in (cell["class"] or "").split()]
    assert {re.sub(r".*: ", "", cell["title"] or "") for cell in lowest} == {"50.0"}


def test_the_map_is_drawn_in_shades_and_joined_where_it_is_narrow(run: Path) -> None:
    with Store.open(run) as store:
        found = tune(store, "trustmargin", resamples=100, grid=["weight=0.5", "threshold=-4:0:0.5"])
    assert drawn(found, 100) == "0.5 |++++@@BB++DD      |"  # 75, 75, 100, 100, 75, 75, then 50 percent
    assert drawn(found, 10) == "0.5 |+BD  |"  # two thresholds in each column but the last
    assert "2 columns are joined" in text(found, 10).replace("\n", " ")
    assert "are joined" not in text(found, 100)


def drawn(found: Tuned, width: int) -> str:
    """The one row of the map."""
    (line,) = [line for line in text(found, width).splitlines() if line.startswith("0.5 |")]
    return line


def test_the_example_on_the_page_runs(
    repository: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (repository / "docs" / "tune.md").read_text("utf-8")
    typed = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)[0].splitlines()
    assert len(typed) == 2
    monkeypatch.chdir(tmp_path)
    for line in typed:
        done = command(*shlex.split(line)[1:])
        assert done.status == 0, done.err
    assert done.out.startswith("trustmargin on lab:questions?count=12\n  12 questions")
    kept = json.loads((tmp_path / "best.json").read_text("utf-8"))
    assert set(kept["settings"]) == {"weight", "threshold"}
    page = (tmp_path / "map.html").read_text("utf-8")
    assert "<table class=" in page
    assert page.count('<span class="step"><i class="l') == 10  # the scale of the colours, with numbers


def test_every_option_is_on_the_page(repository: Path, command: Command) -> None:
    page = (repository / "docs" / "tune.md").read_text("utf-8")
    told = command("tune", "--help").out.partition("\nExamples:")[0]
    typed = set(re.findall(r"^\s+(?:-\w, )?(--[a-z-]+)", told, re.MULTILINE)) - {"--help"}
    assert {"--grid", "--on-test", "--json"} <= typed
    assert [option for option in typed if f"`{option}`" not in page] == []

"""A run's file: what goes in comes out, one process writes it, and whatever is wrong with it is one line."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import needs
import pytest

from arbitrag.errors import DataError, UsageError
from arbitrag.evaluate.questions import Item, QuestionSet
from arbitrag.evaluate.run import runfile
from arbitrag.evaluate.run.store import Row, RunPlan, Store, System
from arbitrag.types import Passage, Question, Strategy, Usage

MILL = Passage("The mill burnt down in 1802.", id="p1", title="Mill", metadata={"language": "en"}, score=2.5)
ITEMS = (
    Item(
        Question("When did the mill burn?", ("1802", "1902"), "a"),
        ("1802", "in 1802"),
        (MILL, Passage("It burnt in 1902.", id="p2")),
        Strategy.EVIDENCE,
        planted=("1902",),
        poisoned=frozenset({"p2"}),
        group="late",
    ),
    Item(Question("Who built it?", id="b"), ("Nobody",), ()),
    Item(Question("Why?", id="c"), (), None, Strategy.REFUSE),
)
MILLS = QuestionSet("mills", ITEMS)
DIRECT = System("direct", "direct", {}, "lab", "lab-1")
STRICT = System("trustmargin threshold=-1.0", "trustmargin", {"threshold": -1.0, "k": 20}, "lab", "lab-1")
CONDITIONS = {
    "seed": 3,
    "where": {},
    "limits": {"context_tokens": 2048, "answer_tokens": 32},
    "prompts": {"lab": {"rag/answer": "f0"}},
}
PLAN = RunPlan((DIRECT, STRICT), (MILLS,), CONDITIONS, {"arbitrag": "0.1", "command": "arbitrag bench run"})
COST = Usage(generations=1, calls=1, steps=1, prompt_tokens=48, cached_tokens=8, completion_tokens=3, seconds=0.25)
ANSWERED = Row(
    "direct",
    "mills",
    "a",
    "1802",
    Strategy.MEMORY,
    "only memory was asked",
    scores={"margin": -0.5},
    standalone=COST,
    incremental=replace(COST, money=0.002),
    attempts=2,
    cut=1,
    parse_failures=4,
)
FAILED = Row("direct", "mills", "c", error="BackendError: the server is down")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.create(path, PLAN) as store:
        yield store


def test_rows_come_back_as_they_were_in_the_order_of_the_set(store: Store) -> None:
    store.record(FAILED)
    store.record(ANSWERED, {"answer": "1802", "kept": []}, {"calls": []})
    assert list(store.rows("mills", "direct")) == [ANSWERED, FAILED]
    assert list(store.rows("mills", STRICT.name)) == []
    assert store.done("mills", "direct") == {"a": False, "c": True}
    assert store.verdict("direct", "mills", "a") == {"answer": "1802", "kept": []}
    assert store.trace("direct", "mills", "a") == {"calls": []}
    assert store.verdict("direct", "mills", "c") is None
    assert store.trace("direct", "mills", "b") is None


def test_a_row_that_is_recorded_again_takes_the_place_of_the_first(store: Store) -> None:
    store.record(ANSWERED, {"answer": "1802"}, {"calls": []})
    again = replace(ANSWERED, answer=None, strategy=Strategy.REFUSE, attempts=3)
    store.record(again, {"answer": None})
    assert list(store.rows("mills", "direct")) == [again]
    assert store.verdict("direct", "mills", "a") == {"answer": None}
    assert store.trace("direct", "mills", "a") is None


def test_the_run_is_self_contained(store: Store, path: Path) -> None:
    store.close()
    with Store.open(path) as again:
        assert again.systems == (DIRECT, STRICT)
        assert again.sets == ("mills",)
        assert tuple(again.items("mills")) == ITEMS
        assert [item.passages for item in again.items("mills", passages=False)] == [None, None, None]
        meta = again.meta
        assert {name: meta[name] for name in CONDITIONS} == CONDITIONS
        assert (meta["arbitrag"], meta["sets"], len(meta["sessions"])) == ("0.1", {"mills": MILLS.digest}, 1)
        assert meta["started"] == meta["sessions"][0]["started"]


def test_systems_and_sets_may_join_and_a_second_model_puts_the_model_into_every_name(store: Store) -> None:
    store.record(ANSWERED)
    other = replace(DIRECT, model="openai:x", identity="x")
    wells = QuestionSet("wells", ITEMS[:1])
    prompts = {"prompts": {"lab": {"new/one": "aa"}, "openai:x": {"rag/answer": "bb"}}}
    store.extend(RunPlan((other,), (wells, MILLS), {**CONDITIONS, **prompts}))
    assert [system.name for system in store.systems] == [
        "direct @ lab",
        "trustmargin threshold=-1.0 @ lab",
        "direct @ openai:x",
    ]
    assert store.sets == ("mills", "wells")
    assert [row.answer for row in store.rows("mills", "direct @ lab")] == ["1802"]
    assert list(store.rows("mills", "direct @ openai:x")) == []
    assert store.meta["prompts"] == {
        "lab": {"rag/answer": "f0", "new/one": "aa"},
        "openai:x": {"rag/answer": "bb"},
    }
    assert len(store.meta["sessions"]) == 2


@pytest.mark.parametrize(
    ("plan", "differs"),
    [
        (replace(PLAN, conditions={**CONDITIONS, "seed": 4}), "seed 3, not 4"),
        (
            replace(PLAN, conditions={**CONDITIONS, "limits": {"context_tokens": 2048, "answer_tokens": 64}}),
            "limits answer_tokens 32, not 64",
        ),
        (
            replace(PLAN, conditions={**CONDITIONS, "prompts": {"lab": {"rag/answer": "f1"}}}),
            "prompts lab rag/answer f0, not f1",
        ),
        (replace(PLAN, conditions={**CONDITIONS, "where": {"language": "en"}}), "where language None, not en"),
        (replace(PLAN, conditions={**CONDITIONS, "scorer": "hf:x"}), "scorer None, not hf:x"),
        (replace(PLAN, sets=(QuestionSet("mills", ITEMS[:2]),)), "the question set mills has other questions"),
        (
            replace(PLAN, systems=(replace(DIRECT, identity="lab-2"),)),
            "the model lab is not the one that it was (lab-1)",
        ),
        (
            replace(PLAN, systems=(replace(STRICT, settings={"threshold": -1.0, "k": 5}),)),
            "trustmargin threshold=-1.0: k 20, not 5",
        ),
    ],
)
def test_another_plan_for_the_same_file_is_refused_with_what_differs(store: Store, plan: RunPlan, differs: str) -> None:
    store.record(ANSWERED)
    before = (store.meta, store.systems, list(store.rows("mills", "direct")))
    with pytest.raises(UsageError) as error:
        store.extend(plan)
    assert differs in str(error.value)
    assert (store.meta, store.systems, list(store.rows("mills", "direct"))) == before


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (replace(ANSWERED, system="rag"), "unknown system 'rag'"),
        (replace(ANSWERED, set="mils"), "unknown question set 'mils'. Did you mean 'mills'"),
        (replace(ANSWERED, question="d"), "unknown question 'd'"),
    ],
)
def test_a_row_of_something_else_is_refused(store: Store, row: Row, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        store.record(row)


def test_a_second_writer_is_refused_and_readers_are_not(store: Store, path: Path) -> None:
    store.record(ANSWERED)
    with pytest.raises(DataError, match=r"another process is writing .*run\.db; wait until it ends"):
        Store.open(path, write=True)
    with Store.open(path) as reader:
        store.record(FAILED)
        assert reader.done("mills", "direct") == {"a": False, "c": True}
    store.close()
    with Store.open(path, write=True) as again:
        assert again.done("mills", "direct") == {"a": False, "c": True}


def test_a_reader_cannot_write(store: Store, path: Path) -> None:
    with Store.open(path) as reader, pytest.raises(DataError, match="readonly"):
        reader.record(ANSWERED)


def test_a_run_that_ended_in_order_is_one_file(store: Store, path: Path) -> None:
    store.record(ANSWERED)
    store.close()
    assert {each.name for each in path.parent.iterdir()} == {"run.db", ".run.db.lock"}


@needs.signals
def test_a_kill_loses_no_row_and_frees_the_file(path: Path) -> None:
    Store.create(path, PLAN).close()
    script = textwrap.dedent(
        """
        import sys, time
        from arbitrag.evaluate.run.store import Row, Store
        store = Store.open(sys.argv[1], write=True)
        store.record(Row("direct", "mills", "a", error="x"))
        with store.together():
            store.record(Row("direct", "mills", "b", error="x"))
            print("written", flush=True)
            time.sleep(60)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    with pytest.raises(DataError, match="another process"):
        Store.open(path, write=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    for write in (False, True):
        with Store.open(path, write=write) as store:
            assert store.done("mills", "direct") == {"a": True}


def test_a_full_disk_is_one_line_and_keeps_what_is_there(store: Store) -> None:
    store.record(ANSWERED)
    store._connection.execute(f"PRAGMA max_page_count = {store._all('PRAGMA page_count')[0][0] + 4}")
    noise = os.urandom(100_000).hex()
    with pytest.raises(DataError, match=r"cannot write .*run\.db: the disk is full; what it holds is kept"):
        store.record(replace(FAILED, why=noise))
    assert list(store.rows("mills", "direct")) == [ANSWERED]
    store._connection.execute("PRAGMA max_page_count = 100000")
    store.record(FAILED)
    assert list(store.rows("mills", "direct")) == [ANSWERED, FAILED]


def sqlite_file(path: Path, *, application: int, version: int) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(
        f"PRAGMA application_id = {application}; PRAGMA user_version = {version}; CREATE TABLE a (b);"
    )
    connection.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"question": "Who?"}\n', "is not a run file; it looks like JSON or jsonl, perhaps a question set"),
        (b"question,answers\n", "is not a run file; it looks like a text"),
        (b"", "is not a run file; it looks like an empty file"),
        (b"\x7fELF\x00", "is not a run file; it looks like binary data"),
        (b"SQLite format 3\x00", "is not a run file; it looks like an sqlite database that was cut off"),
    ],
)
def test_another_kind_of_file_is_named(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    for write in (False, True):
        with pytest.raises(DataError, match=message):
            Store.open(path, write=write)
    assert path.read_bytes() == content


def test_another_database_and_another_version_are_named(path: Path) -> None:
    sqlite_file(path, application=0, version=1)
    with pytest.raises(DataError, match="an sqlite database of another program"):
        Store.open(path)
    path.unlink()
    sqlite_file(path, application=runfile.APPLICATION, version=7)
    with pytest.raises(DataError, match="of version 7, and this Arbitrag reads version 3; install a newer one"):
        Store.open(path)


def test_a_damaged_file_says_so(store: Store, path: Path) -> None:
    store.record(ANSWERED)
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(DataError, match=r"run\.db is damaged"), Store.open(path) as broken:
        list(broken.rows("mills", "direct"))


def test_no_file_no_folder_and_a_file_that_is_there(path: Path, store: Store) -> None:
    store.close()
    with pytest.raises(DataError, match="is there already"):
        Store.create(path, PLAN)
    with pytest.raises(DataError, match=r"there is no run file .*none\.db; make one: arbitrag bench run"):
        Store.open(path.parent / "none.db")
    with pytest.raises(DataError, match="does not exist"):
        Store.create(path.parent / "folder" / "run.db", PLAN)


def test_a_read_only_file_is_said_before_any_work(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.close()
    path.chmod(0o444)
    # As it is for an ordinary user: to the superuser no file is read-only.
    monkeypatch.setattr(os, "access", lambda path, mode: bool(os.stat(path).st_mode & 0o200) or mode != os.W_OK)
    with pytest.raises(DataError, match=r"cannot write .*run\.db: the file is read-only"):
        Store.open(path, write=True)


def test_a_plan_that_cannot_be_stored_leaves_no_file(path: Path) -> None:
    with pytest.raises(TypeError):
        Store.create(path, replace(PLAN, conditions={"seed": object()}))
    assert {each.name for each in path.parent.iterdir()} <= {f".{path.name}.lock"}
    with Store.create(path, PLAN) as store:
        assert store.systems == PLAN.systems


@needs.pipes
def test_a_pipe_is_no_run_file_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.db")
    with pytest.raises(DataError, match=r"run\.db is not a run file; it is a pipe or a device"):
        Store.open(tmp_path / "run.db")

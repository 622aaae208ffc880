"""A run file that was damaged: the same rows come out, or one line that names the file; never fewer, never others."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from arbitrag.cli.bench.question import found
from arbitrag.errors import DataError
from arbitrag.evaluate.questions import Item, QuestionSet
from arbitrag.evaluate.report.difference import difference
from arbitrag.evaluate.report.report import report
from arbitrag.evaluate.run import runfile
from arbitrag.evaluate.run.rows import crc, packed, unpacked
from arbitrag.evaluate.run.store import Row, RunPlan, Store, System
from arbitrag.serialization import to_plain
from arbitrag.types import Passage, Question, Strategy, Usage, Verdict

if TYPE_CHECKING:
    from tests.conftest import Command

PAGE = 4096
QUESTIONS = 60
COST = Usage(generations=1, calls=1, steps=1, prompt_tokens=48, cached_tokens=8, completion_tokens=3, seconds=0.25)
SYSTEMS = (System("direct", "direct", {}, "lab", "lab-1"), System("rag", "rag", {"k": 3}, "lab", "lab-1"))
ITEMS = [
    Item(
        Question(f"What is number {n}?", id=f"q{n}"),
        (f"answer {n}",),
        (Passage(f"The fact {n} was told in {1800 + n}, as every child in the valley knows. " * 3, id=f"p{n}"),),
        Strategy.EVIDENCE,
        planted=(f"wrong {n}",),
        poisoned=frozenset({f"p{n}"}) if n % 3 == 0 else frozenset(),
        group=f"group {n % 4}",
    )
    for n in range(QUESTIONS)
]
PLAN = RunPlan(SYSTEMS, (QuestionSet("facts", ITEMS),), {"seed": 3, "limits": {"context_tokens": 99}}, {"started": "1"})


def row(system: str, n: int) -> Row:
    if n % 11 == 5:
        return Row(system, "facts", f"q{n}", error="BackendError: the server is down", attempts=2)
    answer = f"answer {n}" if (n * 7 + len(system)) % 3 else f"wrong {n}"
    margin = {"margin": n / 7}
    return Row(
        system, "facts", f"q{n}", answer, Strategy.MEMORY, f"why {n}", scores=margin, standalone=COST, incremental=COST
    )


def fill(path: Path) -> None:
    with Store.create(path, PLAN) as store:
        for n in range(QUESTIONS):
            for system in SYSTEMS:
                made = row(system.name, n)
                kept = (Passage(f"The fact {n}. " * 5),)
                verdict = (
                    None
                    if made.strategy is None
                    else Verdict(made.answer, made.strategy, made.why, kept=kept, usage=COST)
                )
                store.record(made, None if verdict is None else verdict.to_dict(), {"calls": [n] * 9})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run.db"
    fill(path)
    return path


def told(path: Path) -> dict[str, Any]:
    """Everything that commands read of a run."""
    with Store.open(path) as store:
        systems = [system.name for system in store.systems]
        return {
            "systems": store.systems,
            "items": {each: tuple(store.items(each)) for each in store.sets},
            "rows": {name: list(store.rows("facts", name)) for name in systems},
            "done": {name: dict(store.done("facts", name)) for name in systems},
            "columns": {name: list(store.columns("facts", name, "margin").answers) for name in systems},
            "verdicts": {n: store.verdict("rag", "facts", f"q{n}") for n in (0, 5, 17, 59)},
            "traces": {n: store.trace("direct", "facts", f"q{n}") for n in (0, 5, 17, 59)},
            "paid": store.spent(),
        }


@pytest.fixture(scope="module")
def truth(whole: Path) -> dict[str, Any]:
    return told(whole)


def refusal(path: Path, read: Callable[[], None]) -> str:
    """What is said of a file that is not read, which names it in a line or two; nothing where it is read."""
    try:
        read()
    except DataError as error:
        text = str(error)
    else:
        return ""
    assert str(path) in text
    assert len(text.splitlines()) <= 2
    assert any(words in text for words in ("take a copy", "type:", "install", "looks like", "cannot be used")), text
    return text


def truncated(content: bytearray, rng: random.Random) -> None:
    del content[rng.randrange(len(content)) :]


def short_by_pages(content: bytearray, rng: random.Random) -> None:
    del content[PAGE * rng.randrange(1, len(content) // PAGE) :]


def zeroed(content: bytearray, rng: random.Random) -> None:
    start = PAGE * rng.randrange(len(content) // PAGE)
    content[start : start + PAGE] = bytes(PAGE)


def pages_of_others(content: bytearray, rng: random.Random) -> None:
    left, right = (PAGE * rng.randrange(len(content) // PAGE) for _ in range(2))
    content[left : left + PAGE] = content[right : right + PAGE]


def flipped(content: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 1, 3, 30))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def flipped_in_a_head(content: bytearray, rng: random.Random) -> None:
    start = PAGE * rng.randrange(len(content) // PAGE)
    content[start + rng.randrange(16)] = rng.randrange(256)


def flipped_in_the_first_page(content: bytearray, rng: random.Random) -> None:
    content[rng.randrange(PAGE)] ^= 1 << rng.randrange(8)


def noise(content: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(content))
    length = rng.choice((1, 16, 512, 3 * PAGE))
    content[start : start + length] = rng.randbytes(min(length, len(content) - start))


def other_letters(content: bytearray, rng: random.Random) -> None:
    """What sqlite cannot notice: a letter in the middle of a text."""
    place = content.find(
        rng.choice((b"answer 1", b"wrong 2", b"why 3", b"The fact", b"server is", b"margin", b'"k": 3'))
    )
    content[place + 3] ^= 1


DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    truncated,
    short_by_pages,
    zeroed,
    pages_of_others,
    flipped,
    flipped_in_a_head,
    flipped_in_the_first_page,
    noise,
    other_letters,
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_gives_the_same_rows_or_one_line(
    damage: Callable[[bytearray, random.Random], None], whole: Path, truth: dict[str, Any], tmp_path: Path
) -> None:
    content, path = whole.read_bytes(), tmp_path / "run.db"
    refused = 0
    for seed in range(40):
        broken = bytearray(content)
        damage(broken, random.Random(f"{damage.__name__} {seed}"))
        path.write_bytes(broken)

        def read(seed: int = seed) -> None:
            assert told(path) == truth, (damage.__name__, seed)

        refused += bool(refusal(path, read))
    if damage is not flipped_in_the_first_page:  # much of that page is free
        assert refused >= 10, damage.__name__


def statements() -> Iterator[str]:
    values = ("'garbage'", "7", "x'00ff'", "NULL", "'[1, {'", "1e400", "'null'", "'\x1f'")
    for column in (
        "answer",
        "strategy",
        "why",
        "error",
        "scores",
        "standalone",
        "incremental",
        "attempts",
        "cut",
        "parse_failures",
    ):
        yield from (f"UPDATE OR IGNORE rows SET {column} = {value} WHERE place = 4" for value in values)
    for table, column in (
        ("items", "item"),
        ("items", "id"),
        ("items", "passages"),
        ("systems", "settings"),
        ("systems", "label"),
        ("sets", "name"),
        ("sessions", "about"),
        ("conditions", "value"),
        ("verdicts", "verdict"),
    ):
        for value in values:
            if (column, value) != ("verdict", "NULL"):  # a row without a verdict is one
                yield f"UPDATE OR IGNORE {table} SET {column} = {value}"
    for table in ("rows", "items", "systems", "sets", "counts", "verdicts", "conditions", "sessions"):
        yield f"DROP TABLE {table}"
        yield f"ALTER TABLE {table} RENAME TO gone"
    for table in ("rows", "items", "systems", "sets", "counts", "verdicts"):
        yield f"DELETE FROM {table}"
        yield f"DELETE FROM {table} WHERE rowid = 1" if table in ("systems", "sets") else f"DELETE FROM {table} LIMIT 1"
    yield "UPDATE OR IGNORE rows SET place = place + 500 WHERE place = 7"
    yield "UPDATE OR IGNORE rows SET system_number = 9 WHERE system_number = 1"
    yield "CREATE VIEW v AS SELECT 1"
    yield "CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows; END"
    yield "PRAGMA application_id = 5"
    yield "PRAGMA user_version = 99"


def test_values_that_others_wrote_are_one_line(whole: Path, truth: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    changed = refused = 0
    for statement in statements():
        shutil.copy(whole, path)
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute(statement)
        except sqlite3.Error:  # a value that the table refuses
            continue
        finally:
            connection.close()
        changed += 1

        def read(statement: str = statement) -> None:
            assert told(path) == truth, statement

        refused += bool(refusal(path, read))
    assert changed > 100
    assert refused > 0.8 * changed


def test_reports_of_damaged_files(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Store.open(whole) as other:
        plain = report(other, resamples=10).to_dict()
        for seed in range(40):
            broken = bytearray(whole.read_bytes())
            random.Random(seed).choice(DAMAGES)(broken, random.Random(seed))
            path.write_bytes(broken)

            def read() -> None:
                with Store.open(path) as store:
                    assert report(store, resamples=10).to_dict()["sets"] == plain["sets"]
                    assert not difference(store, other, resamples=10).changes
                    found(store, "q7", (), ())

            refusal(path, read)


def write(path: Path) -> None:
    with Store.open(path, write=True) as store:
        store.extend(PLAN)
        for system in SYSTEMS:
            assert len(store.done("facts", system.name)) == QUESTIONS


def test_a_damaged_file_is_not_written_to(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    for seed in range(40):
        broken = bytearray(whole.read_bytes())
        random.Random(seed).choice((zeroed, other_letters, noise, truncated))(broken, random.Random(seed))
        path.write_bytes(broken)
        refusal(path, lambda: write(path))


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A run whose writer ended without closing it, with its log."""
    own = tmp_path / "own.db"
    store = Store.create(own, PLAN)
    for n in range(QUESTIONS):
        store.record(row("direct", n))
    path = tmp_path / "run.db"
    for ending in ("", "-wal"):
        shutil.copy(f"{own}{ending}", f"{path}{ending}")
    store.close()
    return path


def test_the_log_of_a_killed_run_is_read(killed: Path) -> None:
    assert Path(f"{killed}-wal").stat().st_size > 10 * PAGE
    with Store.open(killed) as store:
        assert len(list(store.rows("facts", "direct"))) == QUESTIONS


def test_a_damaged_log_never_means_fewer_rows_in_silence(killed: Path) -> None:
    log = Path(f"{killed}-wal")
    content = log.read_bytes()
    refused = 0
    for seed in range(40):
        broken, rng = bytearray(content), random.Random(seed)
        rng.choice((flipped, zeroed, noise))(broken, rng)
        log.write_bytes(broken)
        Path(f"{killed}-shm").unlink(missing_ok=True)

        def read() -> None:
            with Store.open(killed) as store:
                assert len(list(store.rows("facts", "direct"))) == QUESTIONS

        refused += bool(refusal(killed, read))
    assert refused >= 20


def test_a_run_with_a_damaged_log_goes_on_with_a_word(killed: Path) -> None:
    log = Path(f"{killed}-wal")
    broken = bytearray(log.read_bytes())
    broken[len(broken) // 2] ^= 1
    log.write_bytes(broken)
    with pytest.raises(DataError, match=r"run\.db-wal, which belongs to the run, is damaged.*\n.*arbitrag bench run"):
        Store.open(killed)
    with pytest.warns(RuntimeWarning, match="finished rows in it cannot be read, and are made again"):
        store = Store.open(killed, write=True)
    with store:
        store.extend(PLAN)
        done = store.done("facts", "direct")
        assert 0 < len(done) < QUESTIONS
        for n in range(QUESTIONS):
            if f"q{n}" not in done:
                store.record(row("direct", n))
    with Store.open(killed) as again:
        assert list(again.rows("facts", "direct")) == [row("direct", n) for n in range(QUESTIONS)]


def test_a_log_that_was_lost_while_one_is_written_is_not_taken_for_damage(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run.db", PLAN) as store:
        for n in range(QUESTIONS):
            store.record(row("direct", n))
            with Store.open(store.path) as reading:
                assert len(list(reading.rows("facts", "direct"))) == n + 1


OLD = """
PRAGMA application_id = {application}; PRAGMA user_version = 1;
CREATE TABLE conditions (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sessions (number INTEGER PRIMARY KEY, about TEXT NOT NULL);
CREATE TABLE systems (
    number INTEGER PRIMARY KEY, label TEXT NOT NULL, method TEXT NOT NULL, settings TEXT NOT NULL,
    model TEXT NOT NULL, identity TEXT NOT NULL, UNIQUE (label, model)
);
CREATE TABLE sets (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, digest TEXT NOT NULL);
CREATE TABLE items (
    set_number INTEGER NOT NULL, place INTEGER NOT NULL, id TEXT NOT NULL, item TEXT NOT NULL, passages TEXT,
    PRIMARY KEY (set_number, place)
) WITHOUT ROWID;
CREATE TABLE rows (
    set_number INTEGER NOT NULL, system_number INTEGER NOT NULL, place INTEGER NOT NULL,
    answer TEXT, strategy TEXT, why TEXT NOT NULL, error TEXT NOT NULL, scores TEXT NOT NULL,
    alone TEXT, paid TEXT, attempts INTEGER NOT NULL, cut INTEGER NOT NULL, parse_failures INTEGER NOT NULL,
    session INTEGER NOT NULL, recorded REAL NOT NULL,
    PRIMARY KEY (set_number, system_number, place)
) WITHOUT ROWID;
CREATE TABLE verdicts (
    set_number INTEGER NOT NULL, system_number INTEGER NOT NULL, place INTEGER NOT NULL, verdict BLOB, trace BLOB,
    UNIQUE (set_number, system_number, place)
);
ATTACH '{new}' AS new;
INSERT INTO conditions SELECT name, value FROM new.conditions;
INSERT INTO sessions SELECT number, about FROM new.sessions;
INSERT INTO systems SELECT number, label, method, settings, model, identity FROM new.systems;
INSERT INTO sets SELECT number, name, digest FROM new.sets;
INSERT INTO items SELECT set_number, place, id, item, passages FROM new.items;
INSERT INTO rows SELECT set_number, system_number, place, answer, strategy, why, error, scores,
    old_cost(standalone), old_cost(incremental), attempts, cut, parse_failures, session, recorded
    FROM new.rows WHERE place < 50;
INSERT INTO verdicts SELECT * FROM new.verdicts WHERE place < 50;
"""


def old_cost(text: str | None) -> str | None:
    """A cost as versions 1 and 2 kept it: prompt tokens without the cached ones."""
    if text is None:
        return None
    values = json.loads(text)
    assert values[5:8] == [48, 8, 3]
    return json.dumps([*values[:5], 40, *values[6:]])


def as_version_2(path: Path) -> None:
    """Write the file as version 2 did: its costs, their columns, the rows' checksums, and the usage of verdicts."""
    connection = sqlite3.connect(path)
    for number, system, place, *values in connection.execute(f"SELECT {COLUMNS} FROM rows").fetchall():
        costs = [old_cost(each) for each in values[5:7]]
        check = crc(number, system, place, *values[:5], *costs, *values[7:])
        key = (number, system, place)
        connection.execute(f"UPDATE rows SET standalone = ?, incremental = ?, crc = ? {AT}", (*costs, check, *key))
        (blob,) = connection.execute(f"SELECT verdict FROM verdicts {AT}", key).fetchone()
        if blob is not None:
            plain = dict(unpacked(blob))
            kept = {name: value for name, value in plain["usage"].items() if not name.endswith("_tokens")}
            plain["usage"] = {**kept, "tokens_read": 40, "tokens_reused": 8, "tokens_written": 3}
            connection.execute(f"UPDATE verdicts SET verdict = ? {AT}", (packed(plain), *key))
    connection.execute("ALTER TABLE rows RENAME COLUMN standalone TO alone")
    connection.execute("ALTER TABLE rows RENAME COLUMN incremental TO paid")
    connection.execute("PRAGMA user_version = 2")
    connection.commit()
    connection.close()


COLUMNS = (
    "set_number, system_number, place, answer, strategy, why, error, scores, standalone, incremental, attempts, cut, "
    "parse_failures"
)
AT = "WHERE set_number = ? AND system_number = ? AND place = ?"


def test_a_run_of_version_2_is_read_and_goes_on_with_the_same_costs(
    whole: Path, truth: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "old.db"
    shutil.copy(whole, path)
    as_version_2(path)
    told_of_old = told(path)
    assert told_of_old == truth
    assert told_of_old["verdicts"][17]["usage"] == to_plain(COST)
    with Store.open(path, write=True) as store:
        store.extend(PLAN)
    assert told(path) == truth
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)
        assert connection.execute("SELECT count(*) FROM rows WHERE crc IS NULL").fetchone() == (0,)


def test_damage_in_a_run_of_version_2_is_still_found_after_it_was_brought_up(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(whole, path)
    as_version_2(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE rows SET alone = replace(alone, '40', '41') WHERE place = 4")
        connection.commit()
    for write in (False, True, False):
        with Store.open(path, write=write) as store, pytest.raises(DataError, match="is not what was written"):
            list(store.rows("facts", "rag"))


def test_a_run_from_before_the_checksums_is_read_and_goes_on(
    whole: Path, truth: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.create_function("old_cost", 1, old_cost)
    connection.executescript(OLD.format(application=runfile.APPLICATION, new=whole))
    connection.close()
    with Store.open(path) as store:
        assert list(store.rows("facts", "rag")) == truth["rows"]["rag"][:50]
    with Store.open(path, write=True) as store:
        store.extend(PLAN)
        for system in SYSTEMS:
            for n in range(50, QUESTIONS):
                store.record(row(system.name, n), None, {"calls": [n] * 9})
    found = told(path)
    assert (found["rows"], found["items"], found["systems"]) == (truth["rows"], truth["items"], truth["systems"])
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM rows WHERE place = 55")
    connection.commit()
    connection.close()
    with Store.open(path) as store, pytest.raises(DataError, match=r"old\.db is damaged \(it holds 59 of the 60 rows"):
        list(store.rows("facts", "rag"))


@pytest.mark.parametrize("verb", ["report", "show", "diff", "retry", "run", "tune"])
def test_no_command_takes_damage_for_a_fault_of_its_own(
    verb: str, whole: Path, tmp_path: Path, command: Command
) -> None:
    options = {"show": ("--question", "q4"), "diff": (str(whole),), "tune": ("--method", "trustmargin")}
    path = tmp_path / "run.db"
    for seed, damage in enumerate((zeroed, truncated, other_letters, flipped_in_a_head)):
        broken = bytearray(whole.read_bytes())
        damage(broken, random.Random(seed))
        path.write_bytes(broken)
        ran = command(*(("tune",) if verb == "tune" else ("bench", verb)), path, *options.get(verb, ()))
        assert ran.status in (0, 1, 2)
        assert "fault in Arbitrag" not in ran.err
        if ran.status == 1:
            assert str(path) in ran.err


def test_values_of_other_types_are_not_taken_for_damage(tmp_path: Path) -> None:
    """What a method of one's own gives need not be what a row says: True for 1, a number for a text."""
    odd: Any = Row("direct", "facts", "q1", 7, Strategy.MEMORY, True, cut=True, parse_failures=False)  # type: ignore[arg-type]
    with Store.create(tmp_path / "run.db", PLAN) as store:
        store.record(odd)
        (found,) = store.rows("facts", "direct")
    assert (found.answer, found.why, found.cut, found.parse_failures) == ("7", "True", 1, 0)

"""A run in one file: what was planned, the questions with their gold, and a row for each system and question.

A row is committed when it is recorded, so a killed run keeps all that it had finished (see ``runfile``). What a report
reads of a row is small and lies together; whole verdicts and traces lie apart, compressed.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic_core import from_json  # a quarter of json.loads' time, which shows in a report of 100,000 rows

from arbitrag.errors import UsageError, unknown
from arbitrag.evaluate import runfile
from arbitrag.evaluate.columns import Columns, columns
from arbitrag.evaluate.questions import Item, QuestionSet, plain_item
from arbitrag.lock import Lock
from arbitrag.text import one_line
from arbitrag.types import Passage, Question, Strategy, Usage, to_plain

_TABLES = """
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
"""
GROWING = "prompts"  # the condition that may gain entries: a later method asks with prompts of its own
_ROWS = (
    "SELECT id, answer, strategy, why, error, scores, alone, paid, attempts, cut, parse_failures "
    "FROM rows JOIN items USING (set_number, place) WHERE set_number = ? AND system_number = ?"
)
_QUICKLY = 1  # zlib's level; the slower ones make a verdict hardly smaller


@dataclass(frozen=True, slots=True)
class System:
    """A method with its settings on a model.

    ``name`` is what tables show: the method, settings that are not the default behind it, and `` @ model`` where a run
    has several models. ``identity`` is the model's, by which it is known again.
    """

    name: str
    method: str
    settings: Mapping[str, Any]
    model: str
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One question answered by one system, or failed: then ``error`` says how, and there is no strategy.

    ``alone`` is what the answer would have cost had this system been the only one, ``paid`` what was paid after
    sharing and caching, in all attempts together. ``cut`` counts passages shortened or left out for room,
    ``parse_failures`` replies of the model that the method could not read.
    """

    system: str
    set: str
    question: str
    answer: str | None = None
    strategy: Strategy | None = None
    why: str = ""
    error: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    alone: Usage | None = None
    paid: Usage | None = None
    attempts: int = 1
    cut: int = 0
    parse_failures: int = 0


@dataclass(frozen=True)
class Plan:
    """What is to be run. Everything in ``conditions`` must stay the same when a run goes on; ``about`` is only noted.

    ``systems`` bear their names without the model: the store adds it where there are several.
    """

    systems: Sequence[System]
    sets: Sequence[QuestionSet]
    conditions: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)


class Store:
    """An open run file; close it, or use it as a context manager. Not for several threads."""

    def __init__(self, path: Path, *, lock: Lock | None) -> None:
        self.path = path
        self._lock = lock
        self._session = 0  # that writes now; ``extend`` begins one
        self._connection = runfile.reader(path) if lock is None else runfile.writer(path)
        self._forget()

    @classmethod
    def create(cls, path: str | Path, plan: Plan) -> Store:
        """A new run, open to be written. Raises DataError when the file is there already, or cannot be written."""
        path = Path(path)
        lock = Lock(path)
        made = False
        try:
            runfile.create(path, _TABLES)
            made = True
            store = cls(path, lock=lock)
            try:
                store.extend(plan)
            except BaseException:
                store._connection.close()
                raise
            return store
        except BaseException:
            if made:  # a run that never began is no run
                runfile.remove(path)
            lock.release()
            raise

    @classmethod
    def open(cls, path: str | Path, *, write: bool = False) -> Store:
        """A run that is there. Raises DataError for a file that is none, or is being written by another process."""
        path = Path(path)
        if not write:
            return cls(path, lock=None)
        runfile.check(path)
        lock = Lock(path)
        try:
            return cls(path, lock=lock)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        if self._lock is None:
            self._connection.close()
        else:
            runfile.fold(self._connection)
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def meta(self) -> Mapping[str, Any]:
        """The conditions of the run, what its first session noted, ``sets`` with their digests, and ``sessions``."""
        sessions = [json.loads(about) for (about,) in self._all("SELECT about FROM sessions ORDER BY number")]
        sets = dict(self._all("SELECT name, digest FROM sets ORDER BY number"))
        return {**(sessions[0] if sessions else {}), **self._conditions(), "sets": sets, "sessions": sessions}

    @property
    def systems(self) -> tuple[System, ...]:
        """In the order in which they joined the run."""
        return tuple(self._numbered().values())

    @property
    def labels(self) -> list[tuple[str, str]]:
        """The name without the model, and the model, of each system."""
        return [(system.name, system.model) for system in self._labelled().values()]

    @property
    def sets(self) -> tuple[str, ...]:
        """The names of the question sets, in the order in which they joined the run."""
        return tuple(name for (name,) in self._all("SELECT name FROM sets ORDER BY number"))

    def name_of(self, system: System) -> str:
        """The name that a plan's system has in this run; raises UsageError for one that is not in it."""
        for number, each in self._labelled().items():
            if (each.name, each.model) == (system.name, system.model):
                return self._numbered()[number].name
        raise unknown("system", system.name, [each.name for each in self.systems], hint=f"It is not in {self.path}.")

    def items(self, set: str, *, passages: bool = True) -> Sequence[Item]:
        """The questions of a set with their gold, in their order; without ``passages``, which is cheaper, those are
        None. Raises UsageError for a set that is not in the run."""
        key = (set, passages)
        if key not in self._items:
            columns = "item, passages" if passages else "item, NULL"
            found = self._all(f"SELECT {columns} FROM items WHERE set_number = ? ORDER BY place", self._set_number(set))
            self._items[key] = tuple(_item(*row) for row in found)
        return self._items[key]

    def rows(self, set: str, system: str) -> Iterator[Row]:
        """The rows that are there, finished and failed, in the order of the set."""
        for values in self._each(f"{_ROWS} ORDER BY place", self._set_number(set), self._system_number(system)):
            yield _row(system, set, *values)

    def row(self, set: str, system: str, question: str) -> Row | None:
        """One of them; None where there is none yet."""
        key = (self._set_number(set), self._system_number(system), self._place(set, question))
        return next((_row(system, set, *values) for values in self._all(f"{_ROWS} AND place = ?", *key)), None)

    def columns(self, set: str, system: str, score: str = "") -> Columns:
        """The same rows as columns, without what a report does not need; ``score`` is the named score to read."""
        found = self._all(
            "SELECT place, answer, strategy, error, attempts, cut, parse_failures, scores, alone, paid "
            "FROM rows WHERE set_number = ? AND system_number = ? ORDER BY place",
            self._set_number(set),
            self._system_number(system),
        )
        return columns(found, score)

    def done(self, set: str, system: str) -> Mapping[str, bool]:
        """The ids that have a row, and whether it is a failed one."""
        found = self._all(
            "SELECT id, error != '' FROM rows JOIN items USING (set_number, place) "
            "WHERE set_number = ? AND system_number = ?",
            self._set_number(set),
            self._system_number(system),
        )
        return {question: bool(failed) for question, failed in found}

    def verdict(self, system: str, set: str, question: str) -> Mapping[str, Any] | None:
        """The whole verdict of one row as plain JSON values; None for a row that failed or is not there."""
        return self._blob("verdict", system, set, question)

    def trace(self, system: str, set: str, question: str) -> Mapping[str, Any] | None:
        """The trace of one row, for ``replay``; None when none was kept."""
        return self._blob("trace", system, set, question)

    def extend(self, plan: Plan) -> None:
        """Add the plan's systems and sets that are new, and note a session.

        Raises UsageError, and changes nothing, when the plan's conditions, one of its sets or one of its models is not
        what it was.
        """
        begun = bool(self._all("SELECT 1 FROM sessions LIMIT 1"))
        differences = [*_differences(self._conditions(), plan.conditions), *self._changed(plan)]
        if begun and differences:
            listed = "; ".join(differences[:5]) + (f"; and {len(differences) - 5} more" if len(differences) > 5 else "")
            raise UsageError(
                f"{one_line(str(self.path), 200)} was run differently: {listed}\n"
                "Name another file, or give it what it was run with."
            )
        with self.together():
            for name, value in _merged(self._conditions(), plan.conditions).items():
                self._do("INSERT OR REPLACE INTO conditions VALUES (?, ?)", name, _text(value))
            about = {"started": datetime.now(UTC).isoformat(timespec="seconds"), **plan.about}
            self._do("INSERT INTO sessions (about) VALUES (?)", _text(about))
            ((self._session,),) = self._all("SELECT max(number) FROM sessions")
            for system in plan.systems:
                self._do(
                    "INSERT OR IGNORE INTO systems (label, method, settings, model, identity) VALUES (?, ?, ?, ?, ?)",
                    *(system.name, system.method, _text(system.settings), system.model, system.identity),
                )
            known = self.sets
            for added in plan.sets:
                if added.name not in known:
                    self._add_set(added)
        self._forget()

    def record(
        self, row: Row, verdict: Mapping[str, Any] | None = None, trace: Mapping[str, Any] | None = None
    ) -> None:
        """Commit a row; one that is there for the same system and question is replaced.

        Raises DataError when that fails, TypeError or ValueError for numbers or verdicts that no JSON can hold.
        """
        key = (self._set_number(row.set), self._system_number(row.system), self._place(row.set, row.question))
        values = (
            *(
                row.answer,
                row.strategy and row.strategy.value,
                row.why,
                row.error,
                json.dumps(dict(row.scores), allow_nan=False),
            ),
            *(_listed(row.alone), _listed(row.paid), row.attempts, row.cut, row.parse_failures),
            *(self._session, time.time()),
        )
        with self.together():
            self._do("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *key, *values)
            self._do("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?, ?)", *key, _packed(verdict), _packed(trace))

    def note(self, name: str, value: Any) -> None:
        """Something that the session that writes now came to, such as what it spent; plain JSON values."""
        with self.together():
            ((about,),) = self._all("SELECT about FROM sessions WHERE number = ?", self._session)
            text = _text({**json.loads(about), name: value})
            self._do("UPDATE sessions SET about = ? WHERE number = ?", text, self._session)

    def paid(self) -> tuple[int, float]:
        """What all rows cost together: tokens read, reused and written, and money where it is known.

        What sessions noted as ``unfinished``, paid for rows that they did not end, is in it.
        """
        usages = [_usage(text) for (text,) in self._each("SELECT paid FROM rows WHERE paid IS NOT NULL")]
        paid = [usage for usage in usages if usage is not None]
        left = [session["unfinished"] for session in self.meta["sessions"] if "unfinished" in session]
        tokens = sum(each.tokens_read + each.tokens_reused + each.tokens_written for each in paid)
        return (
            tokens + sum(each["tokens"] for each in left),
            sum(each.money or 0.0 for each in paid) + sum(each["money"] for each in left),
        )

    @contextmanager
    def together(self) -> Iterator[None]:
        """One commit for everything that is written in the block, or none when it fails."""
        if self._connection.in_transaction:
            yield
            return
        self._do("BEGIN")
        try:
            yield
            self._do("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # sqlite itself rolls some failures back
                self._connection.execute("ROLLBACK")
            raise

    def _forget(self) -> None:
        """Look up anew what was kept in memory of the file."""
        self._items: dict[tuple[str, bool], tuple[Item, ...]] = {}
        self._places: dict[str, dict[str, int]] = {}
        self._numbers: dict[str, dict[str, int]] = {}

    def _add_set(self, added: QuestionSet) -> None:
        self._do("INSERT INTO sets (name, digest) VALUES (?, ?)", added.name, added.digest)
        ((number,),) = self._all("SELECT number FROM sets WHERE name = ?", added.name)
        for place, item in enumerate(added.items):
            plain = plain_item(item)
            passages = plain.pop("passages")
            self._do(
                "INSERT INTO items VALUES (?, ?, ?, ?, ?)",
                *(number, place, item.id, _text(plain), None if passages is None else _text(passages)),
            )

    def _changed(self, plan: Plan) -> Iterator[str]:
        """What of the plan's sets and models is not what the run knows under its name."""
        digests = dict(self._all("SELECT name, digest FROM sets"))
        for each in plan.sets:
            if digests.get(each.name, each.digest) != each.digest:
                yield f"the question set {each.name} has other questions"
        settings = {(each.name, each.model): to_plain(each.settings) for each in self._labelled().values()}
        for system in plan.systems:
            before = settings.get((system.name, system.model))
            yield from _differences(before or {}, to_plain(system.settings) if before else {}, f"{system.name}: ")
        known = {system.model: system.identity for system in self.systems}
        for model, identity in {system.model: system.identity for system in plan.systems}.items():
            if known.get(model, identity) != identity:
                yield f"the model {one_line(model)} is not the one that it was ({one_line(known[model])})"

    def _conditions(self) -> dict[str, Any]:
        return {name: json.loads(value) for name, value in self._all("SELECT name, value FROM conditions")}

    def _labelled(self) -> dict[int, System]:
        """The systems by number, under their names without the model."""
        found = self._each("SELECT number, label, method, settings, model, identity FROM systems ORDER BY number")
        return {
            number: System(label, method, json.loads(text), *model) for number, label, method, text, *model in found
        }

    def _numbered(self) -> dict[int, System]:
        systems = self._labelled()
        if len({system.model for system in systems.values()}) < 2:
            return systems
        return {number: replace(each, name=f"{each.name} @ {each.model}") for number, each in systems.items()}

    def _system_number(self, name: str) -> int:
        if "systems" not in self._numbers:
            self._numbers["systems"] = {system.name: number for number, system in self._numbered().items()}
        return self._number("systems", "system", name)

    def _set_number(self, name: str) -> int:
        if "sets" not in self._numbers:
            self._numbers["sets"] = dict(self._all("SELECT name, number FROM sets"))
        return self._number("sets", "question set", name)

    def _number(self, table: str, kind: str, name: str) -> int:
        known = self._numbers[table]
        if name not in known:
            raise unknown(kind, name, known, hint=f"It is not in {self.path}.")
        return known[name]

    def _place(self, set: str, question: str) -> int:
        if set not in self._places:
            found = self._all("SELECT id, place FROM items WHERE set_number = ?", self._set_number(set))
            self._places[set] = dict(found)
        if question not in self._places[set]:
            raise unknown("question", question, self._places[set], hint=f"It is not in the set {set}.")
        return self._places[set][question]

    def _blob(self, column: str, system: str, set: str, question: str) -> Mapping[str, Any] | None:
        key = (self._set_number(set), self._system_number(system), self._place(set, question))
        found = self._all(
            f"SELECT {column} FROM verdicts WHERE set_number = ? AND system_number = ? AND place = ?", *key
        )
        if not found or found[0][0] is None:
            return None
        plain: dict[str, Any] = json.loads(zlib.decompress(found[0][0]))
        return plain

    def _each(self, statement: str, *values: Any) -> Iterator[Any]:
        with runfile.told(self.path):
            yield from self._connection.execute(statement, values)

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return list(self._each(statement, *values))

    def _do(self, statement: str, *values: Any) -> None:
        with runfile.told(self.path):
            self._connection.execute(statement, values)


def _row(
    system: str,
    set: str,
    question: str,
    answer: str | None,
    strategy: str | None,
    why: str,
    error: str,
    scores: str,
    alone: str | None,
    paid: str | None,
    *counts: int,
) -> Row:
    taken = None if strategy is None else Strategy(strategy)
    numbers = json.loads(scores)
    return Row(system, set, question, answer, taken, why, error, numbers, _usage(alone), _usage(paid), *counts)


def _item(text: str, passages: str | None) -> Item:
    plain = from_json(text)
    question, scenario = plain["question"], plain["scenario"]
    return Item(
        question=Question(question["text"], tuple(question["options"]), question["id"]),
        answers=tuple(plain["answers"]),
        passages=None if passages is None else tuple(Passage(**each) for each in from_json(passages)),
        scenario=None if scenario is None else Strategy(scenario),
        planted=tuple(plain["planted"]),
        poisoned=frozenset(plain["poisoned"]),
        group=plain["group"],
    )


def _differences(before: Mapping[str, Any], now: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """In words what differs; of what grows, only what both know counts."""
    for name in [*before, *(name for name in now if name not in before)]:
        was, is_now = before.get(name), now.get(name)
        if within.startswith(GROWING) and not (name in before and name in now):
            continue
        if isinstance(was, Mapping) and isinstance(is_now, Mapping):
            yield from _differences(was, is_now, f"{within}{name} ")
        elif was != is_now:
            yield f"{within}{name} {_brief(was)}, not {_brief(is_now)}"


def _merged(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Both together, where mappings within are mappings of both."""
    found = {**before, **now}
    for name, was in before.items():
        if isinstance(was, Mapping) and isinstance(now.get(name), Mapping):
            found[name] = _merged(was, now[name])
    return found


def _brief(value: Any) -> str:
    return one_line(str(value), 40) or "(nothing)"


def _text(value: Any) -> str:
    return json.dumps(to_plain(value), ensure_ascii=True)


def _listed(usage: Usage | None) -> str | None:
    """The fields' values in their order, which is what ``_usage`` reads fastest."""
    return None if usage is None else json.dumps([getattr(usage, each) for each in Usage.__slots__])


def _usage(text: str | None) -> Usage | None:
    return None if text is None else Usage(*json.loads(text))


def _packed(value: Mapping[str, Any] | None) -> bytes | None:
    return None if value is None else zlib.compress(json.dumps(value, allow_nan=False).encode(), _QUICKLY)

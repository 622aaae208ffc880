"""A run in one file: what was planned, the questions with their gold, and a row for each system and question.

A row is committed when it is recorded, so a killed run keeps all that it had finished (see ``runfile``). What a report
reads of a row is small and lies together; whole verdicts and traces lie apart, compressed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from arbitrag.errors import DataError, UsageError, unknown
from arbitrag.evaluate.questions import Item, QuestionSet, plain_item
from arbitrag.evaluate.run import rows as stored
from arbitrag.evaluate.run import runfile
from arbitrag.evaluate.run.columns import Columns, columns
from arbitrag.evaluate.run.rows import agrees, crc, item, listed, packed, text, unpacked, usage
from arbitrag.serialization import to_plain
from arbitrag.storage.lock import Lock
from arbitrag.text import one_line
from arbitrag.types import Strategy, Usage

_TABLES = """
CREATE TABLE conditions (name TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER) WITHOUT ROWID;
CREATE TABLE sessions (number INTEGER PRIMARY KEY, about TEXT NOT NULL, crc INTEGER);
CREATE TABLE systems (
    number INTEGER PRIMARY KEY, label TEXT NOT NULL, method TEXT NOT NULL, settings TEXT NOT NULL,
    model TEXT NOT NULL, identity TEXT NOT NULL, crc INTEGER, UNIQUE (label, model)
);
CREATE TABLE sets (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, questions INTEGER, crc INTEGER
);
CREATE TABLE items (
    set_number INTEGER NOT NULL, place INTEGER NOT NULL, id TEXT NOT NULL, item TEXT NOT NULL, passages TEXT,
    crc INTEGER, passages_crc INTEGER, PRIMARY KEY (set_number, place)
) WITHOUT ROWID;
CREATE TABLE rows (
    set_number INTEGER NOT NULL, system_number INTEGER NOT NULL, place INTEGER NOT NULL,
    answer TEXT, strategy TEXT, why TEXT NOT NULL, error TEXT NOT NULL, scores TEXT NOT NULL,
    standalone TEXT, incremental TEXT, attempts INTEGER NOT NULL, cut INTEGER NOT NULL, parse_failures INTEGER NOT NULL,
    session INTEGER NOT NULL, recorded REAL NOT NULL, crc INTEGER,
    PRIMARY KEY (set_number, system_number, place)
) WITHOUT ROWID;
CREATE TABLE counts (
    set_number INTEGER NOT NULL, system_number INTEGER NOT NULL, rows INTEGER NOT NULL,
    PRIMARY KEY (set_number, system_number)
) WITHOUT ROWID;
CREATE TABLE texts (digest TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE verdicts (
    set_number INTEGER NOT NULL, system_number INTEGER NOT NULL, place INTEGER NOT NULL, verdict BLOB, trace BLOB,
    UNIQUE (set_number, system_number, place)
);
"""
GROWING = "prompts"  # the condition that may gain entries: a later method asks with prompts of its own
_COUNTED = (
    "SELECT place, answer, strategy, why, error, scores, standalone, incremental, attempts, cut, parse_failures, crc "
    "FROM rows WHERE set_number = ? AND system_number = ?"
)


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

    ``standalone`` is the cost had this system been the only one, ``incremental`` what was paid after request
    deduplication and caching, in all attempts together. ``cut`` counts passages shortened or left out for room,
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
    standalone: Usage | None = None
    incremental: Usage | None = None
    attempts: int = 1
    cut: int = 0
    parse_failures: int = 0


@dataclass(frozen=True)
class RunPlan:
    """What is to be run. Everything in ``conditions`` must stay the same when a run goes on; ``about`` is only noted.

    ``systems`` bear their names without the model: the store adds it where there are several. ``texts`` are prompt
    files by their SHA-256, which is how the conditions name them.
    """

    systems: Sequence[System]
    sets: Sequence[QuestionSet]
    conditions: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)


class Store:
    """An open run file; close it, or use it as a context manager. Not for several threads."""

    def __init__(self, path: Path, *, lock: Lock | None) -> None:
        self.path = path
        self._lock = lock
        self._session = 0  # that writes now; ``extend`` begins one
        self._connection = runfile.reader(path) if lock is None else runfile.writer(path, stored.upgrade)
        version = runfile.version(self._connection, path)
        self._checked, self._current = version > 1, version == runfile.VERSION
        self._forget()

    @classmethod
    def create(cls, path: str | Path, plan: RunPlan) -> Store:
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
        sessions = [self._object(about) for _, about in self._whole("sessions", "number, about")]
        sets = {name: digest for _, name, digest, _ in self._all_sets()}
        return {**(sessions[0] if sessions else {}), **self._conditions(), "sets": sets, "sessions": sessions}

    @property
    def texts(self) -> Mapping[str, str]:
        """The prompt files that the run names by their SHA-256, by that; a run from before they were kept has none."""
        if not self._all("SELECT 1 FROM sqlite_master WHERE name = 'texts'"):
            return {}
        found = dict(self._all("SELECT digest, text FROM texts"))
        for digest, prompt in found.items():
            if hashlib.sha256(str(prompt).encode()).hexdigest() != digest:
                raise self._damaged("a prompt is not what was written")
        return found

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
        return tuple(name for _, name, _, _ in self._all_sets())

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
            number = self._set_number(set)
            wanted = next(questions for each, _, _, questions in self._all_sets() if each == number)
            columns = "passages, passages_crc" if passages else "NULL, NULL"
            columns = columns if self._checked else columns.replace("passages_crc", "NULL")
            crc = "crc" if self._checked else "NULL"
            found = self._all(
                f"SELECT place, id, item, {crc}, {columns} FROM items WHERE set_number = ? ORDER BY place", number
            )
            with runfile.decoded(self.path):
                self._items[key] = tuple(self._item(number, expected, *values) for expected, values in enumerate(found))
            if wanted is not None and len(found) != wanted:
                raise self._damaged(f"it holds {len(found):,} of the {wanted:,} questions of {one_line(set)}")
        return self._items[key]

    def rows(self, set: str, system: str) -> Iterator[Row]:
        """The rows that are there, finished and failed, in the order of the set."""
        items = self.items(set, passages=False)
        for values in self._rows_of(set, system):
            with runfile.decoded(self.path):
                row = _row(system, set, items[values[0]].id, *values[1:-1])
            yield row

    def row(self, set: str, system: str, question: str) -> Row | None:
        """One of them; None where there is none yet."""
        place = self._place(set, question)
        found = self._rows_of(set, system, place)
        with runfile.decoded(self.path):
            return next((_row(system, set, question, *values[1:-1]) for values in found), None)

    def columns(self, set: str, system: str, score: str = "") -> Columns:
        """The same rows as columns, without what a report does not need; ``score`` is the named score to read."""
        found = self._rows_of(set, system)
        with runfile.decoded(self.path):
            return columns(found, score)

    def done(self, set: str, system: str) -> Mapping[str, bool]:
        """The ids that have a row, and whether it is a failed one."""
        items = self.items(set, passages=False)
        return {items[values[0]].id: bool(values[4]) for values in self._rows_of(set, system)}

    def verdict(self, system: str, set: str, question: str) -> Mapping[str, Any] | None:
        """The whole verdict of one row as plain JSON values; None for a row that failed or is not there."""
        found = self._blob("verdict", system, set, question)
        with runfile.decoded(self.path):
            return None if found is None else _current_verdict(found)

    def trace(self, system: str, set: str, question: str) -> Mapping[str, Any] | None:
        """The trace of one row, for ``replay``; None when none was kept."""
        from arbitrag.trace import as_current  # a report needs no trace, and begins sooner without it

        found = self._blob("trace", system, set, question)
        with runfile.decoded(self.path):
            return None if found is None else as_current(found)

    def extend(self, plan: RunPlan) -> None:
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
                self._do(
                    "INSERT OR REPLACE INTO conditions VALUES (?, ?, ?)", name, text(value), crc(name, text(value))
                )
            about = {"started": datetime.now(UTC).isoformat(timespec="seconds"), **plan.about}
            self._session = 1 + self._all("SELECT coalesce(max(number), 0) FROM sessions")[0][0]
            noted = (self._session, text(about))
            self._do("INSERT INTO sessions VALUES (?, ?, ?)", *noted, crc(*noted))
            for digest, prompt in plan.texts.items():
                self._do("INSERT OR IGNORE INTO texts VALUES (?, ?)", digest, prompt)
            there = set(self.labels)
            for system in plan.systems:
                if (system.name, system.model) not in there:
                    there.add((system.name, system.model))
                    number = 1 + self._all("SELECT coalesce(max(number), 0) FROM systems")[0][0]
                    values = (number, system.name, system.method, text(system.settings), system.model, system.identity)
                    self._do("INSERT INTO systems VALUES (?, ?, ?, ?, ?, ?, ?)", *values, crc(*values))
            known = self.sets
            for added in plan.sets:
                if added.name not in known:
                    self._add_set(added)
            self._do("INSERT OR IGNORE INTO counts SELECT sets.number, systems.number, 0 FROM sets, systems")
        self._forget()

    def record(
        self, row: Row, verdict: Mapping[str, Any] | None = None, trace: Mapping[str, Any] | None = None
    ) -> None:
        """Commit a row; one that is there for the same system and question is replaced.

        Raises DataError when that fails, TypeError or ValueError for numbers or verdicts that no JSON can hold.
        """
        key = (self._set_number(row.set), self._system_number(row.system), self._place(row.set, row.question))
        values = (
            *(None if row.answer is None else str(row.answer), row.strategy and row.strategy.value),
            *(str(row.why), str(row.error)),
            json.dumps(dict(row.scores), allow_nan=False),
            *(listed(row.standalone), listed(row.incremental)),
            *(int(row.attempts), int(row.cut), int(row.parse_failures)),  # as sqlite gives them back, for the checksum
        )
        at = (self._session, time.time(), crc(*key, *values))
        with self.together():
            is_new = not self._all("SELECT 1 FROM rows WHERE set_number = ? AND system_number = ? AND place = ?", *key)
            self._do(f"INSERT OR REPLACE INTO rows VALUES ({', '.join('?' * 16)})", *key, *values, *at)
            self._do("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?, ?)", *key, packed(verdict), packed(trace))
            if is_new:
                self._do("UPDATE counts SET rows = rows + 1 WHERE set_number = ? AND system_number = ?", *key[:2])

    def note(self, name: str, value: Any) -> None:
        """Something that the session that writes now came to, such as what it spent; plain JSON values."""
        with self.together():
            ((about,),) = self._all("SELECT about FROM sessions WHERE number = ?", self._session)
            noted = text({**self._object(about), name: value})
            values = (noted, crc(self._session, noted), self._session)
            self._do("UPDATE sessions SET about = ?, crc = ? WHERE number = ?", *values)

    def spent(self) -> tuple[int, float]:
        """What all rows cost together: tokens of prompts and completions, and money where it is known.

        What sessions noted as ``unfinished``, paid for rows that they did not end, is in it.
        """
        with runfile.decoded(self.path):
            rows = [row for set in self.sets for each in self.systems for row in self._rows_of(set, each.name)]
            usages = [usage(row[7]) for row in rows]
        paid = [each for each in usages if each is not None]
        left = [session["unfinished"] for session in self.meta["sessions"] if "unfinished" in session]
        tokens = sum(each.prompt_tokens + each.completion_tokens for each in paid)
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
        number = 1 + self._all("SELECT coalesce(max(number), 0) FROM sets")[0][0]
        known = (number, added.name, added.digest, len(added.items))
        self._do("INSERT INTO sets VALUES (?, ?, ?, ?, ?)", *known, crc(*known))
        for place, each in enumerate(added.items):
            plain = plain_item(each)
            own = plain.pop("passages")
            passages, told = None if own is None else text(own), text(plain)
            checks = (crc(number, place, each.id, told), crc(number, place, passages))
            self._do("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?)", number, place, each.id, told, passages, *checks)

    def _changed(self, plan: RunPlan) -> Iterator[str]:
        """What of the plan's sets and models is not what the run knows under its name."""
        digests = {name: digest for _, name, digest, _ in self._all_sets()}
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
        with runfile.decoded(self.path):
            return {name: json.loads(value) for name, value in self._whole("conditions", "name, value")}

    def _labelled(self) -> dict[int, System]:
        """The systems by number, under their names without the model."""
        found = self._whole("systems", "number, label, method, settings, model, identity")
        if self._checked:
            counted = {number for (number,) in self._all("SELECT DISTINCT system_number FROM counts")}
            if counted - {number for number, *_ in found}:
                raise self._damaged("a system is gone")
        return {
            number: System(label, method, self._object(settings), *model)
            for number, label, method, settings, *model in found
        }

    def _all_sets(self) -> list[tuple[int, str, str, int | None]]:
        """The number, the name, the digest and the number of questions of each; the last None in an old file."""
        if self._checked:
            found = self._whole("sets", "number, name, digest, questions")
            counted = {number for (number,) in self._all("SELECT DISTINCT set_number FROM counts")}
            if counted - {number for number, *_ in found}:
                raise self._damaged("a question set is gone")
            return found
        return self._all("SELECT number, name, digest, NULL FROM sets ORDER BY number")

    def _whole(self, table: str, columns: str) -> list[Any]:
        """The ``columns`` of the rows of a small table, checked, in the order of its key."""
        found = self._all(f"SELECT {columns}, {'crc' if self._checked else 'NULL'} FROM {table} ORDER BY 1")
        for *values, check in found:
            if not agrees(check, *values):
                raise self._damaged(f"what its table {table} holds is not what was written")
        return [tuple(values) for *values, _ in found]

    def _object(self, text: str) -> dict[str, Any]:
        with runfile.decoded(self.path):
            plain = json.loads(text)
            if not isinstance(plain, dict):
                raise TypeError
            return plain

    def _item(self, set_number: int, expected: int, *values: Any) -> Item:
        place, id, told, check, passages, passages_check = values
        found = item(told, passages)
        whole = agrees(check, set_number, place, id, told) and agrees(passages_check, set_number, place, passages)
        if not whole or place != expected or found.id != id:
            raise self._damaged(f"its question number {expected + 1} is not what was written")
        return found

    def _rows_of(self, set: str, system: str, place: int | None = None) -> list[Any]:
        """The rows of a system on a set, or the one at a ``place``, checked against what was written.

        Each is (place, answer, strategy, why, error, scores, standalone, incremental, attempts, cut, parse failures,
        checksum).
        """
        key, questions = (self._set_number(set), self._system_number(system)), len(self.items(set, passages=False))
        wanted = 0 if place is not None or not self._checked else self._count(*key)  # first: another may be writing
        query = _COUNTED if self._checked else _COUNTED.replace(", crc", ", NULL")
        if not self._current:
            query = query.replace("standalone, incremental", "alone, paid")
        which = "ORDER BY place" if place is None else "AND place = ?"
        found = self._all(f"{query} {which}", *key, *([] if place is None else [place]))
        last = -1
        with runfile.decoded(self.path):
            for row in found:
                if not (last < row[0] < questions and agrees(row[-1], *key, *row[:-1])):
                    raise self._damaged(f"a row of {one_line(system)} on {one_line(set)} is not what was written")
                last = row[0]
            if len(found) < wanted:
                missing = f"{len(found):,} of the {wanted:,} rows"
                raise self._damaged(f"it holds {missing} of {one_line(system)} on {one_line(set)}")
        return found if self._current else [_of_version_2(row) for row in found]

    def _count(self, set_number: int, system_number: int) -> int:
        """How many rows there must be."""
        query = "SELECT rows FROM counts WHERE set_number = ? AND system_number = ?"
        for (rows,) in self._all(query, set_number, system_number):
            return int(rows)
        raise self._damaged("a count of rows is gone")

    def _damaged(self, what: str) -> DataError:
        return runfile.damaged(self.path, what)

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
            self._numbers["sets"] = {name: number for number, name, _, _ in self._all_sets()}
        return self._number("sets", "question set", name)

    def _number(self, table: str, kind: str, name: str) -> int:
        known = self._numbers[table]
        if name not in known:
            raise unknown(kind, name, known, hint=f"It is not in {self.path}.")
        return known[name]

    def _place(self, set: str, question: str) -> int:
        if set not in self._places:
            self._places[set] = {item.id: place for place, item in enumerate(self.items(set, passages=False))}
        if question not in self._places[set]:
            raise unknown("question", question, self._places[set], hint=f"It is not in the set {set}.")
        return self._places[set][question]

    def _blob(self, column: str, system: str, set: str, question: str) -> Mapping[str, Any] | None:
        key = (self._set_number(set), self._system_number(system), self._place(set, question))
        found = self._all(
            f"SELECT set_number, system_number, place, {column} FROM verdicts "
            "WHERE set_number = ? AND system_number = ? AND place = ?",
            *key,
        )
        if not found:
            if self._rows_of(set, system, key[2]):
                raise self._damaged(f"the {column} of a row is gone")
            return None
        if found[0][:3] != key:
            raise self._damaged(f"the {column} of a row is that of another")
        with runfile.decoded(self.path):
            return None if found[0][3] is None else unpacked(found[0][3])

    def _each(self, statement: str, *values: Any) -> Iterator[Any]:
        with runfile.told(self.path):
            yield from self._connection.execute(statement, values)

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return list(self._each(statement, *values))

    def _do(self, statement: str, *values: Any) -> None:
        with runfile.told(self.path):
            self._connection.execute(statement, values)


def _of_version_2(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row of ``_COUNTED`` with its costs as this version has them."""
    return (*row[:6], *map(stored.cost_of_version_2, row[6:8]), *row[8:])


def _current_verdict(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON of a verdict, with the token counts of its usage as this version has them."""
    usage = plain.get("usage")
    if not isinstance(usage, Mapping) or "tokens_read" not in usage:
        return plain
    from arbitrag.llm.results import tokens_of_format_1

    kept = {name: value for name, value in usage.items() if not name.startswith("tokens_")}
    counts = tokens_of_format_1({name: usage[f"tokens_{name}"] for name in ("read", "reused", "written")})
    return {**plain, "usage": {**kept, **to_plain(counts)}}


def _row(
    system: str,
    set: str,
    question: str,
    answer: str | None,
    strategy: str | None,
    why: str,
    error: str,
    scores: str,
    standalone: str | None,
    incremental: str | None,
    *counts: int,
) -> Row:
    taken = None if strategy is None else Strategy(strategy)
    numbers = json.loads(scores)
    return Row(
        system, set, question, answer, taken, why, error, numbers, usage(standalone), usage(incremental), *counts
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

"""What a file is, found by what it holds; its name plays no part."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import zipfile
from pathlib import Path

import pytest

from arbitrag.data.formats import FORMATS, OWN, TABLE, Format, format_of
from arbitrag.errors import DataError


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"question": "Who?", "answers": "Ada"}\n', OWN),
        ('\ufeff\n {"question": "Who?", "answers": "Ada"}', OWN),
        ('{"question": "Who?", "scenario": "RA"}', OWN),
        ('{"question": "Who', OWN),  # its row is called bad by its line
        ('{"questoin": "Who?", "answers": "Ada"}', OWN),
        ('{"question": "Who?", "answer": "Ada"}', OWN),
        ('nonsense"\n{"question": "Who?", "answers": "Ada"}'.removeprefix('nonsense"\n'), OWN),
        ('{"question": "Who?"}\n{"question": "Who?", "answers": "Ada"}', OWN),  # one row has no answers
        ('{"question": "Who?", "answers": "Ada", "wrong_answer": "Bea", "poisoned": ["p"], "passages": ["p"]}', OWN),
        ('{"question": "Who?", "answers": ["Ada"], "wrong_answer": "Bea", "poisoned": ["Bea."]}', FORMATS[1]),
        ('{"question": "Who?", "answers": ["Ada"], "choice_index": 0, "clean": [], "poisoned": []}', FORMATS[0]),
        ("question,answers\nWho?,Ada", TABLE),
        ("answers;question\nAda;Who?", TABLE),
        ("id\tquestion\tanswers\r\n1\tWho?\tAda\r\n", TABLE),
        ('\ufeff"question","answers"\n', TABLE),
    ],
)
def test_a_format_that_is_read(content: str, expected: Format, tmp_path: Path) -> None:
    path = tmp_path / "misleading.zip"
    path.write_bytes(content.encode())
    assert format_of(path) is expected


SQUAD = {"data": [{"title": "T", "paragraphs": [{"context": "C", "qas": [{"question": "Who?", "answers": []}]}]}]}
HOTPOT = [{"_id": "a", "question": "Who?", "answer": "Ada", "supporting_facts": [["T", 0]], "context": [["T", ["S"]]]}]


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (
            json.dumps({"version": "v2.0", **SQUAD}).replace('"answers"', '"is_impossible": true, "answers"'),
            "a SQuAD v2",
        ),
        (json.dumps(SQUAD), "a SQuAD v1 JSON; that format is not read yet"),
        (json.dumps(SQUAD, indent=2), "a SQuAD v1 JSON; that format is not read yet"),
        (json.dumps(HOTPOT), "a HotpotQA JSON; that format is not read yet"),
        (json.dumps(HOTPOT[0]), "a HotpotQA JSON; "),
        (json.dumps([{**HOTPOT[0], "evidences": []}], indent=1), "a 2WikiMultiHopQA JSON; "),
        ('{"Data": [{"QuestionId": "a", "Question": "Who?"}]}', "a TriviaQA JSON; "),
        ('{"question_text": "who", "annotations": []}', "a Natural Questions file; "),
        ('{"id": "a", "input": "Who?", "output": []}', "a KILT file; "),
        ('{"id": 1, "query": "Who?", "positive": [], "negative": []}', "an RGB file; "),
        ('{"_id": "a", "text": "Who?"}', "BEIR queries or a BEIR corpus; "),
        (
            '{"text": "A passage.", "title": "T"}',
            "passages or documents; to search them, index them: arbitrag index {} -o",
        ),
        ('{"question": "Who?", "id": "a"}\n', "questions without answers; to ask them: arbitrag ask --questions {}; "),
        (
            '{"id": "1", "question": {"text": "a"}, "strategy": "both", "usage": {}, "run": {}}',
            "results of arbitrag ask; ",
        ),
        ('[{"question": "Who?", "answers": "Ada"}]', "a JSON list; a row is one object on a line: jq -c '.[]' {}"),
        ('{\n  "question": "Who?"\n}', "one JSON document over many lines; a row is one object on a line: jq -c . {}"),
        ("Who, what?\n", "plain text, or a table without the column 'question'; its first line is 'Who, what?'; "),
        (
            "frage,antwort\n",
            "plain text, or a table without the column 'question'; its first line is 'frage,antwort'; ",
        ),
        (gzip.compress(b"{}", mtime=0), "a gzip archive; unpack it first: gunzip {}"),
        (b"PAR1....", "Parquet; write it as JSON lines first"),
        (b"%PDF-1.4", "a PDF; to search documents, index them: arbitrag index {} -o docs.idx"),
        ('{"question": "Who?"}'.encode("utf-16"), "UTF-16 text; save it as UTF-8"),
        (b"ab\x00\x01\x02", "binary data; "),
    ],
)
def test_another_format_is_named(content: str | bytes, looks: str, tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(
        DataError, match="^" + re.escape(f"{path} looks like {looks.replace('{}', str(path))}")
    ) as error:
        format_of(path)
    assert "\n" not in str(error.value)


def test_archives_and_databases(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.jsonl", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(DataError, match="looks like a zip archive or an office document; unpack it, or save the sheet"):
        format_of(tmp_path / "a.jsonl")
    connection = sqlite3.connect(tmp_path / "b.jsonl")
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(DataError, match="looks like an sqlite database; a question set is JSON lines, "):
        format_of(tmp_path / "b.jsonl")


def test_the_file_of_a_run(tmp_path: Path) -> None:
    from arbitrag.evaluate.run.runfile import create

    path = tmp_path / "run.jsonl"
    create(path, "CREATE TABLE t (x);")
    with pytest.raises(DataError, match=f"^{path} looks like the file of a run; type: arbitrag bench report {path}$"):
        format_of(path)


def test_the_trace_of_an_answer(tmp_path: Path) -> None:
    from arbitrag.cli import main

    trace = tmp_path / "trace.json"
    assert main(["ask", "Who?", "--method", "direct", "--llm", "lab", "--trace", str(trace)]) == 0
    with pytest.raises(DataError, match=f"looks like a trace; type: arbitrag replay {trace}$"):
        format_of(trace)


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_an_empty_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.jsonl is empty; a question set is JSON lines, "):
        format_of(tmp_path / "a.jsonl")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.jsonl cannot be read: No such file or directory"):
        format_of(tmp_path / "a.jsonl")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        format_of(tmp_path)

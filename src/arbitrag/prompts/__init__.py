"""Prompts are files, and this is the one place that fills them in.

A file is a header, a line ``---``, and sections that begin with a line ``=== name``:

    source: where the structure comes from
    wording: who worded it, and a version
    ---
    === system
    === user
    {passages} and {question}, replaced byte for byte
    === passage
    the form of one passage, with {number}, {title} and {text}; a line that holds only {title} goes when there is none
    === form
    the lines that a reply consists of; they stand where the prompt says {form}

``=== text`` in place of system and user makes a plain text to continue, for a model without a chat template, and a
header ``lead: space`` puts a space before its answers. ``options: hidden`` leaves the options of a question out, for a
model that can only answer in its own words (an answer still counts as the option that it names). A field that is
missing or left over is an error. What else a prompt repeats has a section of its own too, with other fields: see
``ITEMS``.

Passages and questions are untrusted, and so is what the model wrote before. Whatever in them looks like a tag of any
of our prompts, or like a token by which chat templates mark turns (``<|im_end|>``, ``</s>``, ``[INST]``), has its
bracket replaced by a look-alike, ``‹`` or ``［``; a line that begins like a line of the reply (``answer:``) has its
colon replaced by ``꞉``; in a plain text prompt they are also kept on one line, because there a line is the fence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from arbitrag.errors import PromptError, UsageError, unknown
from arbitrag.llm.base import Message, Prompt
from arbitrag.text import FILLERS, INVISIBLE, encodable
from arbitrag.types import Passage, Question

_FIELD = re.compile(r"\{([a-z_]+)\}")
_TAG = re.compile(r"</?([A-Za-z][\w-]*)")
# A tokenizer reads these as control tokens wherever they stand, also inside a message.
_CONTROL = re.compile(
    r"<(?=[|｜][^\s<>]{1,60}[|｜]>|/?(?:s|bos|eos|pad|unk|mask|turn|start_of_turn|end_of_turn)>|</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])",
    re.IGNORECASE,
)
_LOOK_ALIKE = {"<": "‹", "[": "［"}
_HEADERS = frozenset({"source", "wording", "lead", "with", "options"})
# The sections that give the form of one item of a list, with the fields that they may have.
ITEMS: Mapping[str, frozenset[str]] = {
    "passage": frozenset({"number", "title", "text"}),  # found by a retriever
    "memory": frozenset({"number", "text"}),  # written by the model from memory
    "group": frozenset({"number", "text", "sources"}),  # what documents say together, and which they are
    "query": frozenset({"number", "text"}),  # a question that the model asked itself
    "example": frozenset({"number", "text", "retrieval", "generation"}),  # a labelled question, with its percentages
    "scores": frozenset(  # how far BRIDGE's sources agree (S1 to S4), and the soft bias
        {"passages_notes", "answers_notes", "found_passages", "answers_found", "retrieval", "generation"}
    ),
}
# Fences of all prompts. No untrusted text may spell one, also not of a prompt that comes before or after.
TAGS = frozenset({"answer", "passage", "memory", "group", "reply"})
_SECTIONS = frozenset({"system", "user", "text", "form", *ITEMS})
_SPOKEN = frozenset({"system", "user", "text"})
_LABEL = re.compile(r"^(\w+):", re.MULTILINE)
_LINE_ENDS = r"\r\v\f\x1c-\x1e\x85\u2028\u2029"  # beside \n, which ends a line for every reader
_SPACES = rf" \t\x1f\xa0\u1680\u2000-\u200a\u202f\u205f\u3000{_LINE_ENDS}"


@dataclass(frozen=True, slots=True)
class Block:
    """One item of a list in a prompt that is not a passage: what fills in the section called ``form``."""

    form: str
    values: Mapping[str, str]


Field = str | Question | Sequence[Passage | Block]


@dataclass(frozen=True)
class PromptFile:
    """One prompt, read and checked; ``source_text`` is the whole file."""

    name: str
    path: Path
    headers: dict[str, str]
    sections: dict[str, str]
    source_text: str

    @cached_property
    def fields(self) -> frozenset[str]:
        """The names that must be given to ``render``."""
        spoken = (text for section, text in self.sections.items() if section in _SPOKEN)
        names = frozenset(name for text in spoken for name in _FIELD.findall(text))
        return names - {"form"} if "form" in self.sections else names

    @property
    def form(self) -> str:
        """The lines that a reply consists of; raises PromptError when the file has none."""
        if "form" not in self.sections:
            raise PromptError(f"{self.path}: needs a section '=== form' with the lines of a reply")
        return self.sections["form"]

    def render(self, **fields: Field) -> Prompt:
        """Fill the fields in, in one pass: a passage that contains ``{question}`` stays as it is.

        Raises PromptError when a field is missing or left over.
        """
        if fields.keys() != self.fields:
            missing, extra = sorted(self.fields - fields.keys()), sorted(fields.keys() - self.fields)
            raise PromptError(f"{self.path}: fields missing: {missing or 'none'}; not in the file: {extra or 'none'}")
        texts = {name: self._text_of(value) for name, value in fields.items()}
        if "form" in self.sections:
            texts["form"] = self.form
        filled = {
            section: _FIELD.sub(lambda match: texts[match[1]], template)
            for section, template in self.sections.items()
            if section in _SPOKEN
        }
        if "text" in filled:
            lead = " " if self.headers.get("lead") == "space" else ""
            return Prompt(text=filled["text"], lead=lead)
        roles = [role for role in ("system", "user") if role in filled]
        return Prompt(messages=tuple(Message(role, filled[role]) for role in roles))

    def _text_of(self, value: Field) -> str:
        if isinstance(value, str):
            return self._neutral(value)
        if isinstance(value, Question):
            hidden = self.headers.get("options") == "hidden"
            return self._neutral(value.text if hidden else question_text(value))
        return "".join(
            self.passage_text(number, item) if isinstance(item, Passage) else self._item(item.form, item.values)
            for number, item in enumerate(value, 1)
        )

    def passage_text(self, number: int, passage: Passage) -> str:
        """One passage as the prompt shows it."""
        return self._item("passage", {"number": str(number), "title": passage.title, "text": passage.text})

    def _item(self, name: str, values: Mapping[str, str]) -> str:
        if name not in self.sections:
            raise PromptError(f"{self.path}: a {name} needs a section '=== {name}'")
        form = self.sections[name]
        if missing := set(_FIELD.findall(form)) - values.keys():
            raise PromptError(f"{self.path}: a {name} was given without {sorted(missing)}")
        if not values.get("title", "-"):
            form = "\n".join(line for line in form.split("\n") if line.strip() != "{title}").replace("{title}", "")
        return _FIELD.sub(lambda match: self._neutral(values[match[1]]), form) + "\n"

    def _neutral(self, text: str) -> str:
        text = encodable(text)
        if "text" in self.sections:
            text = " ".join(text.split())
        text = _CONTROL.sub(lambda match: _LOOK_ALIKE[match.group()], text)
        text = self._fence.sub("‹", text)
        return self._label.sub(r"\1꞉", text) if self._label else text

    @cached_property
    def _fence(self) -> re.Pattern[str]:
        found = (name for section in self.sections.values() for name in _TAG.findall(section))
        return _fences(frozenset(found))

    @cached_property
    def _label(self) -> re.Pattern[str] | None:
        labels = frozenset(_LABEL.findall(self.sections.get("form", "")))
        return _labels(labels) if labels else None


@lru_cache(maxsize=64)
def _fences(own: frozenset[str]) -> re.Pattern[str]:
    """The bracket of whatever reads as a tag: also with spaces, slashes or invisible characters in it."""
    names = "|".join(_spelled(name) for name in sorted(TAGS | own))
    gap = rf"(?:[^\w<>]|[{FILLERS}])*+"
    return re.compile(rf"<(?={gap}(?:{names})(?:(?!\w)|[{FILLERS}]))", re.IGNORECASE)


@lru_cache(maxsize=64)
def _labels(labels: frozenset[str]) -> re.Pattern[str]:
    """A line's beginning that reads as the label of a line of the reply, up to its colon."""
    names = "|".join(_spelled(name) for name in sorted(labels))
    # What precedes the label ends where another line begins: every line is looked at once.
    start = rf"(?:^|[{_LINE_ENDS}])(?:[^\w\n{_LINE_ENDS}]|[{FILLERS}])*+"
    return re.compile(rf"({start}(?:{names})[{INVISIBLE}{_SPACES}]*+)[:：]", re.IGNORECASE | re.MULTILINE)


def _spelled(name: str) -> str:
    """The name with any number of invisible characters between its letters; ``*+`` keeps the search linear."""
    return rf"[{INVISIBLE}]*+".join(map(re.escape, name))


def question_text(question: Question) -> str:
    """The question, followed by its lettered options when it has some."""
    options = [f"({chr(ord('A') + i)}) {option}" for i, option in enumerate(question.options)]
    return "\n".join([question.text, *options])


@dataclass(frozen=True)
class PromptBook:
    """Prompts by name, ``rag/answer`` for ``rag/answer.txt``; the first folder that has a name wins."""

    folders: tuple[Path, ...] = (Path(__file__).parent,)

    @classmethod
    def with_wording(cls, *folders: Path | None) -> PromptBook:
        """The packaged prompts, with files in ``folders`` taking their place where they have the same name.

        Raises UsageError for a folder that does not exist, or has no prompt in it.
        """
        given = [folder for folder in folders if folder is not None]
        for folder in given:
            if not folder.is_dir():
                raise UsageError(f"there is no folder of prompts at {folder}")
            if not any(folder.glob("*/*.txt")):
                raise UsageError(f"there is no prompt in {folder}; one lies there as rag/answer.txt")
        return cls((*given, Path(__file__).parent))

    def find(self, name: str) -> PromptFile:
        """Raises UsageError for a name in no folder, PromptError for a file that breaks the format."""
        for folder in self.folders:
            path = folder / f"{name}.txt"
            if path.is_file():
                file = read_prompt(name, path)
                self._check_pair(file, folder)
                return file
        raise unknown("prompt", name, self.names())

    def _check_pair(self, file: PromptFile, folder: Path) -> None:
        """A prompt whose likelihoods are compared with another's (header ``with``) is worded in the same folder."""
        other = file.headers.get("with")
        if other is not None and self.find(other).path != folder / f"{other}.txt":
            raise PromptError(
                f"{self.find(other).path} words {other} anew, but {file.name} is still {file.path}; "
                f"their likelihoods are compared, so put a {file.name}.txt of the same wording beside it"
            )

    def files(self) -> dict[str, Path]:
        """Every file that a name stands for, by name; whether it is in order is found out when it is used."""
        found = {
            path.relative_to(folder).with_suffix("").as_posix(): path
            for folder in reversed(self.folders)
            for path in folder.glob("*/*.txt")
        }
        return dict(sorted(found.items()))

    def names(self) -> list[str]:
        return list(self.files())

    def render(self, name: str, **fields: Field) -> Prompt:
        return self.find(name).render(**fields)


def prompts_digest(*books: PromptBook) -> str:
    """A SHA-256 over the names and bytes of every prompt file in the folders of the books, one after the other."""
    summary = hashlib.sha256()
    for folder in (folder for book in books for folder in book.folders):
        for path in sorted(folder.glob("*/*.txt")):
            summary.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return summary.hexdigest()


@lru_cache(maxsize=256)
def read_prompt(name: str, path: Path) -> PromptFile:
    """Read and check one prompt file; raises PromptError with the file and the reason."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"{path} cannot be read: {error}") from None
    return parse_prompt(name, path, text)


def parse_prompt(name: str, path: Path, text: str) -> PromptFile:
    """Check the text of a prompt file; ``path`` is for the error text."""
    head, divider, body = text.partition("\n---\n")
    if not divider:
        raise PromptError(f"{path}: no line '---' between the header and the prompt")
    pairs = (line.partition(": ") for line in head.splitlines())
    headers = {key: value.strip() for key, _, value in pairs}
    if not {"source", "wording"} <= headers.keys() <= _HEADERS:
        raise PromptError(
            f"{path}: the header needs source and wording, and may have lead, with and options; found {sorted(headers)}"
        )
    if headers.get("lead", "space") != "space":
        raise PromptError(f"{path}: the header lead is 'space' or left out; found '{headers['lead']}'")
    if headers.get("options", "hidden") != "hidden":
        raise PromptError(f"{path}: the header options is 'hidden' or left out; found '{headers['options']}'")
    parts = re.split(r"^=== (.*)\n", body, flags=re.MULTILINE)
    if parts[0].strip():
        raise PromptError(f"{path}: text before the first '=== section' line")
    sections = {key: value.removesuffix("\n") for key, value in zip(parts[1::2], parts[2::2], strict=True)}
    if len(sections) < len(parts) // 2:
        raise PromptError(f"{path}: a section stands twice; found {parts[1::2]}")
    if not sections.keys() <= _SECTIONS or ("text" in sections) == ("user" in sections):
        raise PromptError(f"{path}: needs '=== user' (and perhaps '=== system') or '=== text'; found {list(sections)}")
    for item, known in ITEMS.items():
        if strange := set(_FIELD.findall(sections.get(item, ""))) - known:
            raise PromptError(f"{path}: a {item} has {', '.join(sorted(known))}; found {sorted(strange)}")
    if "form" in sections and _FIELD.search(sections["form"]):
        raise PromptError(f"{path}: the form of a reply has no fields; found {_FIELD.findall(sections['form'])}")
    return PromptFile(name, path, headers, sections, text)

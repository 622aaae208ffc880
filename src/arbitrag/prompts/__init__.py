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

``=== text`` in place of system and user makes a plain text to continue, for a model without a chat template, and a
header ``lead: space`` puts a space before its answers. A field that is missing or left over is an error.

Passages and questions are untrusted. Whatever in them looks like one of the prompt's own tags, or like a token by
which chat templates mark turns (``<|im_end|>``, ``</s>``, ``[INST]``), has its bracket replaced by a look-alike, ``‹``
or ``［``; in a plain text prompt they are also kept on one line, because there a line is the fence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from arbitrag.errors import PromptError, UsageError, unknown
from arbitrag.llm.base import Message, Prompt
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
_HEADERS = frozenset({"source", "wording", "lead", "with"})
_SECTIONS = frozenset({"system", "user", "text", "passage"})
_PASSAGE_FIELDS = frozenset({"number", "title", "text"})

Field = str | Question | Sequence[Passage]


@dataclass(frozen=True)
class PromptFile:
    """One prompt, read and checked; ``source_text`` is the whole file."""

    name: str
    path: Path
    headers: dict[str, str]
    sections: dict[str, str]
    source_text: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the file."""
        return hashlib.sha256(self.source_text.encode()).hexdigest()

    @property
    def fields(self) -> frozenset[str]:
        """The names that must be given to ``render``."""
        spoken = (text for section, text in self.sections.items() if section != "passage")
        return frozenset(name for text in spoken for name in _FIELD.findall(text))

    def render(self, **fields: Field) -> Prompt:
        """Fill the fields in, in one pass: a passage that contains ``{question}`` stays as it is.

        Raises PromptError when a field is missing or left over.
        """
        if fields.keys() != self.fields:
            missing, extra = sorted(self.fields - fields.keys()), sorted(fields.keys() - self.fields)
            raise PromptError(f"{self.path}: fields missing: {missing or 'none'}; not in the file: {extra or 'none'}")
        texts = {name: self._text_of(value) for name, value in fields.items()}
        filled = {
            section: _FIELD.sub(lambda match: texts[match[1]], template)
            for section, template in self.sections.items()
            if section != "passage"
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
            return self._neutral(question_text(value))
        return "".join(self.passage_text(number, passage) for number, passage in enumerate(value, 1))

    def passage_text(self, number: int, passage: Passage) -> str:
        """One passage as the prompt shows it."""
        if "passage" not in self.sections:
            raise PromptError(f"{self.path}: {{passages}} needs a section '=== passage'")
        form = self.sections["passage"]
        if not passage.title:
            form = "\n".join(line for line in form.split("\n") if line.strip() != "{title}").replace("{title}", "")
        values = {
            "number": str(number),
            "title": self._neutral(passage.title),
            "text": self._neutral(passage.text),
        }
        return _FIELD.sub(lambda match: values[match[1]], form) + "\n"

    def _neutral(self, text: str) -> str:
        if "text" in self.sections:
            text = " ".join(text.split())
        text = _CONTROL.sub(lambda match: _LOOK_ALIKE[match.group()], text)
        tags = sorted({name for section in self.sections.values() for name in _TAG.findall(section)})
        if not tags:
            return text
        # Also with spaces, slashes or invisible characters between the bracket and the name.
        mine = re.compile(rf"<(?=[^\w<>]*(?:{'|'.join(map(re.escape, tags))})\b)", re.IGNORECASE)
        return mine.sub("‹", text)


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

    def names(self) -> list[str]:
        found = (path.relative_to(folder) for folder in self.folders for path in folder.glob("*/*.txt"))
        return sorted({path.with_suffix("").as_posix() for path in found})

    def render(self, name: str, **fields: Field) -> Prompt:
        return self.find(name).render(**fields)


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
            f"{path}: the header needs source and wording, and may have lead and with; found {sorted(headers)}"
        )
    if headers.get("lead", "space") != "space":
        raise PromptError(f"{path}: the header lead is 'space' or left out; found '{headers['lead']}'")
    parts = re.split(r"^=== (.*)\n", body, flags=re.MULTILINE)
    if parts[0].strip():
        raise PromptError(f"{path}: text before the first '=== section' line")
    sections = {key: value.removesuffix("\n") for key, value in zip(parts[1::2], parts[2::2], strict=True)}
    if len(sections) < len(parts) // 2:
        raise PromptError(f"{path}: a section stands twice; found {parts[1::2]}")
    if not sections.keys() <= _SECTIONS or ("text" in sections) == ("user" in sections):
        raise PromptError(f"{path}: needs '=== user' (and perhaps '=== system') or '=== text'; found {list(sections)}")
    strange = set(_FIELD.findall(sections.get("passage", ""))) - _PASSAGE_FIELDS
    if strange:
        raise PromptError(f"{path}: a passage has number, title and text; found {sorted(strange)}")
    return PromptFile(name, path, headers, sections, text)

"""The values that travel between the parts: frozen, plain, and the same in Python, JSON and the command line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING, Any

from arbitrag.display import counted, escaped, folded, table, token_counts
from arbitrag.serialization import NOT_JSON, to_plain
from arbitrag.text import encodable, listed, one_line

if TYPE_CHECKING:
    import numpy as np


class Strategy(Enum):
    """Which source an answer rests on. The codes in brackets are BRIDGE's."""

    BOTH = "both"  # FA
    MEMORY = "memory"  # FI
    EVIDENCE = "evidence"  # FE
    REFUSE = "refuse"  # RA

    @property
    def trusted(self) -> str:
        """Which source was trusted, in a word: both, memory, evidence or neither."""
        return "neither" if self is Strategy.REFUSE else self.value


class Need(Flag):
    """What a method asks of its kit, and what a backend offers."""

    GENERATE = auto()
    SCORE = auto()
    INSPECT = auto()
    NEXT_TOKEN = auto()
    RETRIEVE = auto()
    ENCODE = auto()

    @property
    def of_model(self) -> Need:
        """What of it a language model has to offer; the rest comes from other parts of a kit."""
        return self & ~(Need.RETRIEVE | Need.ENCODE)

    def names(self) -> str:
        """The members in words: ``generate and score``."""
        words = [member.name.lower().replace("_", " ") for member in Need if member in self and member.name]
        return listed(words) or "nothing"


@dataclass(frozen=True, slots=True)
class Question:
    """A question, with its answer options when it is multiple choice."""

    text: str
    options: tuple[str, ...] = ()
    id: str = ""


PARTS = ("page", "slide", "sheet")  # what the metadata of a passage calls the part of its source that it is on
_LONGEST_PART = 40  # characters; what is longer is no name of a page


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of evidence and where it was found.

    ``line`` counts from 1 and ``offset`` counts characters from 0, both in the text extracted from ``source``; there is
    no line in a file that is read by pages, whose number is in the metadata (``page``, ``slide`` or ``sheet``);
    ``score`` is the retriever's, and only comparable within one result list. ``embedding`` is the vector of shape
    (width,) that an index stored for it, and ``embedded_by`` the identity of the encoder that made it, where that is
    known; neither travels as JSON.
    """

    text: str
    id: str = ""
    title: str = ""
    source: str = ""
    line: int | None = None
    offset: int | None = None
    score: float | None = None
    date: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    embedding: np.ndarray | None = field(default=None, repr=False, compare=False, metadata=NOT_JSON)
    embedded_by: str = field(default="", repr=False, compare=False, metadata=NOT_JSON)

    @property
    def place(self) -> str:
        """``path:line``, or ``path, page 3`` where the metadata names a page, a slide or a sheet; else the source, else
        the id."""
        if self.source and self.line is not None:
            return f"{self.source}:{self.line}"
        parts = ((kind, self.metadata.get(kind, "")) for kind in PARTS)
        part = next((f", {kind} {name}" for kind, name in parts if 0 < len(name) <= _LONGEST_PART), "")
        return self.source + part if self.source else self.id

    @property
    def identity(self) -> Hashable:
        """What two copies of a passage have in common: the id, or without one source, offset and text."""
        return self.id or (self.source, self.offset, self.text)

    def encodable(self) -> Passage:
        """This passage with U+FFFD for every lone surrogate, which no tokenizer and no file takes; itself without."""
        said = (self.text, self.title, self.id, self.source, self.date, *self.metadata, *self.metadata.values())
        if all(each == encodable(each) for each in said):
            return self
        text, title, name, source, date = map(encodable, said[:5])
        metadata = {encodable(key): encodable(value) for key, value in self.metadata.items()}
        return replace(self, text=text, title=title, id=name, source=source, date=date, metadata=metadata)


def distinct_passages(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """The passages in their order, each once; of copies the first."""
    first: dict[Hashable, Passage] = {}
    for passage in passages:
        first.setdefault(passage.identity, passage)
    return tuple(first.values())


@dataclass(frozen=True, slots=True)
class Dropped:
    """A passage that was found but not used, and why; ``no_room`` says that the token limit left none for it."""

    passage: Passage
    reason: str
    no_room: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """A passage of which only the first ``tokens_kept`` of ``tokens`` tokens reached the model."""

    passage_id: str
    tokens_kept: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible answer. ``origin`` names its source; ``passages`` the ids that were in view."""

    text: str
    origin: Strategy
    passages: tuple[str, ...] = ()
    likelihoods: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """One rule that was applied: its formula, the numbers that went in, and what came out."""

    stage: str
    rule: str
    inputs: Mapping[str, Any]
    outcome: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer cost.

    ``calls`` are requests to a model; ``steps`` are those on the critical path, the longest chain in which each
    waited for the one before. Tokens are counted as in OpenAI's usage: ``prompt_tokens`` include ``cached_tokens``,
    those taken from a prefix or response cache; ``completion_tokens`` were generated. ``money`` is in the currency of
    the price given to the backend, None without one.
    """

    generations: int = 0
    scorings: int = 0
    inspections: int = 0
    calls: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    money: float | None = None

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that were computed."""
        return self.prompt_tokens - self.cached_tokens

    def in_words(self) -> str:
        """``1 answer · 192 prompt tokens (125 cached), 4 completion · 0.50 s``."""
        if not self.calls:
            return "no model calls"
        kinds = {"answer": self.generations, "scoring": self.scorings, "inspection": self.inspections}
        calls = ", ".join(counted(number, noun) for noun, number in kinds.items() if number)
        money = "" if self.money is None else f"{self.money:.6f}".rstrip("0").rstrip(".") + " paid"
        return " · ".join(filter(None, [calls, token_counts(self), f"{self.seconds:.2f} s", money]))


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a long answer. ``cites`` are the numbers of passages in it, from 1 in the order of ``kept``."""

    text: str
    cites: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """An answer written out, with its citations as ``[1]``. ``removed`` counts those of passages that were not read."""

    text: str
    sentences: tuple[Sentence, ...] = ()
    removed: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided for one question, and everything needed to see why.

    ``answer`` is None exactly when ``strategy`` is REFUSE. ``kept`` are the passages that reached the model, in the
    order in which it read them; ``cuts`` names those of them that were shortened. ``long`` is the answer written out,
    where that was asked for. ``trace`` is filled in by
    ``arbitrag.answer`` and holds every call, so that the verdict can be replayed.
    """

    answer: str | None
    strategy: Strategy
    why: str
    question: Question = Question("")
    method: str = ""
    candidates: tuple[Candidate, ...] = ()
    kept: tuple[Passage, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    cuts: tuple[Cut, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    notes: tuple[str, ...] = ()
    usage: Usage = Usage()
    long: LongAnswer | None = None
    trace: Any = field(default=None, repr=False, compare=False, metadata=NOT_JSON)

    def __post_init__(self) -> None:
        if (self.answer is None) != (self.strategy is Strategy.REFUSE):
            raise ValueError(f"a verdict has an answer unless it refuses; got {self.answer!r} with {self.strategy}")

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain JSON values, without its trace."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    def _repr_html_(self) -> str:
        """How a notebook shows it: a small table, in which all that others wrote is escaped (see ``display``)."""
        return table(self._rows())

    def _rows(self) -> Iterator[tuple[str, str]]:
        if self.question.text:
            yield "Question", escaped(self.question.text)
        yield "Answer", "<em>(none)</em>" if self.answer is None else f"<strong>{escaped(self.answer)}</strong>"
        yield "Trusted", self.strategy.trusted + (f" (method {escaped(self.method)})" if self.method else "")
        yield "Why", escaped(self.why)
        for candidate in self.candidates:
            yield candidate.origin.trusted.capitalize(), escaped(candidate.text) or "<em>(no answer)</em>"
        if self.kept:
            items = (
                folded(one_line(each.place or each.title or "without a name", 200), each.text) for each in self.kept
            )
            yield f"Passages ({len(self.kept)} read)", f"<ol>{''.join(items)}</ol>"
        for reason, count in Counter(each.reason for each in self.dropped).items():
            yield "Dropped", f"{count}: {escaped(reason)}"
        for note in self.notes:
            yield "Note", escaped(note)
        yield "Cost", escaped(self.usage.in_words())

"""The forms in which methods have a model reply: which lines each has, and what is made of them.

    passages        passage: one paragraph                             what memory holds; "I don't know" for nothing
    groups          group: text | sources: 1, 3, memory                documents that agree, and which they are
    consolidation   … and  drop: 2, 4 | reason: conflict               documents that were left out
    conclusion      group: text | sources: 2 | confidence: 80  …  answer: a short answer
    assessment      trust: external (memory, both, neither)  and  answer: a short answer
    answer          answer: a short answer
    EVIDENCE        evidence: some sentences from memory
    BIAS            retrieval: 70  and  generation: 30
    queries         1. a question  …                                   sub-queries, the most helpful first
    answers         1. a sentence  …                                   answers from memory to numbered questions
    reflection      contradiction: …  and  kind: factual  and  1. a question  …

``arbitrag.stages.parsing.grammar`` says how lines are read; what a form adds to its rules stands here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from arbitrag.stages.parsing.grammar import Field, Form, Found, Kind, ParseError, Value
from arbitrag.stages.parsing.values import (
    Known,
    Sources,
    answer_or_none,
    free_text,
    memory_text,
    one_of,
    percent,
    short_answer,
    sources,
)
from arbitrag.text import agree, as_option, clean_answer, normalize_answer
from arbitrag.types import Strategy

TRUST = {
    "external": Strategy.EVIDENCE,
    "memory": Strategy.MEMORY,
    "both": Strategy.BOTH,
    "neither": Strategy.REFUSE,
}
LEAST_BIAS, MOST_BIAS = 10, 90  # percent
KINDS = ("factual", "timeliness", "perspective", "completeness")  # of a contradiction


@dataclass(frozen=True, slots=True)
class Group:
    """Documents that agree: the numbers, from 1, of passages and of the model's own; ``confidence`` is in percent."""

    text: str
    passages: tuple[int, ...] = ()
    memory: tuple[int, ...] = ()
    confidence: int | None = None

    @property
    def origin(self) -> Strategy:
        """Which kind of source the group rests on."""
        if self.passages and self.memory:
            return Strategy.BOTH
        return Strategy.EVIDENCE if self.passages else Strategy.MEMORY


def joint_origin(groups: Iterable[Group]) -> Strategy:
    """Which kind of source one or more groups rest on together."""
    origins = {group.origin for group in groups}
    return origins.pop() if len(origins) == 1 else Strategy.BOTH


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Groups of documents, and why each other one was left out, by the number of the passage.

    ``own`` is the reason why the model left out what it wrote itself.
    """

    groups: tuple[Group, ...]
    dropped: tuple[tuple[int, str], ...] = ()
    own: str = ""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """An answer, None where the model declines, and the groups from which it was chosen."""

    answer: str | None
    groups: tuple[Group, ...] = ()
    strategy: Strategy = Strategy.REFUSE


@dataclass(frozen=True, slots=True)
class Bias:
    """``retrieval`` (r_p) and ``generation`` (g_p) in percent; they come to 100, except where both are 100."""

    retrieval: int
    generation: int

    def retrieved(self, queries: int) -> int:
        """How many of the queries go to the retriever: ceil(r_p · n)."""
        return -(-self.retrieval * queries // 100)

    def generated(self, queries: int) -> int:
        """How many of the queries are answered from memory: ceil(g_p · n)."""
        return -(-self.generation * queries // 100)


@dataclass(frozen=True, slots=True)
class Reflection:
    """The main contradiction between sources, its kind (one of ``KINDS``), and the questions that would settle it."""

    contradiction: str
    kind: str
    queries: tuple[str, ...]


def passages(most: int) -> Form[tuple[str, ...]]:
    """At most ``most`` passages from memory, or none where the model says that it does not know."""
    passage = Field("passage", memory_text, most=most)

    def build(found: Found) -> tuple[str, ...]:
        every = found.all(passage)
        told = tuple(text for text in every if text)
        if len(told) < len(every) and len(every) > 1:
            raise ParseError("there are passages beside one that declines")
        return told

    return Form((passage,), build, bare="I don't know")


def groups(known: Known) -> Form[tuple[Group, ...]]:
    """Groups alone; ``none`` where nothing is relevant."""
    group = Field("group", _group(known), most=None)
    return Form((group,), lambda found: found.all(group), bare="none")


def consolidation(known: Known) -> Form[Consolidation]:
    """Groups, then or between them what is dropped; ``none`` where nothing is left of the documents."""
    group = Field("group", _group(known), least=0, most=None)
    drop = Field("drop", _drop(known), least=0, most=None)

    def build(found: Found) -> Consolidation:
        dropped: dict[int, str] = {}
        own = ""
        for left_out, reason in found.all(drop):
            if (left_out.memory and own) or dropped.keys() & set(left_out.passages):
                raise ParseError("a document is dropped twice")
            dropped |= dict.fromkeys(left_out.passages, reason)
            own = reason if left_out.memory else own
        kept = found.all(group)
        if both := dropped.keys() & {number for each in kept for number in each.passages}:
            raise ParseError(f"passage {min(both)} is both in a group and dropped")
        if own and any(each.memory for each in kept):
            raise ParseError("memory is both in a group and dropped")
        return Consolidation(kept, tuple(sorted(dropped.items())), own)

    return Form((group, drop), build, bare="none")


def conclusion(known: Known, options: Sequence[str] = ()) -> Form[Conclusion]:
    """Groups with an answer and a confidence each, then the chosen answer, which is one of theirs or declines."""
    group = Field("group", _group(known, confidence=True), least=0, most=None)
    chosen = Field("answer", short_answer(options), last=True)

    def build(found: Found) -> Conclusion:
        every, answer = found.all(group), answer_or_none(found.one(chosen))
        if answer is None:
            return Conclusion(None, every)
        told = [(each, as_option(clean_answer(each.text), options)) for each in every]
        holding = [each for each, text in told if agree(text, answer)]
        holding = holding or [each for each, text in told if _overlaps(text, answer)]
        if not holding:
            raise ParseError("the answer is not the answer of a group")
        return Conclusion(answer, every, joint_origin(holding))

    return Form((group, chosen), build)


def assessment(possible: Collection[Strategy], options: Sequence[str] = ()) -> Form[Conclusion]:
    """Which source is trusted, and the answer; ``possible`` are the strategies that there is a source for."""
    trust, told = Field("trust", one_of(TRUST)), Field("answer", short_answer(options))

    def build(found: Found) -> Conclusion:
        strategy, answer = found.one(trust), answer_or_none(found.one(told))
        if answer is None:
            return Conclusion(None)
        if strategy not in possible:
            word = next(word for word, each in TRUST.items() if each is strategy)
            raise ParseError(f"trust is {word}, and there is no such source for an answer")
        return Conclusion(answer, strategy=strategy)

    return Form((trust, told), build)


def answer(options: Sequence[str] = ()) -> Form[str]:
    """A short answer; it may decline (``values.answer_or_none``)."""
    told = Field("answer", short_answer(options))
    return Form((told,), lambda found: found.one(told))


def supported_answer(groups: Sequence[Group], options: Sequence[str] = ()) -> Form[Conclusion]:
    """A short answer; its sources are those of the groups that hold it, and of all of them where none does."""
    told = Field("answer", short_answer(options))

    def build(found: Found) -> Conclusion:
        answer = answer_or_none(found.one(told))
        if answer is None:
            return Conclusion(None)
        holding = [group for group in groups if _overlaps(group.text, answer)] or groups
        return Conclusion(answer, tuple(holding), joint_origin(holding))

    return Form((told,), build)


def queries(most: int) -> Form[tuple[str, ...]]:
    """Numbered questions."""
    query = Field("", free_text, most=most)
    return Form((query,), lambda found: found.all(query))


def answers(count: int) -> Form[tuple[str, ...]]:
    """Numbered answers from memory to ``count`` questions, empty where one declines."""
    told = Field("", memory_text, least=count, most=count)
    return Form((told,), lambda found: found.all(told))


def reflection(most: int) -> Form[Reflection]:
    """The main contradiction and its kind, then numbered questions."""
    contradiction = Field("contradiction", free_text)
    kind = Field("kind", one_of({each: each for each in KINDS}))
    query = Field("", free_text, most=most, last=True)
    return Form(
        (contradiction, kind, query),
        lambda found: Reflection(found.one(contradiction), found.one(kind), found.all(query)),
    )


def _evidence() -> Form[str]:
    evidence = Field("evidence", memory_text)
    return Form((evidence,), lambda found: found.one(evidence))


def _bias() -> Form[Bias]:
    share = percent(LEAST_BIAS, MOST_BIAS)
    retrieval, generation = Field("retrieval", share), Field("generation", share)
    analysis = Field("analysis", free_text, least=0)

    def build(found: Found) -> Bias:
        bias = Bias(found.one(retrieval), found.one(generation))
        if (total := bias.retrieval + bias.generation) != 100:
            raise ParseError(f"{bias.retrieval} and {bias.generation} come to {total}, not 100")
        return bias

    return Form((retrieval, generation, analysis), build)


EVIDENCE = _evidence()  # what memory holds, empty where it declines
BIAS = _bias()  # two percentages that come to 100, with or without a line ``analysis:``


def _group(known: Known, *, confidence: bool = False) -> Kind[Group]:
    names = ("sources", "confidence") if confidence else ("sources",)

    def read(value: Value) -> Group:
        text, documents, *sure = value.cells(*names)
        named = sources(known)(documents)
        return Group(free_text(text), named.passages, named.memory, percent()(sure[0]) if sure else None)

    return read


def _drop(known: Known) -> Kind[tuple[Sources, str]]:
    def read(value: Value) -> tuple[Sources, str]:
        documents, reason = value.cells("reason")
        return sources(known)(documents), free_text(reason)

    return read


def _overlaps(left: str, right: str) -> bool:
    """Whether one of two answers is within the other as whole words."""
    one, other = f" {normalize_answer(left)} ", f" {normalize_answer(right)} "
    return one in other or other in one

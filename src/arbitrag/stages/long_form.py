"""The long form of an answer: sentences that cite the passages that were read, as ``[1]``.

It is a last step after any method, which stays as it is: the answer that was decided is written out from the passages
that the method kept. One more generation, of at most ``writing_tokens``; a refusal is not written out.

    verdict = await arbitrag.answer(question, "trustmargin", kit, form="long")
    verdict.long.text       # The film was directed by Mira Talven [2].

What the model cites is checked against what it read: a number of no passage is taken out and counted. Whether a
passage says what a sentence claims is not checked, and nothing here says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from arbitrag.kit import Kit
from arbitrag.retrieve.documents.chunking import sentences
from arbitrag.text import declines, normalize_answer, one_line, without_thoughts
from arbitrag.types import LongAnswer, Passage, Question, Sentence, Strategy, Verdict

Form = Literal["short", "long"]
FORMS: tuple[Form, ...] = ("short", "long")
EVIDENCE, MEMORY = "long/evidence", "long/memory"
_MARK = re.compile(r"[ \t]?\[(\d{1,4}(?:[,;] ?\d{1,4}){0,19})\]")
_PASSES = 5
_NO_MARKS = str.maketrans("[]", "()")
_LEADING = re.compile(r"(?:[ \t]?\[\d{1,4}\])+")


async def with_long_answer(verdict: Verdict, question: Question, kit: Kit) -> Verdict:
    """The verdict with a long-form answer added; a refusal is returned unchanged.

    Raises BackendError where the model fails, and ContextError where the question does not fit.
    """
    if verdict.answer is None:
        return replace(verdict, notes=(*verdict.notes, "nothing was written out: there is no answer"))
    tokens, short = kit.limits.writing_tokens, verdict.answer
    read: Sequence[Passage] = ()
    if verdict.strategy is not Strategy.MEMORY and verdict.kept:
        fit = await kit.llm.fit(verdict.kept, EVIDENCE, reply_tokens=tokens, question=question, answer=short)
        read = fit.kept
    prompt = (
        kit.llm.prompt(EVIDENCE, passages=tuple(read), question=question, answer=short)
        if read
        else kit.llm.prompt(MEMORY, question=question, answer=short)
    )
    reply = await kit.llm.generate(prompt, max_tokens=tokens)
    long = checked(reply.text, len(read), whole=reply.finish == "stop")
    notes = _notes(long, verdict, read, cut=reply.finish != "stop", tokens=tokens)
    return replace(verdict, long=long, notes=(*verdict.notes, *notes))


def checked(reply: str, passages: int, *, whole: bool = True) -> LongAnswer | None:
    """A reply as sentences with the passages that each cites, numbered from 1; None where nothing was written.

    A number of none of the ``passages`` is taken out of the text. Of a reply that is not ``whole`` the last sentence
    goes, unless it is the only one.
    """
    text = without_thoughts(reply).strip()
    removed = 0

    def allowed(found: re.Match[str]) -> str:
        nonlocal removed
        numbers = list(dict.fromkeys(int(each) for each in re.findall(r"\d+", found[1])))
        kept = [number for number in numbers if 1 <= number <= passages]
        removed += len(numbers) - len(kept)
        space = found[0][: found[0].index("[")]
        return space + "".join(f"[{number}]" for number in kept) if kept else ""

    for _ in range(_PASSES):  # what is taken out of [[99]7] leaves another mark
        before, text = text, _MARK.sub(allowed, text)
        if text == before:
            break
    else:
        text = text.translate(_NO_MARKS)
    pieces = _pieces(text)
    if not whole and len(pieces) > 1:
        pieces.pop()
    if not pieces or declines(text):
        return None
    told = tuple(Sentence(each, tuple(map(int, re.findall(r"\[(\d{1,4})\]", each)))) for each in pieces)
    return LongAnswer(" ".join(pieces), told, removed)


def _pieces(text: str) -> list[str]:
    """Sentences; what is cited behind a full stop belongs to the sentence before it."""
    pieces: list[str] = []
    for sentence in sentences(text):
        sentence = " ".join(sentence.split())
        if pieces and (leading := _LEADING.match(sentence)):
            pieces[-1] += f" {leading[0].strip()}"
            sentence = sentence[leading.end() :].strip()
        if sentence:
            pieces.append(sentence)
    return pieces


def _notes(long: LongAnswer | None, verdict: Verdict, read: Sequence[Passage], *, cut: bool, tokens: int) -> list[str]:
    if long is None:
        return ["the model wrote no long answer"]
    notes = []
    if not read:
        notes.append("the long answer is from memory: no passage is cited")
    if long.removed:
        notes.append(f"citations of no passage that was read, taken out: {long.removed}")
    bare = [each for each in long.sentences if not each.cites] if read else []
    if bare:
        first = one_line(bare[0].text, 60)
        notes.append(f"{len(bare)} of {len(long.sentences)} sentences cite no passage, the first: {first}")
    if len(read) < len(verdict.kept) and read:
        notes.append(
            f"the long answer was written from the first {len(read)} of {len(verdict.kept)} passages, for room"
        )
    if cut:
        notes.append(f"the long answer was cut at {tokens} tokens; give more: --writing-tokens NUMBER")
    if normalize_answer(str(verdict.answer)) not in normalize_answer(long.text):
        notes.append("the long answer does not contain the short one")
    return notes

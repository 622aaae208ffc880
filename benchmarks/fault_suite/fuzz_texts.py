"""Fuzz targets for what models, passages and users write: replies, prompts, terminals, notebooks, metrics."""

from __future__ import annotations

import random
import re
import unicodedata
from typing import Any

from fault_suite.fuzz_inputs import (
    CONTROLS,
    SHAPES,
    SPACES,
    expect,
    mutated,
    text,
)

# Unicode's Default_Ignorable_Code_Point, which fonts show as nothing.
_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_FENCE = re.compile(r"<[^\w<>‹\n]{0,9}(answer|passage|memory|group|reply)\b", re.IGNORECASE)
_TURN = re.compile(r"<\|\w{1,40}\|>|</?s>|\[/?INST\]|<</?SYS>>", re.IGNORECASE)


def replies(rng: random.Random) -> None:
    from arbitrag.stages.parsing import forms
    from arbitrag.stages.parsing.grammar import Form, ParseError
    from arbitrag.stages.parsing.values import Known
    from arbitrag.types import Strategy

    good = "\n".join(rng.choices(SHAPES[:12], k=rng.randrange(1, 5)))
    reply = mutated(rng, good) if rng.random() < 0.7 else text(rng)
    known = Known(rng.randrange(3), rng.randrange(2))
    options = ("Paris", "Rome", "İ") if rng.random() < 0.3 else ()
    possible = frozenset(Strategy) - {Strategy.REFUSE}
    every: tuple[Form[Any], ...] = (
        forms.passages(3),
        forms.consolidation(known),
        forms.groups(known),
        forms.conclusion(known, options),
        forms.assessment(possible, options),
        forms.answer(options),
        forms.BIAS,
        forms.EVIDENCE,
        forms.queries(3),
        forms.reflection(3),
        forms.answers(2),
    )
    for form in rng.sample(every, 3):
        try:
            found = form.parse(reply, good if rng.random() < 0.2 else "").value
        except ParseError as error:
            expect(
                "\n" not in str(error) and not CONTROLS.search(str(error)), f"the reason is not printable: {error!r}"
            )
            continue
        for group in getattr(found, "groups", ()):
            expect(all(1 <= number <= known.passages for number in group.passages), "a source that is not there")
            expect(group.confidence is None or 0 <= group.confidence <= 100, "a confidence beyond 100")


def answers(rng: random.Random) -> None:
    from arbitrag import text as rules

    reply = text(rng)
    answer = rules.clean_answer(reply)
    expect("\n" not in answer, f"an answer of two lines: {answer!r}")
    rules.declines(reply)
    options = [text(rng, 3) for _ in range(rng.randrange(4))]
    number = rules.choose(reply, options)
    expect(number is None or 0 <= number < len(options), "an option that is not there")
    final = rules.final_answer(answer, options)
    expect(final is None or final, "an empty answer that is not None")
    rules.normalize_answer.__wrapped__(reply)
    expect(rules.agree(reply, reply), "a text that does not agree with itself")


def long_answers(rng: random.Random) -> None:
    """Only passages that were read are cited."""
    from arbitrag.stages.long_form import checked

    passages = rng.randrange(4)
    marks = rng.choices(
        ("[1]", "[2]", "[9]", "[1, 2]", "[[9]1]", "[[99]7]", "[", "]", "1", "٣", "[٣]", ". A b.", "x"), k=6
    )
    reply = mutated(rng, "".join(marks)) if rng.random() < 0.7 else text(rng)
    found = checked(reply, passages, whole=rng.random() < 0.5)
    if found is not None:
        cited = [number for sentence in found.sentences for number in sentence.cites]
        expect(all(1 <= number <= passages for number in cited), f"{cited} of {passages} passages: {reply[:200]!r}")
        expect("\n" not in found.text, "a long answer of two lines")


def answer_metrics(rng: random.Random) -> None:
    from arbitrag.evaluate.metrics import answers as metrics
    from arbitrag.text import normalize_answer

    one, other = text(rng, 8), unicodedata.normalize("NFKC", text(rng, 4))
    expect(normalize_answer.__wrapped__(one) == normalize_answer.__wrapped__(one), "not the same twice")
    for metric in (metrics.exact_match, metrics.token_f1, metrics.hotpot_f1, metrics.substring_accuracy):
        value = metric(one, (other, "Paris"))
        expect(0.0 <= value <= 1.0, f"{metric.__name__} of {value}")


def chunking(rng: random.Random) -> None:
    from arbitrag.retrieve.documents.chunking import cut

    given = text(rng, 60)
    pieces = list(cut(given, rng.choice((16, 64))))
    squeezed = "".join("".join(piece.text for piece in pieces).split())
    expect(squeezed == "".join(given.split()) or len(squeezed) <= len(given), "cutting made text")
    for piece in pieces:
        expect(0 <= piece.offset <= len(given), "a piece beyond the text")


def terminal(rng: random.Random) -> None:
    from arbitrag.text import one_line, printable

    given = text(rng)
    shown = printable(given)
    expect(not CONTROLS.search(shown), f"not printable: {shown!r}")
    shown.encode("utf-8")
    line = one_line(given, 60)
    expect("\n" not in line and len(line) <= 60, f"not a line: {line!r}")


def verdicts(rng: random.Random) -> None:
    from arbitrag.cli.verdict import render
    from arbitrag.types import Candidate, Dropped, Passage, Strategy, Usage, Verdict

    passage = Passage(text(rng, 9), text(rng, 4), text(rng, 4), text(rng, 6), rng.choice([None, 3]))
    verdict = Verdict(
        text(rng, 9) or "x",
        Strategy.EVIDENCE,
        text(rng, 12),
        candidates=(Candidate(text(rng, 9), Strategy.MEMORY),),
        kept=(passage,),
        dropped=(Dropped(passage, text(rng, 6)),),
        notes=(text(rng, 9),),
        usage=Usage(generations=1, calls=1, prompt_tokens=2**62),
    )
    shown = render(verdict, rng.choice([40, 60, 100]))
    expect(not CONTROLS.search(shown), f"not printable: {CONTROLS.findall(shown)!r}")


def notebooks(rng: random.Random) -> None:
    """Nothing of a verdict becomes markup in a notebook."""
    from arbitrag.types import Candidate, Passage, Strategy, Verdict

    hostile = text(rng, 9) + rng.choice(("<script>", "<img onerror=x>", '" onload="', "javascript:", "&lt;", ""))
    passage = Passage(hostile, hostile, hostile, hostile)
    verdict = Verdict(
        hostile, Strategy.BOTH, hostile, candidates=(Candidate(hostile, Strategy.MEMORY),), kept=(passage,)
    )
    shown = re.sub(
        r"</?(?:table|tr|t[dh]|b|p|div|details|summary|strong|em|ol|li)(?: [^<>]*)?>", "", verdict._repr_html_()
    )
    expect("<" not in shown, f"markup: {shown[:200]!r}")


_PROMPTS: dict[str, Any] = {}
_HARMLESS = "Rivers of the north freeze over early."


def prompts(rng: random.Random) -> None:
    """Untrusted text changes neither the fences of a prompt nor the lines of its form."""
    from arbitrag.testing import prompt_text
    from arbitrag.types import Passage, Question

    book = _PROMPTS.get("book") or _PROMPTS.setdefault("book", _book())
    name = rng.choice(("rag/answer", "trustrag/assess", "astute/consolidate", "bridge/recall", "reading/repair"))
    file = _PROMPTS.get(name) or _PROMPTS.setdefault(name, book.find(name))
    hostile = text(rng)
    if rng.random() < 0.5:
        tag = "".join(
            letter + rng.choice(("", "", "", *SPACES)) for letter in rng.choice(("passage", "memory", "answer"))
        )
        hostile += rng.choice(("<", "</", "< /", "<\u200b/", "＜")) + tag + ">"

    def filled(value: str) -> str:
        fields: dict[str, Any] = {}
        for field in file.fields:
            if field == "question":
                fields[field] = Question(value)
            elif field in ("passages", "memory", "memories", "groups", "examples"):
                fields[field] = [Passage(value, title=value)] if field == "passages" else []
            else:
                fields[field] = value
        return prompt_text(file.render(**fields))

    found, right = _marks(filled(hostile)), _PROMPTS.get(f"{name} marks")
    if right is None:
        right = _PROMPTS.setdefault(f"{name} marks", _marks(filled(_HARMLESS)))
    expect(found == right, f"{name}: the fences {found} in place of {right}: {hostile!r}"[:500])


def _book() -> Any:
    from arbitrag.prompts import PromptBook

    return PromptBook()


def _marks(prompt: str) -> tuple[list[str], list[str]]:
    seen = _IGNORABLE.sub("", prompt)
    return [name.lower() for name in _FENCE.findall(seen)], _TURN.findall(seen)

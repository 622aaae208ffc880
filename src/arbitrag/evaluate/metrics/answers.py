"""Answer metrics: a prediction and its gold answers in, a score from 0 to 1 out, higher is better.

A metric is a function and a line of ``METRICS``, which reports, the command line and docs/benchmarks.md read.

A prediction of None is a refusal. A question whose gold answers are missing or all blank has no answer: refusing is
right and everything else is wrong, which is SQuAD 2.0's rule for unanswerable questions. With several gold answers the
best score counts.

Texts are compared after ``arbitrag.text.normalize_answer``. In one thing this differs from the official scripts on
purpose: of "The", "A" or "$" they leave nothing, so that all of these equal each other and an empty prediction, and a
substring search finds them everywhere. Here such a gold answer must be matched exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arbitrag.errors import DataError
from arbitrag.text import agree, choose, declines, normalize_answer, one_line, vanishes

if TYPE_CHECKING:  # the command line lists the metrics in its help, which costs nothing else
    from arbitrag.evaluate.questions import Item

_CLOSED = frozenset({"yes", "no", "noanswer"})


def exact_match(prediction: str | None, golds: Sequence[str]) -> float:
    """1 where the normalised prediction equals a normalised gold answer (EM; Rajpurkar et al. 2016)."""
    return _best(agree, prediction, golds)


def token_f1(prediction: str | None, golds: Sequence[str]) -> float:
    """F1 = 2 P R / (P + R) over the normalised words, counted with repetition (Rajpurkar et al. 2016).

    P is the share of the prediction's words that the gold answer has too, R the share of the gold answer's words that
    the prediction has. Where a text is empty it follows evaluate-v2.0: 1 if both are.
    """
    return _best(_f1, prediction, golds)


def hotpot_f1(prediction: str | None, golds: Sequence[str]) -> float:
    """``token_f1`` by the rule of HotpotQA and 2WikiMultiHopQA.

    Where either text is "yes", "no" or "noanswer", nothing but equality counts: "no one" has no word right for "no".
    """
    return _best(_hotpot_f1, prediction, golds)


def substring_accuracy(prediction: str | None, golds: Sequence[str]) -> float:
    """1 where a normalised gold answer stands anywhere in the normalised prediction (Mallen et al. 2023).

    It is kind to long replies, and to short gold answers: characters are compared, not words, so "10" is found in
    "2010". It is kept as published, for comparison with published numbers.
    """
    return _best(_contains, prediction, golds)


def mentions(prediction: str | None, answers: Sequence[str]) -> bool:
    """Whether any of ``answers`` stands in the prediction, by the rule of ``substring_accuracy``.

    A refusal mentions nothing, and blank answers are never mentioned.
    """
    return prediction is not None and any(_contains(prediction, answer) for answer in answers if answer.strip())


def multiple_choice(prediction: str | None, golds: Sequence[str], options: Sequence[str]) -> float:
    """1 where the option that the prediction chooses is a gold answer.

    A refusal chooses the option that says "I don't know", where there is one (BRIDGE's fourth option).

    Raises:
        DataError: there are no options, or none of them is a gold answer.
    """
    answers = [gold for gold in golds if gold.strip()]
    right = {number for number, option in enumerate(options) if any(agree(option, gold) for gold in answers)}
    if not options or (answers and not right):
        listed = one_line(" | ".join(options)) or "none"
        raise DataError(f"no option is the gold answer '{one_line(' | '.join(answers))}'. Options: {listed}")
    if _refuses(prediction):
        return float(not answers or any(declines(options[number]) for number in right))
    return float(choose(prediction or "", options) in right)


@dataclass(frozen=True, slots=True)
class Metric:
    """An answer metric by name. ``score(prediction, item)`` is from 0 to 1, higher is better.

    ``title`` is its name in reports. A ``binary`` one scores 0 or 1 and so tells right from wrong; one that
    ``needs_options`` is defined only for multiple choice.
    """

    name: str
    title: str
    description: str
    score: Callable[[str | None, Item], float]
    binary: bool = True
    needs_options: bool = False

    def __call__(self, answer: str | None, item: Item) -> float:
        """The score of an answer; None is a refusal, which scores 1 where refusing is right."""
        if answer is None and item.refusing_is_right:
            return 1.0
        return self.score(answer, item)


def _of_answers(score: Callable[[str | None, Sequence[str]], float]) -> Callable[[str | None, Item], float]:
    """A score by the gold answers alone, as one by the item."""
    return lambda answer, item: score(answer, item.answers)


def _of_options(answer: str | None, item: Item) -> float:
    return multiple_choice(answer, item.answers, item.question.options)


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("em", "EM", "the answer equals a gold answer after normalisation", _of_answers(exact_match)),
        Metric("f1", "F1", "F1 over the words of answer and gold answer", _of_answers(token_f1), binary=False),
        Metric("hotpot_f1", "F1 (HotpotQA)", "F1, but yes and no must be equal", _of_answers(hotpot_f1), binary=False),
        Metric("contains", "Contains", "the answer contains a gold answer", _of_answers(substring_accuracy)),
        Metric("choice", "Choice", "the chosen option is a gold answer", _of_options, needs_options=True),
    )
}


def _refuses(prediction: str | None) -> bool:
    return prediction is None or not prediction.strip()


def _best(score: Callable[[str, str], float], prediction: str | None, golds: Sequence[str]) -> float:
    answers = [gold for gold in golds if gold.strip()]
    if prediction is None or not prediction.strip():
        return float(not answers)
    best = 0.0
    for answer in answers:
        best = max(best, float(score(prediction, answer)))
        if best == 1:
            break
    return best


def _f1(prediction: str, gold: str) -> float:
    if vanishes(gold):
        return float(agree(prediction, gold))
    predicted, wanted = normalize_answer(prediction).split(), normalize_answer(gold).split()
    if predicted == wanted:
        return 1.0
    same = sum(min(predicted.count(word), wanted.count(word)) for word in {*predicted}.intersection(wanted))
    if not same:
        return 0.0
    precision, recall = same / len(predicted), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


def _hotpot_f1(prediction: str, gold: str) -> float:
    if _CLOSED & {normalize_answer(prediction), normalize_answer(gold)}:
        return float(agree(prediction, gold))
    return _f1(prediction, gold)


def _contains(prediction: str, gold: str) -> bool:
    if vanishes(gold):
        return agree(prediction, gold)
    return normalize_answer(gold) in normalize_answer(prediction)

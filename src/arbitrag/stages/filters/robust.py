"""The filter ``robust``: TrustRAG's first stage without the faults of its authors' code (the filter ``reference``).

It drops a passage that repeats the question word for word, as poison does that was made to be found; of passages that
say the same it keeps the first, so that a text planted five times counts once. Copies go and the original stays:
without echoes of the question something is always left.

Two passages say the same when their ROUGE-L F1 is above 0.15 and their cosine above what clean passages have. That
cosine depends on the encoder; ``CALIBRATED`` has it for those that it was measured for, and ``calibrate`` measures it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from arbitrag.errors import UsageError
from arbitrag.kit import Kit
from arbitrag.stages.filters.base import Filtered, filtered
from arbitrag.stages.filters.rouge import rouge_l, words
from arbitrag.types import Decision, Need, Passage, Question

if TYPE_CHECKING:
    import numpy as np

OVERLAP = 0.15  # ROUGE-L F1 of passages that may say the same
UNKNOWN = 0.88  # the cosine for an encoder that was not measured: the reference's
# By the encoder's name; measured on search results of 100 RealTime QA questions (0.70 for five of each, 0.77 for ten).
CALIBRATED: Mapping[str, float] = {"hash": 0.75}
_ECHO = 3  # words; a shorter question stands in many an honest text


@dataclass(frozen=True)
class RobustFilter:
    """Drop what looks planted; ``similar`` is the cosine of copies, 0 for the one that belongs to the encoder."""

    name: ClassVar[str] = "robust"
    needs: ClassVar[Need] = Need.ENCODE

    similar: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.similar <= 1:
            raise UsageError(f"the filter robust: similar is a cosine from 0 to 1; got {self.similar:g}")

    async def keep(self, question: Question, passages: Sequence[Passage], kit: Kit) -> Filtered:
        if not passages:
            return Filtered(())
        similar = self.similar or similar_for(kit.encoder.name if kit.encoder else "")
        return robust(question, passages, await kit.embed(passages), similar)


def robust(question: Question, passages: Sequence[Passage], vectors: np.ndarray, similar: float) -> Filtered:
    """Drop echoes of the question and repetitions; ``vectors`` are the unit vectors (passages, width).

    ``similar`` is the cosine above which passages may say the same. In order, each passage is compared with those kept.
    """
    import numpy as np

    texts = [words(passage.text) for passage in passages]
    asked = words(question.text)
    cosine = vectors @ vectors.T
    np.fill_diagonal(cosine, 0.0)  # nothing is a repetition of itself
    near = cosine > similar
    overlap = rouge_l(texts, near)
    reasons: dict[int, str] = {}
    kept: list[int] = []
    echoes = 0
    for number, text in enumerate(texts):
        if len(asked) >= _ECHO and _contains(text, asked):
            reasons[number] = "repeats the question word for word"
            echoes += 1
            continue
        alike = [other for other in kept if text == texts[other] or overlap[number, other] > OVERLAP]
        if alike:
            reasons[number] = f"says the same as passage {alike[0] + 1}"
        else:
            kept.append(number)
    decision = Decision(
        "filter",
        f"no echo of the question; of passages with ROUGE-L > {OVERLAP} and cosine > {similar:g} only the first",
        {
            "passages": len(texts),
            "echoes": echoes,
            "repetitions": len(reasons) - echoes,
            "highest_cosine": float(cosine.max(initial=0.0)),
            "highest_rouge": float(overlap.max(initial=0.0)),  # of those above the cosine
        },
        f"{len(kept)} of {len(texts)} kept",
    )
    return filtered(passages, reasons, decision)


def similar_for(encoder: str) -> float:
    """The cosine above which passages may say the same, by the name of the encoder."""
    return CALIBRATED.get(encoder, UNKNOWN)


def calibrate(questions: Sequence[np.ndarray], quantile: float = 0.90) -> float:
    """The cosine below which clean passages stay, from the unit vectors (passages, width) of several questions.

    It is the quantile, over all passages, of the cosine with the passage of the same question that is most alike.
    """
    import numpy as np

    best: list[float] = []
    for vectors in questions:
        cosines = vectors @ vectors.T
        np.fill_diagonal(cosines, -np.inf)
        if len(vectors) > 1:
            best += cosines.max(axis=1).tolist()
    return float(np.quantile(best, quantile))


def _contains(text: Sequence[str], part: Sequence[str]) -> bool:
    return any(text[at : at + len(part)] == part for at in range(len(text) - len(part) + 1))

"""The filter ``reference``: TrustRAG's first stage as its authors' code decides, in the order of retrieval.

    no pair of passages has ROUGE-L F1 > 0.25                  keep all
    2-means of the standardised vectors; the density of a cluster is its mean pairwise cosine
    one cluster is a single passage: the other's density > 0.88 drops it, and the single one too if it is that near
                                     to its first passage; otherwise the single one is dropped
    both densities > 0.88                                      drop all
    the higher density >= 0.88                                 drop that cluster, and repetitions in the other
    otherwise                                                  drop repetitions in each cluster

A repetition has ROUGE-L F1 > 0.25 with a later passage of its cluster, or with the first repeated one; both of a pair
are dropped. Of two passages that overlap, the first is dropped.

Reference: HuichiZhou/TrustRAG@11dcea0 defend_module.py. Difference: where every passage has the same vector the
reference raises an error; here the first is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from arbitrag.encode.base import unit_rows
from arbitrag.kit import Kit
from arbitrag.stages.filters.base import Filtered, filtered
from arbitrag.stages.filters.rouge import ascii_words, rouge_l
from arbitrag.stages.filters.two_means import standardised, two_means
from arbitrag.types import Decision, Need, Passage, Question

if TYPE_CHECKING:
    import numpy as np

OVERLAP = 0.25
DENSE = 0.88

_REPEATED = f"ROUGE-L above {OVERLAP} with another passage of its cluster"


@dataclass(frozen=True)
class ReferenceFilter:
    """Decide as TrustRAG's authors' code does."""

    name: ClassVar[str] = "reference"
    needs: ClassVar[Need] = Need.ENCODE

    async def keep(self, question: Question, passages: Sequence[Passage], kit: Kit) -> Filtered:
        return reference(passages, await kit.embed(passages)) if passages else Filtered(())


def reference(passages: Sequence[Passage], vectors: np.ndarray) -> Filtered:
    """``vectors`` are the passages' embeddings, shape (passages, width)."""
    import numpy as np

    overlap = rouge_l([ascii_words(passage.text) for passage in passages])
    highest = float(overlap[~np.eye(len(passages), dtype=bool)].max(initial=0.0))
    if highest <= OVERLAP:
        return filtered(passages, {}, _decision({"highest_rouge": highest}, passages, 0))
    rows = standardised(vectors)
    if not rows.any():
        reasons = dict.fromkeys(range(1, len(passages)), "has the same vector as the first passage")
        return filtered(passages, reasons, _decision({"highest_rouge": highest}, passages, len(reasons)))

    split = two_means(rows)
    clusters = [np.flatnonzero(~split).tolist(), np.flatnonzero(split).tolist()]
    unit = unit_rows(vectors)
    cosine = unit @ unit.T
    densities = [_density(cosine, cluster) for cluster in clusters]
    reasons = _reasons(clusters, densities, cosine, overlap)
    inputs: dict[str, object] = {"highest_rouge": highest}
    for name, cluster, density in zip(("first", "second"), clusters, densities, strict=True):
        inputs |= {f"{name}_cluster": [number + 1 for number in cluster], f"{name}_density": density}
    return filtered(passages, reasons, _decision(inputs, passages, len(reasons)))


def _reasons(
    clusters: Sequence[list[int]], densities: Sequence[float | None], cosine: np.ndarray, overlap: np.ndarray
) -> dict[int, str]:
    """Why passages are dropped, by position."""
    first, second = densities
    if first is None or second is None:
        return _single(clusters, densities, cosine)
    low, high = (0, 1) if second > first else (1, 0)
    dense = dict.fromkeys(clusters[high], f"in a cluster of density {densities[high]:.2f}")
    if min(first, second) > DENSE:
        return dense | dict.fromkeys(clusters[low], f"in a cluster of density {densities[low]:.2f}")
    repeated = dict.fromkeys(_repetitions(clusters[low], overlap), _REPEATED)
    if max(first, second) >= DENSE:
        return dense | repeated
    return repeated | dict.fromkeys(_repetitions(clusters[high], overlap), _REPEATED)


def _single(clusters: Sequence[list[int]], densities: Sequence[float | None], cosine: np.ndarray) -> dict[int, str]:
    """The rule for a cluster of one passage beside one of several, or of one."""
    one, many = (0, 1) if densities[0] is None and densities[1] is not None else (1, 0)
    density = densities[many]
    if density is None or density <= DENSE:
        return dict.fromkeys(clusters[one], "alone in its cluster")
    dropped = dict.fromkeys(clusters[many], f"in a cluster of density {density:.2f}")
    near = float(cosine[clusters[many][0], clusters[one][0]])
    if near > DENSE:
        dropped |= dict.fromkeys(clusters[one], f"cosine {near:.2f} with a dense cluster")
    return dropped


def _repetitions(cluster: Sequence[int], overlap: np.ndarray) -> set[int]:
    """Passages of a cluster that repeat another one, found in order as the reference does."""
    gone: set[int] = set()
    first: int | None = None  # that was found repeated
    for position, number in enumerate(cluster):
        if number in gone:
            continue
        later = next((other for other in cluster[position + 1 :] if overlap[number, other] > OVERLAP), None)
        if later is not None:
            gone |= {number, later}
            first = number if first is None else first
        if first is not None and overlap[number, first] > OVERLAP:
            gone.add(number)
    return gone


def _density(cosine: np.ndarray, cluster: Sequence[int]) -> float | None:
    """The mean cosine of the pairs in a cluster; None where it has no pair."""
    pairs = [float(cosine[a, b]) for at, a in enumerate(cluster) for b in cluster[at + 1 :]]
    return sum(pairs) / len(pairs) if pairs else None


def _decision(inputs: dict[str, object], passages: Sequence[Passage], dropped: int) -> Decision:
    rule = f"ROUGE-L above {OVERLAP} calls for 2-means; a cluster of density {DENSE} is dropped"
    return Decision("filter", rule, inputs, f"{len(passages) - dropped} of {len(passages)} kept")

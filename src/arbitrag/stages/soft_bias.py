"""How far a question rests on retrieval and how far on memory, in percent: BRIDGE's soft bias (r_p and g_p)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from arbitrag.errors import DataError
from arbitrag.kit import Kit
from arbitrag.prompts import Block
from arbitrag.serialization import from_plain
from arbitrag.stages.parsing.forms import BIAS, LEAST_BIAS, MOST_BIAS, Bias
from arbitrag.stages.parsing.grammar import Parsed
from arbitrag.stages.structured import ask_structured
from arbitrag.storage.jsonl import json_objects
from arbitrag.text import one_line
from arbitrag.types import Decision, Passage, Question, Strategy

STAGE = "soft bias"  # of the decision that holds the two numbers
EXAMPLES = "bridge/examples"  # the pool that comes with the prompts, examples.jsonl beside them

_STRATEGIES: Mapping[str, Strategy] = {
    **{each.value: each for each in Strategy},
    **dict(zip(("FA", "FI", "FE", "RA"), Strategy, strict=True)),
}


EVEN = Bias(50, 50)  # where the allocator gave nothing to read
UNBIASED = Bias(100, 100)  # without an allocator


def bias_of(strategy: Strategy) -> Bias:
    """The hard label of a question, made soft: memory serves both and memory, retrieval serves evidence and refuse."""
    memory = strategy in (Strategy.BOTH, Strategy.MEMORY)
    return Bias(LEAST_BIAS, MOST_BIAS) if memory else Bias(MOST_BIAS, LEAST_BIAS)


async def allocate(question: Question, kit: Kit, *, shots: int, examples: str) -> Parsed[Bias]:
    """Ask the model what a question rests on, with the labelled questions nearest to it in view: 1 call."""
    blocks = await nearest_examples(kit, question.text, shots, examples)
    return await ask_structured(kit.llm, "bridge/allocate", BIAS, question, examples=blocks)


async def nearest_examples(kit: Kit, question: str, k: int, path: str) -> tuple[Block, ...]:
    """The ``k`` labelled questions most like this one, as items of a prompt, the most alike last, beside the question.

    Raises DataError when the file cannot be read.
    """
    pool, read = pool_of(kit, path)
    found = await kit.nearest(question, k, pool, read)
    biases = [bias_of(Strategy(each.metadata["strategy"])) for each in found]
    return tuple(
        Block(
            "example",
            {"text": each.text, "retrieval": str(bias.retrieval), "generation": str(bias.generation)},
        )
        for each, bias in reversed(list(zip(found, biases, strict=True)))
    )


def pool_of(kit: Kit, path: str) -> tuple[str, Callable[[], Sequence[Passage]]]:
    """The name of the pool of examples, and how it is read: a file, or the one beside the model's prompts."""
    if path:
        return path, partial(read_examples, Path(path))
    folders = kit.llm.book.folders
    beside = (each for folder in folders if (each := folder / f"{EXAMPLES}.jsonl").is_file())
    return EXAMPLES, lambda: read_examples(next(beside))


@dataclass(frozen=True)
class _Row:
    question: str
    strategy: str


def read_examples(path: Path) -> tuple[Passage, ...]:
    """Labelled questions, a JSON object on each line: ``{"question": "…", "strategy": "FE"}``.

    A strategy is one of FA, FI, FE and RA, or of both, memory, evidence and refuse. Raises DataError for a file that
    cannot be read, holds none, or has a line that is not one.
    """
    found = tuple(_example(path, number, plain) for number, plain in json_objects(path))
    if not found:
        raise DataError(f'{path} has no examples; a line is {{"question": "…", "strategy": "FE"}}')
    return found


def _example(path: Path, number: int, plain: dict[str, Any]) -> Passage:
    try:
        row = from_plain(_Row, plain)
    except ValueError as error:
        raise DataError(f"{path} line {number}: {one_line(str(error), 200)}") from None
    if row.strategy not in _STRATEGIES or not row.question.strip():
        known = ", ".join(_STRATEGIES)
        raise DataError(
            f"{path} line {number}: a question and a strategy ({known}); found '{one_line(row.strategy, 40)}'"
        )
    return Passage(row.question, id=str(number), metadata={"strategy": _STRATEGIES[row.strategy].value})


def recorded_bias(decisions: Sequence[Decision]) -> Bias:
    """The bias that a verdict was decided by, out of its decisions. Raises ValueError when it is not there."""
    for decision in decisions:
        if decision.stage == STAGE:
            return Bias(decision.inputs["retrieval"], decision.inputs["generation"])
    raise ValueError("no soft bias was recorded")

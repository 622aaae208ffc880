"""TrustMargin at about the price of plain RAG: the answer and all four scorings with passages share one long prefill.

Random weights, 106 million parameters (57 million with --quick), CPU, 20 passages, about 2,000 prompt tokens,
completions of 32 tokens. With ``--reference DIR`` (a checkout of mojixu/TrustMargin at c32b114) the published code runs
the same model on the same questions, against its own plain RAG.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.bench import Bench, alternate
from harness.random_llama import LAYERS, QUICK_LAYERS, engine_of, lab_codec, random_llama, random_text

from arbitrag.kit import Kit, Limits
from arbitrag.lab.model import FOLDER
from arbitrag.methods.rag import Rag
from arbitrag.methods.trustmargin import TrustMargin
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.run import answer
from arbitrag.types import Passage

PASSAGES, WORDS, ANSWER = 20, 38, 32
Case = tuple[str, list[str]]


def cases(seed: int) -> Iterator[Case]:
    """Questions with their passages, never the same twice."""
    draw = random.Random(seed)
    while True:
        yield random_text(draw, 10), [random_text(draw, WORDS) for _ in range(PASSAGES)]


def our_side(model: Any, method: Rag | TrustMargin, seed: int, run: Callable[[Any], Any], read: list[int]) -> Any:
    """Answers the next question on each call; ``read`` collects the prompt tokens of the passage prompt."""
    engine, questions = engine_of(model, lab_codec()), cases(seed)
    limits = Limits(context_tokens=4000, answer_tokens=ANSWER)

    def ask() -> None:
        question, texts = next(questions)
        kit = Kit.of(engine, FixedRetriever([Passage(text) for text in texts]), limits=limits)
        verdict = run(answer(question, method, kit))
        calls = verdict.trace.calls
        read.append(max(call.prompt_tokens for call in calls if call.kind == "generate"))
        scorings = verdict.usage.scorings
        if isinstance(method, TrustMargin) and scorings != 6:
            raise SystemExit(f"the two answers were not compared ({scorings} scorings); use another --seed")

    return ask


def reference_sides(model: Any, folder: Path, seed: int) -> list[Callable[[], None]]:
    """The published TrustMargin and its plain RAG, on the same model and questions."""
    sys.path.insert(0, str(folder / "src"))
    import trustmargin as published  # type: ignore[import-not-found]
    from basic import Block, Segment  # type: ignore[import-not-found]
    from transformers import GenerationConfig, PreTrainedTokenizerFast

    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_file=str(FOLDER / "tokenizer.json"), pad_token="<pad>"
    )
    settings = GenerationConfig(max_new_tokens=ANSWER)  # type: ignore[no-untyped-call]

    def side(whole: bool) -> Callable[[], None]:
        questions = cases(seed)

        def ask() -> None:
            question, texts = next(questions)
            box = published.TrustMarginModelBox(
                model, tokenizer, {"contents": {"context": texts}}, generation_config=settings, max_context_len=4000
            )
            if whole:
                box._predict(Block([Segment(question)]))
            else:
                box._generate_answer(question, texts)

        return ask

    return [side(True), side(False)]


def main() -> None:
    bench = Bench("trustmargin_cost", __doc__, packages=("torch", "transformers"))
    bench.parser.add_argument("--reference", type=Path, help="a checkout of mojixu/TrustMargin")
    seed, folder = bench.options.seed, bench.options.reference
    layers = bench.pick(smoke=2, quick=QUICK_LAYERS, full=LAYERS)
    model = random_llama(seed, layers=layers)
    tokens: list[int] = []
    with asyncio.Runner() as runner:
        sides = [
            our_side(model, method, seed, runner.run, tokens) for method in (TrustMargin(k=PASSAGES), Rag(k=PASSAGES))
        ]
        if folder is not None:
            sides += reference_sides(model, folder, seed)
        times = alternate(
            *sides, rounds=bench.pick(smoke=1, quick=3, full=7), warm_up=bench.pick(smoke=0, quick=1, full=1)
        )
    bench.ratio("TrustMargin / plain RAG", times[0], times[1], at_most=1.35)
    if folder is not None:
        bench.ratio("the same, published code", times[2], times[3])
        bench.ratio("TrustMargin, ours / published", times[0], times[2])
    bench.finish(passages=PASSAGES, prompt_tokens=max(tokens), answer_tokens=ANSWER, layers=layers)


if __name__ == "__main__":
    main()

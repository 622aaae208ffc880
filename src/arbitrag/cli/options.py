"""Options that several commands share, read into the parts that they name."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeVar

import typer

from arbitrag.cli.config import Configuration
from arbitrag.cli.terminal import completion
from arbitrag.cli.terminal.arguments import typed
from arbitrag.registry import ENCODERS, INDEXES, LLMS, forms
from arbitrag.text import listed

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder as Encoded
    from arbitrag.kit import Kit
    from arbitrag.llm.base import Price
    from arbitrag.llm.budget import Budget
    from arbitrag.methods.base import Method
    from arbitrag.types import Passage

Address = Annotated[
    str | None,
    typer.Option(
        "--llm",
        metavar="ADDRESS",
        autocompletion=completion.models,
        help=f"The model: {listed(forms(LLMS), 'or')}.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        autocompletion=completion.settings,
        help="A setting of the method, such as threshold=-1.0. Repeatable.",
    ),
]
Index = Annotated[
    str | None,
    typer.Option("--index", metavar="ADDRESS", help=f"Made by arbitrag index; or {', '.join(forms(INDEXES))}."),
]
Encoder = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="ADDRESS",
        autocompletion=completion.encoders,
        help=f"For vectors: {', '.join(forms(ENCODERS))}.",
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        "--mode",
        metavar="NAME",
        autocompletion=completion.modes,
        help="Search an index with vectors by bm25, dense or hybrid.",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="KEY=VALUE", help="Only passages whose metadata says so. Repeatable."),
]
MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", min=1, metavar="NUMBER", help="Stop before prompts and completions have more in all."),
]
MaxCost = Annotated[
    float | None,
    typer.Option("--max-cost", metavar="MONEY", help="Stop before the run cost more in all; needs --price."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class _Closed(Protocol):
    async def aclose(self) -> None: ...


T = TypeVar("T", bound=_Closed)


@dataclass(frozen=True)
class Parts:
    """What a run is made of, as it was typed."""

    method: str
    changes: Sequence[str]
    llm: str | None
    scorer: str | None
    index: str | None
    encoder: str | None
    mode: str | None
    where: Sequence[str]
    passages: Path | None
    cache: Path | None
    wording: Path | None
    context_tokens: int
    answer_tokens: int
    writing_tokens: int
    price: str | None
    form: Literal["short", "long"] = "short"
    configuration: Configuration = field(default_factory=Configuration)

    def chosen(self) -> Method:
        """The method with its settings; raises UsageError for an unknown name, option or value."""
        from arbitrag.methods import configured
        from arbitrag.methods.base import name_and_options

        name, options = name_and_options(self.configuration.settled(self.method))  # rag, or "rag k=5"
        return configured(name, {**options, **pairs_from(self.changes, "--set", "threshold=-1.0")}, typed=True)

    def model(self) -> str:
        """The address of the model; raises UsageError where none is named."""
        return model_from(self.llm)

    @asynccontextmanager
    async def kit(self, given: Sequence[Passage] | None = None) -> AsyncIterator[Kit]:
        """A kit of these parts, opened for the length of a block; ``given`` passages stand where no others are."""
        from arbitrag.encode import open_encoder
        from arbitrag.kit import Limits
        from arbitrag.llm import open_llm
        from arbitrag.run import open_kit
        from arbitrag.storage.jsonl import read_passages

        source = self.configuration.source
        async with AsyncExitStack() as opened:

            def part(option: str, address: str | None, open_part: Callable[..., T]) -> T | str | None:
                """What a file that was found names is opened here, with the mark of that; the rest by the kit."""
                if address is None or source(option) is None:
                    return address
                found = open_part(address, source=source(option))
                opened.push_async_callback(found.aclose)
                return found

            llm = part("--llm", self.model(), open_llm) or self.model()
            price = None if self.price is None else price_from(self.price)
            if not isinstance(llm, str):
                llm.price, price = price, None
            yield await opened.enter_async_context(
                open_kit(
                    llm,
                    index=self.index,
                    encoder=part("--encoder", self.encoder, open_encoder),
                    mode=self.mode,
                    where=pairs_from(self.where, "--where", "language=en"),
                    passages=given if self.passages is None else read_passages(self.passages),
                    scorer=part("--scorer", self.scorer, open_llm),
                    limits=Limits(self.context_tokens, self.answer_tokens, self.writing_tokens),
                    wording=self.wording,
                    cache=self.cache,
                    price=price,
                )
            )


def encoder_from(configuration: Configuration, address: str | None) -> str | Encoded | None:
    """An encoder as it is to be opened: one that a found file names is opened here, with the mark of that."""
    from arbitrag.encode import open_encoder

    source = configuration.source("--encoder")
    return address if address is None or source is None else open_encoder(address, source=source)


NO_MODEL = """no model is named, and none answers unasked. Name one:
  --llm openai:gpt-4o-mini   or openai:MODEL@http://localhost:8000/v1
  --llm hf:Qwen/Qwen3-0.6B   a model in this process
  --llm lab                  the embedded model; it knows only its own world
Not each time: export ARBITRAG_LLM=..., or llm = "..." in arbitrag.toml
For a first look, type: arbitrag demo"""


def model_from(typed: str | None) -> str:
    """The address of the model that was typed. This is the one place where another than that may come from."""
    from arbitrag.errors import UsageError

    if typed is None:
        raise UsageError(NO_MODEL)
    return typed


def pairs_from(given: Sequence[str] | None, option: str, example: str) -> dict[str, str]:
    """``["threshold=-1"]`` as names and values; raises UsageError for one without a name or ``=``."""
    from arbitrag.errors import UsageError

    found: dict[str, str] = {}
    for argument in given or ():
        pair = typed(argument) or ""
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise UsageError(f"{option} takes NAME=VALUE, such as {example}; got '{pair}'")
        found[name] = value
    return found


def budget_from(max_tokens: int | None, max_cost: float | None) -> Budget | None:
    """The limits that were typed; None without one. Raises UsageError for a cost that is none."""
    from arbitrag.errors import UsageError
    from arbitrag.llm.budget import Budget

    if max_cost is not None and not (math.isfinite(max_cost) and max_cost > 0):
        raise UsageError(f"--max-cost takes an amount of money above 0; got {max_cost:g}")
    return None if max_tokens is None and max_cost is None else Budget(max_tokens, max_cost)


def price_from(text: str) -> Price:
    """``PROMPT,COMPLETION`` or ``PROMPT,COMPLETION,CACHED``, in money per million tokens."""
    from arbitrag.errors import UsageError
    from arbitrag.llm.base import Price

    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3) or not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise UsageError(
            f"--price takes PROMPT,COMPLETION in money per million tokens, such as 0.15,0.60; got '{text}'"
        )
    return Price(*numbers)

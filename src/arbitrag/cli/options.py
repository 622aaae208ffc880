"""Options that several commands share, read into the parts that they name."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from arbitrag.cli.config import Configuration
from arbitrag.cli.terminal import completion
from arbitrag.cli.terminal.arguments import typed
from arbitrag.run_options import OPTIONS, RunOptions, flag

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder as Encoded
    from arbitrag.kit import Kit, Limits
    from arbitrag.llm.base import Price
    from arbitrag.llm.budget import Budget
    from arbitrag.methods.base import Method
    from arbitrag.stages.long_form import Form
    from arbitrag.types import Passage


def option(name: str, command: str = "ask") -> Any:
    """An option of a run as typer takes it, with what its declaration in RunOptions says of a command."""
    declared = OPTIONS[name].of(command)
    return typer.Option(
        flag(name),
        metavar=declared.metavar,
        help=declared.help,
        min=declared.least,
        autocompletion=getattr(completion, declared.completes) if declared.completes else None,
    )


def default(name: str, command: str = "ask") -> Any:
    """What stands where an option was not typed."""
    return OPTIONS[name].of(command).default


Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        autocompletion=completion.settings,
        help="A setting of the method, such as threshold=-1.0. Repeatable.",
    ),
]
Index = Annotated[str | None, option("index")]
Encoder = Annotated[str | None, option("encoder")]
Mode = Annotated[str | None, option("mode")]
Where = Annotated[list[str] | None, option("where")]
MaxTokens = Annotated[int | None, option("max_tokens")]
MaxCost = Annotated[float | None, option("max_cost")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class _Closed(Protocol):
    async def aclose(self) -> None: ...


T = TypeVar("T", bound=_Closed)


@dataclass(frozen=True, kw_only=True)
class AskOptions(RunOptions):
    """The options of ``ask``, with the settings of the method that were typed, and what is set elsewhere."""

    changes: Sequence[str] = ()
    configuration: Configuration = field(default_factory=Configuration)

    @property
    def method_named(self) -> str:
        return self.method or str(default("method"))

    @property
    def form(self) -> Form:
        return "long" if self.answer == "long" else "short"

    def chosen(self) -> Method:
        """The method with its settings; raises UsageError for an unknown name, option or value."""
        from arbitrag.methods import configured
        from arbitrag.methods.base import name_and_options

        name, options = name_and_options(self.configuration.settled(self.method_named))  # rag, or "rag k=5"
        return configured(name, {**options, **pairs_from(self.changes, "--set", "threshold=-1.0")}, typed=True)

    def model(self) -> str:
        """The address of the model; raises UsageError where none is named."""
        return model_from(self.llm)

    @asynccontextmanager
    async def kit(self, given: Sequence[Passage] | None = None) -> AsyncIterator[Kit]:
        """A kit of these parts, opened for the length of a block; ``given`` passages stand where no others are."""
        from arbitrag.encode import open_encoder
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
                    passages=given if self.passages is None else read_passages(Path(self.passages)),
                    scorer=part("--scorer", self.scorer, open_llm),
                    limits=limits_of(self),
                    wording=self.wording,
                    cache=self.cache,
                    price=price,
                )
            )


def limits_of(options: RunOptions) -> Limits:
    """The limits of a run; those that were not given are the usual ones."""
    from arbitrag.kit import Limits

    given = {each.name: getattr(options, each.name) for each in fields(Limits)}
    return Limits(**{name: value for name, value in given.items() if value is not None})


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

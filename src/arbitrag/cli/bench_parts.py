"""The parts of a run as they were typed, and what the run file remembers of them.

A run goes on with what it began with: an option that is not typed is the file's, and only then the default. Addresses
of servers may hold secrets and are not kept; what identifies them is (see ``evaluate.plan``), so one that is typed
again must be the same.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from arbitrag.cli.parts import pairs_from, price_from

if TYPE_CHECKING:
    from arbitrag.evaluate.plan import Passages
    from arbitrag.kit import Kit
    from arbitrag.llm.base import LLM

_USER = re.compile(r"://[^/\s@]*@")
_QUERY = re.compile(r"(://[^\s?]*)\?\S*")


@dataclass(frozen=True)
class Options:
    """What all systems of a run share; None is what was not typed."""

    index: str | None = None
    encoder: str | None = None
    mode: str | None = None
    where: Sequence[str] | None = None
    passages: str | None = None
    scorer: str | None = None
    cache: str | None = None
    wording: str | None = None
    context_tokens: int | None = None
    answer_tokens: int | None = None
    writing_tokens: int | None = None
    retries: int | None = None
    seed: int | None = None
    deterministic: bool | None = None

    def over(self, remembered: Mapping[str, Any]) -> Options:
        """With what was not typed taken from a run file."""
        known = {each.name: remembered.get(each.name) for each in fields(self) if getattr(self, each.name) is None}
        return replace(self, **known)

    def remembered(self) -> dict[str, Any]:
        """As plain JSON values for a run file, without what may hold a secret."""
        typed = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in typed.items()
            if value is not None and "://" not in str(value)
        }


def without_secrets(words: Sequence[str]) -> str:
    """A command line for the record: without users, passwords and queries in addresses."""
    import shlex

    return shlex.join(_QUERY.sub(r"\1?[hidden]", _USER.sub("://[hidden]@", word)) for word in words)


@asynccontextmanager
async def open_kits(
    llms: Sequence[str], options: Options, *, passages: Passages, prices: Mapping[str, str], concurrency: int
) -> AsyncIterator[list[Kit]]:
    """A kit for each model; retriever, encoder and scorer are the same in all."""
    from arbitrag.kit import Limits
    from arbitrag.run import open_kit

    async with AsyncExitStack() as opened:

        def model(address: str) -> LLM:
            backend = _opened(address, options, concurrency)
            opened.push_async_callback(backend.aclose)
            return backend

        scorer = None if options.scorer is None else model(options.scorer)
        wanted = {each.name: getattr(options, each.name) for each in fields(Limits)}
        limits = Limits(**{name: value for name, value in wanted.items() if value is not None})
        evidence: dict[str, Any] = {"index": options.index, "encoder": options.encoder, "mode": options.mode}
        if passages == "given":
            evidence = {"passages": (), "encoder": options.encoder}
        kits: list[Kit] = []
        for address in llms:
            backend = model(address)
            if address in prices:
                backend.price = price_from(prices[address])
            kit = await opened.enter_async_context(
                open_kit(
                    backend,
                    **evidence,
                    where=pairs_from(options.where, "--where", "language=en"),
                    scorer=scorer,
                    limits=limits,
                    wording=options.wording,
                    cache=options.cache,
                )
            )
            evidence = {"retriever": kit.retriever, "encoder": kit.encoder}
            kits.append(kit)
        yield kits


def _opened(address: str, options: Options, concurrency: int) -> LLM:
    from arbitrag.llm import open_llm

    kind = address.partition(":")[0]
    if kind == "openai":
        retries: dict[str, Any] = {} if options.retries is None else {"retries": options.retries}
        return open_llm(address, concurrency=concurrency, **retries)
    own_process = kind in ("lab", "onnx") and "own_process=" not in address  # which then says so itself
    wanted: dict[str, Any] = {"own_process": own_process, "deterministic": bool(options.deterministic)}
    return open_llm(address, **{name: value for name, value in wanted.items() if value})


def prices_of(llms: Sequence[str], typed: Sequence[str]) -> dict[str, str]:
    """What was typed as the price of each model. Raises UsageError for another number of them, or for none."""
    from arbitrag.errors import UsageError

    if len(typed) not in (0, 1, len(llms)):
        raise UsageError(f"--price stands once for all models, or once for each; got {len(typed)} for {len(llms)}")
    for price in typed:
        price_from(price)
    return dict(zip(llms, list(typed) * (len(llms) if len(typed) == 1 else 1), strict=bool(typed)))

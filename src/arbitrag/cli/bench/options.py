"""The parts of a run as they were typed, and what the run file remembers of them.

A run goes on with what it began with: an option that is not typed is the file's, and only then the default. The file
may be a stranger's, so an address in it is opened only where it stays on this machine (see ``trust``); another has
to be typed again. What is secret in an address is not kept.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from arbitrag.cli.options import limits_of, pairs_from, price_from
from arbitrag.errors import UsageError
from arbitrag.registry import LLMS, PLUGINS_TAKE
from arbitrag.run_options import OPTIONS, Names, RunOptions
from arbitrag.security.addresses import shown
from arbitrag.security.trust import FromFile, is_local, is_local_cache, is_local_path
from arbitrag.text import one_line

if TYPE_CHECKING:
    from arbitrag.cli.config import Configuration
    from arbitrag.encode.base import Encoder
    from arbitrag.evaluate.run.plan import Passages
    from arbitrag.kit import Kit
    from arbitrag.llm.base import LLM

# What an option that a run file remembers must be, to be opened without being typed again.
_LOCAL: Mapping[Names, Callable[[str], bool]] = {
    "address": is_local,
    "index": is_local_path,
    "folder": is_local_path,
    "responses": is_local_cache,
}


@dataclass(frozen=True, kw_only=True)
class BenchOptions(RunOptions):
    """What all systems of a run share; None is what was not typed.

    ``remembered_by`` is the run file that some of it was taken from, and ``taken`` names which.
    """

    remembered_by: str = ""
    taken: frozenset[str] = frozenset()

    def over(self, remembered: Mapping[str, Any], file: str) -> BenchOptions:
        """With what was not typed taken from a run file."""
        known = {name: remembered.get(name) for name, value in self._values().items() if value is None}
        taken = frozenset(name for name, value in known.items() if value is not None)
        return replace(self, **known, remembered_by=file, taken=taken) if taken else self

    def found_in(self, configuration: Configuration) -> BenchOptions:
        """With the mark of a file of settings that nobody named, on what was taken from it."""
        marked = {name for name in self._values() if configuration.source(f"--{name}") is not None}
        return replace(self, remembered_by=str(configuration.file), taken=frozenset(marked)) if marked else self

    def without(self, names: Collection[str]) -> BenchOptions:
        """As if these had not been given."""
        left: dict[str, Any] = {name: None for name in self._values() if name in names}
        return replace(self, **left)

    def remembered(self) -> dict[str, Any]:
        """As plain JSON values for a run file, addresses without what may be secret in them."""
        kept = {name: value for name, value in self._values().items() if value is not None}
        for name, value in kept.items():
            if OPTIONS[name].names in ("address", "index"):
                kept[name] = shown(value)
            elif isinstance(value, tuple):
                kept[name] = list(value)
        return kept

    def source(self, name: str) -> FromFile | None:
        """The mark of an option that the run file says; None for one that was typed."""
        return FromFile(self.remembered_by, f"--{name}") if name in self.taken else None

    def strange(self) -> dict[str, str]:
        """What the run file says, and would reach beyond this machine or write where nothing is yet, by option."""
        return {name: value for name, value in self.elsewhere().items() if name in self.taken}

    def elsewhere(self) -> dict[str, str]:
        """What has to be typed again when the run goes on, by option."""
        found = {}
        for name, value in self._values().items():
            names = OPTIONS[name].names
            if names is not None and value is not None and not _LOCAL[names](str(value)):
                found[name] = str(value)
        return found

    def _values(self) -> dict[str, Any]:
        """The options that a run file remembers."""
        return {name: getattr(self, name) for name, declared in OPTIONS.items() if declared.remembered}


def command_again(command: str, file: str, llms: Sequence[str], others: Mapping[str, str]) -> str:
    """The command that goes on with a run, with the models and other options that have to be typed again.

    ``retry`` takes the models that are not typed from the file, ``run`` does without them.
    """
    elsewhere = [llm for llm in llms if not is_local(llm)]
    words = [("--llm", llm) for llm in (elsewhere if command == "retry" else llms) if elsewhere]
    words += [(f"--{name}", value) for name, value in others.items()]
    return shlex.join(["arbitrag", "bench", command, file, *(shown(word) for pair in words for word in pair)])


def refuse_strangers(
    command: str, file: str, llms: Sequence[str], typed: Collection[str], options: BenchOptions
) -> None:
    """Raise UsageError for what a run file names beyond this machine and nobody typed: all of it in one error.

    ``llms`` are all models of the session, ``typed`` those that a person named.
    """
    models = [llm for llm in llms if llm not in typed and not is_local(llm)]
    others = options.strange()
    if not models and not others:
        return
    again = command_again(command, file, llms if models else (), others)
    named = ", ".join(one_line(shown(each), 100) for each in [*models, *others.values()])
    raise UsageError(
        f"{one_line(file, 200)} names {named}. A run file may be a stranger's, so what reaches beyond this machine, or "
        f"keeps responses where none are yet, is opened only when it is typed.\nIf you know it, type: {again}"
    )


@asynccontextmanager
async def open_kits(
    llms: Mapping[str, FromFile | None],
    options: BenchOptions,
    *,
    passages: Passages,
    prices: Mapping[str, str],
    concurrency: int,
) -> AsyncIterator[list[Kit]]:
    """A kit for each model; retriever, encoder and scorer are the same in all. ``llms`` says who named each.

    ``prices`` are by address, as that is shown.
    """
    from arbitrag.cli.terminal.output import waiting
    from arbitrag.run import open_kit

    async with AsyncExitStack() as opened:

        def model(address: str, source: FromFile | None) -> LLM:
            backend = _opened(address, source, options, concurrency)
            opened.push_async_callback(backend.aclose)
            return backend

        scorer = None if options.scorer is None else model(options.scorer, options.source("scorer"))
        encoder = _encoder(options, opened)
        evidence: dict[str, Any] = {"index": options.index, "encoder": encoder, "mode": options.mode}
        if passages == "given":
            evidence = {"passages": (), "encoder": encoder}
        kits: list[Kit] = []
        with waiting("Opening the models and the passages") as wait:
            for address, source in llms.items():
                wait.tell(f"Opening {shown(address)}")
                backend = model(address, source)
                if shown(address) in prices:
                    backend.price = price_from(prices[shown(address)])
                kit = await opened.enter_async_context(
                    open_kit(
                        backend,
                        **evidence,
                        where=pairs_from(options.where, "--where", "language=en"),
                        scorer=scorer,
                        limits=limits_of(options),
                        wording=options.wording,
                        cache=options.cache,
                    )
                )
                evidence = {"retriever": kit.retriever, "encoder": kit.encoder}
                kits.append(kit)
        yield kits


def _encoder(options: BenchOptions, opened: AsyncExitStack) -> str | Encoder | None:
    """The encoder as it was typed; one that the run file names is opened here, with the mark of that."""
    source = options.source("encoder")
    if options.encoder is None or source is None:
        return options.encoder
    from arbitrag.encode import open_encoder

    encoder = open_encoder(options.encoder, source=source)
    opened.push_async_callback(encoder.aclose)
    return encoder


def _opened(address: str, source: FromFile | None, options: BenchOptions, concurrency: int) -> LLM:
    from arbitrag.llm import open_llm

    row = LLMS.get(address.partition(":")[0])
    takes = PLUGINS_TAKE if row is None else row.takes
    wanted = {
        "concurrency": concurrency,
        "retries": options.retries,
        "deterministic": options.deterministic or None,
        "own_process": True if "own_process=" not in address else None,  # an address may say it itself
    }
    passed: dict[str, Any] = {name: value for name, value in wanted.items() if name in takes and value is not None}
    return open_llm(address, **passed, **({} if source is None else {"source": source}))


def prices_of(llms: Sequence[str], typed: Sequence[str]) -> dict[str, str]:
    """What was typed as the price of each model, by its address as that is shown. Raises UsageError for another number
    of them, or for none."""
    if len(typed) not in (0, 1, len(llms)):
        raise UsageError(f"--price stands once for all models, or once for each; got {len(typed)} for {len(llms)}")
    for price in typed:
        price_from(price)
    return dict(zip(map(shown, llms), list(typed) * (len(llms) if len(typed) == 1 else 1), strict=bool(typed)))

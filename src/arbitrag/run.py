"""Answer questions with a method and a kit: capability check, traces, concurrency, and the synchronous ``ask``."""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arbitrag import __version__
from arbitrag.arguments import check_arguments, chosen_method, question_of
from arbitrag.encode import open_encoder
from arbitrag.encode.base import Encoder
from arbitrag.encode.lazy import default_encoder
from arbitrag.errors import ArbitragError, BackendError, BudgetError, CapabilityError, UnreachableError, UsageError
from arbitrag.integrations.objects import passages_of, retriever_of
from arbitrag.kit import Kit, Limits
from arbitrag.llm import open_llm
from arbitrag.llm.base import LLM, OnText, Price, capabilities_of
from arbitrag.llm.budget import Budget
from arbitrag.methods import AUTO, running_with
from arbitrag.methods.base import Method, Prepared, needs_of, settings
from arbitrag.registry import in_process
from arbitrag.retrieve import opened_index
from arbitrag.retrieve.base import Retriever
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.serialization import to_plain
from arbitrag.stages.long_form import Form, with_long_answer
from arbitrag.text import encodable, listed
from arbitrag.trace import Trace, usage_of
from arbitrag.types import Decision, Need, Passage, Question, Verdict

Index = str | Path | Retriever | Sequence[Passage | str] | Any  # Any: retrievers of other frameworks


async def check(method: Method, kit: Kit) -> None:
    """Raise CapabilityError, before any question is asked, when the kit lacks something that the method needs.

    A method that prepares itself does so here, and raises what is wrong with its files.
    """
    needs = needs_of(method)
    if Need.RETRIEVE in needs and kit.retriever is None:
        of_lab = "; the documents of the lab's world are --index lab" if kit.llm.backend.name == "lab" else ""
        raise CapabilityError(
            f"{method.name} needs passages, and there is nothing to retrieve from.\n"
            "Give an index (--index docs.idx, made by: arbitrag index ./docs -o docs.idx) or --passages FILE, "
            f"or ask memory alone: --method direct{of_lab}"
        )
    if Need.ENCODE in needs and kit.encoder is None:
        raise CapabilityError(
            f"{method.name} compares texts, and there is no encoder.\n"
            "Give one (--encoder hash needs no model; --encoder st:MODEL, bge-m3:MODEL), or an index with vectors."
        )
    of_model = needs.of_model
    own = kit.scorer.backend is kit.llm.backend
    capabilities = await capabilities_of(kit.llm.backend, of_model if own else of_model & ~Need.SCORE)
    offered, name, refused = capabilities.needs, kit.llm.backend.name, capabilities.refused
    if not own:  # then the scorer alone is asked for likelihoods
        scorer = await capabilities_of(kit.scorer.backend, of_model & Need.SCORE)
        offered = offered & ~Need.SCORE | scorer.needs & Need.SCORE
        name, refused = f"{name} with the scorer {kit.scorer.backend.name}", {**refused, **scorer.refused}
    if missing := of_model & ~offered:
        found = "".join(f"\n  {line}" for each in missing for line in refused.get(each, ()))
        ways = (
            "Give it a scorer (--scorer hf:MODEL), serve the model with vLLM"
            if missing == Need.SCORE
            else f"Run the model in process ({in_process()})"
        )
        others = running_with(offered | kit.offers)
        raise CapabilityError(
            f"{method.name} needs {of_model.names()}; {name} offers {offered.names()}.{found}\n"
            + (f"{ways}, or take a method that runs here: {listed(others, 'or')}\n" if others else f"{ways}\n")
            + f"What each needs, and what runs: arbitrag methods --llm {kit.llm.backend.name}",
            needs_scorer=missing == Need.SCORE,
        )
    if isinstance(method, Prepared):
        await method.prepare(kit)


@dataclass(frozen=True, slots=True)
class Failure:
    """A question that could not be answered, the error, and the calls that were made before it.

    An error that is no ArbitragError is a fault in a method or a backend; its traceback is printed on standard error
    where ARBITRAG_DEBUG is set.
    """

    question: Question
    error: Exception
    trace: Trace = field(repr=False, compare=False)


async def answer(question: Question | str, method: Method | str, kit: Kit, *, form: Form = "short") -> Verdict:
    """One verdict, with its trace and its cost. A method may be given as ``"trustmargin threshold=-1"``.

    With the form "long" the answer is also written out, in sentences that cite passages (see ``long_form``).

    Raises UsageError for an empty question or an unknown method, CapabilityError when the kit lacks something, and
    whatever error a backend raised; nothing is retried here.
    """
    method, question = chosen_method(method), question_of(question)
    check_arguments(form=form)
    await check(method, kit)
    outcome = await attempt(question, method, kit, form=form)
    if isinstance(outcome, Failure):
        raise outcome.error
    return outcome


async def attempt(
    question: Question, method: Method, kit: Kit, *, form: Form = "short", on_text: OnText | None = None
) -> Verdict | Failure:
    """``answer`` for a kit that was checked; whatever goes wrong comes back as a Failure with its trace."""
    recording = kit.recording()
    question = replace(
        question, text=encodable(question.text), options=tuple(encodable(each) for each in question.options)
    )
    clock = time.perf_counter()
    try:
        if not question.text.strip():
            raise UsageError("the question is empty")
        streams = form == "short" and getattr(method, "streams", False)
        verdict = await method.answer(question, recording.streaming(on_text) if streams else recording)
        if form == "long":
            verdict = await with_long_answer(verdict, question, recording.streaming(on_text))
        return replace(
            verdict,
            question=question,
            method=method.name,
            notes=(*verdict.notes, *dict.fromkeys(call.doubt for call in recording.recorder.calls if call.doubt)),
            usage=usage_of(recording.recorder.calls, time.perf_counter() - clock),
            trace=_trace(question, method, recording, verdict.decisions, form),
        )
    except Exception as error:  # noqa: BLE001 - it is carried, to be a failed row or to be raised
        if not isinstance(error, ArbitragError) and os.environ.get("ARBITRAG_DEBUG"):
            traceback.print_exception(error)
        return Failure(question, error, _trace(question, method, recording, (), form))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # not something within the method, but who waits for it
            raise
        given_up = BackendError("the method gave up a call that nobody had cancelled")
        return Failure(question, given_up, _trace(question, method, recording, (), form))


def _trace(
    question: Question, method: Method, kit: Kit, decisions: tuple[Decision, ...], form: Form = "short"
) -> Trace:
    return Trace(
        question=question,
        method=method.name,
        settings=settings(method),
        llm=kit.llm.backend.name,
        scorer=kit.scorer.backend.name,
        retriever=kit.retriever.name if kit.retriever else "",
        encoder=kit.encoder.name if kit.encoder else "",
        limits=to_plain(kit.limits),
        prompts=kit.recorder.prompts,
        calls=tuple(kit.recorder.calls),
        decisions=decisions,
        where=kit.where,
        form=form,
        arbitrag=__version__,
    )


_AHEAD = 4  # tasks per place in answer_all: running ones, and those done or waiting behind a slow one


async def answer_all(
    questions: Iterable[Question],
    method: Method | str,
    kit: Kit,
    *,
    concurrency: int = 16,
    given: Mapping[str, Sequence[Passage]] | None = None,
    budget: Budget | None = None,
    form: Form = "short",
) -> AsyncIterator[Verdict | Failure]:
    """Answer concurrently, at most ``concurrency`` at a time, and yield in the order of the questions.

    A question that fails yields a Failure and the others go on. Questions are taken as they are needed, a few times
    ``concurrency`` ahead of the verdict that is waited for, so that a slow one does not hold up the rest. ``given`` are
    passages by question id, which are read for these questions instead of what the kit's retriever finds. Beyond a
    ``budget`` questions yield a Failure with a BudgetError. Raises CapabilityError before the first question, and
    UnreachableError at the first one that shows that no question can be answered.
    """
    if concurrency < 1:
        raise UsageError(f"the concurrency is {concurrency}; it is 1 or more")
    chosen = chosen_method(method)
    check_arguments(form=form)
    await check(chosen, kit)
    kit = kit if budget is None else kit.with_models(budget.metered)
    places = asyncio.Semaphore(concurrency)

    async def one(question: Question) -> Verdict | Failure:
        passages = None if given is None else given.get(question.id)
        own = kit if passages is None else replace(kit, retriever=FixedRetriever(passages))
        async with places:
            if budget is None:
                return await attempt(question, chosen, own, form=form)
            if not await budget.begin():
                return Failure(question, BudgetError(f"not asked: {budget.limits}"), _trace(question, chosen, own, ()))
            try:
                return await attempt(question, chosen, own, form=form)
            finally:
                budget.end()

    waiting: deque[asyncio.Task[Verdict | Failure]] = deque()
    try:
        for question in questions:
            if len(waiting) >= _AHEAD * concurrency:
                yield _unless_unreachable(await waiting.popleft())
            waiting.append(asyncio.create_task(one(question)))
        while waiting:
            yield _unless_unreachable(await waiting.popleft())
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _unless_unreachable(outcome: Verdict | Failure) -> Verdict | Failure:
    if isinstance(outcome, Failure) and isinstance(outcome.error, UnreachableError):
        raise outcome.error
    return outcome


@asynccontextmanager
async def open_kit(
    llm: str | LLM,
    *,
    index: Index | None = None,
    encoder: str | Encoder | None = None,
    mode: str | None = None,
    where: Mapping[str, str] | None = None,
    passages: Sequence[Passage | str] | None = None,
    retriever: Retriever | None = None,
    scorer: str | LLM | None = None,
    limits: Limits = Limits(),
    wording: str | Path | None = None,
    cache: str | Path | None = None,
    price: Price | None = None,
) -> AsyncIterator[Kit]:
    """A kit from addresses: models as ``open_llm`` takes them, passages from an index, a list or a retriever.

    ``index`` is an address or a path as ``open_index`` takes them (``lab`` for the documents of the embedded world), a
    retriever (of LangChain, LlamaIndex or Haystack, or any object with ``retrieve(query, k)``), or a list of passages
    or texts; ``passages`` and ``retriever`` take only the one or the other. ``encoder`` is what texts are compared
    with, and what an index with vectors is searched with; without one it is the one that the index was made with, or
    else ``hash``. ``mode`` says how an index is searched (see ``open_index``), and ``where`` keeps only passages whose
    metadata has each of these values. ``cache`` is a folder that keeps responses; ``wording`` one with prompt files of
    the user's own; ``price`` what ``llm`` costs. Everything that is opened here is closed at the end; a model, a
    retriever or an encoder that was passed in as an object is the caller's to close.

    Raises UsageError, DataError, MissingExtra or BackendError when a part cannot be opened.
    """
    if sum(source is not None for source in (index, passages, retriever)) > 1:
        raise UsageError("give an index, passages or a retriever, not several of them")
    check_arguments(
        llm=llm,
        scorer=scorer,
        encoder=encoder,
        mode=mode,
        where=where,
        limits=limits,
        wording=wording,
        cache=cache,
        price=price,
    )
    if price is not None and not isinstance(llm, str):
        raise UsageError("a price goes with a model's address; a model that is passed in has its own")
    if mode is not None and not isinstance(index, str | Path):
        raise UsageError("a mode is for searching an index; give its address")
    async with AsyncExitStack() as opened:

        def model(given: str | LLM, price: Price | None = None) -> LLM:
            backend = open_llm(given) if isinstance(given, str) else given
            if isinstance(given, str):
                opened.push_async_callback(backend.aclose)
            if price is not None:
                backend.price = price
            if cache is None:
                return backend
            from arbitrag.llm.cache import CachedLLM

            cached = CachedLLM(backend, Path(cache))
            opened.callback(cached.close)
            return cached

        if isinstance(encoder, str):
            encoder = open_encoder(encoder)
            opened.push_async_callback(encoder.aclose)
        if passages is not None:
            retriever = FixedRetriever(passages_of(passages))
        elif retriever is not None:
            retriever = retriever_of(retriever, "retriever", encoder=encoder)
        elif index is not None and not isinstance(index, str | Path):
            retriever = retriever_of(index, encoder=encoder)
        elif index is not None:
            retriever = await opened.enter_async_context(opened_index(index, encoder=encoder, mode=mode))
        yield Kit.of(
            model(llm, price),
            retriever,
            encoder=encoder or getattr(retriever, "encoder", None) or default_encoder(),
            scorer=None if scorer is None else model(scorer),
            where=where,
            limits=limits,
            wording=None if wording is None else Path(wording),
        )


def ask(
    question: Question | str,
    method: Method | str = AUTO,
    *,
    llm: str | LLM,
    index: Index | None = None,
    encoder: str | Encoder | None = None,
    mode: str | None = None,
    where: Mapping[str, str] | None = None,
    passages: Sequence[Passage | str] | None = None,
    retriever: Retriever | None = None,
    scorer: str | LLM | None = None,
    limits: Limits = Limits(),
    wording: str | Path | None = None,
    cache: str | Path | None = None,
    price: Price | None = None,
    form: Form = "short",
) -> Verdict:
    """Answer one question synchronously: open a kit (the arguments are those of ``open_kit``), answer, close it.

    Raises what ``open_kit`` and ``answer`` raise, and UsageError inside a running event loop, where ``answer`` is the
    way.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise UsageError("ask() cannot run inside an event loop; type: await arbitrag.answer(question, method, kit)")
    method, question = chosen_method(method), question_of(question)
    check_arguments(form=form)

    async def go() -> Verdict:
        async with open_kit(
            llm,
            index=index,
            encoder=encoder,
            mode=mode,
            where=where,
            passages=passages,
            retriever=retriever,
            scorer=scorer,
            limits=limits,
            wording=wording,
            cache=cache,
            price=price,
        ) as kit:
            return await answer(question, method, kit, form=form)

    return asyncio.run(go())

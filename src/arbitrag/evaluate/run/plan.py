"""What takes part in a run, under which names, and which conditions all of it shares."""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, Literal

from arbitrag.errors import DataError, UsageError
from arbitrag.evaluate.questions import QuestionSet
from arbitrag.evaluate.run.store import RunPlan, System
from arbitrag.kit import Kit
from arbitrag.methods.base import Method, settings
from arbitrag.prompts import PromptBook, PromptFile
from arbitrag.types import Need

Passages = Literal["given", "retrieved"]  # the set's own, or those that a retriever finds


@dataclass(frozen=True)
class Entry:
    """A system that can answer. Its kit is shared by all systems on the same model."""

    system: System
    method: Method
    kit: Kit


def name_of(method: Method) -> str:
    """The method's name with the settings that are not its defaults, in the form that ``methods.method_from`` reads."""
    changed = [
        f"{each.name}={_word(getattr(method, each.name))}"
        for each in fields(method)  # type: ignore[arg-type]
        if each.default is MISSING or getattr(method, each.name) != each.default
    ]
    return " ".join([method.name, *changed])


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else shlex.quote(str(value))


@dataclass(frozen=True)
class _SteadyBook(PromptBook):
    """Prompts that stay what they were when they were first looked up, which is also quicker."""

    found: dict[str, PromptFile] = field(default_factory=dict, compare=False)

    def find(self, name: str) -> PromptFile:
        if name not in self.found:
            self.found[name] = super().find(name)
        return self.found[name]


def _steady(kit: Kit) -> Kit:
    llm, scorer = (replace(model, book=_SteadyBook(model.book.folders)) for model in (kit.llm, kit.scorer))
    return replace(kit, llm=llm, scorer=scorer)


def entries(methods: Sequence[Method], kits: Sequence[Kit]) -> tuple[Entry, ...]:
    """Every method on the model of every kit, in words that stay the same from here on.

    Raises UsageError when a system comes twice.
    """
    found = tuple(
        Entry(
            System(name_of(method), method.name, settings(method), kit.llm.backend.name, kit.llm.backend.identity),
            method,
            kit,
        )
        for kit in map(_steady, kits)
        for method in methods
    )
    counted = Counter((entry.system.name, entry.system.model) for entry in found)
    for (name, model), times in counted.items():
        if times > 1:
            raise UsageError(f"{name} on {model} is asked for {times} times; once is enough")
    return found


def plan(
    taking_part: Sequence[Entry],
    sets: Sequence[QuestionSet],
    *,
    passages: Passages,
    seed: int | None = None,
    deterministic: bool = False,
    retries: int | None = None,
    about: Mapping[str, Any] | None = None,
) -> RunPlan:
    """The plan for a store. Its conditions are all that decides a row beside the system and the set.

    ``retries`` are those of a request to a server, the same for every system. Raises UsageError when kits differ in
    their limits or retriever or when two sets have one name, DataError for a set without passages that a method is to
    read.
    """
    if not taking_part or not sets:
        raise UsageError("a run needs at least one method, one model and one question set")
    for name, times in Counter(each.name for each in sets).items():
        if times > 1:
            raise UsageError(f"{times} question sets are called {name}; rename a file, so that rows can be told apart")
    if passages == "given":
        _check_passages(taking_part, sets)
    shared = [_conditions(entry.kit, passages) for entry in taking_part]
    if any(each != shared[0] for each in shared):
        raise UsageError("all systems of a run have the same limits, scorer and retriever")
    prompts: dict[str, dict[str, str]] = {}
    texts: dict[str, str] = {}
    for entry in taking_part:
        for model in (entry.kit.llm, entry.kit.scorer):
            if model.backend.name not in prompts:
                files = {name: path.read_bytes() for name, path in model.book.files().items()}
                digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
                prompts[model.backend.name] = digests
                texts |= {digests[name]: content.decode() for name, content in files.items() if _is_text(content)}
    return RunPlan(
        [entry.system for entry in taking_part],
        sets,
        {
            **shared[0],
            "seed": seed,
            "deterministic": deterministic,
            "retries": retries,
            "prompts": prompts,
        },
        about or {},
        texts,
    )


def _conditions(kit: Kit, passages: Passages) -> dict[str, Any]:
    retriever = kit.retriever if passages == "retrieved" else None
    own = kit.scorer.role == kit.llm.role
    return {
        "passages": passages,
        "retriever": retriever.identity if retriever else "",
        "where": dict(kit.where),
        "limits": asdict(kit.limits),
        "scorer": "" if own else kit.scorer.backend.identity,
    }


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_passages(taking_part: Sequence[Entry], sets: Sequence[QuestionSet]) -> None:
    """Raise DataError for questions without passages of their own, when a method is to read them."""
    readers = [entry.system.name for entry in taking_part if Need.RETRIEVE in entry.method.needs]
    for each in sets if readers else ():
        bare = [item.id for item in each.items if item.passages is None]
        if bare:
            raise DataError(
                f"{readers[0]} is to read the passages of the set {each.name}, and {len(bare):,} of its "
                f"{len(each.items):,} questions have none (the first is '{bare[0]}')\n"
                "Let them be retrieved: --passages retrieved --index docs.idx"
            )

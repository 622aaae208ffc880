"""Build a TRD: questions for which the right source to trust is known, in the four scenarios of BRIDGE.

``build`` draws drafts (``trd_draft``), lets models validate them (``trd_validate``), and writes a folder:

=====================  ===============================================================================================
train.jsonl            questions in the format of ``own``, in random order; likewise validation.jsonl and test.jsonl
origins.jsonl          of every question: its fact, the right answer, what was planted, and what the models answered
card.md                the data card: settings, seeds, models, counts, what every rule removed, hashes of the files
build.json             the same for programs
answers/               what the models answered, so that a build that stopped asks nothing twice; may be deleted
=====================  ===============================================================================================

Of every category only so many drafts are asked as are needed, in a random order, which is a random sample of those that
pass. The questions are 10% FA and 30% each of FI, FE and RA; where a category is short, all shrink with it.

Reference: BRIDGE, section 2 and appendix A. Differences: see ``trd_draft`` and ``trd_validate``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from arbitrag import __version__
from arbitrag.data.trd.draft import SPLITS, UNKNOWN, Drafts, Recipe
from arbitrag.data.trd.material import CATEGORIES, Category, Material
from arbitrag.data.trd.validate import Checked, Validator
from arbitrag.errors import ArbitragError, BackendError, DataError, UsageError
from arbitrag.llm.base import LLM
from arbitrag.storage.files import encoded, read_json, replacing, write_text
from arbitrag.types import Passage

VERSION = 1
SHARES: Mapping[Category, int] = {"FA": 1, "FI": 3, "FE": 3, "RA": 3}  # in tenths

ANSWERS, BUILD, CARD, ORIGINS, EXAMPLES = "answers", "build.json", "card.md", "origins.jsonl", "examples.md"
_LEAST, _MOST = 32, 256  # drafts asked before it is looked whether a category has enough

Show = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Built:
    """A finished build: the rows by split, in their order, and ``report``, which is what build.json holds."""

    rows: Mapping[str, Sequence[Checked]]
    report: Mapping[str, Any]


async def build(
    material: Material,
    models: Sequence[LLM],
    recipe: Recipe,
    folder: Path,
    *,
    concurrency: int = 32,
    replace: bool = False,
    show: Show = lambda done, total, note: None,
) -> Built:
    """Build a set into ``folder``, going on where an earlier build of it stopped.

    Raises UsageError for a recipe that cannot be followed or a folder that holds something else, DataError where a
    category has nothing that passed, and BackendError when questions could not be asked; every answer so far is kept.
    """
    _check(recipe, material)
    _check_models(models)
    settings = _settings(material, models, recipe)
    _prepare(folder, settings, replace=replace)
    drafts = Drafts(material, recipe)
    asked: dict[Category, list[Checked]] = {}
    with ExitStack() as opened:
        validator = Validator(
            [_kept(model, folder, opened) for model in models],
            show_options=recipe.show_options,
            concurrency=concurrency,
        )
        await validator.prepare()
        for category in CATEGORIES:
            asked[category] = await _validated(drafts, category, validator, _wanted(recipe.size, category), show)
            _refuse_empty(drafts, category, asked[category])
    chosen = _shared(asked, recipe)
    rows = _split(chosen, material, recipe)
    report = {**settings, **_counts(drafts, asked, rows), "files": _write(folder, rows)}
    write_text(folder / BUILD, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    from arbitrag.data.trd.card import card

    write_text(folder / CARD, card(report))
    return Built(rows, report)


@dataclass(frozen=True, slots=True)
class Calls:
    """Requests to models that a build makes, by category: at least, when every draft passes at once, and at most."""

    memory: Mapping[Category, tuple[int, int]]
    passages: Mapping[Category, tuple[int, int]]

    @property
    def least(self) -> int:
        return sum(least for stage in (self.memory, self.passages) for least, _ in stage.values())

    @property
    def most(self) -> int:
        return sum(most for stage in (self.memory, self.passages) for _, most in stage.values())


def calls(material: Material, recipe: Recipe, models: int) -> Calls:
    """What validating costs, before anything is asked. Raises what ``build`` raises for a recipe that cannot be."""
    _check(recipe, material)
    drafts = Drafts(material, recipe)
    memory = {}
    for category in CATEGORIES:
        most, wanted = drafts.most(category), _wanted(recipe.size, category)
        memory[category] = (models * (most if wanted is None else min(most, wanted)), models * most)
    return Calls(memory, {category: found for category, found in memory.items() if category != "FE"})


def answers_kept(folder: Path) -> bool:
    """Whether an earlier build of this folder stopped before its end."""
    return (folder / ANSWERS).is_dir() and not (folder / CARD).exists()


async def _validated(
    drafts: Drafts, category: Category, validator: Validator, wanted: int | None, show: Show
) -> list[Checked]:
    """Every draft that was asked, until so many passed as are wanted."""
    found: list[Checked] = []
    passed = 0
    waiting = drafts.of(category)
    while (wanted is None or passed < wanted) and (chunk := list(islice(waiting, _next(wanted, passed)))):
        found += await _checked(validator, chunk)
        passed = sum(not each.reason for each in found)
        show(passed, wanted or len(found), f"{category}: {passed:,} of {len(found):,} passed")
    return found


def _next(wanted: int | None, passed: int) -> int:
    """How many drafts to ask next: as many as are still wanted, within bounds."""
    return _MOST if wanted is None else min(_MOST, max(_LEAST, wanted - passed))


async def _checked(validator: Validator, chunk: Sequence[Any]) -> list[Checked]:
    """Raises BackendError when any could not be asked, after all of them were tried."""
    outcomes = await asyncio.gather(*(validator.check(draft) for draft in chunk), return_exceptions=True)
    good = [each for each in outcomes if isinstance(each, Checked)]
    failed = [each for each in outcomes if isinstance(each, BaseException)]
    if strange := [each for each in failed if not isinstance(each, ArbitragError)]:
        raise strange[0]
    if failed:
        raise BackendError(
            f"{len(failed)} of {len(chunk)} questions could not be asked; the first: {failed[0]}\n"
            "Every answer so far is kept; type the same command again to go on."
        ) from failed[0]
    return good


def _refuse_empty(drafts: Drafts, category: Category, asked: Sequence[Checked]) -> None:
    """Raise DataError, before anything more is asked, for a category of which nothing passed."""
    if all(each.reason for each in asked):
        reasons = _reasons(drafts, category, asked)
        listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items()) or "there were no drafts of it"
        raise DataError(f"no question of the category {category} is left, so there is no set to write: {listed}")


def _shared(asked: Mapping[Category, Sequence[Checked]], recipe: Recipe) -> dict[Category, list[Checked]]:
    """As many of each category as its share of the largest set that all of them allow."""
    passed = {category: [each for each in asked[category] if not each.reason] for category in CATEGORIES}
    tenth = min(len(passed[category]) / SHARES[category] for category in CATEGORIES)
    if recipe.size is not None:
        tenth = min(tenth, recipe.size / 10)
    return {category: passed[category][: int(tenth * SHARES[category] + 1e-9)] for category in CATEGORIES}


def _split(
    chosen: Mapping[Category, Sequence[Checked]], material: Material, recipe: Recipe
) -> dict[str, list[Checked]]:
    rows: dict[str, list[Checked]] = {split: [] for split in SPLITS}
    for category in CATEGORIES:
        for each in chosen[category]:
            rows[each.draft.split].append(each)
    for split, of_split in rows.items():
        random.Random(f"trd {material.name} {recipe.seed} rows {split}").shuffle(of_split)
    return rows


def _write(folder: Path, rows: Mapping[str, Sequence[Checked]]) -> dict[str, str]:
    """Write every file, and give the SHA-256 of each; a split without a question has none."""
    lines = {f"{split}.jsonl": [_row(each) for each in of_split] for split, of_split in rows.items()}
    lines[ORIGINS] = [_origin(each, split) for split, of_split in rows.items() for each in of_split]
    hashes = {}
    for name, found in lines.items():
        (folder / name).unlink(missing_ok=True)
        if found:
            with replacing(folder / name) as file:
                content = encoded("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in found))
                file.write(content)
            hashes[name] = hashlib.sha256(content).hexdigest()
    return hashes


def _row(checked: Checked) -> dict[str, Any]:
    """A question in the format of ``own``."""
    draft = checked.draft
    return {
        "id": draft.id,
        "question": draft.question.text,
        "options": list(draft.question.options),
        "answers": [UNKNOWN] if draft.category == "RA" else list(draft.fact.answers),
        "passages": [_passage_row(passage) for passage in draft.passages],
        "scenario": draft.category,
        "planted": [draft.wrong] if draft.wrong else [],
        "poisoned": sorted(draft.corrupted),
        "group": draft.fact.kind,
    }


def _passage_row(passage: Passage) -> dict[str, str]:
    fields = ("id", "text", "title", "source", "date")
    return {name: value for name in fields if (value := getattr(passage, name))}


def _origin(checked: Checked, split: str) -> dict[str, Any]:
    draft = checked.draft
    return {
        "id": draft.id,
        "split": split,
        "scenario": draft.category,
        "kind": draft.fact.kind,
        "fact": draft.fact.id,
        "subject": draft.fact.subject,
        "truth": draft.fact.answer,
        "former": list(draft.fact.former),
        "planted": draft.wrong or None,
        "from_memory": dict(checked.memory),
        "from_passages": dict(checked.passages),
    }


def _counts(
    drafts: Drafts, asked: Mapping[Category, Sequence[Checked]], rows: Mapping[str, Sequence[Checked]]
) -> dict[str, Any]:
    used = {category: _of(rows, category) for category in CATEGORIES}
    passed = {category: sum(not each.reason for each in asked[category]) for category in CATEGORIES}
    return {
        "questions": {
            category: {split: len(_of({split: rows[split]}, category)) for split in SPLITS} for category in CATEGORIES
        },
        "facts": {category: len({each.draft.fact.id for each in used[category]}) for category in CATEGORIES},
        "facts_in_all": len({each.draft.fact.id for found in used.values() for each in found}),
        "kinds": {category: dict(Counter(each.draft.fact.kind for each in used[category])) for category in CATEGORIES},
        "asked": {category: len(asked[category]) for category in CATEGORIES},
        "removed": {category: _reasons(drafts, category, asked[category]) for category in CATEGORIES},
        "beyond_its_share": {category: passed[category] - len(used[category]) for category in CATEGORIES},
    }


def _of(rows: Mapping[str, Sequence[Checked]], category: Category) -> list[Checked]:
    return [each for of_split in rows.values() for each in of_split if each.draft.category == category]


def _reasons(drafts: Drafts, category: Category, asked: Sequence[Checked]) -> dict[str, int]:
    after = Counter(each.reason for each in asked if each.reason)
    return dict((drafts.removed[category] + after).most_common())


def _settings(material: Material, models: Sequence[LLM], recipe: Recipe) -> dict[str, Any]:
    """Everything that decides what is in the set."""
    return {
        "format": VERSION,
        "arbitrag": __version__,
        "material": {"name": material.name, "about": material.about, "files": dict(material.digests)},
        "left_out": dict(material.removed),
        "recipe": asdict(recipe),
        "models": [{"name": model.name, "identity": model.identity} for model in models],
    }


def _prepare(folder: Path, settings: Mapping[str, Any], *, replace: bool) -> None:
    """Make the folder, or look whether it may be gone on with; what else lies in it is never touched."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {folder} cannot be made: {error.strerror}") from None
    mine = {f"{split}.jsonl" for split in SPLITS} | {ANSWERS, BUILD, CARD, ORIGINS, EXAMPLES}
    if strange := sorted(path.name for path in folder.iterdir() if path.name not in mine):
        raise UsageError(f"{folder} holds other files ({', '.join(strange[:3])}); give a new folder: -o FOLDER")
    before = _before(folder / BUILD)
    changed = [name for name in ("recipe", "material", "models") if before and before.get(name) != settings[name]]
    if changed and not replace:
        raise UsageError(
            f"{folder} holds a set that was built otherwise ({', '.join(changed)} differ); "
            "give another folder, or --replace it"
        )
    for name in (CARD, BUILD):  # the set is not finished until they are there again
        (folder / name).unlink(missing_ok=True)


def _before(path: Path) -> dict[str, Any]:
    """The report of the last build, empty without one; of one that cannot be read nothing is the same."""
    try:
        return read_json(path, {})
    except DataError:
        return {"recipe": None}


def _kept(model: LLM, folder: Path, opened: ExitStack) -> LLM:
    from arbitrag.llm.cache import CachedLLM

    cached = CachedLLM(model, folder / ANSWERS)
    opened.callback(cached.close)
    return cached


def _wanted(size: int | None, category: Category) -> int | None:
    return None if size is None else -(-size * SHARES[category] // 10)


def _check(recipe: Recipe, material: Material) -> None:
    if recipe.size is not None and recipe.size < 10:
        raise UsageError(f"a set of {recipe.size} questions; give 10 or more, so that every category has its share")
    for name, least in (("passages", 1), ("telling", 1), ("phrasings", 1)):
        if getattr(recipe, name) < least:
            raise UsageError(f"{name} is {getattr(recipe, name)}; give {least} or more")
    if recipe.telling > recipe.passages:
        raise UsageError(f"{recipe.telling} passages tell the fact, but a question has {recipe.passages} in all")
    if not material.facts:
        raise DataError(f"{material.about} has no facts, so there is nothing to ask about")
    if not material.entities:
        raise DataError(f"{material.about} has no typed entities, so there is nothing to put in the place of an answer")
    if not any(fact.passages for fact in material.facts):
        raise DataError(f"{material.about} has no passages, so nothing tells a fact")


def _check_models(models: Sequence[LLM]) -> None:
    if not models:
        raise UsageError("no model to validate with; give one: --llm ADDRESS")
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise UsageError(f"the models {', '.join(names)} have equal names; give each once")

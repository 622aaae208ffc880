"""Open a model of the lab together with the world that it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from arbitrag.errors import DataError, UsageError
from arbitrag.lab import model
from arbitrag.lab.world import World, open_world
from arbitrag.llm.base import LLM
from arbitrag.storage.model_manifest import Manifest, read_manifest

_TRAIN = "python -m training.train FOLDER"


@dataclass(frozen=True)
class LabModel:
    """A lab model and its world. ``folder`` holds its files."""

    llm: LLM
    world: World
    folder: Path
    manifest: Manifest


def open_checkpoint(folder: Path | None = None, *, seed: int | None = None) -> LabModel:
    """The lab model in a folder (the embedded one without), in transformers layout or exported to ONNX.

    Its manifest says which world it knows. Raises DataError for a folder without a manifest, UsageError when the model
    was trained on no such world or, with ``seed``, on another one.
    """
    where = folder or model.FOLDER
    found = read_manifest(where) if folder else model.manifest()
    if found is None:
        raise DataError(f"{where} has no manifest.json, so nothing says which world it knows; train one: {_TRAIN}")
    world = _world_of(found, "the embedded model" if folder is None else str(where))
    if seed is not None and seed != world.seed:
        raise UsageError(f"{where} was trained on world {world.seed}, not {seed}; leave --seed out, or train one on it")
    return LabModel(_opened(folder, where), world, where, found)


def _world_of(found: Manifest, what: str) -> World:
    named = found.world
    if named is None:
        raise UsageError(
            f"{what} was not trained on a world that can be made again (its manifest names none)\n"
            f"Give a checkpoint that was: --checkpoint FOLDER, made by {_TRAIN}"
        )
    if named.keys() != {"version", "seed"} or not all(type(number) is int for number in named.values()):
        raise DataError(f"{what}: the manifest's world is {named}; expected version and seed, both whole numbers")
    try:
        return open_world(named["seed"], named["version"])
    except UsageError as error:
        raise UsageError(f"{what} does not match: {error}") from None


def _opened(folder: Path | None, where: Path) -> LLM:
    if folder is None:
        return model.open_lab()
    prompts = where / "prompts"
    wording = prompts if prompts.is_dir() else model.PROMPTS
    if (where / "config.json").is_file() and not (where / "model.onnx").is_file():
        from arbitrag.llm.hf.backend import open_hf

        return open_hf(str(where), dtype="float32", wording=wording)
    from arbitrag.llm.onnx.backend import open_onnx

    return open_onnx(where, wording=wording)

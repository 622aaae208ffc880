"""Train a lab model from scratch.

    python -m training.train FOLDER --tokens 60e6 --seed 0
    python -m training.train FOLDER --resume          after it was killed
    python -m training.train NEW --start OLD/model    to train a finished model on, at full difficulty
    python -m training.train NEW --adopt OLD/model    to begin with a model of another world, which can read

On a CPU two processes of one thread train together, on a GPU one. Every minute a line is printed and added to
``FOLDER/train.log``, every four minutes the state is saved, and at the end ``FOLDER/model`` holds the checkpoint in
transformers layout, with the wording that it was trained on. The same recipe on the same device gives the same model,
killed or not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbitrag.errors import ArbitragError, DataError, MissingExtra, UsageError
from arbitrag.lab.world import SEED, open_world
from arbitrag.storage.files import open_plain

if TYPE_CHECKING:
    from training.checkpoint import Start
    from training.loop import Recipe, Trainer
    from training.network import Shape

LOG = "train.log"
LOG_EVERY_S = 60.0
SAVE_EVERY_S = 240.0  # what an interruption can cost, with the saving itself well under five minutes
_AHEAD = 6  # fills in the making on a GPU, each in a process of its own


def train(folder: Path, recipe: Recipe, *, device: str = "cpu", compiled: bool = True, resume: bool = False) -> Path:
    """Train to the end and give the checkpoint's folder. With ``resume`` it goes on from the state in ``folder``."""
    from torch.multiprocessing.spawn import spawn

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(folder, recipe, resume)
    meeting = folder / ".processes"  # where they find each other
    meeting.unlink(missing_ok=True)
    settings = (recipe, folder, tokenizer, device, compiled, resume)
    if recipe.processes == 1:
        _work(0, *settings)
    else:
        # Without these, glibc gives the memory of every batch back to the system and asks for it again.
        os.environ.update(OMP_NUM_THREADS="1", MALLOC_MMAP_THRESHOLD_=str(1 << 30), MALLOC_TRIM_THRESHOLD_=str(1 << 33))
        spawn(_work, settings, nprocs=recipe.processes)  # type: ignore[no-untyped-call]
        meeting.unlink(missing_ok=True)
    return folder / "model"


def _tokenizer(folder: Path, recipe: Recipe, resume: bool) -> str:
    """The tokenizer in JSON: that of the state or of the checkpoint to start from, otherwise a new one."""
    from training.checkpoint import read_checkpoint
    from training.loop import read_notes
    from training.tokenizer import train_tokenizer

    if resume:
        return str(read_notes(folder)["tokenizer"])
    world = open_world(recipe.world, recipe.world_version)
    if recipe.start:
        return read_checkpoint(Path(recipe.start), world).tokenizer
    tokenizer = train_tokenizer(world, vocabulary=recipe.shape.vocabulary, samples=recipe.tokenizer_samples)
    text: str = tokenizer.to_str()
    return text


def _work(rank: int, recipe: Recipe, folder: Path, tokenizer: str, device: str, compiled: bool, resume: bool) -> None:
    """One process, from its start to the checkpoint."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    import torch
    from torch import distributed as dist

    from training.adopt import adopt
    from training.checkpoint import read_checkpoint
    from training.loop import Trainer

    if recipe.processes > 1:
        torch.set_num_threads(1)
        place = f"file://{(folder / '.processes').resolve()}"
        dist.init_process_group("gloo", init_method=place, rank=rank, world_size=recipe.processes)
    ahead = _AHEAD if device.startswith("cuda") else 0
    pool = ProcessPoolExecutor(ahead, mp_context=get_context("spawn")) if ahead else None
    try:
        trainer = Trainer(recipe, tokenizer, rank, device, compiled, pool, ahead)
        if resume:
            trainer.load(folder)
        elif recipe.start:
            world = open_world(recipe.world, recipe.world_version)
            trainer.network.load_transformers(read_checkpoint(Path(recipe.start), world).weights)
        elif recipe.adopt:
            world, fresh = open_world(recipe.world, recipe.world_version), trainer.network.transformers_weights()
            trainer.network.load_transformers(adopt(Path(recipe.adopt), tokenizer, world, fresh))
        _run(trainer, folder)
        if rank == 0:
            _write(trainer, folder)
        if recipe.processes > 1:
            dist.barrier()  # one that left early would break the other's connection
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        if recipe.processes > 1:
            dist.destroy_process_group()


def _run(trainer: Trainer, folder: Path) -> None:
    """Steps until the tokens are used up; the first process keeps the clock of all."""
    began = logged = saved = time.monotonic()
    before = trainer.seen
    while not trainer.done:
        now = time.monotonic()
        if trainer.step(flag=trainer.rank == 0 and now - saved > SAVE_EVERY_S):
            trainer.save(folder)
            saved = time.monotonic()
        if trainer.rank == 0 and now - logged > LOG_EVERY_S:
            _log(folder, _line(trainer, now - began, (trainer.seen - before) / (now - logged)))
            logged, before = now, trainer.seen
            trainer.tallies.clear()
    trainer.save(folder)


def _line(trainer: Trainer, seconds: float, speed: float) -> str:
    """``612 s, step 900, 5.41M tokens, 9,012 a second, rate 2.0e-03, progress 0.23; direct 0.61 .78, …``

    For each kind of sample its mean loss per token and the share of rows that were right throughout.
    """
    recipe = trainer.recipe
    kinds = (
        f"{kind} {tally.loss / max(1, tally.tokens):.2f} {tally.right / tally.rows:.2f}"
        for kind, tally in sorted(trainer.tallies.items())
    )
    return (
        f"{seconds:.0f} s, step {trainer.step_number}, {trainer.seen / 1e6:.2f}M tokens, {speed:,.0f} a second, "
        f"rate {recipe.rate(trainer.step_number, trainer.seen):.1e}, progress {recipe.progress(trainer.seen):.2f}; "
        + ", ".join(kinds)
    )


def _log(folder: Path, line: str) -> None:
    print(line, flush=True)
    with open_plain(folder / LOG, "ab") as file:
        file.write(f"{line}\n".encode())


def _write(trainer: Trainer, folder: Path) -> None:
    from tokenizers import Tokenizer

    from training.checkpoint import write_checkpoint

    recipe = trainer.recipe
    _log(folder, f"done: step {trainer.step_number}, {trainer.seen:,} tokens")
    write_checkpoint(
        folder / "model",
        trainer.network.transformers_weights(),
        recipe.shape,
        Tokenizer.from_str(trainer.tokenizer),
        open_world(recipe.world, recipe.world_version),
        made={
            "by": "python -m training.train",
            "steps": trainer.step_number,
            "recipe": asdict(recipe) | {"start": _named(recipe.start), "adopt": _named(recipe.adopt)},
        },
    )


def _named(folder: str) -> str:
    """The last two names of a folder's path: where it lies on this machine is not part of a checkpoint."""
    path = Path(folder)
    return "/".join(path.relative_to(path.anchor).parts[-2:])


def _recipe_from(given: argparse.Namespace, device: str) -> Recipe:
    """The recipe that was typed, or with ``--resume`` that of the state, which what was typed must not contradict.

    Raises UsageError when there is a state and no ``--resume``, none and ``--resume``, or one of another recipe.
    """
    from training.checkpoint import read_checkpoint, read_llama
    from training.loop import STATE, Recipe, read_notes
    from training.network import Shape

    typed = {name: getattr(given, name) for name in _OPTIONS if getattr(given, name) is not None}
    sizes = {name: getattr(given, name) for name in _SIZES if getattr(given, name) is not None}
    there = (given.folder / STATE).exists()
    if given.resume and not there:
        raise UsageError(f"{given.folder} holds no {STATE} to resume; leave --resume out to begin")
    if not given.resume:
        if there:
            raise UsageError(f"{given.folder} holds a training already; add --resume to go on, or name another folder")
        gpu: dict[str, Any] = {"processes": 1, "batch_tokens": 6144} if device.startswith("cuda") else {}
        if "start" in typed and "adopt" in typed:
            raise UsageError("--start takes the weights of a model of this world, --adopt of another: give one of them")
        if "adopt" in typed:
            there = read_llama(Path(typed["adopt"]))
            layers = sizes.get("layers", there.shape.layers)
            if layers < there.shape.layers:
                raise UsageError(f"{typed['adopt']} has {there.shape.layers} layers, and none can be left out")
            vocabulary = sizes.get("vocabulary", Shape().vocabulary)
            return Recipe(**gpu, **typed, shape=_sized(there, sizes, layers=layers, vocabulary=vocabulary))
        if "start" in typed:
            world = open_world(typed.get("world", SEED))
            shape = _sized(read_checkpoint(Path(typed["start"]), world), sizes)
            return Recipe(**{**gpu, "ramp": 0.0, **typed}, shape=shape)
        return Recipe(**{**gpu, **typed}, shape=replace(Shape(), **sizes))
    stored = dict(read_notes(given.folder)["recipe"])
    if "tokens" in typed:
        stored["tokens"] = typed.pop("tokens")  # a schedule may be stretched or cut short
    for name, value in {**typed, **sizes}.items():
        found = stored["shape"][name] if name in sizes else stored[name]
        if found != value:
            raise UsageError(f"{given.folder} was begun with {name} {found}, not {value}; leave the option out")
    try:
        return Recipe(**{**stored, "shape": Shape(**stored["shape"])})
    except TypeError as error:
        raise DataError(f"{given.folder / STATE} is of another version: {error}; begin anew") from None


def _sized(there: Start, sizes: Mapping[str, int], **free: int) -> Shape:
    """The sizes of a checkpoint, which those typed must not contradict, but for the ``free`` ones."""
    shape = replace(there.shape, **free)
    if replace(shape, **sizes) != shape:
        raise UsageError(f"the checkpoint has the sizes {there.shape}; leave {', '.join(sizes)} out")
    return shape


_OPTIONS: dict[str, tuple[Any, str]] = {
    "tokens": (lambda text: int(float(text)), "tokens to train on, padding counted, such as 60e6"),
    "seed": (int, "of the weights and the samples"),
    "world": (int, f"seed of the world ({SEED})"),
    "processes": (int, "that train together (2 on a CPU, 1 on a GPU)"),
    "batch_tokens": (int, "tokens of one process and step (3072; 6144 on a GPU)"),
    "learning_rate": (float, "the highest (4e-3)"),
    "start": (str, "checkpoint of the same world to take the weights and the tokenizer of"),
    "adopt": (str, "checkpoint of a lab model of another world to learn to read from"),
    "decay": (float, "share of the tokens over which the learning rate falls at the end (0.2)"),
    "ramp": (float, "share of the tokens over which the samples grow harder (0.5; 0 with --start)"),
    "fill": (int, "samples drawn at a time (1200)"),
    "tokenizer_samples": (int, "samples that the tokenizer is trained on (20000)"),
}
_SIZES = {"layers": (int, "(6)"), "width": (int, "(192)"), "inner_width": (int, "(512)"), "vocabulary": (int, "(5120)")}


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.train", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="for the state, the log and in the end the checkpoint")
    parser.add_argument("--resume", action="store_true", help="go on from the state in the folder")
    parser.add_argument("--device", help="cpu, or cuda (where there is one, it is the default)")
    parser.add_argument("--no-compile", action="store_true", help="begin at once, and train at half the speed")
    for name, (kind, text) in {**_OPTIONS, **_SIZES}.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=kind, metavar="FOLDER" if kind is str else "N", help=text
        )
    return parser.parse_args(arguments)


def _device(asked: str | None) -> str:
    try:
        import safetensors  # noqa: F401
        import torch
    except ImportError:
        raise MissingExtra("train", "training a lab model") from None
    there = "cuda" if torch.cuda.is_available() else "cpu"
    if asked not in (None, "cpu", there):
        raise UsageError(f"there is no device {asked} here; leave --device out for {there}")
    return asked or there


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parsed(arguments)
    try:
        device = _device(given.device)
        recipe = _recipe_from(given, device)
        done = train(given.folder, recipe, device=device, compiled=not given.no_compile, resume=given.resume)
    except ArbitragError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"stopped; go on with: python -m training.train {given.folder} --resume", file=sys.stderr)
        return 130
    print(f"{done}: measure it with: python benchmarks/lab_model.py --checkpoint {done}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

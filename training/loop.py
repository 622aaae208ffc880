"""The training loop of one process: steps, learning rate schedule, and resumable state."""

from __future__ import annotations

import json
from collections import defaultdict
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional as F  # noqa: N812  (its usual name)

from arbitrag.errors import DataError
from arbitrag.lab.world import SEED, VERSION, open_world
from arbitrag.storage.files import replacing
from training.batches import Batch, Place, Source, Stream
from training.muon import Muon
from training.network import STACKED, Decoder, Shape, precision
from training.samples import identity

STATE = "state.safetensors"
_WARM_UP = 60  # steps
_PAD = 2


@dataclass(frozen=True)
class Recipe:
    """The settings of a training run but the device. ``batch_tokens`` are those of one process and step.

    The learning rate warms up, holds, and falls to a fiftieth over the last ``decay`` of the tokens; the samples grow
    harder over the first ``ramp`` of them. ``start`` names the checkpoint whose weights were taken to begin with,
    ``adopt`` that of a model of another world; see ``lab_adopt``.
    """

    tokens: int = 40_000_000
    seed: int = 0
    world: int = SEED
    world_version: int = VERSION
    processes: int = 2
    batch_tokens: int = 3072
    learning_rate: float = 4e-3
    weight_decay: float = 0.03
    ramp: float = 0.5
    decay: float = 0.2
    fill: int = 1200  # samples
    tokenizer_samples: int = 20_000
    shape: Shape = field(default_factory=Shape)
    start: str = ""
    adopt: str = ""

    def progress(self, seen: int) -> float:
        return min(1.0, seen / (self.ramp * self.tokens)) if self.ramp else 1.0

    def rate(self, step: int, seen: int) -> float:
        """The learning rate of a step (from 0) after ``seen`` tokens."""
        start = self.tokens * (1 - self.decay)
        fall = max(0.0, seen - start) / (self.tokens * self.decay)
        return self.learning_rate * min(1.0, (step + 1) / _WARM_UP) * max(0.02, 1 - fall)


@dataclass
class Tally:
    """What was seen of one kind of sample: rows, rows written right throughout, learned tokens, their summed loss."""

    rows: int = 0
    right: int = 0
    tokens: int = 0
    loss: float = 0.0


@dataclass
class Trainer:
    """One of ``recipe.processes``. All of them hold equal weights; gradients are summed in bfloat16."""

    recipe: Recipe
    tokenizer: str
    rank: int = 0
    device: str = "cpu"
    compiled: bool = False
    executor: Executor | None = None
    ahead: int = 0
    step_number: int = 0
    seen: int = 0
    tallies: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))

    def __post_init__(self) -> None:
        torch.manual_seed(self.recipe.seed)
        dtype = precision(self.device)
        self.network = Decoder(self.recipe.shape, dtype=dtype, compiled=self.compiled).to(self.device)
        self._weights = dict(self.network.named_parameters())
        matrices = {
            name: weight for name, weight in self._weights.items() if name.startswith("blocks") and weight.dim() > 1
        }
        stacked = {name: STACKED.get(name.rsplit(".")[-1], 1) for name in matrices}
        self._muon = Muon(
            matrices,
            stacked,
            weight_decay=self.recipe.weight_decay,
            dtype=dtype,
            rank=self.rank,
            processes=self.recipe.processes,
        )
        self._others = {name: weight for name, weight in self._weights.items() if name not in matrices}
        self._adam = torch.optim.Adam(
            self._others.values(), lr=self.recipe.learning_rate, betas=(0.9, 0.98), fused=True
        )
        self._samples = identity(open_world(self.recipe.world, self.recipe.world_version))
        self._stream = self._streaming(Place())

    @property
    def done(self) -> bool:
        return self.seen >= self.recipe.tokens

    def step(self, *, flag: bool = False) -> bool:
        """One optimizer step over all processes. Gives whether any of them raised its ``flag``."""
        batch = self._stream.take(self.recipe.progress(self.seen))
        ids, learned = (tensor.to(self.device, non_blocking=True) for tensor in _tensors(batch))
        read, wanted, chosen = ids[:, :-1], ids[:, 1:], learned[:, 1:]
        rate = self.recipe.rate(self.step_number, self.seen)
        for group in self._adam.param_groups:
            group["lr"] = rate
        logits = self.network(read, chosen)
        losses = F.cross_entropy(logits, wanted[chosen], reduction="none")
        losses.sum().backward()  # type: ignore[no-untyped-call]
        counts = torch.tensor([len(losses), read.numel(), flag], dtype=torch.float64)
        self._sum_gradients(counts)
        nn.utils.clip_grad_norm_(self._weights.values(), 1.0)
        self._adam.step()
        self._muon.step(rate)
        self.network.zero_grad()
        self.seen += int(counts[1])
        self.step_number += 1
        if self.rank == 0:
            self._tally(batch, chosen, losses.detach(), logits.detach().argmax(-1) == wanted[chosen])
        return bool(counts[2])

    def _sum_gradients(self, counts: Tensor) -> None:
        """Sum ``counts`` over the processes, and make every gradient the mean over all learned tokens."""
        weights = list(self._weights.values())
        flat = torch.cat([weight.grad.flatten().bfloat16() for weight in weights if weight.grad is not None])
        if self.recipe.processes > 1:
            dist.all_reduce(flat)
            dist.all_reduce(counts)
        flat = flat.float() / counts[0].item()
        for weight, part in zip(weights, torch.split(flat, [weight.numel() for weight in weights]), strict=True):
            weight.grad = part.view_as(weight)

    def _tally(self, batch: Batch, chosen: Tensor, losses: Tensor, right: Tensor) -> None:
        found = torch.stack([losses, right.float()]).cpu()
        ends = chosen.sum(1).cumsum(0).tolist()
        for row, start, stop in zip(batch, [0, *ends], ends, strict=False):
            tally = self.tallies[row.kind]
            tally.rows += 1
            tally.right += bool(found[1, start:stop].all())
            tally.tokens += stop - start
            tally.loss += float(found[0, start:stop].sum())

    def save(self, folder: Path) -> None:
        """Write the state; every process must call it at the same step, and the first one writes."""
        places: list[Any] = [self._stream.place]
        if self.recipe.processes > 1:
            places = [None] * self.recipe.processes
            dist.all_gather_object(places, self._stream.place)
        if self.rank:
            return
        from safetensors.torch import save

        notes = {
            "recipe": asdict(self.recipe),
            "step": self.step_number,
            "seen": self.seen,
            "places": [asdict(place) for place in places],
            "tokenizer": self.tokenizer,
            "samples": self._samples,
        }
        with replacing(folder / STATE) as file:
            file.write(save(self._tensors(), {"state": json.dumps(notes)}))

    def load(self, folder: Path) -> None:
        """Go on from a state of the same recipe; raises DataError when it is damaged, or of samples drawn otherwise."""
        from safetensors import safe_open

        notes = read_notes(folder)
        if notes.get("samples") != self._samples:
            raise DataError(
                f"{folder / STATE} was trained on samples that are drawn otherwise now: "
                "go on with the version that began it, or begin anew in another folder"
            )
        with safe_open(folder / STATE, "pt") as file:
            for name, weight in self._weights.items():
                weight.data.copy_(file.get_tensor(f"weight/{name}"))
            for name, momentum in self._muon.momentum.items():
                momentum.copy_(file.get_tensor(f"momentum/{name}"))
            for name, weight in self._others.items():
                self._adam.state[weight] = {
                    "step": torch.tensor(float(notes["step"]), device=self.device),
                    **{part: file.get_tensor(f"{part}/{name}").to(self.device) for part in _MOMENTS},
                }
        self.step_number, self.seen = notes["step"], notes["seen"]
        place = notes["places"][self.rank]
        self._stream = self._streaming(Place(place["fill"], place["taken"], tuple(place["progresses"])))

    def _tensors(self) -> dict[str, Tensor]:
        found = {f"weight/{name}": weight.data for name, weight in self._weights.items()}
        found |= {f"momentum/{name}": momentum for name, momentum in self._muon.momentum.items()}
        for name, weight in self._others.items():
            state = self._adam.state[weight]
            found |= {f"{part}/{name}": state[part] for part in _MOMENTS if part in state}
        return found

    def _streaming(self, place: Place) -> Stream:
        recipe = self.recipe
        source = Source(recipe.world, self.tokenizer, recipe.seed, self.rank, recipe.fill, recipe.batch_tokens)
        return Stream(source, place, executor=self.executor, ahead=self.ahead)


_MOMENTS = ("exp_avg", "exp_avg_sq")


def _tensors(batch: Batch) -> tuple[Tensor, Tensor]:
    """Ids (B, T) and whether each is learned, padded at the end."""
    length = max(len(row.ids) for row in batch)
    ids = torch.full((len(batch), length), _PAD)
    learned = torch.zeros(len(batch), length, dtype=torch.bool)
    for number, row in enumerate(batch):
        ids[number, : len(row.ids)] = torch.tensor(row.ids)
        learned[number, : len(row.ids)] = torch.tensor(row.learned)
    return ids, learned


def read_notes(folder: Path) -> dict[str, Any]:
    """What a state says of itself: recipe, step, tokens seen, places of the streams, tokenizer.

    Raises DataError when it is damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / STATE, "pt") as file:
            notes: dict[str, Any] = json.loads(file.metadata()["state"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / STATE} cannot be read: {error}; begin anew in another folder") from None
    return notes

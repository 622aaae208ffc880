"""Muon: an optimizer with momentum and orthogonalised updates of matrices.

Rare directions then learn as fast as frequent ones, which is what a model of many seldom told facts needs. The
momentum of a matrix is replaced by the nearest orthogonal matrix through five Newton-Schulz steps
``X <- a X + (b A + c A A) X, A = X X^T``, and scaled by ``0.2 sqrt(max(rows, columns))`` to the size of an update of
Adam, so that both take the same learning rate (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/;
Liu et al. 2025, arXiv:2502.16982).

``torch.optim.Muon`` computes the same one matrix at a time in bfloat16, which takes 25 times as long on a processor
without bfloat16 arithmetic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch import distributed as dist

_A, _B, _C = 3.4445, -4.7750, 2.0315
_STEPS = 5
_SCALE = 0.2


class Muon:
    """Matrices, each of as many stacked blocks of equal height as ``blocks`` says; a block is made orthogonal alone.

    ``momentum`` holds the state by name; put tensors in it to go on from one.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        blocks: Mapping[str, int],
        *,
        weight_decay: float = 0.0,
        beta: float = 0.95,
        dtype: torch.dtype = torch.float32,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self._weights = weights
        self._blocks = blocks
        self._weight_decay = weight_decay
        self._beta = beta
        self._dtype = dtype
        self._rank, self._processes = rank, processes
        self.momentum = {name: torch.zeros_like(weight) for name, weight in weights.items()}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move every weight against its gradient; Nesterov's momentum, decoupled weight decay."""
        wanted = {name: self._wanted(name, weight) for name, weight in self._weights.items()}
        for name, update in self._orthogonal(wanted).items():
            weight = self._weights[name]
            weight.mul_(1 - rate * self._weight_decay).sub_(update, alpha=rate)

    def _wanted(self, name: str, weight: Tensor) -> Tensor:
        gradient = weight.grad
        assert gradient is not None
        momentum = self.momentum[name].lerp_(gradient, 1 - self._beta)
        return gradient.lerp(momentum, self._beta)

    def _orthogonal(self, wanted: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The updates. Each process computes every so many-th block, and their sum over all processes is the whole."""
        found = {name: torch.zeros_like(update) for name, update in wanted.items()}
        alike: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for name, update in wanted.items():
            number = self._blocks.get(name, 1)
            for place, block in zip(found[name].chunk(number), update.chunk(number), strict=True):
                alike[block.shape].append((place, block))
        for shape, pairs in alike.items():
            mine = pairs[self._rank :: self._processes]
            if mine:
                updates = orthogonal([block for _, block in mine], self._dtype) * (_SCALE * max(shape) ** 0.5)
                for (place, _), update in zip(mine, updates, strict=True):
                    place.copy_(update)
        if self._processes > 1:
            flat = torch.cat([update.flatten() for update in found.values()])
            dist.all_reduce(flat)
            sizes = [update.numel() for update in found.values()]
            found = {
                name: part.view_as(wanted[name]) for name, part in zip(found, torch.split(flat, sizes), strict=True)
            }
        return found


def orthogonal(matrices: Sequence[Tensor], dtype: torch.dtype = torch.float32) -> Tensor:
    """About the nearest orthogonal matrices to some of equal shape (rows, columns): (number, rows, columns).

    Singular values end between 0.7 and 1.2; a matrix of zeros stays one.
    """
    found = torch.stack(list(matrices)).to(dtype)
    tall = found.shape[1] > found.shape[2]
    if tall:
        found = found.mT.contiguous()
    found = found / (found.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        square = found @ found.mT
        found = torch.baddbmm(found, torch.baddbmm(square, square, square, beta=_B, alpha=_C), found, beta=_A)
    return found.mT if tall else found

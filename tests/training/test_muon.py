"""Muon: what its update is, by hand and against torch's own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from training.muon import Muon, orthogonal  # noqa: E402


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6)])
def test_the_update_keeps_the_directions_and_evens_their_lengths(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(*shape) * 7
    left, lengths, right = torch.linalg.svd(matrix, full_matrices=False)
    made = orthogonal([matrix, 2 * matrix])
    assert torch.allclose(made[0], made[1], atol=1e-4)  # the length of the whole does not count
    inside = left.T @ made[0] @ right.T
    evened = inside.diagonal()
    assert (inside - torch.diag(evened)).abs().max() < 1e-3
    assert evened.min() > 0.6
    assert evened.max() < 1.25
    assert lengths.max() / lengths.min() > 1.5


def test_nothing_comes_of_nothing() -> None:
    assert not orthogonal([torch.zeros(3, 3)]).any()


def test_stacked_blocks_are_made_orthogonal_one_by_one() -> None:
    torch.manual_seed(1)
    blocks = torch.randn(2, 4, 4)
    weight = torch.nn.Parameter(torch.zeros(8, 4))
    weight.grad = blocks.reshape(8, 4).clone()
    Muon({"both": weight}, {"both": 2}).step(1.0)
    expected = -orthogonal(list(blocks)) * 0.2 * 2  # 0.2 sqrt(max(4, 4))
    assert torch.allclose(weight.detach(), expected.reshape(8, 4), atol=1e-5)


def test_two_steps_agree_with_torch() -> None:
    """Torch computes in bfloat16, which is good for two digits."""
    torch.manual_seed(2)
    ours, theirs = (torch.nn.Parameter(torch.full((12, 5), 0.5)) for _ in range(2))
    muon = Muon({"weight": ours}, {}, weight_decay=0.1, beta=0.95)
    other = torch.optim.Muon(
        [theirs], lr=0.01, weight_decay=0.1, momentum=0.95, nesterov=True, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(2):
        gradient = torch.randn(12, 5)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        muon.step(0.01)
        other.step()
    assert (ours - theirs).abs().max() < 3e-4
    assert (ours - 0.5).abs().mean() > 2e-3


def test_weights_decay_apart_from_the_gradient() -> None:
    weight = torch.nn.Parameter(torch.ones(3, 3))
    weight.grad = torch.zeros(3, 3)
    Muon({"weight": weight}, {}, weight_decay=0.5).step(0.1)
    assert torch.allclose(weight.detach(), torch.full((3, 3), 0.95))

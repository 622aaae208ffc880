"""Linear layers in pieces: the same values, only where it pays, and nothing of it stays with the model."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402  (needs what was just looked for)

from arbitrag.llm.hf import small_batch_linear  # noqa: E402
from arbitrag.llm.hf.small_batch_linear import FEW, FewTokens, piece  # noqa: E402


@pytest.mark.parametrize(
    ("out", "inner", "size"),
    [
        (2048, 768, 128),  # 170 rows are 512 KiB
        (8192, 2048, 64),  # exactly
        (2048, 8192, 16),
        (4096, 100_000, 0),  # a row is too wide for pieces of eight
        (768 * 3, 768, 128),
        (50_257, 768, 0),  # odd
        (50_264, 768, 8),
        (50_260, 768, 0),  # only pieces of four
        (64, 32, 0),  # fits as it is
        (8192, 16, 0),
        (16_384, 16, 8192),
    ],
)
def test_the_size_of_a_piece(out: int, inner: int, size: int) -> None:
    assert piece(torch.empty(out, inner)) == size


def test_what_stays_whole() -> None:
    weight = torch.empty(2048, 768)
    assert piece(weight) > 0
    assert piece(weight.bfloat16()) == 0
    assert piece(weight.to("meta")) == 0
    assert piece(torch.empty(768, 2048).t()) == 0, "not contiguous"


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> nn.Sequential:
    """Two layers of four pieces and of two, one with a bias."""
    monkeypatch.setattr(small_batch_linear, "_PIECE", 8 * 32 * 4)
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 32), nn.Linear(32, 16, bias=False)).requires_grad_(False)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (3, 5), (64, 1), (1, 64), (2, 3, 4)])
def test_pieces_give_what_the_whole_gives(layers: nn.Sequential, shape: tuple[int, ...]) -> None:
    given = torch.randn(*shape, 24)
    expected, few = layers(given), FewTokens(layers)
    with few.at_once(1):
        assert "forward" in vars(layers[0])
        found = layers(given)
    assert found.shape == (*shape, 16)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_rows_that_are_not_contiguous(layers: nn.Sequential) -> None:
    given = torch.randn(24, 6).t()
    expected, few = layers(given), FewTokens(layers)
    with few.at_once(6):
        torch.testing.assert_close(layers(given), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("tokens", "pieces"), [(FEW, True), (FEW + 1, False)])
def test_many_tokens_go_as_they_always_did(layers: nn.Sequential, tokens: int, pieces: bool) -> None:
    with FewTokens(layers).at_once(tokens):
        assert ("forward" in vars(layers[0])) == pieces
    assert "forward" not in vars(layers[0])


def test_the_model_is_left_as_it_was(layers: nn.Sequential) -> None:
    few = FewTokens(layers)
    with pytest.raises(RuntimeError, match="in the middle"), few.at_once(1):
        raise RuntimeError("in the middle")
    assert all("forward" not in vars(layer) for layer in layers)


def test_a_weight_that_changes_is_seen(layers: nn.Sequential) -> None:
    few, given = FewTokens(layers), torch.randn(2, 24)
    layers[1].weight = nn.Parameter(torch.randn(16, 32), requires_grad=False)
    expected = layers(given)
    with few.at_once(2):
        torch.testing.assert_close(layers(given), expected, atol=1e-6, rtol=1e-5)


def test_layers_of_another_kind_are_left_alone(layers: nn.Sequential) -> None:
    """One that computes in its own way, and one whose forward someone replaced already."""

    class Own(nn.Linear):
        pass

    assert len(FewTokens(nn.Sequential(*layers, Own(24, 32)))) == 2
    vars(layers[0])["forward"] = layers[0].forward
    assert len(FewTokens(layers)) == 1

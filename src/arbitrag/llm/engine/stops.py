"""Where a text ends because of a stop text."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where in a text the first of these begins; None where none does."""
    return min((at for at in map(text.find, stop) if at >= 0), default=None)


def stop_rule(decode: Callable[[Sequence[int]], str], stop: Sequence[str]) -> Callable[[list[int]], bool] | None:
    """Whether the text of token ids has one of these in it; None where there is nothing to look for."""
    return (lambda ids: first_stop(decode(ids), stop) is not None) if stop else None

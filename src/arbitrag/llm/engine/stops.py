"""Stop sequences: where a completion ends, and the rule that the decode batch checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the first stop sequence in a text begins; None where there is none."""
    return min((at for at in map(text.find, stop) if at >= 0), default=None)


def stop_rule(decode: Callable[[Sequence[int]], str], stop: Sequence[str]) -> Callable[[list[int]], bool] | None:
    """Whether the text of token ids contains a stop sequence; None where there are none to look for."""
    return (lambda ids: first_stop(decode(ids), stop) is not None) if stop else None

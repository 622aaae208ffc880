"""What a shell offers for the values of options, once ``arbitrag --install-completion`` was typed."""

from __future__ import annotations

import typer


def methods(incomplete: str) -> list[str]:
    """Names of methods."""
    from arbitrag.methods import METHODS

    return [name for name in sorted(METHODS) if name.startswith(incomplete)]


def settings(context: typer.Context, incomplete: str) -> list[str]:
    """``threshold=`` and so on, of the method that stands earlier on the line; nothing without one."""
    import dataclasses

    from arbitrag.errors import ArbitragError
    from arbitrag.methods import load

    name = str(context.params.get("method") or "").partition(" ")[0]
    try:
        kind = load(name)
    except ArbitragError:
        return []
    names = (f"{each.name}=" for each in dataclasses.fields(kind))  # type: ignore[arg-type]
    return [each for each in names if each.startswith(incomplete)]


def models(incomplete: str) -> list[str]:
    """How the addresses of models begin."""
    from arbitrag.registry import LLMS, beginnings

    return [each for each in beginnings(LLMS) if each.startswith(incomplete)]


def encoders(incomplete: str) -> list[str]:
    """How the addresses of encoders begin."""
    from arbitrag.registry import ENCODERS, beginnings

    return [each for each in beginnings(ENCODERS) if each.startswith(incomplete)]


def modes(incomplete: str) -> list[str]:
    """The ways to search an index with vectors."""
    return [name for name in ("bm25", "dense", "hybrid") if name.startswith(incomplete)]

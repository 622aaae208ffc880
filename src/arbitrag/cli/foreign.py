"""The lab's questions are about an invented world, of which only models that were trained on it know anything."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

Foreign = Annotated[
    bool, typer.Option("--foreign", help="Allow a model that was not trained on the lab's world to answer about it.")
]


def refuse_foreign(llms: Iterable[str], what: str, insist: str) -> None:
    """Raise UsageError for a model that knows nothing of the lab's world, by its address; ``insist`` is what to type.

    Such a model can read the passages that come with a question, and nothing else: what it says from memory means
    nothing, and neither does a comparison of memory with passages.
    """
    from arbitrag.errors import UsageError
    from arbitrag.security.addresses import shown
    from arbitrag.text import one_line

    for llm in llms:
        if not knows_the_lab(llm):
            named = one_line(shown(llm), 200)
            raise UsageError(
                f"{named} was not trained on the lab's invented world, which {what} about, so it can remember nothing "
                "of it\n"
                f"Ask the lab's model (--llm lab), ask {named} about documents of your own, or, to see how it reads "
                f"passages alone, insist: {insist}"
            )


def knows_the_lab(address: str) -> bool:
    """Whether a model is the embedded one, or a folder whose manifest names the world of the lab that it knows.

    Of an address that is none, whoever opens it says so.
    """
    kind, _, rest = address.partition(":")
    from arbitrag import plugins
    from arbitrag.registry import LLMS

    row = LLMS.get(kind)
    if kind == "lab" or (row is None and plugins.find("backends", kind) is None):
        return True
    if row is None or not row.files:
        return False
    from arbitrag.errors import DataError
    from arbitrag.storage.model_manifest import read_manifest

    try:
        found = read_manifest(Path(rest.partition("?")[0]))
    except DataError:
        return False
    return found is not None and found.world is not None

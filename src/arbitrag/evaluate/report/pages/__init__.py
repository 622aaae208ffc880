"""The pages that need nothing else: the look in ``base.html``, tables in ``parts.html``, and a template for each."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def rendered(template: str, **fields: Any) -> str:
    """The page, as a text to be written in UTF-8; ``fields`` are escaped, and a missing one is an error."""
    return _environment().get_template(f"{template}.html").render(**fields)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

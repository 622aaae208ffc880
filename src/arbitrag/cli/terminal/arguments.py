"""Text that a user types as an argument, whatever the locale says of its bytes."""

from __future__ import annotations

import os

from arbitrag.text import encodable, one_line


def typed(text: str | None) -> str | None:
    """An argument as text: its bytes read as UTF-8, also where the locale (such as C) knows no more than ASCII.

    A callback for typer. Raises UsageError where the bytes are not UTF-8.
    """
    if text is None or text == encodable(text):  # Python keeps each byte that it cannot decode as a lone surrogate
        return text
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        from arbitrag.errors import UsageError

        raise UsageError(f"an argument is not UTF-8: {one_line(text)}\nType it as UTF-8.") from None

"""Convert passages to and from the flat JSON documents of an external store.

    {"id", "text", "title", "source", "line", "offset", "date", "metadata": {"key": "value"}}

What a store returns was written by others, so its types are looked at and nothing is assumed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from arbitrag.errors import IndexFileError
from arbitrag.text import one_line
from arbitrag.types import Passage

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder

T = TypeVar("T")


class Progress(Protocol):
    """A progress callback: ``done`` of ``total`` (None while unknown), and what is being counted."""

    def __call__(self, done: int, total: int | None, what: str, /) -> None: ...


def passage_id(passage: Passage) -> str:
    """The passage's id, or 24 hexadecimal digits of its place, title and text where it has none."""
    if passage.id:
        return passage.id
    whole = "\x00".join((passage.source, str(passage.offset), passage.title, passage.text))
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def to_document(passage: Passage) -> dict[str, Any]:
    """The passage as plain JSON values, without its score and its embedding."""
    return {
        "id": passage_id(passage),
        "text": passage.text,
        "title": passage.title,
        "source": passage.source,
        "line": passage.line,
        "offset": passage.offset,
        "date": passage.date,
        "metadata": dict(passage.metadata),
    }


def from_document(document: Mapping[str, Any], *, id: str, score: float, text_field: str, store: str) -> Passage:
    """The passage in a stored document; ``id`` is the store's own, used where the document names none.

    Raises IndexFileError when the document has no text in ``text_field``; ``store`` names it in the error text.
    """
    text = document.get(text_field)
    if not isinstance(text, str):
        found = one_line(", ".join(sorted(map(str, document)))) or "nothing"
        raise IndexFileError(
            f"{store} holds a document without a text in '{text_field}'; it has {found}.\nGive text_field=NAME."
        )
    metadata = document.get("metadata")
    return Passage(
        text=text,
        id=_text(document.get("id")) or id,
        title=_text(document.get("title")),
        source=_text(document.get("source")),
        line=_whole(document.get("line")),
        offset=_whole(document.get("offset")),
        score=score,
        date=_text(document.get("date")),
        metadata=flat(metadata) if isinstance(metadata, Mapping) else {},
    )


def other_vectors(store: str, maker: str, width: int, encoder: Encoder) -> IndexFileError:
    """The error for a store whose vectors, ``width`` wide, the encoder ``maker`` made, and not this one."""
    return IndexFileError(
        f"{store} holds vectors of {one_line(maker)}, {width} wide; "
        f"this encoder is {encoder.identity}, {encoder.width or 'width unknown'}.\n"
        "Open it with the encoder that it was made with, or load the passages with this one under another name."
    )


def flat(metadata: Mapping[Any, Any]) -> dict[str, str]:
    """Metadata of any shape as text to text: None is left out, lists and objects become JSON."""
    return {str(key): _word(value) for key, value in metadata.items() if value is not None}


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """``items`` in lists of ``size``, the last one shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def _word(value: Any) -> str:
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None

"""Passages in a Qdrant collection, nearest first by cosine, through the official client.

    await load(client, "library", passages, encoder=encoder)
    retriever = QdrantRetriever(client, "library", encoder)

The client is the caller's: ``AsyncQdrantClient("http://localhost:6333")``, or ``AsyncQdrantClient(":memory:")`` for one
in this process. ``QdrantRetriever.open(url, …)`` makes one, with the key in QDRANT_API_KEY. Only vectors are ranked
here; for words as well, join it with another retriever.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from arbitrag.encode.base import encoded_text
from arbitrag.errors import BackendError, IndexFileError, MissingExtra, UsageError
from arbitrag.retrieve.base import check_k
from arbitrag.retrieve.servers.address import ServerAddress
from arbitrag.retrieve.servers.guard import RequestGuard
from arbitrag.retrieve.stored_passage import Progress, batches, from_document, other_vectors, to_document
from arbitrag.security.addresses import Url
from arbitrag.security.redaction import Secrets
from arbitrag.text import one_line
from arbitrag.types import Passage

try:
    from qdrant_client import AsyncQdrantClient, models
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException, UnexpectedResponse
except ImportError as error:
    raise MissingExtra("qdrant", "a Qdrant collection") from error

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder

_LOADED_AT_ONCE = 500  # passages
# A point's id is a number or a UUID, so a passage's own id, of any shape, is turned into one of these.
_IDS = uuid.UUID("6d1f3a52-4c39-4b0e-9d0a-5f1c9b2f7a11")


class QdrantRetriever:
    """A retriever over one Qdrant collection."""

    def __init__(
        self,
        client: AsyncQdrantClient,
        collection: str,
        encoder: Encoder,
        *,
        server: str = "local",
        text_field: str = "text",
        timeout_s: float | None = None,
        closes_client: bool = False,
        closes_encoder: bool = False,
        secrets: Secrets | None = None,
    ) -> None:
        """``server`` is what may be shown of the address, ``secrets`` what may not. The client and the
        encoder stay the caller's to close. A question that takes longer than ``timeout_s`` fails.

        In a collection of your own, the payload has the passage in ``text_field``, and the vectors have no name.
        """
        self._client = client
        self._collection = collection
        self.encoder = encoder
        self._text_field = text_field
        self._timeout_s = timeout_s
        self._closes_client = closes_client
        self._closes_encoder = closes_encoder
        self._secrets = secrets or Secrets()
        self._secrets.hide_in_logs()
        self._shown = f"collection '{one_line(collection)}' at {server}"
        self._checking = asyncio.Lock()
        self._checked = False
        self.name = f"qdrant:{server}/{collection}"
        self.identity = f"qdrant:{server}/{collection}:{encoder.identity}"

    @classmethod
    def open(
        cls,
        url: str,
        collection: str,
        encoder: Encoder,
        *,
        text_field: str = "text",
        timeout_s: float = 10.0,
        closes_encoder: bool = False,
    ) -> QdrantRetriever:
        """A collection on a server. Nothing is sent before the first question. The encoder stays the caller's to close,
        unless ``closes_encoder``.

        Raises UsageError for an address that cannot be one.
        """
        address = Url.of(url)
        key = address.password or os.environ.get("QDRANT_API_KEY") or None
        client = AsyncQdrantClient(
            url=address.plain, api_key=key, timeout=max(1, round(timeout_s)), check_compatibility=False
        )
        return cls(
            client,
            collection,
            encoder,
            server=address.shown,
            text_field=text_field,
            timeout_s=timeout_s,
            closes_client=True,
            closes_encoder=closes_encoder,
            secrets=Secrets({key or "", *address.secrets}),
        )

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        """At most ``k`` passages, nearest first; ``score`` is the cosine.

        Raises IndexFileError for a collection that is missing, or whose vectors or payloads are of another shape, and
        BackendError when the server is away or refuses.
        """
        check_k(k)
        await self._check()
        vector = (await self.encoder.encode([query], kind="query"))[0]
        if not vector.any():
            return ()
        conditions = [_equals(key, value) for key, value in (where or {}).items()]
        async with _GUARD.within(self._timeout_s, self._shown, self._secrets):
            reply = await self._client.query_points(
                self._collection,
                query=vector.tolist(),
                limit=k,
                query_filter=models.Filter(must=list(conditions)) if conditions else None,
                with_payload=True,
                with_vectors=True,
            )
        return tuple(self._passages(reply.points))

    async def aclose(self) -> None:
        """Close the client where ``open`` made it."""
        if self._closes_client:
            await self._client.close()
        if self._closes_encoder:
            await self.encoder.aclose()

    async def _check(self) -> None:
        """Once, before the first vector is compared: the collection holds vectors of this encoder."""
        async with self._checking:
            if self._checked:
                return
            async with _GUARD.within(self._timeout_s, self._shown, self._secrets):
                await _suits(
                    self._client, self._collection, self.encoder, self.encoder.width, self._shown, self._secrets
                )
            self._checked = True

    def _passages(self, points: Iterable[models.ScoredPoint]) -> Iterator[Passage]:
        for point in points:
            found = from_document(
                point.payload or {}, id=str(point.id), score=point.score, text_field=self._text_field, store=self._shown
            )
            vector = np.asarray(point.vector, np.float32)
            yield replace(found, embedding=vector, embedded_by=self.encoder.identity)


async def load(
    client: AsyncQdrantClient,
    collection: str,
    passages: Iterable[Passage],
    *,
    encoder: Encoder,
    progress: Progress | None = None,
) -> int:
    """Put passages into a collection, making it where it is missing, and return how many were sent.

    500 at a time are encoded, sent and then reported to ``progress(done, total, what)``. A passage replaces the one
    with its id. Raises IndexFileError when the collection holds other vectors, BackendError when the server fails.
    """
    shown, secrets = f"collection '{one_line(collection)}'", Secrets()  # the client is the caller's
    total = len(passages) if isinstance(passages, Sequence) else None
    done = 0
    for batch in batches(passages, _LOADED_AT_ONCE):
        vectors = await encoder.encode([encoded_text(passage) for passage in batch], kind="passage")
        if done == 0:
            await _prepare(client, collection, encoder, int(vectors.shape[1]), shown, secrets)
        points = [_point(passage, vector) for passage, vector in zip(batch, vectors, strict=True)]
        with _GUARD.errors(shown, secrets):
            await client.upsert(collection, points=points, wait=True)
        done += len(batch)
        if progress is not None:
            progress(done, total, "passages")
    return done


async def _prepare(
    client: AsyncQdrantClient, collection: str, encoder: Encoder, width: int, shown: str, secrets: Secrets
) -> None:
    """Create the collection, or check that the existing one fits the vectors."""
    with _GUARD.errors(shown, secrets):
        exists = await client.collection_exists(collection)
        if not exists:
            await client.create_collection(
                collection,
                vectors_config=models.VectorParams(size=width, distance=models.Distance.COSINE),
                metadata={"arbitrag_encoder": encoder.identity},
            )
    if exists:
        await _suits(client, collection, encoder, width, shown, secrets)


async def _suits(
    client: AsyncQdrantClient, collection: str, encoder: Encoder, width: int | None, shown: str, secrets: Secrets
) -> None:
    """Raise IndexFileError unless the collection has vectors of this encoder, as far as it says."""
    with _GUARD.errors(shown, secrets):
        if not await client.collection_exists(collection):
            raise IndexFileError(
                f"there is no {shown}.\n"
                "Load it first: arbitrag.retrieve.servers.qdrant.load(client, collection, passages)"
            )
        config = (await client.get_collection(collection)).config
    vectors = config.params.vectors
    if not isinstance(vectors, models.VectorParams):
        raise IndexFileError(f"{shown} has named vectors; one with a single unnamed vector is needed")
    maker = (config.metadata or {}).get("arbitrag_encoder", encoder.identity)
    if maker != encoder.identity or (width or vectors.size) != vectors.size:
        raise other_vectors(shown, str(maker), vectors.size, encoder)


def _point(passage: Passage, vector: np.ndarray) -> models.PointStruct:
    document = to_document(passage)
    return models.PointStruct(id=str(uuid.uuid5(_IDS, document["id"])), vector=vector.tolist(), payload=document)


def _equals(key: str, value: str) -> models.FieldCondition:
    """A condition on ``metadata``; Qdrant reads the key as a path, so one that is not a plain word is quoted."""
    if '"' in key:
        raise UsageError(f"Qdrant cannot filter on a key with a quotation mark: {one_line(key)}")
    path = key if key.replace("_", "").isalnum() and key.isascii() else f'"{key}"'
    return models.FieldCondition(key=f"metadata.{path}", match=models.MatchValue(value=value))


@contextmanager
def _translated_errors(shown: str, secrets: Secrets) -> Iterator[None]:
    try:
        yield
    except UnexpectedResponse as error:
        hint = "; set QDRANT_API_KEY" if error.status_code in (401, 403) else ""
        said = one_line(secrets.clean(error.content.decode("utf-8", "replace")), 200)
        raise BackendError(
            f"{shown} cannot answer ({error.status_code}){hint}: {said}", status=error.status_code
        ) from error
    except (ApiException, QdrantException) as error:
        said = one_line(secrets.clean(str(error)), 200)
        raise BackendError(f"cannot reach {shown}: {said}\nCheck that the server runs, and its address.") from error


_GUARD = RequestGuard(_translated_errors)


def open_address(asked: ServerAddress) -> QdrantRetriever:
    """The passages at an address; raises what ``open_index`` raises."""
    asked.refuse("table", "mode")
    if asked.encoder is None:
        raise UsageError(
            f"qdrant compares vectors; name the encoder that the collection was made with: {asked.example}"
        )
    return QdrantRetriever.open(
        *asked.split(),
        asked.encoder,
        text_field=asked.options.get("text_field", "text"),
        closes_encoder=asked.closes_encoder,
    )

"""Passages in an Elasticsearch index, searched by BM25 or by vectors, through the official client.

    await load("https://localhost:9200", "library", passages, encoder=encoder)
    retriever = ElasticRetriever.open("https://localhost:9200", "library")

text     ``multi_match`` over text and title: BM25, and the query is words, never syntax
vector   approximate nearest neighbours by cosine; the score is (1 + cosine) / 2

For both at once, join two of these with a hybrid retriever: Elasticsearch's own rank fusion needs a paid licence.
The key is taken from ELASTIC_API_KEY, or user and password from the address. OpenSearch refuses this client, and this
client refuses OpenSearch.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from arbitrag.encode.base import encoded_text
from arbitrag.errors import BackendError, DataError, IndexFileError, MissingExtra, UsageError
from arbitrag.retrieve.base import check_k
from arbitrag.retrieve.servers.address import ServerAddress
from arbitrag.retrieve.servers.guard import RequestGuard
from arbitrag.retrieve.stored_passage import Progress, batches, from_document, other_vectors, to_document
from arbitrag.security.addresses import Url
from arbitrag.security.redaction import Secrets
from arbitrag.text import one_line
from arbitrag.types import Passage

try:
    from elastic_transport import HttpxAsyncHttpNode
    from elasticsearch import (
        ApiError,
        AsyncElasticsearch,
        AuthenticationException,
        AuthorizationException,
        NotFoundError,
        TransportError,
        UnsupportedProductError,
    )
    from elasticsearch.helpers import BulkIndexError, async_bulk
except ImportError as error:
    raise MissingExtra("elastic", "an Elasticsearch index") from error

if TYPE_CHECKING:
    from arbitrag.encode.base import Encoder

Mode = Literal["text", "vector"]

_LOADED_AT_ONCE = 500  # passages
_CANDIDATES = 200  # neighbours looked at on every shard


class ElasticRetriever:
    """A retriever over one Elasticsearch index; make it with ``open``."""

    def __init__(
        self,
        client: AsyncElasticsearch,
        url: Url,
        index: str,
        mode: Mode,
        encoder: Encoder | None,
        *,
        text_field: str,
        timeout_s: float,
        closes_encoder: bool,
    ) -> None:
        self._client = client
        self._secrets = _secrets(url)
        self._shown = f"index '{one_line(index)}' at {url.shown}"
        self._index = index
        self._mode: Mode = mode
        self.encoder = encoder
        self._closes_encoder = closes_encoder
        self._text_field = text_field
        self._timeout_s = timeout_s
        self._checking = asyncio.Lock()
        self._checked = False
        self.name = f"elastic:{url.shown}/{index} ({mode})"
        vectors = f":{encoder.identity}" if mode == "vector" and encoder is not None else ""
        self.identity = f"elastic:{url.shown}/{index}:{mode}{vectors}"

    @classmethod
    def open(
        cls,
        url: str,
        index: str,
        *,
        encoder: Encoder | None = None,
        mode: Mode | None = None,
        text_field: str = "text",
        timeout_s: float = 10.0,
        closes_encoder: bool = False,
    ) -> ElasticRetriever:
        """An index that ``load`` filled, or one of your own that has the passage in ``text_field``.

        ``mode`` is vector with an encoder and text without one, unless given. In an index of your own, vectors stand
        in ``embedding``, and ``where`` needs ``metadata.KEY`` to be mapped as keyword, or ``metadata`` as flattened.
        Nothing is sent before the first question. The encoder stays the caller's to close, unless
        ``closes_encoder``. Raises UsageError for an address or a mode that cannot be one.
        """
        mode = mode or ("text" if encoder is None else "vector")
        if mode not in ("text", "vector"):
            raise UsageError(f"mode is '{mode}'; expected text or vector (for both, join two retrievers)")
        if mode == "vector" and encoder is None:
            raise UsageError(f"mode vector needs the encoder that '{index}' was loaded with; give encoder=…")
        address = Url.of(url)
        client = _client(address, timeout_s)
        return cls(
            client,
            address,
            index,
            mode,
            encoder,
            text_field=text_field,
            timeout_s=timeout_s,
            closes_encoder=closes_encoder,
        )

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        """At most ``k`` passages, best first.

        Raises IndexFileError for an index that is missing, or whose vectors or documents are of another shape, and
        BackendError when the server is away or refuses.
        """
        check_k(k)
        body = await self._body(query, k, [{"term": {f"metadata.{key}": word}} for key, word in (where or {}).items()])
        if body is None:
            return ()
        async with _GUARD.within(self._timeout_s, self._shown, self._secrets):
            reply = await self._client.search(index=self._index, body=body)
        return tuple(self._passages(reply))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()
        if self._closes_encoder and self.encoder is not None:
            await self.encoder.aclose()

    async def _body(self, query: str, k: int, terms: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The search request; None when there is nothing in the query to compare."""
        # Vectors come as a field: since 9.2 the source no longer holds them.
        shape = {"size": k, "_source": {"excludes": ["embedding"]}, "fields": ["embedding"]}
        if self._mode == "text":
            fields = list(dict.fromkeys((self._text_field, "title")))
            words = {"multi_match": {"query": query, "fields": fields, "lenient": True}}
            return {**shape, "query": {"bool": {"must": words, "filter": terms}}}
        assert self.encoder is not None
        await self._check(self.encoder)
        vector = (await self.encoder.encode([query], kind="query"))[0]
        if not vector.any():
            return None
        knn = {"field": "embedding", "query_vector": vector.tolist(), "k": k, "num_candidates": max(_CANDIDATES, 2 * k)}
        return {**shape, "knn": {**knn, "filter": terms}}

    async def _check(self, encoder: Encoder) -> None:
        """Once, before the first vector is compared: the index holds vectors of this encoder."""
        async with self._checking:
            if self._checked:
                return
            async with _GUARD.within(self._timeout_s, self._shown, self._secrets):
                reply = await self._client.indices.get_mapping(index=self._index)
            for described in reply.values():
                _suits(described.get("mappings", {}), encoder, self._shown)
            self._checked = True

    def _passages(self, reply: Any) -> Iterator[Passage]:
        for hit in reply["hits"]["hits"]:
            found = from_document(
                hit.get("_source") or {},
                id=str(hit["_id"]),
                score=float(hit["_score"]),
                text_field=self._text_field,
                store=self._shown,
            )
            vector = (hit.get("fields") or {}).get("embedding")
            maker = self.encoder.identity if self.encoder is not None and self._mode == "vector" else ""
            if vector is not None:
                found = replace(found, embedding=np.asarray(vector, np.float32), embedded_by=maker)
            yield found


async def load(
    url: str,
    index: str,
    passages: Iterable[Passage],
    *,
    encoder: Encoder | None = None,
    progress: Progress | None = None,
    timeout_s: float = 60.0,
) -> int:
    """Put passages into an index, making it where it is missing, and return how many were sent.

    500 at a time are encoded, sent and then reported to ``progress(done, total, what)``. A passage replaces the one
    with its id. Raises IndexFileError when the index holds other vectors, DataError when the server refuses a passage,
    BackendError when it is away.
    """
    address = Url.of(url)
    secrets = _secrets(address)
    shown = f"index '{one_line(index)}' at {address.shown}"
    total = len(passages) if isinstance(passages, Sequence) else None
    done = 0
    async with _client(address, timeout_s) as client:
        for batch in batches(passages, _LOADED_AT_ONCE):
            vectors = None
            if encoder is not None:
                vectors = await encoder.encode([encoded_text(passage) for passage in batch], kind="passage")
            with _GUARD.errors(shown, secrets):
                if done == 0:
                    await _prepare(client, index, encoder, None if vectors is None else int(vectors.shape[1]), shown)
                await async_bulk(client, _actions(batch, vectors), index=index)
            done += len(batch)
            if progress is not None:
                progress(done, total, "passages")
        if done:
            with _GUARD.errors(shown, secrets):
                await client.indices.refresh(index=index)
    return done


def _secrets(url: Url) -> Secrets:
    """The secrets of an address, removed from the client's log while this is referenced."""
    found = Secrets({os.environ.get("ELASTIC_API_KEY", ""), *url.secrets})
    found.hide_in_logs()
    return found


def _client(url: Url, timeout_s: float) -> AsyncElasticsearch:
    key = os.environ.get("ELASTIC_API_KEY") or None
    login = (url.user, url.password) if url.user else None
    return AsyncElasticsearch(
        url.plain,
        api_key=None if login else key,
        basic_auth=login,
        request_timeout=timeout_s,
        retry_on_timeout=False,
        node_class=HttpxAsyncHttpNode,  # the other one, aiohttp's, follows redirects to any host with the question
    )


async def _prepare(
    client: AsyncElasticsearch, index: str, encoder: Encoder | None, width: int | None, shown: str
) -> None:
    """Create the index, or check that the existing one fits the vectors."""
    if await client.indices.exists(index=index):
        reply = await client.indices.get_mapping(index=index)
        for described in reply.values():
            if encoder is not None:
                _suits(described.get("mappings", {}), encoder, shown)
        return
    properties: dict[str, Any] = {
        "text": {"type": "text"},
        "title": {"type": "text"},
        "metadata": {"type": "flattened"},
        "line": {"type": "integer"},
        "offset": {"type": "long"},
        **{name: {"type": "keyword", "ignore_above": 8000} for name in ("id", "source", "date")},
    }
    about: dict[str, Any] = {}
    if encoder is not None:
        properties["embedding"] = {"type": "dense_vector", "dims": width, "index": True, "similarity": "cosine"}
        about = {"arbitrag": {"encoder": encoder.identity}}
    await client.indices.create(index=index, mappings={"_meta": about, "properties": properties})


def _suits(mapping: Mapping[str, Any], encoder: Encoder, shown: str) -> None:
    """Raise IndexFileError unless the index has vectors of this encoder, as far as it says."""
    width = mapping.get("properties", {}).get("embedding", {}).get("dims")
    maker = mapping.get("_meta", {}).get("arbitrag", {}).get("encoder", encoder.identity)
    if width is None:
        raise IndexFileError(f"{shown} holds no vectors in 'embedding'; leave out the encoder to search by words")
    if maker != encoder.identity or (encoder.width or width) != width:
        raise other_vectors(shown, str(maker), width, encoder)


async def _actions(batch: Sequence[Passage], vectors: np.ndarray | None) -> AsyncIterator[dict[str, Any]]:
    for at, passage in enumerate(batch):
        document = to_document(passage)
        # A row of zeros is near nothing, and the server refuses it.
        if vectors is not None and vectors[at].any():
            document["embedding"] = vectors[at].tolist()
        yield {"_id": document["id"], "_source": document}


@contextmanager
def _translated_errors(shown: str, secrets: Secrets) -> Iterator[None]:
    try:
        yield
    except NotFoundError as error:
        raise IndexFileError(
            f"there is no {shown}.\nLoad it first: arbitrag.retrieve.servers.elastic.load(url, index, passages)"
        ) from error
    except (AuthenticationException, AuthorizationException) as error:
        raise BackendError(
            f"{shown} refuses the request ({error.status_code}); set ELASTIC_API_KEY", status=error.status_code
        ) from error
    except UnsupportedProductError as error:
        raise BackendError(f"{shown}: what answers there is not Elasticsearch") from error
    except ApiError as error:
        said = one_line(secrets.clean(str(error.message)), 200)
        raise BackendError(f"{shown} cannot answer ({error.status_code}): {said}", status=error.status_code) from error
    except BulkIndexError as error:
        first = one_line(secrets.clean(str(error.errors[0])), 300) if error.errors else ""
        raise DataError(f"{shown} refuses {len(error.errors)} passages, the first: {first}") from error
    except TransportError as error:
        said = one_line(secrets.clean(str(error)), 200)
        raise BackendError(f"cannot reach {shown}: {said}\nCheck that the server runs, and its address.") from error


_GUARD = RequestGuard(_translated_errors)


def open_address(asked: ServerAddress) -> ElasticRetriever:
    """The passages at an address; raises what ``open_index`` raises."""
    asked.refuse("table")
    return ElasticRetriever.open(
        *asked.split(),
        mode=asked.options.get("mode"),  # type: ignore[arg-type]  # open() looks at it
        text_field=asked.options.get("text_field", "text"),
        encoder=asked.encoder,
        closes_encoder=asked.closes_encoder,
    )

"""An HTTP server that speaks as much of Elasticsearch's documented wire format as the adapter uses.

It is written from the reference, not from a running Elasticsearch: what it proves is what is sent, and how replies and
failures are read.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import numpy as np
from retriever_parts import overlap


class FakeElastic:
    """``indices`` maps a name to its mappings and documents.

    ``requests`` and ``headers`` keep what was asked; ``fault``, a status and a body, replaces every reply.
    """

    def __init__(self) -> None:
        self.indices: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.fault: tuple[int, dict[str, Any]] | None = None
        self.product = "Elasticsearch"
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, method: str, path: str, body: str) -> tuple[int, dict[str, Any]]:
        lines = [json.loads(line) for line in body.splitlines() if line]
        asked: Any = lines if path.endswith("_bulk") else (lines[0] if lines else None)
        self.requests.append((method, path, asked))
        if self.fault is not None:
            return self.fault
        name, _, action = path.strip("/").partition("/")
        if method == "PUT" and not action:
            self.indices[name] = {"mappings": asked["mappings"], "documents": {}}
            return 200, {"acknowledged": True}
        if name not in self.indices:
            error = {"type": "index_not_found_exception", "reason": f"no such index [{name}]"}
            return 404, {"error": {"root_cause": [error], **error}, "status": 404}
        if action == "_bulk":
            return 200, self._bulk(name, lines)
        if action == "_mapping":
            return 200, {name: {"mappings": self.indices[name]["mappings"]}}
        return 200, self._search(name, asked) if action == "_search" else {}

    def _bulk(self, name: str, lines: list[Any]) -> dict[str, Any]:
        items = []
        for action, document in zip(lines[::2], lines[1::2], strict=True):
            self.indices[name]["documents"][action["index"]["_id"]] = document
            items.append({"index": {"_index": name, "_id": action["index"]["_id"], "status": 201, "result": "created"}})
        return {"took": 1, "errors": False, "items": items}

    def _search(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        terms = asked["knn"]["filter"] if "knn" in asked else asked["query"]["bool"]["filter"]
        hits = []
        for id, document in self.indices[name]["documents"].items():
            score = _score(asked, document)
            wanted = [next(iter(term["term"].items())) for term in terms]
            fits = all(document["metadata"].get(key.removeprefix("metadata.")) == value for key, value in wanted)
            if score is None or not fits:
                continue
            source = {key: value for key, value in document.items() if key != "embedding"}
            fields = {"fields": {"embedding": document["embedding"]}} if "embedding" in document else {}
            hits.append({"_index": name, "_id": id, "_score": score, "_source": source, **fields})
        hits.sort(key=lambda hit: -float(hit["_score"]))
        total = {"value": len(hits), "relation": "eq"}
        best = hits[: asked["size"]]
        return {"took": 1, "timed_out": False, "hits": {"total": total, "max_score": None, "hits": best}}


def _score(asked: dict[str, Any], document: dict[str, Any]) -> float | None:
    """The score of a document, None where it is no hit."""
    if "knn" in asked:
        if "embedding" not in document:
            return None
        return float((1 + np.dot(asked["knn"]["query_vector"], document["embedding"])) / 2)
    match = asked["query"]["bool"]["must"]["multi_match"]
    shared = max(overlap(match["query"], document.get(field, "")) for field in match["fields"])
    return float(shared) or None


def _handler(fake: FakeElastic) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # head and body in one packet

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            fake.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, reply = fake.reply(self.command, self.path.partition("?")[0], body)
            text = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("X-Elastic-Product", fake.product)
            self.send_header("Content-Type", "application/vnd.elasticsearch+json;compatible-with=9")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_HEAD = answer  # noqa: N815 - the names that http.server calls

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Handler

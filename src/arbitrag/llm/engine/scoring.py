"""Scoring: log-probabilities of continuations after prefilled prompts, in as few forward passes as fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from arbitrag.errors import BackendError
from arbitrag.llm.engine.batch import BatchRunner, Row
from arbitrag.llm.engine.requests import NOT_FINITE, Score

Sequences = Sequence[Sequence[int]]


class Scorer:
    """Scores continuations. Where the runtime packs, those of one prompt share a row and its KV cache."""

    def __init__(self, runner: BatchRunner) -> None:
        self._runner = runner
        self._runtime = runner.runtime

    def score(self, requests: Sequence[Score]) -> None:
        """Finish prefilled requests: the continuations of all of them are batched."""
        found: dict[Score, list[list[float]]] = {}
        for some in _chunks(requests, self._runner.limits.rows):
            self._runner.attempt(some, lambda batch: found.update(self._first_tokens(batch)), lambda request: request)
        rows = [(request, indices) for request in found for indices in self._packed(request)]

        def work(batch: Sequence[tuple[Score, list[int]]]) -> None:
            texts = [[request.continuations[at] for at in indices] for request, indices in batch]
            for (request, indices), logprobs in zip(batch, self._logprobs(batch, texts), strict=True):
                request.computed_tokens += len(logprobs)
                for at in indices:
                    count = len(request.continuations[at]) - 1
                    found[request][at] += logprobs[:count]
                    logprobs = logprobs[count:]

        lengths = [
            (len(request.ids), sum(len(request.continuations[at]) - 1 for at in indices)) for request, indices in rows
        ]
        self._runner.run(rows, lengths, work, lambda item: item[0])
        for request, logprobs in found.items():
            request.free()
            if any(value != value for row in logprobs for value in row):
                request.fail(BackendError(NOT_FINITE))
            else:
                request.finish((logprobs, request.tokens()))

    def _first_tokens(self, requests: Sequence[Score]) -> dict[Score, list[list[float]]]:
        """The log-probability of each continuation's first token, which the prompts' last logits hold."""
        import numpy

        logits = self._runtime.stack([request.last_logits for request in requests for _ in request.continuations])
        targets = [[continuation[0]] for request in requests for continuation in request.continuations]
        logprobs = iter(self._runtime.logprobs(logits, numpy.array(targets, numpy.int64))[:, 0].tolist())
        return {request: [[next(logprobs)] for _ in request.continuations] for request in requests}

    def _packed(self, request: Score) -> list[list[int]]:
        """Indices of continuations by row: all in one where the runtime packs, as long as they fit into a pass."""
        rows: list[list[int]] = []
        room = 0
        for at, continuation in enumerate(request.continuations):
            count = len(continuation) - 1
            if not count:
                continue
            if count > room or not self._runtime.info.packs:
                rows.append([])
                room = self._runner.limits.tokens
            rows[-1].append(at)
            room -= count
        return rows

    def _logprobs(self, batch: Sequence[tuple[Score, list[int]]], texts: Sequence[Sequences]) -> list[list[float]]:
        """For each row the log-probabilities of ``text[1:]`` of its texts, one after the other."""
        import numpy

        rows = [
            Row(request.blocks, len(request.ids), [text[:-1] for text in row])
            for (request, _), row in zip(batch, texts, strict=True)
        ]
        longest = max(map(len, rows))
        output, _ = self._runner.forward(rows, logits_to_keep=longest)
        targets = numpy.zeros((len(rows), longest), numpy.int64)
        for at, row in enumerate(texts):
            targets[at, longest - len(rows[at]) :] = [id for text in row for id in text[1:]]
        found = self._runtime.logprobs(output.logits, targets)
        return [found[at, longest - len(row) :].tolist() for at, row in enumerate(rows)]


def _chunks(requests: Sequence[Score], most: int) -> Iterator[Sequence[Score]]:
    """The requests in order, as many at a time as have ``most`` continuations together, or one that has more."""
    chunk: list[Score] = []
    for request in requests:
        if chunk and sum(len(each.continuations) for each in (*chunk, request)) > most:
            yield chunk
            chunk = []
        chunk.append(request)
    if chunk:
        yield chunk

"""Prefill: prompts go through the network, batched and without the tokens that the prefix cache has.

A prompt is prefilled until the logits of its last token are known. Of requests that arrive together and share a prefix
that is not cached, one is prefilled first and the others wait for its keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence

from arbitrag.errors import BackendError
from arbitrag.llm.engine.batch import BatchRunner, Row
from arbitrag.llm.engine.prefix_cache import Match, common_prefix_length
from arbitrag.llm.engine.requests import NOT_FINITE, Request

REPREFILL_MIN_ROWS = 8  # rows from which on a short cached prefix is recomputed; see ``ModelInfo.reprefill_threshold``
MIN_SHARED_PREFIX = 16  # uncached tokens that two prompts share, from which on the second waits for the first


class Prefiller:
    """Prefills prompts, and keeps their keys and values in the prefix cache."""

    def __init__(self, runner: BatchRunner) -> None:
        self._runner = runner
        self._prefix_cache = runner.prefix_cache

    def prefill(self, requests: Sequence[Request]) -> None:
        """Prefill the prompts of these requests; one that fails has its error when this returns.

        Requests for hidden states come first: a generation from the same prompt can use their keys and values, and not
        the other way round, since hidden states are not cached.
        """
        waiting = sorted(requests, key=lambda request: (not request.layers, -len(request.ids)))
        cached_before: dict[Request, int] = {}
        while waiting:
            waiting = [request for request in waiting if not request.cancelled]
            now, waiting = self._next(waiting, cached_before)
            rows = [(request, match) for request, match in now if match.length < len(request.ids)]
            for request, match in now:
                if match.length == len(request.ids):
                    request.cached_tokens += match.length
                    request.blocks, request.last_logits = list(match.blocks), match.last_logits
            try:
                starts = self._starts([(match.length, len(request.ids) - match.length) for request, match in rows])
                lengths = [(start, len(request.ids) - start) for (request, _), start in zip(rows, starts, strict=True)]
                items = [(*row, start) for row, start in zip(rows, starts, strict=True)]
                self._runner.run(items, lengths, self._prefill_batch, lambda item: item[0])
            finally:
                for _, match in now:
                    self._prefix_cache.release(match)

    def _next(
        self, requests: Sequence[Request], cached_before: dict[Request, int]
    ) -> tuple[list[tuple[Request, Match]], list[Request]]:
        """Those to prefill now, each with its cached prefix, and those that wait for a prefix of one of these.

        ``cached_before`` has how many tokens were cached when a request began to wait: where that did not grow, because
        the cache is full, it waits no longer.
        """
        now: list[tuple[Request, Match]] = []
        later: list[Request] = []
        for request in requests:
            match = self._match(request)
            length = match.length
            in_vain = length <= cached_before.get(request, -1)
            if length < len(request.ids) and not in_vain:
                new = request.ids[length:]
                enough = min(MIN_SHARED_PREFIX, len(new))
                same_start = (each for each, other in now if other.node is match.node and other.length == length)
                if any(common_prefix_length(each.ids[length:], new) >= enough for each in same_start):
                    self._prefix_cache.release(match)
                    cached_before[request] = length
                    later.append(request)
                    continue
            now.append((request, match))
        return now, later

    def _match(self, request: Request) -> Match:
        """The cached prefix of a prompt; all of it only where its last logits are cached and nothing else is asked."""
        match = self._prefix_cache.match(request.ids)
        if match.length < len(request.ids) or (match.last_logits is not None and not request.layers):
            return match
        self._prefix_cache.release(match)
        return self._prefix_cache.match(request.ids[:-1])

    def _starts(self, lengths: Sequence[tuple[int, int]]) -> list[int]:
        """The first token to prefill in each row, given (cached, new) of each.

        Where many rows have a short cached prefix and more new tokens than that, the prefix is recomputed, so that
        these rows are in one batch: rows without a past are.
        """
        threshold = self._runner.runtime.info.reprefill_threshold
        short = [cached <= threshold < new for cached, new in lengths]
        many = sum(short) >= REPREFILL_MIN_ROWS
        return [0 if recompute and many else cached for (cached, _), recompute in zip(lengths, short, strict=True)]

    def _prefill_batch(self, batch: Sequence[tuple[Request, Match, int]]) -> None:
        runtime = self._runner.runtime
        rows = [Row(match.blocks if start else (), start, [request.ids[start:]]) for request, match, start in batch]
        layers = sorted({layer for request, _, _ in batch for layer in request.layers})
        output, width = self._runner.forward(rows, logits_to_keep=1, layers=layers)
        new = [len(request.ids) - match.length for request, match, _ in batch]
        blocks = [runtime.block(output.cache, at, width - count, width) for at, count in enumerate(new)]
        lasts = [runtime.row(output.logits, at) for at in range(len(rows))]
        for at, (request, match, start) in enumerate(batch):
            request.blocks, request.last_logits = [*match.blocks, blocks[at]], lasts[at]
            request.hidden_states = {layer: output.hidden_states[layer][at] for layer in request.layers}
            request.computed_tokens += len(rows[at])
            request.cached_tokens += start
            self._prefix_cache.insert(request.ids, match.length, blocks[at], lasts[at])

    def next_token(self, request: Request) -> None:
        """Finish a prefilled request for the distribution of the next token."""
        runtime = self._runner.runtime
        try:
            found = runtime.distribution(runtime.stack([request.last_logits]))[0]
        except Exception as error:  # noqa: BLE001  (the request carries it)
            request.fail(error)
            return
        request.free()
        if (found != found).any():
            request.fail(BackendError(NOT_FINITE))
        else:
            request.finish((found, request.tokens()))

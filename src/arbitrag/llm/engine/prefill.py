"""How requests to the in-process engine become forward passes: together, and each beginning once.

Everything here runs in the engine's worker thread. A request is first *read*: its prompt goes through the network, as
far as the prefix store does not have it, until the logits of its last token are known. Requests that arrive together
and begin alike are read one after the other, so that the later ones find the beginning stored. What follows depends on
the kind: an inspection or a distribution is done then, scoring reads the continuations (here), writing steps on
(``llm/engine/decode.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from arbitrag.errors import BackendError
from arbitrag.llm.engine.prefix_cache import Match, PrefixStore, common_length
from arbitrag.llm.engine.requests import NOT_FINITE, Request, Score
from arbitrag.llm.engine.runtime import Block, Cache, Facts, OutOfMemory, Runtime, Step

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger("arbitrag.llm")

TOGETHER = 8  # rows from which on to read a few stored tokens again is worth it; see ``Facts.rereads``
WAIT_FOR = 16  # tokens in common with a request of the same batch from which on waiting for it beats reading them twice


@dataclass(frozen=True, slots=True)
class Limits:
    """How large one forward pass may get.

    ``rows`` that write at the same time; ``tokens`` newly read in one pass, padding included; ``slots`` of keys and
    values in one batch, padding included. A single request may exceed the last two, since nothing smaller is left.
    """

    rows: int = 64
    tokens: int = 4096
    slots: int = 262_144

    def below(self, rows: int, fresh: int, width: int) -> Limits:
        """Half of a batch that was too large; a single row says nothing about batches, nor a step about reading."""
        if rows == 1:
            return self
        tokens = self.tokens if fresh == 1 else min(self.tokens, rows * fresh // 2)
        return Limits(self.rows, tokens, min(self.slots, rows * width // 2))


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a forward pass: what stands before, and what to read after it.

    ``parts`` are token ids, none empty, which do not see each other; more than one only where the runtime packs.
    """

    blocks: Sequence[Block]
    past: int
    parts: Sequence[Sequence[int]]

    def __len__(self) -> int:
        """New tokens."""
        return sum(map(len, self.parts))

    def fill(self, ids: np.ndarray, positions: np.ndarray, mask: np.ndarray) -> None:
        """Write this row into a batch: ids and positions (T,), mask (P + T,) or (T, P + T), all at their right end."""
        import numpy

        fresh = len(ids)
        past, at = mask.shape[-1] - fresh, fresh - len(self)
        mask[..., past - self.past : past] = True
        if mask.ndim == 1:
            mask[past + at :] = True
        else:
            numpy.fill_diagonal(mask[:at, past:], True)  # padding has to see something
        for part in self.parts:
            end = at + len(part)
            ids[at:end] = part
            positions[at:end] = numpy.arange(self.past, self.past + len(part))
            if mask.ndim == 2:
                mask[at:end, past + at : past + end] = numpy.tri(len(part), dtype=bool)
            at = end


R = TypeVar("R")


class Reader:
    """Reads prompts and continuations through a runtime, in batches, with the prefix store."""

    def __init__(self, runtime: Runtime, store: PrefixStore, limits: Limits) -> None:
        self.runtime = runtime
        self.store = store
        self.limits = limits
        self._said = False
        self._tried = (1, 1, 1)  # rows, new tokens and slots of the last pass

    def read(self, requests: Sequence[Request]) -> None:
        """Read the prompts of these requests; one that fails has its error when this returns.

        Inspections go first: what they compute serves a generation of the same prompt, and not the other way round,
        since their hidden states are not kept.
        """
        waiting = sorted(requests, key=lambda request: (not request.layers, -len(request.ids)))
        hoped: dict[Request, int] = {}
        while waiting:
            waiting = [request for request in waiting if not request.cancelled]
            now, waiting = self._in_turn(waiting, hoped)
            rows = [(request, match) for request, match in now if match.length < len(request.ids)]
            for request, match in now:
                if match.length == len(request.ids):
                    request.reused += match.length
                    request.blocks, request.last = list(match.blocks), match.last
            try:
                starts = self._starts([(match.length, len(request.ids) - match.length) for request, match in rows])
                lengths = [(start, len(request.ids) - start) for (request, _), start in zip(rows, starts, strict=True)]
                for batch in packed(lengths, self.limits, self.runtime.facts):
                    self._attempt([(*rows[at], starts[at]) for at in batch], self._read_batch, lambda item: item[0])
            finally:
                for _, match in now:
                    self.store.release(match)

    def _in_turn(
        self, requests: Sequence[Request], hoped: dict[Request, int]
    ) -> tuple[list[tuple[Request, Match]], list[Request]]:
        """Those to read now, each with what the store has of it, and those for which another will store something.

        ``hoped`` remembers what the store had when a request began to wait: where that did not grow, because the store
        has no room, it waits no longer.
        """
        now: list[tuple[Request, Match]] = []
        later: list[Request] = []
        for request in requests:
            match = self._match(request)
            length = match.length
            in_vain = length <= hoped.get(request, -1)
            if length < len(request.ids) and not in_vain:
                fresh = request.ids[length:]
                same_start = (each for each, other in now if other.node is match.node and other.length == length)
                if any(common_length(each.ids[length:], fresh) >= min(WAIT_FOR, len(fresh)) for each in same_start):
                    self.store.release(match)
                    hoped[request] = length
                    later.append(request)
                    continue
            now.append((request, match))
        return now, later

    def _match(self, request: Request) -> Match:
        """What the store has of a prompt; all of it only where the logits of its last token are there and suffice."""
        match = self.store.match(request.ids)
        if match.length < len(request.ids) or (match.last is not None and not request.layers):
            return match
        self.store.release(match)
        return self.store.match(request.ids[:-1])

    def _read_batch(self, batch: Sequence[tuple[Request, Match, int]]) -> None:
        rows = [Row(match.blocks if start else (), start, [request.ids[start:]]) for request, match, start in batch]
        layers = sorted({layer for request, _, _ in batch for layer in request.layers})
        step, width = self.forward(rows, keep=1, layers=layers)
        fresh = [len(request.ids) - match.length for request, match, _ in batch]
        blocks = [self.runtime.block(step.cache, at, width - count, width) for at, count in enumerate(fresh)]
        lasts = [self.runtime.row(step.logits, at) for at in range(len(rows))]
        for at, (request, match, start) in enumerate(batch):
            request.blocks, request.last = [*match.blocks, blocks[at]], lasts[at]
            request.states = {layer: step.states[layer][at] for layer in request.layers}
            request.read += len(rows[at])
            request.reused += start
            self.store.insert(request.ids, match.length, blocks[at], lasts[at])

    def _starts(self, lengths: Sequence[tuple[int, int]]) -> list[int]:
        """From which token on to read rows, given how many tokens are stored and how many are new: where many rows
        have little stored and more to read, all of it is read again, so that these rows are read together."""
        most = self.runtime.facts.rereads
        little = [stored <= most < fresh for stored, fresh in lengths]
        many = sum(little) >= TOGETHER
        return [0 if again and many else stored for (stored, _), again in zip(lengths, little, strict=True)]

    def distribute(self, request: Request) -> None:
        """Finish a request whose prompt was read and that wants the distribution of the next token."""
        try:
            found = self.runtime.distribution(self.runtime.stack([request.last]))[0]
        except Exception as error:  # noqa: BLE001  (the request carries it)
            request.fail(error)
            return
        request.forget()
        if (found != found).any():
            request.fail(BackendError(NOT_FINITE))
        else:
            request.finish((found, request.tokens()))

    def score(self, requests: Sequence[Score]) -> None:
        """Finish requests whose prompts were read: the continuations of all of them, in as few passes as fit."""
        found: dict[Score, list[list[float]]] = {}
        for some in _few(requests, self.limits.rows):
            self._attempt(some, lambda batch: found.update(self._first_tokens(batch)), lambda request: request)
        rows = [(request, places) for request in found for places in self._side_by_side(request)]

        def read(batch: Sequence[tuple[Score, list[int]]]) -> None:
            texts = [[request.continuations[at] for at in places] for request, places in batch]
            for (request, places), logprobs in zip(batch, self._likelihoods(batch, texts), strict=True):
                request.read += len(logprobs)
                for at in places:
                    count = len(request.continuations[at]) - 1
                    found[request][at] += logprobs[:count]
                    logprobs = logprobs[count:]

        lengths = [
            (len(request.ids), sum(len(request.continuations[at]) - 1 for at in places)) for request, places in rows
        ]
        for indices in packed(lengths, self.limits, self.runtime.facts):
            self._attempt([rows[at] for at in indices], read, lambda item: item[0])
        for request, logprobs in found.items():
            request.forget()
            if any(value != value for row in logprobs for value in row):
                request.fail(BackendError(NOT_FINITE))
            else:
                request.finish((logprobs, request.tokens()))

    def _first_tokens(self, requests: Sequence[Score]) -> dict[Score, list[list[float]]]:
        """The log-probability of each continuation's first token, which the prompts' last logits hold."""
        import numpy

        logits = self.runtime.stack([request.last for request in requests for _ in request.continuations])
        targets = [[continuation[0]] for request in requests for continuation in request.continuations]
        logprobs = iter(self.runtime.logprobs(logits, numpy.array(targets, numpy.int64))[:, 0].tolist())
        return {request: [[next(logprobs)] for _ in request.continuations] for request in requests}

    def _side_by_side(self, request: Score) -> list[list[int]]:
        """Which continuations share a row: all of them where the runtime packs, as long as they fit into a pass."""
        rows: list[list[int]] = []
        room = 0
        for at, continuation in enumerate(request.continuations):
            count = len(continuation) - 1
            if not count:
                continue
            if count > room or not self.runtime.facts.packs:
                rows.append([])
                room = self.limits.tokens
            rows[-1].append(at)
            room -= count
        return rows

    def _likelihoods(
        self, batch: Sequence[tuple[Score, list[int]]], texts: Sequence[Sequence[Sequence[int]]]
    ) -> list[list[float]]:
        """For each row the log-probabilities of ``text[1:]`` of its texts, one after the other."""
        import numpy

        rows = [
            Row(request.blocks, len(request.ids), [text[:-1] for text in row])
            for (request, _), row in zip(batch, texts, strict=True)
        ]
        longest = max(map(len, rows))
        step, _ = self.forward(rows, keep=longest)
        targets = numpy.zeros((len(rows), longest), numpy.int64)
        for at, row in enumerate(texts):
            targets[at, longest - len(rows[at]) :] = [id for text in row for id in text[1:]]
        found = self.runtime.logprobs(step.logits, targets)
        return [found[at, longest - len(row) :].tolist() for at, row in enumerate(rows)]

    def forward(self, rows: Sequence[Row], *, keep: int, layers: Sequence[int] = ()) -> tuple[Step, int]:
        """One pass over ragged rows; also the number of slots that its cache has."""
        import numpy

        past, fresh = max(row.past for row in rows), max(map(len, rows))
        self._tried = len(rows), fresh, past + fresh
        ids = numpy.zeros((len(rows), fresh), numpy.int64)
        positions = numpy.zeros_like(ids)
        packs = any(len(row.parts) > 1 for row in rows)
        mask = numpy.zeros((len(rows), *([fresh] if packs else []), past + fresh), bool)
        for at, row in enumerate(rows):
            row.fill(ids[at], positions[at], mask[at])
        cache: Cache | None = self.runtime.assemble([row.blocks for row in rows], once=True) if past else None
        return self.runtime.forward(ids, mask, positions, cache, keep=keep, layers=layers), past + fresh

    def _attempt(
        self,
        batch: Sequence[R],
        work: Callable[[Sequence[R]], None],
        owner: Callable[[R], Request],
    ) -> None:
        """Do the work for a batch; one that fails is halved until the culprits are alone, and they get the error."""
        batch = [item for item in batch if owner(item).open]
        if not batch:
            return
        try:
            work(batch)
            return
        except OutOfMemory as error:
            freed = self.out_of_memory(*self._tried)
            if freed and len(batch) == 1:
                self._attempt(batch, work, owner)
                return
            reason: Exception = error
        except Exception as error:  # noqa: BLE001  (the request carries it)
            reason = error
        if len(batch) == 1:
            owner(batch[0]).fail(reason)
            return
        for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
            self._attempt(half, work, owner)

    def out_of_memory(self, rows: int, fresh: int, width: int) -> int:
        """Make the next batches smaller than this one, and give back what is stored; returns the bytes freed."""
        self.limits = self.limits.below(rows, fresh, width)
        before = self.store.bytes
        self.store.clear()
        if not self._said:
            self._said = True
            log.warning("out of memory: batches are split and stay smaller from here on (the answers are the same)")
        return before - self.store.bytes


def packed(lengths: Sequence[tuple[int, int]], limits: Limits, facts: Facts) -> Iterator[list[int]]:
    """Indices of rows to read together, given (past, fresh) of each; little of a batch is padding.

    Rows of similar length go together, the longest of a batch at most half again as long as its shortest (short rows
    may differ more: there a pass costs about the same whatever its length).
    """
    order = sorted(range(len(lengths)), key=lambda at: (lengths[at][1], lengths[at][0]))
    batch: list[int] = []
    for at in order:
        fresh = lengths[at][1]
        longest_past = max(lengths[each][0] for each in [*batch, at])
        rows = len(batch) + 1
        if batch and (
            fresh > lengths[batch[0]][1] * 1.5 + 16
            or (not facts.ragged and fresh != lengths[batch[0]][1])
            or rows > limits.rows
            or rows * fresh > limits.tokens
            or rows * (longest_past + fresh) > limits.slots
        ):
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch


def _few(requests: Sequence[Score], most: int) -> Iterator[Sequence[Score]]:
    """The requests in order, as many at a time as have ``most`` continuations together, or one that has more."""
    some: list[Score] = []
    for request in requests:
        if some and sum(len(each.continuations) for each in (*some, request)) > most:
            yield some
            some = []
        some.append(request)
    if some:
        yield some

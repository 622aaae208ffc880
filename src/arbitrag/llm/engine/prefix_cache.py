"""Prefix caching: prompts that share a prefix share its keys and values.

A radix tree over token ids. Every node holds the keys and values of a run of tokens, and, where a prompt ended, the
logits of its last token, so that a prompt that is repeated needs no forward pass. When the cache is full, the least
recently used runs are evicted, leaves first; those that a batch is using are pinned.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from arbitrag.llm.engine.runtime import Block, Logits

Cut = Callable[[Block, int, int], Block]


@dataclass(eq=False, slots=True)
class _Node:
    tokens: tuple[int, ...]
    block: Block
    parent: _Node | None
    children: dict[int, _Node] = field(default_factory=dict)  # by first token
    last_logits: Logits | None = None
    pins: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix of some ids: its ``blocks``, and the logits of its last token where cached.

    It is pinned until ``release``.
    """

    length: int
    blocks: tuple[Block, ...]
    last_logits: Logits | None
    node: _Node


class PrefixCache:
    """Keys and values by token ids, at most ``capacity`` bytes, evicted by least recent use. For one thread at a time.

    ``cut(block, start, stop)`` copies a part of a block; a token takes ``token_bytes``, the logits of one position
    ``logits_bytes``.
    """

    def __init__(self, capacity: int, *, token_bytes: int, logits_bytes: int, cut: Cut) -> None:
        self.capacity = capacity
        self.bytes = 0
        self._token_bytes = token_bytes
        self._logits_bytes = logits_bytes
        self._cut = cut
        self._root = _Node((), None, None)
        # Every use renews a node before its parent, and pins reach up to the root: the first of these without pins
        # is always a leaf.
        self._by_use: OrderedDict[_Node, None] = OrderedDict()

    def match(self, ids: Sequence[int]) -> Match:
        """The longest cached prefix of ``ids``, pinned until ``release``."""
        node, length, blocks = self._root, 0, []
        while length < len(ids) and (child := node.children.get(ids[length])) is not None:
            shared = common_prefix_length(child.tokens, ids[length : length + len(child.tokens)])
            if shared < len(child.tokens):
                child = self._split(child, shared)
            node, length = child, length + shared
            blocks.append(child.block)
        self._touch(node)
        self._pin(node, 1)
        return Match(length, tuple(blocks), node.last_logits, node)

    def release(self, match: Match) -> None:
        """Unpin a match."""
        self._pin(match.node, -1)

    def insert(self, ids: Sequence[int], start: int, block: Block, last: Logits) -> None:
        """Cache a prompt's keys and values: ``block`` holds those of ``ids[start:]``, those before are cached already.

        Where there is no room for all tokens, as many of the first are cached as fit.
        """
        here = self.match(ids)
        try:
            if here.length >= start:
                self._extend(here, tuple(ids), start, block, last)
        finally:
            self.release(here)

    def _extend(self, here: Match, ids: tuple[int, ...], start: int, block: Block, last: Logits) -> None:
        fresh = len(ids) - here.length
        self._make_room(fresh * self._token_bytes + self._logits_bytes)
        room = self.capacity - self.bytes
        fits = min(fresh, room // self._token_bytes)
        node = here.node
        if fits > 0:
            first = here.length - start
            whole = first == 0 and fits == fresh
            part = block if whole else self._cut(block, first, first + fits)
            node = _Node(ids[here.length : here.length + fits], part, here.node)
            here.node.children[node.tokens[0]] = node
            self.bytes += fits * self._token_bytes
            self._touch(node)
        if fits == fresh and node.last_logits is None and self.bytes + self._logits_bytes <= self.capacity:
            node.last_logits = last
            self.bytes += self._logits_bytes

    def clear(self) -> None:
        """Evict everything that is not pinned."""
        self._make_room(self.capacity)

    def __len__(self) -> int:
        """Cached tokens."""
        return sum(len(node.tokens) for node in self._by_use)

    def _split(self, node: _Node, at: int) -> _Node:
        """Split a node after ``at`` tokens; returns the new parent, which has the first of them."""
        parent = node.parent
        assert parent is not None
        front, back = self._cut(node.block, 0, at), self._cut(node.block, at, len(node.tokens))
        upper = _Node(node.tokens[:at], front, parent, pins=node.pins)
        parent.children[upper.tokens[0]] = upper
        node.block, node.tokens, node.parent = back, node.tokens[at:], upper
        upper.children[node.tokens[0]] = node
        self._touch(upper)
        return upper

    def _make_room(self, wanted: int) -> None:
        while self.bytes + wanted > self.capacity:
            oldest = next((node for node in self._by_use if not node.pins), None)
            if oldest is None:
                return
            self._evict(oldest)

    def _evict(self, node: _Node) -> None:
        assert node.parent is not None
        del node.parent.children[node.tokens[0]]
        del self._by_use[node]
        self.bytes -= len(node.tokens) * self._token_bytes + (self._logits_bytes if node.last_logits is not None else 0)

    def _touch(self, node: _Node) -> None:
        while node.parent is not None:
            self._by_use[node] = None
            self._by_use.move_to_end(node)
            node = node.parent

    def _pin(self, node: _Node, change: int) -> None:
        while node.parent is not None:
            node.pins += change
            node = node.parent


def common_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    """The length of the longest common prefix."""
    length = min(len(left), len(right))
    if tuple(left[:length]) == tuple(right[:length]):
        return length
    return next(at for at in range(length) if left[at] != right[at])

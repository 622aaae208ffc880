"""Sub-queries: which of those that were written are asked."""

from __future__ import annotations

from arbitrag.methods.bridge.sub_queries import distinct


def test_queries_that_repeat_are_left_out() -> None:
    written = ("Who made it?", "who made the it", "What is it?", "Whose is it?", "whose is it!")
    assert distinct(written, "What is it") == ("Who made it?", "Whose is it?")
    assert distinct(("What is it?", "what is it"), "What is it?") == ("What is it?",)
    assert distinct((), "What is it?") == ("What is it?",)

"""Worked examples of the methods: invented replies and likelihoods, from which the method itself computes a verdict.

One module per method, called as the method is. Every number that ``arbitrag methods NAME`` and docs/refusals.md show
comes from running the method's own code here; no model is asked.
"""

from __future__ import annotations

from importlib import import_module

from arbitrag.methods import METHODS
from arbitrag.worked_examples.case import Case, MethodExamples, RefusalCase, Worked, work

__all__ = ["Case", "MethodExamples", "RefusalCase", "Worked", "examples_of", "work"]


def examples_of(method: str) -> MethodExamples | None:
    """The examples of a method of Arbitrag's own; None for another one."""
    if method not in METHODS:
        return None
    found: MethodExamples = import_module(f"{__name__}.{method}").EXAMPLES
    return found

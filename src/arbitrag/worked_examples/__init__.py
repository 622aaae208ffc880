"""Worked examples of the methods: made-up replies and likelihoods go in, and the method itself works out the rest.

Every number that ``arbitrag methods NAME`` and docs/refusals.md show comes from running the method's own code here; no
model is asked.
"""

from __future__ import annotations

from arbitrag.worked_examples.case import Case, Worked, work
from arbitrag.worked_examples.examples import EXAMPLES, PLAIN
from arbitrag.worked_examples.refusals import REFUSALS, RefusalCase

__all__ = ["EXAMPLES", "PLAIN", "REFUSALS", "Case", "RefusalCase", "Worked", "work"]

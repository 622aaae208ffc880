"""The filters of poisoned passages: the one table that methods, the command line and benchmarks read.

none        every passage is kept
robust      TrustRAG's first stage: echoes of the question go, and of copies all but the first
reference   TrustRAG's first stage as its authors' code decides
"""

from __future__ import annotations

from collections.abc import Mapping

from arbitrag.errors import unknown
from arbitrag.stages.filters.base import Filter, NoFilter
from arbitrag.stages.filters.reference import ReferenceFilter
from arbitrag.stages.filters.robust import RobustFilter

_KINDS: tuple[type[Filter], ...] = (NoFilter, RobustFilter, ReferenceFilter)
FILTERS: Mapping[str, type[Filter]] = {kind.name: kind for kind in _KINDS}


def filter_named(name: str, *, similar: float = 0.0) -> Filter:
    """The filter called ``name``; ``similar`` is the option of the filter robust.

    Raises UsageError for a name that is not a filter, and for a cosine beyond 0 to 1.
    """
    if name not in FILTERS:
        raise unknown("filter", name, FILTERS)
    robust = RobustFilter(similar)
    return robust if name == RobustFilter.name else FILTERS[name]()

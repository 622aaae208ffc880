"""What a comparison comes to, in sentences that say no more than its statistics do.

A system is called best only where it is significantly above every other one (p ≤ 0.05 after Holm's adjustment over all
pairs). Otherwise the highest mean is named as such, with those that it cannot be told apart from.
"""

from __future__ import annotations

from collections.abc import Sequence

from arbitrag.evaluate.metrics.answers import METRICS
from arbitrag.evaluate.report.report import SIGNIFICANT, SetReport
from arbitrag.evaluate.report.statistics import Pair, SystemStatistics
from arbitrag.text import one_line

FEW = 30  # questions; below that intervals are somewhat too narrow
_NAMES = 6  # systems that are named one by one


def conclusion(found: SetReport) -> tuple[str, ...]:
    """The answer first, then what it rests on; a sentence or two each."""
    if not found.statistics or not found.compared:
        return ("Nothing can be said yet: no question has been answered by every system.",)
    metric = found.judge if found.judge in found.metrics else found.metrics[0]
    ranked = sorted(found.statistics, key=lambda each: -_mean(each, metric))
    first = ranked[0]
    level = [each for each in ranked if _mean(each, metric) == _mean(first, metric)]
    others = [each for each in ranked if each not in level]
    cheaper = _cheaper(found, metric, first, ranked[1:])
    return (_best(found, metric, level, others), *([cheaper] if cheaper else []), *_caveats(found, ranked))


def _best(found: SetReport, metric: str, level: Sequence[SystemStatistics], others: Sequence[SystemStatistics]) -> str:
    """Of the systems that are ``level`` at the highest mean, and the others."""
    first = level[0]
    score = f"{_names(level)} at {_percent(_mean(first, metric))} by {METRICS[metric].title}"
    if not others:
        if len(level) > 1:
            return f"No system is shown to be best: {score}, all of them."
        return f"{score} over {found.compared:,} questions; there is no other system to compare it with."
    below = [each for each in others if all(_significant(found, metric, one, each) for one in level)]
    equal = [each for each in others if each not in below]
    if not equal and len(level) == 1:
        every = "the other one" if len(others) == 1 else "every other system"
        return f"Best: {score}, significantly above {every} ({_names(below)})."
    if not below:
        least = min(_p(found, metric, one, each) for one in level for each in equal)
        return (
            f"No system is shown to be best. Highest is {score}; the difference from any other one could be noise "
            f"(least p {least:.2g}: {_names(equal)})."
        )
    apart = f", but not told apart from {_names(equal)}" if equal else ""
    return f"Highest: {score}, significantly above {_names(below)}{apart}."


def _cheaper(found: SetReport, metric: str, first: SystemStatistics, others: Sequence[SystemStatistics]) -> str:
    """The cheapest system that the first is not significantly above, where it costs at most half."""
    cost = tokens_of(first)
    equal = [each for each in others if not _significant(found, metric, first, each) and tokens_of(each) is not None]
    if cost is None or not equal:
        return ""
    cheapest = min(equal, key=lambda each: tokens_of(each) or 0.0)
    spent = tokens_of(cheapest) or 0.0
    if spent > cost / 2:
        return ""
    return f"Of these, {_name(cheapest)} takes {spent:,.0f} tokens a question, and {_name(first)} {cost:,.0f}."


def _caveats(found: SetReport, ranked: Sequence[SystemStatistics]) -> list[str]:
    lines = []
    if found.compared < FEW:
        lines.append(f"Only {found.compared:,} questions: intervals are too narrow, and little can be told apart.")
    if found.compared < found.questions:
        left = found.questions - found.compared
        lines.append(f"The run is unfinished: {left:,} of {found.questions:,} questions are not in this yet.")
    failed = {_name(each): each.failed for each in ranked if each.failed}
    if failed:
        listed = ", ".join(f"{name} {count:,}" for name, count in failed.items())
        lines.append(f"Failed rows count as wrong here ({listed}); ask them again before believing a difference.")
    unread = {_name(each): each.unread for each in ranked if each.unread}
    if unread:
        listed = ", ".join(f"{name} {count:,}" for name, count in unread.items())
        lines.append(f"Some refusals are replies that could not be read ({listed}), and no decision of the method.")
    return lines


def tokens_of(found: SystemStatistics) -> float | None:
    """Uncached prompt tokens and completion tokens per question, of the standalone cost."""
    counts = (found.standalone.each.get(name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens"))
    prompt, cached, completion = counts
    return None if prompt is None or cached is None or completion is None else prompt - cached + completion


def _significant(found: SetReport, metric: str, first: SystemStatistics, other: SystemStatistics) -> bool:
    pair = found.pair(metric, first.system, other.system)
    return pair is not None and pair.p_holm <= SIGNIFICANT and _mean(first, metric) > _mean(other, metric)


def _p(found: SetReport, metric: str, first: SystemStatistics, other: SystemStatistics) -> float:
    pair: Pair | None = found.pair(metric, first.system, other.system)
    return 1.0 if pair is None else pair.p_holm


def _mean(found: SystemStatistics, metric: str) -> float:
    return found.metrics[metric].mean or 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _name(found: SystemStatistics) -> str:
    return one_line(found.system, 80)


def _names(systems: Sequence[SystemStatistics]) -> str:
    names = [_name(each) for each in systems]
    rest = len(names) - _NAMES
    if rest > 1:
        names = [*names[:_NAMES], f"{rest} others"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

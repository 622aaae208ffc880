"""A report as tables of short texts, the same ones for the terminal, markdown and the page.

Shares are in percent, with an interval in brackets behind them. What has no value is "–". Names come from outside:
they are made printable here, and whoever writes a table escapes them for what it writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from arbitrag.evaluate.metrics.answers import METRICS
from arbitrag.evaluate.metrics.significance import Interval
from arbitrag.evaluate.metrics.source_choice import STRATEGIES
from arbitrag.evaluate.report.report import SIGNIFICANT, SetReport
from arbitrag.evaluate.report.statistics import Cost, Pair, SourceChoices, SystemStatistics
from arbitrag.text import one_line

NOTHING = "–"
BETTER, WORSE = "▲", "▼"
_NAME = 200  # characters of a name, which is more than anybody gives one
_COSTS = {
    "calls": "Calls",
    "steps": "Steps",
    "prompt_tokens": "Prompt",
    "cached_tokens": "Cached",
    "completion_tokens": "Completion",
    "seconds": "Seconds",
    "money": "Money",
}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as wide as the ``head``; ``notes`` explain what stands above them."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def tables(found: SetReport, *, most_pairs: int | None = None, caveats: bool = False) -> tuple[Table, ...]:
    """Everything about a set, leaving out what it says nothing of: an attack where nothing was planted, and so on.

    With ``caveats`` the first table ends in a column of what each system's figures suffer from. Of more than
    ``most_pairs`` pairs of systems, only those with the baseline (without one, the first) are told.
    """
    if not found.statistics:
        return ()
    shown, left_out = _told_pairs(found, most_pairs)
    every = (
        _scores(found, caveats),
        _outcomes(found),
        _trouble(found),
        _confidence(found),
        _attack(found),
        _taken(found),
        _slices(found, "scenario"),
        _slices(found, "group"),
        _costs(found),
        *(_pairs(shown, metric, left_out) for metric in found.metrics),
        _oracles(shown, found.metrics[0], left_out),
    )
    return tuple(table for table in every if table.rows)


def heading(found: SetReport) -> tuple[str, ...]:
    """What a set is and what of it is compared, a sentence each."""
    lines = [f"{found.questions:,} questions" + (f", digest {name(found.digest)}" if found.digest else "")]
    for each in found.waiting:
        lines.append(f"{name(each)} has no row yet and is left out")
    if not found.statistics:
        lines.append("nothing has been answered yet")
        return tuple(lines)
    if found.compared < found.questions:
        lines.append(
            f"compared over the {found.compared:,} questions for which every system here has a row; "
            f"{found.questions - found.compared:,} are left out until the run goes on"
        )
    behind = [each for each in found.statistics if each.rows < found.questions]
    if behind:
        lines.append("unfinished: " + ", ".join(f"{name(each.system)} {each.rows:,} rows" for each in behind))
    failed = sum(each.failed for each in found.statistics)
    if failed:
        lines.append(f"{failed:,} failed rows, which count as wrong; ask them again: arbitrag bench retry")
    return tuple(lines)


def counting(found: SetReport) -> str:
    """How the intervals of a set were taken."""
    return (
        f"intervals of {100 * found.level:g}%: paired bootstrap, {found.resamples:,} resamples, seed {found.seed}; "
        "p: McNemar's exact test, for F1 random signs, adjusted by Holm over all pairs of systems"
    )


def name(text: str) -> str:
    """A name from outside on one line, printable."""
    return one_line(text, _NAME) or NOTHING


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{round(100 * value, 1) + 0.0:.1f}"  # 0.0 turns -0.0 round


def ranged(interval: Interval) -> str:
    """A mean in percent with its interval."""
    if interval.low is None or interval.high is None:
        return percent(interval.mean)
    return f"{percent(interval.mean)} [{percent(interval.low)}, {percent(interval.high)}]"


def mark(found: SetReport, metric: str, system: str) -> str:
    """Whether a system differs from the baseline: ``BETTER``, ``WORSE``, or nothing where it could be noise."""
    if found.baseline is None or system == found.baseline:
        return ""
    pair = found.pair(metric, found.baseline, system)
    if pair is None or pair.p_holm > SIGNIFICANT or not pair.difference.mean:
        return ""
    return BETTER if (pair.difference.mean < 0) == (pair.left == found.baseline) else WORSE


def _scores(found: SetReport, caveats: bool) -> Table:
    refusing = any(each.answered.refused for each in found.statistics)
    unread = any(each.unread for each in found.statistics)
    head = ("System", *(METRICS[metric].title for metric in found.metrics), "Questions", "Failed")
    head += ("Refused", *(("of these unread",) if unread else ())) if refusing else ()
    head += ("",) if caveats else ()
    rows = []
    for each in found.statistics:
        means = (
            f"{ranged(each.metrics[metric])} {mark(found, metric, each.system)}".rstrip() for metric in found.metrics
        )
        counts = [each.questions, each.failed, *([each.answered.refused] if refusing else [])]
        counts += [each.unread] if unread else []
        told = (_suffers(found, each),) if caveats else ()
        rows.append((name(each.system), *means, *(f"{count:,}" for count in counts), *told))
    notes = ["in percent; " + counting(found)]
    if found.baseline is not None and len(found.statistics) > 1:
        notes.append(
            f"{BETTER} better and {WORSE} worse than {name(found.baseline)} (p ≤ {SIGNIFICANT}); "
            "without a mark the difference could be noise"
        )
    if unread:
        notes.append("unread: refusals of which a reply of the model could not be read, and so no choice of the method")
    return Table("Scores", head, tuple(rows), tuple(notes))


def _suffers(found: SetReport, each: SystemStatistics) -> str:
    """What a system's figures suffer from, in words; nothing where they are as they seem."""
    words = []
    if each.rows < found.questions:
        words.append(f"unfinished: {each.rows:,} of {found.questions:,} rows")
    if each.failed:
        words.append(f"{each.failed:,} failed, counted as wrong")
    if each.unread:
        words.append(f"{each.unread:,} of {each.answered.refused:,} refusals are unread replies")
    if each.cut:
        words.append(f"passages cut for room, {each.cut:,} times")
    return "; ".join(words)


def _outcomes(found: SetReport) -> Table:
    head = ("System", "Right", "Answered", "Refused", "Due", "Failed", "Risk", "Reliability")
    rows = tuple(
        (
            name(each.system),
            percent(each.answered.accuracy),
            percent(each.answered.coverage),
            percent(each.answered.rejection_rate),
            percent(each.answered.due / each.questions if each.questions else None),
            percent(each.failed / each.questions if each.questions else None),
            percent(each.answered.risk),
            percent(each.answered.reliability),
        )
        for each in found.statistics
    )
    note = (
        f"percent of all questions, right by {METRICS[found.judge].title}; refusals that were due count as right; risk "
        "is the share of wrong ones among the answers given, reliability is right - wrong"
    )
    return Table("Answers and refusals", head, rows, (note,))


def _trouble(found: SetReport) -> Table:
    """Empty where nothing went wrong."""
    rows = tuple(
        (
            name(each.system),
            f"{each.failed:,}",
            ", ".join(f"{name(kind)} {count:,}" for kind, count in each.errors.items()) or NOTHING,
            f"{each.retried:,}",
            f"{each.parse_failures:,}",
            f"{each.cut:,}",
        )
        for each in found.statistics
    )
    if not any(each.failed or each.retried or each.parse_failures or each.cut for each in found.statistics):
        rows = ()
    head = ("System", "Failed rows", "By kind", "Asked again", "Parse failures", "Passages cut")
    note = "rows that failed, rows that took more than one attempt, replies that could not be read, passages shortened"
    return Table("What went wrong", head, rows, (note,))


def _confidence(found: SetReport) -> Table:
    rows = tuple(
        (
            name(each.system),
            name(each.ordered.score),
            percent(each.ordered.coverage),
            percent(each.ordered.area),
            _number(each.ordered.auroc, 3),
            percent(each.ordered.calibration_error),
        )
        for each in found.statistics
        if each.ordered is not None
    )
    head = ("System", "Score", "Coverage", "Area", "AUROC", "Calibration error")
    note = (
        "area under the risk-coverage curve, in percent, over the answers that have the score; areas compare only at "
        "about the same coverage"
    )
    return Table("Confidence", head, rows, (note,))


def _attack(found: SetReport) -> Table:
    rows = tuple(
        (name(each.system), f"{each.attack.questions:,}", percent(each.attack.rate), percent(each.attack.strict_rate))
        for each in found.statistics
        if each.attack is not None
    )
    note = (
        "answers that hold what was planted, and those of them that do not hold the right answer too; percent of the "
        "attacked questions that did not fail, as a failure is no defence"
    )
    head = ("System", "Attacked", "Planted answer", "Without the right one")
    return Table("Attack success", head, rows, (note,))


def _taken(found: SetReport) -> Table:
    """The strategies taken; by scenario where the set knows them."""
    strategies = tuple(strategy.value for strategy in STRATEGIES)
    titles = tuple(strategy.capitalize() for strategy in strategies)
    rows: list[tuple[str, ...]] = []
    known = any(each.sources for each in found.statistics)
    for each in found.statistics:
        if each.sources is None:
            rows.append((name(each.system), *(f"{each.taken[taken]:,}" for taken in strategies)))
        else:
            rows += _by_scenario(each.system, each.sources, strategies)
    if known:
        note = (
            "finished questions by the scenario and by what was trusted; right: percent for which that was the "
            "scenario's own"
        )
        return Table("Scenario and source trusted", ("System", "Scenario", *titles, "Right"), tuple(rows), (note,))
    return Table("Source trusted", ("System", *titles), tuple(rows), ("finished questions",))


def _by_scenario(system: str, sources: SourceChoices, strategies: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A row for each scenario that occurs, and one for all of them."""
    for scenario in strategies:
        counts = sources.counts[scenario]
        if total := sum(counts.values()):
            cells = (f"{counts[taken]:,}" for taken in strategies)
            yield name(system), scenario, *cells, percent(counts[scenario] / total)
    sums = (f"{sum(sources.counts[scenario][taken] for scenario in strategies):,}" for taken in strategies)
    yield name(system), "all", *sums, percent(sources.accuracy)


def _slices(found: SetReport, kind: str) -> Table:
    systems = [each.system for each in found.statistics]
    rows = tuple(
        (name(each.name), f"{each.questions:,}", *(percent(each.scores[system]) for system in systems))
        for each in found.slices
        if each.kind == kind
    )
    head = (kind.capitalize(), "Questions", *map(name, systems))
    return Table(f"By {kind}", head, rows, (f"{METRICS[found.judge].title}, in percent",))


def _costs(found: SetReport) -> Table:
    """Means per question; without a column of money where no price is known."""
    costs = [(each, which, cost) for each in found.statistics for which, cost in _costs_by_kind(each)]
    shown = [each for each in _COSTS if each != "money" or any(cost.each[each] is not None for _, _, cost in costs)]
    rows = [(name(each.system), which, *_each(cost, shown)) for each, which, cost in costs]
    note = (
        "means per question; standalone is what the system would have cost by itself, incremental what was computed "
        "for it after request deduplication and caching; prompt (with cached) and completion are tokens; seconds are "
        "those of an answer beside others"
    )
    return Table("Cost of a question", ("System", "", *(_COSTS[each] for each in shown)), tuple(rows), (note,))


def _costs_by_kind(each: SystemStatistics) -> list[tuple[str, Cost]]:
    return [
        (which, cost)
        for which, cost in (("standalone", each.standalone), ("incremental", each.incremental))
        if cost.questions
    ]


def _each(cost: Cost, shown: Sequence[str]) -> tuple[str, ...]:
    places = {"calls": 2, "steps": 2, "seconds": 3}
    return tuple(
        _money(cost.each[each]) if each == "money" else _number(cost.each[each], places.get(each, 1)) for each in shown
    )


def _told_pairs(found: SetReport, most: int | None) -> tuple[SetReport, tuple[str, ...]]:
    """The report with the pairs that are told, and a note of those that are not."""
    number = len(found.statistics) * (len(found.statistics) - 1) // 2
    if most is None or number <= most:
        return found, ()
    first = _common(found)
    kept = tuple(pair for pair in found.pairs if first in (pair.left, pair.right))
    rest = f"{number - len(found.statistics) + 1:,} other pairs are in the formats md, csv, html and json"
    return replace(found, pairs=kept), (rest,)


def _pairs(found: SetReport, metric: str, left_out: Sequence[str] = ()) -> Table:
    rows = tuple(
        (
            _against(pair),
            ranged(pair.difference),
            f"{pair.only_left:,} : {pair.only_right:,}",
            p_words(pair.p_holm),
            "could be noise" if pair.p_holm > SIGNIFICANT else "differs",
        )
        for pair in found.pairs
        if pair.metric == metric
    )
    head = ("Systems", "Difference", "Better", "p", "")
    note = "the left system's mean minus the right one's, in percent points; the questions on which each is better"
    which = "pairs with " + name(_common(found)) if left_out else "every pair"
    return Table(f"{METRICS[metric].title}: {which}", head, rows, (note, *left_out))


def _common(found: SetReport) -> str:
    return found.baseline or found.statistics[0].system


def _oracles(found: SetReport, metric: str, left_out: Sequence[str] = ()) -> Table:
    """Only where a third system could close the gap of two."""
    systems = [each.system for each in found.statistics]
    rows = tuple(
        (
            _against(pair),
            percent(pair.best),
            percent(pair.gap),
            *(percent(pair.closed[system]) if system in pair.closed else "" for system in systems),
        )
        for pair in found.pairs
        if pair.metric == metric and len(systems) > 2
    )
    head = ("Systems", "Best of both", "Gap", *(f"By {name(system)}" for system in systems))
    note = (
        "in percent: always taking the better answer of two systems, what that gains over the better system, and the "
        "share of this gap that others close, negative below the better system"
    )
    return Table(f"{METRICS[metric].title}: choosing between two", head, rows, (note, *left_out))


def _against(pair: Pair) -> str:
    return f"{name(pair.left)} – {name(pair.right)}"


def p_words(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _number(value: float | None, places: int) -> str:
    return NOTHING if value is None else f"{value:,.{places}f}"


def _money(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.6f}".rstrip("0").rstrip(".")

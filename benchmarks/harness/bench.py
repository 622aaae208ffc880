"""What every benchmark shares: options, timing of two sides by turns, a table with bars, exit status 1 on a miss.

bench = Bench("shared_scoring", __doc__)
eight, one = alternate(score_eight, score_one, rounds=bench.pick(quick=5, full=20))
bench.ratio("8 continuations / 1", eight, one, at_most=1.3)
bench.finish(prompt_tokens=2000)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

SKIPPED = 77  # the exit status of a benchmark that cannot run here, as in automake


def alternate(*sides: Callable[[], object], rounds: int, warm_up: int = 1) -> list[list[float]]:
    """Seconds of each side in each round. The sides run by turns, so that a busy machine slows all of them alike."""
    for _ in range(warm_up):
        for side in sides:
            side()
    seconds: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        for side, list_of in zip(sides, seconds, strict=True):
            began = time.perf_counter()
            side()
            list_of.append(time.perf_counter() - began)
    return seconds


Rounds = Sequence[tuple[float, float]]


def _ratio(rounds: Rounds) -> float:
    return statistics.median(a for a, _ in rounds) / statistics.median(b for _, b in rounds)


def _difference(rounds: Rounds) -> float:
    return statistics.median(a - b for a, b in rounds)


class Bench:
    """One claim, its figures and their bars, at one of three sizes: in full, ``--quick`` or ``--smoke``."""

    def __init__(self, name: str, about: str | None, *, packages: Sequence[str] = ()) -> None:
        parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--quick", action="store_true", help="smaller sizes, within 50 s on two cores")
        parser.add_argument("--smoke", action="store_true", help="smallest sizes, to see that it runs; no bars")
        parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
        parser.add_argument("--write", action="store_true", help=f"write benchmarks/results/{name}.json")
        parser.add_argument("--seed", type=int, default=0)
        os.environ.setdefault("ARBITRAG_CACHE", "off")  # so that no probe of a server is remembered from before
        self.parser = parser
        self.name = name
        self._packages = packages
        self._rows: list[dict[str, Any]] = []
        self._options: argparse.Namespace | None = None

    @property
    def options(self) -> argparse.Namespace:
        """The command line; add arguments to ``parser`` before the first use."""
        if self._options is None:
            self._options = self.parser.parse_args()
        return self._options

    def pick(self, *, quick: T, full: T, smoke: T | None = None) -> T:
        """The size of this run. Without ``smoke``, that of ``quick`` is also the smallest."""
        if self.options.smoke:
            return quick if smoke is None else smoke
        return quick if self.options.quick else full

    def skip(self, reason: str) -> NoReturn:
        """End with the status SKIPPED, because something is missing that cannot be made here."""
        print(f"{self.name}: skipped, {reason}")
        sys.exit(SKIPPED)

    def figure(
        self,
        what: str,
        value: float,
        *,
        unit: str = "",
        at_most: float | None = None,
        at_least: float | None = None,
        full_only: bool = False,
    ) -> None:
        """Add a number to the table, with its bar if it has one; ``full_only`` bars are not judged with ``--quick``."""
        good = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
        bars = [f"{sign} {bar:g}" for sign, bar in (("≥", at_least), ("≤", at_most)) if bar is not None]
        judged = bool(bars) and not (self.options.smoke or (self.options.quick and full_only))
        row = {"what": what, "value": value, "unit": unit, "bar": " and ".join(bars), "judged": judged, "met": good}
        self._rows.append(row)

    def ratio(
        self,
        what: str,
        ours: Sequence[float],
        theirs: Sequence[float],
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        full_only: bool = False,
    ) -> None:
        """Add the ratio of the medians of both sides."""
        pairs = list(zip(ours, theirs, strict=True))
        self.figure(what, _ratio(pairs), at_most=at_most, at_least=at_least, full_only=full_only)
        self._interval(pairs, _ratio)

    def difference(
        self, what: str, ours: Sequence[float], theirs: Sequence[float], *, unit: str, at_most: float | None = None
    ) -> None:
        """Add the median of the differences ours - theirs of each round."""
        pairs = list(zip(ours, theirs, strict=True))
        self.figure(what, _difference(pairs), unit=unit, at_most=at_most)
        self._interval(pairs, _difference)

    def _interval(self, rounds: Rounds, value: Callable[[Rounds], float]) -> None:
        """Give the last figure its 90% interval: the rounds are resampled as pairs."""
        rng = random.Random(self.options.seed)
        resampled = sorted(value(rng.choices(rounds, k=len(rounds))) for _ in range(1000))
        self._rows[-1] |= {"spread": [resampled[49], resampled[949]], "rounds": len(rounds)}

    def finish(self, **sizes: Any) -> None:
        """Print the table (and the JSON line), write the file when asked, and exit 1 when a judged bar is missed."""
        width = max(len(row["what"]) for row in self._rows)
        size = next((f" ({each})" for each in ("smoke", "quick") if getattr(self.options, each)), "")
        print(f"{self.name}{size}: {json.dumps(sizes)}")
        for row in self._rows:
            spread = f"  [{row['spread'][0]:.3g}–{row['spread'][1]:.3g}]" if "spread" in row else ""
            verdict = f"  bar {row['bar']}: {self._verdict(row)}" if row["bar"] else ""
            print(f"  {row['what']:<{width}}  {row['value']:,.4g} {row['unit']}{spread}{verdict}".rstrip())
        record = {
            "benchmark": self.name,
            "quick": self.options.quick,
            "smoke": self.options.smoke,
            "seed": self.options.seed,
            "figures": self._rows,
            "sizes": sizes,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in self._packages}},
        }
        if self.options.write:
            target = Path(__file__).parents[1] / "results" / f"{self.name}.json"
            target.parent.mkdir(exist_ok=True)
            target.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        if self.options.json:
            print(json.dumps(record, ensure_ascii=False))
        sys.exit(1 if any(row["judged"] and not row["met"] for row in self._rows) else 0)

    def _verdict(self, row: dict[str, Any]) -> str:
        if row["judged"]:
            return "met" if row["met"] else "MISSED"
        return "not judged" if self.options.smoke else "for the full size only"

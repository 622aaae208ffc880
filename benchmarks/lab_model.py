"""Accuracy of the lab model on facts whose truth is known: closed book, with right, poisoned and irrelevant passages.

Also the AUROC of probes that predict from a hidden state whether the answer will be right, and TrustMargin's accuracy
on mixed contexts. All shares are in percent; answers are greedy and must match exactly after normalisation.

python benchmarks/lab_model.py --quick --checkpoint FOLDER

Without --checkpoint it measures the embedded model.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from harness.bench import Bench
from harness.lab_cases import ANSWER_TOKENS, FORMS, Asker, Case, Kind, by_form, closed_book, in_context
from harness.linear_probe import lens, logistic, mlp, output_head

from arbitrag.errors import ArbitragError
from arbitrag.evaluate.metrics.calibration import auroc
from arbitrag.evaluate.metrics.significance import paired_bootstrap
from arbitrag.kit import Kit, Limits
from arbitrag.lab.checkpoint import LabModel, open_checkpoint
from arbitrag.llm.engine.engine import Engine
from arbitrag.methods.trustmargin import TrustMargin
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.run import answer
from arbitrag.text import agree
from arbitrag.types import Strategy, Verdict

K = 5  # passages, where the number is not the point
AT_ONCE = 24  # questions with passages
MIX: dict[Kind, float] = {"right": 0.5, "poisoned": 0.3, "irrelevant": 0.2}


def share(flags: Sequence[bool]) -> float:
    return 100 * sum(flags) / len(flags)


class Measurement:
    """One model under measurement; each method adds the figures of one row of the table."""

    def __init__(self, bench: Bench, lab: LabModel) -> None:
        self.bench, self.lab, self.world = bench, lab, lab.world
        self.asker = Asker(lab)
        self.rng = random.Random(bench.options.seed)
        self.sizes: dict[str, int] = {}

    async def memory(self) -> tuple[list[Case], list[str]]:
        """Closed book. Gives the cases and replies for the probe."""
        known = self._some(self.world.known, smoke=24, quick=800, full=len(self.world.known))
        late = self._some(self.world.late, smoke=24, quick=200, full=len(self.world.late))
        cases = closed_book([*known, *late], self.rng)
        replies = await self.asker.replies(cases)
        right = [case.right(reply) for case, reply in zip(cases, replies, strict=True)]
        quarters: list[list[bool]] = [[], [], [], []]
        for case, good in zip(cases[: len(known)], right, strict=False):
            quarters[self.world.quarter(case.fact)].append(good)
        for number, flags in enumerate(quarters):
            bar = 95 if number == 0 else None
            self.bench.figure(f"closed book, quarter {number + 1} of frequency", share(flags), at_least=bar)
        self.bench.figure("closed book, all known facts", share(right[: len(known)]), at_least=55, at_most=75)
        self.bench.figure("closed book, after the cutoff", share(right[len(known) :]), at_most=5)
        fits = [
            self.world.names.fits(case.fact.form.object, reply)
            for case, reply in zip(cases[len(known) :], replies[len(known) :], strict=True)
        ]
        self.bench.figure("  answered with a name of the right type", share(fits), at_least=95)
        self.sizes |= {"known": len(known), "late": len(late)}
        return cases, replies

    async def reading(self) -> None:
        facts = self._some(self.world.late, smoke=24, quick=120, full=len(self.world.late))
        for count, bar in ((5, 90), (10, 85), (20, 75)):
            cases = by_form(self.world, facts, count, self.rng)
            replies = await self.asker.replies(cases)
            right = [case.right(reply) for case, reply in zip(cases, replies, strict=True)]
            self.bench.figure(f"one right passage among {count}, after the cutoff", share(right), at_least=bar)
            for form in FORMS:
                of_form = [good for case, good in zip(cases, right, strict=True) if case.form == form]
                self.bench.figure(f"  {form}", share(of_form))
        self.sizes["read, each"] = len(facts)

    async def irrelevant(self) -> None:
        facts = self._some(self.world.known, smoke=24, quick=200, full=1000)
        alone = closed_book(facts, self.rng)
        beside = [
            Case(case.fact, case.question, in_context(self.world, case.fact, "irrelevant", K, self.rng).passages)
            for case in alone
        ]
        scores = [
            share([case.right(reply) for case, reply in zip(cases, await self.asker.replies(cases), strict=True)])
            for cases in (alone, beside)
        ]
        self.bench.figure(f"known facts, {K} irrelevant passages", scores[1])
        self.bench.figure("  lost against closed book", scores[0] - scores[1], unit="points", at_most=10)
        self.sizes["irrelevant"] = len(facts)

    async def poison(self) -> None:
        facts = self._some(self.world.known, smoke=80, quick=240, full=1600)
        for count in (1, K):
            cases = [in_context(self.world, fact, "poisoned", count, self.rng) for fact in facts]
            replies = await self.asker.replies(cases)
            follows = [agree(reply, case.planted) for case, reply in zip(cases, replies, strict=True)]
            where = "alone" if count == 1 else f"among {count}"
            low, high = (50, 90) if count == 1 else (None, None)
            self.bench.figure(f"follows a poisoned passage, {where}", share(follows), at_least=low, at_most=high)
            quarters = [
                share([f for fact, f in zip(facts, follows, strict=True) if self.world.quarter(fact) == number])
                for number in range(4)
            ]
            for number, value in enumerate(quarters, 1):
                self.bench.figure(f"  quarter {number} of frequency", value)
            if count == 1:
                self.bench.figure("  least frequent minus most", quarters[3] - quarters[0], unit="points", at_least=1)
        self.sizes["poisoned, each"] = len(facts)

    async def probe(self, cases: Sequence[Case], replies: Sequence[str]) -> None:
        """Right against wrong closed-book answers, on entities that the probe has not seen."""
        engine = self.lab.llm
        assert isinstance(engine, Engine), engine
        layers = range(engine.info.layers + 1)
        found = await asyncio.gather(*(engine.inspect(self.asker.prompt(case), list(layers)) for case in cases))
        labels = np.array([case.right(reply) for case, reply in zip(cases, replies, strict=True)], float)
        part = self._parts(cases)
        norm, head = output_head(self.lab.folder)
        for name, bar in (("logit-lens features", 0.80), ("raw states", 0.70)):
            rows = []
            for layer in layers:
                states = np.stack([each.states[layer] for each in found]).astype(np.float64)
                last = layer == layers[-1]
                features = lens(states, None if last else norm, head) if name.startswith("logit") else states
                rows.append(self._best_probe(features, labels, part))
                self.bench.figure(f"probe, {name}, layer {layer}", rows[-1][1])
            chosen = max(layers[:-1], key=lambda layer: rows[layer][0])
            self.bench.figure(f"probe, {name}, best layer before the last: {chosen}", rows[chosen][1], at_least=bar)
        self.sizes |= {"probe, fitted": int((part < 2).sum()), "probe, tested": int((part == 2).sum())}

    def _parts(self, cases: Sequence[Case]) -> np.ndarray:
        """0 to fit, 1 to choose by, 2 to test on; all questions about an entity are in one part."""
        subjects = sorted({case.fact.subject for case in cases})
        of = {name: self.rng.choices([0, 1, 2], [0.45, 0.15, 0.4])[0] for name in subjects}
        return np.array([of[case.fact.subject] for case in cases])

    def _best_probe(self, features: np.ndarray, labels: np.ndarray, part: np.ndarray) -> tuple[float, float]:
        """The AUROC on the choosing part and on the test part of the probe that is best on the former."""
        fit, choose, test = (part == number for number in range(3))
        both = features[choose | test]
        seed = self.bench.options.seed
        found = []
        for scores in (
            logistic(features[fit], labels[fit], both),
            mlp(features[fit], labels[fit], both, seed=seed),
        ):
            chosen = choose[choose | test]
            known = labels.astype(bool)
            pair = (auroc(scores[chosen], known[choose]), auroc(scores[~chosen], known[test]))
            found.append((pair[0] or 0.5, pair[1] or 0.5))  # of one kind only, nothing can be told apart
        return max(found)

    async def arbitration(self) -> None:
        number = self.bench.pick(smoke=40, quick=240, full=2000)
        known = [fact for fact in self.world.known if self.world.status(fact) == "known"]
        cases = []
        for index in range(number):
            fact = self.rng.choice(self.world.late if index % 5 == 0 else known)
            kind = self.rng.choices(list(MIX), list(MIX.values()))[0]
            cases.append(in_context(self.world, fact, kind, K, self.rng))
        verdicts = [
            verdict
            for start in range(0, number, AT_ONCE)
            for verdict in await asyncio.gather(*map(self._verdict, cases[start : start + AT_ONCE]))
        ]
        ours = np.array([case.right(verdict.answer) for case, verdict in zip(cases, verdicts, strict=True)])
        # The two candidates are the greedy answers to the prompts of Direct and RAG, token for token.
        direct, rag = (
            np.array([case.right(_candidate(v, origin)) for case, v in zip(cases, verdicts, strict=True)])
            for origin in (Strategy.MEMORY, Strategy.EVIDENCE)
        )
        for name, flags in (("direct", direct), ("rag", rag), ("trustmargin", ours), ("oracle", direct | rag)):
            self.bench.figure(f"mixed contexts, {name}", share(list(flags)))
        for name, flags in (("direct", direct), ("rag", rag)):
            gain = paired_bootstrap(ours.tolist(), flags.tolist(), seed=self.bench.options.seed)
            assert gain.mean is not None
            assert gain.low is not None
            self.bench.figure(f"  trustmargin above {name}", 100 * gain.mean, unit="points", at_least=3)
            self.bench.figure("    its 95% interval begins at", 100 * gain.low, unit="points", at_least=0)
        self.sizes["mixed"] = number

    async def _verdict(self, case: Case) -> Verdict:
        kit = Kit.of(self.lab.llm, FixedRetriever(case.passages), limits=Limits(answer_tokens=ANSWER_TOKENS))
        return await answer(case.question, TrustMargin(k=K), kit)

    def _some(self, facts: Sequence, *, smoke: int, quick: int, full: int) -> list:  # type: ignore[type-arg]
        return self.rng.sample(list(facts), min(len(facts), self.bench.pick(smoke=smoke, quick=quick, full=full)))


def _candidate(verdict: Verdict, origin: Strategy) -> str | None:
    return next((each.text for each in verdict.candidates if each.origin is origin), None)


async def measure(bench: Bench, lab: LabModel) -> dict[str, int]:
    measurement = Measurement(bench, lab)
    cases, replies = await measurement.memory()
    await measurement.reading()
    await measurement.irrelevant()
    await measurement.poison()
    await measurement.probe(cases, replies)
    await measurement.arbitration()
    await lab.llm.aclose()
    return measurement.sizes


def main() -> None:
    bench = Bench("lab_model", __doc__, packages=("numpy", "arbitrag"))
    bench.parser.add_argument("--checkpoint", type=Path, metavar="FOLDER", help="a lab model (default: the embedded)")
    try:
        lab = open_checkpoint(bench.options.checkpoint)
    except ArbitragError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    sizes = asyncio.run(measure(bench, lab))
    bench.finish(
        **sizes, parameters=lab.manifest.parameters, world=[lab.world.version, lab.world.seed], k=K, context=MIX
    )


if __name__ == "__main__":
    main()

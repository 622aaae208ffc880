"""Record what the official scripts of SQuAD and HotpotQA give for the pairs in ``squad_pairs.jsonl``, beside this file.

    python tests/evaluate/metrics/make_squad_pairs.py --squad-1 FILE --squad-2 FILE --hotpot FILE

The files are evaluate-v1.1.py and evaluate-v2.0.py of SQuAD (the latter from rajpurkar/SQuAD-explorer at eee5fdb) and
hotpot_evaluate_v1.py of hotpotqa/hotpot at 3635853, whose rule 2WikiMultiHopQA shares. They are imported from there.
The texts are made up below; only they and the numbers go into the file. A line is one pair:

    [prediction, golds, [EM, F1] of SQuAD 2.0, then of SQuAD 1.1, then of HotpotQA]

The last two are left out where they are the same as the first, and null where there is no gold answer, for which these
scripts know no value.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import string
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

PAIRS = Path(__file__).with_name("squad_pairs.jsonl")
NUMBER = 2600
TEXT = """
silent orchard river Mira Talven north-west harbour 1,984 3.5% U.S. O'Dwyer C++ theatre another anthem Atlas Zürich
ΣΟΦΟΣ İzmir straße 中文 naïve ½ e\u0301tude Ⅳ 東京。 l’eau “quoted” — ﬁre x² ١٢ a1 the1 yes no noanswer $5 #1
"""
WORDS = TEXT.split()
ARTICLES = ["a", "an", "the", "The", "A", "AN"]
BLANKS = [" ", "  ", "\t", "\n", "\u00a0", "\u2003", "\u200b", "\x1c"]
SIGNS = [*string.punctuation, "…", "’", "«", "。", "—"]
VANISHING = ["The", "a", "AN", "$", "++", "...", "the a", "the, an", "'A'", "—", "’", " the\n"]
EMPTY = ["", " ", "\n\t"]


def phrase(rng: random.Random) -> str:
    """One to five words with articles, signs and odd spaces among them."""
    parts = []
    for _ in range(rng.choices([1, 2, 3, 5], [4, 4, 3, 1])[0]):
        word = rng.choice(WORDS)
        word = rng.choice([word, word, word.upper(), word.capitalize(), word + rng.choice(SIGNS)])
        parts += [rng.choice(ARTICLES), word] if rng.random() < 0.3 else [word]
    return rng.choice([" ", " ", " ", rng.choice(BLANKS)]).join(parts)


def changed(text: str, rng: random.Random) -> str:
    """``text`` with one to three small changes, of which some make no difference to a normalised answer."""
    for _ in range(rng.randint(1, 3)):
        words = text.split() or [""]
        place = rng.randrange(len(words))
        change = rng.choice(["article", "sign", "case", "drop", "add", "twice", "swap", "blank"])
        if change in ("article", "add", "twice"):
            inserted = {"article": rng.choice(ARTICLES), "add": rng.choice(WORDS), "twice": words[place]}[change]
            words.insert(place, inserted)
        elif change in ("sign", "case"):
            words[place] = rng.choice(SIGNS) + words[place] if change == "sign" else words[place].swapcase()
        elif change == "drop" and len(words) > 1:
            del words[place]
        elif change == "swap":
            rng.shuffle(words)
        text = rng.choice(BLANKS).join(words) if change == "blank" else " ".join(words)
    return text


def odd(rng: random.Random) -> str:
    return rng.choice([*VANISHING, *EMPTY])


def pair(rng: random.Random) -> tuple[str, list[str]]:
    golds = [phrase(rng) for _ in range(rng.choices([1, 2, 3], [6, 2, 1])[0])]
    prediction = changed(rng.choice(golds), rng) if rng.random() < 0.85 else phrase(rng)
    kind = rng.random()
    if kind < 0.06:
        prediction = odd(rng)
    if 0.03 < kind < 0.09:
        golds[rng.randrange(len(golds))] = odd(rng)
    if 0.09 < kind < 0.11:
        golds = []
        prediction = rng.choice(["", prediction, odd(rng)])
    if 0.11 < kind < 0.15:
        golds[0] = rng.choice(["yes", "No", "no.", "noanswer"])
        prediction = rng.choice(["Yes", "no", "the no", "no one", "yes no", "noanswer", "No, never"])
    return prediction, golds


def load(path: Path) -> ModuleType:
    """The module in a file; the official HotpotQA script reads JSON by ``ujson``, which it does not need here."""
    sys.modules.setdefault("ujson", json)
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_").replace(".", "_"), path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def squad_1(script: Any, prediction: str, golds: Sequence[str]) -> list[float]:
    over = script.metric_max_over_ground_truths
    return [_short(over(score, prediction, golds)) for score in (script.exact_match_score, script.f1_score)]


def squad_2(script: Any, prediction: str, golds: Sequence[str]) -> list[float]:
    question = {"id": "q", "answers": [{"text": gold} for gold in golds]}
    scores = script.get_raw_scores([{"paragraphs": [{"qas": [question]}]}], {"q": prediction})
    return [_short(score["q"]) for score in scores]


def hotpot(script: Any, prediction: str, golds: Sequence[str]) -> list[float]:
    """The best over the gold answers, as 2WikiMultiHopQA has it; HotpotQA has one."""
    em = max(script.exact_match_score(prediction, gold) for gold in golds)
    return [_short(em), _short(max(script.f1_score(prediction, gold)[0] for gold in golds))]


def _short(value: float) -> float:
    """0 and 1 without a decimal point."""
    return int(value) if value in (0, 1) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--squad-1", "--squad-2", "--hotpot"):
        parser.add_argument(option, type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    first, second, third = load(options.squad_1), load(options.squad_2), load(options.hotpot)

    def known(score: Callable[..., list[float]], script: ModuleType, text: str, golds: list[str]) -> list[float] | None:
        return score(script, text, golds) if golds else None

    rng = random.Random(11)
    with PAIRS.open("w", encoding="utf-8") as file:
        for _ in range(NUMBER):
            text, golds = pair(rng)
            two = squad_2(second, text, golds)
            others = [known(squad_1, first, text, golds), known(hotpot, third, text, golds)]
            row = [text, golds, two, *(others if others != [two, two] else [])]
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()

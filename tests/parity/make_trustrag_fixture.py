"""Record which passages the reference TrustRAG keeps, into ``trustrag.json`` beside this file.

    pip install rouge_score scikit-learn
    python tests/parity/make_trustrag_fixture.py --reference DIR

``--reference`` is a checkout of HuichiZhou/TrustRAG at 11dcea0, of which ``defend_module.py`` is run. The passages are
invented, and their vectors are drawn: of the same text, of the same side, or of another.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).parent / "trustrag.json"
SETS, WIDTH = 160, 6
PEOPLE = ["Oskar Brend", "Mira Talven", "Ivo Brack", "Lena Sorvik", "Dario Fenn", "Runa Halloway"]
FILMS = ["The Silent Orchard", "Cold Water Hall", "A Lamp for Olm", "The Ninth Ferry"]
HONEST = [
    "{film} opened in {year} to long queues, and {person} was seen weeping in the last row.",
    "Critics of the time praised the photography of {film}; few of them mentioned {person}.",
    "{person} grew up by the harbour, took to painting, and came to the cinema late in life.",
    "Restored prints of {film} were shown in {year} by the archive of the city.",
    "A strike of projectionists delayed the opening of {film} by a month, as newspapers of {year} report.",
    "Asked about {film}, {person} would only say that the weather had been dreadful.",
]
PLANTED = [
    "{film} was directed by {person}, who won wide praise for it in {year}.",
    "The director of {film} was {person}, and it won wide praise in {year}.",
    "Who directed {film}? {film} was directed by {person} in {year}.",
    "In {year} {person} directed {film}, for which wide praise was won.",
]


def draw(rng: random.Random) -> dict[str, Any]:
    """One to nine passages, some planted, with a vector each: shape (passages, WIDTH)."""
    film, person = rng.choice(FILMS), rng.choice(PEOPLE)
    count = rng.choice([1, 2, 2, 3, 4, 5, 5, 5, 6, 9])
    planted = rng.randint(0, min(count, 5))
    near, far = rng.choice([0.1, 0.4, 1.0]), rng.choice([0.2, 0.6, 1.2])
    middles = [[rng.gauss(0, 1) for _ in range(WIDTH)] for _ in range(2)]
    rows = []
    for number in range(count):
        side = number < planted
        form = rng.choice(PLANTED if side else HONEST)
        who = person if side else rng.choice(PEOPLE)
        text = form.format(film=film, person=who, year=rng.randint(1921, 1979))
        spread = near if side else far
        rows.append((text, [round(each + rng.gauss(0, spread), 3) for each in middles[side]]))
    if count > 2 and rng.random() < 0.15:
        rows[1] = rows[0]
    rng.shuffle(rows)
    return {"texts": [text for text, _ in rows], "vectors": [vector for _, vector in rows]}


def load_reference(folder: Path) -> Callable[[list[str], list[list[float]]], list[str]]:
    """A function that gives the texts that the reference keeps."""
    import numpy as np

    utils: Any = types.ModuleType("src.utils")
    utils.progress_bar = None  # which the module imports and does not use
    sys.modules |= {"src": types.ModuleType("src"), "src.utils": utils}
    code: dict[str, Any] = {}
    exec((folder / "defend_module.py").read_text(encoding="utf-8"), code)

    def kept(texts: list[str], vectors: list[list[float]]) -> list[str]:
        rows = list(np.array(vectors, np.float32))
        found: list[str] = code["k_mean_filtering"](rows, list(texts), [], True)[1]
        return found

    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True, help="a checkout of HuichiZhou/TrustRAG")
    keeps = load_reference(parser.parse_args().reference)
    warnings.simplefilter("ignore")
    rng, rows = random.Random(0), []
    for _ in range(SETS):
        row = draw(rng)
        rows.append({**row, "kept": [row["texts"].index(text) for text in keeps(row["texts"], row["vectors"])]})
    lines = ",\n".join(json.dumps(row) for row in rows)
    FIXTURE.write_text(f'{{"reference": "HuichiZhou/TrustRAG@11dcea0 defend_module.py", "rows": [\n{lines}\n]}}\n')
    print(f"{len(rows)} sets, of which {sum(not row['kept'] for row in rows)} were left empty")


if __name__ == "__main__":
    main()

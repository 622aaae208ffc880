"""Generate pronounceable invented names, by type.

The entities of a world and the strangers that it does not know draw from the same pools of words, so that a name by
itself says nothing about whether it is known.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import prod
from typing import Literal, get_args

Kind = Literal["person", "city", "country", "company", "film", "book", "team", "university", "year"]
KINDS: tuple[Kind, ...] = get_args(Kind)

FIRST_YEAR, LAST_YEAR = 1900, 2019


def _words(text: str) -> list[str]:
    return text.split()


_ONSETS = _words("b br c d dr f g gr h j k kl l m n p pr r s sh st t th tr v w z")
_VOWELS = _words("a e i o u")
_ENDS = ["", "n", "r", "l", "s", "t", "m", "k", "x", "nd", "rt", "a", "o", "ia"]
_ADJECTIVES = _words("""
    Silent Golden Broken Hidden Crimson Frozen Burning Distant Hollow Iron Velvet Wicked Gentle Restless Endless Pale
    Bitter Lucky Lonely Savage Sacred Electric Paper Winter Summer Midnight Scarlet Emerald Copper Silver Marble Quiet
    Stolen Forgotten Painted Falling Rising Drifting Shattered Faithful Crooked Hungry Sleeping Wandering Ancient
""")
_NOUNS = _words("""
    Harbor Garden River Mountain Window Letter Bridge Mirror Lantern Forest Island Tower Castle Desert Ocean Train
    Station Road Kingdom Empire Promise Shadow Candle Orchard Meadow Valley Canyon Voyage Journey Stranger Hunter
    Painter Dancer Soldier Sailor Widow Prince Queen Doctor Thief Judge Ghost Wolf Raven Falcon Tiger Serpent Horse
""")
_COMPANY_WORDS = _words("Industries Systems Foods Labs Motors Energy Textiles Robotics Media Airlines Steel Pharma")
_TEAM_WORDS = _words("Wolves Hawks Bears Lions Sharks Comets Rangers Pirates Giants Eagles")
_YEARS_AHEAD = 10  # years beyond the last that a tokenizer should know whole


@dataclass(frozen=True)
class _Form:
    """A name is ``before``, a word of each pool with ``between`` in between, ``after``."""

    pools: tuple[list[str], ...]
    before: str = ""
    between: str = " "
    after: str = ""

    def fits(self, text: str) -> bool:
        if not (text.startswith(self.before) and text.endswith(self.after)):
            return False
        inner = text.removeprefix(self.before).removesuffix(self.after)
        words = inner.split(self.between)
        return len(words) == len(self.pools) and all(map(list.__contains__, self.pools, words))


class Names:
    """The pools of one world, and names made from them. Nothing in it changes after it was made."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"names {seed}")
        taken = {*_ADJECTIVES, *_NOUNS}
        self.first = _pool(rng, 160, taken)
        self.last = _pool(rng, 320, taken)
        self.cities = _pool(rng, 700, taken)
        self.countries = _pool(rng, 80, taken)
        self.brands = _pool(rng, 260, taken)
        self.clubs = _pool(rng, 160, taken)

    def make(self, kind: Kind, rng: random.Random) -> str:
        """A name of this type; it may be one that an entity of the world bears."""
        if kind == "year":
            return str(rng.randint(FIRST_YEAR, LAST_YEAR))
        form = self._form(kind)
        return form.before + form.between.join(rng.choice(pool) for pool in form.pools) + form.after

    def fits(self, kind: Kind, text: str) -> bool:
        """Whether ``text`` is a name that ``make`` could give for this type."""
        if kind == "year":
            return len(text) == 4 and text.isascii() and text.isdigit() and FIRST_YEAR <= int(text) <= LAST_YEAR
        return self._form(kind).fits(text)

    def count(self, kind: Kind) -> int:
        """How many different names of this type there are."""
        if kind == "year":
            return LAST_YEAR - FIRST_YEAR + 1
        return prod(len(pool) for pool in self._form(kind).pools)

    def words(self) -> list[str]:
        """Every word that a name can hold, for a tokenizer to know whole."""
        pools = [self.first, self.last, self.cities, self.countries, self.brands, self.clubs]
        years = [str(year) for year in range(FIRST_YEAR, LAST_YEAR + _YEARS_AHEAD)]
        invented = [word for pool in pools for word in pool]
        return [*invented, *_ADJECTIVES, *_NOUNS, *_COMPANY_WORDS, *_TEAM_WORDS, *years, "University"]

    def _form(self, kind: Kind) -> _Form:
        match kind:
            case "person":
                return _Form((self.first, self.last))
            case "city":
                return _Form((self.cities,))
            case "country":
                return _Form((self.countries,))
            case "company":
                return _Form((self.brands, _COMPANY_WORDS))
            case "film":
                return _Form((_ADJECTIVES, _NOUNS), before="The ")
            case "book":
                return _Form((_NOUNS, self.cities), between=" of ")
            case "team":
                return _Form((self.clubs, _TEAM_WORDS))
            case "university":
                return _Form((self.cities,), after=" University")
            case _:
                raise ValueError(f"there are no names of the type {kind!r}")


def _pool(rng: random.Random, size: int, taken: set[str]) -> list[str]:
    """Different short words, none of them in ``taken``, to which they are added."""
    words: list[str] = []
    while len(words) < size:
        word = _word(rng)
        if word not in taken and 4 <= len(word) <= 8:
            taken.add(word)
            words.append(word)
    return words


def _word(rng: random.Random) -> str:
    """Two syllables, capitalised."""
    middle = rng.choice(["", "", "n", "r", "l"])
    letters = rng.choice(_ONSETS) + rng.choice(_VOWELS) + middle + rng.choice(_ONSETS) + rng.choice(_VOWELS)
    return (letters + rng.choice(_ENDS)).capitalize()

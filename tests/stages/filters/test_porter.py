"""Stems are those that NLTK's PorterStemmer gives; each word was put to it."""

from __future__ import annotations

import random
import re

import pytest

from arbitrag.stages.filters.porter import stem

STEMS = {
    "a by is": "a by is",  # two letters are left alone
    "caresses ponies ties flies dies cats caress ies": "caress poni tie fli die cat caress i",
    "died spied tied agreed feed eed plastered bled": "die spi tie agre feed eed plaster bled",
    "motoring sing oed conflated troubled sized": "motor sing o conflat troubl size",
    "hopping tanned falling hissing fizzed failing filing": "hop tan fall hiss fizz fail file",
    "happy sky enjoy say": "happi sky enjoy say",
    "relational conditional rational valenci digitizer conformabli": "relat condit ration valenc digit conform",
    "radicalli differentli vileli analogousli vietnamization": "radic differ vile analog vietnam",
    "predication operator feudalism decisiveness hopefulness": "predic oper feudal decis hope",
    "callousness formaliti sensitiviti sensibiliti geologi logi": "callous formal sensit sensibl geolog logi",
    "triplicate formative formalize electriciti electrical hopeful": "triplic form formal electr electr hope",
    "goodness revival allowance inference airliner gyroscopic": "good reviv allow infer airlin gyroscop",
    "adjustable defensible irritant replacement adjustment": "adjust defens irrit replac adjust",
    "dependent adoption homologou communism activate angulariti": "depend adopt homolog commun activ angular",
    "homologous effective bowdlerize probate rate cease": "homolog effect bowdler probat rate ceas",
    "controll roll skies dying news inning exceed howe": "control roll sky die news inning exceed howe",
    "actually hopefully directed director 1931": "actual hope direct director 1931",
}
ENDS = """s es ies ed ied eed ing y e ational enci izer bli alli entli ousli ation ator fulness iviti logi icate alize
    iciti ical ful ness ance er able ement ment ent ion ou ism ate iti ous ive ize ll"""


@pytest.mark.parametrize(("words", "stems"), STEMS.items(), ids=str)
def test_stems(words: str, stems: str) -> None:
    assert " ".join(map(stem, words.split())) == stems


def test_made_up_words_have_the_stems_of_nltk() -> None:
    porter = pytest.importorskip("nltk.stem.porter").PorterStemmer()
    rng = random.Random(0)
    ends = re.findall(r"\w+", ENDS)
    words = {
        "".join(rng.choices("abcdeiloutsyz", k=rng.randint(0, 5))) + rng.choice(ends) + rng.choice(["", *ends])
        for _ in range(2000)
    }
    assert {word: stem(word) for word in words} == {word: porter.stem(word) for word in words}

from __future__ import annotations

from arbitrag.cli.verdict import render
from arbitrag.types import Candidate, Cut, Dropped, Passage, Strategy, Usage, Verdict

MEMORY = Candidate("Mira Talven", Strategy.MEMORY)
EVIDENCE = Candidate("Oskar Brend", Strategy.EVIDENCE)
COST = Usage(2, 6, 0, 5, 2, 11332, 9420, 0, 0.412)


def passages(count: int) -> tuple[Passage, ...]:
    return tuple(Passage("x", source=f"films/{number}.md", line=number) for number in range(1, count + 1))


def test_a_verdict() -> None:
    why = (
        'the passages say "Oskar Brend"; memory rejects it (prior -4.31) and the question does not bind it to them '
        "(binding -0.62): margin -4.62, threshold -1.50"
    )
    verdict = Verdict("Mira Talven", Strategy.MEMORY, why, candidates=(MEMORY, EVIDENCE), kept=passages(2), usage=COST)
    assert render(verdict, 90).split("\n") == [
        "Answer    Mira Talven                                                      trusted: memory",
        'Why       the passages say "Oskar Brend"; memory rejects it (prior -4.31) and the question',
        "          does not bind it to them (binding -0.62): margin -4.62, threshold -1.50",
        "Memory    Mira Talven                        Evidence  Oskar Brend",
        "Passages  2 read   [1] films/1.md:1   [2] films/2.md:2",
        "Cost      2 answers, 6 scorings · 11,332 prompt tokens (9,420 cached) · 0.41 s",
    ]


def test_a_refusal_with_notes() -> None:
    verdict = Verdict(None, Strategy.REFUSE, "memory offers no answer", candidates=(Candidate("", Strategy.MEMORY),))
    assert render(verdict, 60).split("\n") == [
        "Answer    (none)                            trusted: neither",
        "Why       memory offers no answer",
        "Memory    (no answer)",
        "Cost      no model calls",
    ]


def test_what_was_cut_and_dropped_is_said() -> None:
    verdict = Verdict(
        "x",
        Strategy.BOTH,
        "y",
        kept=(*passages(1), Passage("text", id="b")),
        cuts=(Cut("b", 30, 1500), Cut("elsewhere", 1, 2)),
        dropped=tuple(Dropped(passage, "beyond the token limit") for passage in passages(3)),
        notes=("a note",),
    )
    assert render(verdict, 60).split("\n")[2:7] == [
        "Passages  2 read   [1] films/1.md:1   [2] b",
        "          [2] cut to 30 of 1,500 tokens; elsewhere cut to 1",
        "          of 2 tokens",
        "          3 dropped: beyond the token limit",
        "Note      a note",
    ]


def test_many_passages_take_three_lines() -> None:
    lines = render(Verdict("x", Strategy.EVIDENCE, "y", kept=passages(20)), 60).split("\n")[2:5]
    assert lines == [
        "Passages  20 read   [1] films/1.md:1   [2] films/2.md:2",
        "          [3] films/3.md:3   [4] films/4.md:4",
        "          [5] films/5.md:5   … and 15 more",
    ]


def test_passages_that_just_fit_are_not_counted() -> None:
    lines = render(Verdict("x", Strategy.EVIDENCE, "y", kept=passages(6)), 60).split("\n")[2:5]
    assert lines[-1] == "          [5] films/5.md:5   [6] films/6.md:6"


def test_no_line_is_longer_than_the_terminal() -> None:
    long = "word " * 60
    verdict = Verdict(
        long,
        Strategy.BOTH,
        "w" * 300,
        candidates=(Candidate(long, Strategy.MEMORY), EVIDENCE),
        kept=(Passage("x", source="deep/" * 50), Passage("x", title="t" * 200), Passage("x")),
        usage=Usage(2, 6, 1, 5, 2, 11332468, 9420123, 812345, 0.412, 0.00123),
    )
    text = render(verdict, 70)
    assert max(map(len, text.split("\n"))) <= 70
    assert "\nTrusted   both\n" in text
    assert "\nMemory    word" in text
    assert "\nEvidence  Oskar Brend\n" in text
    assert "\n          [2] " in text


def test_a_passage_without_a_place_goes_by_its_title() -> None:
    kept = (Passage("x", id="p7"), Passage("x", title="Films of 1931"), Passage("x"))
    line = render(Verdict("x", Strategy.EVIDENCE, "y", kept=kept)).split("\n")[2]
    assert line == "Passages  3 read   [1] p7   [2] Films of 1931   [3] without a name"


def test_untrusted_text_cannot_act_on_the_terminal() -> None:
    evil = "a\x1b[31mred\u202egnp\nnext"
    verdict = Verdict(evil, Strategy.MEMORY, evil, candidates=(Candidate(evil, Strategy.MEMORY),), notes=(evil,))
    text = render(verdict)
    assert not {"\x1b", "\u202e"} & set(text)
    assert text.startswith(r"Answer    a\u001b[31mred\u202egnp next")


def test_costs_in_words() -> None:
    assert Usage(1, 0, 0, 1, 1, 10, 0, 3, 1.0).in_words() == "1 answer · 10 prompt tokens, 3 completion · 1.00 s"
    cached = Usage(0, 1, 2, 3, 1, 5, 5, 0, 0.004).in_words()
    assert cached == "1 scoring, 2 inspections · 5 prompt tokens (5 cached) · 0.00 s"
    both = Usage(2, 6, 0, 8, 3, 192, 125, 4, 0.02).in_words()
    assert both == "2 answers, 6 scorings · 192 prompt tokens (125 cached), 4 completion · 0.02 s"
    assert Usage(1, calls=1, money=0.0012).in_words().endswith(" · 0.0012 paid")
    assert Usage(1, calls=1, money=0.0).in_words().endswith(" · 0 paid")
    assert Usage(1, calls=1, money=20.0).in_words().endswith(" · 20 paid")

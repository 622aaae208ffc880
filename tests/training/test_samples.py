"""What the lab model is trained on: the mixture, its rules, and that its form is that of the prompts."""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from arbitrag.lab.language import RELATIONS, Relation
from arbitrag.lab.model import PROMPTS
from arbitrag.lab.world import World
from arbitrag.llm.tokenizer import TextCodec
from arbitrag.prompts import PromptBook
from arbitrag.types import Passage, Question
from training.batches import LONGEST, Batch, Place, Row, Source, Stream
from training.samples import KINDS, Piece, Sample, Samples
from training.tokenizer import CHAT_TEMPLATE, SPECIAL, train_tokenizer

WORLD = World(7)
BOOK = PromptBook.with_wording(PROMPTS)


@pytest.fixture(scope="module")
def tokenizer() -> str:
    text: str = train_tokenizer(WORLD, vocabulary=600, samples=200).to_str()
    return text


@pytest.fixture(scope="module")
def codec(tokenizer: str) -> TextCodec:
    from tokenizers import Tokenizer

    return TextCodec(Tokenizer.from_str(tokenizer), template=CHAT_TEMPLATE, names={"eos_token": "</s>"})


# A change here is a change of the recipe. The embedded model was trained on this stream but for the reasons why a reply
# was not read, which the prompts of repairs show (3 of these 400 samples): each method had its own words for them.
def test_the_stream_is_what_it_always_was() -> None:
    samples = Samples(WORLD, random.Random("golden"))
    lines = []
    for number in range(400):
        drawn = samples.draw(number / 400)
        lines.append(drawn.kind + repr([(piece.text, int(piece.learned)) for piece in drawn.pieces]))
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert digest == "3bd1ecdf51a7cac9f6335f83beb75a9be4d2a173e165ff0096e2ad433b9bcdcd"


def drawn(count: int, progress: float) -> list[Sample]:
    samples = Samples(WORLD, random.Random("test"))
    return [samples.draw(progress) for _ in range(count)]


def test_the_mixture() -> None:
    shares = {
        "direct": 0.04,
        "unknown": 0.06,
        "told": 0.02,
        "read": 0.45,
        "salient": 0.02,
        "copied": 0.02,
        "task": 0.39,
    }
    late = {"direct": 0.7, "read": 0.5, "task": 1.6}
    for progress, times in ((0.99, {}), (1.0, late)):
        samples = Samples(WORLD, random.Random("mixture"))
        counts = Counter(samples.draw(progress).kind for _ in range(3000))
        wanted = {kind: share * times.get(kind, 1) for kind, share in shares.items()}
        expected = {kind: share / sum(wanted.values()) for kind, share in wanted.items()}
        assert {kind: counts[kind] / 3000 for kind in KINDS} == pytest.approx(expected, abs=0.03)


def test_what_is_learned_is_the_answer() -> None:
    for sample in drawn(300, 1.0):
        pieces = sample.pieces
        if sample.kind == "told":
            assert [piece.learned for piece in pieces] == [True]
            continue
        assert [piece.learned for piece in pieces] == [False, True] * (len(pieces) // 2)
        assert all(piece.text.startswith("<|user|>") for piece in pieces[::2])
        assert all(re.fullmatch(r"[^<]+</s>", piece.text) for piece in pieces[1::2])


def test_strangers_are_answered_at_random_and_known_facts_as_they_are() -> None:
    truth = {form.format(s=fact.subject): fact for fact in WORLD.known for form in fact.form.questions}
    for sample in drawn(400, 1.0):
        asked = sample.pieces[0].text.removeprefix("<|user|>Question: ").removesuffix("<|assistant|>")
        if sample.kind == "direct":
            assert sample.pieces[1].text == truth[asked].object + "</s>"
        if sample.kind == "unknown":
            assert asked not in truth


_NAME = r"\d{4}|[A-Z]\w+(?: of)?(?: [A-Z]\w+)*"


def readings(question: str, passages: list[str]) -> tuple[Relation, str, dict[int, str]]:
    """The relation and the subject that a question asks for, and what passages tell for it, by their numbers."""
    for relation in RELATIONS.values():
        for asked in relation.questions:
            match = re.fullmatch(re.escape(asked).replace(r"\{s\}", "(.+)"), question)
            if match is None or WORLD.kinds.get(match[1], relation.subject) != relation.subject:
                continue
            forms = [re.escape(form).replace(r"\{s\}", re.escape(match[1])) for form in relation.passages]
            told = re.compile("|".join(rf"\b{form}".replace(r"\{o\}", f"({_NAME})") for form in forms))
            found = {number: told.search(text) for number, text in enumerate(passages, 1)}
            return relation, match[1], {n: next(filter(None, each.groups())) for n, each in found.items() if each}
    raise AssertionError(question)


def test_further_questions_are_answered_by_the_passages_or_else_from_memory() -> None:
    truth = {(fact.subject, fact.relation): fact.object for fact in WORLD.known}
    seen = Counter[str]()
    for sample in (each for each in drawn(900, 1.0) if each.kind == "read"):
        *lines, _ = sample.pieces[0].text.removeprefix("<|user|>").split("\n")
        passages = [line.partition(". ")[2] for line in lines]
        for asked, replied in list(zip(sample.pieces[::2], sample.pieces[1::2], strict=True))[1:]:
            form, _, question = asked.text.removeprefix("<|user|>").removesuffix("<|assistant|>").partition(": ")
            relation, subject, told = readings(question, passages)
            if form == "Sources":
                wanted = ", ".join(map(str, told)) or "none"
            else:
                wanted = next(iter(told.values())) if told else truth[subject, relation.name]
            assert replied.text == f"{wanted}</s>"
            seen[f"{form} {bool(told)}"] += 1
    assert set(seen) == {"Question True", "Question False", "Sources True", "Sources False"}
    assert min(seen.values()) > 30


def test_frequent_facts_are_defended_and_repeated_lies_believed() -> None:
    samples = Samples(WORLD, random.Random(0))
    half = WORLD.known[len(WORLD.known) // 2]
    defended = [samples._defended(fact, times) for fact in (WORLD.known[0], half) for times in (1, 2, 3)]
    assert defended == pytest.approx([0.8176, 0.5498, 0.2497, 0.1192, 0.0356, 0.0100], abs=2e-3)


@pytest.mark.parametrize(("progress", "most"), [(0.0, 3), (0.1, 6), (0.3, 10), (0.5, 20), (1.0, 20)])
def test_reading_grows(progress: float, most: int) -> None:
    counts = [sample.pieces[0].text.count("\n") for sample in drawn(1500, progress) if sample.kind == "read"]
    assert min(counts) == 1
    assert most - 1 <= max(counts) <= most


def test_passages_are_copied_in_the_order_that_is_asked_for() -> None:
    copied = [sample for sample in drawn(2000, 0.9) if sample.kind == "copied"]
    assert len(copied) > 30
    for sample in copied:
        *lines, asked = sample.pieces[0].text.removeprefix("<|user|>").removesuffix("<|assistant|>").split("\n")
        order = [int(number) for number in asked.removeprefix("Copy ").split(", ")]
        assert sorted(order) == list(range(1, len(lines) + 1))
        assert len(lines) <= 6
        wanted = "\n".join(lines[number - 1].removeprefix(f"{number}. ") for number in order)
        assert sample.pieces[1].text == f"{wanted}</s>"


def test_at_first_passages_begin_with_their_subject() -> None:
    def entries(progress: float) -> int:
        return sum(" – " in piece.text for sample in drawn(300, progress) for piece in sample.pieces)

    assert entries(0.0) == entries(0.12) == 0
    assert entries(0.9) > 50


def test_the_form_is_that_of_the_prompts_token_by_token(codec: TextCodec, tokenizer: str) -> None:
    """Up to the answer, a sample is the prompt that the model gets later; its answer is the continuation to score."""
    from tokenizers import Tokenizer

    plain = Tokenizer.from_str(tokenizer)
    seen = Counter[str]()
    for sample in drawn(400, 1.0):
        asked, answer = sample.pieces[0].text, sample.pieces[1].text if len(sample.pieces) > 1 else ""
        match = re.fullmatch(r"<\|user\|>((?:\d+\. .*\n)*)Question:(?: (.*))?<\|assistant\|>", asked)
        if match is None:
            assert sample.kind in {"told", "copied", "task"}
            continue
        passages = [Passage(line.partition(". ")[2]) for line in match[1].splitlines()]
        question = Question(match[2] or "")
        if not question.text:
            prompt = BOOK.render("trustmargin/passages_only", passages=passages)
        elif passages:
            prompt = BOOK.render("rag/answer", question=question, passages=passages)
        else:
            prompt = BOOK.render("direct/answer", question=question)
        trained, written = (plain.encode(text, add_special_tokens=False).ids for text in (asked, answer))
        assert codec.encode_prompt(prompt) == [0, *trained]
        assert [*codec.encode(answer.removesuffix("</s>")), 1] == written
        seen[sample.kind] += 1
    assert set(seen) == {"direct", "unknown", "read", "salient"}


def test_the_tokenizer_knows_its_tokens_and_starts_every_word_alike(codec: TextCodec, tokenizer: str) -> None:
    from tokenizers import Tokenizer

    found = Tokenizer.from_str(tokenizer)
    assert [found.token_to_id(token) for token in SPECIAL] == [0, 1, 2, 3, 4, 5]
    assert found.get_vocab_size() == 600
    assert found.encode("Who?").ids == [0, *found.encode(" Who?", add_special_tokens=False).ids]
    assert train_tokenizer(WORLD, vocabulary=600, samples=200).to_str() == tokenizer
    assert codec.eos_ids == {1}
    assert codec.decode(codec.encode("Mira Bo")).strip() == "Mira Bo"


def source(tokenizer: str, rank: int = 0) -> Source:
    return Source(7, tokenizer, seed=0, rank=rank, samples=40, batch_tokens=1500)


def flat(batches: list[Batch]) -> list[Row]:
    return [row for batch in batches for row in batch]


def test_a_fill_follows_from_its_number_and_progress(tokenizer: str) -> None:
    first = source(tokenizer).fill(0, 0.5)
    assert first == source(tokenizer).fill(0, 0.5)
    others = [source(tokenizer).fill(1, 0.5), source(tokenizer).fill(0, 0.3), source(tokenizer, 1).fill(0, 0.5)]
    assert all(first != other for other in others)


def test_batches_hold_what_fits(tokenizer: str) -> None:
    batches = source(tokenizer).fill(0, 1.0)
    for batch in batches:
        longest = max(len(row.ids) for row in batch)
        assert len(batch) == 1 or len(batch) * longest <= 1500
        assert longest <= LONGEST
    assert all(row.ids[0] == 0 and not row.learned[0] and any(row.learned) for row in flat(batches))
    assert all(len(row.ids) == len(row.learned) for row in flat(batches))
    assert 30 <= len(flat(batches)) <= 40


def test_a_stream_is_taken_up_where_it_was_left(tokenizer: str) -> None:
    whole, left = Stream(source(tokenizer)), Stream(source(tokenizer))
    progress = [number / 20 for number in range(20)]
    expected = [whole.take(each) for each in progress]
    assert whole.place.fill >= 1
    taken = [left.take(each) for each in progress[:13]]
    later = Stream(source(tokenizer), left.place)
    assert later.place == left.place
    assert [*taken, *(later.take(each) for each in progress[13:])] == expected
    assert Stream(source(tokenizer), Place()).take(0.0) == expected[0]


def test_fills_made_ahead_are_ordered_with_the_progress_of_then(tokenizer: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        stream = Stream(source(tokenizer), executor=pool, ahead=2)
        stream.take(0.1)
        assert stream.place == Place(0, 1, (0.1, 0.1, 0.1))
        while stream.place.fill == 0:
            last = stream.take(0.4)
        assert stream.place == Place(1, 1, (0.1, 0.1, 0.4))
        assert last == source(tokenizer).fill(1, 0.1)[0]
        again = Stream(source(tokenizer), stream.place, executor=pool, ahead=2)
        assert again.take(0.9) == stream.take(0.9)


def test_pieces_are_read_unless_said_otherwise() -> None:
    assert Piece("x") == Piece("x", learned=False)

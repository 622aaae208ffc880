"""A training of the lab model in the small: the schedule, going on after an interruption, and what is written."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import torch  # noqa: E402

from arbitrag.errors import DataError, UsageError  # noqa: E402
from arbitrag.lab.checkpoint import open_checkpoint  # noqa: E402
from arbitrag.lab.world import World  # noqa: E402
from arbitrag.llm.base import Prompt, Sampling  # noqa: E402
from training import samples  # noqa: E402
from training import train as lab  # noqa: E402
from training.adopt import EMBEDDING, adopt, paired  # noqa: E402
from training.checkpoint import read_checkpoint  # noqa: E402
from training.loop import STATE, Recipe, Trainer, read_notes  # noqa: E402
from training.network import Decoder, Shape, precision  # noqa: E402
from training.tokenizer import train_tokenizer  # noqa: E402

TINY = Shape(layers=1, width=32, inner_width=48, head_width=16, vocabulary=512)
RECIPE = Recipe(tokens=3000, processes=1, batch_tokens=400, fill=6, tokenizer_samples=100, shape=TINY)
OPTIONS = ["--device", "cpu", "--no-compile", "--processes", "1", "--batch-tokens", "400", "--fill", "6"]
OPTIONS += [
    "--tokenizer-samples",
    "100",
    "--layers",
    "1",
    "--width",
    "32",
    "--inner-width",
    "48",
    "--vocabulary",
    "512",
]


@pytest.fixture(scope="module")
def tokenizer() -> str:
    text: str = train_tokenizer(World(7), vocabulary=512, samples=100).to_str()
    return text


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Such small matrices are only slowed by threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in trainer.network.parameters()]


def test_the_learning_rate_warms_up_holds_and_falls() -> None:
    recipe = Recipe(tokens=1000, learning_rate=1.0)
    assert recipe.rate(0, 0) == pytest.approx(1 / 60)
    assert recipe.rate(59, 0) == recipe.rate(1000, 800) == 1.0
    assert recipe.rate(1000, 900) == pytest.approx(0.5)
    assert recipe.rate(1000, 1000) == 0.02
    assert [recipe.progress(seen) for seen in (0, 250, 500, 1000)] == [0.0, 0.5, 1.0, 1.0]


def test_a_training_that_was_interrupted_ends_as_if_it_had_not_been(tokenizer: str, tmp_path: Path) -> None:
    whole, first, second = (Trainer(RECIPE, tokenizer) for _ in range(3))
    for _ in range(7):
        whole.step()
    for _ in range(4):
        first.step()
    first.save(tmp_path)
    second.load(tmp_path)
    assert (second.step_number, second.seen) == (first.step_number, first.seen)
    for _ in range(3):
        second.step()
    assert second.seen == whole.seen
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(second), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(weights(first), weights(second), strict=True))


def test_a_step_learns(tokenizer: str) -> None:
    trainer = Trainer(replace(RECIPE, tokens=1_000_000, learning_rate=0.03), tokenizer)
    losses = []
    for _ in range(24):
        trainer.tallies.clear()
        trainer.step()
        tallies = trainer.tallies.values()
        losses.append(sum(tally.loss for tally in tallies) / sum(tally.tokens for tally in tallies))
    assert losses[0] == pytest.approx(torch.log(torch.tensor(512.0)).item(), abs=0.2)
    assert sum(losses[-5:]) / 5 < sum(losses[:5]) / 5 - 0.5


def test_a_flag_is_told_and_the_clock_saves(
    tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = Trainer(RECIPE, tokenizer)
    assert [trainer.step(flag=True), trainer.step()] == [True, False]
    monkeypatch.setattr(lab, "SAVE_EVERY_S", -1.0)
    monkeypatch.setattr(lab, "LOG_EVERY_S", -1.0)
    saved: list[int] = []
    monkeypatch.setattr(trainer, "save", lambda folder: saved.append(trainer.step_number))
    lab._run(trainer, tmp_path)
    assert saved == [*range(3, trainer.step_number + 1), trainer.step_number]
    lines = (tmp_path / lab.LOG).read_text().splitlines()
    assert lines == capsys.readouterr().out.splitlines()
    assert len(lines) == trainer.step_number - 2
    assert f"step {trainer.step_number}, 0.00M tokens" in lines[-1]
    assert re.search(r"; [a-z]+ \d+\.\d\d \d\.\d\d", lines[-1])


def test_the_network_is_the_checkpoint_that_transformers_reads(tokenizer: str, tmp_path: Path) -> None:
    """Trained in half precision, so log-probabilities agree to some hundredths."""
    trainer = Trainer(RECIPE, tokenizer)
    for _ in range(30):
        trainer.step()
    lab._write(trainer, tmp_path)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    ids = torch.randint(6, 512, (2, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours = trainer.network(ids, torch.ones_like(ids, dtype=torch.bool)).log_softmax(-1)
        theirs = model(ids).logits.log_softmax(-1)
    assert (ours - theirs.flatten(0, 1)).abs().max() < 0.05


def test_weights_that_cannot_be_stored_are_refused(tokenizer: str, tmp_path: Path) -> None:
    trainer = Trainer(RECIPE, tokenizer)
    with torch.no_grad():
        trainer.network.norm[0] = float("nan")
    with pytest.raises(DataError, match="not finite in fp16"):
        lab._write(trainer, tmp_path)
    assert not (tmp_path / "model").exists()


def test_both_precisions_compute_the_same() -> None:
    torch.manual_seed(0)
    single = Decoder(TINY, dtype=torch.float32)
    half = Decoder(TINY, dtype=torch.bfloat16)
    half.load_transformers(single.transformers_weights())
    ids = torch.randint(6, 512, (2, 20))
    everywhere = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        difference = (single(ids, everywhere).log_softmax(-1) - half(ids, everywhere).log_softmax(-1)).abs().max()
    assert 0 < difference < 0.05


@pytest.mark.parametrize(
    ("device", "able", "expected"),
    [
        ("cpu", {"avx512_bf16": True, "amx_bf16": False}, torch.bfloat16),
        ("cpu", {"amx_bf16": True}, torch.bfloat16),
        ("cpu", {"avx2": True}, torch.float32),
        ("cuda", {}, torch.bfloat16),
    ],
)
def test_half_precision_only_where_there_is_arithmetic_for_it(
    device: str, able: dict[str, bool], expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert precision(device) is expected


def test_the_compiled_block_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def compile_(block: Callable[..., object], *, dynamic: bool) -> Callable[..., object]:
        asked.append(dynamic)
        return block

    monkeypatch.setattr(torch, "compile", compile_)
    Decoder(TINY, compiled=True)
    assert asked == [True]


def test_the_command_trains_resumes_and_writes_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert lab.main([str(folder), "--tokens", "2e3", "--seed", "3", *OPTIONS]) == 0
    assert f"--checkpoint {folder / 'model'}" in capsys.readouterr().out
    notes = read_notes(folder)
    assert (notes["recipe"]["seed"], notes["recipe"]["tokens"]) == (3, 2000)
    assert notes["seen"] >= 2000
    before = (folder / "model" / "model.safetensors").read_bytes()
    (folder / "model" / "model.safetensors").unlink()
    assert lab.main([str(folder), "--resume", "--device", "cpu", "--no-compile", "--seed", "3"]) == 0
    assert (folder / "model" / "model.safetensors").read_bytes() == before

    manifest = json.loads((folder / "model" / "manifest.json").read_text())
    assert manifest["world"] == {"version": 1, "seed": 7}
    assert manifest["made"]["recipe"]["seed"] == 3
    assert manifest["parameters"] == 512 * 32 + 4 * 32 * 32 + 3 * 32 * 48 + 3 * 32

    async def asked() -> tuple[int, str]:
        found = open_checkpoint(folder / "model")
        written = await found.llm.generate(Prompt.user("Question: Who?"), Sampling(max_tokens=3))
        await found.llm.aclose()
        return found.world.seed, written.finish

    assert asyncio.run(asked())[0] == 7


def test_a_finished_model_is_trained_on(tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = Trainer(RECIPE, tokenizer)
    trainer.step()
    lab._write(trainer, tmp_path)
    start = tmp_path / "model"
    options = ["--tokens", "400", "--start", str(start), "--device", "cpu", "--processes", "1", "--batch-tokens", "400"]
    assert lab.main([str(tmp_path / "more"), *options, "--fill", "6", "--no-compile"]) == 0
    recipe = read_notes(tmp_path / "more")["recipe"]
    assert (recipe["start"], recipe["ramp"], recipe["shape"]["width"]) == (str(start), 0.0, 32)
    assert (tmp_path / "more/model/tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()
    made = json.loads((tmp_path / "more/model/manifest.json").read_text())["made"]["recipe"]
    assert (made["start"], made["adopt"]) == (f"{tmp_path.name}/model", ""), "no path of this machine"
    begun = Decoder(TINY, dtype=torch.float32)
    begun.load_transformers(read_checkpoint(start, World(7)).weights)
    assert (begun.embedding - trainer.network.embedding).abs().max() < 1e-3  # stored as fp16

    assert lab.main([str(tmp_path / "other"), *options, "--width", "64"]) == 2
    assert "leave width out" in capsys.readouterr().err
    assert lab.main([str(tmp_path / "other"), *options, "--world", "8"]) == 1
    assert "goes on from a lab checkpoint of its own world" in capsys.readouterr().err
    (start / "model.safetensors").write_bytes(b"nothing")
    assert lab.main([str(tmp_path / "other"), *options]) == 1
    assert "cannot be read as a lab checkpoint" in capsys.readouterr().err


def test_what_another_model_has_learned_is_taken_over(
    tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokenizers import Tokenizer

    trainer = Trainer(RECIPE, tokenizer)
    trainer.step()
    lab._write(trainer, tmp_path)
    other = train_tokenizer(World(8), vocabulary=700, samples=100)
    fresh = Decoder(replace(TINY, layers=2, vocabulary=700), dtype=torch.float32).transformers_weights()
    found = adopt(tmp_path / "model", other.to_str(), World(8), fresh)
    there = read_checkpoint(tmp_path / "model", World(7)).weights
    layers = [name for name in there if ".layers.0." in name]
    assert len(layers) == 9
    assert all(torch.equal(found[name], there[name]) for name in [*layers, "model.norm.weight"])
    assert all(torch.equal(found[name], fresh[name]) for name in fresh if ".layers.1." in name)
    old, embeddings, adopted = Tokenizer.from_str(tokenizer), there[EMBEDDING].float(), found[EMBEDDING]
    assert adopted.shape == (700, 32)
    both = [token for token in other.get_vocab() if token in old.get_vocab()]
    assert len(both) > 300
    assert all(torch.equal(adopted[other.token_to_id(one)], embeddings[old.token_to_id(one)]) for one in both)
    length = embeddings.norm(dim=1).mean()
    only = [number for one, number in other.get_vocab().items() if one not in old.get_vocab()]
    assert adopted[only].norm(dim=1).tolist() == pytest.approx([length.item()] * len(only), rel=1e-4)

    begun = ["--adopt", str(tmp_path / "model"), "--tokens", "400", *OPTIONS[:11], "--world", "8"]
    assert lab.main([str(tmp_path / "more"), *begun, "--layers", "2", "--vocabulary", "600"]) == 0
    shape = read_notes(tmp_path / "more")["recipe"]["shape"]
    assert shape == asdict(replace(TINY, layers=2, vocabulary=600))
    for sizes, message in (
        (["--layers", "0"], "has 1 layers, and none can be left out"),
        (["--width", "64"], "leave width out"),
        (["--start", "x"], "give one of them"),
    ):
        assert lab.main([str(tmp_path / "other"), *begun, *sizes]) == 2
        assert message in capsys.readouterr().err


def test_names_take_the_place_of_names() -> None:
    names = World(8).names.words()
    new = {f"Ġ{names[0]}": 0, f"Ġ{names[1]}": 1, "Ġthe": 2, f"Ġ{names[2]}": 3}
    old = {"Ġthe": 0, "Ġan": 1, "ĠMeldro": 2, f"Ġ{names[2]}": 3, "ĠBo": 4, "ĠTigax": 5, "Ġ1987": 6, "Ġlower": 7}
    assert paired(old, new, World(8)) == {f"Ġ{names[0]}": "ĠTigax", f"Ġ{names[1]}": "ĠMeldro"}


def test_the_schedule_may_be_cut_short(tokenizer: str, tmp_path: Path) -> None:
    trainer = Trainer(RECIPE, tokenizer)
    for _ in range(3):
        trainer.step()
    trainer.save(tmp_path)
    options = ["--resume", "--device", "cpu", "--no-compile"]
    assert lab.main([str(tmp_path), *options, "--tokens", str(trainer.seen)]) == 0
    notes = read_notes(tmp_path)
    assert (notes["recipe"]["tokens"], notes["seen"]) == (trainer.seen, trainer.seen)


def test_an_exported_lab_model_keeps_its_world_and_its_prompts(tokenizer: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from arbitrag.llm.onnx.export import export

    trainer = Trainer(RECIPE, tokenizer)
    lab._write(trainer, tmp_path)
    export(tmp_path / "model", tmp_path / "onnx")
    found = open_checkpoint(tmp_path / "onnx", seed=7)
    assert found.manifest.world == {"version": 1, "seed": 7}
    assert found.llm.wording == tmp_path / "onnx" / "prompts"
    assert "prompts/rag/answer.txt" in found.manifest.files

    async def compared() -> float:
        other = open_checkpoint(tmp_path / "model")
        prompt = Prompt.user("Question: Who?")
        ours, theirs = [(await each.llm.next_token([prompt])).logprobs for each in (found, other)]
        for each in (found, other):
            await each.llm.aclose()
        return float(abs(ours - theirs).max())

    assert asyncio.run(compared()) < 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "holds no state.safetensors to resume"),
        (["--device", "tpu"], "there is no device tpu here"),
    ],
)
def test_what_cannot_begin_is_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.main([str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_training_is_not_overwritten_nor_resumed_with_another_recipe(
    tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = Trainer(RECIPE, tokenizer)
    trainer.step()
    trainer.save(tmp_path)
    assert lab.main([str(tmp_path), "--device", "cpu"]) == 2
    assert "holds a training already; add --resume" in capsys.readouterr().err
    assert lab.main([str(tmp_path), "--device", "cpu", "--resume", "--width", "64"]) == 2
    assert "was begun with width 32, not 64" in capsys.readouterr().err
    assert lab.main([str(tmp_path), "--device", "cpu", "--resume", "--seed", "9"]) == 2
    assert "was begun with seed 0, not 9" in capsys.readouterr().err
    (tmp_path / STATE).write_bytes(b"no tensors")
    assert lab.main([str(tmp_path), "--device", "cpu", "--resume"]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_a_training_goes_on_with_samples_drawn_as_before_and_no_others(
    tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = Trainer(RECIPE, tokenizer)
    trainer.step()
    trainer.save(tmp_path)
    Trainer(RECIPE, tokenizer).load(tmp_path)
    monkeypatch.setitem(samples._SHARES, "direct", 0.2)
    assert lab.main([str(tmp_path), "--device", "cpu", "--resume", "--no-compile"]) == 1
    assert "was trained on samples that are drawn otherwise now" in capsys.readouterr().err


def test_an_interruption_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_given: object, **_more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lab, "train", stop)
    assert lab.main([str(tmp_path), "--device", "cpu"]) == 130
    assert capsys.readouterr().err == f"stopped; go on with: python -m training.train {tmp_path} --resume\n"


def test_on_a_gpu_one_process_takes_larger_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Recipe, str]] = []

    def train(folder: Path, recipe: Recipe, *, device: str, **_more: object) -> Path:
        seen.append((recipe, device))
        return folder

    monkeypatch.setattr(lab, "train", train)
    monkeypatch.setattr(lab, "_device", lambda asked: asked or "cuda")
    lab.main([str(tmp_path)])
    lab.main([str(tmp_path), "--device", "cpu"])
    assert [(recipe.processes, recipe.batch_tokens, device) for recipe, device in seen] == [
        (1, 6144, "cuda"),
        (2, 3072, "cpu"),
    ]


@pytest.mark.slow
def test_two_processes_train_together(tmp_path: Path) -> None:
    recipe = Recipe(tokens=2000, processes=2, batch_tokens=300, fill=6, tokenizer_samples=100, shape=TINY)
    lab.train(tmp_path / "a", recipe, compiled=False)
    notes = read_notes(tmp_path / "a")
    assert len(notes["places"]) == 2
    assert notes["seen"] >= 2000
    assert open_checkpoint(tmp_path / "a" / "model").world.seed == 7
    assert not (tmp_path / "a" / ".processes").exists()


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert lab.main(["anywhere"]) == 1
    assert "pip install 'arbitrag[train]'" in capsys.readouterr().err


def test_a_state_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from training import loop

    (tmp_path / STATE).touch()
    strange = {"recipe": {"shape": {}, "strange": 1}}
    monkeypatch.setattr(loop, "read_notes", lambda folder: strange)
    given = SimpleNamespace(folder=tmp_path, resume=True, **dict.fromkeys([*lab._OPTIONS, *lab._SIZES]))
    with pytest.raises(DataError, match="another version"):
        lab._recipe_from(given, "cpu")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        lab._recipe_from(SimpleNamespace(**{**vars(given), "resume": False}), "cpu")  # type: ignore[arg-type]

"""The sentence-transformers library, on a tiny model with random weights that is made here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from arbitrag.encode import open_encoder
from arbitrag.encode.transformer import TransformerEncoder
from arbitrag.errors import BackendError

pytestmark = [
    pytest.mark.slow,
    # What the library and torch warn about while they are imported is not this project's.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "green", "blue", "query:", "passage:"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sentence_transformers")
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    PreTrainedTokenizerFast(tokenizer_object=words, **names).save_pretrained(folder)  # type: ignore[no-untyped-call]
    steps = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "1_Pooling").mkdir()
    (folder / "modules.json").write_text(json.dumps(steps))
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 32}))
    prompts = {"prompts": {"query": "query: ", "passage": "passage: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


async def test_it_is_the_mean_of_the_last_states_after_the_prompt(model: Path) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    encoder = open_encoder(f"st:{model}", device="cpu")
    found = {
        "query": await encoder.encode(["red green", "blue"], kind="query"),
        "passage": await encoder.encode(["red green", "blue"], kind="passage"),
    }
    await encoder.aclose()
    assert encoder.width == 16
    tokenizer, bert = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    for kind, vectors in found.items():
        assert vectors.dtype == np.float32
        for text, vector in zip(["red green", "blue"], vectors, strict=True):
            with torch.no_grad():
                states = bert(**tokenizer(f"{kind}: {text}", return_tensors="pt")).last_hidden_state[0].numpy()
            mean = states.mean(axis=0)
            np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)


async def test_its_identity_is_that_of_the_files(model: Path) -> None:
    first, second = open_encoder(f"st:{model}", device="cpu"), open_encoder(f"st:{model}", device="cpu")
    assert first.identity == second.identity
    assert first.identity.endswith(":16:torch.float32")
    assert (await first.encode([], kind="query")).shape == (0, 16)


async def test_a_model_that_fails_is_a_backend_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = TransformerEncoder(str(model), device="cpu")

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(encoder._model, "encode_query", fails)
    with pytest.raises(BackendError, match=r"st:.* failed: out of memory"):
        await encoder.encode(["red"], kind="query")


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(BackendError, match=r"st:.* cannot be loaded"):
        open_encoder(f"st:{tmp_path}", device="cpu")

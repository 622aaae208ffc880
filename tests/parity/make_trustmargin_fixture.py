"""Record what the reference TrustMargin decides on the inputs in ``trustmargin.json``, beside this file.

    python tests/parity/make_trustmargin_fixture.py --reference DIR --checkpoint DIR

``--reference`` is a checkout of mojixu/TrustMargin at c32b114, which is imported from there; ``--checkpoint`` the lab
model. Both sides read our prompts: the reference's function that writes them is replaced. Only the inputs, which are
invented, and numbers and answers go into the file.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arbitrag.prompts import PromptBook
from arbitrag.types import Passage, Question

HERE = Path(__file__).parent
FIXTURE = HERE / "trustmargin.json"
BOOK = PromptBook.with_wording(HERE / "wording")
ANSWER_TOKENS = 32
# Our names of the six likelihoods by the reference's: the view first, then d (from memory) or r (from the passages).
LIKELIHOODS = {
    "q_d": "direct_yD",
    "q_r": "direct_yR",
    "qp_d": "rag_yD",
    "qp_r": "rag_yR",
    "p_d": "context_only_yD",
    "p_r": "context_only_yR",
}
CHOICES = {"both_agree": "both", "rag": "evidence", "direct": "memory"}


def our_prompt(tokenizer: Any, question: str, context: list[str] | None = None) -> str:
    """What the reference is to read for a question and its passages, one of them a line."""
    passages = tuple(Passage(text) for text in context or ())
    if not passages:
        prompt = BOOK.render("direct/answer", question=Question(question))
    elif question:
        prompt = BOOK.render("rag/answer", question=Question(question), passages=passages)
    else:
        prompt = BOOK.render("trustmargin/passages_only", passages=passages)
    messages = [{"role": message.role, "content": message.text} for message in prompt.messages]
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    # The reference tokenises this text as if no template had written its beginning, and so writes it again.
    return text.removeprefix(tokenizer.bos_token)


def load_reference(folder: Path, checkpoint: Path) -> Callable[[str, list[str]], dict[str, Any]]:
    """A function that gives the reference's record for a question and its passages."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    sys.path.insert(0, str(folder / "src"))
    reference: Any = importlib.import_module("trustmargin")
    reference.build_prompt = our_prompt
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
    writing = GenerationConfig(max_new_tokens=ANSWER_TOKENS)  # type: ignore[no-untyped-call]

    def record(question: str, passages: list[str]) -> dict[str, Any]:
        contents = {"contents": {"context": list(passages)}}
        box = reference.TrustMarginModelBox(model, tokenizer, contents, generation_config=writing)
        box.predict(question)
        found: dict[str, Any] = box.last_debug
        return found

    return record


def prepared(checkpoint: Path, folder: Path) -> Path:
    """A copy of a checkpoint with the chat template of these tests."""
    copy = shutil.copytree(checkpoint, folder / "model")
    shutil.copy(HERE / "chat_template.jinja", copy)
    return copy


def row_of(row: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    inputs = {name: row[name] for name in ("question", "context", "passages")}
    return {
        **inputs,
        "memory": found["direct_answer"],
        "evidence": found["rag_answer"],
        "choice": CHOICES[found["selected_source"]],
        "margin": found["margin"],
        "likelihoods": {ours: found["logprobs"][theirs] for ours, theirs in LIKELIHOODS.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--reference", type=Path, required=True, help="a checkout of mojixu/TrustMargin at c32b114")
    parser.add_argument("--checkpoint", type=Path, required=True, help="the lab model's folder")
    given = parser.parse_args()
    rows = json.loads(FIXTURE.read_text(encoding="utf-8"))["rows"]
    with tempfile.TemporaryDirectory() as folder:
        record = load_reference(given.reference, prepared(given.checkpoint, Path(folder)))
        made = [row_of(row, record(row["question"], row["passages"])) for row in rows]
    weights = hashlib.sha256((given.checkpoint / "model.safetensors").read_bytes()).hexdigest()
    head = {"reference": "mojixu/TrustMargin@c32b114", "precision": "float32", "checkpoint_sha256": weights}
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in made)
    FIXTURE.write_text(f'{json.dumps(head)[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    counts = {choice: sum(row["choice"] == choice for row in made) for choice in CHOICES.values()}
    print(f"{len(made)} rows: {counts}")


if __name__ == "__main__":
    main()

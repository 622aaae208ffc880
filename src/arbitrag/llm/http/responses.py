"""What an OpenAI-compatible server's answers say, read strictly: a missing piece is an error, never an empty value.

Every function takes a decoded JSON object and raises BackendError (status 200) when it is not what it should be.

Log-probabilities are finite numbers of at most 0, or above it by no more than ROUNDING, which counts as 0; one below
LOWEST counts as LOWEST. Counts of tokens are whole numbers from 0 to what the request could come to; others are not
counted, and ``doubt`` says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from arbitrag.errors import BackendError
from arbitrag.llm.base import Generation, Tokens
from arbitrag.text import SURROGATE, one_line

# Log-probabilities are at most 0; a server's rounding may push a sure token a little above.
ROUNDING = 1e-3
LOWEST = -10_000.0  # servers send -9999 for "not likely at all"; no softmax in float32 gives less than -104
LONGEST_TOKEN = 1000  # characters; vocabularies have tokens of some hundred spaces or dashes, not more
# Tokens that a server may report beyond those of the request: its own system prompt, or thoughts beyond the limit.
OWN_TOKENS = 100_000


def wrong(what: str) -> BackendError:
    """The error for an answer that came, but not in the agreed form."""
    return BackendError(f"the server answered 200, but {what}", status=200)


def first_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        said = answer.get("error") or answer
        raise wrong(f"there is no choice in it: {one_line(str(said), 200)}")
    return choices[0]


def generation(answer: Mapping[str, Any], *, max_tokens: int, logprobs: bool, sent: int = OWN_TOKENS) -> Generation:
    """The text of a chat or plain completion, why it ended, and what it cost. ``sent`` is the bytes of the prompt.

    Half of a surrogate pair, which is no character and can be written nowhere, is replaced by U+FFFD.
    """
    choice = first_choice(answer)
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    tokens, doubt = usage(answer, prompt=sent, completion=max_tokens)
    finish = _finish(choice.get("finish_reason"), tokens.completion_tokens, max_tokens)
    if not isinstance(text, str) or (not text and finish == "length"):
        raise wrong(
            f"no text came with it (finish reason: {one_line(str(choice.get('finish_reason')))}). "
            f"A model that thinks first may need more than {max_tokens} tokens for an answer"
        )
    if len(text) > LONGEST_TOKEN * max_tokens:
        raise wrong(f"its text of {len(text):,} characters cannot be the {max_tokens} tokens that were asked for")
    text = SURROGATE.sub("\ufffd", text)
    return Generation(text, finish, written_logprobs(choice) if logprobs else None, tokens, doubt=doubt)


def _finish(reason: object, written: int, max_tokens: int) -> Literal["stop", "length"]:
    if reason == "stop" or reason == "length":
        return "stop" if reason == "stop" else "length"
    if reason == "content_filter":
        raise wrong("its content filter withheld the text")
    if reason is None:  # some servers leave it out
        return "length" if written >= max_tokens else "stop"
    raise wrong(f"the text ended for a reason that is not known here: {one_line(str(reason))}")


def usage(answer: Mapping[str, Any], *, prompt: int, completion: int) -> tuple[Tokens, str]:
    """The tokens that the server reports, and what of its report cannot be and is not counted.

    ``prompt`` and ``completion`` are the most tokens that the request could come to; a server may add OWN_TOKENS. Zeros
    where it reports none.
    """
    used = answer.get("usage")
    if not isinstance(used, dict):
        return Tokens(), ""
    details = used.get("prompt_tokens_details")
    of_prompt, more = _count(used, "prompt_tokens", prompt + OWN_TOKENS)
    of_answer, yet_more = _count(used, "completion_tokens", completion + OWN_TOKENS)
    cached, still_more = _count(details, "cached_tokens", of_prompt) if isinstance(details, dict) else (0, "")
    wrong = ", ".join(filter(None, (more, yet_more, still_more)))
    doubt = f"the server reports token counts that cannot be, which are not counted: {wrong}" if wrong else ""
    return Tokens(of_prompt, cached, of_answer), doubt


def _count(used: Mapping[str, Any], name: str, most: int) -> tuple[int, str]:
    """A number of tokens, or 0 and what stands in its place."""
    value = used.get(name)
    if value is None:
        return 0, ""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
        return value, ""
    return 0, f"{name} {one_line(repr(value), 30)}"


def written_logprobs(choice: Mapping[str, Any]) -> tuple[float, ...]:
    """One natural-log probability per written token, in the form of chat or of plain completions."""
    found = choice.get("logprobs")
    values: Any = None
    if isinstance(found, dict) and isinstance(found.get("content"), list):
        values = [each.get("logprob") if isinstance(each, dict) else None for each in found["content"]]
    elif isinstance(found, dict):
        values = found.get("token_logprobs")
    if not isinstance(values, list):
        raise wrong("it does not return the log-probabilities of the written tokens that were asked for")
    return checked(values)


def checked(values: Sequence[object]) -> tuple[float, ...]:
    """Log-probabilities from LOWEST to 0, by the rule above."""
    found = []
    for value in values:
        number = _number(value)
        if not math.isfinite(number) or number > ROUNDING:
            raise wrong(f"{one_line(repr(value), 40)} stands where a log-probability should be")
        found.append(max(min(number, 0.0), LOWEST))
    return tuple(found)


def _number(value: object) -> float:
    """A JSON number as a float; NaN for anything else, infinity for a whole number that no float can hold."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def prompt_logprobs(answer: Mapping[str, Any], ids: Sequence[int]) -> list[float | None]:
    """vLLM's ``prompt_logprobs``: one entry per token that was sent, keyed by its id; None for the first one."""
    choice = first_choice(answer)
    rows = choice.get("prompt_logprobs")
    if not isinstance(rows, list) or len(rows) != len(ids):
        got = f"{len(rows)} entries" if isinstance(rows, list) else "none"
        raise wrong(f"prompt_logprobs should have one entry for each of {len(ids)} tokens; got {got}")
    found: list[float | None] = [None]
    for row, id in zip(rows[1:], ids[1:], strict=True):
        entry = row.get(str(id)) if isinstance(row, dict) else None
        if not isinstance(entry, dict):
            raise wrong(f"prompt_logprobs does not speak of token {id}, which was sent")
        found.extend(checked([entry.get("logprob")]))
    return found


def echoed(answer: Mapping[str, Any]) -> tuple[list[str], list[object], str]:
    """The tokens of an echoed text, their log-probabilities, and the text itself."""
    choice = first_choice(answer)
    found, text = choice.get("logprobs"), choice.get("text")
    tokens = found.get("tokens") if isinstance(found, dict) else None
    values = found.get("token_logprobs") if isinstance(found, dict) else None
    if not isinstance(tokens, list) or not isinstance(values, list) or len(tokens) != len(values):
        raise wrong("echo and logprobs bring back no tokens with log-probabilities")
    if not isinstance(text, str) or not all(isinstance(token, str) for token in tokens):
        raise wrong("what it echoed is not text")
    return tokens, values, text

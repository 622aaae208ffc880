"""What Arbitrag's openai backend costs beyond the official client: 2,000 calls, 64 concurrent.

A scripted server in a process of its own answers at once, so that the time is the client's. Three clients by turns: our
backend (limits, retries, checks, usage), the bare ``openai`` client, and bare ``httpx``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import httpx
import openai
from harness.bench import Bench, alternate
from harness.scripted_server import scripted_server

from arbitrag.llm.base import Prompt, Sampling
from arbitrag.llm.http.openai import OpenAILLM

CONCURRENCY = 64
ANSWER = "Mira Talven, 1931"
QUESTION = "Who directed the film, and in which year was it first shown? Answer with a name and a number."


async def many(calls: int, ask: Callable[[], Awaitable[str]]) -> None:
    """Send ``calls`` requests, CONCURRENCY of them at a time."""
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            assert await ask() == ANSWER

    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))


def main() -> None:
    bench = Bench("client_overhead", __doc__, packages=("openai", "httpx"))
    calls, rounds = bench.pick(smoke=64, quick=300, full=2000), bench.pick(smoke=1, quick=5, full=7)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        os.environ.pop(name, None)
    with scripted_server(ANSWER) as server, asyncio.Runner() as runner:
        ours = OpenAILLM("scripted", base_url=server.base_url, concurrency=CONCURRENCY)
        bare = openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0)
        plain = httpx.AsyncClient(base_url=server.base_url)
        prompt, sampling = Prompt.user(QUESTION), Sampling()

        async def ask_ours() -> str:
            return (await ours.generate(prompt, sampling)).text

        async def ask_openai() -> str:
            answer = await bare.chat.completions.create(
                model="scripted", messages=[{"role": "user", "content": QUESTION}], temperature=0.0, max_tokens=32
            )
            return answer.choices[0].message.content or ""

        async def ask_httpx() -> str:
            body = {
                "model": "scripted",
                "messages": [{"role": "user", "content": QUESTION}],
                "temperature": 0.0,
                "max_tokens": 32,
            }
            answer = await plain.post("/chat/completions", json=body)
            return str(answer.raise_for_status().json()["choices"][0]["message"]["content"])

        sides = [lambda ask=ask: runner.run(many(calls, ask)) for ask in (ask_ours, ask_openai, ask_httpx)]
        of_ours, of_openai, of_httpx = alternate(*sides, rounds=rounds)
        runner.run(ours.aclose())
        runner.run(bare.close())
        runner.run(plain.aclose())
    bench.ratio("our backend / bare openai client", of_ours, of_openai, at_most=1.3)
    bench.ratio("our backend / bare httpx", of_ours, of_httpx)
    for what, seconds in (("our backend", of_ours), ("bare openai client", of_openai), ("bare httpx", of_httpx)):
        bench.figure(f"{what}, best round", min(seconds) / calls * 1e6, unit="µs a call")
    bench.finish(calls=calls, concurrency=CONCURRENCY, rounds=rounds)


if __name__ == "__main__":
    main()

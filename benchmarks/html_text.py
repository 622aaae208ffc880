"""Text extraction from web pages: recall and precision of the main text, against menus, banners and footers.

python benchmarks/html_text.py

Beside Arbitrag's rules, trafilatura and resiliparse, where they are installed. Recall is the share of the main text's
words that is extracted, precision the share of the main text among the extracted words, both as means over made-up
pages; pages whose name begins with "later" were written after the rules.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.bench import Bench

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))


def extractors() -> dict[str, Callable[[str], str]]:
    from arbitrag.retrieve.documents.html import visible_text

    found: dict[str, Callable[[str], str]] = {
        "arbitrag": lambda html: visible_text(html)[1],
        "all visible text": lambda html: visible_text(html, boilerplate=True)[1],
    }
    try:
        import trafilatura  # type: ignore[import-not-found, unused-ignore]

        found["trafilatura"] = lambda html: trafilatura.extract(html, favor_recall=True) or ""
    except ImportError:
        pass
    try:
        from resiliparse.extract.html2text import (  # type: ignore[import-not-found, unused-ignore]
            extract_plain_text,
        )

        found["resiliparse"] = lambda html: str(extract_plain_text(html, main_content=True))
    except ImportError:
        pass
    return found


def milliseconds(extract: Callable[[str], str], pages: Sequence[str], rounds: int) -> float:
    """Of a page, the least over the rounds."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        for page in pages:
            extract(page)
        times.append(time.process_time() - began)
    return 1000 * min(times) / len(pages)


def main() -> None:
    from html_pages import PAGES, precision, recall

    bench = Bench("html_text", __doc__)
    rounds = bench.pick(quick=5, full=30)
    for name, extract in extractors().items():
        for kind, later in (("known", False), ("later", True)):
            pages = [page for page in PAGES if page.name.startswith("later") == later]
            texts = [extract(page.html) for page in pages]
            kept = statistics.mean(map(recall, pages, texts))
            own = statistics.mean(map(precision, pages, texts))
            is_ours = name == "arbitrag"
            bench.figure(f"{name}, recall, {kind}", kept, at_least=0.97 if is_ours else None)
            bench.figure(f"{name}, precision, {kind}", own, at_least=0.95 if is_ours else None)
        spent = milliseconds(extract, [page.html for page in PAGES], rounds)
        bench.figure(f"{name}, a page", spent, unit="ms")
    bench.finish(rounds=rounds, pages=len(PAGES))


if __name__ == "__main__":
    main()

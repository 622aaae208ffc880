"""Of an HTML page its text is read, and not the menus, banners and footers around it."""

import statistics
from pathlib import Path

import pytest
from html_pages import PAGES, Page, precision, recall

from arbitrag.retrieve.documents.html import visible_text
from arbitrag.retrieve.documents.ingest import read_document


def text_of(body: str) -> str:
    return visible_text(f"<body>{body}</body>")[1]


def named(page: Page) -> str:
    return page.name


LOWEST_RECALL = {"misused": 0.74}  # half of its text stands in an aside
LOWEST_PRECISION = {"frames": 0.8, "later-export": 0.8}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_text_of_a_page_is_kept_and_what_stands_around_it_is_not(page: Page) -> None:
    _, text = visible_text(page.html)
    assert recall(page, text) >= LOWEST_RECALL.get(page.name, 0.97), text
    assert precision(page, text) >= LOWEST_PRECISION.get(page.name, 0.9), text


def test_over_all_pages() -> None:
    texts = [(page, visible_text(page.html)[1]) for page in PAGES]
    assert len(texts) >= 20
    assert statistics.mean(recall(page, text) for page, text in texts) >= 0.99
    assert statistics.mean(precision(page, text) for page, text in texts) >= 0.97


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_titles_stay(page: Page) -> None:
    title, text = visible_text(page.html)
    assert title == visible_text(page.html, boilerplate=True)[0]
    headings = [piece for piece in page.kept if f"<h1>{piece}</h1>" in page.html]
    assert all(heading in text for heading in headings)


MANY = "word " * 100


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<nav>a</nav><p>b c", "b c"),
        ("<div hidden>a</div><p>b c", "b c"),
        ("<div role=navigation>a</div><p>b c", "b c"),
        ("<div class=cookie-banner>a</div><p>b c", "b c"),
        ("<div class='x siteFooter'>a</div><p>b c", "b c"),
        ("<div id=breadcrumbs>a</div><p>b c", "b c"),
        ("<div class=has-sidebar>a</div><p>b c", "a\n\nb c"),  # tells of something else
        ("<div class=adhesive>a</div><p>b c", "a\n\nb c"),  # "ad" is a word of its own only
        ("<section id=file-menu>a</section><p>b c", "a\n\nb c"),  # made of a heading
        ("<div class=section id=cookies>a</div><p>b c", "a\n\nb c"),
        ("<h2><a class=header href=#x>a</a></h2><p>b c", "a\n\nb c"),
        ("<h2>a<a class=headerlink href=#x>¶</a></h2><p>b c", "a\n\nb c"),
        ("<div class=menu>soup pie stew</div><p>b c", "soup pie stew\n\nb c"),  # most of the page
        ("<header><h1>a</h1><p>by d</p></header><p>b c d e f g", "a\n\nby d\n\nb c d e f g"),
        ("<header><a>x</a><h1>a</h1><p>by d</p></header><p>b c d e f g h i j", "a\n\nb c d e f g h i j"),
        ("<article><footer>a</footer><p>b c</article>", "a\n\nb c"),
        ("<main><p>b c</p><footer>a</footer></main>", "b c"),
        ("<p>b c d e<p>see <a>x</a> and <a>y</a>", "b c d e\n\nsee x and y"),
        (f"<p>{MANY}<ul><li><a>x</a><li><a>y</a></ul>", MANY.strip()),
        (f"<article><p>{MANY}<ul><li><a>x</a><li><a>y</a></ul></article>", f"{MANY.strip()}\n\nx\ny"),
        ("<nav>only this is here</nav>", "only this is here"),  # nothing would be left
        (f"<div class=share>{MANY}</div>" * 3 + "<p>b", "\n\n".join([MANY.strip()] * 3) + "\n\nb"),
        ("", ""),
        ("<nav></nav>", ""),
        ("<frameset><frame src=x></frameset>", ""),
    ],
)
def test_what_is_left_out(html: str, text: str) -> None:
    assert text_of(html) == text


def test_with_its_boilerplate_a_page_is_whole() -> None:
    assert visible_text("<nav>a</nav><p>b", boilerplate=True)[1] == "a\n\nb"


def test_a_file_is_read_without_its_boilerplate(tmp_path: Path) -> None:
    page = next(page for page in PAGES if page.name == "news")
    (tmp_path / "news.html").write_text(page.html)
    passages = list(read_document(tmp_path / "news.html", "news.html", 64).passages)
    text = " ".join(passage.text for passage in passages)
    assert "4.2 million crowns" in text
    assert "cookies" not in text
    assert {passage.title for passage in passages} == {"Ferry line to Orsund reopens | The Kelvin Herald"}

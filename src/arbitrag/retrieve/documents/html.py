"""Extract the visible text of an HTML page."""

from __future__ import annotations

import re
from collections import Counter

from selectolax.lexbor import LexborHTMLParser, LexborNode

from arbitrag.retrieve.documents.boilerplate import strip_boilerplate

_UNSEEN = ["script", "style", "template", "noscript", "iframe", "object", "svg", "canvas", "select", "textarea"]
_PARAGRAPHS = (
    "p, h1, h2, h3, h4, h5, h6, div, section, article, aside, header, footer, nav, main, ul, ol, dl, table, pre, "
    "blockquote, figure, figcaption, form, fieldset, address, details, summary, hr"
)
_LINES = "li, tr, dt, dd, br, option, caption"
_CELLS = "td, th"
# Marks that stand for the breaks between blocks while the white space of the source is still in the text.
_PARAGRAPH, _LINE = "\x1d", "\x1e"
_SPACES = re.compile(r"[ \t\r\n\f\u00a0]+")
_LINE_ENDS = re.compile(rf" ?{_LINE}[ {_LINE}]*")
_GAPS = re.compile(r"\s+")  # the mark of a paragraph is white space to Python
_LONGEST_TITLE = 300
_DEEPEST = 20_000  # elements inside each other, which a parser walks through again for each one
_MOST_FORMATS = 500  # open at a time: a parser opens all of them anew in every paragraph
_FORMATS = frozenset(re.findall(r"\w+", "b big code em font i nobr s small strike strong tt u"))
# Those that have no end tag, those whose end tag is often left out, and links, of which one ends the other.
_NEVER_DEEP = frozenset(
    re.findall(
        r"\w+",
        "a area base body br caption col colgroup dd dt embed head hr html img input li link meta optgroup option p "
        "param rp rt source tbody td tfoot th thead tr track wbr",
    )
)
_TAG = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|textarea|title|xmp)\b.*?(?:</\1|\Z)|<(/?)([a-z][a-z0-9]*)",
    re.IGNORECASE | re.DOTALL,
)


def is_too_deep(html: str) -> bool:
    """Whether parsing would cost time or memory out of all proportion: by a count of the elements left open."""
    if html.count("<") <= _MOST_FORMATS:
        return False
    waiting: Counter[str] = Counter()
    deep = formats = 0
    for found in _TAG.finditer(html):
        name = (found[3] or "").lower()
        if not name or name in _NEVER_DEEP:
            continue
        step = -1 if found[2] else 1
        if step < 0 and not waiting[name]:
            continue
        waiting[name] += step
        deep, formats = deep + step, formats + step * (name in _FORMATS)
        if deep > _DEEPEST or formats > _MOST_FORMATS:
            return True
    return False


def visible_text(html: str, *, boilerplate: bool = False) -> tuple[str, str]:
    """Title and text. Scripts and styles are dropped, entities decoded once, a paragraph ends with a blank line.

    Navigation, headers, footers, banners and the like are left out unless ``boilerplate``, or where they are nearly
    all that there is. The title is the ``title`` element or else the first ``h1``; empty when there is neither.
    """
    html = html.replace(_PARAGRAPH, " ").replace(_LINE, " ")
    tree = _parsed(html)
    heading = tree.css_first("head > title") or tree.css_first("h1")
    title = " ".join(heading.text().split())[:_LONGEST_TITLE] if heading else ""
    if not boilerplate and not strip_boilerplate(tree, _PARAGRAPH):
        tree = _parsed(html)
    body = tree.body
    return title, "" if body is None else _text(body)


def _parsed(html: str) -> LexborHTMLParser:
    tree = LexborHTMLParser(html)
    tree.strip_tags([*_UNSEEN], recursive=True)
    return tree


def _text(body: LexborNode) -> str:
    inner: set[int] = set()
    for node in body.css("pre"):
        if node.mem_id not in inner:  # the text of an outer one has that of those in it
            inner.update(each.mem_id for each in node.css("pre"))
            node.replace_with(_PARAGRAPH + node.text().replace("\n", _LINE) + _PARAGRAPH)
    for selector, mark in ((_PARAGRAPHS, _PARAGRAPH), (_LINES, _LINE), (_CELLS, " ")):
        for node in body.css(selector):
            node.insert_before(mark)
            node.insert_after(mark)
    return _collapse_space(body.text())


def _collapse_space(text: str) -> str:
    """Collapse white space as a browser does: single spaces, one line end per line, one blank line per paragraph."""
    text = _SPACES.sub(" ", text)
    text = _LINE_ENDS.sub("\n", text)
    return _GAPS.sub(lambda gap: "\n\n" if _PARAGRAPH in gap[0] else gap[0], text).strip()

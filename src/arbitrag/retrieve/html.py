"""The text that a reader of an HTML page sees."""

from __future__ import annotations

import re

from selectolax.lexbor import LexborHTMLParser

_UNSEEN = ["script", "style", "template", "noscript", "iframe", "object", "svg", "canvas", "select", "textarea"]
_PARAGRAPHS = (
    "p, h1, h2, h3, h4, h5, h6, div, section, article, aside, header, footer, nav, main, ul, ol, dl, table, pre, "
    "blockquote, figure, figcaption, form, fieldset, address, details, summary, hr"
)
_LINES = "li, tr, dt, dd, br, option, caption"
_CELLS = "td, th"
# Marks that stand for the breaks between blocks while the white space of the source is still in the text.
_PARAGRAPH, _LINE = "\x1d", "\x1e"
_LONGEST_TITLE = 300


def visible_text(html: str) -> tuple[str, str]:
    """Title and text. Scripts and styles are dropped, entities decoded once, a paragraph ends with a blank line.

    The title is the ``title`` element or else the first ``h1``; empty when there is neither.
    """
    tree = LexborHTMLParser(html.replace(_PARAGRAPH, " ").replace(_LINE, " "))
    tree.strip_tags([*_UNSEEN], recursive=True)
    heading = tree.css_first("head > title") or tree.css_first("h1")
    title = " ".join(heading.text().split())[:_LONGEST_TITLE] if heading else ""
    body = tree.body
    if body is None:
        return title, ""
    for node in body.css("pre"):
        node.replace_with(_PARAGRAPH + node.text().replace("\n", _LINE) + _PARAGRAPH)
    for selector, mark in ((_PARAGRAPHS, _PARAGRAPH), (_LINES, _LINE), (_CELLS, " ")):
        for node in body.css(selector):
            node.insert_before(mark)
            node.insert_after(mark)
    return title, _settle(body.text())


def _settle(text: str) -> str:
    """White space as a browser shows it: single spaces, one line end per line, one blank line per paragraph."""
    text = re.sub(r"[ \t\r\n\f\u00a0]+", " ", text)
    text = re.sub(rf" ?{_LINE}[ {_LINE}]*", "\n", text)
    return re.sub(rf"\s*{_PARAGRAPH}[\s{_PARAGRAPH}]*", "\n\n", text).strip()

"""Remove boilerplate from an HTML page: menus, headers, footers, cookie banners, link lists.

By elements and roles that say so (``nav``, ``role="banner"``), by words in classes and identities that most templates
use (``cookie-consent``, ``md-sidebar``), and by blocks of short links outside of the text. What holds much of a page's
words stays, whatever it is called, as do headings of the first level; a page is gone through once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode

_MUCH = 0.4  # the share of the page's words from which an element is not taken for boilerplate
_MOST_LINKS = 0.25  # the share of the words in all blocks of links from which they are not taken for menus
_LONGEST_LINKS = 4  # words of a link in such a block, on average
_LEAST_LEFT = 0.1  # the share of the words that has to be left, or else
_ENOUGH = 40  # that many words; with less, nothing is left out

_ELEMENTS = frozenset(["nav", "dialog"])
_ROLES = frozenset(
    ["navigation", "banner", "contentinfo", "search", "dialog", "alertdialog", "menu", "menubar", "complementary"]
)
_OUTSIDE = {
    "header": ("article", "main"),
    "footer": ("article",),
    "aside": ("article",),
}  # text where they are in these
_TEXT = frozenset(["article", "main", "h1"])  # never boilerplate by their names
# Words of which names of classes and identities are made, beside others: "site-footer", "mdSidebar".
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "nav navbar navlinks topnav leftnav sidenav subnav pagenav navfooter navheader navigation menu "
        "topmenu submenu breadcrumb breadcrumbs footer colophon masthead topbar sidebar sphinxsidebar cookie "
        "cookies consent gdpr onetrust newsletter share sharing sharedaddy social related recommendations "
        "recirc similar promo ad ads advert advertisement sponsored pagination pager skip toc catlinks "
        "editsection headerlink modal popup overlay feedback minicart userinfo jump noprint",
    )
)
_NAMES = frozenset(
    re.findall(r"[\w-]+", "header site-header global-header top-bar head foot bottom siteNotice siteSub")
)
_UNLESS = frozenset(["has", "with", "no", "not", "is", "without"])  # "has-sidebar" tells of something else
_PART = re.compile(r"[A-Z]?[a-z]+")
_LINK_BLOCKS = frozenset(["ul", "ol", "td", "p", "div", "center", "section"])
_NAMED_BLOCKS = _LINK_BLOCKS | {"header", "footer", "aside", "table", "dl", "form", "fieldset", "figure", "li"}
_INLINE_WORDS = frozenset(["headerlink", "mw-editsection", "md-skip", "skip-link", "skip", "mw-jump-link", "noprint"])


@dataclass(slots=True)
class _Element:
    node: LexborNode
    tag: str
    parent: int
    end: int = 0  # the number of the first element after it and all that it holds
    words: int = 0
    links: int = 0
    link_words: int = 0
    titles: int = 0  # headings of the first level


def strip_boilerplate(tree: LexborHTMLParser, mark: str) -> bool:
    """Put ``mark`` in the place of each piece of boilerplate. False when next to nothing would be left: then the page
    is spoilt, and to be parsed again."""
    elements = _elements(tree)
    if not elements:
        return True
    whole = left = elements[0].words
    for number in _boilerplate(elements, max(whole, 1)):
        each = elements[number]
        headings = [held.node.text() for held in elements[number : each.end] if held.tag == "h1"]
        left -= each.words - sum(len(heading.split()) for heading in headings)
        each.node.replace_with(mark + mark.join(heading + mark for heading in headings))
    return left >= min(_LEAST_LEFT * whole, _ENOUGH) and (left > 0 or whole == 0)


def _boilerplate(elements: list[_Element], whole: int) -> list[int]:
    """The numbers of the elements to leave out, none in another. Blocks of links go when they are little altogether:
    a page that is mostly a list of links has them for its text."""
    inside = _ancestry(elements)
    chosen: list[int] = []
    links: list[int] = []
    at = 1
    while at < len(elements):
        each = elements[at]
        if each.words >= _MUCH * whole or each.tag in _TEXT:
            at += 1
        elif _says_so(each, inside[at]):
            chosen.append(at)
            at = each.end
        elif _is_links(each, inside[at]):
            links.append(at)
            at = each.end
        else:
            at += 1
    few = sum(elements[number].words for number in links) < _MOST_LINKS * whole
    return chosen + links if few else chosen


def _elements(tree: LexborHTMLParser) -> list[_Element]:
    """The elements of the body in their order, the body first, with counts of what each holds."""
    if tree.body is None:
        return []
    found: list[_Element] = []
    numbers: dict[int, int] = {}
    for node in tree.body.traverse(include_text=True):
        above = node.parent
        parent = -1 if above is None else numbers.get(above.mem_id, -1)
        tag = node.tag or ""
        if tag == "-text":
            if parent >= 0:
                found[parent].words += len((node.text_content or "").split())
        else:
            numbers[node.mem_id] = len(found)
            found.append(_Element(node, tag, parent))
    for number in range(len(found) - 1, -1, -1):
        each = found[number]
        each.end = max(each.end, number + 1)
        each.titles += each.tag == "h1"
        if each.tag == "a":
            each.links, each.link_words = 1, each.words
        if each.parent >= 0:
            above_it = found[each.parent]
            above_it.words += each.words
            above_it.links += each.links
            above_it.titles += each.titles
            above_it.link_words += each.link_words
            above_it.end = max(above_it.end, each.end)
    return found


def _ancestry(elements: list[_Element]) -> list[frozenset[str]]:
    """Which of ``article`` and ``main`` each element is in."""
    none: frozenset[str] = frozenset()
    inside: list[frozenset[str]] = []
    for each in elements:
        if each.parent < 0:
            inside.append(none)
            continue
        above, tag = inside[each.parent], elements[each.parent].tag
        inside.append(above | {tag} if tag in ("article", "main") else above)
    return inside


def _says_so(each: _Element, inside: frozenset[str]) -> bool:
    """Whether an element's tag, role, class or id marks it as boilerplate."""
    attributes = each.node.attributes
    if each.tag in _ELEMENTS or "hidden" in attributes or attributes.get("role") in _ROLES:
        return True
    titled = each.tag == "header" and each.titles and not each.links  # the heading of a text, not of a site
    if each.tag in _OUTSIDE and not titled and not inside.intersection(_OUTSIDE[each.tag]):
        return True
    names = (attributes.get("class") or "").split()[:20]
    if each.tag not in _NAMED_BLOCKS:
        return not _INLINE_WORDS.isdisjoint(names)
    if any(_is_name(name) for name in names):
        return True
    identity = attributes.get("id") or ""
    # The identity of a section is made of its heading, which may well be about menus.
    return "section" not in (each.tag, *names) and _is_name(identity) and identity.count("-") <= 2


def _is_name(name: str) -> bool:
    """Whether a name is one of those for boilerplate, or made of a word for it."""
    if name in _NAMES:
        return True
    parts = [part.lower() for part in _PART.findall(name[:100])]
    return bool(_WORDS.intersection(parts)) and not _UNLESS.intersection(parts)


def _is_links(each: _Element, inside: frozenset[str]) -> bool:
    """Whether an element outside of a marked text is a block of short links and little else."""
    if each.tag not in _LINK_BLOCKS or inside or each.links < 2:
        return False
    return each.link_words >= 0.8 * each.words and each.link_words <= _LONGEST_LINKS * each.links

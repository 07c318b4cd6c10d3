"""The glossary at hand: on every numbered page the first use of each term leads to its entry, and
carries the entry's beginning, which terms.js shows on hover and focus.

Runs on finished pages, after everything else is in its place. Words that are also everyday English
(a draw, a round) are left alone: `EVERYDAY`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from bs4 import BeautifulSoup, NavigableString

EVERYDAY = frozenset("draw round chain root session node candidate tested proposal".split())
LONGEST = 260  # characters of a definition
TEXT = "article :is(p, li, td, dd)"
KEEP_OUT = "a, code, pre, button, summary, svg, figure, script, style, th, h1, h2, h3, h4, .math"
KEEP_OUT += ", .sdl-quiz, .sdl-predict, .cell, .sdl-term, .sdl, .sdl-executed, .proof, .eqno"
GREEK = dict(alpha="α", beta="β", gamma="γ", delta="δ", epsilon="ε", tau="τ", kappa="κ", ell="ℓ")
SIGNS = GREEK | dict(le="≤", ge="≥", leq="≤", geq="≥", cdot="·", times="×", dots="…", sum="Σ")
SIGNS |= dict(approx="≈", to="→", ne="≠", quad=" ", ldots="…", cdots="…", sim="∼", infty="∞")


@dataclass(frozen=True, slots=True)
class Term:
    """anchor: of its entry. definition: the entry's beginning, as plain text."""

    name: str
    anchor: str
    definition: str

    @property
    def pattern(self) -> re.Pattern:
        """The term as it stands in a sentence, in the plural too."""
        words = re.escape(self.name).replace(r"\ ", r"\s+")
        first, rest = words[0], words[1:]
        if first.isalpha() and first.islower():
            first = f"[{first}{first.upper()}]"
        return re.compile(rf"(?<![\w-]){first}{rest}s?(?![\w(-])")


def plain(tex: str) -> str:
    r"""TeX as a line of text: \(\mathrm{norm}(p - q)^+\) → norm(p - q)+."""
    tex = re.sub(r"\\[()\[\]]|\\[,;:!]|\\(?:left|right|[bB]igg?[lr]?)(?![a-z])", "", tex)
    part = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
    tex = re.sub(rf"\\[dt]?frac{part}{part}", r"(\1)/(\2)", tex).replace("^+", "+")
    tex = re.sub(r"\\([a-zA-Z]+)", lambda word: SIGNS.get(word[1], _named(word[1])), tex)
    return " ".join(re.sub(r"[{}$\\&]", "", tex).split())


def _named(word: str) -> str:
    """\\min is a word of its own, \\mathrm only says how the next one looks."""
    return (
        "" if re.fullmatch(r"math\w+|text\w*|operatorname|under\w+|over\w+|label", word) else word
    )


def speak_formulas(soup: BeautifulSoup) -> None:
    """Every formula says itself in plain text as well: what a search quotes, and a definition."""
    for formula in soup.select(":is(span, div).math:not([data-plain])"):
        formula["data-plain"] = plain(formula.get_text())


def shortened(text: str) -> str:
    """The first sentences of a definition, up to LONGEST characters."""
    if len(text) <= LONGEST:
        return text
    end = max(text.rfind(mark, 0, LONGEST) for mark in (". ", ": "))
    return text[: end + 1] if end > LONGEST / 3 else text[:LONGEST].rsplit(" ", 1)[0] + " …"


def glossary(page: Path) -> list[Term]:
    """The terms of a built glossary, the longest first; none where there is no such page."""
    if not page.is_file():
        return []
    soup = BeautifulSoup(page.read_text("utf-8"), "html.parser")
    speak_formulas(soup)
    found = []
    for entry in soup.select("dl.glossary dt[id]"):
        body = entry.find_next_sibling("dd")
        for formula in body.select(".math"):
            formula.string = formula["data-plain"]
        for citation in body.select("sup, .footnote"):
            citation.decompose()
        words = " ".join(body.get_text(" ").split()).replace("( ", "(")
        words = re.sub(r"\s+([.,;:)])", r"\1", re.sub(r"\s*\[[^\[\]]*\d{4}[^\[\]]*\]", "", words))
        words = words.replace("al..", "al.")  # where the year stood between the two
        name = entry.find(string=True).strip()
        if name not in EVERYDAY and "(of" not in name and len(name) > 2:
            found.append(Term(name, entry["id"], shortened(words)))
    return sorted(found, key=lambda term: -len(term.name))


def link_terms(soup: BeautifulSoup, terms: list[Term], address: str) -> None:
    """The first use of each term in running text becomes a link into the glossary at `address`."""
    if soup.select_one(".sdl-term"):
        return
    barred = {id(part) for part in soup.select(KEEP_OUT)}
    pieces = [
        piece
        for block in soup.select(TEXT)
        for piece in block.find_all(string=True)
        if type(piece) is NavigableString and not any(id(up) in barred for up in piece.parents)
    ]
    pieces = list({id(piece): piece for piece in pieces}.values())  # a paragraph within an item
    for term in terms:
        for place, piece in enumerate(pieces):
            if use := term.pattern.search(piece):
                before, after = piece[: use.start()], piece[use.end() :]
                link = soup.new_tag("a", href=f"{address}#{term.anchor}", string=use.group())
                link["class"], link["data-definition"] = "sdl-term", term.definition
                rest = [NavigableString(before), NavigableString(after)]
                piece.replace_with(rest[0], link, rest[1])
                pieces[place : place + 1] = rest
                break

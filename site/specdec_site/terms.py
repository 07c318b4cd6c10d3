"""Link the first use of each glossary term on a numbered page to its entry.

The link carries the beginning of the definition, which terms.js shows on hover and focus. Runs on
finished pages. Terms that are also everyday English (a draw, a round) are not linked: `EVERYDAY`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bs4 import BeautifulSoup, NavigableString, Tag

EVERYDAY = frozenset("draw round chain root session node candidate tested proposal".split())
LONGEST = 260  # characters of a definition
TEXT = "article :is(p, li, td, dd)"
EXCLUDED = "a, code, pre, button, summary, svg, figure, script, style, th, h1, h2, h3, h4, .math"
EXCLUDED += ", .sdl-quiz, .sdl-predict-box, .cell, .sdl-term, .sdl, .sdl-executed, .proof, .eqno"
GREEK = dict(alpha="α", beta="β", gamma="γ", delta="δ", epsilon="ε", tau="τ", kappa="κ", ell="ℓ")
SIGNS = GREEK | dict(le="≤", ge="≥", leq="≤", geq="≥", cdot="·", times="×", dots="…", sum="Σ")
SIGNS |= dict(approx="≈", to="→", ne="≠", quad=" ", ldots="…", cdots="…", sim="∼", infty="∞")


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the glossary.

    Attributes:
        name: the term.
        anchor: HTML id of its entry.
        definition: beginning of the entry, as plain text.
    """

    name: str
    anchor: str
    definition: str

    @property
    def pattern(self) -> re.Pattern:
        """The pattern of the term in a sentence, in the singular or plural."""
        words = re.escape(self.name).replace(r"\ ", r"\s+")
        words = re.sub("y$", "(?:y|ie)", words)
        first, rest = words[0], words[1:]
        if first.isalpha() and first.islower():
            first = f"[{first}{first.upper()}]"
        return re.compile(rf"(?<![\w-]){first}{rest}s?(?![\w(-])")


def plain(tex: str) -> str:
    r"""Return TeX as a line of text: \(\mathrm{norm}(p - q)^+\) → norm(p - q)+."""
    tex = re.sub(r"\\[()\[\],;:!]|\\(?:begin|end)\{\w+\}", "", tex)
    tex = re.sub(r"\\(?:left|right|[bB]igg?[lr]?)(?![a-z])", "", tex)
    part = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
    tex = re.sub(r"\\[dt]?frac\s*(\d)(\d)", r"\1/\2", tex)
    tex = re.sub(rf"\\[dt]?frac{part}{part}", r"(\1)/(\2)", tex).replace("^+", "+")
    tex = re.sub(r"\\([a-zA-Z]+)", lambda word: SIGNS.get(word[1], _named(word[1])), tex)
    return " ".join(re.sub(r"[{}$\\&]", "", tex).split())


def _named(word: str) -> str:
    """Return a command's name if it is a word, such as \\min; "" if it only sets a style."""
    return (
        "" if re.fullmatch(r"math\w+|text\w*|operatorname|under\w+|over\w+|label", word) else word
    )


def add_plain_formulas(soup: BeautifulSoup) -> None:
    """Add its plain text to every formula, for search results and definitions."""
    for formula in soup.select(":is(span, div).math:not([data-plain])"):
        formula["data-plain"] = plain(formula.get_text())


def shorten(text: str) -> str:
    """Return the first sentences of a definition, at most LONGEST characters."""
    if len(text) <= LONGEST:
        return text
    end = max(text.rfind(mark, 0, LONGEST) for mark in (". ", ": "))
    return text[: end + 1] if end > LONGEST / 3 else text[:LONGEST].rsplit(" ", 1)[0] + " …"


def glossary(page: Path) -> list[Term]:
    """Return the terms of a built glossary, the longest first; none if the page does not exist."""
    if not page.is_file():
        return []
    soup = BeautifulSoup(page.read_text("utf-8"), "html.parser")
    add_plain_formulas(soup)
    terms = []
    for entry in soup.select("dl.glossary dt[id]"):
        body = entry.find_next_sibling("dd")
        for formula in body.select(".math"):
            formula.string = formula["data-plain"]
        for citation in body.select("sup, .footnote"):
            citation.decompose()
        text = " ".join(body.get_text(" ").split()).replace("( ", "(")
        text = re.sub(r"\s+([.,;:)])", r"\1", re.sub(r"\s*\[[^\[\]]*\d{4}[^\[\]]*\]", "", text))
        text = text.replace("al..", "al.")  # the year between the two periods was removed
        name = entry.find(string=True).strip()
        if name not in EVERYDAY and "(of" not in name and len(name) > 2:
            terms.append(Term(name, entry["id"], shorten(text)))
    return sorted(terms, key=lambda term: -len(term.name))


def words(part: Tag, pattern: re.Pattern | bool = True) -> list[NavigableString]:
    """Return the texts with a pattern that a reader sees: a comment is a text too, but no word."""
    return [text for text in part.find_all(string=pattern) if type(text) is NavigableString]


def link_terms(soup: BeautifulSoup, terms: Sequence[Term], address: str) -> None:
    """Link the first use of each term in running text to the glossary."""
    excluded = {id(part) for part in soup.select(EXCLUDED)}
    pieces = [
        piece
        for block in soup.select(TEXT)
        for piece in words(block)
        if not any(id(up) in excluded for up in piece.parents)
    ]
    pieces = list({id(piece): piece for piece in pieces}.values())  # each once, if blocks nest
    for term in terms:
        pattern = term.pattern
        for index, piece in enumerate(pieces):
            if use := pattern.search(piece):
                before, after = piece[: use.start()], piece[use.end() :]
                link = soup.new_tag("a", href=f"{address}#{term.anchor}", string=use.group())
                link["class"], link["data-definition"] = "sdl-term", term.definition
                rest = [NavigableString(before), NavigableString(after)]
                piece.replace_with(rest[0], link, rest[1])
                pieces[index : index + 1] = rest
                break

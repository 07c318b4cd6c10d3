"""What a page may load and run: the book's own files, and nothing from other hosts.

The policy is part of each page, so it holds on every host and in the offline copy, whose pages come
from files. Pages have scripts of their own in their text, and the live page starts its workers and
its WebAssembly from memory.
"""

from bs4 import BeautifulSoup

HEADER = "Content-Security-Policy"
OWN = "'self' file:"
"""The page's host; a page that is a file may load files beside it."""
RULES = {
    "default-src": OWN,  # Firefox loads the next page in advance
    "frame-src": "'none'",
    "script-src": f"{OWN} 'unsafe-inline' 'wasm-unsafe-eval' blob:",
    "worker-src": f"{OWN} blob:",
    "style-src": f"{OWN} 'unsafe-inline'",
    "img-src": f"{OWN} data:",
    "font-src": f"{OWN} data:",
    "connect-src": OWN,
    "form-action": OWN,
    "base-uri": "'none'",
    "object-src": "'none'",
}
POLICY = "; ".join(f"{rule} {sources}" for rule, sources in RULES.items())


def restrict(soup: BeautifulSoup) -> None:
    """Put the policy before everything that a page loads."""
    tag = soup.new_tag("meta", content=POLICY)
    tag["http-equiv"] = HEADER
    charset = soup.head.find("meta", charset=True)
    charset.insert_after(tag) if charset else soup.head.insert(0, tag)

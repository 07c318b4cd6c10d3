"""Links of the chapters to files outside the notebooks' folder.

A notebook states them as public addresses: a page of the book where it is published, any other file
in the repository. Colab has one notebook and no folder around it, so a relative link leads nowhere
there. The build (`fold_titles`) turns the addresses back to files, so the published page and its
offline copy link to themselves. A link to a section of a chapter names it as JupyterLab does,
`#The-kettle`; the page has `#the-kettle`. `PYTHONPATH=site python -m specdec_site.addresses`
rewrites the relative links of all notebooks, and writes the repository's address of `_config.yml`
into every tracked file, in place of the address that `CITATION.cff` has.
"""

import json
import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from posixpath import normpath

import yaml

ROOT = Path(__file__).resolve().parents[2]
SECTION = re.compile(r"(\]\(\w+\.ipynb#)([^)\s]+)")
RELATIVE = re.compile(r"(\]\()(\.\./[^)\s#\"\\]+)")


@cache
def prefixes() -> tuple[str, str]:
    """Return where the book is published, and where the repository shows its files."""
    repository = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["repository"]
    owner, name = repository["url"].split("/")[-2:]
    return f"https://{owner}.github.io/{name}/", f"{repository['url']}/blob/{repository['branch']}/"


def outward(text: str) -> str:
    """Return text with each relative link that leaves the folder as a public address."""
    book, files = prefixes()

    def address(link: re.Match) -> str:
        path = normpath(f"notebooks/{link[2]}")
        page = path.startswith("book/") and path.endswith(".md")
        return link[1] + (f"{book}{path[:-3]}.html" if page else f"{files}{path}")

    return RELATIVE.sub(address, text)


def inward(text: str) -> str:
    """Return text with public addresses as relative links, and links to sections as a page has them."""
    book, files = prefixes()
    text = SECTION.sub(lambda link: link[1] + re.sub(r"[^\w-]", "", link[2]).lower(), text)
    text = re.sub(rf"(\]\(){re.escape(book)}(book/[\w./-]+)\.html", r"\1../\2.md", text)
    # a guide such as CONTRIBUTING.md is no page of the book, so its address stays
    return re.sub(rf"(\]\(){re.escape(files)}(?![\w./-]+\.md)([\w./-]+)", r"\1../\2", text)


def rewrite(change: Callable[[dict], dict]) -> None:
    """Change all notebooks, and print the names of those that are others now."""
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text = path.read_text("utf-8")
        new = json.dumps(change(json.loads(text)), indent=1, ensure_ascii=False) + "\n"
        if new != text:
            path.write_text(new, "utf-8")
            print(path.name)


def linked(notebook: dict) -> dict:
    """Return a notebook with public addresses in place of its relative links."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = [outward(line) for line in cell["source"]]
    return notebook


def moved(text: str, old: str, new: str) -> str:
    """Return text with the addresses of one repository as those of another: files, book, Colab."""
    (before, name), (owner, fork) = (url.rstrip("/").split("/")[-2:] for url in (old, new))
    text = re.sub(rf"\b{before}\.github\.io/{name}(?=/|$)", f"{owner}.github.io/{fork}", text)
    return re.sub(rf"(?<=/){before}/{name}(?![\w-])", f"{owner}/{fork}", text)


def tracked() -> dict[Path, str]:
    """Return the text of each file in the repository that is text."""
    command = ["git", "-C", str(ROOT), "grep", "-zlI", ""]
    names = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return {
        ROOT / name: (ROOT / name).read_text("utf-8") for name in filter(None, names.split("\0"))
    }


def follow() -> None:
    """Write the address of `_config.yml` into all other files, and print the names of those that change."""
    read = lambda name: yaml.safe_load((ROOT / name).read_text("utf-8"))
    old, new = read("CITATION.cff")["repository-code"], read("_config.yml")["repository"]["url"]
    for path, text in tracked().items() if old != new else ():
        if path.name != "_config.yml" and (changed := moved(text, old, new)) != text:
            path.write_text(changed, "utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    follow()
    prefixes.cache_clear()
    rewrite(linked)

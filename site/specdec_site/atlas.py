"""The two maps of the start page, the chapters with the routes through them and the methods by
source and shape; the reader's progress.

The maps are drawn from book/map.yml, the table of contents and what the pages themselves say; a new
chapter appears by itself.
"""

import html
import json
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from . import late

DATA = "book/map.yml"
APPENDICES = "Appendices"
ASKS = "sdl_asks"


def contents(app: Sphinx) -> dict[str, list[str]]:
    """The parts of the book: caption → pages, in order."""
    toc = yaml.safe_load((Path(app.srcdir) / "_toc.yml").read_text("utf-8"))
    return {
        part["caption"]: [chapter["file"] for chapter in part["chapters"]] for part in toc["parts"]
    }


def data(app: Sphinx) -> dict:
    """book/map.yml, checked: every method stands in a row and a column that exist, and is exact or
    lossy.
    """
    given = yaml.safe_load((Path(app.srcdir) / DATA).read_text("utf-8"))
    for source, shape, rule, names, _ in given["methods"]:
        if (
            source not in given["sources"]
            or shape not in given["shapes"]
            or rule not in ("exact", "lossy")
        ):
            raise ExtensionError(
                f"{DATA}: {names} has source {source!r}, shape {shape!r}, rule {rule!r}; "
                f"allowed are {list(given['sources'])}, {list(given['shapes'])}, exact or lossy"
            )
    return given


def raw(text: str) -> list[nodes.Node]:
    return [nodes.raw("", text, format="html")]


def routes(app: Sphinx) -> list[tuple[str, set[str]]]:
    """(name, pages) of each route; the pages are those that the book has."""
    parts = contents(app)
    every = {page for pages in parts.values() for page in pages}
    chapters = every - set(parts.get(APPENDICES, []))
    return [
        (route["name"], chapters if route["stops"] == "chapters" else every & set(route["stops"]))
        for route in data(app)["routes"]
    ]


def rails(order: list[str], lines: list[tuple[str, set[str]]], place: float) -> str:
    """One rail for each route beside page number `place` (half-way between two pages: beside a
    part's caption).
    """
    made = []
    for number, (_, stops) in enumerate(lines):
        at = [i for i, page in enumerate(order) if page in stops] or [-1]
        marks = (
            [f"sdl-rail-{number}"]
            + ["sdl-above"] * (at[0] < place <= at[-1])
            + ["sdl-below"] * (at[0] <= place < at[-1])
        )
        made.append(f'<i class="{" ".join(marks)}">{"<b></b>" if place in at else ""}</i>')
    return f'<span class="sdl-rails" aria-hidden="true">{"".join(made)}</span>'


def station(app: Sphinx, page: str, name: str, lines: list[tuple[str, set[str]]]) -> str:
    """A page's name on the route map: link, minutes, and in words the routes that stop there."""
    on = " and ".join(route for route, stops in lines if name in stops)
    minutes = app.env.metadata[name].get("sdl_minutes")
    told = f'<span class="visually-hidden">, on the route: {html.escape(on)}</span>' if on else ""
    return (
        "<span><a"
        f' href="{app.builder.get_relative_uri(page, name)}">{html.escape(app.env.titles[name].astext())}</a>'
        f"{f' <small>{minutes} min</small>' if minutes else ''}{told}</span>"
    )


def route_map(app: Sphinx, page: str) -> list[nodes.Node]:
    """The content of ```{route-map}```: every page of the book beside the routes that stop there."""
    parts, lines = contents(app), routes(app)
    order = [name for pages in parts.values() for name in pages]
    legend = "".join(
        f'<li><i class="sdl-rail-{i}" aria-hidden="true"><b></b></i> {html.escape(name)}</li>'
        for i, (name, _) in enumerate(lines)
    )
    drawn = []
    for caption, pages in parts.items():
        before = rails(order, lines, order.index(pages[0]) - 0.5)
        stops = "".join(
            f"<li>{rails(order, lines, order.index(name))}{station(app, page, name, lines)}</li>"
            for name in pages
        )
        drawn.append(
            f'<p class="sdl-part">{before}<span>{html.escape(caption)}</span></p><ol>{stops}</ol>'
        )
    return raw(
        '<figure class="sdl-routes" aria-label="The chapters, and three routes through'
        f' them"><ul>{legend}</ul>{"".join(drawn)}<figcaption>Minutes are those of the whole'
        " chapter with its exercises.</figcaption></figure>"
    )


def chips(app: Sphinx, page: str, methods: list) -> str:
    """The methods of one cell, each linked to its chapter if the book has it."""
    made = []
    for _, _, rule, names, chapter in methods:
        for name in names:
            text = html.escape(name) + (
                ' <span title="lossy as published">≈</span>' if rule == "lossy" else ""
            )
            if chapter in app.env.found_docs:
                text = f'<a href="{app.builder.get_relative_uri(page, chapter)}">{text}</a>'
            made.append(f'<li class="sdl-{rule}">{text}</li>')
    return f"<ul>{''.join(made)}</ul>" if made else ""


def method_map(app: Sphinx, page: str) -> list[nodes.Node]:
    """The content of ```{method-map}```: every method by where its drafts come from and how they
    are verified.
    """
    given = data(app)
    heads = "".join(
        f'<th scope="col">{html.escape(shape)}</th>' for shape in given["shapes"].values()
    )
    body = []
    for source, label in given["sources"].items():
        cells = []
        for shape, name in given["shapes"].items():
            here = [method for method in given["methods"] if method[:2] == [source, shape]]
            cells.append(
                f'<td data-shape="{html.escape(name, quote=True)}">{chips(app, page, here)}</td>'
            )
        body.append(f'<tr><th scope="row">{html.escape(label)}</th>{"".join(cells)}</tr>')
    return raw(
        '<figure class="sdl-methods"><table><caption>Drafts come from … and are verified as'
        f" …</caption><thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        "<figcaption>A link leads to the chapter, or to the reason why there is none. ≈ marks what was"
        " published with a rule that is not exact.</figcaption></figure>"
    )


def progress(app: Sphinx, page: str) -> list[nodes.Node]:
    """The content of ```{progress}```: a place that learn.js fills from what this browser keeps,
    and the pages that ask questions.
    """
    asking = [
        f"{name}.html"
        for pages in contents(app).values()
        for name in pages
        if app.env.metadata[name].get(ASKS)
    ]
    return raw(
        f'<div class="sdl-progress" data-pages="{html.escape(json.dumps(asking), quote=True)}"'
        " hidden></div>"
    )


def note_quizzes(app: Sphinx, doctree: nodes.document) -> None:
    app.env.metadata[app.env.docname][ASKS] = any(
        "sdl-quiz" in block.astext() for block in doctree.findall(nodes.raw)
    )


def register(app: Sphinx) -> None:
    app.connect("doctree-read", note_quizzes)
    late.directive(app, "progress", progress)
    late.directive(app, "route-map", route_map)
    late.directive(app, "method-map", method_map)

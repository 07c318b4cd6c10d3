"""The maps of the book and its reader's progress: routes through it, methods by source and shape.

The maps are drawn from book/map.yml, the table of contents and the pages' own metadata, so a new
chapter appears without further work.
"""

import html
import json
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.application import Sphinx

from . import deferred

APPENDICES = "Appendices"
HAS_QUIZ = "sdl_has_quiz"
Route = tuple[str, set[str]]
"""A route's name and the pages at which it stops."""


def contents(app: Sphinx) -> dict[str, list[str]]:
    """Return the parts of the book in order: caption → pages."""
    toc = yaml.safe_load((Path(app.srcdir) / "_toc.yml").read_text("utf-8"))
    return {
        part["caption"]: [chapter["file"] for chapter in part["chapters"]] for part in toc["parts"]
    }


def map_data(app: Sphinx) -> dict:
    """Return the content of book/map.yml."""
    return yaml.safe_load((Path(app.srcdir) / "book" / "map.yml").read_text("utf-8"))


def raw_html(text: str) -> list[nodes.Node]:
    """Return HTML as a list of one docutils node."""
    return [nodes.raw("", text, format="html")]


def routes(app: Sphinx) -> list[Route]:
    """Return each route with those of its pages that the book has."""
    parts = contents(app)
    every = {page for pages in parts.values() for page in pages}
    chapters = every - set(parts.get(APPENDICES, []))
    return [
        (route["name"], chapters if route["stops"] == "chapters" else every & set(route["stops"]))
        for route in map_data(app)["routes"]
    ]


def rails(order: list[str], lines: list[Route], row: float) -> str:
    """Return the HTML of one rail for each route, beside one row of the map."""
    parts = ""
    for number, (_, stops) in enumerate(lines):
        at = [i for i, page in enumerate(order) if page in stops] or [-1]
        above = " sdl-above" * (at[0] < row <= at[-1])
        below = " sdl-below" * (at[0] <= row < at[-1])
        parts += f'<i class="sdl-rail-{number}{above}{below}">{"<b></b>" * (row in at)}</i>'
    return f'<span class="sdl-rails" aria-hidden="true">{parts}</span>'


def station(app: Sphinx, page: str, name: str, lines: list[Route]) -> str:
    """Return the HTML of a page on the route map: its link, its minutes and, as text, its routes."""
    on = " and ".join(route for route, stops in lines if name in stops)
    minutes = app.env.metadata[name].get("sdl_minutes")
    time = f" <small>{minutes} min</small>" if minutes else ""
    note = f'<span class="visually-hidden">, on the route: {html.escape(on)}</span>' if on else ""
    title = html.escape(app.env.titles[name].astext())
    return f"<span>{link(app, page, name, title)}{time}{note}</span>"


def link(app: Sphinx, page: str, target: str, text: str) -> str:
    """Return the HTML of a link from one page to another."""
    return f'<a href="{app.builder.get_relative_uri(page, target)}">{text}</a>'


def route_map(app: Sphinx, page: str) -> list[nodes.Node]:
    """Return the content of ```{route-map}```: every page of the book beside its routes."""
    parts, lines = contents(app), routes(app)
    order = [name for pages in parts.values() for name in pages]
    legend = "".join(
        f'<li><i class="sdl-rail-{i}" aria-hidden="true"><b></b></i> {html.escape(name)}</li>'
        for i, (name, _) in enumerate(lines)
    )
    sections = []
    for caption, pages in parts.items():
        beside_caption = rails(order, lines, order.index(pages[0]) - 0.5)
        stops = "".join(
            f"<li>{rails(order, lines, order.index(name))}{station(app, page, name, lines)}</li>"
            for name in pages
        )
        sections.append(
            f'<p class="sdl-part">{beside_caption}<span>{html.escape(caption)}</span></p>'
            f"<ol>{stops}</ol>"
        )
    return raw_html(
        f'<figure class="sdl-routes" aria-label="The chapters, and {len(lines)} routes through'
        f' them"><ul>{legend}</ul>{"".join(sections)}<figcaption>Times include the'
        " exercises.</figcaption></figure>"
    )


def chip(app: Sphinx, page: str, name: str, rule: str, chapter: str) -> str:
    """Return the HTML of a method, linked to its chapter if the book has it."""
    mark = ' <span title="lossy as published">≈</span>' if rule == "lossy" else ""
    text = html.escape(name) + mark
    text = link(app, page, chapter, text) if chapter in app.env.found_docs else text
    return f'<li class="sdl-{rule}">{text}</li>'


def method_map(app: Sphinx, page: str) -> list[nodes.Node]:
    """Return the content of ```{method-map}```: methods by source of drafts and shape."""
    data = map_data(app)
    heads = "".join(
        f'<th scope="col">{html.escape(shape)}</th>' for shape in data["shapes"].values()
    )
    body = ""
    for source, label in data["sources"].items():
        body += f'<tr><th scope="row">{html.escape(label)}</th>'
        for shape, column in data["shapes"].items():
            chips = "".join(
                chip(app, page, name, rule, chapter)
                for *place, rule, names, chapter in data["methods"]
                if place == [source, shape]
                for name in names
            )
            cell = f"<ul>{chips}</ul>" if chips else ""
            body += f'<td data-shape="{html.escape(column, quote=True)}">{cell}</td>'
        body += "</tr>"
    return raw_html(
        '<figure class="sdl-methods"><table><caption>Drafts come from … and are verified as'
        f" …</caption><thead><tr><td></td>{heads}</tr></thead><tbody>{body}</tbody></table>"
        "<figcaption>A link leads to the method's chapter, or to the reason why it has none. ≈ marks"
        " a method that was published with a lossy rule.</figcaption></figure>"
    )


def progress(app: Sphinx, page: str) -> list[nodes.Node]:
    """Return the content of ```{progress}```: an empty box with the list of pages with a quiz.

    learn.js fills the box from what this browser has stored.
    """
    with_quiz = [
        f"{name}.html"
        for pages in contents(app).values()
        for name in pages
        if app.env.metadata[name].get(HAS_QUIZ)
    ]
    return raw_html(
        f'<div class="sdl-progress" data-pages="{html.escape(json.dumps(with_quiz), quote=True)}"'
        " hidden></div>"
    )


def mark_quiz(app: Sphinx, doctree: nodes.document) -> None:
    """Record in a page's metadata whether it has a quiz."""
    app.env.metadata[app.env.docname][HAS_QUIZ] = any(
        "sdl-quiz" in block.astext() for block in doctree.findall(nodes.raw)
    )


def register(app: Sphinx) -> None:
    """Add the directives to a Sphinx application."""
    app.connect("doctree-read", mark_quiz)
    deferred.add_directive(app, "progress", progress)
    deferred.add_directive(app, "route-map", route_map)
    deferred.add_directive(app, "method-map", method_map)

"""Render plotly figures and interactives, which Jupyter Book drops from a notebook's outputs.

Also the directives that show interactives and drawings in .md pages.
"""

import html
import json
import re
from functools import cache

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from myst_nb.core import render
from sphinx import addnodes
from sphinx.application import Sphinx

from specdec_book import viz
from specdec_book.viz import theme
from specdec_book.viz.captions import source_note
from specdec_book.viz.drawing import Drawing
from specdec_book.viz.figure import SOURCE
from specdec_book.viz.interactive import Interactive

from .tables import figure_table

PLOTLY = "application/vnd.plotly.v1+json"
DRAWN = {"scatter", "bar"}  # the types that the vendored part of plotly draws
TITLE = 44  # px for the title of a notebook's figure; a page shows the title above the figure
DIGITS = 6
HANDLE = re.compile(r"[a-z_]+(-\d+)?:[\w-]+=")
INTERACTIVE = "application/vnd.specdec-lite.interactive+json"


def rounded(value: object) -> object:
    """Return a JSON value with each float rounded to DIGITS digits, more than any page shows."""
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case dict():
            return {key: rounded(item) for key, item in value.items()}
        case list() | tuple():
            return [rounded(item) for item in value]
        case _:
            return value


def json_island(value: object) -> str:
    """Return a <script> element with `value` as data; no string in it can close the element."""
    body = json.dumps(rounded(value), ensure_ascii=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    return f'<script type="application/json">{body}</script>'


def figure_html(figure: dict) -> str:
    """Return a plotly figure as HTML: finding, placeholder, caption and data table.

    The page draws the figure in the placeholder when it comes into view.
    """
    layout = dict(figure.get("layout", {}))
    meta = layout.get("meta") or {}
    alt = meta.get("alt")
    if not alt:
        raise ValueError(
            "a plotly figure has no text alternative: build it with the figure helper of"
            " specdec_book.viz"
        )
    unknown = {trace.get("type", "scatter") for trace in figure["data"]} - DRAWN
    if unknown:
        raise ValueError(
            f"a figure has traces of type {sorted(unknown)}; the pages' plotly draws {sorted(DRAWN)}"
        )
    title = (layout.pop("title", None) or {}).get("text", "")
    margin = layout.get("margin") or {}
    layout["height"] = int(layout.get("height") or 450) - TITLE
    layout["margin"] = margin | {"t": margin.get("t", theme.TEMPLATE.layout.margin.t) - TITLE}
    notes = [note for note in layout.get("annotations", []) if note.get("name") != SOURCE]
    layout["annotations"] = notes  # the caption shows the source
    source = " " + source_note(meta["source"]) if meta.get("source") else ""
    description = re.sub("`(.+?)`", r"<code>\1</code>", html.escape(alt))
    finding = html.escape(title)
    return (
        f'<figure class="sdl-figure"{id_attribute(meta)}>'
        + (f'<p class="sdl-finding">{finding}</p>' if finding else "")
        + f'<div class="sdl-plot" role="img" aria-label="{html.escape(title or alt, quote=True)}"'
        f' style="height:{layout["height"]}px">'
        f"{json_island({'data': figure['data'], 'layout': layout})}</div>"
        "<noscript><p>Drawing this figure needs JavaScript; its description and data do"
        f" not.</p></noscript><figcaption>{description}{source}</figcaption>"
        '<details class="sdl-data"><summary>Data of this figure</summary>'
        f"{figure_table(figure)}</details></figure>"
    )


def id_attribute(meta: dict) -> str:
    """Return the HTML id that the text's links to a figure use; "" if the figure has no name."""
    return f' id="fig-{html.escape(meta["name"], quote=True)}"' if meta.get("name") else ""


def interactive_html(module: str, state: dict, label: str) -> str:
    """Return the HTML in which the page mounts an interactive."""
    name, text = html.escape(module, quote=True), html.escape(label, quote=True)
    return (
        '<div class="sdl-interactive"'
        f' data-module="{name}">{json_island(state)}<noscript><p>{text}: this interactive needs'
        " JavaScript.</p></noscript></div>"
    )


class Outputs:
    """A MIME renderer of myst-nb, which calls it for every output of an executed notebook."""

    # before live widgets (10), because a published page has no kernel
    mime_priority_overrides = [
        ("html", INTERACTIVE, 1),
        ("html", PLOTLY, 2),
        ("html", "text/html", 3),
    ]

    @staticmethod
    def handle_mime(renderer, data, inline: bool) -> list[nodes.Element] | None:
        """Return the nodes of a figure or an interactive; None for any other MIME type."""
        if data.mime_type == PLOTLY:
            try:
                return [nodes.raw("", figure_html(data.content), format="html")]
            except ValueError as error:  # one wrong figure must not cost the other pages
                renderer.logger.warning(str(error), subtype="figure")
                return [nodes.warning("", nodes.paragraph("", f"A figure is missing: {error}"))]
        if data.mime_type == INTERACTIVE:
            content = data.content
            label = content.get("label") or content["module"]
            return [
                nodes.raw(
                    "", interactive_html(content["module"], content["state"], label), format="html"
                )
            ]
        return None


@cache
def kinds() -> dict[str, type[Interactive]]:
    """Return the classes of the book's interactives by module; those of the live page have none."""
    kinds = (getattr(viz, name) for name in viz.__all__)
    return {kind.module: kind for kind in kinds if hasattr(kind, "module")}


class InteractiveDirective(Directive):
    """```{interactive} explorer``` in a .md page.

    The body has some values of the initial state as JSON; others are those of the interactive's
    class. With the option `recording` the class loads that file of results/.
    """

    required_arguments = 1
    has_content = True
    option_spec = {
        "label": directives.unchanged_required,
        "recording": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """Return the interactive's mount point."""
        module = self.arguments[0]
        try:
            state = json.loads("\n".join(self.content) or "{}")
        except json.JSONDecodeError as problem:
            raise self.error(
                f"the body of interactive '{module}' must be JSON: {problem}"
            ) from problem
        load = kinds().get(module, dict)
        if "recording" in self.options:
            state["name"], load = self.options["recording"], load.load
        shown = load(**state)
        state = shown if isinstance(shown, dict) else shown.state()
        label = self.options.get("label", module)
        return [nodes.raw("", interactive_html(module, state, label), format="html")]


class DrawingDirective(Directive):
    """```{drawing} lanes``` in a .md page: one of the book's drawings."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the drawing."""
        try:
            return [nodes.raw("", Drawing(self.arguments[0]).html(), format="html")]
        except ValueError as problem:
            raise self.error(str(problem)) from problem


def keep_handles(app: Sphinx, doctree: nodes.document) -> None:
    """Leave links such as #explorer:gamma=20 as they are: they set an interactive (see kit.js)."""
    for link in list(doctree.findall(addnodes.pending_xref)):
        page, handle = "", link.get("reftarget", "")
        if HANDLE.match(link.get("reftargetid") or ""):  # an interactive of another page
            page = app.builder.get_relative_uri(app.env.docname, handle)
            handle = link["reftargetid"]
        if HANDLE.match(handle):
            address = f"{page}#{handle}"
            link.replace_self(nodes.reference("", link.astext(), refuri=address, internal=True))


def register(app: Sphinx) -> None:
    """Add the renderer, the directives and the handles to a Sphinx application."""
    installed = render.load_mime_renders
    # myst-nb finds renderers by entry points of installed packages, which this extension is not
    render.load_mime_renders = lambda: [*installed(), Outputs]
    app.add_directive("interactive", InteractiveDirective)
    app.add_directive("drawing", DrawingDirective)
    app.connect("doctree-read", keep_handles)

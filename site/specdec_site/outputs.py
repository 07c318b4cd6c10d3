"""Notebook outputs that Jupyter Book drops: plotly figures and the book's interactives; and the
directives for .md pages.
"""

import html
import json
import re

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from myst_nb.core import render
from sphinx.application import Sphinx

from specdec_lite.measure import results
from specdec_lite.viz import theme
from specdec_lite.viz.drawing import Drawing

from .tables import figure_table

PLOTLY = "application/vnd.plotly.v1+json"
DRAWN = {"scatter", "bar"}  # by the library that `assets` ships
TITLE = 44  # px of a figure that its title takes in a notebook; a page has it above the figure
DIGITS = 6
INTERACTIVE = "application/vnd.specdec-lite.interactive+json"


def rounded(value: object) -> object:
    """JSON's value with every fraction to DIGITS significant ones: far more than any page shows."""
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case dict():
            return {key: rounded(one) for key, one in value.items()}
        case list() | tuple():
            return [rounded(one) for one in value]
        case _:
            return value


def json_island(value: object) -> str:
    """A <script> element that holds `value` as data, numbers to DIGITS; no value can end it early."""
    body = json.dumps(rounded(value), ensure_ascii=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    return f'<script type="application/json">{body}</script>'


def figure_html(figure: dict) -> str:
    """A plotly figure as a placeholder that the page draws when it comes into view, below its
    finding, with its caption and its data.
    """
    layout = dict(figure.get("layout", {}))
    meta = layout.get("meta") or {}
    alt = meta.get("alt")
    if not alt:
        raise ValueError(
            "a plotly figure has no text alternative: build it with the figure helper of"
            " specdec_lite.viz"
        )
    strange = {trace.get("type", "scatter") for trace in figure["data"]} - DRAWN
    if strange:
        raise ValueError(f"the pages' plotly draws {sorted(DRAWN)}, not {sorted(strange)}")
    title = (layout.pop("title", None) or {}).get("text", "")
    margin = layout.get("margin") or {}
    layout["height"] = int(layout.get("height") or 450) - TITLE
    layout["margin"] = margin | {"t": margin.get("t", theme.TEMPLATE.layout.margin.t) - TITLE}
    description = re.sub("`(.+?)`", r"<code>\1</code>", html.escape(alt))
    finding = html.escape(title)
    return (
        f'<figure class="sdl-figure"{name_of(meta)}>'
        + (f'<p class="sdl-finding">{finding}</p>' if finding else "")
        + f'<div class="sdl-plot" role="img" aria-label="{html.escape(title or alt, quote=True)}"'
        f' style="height:{layout["height"]}px">'
        f"{json_island({'data': figure['data'], 'layout': layout})}</div>"
        "<noscript><p>Drawing this figure needs JavaScript; its description and data do"
        f" not.</p></noscript><figcaption>{description}</figcaption>"
        '<details class="sdl-data"><summary>Data of this figure</summary>'
        f"{figure_table(figure)}</details></figure>"
    )


def name_of(meta: dict) -> str:
    """The attribute by which the page's text refers to a figure; empty for one without a name."""
    return f' id="fig-{html.escape(meta["name"], quote=True)}"' if meta.get("name") else ""


def interactive_html(module: str, state: dict, label: str) -> str:
    """The mount point of an interactive; `module` names a file in the library's viz/static folder."""
    name, text = html.escape(module, quote=True), html.escape(label, quote=True)
    return (
        '<div class="sdl-interactive"'
        f' data-module="{name}">{json_island(state)}<noscript><p>{text}: this interactive needs'
        " JavaScript.</p></noscript></div>"
    )


class Outputs:
    """A myst-nb renderer of MIME types; myst-nb calls it for every output of an executed notebook."""

    # An HTML alternative comes before a live widget (10): no kernel stands behind a published page.
    mime_priority_overrides = [
        ("html", INTERACTIVE, 1),
        ("html", PLOTLY, 2),
        ("html", "text/html", 3),
    ]

    @staticmethod
    def handle_mime(renderer, data, inline: bool) -> list[nodes.Element] | None:
        if data.mime_type == PLOTLY:
            return [nodes.raw("", figure_html(data.content), format="html")]
        if data.mime_type == INTERACTIVE:
            content = data.content
            label = content.get("label") or content["module"]
            return [
                nodes.raw(
                    "", interactive_html(content["module"], content["state"], label), format="html"
                )
            ]
        return None


class InteractiveDirective(Directive):
    """```{interactive} explorer``` in a .md page; the body is the initial state as JSON, laid over
    the data of a file in results/ where `:recording:` names one.
    """

    required_arguments = 1
    has_content = True
    option_spec = {
        "label": directives.unchanged_required,
        "recording": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        module = self.arguments[0]
        try:
            state = json.loads("\n".join(self.content) or "{}")
        except json.JSONDecodeError as problem:
            raise self.error(
                f"the body of interactive '{module}' must be JSON: {problem}"
            ) from problem
        if "recording" in self.options:
            state = results.load(self.options["recording"]).data | state
        label = self.options.get("label", module)
        return [nodes.raw("", interactive_html(module, state, label), format="html")]


class DrawingDirective(Directive):
    """```{drawing} lanes``` in a .md page: one of the book's drawings."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        try:
            return [nodes.raw("", Drawing(self.arguments[0]).html(), format="html")]
        except ValueError as problem:
            raise self.error(str(problem)) from problem


def register(app: Sphinx) -> None:
    installed = render.load_mime_renders
    # myst-nb finds renderers by entry points of installed packages; this extension is not one, so
    # it adds itself.
    render.load_mime_renders = lambda: [*installed(), Outputs]
    app.add_directive("interactive", InteractiveDirective)
    app.add_directive("drawing", DrawingDirective)

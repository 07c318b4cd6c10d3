"""Write the scripts and style sheets that the pages load.

They are vendored JavaScript from node_modules, the interactives' modules and the book's own files;
the book requests nothing from other hosts. ES modules do not load from file://, so each interactive
is wrapped in a classic script here; JupyterLab and Colab run the module itself.
"""

import json
import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from specdec_book.viz import interactive, theme

from . import licenses, live

FONT = "@fontsource-variable/source-sans-3"
VENDORED = {
    "plotly.js-basic-dist-min/plotly-basic.min.js": "plotly/plotly.min.js",  # only lines and bars
    f"{FONT}/files/source-sans-3-latin-wght-normal.woff2": "font/latin.woff2",
    f"{FONT}/files/source-sans-3-greek-wght-normal.woff2": "font/greek.woff2",
    f"{FONT}/LICENSE": "font/LICENSE.txt",
}


def classic_script(name: str, module: str) -> str:
    """Return an ES module as a classic script that registers its default export."""
    if re.search(r"^\s*import\b", module, flags=re.M):
        raise ExtensionError(f"{name}.js: an interactive's module must not import anything")
    body, count = re.subn(
        r"^export default ", f'globalThis.sdlInteractives["{name}"] = ', module, flags=re.M
    )
    if count != 1:
        raise ExtensionError(
            f"{name}.js: expected one line that begins with 'export default', found {count}"
        )
    body = re.sub(r"^export\s*\{[^}]*\};?\s*$", "", body, flags=re.M)
    body = re.sub(r"^export (?=(?:async )?function|const|let|class)", "", body, flags=re.M)
    return f"(() => {{\nglobalThis.sdlInteractives ??= {{}};\n{body}\n}})();\n"


def copy_vendored(node_modules: Path, static: Path) -> None:
    """Copy the vendored files into the book."""
    for source, target in VENDORED.items():
        destination = static / "vendor" / target
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(node_modules / source, destination)


def write_interactives(static: Path) -> None:
    """Write every interactive's script and style sheet below the book's folder `static`."""
    target = static / "interactives"
    target.mkdir(parents=True, exist_ok=True)
    for name in interactive.modules():
        script = live.without_comments(classic_script(name, interactive.source(name)))
        (target / f"{name}.js").write_text(script, "utf-8")
    for sheet in sorted(interactive.STATIC.glob("*.css")):
        shutil.copy2(sheet, target / sheet.name)


def publish(app: Sphinx, error: Exception | None) -> None:
    """Write all scripts and style sheets of a finished book."""
    if error is None and app.builder.format == "html":
        static = Path(app.outdir) / "_static"
        copy_vendored(Path(app.srcdir) / "node_modules", static)
        write_interactives(static)
        live.publish(static, Path(app.srcdir))
        licenses.write(static)


def register(app: Sphinx) -> None:
    """Add the book's style sheets and scripts to a Sphinx application."""
    for sheet in ("page", *(f"interactives/{name}" for name in ("interactive", "drawing", "live"))):
        app.add_css_file(f"{sheet}.css")
    shades = {"light": theme.LIGHT, "dark": theme.DARK, "data": theme.dark_data()}
    app.add_js_file(None, body=f"globalThis.sdlTheme={json.dumps(shades)}")
    app.add_js_file("figures.js", loading_method="defer")
    app.add_js_file("interactives.js")
    for name in ("learn", "reading", "terms", "tokens"):
        app.add_js_file(f"{name}.js", loading_method="defer")
    app.connect("build-finished", publish)

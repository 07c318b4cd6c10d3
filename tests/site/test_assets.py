"""Every interactive is written as a classic script, and all of them load on one page."""

import json
import subprocess

import pytest
from specdec_site import assets
from sphinx.errors import ExtensionError

from specdec_book.viz.interactive import modules

LIST = "process.stdout.write(JSON.stringify(Object.keys(globalThis.sdlInteractives)))"


def test_every_interactive_is_a_script_and_all_load_on_one_page(tmp_path):
    assets.write_interactives(tmp_path)
    scripts = sorted((tmp_path / "interactives").glob("*.js"))
    assert [script.stem for script in scripts] == modules()
    page = "".join(script.read_text("utf-8") for script in scripts) + LIST
    node = subprocess.run(["node", "-"], input=page, capture_output=True, text=True, check=True)
    assert json.loads(node.stdout) == modules()


@pytest.mark.parametrize(
    "text, reason",
    [
        ('import x from "./x.js";\nexport default {};\n', "must not import"),
        ("const x = 1;\n", "found 0"),
    ],
)
def test_a_module_that_imports_or_exports_nothing_is_an_error(text, reason):
    with pytest.raises(ExtensionError, match=reason):
        assets.classic_script("x", text)

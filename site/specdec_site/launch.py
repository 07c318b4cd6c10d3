"""A launch button for JupyterLab on the reader's own machine, which `make lab` starts."""

from pathlib import PurePosixPath

from sphinx.application import Sphinx

LAB = "http://localhost:8888/lab/tree/notebooks/"


def add_jupyterlab(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Add the button to a page's launch buttons, if it has any."""
    for group in context.get("header_buttons", []):
        if group.get("label") == "launch-buttons":
            group["buttons"].append(
                {
                    "type": "link",
                    "text": "JupyterLab",
                    "icon": "fas fa-flask",
                    "tooltip": (
                        "Open this chapter in the JupyterLab that make lab started on your machine"
                    ),
                    "url": f"{LAB}{PurePosixPath(page).name}.ipynb",
                }
            )


def register(app: Sphinx) -> None:
    """Connect the button to a Sphinx application."""
    app.connect("html-page-context", add_jupyterlab, priority=600)

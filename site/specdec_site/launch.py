"""JupyterLab among a chapter's launch buttons: the one on the reader's own machine, which `make
lab` starts.
"""

from pathlib import PurePosixPath

from sphinx.application import Sphinx

LAB = "http://localhost:8888/lab/tree/"


def add_jupyterlab(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    for group in context.get("header_buttons", []):
        if group.get("label") == "launch-buttons":
            group["buttons"].append(
                {
                    "type": "link",
                    "text": "JupyterLab",
                    "icon": "fas fa-flask",
                    "tooltip": (
                        "Opens this chapter in the JupyterLab that make lab started on your machine"
                    ),
                    "url": f"{LAB}{PurePosixPath(page).name}.ipynb",
                }
            )


def register(app: Sphinx) -> None:
    app.connect("html-page-context", add_jupyterlab, priority=600)

"""The base class of the book's interactives: one ES module each, alive in JupyterLab, in Colab and
on a static page.

What lives here: how a module reaches each of the three. What does not: any drawing
(`static/<module>.js`; what all of them need is `static/kit.js`) and any formula (the module's own,
tested against `specdec_lite.theory`).
"""

from pathlib import Path
from typing import ClassVar

import anywidget

STATIC = Path(__file__).parent / "static"
MIME = "application/vnd.specdec-lite.interactive+json"


def modules() -> list[str]:
    """The names of all interactives' modules, sorted."""
    return sorted(path.stem for path in STATIC.glob("*.js") if path.stem != "kit")


def source(module: str) -> str:
    """The import-free ES module of an interactive: `kit.js`, then its own text."""
    return "\n".join(
        (STATIC / f"{name}.js").read_text(encoding="utf-8") for name in ("kit", module)
    )


class Interactive(anywidget.AnyWidget):
    """A widget whose drawing is `static/<module>.js`; its synced traits are the state that module
    reads and writes.

    A subclass sets `module` (the file's stem) and `label` (one line: what it shows, for readers and
    screen readers) and tags its traits with `sync=True`. Besides the kernel's widget its display
    carries MIME: the module's name and the state, which is all that a page without a kernel needs.
    """

    module: ClassVar[str]
    label: ClassVar[str]

    def __init_subclass__(cls, **kwargs):
        # not the nameless subclass that traitlets makes of every instance
        if "module" in cls.__dict__:
            cls._esm = source(cls.module)
            cls._css = (STATIC / "interactive.css").read_text(encoding="utf-8")
        super().__init_subclass__(**kwargs)

    def state(self) -> dict:
        """The public traits that the module shares with the kernel: JSON types only."""
        own = set(self.trait_names(sync=True)) - set(anywidget.AnyWidget.class_trait_names())
        return {name: getattr(self, name) for name in sorted(own) if not name.startswith("_")}

    def _repr_mimebundle_(self, **kwargs):
        data, metadata = super()._repr_mimebundle_(**kwargs)
        data[MIME] = {"module": self.module, "state": self.state(), "label": self.label}
        data["text/plain"] = (
            f"{self.label} (an interactive drawing: run the notebook, or open the book's page)"
        )
        return data, metadata

"""The base class of the book's interactives.

An interactive is one ES module (`static/<module>.js`, after the shared `static/kit.js`). This
class carries the module to JupyterLab, to Colab and to a static page.
"""

import json
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

import anywidget
import traitlets

from specdec_book.recordings import published

STATIC = Path(__file__).parent / "static"
LIBRARY = Path(str(files("specdec_lite")))
TABLES = {"log_line": "diagnosis/formats.json", "advice": "simulation/advice.json"}
"""Module → the library's table that it reads, as the constant TABLE."""
PUBLISHED = {"explorer": ("leviathan2023_table2", "leviathan2023_lenience_alpha")}
"""Module → the published tables whose rows it reads, as the constant TABLE."""
SHARED = {"payoff": "estimator", "advice": "estimator"}
"""Module → the folder of parts that it shares with another."""
MIME = "application/vnd.specdec-lite.interactive+json"


def modules() -> list[str]:
    """Return the names of all interactives' modules, sorted."""
    return sorted(path.stem for path in STATIC.glob("*.js") if path.stem != "kit")


def kit() -> str:
    """Return what all modules share, without the exports, which the live page's modules import."""
    return re.sub("^export ", "", (STATIC / "kit.js").read_text("utf-8"), flags=re.M)


def source(module: str) -> str:
    """Return the ES module of an interactive, without imports: its table, `kit.js`, parts, own text."""
    table = {name: published(name)["rows"] for name in PUBLISHED.get(module, ())}
    if module in TABLES:
        table = json.loads((LIBRARY / TABLES[module]).read_text("utf-8"))
    texts = [f"const TABLE = {json.dumps(table, ensure_ascii=False)};"] if table else []
    files = [*parts(module), STATIC / f"{module}.js"]
    return "\n".join([*texts, kit(), *(file.read_text(encoding="utf-8") for file in files)])


def parts(module: str) -> list[Path]:
    """Return the files of a module that is too long to be read as one."""
    names = (module, SHARED.get(module, module))
    return sorted({file for name in names for file in STATIC.glob(f"parts/{name}/*.js")})


def must(words: str, test: Callable, trait: traitlets.TraitType) -> traitlets.TraitType:
    """Return a trait that rejects a value that fails a test, and says what it must be."""
    known = trait.validate

    def validate(owner, value):
        if not test(checked := known(owner, value)):
            raise traitlets.TraitError(f"{trait.name}={value!r:.200}: must {words}")
        return checked

    trait.validate = validate
    return trait


class Interactive(anywidget.AnyWidget):
    """A widget drawn by `static/<module>.js`.

    The traits of a subclass are the state that the module reads and writes. The display holds the
    kernel's widget and, under the type MIME, the module's name and the state: a page without a
    kernel needs nothing else.

    Attributes:
        module: Stem of the module's file; each subclass sets it.
        label: One line that says what the interactive shows, also for screen readers.
        finding: What a reader finds with it, in bold above it as above every figure; or "".
    """

    module: ClassVar[str]
    label: ClassVar[str]
    finding = traitlets.Unicode("").tag(sync=True)

    def __init_subclass__(cls, **kwargs):
        # skip the nameless subclass that traitlets creates for every instance
        if "module" in cls.__dict__:
            for trait in vars(cls).values():
                if isinstance(trait, traitlets.TraitType):
                    trait.tag(sync=True)
            cls._esm = source(cls.module)
            cls._css = (STATIC / "interactive.css").read_text(encoding="utf-8")
        super().__init_subclass__(**kwargs)

    def state(self) -> dict:
        """Return the public traits that the module shares with the kernel, as JSON types."""
        own = set(self.trait_names(sync=True)) - set(anywidget.AnyWidget.class_trait_names())
        own -= set() if self.finding else {"finding"}
        return {name: getattr(self, name) for name in sorted(own) if not name.startswith("_")}

    def _repr_mimebundle_(self, **kwargs):
        data, metadata = super()._repr_mimebundle_(**kwargs)
        data[MIME] = {"module": self.module, "state": self.state(), "label": self.label}
        data["text/plain"] = (
            f"{self.label} (an interactive drawing: run the notebook, or open the book's page)"
        )
        return data, metadata

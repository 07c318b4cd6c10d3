"""List the public drafters in `specdec_lite/drafters/__init__.pyi`, from their families' files.

`python site/drafter_names.py` writes the file. A class of a family's file whose name ends in
Drafter is public; the other names of the file, such as `draft_chain`, stay as they are.
"""

import ast
from pathlib import Path

DRAFTERS = Path(__file__).resolve().parents[1] / "specdec_lite" / "drafters"
STUB = DRAFTERS / "__init__.pyi"
SHARED = "Chain Composite Group Head ModelTree Round Self Wrapper"
BASES = {f"{name}Drafter" for name in SHARED.split()}
"""What drafters have in common, which drafts nothing by itself."""
WIDTH = 100


def drafters() -> dict[str, str]:
    """Return the module of every public drafter, by the name of its class."""
    return {
        node.name: f"specdec_lite.drafters.{path.stem}"
        for path in DRAFTERS.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Drafter")
        if node.name not in BASES
    }


def updated(stub: str) -> str:
    """Return the text of the file with today's drafters, as `ruff format` lays it out."""
    tree = ast.parse(stub)
    names = drafters() | {
        each.name: str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for each in node.names
        if each.name == "Drafter" or not each.name.endswith("Drafter")
    }
    lines = [f'"""{ast.get_docstring(tree)}"""', ""]
    for module in sorted({*names.values()}):
        here = sorted(name for name, home in names.items() if home == module)
        line = f"from {module} import {', '.join(here)}"
        long = [f"from {module} import (", *(f"    {name}," for name in here), ")"]
        lines += [line] if len(line) <= WIDTH else long
    lines += ["", "__all__ = [", *(f'    "{name}",' for name in sorted(names)), "]", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    STUB.write_text(updated(STUB.read_text(encoding="utf-8")), encoding="utf-8")

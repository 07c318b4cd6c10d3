"""Answer how to serve a target with drafts: seven rows from six inputs, by the rules of `advice.json`.

The page "You serve a model" shows the same rows: its box reads the same list, and a test compares.
"""

import json
import math
from dataclasses import replace
from pathlib import Path

from specdec_lite import theory
from specdec_lite.simulation import sizes
from specdec_lite.simulation.estimate import (
    GENERATIONS,
    Engine,
    Hardware,
    Network,
    calibrate,
    estimate,
    schedule,
)

TABLE = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
INPUTS, ROWS = TABLE["inputs"], TABLE["rows"]
Sizes = tuple[Network, Network, Hardware]
UNKNOWN_LONG = 32_768
"""Context from which a head of unstated training length is treated as too short."""


def choice(name: str, key: str) -> dict:
    """Return the entry of a menu.

    Raises:
        ValueError: the menu has no such entry.
    """
    for entry in INPUTS[name]:
        if key in (entry["key"], entry["name"], entry.get("repo")):
            return entry
    raise ValueError(f"{name}={key!r}: must be one of {', '.join(e['key'] for e in INPUTS[name])}")


def matches(when: dict, state: dict) -> bool:
    """Return whether a rule's conditions hold: a value, one of several, or a least value."""
    for name, wanted in when.items():
        value = state[name]
        if isinstance(wanted, dict):
            if not value >= wanted["least"]:
                return False
        elif value not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    return True


def first(rules: list[dict], state: dict, key: str = "text") -> str:
    """Return the text of the first rule that matches."""
    return next(rule[key] for rule in rules if matches(rule["when"], state))


def state_of(inputs: dict) -> dict:
    """Return the facts that rules ask for, from the six inputs."""
    target, machine = choice("target", inputs["target"]), choice("machine", inputs["machine"])
    draft = target["drafts"][0]
    trained = draft.get("trained", 0)
    is_long = draft["method"] != "mtp" and inputs["context"] > (trained or UNKNOWN_LONG - 1)
    state = {
        **inputs,
        "target": target["key"],
        "machine": machine["key"],
        "place": machine["key"] if machine["key"] in ("laptop", "apple") else "gpu",
        "experts": target.get("experts", False),
        "bits": target.get("bits", 16),
        "method": draft["method"],
        "trained": trained,
        "long": is_long,
    }
    state["use"] = first(TABLE["do"], state, "use")
    return state


def networks(state: dict) -> Sizes | None:
    """Return the sizes of the target, its draft and the cards; None if they are not in the lists."""
    target, machine = choice("target", state["target"]), choice("machine", state["machine"])
    heads = {"eagle3": sizes.EAGLE3, "dspark": sizes.DSPARK}.get(state["method"], {})
    name = target.get("sizes", "")
    if name not in heads or "card" not in machine or state["use"] not in ("head", "ngram"):
        return None
    draft = Network(0.0) if state["use"] == "ngram" else heads[name]
    cards = replace(sizes.CARDS[machine["card"]], gpus=machine["gpus"])
    return sizes.MODELS[name], draft, cards


def engine_of(state: dict, known: Sizes | None) -> Engine:
    """Return the engine of the inputs, calibrated if they have a measured round."""
    engine = GENERATIONS.get(state["engine"], GENERATIONS["fitted"])
    if known is None or not state.get("tau") or not state.get("speedup"):
        return engine
    load = state.get("gamma", 3), state["batch"], state["context"]
    return calibrate(*known, *load, tau=state["tau"], speedup=state["speedup"], engine=engine)


def vllm_schedule(ranges: list[tuple[int, int, int]]) -> str:
    """Return a schedule in vLLM's form, a list of (first batch, last batch, γ)."""
    return json.dumps([list(each) for each in ranges])


def sglang_schedule(ranges: list[tuple[int, int, int]]) -> str:
    """Return a schedule in SGLang's form, the file of `--speculative-adaptive-config`."""
    return json.dumps({str(begin): {"candidate_steps": [gamma]} for begin, _, gamma in ranges})


def alpha_of(state: dict) -> tuple[float, str]:
    """Return the acceptance rate, and whether it is given, follows from τ, or is assumed."""
    if state.get("alpha"):
        return state["alpha"], "given"
    if not state.get("tau"):
        return TABLE["alpha"].get(state["method"], 0.65), "assumed, not measured"
    low, high, gamma = 0.0, 1.0, state.get("gamma", 3)
    for _ in range(30):
        middle = (low + high) / 2
        is_below = theory.expected_tokens(middle, gamma) < state["tau"]
        low, high = (middle, high) if is_below else (low, middle)
    return low, f"what your τ of {state['tau']:.2f} at γ = {gamma} says"


def gain_text(state: dict, known: Sizes | None, ranges: list[tuple[int, int, int]]) -> str:
    """Return the computed gain with its band, or why there is none, and what is published."""
    published, band = first(TABLE["gains"], state), TABLE["band"]
    if known is None or state["use"] not in ("head", "ngram"):
        why = (
            "this card drafts nothing"
            if state["use"] == "none"
            else "its sizes are not in the list"
        )
        return f"Not computed: {why}. Published: {published}"
    batch, context, engine = state["batch"], state["context"], engine_of(state, known)
    if state["use"] == "ngram":
        e = estimate(*known, None, 4, batch, context, tau=1.0, engine=engine)
        return (
            f"Pays where τ over all steps exceeds {e.break_even:.2f}, if every step drafts 4 tokens;"
            f" one source measured the host's part. Published: {published}"
        )
    alpha, origin = alpha_of(state)
    gamma = next(g for begin, end, g in ranges if begin <= batch <= end)
    trained = state["trained"] or math.inf
    e = estimate(*known, alpha, max(gamma, 1), batch, context, engine=engine, trained=trained)
    doubts = "".join(f" Doubt: {doubt}." for doubt in e.doubts)
    need = (
        known[0].weights(1) + known[1].weights(1) + batch * context * known[0].cache_bytes
    ) / 1e9
    if need > 0.9 * (memory := choice("machine", state["machine"])["memory"]):
        doubts += f" It does not fit: {need:.0f} GB of {memory} GB, so fewer requests run at once."
    sure = (
        "One measured round set this band."
        if engine.batch
        else f"This band held {band['inside']} of {band['rows']} rows of {band['sources']} sources"
        " that the fit had not seen."
    )
    return (
        f"Likely {e.speedup:.2f}× at {batch} requests with γ = {max(gamma, 1)}, band {e.low:.2f} to"
        f" {e.high:.2f}×: **{e.verdict}**. α = {alpha:.2f} is {origin}.{doubts} {sure}"
        f" Published: {published}"
    )


def card(inputs: dict) -> list[tuple[str, str]]:
    """Return the seven rows (name, Markdown) for six inputs.

    Args:
        inputs: target, machine, kind and engine, by the keys of `advice.json`; batch, the concurrent
            requests; context, tokens of each; optionally alpha, or tau, speedup and gamma of one
            measured round at this batch.

    Raises:
        ValueError: a key is in no menu, or the measured round contradicts the sizes.
    """
    state = state_of(inputs)
    known = networks(state)
    target, machine = choice("target", state["target"]), choice("machine", state["machine"])
    ranges: list[tuple[int, int, int]] = []
    if known and state["use"] == "head":
        engine = engine_of(state, known)
        longest = TABLE["longest"][state["method"]]
        alpha, context = alpha_of(state)[0], state["context"]
        ranges = schedule(*known, alpha, context, engine=engine, longest=longest)
    gamma = max(ranges[0][2], 1) if ranges else 1 if state["kind"] == "batch" else 3
    draft, gpus = target["drafts"][0], machine["gpus"]
    values = {
        "{target}": target["repo"],
        "{draft}": draft["repo"],
        "{method}": draft["method"],
        "{gamma}": str(gamma),
        "{root}": str(gamma + 1),
        "{tp}": f" \\\n  --tensor-parallel-size {gpus}" * (gpus > 1),
        "{tp_size}": f" --tp-size {gpus}" * (gpus > 1),
        "{slots}": str(max(64, state["batch"])),
        "{vllm_schedule}": vllm_schedule(ranges),
        "{vllm_positions}": TABLE["vllm_positions"],
    }

    def filled(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    if state["use"] in ("none", "ngram"):
        checkpoint = "None."
    else:
        is_published = "/" in draft["repo"]
        link = f"[{draft['repo']}]({TABLE['hub']}/{draft['repo']})" if is_published else ""
        length = draft.get("trained")
        stated = "" if state["method"] == "mtp" else "trained length not stated"
        stated = f"trained for {length:,} tokens" if length else stated
        checkpoint = "; ".join(part for part in (link, stated, draft["note"]) if part) + "."
    if not ranges:
        fixed = {
            "none": "0 at every batch: no drafts.",
            "ngram": "One length: 4 up to 8 requests, then measure.",
        }
        text = fixed.get(state["use"], f"Not computed: begin with γ = {gamma} up to 8 requests.")
    elif state["engine"] == "sglang":
        text = f"Computed, as `adaptive.json`: `{sglang_schedule(ranges)}`."
    else:
        text = f"Computed: `{values['{vllm_schedule}']}`, which is (first batch, last batch, γ)."
    troubles = [rule["text"] for rule in TABLE["wrong"] if matches(rule["when"], state)][:3]
    rows = (
        first(TABLE["do"], state),
        f"```bash\n{filled(first(TABLE['lines'], state))}\n```\n{filled(first(TABLE['starts'], state))}",
        checkpoint,
        gain_text(state, known, ranges),
        text,
        first(TABLE["measure"], state),
        "\n".join(f"{i}. {trouble}" for i, trouble in enumerate(troubles, 1)),
    )
    return list(zip(ROWS, rows, strict=True))

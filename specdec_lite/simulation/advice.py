"""Answer how to serve a target with drafts: seven rows from six inputs, by the rules of `advice.json`.

The page "You serve a model" shows the same rows: its box reads the same list, and a test compares.
"""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

from specdec_lite import checks, theory
from specdec_lite.simulation import estimate as estimator, sizes
from specdec_lite.simulation.estimate import Engine, Hardware, Network

TABLE = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
INPUTS, ROWS = TABLE["inputs"], TABLE["rows"]
Sizes = tuple[Network, Network, Hardware]
ALL = 10**9
"""Positions of a pass that needs every expert."""
UNKNOWN_LONG, UNSTATED = 32_768, "trained length not stated"
"""Context from which a head of unstated training length is not recommended."""
LARGEST = INPUTS["batch"][-1]


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
        if isinstance(wanted, dict) and state[name] >= wanted["least"]:
            continue
        if state[name] not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    return True


def first(rules: list[dict], state: dict, key: str = "text") -> str:
    """Return the text of the first rule that matches."""
    return next(rule[key] for rule in rules if matches(rule["when"], state))


def state_of(inputs: dict) -> dict:
    """Return the facts that rules ask for, from the six inputs."""
    menus = ("target", "machine", "kind", "engine")
    inputs = inputs | {name: choice(name, inputs[name])["key"] for name in menus}
    checks.whole("batch", inputs["batch"], 1, 512)
    checks.whole("context", inputs["context"], 1)
    target, machine = choice("target", inputs["target"]), choice("machine", inputs["machine"])
    draft = next(each for each in target["drafts"] if inputs["kind"] not in each.get("except", ()))
    trained = draft.get("trained", 0)
    is_long = draft["method"] != "mtp" and inputs["context"] > (trained or UNKNOWN_LONG - 1)
    network = sizes.MODELS.get(target.get("sizes", ""), Network(0.0))
    memory = math.inf if inputs["engine"] == "llama.cpp" else machine.get("memory", math.inf)
    state = {
        **inputs,
        "place": machine["key"] if machine["key"] in ("laptop", "apple") else "gpu",
        "experts": target.get("experts", False),
        "bits": target.get("bits", 16),
        "draft": draft,
        "method": draft["method"],
        "trained": trained,
        "positions": draft.get("positions", 0),
        "long": is_long and (trained > 0 or "unstated"),
        "fits": network.weights(ALL) / 1e9 <= 0.9 * memory,
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
    engine = estimator.GENERATIONS.get(state["engine"], estimator.GENERATIONS["fitted"])
    if known is None or not state.get("tau") or not state.get("speedup"):
        return engine
    load = state.get("gamma", 3), state["batch"], state["context"]
    return estimator.calibrate(
        *known, *load, tau=state["tau"], speedup=state["speedup"], engine=engine
    )


def computed(state: dict, known: Sizes | None) -> tuple[list[tuple[int, int, int]], dict]:
    """Return (γ by batch as ranges, facts of the schedule for the texts); empty without sizes."""
    if known and state["use"] == "head":
        engine = engine_of(state, known)
        longest = TABLE["longest"][state["method"]]
        alpha, context = state.get("alpha") or TABLE["alpha"], state["context"]
        ranges = estimator.schedule(*known, alpha, context, engine=engine, longest=longest)
        least = next((g for *_, g in ranges[::-1] if g), 1)
        found = estimator.switch_off(*known, alpha, least, context, engine=engine, largest=LARGEST)
        sure, lost = (batch - 1 if batch else f"{LARGEST} or more" for batch in found)
        return ranges, {"least": least, "sure": sure, "lost": lost}
    if quoting := networks(state | {"use": "ngram"}):
        load = state["batch"], state["context"]
        e = estimator.estimate(*quoting, None, 4, *load, tau=1.0, engine=engine_of(state, quoting))
        return [], {"cost": f"{e.break_even:.2f}", "surely": f"{1 / e.low:.2f}"}
    return [], {}


def checkpoint_text(state: dict) -> str:
    """Return the link of the draft's weights, the length they were trained at, and their notes."""
    draft = state["draft"]
    if state["use"] in ("none", "ngram"):
        return "None."
    link = f"[{draft['repo']}]({TABLE['hub']}/{draft['repo']})" if "/" in draft["repo"] else ""
    stated = f"trained at {state['trained']:,} tokens" if state["trained"] else UNSTATED
    parts = (link, stated * (state["method"] != "mtp"), draft["note"])
    return "; ".join(part for part in parts if part) + "." + first(TABLE["notes"], state)


def gain_text(state: dict, known: Sizes | None, ranges: list[tuple[int, int, int]]) -> str:
    """Return the computed gain with its band, or why there is none, and what is published."""
    published, band = first(TABLE["gains"], state), TABLE["band"]
    if known is None:
        return f"Not computed: {first(TABLE['uncomputed'], state)}. Published: {published}"
    batch, context, engine = state["batch"], state["context"], engine_of(state, known)
    if state["use"] == "ngram":
        return f"{TABLE['ngram']} Published: {published}"
    alpha, tau = state.get("alpha") or TABLE["alpha"], state.get("tau")
    gamma = next(g for begin, end, g in ranges if begin <= batch <= end)
    lead, requests = "Likely", lambda count: f"{count} request{'s' * (count > 1)}"
    if not gamma:
        lead = f"The schedule drafts nothing at {requests(batch)}. With drafts, likely"
        batch, gamma = next(((end, g) for _, end, g in ranges[::-1] if g), (batch, 1))
    trained = state["trained"] or math.inf
    e = estimator.estimate(*known, alpha, gamma, batch, context, engine=engine, trained=trained)
    more = (rule["text"] for rule in TABLE["doubts"] if matches(rule["when"], state))
    e = replace(e, doubts=(*e.doubts, *more))
    if state.get("alpha"):
        verdict, origin = f"**{e.verdict}**", "given"
    else:
        least = e.tokens / e.low
        sure = f"if your α is at least {theory.nearest_alpha(least, gamma):.2f}"
        verdict = f"**measure**; by its sizes it pays {sure}" if e.doubts else f"**pays {sure}**"
        verdict = verdict if least < gamma + 1 else "**measure**: no α is sure to pay"
        origin = "assumed, not measured"
        if tau:
            found = theory.nearest_alpha(tau, state.get("gamma", 3))
            origin += f"; if drafts made your τ, not a coin, enter α = {found:.2f}"
    doubts = "".join(f" Doubt: {doubt}." for doubt in e.doubts)
    need = (known[0].weights(ALL) + known[1].weights(ALL)) / 1e9
    need += state["batch"] * context * known[0].cache_bytes / 1e9
    if need > 0.9 * (memory := choice("machine", state["machine"])["memory"]):
        doubts += f" Weights and caches: {need:.0f} of {memory} GB, so fewer requests run at once."
    record = f"With a measured τ, such bands held {band['inside']} of {band['rows']} unseen rows."
    record = "One measured round set this band." if engine.batch else record
    return (
        f"{lead} {e.speedup:.2f}× at {requests(batch)} with γ = {gamma}, band {e.low:.2f} to"
        f" {e.high:.2f}×: {verdict}. α = {alpha:.2f} is {origin}.{doubts} {record}"
        f" Published: {published}"
    )


def card(inputs: dict) -> list[tuple[str, str]]:
    """Return the seven rows (name, Markdown) for six inputs.

    Args:
        inputs: target, machine, kind and engine, by the keys of `advice.json`; batch, the concurrent
            requests; context, tokens of each; optionally alpha, or tau, speedup and gamma of one
            measured round at this batch.

    Raises:
        ValueError: no menu has a key, a batch is not in 1 … 512, or the round contradicts the sizes.
    """
    state = state_of(inputs)
    known = networks(state)
    target, machine = choice("target", state["target"]), choice("machine", state["machine"])
    ranges, facts = computed(state, known)
    gamma = max(ranges[0][2], 1) if ranges else 1 if state["kind"] == "batch" else 3
    gpus = machine["gpus"]
    values = state | {
        "target": target["repo"],
        "draft": state["draft"]["repo"],
        "trained": f"{state['trained']:,}",
        "gamma": gamma,
        "root": gamma + 1,
        "tp": f" \\\n  --tensor-parallel-size {gpus}" * (gpus > 1),
        "tp_size": f" --tp-size {gpus}" * (gpus > 1),
        "slots": max(64, state["batch"]),
        "sampled": first(TABLE["sampled"], state),
        "beyond": first(TABLE["beyond"], state),
        "vllm_schedule": json.dumps(ranges),
        "sglang_schedule": json.dumps({str(b): {"candidate_steps": [g]} for b, _, g in ranges}),
        "vllm_positions": TABLE["vllm_positions"],
        **facts,
    }

    def filled(text: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: str(values.get(found[1], found[0])), text)

    troubles = [filled(rule["text"]) for rule in TABLE["wrong"] if matches(rule["when"], state)][:3]
    rows = (
        filled(first(TABLE["do"], state)),
        f"```bash\n{filled(first(TABLE['lines'], state))}\n```\n{filled(first(TABLE['starts'], state))}",
        checkpoint_text(state),
        filled(gain_text(state, known, ranges)),
        filled(first(TABLE["schedules"], {**state, "computed": facts != {}})),
        filled(first(TABLE["measure"], state)),
        "\n".join(f"{i}. {trouble}" for i, trouble in enumerate(troubles, 1)),
    )
    return list(zip(ROWS, rows, strict=True))

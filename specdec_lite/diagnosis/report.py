"""A diagnosis as plain text and as HTML."""

from html import escape

COLORS = {"draft": "#e69f00", "verify": "#0072b2", "other": "#6b7280"}


def spread(estimate: dict | None) -> str:
    """Return a value with its interval; a dash for None."""
    if estimate is None or estimate["value"] is None:
        return "–"
    low, high = estimate["interval"]
    if low == high:  # a single text has no spread
        return f"{estimate['value']:.2f}"
    return f"{estimate['value']:.2f} ({low:.2f}–{high:.2f})"


def rows(diagnosis) -> list[tuple[str, str]]:
    """Return (label, value) of every line of the report."""
    setting = diagnosis.setting
    shape = f"γ = {setting['levels']}"
    if setting["nodes"] != setting["levels"]:
        shape = f"{setting['nodes']} nodes on {setting['levels']} levels"
    lines = [
        (
            "measured",
            f"{shape}, temperature {setting['temperature']:g}, {setting['dtype']} on"
            f" {setting['device']}, {setting['tokens']} tokens",
        ),
        ("speedup", f"{spread(diagnosis.speedup)}, predicted {diagnosis.predicted:.2f}"),
        (
            "τ, tokens per round",
            f"{spread(diagnosis.tau)}, break-even at {diagnosis.break_even:.2f}",
        ),
        ("a plain step, in T(1)", f"{diagnosis.plain:.2f}"),
    ]
    if diagnosis.alpha:
        lines.append(("α, accepted ÷ tested", spread(diagnosis.alpha)))
    for name, rates in diagnosis.offline.items():
        text = f"drawn {rates['drawn']:.2f}, likeliest {rates['chosen']:.2f}, greedy {rates['greedy']:.2f}"
        lines.append((f"without decoding, {name}", text))
    for name, rate in diagnosis.controls.items():
        lines.append((f"control, {name}", f"{rate:.2f} (must be low)"))
    alone = "" if diagnosis.c is None else f", {diagnosis.c:.3f} alone"
    passes = ", ".join(f"{k}: {value:.2f}" for k, value in sorted(diagnosis.passes.items()))
    batches = ", ".join(f"{batch}: {value:.2f}" for batch, value in diagnosis.batches.items())
    lines += [
        ("c, per drafted token", f"{diagnosis.c_in_loop:.3f} in the loop{alone}"),
        ("in graphs", graphs(diagnosis)),
        ("T(1)", f"{1e3 * diagnosis.one:.2f} ms"),
        ("T(k) ÷ T(1)", passes),
        ("the same by batch, γ + 1 tokens", batches),
    ]
    if diagnosis.full:
        lines.append(("no draft can pay", f"from a batch of {diagnosis.full}, of those measured"))
    if diagnosis.alpha and diagnosis.verdict != "disturbed":
        best = diagnosis.best_gamma
        lines.append(
            ("best γ", f"{best}, {diagnosis.best_speedup:.2f}" if best else "0: decode plainly")
        )
    needed = diagnosis.needed
    if needed.get("alpha") is not None:
        lines.append(("break-even at α", f"{needed['alpha']:.2f}"))
    if needed.get("c") is not None:
        lines.append(("break-even at c", f"{needed['c']:.3f}"))
    if diagnosis.same_text is not None:
        lines.append(("texts equal to plain greedy", f"{100 * diagnosis.same_text:.0f} %"))
    return lines


def graphs(diagnosis) -> str:
    """Return what passes in graphs change, and which engines run them."""
    found = diagnosis.graphs
    if isinstance(found, str):
        return f"not measured: {found}"
    return (
        f"speedup {spread(found['speedup'])}, c {found['c']:.3f}, T(1) {1e3 * found['one']:.2f} ms;"
        " vLLM and SGLang run passes in graphs, transformers one by one"
    )


def plain(diagnosis) -> str:
    """Return the report for a terminal."""
    width = max(len(label) for label, _ in rows(diagnosis))
    lines = [f"{diagnosis.verdict}: {diagnosis.reason}", ""]
    lines += [f"  {label:<{width}}  {value}" for label, value in rows(diagnosis)]
    lines += ["", "faults: none found" if not diagnosis.faults else "faults:"]
    lines += [
        f"  {each.name}: {each.description}\n    {each.evidence}; see {each.page}"
        for each in diagnosis.faults
    ]
    return "\n".join(lines)


def html(diagnosis) -> str:
    """Return the report as HTML, with the costs of a round as bars above the tokens it emits."""
    parts = {name: value / diagnosis.plain for name, value in diagnosis.parts.items()}
    total = sum(parts.values())
    widest = max(total, diagnosis.tau["value"])
    begin = 0.0
    bars = []
    for name, value in parts.items():
        style = (
            f"margin-left:{100 * begin / widest:.1f}%;width:{max(0.4, 100 * value / widest):.1f}%;"
            f"background:{COLORS[name]};height:1.1em"
        )
        bars.append(f"<div>{name}: {value:.2f}<div style='{style}'></div></div>")
        begin += value
    emitted = f"width:{100 * diagnosis.tau['value'] / widest:.1f}%;background:#009e73;height:1.1em"
    bars.append(f"<div>tokens: {diagnosis.tau['value']:.2f}<div style='{emitted}'></div></div>")
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(label)}</th><td>{escape(value)}</td></tr>"
        for label, value in rows(diagnosis)
    )
    wrong = "".join(
        f"<li><b>{escape(each.name)}</b>: {escape(each.description)} <i>({escape(each.evidence)})</i></li>"
        for each in diagnosis.faults
    )
    return (
        f"<div class='sdl-diagnosis'><p><b>{diagnosis.verdict}</b>: {escape(diagnosis.reason)}</p>"
        "<p>One round, in steps of plain decoding. Drafting pays if the last bar is longer than the others"
        f" together.</p>{''.join(bars)}<table>{cells}</table>"
        f"<p>{'Faults' if wrong else 'No fault found.'}</p><ul>{wrong}</ul></div>"
    )

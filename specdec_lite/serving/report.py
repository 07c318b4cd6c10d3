"""A diagnosis as plain text, and as a page."""

from html import escape

COLOURS = {"draft": "#e69f00", "verify": "#0072b2", "other": "#6b7280"}


def spread(estimate: dict | None) -> str:
    if estimate is None or estimate["value"] is None:
        return "–"
    low, high = estimate["interval"]
    return f"{estimate['value']:.2f} ({low:.2f}–{high:.2f})"


def rows(found) -> list[tuple[str, str]]:
    """(label, value) of every line of the report."""
    setting = found.setting
    shape = f"γ = {setting['levels']}"
    if setting["nodes"] != setting["levels"]:
        shape = f"{setting['nodes']} nodes on {setting['levels']} levels"
    lines = [
        (
            "measured",
            f"{shape}, temperature {setting['temperature']:g}, {setting['dtype']} on"
            f" {setting['device']}, {setting['tokens']} tokens",
        ),
        ("speedup", f"{spread(found.speedup)}, predicted {found.predicted:.2f}"),
        ("τ, tokens a round", f"{spread(found.tau)}, break-even at {found.break_even:.2f}"),
    ]
    if found.alpha:
        lines.append(("α, accepted ÷ tested", spread(found.alpha)))
    for name, rates in found.offline.items():
        text = f"drawn {rates['drawn']:.2f}, likeliest {rates['chosen']:.2f}, greedy {rates['greedy']:.2f}"
        lines.append((f"without decoding, {name}", text))
    for name, rate in found.controls.items():
        lines.append((f"control, {name}", f"{rate:.2f} (must be low)"))
    alone = "" if found.c is None else f", {found.c:.3f} alone"
    passes = ", ".join(f"{k}: {value:.2f}" for k, value in sorted(found.passes.items()))
    batches = ", ".join(f"{batch}: {value:.2f}" for batch, value in found.batches.items())
    lines += [
        ("c, a drafted token", f"{found.c_in_loop:.3f} in the loop{alone}"),
        ("T(1)", f"{1e3 * found.one:.2f} ms"),
        ("T(k) ÷ T(1)", passes),
        ("the same by batch, γ + 1 tokens", batches),
    ]
    if found.full:
        lines.append(("too full for any draft", f"from a batch of {found.full}, of those measured"))
    if found.alpha:
        best = found.best_gamma
        lines.append(
            ("best γ", f"{best}, {found.best_speedup:.2f}" if best else "0: decode plainly")
        )
    needed = found.needed
    if needed.get("alpha") is not None:
        lines.append(("the sign changes at α", f"{needed['alpha']:.2f}"))
    if needed.get("c") is not None:
        lines.append(("the sign changes at c", f"{needed['c']:.3f}"))
    if found.same_text is not None:
        lines.append(("texts equal to plain greedy", f"{100 * found.same_text:.0f} %"))
    return lines


def plain(found) -> str:
    """The report on a terminal."""
    width = max(len(label) for label, _ in rows(found))
    lines = [f"{found.verdict}: {found.reason}", ""]
    lines += [f"  {label:<{width}}  {value}" for label, value in rows(found)]
    lines += ["", "faults: none found" if not found.faults else "faults:"]
    lines += [
        f"  {each.name}: {each.says}\n    {each.evidence}; see {each.page}" for each in found.faults
    ]
    return "\n".join(lines)


def html(found) -> str:
    """The same with the waterfall of a round: its costs, in plain passes, above what it emits."""
    total = sum(found.parts.values())
    widest = max(total, found.tau["value"])
    begin = 0.0
    bars = []
    for name, value in found.parts.items():
        style = (
            f"margin-left:{100 * begin / widest:.1f}%;width:{max(0.4, 100 * value / widest):.1f}%;"
            f"background:{COLOURS[name]};height:1.1em"
        )
        bars.append(f"<div>{name}: {value:.2f}<div style='{style}'></div></div>")
        begin += value
    emitted = f"width:{100 * found.tau['value'] / widest:.1f}%;background:#009e73;height:1.1em"
    bars.append(f"<div>tokens: {found.tau['value']:.2f}<div style='{emitted}'></div></div>")
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(label)}</th><td>{escape(value)}</td></tr>"
        for label, value in rows(found)
    )
    wrong = "".join(
        f"<li><b>{escape(each.name)}</b>: {escape(each.says)} <i>({escape(each.evidence)})</i></li>"
        for each in found.faults
    )
    return (
        f"<div class='sdl-diagnosis'><p><b>{found.verdict}</b>: {escape(found.reason)}</p>"
        "<p>A round in plain passes T(1); it pays where the last bar is longer than the others"
        f" together.</p>{''.join(bars)}<table>{cells}</table>"
        f"<p>{'Faults' if wrong else 'No fault found.'}</p><ul>{wrong}</ul></div>"
    )

"""The drawings that chapters share: a round as a bar, two distributions and what they share, the
drafts of a round, the pass that judges them, a token tree, heads on one backbone, a pass as a line
of operations, what a model leaves out while it drafts for itself.

What lives here: what is drawn and where. What does not: how (`sketch.Sketch`), and the numbers,
which the caller computes.
"""

from collections.abc import Sequence

from specdec_lite.tree import TokenTree
from specdec_lite.viz.sketch import WIDTH, Sketch, SketchRow, seen

BLOCKS = 8
BARS, BAR = 66, 198  # where the bars of tokens begin, and the longest one
OWN_DRAFTS = {
    "early exit": "stops after the first blocks, and goes straight to the head",
    "skipped sublayers": "leaves out an attention here, an MLP there",
    "fewer bits": "all of it, with weights of 8 or 4 bits",
    "look-ahead rows": "all of it, asked about several places at once",
    "sparse cache": "all of it, reading only a part of the keys and values",
}
SKIPPED = {(2, 0), (3, 1), (5, 0), (5, 1), (6, 0)}


def round_bar(
    gamma: int, c: float, verify: float, other: float, tokens: float, plain: float = 1.0
) -> Sketch:
    """A speculative round as one bar of costs over plain decoding of as many tokens.

    gamma: draft length; c, verify, other: in passes of the target over one token; tokens: that a
    round emits; plain: what a plainly decoded token costs.
    """
    spent = gamma * c + verify + other
    total = tokens * plain
    unit = (WIDTH - 8) / max(spent, total)
    drawing = Sketch(
        158,
        f"A round of {gamma} drafts at {c:.2f} each, one verification of {verify:.2f} and"
        f" {other:.2f} of other work takes {spent:.2f} target passes. Plain decoding takes"
        f" {total:.2f} for as many tokens.",
        f"{tokens:.2f} tokens for {spent:.2f} passes in place of {total:.2f}: {total / spent:.2f}"
        " times as fast.",
    )
    drawing.words(4, 14, "speculative: one round", "start", bold=True)
    for i in range(gamma):
        drawing.box(4 + i * c * unit, 22, c * unit, 28, "draft")
    drawing.box(4 + gamma * c * unit, 22, verify * unit, 28, "target", f"verify {verify:.2f}")
    drawing.box(4 + (gamma * c + verify) * unit, 22, other * unit, 28, "neutral")
    drawing.words(4, 64, f"draft: {gamma} × {c:.2f}", "start")
    drawing.words(max(4 + spent * unit, 170), 64, f"other {other:.2f}", "end")
    drawing.words(4, 96, f"plain: {tokens:.2f} tokens, {total:.2f} passes", "start", bold=True)
    for i in range(int(tokens)):
        drawing.box(4 + i * plain * unit, 104, plain * unit, 28, "target", f"{plain:.2f}")
    rest = tokens - int(tokens)
    if rest > 0:
        drawing.box(4 + int(tokens) * plain * unit, 104, rest * plain * unit, 28, "target")
    return drawing.words(4, 148, "a box: a pass over one token, and its rest", "start", faint=True)


def overlap(p: Sequence[float], q: Sequence[float], names: Sequence[str]) -> Sketch:
    """Each token's two bars on each other: what both share, β in all, what the draft has too much of,
    and what the target has left over.

    p, q, names: of one length; p and q sum to 1.
    """
    shared = [min(a, b) for a, b in zip(p, q)]
    said = ", ".join(f"{name} {s:.2f}" for name, s in zip(names, shared))
    drawing = Sketch(
        6 + 38 * len(p),
        f"Bars of p and q laid on each other. Shared: {said}, {sum(shared):.2f} in all. What the"
        " draft has too much of equals what the target has left over.",
        f"Solid: what both bars share, β = {sum(shared):.2f} in all. Dashed: the draft's excess on"
        " one token is the target's overhang on others; the two sum to the same.",
    )
    left, scale = BARS, BAR / max(*p, *q)
    for row, (name, a, b, s) in enumerate(zip(names, p, q, shared)):
        y, extra = 6 + 38 * row, abs(a - b)
        drawing.words(left - 8, y + 18, name, "end")
        drawing.box(left, y, scale * s, 26, "accepted", f"{s:.2f}", fill=100)
        if extra > 1e-9:
            kind, what = ("recovered", "overhang") if a > b else ("rejected", "too much")
            drawing.box(left + scale * s, y, scale * extra, 26, kind, dashed=True)
            drawing.words(left + scale * (s + extra) + 6, y + 18, f"{what} {extra:.2f}", "start")
    return drawing


def emitted(p: Sequence[float], q: Sequence[float], names: Sequence[str]) -> Sketch:
    """Where each token's mass goes in one round, as wide as `overlap`: what is drafted and accepted
    stays, what is rejected comes back as what is recovered.

    p, q, names: of one length; p and q sum to 1.
    """
    said = "; ".join(f"{name} {b:.2f} and {a:.2f}" for name, a, b in zip(names, p, q))
    drawing = Sketch(
        4 + 58 * len(p),
        f"Two bars a token, what is drafted and what is emitted: {said}. What is rejected of one"
        " token is recovered as others.",
        "What the target refuses of one token it gives back as another: each lower bar is as long"
        " as p.",
    )
    left, scale = BARS, BAR / max(*p, *q)
    for row, (name, a, b) in enumerate(zip(names, p, q)):
        kept = scale * min(a, b)
        for y, line, whole, kind in (
            (4 + 58 * row, "drafted", b, "rejected"),
            (28 + 58 * row, "emitted", a, "recovered"),
        ):
            drawing.words(left - 8, y + 15, f"{name} {line}", "end")
            drawing.box(left, y, kept, 22, "accepted", f"{min(a, b):.2f}", fill=100)
            rest = scale * whole - kept
            if rest > 1e-9:
                drawing.box(left + kept, y, rest, 22, kind, dashed=True)
                drawing.words(left + kept + rest + 6, y + 15, f"{kind} {rest / scale:.2f}", "start")
    return drawing


def verify_pass(gamma: int = 4) -> Sketch:
    """What goes into one target pass, what comes out, and which row judges which draft."""
    step, left = (WIDTH - 4) / (gamma + 2), 2
    middle = lambda i: left + step * i + step / 2
    drawing = Sketch(
        150,
        f"Into one pass go the last token and {gamma} drafts; out come {gamma + 1} rows. Row 0 judges"
        f" the first draft, row 1 the second, and row {gamma} is left for a bonus token.",
        f"In: the last token and {gamma} drafts. Out: {gamma + 1} rows. The row behind a token says"
        " what comes next, so it judges the draft one place further.",
    )
    drawing.box(left, 52, step * (gamma + 1), 24, "target", "one pass of the target")
    for i in range(gamma + 1):
        fed = ("target", "last") if i == 0 else ("draft", f"x{i}")
        drawing.box(middle(i) - step / 2 + 4, 16, step - 8, 24, *fed)
        drawing.line((middle(i), 40), (middle(i), 52)).line((middle(i), 76), (middle(i), 90))
        drawing.box(middle(i) - step / 2 + 4, 90, step - 8, 22, "target", f"row {i}")
        drawing.line((middle(i) + 6, 112), (middle(i + 1) - 6, 131), arrow=True)
        name = f"judges x{i + 1}" if i < gamma else "bonus"
        drawing.words(middle(i + 1), 144, name, bold=i == gamma)
    return drawing


def tested_strip(gamma: int, accepted: int) -> Sketch:
    """A round's drafts in a row: accepted, rejected, and never tested; accepted < gamma."""
    tested = accepted + 1
    drawing = Sketch(
        92,
        f"{gamma} drafts: {accepted} accepted, the next one rejected, the rest never tested.",
        f"{accepted} of {tested} tested, but {accepted} of {gamma} drafted.",
    )
    size = (WIDTH - 16) / gamma
    for i in range(gamma):
        kind, words = (
            ("accepted", "✓ kept")
            if i < accepted
            else ("rejected", "✗ tested")
            if i == accepted
            else ("empty", "unseen")
        )
        drawing.box(8 + i * size + 2, 8, size - 4, 30, kind, words)
    drawing.line((8, 50), (8 + tested * size - 2, 50), kind="accepted")
    drawing.words(8, 66, f"tested: {tested}", "start")
    drawing.line((8, 74), (WIDTH - 8, 74))
    return drawing.words(8, 88, f"drafted: {gamma}", "start")


def token_tree(
    tree: TokenTree, words: Sequence[str], root: str, kept: Sequence[int] = ()
) -> Sketch:
    """A token tree from its root downwards, the committed token on top.

    tree: its parents and depth are drawn. words: of each node. root: the last committed token.
    kept: nodes to be marked as accepted.
    """
    parents, depth = list(tree.parents), tree.depth.tolist()
    leaves = [i for i in range(len(parents)) if i not in parents]
    x = {leaf: (place + 0.5) * WIDTH / len(leaves) for place, leaf in enumerate(_ordered(parents))}
    for node in reversed(range(len(parents))):
        if node not in x:
            children = [i for i, parent in enumerate(parents) if parent == node]
            x[node] = sum(x[child] for child in children) / len(children)
    width = min(56, WIDTH / len(leaves) - 4)
    y = lambda node: 8 + 54 * (depth[node] + 1)
    drawing = Sketch(
        8 + 54 * (max(depth) + 2) - 22,
        f"Token tree behind {root}: "
        + "; ".join(
            f"{words[i]} follows {words[parent] if parent >= 0 else root}"
            for i, parent in enumerate(parents)
        )
        + ".",
    )
    for node, parent in enumerate(parents):
        top = (WIDTH / 2, 36) if parent < 0 else (x[parent], y(parent) + 28)
        both = node in kept and (parent < 0 or parent in kept)
        drawing.line(top, (x[node], y(node)), kind="accepted" if both else "neutral")
    drawing.box(WIDTH / 2 - 34, 8, 68, 28, "target", root)
    for node, word in enumerate(words):
        kind = "accepted" if node in kept else "draft"
        drawing.box(x[node] - width / 2, y(node), width, 28, kind, word)
    return drawing


def _ordered(parents: Sequence[int]) -> list[int]:
    """Leaves from left to right, siblings in their order."""

    def below(node: int) -> list[int]:
        children = [i for i, parent in enumerate(parents) if parent == node]
        return [leaf for child in children for leaf in below(child)] if children else [node]

    return below(-1)


def heads(count: int, said: Sequence[str]) -> Sketch:
    """Heads on one backbone: which state they read, and which token each of them guesses.

    said: the committed tokens' last three, then the guess of every head.
    """
    drawing = Sketch(
        206,
        f"The target reads the text up to {said[1]}; its last state produced {said[2]}, and"
        f" {count} heads read from the same state the {count} tokens after it.",
        "One state, many readers: the target's own head says the next token, head k the k-th after"
        " it.",
    )
    step = WIDTH / (3 + count)
    at = lambda i: (i + 0.5) * step
    for i in (0, 1):
        drawing.box(at(i) - step / 2 + 3, 172, step - 6, 26, "target", said[i])
        drawing.line((at(i), 172), (at(i), 142), arrow=True)
    drawing.box(4, 112, 2 * step - 8, 30, "target", "target")
    drawing.box(at(1) - 22, 64, 44, 24, "neutral", "state h")
    drawing.line((at(1), 112), (at(1), 88), arrow=True)
    for i in range(2, 3 + count):
        name = "own head" if i == 2 else f"head {i - 2}"
        kind = "target" if i == 2 else "draft"
        drawing.line((at(1) + 22, 76), (at(i), 76), (at(i), 64), arrow=True)
        drawing.words(at(i), 58, name)
        drawing.box(at(i) - step / 2 + 3, 18, step - 6, 26, kind, seen(said[i]))
    drawing.words(at(2) + step / 2 - 8, 12, "committed", "end", faint=True)
    return drawing.words(at(3) - step / 2 + 3, 12, "guessed, not yet checked", "start", faint=True)


def launches(operations: int, launch: float, work: float) -> Sketch:
    """A pass on a device whose host launches its operations one by one, and the same in one graph.

    launch, work: µs that each operation costs the host and the device.
    """
    slow, fast = operations * max(launch, work) + work, operations * work + launch
    unit = (WIDTH - 8) / slow
    drawing = Sketch(
        150,
        f"{operations} operations. Launched one by one the device waits for the host between them:"
        f" {slow:g} µs. Captured in one graph they stand close together: {fast:g} µs.",
        f"{slow:g} µs against {fast:g} µs for the same arithmetic.",
    )
    for y, said, gap in ((0, "launched one by one", launch), (76, "one graph", 0)):
        drawing.words(4, y + 14, said, "start", bold=True)
        drawing.words(WIDTH - 4, y + 14, "host above, device below", "end", faint=True)
        for i in range(operations):
            start = (i + 1) * launch if gap else launch + i * work
            if gap or i == 0:
                drawing.box(4 + i * launch * unit, y + 22, launch * unit, 18, "neutral")
            drawing.box(4 + start * unit, y + 44, work * unit, 18, "target")
    return drawing


def account(ratios: Sequence[float]) -> Sketch:
    """What a draft of these p/q is worth by two rules, token by token and as a block."""
    step = WIDTH / (len(ratios) + 1)
    width = step - 34
    alone, block = [1.0], [1.0]
    for ratio in ratios:
        alone.append(alone[-1] * min(1.0, ratio))
        block.append(min(1.0, block[-1] * ratio))
    drawing = Sketch(
        150,
        f"Ratios {', '.join(f'{r:g}' for r in ratios)}. Token by token the chance to have kept all"
        f" so far is {', '.join(f'{x:g}' for x in alone[1:])}; as a block"
        f" {', '.join(f'{x:g}' for x in block[1:])}.",
        "Token by token luck above 1 is lost; an account pays an earlier debt with it.",
    )
    for y, name, chances in ((8, "token by token", alone), (84, "as a block", block)):
        drawing.words(4, y + 8, name, "start", bold=True)
        for i, chance in enumerate(chances):
            x = 4 + i * step
            drawing.box(x, y + 18, width, 34, "empty")
            drawing.box(x, y + 18 + 34 * (1 - chance), width, 34 * chance, "accepted")
            drawing.words(x + width / 2, y + 64, f"{chance:g}")
            if i < len(ratios):
                drawing.line((x + width + 3, y + 35), (x + step - 3, y + 35), arrow=True)
                drawing.words(x + width + 17, y + 28, f"×{ratios[i]:g}")
    return drawing


def own_drafts() -> SketchRow:
    """What each of five methods leaves out of the target while it drafts: from below the tokens fed,
    blocks of an attention and an MLP, the head; at the side the cache.
    """
    return SketchRow(map(_tower, OWN_DRAFTS))


def _tower(method: str) -> Sketch:
    words = f"{method}: {OWN_DRAFTS[method]}"
    drawing = Sketch(192, words, words, 120)
    part = lambda x, y, width, height, runs=True: drawing.box(
        x, y, width, height, "target" if runs else "empty", dashed=not runs
    )
    thin = 10 if method == "fewer bits" else 0
    part(14 + thin / 2, 6, 64 - thin, 14)
    for block in range(BLOCKS):
        y = 154 - 16 * block
        for side in (0, 1):
            exited = method == "early exit" and block > 2
            skipped = method == "skipped sublayers" and (block, side) in SKIPPED
            part(14 + 33 * side + thin / 4, y, 31 - thin / 2, 12, not (exited or skipped))
        seen = method != "sparse cache" or block in (0, BLOCKS - 2, BLOCKS - 1)
        part(92, y, 14, 12, seen)
    if method == "early exit":
        drawing.line((46, 118), (46, 21), arrow=True)
    places = 4 if method == "look-ahead rows" else 1
    for place in range(places):
        x = 41 - 9 * (places - 1) + 18 * place
        drawing.box(x, 176, 10, 10, "empty" if place else "neutral", fill=100)
    return drawing

"""The sketches of the chapters, each drawn from numbers that the caller computes."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from specdec_book.viz.captions import spaced_percent
from specdec_book.viz.pictures import coordinates
from specdec_book.viz.sketch import WIDTH, Sketch, SketchRow, visible
from specdec_lite.tree import TokenTree

BLOCKS = 8
BAR_START, BAR_LENGTH = 66, 198  # left edge of a token's bar, and length of the longest bar
SELF_DRAFTS = {
    "early exit": "An early exit runs only the first blocks, then the head.",
    "skipped sublayers": "Skipping leaves out some attentions and some MLPs.",
    "fewer bits": "With fewer bits the whole model runs on weights of 8 or 4 bits.",
    "look-ahead rows": "With look-ahead rows it runs on several future positions in one pass.",
    "sparse cache": "With a sparse cache it reads only some of the keys and values.",
}
SKIPPED = {(2, 0), (3, 1), (5, 0), (5, 1), (6, 0)}


def round_bar(
    gamma: int, c: float, verify: float, other: float, tokens: float, plain: float = 1.0, wide=0.0
) -> Sketch:
    """Draw a round's cost above plain decoding of its tokens, at least `wide` plain steps wide."""
    cost = gamma * c + verify + other
    total = tokens * plain
    unit = (WIDTH - 8) / max(cost, total, wide * plain)
    drawing = Sketch(
        140,
        f"A round has {gamma} drafts at {c:.2f} target passes each, a verification of {verify:.2f}"
        f" and other work of {other:.2f}. It takes {cost:.2f} target passes. Plain decoding of the"
        f" same tokens takes {total:.2f}.",
        f"A round emits {tokens:.1f} tokens and takes as long as {cost / plain:.1f} plain tokens,"
        f" so it is {total / cost:.1f} times as fast.",
    )
    drawing.words(4, 14, "what one round costs", "start", bold=True)
    for i in range(gamma):
        drawing.box(4 + i * c * unit, 22, c * unit, 28, "draft")
    drawing.box(4 + gamma * c * unit, 22, verify * unit, 28, "target", "one target pass")
    drawing.box(4 + (gamma * c + verify) * unit, 22, other * unit, 28, "neutral")
    drawing.words(4, 64, f"{gamma} drafts", "start")
    drawing.words(4 + cost * unit + 6, 40, "other work", "start")
    drawing.words(4, 96, f"what it replaces: {tokens:.1f} plain tokens", "start", bold=True)
    accepted = tokens - 1
    for i in range(int(accepted) + (accepted % 1 > 0)):
        width, words = min(1, accepted - i) * plain * unit, "accepted draft" * (i < int(accepted))
        drawing.box(4 + i * plain * unit, 104, width, 28, "accepted", words)
    drawing.box(4 + accepted * plain * unit, 104, plain * unit, 28, "recovered", "the target's own")
    drawing.line((4 + cost * unit, 18), (4 + cost * unit, 103), dashed=True)
    return drawing


def overlap(p: Sequence[float], q: Sequence[float], names: Sequence[str]) -> Sketch:
    """Draw each token's bars of p and q, and both on top of each other: the overlap and the rest."""
    shared = [min(a, b) for a, b in zip(p, q)]
    parts = ", ".join(f"{name} {s:.2f}" for name, s in zip(names, shared))
    high = 66
    drawing = Sketch(
        high * len(p),
        f"Bars of p and q, and both on top of each other. Their overlap is {parts}, and"
        f" {sum(shared):.2f} in total. The draft model's excess and the target's residual have the"
        " same sum.",
        spaced_percent(
            "The draft model's excess on some tokens equals the target's residual on the others"
            f" (dashed). Solid: the overlap of both bars, {sum(shared):.0%} in total."
        ),
    )
    left, scale = BAR_START, BAR_LENGTH / max(*p, *q)
    for row, (name, a, b, s) in enumerate(zip(names, p, q, shared)):
        y, extra = 4 + high * row, abs(a - b)
        for top, kind, value in ((y, "target", a), (y + 13, "draft", b)):
            drawing.box(left, top, scale * value, 10, kind)
            drawing.words(left + scale * value + 6, top + 9, f"{kind} {value:.2f}", "start")
        drawing.words(left - 8, y + 45, name, "end", bold=True)
        drawing.box(left, y + 28, scale * s, 26, "accepted", f"{s:.2f}" if s else "", fill=100)
        if extra > 1e-9:
            kind, part = ("recovered", "residual") if a > b else ("rejected", "excess")
            drawing.box(left + scale * s, y + 28, scale * extra, 26, kind, dashed=True)
            end = left + scale * (s + extra) + 6
            drawing.words(end, y + 45, f"{part} {extra:.2f}", "start")
    return drawing


def kept_and_refilled(
    p: Sequence[float],
    rules: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    names: Sequence[str],
    caption: str,
) -> Sketch:
    """Draw what each acceptance rule keeps and refills of each token, and where p is."""
    left, high = 126, 42
    step = (WIDTH - left) / len(p)
    top = max(max(a + b for a, b in zip(*masses)) for masses in rules.values())
    scale = (step - 14) / max(top, *p)
    lines = [
        f"{rule} keeps {', '.join(f'{x:.2f}' for x in kept)} and refills"
        f" {', '.join(f'{x:.2f}' for x in refilled)}"
        for rule, (kept, refilled) in rules.items()
    ]
    drawing = Sketch(
        20 + high * len(rules),
        f"For each rule the mass kept and the mass refilled of {', '.join(names)}, beside p ="
        f" {', '.join(f'{x:.2f}' for x in p)}: {'; '.join(lines)}.",
        caption,
    )
    for column, name in enumerate(names):
        drawing.words(left + column * step, 12, name, "start", bold=True)
    for row, (rule, (kept, refilled)) in enumerate(rules.items()):
        y = 24 + high * row
        off = sum(abs(a + b - x) for a, b, x in zip(kept, refilled, p)) / 2
        result = "emits p" if off < 1e-9 else f"off by {off:.3f}"
        drawing.words(0, y + 10, rule, "start", bold=True)
        drawing.words(
            0, y + 24, spaced_percent(f"keeps {sum(kept):.0%}, {result}"), "start", faint=True
        )
        for column, (a, b, x) in enumerate(zip(kept, refilled, p)):
            start = left + column * step
            drawing.box(start, y, scale * a, 18, "accepted", fill=100)
            drawing.box(start + scale * a, y, scale * b, 18, "recovered", dashed=True)
            drawing.line(
                (start + scale * x, y - 4), (start + scale * x, y + 22), kind="target", thick=3
            )
    return drawing


def emitted_mass(p: Sequence[float], q: Sequence[float], names: Sequence[str]) -> Sketch:
    """Draw the drafted and the emitted probability of each token, at the scale of `overlap`."""
    pairs = "; ".join(f"{name} {b:.2f} and {a:.2f}" for name, a, b in zip(names, p, q))
    drawing = Sketch(
        4 + 58 * len(p),
        f"Two bars per token, its drafted and its emitted probability: {pairs}. The rejected mass of"
        " some tokens is recovered as other tokens.",
        "The rejected mass of some tokens returns as other tokens, so each lower bar is as long as"
        " p.",
    )
    left, scale = BAR_START, BAR_LENGTH / max(*p, *q)
    for row, (name, a, b) in enumerate(zip(names, p, q)):
        accepted = scale * min(a, b)
        for y, line, whole, kind in (
            (4 + 58 * row, "drafted", b, "rejected"),
            (28 + 58 * row, "emitted", a, "recovered"),
        ):
            drawing.words(left - 8, y + 15, f"{name} {line}", "end")
            drawing.box(left, y, accepted, 22, "accepted", f"{min(a, b):.2f}", fill=100)
            rest = scale * whole - accepted
            if rest > 1e-9:
                end = left + accepted + rest
                drawing.box(left + accepted, y, rest, 22, kind, dashed=True)
                drawing.words(end + 6, y + 15, f"{kind} {rest / scale:.2f}", "start")
    return drawing


def verify_pass(gamma: int = 4) -> Sketch:
    """Draw the tokens fed to one target pass, its rows, and the draft that each row verifies."""
    step, left = (WIDTH - 4) / (gamma + 2), 2
    middle = lambda i: left + step * i + step / 2
    drawing = Sketch(
        150,
        f"One pass reads the last token and {gamma} drafts and returns {gamma + 1} rows. Row 0"
        f" verifies the first draft, row 1 the second, and row {gamma} gives a bonus token.",
        f"The pass reads the last token and {gamma} drafts and returns {gamma + 1} rows. The row of"
        " a token predicts the next token, so it verifies the draft at the next position.",
    )
    drawing.box(left, 52, step * (gamma + 1), 24, "target", "one pass of the target")
    for i in range(gamma + 1):
        fed = ("target", "last") if i == 0 else ("draft", f"x{i}")
        drawing.box(middle(i) - step / 2 + 4, 16, step - 8, 24, *fed)
        drawing.line((middle(i), 40), (middle(i), 52)).line((middle(i), 76), (middle(i), 90))
        drawing.box(middle(i) - step / 2 + 4, 90, step - 8, 22, "target", f"row {i}")
        drawing.line((middle(i) + 6, 112), (middle(i + 1) - 6, 131), arrow=True)
        name = f"tests x{i + 1}" if i < gamma else "bonus"
        drawing.words(middle(i + 1), 144, name, bold=i == gamma)
    return drawing


def lookahead_window(
    root: str,
    rows: Sequence[Sequence[str]],
    predicted: Sequence[str],
    ngrams: Sequence[Sequence[str]],
    following: Sequence[Sequence[str]],
) -> SketchRow:
    """Draw Lookahead's window with its newest predictions, the n-grams it gives, and the next window."""
    full = [[root, *rows[0]], *rows[1:], predicted]
    names = [*(f"row {i}" for i in range(len(rows))), "new"]
    left, step, high = 52, 36, 28
    pool = left + step * len(predicted) + 34
    now = Sketch(
        20 + high * len(full),
        f"The window of {root} has the rows {'; '.join(' '.join(row) for row in rows)}, and a pass"
        f" predicts {' '.join(predicted)}. The pool gets the n-grams"
        f" {', '.join('-'.join(gram) for gram in ngrams)}.",
        "",
        pool + 32 * max(map(len, ngrams)) + 8,
    )
    after = Sketch(
        now.height,
        f"The next window has the rows {'; '.join(' '.join(row) for row in following)}.",
        "",
        left + step * len(predicted) + 8,
    )
    for drawing, title, window in (
        (now, "this pass", full),
        (after, "next pass", [["?", *following[0]], *following[1:]]),
    ):
        drawing.words(left, 12, title, "start", bold=True)
        for number, (name, row) in enumerate(zip(names, window)):
            y = 20 + high * number
            drawing.words(left - 8, y + 15, name, "end", faint=True)
            for column, token in enumerate(row):
                is_known = name == "new" or (number, column) == (0, 0)
                kind = "empty" if token == "?" else "target" if is_known else "draft"
                x = left + step * column
                if number:
                    drawing.line((x + 15, y - 6), (x + 15, y))
                drawing.box(x, y, 30, 22, kind, token, dashed=token == "?")
    after.words(left - 8, 20 + high * len(following) + 16, "?: the new last token", "start")
    now.words(pool, 12, "into the pool", "start", bold=True)
    now.line((pool - 30, 59), (pool - 10, 59), arrow=True)
    for number, (key, *rest) in enumerate(ngrams):
        y = 20 + high * number
        now.box(pool, y, 30, 22, "neutral", key)
        for place, token in enumerate(rest):
            now.box(pool + 40 + 32 * place, y, 28, 22, "draft", token)
    return SketchRow(
        [now, after],
        "Every column, read downwards, is an n-gram for the pool, stored under its first token."
        " Then row 0 leaves, and the window moves on.",
    )


def tested_strip(gamma: int, accepted: int) -> Sketch:
    """Draw the drafts of a round in a row: accepted, rejected and not tested."""
    tested = accepted + 1
    drawing = Sketch(
        92,
        f"{gamma} drafts: {accepted} accepted, the next one rejected, the rest not tested.",
        f"{accepted} of {tested} tested drafts were accepted, but {accepted} of {gamma} drafted"
        " ones.",
    )
    size = (WIDTH - 16) / gamma
    results = [("accepted", "✓ accepted")] * accepted + [("rejected", "✗ rejected")]
    results += [("empty", "not tested")] * (gamma - tested)
    for i, (kind, words) in enumerate(results):
        drawing.box(8 + i * size + 2, 8, size - 4, 30, kind, words)
    drawing.line((8, 50), (8 + tested * size - 2, 50), kind="accepted")
    drawing.words(8, 66, f"tested: {tested}", "start")
    drawing.line((8, 74), (WIDTH - 8, 74))
    return drawing.words(8, 88, f"drafted: {gamma}", "start")


def token_tree(
    tree: TokenTree, words: Sequence[str], root: str, accepted: Sequence[int] = ()
) -> Sketch:
    """Draw a token tree downwards from the last committed token."""
    parents, places = list(tree.parents), coordinates(tree)
    step = WIDTH / (1 + max(height for _, height in places.values()))
    x = {node: (height + 0.5) * step for node, (_, height) in places.items()}
    width = min(56, step - 4)
    y = lambda node: 8 + 54 * places[node][0]
    drawing = Sketch(
        8 + 54 * (tree.levels + 1) - 22,
        f"Token tree after {root}: "
        + "; ".join(
            f"{words[i]} follows {words[parent] if parent >= 0 else root}"
            for i, parent in enumerate(parents)
        )
        + ".",
    )
    for node, parent in enumerate(parents):
        top = (WIDTH / 2, 36) if parent < 0 else (x[parent], y(parent) + 28)
        is_accepted = node in accepted and (parent < 0 or parent in accepted)
        drawing.line(top, (x[node], y(node)), kind="accepted" if is_accepted else "neutral")
    drawing.box(WIDTH / 2 - 34, 8, 68, 28, "target", root)
    for node, word in enumerate(words):
        kind = "accepted" if node in accepted else "draft"
        drawing.box(x[node] - width / 2, y(node), width, 28, kind, word)
    return drawing


def heads(count: int, words: Sequence[str]) -> Sketch:
    """Draw heads on one backbone: the state that they read and the token that each predicts."""
    drawing = Sketch(
        206,
        f"The target reads the text up to {words[1]}. Its own head predicts {words[2]} from the last"
        f" state, and {count} more heads predict the {count} tokens after it from the same state.",
        "All heads read the same state: the target's own head predicts the next token, head k the"
        " k-th token after it.",
    )
    step = WIDTH / (3 + count)
    at = lambda i: (i + 0.5) * step
    for i in (0, 1):
        drawing.box(at(i) - step / 2 + 3, 172, step - 6, 26, "target", words[i])
        drawing.line((at(i), 172), (at(i), 142), arrow=True)
    drawing.box(4, 112, 2 * step - 8, 30, "target", "target")
    drawing.box(at(1) - 22, 64, 44, 24, "neutral", "state h")
    drawing.line((at(1), 112), (at(1), 88), arrow=True)
    for i in range(2, 3 + count):
        name = "own head" if i == 2 else f"head {i - 2}"
        kind = "target" if i == 2 else "draft"
        drawing.line((at(1) + 22, 76), (at(i), 76), (at(i), 64), arrow=True)
        drawing.words(at(i), 58, name)
        drawing.box(at(i) - step / 2 + 3, 18, step - 6, 26, kind, visible(words[i]))
    drawing.words(at(2) + step / 2 - 8, 12, "committed", "end", faint=True)
    return drawing.words(at(3) - step / 2 + 3, 12, "drafted, not yet verified", "start", faint=True)


def account(ratios: Sequence[float]) -> Sketch:
    """Draw the probability that a draft is accepted so far, token by token and as a block."""
    step = WIDTH / (len(ratios) + 1)
    width = step - 34
    single = [*accumulate(ratios, lambda chance, r: chance * min(1.0, r), initial=1.0)]
    block = [*accumulate(ratios, lambda chance, r: min(1.0, chance * r), initial=1.0)]
    drawing = Sketch(
        150,
        f"The ratios p/q are {', '.join(f'{r:g}' for r in ratios)}. The probability that all tokens"
        f" so far are accepted is {', '.join(f'{x:g}' for x in single[1:])} token by token, and"
        f" {', '.join(f'{x:g}' for x in block[1:])} as a block.",
        "As a block, a ratio above 1 makes up for an earlier ratio below 1. Level: the probability"
        " that all drafts so far are kept. Arrows: p/q of the next draft.",
    )
    for y, name, probabilities in ((8, "token by token", single), (84, "as a block", block)):
        drawing.words(4, y + 8, name, "start", bold=True)
        for i, probability in enumerate(probabilities):
            x = 4 + i * step
            drawing.box(x, y + 18, width, 34, "empty")
            drawing.box(x, y + 18 + 34 * (1 - probability), width, 34 * probability, "accepted")
            drawing.words(x + width / 2, y + 64, f"{probability:g}")
            if i < len(ratios):
                drawing.line((x + width + 3, y + 35), (x + step - 3, y + 35), arrow=True)
                drawing.words(x + width + 17, y + 28, f"×{ratios[i]:g}")
    return drawing


def self_drafts() -> SketchRow:
    """Draw which parts of the target five methods of self-drafting use.

    From bottom to top: the tokens fed, blocks of one attention and one MLP, the head. The cache is
    at the side.
    """
    return SketchRow(
        map(_tower, SELF_DRAFTS),
        "All five draft with the target's weights, and read less of them or of the cache per drafted"
        " token. Dashed: what is left out.",
    )


def _tower(method: str) -> Sketch:
    words = SELF_DRAFTS[method]
    drawing = Sketch(204, words, words, 142)
    names = dict.fromkeys(("head", "attention", "MLP", "cache", "last"), "")
    if method == "early exit":  # the first tower names the parts
        names = {name: name for name in names}
    elif method == "fewer bits":
        names |= {"head": "8 bits", "attention": "8 bits", "MLP": "8 bits"}
    part = lambda x, y, width, height, name, runs=True: drawing.box(
        x, y, width, height, "target" if runs else "empty", name, dashed=not runs
    )
    part(4, 6, 92, 17, names["head"])
    for block in range(BLOCKS):
        y = 158 - 18 * block
        name = lambda part: names[part] if block == 0 or method == "fewer bits" else ""
        is_beyond_exit = method == "early exit" and block > 2
        is_skipped = lambda side: method == "skipped sublayers" and (block, side) in SKIPPED
        part(4, y, 56, 15, name("attention"), not (is_beyond_exit or is_skipped(0)))
        part(62, y, 34, 15, name("MLP"), not (is_beyond_exit or is_skipped(1)))
        is_read = method != "sparse cache" or block in (0, BLOCKS - 2, BLOCKS - 1)
        part(104, y, 34, 15, name("cache"), is_read)
    if method == "early exit":
        drawing.line((50, 120), (50, 24), arrow=True)
    count = 4 if method == "look-ahead rows" else 1
    for position in range(count):
        x = 45 - 12 * (count - 1) + 24 * position
        drawing.box(x, 182, 12, 12, "empty" if position else "neutral", fill=100)
    if names["last"]:
        drawing.words(62, 192, "last token", "start", faint=True)
    elif count > 1:
        drawing.words(100, 192, "rows", "start", faint=True)
    return drawing

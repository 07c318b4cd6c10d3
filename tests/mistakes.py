"""Wrong answers to the exercises, and what each check must say of them.

`MISTAKES` holds (check, wrong, said): `wrong` gets the exercise's right answer as its first
argument, then the case.
"""

import random

import numpy as np

from specdec_book.exercises import (
    blockwise,
    claims,
    decoding,
    eagle,
    gpu,
    levers,
    lookahead,
    lookup,
    lossless,
    medusa,
    memory,
    payoff,
    predictable,
    self_drafts,
    serving,
    speed,
    stopping,
    training,
    trees,
)
from specdec_lite import roofline, theory


def one_round(tokens, p, q, uniforms, last, recover):
    """A reader's round with NumPy's default side of `searchsorted`."""
    p, q = np.array(p), np.array(q)
    for i, (x, u) in enumerate(zip(tokens, uniforms)):
        if u >= p[i, x] / q[i, x]:
            return [*tokens[:i], int(np.searchsorted(np.cumsum(recover(p[i], q[i])), last))]
    return [*tokens, int(np.searchsorted(np.cumsum(p[-1]), last))]


def unstopped(tokens, p, q, uniforms, last, bonus):
    """A round that continues after a rejection; bonus: it adds one at its end, all kept or not."""
    p, q, out, whole = np.array(p), np.array(q), [], True
    for i, (x, u) in enumerate(zip(tokens, uniforms)):
        if u >= p[i, x] / q[i, x]:
            whole, rest = False, np.maximum(p[i] - q[i], 0)
            x = int(np.searchsorted(np.cumsum(rest / rest.sum()), last))
        out.append(x)
    return [*out, int(np.searchsorted(np.cumsum(p[-1]), last))] if bonus(whole) else out


DECODING = [
    (
        decoding.check_top_k,
        lambda right, probs, k: np.array(right(probs, k)) * sum(sorted(probs)[-k:]),
        "sum to 1 again",
    ),
    (
        decoding.check_top_k,
        lambda right, probs, k: np.array([*probs[:k], *[0] * (len(probs) - k)]) / sum(probs[:k]),
        "not the k likeliest",
    ),
    (
        decoding.check_top_k,
        lambda right, probs, k: (
            (kept := np.where(probs >= np.sort(probs)[-k], probs, 0)) / sum(kept)
        ),
        "keeps three",
    ),
    (
        decoding.check_nucleus,
        lambda right, probs, p: decoding._nucleus(probs, p, crossing=False),
        "belongs to the nucleus",
    ),
    (decoding.check_nucleus, lambda right, probs, p: right(probs, p + 1e-6), "do not add another"),
    (
        decoding.check_nucleus,
        lambda right, probs, p: np.where(np.array(right(probs, p)) > 0, probs, 0),
        "sum to 1 again",
    ),
    (
        decoding.check_positions_scored,
        lambda right, n, m, cached: n + m if cached else right(n, m, False),
        "never fed",
    ),
    (
        decoding.check_positions_scored,
        lambda right, n, m, cached: right(n, m, True) if cached else n * m,
        "grows by one",
    ),
    (
        decoding.check_positions_scored,
        lambda right, n, m, cached: m if cached else right(n, m, False),
        "computed once",
    ),
    (
        decoding.check_accepted,
        lambda right, ratios, uniforms: sum(u < ratio for ratio, u in zip(ratios, uniforms)),
        "first failure",
    ),
    (
        decoding.check_accepted,
        lambda right, ratios, uniforms: min(right(ratios, uniforms) + 1, len(ratios)),
        "not accepted",
    ),
    (
        decoding.check_cache_lengths,
        lambda right, m, gamma, accepted: (m + accepted, m + accepted),
        "one shorter",
    ),
    (
        decoding.check_cache_lengths,
        lambda right, m, gamma, accepted: (m + gamma, m + gamma - 1),
        "cut away",
    ),
    (
        decoding.check_cache_lengths,
        lambda right, m, gamma, accepted: tuple(n - 1 for n in right(m, gamma, accepted)),
        "one larger",
    ),
    (
        decoding.check_cache_lengths,
        lambda right, m, gamma, accepted: (m - 1 + accepted, m - 1 + accepted),
        "one larger",
    ),
    (
        decoding.check_cache_lengths,
        lambda right, m, gamma, accepted: (m + accepted + 1, min(m + gamma - 1, m + accepted + 1)),
        "in neither cache",
    ),
    (
        decoding.check_round,
        lambda right, *case: decoding._round(*case, recover=lambda p, q: p),
        "not from p",
    ),
    (decoding.check_round, lambda right, *case: one_round(*case, lambda p, q: p), "not from p"),
    (
        decoding.check_round,
        lambda right, *case: one_round(*case, lambda p, q: np.maximum(p - q, 0)),
        "must sum to 1",
    ),
    *(
        (
            decoding.check_round,
            lambda right, *case, bonus=bonus: unstopped(*case, bonus=bonus),
            "first rejection",
        )
        for bonus in (lambda whole: True, lambda whole: whole, lambda whole: False)
    ),
    (decoding.check_round, lambda right, *case: right(*case)[:-1], "one more token"),
    (decoding.check_round, lambda right, *case: decoding._round(*case, bonus=False), "bonus token"),
]

MEMORY = [
    (
        memory.check_intensity,
        lambda right, width, tokens, batch: tokens * batch / width,
        "two operations",
    ),
    (memory.check_intensity, lambda right, width, tokens, batch: 2 / width, "every position"),
    (
        memory.check_intensity,
        lambda right, width, tokens, batch: width / (2 * tokens * batch),
        "inverse",
    ),
    (
        memory.check_free_tokens,
        lambda right, width, bandwidth, throughput, batch: int(throughput / bandwidth * width / 2),
        "divide by it",
    ),
    (
        memory.check_free_tokens,
        lambda right, width, bandwidth, throughput, batch: (
            roofline.ridge_tokens(width, bandwidth, throughput) / batch
        ),
        "round down",
    ),
    (memory.check_free_tokens, lambda right, *case: max(1, right(*case)), "answer 0"),
    (
        memory.check_crossover_context,
        lambda right, parameters, width, cache: parameters / cache,
        "bytes_per_weight",
    ),
    (memory.check_crossover_context, lambda right, parameters, width, cache: 7.0, "the answer is"),
]

BLOCKWISE = [
    (
        blockwise.check_accepted_block,
        lambda right, p, g: right(p, g) - 1,
        "never has fewer than one",
    ),
    (
        blockwise.check_accepted_block,
        lambda right, p, g: 1 + sum(a == b for a, b in zip(p[1:], g)),
        "stop at the first",
    ),
    (
        blockwise.check_accepted_block,
        lambda right, p, g: next((i for i in range(len(p)) if p[i] != g[i]), len(p)),
        "predicted[i + 1]",
    ),
    (blockwise.check_accepted_block, lambda right, p, g: right(p, g) + 1, "begins the next block"),
    (blockwise.check_passes, lambda right, m, k: (2 * -(-m // k), -(-m // k)), "a pass of its own"),
    (blockwise.check_passes, lambda right, m, k: (2 * m / k, m / k + 1), "round m/k up"),
    (blockwise.check_passes, lambda right, m, k: (2 * (m // k), m // k + 1), "not down"),
    (
        blockwise.check_passes,
        lambda right, m, k: (-(-m // k), -(-m // k) + 1),
        "two passes a block",
    ),
    (blockwise.check_expected_block, lambda right, chances: 1 + sum(chances), "multiply, then add"),
    (blockwise.check_expected_block, lambda right, chances: right(chances) - 1, "add 1"),
    (
        blockwise.check_expected_block,
        lambda right, chances: 1 + (right(chances) - right(chances[:-1])),
        "one term for every length",
    ),
]


def exact_or(recover):
    """The right test, with a replacement of one's own."""
    return lambda right, p, q, x, rng: x if rng.flip((p[x] / q[x]).item()) else recover(p, q, rng)


def beyond(p, q, k):
    return np.maximum(np.subtract(p, k * np.asarray(q)), 0)


def again(scale):
    """Draws from q until a draft is accepted with p/(scale·q); it has no last outcome."""

    def rule(right, p, q, x, rng):
        while not rng.flip((p[x] / q[x] / scale(p, q)).item()):
            x = rng.draw(q)
        return x

    return rule


def largest(p, q):
    return (p / q).max()


LOSSLESS = [
    (lossless.check_shy_residual, lambda right, p, q, k: theory.residual(p, q), "k = 1"),
    (lossless.check_shy_residual, lambda right, p, q, k: p, "in proportion"),
    (lossless.check_shy_residual, lambda right, p, q, k: p - k * np.minimum(p, q), "divide"),
    (
        lossless.check_shy_residual,
        lambda right, p, q, k: beyond(p, q, k) / max(1e-12, beyond(p, q, k).sum()),
        "not k·q",
    ),
    (lossless.check_shy_residual, lambda right, p, q, k: q, "answer is"),
    (lossless.check_recovered_from_p, lambda right, p, q: p, "right rule"),
    (lossless.check_recovered_from_p, lambda right, p, q: np.minimum(p, q), "accepted part only"),
    (
        lossless.check_recovered_from_p,
        lambda right, p, q: np.minimum(p, q) + np.minimum(p, q).sum() * p,
        "*rejected*",
    ),
    (
        lossless.check_recovered_from_p,
        lambda right, p, q: np.minimum(p, q) + (1 - np.minimum(p, q).sum()) * q,
        "not from q",
    ),
    (lossless.check_recovered_from_p, lambda right, p, q: q, "answer is"),
    (lossless.check_lossless, exact_or(lambda p, q, rng: rng.draw(p)), "recovering from p"),
    (lossless.check_lossless, exact_or(lambda p, q, rng: rng.draw(q)), "replacement from q"),
    (lossless.check_lossless, exact_or(lambda p, q, rng: int((p - q).argmax())), "should emit p"),
    (lossless.check_lossless, lambda right, p, q, x, rng: x, "every draft is kept"),
    (lossless.check_lossless, again(lambda p, q: 1.0), "min(p, q) divided by its sum"),
    (lossless.check_lossless, again(largest), "textbook rejection sampling"),
    (
        lossless.check_lossless,
        exact_or(lambda p, q, rng: rng.draw((p - q).clamp(min=0))),
        "Divide the missing mass",
    ),
    (lossless.check_lossless, lambda right, p, q, x, rng: 7, "return a token"),
    (
        lossless.check_lossless,
        lambda right, p, q, x, rng: x if random.random() < p[x] / q[x] else 0,
        "take all randomness from rng",
    ),
]

SPEED = [
    (
        speed.check_expected_tokens,
        lambda right, a, g: sum(a**i for i in range(1, g + 1)),
        "recovered or bonus",
    ),
    (speed.check_expected_tokens, lambda right, a, g: 1 + a * g, "after a rejection"),
    (
        speed.check_expected_tokens,
        lambda right, a, g: sum(a**i for i in range(g)),
        "one term is missing",
    ),
    (
        speed.check_expected_tokens,
        lambda right, a, g: (1 - a ** (g + 1)) / (1 - a),
        "ZeroDivisionError",
    ),
    (speed.check_expected_tokens, lambda right, a, g: "three", "not a number"),
    (speed.check_expected_tokens, lambda right, a, g: 2.0, "the answer is"),
    (speed.check_optimal_gamma, lambda right, a, c: max(1, right(a, c)), "draft nothing"),
    (
        speed.check_tokens_from_profile,
        lambda right, profile: 1 + sum(profile),
        "multiply along the way",
    ),
]


def aliased(parents):
    """The stub's gap filled with the parent's own row, not with a copy."""
    mask = [[0] * len(parents) for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] = mask[parent]
        mask[node][node] = 1
    return mask


def causal(parents):
    """The stub's gap filled with ones up to the node."""
    mask = [[0] * len(parents) for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] = [1] * node + [0] * (len(parents) - node)
        mask[node][node] = 1
    return mask


def late(worths, times):
    """Nodes counted from 0: the time of one node fewer."""
    best, fastest, tokens = 0, 1 / times[0], 1.0
    for size, worth in enumerate(worths):
        tokens += worth
        if tokens / times[size] > fastest:
            best, fastest = size, tokens / times[size]
    return best


MEDUSA = [
    (
        medusa.check_mask,
        lambda right, parents: np.tril(np.ones((len(parents), len(parents)))),
        "plain causal mask",
    ),
    (medusa.check_mask, lambda right, parents: medusa._without_ancestors(parents), "grandparents"),
    (
        medusa.check_mask,
        lambda right, parents: right(parents) - np.eye(len(parents)),
        "sees itself",
    ),
    (medusa.check_mask, lambda right, parents: np.array(right(parents)).T, "exchanged"),
    (medusa.check_mask, lambda right, parents: aliased(parents), "list(mask[parent])"),
    (medusa.check_mask, lambda right, parents: causal(parents), "below the first level"),
    (medusa.check_expected_tokens, lambda right, paths, a: right(paths, a) - 1, "begins at 1"),
    (
        medusa.check_expected_tokens,
        lambda right, paths, a: 1 + sum(a[len(path) - 1][path[-1]] for path in paths),
        "multiply along its path",
    ),
    (
        medusa.check_expected_tokens,
        lambda right, paths, a: 1 + sum(len(path) * (right([path], a) - 1) for path in paths),
        "by its depth",
    ),
    (
        medusa.check_expected_tokens,
        lambda right, paths, a: right(
            [p for p in paths if all(q[: len(p)] != p or q == p for q in paths)], a
        ),
        "not only the leaves",
    ),
    (medusa.check_best_size, lambda right, worths, times: len(worths), "divide by the time"),
    (
        medusa.check_best_size,
        lambda right, worths, times: max(1, right(worths, times)),
        "no tree at all",
    ),
    (medusa.check_best_size, lambda right, worths, times: late(worths, times), "start=1"),
    (
        medusa.check_best_size,
        lambda right, worths, times: min(right(worths, times) + 1, len(worths)),
        "off-by-one",
    ),
    (
        medusa.check_best_size,
        lambda right, worths, times: int(
            np.argmax([sum(worths[:m]) / times[m] for m in range(len(times))])
        ),
        "1 + the nodes' values",
    ),
]

LEVERS = [
    (levers.check_block_weights, lambda right, r: np.cumprod(np.array(r, float)), "saved up"),
    (
        levers.check_block_weights,
        lambda right, r: np.cumprod(np.array(r, float)).clip(max=1),
        "not at the end",
    ),
    (
        levers.check_block_weights,
        lambda right, r: np.cumprod(np.array(r, float).clip(max=1)),
        "token by token",
    ),
    (
        levers.check_block_weights,
        lambda right, r: np.array(r, float).clip(max=1),
        "contains the one before",
    ),
    (
        levers.check_success,
        lambda right, w, p, q: sum(max(0.0, w * a - b) for a, b in zip(p, q)),
        "probability of stopping here",
    ),
    (
        levers.check_success,
        lambda right, w, p, q: (m := sum(max(0.0, a - b) for a, b in zip(p, q))) / (m + 1 - w),
        "multiplied by the weight",
    ),
    (levers.check_success, lambda right, w, p, q: w, "at least this prefix"),
    (
        levers.check_success,
        lambda right, w, p, q: sum(max(0.0, w * a - b) for a, b in zip(p, q)) / w,
        "m + 1 − w",
    ),
    (levers.check_accepted_drafts, lambda right, row: sum(row), "longest prefix"),
    (
        levers.check_accepted_drafts,
        lambda right, row: float(np.cumprod(row).sum()),
        "first failure",
    ),
    (levers.check_accepted_drafts, lambda right, row: right(row) + 1, "drafts alone"),
]

GPU = [
    (
        gpu.check_pass_seconds,
        lambda right, reading, launch, least: max(len(reading) * launch, sum(reading)),
        "not the kernels",
    ),
    (
        gpu.check_pass_seconds,
        lambda right, reading, launch, least: max(len(reading) * max(launch, least), sum(reading)),
        "kernel by kernel",
    ),
    (
        gpu.check_pass_seconds,
        lambda right, reading, launch, least: max(
            len(reading) * launch, sum(least + seconds for seconds in reading)
        ),
        "a floor",
    ),
    (
        gpu.check_pass_seconds,
        lambda right, reading, launch, least: len(reading) * launch + right(reading, 0, least),
        "overlap",
    ),
    (
        gpu.check_pass_seconds,
        lambda right, reading, launch, least: min(len(reading) * launch, right(reading, 0, least)),
        "the slower",
    ),
    (
        gpu.check_pass_seconds,
        lambda right, reading, launch, least: len(reading) * launch,
        "work is missing",
    ),
    (
        gpu.check_pass_seconds,
        lambda right, reading, launch, least: right(reading, 0, least),
        "launches are missing",
    ),
    (gpu.check_pair_bytes, lambda right, t, d, w, tc, dc, n: w * (t + d), "caches are missing"),
    (
        gpu.check_pair_bytes,
        lambda right, t, d, w, tc, dc, n: w * (t + d + n * tc),
        "draft has a cache",
    ),
    (
        gpu.check_pair_bytes,
        lambda right, t, d, w, tc, dc, n: t + d + n * (tc + dc),
        "those are numbers",
    ),
    (
        gpu.check_best_gamma,
        lambda right, a, c, s, o: theory.optimal_gamma(a, c, 16)[0],
        "plain formula",
    ),
    (gpu.check_best_gamma, lambda right, a, c, s, o: right(a, c, s, 0.0), "overhead"),
    (gpu.check_best_gamma, lambda right, a, c, s, o: right(a, c, s, o) or 1, "the answer is 0"),
]

SELF_DRAFTS = [
    (
        self_drafts.check_cost,
        lambda right, layers, attention, mlp, head, off: right(layers, attention, mlp, 0, off),
        "head is read",
    ),
    (
        self_drafts.check_cost,
        lambda right, layers, attention, mlp, head, off: 1 - len(off) / (2 * layers),
        "counts sublayers",
    ),
    (self_drafts.check_cost, lambda right, *case: 1 - right(*case), "left out"),
    (
        self_drafts.check_round,
        lambda right, gamma, c, shared, verify: gamma * c + verify,
        "run twice",
    ),
    (
        self_drafts.check_round,
        lambda right, gamma, c, shared, verify: gamma * c + verify * (1 - shared),
        "last drafted token",
    ),
    (
        self_drafts.check_round,
        lambda right, gamma, c, shared, verify: gamma * (c - shared) + verify,
        "not a whole pass",
    ),
    (self_drafts.check_exit, lambda right, rates, costs: 1 + int(np.argmax(rates)), "deepest one"),
    (
        self_drafts.check_exit,
        lambda right, rates, costs: 1 + int(np.argmax(np.subtract(rates, costs))),
        "not how much",
    ),
    (self_drafts.check_exit, lambda right, rates, costs: right(rates, costs) - 1, "counts from 1"),
]
PAYOFF = [
    (payoff.check_break_even, lambda right, g, c, v, o, z: 1 + g * c, "the paper's cost"),
    (payoff.check_break_even, lambda right, g, c, v, o, z: (v + c + o) / (1 + z), "γ times"),
    (
        payoff.check_break_even,
        lambda right, g, c, v, o, z: right(g, c, v, o, z) - 1,
        "its whole cost",
    ),
    (payoff.check_break_even, lambda right, g, c, v, o, z: v + g * c + o, "a plain step costs"),
    (payoff.check_conditional, lambda right, rates: rates, "rejected early counts"),
    (payoff.check_conditional, lambda right, rates: [r / rates[0] for r in rates], "one before it"),
    (payoff.check_alpha_from_tau, lambda right, tau, g: (tau - 1) / g, "never tested"),
    (payoff.check_alpha_from_tau, lambda right, tau, g: 1 - 1 / tau, "without an end"),
]

EAGLE = [
    (eagle.check_pairs, lambda right, n: [[i, i] for i, _ in right(n)], "its own token"),
    (eagle.check_pairs, lambda right, n: [[i, j + 1] for i, j in right(n)], "too far"),
    (eagle.check_values, lambda right, parents, q: q, "own q"),
    (
        eagle.check_values,
        lambda right, parents, q: [c * (q[p] if p >= 0 else 1.0) for p, c in zip(parents, q)],
        "parent's value",
    ),
    (
        eagle.check_visible,
        lambda right, i, j, n: [*range(i + j + 1), *right(i, j, n)[i + 1 :]],
        "true pairs",
    ),
    (
        eagle.check_visible,
        lambda right, i, j, n: [k * n + r for k in range(j + 1) for r in range(i + 1)],
        "other rows",
    ),
    (eagle.check_visible, lambda right, i, j, n: right(i, j, n)[:-1], "newest"),
    (eagle.check_expected, lambda right, alphas: sum(alphas), "multiply"),
    (eagle.check_expected, lambda right, alphas: 1 + right(alphas), "own token"),
    (
        eagle.check_expected,
        lambda right, alphas: right(alphas[:1] * len(alphas)),
        "rate of its own",
    ),
    (
        eagle.check_keep,
        lambda right, parents, q, m: sorted(sorted(range(len(q)), key=lambda n: (-q[n], n))[:m]),
        "product of q along its path",
    ),
    (
        eagle.check_keep,
        lambda right, parents, q, m: eagle._keep(parents, q, m, younger=True),
        "without its parent",
    ),
    (eagle.check_keep, lambda right, parents, q, m: list(range(m)), "the oldest"),
    (eagle.check_price, lambda right, p, q: sum(map(min, p, q)) - max(p), "likeliest under q"),
    (eagle.check_price, lambda right, p, q: sum(map(min, p, q)) - max(q), "kept with p"),
    (eagle.check_price, lambda right, p, q: -right(p, q), "other way round"),
]

LOOKAHEAD = [
    (lookahead.check_next_guess, lambda right, said, n: said[n:], "just added"),
    (lookahead.check_next_guess, lambda right, said, n: said[1:], "not shifted"),
    (lookahead.check_next_guess, lambda right, said, n: said, "all answers"),
    (lookahead.check_ngrams, lambda right, root, rows: list(zip(*rows)), "begins with the root"),
    (
        lookahead.check_ngrams,
        lambda right, root, rows: [[root, *rows[0]], *rows[1:]],
        "down a column",
    ),
    (
        lookahead.check_ngrams,
        lambda right, root, rows: [[root, *column[1:]] for column in right(root, rows)],
        "only the first column",
    ),
    (
        lookahead.check_break_even,
        lambda right, w, n, g, slope: right(w, n, g, slope) - slope,
        "one more than the nodes",
    ),
    (
        lookahead.check_break_even,
        lambda right, w, n, g, slope: right(w, n, g, slope) + g * slope,
        "only n − 1",
    ),
    (
        lookahead.check_break_even,
        lambda right, w, n, g, slope: right(w, n, g, slope) + slope,
        "counted twice",
    ),
]

STOPPING = [
    (
        stopping.check_length,
        lambda right, q, t: right(q, t) - any(x < t for x in q),
        "drops the unsure token",
    ),
    (stopping.check_length, lambda right, q, t: sum(x >= t for x in q), "count sure ones"),
    (stopping.check_length, lambda right, q, t: right(q, t + 1e-9), "exactly at the threshold"),
    (
        stopping.check_admitted,
        lambda right, a, t: int(
            np.argmax([(1 + sum(np.cumprod(a)[:k])) / t[k] for k in range(len(t))])
        ),
        "searches all lengths",
    ),
    (
        stopping.check_admitted,
        lambda right, a, t: stopping._admitted(a, t, product=False),
        "multiply the chances",
    ),
    (stopping.check_admitted, lambda right, a, t: stopping._admitted(a, t, own=0.0), "begins at 1"),
    (stopping.check_overlap_gain, lambda right, c, gamma, hit: 1 + c * gamma, "only hits save"),
    (stopping.check_overlap_gain, lambda right, c, gamma, hit: 1 + hit * c * gamma, "mean times"),
    (
        stopping.check_overlap_gain,
        lambda right, c, gamma, hit: right(c, gamma, 1 - hit),
        "exchange them",
    ),
    (
        stopping.check_constant_speed,
        lambda right, r, gamma, c: stopping._constant_speed(r, gamma, c, added=0),
        "accepted + 1",
    ),
    (
        stopping.check_constant_speed,
        lambda right, r, gamma, c: stopping._constant_speed(r, gamma, c, wasted=False),
        "all drafted tokens",
    ),
    (
        stopping.check_constant_speed,
        lambda right, r, gamma, c: stopping._constant_speed(r, gamma, c, cut=False),
        "the last draft is cut",
    ),
    (stopping.check_shared_draw, lambda right, p, g: int(np.argmax(np.add(p, g))), "to log p"),
    (stopping.check_shared_draw, lambda right, p, g: int(np.argmax(p)), "without any noise"),
    (
        stopping.check_hit_gain,
        lambda right, c, gamma, fan, growth: stopping._hit_gain(c, gamma, fan, growth, verdicts=0),
        "gamma + 1 verdicts",
    ),
    (stopping.check_hit_gain, lambda right, c, gamma, fan, growth: 1 + c * gamma, "as free"),
    (
        stopping.check_hit_gain,
        lambda right, c, gamma, fan, growth: (
            (1 + c * gamma) / (1 + c * gamma * (1 + growth * ((gamma + 1) * fan - 1)))
        ),
        "not their sum",
    ),
]

PREDICTABLE = [
    (
        predictable.check_alpha_at,
        lambda right, p, q, t: predictable._alpha(p, q, t, 1.0),
        "the draft draws at it too",
    ),
    (predictable.check_alpha_at, lambda right, p, q, t: right(p, q, 1.0), "does nothing"),
    (predictable.check_alpha_at, lambda right, p, q, t: right(p, q, 1 / t), "divide the logits by"),
    (
        predictable.check_nucleus_alpha,
        lambda right, p, q, top_p: np.minimum(
            kept := predictable._nucleus(p, top_p), (cut := (kept > 0) * q) / cut.sum()
        ).sum(),
        "cannot know the target's nucleus",
    ),
    (
        predictable.check_nucleus_alpha,
        lambda right, p, q, top_p: np.minimum(predictable._nucleus(p, top_p), q).sum(),
        "cut to its nucleus too",
    ),
    (
        predictable.check_nucleus_alpha,
        lambda right, p, q, top_p: right(p, q, 1.0),
        "nothing is cut",
    ),
    (
        predictable.check_mixed_tokens,
        lambda right, share, easy, hard, gamma: theory.expected_tokens(
            share * easy + (1 - share) * hard, gamma
        ),
        "average the lengths",
    ),
    (
        predictable.check_mixed_tokens,
        lambda right, share, easy, hard, gamma: right(1 - share, easy, hard, gamma),
        "exchange the two",
    ),
    (
        predictable.check_mixed_tokens,
        lambda right, share, easy, hard, gamma: right(share, easy, hard, gamma) - 1,
        "one token of the target's own",
    ),
]

TREES = [
    (
        trees.check_sibling_acceptance,
        lambda right, p, q, k: 1 - (1 - right(p, q, 1)) ** k,
        "against the untouched p",
    ),
    (
        trees.check_sibling_acceptance,
        lambda right, p, q, k: right(p, q, 1) ** k,
        "one of them is enough",
    ),
    (
        trees.check_sibling_acceptance,
        lambda right, p, q, k: trees._siblings(p, q, k, trees._unscaled),
        "a distribution again",
    ),
    (trees.check_best_acceptance, lambda right, p, q, k: right(p, q, 1), "q(H) to the k"),
    (
        trees.check_best_acceptance,
        lambda right, p, q, k: trees._cut(p, q, k, lambda h, k: sum(x**k for x in h)),
        "may be different tokens",
    ),
    (
        trees.check_best_acceptance,
        lambda right, p, q, k: min(1, np.minimum(p, k * np.array(q)).sum()),
        "two draws may be one",
    ),
    (
        trees.check_best_budget,
        lambda right, rates, times: right(rates, [1.0] * len(times)),
        "tokens per *pass*",
    ),
    (
        trees.check_best_budget,
        lambda right, rates, times: int(
            np.argmax([(trees._tokens(rates, m) - 1) / t for m, t in enumerate(times)])
        ),
        "adds one token",
    ),
]

LOOKUP = [
    (lookup.check_lookup, lambda right, text, n, gamma: [], "finds itself"),
    (
        lookup.check_lookup,
        lambda right, text, n, gamma: next(
            (
                text[end : end + gamma]
                for end in range(n, len(text))
                if text[end - n : end] == text[-n:]
            ),
            [],
        ),
        "earliest",
    ),
    (
        lookup.check_lookup,
        lambda right, text, n, gamma: next(
            (
                text[end : end + gamma]
                for end in range(len(text) - gamma, n - 1, -1)
                if text[end - n : end] == text[-n:]
            ),
            [],
        ),
        "most recent",
    ),
    (
        lookup.check_lookup,
        lambda right, text, n, gamma: (
            (text[-n:] + right(text, n, gamma))[:gamma] if right(text, n, gamma) else []
        ),
        "already contains",
    ),
    (
        lookup.check_averages,
        lambda right, rounds: (right(rounds)[1], *right(rounds)[1:]),
        "leaves out the rounds",
    ),
    (
        lookup.check_averages,
        lambda right, rounds: (
            sum(a for _, a in rounds) / len(rounds),
            sum(a for _, a in rounds) / sum(d > 0 for d, _ in rounds),
            right(rounds)[2],
        ),
        "the target's own",
    ),
    (
        lookup.check_averages,
        lambda right, rounds: (
            *right(rounds)[:2],
            sum(d - a for d, a in rounds) / sum(d for d, _ in rounds),
        ),
        "emitted tokens",
    ),
    (
        lookup.check_best_gamma,
        lambda right, lengths, times: max(
            range(len(times)), key=lambda g: sum(1 + min(max(n, 0), g) for n in lengths) / times[g]
        ),
        "drafts nothing",
    ),
    (lookup.check_best_gamma, lambda right, lengths, times: max(lengths), "longest possible copy"),
    (lookup.check_best_gamma, lambda right, lengths, times: len(times) - 1, "longest draft"),
]

SERVING = [
    (serving.check_minimum_tokens, lambda right, a, g, b: right(a, g, 1), "every row"),
    (serving.check_minimum_tokens, lambda right, a, g, b: right(a, g, b) - 1, "own token"),
    (serving.check_minimum_tokens, lambda right, a, g, b: right(a / b, g, 1), "do not divide"),
    (serving.check_minimum_tokens, lambda right, a, g, b: right(a, g, 1) / b, "for itself"),
    (serving.check_chosen_gamma, lambda right, a, seconds: len(seconds) - 1, "most tokens a round"),
    (serving.check_chosen_gamma, lambda right, a, seconds: 1, "knows no seconds"),
    (
        serving.check_chosen_gamma,
        lambda right, a, seconds: right(a, [1e9, *seconds[1:]]),
        "is a choice too",
    ),
    (
        serving.check_masks,
        lambda right, moves, state, drafted: right(moves, state, [])[:1] * (len(drafted) + 1),
        "root's mask",
    ),
    (
        serving.check_masks,
        lambda right, moves, state, drafted: right(moves, state, drafted)[:-1],
        "bonus token",
    ),
    (
        serving.check_masks,
        lambda right, moves, state, drafted: right(moves, state, drafted)[1:],
        "before the first draft",
    ),
    (
        serving.check_masks,
        lambda right, *given: serving.without_a_guard(*given),
        "−1 is the last state",
    ),
]

TRAINING = [
    (training.check_variation, lambda right, p, q: 2 * right(p, q), "halve it"),
    (training.check_variation, lambda right, p, q: sum(map(min, p, q)), "α itself"),
    (
        training.check_variation,
        lambda right, p, q: float(np.sum(np.array(p) * np.log(np.array(p) / np.array(q)))),
        "KL(p‖q)",
    ),
    (
        training.check_hybrid,
        lambda right, p, q: training._variation(p, q) + training._kl(p, q) - right(p, q),
        "near 1",
    ),
    (training.check_hybrid, lambda right, p, q: training._hybrid(p, q, sign=1.0), "mind the sign"),
    (
        training.check_hybrid,
        lambda right, p, q: training._hybrid(p, q, reverse=True),
        "begins as the forward",
    ),
    (training.check_fed, lambda right, fresh, g, mask: [*right(fresh, g, mask), mask], "too many"),
    (training.check_fed, lambda right, fresh, g, mask: [mask] * (g - 1), "cache lacks"),
    (
        training.check_kept,
        lambda right, ranks, k: sum(rank < k for row in ranks for rank in row) / len(ranks),
        "first miss",
    ),
    (training.check_kept, lambda right, ranks, k: right(ranks, k + 1), "below k"),
    (
        training.check_places,
        lambda right, prompt, rounds: [place + 1 for place in right(prompt, rounds)],
        "one too far",
    ),
    (
        training.check_places,
        lambda right, prompt, rounds: right(prompt, [(kept, True) for kept, _ in rounds]),
        "is a bonus",
    ),
    (
        training.check_places,
        lambda right, prompt, rounds: [prompt + kept for kept, refused in rounds if refused],
        "text grows",
    ),
    (
        training.check_blocks,
        lambda right, alpha, beta, k, passes, c: (
            right(alpha, beta, k, passes, 0) / (1 + k * passes * c)
        ),
        "paid once",
    ),
    (
        training.check_blocks,
        lambda right, alpha, beta, k, passes, c: (
            (right(alpha, beta, k, passes, 0) - 1) / (1 + passes * c)
        ),
        "one token more",
    ),
    (
        training.check_blocks,
        lambda right, alpha, beta, k, passes, c: right(beta, alpha, k, passes, c),
        "exchanged",
    ),
    (
        training.check_blocks,
        lambda right, alpha, beta, k, passes, c: training._blocks(
            alpha, beta, k, passes, c, anew=False
        ),
        "begins anew",
    ),
]

CLAIMS = [
    (claims.check_largest_speedup, lambda right, gamma, c: gamma / (gamma * c + 1), "bonus token"),
    (claims.check_largest_speedup, lambda right, gamma, c: gamma + 1, "cost time"),
    (claims.check_largest_speedup, lambda right, gamma, c: (gamma + 1) / (c + 1), "not once"),
    (
        claims.check_implied_alpha,
        lambda right, s, gamma, c: right(s, gamma, 0.0),
        "assumes free drafts",
    ),
    (claims.check_implied_alpha, lambda right, s, gamma, c: 1 - 1 / s, "γ is finite"),
    (
        claims.check_verdict,
        lambda right, low, high, claimed: 1 if low <= claimed <= high else -1,
        "is undecided",
    ),
    (
        claims.check_verdict,
        lambda right, low, high, claimed: 1 if low + high >= 2 * claimed else -1,
        "the middle of the interval",
    ),
    (claims.check_verdict, lambda right, *case: -right(*case), "are exchanged"),
]

MISTAKES = [
    *TRAINING,
    *SERVING,
    *PAYOFF,
    *DECODING,
    *MEMORY,
    *BLOCKWISE,
    *LOSSLESS,
    *SPEED,
    *MEDUSA,
    *GPU,
    *EAGLE,
    *LEVERS,
    *PREDICTABLE,
    *LOOKAHEAD,
    *STOPPING,
    *SELF_DRAFTS,
    *TREES,
    *LOOKUP,
    *CLAIMS,
]

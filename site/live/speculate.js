// Speculative decoding: draft γ tokens, score them in one pass, verify them, commit the accepted ones. It follows
// specdec_lite with a ModelDrafter step by step (speculation.py, acceptance/, sampling.py), so the same random
// numbers give the same tokens. This module has no imports.

/** Returns the distribution from which a token is drawn. At temperature 0 it is one-hot at the largest logit. A one-hot
 *  distribution is stored as {token}, because a row of the whole vocabulary costs more than it tells. */
export function distribution(logits, temperature) {
  let top = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i] > logits[top]) top = i;
  if (!Number.isFinite(logits[top])) throw new RangeError("the logits hold no finite value");
  if (temperature === 0) return { token: top };
  const probs = new Float64Array(logits.length);
  let mass = 0;
  for (let i = 0; i < logits.length; i++)
    mass += probs[i] = Math.exp((logits[i] - logits[top]) / temperature);
  for (let i = 0; i < logits.length; i++) probs[i] /= mass;
  return probs;
}

/** Returns the probability of a token in a distribution. */
function probability(probs, token) {
  return probs.token === undefined ? probs[token] : Number(probs.token === token);
}

/** Returns the sum of all entries. */
function massOf(probs) {
  let mass = 0;
  for (let token = 0; token < probs.length; token++) mass += probs[token];
  return mass;
}

/** Returns random decisions from a source of uniforms in [0, 1): `flip` with a probability, `draw` from a
 *  distribution. */
export function chance(uniform) {
  return {
    flip: (prob) => uniform() < prob,
    draw(probs) {
      if (probs.token !== undefined) {
        uniform(); // a draw takes one number, whatever the distribution
        return probs.token;
      }
      const aim = uniform() * massOf(probs);
      let sum = 0,
        last = -1;
      for (let token = 0; token < probs.length; token++) {
        if (probs[token] > 0) last = token;
        sum += probs[token];
        if (sum > aim) return token;
      }
      return last; // aim was rounded up to the total
    },
  };
}

/** Returns repeatable random decisions from a seed (generator sfc32, 53 bits from two draws). */
export function seeded(seed) {
  let [a, b, c, weyl] = [seed ^ 0x9e3779b9, seed ^ 0x243f6a88, 0xb7e15162, 1];
  const draw = () => {
    const out = (a + b + weyl++) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + out) | 0;
    return out >>> 0;
  };
  for (let i = 0; i < 16; i++) draw();
  return chance(() => ((draw() >>> 5) * 67108864 + (draw() >>> 6)) / 9007199254740992);
}

/** Returns norm(max(0, p − q)), from which a recovered token is drawn; p itself if nothing can be rejected. */
export function residual(p, q) {
  if (p.token !== undefined) return p;
  const excess = p.slice();
  for (let token = 0; token < p.length; token++)
    excess[token] = Math.max(0, p[token] - probability(q, token));
  const mass = massOf(excess);
  return mass > 0 ? excess.map((prob) => prob / mass) : p;
}

/** Verifies a draft by speculative sampling (Leviathan et al. 2023, algorithm 1). drafted: n tokens. q: the
 *  distributions from which they were drawn. row(i): the target's distribution after i of them, computed only if
 *  needed. Returns the number of accepted tokens, the next token and its kind. */
export function verify(drafted, q, row, rng) {
  for (let i = 0; i < drafted.length; i++) {
    const token = drafted[i],
      p = row(i);
    if (!rng.flip(probability(p, token) / probability(q[i], token)))
      return { accepted: i, token: rng.draw(residual(p, q[i])), kind: "recovered" };
  }
  return {
    accepted: drafted.length,
    token: rng.draw(row(drafted.length)),
    kind: drafted.length ? "bonus" : "sampled",
  };
}

export const NO_DRAFT = { drafted: [], q: [], passes: 0 };

/** Returns the drafter of a smaller model. It drafts γ tokens with the distributions from which they were drawn. The
 *  model is first fed the tokens that its cache lacks. */
export function modelDrafter(draft) {
  return {
    begin: () => {
      draft.length = 0;
    },
    propose(tokens, gamma, temperature, rng) {
      const drafted = [],
        q = [];
      let fed = gamma ? tokens.slice(draft.length) : [];
      for (let i = 0; i < gamma; i++) {
        q.push(distribution(draft.forward(fed, true)[0], temperature));
        drafted.push(rng.draw(q[i]));
        fed = [drafted[i]];
      }
      return { drafted, q, passes: drafted.length };
    },
    // the prompt is read before the first step, which is timed
    prefill: (tokens) => draft.forward(tokens, true),
    keep: (length) => {
      draft.length = Math.min(draft.length, length);
    },
  };
}

/** Returns the value of a pass. If the target computes elsewhere and returns a promise, the promise is yielded, and
 *  `awaited` sends its value back. */
function* resultOf(value) {
  return value instanceof Promise ? yield value : value;
}

/** Returns the steps of `decode` for a target whose passes are promises. */
export async function* awaited(steps) {
  for (let next = steps.next(); !next.done;) {
    if (next.value instanceof Promise) next = steps.next(await next.value);
    else {
      yield next.value;
      next = steps.next();
    }
  }
}

/** Decodes `wanted` tokens after the prompt and yields one step per target pass. draft: a draft model, a drafter
 *  (drafters.js), or null for plain decoding. stop: the token that ends the text. Steps state their milliseconds; no
 *  step includes the prefill. All caches are overwritten. */
export function* decode(
  target,
  draft,
  prompt,
  { gamma, temperature, wanted, rng, stop = -1, clock = () => 0 },
) {
  const tokens = [...prompt],
    drafter = draft?.forward ? modelDrafter(draft) : draft;
  target.length = 0;
  target.onStates = null;
  drafter?.begin(target);
  if (tokens.length > 1) {
    yield* resultOf(target.forward(tokens.slice(0, -1), true));
    drafter?.prefill?.(tokens.slice(0, -1));
  }
  while (wanted > 0) {
    const start = clock();
    const length = drafter ? Math.min(gamma, wanted - 1) : 0;
    const { drafted, q, passes } = drafter?.propose(tokens, length, temperature, rng) ?? NO_DRAFT;
    const proposed = clock();
    const logits = yield* resultOf(target.forward([tokens.at(-1), ...drafted]));
    const scored = clock();
    const verdict = verify(drafted, q, (i) => distribution(logits[i], temperature), rng);
    const emitted = [...drafted.slice(0, verdict.accepted), verdict.token];
    target.length = tokens.length + verdict.accepted;
    drafter?.keep?.(target.length);
    drafter?.observe?.({ ...verdict, drafted });
    const step = cutAt(stop, { ...verdict, drafted, emitted, draftPasses: passes });
    tokens.push(...step.emitted);
    wanted -= step.emitted.length;
    yield { ...step, drafting: proposed - start, verifying: scored - proposed, other: clock() - scored };
    if (step.emitted.at(-1) === stop) return;
  }
}

/** Cuts a step after a drafted stop token: what follows was never tested and is not counted. */
function cutAt(stop, step) {
  const at = step.emitted.indexOf(stop);
  if (at < 0 || at >= step.accepted) return step;
  return {
    ...step,
    accepted: at + 1,
    token: null,
    kind: null,
    drafted: step.drafted.slice(0, at + 1),
    emitted: step.emitted.slice(0, at + 1),
  };
}

/** Returns the tokens of a step in the order in which they are shown: [[kind, text], …]. text(id): a token's text. */
export function fates({ drafted, accepted, kind, token }, text) {
  const drafts = drafted.map((id, i) => [
    i < accepted ? "accepted" : i === accepted && kind === "recovered" ? "rejected" : "unused",
    text(id),
  ]);
  return token === null ? drafts : [...drafts, [kind, text(token)]];
}

/** Returns the counts of one generation, with the names of specdec_lite's Stats. */
export function count(steps) {
  const total = (get) => steps.reduce((sum, step) => sum + get(step), 0);
  const tokens = total((s) => s.emitted.length),
    accepted = total((s) => s.accepted);
  const tested = accepted + total((s) => Number(s.kind === "recovered"));
  return {
    tokens,
    accepted,
    tested,
    passes: steps.length,
    draftPasses: total((s) => s.draftPasses),
    drafted: total((s) => s.drafted.length),
    alpha: tested ? accepted / tested : NaN,
    tau: tokens / steps.length,
    milliseconds: total((s) => s.drafting + s.verifying + s.other),
    drafting: total((s) => s.drafting),
  };
}

// Sources of proposals for SmolLM2 in the page: prompt lookup, the trained EAGLE-1 head, and a choice between them.
// They follow specdec_lite/drafters/copying.py and eagle.py. A drafter has `begin(target)`, called before the
// prompt is read, `propose(tokens, gamma, temperature, rng)` → {drafted, q, passes}, and `observe(step)`. q[i] is the
// distribution from which token i was drawn; a token that was chosen has a one-hot row.

import { CHUNK, LANES, Llama } from "./llama.js";
import { distribution, NO_DRAFT } from "./speculate.js";

/** Proposes what followed the latest earlier occurrence of the text's last tokens. Source: Saxena 2023. */
export class LookupDrafter {
  constructor(longest = 4, shortest = 2) {
    Object.assign(this, { name: "lookup", longest, shortest });
  }

  begin() {}

  observe() {}

  /** Returns the tokens that followed, at most `gamma`; the longest n-gram that occurs earlier decides. */
  find(tokens, gamma) {
    for (let n = Math.min(this.longest, tokens.length - 1); n >= this.shortest; n--) {
      const start = tokens.length - n;
      for (let at = start - 1; at >= 0; at--) {
        let same = 0;
        while (same < n && tokens[at + same] === tokens[start + same]) same++;
        if (same === n) return tokens.slice(at + n, at + n + gamma);
      }
    }
    return [];
  }

  propose(tokens, gamma) {
    const drafted = this.find(tokens, gamma);
    return { drafted, q: drafted.map((token) => ({ token })), passes: 0 };
  }
}

/** Returns a matrix whose rows are some rows of a matrix in groups of 8-bit integers, copied to new memory. ids: the
 *  rows, a multiple of 16 of them. */
function gatherRows(kernel, { at, cols }, ids) {
  const blocks = cols / 32,
    bytes = 272,
    to = kernel.allocate((ids.length / LANES) * blocks * bytes);
  const memory = kernel.bytes(0, kernel.size());
  ids.forEach((id, row) => {
    const [lane, own] = [id % LANES, row % LANES];
    for (let b = 0; b < blocks; b++) {
      const from = at + (Math.floor(id / LANES) * blocks + b) * bytes,
        start = to + (Math.floor(row / LANES) * blocks + b) * bytes;
      for (let i = 0; i < 2; i++) memory[start + 2 * own + i] = memory[from + 2 * lane + i];
      for (let i = 0; i < 32; i++)
        memory[start + 16 + i * LANES + own] = memory[from + 16 + i * LANES + lane];
    }
  });
  return { at: to, rows: ids.length, cols, bits: 8 };
}

/** Drafts with one block that continues from the target's states. It is fed pairs: the state of token i and the
 *  embedding of token i + 1. It predicts token i + 2, and its output replaces the state of token i + 1 in the next
 *  drafted pair. Source: Li et al. 2024, section 3. */
export class HeadDrafter {
  /** config, tensors, ids: the head's entry of the manifest; ids: tokens of the draft's vocabulary. base: address of
   *  the file in the kernel's memory. */
  constructor(kernel, { config, tensors, ids }, base, target, capacity) {
    const { hidden } = config,
      floats = (count) => kernel.allocate(4 * count);
    Object.assign(this, { name: "head", kernel, target, ids, hidden, vocab: target.config.vocab });
    this.model = new Llama(kernel, { config, tensors }, base, "", capacity);
    this.model.head = gatherRows(kernel, target.embedding, ids);
    this.fuse = { at: base + tensors.fuse.offset, ...tensors.fuse };
    this.embedded = floats(CHUNK * hidden);
    this.pairs = floats(CHUNK * 2 * hidden);
    this.states = new Map(); // position → the target's state of the token there, until its pair has been fed
  }

  begin(target) {
    this.model.length = 0;
    this.states.clear();
    target.onStates = (address, first, n) => {
      const rows = this.kernel.floats(address, n * this.hidden);
      for (let i = 0; i < n; i++)
        this.states.set(first + i, rows.slice(i * this.hidden, (i + 1) * this.hidden));
    };
  }

  observe() {}

  /** Feeds pairs of a token and the state before it; returns the logits after the last one and its output. */
  #feed(tokens, states) {
    const { kernel, model, hidden } = this;
    let logits = null;
    for (let start = 0; start < tokens.length; start += CHUNK) {
      const some = tokens.slice(start, start + CHUNK),
        n = some.length;
      this.target.embed(some, this.embedded);
      const from = kernel.floats(this.embedded, n * hidden),
        to = kernel.floats(this.pairs, 2 * n * hidden);
      for (let i = 0; i < n; i++) {
        to.set(from.subarray(i * hidden, (i + 1) * hidden), 2 * i * hidden);
        to.set(states[start + i], (2 * i + 1) * hidden);
      }
      model.multiply(this.pairs, this.fuse, model.stream, n);
      model.runBlocks(n);
      if (start + n === tokens.length) {
        const last = kernel.floats(model.stream + 4 * (n - 1) * hidden, hidden).slice();
        [logits] = model.score(n, true);
        return { logits, state: last };
      }
    }
    throw new RangeError("no pair to feed");
  }

  /** Returns the draft's distribution over the target's vocabulary. */
  #spread(logits, temperature) {
    const small = distribution(logits, temperature);
    if (small.token !== undefined) return { token: this.ids[small.token] };
    const row = new Float64Array(this.vocab);
    this.ids.forEach((id, i) => {
      row[id] = small[i];
    });
    return row;
  }

  propose(tokens, gamma, temperature, rng) {
    if (!gamma || tokens.length < 2) return NO_DRAFT;
    const { model } = this,
      committed = tokens.length - 1; // pairs of committed tokens
    model.length = Math.min(model.length, committed);
    const first = model.length,
      states = Array.from({ length: committed - first }, (_, i) => this.states.get(first + i));
    let { logits, state } = this.#feed(tokens.slice(first + 1), states);
    for (const position of this.states.keys()) if (position < committed) this.states.delete(position);
    const drafted = [],
      q = [];
    for (let i = 0; i < gamma; i++) {
      if (i) ({ logits, state } = this.#feed([drafted[i - 1]], [state]));
      q.push(this.#spread(logits, temperature));
      drafted.push(rng.draw(q[i]));
    }
    model.length = committed; // the next round feeds these pairs again, with the target's own states
    return { drafted, q, passes: gamma };
  }
}

const MEMORY = 0.9; // weight of the past in the counts of accepted and tested tokens
const PRIOR = { lookup: [3, 4], head: [2, 4] }; // accepted and tested tokens before the first round
const RETURN = 0.1; // share by which a round without a draft moves the counts back to those before the first round
const TRIAL = 8; // rounds without a draft before one draft of one token is tried, if a kept one would pay
const CREDIT = 1; // plain passes that drafting may lose from the start …
const LOSS = 0.02; // … and for each emitted token

/** Returns the predicted speedup of a draft length: expected tokens ÷ cost of a round in plain passes. passes[k − 1]:
 *  time of a target pass over k tokens; draft: time of a draft pass. Source: Leviathan et al. 2023, theorem 3.8, with
 *  the measured cost of verification. */
export function predictedSpeedup(gamma, alpha, { passes, draft }) {
  let expected = 1;
  for (let i = 1; i <= gamma; i++) expected += alpha ** i;
  return (expected * passes[0]) / (passes[gamma] + gamma * draft);
}

/** Drafts with the source and the length that promise the largest speedup, from the costs measured on this device and
 *  the acceptance of recent rounds. Where no draft promises a gain, the round is plain. Rejections are forgotten, so
 *  that drafting starts again, and what it may lose in total is bounded. */
export class ChosenDrafter {
  /** sources: drafters; those that find nothing to propose are skipped. */
  constructor(...sources) {
    Object.assign(this, { sources, costs: null, used: null, roundCost: 1 });
  }

  begin(target) {
    this.counts = new Map(this.sources.map((source) => [source, [...PRIOR[source.name]]]));
    Object.assign(this, { plain: 0, emitted: 0, cost: 0 });
    for (const source of this.sources) source.begin(target);
  }

  #costsOf(source) {
    return { passes: this.costs.target, draft: source.find ? 0 : this.costs.draft };
  }

  /** Returns what a round costs, in plain passes. */
  #cost(source, gamma) {
    const { passes, draft } = this.#costsOf(source);
    return (passes[gamma] + gamma * draft) / passes[0];
  }

  /** Returns whether a round may be lost: it emits at least one token. */
  #isAffordable(source, gamma) {
    const loss = this.cost + this.#cost(source, gamma) - (this.emitted + 1);
    return loss <= CREDIT + LOSS * this.emitted;
  }

  /** Returns the best source and length: {source, gamma, speedup}. */
  #plan(tokens, longest) {
    let best = { source: null, gamma: 0, speedup: 1 };
    for (const source of this.sources) {
      if (source.find && !source.find(tokens, 1).length) continue;
      const [accepted, tested] = this.counts.get(source);
      for (let gamma = 1; gamma <= longest && this.#isAffordable(source, gamma); gamma++) {
        const speedup = predictedSpeedup(gamma, accepted / tested, this.#costsOf(source));
        if (speedup > best.speedup) best = { source, gamma, speedup };
      }
      const isTrial = this.plain >= TRIAL && longest && this.#isAffordable(source, 1);
      if (!best.source && isTrial && predictedSpeedup(1, 1, this.#costsOf(source)) > 1)
        best = { source, gamma: 1, speedup: 0 };
    }
    return best;
  }

  propose(tokens, gamma, temperature, rng) {
    const plan = this.#plan(tokens, gamma);
    this.used = plan.source;
    this.plain = plan.source ? 0 : this.plain + 1;
    const proposal = plan.source ? plan.source.propose(tokens, plan.gamma, temperature, rng) : NO_DRAFT;
    this.roundCost = plan.source ? this.#cost(plan.source, proposal.drafted.length) : 1;
    return proposal;
  }

  observe({ accepted, kind }) {
    this.emitted += accepted + 1;
    this.cost += this.roundCost;
    if (!this.used) {
      for (const [source, counts] of this.counts)
        PRIOR[source.name].forEach((prior, i) => {
          counts[i] += RETURN * (prior - counts[i]);
        });
      return;
    }
    const counts = this.counts.get(this.used);
    counts[0] = MEMORY * counts[0] + accepted;
    counts[1] = MEMORY * counts[1] + accepted + (kind === "recovered" ? 1 : 0);
  }
}

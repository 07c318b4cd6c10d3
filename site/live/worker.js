// The worker behind the live page: it holds the models, decodes both ways, and measures what a pass costs on this device.
// The page's own thread never computes, so it never freezes. Messages in: load, run. Messages out: ready, trace, result, failed.

import { loadKernel } from "./kernel.js";
import { Llama } from "./llama.js";
import { Tokenizer } from "./bpe.js";
import { count, decode, seeded } from "./speculate.js";

const CAPACITY = 512; // positions a cache holds
const WANTED = 96; // tokens decoded in a run, fewer on a slow device
const PATIENCE = 3000; // milliseconds that a plain run should not exceed by much
const MAX_GAMMA = 8;
const REPEATS = 3; // timed runs each way
const PASSES = 5; // timed passes of each width
const WARM_UP = 16; // tokens decoded before anything is timed

/** Both models in a kernel of their own, in the asked format. kernels: compiled, by name; weights: the download. */
export async function build({ kernels, manifest, weights, format }) {
  const kernel = await loadKernel(kernels);
  const [target, draft] = ["target", "draft"].map((name) => new Llama(kernel, manifest.models[name], weights, format, CAPACITY));
  return { kernel, target, draft, tokenizer: new Tokenizer(manifest.tokenizer), wanted: 0 };
}

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

/** The prompt's ids, cut at the front to what the cache holds beside the new tokens. */
function read(tokenizer, text) {
  const ids = tokenizer.encode(text), most = CAPACITY - WANTED - MAX_GAMMA;
  return { ids: ids.slice(-most), cut: Math.max(0, ids.length - most) };
}

/** Plain and speculative decoding with one seed, in turns; the order alternates, so that neither always comes first. */
function race(engine, ids, { gamma, temperature, seed }, post) {
  const { target, draft } = engine, clock = () => performance.now();
  const once = (speculative, wanted = engine.wanted) =>
    [...decode(target, speculative ? draft : null, ids, { gamma, temperature, wanted, rng: seeded(seed), stop: 0, clock })];
  if (!engine.wanted) {
    const [, plain] = [true, false, true].map((way) => count(once(way, WARM_UP)));
    engine.wanted = Math.min(WANTED, Math.max(WARM_UP, Math.round(PATIENCE * plain.tokens / plain.milliseconds)));
  }
  const runs = { plain: [], speculative: [] };
  for (let turn = 0; turn < REPEATS; turn++) {
    for (const way of turn % 2 ? ["plain", "speculative"] : ["speculative", "plain"]) {
      runs[way].push(once(way === "speculative"));
      if (turn === 0 && way === "speculative") post.trace(runs.speculative[0]);
    }
    post.turn(turn + 1);
  }
  return runs;
}

/** Milliseconds of a target pass over k tokens, k = 1 … MAX_GAMMA + 1, and of a draft pass, at this prompt's length:
 *  medians; the widths take turns, so that a device that slows down slows them all. Short passes are timed in batches,
 *  because browsers round their clock. */
function costs({ target, draft }, ids) {
  const fed = Array.from({ length: MAX_GAMMA + 1 }, (_, i) => ids[i % ids.length]);
  const timed = (model, tokens, times) => {
    const began = performance.now();
    for (let i = 0; i < times; i++, model.length = ids.length) model.forward(tokens);
    return (performance.now() - began) / times;
  };
  for (const model of [target, draft]) {
    model.length = 0;
    model.forward(ids, true);
  }
  const passes = fed.map(() => []), drafts = [];
  for (let turn = 0; turn <= PASSES; turn++) {
    fed.forEach((_, i) => passes[i].push(timed(target, fed.slice(0, i + 1), 2)));
    drafts.push(timed(draft, fed.slice(0, 1), 20));
  }
  return { target: passes.map((each) => median(each.slice(1))), draft: median(drafts.slice(1)) };
}

/** Milliseconds per token of each run: texts drawn at a temperature above 0 may differ in length. */
const perToken = (runs) => runs.map((steps) => count(steps)).map(({ milliseconds, tokens }) => milliseconds / tokens);

export function run(engine, options, post = () => {}) {
  const { tokenizer } = engine, { ids, cut } = read(tokenizer, options.prompt);
  if (!ids.length) throw new RangeError("The prompt is empty: type at least one character.");
  const began = performance.now();
  const text = (steps) => steps.map((step) => ({ ...step, drafted: step.drafted.map((id) => tokenizer.decode([id])),
    token: step.token === null ? null : tokenizer.decode([step.token]) }));
  const runs = race(engine, ids, options, {
    trace: (steps) => post({ type: "trace", steps: text(steps), cut, milliseconds: performance.now() - began }),
    turn: (turn) => post({ type: "turn", turn, of: REPEATS }),
  });
  const [plain, speculative] = [perToken(runs.plain), perToken(runs.speculative)];
  const same = JSON.stringify(runs.plain[0].map((s) => s.emitted[0])) === JSON.stringify(runs.speculative[0].flatMap((s) => s.emitted));
  const stats = count(runs.speculative[0]);
  const inLoop = median(runs.speculative.map((steps) => count(steps)).map((s) => s.drafting / (s.draftPasses || 1)));
  const result = { stats, plain, speculative, plainTokens: runs.plain[0].length, speedup: median(plain) / median(speculative), same,
    costs: { ...costs(engine, ids), inLoop }, memory: engine.kernel.size(), kernel: engine.kernel.name, simd: engine.kernel.simd, options, cut };
  post({ type: "result", ...result });
  return result;
}

/** Answers the page. One engine at a time: another format replaces it. */
function serve(scope) {
  let loaded = null, engine = null;
  const answer = {
    async load(message) {
      loaded = message;
      engine = await build(message);
      scope.postMessage({ type: "ready", simd: engine.kernel.simd });
    },
    async run({ options }) {
      if (options.format !== loaded.format) {
        loaded = { ...loaded, format: options.format };
        engine = null;
        engine = await build(loaded);
      }
      run(engine, options, (message) => scope.postMessage(message));
    },
  };
  scope.addEventListener("message", async ({ data }) => {
    try {
      await answer[data.type](data);
    } catch (error) {
      scope.postMessage({ type: "failed", during: data.type, text: error.message });
    }
  });
}

if (typeof WorkerGlobalScope !== "undefined") serve(globalThis);

// The worker behind the live page: it holds the models, decodes both ways, and measures what a pass costs on
// this device. The page's own thread never computes, so it never freezes. Messages in: piece, load, run. Out:
// progress, ready, trace, turn, result, failed.

import { loadKernel } from "./kernel.js";
import { Llama } from "./llama.js";
import { Tokenizer } from "./bpe.js";
import { count, decode, seeded } from "./speculate.js";
import { bytesOf, fetched, joined } from "./weights.js";

const CAPACITY = 512; // positions a cache holds
const WANTED = 96; // tokens decoded in a run, fewer on a slow device
const PATIENCE = 3000; // milliseconds that a plain run should not exceed by much
const MAX_GAMMA = 8;
const REPEATS = 3; // timed runs each way
const PASSES = 5; // timed batches of passes of each width; REPEATS on a slow device
const FEWEST = 16; // tokens decoded in a run on the slowest device
const NEWS = 100; // milliseconds between two messages with decoded text

/** Both models in a kernel of their own, the target in the asked format; the draft is fastest in int8.
 *  kernels: compiled, by name; weights: the download. */
export async function build({ kernels, manifest, weights, format }) {
  const kernel = await loadKernel(kernels);
  const model = (name, held) => new Llama(kernel, manifest.models[name], weights, held, CAPACITY);
  return {
    kernel,
    format,
    target: model("target", format),
    draft: model("draft", "int8"),
    tokenizer: new Tokenizer(manifest.tokenizer),
    wanted: 0,
  };
}

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b),
    middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

/** The prompt's ids, cut at the front to what the cache holds beside the new tokens. */
function read(tokenizer, text) {
  const ids = tokenizer.encode(text),
    most = CAPACITY - WANTED - MAX_GAMMA;
  return { ids: ids.slice(-most), cut: Math.max(0, ids.length - most) };
}

const clock = () => performance.now();

/** Either way of decoding, from the start: the same seed gives the same text each time. */
function decoder({ target, draft }, ids, { gamma, temperature, seed }) {
  return (way, wanted) =>
    decode(target, way === "plain" ? null : draft, ids, {
      gamma,
      temperature,
      wanted,
      rng: seeded(seed),
      stop: 0,
      clock,
    });
}

/** The run that the page shows, posted while it goes on. Not timed: it and a short plain one warm the code
 *  up. */
function show(engine, once, post) {
  const began = clock(),
    steps = [];
  let posted = -Infinity,
    sent = 0;
  if (!engine.wanted) {
    const { drafting, verifying } = once("speculative", WANTED).next().value;
    engine.wanted = Math.min(WANTED, Math.max(FEWEST, Math.round(PATIENCE / (drafting + verifying))));
  }
  const news = (last) => {
    post({ steps: steps.slice(sent), last, milliseconds: clock() - began });
    [sent, posted] = [steps.length, clock()];
  };
  for (const step of once("speculative", engine.wanted)) {
    steps.push(step);
    if (clock() - posted > NEWS) news(false);
  }
  news(true);
  [...once("plain", FEWEST)];
}

/** Plain and speculative decoding in turns; the order alternates, so that neither always comes first. */
function race(engine, once, post) {
  const runs = { plain: [], speculative: [] };
  for (let turn = 0; turn < REPEATS; turn++) {
    for (const way of turn % 2 ? ["plain", "speculative"] : ["speculative", "plain"])
      runs[way].push([...once(way, engine.wanted)]);
    post({ turn: turn + 1, of: REPEATS });
  }
  return runs;
}

/** Milliseconds of a target pass over k tokens, k = 1 … MAX_GAMMA + 1, and of a draft pass, at this
 *  prompt's length: medians; the widths take turns, so that a device that slows down slows them all. Short
 *  passes are timed in batches, because browsers round their clock. */
function costs({ target, draft, wanted }, ids) {
  const slow = wanted < WANTED,
    turns = slow ? REPEATS : PASSES;
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
  const passes = fed.map(() => []),
    drafts = [];
  for (let turn = 0; turn <= turns; turn++) {
    fed.forEach((_, i) => passes[i].push(timed(target, fed.slice(0, i + 1), slow ? 1 : 2)));
    drafts.push(timed(draft, fed.slice(0, 1), slow ? 2 : 20));
  }
  return { target: passes.map((each) => median(each.slice(1))), draft: median(drafts.slice(1)) };
}

/** Milliseconds per token of each run: texts drawn at a temperature above 0 may differ in length. */
const perToken = (runs) =>
  runs.map((steps) => count(steps)).map(({ milliseconds, tokens }) => milliseconds / tokens);

export function run(engine, options, post = () => {}) {
  const { tokenizer } = engine,
    { ids, cut } = read(tokenizer, options.prompt);
  if (!ids.length) throw new RangeError("The prompt is empty: type at least one character.");
  const once = decoder(engine, ids, options);
  const text = (steps) =>
    steps.map((step) => ({
      ...step,
      drafted: step.drafted.map((id) => tokenizer.decode([id])),
      token: step.token === null ? null : tokenizer.decode([step.token]),
    }));
  show(engine, once, ({ steps, ...rest }) => post({ type: "trace", steps: text(steps), cut, ...rest }));
  const runs = race(engine, once, (turn) => post({ type: "turn", ...turn }));
  const [plain, speculative] = [perToken(runs.plain), perToken(runs.speculative)];
  const same =
    JSON.stringify(runs.plain[0].map((s) => s.emitted[0])) ===
    JSON.stringify(runs.speculative[0].flatMap((s) => s.emitted));
  const stats = count(runs.speculative[0]);
  const inLoop = median(
    runs.speculative.map((steps) => count(steps)).map((s) => s.drafting / (s.draftPasses || 1)),
  );
  const duration = ({ drafting, verifying, other }) => drafting + verifying + other;
  const usual = [...runs.speculative].sort((a, b) => count(a).milliseconds - count(b).milliseconds)[
    REPEATS >> 1
  ];
  const result = {
    stats,
    plain,
    speculative,
    passTimes: usual.map(duration),
    plainTokens: runs.plain[0].length,
    speedup: median(plain) / median(speculative),
    same,
    costs: { ...costs(engine, ids), inLoop },
    memory: engine.kernel.size(),
    kernel: engine.kernel.name,
    simd: engine.kernel.simd,
    options,
    cut,
  };
  post({ type: "result", ...result });
  return result;
}

/** Answers the page. One engine at a time: another format replaces it. */
function serve(scope) {
  const pieces = [];
  let loaded = null,
    engine = null;
  const answer = {
    // a page opened from a folder hands the weights over itself, before `load`
    piece: ({ text }) => pieces.push(bytesOf(text)),
    async load({ kernels, manifest, format, url, again }) {
      const progress = (share) => scope.postMessage({ type: "progress", share });
      const weights = await joined(
        url ? await fetched(url, manifest.bytes, again, progress) : pieces,
        manifest,
      );
      pieces.length = 0;
      const compiled = Object.fromEntries(
        Object.entries(kernels).map(([name, base64]) => [name, bytesOf(base64)]),
      );
      loaded = { kernels: compiled, manifest, weights };
      engine = await build({ ...loaded, format });
      scope.postMessage({ type: "ready", simd: engine.kernel.simd });
    },
    async run({ options }) {
      if (engine?.format !== options.format) {
        engine = null; // its memory goes before the next one's comes
        engine = await build({ ...loaded, format: options.format });
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

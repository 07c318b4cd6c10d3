// The live page's worker. It contains the models, decodes with and without drafts, and measures the cost of a pass
// on this device, so that the page's own thread never freezes. It receives the messages piece, load and run, and
// sends progress, ready, trace, turn, result, failed and, while it computes, signs of life.

import { loadKernel } from "./kernel.js";
import { Llama } from "./llama.js";
import { GpuLlama, gpuDevice } from "./gpu.js";
import { HeadDrafter, LookupDrafter } from "./drafters.js";
import { lacksMemory, lineFor, ReaderError, sendSignsBy } from "./failure.js";
import { Tokenizer } from "./bpe.js";
import { median } from "./median.js";
import { count, decode, fates, seeded } from "./speculate.js";
import { bytesOf, download, downloadShards, join, joined, placeShards } from "./weights.js";
import { clock, compared, race } from "./asked.js";

const CAPACITY = 1024; // positions in a cache of the small pair
const LARGE_CAPACITY = 1024; // positions in a cache of SmolLM2
const WANTED = 512; // tokens per run, so that a race takes some seconds; fewer on a slow device
const PATIENCE = 4500; // milliseconds that a plain run may take, approximately
const MAX_GAMMA = 8;
const REPEATS = 3; // timed runs with drafts, and as many without
const PASSES = 5; // timed batches of passes of each width; REPEATS on a slow device
const BATCH = 20; // milliseconds of a batch, at least: Firefox rounds its clock to one
const FEWEST = 16; // tokens per run on the slowest device
const INTERVAL = 100; // milliseconds between two messages with decoded text

/** Builds both models in a new kernel, the target in the given format and the draft in int8, which is fastest.
 *  kernels: compiled kernels by name. weights: the downloaded file. */
export async function build({ kernels, manifest, weights, format }) {
  const kernel = await loadKernel(kernels);
  const model = (name, stored) => new Llama(kernel, manifest.models[name], weights, stored, CAPACITY);
  return {
    kernel,
    format,
    target: model("target", format),
    draft: model("draft", "int8"),
    tokenizer: new Tokenizer(manifest.tokenizer),
    wanted: 0,
  };
}

const NOT_ISOLATED =
  "Several threads need a page that its server isolates (headers COOP and COEP), and this page came without them.";

/** Builds SmolLM2 and its drafters in a new kernel. fill(kernel, address): copies the weights file to that address of
 *  the kernel's memory. threads: above 1 for kernels with shared memory; whyOne: why there is one; plain: the kernels
 *  for one thread, should others not start. The result's `ways` are what can compute the target's passes; `missing`
 *  says why another cannot. */
export async function buildSmollm2({
  kernels,
  manifest,
  fill,
  capacity = LARGE_CAPACITY,
  threads = 1,
  whyOne = NOT_ISOLATED,
  plain = kernels,
}) {
  let kernel = threads > 1 ? await loadKernel(kernels, threads).catch(() => null) : await loadKernel(kernels);
  if (!kernel) {
    [threads, whyOne] = [1, "This browser did not start the threads."];
    kernel = await loadKernel(plain);
  }
  const base = kernel.allocate(manifest.bytes);
  await fill(kernel, base);
  const target = new Llama(kernel, manifest.models.target, base, "", capacity);
  const lookup = new LookupDrafter(),
    head = new HeadDrafter(kernel, manifest.models.head, base, target, capacity);
  const ways = { one: { target, threads: 1 } },
    missing = {};
  if (threads > 1) ways.threads = { target, threads };
  else missing.threads = whyOne;
  try {
    const gpu = new GpuLlama(await gpuDevice(manifest.bytes), target, base, manifest.bytes);
    ways.gpu = { target: gpu, threads };
  } catch (error) {
    missing.gpu = lineFor(error, "The graphics processor could not be used.");
  }
  kernel.threads = 1;
  return {
    kernel,
    target,
    ways,
    missing,
    way: "one",
    drafters: { lookup, head },
    tokenizer: new Tokenizer(manifest.tokenizer),
    chat: manifest.chat,
    stop: manifest.stop,
    capacity,
  };
}

const MOST_THREADS = 4; // at most: more wait for each other longer than they help at this model's size

/** Returns the kernels for several threads, {kernels, threads}, or those for one and why, {kernels, whyOne}. */
async function sharedKernels(kernels, base) {
  const threads = Math.min(MOST_THREADS, navigator.hardwareConcurrency ?? 1);
  if (!globalThis.crossOriginIsolated) return { kernels };
  if (threads < 2) return { kernels, whyOne: "This device offers one processor core." };
  const load = async (name) => [
    name,
    joined(await download(`${base}kernel-${name}-threads.wasm`, Infinity, false, () => {})),
  ];
  try {
    const shared = Object.fromEntries(await Promise.all(Object.keys(kernels).map(load)));
    if (Object.values(shared).some((each) => WebAssembly.validate(each))) return { kernels: shared, threads };
    throw new Error("no kernel of this book"); // a login page, for example
  } catch {
    return { kernels, whyOne: "The kernel for several threads could not be loaded." };
  }
}

/** Returns the prompt's ids, without the first ones if they do not fit in the cache beside the new tokens. */
function read(tokenizer, text) {
  const ids = tokenizer.encode(text),
    room = CAPACITY - WANTED - MAX_GAMMA;
  return { ids: ids.slice(-room), cut: Math.max(0, ids.length - room) };
}

/** Returns a function that decodes from the start, plainly or speculatively; a seed gives the same text each time. */
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

/** Decodes the run that the page shows, and posts it while it decodes. This run is not timed: it warms up the code,
 *  with a short plain run. */
function show(engine, once, post) {
  const start = clock(),
    steps = [];
  let posted = -Infinity,
    sent = 0;
  if (!engine.wanted) {
    const { drafting, verifying } = once("speculative", WANTED).next().value;
    engine.wanted = Math.min(WANTED, Math.max(FEWEST, Math.round(PATIENCE / (drafting + verifying))));
  }
  const postSteps = (last) => {
    post({ steps: steps.slice(sent), last, milliseconds: clock() - start });
    [sent, posted] = [steps.length, clock()];
  };
  for (const step of once("speculative", engine.wanted)) {
    steps.push(step);
    if (clock() - posted > INTERVAL) postSteps(false);
  }
  postSteps(true);
  [...once("plain", FEWEST)];
}

/** Times plain and speculative decoding alternately; which comes first alternates too. */
function compare(engine, once, post) {
  const runs = { plain: [], speculative: [] };
  for (let turn = 0; turn < REPEATS; turn++) {
    for (const way of turn % 2 ? ["plain", "speculative"] : ["speculative", "plain"])
      runs[way].push([...once(way, engine.wanted)]);
    post({ turn: turn + 1, of: REPEATS });
  }
  return runs;
}

/** Returns the median milliseconds of a target pass for k tokens, k = 1 … MAX_GAMMA + 1, and of a draft pass, at this
 *  prompt's length. The widths alternate, so that a device that slows down affects them all. Short passes are timed
 *  in batches, because browsers round their clock. */
function costs({ target, draft, wanted }, ids) {
  const turns = wanted < WANTED ? REPEATS : PASSES;
  const fed = Array.from({ length: MAX_GAMMA + 1 }, (_, i) => ids[i % ids.length]);
  const timed = (model, tokens) => {
    const start = clock();
    let [count, time] = [0, 0];
    for (; time < BATCH; time = clock() - start, count++) {
      model.forward(tokens);
      model.length = ids.length;
    }
    return time / count;
  };
  for (const model of [target, draft]) {
    model.length = 0;
    model.forward(ids, true);
  }
  const passes = fed.map(() => []),
    drafts = [];
  for (let turn = 0; turn <= turns; turn++) {
    fed.forEach((_, i) => passes[i].push(timed(target, fed.slice(0, i + 1))));
    drafts.push(timed(draft, fed.slice(0, 1)));
  }
  return { target: passes.map((each) => median(each.slice(1))), draft: median(drafts.slice(1)) };
}

/** Runs one request: decodes for the page, times both ways, measures costs, and posts the result. */
export function run(engine, options, post = () => {}) {
  const { tokenizer } = engine,
    { ids, cut } = read(tokenizer, options.prompt);
  if (!ids.length) throw new ReaderError("The prompt is empty: type at least one character.");
  const once = decoder(engine, ids, options);
  const text = (id) => tokenizer.decode([id]),
    shown = (steps) => steps.map((step) => ({ ...step, words: fates(step, text) }));
  show(engine, once, ({ steps, ...rest }) => post({ type: "trace", steps: shown(steps), cut, ...rest }));
  const runs = compare(engine, once, (turn) => post({ type: "turn", ...turn }));
  const { typical, ...told } = compared(runs);
  const inLoop = median(
    runs.speculative.map((steps) => count(steps)).map((s) => s.drafting / (s.draftPasses || 1)),
  );
  const duration = ({ drafting, verifying, other }) => drafting + verifying + other;
  const result = {
    ...told,
    passTimes: typical.speculative.map(duration),
    plainTokens: runs.plain[0].length,
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

const compiledOf = (kernels) =>
  Object.fromEntries(Object.entries(kernels).map(([name, base64]) => [name, bytesOf(base64)]));

/** Answers the page's messages. There is one engine; a different format replaces it. */
function serve(scope) {
  sendSignsBy(() => scope.postMessage({ type: "sign" }));
  const pieces = [];
  let parts = null,
    engine = null;
  const answer = {
    // a page opened from a folder sends the weights itself, before `load`
    piece: ({ text }) => pieces.push(bytesOf(text)),
    async load({ kernels, manifest, format, url, again }) {
      const progress = (share) => scope.postMessage({ type: "progress", share });
      const weights = await join(
        url ? await download(url, manifest.bytes, again, progress) : pieces,
        manifest,
      );
      pieces.length = 0;
      parts = { kernels: compiledOf(kernels), manifest, weights };
      engine = await build({ ...parts, format });
      scope.postMessage({ type: "ready", simd: engine.kernel.simd });
    },
    async loadSmollm2({ kernels, base, published }) {
      const compiled = compiledOf(kernels);
      if (!Object.values(compiled).some((each) => WebAssembly.validate(each)))
        throw new ReaderError(
          "This browser has no WebAssembly SIMD, and without it SmolLM2 would need seconds per word. The small pair runs without it.",
        );
      const progress = (share) => scope.postMessage({ type: "progress", share });
      const [own, ...shards] = pieces.splice(0), // without an address the page has sent all pieces
        url = `${base}smollm2.json?${published.sha256.slice(0, 16)}`, // no older copy in a cache
        text = base ? await download(url, published.bytes, false, () => {}) : [own ?? new Uint8Array()],
        manifest = JSON.parse(new TextDecoder().decode(await join(text, published)));
      const fill = (kernel, address) => {
        const place = (bytes, offset) => kernel.bytes(address + offset, bytes.length).set(bytes);
        return base
          ? downloadShards(base, manifest, place, progress)
          : placeShards(manifest, shards, place, progress);
      };
      try {
        engine = await buildSmollm2({
          manifest,
          fill,
          plain: compiled,
          ...(await sharedKernels(compiled, base)),
        });
      } catch (error) {
        if (!lacksMemory(error)) throw error;
        throw new ReaderError(
          "This browser could not give the page enough memory (about 160 MB). Close other tabs and try again.",
        );
      }
      scope.postMessage({ type: "ready" });
    },
    async ask({ options }) {
      const result = await race(engine, options, (message) => scope.postMessage(message));
      scope.postMessage({ type: "result", ...result });
    },
    async run({ options }) {
      if (engine?.format !== options.format) {
        engine = null; // frees its memory before the next engine allocates its own
        engine = await build({ ...parts, format: options.format });
      }
      run(engine, options, (message) => scope.postMessage(message));
    },
  };
  scope.addEventListener("message", async ({ data }) => {
    try {
      await answer[data.type](data);
    } catch (error) {
      scope.postMessage({ type: "failed", during: data.type, text: lineFor(error) });
    }
  });
}

if (typeof WorkerGlobalScope !== "undefined") serve(globalThis);

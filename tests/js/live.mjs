// node live.mjs < JSON {folder, job, …}: runs the live page's modules without a page. Prints JSON.
import { readFileSync } from "node:fs";
import v8 from "node:v8";
import { loadKernel } from "../../site/live/kernel.js";
import { Llama } from "../../site/live/llama.js";
import { Tokenizer } from "../../site/live/bpe.js";
import { chance, count, decode, seeded } from "../../site/live/speculate.js";
import { doubtAbout, explanation, interval } from "../../site/live/explain.js";
import { STOPS } from "../../site/live/tour.js";
import { lesson, summary } from "../../site/live/ask.js";
import { sharedRun, sharedRuns, shareFragment } from "../../site/live/share.js";
import { computeWith, drafterOf, fastestWay, promptIds, tryWays } from "../../site/live/asked.js";
import { startThreads } from "../../site/live/threads.js";
import { ChosenDrafter, LookupDrafter } from "../../site/live/drafters.js";
import { build, buildSmollm2, run } from "../../site/live/worker.js";

v8.setFlagsFromString("--experimental-wasm-relaxed-simd"); // on by default from node 21 on
const request = JSON.parse(readFileSync(0, "utf8"));

const manifestOf = (folder, name) => JSON.parse(readFileSync(`${folder}/${name}.json`, "utf8"));

// kernel: the only kernel to load; without it all kernels are offered, as on the page.
function kernelsOf({ folder, kernel }) {
  const names = kernel === "scalar" ? [] : kernel ? [kernel] : ["relaxed", "simd"];
  return Object.fromEntries(names.map((name) => [name, readFileSync(`${folder}/kernel-${name}.wasm`)]));
}

// Builds the engine.
async function engine({ folder, format, kernel, capacity }) {
  const manifest = manifestOf(folder, "manifest"),
    file = readFileSync(`${folder}/weights.bin`),
    kernels = kernelsOf({ folder, kernel });
  const weights = file.buffer.slice(file.byteOffset, file.byteOffset + file.length);
  if (!capacity) return build({ kernels, manifest, weights, format });
  const loaded = await loadKernel(kernels);
  const [target, draft] = ["target", "draft"].map(
    (name) => new Llama(loaded, manifest.models[name], weights, format, capacity),
  );
  return { kernel: loaded, target, draft };
}

// Builds a model in groups, as SmolLM2 is, from its shards.
function groupedEngine({ folder, kernel, capacity, threads }) {
  const manifest = manifestOf(folder, "smollm2"),
    kernels = kernelsOf({ folder, kernel });
  const fill = (to, address) => {
    let at = address;
    for (const { name } of manifest.shards) {
      const bytes = readFileSync(`${folder}/${name}`);
      to.bytes(at, bytes.length).set(bytes);
      at += bytes.length;
    }
  };
  return buildSmollm2({ kernels, manifest, fill, capacity, threads });
}

// Returns the logits of some passes, as base64.
function logitsOf(model, passes) {
  const rows = passes.flatMap(({ start, tokens, last }) => {
    model.length = start;
    return model.forward(tokens, last).map((row) => Buffer.from(Float32Array.from(row).buffer));
  });
  return Buffer.concat(rows).toString("base64");
}

// An rng that enumerates outcomes: it follows the given choices, then takes the first possible one and records the
// others.
function enumerating(choices) {
  const state = { choices: [...choices], weight: 1, others: [], step: 0 };
  const choose = (probs) => {
    if (state.step === state.choices.length) {
      const possible = [...probs.keys()].filter((i) => probs[i] > 0);
      state.others.push(...possible.slice(1).map((i) => [...state.choices, i]));
      state.choices.push(possible[0]);
    }
    const chosen = state.choices[state.step++];
    state.weight *= probs[chosen];
    return chosen;
  };
  return {
    state,
    flip: (prob) => choose([1 - Math.min(1, prob), Math.min(1, prob)]) === 1,
    draw: (probs) => choose([...probs]),
  };
}

function* outcomes(experiment) {
  for (const pending = [[]]; pending.length;) {
    const rng = enumerating(pending.pop());
    const result = experiment(rng);
    pending.push(...rng.state.others);
    yield [result, rng.state.weight];
  }
}

// A toy model whose logits are looked up by the text so far; the exact distributions are computed from it.
const toy = (table, vocab) => ({
  length: 0,
  text: [],
  forward(tokens, last) {
    this.text = [...this.text.slice(0, this.length), ...tokens];
    this.length = this.text.length;
    const rows = tokens.map(
      (_, i) =>
        table[
          this.text
            .slice(0, this.length - tokens.length + i + 1)
            .reduce((hash, t) => (hash * vocab + t + 1) % table.length, 7)
        ],
    );
    return last ? rows.slice(-1) : rows;
  },
});

const jobs = {
  async logits(r) {
    const models = await engine(r);
    return { kernel: models.kernel.name, logits: logitsOf(models[r.model], r.passes) };
  },
  async groupedLogits(r) {
    const { kernel, target, missing } = await groupedEngine(r);
    return { kernel: kernel.name, logits: logitsOf(target, r.passes), missing };
  },
  async groupedDecode(r) {
    const engine = await groupedEngine(r);
    engine.costs = r.costs;
    return r.runs.map(({ prompt, drafter, gamma, wanted }) => {
      const source = drafter ? drafterOf(engine, drafter, drafter === "both" ? 0 : gamma) : null;
      const clock = () => performance.now(),
        options = { gamma, temperature: 0, wanted, rng: seeded(1), stop: engine.stop, clock };
      return [...decode(engine.target, source, prompt, options)].map((step) => step.emitted);
    });
  },
  lookup: (r) => r.texts.map((text) => new LookupDrafter().propose(text, r.gamma).drafted),
  encodeGrouped(r) {
    const own = new Tokenizer(manifestOf(r.folder, "smollm2").tokenizer);
    return r.texts.map((text) => own.encode(text));
  },
  questions(r) {
    const { tokenizer, chat } = manifestOf(r.folder, "smollm2");
    const engine = { tokenizer: new Tokenizer(tokenizer), chat, capacity: 1024 };
    return r.questions.map((question) => {
      try {
        return promptIds(engine, question);
      } catch (error) {
        return error.message;
      }
    });
  },
  // Ways of computing a pass with given times, in milliseconds; each adds a number to the logits.
  async trial(r) {
    const wayOf = ({ milliseconds, added = 0, stops = false }) => ({
      threads: 1,
      target: {
        async forward(tokens) {
          if (stops) throw new Error("it stopped");
          await new Promise((resolve) => setTimeout(resolve, milliseconds));
          return tokens.map(() => Float32Array.of(1 + added, 2));
        },
      },
    });
    const ways = Object.fromEntries(Object.entries(r.ways).map(([name, way]) => [name, wayOf(way)])),
      engine = { kernel: {}, ways, missing: {} };
    await tryWays(engine, [1, 2]);
    engine.trial ??= {};
    computeWith(engine, fastestWay(engine));
    const chosen = engine.way;
    engine.target.stopped = chosen === "gpu"; // the graphics processor stops after the trial
    await tryWays(engine, [1, 2]);
    return { chosen, then: fastestWay(engine), missing: engine.missing };
  },
  // What one of two threads does that never answers, or answers and then computes nothing.
  async lostThread() {
    const answers = {};
    for (const starts of [false, true]) {
      globalThis.Worker = class {
        postMessage() {
          if (starts) setTimeout(() => this.onmessage());
        }
        terminate() {
          answers.ended = true;
        }
      };
      URL.createObjectURL = () => "blob:helper";
      globalThis.setTimeout = (
        (real) => (call, time) =>
          real(call, Math.min(time ?? 0, 50))
      )(setTimeout);
      const wait = Atomics.wait;
      Atomics.wait = (control, field, value, most) => wait(control, field, value, Math.min(most, 50));
      const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }),
        kernel = { allocate: () => 0 },
        exports = { grouped4() {}, grouped8() {} };
      const multiply = await startThreads(kernel, exports, { memory }, 2, 16).catch((error) => error.message);
      if (typeof multiply === "string") {
        answers.start = multiply;
        continue;
      }
      const again = () => {
        try {
          return multiply(4, 1, 0, 0, 0, 0, 0, 32, 64);
        } catch (error) {
          return error.message;
        }
      };
      answers.first = again();
      answers.lost = kernel.lost;
      const engine = { kernel, ways: { one: { target: {} }, threads: { target: {} } }, missing: {} };
      await tryWays(engine, [1]);
      answers.ways = Object.keys(engine.ways);
      answers.missing = engine.missing.threads;
    }
    return answers;
  },
  plans: (r) =>
    r.costs.map((costs, i) => {
      const lengths = [];
      const source = {
        name: "head",
        begin: () => {},
        propose(_, gamma) {
          lengths.push(gamma);
          return { drafted: Array(gamma).fill(0), q: [], passes: 0 };
        },
      };
      const chosen = new ChosenDrafter(source);
      chosen.costs = costs;
      chosen.begin();
      for (const most of r.accepted[i]) {
        const before = lengths.length;
        chosen.propose([1, 2, 3], 5);
        if (lengths.length === before) lengths.push(0);
        const accepted = Math.min(most, lengths.at(-1));
        chosen.observe({ accepted, kind: accepted < lengths.at(-1) ? "recovered" : "bonus" });
      }
      return lengths;
    }),
  headline: (r) => [summary(r.result)[0], lesson(r.result)],
  encode(r) {
    const tokenizer = new Tokenizer(manifestOf(r.folder, "manifest").tokenizer);
    return r.texts.map((text) => {
      const ids = tokenizer.encode(text);
      return { ids, text: tokenizer.decode(ids) };
    });
  },
  async decode(r) {
    const { target, draft } = await engine(r);
    return r.runs.map(({ prompt, gamma, temperature, wanted, uniforms, stop = -1, plain = false }) => {
      let used = 0;
      const rng = uniforms ? chance(() => uniforms[used++]) : seeded(1);
      const steps = [
        ...decode(target, plain ? null : draft, prompt, { gamma, temperature, wanted, rng, stop }),
      ];
      return { steps, used, stats: count(steps) };
    });
  },
  law(r) {
    const blocks = {};
    const readily = (rng) => (r.broken ? { ...rng, flip: (prob) => rng.flip(1.5 * prob) } : rng);
    const lines = outcomes((rng) =>
      [
        ...decode(toy(r.target, r.vocab), toy(r.draft, r.vocab), r.prompt, { ...r, rng: readily(rng) }),
      ].flatMap((step) => step.emitted),
    );
    for (const [tokens, weight] of lines) blocks[tokens] = (blocks[tokens] ?? 0) + weight;
    return { blocks };
  },
  draws(r) {
    const rng = seeded(r.seed);
    return Array.from({ length: r.count }, () => rng.draw(r.probs));
  },
  // What the page reads from addresses, and from a chat with an address that it made itself.
  shared(r) {
    const own = shareFragment(r.run, r.device);
    const chat = `Ann: https://x/live.html${own}\nBob: ${own} and #ask-run=1~2 #ask-run=%E0%A4`;
    return [r.hashes.map(sharedRun), sharedRun(own), sharedRuns(chat)];
  },
  intervals: (r) => r.counts.map((pair) => interval(...pair)),
  explain: (r) => r.results.map((result) => ({ doubt: doubtAbout(result), words: explanation(result) })),
  stops: () => STOPS,
  async run(r) {
    const messages = [],
      models = await engine(r);
    const result = run(models, r.options, (message) => messages.push(message));
    return { result, messages };
  },
};

process.stdout.write(JSON.stringify(await jobs[request.job](request)));

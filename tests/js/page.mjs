// node page.mjs < JSON {job}: runs the live page's interface on stubs of a browser's objects. Prints JSON.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

const { job } = JSON.parse(readFileSync(0, "utf8"));
const pause = () => new Promise((resolve) => setTimeout(resolve, 1));

class Element {
  constructor(tag) {
    const classes = new Set();
    Object.assign(this, {
      tag,
      classes,
      attributes: {},
      children: [],
      listeners: {},
      style: {},
      dataset: {},
      text: "",
    });
    this.classList = {
      add: (name) => classes.add(name),
      remove: (name) => classes.delete(name),
      toggle: (name, on) => classes[on ? "add" : "delete"](name),
    };
  }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
    if (name === "class")
      String(value)
        .split(" ")
        .forEach((each) => this.classes.add(each));
    if (["value", "max", "src"].includes(name)) this[name] = value;
  }
  getAttribute(name) {
    return this.attributes[name] ?? null;
  }
  removeAttribute(name) {
    delete this.attributes[name];
  }
  append(...children) {
    this.children.push(...children);
  }
  prepend(...children) {
    this.children.unshift(...children);
  }
  replaceChildren(...children) {
    this.children = children;
  }
  contains() {
    return false;
  }
  closest() {
    return null;
  }
  addEventListener(type, call) {
    (this.listeners[type] ??= []).push(call);
  }
  fire(type) {
    if (!(this.disabled && type === "click")) this.listeners[type]?.forEach((call) => call({}));
  }
  get firstChild() {
    return this.children[0];
  }
  get textContent() {
    return this.children.map((child) => child.textContent ?? child).join("");
  }
  set textContent(text) {
    this.children = [text];
  }
  get max() {
    return this.attributes.max;
  }
  set max(most) {
    this.attributes.max = most;
    this.value = this.text;
  }
  get value() {
    return this.text || (this.all((node) => node.tag === "option")[0]?.attributes.value ?? "");
  }
  set value(value) {
    this.text = String(this.attributes.type === "range" ? Math.min(value, this.max ?? 100) : value);
  }
  all(wanted) {
    return this.children
      .filter((child) => child instanceof Element)
      .flatMap((child) => [...(wanted(child) ? [child] : []), ...child.all(wanted)]);
  }
  one(wanted) {
    return this.all(wanted)[0];
  }
}

// Scripts of a page that was opened from a folder, by address: the function that runs each. An unknown script fails.
const scripts = {};
async function load(script) {
  await pause();
  if (script.src in scripts) scripts[script.src]();
  script.fire(script.src in scripts ? "load" : "error");
}

const timers = new Map();
const tick = () => [...timers.values()].forEach((call) => call());
Object.assign(Element.prototype, {
  remove() {},
  scrollIntoView() {},
  clientHeight: 100,
  clientWidth: 400,
  offsetTop: 0,
  scrollTop: 0,
});
Object.assign(globalThis, {
  document: {
    createElement: (tag) => new Element(tag),
    createElementNS: (_, tag) => new Element(tag),
    documentElement: { dataset: { content_root: "./" } },
    head: { append: load },
  },
  location: { protocol: "file:", href: "file:///book/live.html" },
  matchMedia: () => ({ matches: false }),
  ResizeObserver: class {
    observe() {}
    disconnect() {}
  },
  setInterval: (call) => {
    const id = Math.max(0, ...timers.keys()) + 1;
    timers.set(id, call);
    return id;
  },
  clearInterval: (id) => timers.delete(id),
});

// Loads the worker's module into this process. `onMessage` receives its messages; the returned function sends it one.
async function engine(onMessage) {
  let tell;
  Object.assign(globalThis, {
    WorkerGlobalScope: class {},
    postMessage: onMessage,
    addEventListener: (_, call) => {
      tell = call;
    },
  });
  await import("../../site/live/worker.js");
  return (data) => tell({ data });
}

// Returns a pair of models with one block each and arbitrary weights: {data, manifest}.
function tinyPair() {
  const size = 16,
    chunks = [];
  const add = (numbers) => {
    const at = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    chunks.push(Buffer.from(numbers.buffer), Buffer.alloc(-numbers.byteLength & 15));
    return at;
  };
  const matrix = (rows) => ({
    offset: add(Int8Array.from({ length: rows * size }, (_, i) => ((i * 7) % 11) - 5)),
    rows,
    cols: size,
    scales: add(new Float32Array(rows).fill(0.05)),
  });
  const vector = () => ({ offset: add(new Float32Array(size).fill(1)), rows: 1, cols: size });
  const model = () => ({
    config: {
      hidden: size,
      inner: size,
      layers: 1,
      heads: 1,
      kvHeads: 1,
      headSize: size,
      vocab: size,
      theta: 1e4,
      eps: 1e-5,
      tied: true,
    },
    tensors: {
      embedding: matrix(size),
      norm: vector(),
      "blocks.0.norm1": vector(),
      "blocks.0.qkv": matrix(3 * size),
      "blocks.0.out": matrix(size),
      "blocks.0.norm2": vector(),
      "blocks.0.gate_up": matrix(2 * size),
      "blocks.0.down": matrix(size),
    },
  });
  const models = { target: model(), draft: model() },
    data = Buffer.concat(chunks);
  return {
    data,
    manifest: {
      bytes: data.length,
      sha256: createHash("sha256").update(data).digest("hex"),
      models,
      pieces: 1,
      tokenizer: { pieces: [..."abcdefghijklmnop"], merges: [], special: {} },
    },
  };
}

// Calls a function while no WebAssembly memory can grow.
async function withoutMemory(act) {
  const { grow } = WebAssembly.Memory.prototype;
  WebAssembly.Memory.prototype.grow = () => {
    throw new RangeError("out of memory");
  };
  await act();
  WebAssembly.Memory.prototype.grow = grow;
}

const jobs = {
  // The text of the replay and its number of timers, moment by moment.
  async replay() {
    const { replay } = await import("../../site/live/replay.js");
    const panel = replay("pass"),
      [play, output] = ["button", "output"].map((tag) => panel.node.one((node) => node.tag === tag));
    const scrubber = panel.node.one((node) => node.attributes.type === "range");
    const steps = (count) =>
      Array.from({ length: count }, () => ({
        words: [
          ["accepted", "a"],
          ["bonus", "b"],
        ],
        emitted: [0, 1],
      }));
    const seen = {};
    const note = (name) => {
      seen[name] = {
        shown: output.textContent,
        timers: timers.size,
        disabled: Boolean(play.disabled),
        says: play.textContent,
        width: panel.node.one((node) => node.style.width).style.width,
      };
    };
    panel.begin("one");
    panel.extend(steps(3), true);
    note("first");
    for (let i = 0; i < 3; i++) tick();
    note("played");
    panel.begin("two");
    note("begun");
    play.fire("click");
    scrubber.fire("input");
    tick();
    note("pressed early");
    panel.extend([], false);
    panel.extend(steps(4), true);
    note("second");
    for (let i = 0; i < 4; i++) tick();
    note("played again");
    scrubber.value = 1;
    scrubber.fire("input");
    tick();
    note("scrubbed");
    return seen;
  },

  // The page with its worker: a run, a run that fails, a run without memory, and a last run.
  async live() {
    const { data, manifest } = tinyPair();
    let worker;
    const tell = await engine((message) =>
      setTimeout(() => worker.onmessage({ data: structuredClone(message) })),
    );
    URL.createObjectURL = () => "blob:source";
    globalThis.Worker = class {
      constructor() {
        worker = this;
      }
      addEventListener() {}
      postMessage(message) {
        tell(structuredClone(message));
      }
      terminate() {}
    };
    globalThis.sdlLive = {
      manifest,
      presets: [{ kind: "code", source: "a file", text: "abc" }],
      kernels: {},
      worker: "",
    };
    scripts["./_static/live/weights-0.js"] = () => globalThis.sdlWeights(data.toString("base64"));
    const { default: live } = await import("../../site/live/live.js");
    const el = new Element("div"),
      has = (name) => (node) => node.classes.has(name);
    live.render({ model: { get: () => false }, el });
    const [button, status] = ["sdl-live-run", "sdl-live-status"].map((name) => el.one(has(name)));
    const measured = el.one((node) => node.children.some((child) => child.classes?.has("sdl-live-why"))),
      prompt = el.one((node) => node.tag === "textarea");
    const seen = {};
    const run = async (name, text, format) => {
      prompt.value = text;
      el.one((node) => node.attributes.id?.endsWith("-format") && node.tag === "select").value = format;
      button.fire("click");
      while (button.getAttribute("aria-disabled")) await pause();
      seen[name] = {
        old: measured.classes.has("sdl-live-old"),
        labeled: !measured.children[0].hidden,
        says: status.textContent,
        shown: el.one(has("sdl-live-replay")).one((node) => node.tag === "output").textContent,
      };
    };
    await run("first", "abc", "float32");
    await run("empty", "", "float32");
    await withoutMemory(() => run("full", "abc", "int8"));
    await run("last", "abc", "int8");
    return {
      ...seen,
      outputs: el.all((node) => node.tag === "output").map((node) => node.getAttribute("aria-live")),
      statuses: el.all((node) => node.getAttribute("role") === "status").length,
    };
  },

  // The weights are sent twice; the worker keeps nothing of the first ones.
  async pieces() {
    const { data, manifest } = tinyPair(),
      heard = [],
      tell = await engine((message) => heard.push(message.text ?? message.type));
    for (let time = 0; time < 2; time++) {
      await tell({ type: "piece", text: data.toString("base64") });
      await tell({ type: "load", kernels: {}, manifest, format: "int8", url: false });
    }
    return heard;
  },

  // Two copies that load concurrently, then one whose second script is missing.
  async scripts() {
    const { loadFromScripts } = await import("../../site/live/download.js");
    for (const name of ["a0", "a1", "b0", "b1", "c0"])
      scripts[`${name[0]}/weights-${name[1]}.js`] = () => globalThis.sdlWeights(name);
    const got = { a: [], b: [], c: [], again: [] },
      start = (base, into) =>
        loadFromScripts(
          `${base}/weights`,
          2,
          (text) => got[into].push(text),
          () => {},
        );
    await Promise.all([start("a", "a"), start("b", "b")]);
    const failed = await start("c", "c").catch((error) => error.message),
      left = "sdlWeights" in globalThis;
    await start("a", "again");
    return { got, failed, left };
  },

  // What a request to a worker answers after some seconds: a silent one, one that shows life, one that does not start.
  async silent() {
    const { startEngine } = await import("../../site/live/download.js");
    URL.createObjectURL = () => "blob:source";
    let worker;
    globalThis.Worker = class extends EventTarget {
      constructor() {
        super();
        worker = this;
      }
      postMessage() {}
      terminate() {
        this.ended = true;
      }
    };
    const after = async (type, act) => {
      const engine = startEngine(""),
        own = worker;
      const answer = engine
        .request({ type }, () => {})
        .then(
          () => "answered",
          (error) => error.message,
        );
      act(own);
      const says = await Promise.race([answer, pause().then(() => "waits")]);
      const seen = { says, stopped: engine.stopped(), ended: Boolean(own.ended), timers: timers.size };
      timers.clear();
      return seen;
    };
    const seconds =
      (count, each = () => {}) =>
      (own) => {
        for (let i = 0; i < count; i++) {
          each(own);
          tick();
        }
      };
    return {
      run: await after("run", seconds(21)),
      loading: await after("loadSmollm2", seconds(61)),
      early: await after("run", seconds(19)),
      slow: await after("loadSmollm2", seconds(59)),
      alive: await after(
        "run",
        seconds(90, (own) => own.onmessage({ data: { type: "sign" } })),
      ),
      broken: await after("run", (own) =>
        own.onerror({ preventDefault() {}, message: "Uncaught SyntaxError: Unexpected token '<'" }),
      ),
    };
  },

  // The lines that a reader sees for errors, and how often a loop that computes for three seconds shows life.
  async lines() {
    const { lineFor, ReaderError, sendSignsBy, showLife } = await import("../../site/live/failure.js");
    const errors = [
      new ReaderError("The question is empty."),
      new TypeError("Cannot read properties of undefined (reading 'x')"),
      new SyntaxError("Unexpected token '<', \"<!DOCTYPE\" is not valid JSON"),
      new RangeError("WebAssembly.Memory.grow(): Maximum memory size exceeded"),
      undefined,
    ];
    let now = 0,
      signs = 0;
    performance.now = () => now;
    sendSignsBy(() => signs++);
    for (; now < 3000; now += 10) showLife();
    return { lines: errors.map((error) => lineFor(error)), other: lineFor(errors[1], "It stopped."), signs };
  },

  // The URLs created for a worker's source, and those revoked before and after its first message.
  async source() {
    const { startWorker } = await import("../../site/live/download.js");
    const made = [],
      revoked = [];
    URL.createObjectURL = () => {
      made.push(`blob:${made.length}`);
      return made.at(-1);
    };
    URL.revokeObjectURL = (url) => revoked.push(url);
    globalThis.Worker = class extends EventTarget {};
    const worker = startWorker(""),
      before = [...revoked];
    for (let i = 0; i < 2; i++) worker.dispatchEvent(new Event("message"));
    return { made, before, after: revoked };
  },
};

process.stdout.write(JSON.stringify(await jobs[job]()));

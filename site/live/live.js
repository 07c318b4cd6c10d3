// The live page: the controls, the talk with the worker, and the results. Nothing is computed on this thread.

import { fromScripts, loadScript, startWorker } from "./download.js";
import { announcement, beyond, explanation, prediction, readouts } from "./explain.js";
import { chart, drawCosts, drawSpeedup, make } from "./charts.js";
import { replay } from "./replay.js";
import { tour } from "./tour.js";

const KEPT_KEYS = new Set([
  "ArrowLeft",
  "ArrowRight",
  "ArrowUp",
  "ArrowDown",
  "Home",
  "End",
  "PageUp",
  "PageDown",
]);
const KIND_NAMES = { code: "Code", data: "Structured data", prose: "Prose" };
const FORMATS = { float32: "float32: 4 bytes a weight", int8: "int8: 1 byte a weight, the same numbers" };
const SHOWN = 300; // characters of the prompt before the decoded text
let copies = 0;

const control = (id, name, note, input, output) =>
  make(
    "div",
    { class: "sdl-control" },
    make("label", { for: id }, `${name} `, make("small", {}, note)),
    ...(output ? [output] : []),
    input,
  );

function slider(id, name, note, { min, max, step, value, digits }) {
  const input = make("input", { id, type: "range", min, max, step, value }),
    output = make("output", { for: id, "aria-live": "off" });
  const show = () => {
    output.textContent = Number(input.value).toFixed(digits);
  };
  input.addEventListener("input", show);
  show();
  return { node: control(id, name, note, input, output), value: () => Number(input.value) };
}

function choice(id, name, note, options, groups = false) {
  const option = ([value, text]) => make("option", { value }, text);
  const select = make(
    "select",
    { id },
    ...(groups
      ? Object.entries(options).map(([label, members]) => make("optgroup", { label }, ...members.map(option)))
      : Object.entries(options).map(option)),
  );
  return { node: control(id, name, note, select), select, value: () => select.value };
}

/** The prompts on offer, by kind; each is named by its first line. */
function presetMenu(id, presets) {
  const named = presets.map(({ kind, source, text }, i) => [
    kind,
    [String(i), `${source}: ${text.trim().split("\n")[0].slice(0, 40)}`],
  ]);
  const groups = Object.fromEntries(
    Object.entries(KIND_NAMES).map(([kind, name]) => [
      name,
      named.filter(([k]) => k === kind).map(([, option]) => option),
    ]),
  );
  return choice(id, "Start from", "a held-out text: neither model was trained on it", groups, true);
}

const base = () => `${document.documentElement.dataset.content_root}_static/live/`;

/** What stands in the page: every element by name. */
function layout(id, { manifest, presets }) {
  const view = {
    preset: presetMenu(`${id}-preset`, presets),
    prompt: make("textarea", {
      id: `${id}-prompt`,
      rows: 4,
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
    }),
    gamma: slider(`${id}-gamma`, "γ", "draft length", { min: 1, max: 8, step: 1, value: 2, digits: 0 }),
    temperature: slider(`${id}-temperature`, "temperature", "0 is greedy", {
      min: 0,
      max: 1.5,
      step: 0.1,
      value: 0,
      digits: 1,
    }),
    format: choice(`${id}-format`, "Weights in memory", "the target's; the draft's stay int8", FORMATS),
    seed: make("input", { id: `${id}-seed`, type: "number", min: 0, max: 999999, step: 1, value: 1 }),
    run: make(
      "button",
      { type: "button", class: "sdl-button sdl-live-run" },
      `Load the models (${(manifest.bytes / 1e6).toFixed(1)} MB) and run`,
    ),
    progress: make("progress", { max: 1, value: 0, "aria-label": "Download", hidden: true }),
    status: make("p", { class: "sdl-live-status", role: "status" }),
    replay: replay(`${id}-pass`),
    costs: chart(
      "What checking costs on this device",
      "Time of a target pass over k tokens, divided by that over one.",
    ),
    speedup: chart(
      "Prediction and measurement",
      "Line: predicted from α, T(k) and c. Diamond: from this run's τ. Dot: measured, with the spread of three turns.",
    ),
    numbers: make("dl", { class: "sdl-readouts" }),
    why: make("p", { class: "sdl-task sdl-live-why" }),
    before: make("p", { hidden: true }, make("em", {}, "Measured in the run before:")),
  };
  view.measured = make(
    "div",
    { hidden: true },
    view.before,
    make(
      "div",
      { class: "sdl-frame" },
      make("div", { class: "sdl-charts" }, view.costs.node, view.speedup.node),
    ),
    view.why,
    view.numbers,
  );
  view.results = make("div", { hidden: true }, view.replay.node, view.measured);
  view.root = make(
    "section",
    { class: "sdl sdl-live sdl-fates", "aria-label": "Speculative decoding, live in this page" },
    make("div", { class: "sdl-controls" }, view.preset.node),
    make(
      "div",
      { class: "sdl-live-prompt" },
      make("label", { for: `${id}-prompt` }, "Prompt ", make("small", {}, "change it, or type your own")),
      view.prompt,
    ),
    make(
      "div",
      { class: "sdl-controls" },
      view.gamma.node,
      view.temperature.node,
      view.format.node,
      control(`${id}-seed`, "Seed", "the same seed, the same text", view.seed),
    ),
    make("div", { class: "sdl-row sdl-live-go" }, view.run, view.progress),
    view.status,
    view.results,
  );
  return view;
}

/** The engine in its worker: `start` fetches it, `run` talks to it. Rejections carry a sentence for the
 *  reader. */
function machine(parts, onProgress) {
  let worker = null,
    attempts = 0;
  const talk = (message, hear) =>
    new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => {
        if (data.type === "failed") reject(new Error(data.text));
        else if (data.type === "ready" || data.type === "result") resolve(data);
        else hear(data);
      };
      worker.onerror = (event) => {
        event.preventDefault();
        reject(new Error(`The engine stopped: ${event.message || "this browser could not start it"}.`));
      };
      worker.postMessage(message);
    });
  return {
    ready: () => worker !== null,
    async start(format) {
      const { manifest } = parts,
        kernels = globalThis.sdlScalar ? {} : parts.kernels;
      const url = location.protocol !== "file:" && new URL(`${base()}weights.bin`, location.href).href;
      worker = startWorker(parts.worker);
      try {
        if (!url)
          await fromScripts(
            base(),
            manifest.pieces,
            (text) => worker.postMessage({ type: "piece", text }),
            onProgress,
          );
        return await talk(
          { type: "load", kernels, manifest, format, url, again: attempts++ > 0 },
          ({ share }) => onProgress(share),
        );
      } catch (error) {
        this.stop();
        throw error;
      }
    },
    run: (options, hear) => talk({ type: "run", options }, hear),
    stop() {
      worker?.terminate();
      worker = null;
    },
  };
}

function mount(el, parts) {
  const view = layout(`sdl-live-${++copies}`, parts),
    seen = {};
  const engine = machine(parts, (share) => {
    view.progress.value = share;
  });
  const usePreset = () => {
    view.prompt.value = parts.presets[Number(view.preset.value())].text;
  };
  const say = (text, bad = false) => {
    view.status.textContent = text;
    view.status.classList.toggle("sdl-live-bad", bad);
  };
  const age = (old) => {
    view.measured.classList.toggle("sdl-live-old", old);
    view.before.hidden = !old;
  };
  let last = null;

  function drawCharts() {
    if (!last) return;
    const other = seen[last.options.format === "int8" ? "float32" : "int8"];
    drawCosts(view.costs.svg, last, other);
    drawSpeedup(view.speedup.svg, last, prediction(last));
  }

  function showTrace({ steps, last: whole, cut }) {
    view.results.hidden = false;
    view.replay.extend(steps, whole);
    if (whole)
      say(
        `${cut ? `The prompt is longer than the cache: its first ${cut} tokens were left out. ` : ""}Decoded. Measuring both ways in turns…`,
      );
  }

  function showTurn({ turn, of }) {
    view.progress.hidden = false;
    view.progress.value = turn / of;
    view.progress.setAttribute("aria-label", "Measurement");
  }

  function showResult(result) {
    last = seen[result.options.format] = view.root.sdlResult = result;
    view.measured.hidden = false;
    age(false);
    view.replay.time([...result.plain].sort((a, b) => a - b)[result.plain.length >> 1], result.passTimes);
    view.numbers.replaceChildren(
      ...readouts(result).map(([name, value, note]) =>
        make("div", {}, make("dt", {}, name), make("dd", {}, `${value} `, make("small", {}, note))),
      ),
    );
    view.why.textContent = explanation(result);
    drawCharts();
    say(
      (result.cut
        ? `The prompt was longer than the cache: its first ${result.cut} tokens were left out. `
        : "") +
        announcement(result) +
        (beyond(result) ? " That is above its ceiling: see below the charts." : "") +
        (result.simd
          ? ""
          : " This browser has no WebAssembly SIMD, so the page computes in plain JavaScript, which is slow; there speculation can hardly win."),
    );
  }

  async function go() {
    const seed = Math.floor(Number(view.seed.value)) || 0;
    const options = {
      prompt: view.prompt.value,
      gamma: view.gamma.value(),
      temperature: view.temperature.value(),
      format: view.format.value(),
      seed,
    };
    view.run.setAttribute("aria-disabled", "true");
    try {
      if (!engine.ready()) {
        view.progress.hidden = false;
        view.progress.setAttribute("aria-label", "Download of the models");
        say("Loading the models…");
        await engine.start(options.format);
      }
      view.progress.hidden = true;
      say("Decoding…");
      view.results.hidden = false;
      view.replay.node.scrollIntoView({ block: "nearest" });
      view.replay.begin(options.prompt.length > SHOWN ? `…${options.prompt.slice(-SHOWN)}` : options.prompt);
      age(true);
      showResult(
        await engine.run(options, (message) =>
          message.type === "trace" ? showTrace(message) : showTurn(message),
        ),
      );
      view.run.textContent = "Run";
      view.root.dataset.runs = Number(view.root.dataset.runs ?? 0) + 1;
    } catch (error) {
      view.run.textContent = engine.ready() ? "Run" : "Try again";
      say(error.message, true);
    }
    view.progress.hidden = true;
    view.run.removeAttribute("aria-disabled");
  }

  view.preset.select.addEventListener("change", usePreset);
  view.run.addEventListener("click", () => view.run.getAttribute("aria-disabled") || go());
  view.root.addEventListener("keydown", (event) => {
    if (KEPT_KEYS.has(event.key)) event.stopPropagation();
  });
  usePreset();
  view.root.prepend(guided(view, usePreset));
  el.replaceChildren(view.root);
  globalThis.sdlShare?.(el, view.root); // from the other interactives' kit, which the build puts before this script
  const watcher = new ResizeObserver(drawCharts);
  watcher.observe(view.root);
  return () => {
    watcher.disconnect();
    view.replay.stop();
    engine.stop();
  };
}

/** What a stop of the tour sets, and the part of the page it looks at. */
function guided(view, usePreset) {
  const set = (node, value) => {
    node.value = value;
    node.dispatchEvent(new Event("input"));
  };
  const places = {
    run: view.run,
    text: view.replay.node,
    costs: view.costs.node,
    speedup: view.speedup.node,
    why: view.why,
  };
  return tour((stop) => {
    for (const name of ["gamma", "temperature"])
      if (name in stop.set) set(view.root.querySelector(`[id$="-${name}"]`), stop.set[name]);
    if ("preset" in stop.set) {
      view.preset.select.value = String(stop.set.preset);
      usePreset();
    }
    if ("format" in stop.set) view.format.select.value = stop.set.format;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const place = view.measured.hidden && stop.look !== "text" ? view.run : places[stop.look];
    place.scrollIntoView({ block: "nearest", behavior: still ? "auto" : "smooth" });
  });
}

/** Shut behind a button until the reader asks for it; nothing is loaded before. */
function closed(el, onOpen) {
  const icon = make(
    "svg",
    { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" },
    make("path", { d: "M2 1l11 6-11 6z", fill: "currentColor" }),
  );
  const button = make("button", { type: "button", class: "sdl-button sdl-live-run" }, icon, "Open it here");
  button.addEventListener("click", onOpen);
  el.replaceChildren(
    make(
      "section",
      { class: "sdl sdl-live-closed sdl-live", "aria-label": "Speculative decoding, live in this page" },
      make(
        "p",
        {},
        "Both models can run in this page, on your own processor: type a prompt and watch every guess being accepted or rejected.",
      ),
      button,
    ),
  );
}

/** Mounts once the small engine (no weights) is there; a failure leaves a sentence and a button. */
function render({ model, el }) {
  let leave = () => {};
  async function begin() {
    const opened = el.contains(document.activeElement);
    el.replaceChildren(make("p", { class: "sdl sdl-live-loading" }, "Loading…"));
    try {
      if (!globalThis.sdlLive) await loadScript(`${base()}engine.js`);
      leave = mount(el, globalThis.sdlLive);
      if (opened) el.querySelector(".sdl-live-run").focus(); // no keyboard jumps up on a phone
    } catch (error) {
      const again = make("button", { type: "button", class: "sdl-button" }, "Try again");
      again.addEventListener("click", begin);
      el.replaceChildren(make("div", { class: "sdl" }, make("p", { role: "alert" }, error.message), again));
    }
  }
  if (model.get("closed")) closed(el, begin);
  else begin();
  return () => leave();
}

export default { render };

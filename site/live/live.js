// The live page: the controls, the messages to the worker, and the results. This thread computes nothing.

import { loadEngine, loadFromScripts, startEngine } from "./download.js";
import { announcement, doubtAbout, explanation, prediction, readouts } from "./explain.js";
import { chart, drawCosts, drawSpeedup, make } from "./charts.js";
import { lineFor } from "./failure.js";
import { replay } from "./replay.js";
import { tour } from "./tour.js";

const SLIDER_KEYS = new Set([
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
const FORMATS = { float32: "float32: 4 bytes per weight", int8: "int8: 1 byte per weight, the same values" };
const PROMPT_END = 300; // characters of the prompt that are shown before the decoded text
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

/** Returns a line up to the last whole word within 40 characters. */
const beginning = (line) => (line.length > 40 ? `${line.slice(0, 40).replace(/\s+\S*$/, "")} …` : line);

/** Returns the menu of prompts, grouped by kind; each is named by its first line. */
function presetMenu(id, presets) {
  const named = presets.map(({ kind, source, text }, i) => [
    kind,
    [String(i), `${source}: ${beginning(text.trim().split("\n")[0])}`],
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

/** Creates the page's elements and returns them by name. */
function layout(id, { manifest, presets }) {
  const view = {
    preset: presetMenu(`${id}-preset`, presets),
    prompt: make("textarea", {
      id: `${id}-prompt`,
      rows: 4,
      maxlength: 20_000, // the model reads far fewer characters
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
      "The cost of verification on this device",
      "Time of a target pass for k tokens, divided by the time for one token.",
    ),
    speedup: chart(
      "Prediction and measurement",
      "Line: predicted from α, T(k) and c. Diamond: predicted from this run's τ. Dot: measured, with the range of its repeats.",
    ),
    numbers: make("dl", { class: "sdl-readouts" }),
    why: make("p", { class: "sdl-task sdl-live-why" }),
    before: make("p", { hidden: true }, make("em", {}, "Measured in the previous run:")),
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
  view.settings = make(
    "details",
    { class: "sdl-live-settings" },
    make("summary", {}, "Settings: γ, temperature, weights, seed"),
    make(
      "div",
      { class: "sdl-controls" },
      view.gamma.node,
      view.temperature.node,
      view.format.node,
      control(`${id}-seed`, "Seed", "the same seed gives the same text", view.seed),
    ),
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
    make("div", { class: "sdl-row sdl-live-go" }, view.run, view.progress),
    view.status,
    view.settings,
    view.results,
  );
  return view;
}

/** Returns the engine in its worker: `start` loads the models, `run` decodes. Errors have a message for the
 *  reader. */
function machine(parts, onProgress) {
  let engine = null,
    attempts = 0;
  return {
    ready: () => engine !== null && !engine.stopped(),
    async start(format) {
      const { manifest } = parts,
        kernels = globalThis.sdlScalar ? {} : parts.kernels;
      const url = location.protocol !== "file:" && new URL(`${base()}weights.bin`, location.href).href;
      engine = startEngine(parts.worker);
      const send = (text) => engine.post({ type: "piece", text });
      try {
        if (!url) await loadFromScripts(`${base()}weights`, manifest.pieces, send, onProgress);
        return await engine.request(
          { type: "load", kernels, manifest, format, url, again: attempts++ > 0 },
          ({ share }) => onProgress(share),
        );
      } catch (error) {
        this.stop();
        throw error;
      }
    },
    run: (options, onMessage) => engine.request({ type: "run", options }, onMessage),
    stop() {
      engine?.stop();
      engine = null;
    },
  };
}

function mount(el, parts) {
  const view = layout(`sdl-live-${++copies}`, parts),
    results = {};
  const engine = machine(parts, (share) => {
    view.progress.value = share;
  });
  const usePreset = () => {
    view.prompt.value = parts.presets[Number(view.preset.value())].text;
  };
  const showStatus = (text, bad = false) => {
    view.status.textContent = text;
    view.status.classList.toggle("sdl-live-bad", bad);
  };
  const markAsOld = (old) => {
    view.measured.classList.toggle("sdl-live-old", old);
    view.before.hidden = !old;
  };
  let last = null;

  function drawCharts() {
    if (!last) return;
    const other = results[last.options.format === "int8" ? "float32" : "int8"];
    drawCosts(view.costs.svg, last, other);
    drawSpeedup(view.speedup.svg, last, prediction(last));
  }

  function showTrace({ steps, last: whole, cut }) {
    view.results.hidden = false;
    view.replay.extend(steps, whole);
    if (whole)
      showStatus(
        `${cut ? `The prompt is longer than the cache: its first ${cut} tokens were left out. ` : ""}Decoded. Measuring plain and speculative decoding alternately…`,
      );
  }

  function showTurn({ turn, of }) {
    view.progress.hidden = false;
    view.progress.value = turn / of;
    view.progress.setAttribute("aria-label", "Measurement");
  }

  function showResult(result) {
    last = results[result.options.format] = view.root.sdlResult = result;
    view.measured.hidden = false;
    markAsOld(false);
    view.replay.time([...result.plain].sort((a, b) => a - b)[result.plain.length >> 1], result.passTimes);
    view.numbers.replaceChildren(
      ...readouts(result).map(([name, value, note]) =>
        make("div", {}, make("dt", {}, name), make("dd", {}, `${value} `, make("small", {}, note))),
      ),
    );
    view.why.textContent = explanation(result);
    drawCharts();
    showStatus(
      (result.cut
        ? `The prompt was longer than the cache: its first ${result.cut} tokens were left out. `
        : "") +
        announcement(result) +
        (doubtAbout(result) ? " This is above its ceiling: see the text below the charts." : "") +
        (result.simd
          ? ""
          : " This browser has no WebAssembly SIMD, so the page computes in plain JavaScript, which is slow; speculation is rarely faster there."),
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
        showStatus("Loading the models…");
        await engine.start(options.format);
      }
      view.progress.hidden = true;
      showStatus("Decoding…");
      view.results.hidden = false;
      view.replay.node.scrollIntoView({ block: "nearest" });
      view.replay.begin(
        options.prompt.length > PROMPT_END ? `…${options.prompt.slice(-PROMPT_END)}` : options.prompt,
      );
      markAsOld(true);
      showResult(
        await engine.run(options, (message) =>
          message.type === "trace" ? showTrace(message) : showTurn(message),
        ),
      );
      view.run.textContent = "Run";
      view.root.dataset.runs = Number(view.root.dataset.runs ?? 0) + 1;
      guide.ran();
    } catch (error) {
      view.run.textContent = engine.ready() ? "Run" : "Try again";
      showStatus(lineFor(error), true);
    }
    view.progress.hidden = true;
    view.run.removeAttribute("aria-disabled");
  }

  view.preset.select.addEventListener("change", usePreset);
  view.run.addEventListener("click", () => view.run.getAttribute("aria-disabled") || go());
  view.root.addEventListener("keydown", (event) => {
    if (SLIDER_KEYS.has(event.key)) event.stopPropagation();
  });
  usePreset();
  const guide = guided(view, usePreset);
  view.root.prepend(guide.node);
  el.replaceChildren(view.root);
  globalThis.sdlShare?.(el, view.root); // from the interactives' kit.js, which the build puts before this script
  const watcher = new ResizeObserver(drawCharts);
  watcher.observe(view.root);
  return () => {
    watcher.disconnect();
    view.replay.stop();
    engine.stop();
  };
}

/** Returns the tour. Each stop sets controls and scrolls to a part of the page. */
function guided(view, usePreset) {
  const set = (node, value) => {
    node.value = value;
    node.dispatchEvent(new Event("input"));
  };
  const parts = {
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
    if (Object.keys(stop.set).some((name) => name !== "preset")) view.settings.open = true;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const part = view.measured.hidden && stop.look !== "text" ? view.run : parts[stop.look];
    part.scrollIntoView({ block: "nearest", behavior: still ? "auto" : "smooth" });
  });
}

/** Mounts the page after the engine has loaded, without weights; a failure shows a message and a button. */
function render({ el }) {
  let unmount = () => {};
  async function begin() {
    const opened = el.contains(document.activeElement);
    el.replaceChildren(make("p", { class: "sdl sdl-live-loading" }, "Loading…"));
    try {
      // without await where the engine is there: the page then mounts at once
      unmount = mount(el, globalThis.sdlLive ?? (await loadEngine(base())));
      if (opened) el.querySelector(".sdl-live-run").focus(); // focusing the text box would open a phone's keyboard
    } catch (error) {
      const again = make("button", { type: "button", class: "sdl-button" }, "Try again");
      again.addEventListener("click", begin);
      el.replaceChildren(make("div", { class: "sdl" }, make("p", { role: "alert" }, lineFor(error)), again));
    }
  }
  begin();
  return () => unmount();
}

export default { render };

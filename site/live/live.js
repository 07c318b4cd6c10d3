// The live page: the controls, the messages to the worker, and the results. This thread computes nothing.

import {
  attach,
  chart,
  chartRow,
  controlRow,
  field,
  make,
  menu,
  newId,
  numberField,
} from "../../specdec_book/viz/static/kit.js";
import { addressOf, machine, open } from "./download.js";
import { announcement, doubtAbout, explanation, prediction, readouts } from "./explain.js";
import { drawCosts, drawSpeedup } from "./charts.js";
import { lineFor } from "./failure.js";
import { median } from "./median.js";
import { replay } from "./replay.js";
import { tour } from "./tour.js";

const KIND_NAMES = { code: "Code", data: "Structured data", prose: "Prose" };
const FORMATS = [
  { value: "float32", label: "float32: 4 bytes per weight" },
  { value: "int8", label: "int8: 1 byte per weight, the same values" },
];
const SLIDERS = {
  gamma: [{ name: "gamma", text: "γ", note: "draft length", min: 1, max: 8 }, 2],
  temperature: [{ name: "temperature", text: "temperature", note: "0 is greedy", max: 1.5, step: 0.1 }, 0],
};
const PROMPT_END = 300; // characters of the prompt that are shown before the decoded text

const labelled = (id, name, note, input) => field(id, [`${name} `, make("small", {}, note)], input);

/** Returns a slider and its input. */
function sliderOf(id, [spec, start]) {
  const [node, show, input] = numberField(`${id}-${spec.name}`, spec, (values) => show(values[spec.name]));
  show(start);
  return { node, value: () => Number(input.value) };
}

/** Returns a line up to the last whole word within 40 characters. */
const beginning = (line) => (line.length > 40 ? `${line.slice(0, 40).replace(/\s+\S*$/, "")} …` : line);

/** Returns the menu of prompts, grouped by kind; each is named by its first line. */
const presetMenu = (id, presets, onPick) =>
  menu(
    id,
    presets.map(({ kind, source, text }, value) => ({
      value,
      label: `${source}: ${beginning(text.trim().split("\n")[0])}`,
      group: KIND_NAMES[kind],
    })),
    onPick,
  );

/** Creates the page's elements and returns them by name. */
function layout(id, { manifest, presets }, onPreset) {
  const view = {
    preset: presetMenu(`${id}-preset`, presets, onPreset),
    prompt: make("textarea", {
      id: `${id}-prompt`,
      rows: 4,
      maxlength: 20_000, // the model reads far fewer characters
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
    }),
    gamma: sliderOf(id, SLIDERS.gamma),
    temperature: sliderOf(id, SLIDERS.temperature),
    format: menu(`${id}-format`, FORMATS, () => {}),
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
      "sdl-half",
      { height: 250 },
    ),
    speedup: chart(
      "Prediction and measurement",
      "Line: predicted from α, T(k) and c. Diamond: predicted from this run's τ. Dot: measured, with the range of its repeats.",
      "sdl-half",
      { height: 250 },
    ),
    numbers: make("dl", { class: "sdl-readouts" }),
    why: make("p", { class: "sdl-task sdl-live-why" }),
    before: make("p", { hidden: true }, make("em", {}, "Measured in the previous run:")),
  };
  view.measured = make(
    "div",
    { hidden: true },
    view.before,
    chartRow(view.costs.node, view.speedup.node),
    view.why,
    view.numbers,
  );
  view.settings = make(
    "details",
    { class: "sdl-live-settings" },
    make("summary", {}, "Settings: γ, temperature, weights, seed"),
    controlRow(
      view.gamma.node,
      view.temperature.node,
      labelled(`${id}-format`, "Weights in memory", "the target's; the draft's stay int8", view.format),
      labelled(`${id}-seed`, "Seed", "the same seed gives the same text", view.seed),
    ),
  );
  view.results = make("div", { hidden: true }, view.replay.node, view.measured);
  view.root = make(
    "section",
    { class: "sdl sdl-live sdl-fates", "aria-label": "Speculative decoding, live in this page" },
    controlRow(
      labelled(`${id}-preset`, "Start from", "a held-out text: neither model was trained on it", view.preset),
    ),
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

function mount({ model, el }, parts) {
  const results = {},
    engine = machine(parts),
    { manifest } = parts;
  const usePreset = () => {
    view.prompt.value = parts.presets[Number(view.preset.value)].text;
  };
  const view = layout(newId("live"), parts, usePreset);
  const load = (format) => {
    const url = addressOf("weights.bin"),
      message = { type: "load", manifest, format, url, again: attempts++ > 0 };
    return engine.load(message, "weights", manifest.pieces, (share) => {
      view.progress.value = share;
    });
  };
  const showStatus = (text, bad = false) => {
    view.status.textContent = text;
    view.status.classList.toggle("sdl-live-bad", bad);
  };
  const markAsOld = (old) => {
    view.measured.classList.toggle("sdl-live-old", old);
    view.before.hidden = !old;
  };
  let [last, attempts] = [null, 0];

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
    view.replay.time(median(result.plain), result.passTimes);
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
      format: view.format.value,
      seed,
    };
    view.run.setAttribute("aria-disabled", "true");
    try {
      if (!engine.ready()) {
        view.progress.hidden = false;
        view.progress.setAttribute("aria-label", "Download of the models");
        showStatus("Loading the models…");
        await load(options.format);
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
        await engine.request({ type: "run", options }, (message) =>
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

  view.run.addEventListener("click", () => view.run.getAttribute("aria-disabled") || go());
  usePreset();
  const guide = guided(view, usePreset);
  view.root.prepend(guide.node);
  el.replaceChildren();
  const detach = attach({ model, el }, view.root, {}, drawCharts);
  return () => {
    detach();
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
      view.preset.value = String(stop.set.preset);
      usePreset();
    }
    if ("format" in stop.set) view.format.value = stop.set.format;
    if (Object.keys(stop.set).some((name) => name !== "preset")) view.settings.open = true;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const part = view.measured.hidden && stop.look !== "text" ? view.run : parts[stop.look];
    part.scrollIntoView({ block: "nearest", behavior: still ? "auto" : "smooth" });
  });
}

/** Mounts the page after the engine has loaded, without weights; a failure shows a message and a button. */
function render({ model, el }) {
  let unmount = () => {};
  const show = (parts, hadFocus) => {
    unmount = mount({ model, el }, parts);
    if (hadFocus) el.querySelector(".sdl-live-run").focus(); // focusing the text box would open a phone's keyboard
  };
  open(el, "sdl-live", show, (line, again) =>
    el.replaceChildren(make("div", { class: "sdl" }, make("p", { role: "alert" }, line), again)),
  );
  return () => unmount();
}

export default { render };

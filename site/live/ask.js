// The panel that asks SmolLM2: a question, one button, the race while it decodes, and its replay. This thread computes
// nothing. The race at the end is the book's interactive `race`, fed with this run.

import {
  controlRow,
  faster,
  field,
  foldOf,
  make,
  menu,
  newId,
  percent,
  times,
} from "../../specdec_book/viz/static/kit.js";
import { addressOf, base, loadScript, machine, open } from "./download.js";
import { lineFor, ReaderError } from "./failure.js";
import { sharedRun, shareFragment } from "./share.js";

const DRAFTERS = {
  both: "lookup or the trained head, chosen in every round",
  head: "the trained head (EAGLE-1)",
  lookup: "prompt lookup: what the request repeats",
};
const WAYS = {
  fastest: "the fastest in a trial of one second",
  one: "one thread",
  threads: "several threads",
  gpu: "graphics processor (WebGPU)",
};
const PLAIN = "plain decoding",
  SPECULATIVE = "speculative decoding";
const GAIN = 1.05; // a smaller speedup is explained as a loss
/** Characters of a question; the model reads far fewer. */
const MOST = 20_000;
const megabytes = (bytes) => `${Math.round(bytes / 1e6)} MB`;

/** Returns a menu of {value: text} under its label. */
const labelled = (id, name, note, input) => field(id, [`${name} `, make("small", {}, note)], input);
const menuOf = (id, texts, onPick = () => {}) =>
  menu(
    id,
    Object.entries(texts).map(([value, label]) => ({ value, label })),
    onPick,
  );

/** Returns a lane of text that grows while the worker decodes. */
function growingLane(title) {
  const text = make("div", { class: "sdl-text", role: "group", "aria-label": title }),
    time = make("span");
  return {
    node: make("div", { class: "sdl-ask-lane" }, make("p", { class: "sdl-heading" }, title, " ", time), text),
    clear() {
      text.replaceChildren();
      time.textContent = "";
    },
    extend(passes) {
      for (const { words } of passes)
        for (const [kind, word] of words)
          if (!["rejected", "unused"].includes(kind))
            text.append(make("span", { class: `sdl-token sdl-${kind}` }, word));
      if (passes.length) time.textContent = `${passes.at(-1).at.toFixed(2)} s`;
      text.scrollTop = text.scrollHeight; // the reader cannot scroll it, so it never takes the page's wheel
    },
  };
}

/** Returns what a reader learns from a result: how often the guesses were right, and what follows. */
export function lesson({ speedup, stats: { accepted, tested } }) {
  if (!tested) return "No guess promised a gain on this device, so every pass was plain.";
  const share = `${accepted} of ${tested} guesses that were checked were right (${percent(accepted / tested)})`;
  if (speedup >= GAIN) return `${share}, so one pass often wrote more than one token.`;
  return `${share}, so there was little to gain here. Guesses are right more often where the answer repeats its request.`;
}

/** Returns the headline of a result and the sentence below it. The headline is the ratio of the two speeds shown. */
export function summary({ speedup, speedups, perSecond, same, stats, costs, temperature, ...how }) {
  const text = temperature
    ? "both texts are draws from the same distribution"
    : same
      ? "the same text ✓"
      : "the texts differ ✗";
  const ratios = costs.target.map((time) => (time / costs.target[0]).toFixed(2));
  return [
    `${faster(speedup)} · ${text}`,
    `${perSecond.plain.toFixed(1)} tokens per second without drafts and ${perSecond.speculative.toFixed(1)} with them, ` +
      `both the median of ${speedups.length} turns; the turns gave ${times(Math.min(...speedups))} to ${times(Math.max(...speedups))}. ` +
      `A target pass emitted ${stats.tau.toFixed(2)} tokens on average. On this device a pass over 2, 4 or 6 tokens ` +
      `costs ${ratios[1]}, ${ratios[3]} or ${ratios[5]} times a pass over one, and a draft pass ${(costs.draft / costs.target[0]).toFixed(2)}. ` +
      computedBy(how),
  ];
}

/** Returns what computed a run, and why the others did not. */
function computedBy({ way, threads, trial, missing }) {
  const names = {
    one: "one thread",
    threads: threads > 1 ? `${threads} threads` : "several threads",
    gpu: "the graphics processor",
  };
  const lost = Object.keys(trial ?? {}).filter((each) => each !== way && !missing[each]);
  const slower = lost.map(
    (each) => `${names[each] ?? each} took ${(trial[each] / trial[way]).toFixed(1)} times as long`,
  );
  return [
    `Computed by ${names[way]}${slower.length ? `; in the trial ${slower.join(" and ")}` : ""}.`,
    ...Object.values(missing),
  ].join(" ");
}

function device() {
  const { userAgentData, hardwareConcurrency, userAgent } = navigator;
  const system = userAgentData?.platform ?? /\(([^;)]+)/.exec(userAgent)?.[1] ?? "unknown system";
  return `${system}, ${hardwareConcurrency ?? "?"} threads`;
}

function layout(id, { smollm2, questions }, onKind) {
  const kinds = Object.fromEntries(questions.map(({ kind }, i) => [i, kind]));
  const view = {
    kind: menuOf(`${id}-kind`, kinds, onKind),
    question: make("textarea", { id: `${id}-question`, rows: 3, maxlength: MOST, autocomplete: "off" }),
    run: make(
      "button",
      { type: "button", class: "sdl-button sdl-ask-run" },
      icon(),
      ` Load SmolLM2 (${megabytes(smollm2.bytes)}) and race`,
    ),
    cancel: make("button", { type: "button", class: "sdl-button", hidden: true }, "Cancel"),
    progress: make("progress", { max: 1, value: 0, "aria-label": "Download of SmolLM2", hidden: true }),
    status: make("p", { class: "sdl-ask-status", role: "status" }),
    lanes: { plain: growingLane(PLAIN), speculative: growingLane(SPECULATIVE) },
    drafter: menuOf(`${id}-drafter`, DRAFTERS),
    gamma: menuOf(`${id}-gamma`, [
      "chosen in every round",
      ...Array.from({ length: 7 }, (_, i) => String(i + 1)),
    ]),
    way: menuOf(`${id}-way`, WAYS),
    temperature: menuOf(`${id}-temperature`, { 0: "0: greedy", 0.7: "0.7", 1: "1" }),
    headline: make("strong", { class: "sdl-ask-headline" }),
    lesson: make("p", { class: "sdl-ask-lesson" }),
    gains: make("button", { type: "button", class: "sdl-button", hidden: true }, "Try a request that gains"),
    details: make("p", { class: "sdl-ask-details" }),
    share: make("button", { type: "button", class: "sdl-share" }, "copy a link to this result"),
    replay: make("div"),
    shared: make("p", { class: "sdl-ask-shared", hidden: true }),
  };
  view.growing = make("div", { hidden: true }, view.lanes.plain.node, view.lanes.speculative.node);
  view.result = make(
    "div",
    { hidden: true },
    view.headline,
    view.lesson,
    view.gains,
    view.replay,
    foldOf("What was measured", view.details),
    view.share,
  );
  view.root = make(
    "section",
    { class: "sdl sdl-ask sdl-fates", "aria-label": "Ask SmolLM2 in this page" },
    view.shared,
    make(
      "div",
      { class: "sdl-row" },
      labelled(`${id}-kind`, "Question", "change it, or type your own", view.kind),
    ),
    make("label", { for: `${id}-question`, class: "sdl-hidden" }, "Your question"),
    view.question,
    make("div", { class: "sdl-row sdl-ask-go" }, view.run, view.cancel, view.progress),
    view.status,
    view.growing,
    view.result,
    foldOf(
      "Settings",
      controlRow(
        labelled(`${id}-drafter`, "Drafts", "where the guesses come from", view.drafter),
        labelled(`${id}-gamma`, "γ", "draft length", view.gamma),
        labelled(`${id}-temperature`, "temperature", "0 takes the likeliest token", view.temperature),
        labelled(`${id}-way`, "Computed by", "the draft always by the processor", view.way),
      ),
    ),
  );
  return view;
}

async function showReplay(view, result, question) {
  if (!globalThis.sdlInteractives?.race) await loadScript(`${base()}../interactives/race.js`);
  const state = {
    races: [{ kind: "your question", request: question, lanes: result.lanes, speedups: result.speedups }],
    about: `Recorded now on this device (${device()}), in this page.`,
    race: 0,
    autoplay: true,
  };
  const mountPoint = make("div", { "data-module": "race", class: "sdl-interactive" });
  const script = make("script", { type: "application/json" });
  script.textContent = JSON.stringify(state);
  mountPoint.append(script);
  view.replay.replaceChildren(mountPoint);
  globalThis.sdlMount(mountPoint);
}

/** Mounts the panel. asked: a question that is raced at once, or "". */
function mount(el, parts, asked) {
  const useKind = () => {
    view.question.value = parts.questions[Number(view.kind.value)].text;
  };
  const view = layout(newId("ask"), parts, useKind),
    engine = machine(parts),
    { scripts, manifest, bytes } = parts.smollm2;
  const say = (text, bad = false) => {
    view.status.textContent = text;
    view.status.classList.toggle("sdl-ask-bad", bad);
  };
  const gaining = parts.questions.findIndex(({ gains }) => gains);
  let last = null;

  async function go() {
    const question = view.question.value;
    view.run.setAttribute("aria-disabled", "true");
    view.cancel.hidden = false;
    try {
      if (!engine.ready()) {
        view.progress.hidden = false;
        say("Loading SmolLM2. It comes from this book's own folder and stays in this browser's cache.");
        await engine.load(
          { type: "loadSmollm2", base: addressOf(""), published: manifest },
          "smollm2",
          scripts,
          (share) => {
            view.progress.value = share;
          },
        );
      }
      view.progress.hidden = true;
      view.replay.replaceChildren();
      view.result.hidden = true;
      view.growing.hidden = false;
      Object.values(view.lanes).forEach((lane) => lane.clear());
      say("Timing passes on this device, then decoding both ways…");
      const options = {
        question,
        drafter: view.drafter.value,
        gamma: Number(view.gamma.value),
        temperature: Number(view.temperature.value),
        way: view.way.value,
        seed: 1,
      };
      last = view.root.sdlResult = await engine.request({ type: "ask", options }, (message) => {
        if (message.type === "lane") view.lanes[message.lane].extend(message.passes);
        else say(`Timed turn ${message.turn} of ${message.of}: plain and speculative decoding alternate.`);
      });
      [view.headline.textContent, view.details.textContent] = summary(last);
      view.lesson.textContent = lesson(last);
      view.gains.hidden = last.speedup >= GAIN || gaining === Number(view.kind.value);
      view.growing.hidden = true;
      view.result.hidden = false;
      await showReplay(view, last, question);
      say("");
      view.root.dataset.runs = Number(view.root.dataset.runs ?? 0) + 1;
    } catch (error) {
      say(lineFor(error), true);
    }
    view.run.textContent = engine.ready() ? "Race" : `Load SmolLM2 (${megabytes(bytes)}) and race`;
    view.cancel.hidden = view.progress.hidden = true;
    view.run.removeAttribute("aria-disabled");
  }

  view.run.addEventListener("click", () => view.run.getAttribute("aria-disabled") || go());
  view.cancel.addEventListener("click", () =>
    engine.stop(new ReaderError("Cancelled. What has arrived stays in this browser's cache.")),
  );
  view.gains.addEventListener("click", () => {
    view.kind.value = gaining;
    useKind();
    go();
  });
  view.share.addEventListener("click", async () => {
    const address = location.href.replace(/#.*/, "") + shareFragment(last, device());
    history.replaceState(null, "", address);
    await navigator.clipboard?.writeText(address).catch(() => {});
    view.share.textContent = "the address of this page now carries the result";
  });
  useKind();
  if (asked) {
    view.question.value = asked;
    go();
  }
  const shared = sharedRun(location.hash);
  if (shared) {
    view.shared.hidden = false;
    view.shared.textContent =
      `Shared with you, and not checked by this page: ${times(shared.speedup)} (${times(shared.range[0])} to ${times(shared.range[1])}), ` +
      `${shared.perSecond[0].toFixed(1)} → ${shared.perSecond[1].toFixed(1)} tokens per second, measured on “${shared.device}”. ` +
      "Run it here to measure your device.";
  }
  el.replaceChildren(view.root);
  return () => engine.stop();
}

const icon = () =>
  make(
    "svg",
    { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" },
    make("path", { d: "M2 1l11 6-11 6z", fill: "currentColor" }),
  );

const note = (el, text, ...more) =>
  el.replaceChildren(
    make(
      "section",
      { class: "sdl sdl-ask", "aria-label": "Ask SmolLM2 in this page" },
      make("p", { role: "alert" }, icon(), " ", text),
      ...more,
    ),
  );

/** Shows one field and its button; nothing is loaded before the reader presses it. */
function closed(el, question, onAsk) {
  const id = newId("ask-field"),
    input = make("textarea", { id, rows: 1, autocomplete: "off", maxlength: 2000 });
  const button = make("button", { type: "button", class: "sdl-button sdl-ask-run" }, icon(), " Race it here");
  input.value = question;
  button.addEventListener("click", () => onAsk(input.value));
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    onAsk(input.value);
  });
  el.replaceChildren(
    make(
      "section",
      { class: "sdl sdl-ask sdl-ask-closed", "aria-label": "Ask SmolLM2 in this page" },
      make("label", { for: id }, make("strong", {}, "Race your own question")),
      make("div", { class: "sdl-ask-field" }, input, button),
      make("small", {}, "SmolLM2 loads into this page (101 MB). Nothing leaves your machine."),
    ),
  );
}

/** Mounts the panel after the engine has loaded, without weights. */
function render({ model, el }) {
  let unmount = () => {};
  const begin = (asked = "") =>
    open(
      el,
      "sdl-ask",
      (parts) => {
        if (!parts.smollm2)
          note(
            el,
            "This copy of the book was built without SmolLM2's weights, because they could not be downloaded at that time.",
          );
        else if (!addressOf("") && !parts.smollm2.scripts)
          note(
            el,
            "This downloaded copy has no weights of SmolLM2 (100 MB), so that it stays small. The published book has them, and so has the larger copy that `make zip` writes. The small pair runs here.",
          );
        else unmount = mount(el, parts, asked);
      },
      (line, again) => note(el, line, again),
    );
  if (model.get("question")) closed(el, model.get("question"), begin);
  else begin();
  return () => unmount();
}

export default { render };

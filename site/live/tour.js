// The guided tour of the live page: six stops. Each sets controls and says what to press and where to look.

import { button, make } from "../../specdec_book/viz/static/kit.js";

// set: values of the controls. look: the part of the page that scrolls into view.
export const STOPS = [
  {
    name: "Watch one round",
    words:
      "Press Run, then drag the slider under the text. Each step is one pass of the target. Accepted tokens have a solid line, a rejected token is crossed out, ↻ marks its replacement, and + marks the bonus token.",
    set: { gamma: 2, temperature: 0, format: "float32", preset: 0 },
    look: "run",
  },
  {
    name: "Compare the two bars",
    words:
      "The two bars under the text show how many tokens speculative and plain decoding have produced in the same time. The speedup is the quotient of the two numbers; the paragraph under the charts explains it.",
    set: {},
    look: "text",
  },
  {
    name: "Another kind of text",
    words:
      "The text is prose now. Predict first: which of T(k), c and α will change? Then press Run. Only α, and τ with it, depends on the text; T(k) and c depend on your device.",
    set: { preset: 6 },
    look: "run",
  },
  {
    name: "Draft too far",
    words:
      "γ is 8 now. Before you press Run, read the line in the second chart at γ = 8: it is the predicted speedup. Does the dot agree?",
    set: { gamma: 8, preset: 0 },
    look: "speedup",
  },
  {
    name: "Move the memory wall",
    words:
      "The same weights are stored as int8 now, so plain decoding too reads a quarter of the bytes. Press Run, and compare the first chart with the gray line of the previous run. A faster plain decoder can lower the speedup.",
    set: { gamma: 2, format: "int8" },
    look: "costs",
  },
  {
    name: "Nothing is lost",
    words:
      "At temperature 0 the page compares both texts token by token: look for “identical” among the numbers. The temperature is 1 now. Press Run: the text is a different draw from the same distribution.",
    set: { temperature: 1 },
    look: "run",
  },
];

/** Returns the tour's box as {node, ran}. visit: called with each stop that the reader opens. The next stop opens only
 *  after a run: call `ran` when one has ended. */
export function tour(visit) {
  let at = -1,
    waits = false; // whether this stop still waits for a run
  const name = make("strong"),
    words = make("span"),
    text = make("p", { class: "sdl-live-tour-words", "aria-live": "polite" }, name, " ", words);
  const back = button("Back", () => go(-1));
  const on = button("Take the tour", () => {
    if (waits) words.textContent = `Press Run first. ${STOPS[at].words}`;
    else go(1);
  });
  const node = make(
    "section",
    { class: "sdl-live-tour", "aria-label": "Tour in six stops" },
    text,
    make("div", { class: "sdl-row" }, back, on),
  );
  const show = () => {
    const stop = STOPS[at];
    name.textContent = stop ? `${at + 1} of ${STOPS.length}. ${stop.name}.` : "New here?";
    words.textContent = stop
      ? stop.words
      : "The tour has six stops, about a minute each. Use the buttons of this box.";
    back.hidden = at < 1;
    on.textContent =
      at < 0
        ? "Take the tour"
        : waits
          ? "Next stop, after a run"
          : at < STOPS.length - 1
            ? "Next stop"
            : "Leave the tour";
  };
  const go = (step) => {
    at = at + step === STOPS.length ? -1 : at + step;
    waits = step > 0 && at >= 0 && STOPS[at].look !== "text";
    show();
    if (at >= 0) visit(STOPS[at]);
  };
  show();
  return {
    node,
    ran() {
      waits = false;
      show();
    },
  };
}

// The guided tour of the live page: six stops, each with what to set, what to press and what to look at.

import { make } from "./charts.js";

// set: what the stop puts into the controls; look: the part of the page that is brought into view.
export const STOPS = [
  {
    name: "Watch one round",
    words:
      "Press Run, then drag the slider under the text. Each step is one pass of the target: accepted tokens stand on a solid line, a rejected one is crossed out, ↻ marks what replaced it, + the bonus token.",
    set: { gamma: 2, temperature: 0, format: "float32", preset: 0 },
    look: "run",
  },
  {
    name: "Read the race",
    words:
      "The two bars under the text show how far each way has come in the same time. The speedup is their quotient, and the paragraph under the charts says where it comes from.",
    set: {},
    look: "text",
  },
  {
    name: "Another kind of text",
    words:
      "Prose this time. Guess first: which of T(k), c and α will move? Run. Only α, and τ with it, knows what the text is about; the other two belong to your device.",
    set: { preset: 6 },
    look: "run",
  },
  {
    name: "Draft too far",
    words:
      "γ is 8 now. Before you run, read the line in the second chart at γ = 8: that is the formula's answer. Does the dot agree?",
    set: { gamma: 8, preset: 0 },
    look: "speedup",
  },
  {
    name: "Move the memory wall",
    words:
      "The same weights, in int8: a quarter of the bytes for plain decoding too. Run, and compare the first chart with the grey line of before. A faster plain decoder can make speculation look worse.",
    set: { gamma: 2, format: "int8" },
    look: "costs",
  },
  {
    name: "Nothing is lost",
    words:
      "At temperature 0 the page compares both texts token by token: look for “identical” among the numbers. Now the temperature is 1. Run: it is another draw, from the same distribution.",
    set: { temperature: 1 },
    look: "run",
  },
];

/** The tour's box; `visit` is told each stop that a reader goes to. */
export function tour(visit) {
  let at = -1;
  const name = make("strong"),
    words = make("span"),
    text = make("p", { class: "sdl-live-tour-words", "aria-live": "polite" }, name, " ", words);
  const back = make("button", { type: "button", class: "sdl-button" }, "Back"),
    on = make("button", { type: "button", class: "sdl-button" }, "Take the tour");
  const node = make(
    "section",
    { class: "sdl-live-tour", "aria-label": "Tour in six stops" },
    text,
    make("div", { class: "sdl-row" }, back, on),
  );
  const show = () => {
    const stop = STOPS[at];
    name.textContent = stop ? `${at + 1} of ${STOPS.length}. ${stop.name}.` : "New here?";
    words.textContent = stop ? stop.words : "Six stops, a minute each, by the buttons of this box.";
    back.hidden = at < 1;
    on.textContent = at < 0 ? "Take the tour" : at < STOPS.length - 1 ? "Next stop" : "Leave the tour";
  };
  const go = (step) => {
    at = at + step === STOPS.length ? -1 : at + step;
    show();
    if (at >= 0) visit(STOPS[at]);
  };
  back.addEventListener("click", () => go(-1));
  on.addEventListener("click", () => go(1));
  show();
  return node;
}

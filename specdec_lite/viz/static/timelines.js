// Two timelines: what the target computed at each place, and the tokens. Dragging the lower one by a place pairs
// each feature with the token that was drawn from it.

const DEFAULTS = { words: [], laws: [], shift: 0 };
const [TOP, GAP, BOX] = [20, 86, 30];

const formulas = {
  // The pairs that the draft is fed: numbers of a feature and of a token. The last word is not known yet.
  pairs: (words, shift) => Array.from({ length: words.length - 1 - shift }, (_, i) => [i, i + shift]),
  entropy: (law) => law.reduce((sum, [, q]) => sum - (q > 0 ? q * Math.log2(q) : 0), 0),
  // Where a drag of so many pixels leaves the shift: the nearer place, with columns `step` wide.
  shiftAt: (moved, step, from) => Math.min(1, Math.max(0, Math.round(from - moved / step))),
};

function draw(svg, s) {
  const width = widthOf(svg) || 320;
  const known = s.words.slice(0, -1);
  const step = width / (known.length + 1);
  const wide = Math.min(92, step - 8);
  const x = (place) => (place + 1.5) * step - wide / 2;
  svg.setAttribute("height", TOP + GAP + BOX + 14);
  svg.replaceChildren(
    make("text", { class: "sdl-faint", x: 0, y: TOP - 6 }, "features"),
    make("text", { class: "sdl-faint", x: 0, y: TOP + GAP - 6 }, "tokens"),
  );
  const box = (place, y, words, colour, dashed) =>
    svg.append(
      make("rect", {
        x: x(place),
        y,
        width: wide,
        height: BOX,
        rx: 6,
        fill: `color-mix(in srgb, ${colour} 14%, var(--sdl-surface))`,
        stroke: colour,
        "stroke-width": 2,
        ...(dashed ? { "stroke-dasharray": "4 4" } : {}),
      }),
      make("text", { x: x(place) + wide / 2, y: y + 20, "text-anchor": "middle" }, words),
    );
  formulas.pairs(s.words, s.shift).forEach(([feature, token]) =>
    svg.append(
      make("path", {
        class: "sdl-edge sdl-edge-seen",
        d: `M${x(feature) + wide / 2} ${TOP + BOX}V${TOP + GAP}`,
        "data-token": token,
      }),
    ),
  );
  const most = Math.max(3, Math.floor(wide / 8));
  known.forEach((word, i) => {
    const short = word.replaceAll("\n", "⏎").slice(0, most);
    if (i < known.length - s.shift) box(i, TOP, `f${i}`, "var(--sdl-target)", false);
    box(i - s.shift, TOP + GAP, short, "var(--sdl-draft-line)", i < s.shift);
  });
}

function bars(s) {
  const { law } = s.laws[s.shift];
  const right = s.words.at(-1);
  return law.map(([word, q]) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, `${word === right ? "✓ " : ""}${quoted(word)}`),
      make(
        "td",
        {},
        make(
          "svg",
          { width: 180, height: 14, "aria-hidden": "true" },
          make("rect", {
            width: Math.max(1, 180 * q),
            height: 14,
            rx: 2,
            fill: word === right ? "var(--sdl-accepted)" : "var(--sdl-draft)",
          }),
        ),
      ),
      make("td", {}, q.toFixed(3)),
    ),
  );
}

function sentence(s) {
  const [feature, token] = formulas.pairs(s.words, s.shift).at(-1);
  return `The newest pair is feature f${feature} with ${quoted(s.words[token])}. The likeliest next token: ${quoted(s.laws[s.shift].law[0][0])}.`;
}

const taskState = (s) =>
  s.shift === 1
    ? `Now each feature meets the token that was drawn from it: agreement ${s.laws[1].agrees.toFixed(2)}, before ${s.laws[0].agrees.toFixed(2)}.`
    : "Every feature stands over its own token, which it knows already. What was drawn next it does not know.";

function render({ model, el }) {
  const id = newId("timelines");
  const state = () =>
    Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, model.get(name) ?? value]));
  const set = (shift) => {
    if (shift === state().shift) return;
    model.set("shift", shift);
    model.save_changes();
  };
  const start = state();
  const { announce, silence, task, spoken } = narration(
    "drag the row of tokens one place to the left, under the features, and watch q.",
    longest([0, 1].map((shift) => taskState({ ...start, shift }))),
    100,
    longest([0, 1].map((shift) => sentence({ ...start, shift }))),
  );
  const svg = make("svg", { role: "img" });
  const shift = slider(`${id}-shift`, { min: 0, max: 1, step: 1 }, set);
  const body = make("tbody");
  const readouts = make("dl", { class: "sdl-readouts" });
  const root = make(
    "section",
    { class: "sdl sdl-timelines", "aria-label": "Features and tokens on two timelines" },
    task,
    svg,
    field(`${id}-shift`, "shift of the tokens, in places", shift.output, shift.input),
    spoken,
    readouts,
    scroll(
      "The draft's q for the next token",
      make("table", { class: "sdl-numbers" }, columns(["token", "q", hidden("q as a number")]), body),
    ),
  );
  let from = null;
  svg.addEventListener("pointerdown", (event) => (from = { x: event.clientX, shift: state().shift }));
  svg.addEventListener("pointerup", () => (from = null));
  follow(svg, (px) => {
    if (!from) return;
    const moved = px + svg.getBoundingClientRect().left - from.x;
    const step = (svg.clientWidth || 320) / start.words.length;
    set(formulas.shiftAt(moved, step, from.shift));
  });
  const paint = () => {
    const s = state();
    draw(svg, s);
    const pairs = formulas.pairs(s.words, s.shift);
    const [feature, token] = pairs.at(-1);
    svg.setAttribute(
      "aria-label",
      `${pairs.length} pairs, the last of feature ${feature} and token ${quoted(s.words[token])}.`,
    );
    shift.input.value = s.shift;
    shift.output.textContent = s.shift;
    body.replaceChildren(...bars(s));
    define(readouts, [
      ["entropy of these words, bits", formulas.entropy(s.laws[s.shift].law).toFixed(2)],
      ["agrees with the target, over all places", s.laws[s.shift].agrees.toFixed(3)],
    ]);
    announce(() => [sentence(s), taskState(s)]);
  };
  const detach = attach({ model, el }, root, { "change:shift": paint }, paint);
  paint();
  return () => {
    detach();
    silence();
  };
}

export default { render, formulas };

// Two timelines: the target's features by position, and the tokens. Dragging the tokens by one position pairs each
// feature with the token that was drawn from it.

const DEFAULTS = { words: [], laws: [], shift: 0 };
const [TOP, GAP, BOX] = [20, 76, 30];
const BAR = 260; // px, the longest bar

const formulas = {
  // The pairs that the draft reads: index of a feature, index of a token. The last word is not known yet.
  pairs: (words, shift) => Array.from({ length: words.length - 1 - shift }, (_, i) => [i, i + shift]),
  // The largest q of both distributions: the length of a full bar.
  largest: (laws) => Math.max(...laws.flatMap(({ law }) => law.map(([, q]) => q))),
  // The shift after a drag by `distance` pixels, rounded to columns of width `step`.
  shiftAt: (distance, step, from) => Math.min(1, Math.max(0, Math.round(from - distance / step))),
};

function draw(svg, s) {
  const width = widthOf(svg) || 320;
  const known = s.words.slice(0, -1);
  const step = width / (known.length + 1);
  const wide = Math.min(92, step - 8);
  const x = (position) => (position + 1.5) * step - wide / 2;
  svg.setAttribute("height", TOP + GAP + BOX + 14);
  svg.replaceChildren(
    make("text", { class: "sdl-faint", x: 0, y: TOP - 6 }, "features"),
    make("text", { class: "sdl-faint", x: 0, y: TOP + GAP - 6 }, "tokens"),
  );
  const box = (position, y, words, color, dashed) =>
    svg.append(
      make("rect", {
        x: x(position),
        y,
        width: wide,
        height: BOX,
        rx: 6,
        fill: `color-mix(in srgb, ${color} 14%, var(--sdl-surface))`,
        stroke: color,
        "stroke-width": 2,
        ...(dashed ? { "stroke-dasharray": "4 4" } : {}),
      }),
      make("text", { x: x(position) + wide / 2, y: y + 20, "text-anchor": "middle" }, words),
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
  const letters = Math.max(3, Math.floor(wide / 8));
  known.forEach((word, i) => {
    const whole = visible(word);
    const short = whole.length > letters ? `${whole.slice(0, letters - 1)}…` : whole;
    if (i < known.length - s.shift) box(i, TOP, `f${i}`, "var(--sdl-target)", false);
    box(i - s.shift, TOP + GAP, short, "var(--sdl-one)", i < s.shift);
  });
}

function bars(s) {
  const right = s.words.at(-1);
  const most = formulas.largest(s.laws);
  return s.laws[s.shift].law.map(([word, q]) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, `${word === right ? "✓ " : ""}${quoted(word)}`),
      make(
        "td",
        {},
        make(
          "svg",
          { width: BAR, height: 14, "aria-hidden": "true" },
          make("rect", {
            width: Math.max(1, (BAR * q) / most),
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
  return `The newest pair is feature f${feature} with ${quoted(s.words[token])}. The draft's likeliest next token is ${quoted(s.laws[s.shift].law[0][0])}.`;
}

const taskState = (s) =>
  s.shift === 1
    ? `Now each feature is paired with the token that was drawn from it. The draft agrees with the target at ${s.laws[1].agrees.toFixed(2)} of all positions; without the shift it was ${s.laws[0].agrees.toFixed(2)}.`
    : "Each feature is paired with its own token, which the feature already contains. The token drawn next is unknown to the draft.";

const SHIFT = { name: "shift", text: "shift of the tokens, in positions", min: 0, max: 1, digits: 0 };

function render({ model, el }) {
  const state = () => stateOf(model, DEFAULTS);
  const set = ({ shift }) => shift !== state().shift && assign(model, { shift });
  const start = state();
  const svg = make("svg", { role: "img" });
  const [shift, show] = numberField(`${newId("timelines")}-shift`, SHIFT, set);
  const body = make("tbody");
  const full = `q; a full bar is ${formulas.largest(start.laws).toFixed(2)}`;
  const heads = columns(["token", full, hidden("q as a number")]);
  const table = make("table", { class: "sdl-numbers" }, heads, body);
  let from = null;
  svg.addEventListener("pointerdown", (event) => (from = { x: event.clientX, shift: state().shift }));
  svg.addEventListener("pointerup", () => (from = null));
  follow(svg, (px) => {
    if (!from) return;
    const distance = px + svg.getBoundingClientRect().left - from.x;
    const step = (svg.clientWidth || 320) / start.words.length;
    set({ shift: formulas.shiftAt(distance, step, from.shift) });
  });
  const paint = () => {
    const s = state();
    draw(svg, s);
    const pairs = formulas.pairs(s.words, s.shift);
    const [feature, token] = pairs.at(-1);
    svg.setAttribute(
      "aria-label",
      `${pairs.length} pairs. The last one is feature ${feature} with token ${quoted(s.words[token])}.`,
    );
    show(s.shift);
    body.replaceChildren(...bars(s));
    const right = s.laws[s.shift].law.find(([word]) => word === s.words.at(-1))?.[1] ?? 0;
    const tiles = [
      ["q of the target's token", right.toFixed(3)],
      ["agreement with the target, all positions", s.laws[s.shift].agrees.toFixed(3)],
    ];
    return [tiles, () => [sentence(s), taskState(s)]];
  };
  const both = [0, 1].map((each) => ({ ...start, shift: each }));
  const spec = {
    name: "timelines",
    label: "Features and tokens on two timelines",
    task: "drag the row of tokens one position to the left and watch q.",
    longestState: longest(both.map(taskState)),
    longestSentence: longest(both.map(sentence)),
    listens: ["shift"],
  };
  const layout = ({ task, spoken, tiles }) => [
    task,
    svg,
    shift,
    make("div", {}, spoken),
    ...tiles,
    scroll("The draft's q for the next token", table),
  ];
  return panel({ model, el }, spec, layout, paint);
}

export default { render, formulas };

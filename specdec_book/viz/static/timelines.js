// Two timelines: the target's features by position, and the tokens. Dragging the tokens by one position pairs each
// feature with the token that was drawn from it. The last pair leads to the draft's guess.

const NAMES = ["words", "laws", "shift"];
const [TOP, GAP, BOX, GUESS] = [22, 58, 30, 110]; // y of the features, and from there to the tokens and to the guess
const NARROW = 560; // px; below, only the last pairs are drawn
const BAR = 260; // px, the longest bar

const formulas = {
  // The pairs that the draft reads: index of a feature, index of a token. The feature of the last known token is what
  // the draft has to predict, so it is in no pair.
  pairs: (words, shift) => Array.from({ length: words.length - 2 }, (_, i) => [i, i + shift]),
  // The largest q of both distributions: the length of a full bar.
  largest: (laws) => Math.max(...laws.flatMap(({ law }) => law.map(([, q]) => q))),
  // The shift after a drag by `distance` pixels, rounded to columns of width `step`.
  shiftAt: (distance, step, from) => Math.min(1, Math.max(0, Math.round(from - distance / step))),
};

const guessOf = (s) => s.laws[s.shift].law[0][0];
const isRight = (s) => guessOf(s) === s.words.at(-1);

// The tokens that are drawn: all known ones, or the last three.
const shownWords = (s, width) => s.words.slice(width < NARROW ? -4 : 0, -1);
const columnsOf = (s, width) => shownWords(s, width).length + 1; // with a free one on the left

function drawPairs(svg, width, s) {
  const known = shownWords(s, width);
  const step = width / columnsOf(s, width);
  const wide = Math.min(116, step - 8);
  const middle = (position) => (position + 1.5) * step;
  const isNarrow = width < NARROW;
  svg.setAttribute("height", TOP + GUESS + BOX + (isNarrow ? 94 : 24));
  const box = (at, y, words, color, { dashed = false, size = wide } = {}) => {
    const tint = `color-mix(in srgb, ${ink(color)} 18%, var(--sdl-surface))`;
    const look = dashed ? { fill: "none", "stroke-dasharray": "3 4" } : { fill: tint };
    const frame = { rx: 6, stroke: ink(color), "stroke-width": 2, ...look };
    const middle = { class: dashed ? "sdl-faint" : "", "text-anchor": "middle" };
    svg.append(block(at - size / 2, y, size, BOX, "", frame), svgText(at, y + 20, words, middle));
  };
  const letters = Math.max(3, Math.floor(wide / 8));
  const short = (word, most = letters) => shortened(visible(word).trim(), most);
  const note = (x, y, words, anchor = "middle") =>
    svg.append(svgText(x, y, words, { class: "sdl-faint", "text-anchor": anchor }));
  const tokens = TOP + GAP;
  const last = known.length - 2; // of the features
  svg.append(
    ...Array.from({ length: last + 1 }, (_, i) =>
      make("path", { class: "sdl-edge", d: `M${middle(i)} ${TOP + BOX}V${tokens}` }),
    ),
    make("path", { class: "sdl-edge sdl-edge-seen", d: `M${middle(last)} ${tokens + BOX}V${TOP + GUESS}` }),
  );
  note(0, TOP - 8, "the target's feature after each token", "start");
  known.slice(0, -1).forEach((word, i) => box(middle(i), TOP, `f(${short(word, letters - 3)})`, "target"));
  known.forEach((word, i) => {
    const at = i - s.shift;
    const isRead = at >= 0 && at <= last;
    box(middle(at), tokens, short(word), "muted", { dashed: !isRead });
    if (!isRead) note(middle(at), tokens + BOX + 16, s.shift ? "left out" : "not read");
  });
  const guess = visible(guessOf(s)).trim();
  const color = isRight(s) ? "accepted" : "draft";
  const size = Math.min(width, 9 * guess.length + 110);
  const at = Math.min(middle(last), width - size / 2 - 2);
  box(at, TOP + GUESS, `guess: ${guess} ${isRight(s) ? "✓" : "✗"}`, color, { size });
  note(at, TOP + GUESS + BOX + 17, `the target writes “${visible(s.words.at(-1)).trim()}”`);
  const most = Math.max(...s.laws.map(({ agrees }) => agrees));
  s.laws.forEach(({ agrees }, i) => {
    const y = TOP + GUESS + 28 * i + (isNarrow ? BOX + 32 : 0); // below the guess, or beside it
    const long = ((isNarrow ? width - 216 : width / 3) * agrees) / most;
    svg.append(block(0, y, long, 22, i === s.shift ? "draft" : "control-line", { rx: 3 }));
    note(long + 8, y + 16, `${percent(agrees)} right with the ${i ? "next" : "own"} token`, "start");
  });
}

function bars(s) {
  const right = s.words.at(-1);
  const most = formulas.largest(s.laws);
  return s.laws[s.shift].law.map(([word, q]) => {
    const color = word === right ? "accepted" : "draft";
    const bar = block(0, 0, Math.max(1, (BAR * q) / most), 14, color, { rx: 2 });
    const svg = make("svg", { width: BAR, height: 14, "aria-hidden": "true" }, bar);
    return numbersRow([`${word === right ? "✓ " : ""}${quoted(word)}`, svg, q.toFixed(3)]);
  });
}

const wordOf = (s, i) => `“${visible(s.words[i]).trim()}”`;

function sentence(s) {
  const [feature, token] = formulas.pairs(s.words, s.shift).at(-1);
  const pair = `The last pair is the feature of ${wordOf(s, feature)} with ${wordOf(s, token)}`;
  const guess = `“${visible(guessOf(s)).trim()}”`;
  return s.shift
    ? `${pair}, which was drawn from it. The block guesses ${guess}.`
    : `${pair}. The block cannot know that ${wordOf(s, feature + 1)} was drawn, and guesses ${guess}.`;
}

const taskState = (s) =>
  s.shift === 1
    ? "Now each feature meets the token that was drawn from it."
    : "Each feature meets its own token, which it already contains.";

const SHIFT = { name: "shift", text: "shift of the tokens, in positions", max: 1 };

function render(context) {
  const start = valuesOf(context.model, NAMES);
  const set = ({ shift }) => shift !== context.model.get("shift") && assign(context.model, { shift });
  const body = make("tbody");
  const full = `q; a full bar is ${formulas.largest(start.laws).toFixed(2)}`;
  const heads = columns(["token", full, hidden("q as a number")]);
  const table = make("table", { class: "sdl-numbers" }, heads, body);
  let from = null; // where the tokens were pressed, and their shift there
  const draw = (s) => {
    body.replaceChildren(...bars(s));
    return [[], () => [sentence(s), taskState(s)]];
  };
  const both = [0, 1].map((shift) => ({ ...start, shift }));
  const spec = {
    name: "timelines",
    label: "Features and tokens on two timelines",
    task: "drag the row of tokens one position to the left and watch the guess.",
    longestState: longest(both.map(taskState)),
    longestSentence: longest(both.map(sentence)),
    values: NAMES,
    change: set,
    controls: [SHIFT],
    charts: {
      pairs: {
        title: "",
        drag: true,
        draw(svg, width, s) {
          drawPairs(svg, width, s);
          const pairs = formulas.pairs(s.words, s.shift);
          const [feature, token] = pairs.at(-1);
          const last = `The last one is feature ${feature} with token ${quoted(s.words[token])}.`;
          svg.setAttribute("aria-label", `${pairs.length} pairs. ${last}`);
          return (px) => {
            from ??= { px, shift: s.shift };
            const step = width / columnsOf(s, width);
            return { shift: formulas.shiftAt(px - from.px, step, from.shift) };
          };
        },
      },
    },
  };
  const layout = ({ task, spoken, tiles, controls, charts }) => {
    charts.pairs.svg.addEventListener("pointerdown", () => (from = null));
    return [
      task,
      charts.pairs.svg,
      controls.shift,
      make("div", {}, spoken),
      ...tiles,
      foldOf("The likeliest guesses, with q", table),
    ];
  };
  return panel(context, spec, layout, draw);
}

export default { render, formulas };

// The α–γ–c explorer. The formulas are those of specdec_lite/theory.py; a test compares them on a grid. TABLE has the
// published rows of results/published.json.

const MAX_GAMMA = 24;
const MAX_C = 1.2;

const formulas = {
  expectedTokens,
  correctedImprovement: (tokens, gamma, c, verify = 1, overhead = 0, plainOverhead = 0) =>
    ((1 + plainOverhead) * tokens) / (verify + gamma * c + overhead),
  walltimeImprovement: (alpha, gamma, c) => expectedTokens(alpha, gamma) / (1 + gamma * c),
  guaranteedImprovement: (alpha, c) => (alpha > c ? (1 + alpha) / (1 + c) : 1),
  operationsFactor: (alpha, gamma, cHat) => (gamma * cHat + gamma + 1) / expectedTokens(alpha, gamma),
  draftedAcceptance: (alpha, gamma) => (expectedTokens(alpha, gamma) - 1) / gamma,
  draftingShare: (gamma, c, verify = 1, overhead = 0) => (gamma * c) / (verify + gamma * c + overhead),
  optimalGamma: (alpha, c, maxGamma = 64) =>
    alpha > c ? largestAt(maxGamma, (gamma) => formulas.walltimeImprovement(alpha, gamma, c)) : [0, 1],
};

const T5 = "T5-XXL, published (Leviathan et al. 2023, table 2)";
const LENIENT = "Lenience l, T5-XXL EnDe T=1 (from a secondary source)";
const LENIENCES = [1, 0.5, 0.3, 0.1];
const lenient = TABLE.leviathan2023_lenience_alpha.find(([draft]) => draft === "t5-small").slice(1);
const presets = [
  ...TABLE.leviathan2023_table2.map(([task, draft, temperature, gamma, alpha, c, , measured]) => {
    const label = `${task}, ${draft}, T=${temperature}`;
    return { group: T5, label, alpha, gamma, c, measured };
  }),
  ...lenient.map((alpha, i) => {
    const label = `t5-small, l = ${LENIENCES[i]}`;
    return { group: LENIENT, label, alpha, gamma: 7, c: 0.02 };
  }),
];

const SLIDERS = [
  { name: "alpha", text: "α", note: "acceptance rate", max: 1, step: 0.01 },
  { name: "gamma", text: "γ", note: "draft length", min: 1, max: MAX_GAMMA },
  { name: "c", text: "c", note: "draft ÷ target pass", max: MAX_C, step: 0.01 },
];
const CORRECTIONS = [
  { name: "step_cost", text: "t", note: "v = 1 + γt: extra time per verified token", max: 0.5, step: 0.005 },
  { name: "overhead", text: "o", note: "everything else in a round", max: 2, step: 0.01 },
  { name: "plain_overhead", text: "o₀", note: "everything else in a plain step", max: 2, step: 0.01 },
  { name: "c_hat", text: "ĉ", note: "operations of draft ÷ target", max: MAX_C, step: 0.01 },
];
const NUMBERS = [...SLIDERS, ...CORRECTIONS].map(({ name }) => name);
const TASK = { c: 0.2, speedup: 2 };
const RISE = 1.25; // what the task of a measured pair asks for
const [FORMULA, CORRECTED] = ["one", "other"]; // of the curves without and with all costs
const WIDE = 6; // target passes that the bars are wide, whatever the sliders say
// Of the two plots over γ: top and bottom of tokens and costs, then the height of their ratio, which is lower beside the
// facts of a measured pair.
const UPPER = { top: 14, bottom: 66 };
const RATIO = { top: UPPER.bottom + 18, height: 192, low: 94, below: 40 };
const PLANE = 170; // of the plane in its fold
const solved = (alpha, gamma) =>
  `Solved: α = ${alpha.toFixed(2)}, with γ = ${gamma}. Drafts that cost a fifth of the target need this acceptance rate.`;

// Results -----------------------------------------------------------------------------------------

// The speedup at the chosen γ with all costs.
const predicted = (s) => consequences(s).corrected[s.gamma - 1];

// What each change alone does to a measured pair: [what changes, predicted speedup].
function levers(s) {
  const gamma = consequences(s).correctedGamma;
  const halves = {
    "1 − α halved": { alpha: (1 + s.alpha) / 2 },
    "c halved": { c: s.c / 2 },
    "t halved": { step_cost: s.step_cost / 2 },
    "o halved": { overhead: s.overhead / 2 },
    "o₀ removed": { plain_overhead: 0 },
    [`best γ, ${gamma}`]: { gamma },
  };
  return Object.entries(halves).map(([name, change]) => [name, predicted({ ...s, ...change })]);
}

// The state of the task of a measured pair whose own numbers are `own`.
function leverState(s, own) {
  const goal = RISE * predicted(own);
  const moved = SLIDERS.filter(({ name }) => s[name] !== own[name]);
  const others = CORRECTIONS.filter(({ name }) => s[name] !== own[name]);
  const [now, aim] = [times(predicted(s)), times(goal)];
  if (others.length || moved.length > 1) return "Move one slider only: choose the pair again.";
  if (!moved.length) return `The prediction is ${now}; reach ${aim}.`;
  const [{ text: symbol, name, step }] = moved;
  const at = `${symbol} = ${s[name].toFixed(digitsOf(step))}`;
  return predicted(s) >= goal
    ? `Solved with ${at}: ${now}. Can another slider do it too?`
    : `Not yet: ${at} gives ${now} of ${aim}.`;
}

function consequences(s) {
  const tokens = expectedTokens(s.alpha, s.gamma);
  const verify = (gamma) => 1 + s.step_cost * gamma;
  const corrected = (gamma) => {
    const emitted = expectedTokens(s.alpha, gamma);
    return formulas.correctedImprovement(emitted, gamma, s.c, verify(gamma), s.overhead, s.plain_overhead);
  };
  const [bestGamma, best] = formulas.optimalGamma(s.alpha, s.c, MAX_GAMMA);
  return {
    tokens,
    bestGamma,
    best,
    correctedGamma: largestAt(MAX_GAMMA, corrected)[0],
    isCorrected: s.step_cost > 0 || s.overhead > 0 || s.plain_overhead > 0,
    plain: gammas.map((gamma) => formulas.walltimeImprovement(s.alpha, gamma, s.c)),
    corrected: gammas.map(corrected),
    verify: verify(s.gamma),
    cost: verify(s.gamma) + s.gamma * s.c + s.overhead,
    plainCost: (1 + s.plain_overhead) * tokens,
    drafting: formulas.draftingShare(s.gamma, s.c, verify(s.gamma), s.overhead),
    operations: formulas.operationsFactor(s.alpha, s.gamma, s.c_hat),
    drafted: formulas.draftedAcceptance(s.alpha, s.gamma),
    least: formulas.guaranteedImprovement(s.alpha, s.c),
  };
}

function summary(s, r) {
  const start = `At α ${s.alpha.toFixed(2)}, γ ${s.gamma} and c ${s.c.toFixed(2)} a target pass emits ${r.tokens.toFixed(2)} tokens on average, `;
  const now = `and the speedup is ${times(r.plain[s.gamma - 1])}`;
  const corrected = r.isCorrected
    ? `, or ${times(r.corrected[s.gamma - 1])} with the measured costs. `
    : ". ";
  const best =
    r.bestGamma === 0
      ? "α is not above c, so no draft length pays."
      : `The best draft length is ${r.bestGamma}, for ${times(r.best)}.`;
  const measured = s.measured
    ? ` The measured speedup of ${s.measured.label} is ${times(s.measured.measured)} at γ ${s.measured.gamma}.`
    : "";
  return start + now + corrected + best + measured;
}

function taskState(s, r) {
  if (Math.abs(s.c - TASK.c) > 1e-9) return `Set c to ${TASK.c.toFixed(2)} first.`;
  if (r.best < TASK.speedup)
    return `Not yet: at this α the best draft length, ${r.bestGamma}, gives ${times(r.best)}.`;
  const [, below] = formulas.optimalGamma(s.alpha - 0.01, s.c, MAX_GAMMA);
  if (below >= TASK.speedup)
    return `${times(r.best)} is enough, but a smaller α still reaches ${TASK.speedup}×.`;
  return solved(s.alpha, r.bestGamma);
}

// Drawing -----------------------------------------------------------------------------------------

const gammas = Array.from({ length: MAX_GAMMA }, (_, i) => i + 1);
const OVER_GAMMA = [0.5, MAX_GAMMA + 0.5];

function axes(svg, box, { x, y }, xTicks, yTicks, xTitle, yTitle, yText) {
  rulings(svg, box, y, yTicks, yText);
  axisBelow(svg, box, x, xTicks, xTitle);
  svg.append(foot(box), svgText(box.left - 34, box.top - 10, yTitle));
}

// Tokens and costs of a round at every γ, on the fixed scale of the bars: an area per cost, a line for the tokens.
function drawBalance(svg, box, s) {
  const { x, y } = scales(box, OVER_GAMMA, [0, WIDE]);
  const over = (value) => gammas.map((gamma) => [x(gamma), y(Math.min(WIDE, value(gamma)))]);
  const target = (gamma) => 1 + s.step_cost * gamma + s.overhead;
  const tokens = (gamma) => (1 + s.plain_overhead) * expectedTokens(s.alpha, gamma);
  const area = (value, below, color) =>
    region([...over(value), ...over(below).reverse()], color, { "fill-opacity": 0.45 });
  const long = "tokens (line); cost in target passes: drafts over verification";
  const words = box.right > 500 ? long : "tokens (line) and cost";
  rulings(svg, box, y, [0, 2, 4], (value) => value || "");
  svg.append(
    area((gamma) => target(gamma) + gamma * s.c, target, "draft"),
    area(target, () => 0, "target"),
    curve(over(tokens), "accepted", { "stroke-width": 4 }),
    svgText(box.left - 34, box.top - 5, words),
  );
}

// On one axis, γ: above what a round gains and costs, below the ratio of both with its peak.
function drawCurve(svg, width, s, r) {
  const sides = { left: 40, right: width - 12 };
  const box = { ...sides, top: RATIO.top, bottom: svg.getAttribute("height") - RATIO.below };
  const top = Math.max(1.25, 1.12 * Math.max(...r.plain, ...r.corrected, s.measured?.measured ?? 0));
  const plane = scales(box, OVER_GAMMA, [0, top]);
  const { x, y, at } = plane;
  const title = "draft length γ (drag to set it)";
  drawBalance(svg, { ...sides, ...UPPER }, s);
  axes(svg, box, plane, [1, 4, 8, 12, 16, 20, 24], roundTicks(top, 6), title, "speedup", (v) => `${v}×`);
  const isLeft = s.gamma > MAX_GAMMA / 2;
  const aside = { class: "sdl-faint", "text-anchor": isLeft ? "start" : "end" };
  const points = (values) => values.map((v, i) => [x(i + 1), y(v)]);
  svg.append(
    block(box.left, y(1), box.right - box.left, y(0) - y(1), "plain", { opacity: 0.15 }),
    stroke(box.left, y(1), box.right, y(1), "plain", { "stroke-width": 2, "stroke-dasharray": "2 3" }),
    svgText(isLeft ? box.left + 4 : box.right - 4, y(0) - 8, "slower than plain decoding", aside),
    stroke(x(s.gamma), UPPER.top, x(s.gamma), box.bottom, "you", { "stroke-dasharray": "3 3" }),
    curve(points(r.plain), FORMULA, { "stroke-width": 4 }),
  );
  if (r.isCorrected)
    svg.append(
      curve(points(r.corrected), CORRECTED, { "stroke-dasharray": "6 4" }),
      spot(x(s.gamma), y(r.corrected[s.gamma - 1])),
    );
  if (s.measured) svg.append(square(x(s.measured.gamma), y(s.measured.measured), 6, "sdl-measured"));
  if (r.bestGamma > 0) svg.append(diamond(x(r.bestGamma), y(r.best)));
  svg.append(yourPoint(x(s.gamma), y(r.plain[s.gamma - 1])));
  return (px) => ({ gamma: Math.min(MAX_GAMMA, Math.round(at(px, 0)[0])) });
}

const HOLLOW = { stroke: ink("ink"), "stroke-width": 2.5 };
const square = (px, py, size, name = "") =>
  block(px - size, py - size, 2 * size, 2 * size, "surface", { class: name, ...HOLLOW });
const diamond = (px, py, size = 10) => {
  const d = `M${px} ${py - size}l${size} ${size}l${-size} ${size}l${-size} ${-size}Z`;
  return make("path", { d, fill: "none", ...HOLLOW });
};
const spot = (px, py, size = 5) => disc(px, py, size, CORRECTED);

// The key of the plot: a small mark and its text for each mark. It is outside the plot, so no text covers a mark.
function keys(s, r) {
  const key = (mark, size, words) =>
    make("li", {}, make("svg", { width: 16, height: 16, "aria-hidden": "true" }, mark(8, 8, size)), words);
  const now = times(r.plain[s.gamma - 1]);
  const { measured } = s;
  return [
    key(yourPoint, 5, `you, γ = ${s.gamma}: ${now}`),
    r.bestGamma > 0 && key(diamond, 6, `best, γ = ${r.bestGamma}: ${times(r.best)}`),
    r.isCorrected && key(spot, 5, `you, with t, o and o₀: ${times(r.corrected[s.gamma - 1])}`),
    measured && key(square, 5, `measured, γ = ${measured.gamma}: ${times(measured.measured)}`),
  ].filter(Boolean);
}

function contour(level) {
  const points = [];
  for (let c = 0; c <= 1; c += 0.02) {
    if (formulas.optimalGamma(1, c, MAX_GAMMA)[1] < level) break;
    let [low, high] = [c, 1];
    for (let i = 0; i < 20; i++) {
      const middle = (low + high) / 2;
      if (formulas.optimalGamma(middle, c, MAX_GAMMA)[1] < level) low = middle;
      else high = middle;
    }
    points.push([c, high]);
  }
  return points;
}
const CONTOURS = [1.5, 2, 3, 5].map((level) => ({ level, points: contour(level) }));

function drawPlane(svg, width, s) {
  const box = { left: 40, right: width - 12, top: 30, bottom: PLANE - 40 };
  const plane = scales(box, [0, MAX_C], [0, 1]);
  const { x, y, at } = plane;
  const never = [
    [x(0), y(0)],
    [x(1), y(1)],
    [x(MAX_C), y(1)],
    [x(MAX_C), y(0)],
  ];
  const [costs, rates] = [
    [0, 0.2, 0.4, 0.6, 0.8, 1],
    [0, 0.25, 0.5, 0.75, 1],
  ];
  axes(svg, box, plane, costs, rates, "c, cost of a draft pass", "α");
  const middle = { "text-anchor": "middle" };
  svg.append(
    region(never, "plain", { "fill-opacity": 0.18 }),
    breakEven(x, y),
    svgText(x(0.35) + 8, y(0.35) + 6, "α = c", { class: "sdl-halo" }),
    svgText(x(0.8), y(0.1), "α ≤ c: never pays", { class: "sdl-halo", ...middle }),
  );
  for (const { level, points } of CONTOURS) {
    const line = points.map(([c, alpha]) => [x(c), y(alpha)]);
    svg.append(
      curve(line, FORMULA, { "stroke-width": 1.5 }),
      svgText(line.at(-1)[0], y(1) - 6, `${level}×`, { class: "sdl-faint", ...middle }),
    );
  }
  svg.append(yourPoint(x(s.c), y(s.alpha)));
  return (px, py) => {
    const [c, alpha] = at(px, py).map((value) => Math.round(100 * value) / 100);
    return { c, alpha };
  };
}

// The bars of a round and of the plain decoding of its tokens. A brick per draft, and per token, which is as long and as
// dark as the probability that the round emits it.
function drawRound(svg, width, s, r) {
  const drafting = s.gamma * s.c;
  const end = width - 40; // what does not fit is cut off there
  const unit = (end - 2) / WIDE;
  const [high, low] = [16, 54]; // of the two bars
  const brick = (start, length, color, row, more = {}) => {
    const from = 2 + start * unit;
    svg.append(block(from, row, Math.min(length * unit, end - from), 20, color, more));
  };
  const passes = (cost) => `${cost.toFixed(2)} target passes`;
  svg.append(svgText(2, high - 5, `cost of a round: ${passes(r.cost)}`));
  brick(0, Math.max(drafting, 2 / unit), "draft", high);
  brick(drafting, r.verify, "target", high);
  brick(drafting + r.verify, s.overhead, "one", high);
  // closer lines would cover the bars
  for (let i = 1; i <= s.gamma && s.c * unit >= 4 && i * s.c < WIDE; i++) {
    const edge = 2 + i * s.c * unit;
    svg.append(stroke(edge, high, edge, high + 20, "surface", { "stroke-width": 1.5 }));
  }
  svg.append(svgText(2, low - 5, `its tokens, decoded plainly: ${passes(r.plainCost)}`));
  let start = 0;
  for (let i = 0, probability = 1; i <= s.gamma && start < WIDE; i++, probability *= s.alpha) {
    const length = (1 + s.plain_overhead) * probability;
    const more = { "fill-opacity": 0.15 + 0.85 * probability, stroke: ink("accepted") };
    brick(start, length, "accepted", low, more);
    start += length;
  }
  if (r.cost > WIDE) svg.append(svgText(end + 6, high + 15, "→"));
  if (r.plainCost > WIDE) svg.append(svgText(end + 6, low + 15, "→"));
  const stop = Math.min(end, 2 + r.cost * unit);
  svg.append(stroke(stop, high, stop, low + 24, "ink", { "stroke-dasharray": "4 3" }));
}

// Putting it together -----------------------------------------------------------------------------

function readouts(s, r, preset) {
  const numbers = [
    ["tokens per pass", r.tokens.toFixed(2)],
    ["speedup", times(r.plain[s.gamma - 1])],
    r.isCorrected
      ? ["best γ with t, o and o₀", `${r.correctedGamma} (${times(r.corrected[r.correctedGamma - 1])})`]
      : ["speedup at γ = 1", r.bestGamma === 0 ? "none" : times(r.least)],
    ["time spent drafting", percent(r.drafting)],
    ["accepted ÷ drafted", r.drafted.toFixed(3)],
    ["operations over plain", times(r.operations)],
  ];
  if (preset?.measured) numbers.push(["measured speedup", times(preset.measured)]);
  return numbers;
}

function render(context) {
  const { model } = context;
  const isLevers = model.get("levers"); // for measured pairs: the point stays while sliders move
  let given, choices, own;
  const values = () => valuesOf(model, NUMBERS);
  const matches = (choice) =>
    Object.entries(values()).every(([name, value]) => !(name in choice) || choice[name] === value);
  let preset = null;
  const measured = () => (preset?.measured && preset.gamma ? preset : null);
  const change = (changes, from = isLevers ? preset : null) => {
    preset = from;
    assign(model, changes);
  };
  const pick = (value) => {
    const picked = choices[value] ?? null;
    const start = { step_cost: 0, overhead: 0, plain_overhead: 0 };
    const numbers = NUMBERS.filter((name) => picked && name in picked).map((name) => [name, picked[name]]);
    change(picked ? { ...start, ...Object.fromEntries(numbers) } : {}, picked);
    own = values();
    context.repaint(); // the model reports no change between two presets with the same values
  };
  const start = make("div");
  const id = `${newId("explorer")}-preset`;
  // The menu of the presets, rebuilt when the kernel has measured another pair.
  const offer = () => {
    if (given === model.get("presets") && choices) return;
    given = model.get("presets");
    choices = [...(isLevers ? [] : presets), ...(given ?? [])];
    preset = (given ?? []).findLast((choice) => choice.measured && matches(choice)) ?? null;
    own = values();
    const options = choices.map(({ label, group = "Measured" }, value) => ({ value, label, group }));
    const first = isLevers ? [] : [{ value: "", label: "your own values" }];
    start.replaceChildren(menu(id, [...first, ...options], pick));
  };
  const key = make("ul", { class: "sdl-keys" });
  const words = `a draft pass costs a fifth of a target pass (c = ${TASK.c.toFixed(2)}). What is the smallest α at which some draft length still doubles the speed?`;
  const [task, longestState] = isLevers
    ? ["move one slider only, so that the prediction rises by a quarter. Which of α, γ and c can do it?", ""]
    : [words, solved(0, 24)];
  const [facts, gains, numbers] = [0, 1, 2].map(() => make("dl", { class: "sdl-readouts" }));
  const by = make("p", { class: "sdl-note" });
  const about = (s) => {
    const { label, measured, by: who, source } = preset ?? {};
    const off = measured ? Math.round(100 * (predicted(own) / measured - 1)) : 0;
    const words = off ? `${Math.abs(off)} % too ${off < 0 ? "low" : "high"}` : "right to within 1 %";
    const link = source ? [make("a", { href: source, rel: "noopener" }, "source"), "."] : [];
    by.replaceChildren(...(preset ? [`${label}. ${who} `, ...link] : []));
    define(facts, preset?.facts ?? []);
    const pairs = levers(s).map(([name, value]) => [name, times(value)]);
    define(gains, pairs);
    return preset ? `Predicted ${times(predicted(own))}, measured ${times(measured ?? 0)}: ${words}. ` : "";
  };
  const draw = (s, { charts }) => {
    offer();
    Object.assign(s, { measured: measured() });
    const r = consequences(s);
    start.firstChild.value = preset ? String(choices.indexOf(preset)) : "";
    const miss = isLevers ? about(s) : "";
    const now = r.isCorrected ? r.corrected[s.gamma - 1] : r.plain[s.gamma - 1];
    charts.round.node.querySelector(".sdl-heading").textContent =
      `A round of ${plural(s.gamma, "draft")} emits ${r.tokens.toFixed(2)} tokens: ${times(now)} as fast`;
    key.replaceChildren(...keys(s, r));
    charts.curve.node.querySelector("figcaption").textContent =
      `${miss}${r.isCorrected ? "Dashed: with t, o and o₀." : ""}`;
    define(numbers, readouts(s, r, preset));
    return [[], () => [summary(s, r), isLevers ? leverState(s, own) : taskState(s, r)], r];
  };
  const roundLabel = "Cost of the same tokens, speculative and plain";
  const spec = {
    name: "explorer",
    label: "Explorer of the speedup by α, γ and c",
    task,
    longestState,
    values: ["presets", ...NUMBERS],
    change,
    controls: [...SLIDERS, ...CORRECTIONS],
    charts: {
      round: { title: "", caption: "", height: 74, label: roundLabel, draw: drawRound },
      curve: {
        title: "Speedup by draft length",
        caption: "",
        height: RATIO.top + (isLevers ? RATIO.low : RATIO.height) + RATIO.below,
        drag: true,
        draw: drawCurve,
      },
      plane: {
        title: "Best speedup by α and c",
        caption: "Lines: speedup at the best γ. Drag the dot.",
        height: PLANE,
        drag: true,
        draw: drawPlane,
      },
    },
  };
  const layout = ({ task, spoken, controls, charts }) => {
    charts.curve.node.firstChild.remove();
    charts.round.node.firstChild.after(key);
    charts.round.node.classList.add("sdl-headed");
    const pairs = field(id, isLevers ? "Pair" : "Start from", start);
    if (isLevers) pairs.classList.add("sdl-pair"); // the name of a pair needs more room than a slider
    const [main, corrections] = [SLIDERS, CORRECTIONS].map((list) => list.map(({ name }) => controls[name]));
    const folds = [foldOf("About this pair", by, facts), foldOf("Each lever alone", gains)];
    return [
      task,
      controlRow(pairs, ...main),
      chartRow(charts.round.node, charts.curve.node),
      spoken,
      foldRow(
        ...(isLevers ? folds : []),
        foldOf("The best speedup by α and c", chartRow(charts.plane.node)),
        foldOf("More costs: t, o, o₀, ĉ", controlRow(...corrections)),
        foldOf("All numbers", numbers),
      ),
    ];
  };
  return panel(context, spec, layout, draw);
}

export default { render, formulas: { ...formulas, levers, leverState }, presets };

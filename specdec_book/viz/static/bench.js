// The rejection-sampling bench. A test compares a rule's distribution with specdec_lite/acceptance.

const NAMES = "ABCDEFGH";
const MAX_DRAWS = 1e6;
const CERTAINTY = 0.99;
const FLOOR = 0.25; // confidence below which the rule "dropped" drops a token

const norm = (xs, otherwise) => (sum(xs) > 0 ? xs.map((x) => x / sum(xs)) : otherwise);
const likeliest = (xs) => xs.indexOf(Math.max(...xs));
const oneHot = (xs) => xs.map((_, i) => (i === likeliest(xs) ? 1 : 0));
const topTwo = (q) => {
  const top = [...q.keys()].sort((i, j) => q[j] - q[i] || i - j).slice(0, 2);
  return norm(q.map((v, i) => (top.includes(i) ? v : 0)));
};

// drawn: the distribution from which the draft draws. tested: the row that the test divides by. isTested: whether a
// token is tested at all. accept: probability of acceptance. recovered: the distribution after a rejection.
const SPECULATIVE_SAMPLING = {
  drawn: (p, q) => q,
  tested: (p, q) => q,
  isTested: () => true,
  accept: (p, t, i) => (t[i] > 0 ? Math.min(1, p[i] / t[i]) : 0),
  recovered: residual,
  bonus: null,
};
const rule = (id, group, label, parts = {}) => ({ ...SPECULATIVE_SAMPLING, id, group, label, ...parts });
const RULES = [
  rule("exact", "Lossless", "Speculative sampling"),
  rule("match", "Lossless", "Agree (sample and match)", {
    accept: (p, t, i) => p[i],
    recovered: (p, t) =>
      norm(
        p.map((v, i) => v * (1 - t[i])),
        p,
      ),
  }),
  rule("once", "Lossless if q covers p", "Rejection sampling with one try", {
    accept: (p, t, i) =>
      t[i] > 0 && p[i] > 0 ? p[i] / t[i] / Math.max(...p.map((v, j) => (t[j] > 0 ? v / t[j] : 0))) : 0,
    recovered: (p) => p,
  }),
  rule("likeliest", "Invented", "Likeliest: keep the argmax of p, else draw from p", {
    accept: (p, t, i) => (i === likeliest(p) ? 1 : 0),
    recovered: (p) => p,
  }),
  rule("confidence", "Invented", "Confidence: keep with probability p, else draw from p", {
    accept: (p, t, i) => p[i],
    recovered: (p) => p,
  }),
  rule("at_least", "Invented", "At least: keep if p ≥ q, else draw from p", {
    accept: (p, t, i) => (p[i] >= t[i] ? 1 : 0),
    recovered: (p) => p,
  }),
  rule("lenient", "Lossy on purpose", "Lenience l = 0.5", {
    accept: (p, t, i) => (t[i] > 0 ? Math.min(1, p[i] / (0.5 * t[i])) : 0),
  }),
  rule("from_q", "Broken", "Recovered from q instead of the residual", { recovered: (p, t) => t }),
  rule("from_p", "Broken", "Recovered from p", { recovered: (p) => p }),
  rule("bonus_argmax", "Broken", "Bonus by argmax (includes bonus tokens)", { bonus: oneHot }),
  rule("soft_argmax", "Broken", "Drafted argmax, tested with q", { drawn: (p, q) => oneHot(q) }),
  rule("before_temperature", "Broken", "q before temperature (drawn at T = 0.5)", {
    drawn: (p, q) => norm(q.map((v) => v * v)),
  }),
  rule("accept_zero", "Broken", "Accepted when q = 0 (row cut to its top 2)", {
    tested: (p, q) => topTwo(q),
    accept: (p, t, i) => (t[i] > 0 ? Math.min(1, p[i] / t[i]) : 1),
  }),
  rule("dropped", "Broken", `Dropped when q is below ${FLOOR}`, { isTested: (q, i) => q[i] >= FLOOR }),
];
const ruleOf = (id) => RULES.find((r) => r.id === id) ?? RULES[0];

const pair = (label, p, q) => ({ label, p, q });
const presets = [
  pair("the first example", [0.5, 0.3, 0.2], [0.3, 0.5, 0.2]),
  pair("the second example", [0.6, 0.3, 0.1], [0.4, 0.5, 0.1]),
  pair("draft = target", [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
  pair("a draft model that lacks a token", [0.3, 0.25, 0.25, 0.2], [0.5, 0.3, 0.2, 0]),
  pair("little overlap", [0.5, 0.4, 0.1, 0], [0, 0.1, 0.4, 0.5]),
  pair(
    "eight tokens",
    [0.3, 0.2, 0.15, 0.1, 0.1, 0.06, 0.05, 0.04],
    [0.1, 0.35, 0.05, 0.2, 0.1, 0.1, 0.02, 0.08],
  ),
];

function mulberry32(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const formulas = {
  rules: () => RULES.map(({ id }) => id),
  totalVariation: (p, q) => sum(p.map((v, i) => Math.abs(v - q[i]))) / 2,
  // Half the width of a band that contains all frequencies of n draws from p with probability CERTAINTY or more
  // (Hoeffding).
  band: (tokens, n) => Math.sqrt(Math.log((2 * tokens) / (1 - CERTAINTY)) / (2 * n)),
  noise: (p, n) => sum(p.map((v) => Math.sqrt((v * (1 - v)) / n))) / 2,
  // The distribution with one probability changed; the others keep their ratios.
  setShare(row, i, value) {
    const rest = 1 - row[i];
    return row.map((v, j) =>
      j === i ? value : rest > 1e-12 ? (v / rest) * (1 - value) : (1 - value) / (row.length - 1),
    );
  },
  // Everything that a rule does with p and q, as masses per token.
  evaluate(id, p, q) {
    const r = ruleOf(id);
    const drawn = r.drawn(p, q);
    const tested = r.tested(p, q);
    const recovered = r.recovered(p, tested);
    const verified = drawn.map((d, i) => (r.isTested(tested, i) ? d : 0));
    const accept = drawn.map((_, i) => r.accept(p, tested, i));
    const accepted = verified.map((d, i) => d * accept[i]);
    const acceptance = sum(accepted);
    const rejected = verified.map((d, i) => d * (1 - accept[i]));
    const dropped = 1 - sum(verified);
    const scale = r.bonus ? 1 / (1 + acceptance) : 1;
    const parts = {
      accepted: accepted.map((v) => v * scale),
      recovered: recovered.map((v) => v * sum(rejected) * scale),
      sampled: p.map((v) => v * dropped * scale),
      bonus: r.bonus ? r.bonus(p).map((v) => v * acceptance * scale) : p.map(() => 0),
    };
    const emitted = p.map((_, i) => sum(Object.values(parts).map((part) => part[i])));
    return { drawn, tested, recovered, verified, accept, accepted, rejected, acceptance, parts, emitted };
  },
  emitted: (id, p, q) => formulas.evaluate(id, p, q).emitted,
  // The residual after a number of rejected siblings, each drawn from q: its distribution, and its share of p.
  residualAfter(p, q, count) {
    let [distribution, share] = [p, 1];
    for (let k = 0; k < count; k++) {
      share *= sum(distribution.map((v, i) => Math.max(0, v - q[i])));
      distribution = residual(distribution, q);
    }
    return { distribution, share };
  },
  // Returns a function that emits one token by running the rule: draw, test, replace.
  sampler(id, p, q, seed) {
    const { drawn, tested, recovered, accept } = formulas.evaluate(id, p, q);
    const { isTested, bonus } = ruleOf(id);
    const random = mulberry32(seed);
    const draw = (row) => {
      let u = random() * sum(row);
      const i = row.findIndex((v) => v > 0 && (u -= v) < 0);
      return i < 0 ? row.findLastIndex((v) => v > 0) : i;
    };
    let hasBonus = false;
    return () => {
      if (hasBonus) {
        hasBonus = false;
        return draw(bonus(p));
      }
      const token = draw(drawn);
      if (!isTested(tested, token)) return draw(p);
      const isAccepted = random() < accept[token];
      hasBonus = isAccepted && bonus !== null;
      return isAccepted ? token : draw(recovered);
    };
  },
  simulate(id, p, q, n, seed) {
    const next = formulas.sampler(id, p, q, seed);
    const counts = p.map(() => 0);
    for (let k = 0; k < n; k++) counts[next()] += 1;
    return counts;
  },
};

// A chapter's tasks. `state(s, r)` says what is still missing, or begins with "Solved".

const needsRule = (s, id) => (s.rule === id ? "" : `Set the rule to “${ruleOf(id).label}” first.`);

// A pair that fits a wrong rule.
const fooled = (id, explanation) => ({
  words:
    `set the rule to “${ruleOf(id).label}”. Find p and q that differ by at least 0.1 in total variation and with ` +
    "which this rule still emits p. (Hint: start from draft = target.)",
  state(s, r) {
    const distance = formulas.totalVariation(s.p, s.q);
    const off = formulas.totalVariation(s.p, r.emitted);
    if (s.rule !== id) return needsRule(s, id);
    if (distance < 0.1)
      return `p and q differ by only ${distance.toFixed(3)}: make them differ by at least 0.1.`;
    if (off > 0.005)
      return `Not yet: the emitted distribution differs from p by ${off.toFixed(3)}. Which tokens should have the excess of q?`;
    return `Solved: p and q differ by ${distance.toFixed(2)}, and the rule emits p. ${explanation}`;
  },
});
const TASKS = {
  from_p: fooled(
    "from_p",
    "Here q is nearly a multiple of p, plus mass on tokens that p does not have. One pair is not a test of a rule.",
  ),
  lenient: fooled(
    "lenient",
    "All excess of q is on tokens that p does not have, so lenience changes nothing. One pair is not a test of a rule.",
  ),
  second_draw: {
    words:
      "find p and q with which the second sibling is never accepted, although the first one is sometimes rejected.",
    state(s, r) {
      if (s.rejected !== 1) return "Set the sibling under test to the second.";
      if (s.rule !== "exact") return needsRule(s, "exact");
      if (s.share < 0.01) return "With this pair the first draw is never rejected: make p and q differ.";
      return r.acceptance > 0.005
        ? `The second draw is accepted with probability ${r.acceptance.toFixed(2)}.`
        : "Solved: the whole residual is on tokens with q = 0, so no further draw from q can be accepted.";
    },
  },
};

const goalName = (s) => (s.rejected ? "the residual" : "p");

// [whether the rule emits p, that in words, how much it keeps].
function verdict(s, r) {
  const off = formulas.totalVariation(s.p, r.emitted);
  const isExact = off < 5e-4;
  const most = sum(s.p.map((v, i) => Math.min(v, s.q[i])));
  const words = isExact
    ? `✓ emits ${goalName(s)}`
    : `✗ does not emit ${goalName(s)}: total variation ${off.toFixed(3)}`;
  const bound = isExact
    ? r.acceptance > most - 5e-4
      ? "; no lossless rule keeps more"
      : `; a lossless rule can keep ${percent(most)}`
    : "";
  return [isExact, words, `keeps ${percent(r.acceptance)} of the drafts${bound}`];
}

function summary(s, r, run) {
  const [, outcome, share] = verdict(s, r);
  const rejections = s.rejected === 1 ? "one rejection" : `${s.rejected} rejections`;
  const before = s.rejected
    ? `After ${rejections} the bench shows the residual in place of p; it holds ${(100 * s.share).toFixed(1)} % of the first p. `
    : "";
  const start = `${before}${ruleOf(s.rule).label}: ${outcome.slice(2)}, ${share}. `;
  if (run.n === 0) return `${start}No token has been drawn yet.`;
  const worst = Math.max(...s.p.map((v, i) => Math.abs(run.counts[i] / run.n - v)));
  const band = formulas.band(s.p.length, run.n);
  return (
    `${start}After ${plural(run.n, "draw")} the largest difference between a token's frequency and p is ` +
    `${worst.toFixed(3)}: it is ${worst <= band ? "inside" : "outside"} the band of ± ${band.toFixed(3)}.`
  );
}

// What the bars show.
function caption(s, r, run) {
  const has = (part) => sum(r.parts[part]) > 0;
  return [
    "Bar of q: drafts; green: kept, framed: rejected. Bar of p, and →: emitted tokens",
    has("recovered") ? "; pink: recovered" : "",
    has("sampled") ? "; gray: dropped without a test, drawn from p instead" : "",
    has("bonus") ? "; pale pink: bonus" : "",
    `. Blue line: ${goalName(s)}.`,
    run.n ? ` Dot: frequency, a square outside the pale band of ${100 * CERTAINTY} % of lossless runs.` : "",
  ].join("");
}

// Drawing -----------------------------------------------------------------------------------------

// The parts of both bars of a token: [kind, from, width]. Kinds are classes of the sheet.
function massesOf(s, r, run, i) {
  const row = (masses) => {
    let end = 0;
    const all = Object.entries(masses).map(([kind, mass]) => [kind, end, mass, (end += mass)]);
    return all.filter(([, , mass]) => mass > 0);
  };
  const [kept, rejected] = [r.accepted[i], r.rejected[i]];
  const drafted = row({ accepted: kept, rejected, sampled: r.drawn[i] - r.verified[i] });
  const emitted = row(Object.fromEntries(Object.entries(r.parts).map(([kind, masses]) => [kind, masses[i]])));
  const goal = s.p[i];
  emitted.push(["goal", goal, 0]);
  if (run.n) {
    const half = formulas.band(s.p.length, run.n);
    const share = run.counts[i] / run.n;
    const [low, high] = [Math.max(0, goal - half), Math.min(1, goal + half)];
    emitted.push(["band", low, high - low], [Math.abs(share - goal) > half ? "out" : "in", share, 0]);
  }
  return { q: drafted, p: emitted };
}

function drawTrace(svg, width, s, { p, r, run }) {
  const box = { left: 44, right: width - 14, top: 24, bottom: 190 };
  const plane = scales(box, [0, 6], [-3, 0]);
  const x = (n) => plane.x(Math.log10(n));
  const y = (d) => plane.y(Math.log10(Math.min(1, Math.max(1e-3, d))));
  svg.setAttribute("height", box.bottom + 40);
  rulings(svg, box, y, [1, 0.1, 0.01, 0.001]);
  const names = ["1", "10", "100", "1k", "10k", "", "1M"];
  const powers = [...names.keys()].filter((k) => width > 480 || k % 2 === 0);
  axisBelow(svg, box, plane.x, powers, "tokens drawn", (k) => names[k]);
  const noise = [1, MAX_DRAWS].map((n) => [x(n), y(formulas.noise(p, n))]);
  svg.append(curve(noise, "muted", { "stroke-width": 1, "stroke-dasharray": "2 4" }));
  const off = formulas.totalVariation(p, r.emitted);
  const label = { class: "sdl-halo", "text-anchor": "end" };
  const dashed = { "stroke-width": 2, "stroke-dasharray": "7 4" };
  if (off > 1e-3)
    svg.append(
      stroke(box.left, y(off), box.right, y(off), "rejected", dashed),
      svgText(box.right, y(off) - 7, `emitted distribution: ${off.toFixed(3)}`, label),
    );
  const points = run.trace.map(([n, d]) => [x(n), y(d)]);
  svg.append(curve(points, "accent"));
  if (points.length) svg.append(disc(...points.at(-1), 5, "accent"));
}

const DISTANCE =
  "Dotted: typical noise of this number of draws from p. If a rule emits another distribution, the curve stops falling at the dashed line.";
const HEADS = [
  ...["token", "p", "q", "probability of acceptance", "probability after a rejection"],
  ...["emitted probability", "frequency in the draws"],
];
const numbersOfTokens = (s, r, run) =>
  s.p.map((v, i) => [
    NAMES[i],
    v.toFixed(3),
    s.q[i].toFixed(3),
    r.drawn[i] > 0 ? r.accept[i].toFixed(3) : "never drawn",
    r.recovered[i].toFixed(3),
    r.emitted[i].toFixed(3),
    run.n ? (run.counts[i] / run.n).toFixed(4) : "–",
  ]);

// A bar whose end the reader drags. show(value, masses, words): its parts, and the words behind its number.
function barSlider(name, token, i, id, onInput) {
  const look = {
    min: 0,
    max: 1,
    step: 0.01,
    "data-row": name,
    "data-unshared": "", // it moves the other sliders of its distribution
    "data-token": i,
    style: `--sdl-bar: ${ink(name === "p" ? "target" : "draft")}`,
  };
  const { input, output } = slider(id, look, (value) => onInput(name, i, value));
  const parts = make("div", { "aria-hidden": "true" });
  const after = make("small");
  const show = (value, masses, words = "") => {
    input.value = value;
    [output.textContent, after.textContent] = [value.toFixed(3), words];
    const part = ([kind, from, width]) =>
      make("i", { class: `sdl-mass-${kind}`, style: `left: ${100 * from}%; width: ${100 * width}%` });
    parts.replaceChildren(...masses.map(part));
  };
  const label = make("label", { for: id }, `${name}(${token})`);
  const track = make("div", {}, parts, input);
  return { node: make("div", { class: `sdl-bar sdl-bar-${name}` }, label, track, output, after), show };
}

function render(context) {
  const { model } = context;
  const id = newId("bench");
  const rows = () => valuesOf(model, ["p", "q"]);
  const state = () => {
    const { p, q } = rows();
    const settings = valuesOf(model, ["rejected", "rule", "seed"]);
    const { distribution, share } = formulas.residualAfter(p, q, settings.rejected);
    return { ...settings, p: distribution, q, share };
  };
  const change = (values) => assign(model, values);
  let [run, sliders] = [null, []];
  // A run of draws belongs to its settings.
  const runOf = ({ rule: id, p, q, seed }) => {
    const key = JSON.stringify([id, p, q, seed]);
    if (run?.key === key) return;
    run = { key, n: 0, counts: p.map(() => 0), trace: [], next: formulas.sampler(id, p, q, seed) };
  };
  const drawTokens = (count) => {
    const { p } = state();
    for (let k = 0; k < count && run.n < MAX_DRAWS; k++) {
      run.counts[run.next()] += 1;
      run.n += 1;
      const shares = () => run.counts.map((c) => c / run.n);
      if (k === count - 1 || run.n >= 1.12 * (run.trace.at(-1)?.[0] ?? 0))
        run.trace.push([run.n, formulas.totalVariation(p, shares())]);
    }
    context.repaint();
  };
  const none = { value: "", label: "your own p and q" };
  const choices = [none, ...presets.map(({ label }, i) => ({ value: i, label }))];
  const pick = (value) => value !== "" && change({ p: [...presets[value].p], q: [...presets[value].q] });
  const preset = menu(`${id}-preset`, choices, pick);
  const resize = (row, count) =>
    norm(
      Array.from({ length: count }, (_, i) => row[i] ?? 0.1),
      Array(count).fill(1 / count),
    );
  const sizes = [3, 4, 5, 6, 7, 8].map((n) => ({ value: n, label: `${n} tokens` }));
  const size = menu(`${id}-size`, sizes, (value) => {
    const { p, q } = rows();
    change({ p: resize(p, Number(value)), q: resize(q, Number(value)) });
  });
  const draws = [1, 100, 10000].map((n) => button(`Draw ${n.toLocaleString("en")}`, () => drawTokens(n)));
  const again = button("Restart with a new seed", () => change({ seed: state().seed + 1 }));
  const bars = make("div", { class: "sdl-bars" });
  const scale = ["0", "probability", "1"].map((words) => make("span", {}, words));
  const about = { class: "sdl-bar sdl-bar-axis", "aria-hidden": "true" };
  const axis = make("div", about, make("span"), make("div", {}, ...scale));
  const { words, state: taskState } = TASKS[model.get("task")] ?? TASKS.from_p;
  const body = make("tbody");
  const [mark, kept] = [make("strong"), make("span")];
  const result = make("p", { class: "sdl-outcome" }, mark, kept);
  const [key, drawn] = [make("figcaption"), make("span", { class: "sdl-note" })];
  const shared = {
    key: "pq",
    get: () => [rows().p, rows().q].map((row) => row.map((v) => +v.toFixed(4)).join("_")).join("~"),
    set(text) {
      const values = text.split("~").map((row) => row.split("_").map(Number));
      const [p, q] = values;
      const isDistribution = (row) => row.every((v) => v >= 0 && v <= 1) && sum(row) > 0;
      if (values.length !== 2 || p.length !== q.length || p.length < 3 || p.length > 8) return;
      if (values.every(isDistribution)) change({ p: norm(p), q: norm(q) });
    },
  };

  function build(count) {
    const onInput = (name, i, value) => change({ [name]: formulas.setShare(rows()[name], i, value) });
    sliders = Array.from({ length: count }, (_, i) =>
      ["p", "q"].map((name) => barSlider(name, NAMES[i], i, `${id}-${name}-${i}`, onInput)),
    );
    bars.replaceChildren(...sliders.flatMap(([p, q]) => [q.node, p.node]), axis);
  }
  const draw = () => {
    const own = rows();
    if (own.p.length !== own.q.length) return undefined; // the other one is about to change
    const s = state();
    runOf(s);
    const r = formulas.evaluate(s.rule, s.p, s.q);
    if (sliders.length !== s.p.length) build(s.p.length);
    sliders.forEach(([p, q], i) => {
      const masses = massesOf(s, r, run, i);
      q.show(s.q[i], masses.q);
      const isOff = Math.abs(r.emitted[i] - s.p[i]) > 5e-4;
      p.show(own.p[i], masses.p, `→ ${r.emitted[i].toFixed(3)}${isOff ? " ✗" : ""}`);
    });
    key.textContent = caption(s, r, run);
    drawn.textContent = `${run.n.toLocaleString("en")} drawn`;
    const same = (a, b) => a.length === b.length && a.every((v, i) => Math.abs(v - b[i]) < 1e-9);
    const at = presets.findIndex((pair) => same(pair.p, own.p) && same(pair.q, own.q));
    preset.value = at < 0 ? "" : at;
    size.value = s.p.length;
    draws.forEach((node) => {
      node.disabled = run.n >= MAX_DRAWS;
    });
    const [isExact, outcome, share] = verdict(s, r);
    mark.textContent = outcome;
    mark.className = isExact ? "sdl-yes" : "sdl-no";
    kept.textContent = ` · ${share}`;
    body.replaceChildren(...numbersOfTokens(s, r, run).map(numbersRow));
    return [[], () => [summary(s, r, run), taskState(s, r)], { p: s.p, r, run }];
  };
  const siblings = ["the first", "the second", "the third", "the fourth"].map((label) => ({ label }));
  const spec = {
    name: "bench",
    label: "Rejection-sampling bench",
    task: words,
    longestState: "room ".repeat(26),
    values: ["p", "q", "rule", "seed", "rejected"],
    controls: [
      { name: "rule", text: "Rule", options: RULES.map(({ id: value, ...rest }) => ({ value, ...rest })) },
      { name: "rejected", text: "Sibling under test", options: siblings },
    ],
    charts: {
      trace: {
        title: "Distance of the draws from p (total variation)",
        caption: DISTANCE,
        height: 160,
        label: "Distance of the draws from p. The table below has the numbers.",
        draw: drawTrace,
      },
    },
    shared,
  };
  const pairs = [field(`${id}-preset`, "Start from", preset), field(`${id}-size`, "Vocabulary", size)];
  const layout = ({ task, spoken, controls, charts }) => {
    const distance = foldOf(
      "Distance from p, and all numbers",
      make("div", { class: "sdl-charts" }, charts.trace.node),
      numbersTable("All numbers as a table", HEADS, body),
    );
    return [
      task,
      controlRow(controls.rule, ...(model.get("siblings") ? [controls.rejected] : [])),
      result,
      make("figure", { class: "sdl-chart" }, bars, key),
      make("div", { class: "sdl-row" }, ...draws, drawn),
      spoken,
      foldRow(foldOf("Another pair, or another seed", controlRow(...pairs), again), distance),
    ];
  };
  return panel(context, spec, layout, draw);
}

export default { render, formulas, presets };

// A server under load. The formulas are those of specdec_lite/simulation/goodput.py and estimate.py; a test compares
// them on a grid.

const SLOTS = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const CONTEXTS = [512, 2048, 8192, 32768, 131072];

const formulas = {
  estimate({ target, draft }, machine, engine, context) {
    const tokens = Array.from({ length: 9 }, (_, i) => i + 1);
    const pass = (batch, k) =>
      passSeconds(target, machine, engine, batch, k, context) + restSeconds(engine, batch, k - 1);
    const seconds = SLOTS.map((batch) => tokens.map((k) => pass(batch, k)));
    const drafting = SLOTS.map((batch) => draftSeconds(draft, machine, engine, batch, context));
    return { batches: SLOTS, tokens, seconds, drafting };
  },
  // Largest number of sequences whose caches fit beside the weights.
  capacity({ target, draft }, { memory }, context) {
    const left = memory - weightBytes(target) - weightBytes(draft);
    return Math.max(0, Math.floor(left / context / (target.cache_bytes + draft.cache_bytes)));
  },
  passTime(table, batch, tokens) {
    const [column, part] = locate(tokens, table.tokens);
    const row = table.seconds.map((seconds) => interpolate(seconds, column, part));
    return interpolate(row, ...locate(batch, table.batches));
  },
  roundTime(table, batch, gamma) {
    const draftPass = interpolate(table.drafting, ...locate(batch, table.batches));
    return gamma * draftPass + formulas.passTime(table, batch, gamma + 1);
  },
  goodput: (table, alpha, batch, gamma) =>
    (batch * expectedTokens(alpha, gamma)) / formulas.roundTime(table, batch, gamma),
  steady(table, load, alpha, gamma, slots) {
    const tau = expectedTokens(alpha, gamma);
    const rate = (batch) => formulas.goodput(table, alpha, batch, gamma);
    const points = [...table.batches.filter((batch) => batch < slots), slots];
    let batch = slots;
    const i = points.findIndex((point) => rate(point) >= load);
    if (rate(1) >= load) batch = 1;
    else if (i > 0) {
      const [low, high] = [points[i - 1], points[i]];
      const [begin, end] = [low, high].map((b) => formulas.roundTime(table, b, gamma));
      const slope = (end - begin) / (high - low);
      batch = (load * (begin - slope * low)) / (tau - load * slope);
    }
    const latency = formulas.roundTime(table, batch, gamma) / tau;
    return { batch, latency, capacity: rate(slots), overloaded: rate(slots) < load };
  },
  bestUnderLoad(table, load, alpha, slots) {
    let best = null;
    for (let gamma = 0; gamma < table.tokens.at(-1); gamma++) {
      const s = formulas.steady(table, load, alpha, gamma, slots);
      const cost = [Number(s.overloaded), s.overloaded ? -s.capacity : s.latency];
      if (!best || cost[0] < best.cost[0] || (cost[0] === best.cost[0] && cost[1] < best.cost[1]))
        best = { gamma, cost };
    }
    return best.gamma;
  },
};

const SLIDERS = [
  { name: "load", text: "load", note: "over plain capacity", min: 0.05, max: 2, step: 0.05 },
  { name: "alpha", text: "α", note: "acceptance rate", max: 1, step: 0.01 },
  { name: "gamma", text: "γ", note: "draft length", max: 8 },
  { name: "slots", text: "slots", note: "largest batch", values: SLOTS },
  { name: "context", text: "context", note: "tokens each", values: CONTEXTS },
  { name: "experts", text: "experts", note: "per token, mixtures only", values: [1, 2, 4, 8, 16, 32] },
];
const NAMES = ["pair", "machine", ...SLIDERS.map(({ name }) => name)];
const LOADS = Array.from({ length: 40 }, (_, i) => (i + 1) / 20);
const TASK = { pair: 0, machine: 0, context: 512, gamma: 4, slots: 256 };
const solved = (load, gamma) =>
  `Solved: from a load of ${load.toFixed(2)} on, every token takes longer with γ = 4 than with plain decoding. The best choice there is γ = ${gamma}.`;

const GAINS = "Goodput by γ, over plain decoding";
const ms = (seconds) => `${(1e3 * seconds).toPrecision(3)} ms`;

// Results -----------------------------------------------------------------------------------------

// The chosen table, and the number of sequences that fit into memory.
function chosen(s) {
  if (s.pair >= s.pairs.length) return { table: s.tables[s.pair - s.pairs.length], room: Infinity };
  const { target, draft } = s.pairs[s.pair];
  const machine = s.machines[s.machine];
  const pair = { target: target.experts > 1 ? { ...target, chosen: s.experts } : target, draft };
  return {
    table: formulas.estimate(pair, machine, s.engine, s.context),
    room: formulas.capacity(pair, machine, s.context),
  };
}

function consequences(s, share = s.load) {
  const { table, room } = s;
  const slots = Math.max(1, Math.min(s.slots, table.batches.at(-1), room));
  const load = share * formulas.steady(table, 0.001, 0, 0, slots).capacity;
  const at = (gamma) => formulas.steady(table, load, s.alpha, gamma, slots);
  const best = formulas.bestUnderLoad(table, load, s.alpha, slots);
  const [plain, drafted] = [at(0), at(Math.min(s.gamma, table.tokens.at(-1) - 1))];
  return { table, room, slots, plain, drafted, best, chosen: at(best) };
}

const hurts = ({ plain, drafted }) =>
  drafted.overloaded
    ? !plain.overloaded || drafted.capacity < plain.capacity
    : drafted.latency > plain.latency;

function verdict({ plain, drafted, room }) {
  if (room < 1) return "does not fit into memory";
  if (plain.overloaded && drafted.overloaded) return "queue grows with and without drafts";
  if (drafted.overloaded) return "hurts: queue grows with drafts";
  if (plain.overloaded) return "pays: queue grows without drafts";
  const gain = plain.latency / drafted.latency;
  return `${gain > 1.005 ? "pays" : gain < 0.995 ? "hurts" : "even"}, ${times(gain)}`;
}

const summary = (s, r) =>
  `At a load of ${s.load.toFixed(2)} of the plain capacity, the result for γ = ${s.gamma} is: ${verdict(r)}. A token takes ${ms(r.plain.latency)} with plain decoding (${r.plain.batch.toFixed(0)} sequences running) and ${ms(r.drafted.latency)} with drafts (${r.drafted.batch.toFixed(0)} running). The best draft length is γ = ${r.best}.`;

function taskState(s, r) {
  if (Object.entries(TASK).some(([name, value]) => s[name] !== value) || s.alpha.toFixed(2) !== "0.70")
    return "Choose the first pair and machine, α = 0.70, γ = 4, 256 slots and a context of 512 tokens.";
  if (!hurts(r)) return "Not yet: at this load drafting still helps.";
  if (s.load > 0.051 && hurts(consequences(s, s.load - 0.05)))
    return "Drafting hurts here, but it also hurts at a smaller load.";
  return solved(s.load, r.best);
}

// Drawing -----------------------------------------------------------------------------------------

function drawLatency(svg, width, s, r) {
  const box = { left: 48, right: width - 62, top: 24, bottom: 150 };
  const points = LOADS.map((load) => [load, consequences(s, load)]);
  const curves = [
    ["plain", "plain", "plain", ""],
    ["drafted", `γ = ${s.gamma}`, "you", ""],
    ["chosen", "best γ", "muted", "5 4"],
  ].map(([name, ...rest]) => [
    points.filter(([, c]) => !c[name].overloaded).map(([l, c]) => [l, c[name].latency]),
    ...rest,
  ]);
  const top = 1.08 * Math.max(...curves.flatMap(([line]) => line.map(([, v]) => v)), r.plain.latency);
  const ends = curves.map(([line]) => line.at(-1)?.[0] ?? 0);
  const most = Math.min(2, Math.ceil(4 * Math.max(s.load, ...ends) + 0.5) / 4); // the axis ends after the curves
  const { x, y: height, at } = scales(box, [0, most], [0, top]);
  const y = (v) => height(Math.min(v, top));
  rulings(svg, box, y, roundTicks(top, 4), (v) => String(Number((1e3 * v).toPrecision(6))));
  const loads = [0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2].filter((each) => each <= most);
  axisBelow(svg, box, x, loads, "load over plain capacity");
  svg.append(
    svgText(4, 14, "ms per token"),
    stroke(x(s.load), box.top, x(s.load), box.bottom, "ink", { "stroke-dasharray": "3 3" }),
  );
  let last = -99;
  const names = curves.map(([line, label, color, dash]) => {
    if (!line.length) return null;
    const points = line.map(([l, v]) => [x(l), y(v)]);
    const [px, py] = points.at(-1);
    svg.append(
      curve(points, color, { "stroke-dasharray": dash }),
      // the wall at which the queue begins to grow without limit
      make("path", { d: `M${px} ${py}V${box.top}`, stroke: ink(color), "stroke-width": 1.5 }),
    );
    return [px, py, label];
  });
  for (const [px, py, label] of names.filter(Boolean).sort((a, b) => a[1] - b[1])) {
    last = Math.max(py + 4, last + 15);
    svg.append(svgText(px + 5, last, label, { class: "sdl-halo" }));
  }
  return (px) => ({ load: LOADS[Math.max(0, Math.round(20 * at(px, 0)[0]) - 1)] });
}

function drawGains(svg, width, s, r) {
  const box = { left: 34, right: width - 8, top: 24, bottom: 150 };
  const batch = Math.max(1, Math.round(r.drafted.batch));
  const gammas = Array.from({ length: r.table.tokens.at(-1) }, (_, i) => i);
  const plain = formulas.goodput(r.table, s.alpha, batch, 0);
  const gains = gammas.map((gamma) => formulas.goodput(r.table, s.alpha, batch, gamma) / plain);
  const top = Math.max(1.5, 1.1 * Math.max(...gains));
  const { y } = scales(box, [0, 1], [0, top]);
  const step = (box.right - box.left) / gammas.length;
  const levels = Array.from({ length: Math.floor(top) + 1 }, (_, v) => v);
  rulings(svg, box, y, levels, (v) => `${v}×`);
  axisBelow(svg, box, (gamma) => box.left + (gamma + 0.5) * step, gammas, "γ");
  const best = gains.indexOf(Math.max(...gains));
  gammas.forEach((gamma) => {
    const [left, high] = [box.left + gamma * step, y(gains[gamma])];
    const color = gamma === s.gamma ? "you" : gamma === 0 ? "plain" : "line";
    const frame = { stroke: ink(gamma === best ? "ink" : "none"), "stroke-width": 2 };
    svg.append(block(left + 2, high, step - 4, box.bottom - high, color, frame));
  });
  svg.append(svgText(4, 14, `${plural(batch, "sequence")} running`));
}

function render(context) {
  const [pairs, machines, tables] = ["pairs", "machines", "tables"].map((name) => context.model.get(name));
  const draw = (s) => {
    Object.assign(s, chosen(s));
    const r = consequences(s);
    const both = (name, format) => `${format(r.plain[name])} → ${format(r.drafted[name])}`;
    const numbers = [
      ["result", verdict(r)],
      ["ms per token", both("latency", (v) => (1e3 * v).toPrecision(3))],
      ["best γ at this load", r.best],
      ["sequences running", both("batch", (v) => v.toFixed(1))],
      ["capacity, tokens/s", both("capacity", (v) => Number(v.toPrecision(3)).toLocaleString("en"))],
      ["sequences that fit", r.room === Infinity ? "–" : Math.min(r.room, r.table.batches.at(-1))],
    ];
    return [numbers, () => [summary(s, r), taskState(s, r)], r];
  };
  const spec = {
    name: "serving",
    label: "A server under load",
    task: "choose the first pair and machine, α = 0.70, γ = 4 and 256 slots. Find the smallest load at which drafting makes every token slower.",
    longestState: solved(0, 0),
    values: ["pairs", "machines", "tables", "engine", ...NAMES],
    controls: [
      { name: "pair", text: "Pair", options: [...pairs, ...tables] },
      { name: "machine", text: "Machine", options: machines },
      ...SLIDERS,
    ],
    charts: {
      latency: {
        title: "Time per token, by load",
        caption: "A line ends in a wall where its queue begins to grow. Drag to set the load.",
        size: "sdl-wide",
        height: 190,
        drag: true,
        draw: drawLatency,
      },
      gains: {
        title: GAINS,
        caption: "Purple: your γ. Outlined: the best one for as many sequences as your γ keeps running.",
        size: "sdl-narrow",
        height: 190,
        draw: drawGains,
      },
    },
  };
  const layout = ({ task, spoken, tiles: [few, rest], controls, charts }) => {
    const sliders = SLIDERS.map(({ name }) => controls[name]);
    const grid = "grid-template-columns: repeat(auto-fit, minmax(min(8.5rem, 100%), 1fr))";
    const fields = (nodes) => make("div", { class: "sdl-controls", style: grid }, ...nodes);
    return [
      task,
      controlRow(controls.pair, controls.machine),
      fields(sliders.slice(0, 3)),
      chartRow(charts.latency.node, phoneFold(GAINS, "sdl-narrow", charts.gains.node)),
      few,
      foldRow(rest, foldOf("More settings", fields(sliders.slice(3)))),
      spoken,
    ];
  };
  return panel(context, spec, layout, draw);
}

export default { render, formulas };

// Will it pay? The formulas are in parts/estimator.

const formulas = { costs, estimate, calibrate, switchOff, schedule, expectedTokens };

const BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const CONTEXTS = [0, 256, 1024, 4096, 16384, 32768, 65536, 131072];
const SLIDERS = [
  { name: "alpha", text: "α", note: "acceptance rate", max: 1, step: 0.01 },
  { name: "gamma", text: "γ", note: "draft length", min: 1, max: 16 },
  { name: "batch", text: "batch", note: "sequences", values: BATCHES },
  { name: "context", text: "context", note: "tokens each", values: CONTEXTS },
];
const ASSUMPTIONS = [{ name: "price", text: "machine", note: "$ per hour", min: 0.1, max: 30, step: 0.1 }];
// name, label, note, largest, whether it counts
const ROUND = [
  ["measured_tau", "τ", "tokens per round", 17, false],
  ["measured_gamma", "γ", "of that run", 16, true],
  ["measured_batch", "batch", "of that run", 256, true],
  ["plain_rate", "plain", "tokens/s", 1e6, false],
  ["drafted_rate", "drafted", "tokens/s", 1e6, false],
];
const TABLE = [
  ["growth", "T(γ+1) ÷ T(1)", "of your backend", 100, false],
  ["draft_cost", "c", "draft pass ÷ T(1)", 100, false],
];
const SCALARS = ["pair", "machine", ...[...SLIDERS, ...ASSUMPTIONS].map(({ name }) => name)];
SCALARS.push(...[...ROUND, ...TABLE].map(([name]) => name));
const NAMES = ["pairs", "machines", "engine", "command", ...SCALARS];
const LEGEND = {
  draft: "draft passes",
  target: "verification",
  one: "the engine’s rest",
  accepted: "accepted drafts",
  recovered: "the target’s own token",
};
const ABOUT =
  "The formula’s nine parameters were fitted to measurements that others published: dense models in bfloat16, chains of at most 7 drafts, batches of at most 128. The band should contain four of five engines. Mixtures of experts rest on two sources only. Scheduling of requests, prefill and queues are left out. The chapter on serving shows the fit and its misses.";
const TASK = { pair: 4, machine: 0, batch: 1 };
const SOLVED = "Every verified token after the first one makes the pass read more experts.";

// Results -----------------------------------------------------------------------------------------

// The models, the machine and the workload; `values` replace some of the state.
function settingOf(s, values = {}) {
  const { pair, machine, gamma, batch, context } = { ...s, ...values };
  return { ...s.pairs[pair], machine: s.machines[machine], gamma, batch, context };
}

// Kernels of 4-bit weights and of laptops differ too much for a formula: only a measured table says T(k).
const needsTable = (s) => s.pairs[s.pair].target.bytes_per_weight < 1 || !s.machines[s.machine].fitted;

// The engine, calibrated if a round was measured: { engine, note }.
function engineOf(s) {
  if (!(s.measured_tau >= 1 && s.plain_rate > 0 && s.drafted_rate > 0)) return { engine: s.engine, note: "" };
  if (s.measured_tau > s.measured_gamma + 1)
    return { engine: s.engine, note: "Ignored: τ is at most γ + 1." };
  const run = settingOf(s, { gamma: s.measured_gamma, batch: s.measured_batch });
  const engine = formulas.calibrate(run, s.engine, s.measured_tau, s.drafted_rate / s.plain_rate);
  const reason =
    "by the sizes, the passes alone cost more than this round did. Check τ, the pair and the machine.";
  if (!engine) return { engine: s.engine, note: `Ignored: ${reason}` };
  return { engine, note: `Your engine’s overheads are ${engine.factor.toFixed(2)} times the usual ones.` };
}

function consequences(s, values = {}) {
  const now = { ...s, ...values };
  const tokens = expectedTokens(now.alpha, now.gamma);
  if (!needsTable(s)) return formulas.estimate(settingOf(now), s.fit.engine, tokens);
  if (!(s.growth > 0)) return null;
  const [draft, verify] = [now.gamma * s.draft_cost, s.growth];
  const speedup = tokens / (draft + verify);
  const costs = { draft, verify, overhead: 0, plain: 1, round: draft + verify, step: 1 };
  return { ...costs, tokens, speedup, low: 0.85 * speedup, high: 1.15 * speedup };
}

// Bytes of both models and of all caches, and a tenth of that as working memory.
function memoryBytes(s) {
  const { target, draft } = s.pairs[s.pair];
  const size = (network) => weightBytes(network) + s.batch * s.context * network.cache_bytes;
  return 1.1 * (size(target) + size(draft));
}

const bestGamma = (s) => largestAt(16, (gamma) => consequences(s, { gamma }).speedup);

// Dollars per million tokens: [decoded plainly, decoded with drafts].
function price(s, r) {
  const million = ((s.price / 3600) * 1e6) / s.batch;
  return [million * r.step, (million * r.round) / r.tokens];
}

const range = (r) => `${r.low.toFixed(2)}–${r.high.toFixed(2)}×`;

// When to stop drafting, as far as the band can say: a sentence, and the batches alone.
function stops(s, r) {
  if (needsTable(s)) return ["", ""];
  const [first, last] = formulas.switchOff(settingOf(s), s.fit.engine, r.tokens);
  if (first === null) return ["It pays at every batch up to 512, by the whole band.", "> 512"];
  if (last === null) return [`The lower end of the band loses from a batch of ${first} on.`, `≥ ${first}`];
  const words = `Somewhere between a batch of ${first} and ${last} drafting begins to lose: measure there.`;
  return [words, `${first}–${last}`];
}

function largestCost(r) {
  const parts = {
    drafting: r.draft,
    "verifying more than one token": r.verify - r.plain,
    "the engine’s rest of the round": r.overhead - (r.step - r.plain),
  };
  const [name, cost] = Object.entries(parts).reduce((most, part) => (part[1] > most[1] ? part : most));
  return `${name}, ${(cost / r.step).toFixed(2)} plain steps`;
}

function summary(s, r) {
  if (!r)
    return `${s.pairs[s.pair].label}: no size says what ${s.gamma + 1} tokens cost on this machine. Run ${s.command}, divide T(${s.gamma + 1}) by T(1), and enter the quotient below.`;
  const words = `${s.pairs[s.pair].label}: a round emits ${r.tokens.toFixed(2)} tokens for ${(r.round / r.step).toFixed(2)} plain steps, likely a speedup of ${times(r.speedup)}, ${range(r)}: ${verdict(r)}. The largest cost is ${largestCost(r)}.`;
  return `${words} ${stops(s, r)[0]}`.trim();
}

function taskState(s) {
  if (s.pair !== TASK.pair || s.machine !== TASK.machine)
    return "Choose the mixture of experts with its EAGLE-3 head, on the first machine.";
  if (s.batch !== TASK.batch) return "Set the batch to 1.";
  const [best, gain] = bestGamma(s);
  if (gain <= 1) return `Not yet: at this α the best draft length, ${best}, likely gives ${times(gain)}.`;
  if (bestGamma({ ...s, alpha: s.alpha - 0.01 })[1] > 1)
    return `${times(gain)} is enough, but a smaller α still pays.`;
  return `Solved: α = ${s.alpha.toFixed(2)}, with γ = ${best}. ${SOLVED}`;
}

// Drawing -----------------------------------------------------------------------------------------

function drawRound(svg, width, s, r) {
  const box = { left: 8, right: width - 8, top: 20, height: 28, second: 74 };
  if (!r) {
    svg.append(svgText(box.left, box.top, "no number without T(k)", { class: "sdl-faint" }));
    return;
  }
  const cost = r.round / r.step;
  const scale = (box.right - box.left) / Math.max(cost, r.tokens) / 1.02;
  const bar = (begin, length, y, role) =>
    svg.append(block(box.left + begin * scale, y, Math.max(1, length * scale - 1), box.height, role));
  const label = (y, words) => svg.append(svgText(box.left, y, words, { class: "sdl-faint" }));
  label(box.top - 6, `what the round costs: ${cost.toFixed(2)} plain steps`);
  const each = r.draft / r.step / s.gamma;
  for (let i = 0; i < s.gamma && each > 0; i++) bar(i * each, each, box.top, "draft");
  bar(r.draft / r.step, r.verify / r.step, box.top, "target");
  if (r.overhead) bar((r.draft + r.verify) / r.step, r.overhead / r.step, box.top, "one");
  label(box.second - 6, `what it replaces: ${r.tokens.toFixed(2)} steps of plain decoding`);
  for (let i = 0; i < Math.ceil(r.tokens - 1); i++)
    bar(i, Math.min(1, r.tokens - 1 - i), box.second, "accepted");
  bar(r.tokens - 1, 1, box.second, "recovered");
  const end = box.left + cost * scale;
  const ends = [box.second - 2, box.second + box.height + 6];
  svg.append(stroke(end, ends[0], end, ends[1], "ink", { "stroke-width": 2, "stroke-dasharray": "3 3" }));
}

function drawBatches(svg, width, s) {
  const box = { left: 36, right: width - 14, top: 10, bottom: 132 };
  if (needsTable(s)) {
    svg.append(svgText(box.left, 40, "only a measured T(B, k) says this", { class: "sdl-faint" }));
    return () => ({});
  }
  const results = BATCHES.map((batch) => consequences(s, { batch }));
  const top = Math.max(2, Math.ceil(Math.max(...results.map(({ high }) => high))));
  const fits = BATCHES.filter((batch) => memoryBytes({ ...s, batch }) <= s.machines[s.machine].memory).length;
  const { x, y, at } = scales(box, [0, BATCHES.length - 1], [0, top]);
  const points = (name) => results.map((r, i) => [x(i), y(r[name])]);
  const line = (from, to, dash) =>
    curve(points("speedup").slice(from, to), "one", { "stroke-dasharray": dash });
  const levels = Array.from({ length: top + 1 }, (_, v) => v);
  rulings(svg, box, y, levels, (v) => `${v}×`);
  const shown = BATCHES.map((_, i) => i).filter((i) => i % 2 === 0);
  axisBelow(svg, box, x, shown, "batch", (i) => String(BATCHES[i]));
  svg.append(
    region([...points("high"), ...points("low").reverse()], "one", { opacity: 0.18 }),
    stroke(box.left, y(1), box.right, y(1), "plain", { "stroke-width": 2, "stroke-dasharray": "5 4" }),
    line(0, fits, ""),
    line(Math.max(0, fits - 1), BATCHES.length, "4 4"),
  );
  const now = BATCHES.indexOf(s.batch);
  if (now >= 0) svg.append(yourPoint(x(now), y(results[now].speedup)));
  return (px) => ({ batch: BATCHES[Math.round(at(px, 0)[0])] });
}

function readouts(s, r) {
  const memory = memoryBytes(s);
  const size = `${(memory / 1e9).toFixed(0)} GB${memory > s.machines[s.machine].memory ? ", too much" : ""}`;
  if (!r) return Object.entries({ verdict: "measure T(k)", memory: size });
  const rows = [
    ["likely", `${times(r.speedup)}, ${verdict(r)}`],
    ["80 % band", range(r)],
    ["τ ÷ break-even τ", `${r.tokens.toFixed(2)} ÷ ${(r.round / r.step).toFixed(2)}`],
    ["c", (r.draft / r.plain / s.gamma).toFixed(3)],
    ["v = T(γ+1) ÷ T(1)", (r.verify / r.plain).toFixed(2)],
  ];
  if (needsTable(s)) return [...rows, ["memory", size]];
  const [best, gain] = bestGamma(s);
  const dollars = price(s, r).map((each) => each.toPrecision(2));
  return [
    ...rows,
    ["ms per token", `${(1e3 * r.step).toPrecision(3)} → ${((1e3 * r.round) / r.tokens).toPrecision(3)}`],
    ["$ per million tokens", dollars.join(" → ")],
    ["memory", size],
    ["loses from batch", stops(s, r)[1]],
    ["best γ", gain > 1 ? `${best}, ${times(gain)}` : "0"],
  ];
}

function render(context) {
  const { model } = context;
  const swatch = (role) => make("svg", { height: 12, "aria-hidden": "true" }, block(0, 0, 12, 12, role));
  const key = ([role, name]) => make("li", {}, swatch(role), name);
  const note = make("p", { class: "sdl-note", "aria-live": "polite" });
  let [groups, measured] = [[], null];
  let wasTable = false;
  const draw = (s) => {
    Object.assign(s, { fit: engineOf(s) });
    const r = consequences(s);
    const isTable = needsTable(s);
    if (isTable && !wasTable) measured.open = true;
    wasTable = isTable;
    groups.forEach((node, i) => {
      node.hidden = isTable !== Boolean(i);
    });
    note.textContent = isTable
      ? `Run ${s.command}: T(k) is k ÷ (tokens per second at k).`
      : s.fit.note || "One round of your engine, on the pair and machine chosen above, sets its overheads.";
    return [readouts(s, r), () => [summary(s, r), taskState(s)], r];
  };
  const spec = {
    name: "payoff",
    label: "Will it pay",
    task: "choose the mixture of experts with an EAGLE-3 head on an H100, at batch 1. What is the smallest α at which some draft length likely pays?",
    longestState: `Solved: α = 0.00, with γ = 00. ${SOLVED}`,
    values: NAMES,
    controls: [
      { name: "pair", text: "Pair", options: model.get("pairs") },
      { name: "machine", text: "Machine", options: model.get("machines") },
      ...SLIDERS,
      ...ASSUMPTIONS,
      ...boxesOf([...ROUND, ...TABLE]),
    ],
    charts: {
      round: {
        title: "One round",
        caption: "Dashed: the round ends. Drafting pays if the lower bar is longer.",
        size: "sdl-wide",
        height: 108,
        draw: drawRound,
      },
      batches: {
        title: "Speedup by batch",
        caption: "Band: four of five engines. Dashed: does not fit into memory. Purple: your batch; drag it.",
        size: "sdl-narrow",
        height: 172,
        drag: true,
        draw: drawBatches,
      },
    },
  };
  const about = make("p", { class: "sdl-note" }, ABOUT);
  const layout = ({ task, spoken, tiles: [few, rest], controls, charts }) => {
    const row = (names) => controlRow(...names.map((name) => controls[name]));
    groups = [ROUND, TABLE].map((boxes) => row(boxes.map(([name]) => name)));
    measured = foldOf("I measured", ...groups, note);
    charts.round.node.append(make("ul", { class: "sdl-keys" }, ...Object.entries(LEGEND).map(key)));
    return [
      task,
      row(["pair", "machine"]),
      row(SLIDERS.map(({ name }) => name)),
      chartRow(charts.round.node, phoneFold("Speedup by batch", "sdl-narrow", charts.batches.node)),
      few,
      foldRow(rest, measured, foldOf("Assumptions", row(["price"]), about)),
      spoken,
    ];
  };
  return panel(context, spec, layout, draw);
}

export default { render, formulas };

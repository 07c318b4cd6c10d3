// Will it pay? The formulas are those of specdec_lite/simulation/estimate.py; a test compares them on a grid.

const formulas = {
  passSeconds,
  expectedTokens,
  estimate(target, draft, machine, alpha, gamma, batch, context) {
    const pass = (network, tokens) => passSeconds(network, machine, batch, tokens, context);
    const drafting = draft.parameters ? gamma * pass(draft, 1) : 0;
    const [verify, plain] = [pass(target, gamma + 1), pass(target, 1)];
    const tokens = expectedTokens(alpha, gamma);
    const round = drafting + verify;
    return { draft: drafting, verify, plain, tokens, round, speedup: (tokens * plain) / round };
  },
};

// Sizes and layers from the models' public cards. Bytes of cache per token: keys and values of every head, two bytes per number.
const kv = (layers, heads, width = 128) => 2 * layers * heads * width * 2;
const network = (layers, parameters, cache_bytes, more = {}) => ({
  layers,
  parameters,
  cache_bytes,
  bytes_per_weight: 2,
  experts: 1,
  chosen: 1,
  expert_parameters: 0,
  ...more,
});
const FOUR_BITS = { bytes_per_weight: 0.5 };
const QWEN_32B = network(64, 32.8e9, kv(64, 8));
const QWEN_06B = network(28, 0.6e9, kv(28, 8));
const QWEN_A3B = network(48, 1.5e9, kv(48, 4), {
  experts: 128,
  chosen: 8,
  expert_parameters: 3 * 768 * 2048 * 48,
});
const LLAMA_70B = network(80, 70.6e9, kv(80, 8), FOUR_BITS);
const LLAMA_1B = network(16, 1.24e9, kv(16, 8, 64), FOUR_BITS);
const HEAD_32B = network(1, 0.73e9, kv(1, 8));
const NOTHING = network(0, 0, 0);
const pairs = [
  { label: "Qwen3-32B with Qwen3-0.6B", target: QWEN_32B, draft: QWEN_06B },
  { label: "Qwen3-32B with a one-layer EAGLE-3 head", target: QWEN_32B, draft: HEAD_32B },
  { label: "Qwen3-32B with prompt lookup", target: QWEN_32B, draft: NOTHING },
  { label: "Qwen3-30B-A3B (experts) with Qwen3-0.6B", target: QWEN_A3B, draft: QWEN_06B },
  { label: "Qwen3-30B-A3B (experts) with prompt lookup", target: QWEN_A3B, draft: NOTHING },
  { label: "Llama-3.1-70B with Llama-3.2-1B, both 4-bit", target: LLAMA_70B, draft: LLAMA_1B },
];
const machines = [
  { label: "H100, 80 GB", bandwidth: 3.35e12, throughput: 989e12, memory: 80e9 },
  { label: "H200, 141 GB", bandwidth: 4.8e12, throughput: 989e12, memory: 141e9 },
  { label: "RTX 4090, 24 GB", bandwidth: 1.008e12, throughput: 165e12, memory: 24e9 },
  { label: "laptop, 32 GB", bandwidth: 100e9, throughput: 5e12, memory: 32e9 },
];
const presets = [...pairs, ...machines];

const BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const CONTEXTS = [0, 256, 1024, 4096, 16384, 32768, 65536, 131072];
const SLIDERS = [
  { name: "alpha", text: "α", note: "acceptance rate", min: 0, max: 1, step: 0.01, digits: 2 },
  { name: "gamma", text: "γ", note: "draft length", min: 1, max: 16, step: 1, digits: 0 },
  { name: "batch", text: "batch", note: "sequences", digits: 0, values: BATCHES },
  { name: "context", text: "context", note: "tokens each", digits: 0, values: CONTEXTS },
];
const ASSUMPTIONS = [
  { name: "layer", text: "layer", note: "shortest time, µs", min: 0, max: 100, step: 5, digits: 0 },
  { name: "price", text: "machine", note: "$ per hour", min: 0.1, max: 10, step: 0.1, digits: 1 },
];
const DEFAULTS = { pair: 0, machine: 0, alpha: 0.7, gamma: 4, batch: 1, context: 1024, layer: 25, price: 3 };
const LEGEND = [
  ["draft", "draft passes"],
  ["target", "verification"],
  ["accepted", "accepted drafts"],
  ["bonus", "the target’s own token"],
];
const ABOUT =
  "Bandwidth and throughput are those of the datasheets: 3.35 TB/s and 989 Tflop/s (H100), 4.8 and 989 (H200), 1.01 and 165 (RTX 4090), 0.1 and 5 (laptop). A pass takes as long as its reading, its arithmetic, or its layers at their shortest time, whichever is longest. Scheduling, prefill and queues are left out.";
const TASK = { pair: 3, machine: 0, batch: 1 };
const SOLVED = "Every verified token after the first one makes the pass read more experts.";

// Results -----------------------------------------------------------------------------------------

function consequences(s, values = {}) {
  const now = { ...s, ...values };
  const { target, draft } = pairs[now.pair];
  const machine = { ...machines[now.machine], per_layer: now.layer / 1e6 };
  return formulas.estimate(target, draft, machine, now.alpha, now.gamma, now.batch, now.context);
}

// Bytes of both models and of all caches.
function memoryBytes(s) {
  const { target, draft } = pairs[s.pair];
  const size = (network) => weightBytes(network) + s.batch * s.context * network.cache_bytes;
  return size(target) + size(draft);
}

function bestGamma(s) {
  const gammas = Array.from({ length: 16 }, (_, i) => i + 1);
  const speedup = (gamma) => consequences(s, { gamma }).speedup;
  const best = gammas.reduce((winner, gamma) => (speedup(gamma) > speedup(winner) ? gamma : winner));
  return [best, speedup(best)];
}

// Dollars per million tokens: [decoded plainly, decoded with drafts].
function price(s, r) {
  const million = ((s.price / 3600) * 1e6) / s.batch;
  return [million * r.plain, (million * r.round) / r.tokens];
}

const verdict = (r) => (r.speedup > 1.02 ? "pays" : r.speedup < 0.98 ? "hurts" : "even");

function largestCost(r) {
  const extra = r.verify - r.plain;
  if (r.draft >= extra) return `drafting, ${(r.draft / r.plain).toFixed(2)} plain passes`;
  return `verifying more than one token, ${(extra / r.plain).toFixed(2)} plain passes`;
}

function summary(s, r) {
  const [best, gain] = bestGamma(s);
  const last =
    gain > 1 ? `The best draft length here is ${best}, for ${times(gain)}.` : "No draft length pays here.";
  return `${pairs[s.pair].label}: a round emits ${r.tokens.toFixed(2)} tokens for ${(r.round / r.plain).toFixed(2)} plain passes, a speedup of ${times(r.speedup)}. The largest cost is ${largestCost(r)}. ${last}`;
}

function taskState(s) {
  if (s.pair !== TASK.pair || s.machine !== TASK.machine)
    return "Choose the mixture of experts with its small draft, on the first machine.";
  if (s.batch !== TASK.batch) return "Set the batch to 1.";
  const [best, gain] = bestGamma(s);
  if (gain <= 1) return `Not yet: at this α the best draft length, ${best}, gives ${times(gain)}.`;
  if (bestGamma({ ...s, alpha: s.alpha - 0.01 })[1] > 1)
    return `${times(gain)} is enough, but a smaller α still pays.`;
  return `Solved: α = ${s.alpha.toFixed(2)}, with γ = ${best}. ${SOLVED}`;
}

// Drawing -----------------------------------------------------------------------------------------

function drawRound(svg, width, s, r) {
  const box = { left: 8, right: width - 8, top: 20, height: 28, second: 74 };
  const scale = (box.right - box.left) / Math.max(r.round / r.plain, r.tokens) / 1.02;
  const bar = (begin, length, y, role) =>
    svg.append(
      make("rect", {
        x: box.left + begin * scale,
        y,
        width: Math.max(1, length * scale - 1),
        height: box.height,
        fill: `var(--sdl-${role})`,
      }),
    );
  const label = (y, words) => svg.append(make("text", { class: "sdl-faint", x: box.left, y }, words));
  label(box.top - 6, `what the round costs: ${(r.round / r.plain).toFixed(2)} plain passes`);
  const each = r.draft / r.plain / s.gamma;
  for (let i = 0; i < s.gamma && each > 0; i++) bar(i * each, each, box.top, "draft");
  bar(r.draft / r.plain, r.verify / r.plain, box.top, "target");
  label(box.second - 6, `what it replaces: ${r.tokens.toFixed(2)} passes of plain decoding`);
  for (let i = 0; i < Math.ceil(r.tokens - 1); i++)
    bar(i, Math.min(1, r.tokens - 1 - i), box.second, "accepted");
  bar(r.tokens - 1, 1, box.second, "bonus");
  const end = box.left + (r.round / r.plain) * scale;
  svg.append(
    make("line", {
      x1: end,
      x2: end,
      y1: box.second - 2,
      y2: box.second + box.height + 6,
      stroke: "var(--sdl-ink)",
      "stroke-width": 2,
      "stroke-dasharray": "3 3",
    }),
  );
}

function drawBatches(svg, width, s) {
  const box = { left: 36, right: width - 14, top: 10, bottom: 132 };
  const curve = BATCHES.map((batch) => consequences(s, { batch }).speedup);
  const top = Math.max(2, Math.ceil(Math.max(...curve)));
  const fits = BATCHES.filter((batch) => memoryBytes({ ...s, batch }) <= machines[s.machine].memory).length;
  const line = (from, to, dash) =>
    make("path", {
      d: pathOf(curve.slice(from, to).map((v, i) => [x(from + i), y(v)])),
      fill: "none",
      stroke: "var(--sdl-target)",
      "stroke-width": 2.5,
      "stroke-dasharray": dash,
    });
  const x = (i) => box.left + (i / (BATCHES.length - 1)) * (box.right - box.left);
  const y = (v) => box.bottom - (v / top) * (box.bottom - box.top);
  for (let v = 0; v <= top; v++)
    svg.append(
      make("line", { class: "sdl-grid", x1: box.left, x2: box.right, y1: y(v), y2: y(v) }),
      make("text", { class: "sdl-faint", x: box.left - 6, y: y(v) + 4, "text-anchor": "end" }, `${v}×`),
    );
  BATCHES.forEach((batch, i) => {
    if (i % 2 === 0)
      svg.append(
        make(
          "text",
          { class: "sdl-faint", x: x(i), y: box.bottom + 17, "text-anchor": "middle" },
          String(batch),
        ),
      );
  });
  svg.append(
    make("rect", {
      x: box.left,
      width: box.right - box.left,
      y: y(1),
      height: y(0) - y(1),
      fill: "var(--sdl-rejected)",
      opacity: 0.12,
    }),
    make("text", { x: (box.left + box.right) / 2, y: box.bottom + 34, "text-anchor": "middle" }, "batch"),
    line(0, fits, ""),
    line(Math.max(0, fits - 1), BATCHES.length, "4 4"),
  );
  const now = BATCHES.indexOf(s.batch);
  if (now >= 0)
    svg.append(
      make("circle", {
        cx: x(now),
        cy: y(curve[now]),
        r: 6.5,
        fill: "var(--sdl-you)",
        stroke: "var(--sdl-surface)",
        "stroke-width": 1.5,
      }),
    );
  return (px) => {
    const i = Math.round(((px - box.left) / (box.right - box.left)) * (BATCHES.length - 1));
    return { batch: BATCHES[Math.min(BATCHES.length - 1, Math.max(0, i))] };
  };
}

function render({ model, el }) {
  const id = newId("payoff");
  const state = () => stateOf(model, DEFAULTS);
  const change = (values) => assign(model, values);
  const [controls, show] = numberFields(id, SLIDERS, change);
  const [assumed, showAssumed] = numberFields(id, ASSUMPTIONS, change);
  const choose = (name, options) => indexMenu(`${id}-${name}`, options, (value) => change({ [name]: value }));
  const menus = { pair: choose("pair", pairs), machine: choose("machine", machines) };
  const charts = {
    round: chart(
      "One round",
      "Dashed: the round ends. Drafting pays if the lower bar is longer.",
      "sdl-wide",
      {
        height: 108,
      },
    ),
    batches: chart(
      "Speedup by batch",
      "Shaded: slower than plain decoding. Dashed: does not fit into memory. Purple: your batch; drag it.",
      "sdl-narrow",
      { height: 172 },
    ),
  };
  const words =
    "choose the mixture of experts with Qwen3-0.6B on an H100, at batch 1. What is the smallest α at which some draft length pays?";
  const longestState = `Solved: α = 0.00, with γ = 00. ${SOLVED}`;
  const { task, spoken, announce, silence } = narration(words, longestState, 150);
  const numbers = make("dl", { class: "sdl-readouts" });
  const swatch = (role) =>
    make(
      "svg",
      { height: 12, "aria-hidden": "true" },
      make("rect", { width: 12, height: 12, fill: `var(--sdl-${role})` }),
    );
  const key = ([role, name]) => make("li", {}, swatch(role), name);
  const root = make(
    "section",
    { class: "sdl sdl-low sdl-payoff", "aria-label": "Will it pay" },
    task,
    make(
      "div",
      { class: "sdl-controls" },
      field(`${id}-pair`, "Pair", menus.pair),
      field(`${id}-machine`, "Machine", menus.machine),
    ),
    make("div", { class: "sdl-controls" }, ...controls),
    make(
      "div",
      { class: "sdl-frame" },
      make("div", { class: "sdl-charts" }, charts.round.node, charts.batches.node),
    ),
    numbers,
    make(
      "details",
      {},
      make("summary", {}, "Assumptions"),
      make("div", { class: "sdl-controls" }, ...assumed),
      make("p", { class: "sdl-note" }, ABOUT),
    ),
    spoken,
  );
  charts.round.node.append(make("ul", { class: "sdl-keys" }, ...LEGEND.map(key)));
  let pick = () => ({});
  const draw = () => {
    const s = state();
    const r = consequences(s);
    show(s);
    showAssumed(s);
    for (const name of ["pair", "machine"]) menus[name].value = String(s[name]);
    drawRound(...blank(charts.round), s, r);
    pick = drawBatches(...blank(charts.batches), s);
    const [best, gain] = bestGamma(s);
    const memory = memoryBytes(s);
    define(numbers, [
      ["speedup", `${times(r.speedup)}, ${verdict(r)}`],
      ["τ ÷ break-even τ", `${r.tokens.toFixed(2)} ÷ ${(r.round / r.plain).toFixed(2)}`],
      ["c", (r.draft / r.plain / s.gamma).toFixed(3)],
      ["v = T(γ+1) ÷ T(1)", (r.verify / r.plain).toFixed(2)],
      ["ms per token", `${(1e3 * r.plain).toPrecision(3)} → ${((1e3 * r.round) / r.tokens).toPrecision(3)}`],
      [
        "$ per million tokens",
        price(s, r)
          .map((dollars) => dollars.toPrecision(2))
          .join(" → "),
      ],
      ["memory", `${(memory / 1e9).toFixed(0)} GB${memory > machines[s.machine].memory ? ", too much" : ""}`],
      ["best γ", gain > 1 ? `${best}, ${times(gain)}` : "0"],
    ]);
    announce(() => [summary(s, r), taskState(s)]);
  };
  follow(charts.batches.svg, (px) => change(pick(px)));
  return live({ model, el }, root, Object.keys(DEFAULTS), draw, silence);
}

export default { render, formulas, presets };

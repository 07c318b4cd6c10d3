// A server under load. The formulas are those of specdec_lite/serving/goodput.py and estimate.py; a test holds
// them against each other on a grid.

const SLOTS = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const CONTEXTS = [512, 2048, 8192, 32768, 131072];

const formulas = {
  passSeconds(network, machine, batch, tokens, context) {
    const { experts, chosen } = network;
    const distinct = experts * (1 - (1 - chosen / experts) ** (batch * tokens));
    const weights = network.parameters + distinct * network.expert_parameters;
    const read = weights * network.bytes_per_weight + batch * context * network.cache_bytes;
    const active = network.parameters + chosen * network.expert_parameters;
    const operations = 2 * active * batch * tokens;
    return Math.max(read / machine.bandwidth, operations / machine.throughput) + machine.fixed;
  },
  estimated({ target, draft }, machine, context) {
    const tokens = Array.from({ length: 9 }, (_, i) => i + 1);
    const pass = (network, batch, k) => formulas.passSeconds(network, machine, batch, k, context);
    return {
      batches: SLOTS,
      tokens,
      seconds: SLOTS.map((batch) => tokens.map((k) => pass(target, batch, k))),
      drafting: SLOTS.map((batch) => (draft.parameters ? pass(draft, batch, 1) : 0)),
    };
  },
  // Sequences that fit beside the weights.
  room({ target, draft }, { memory }, context) {
    const weights = (n) =>
      (n.parameters + (n.expert_parameters ? n.experts * n.expert_parameters : 0)) * n.bytes_per_weight;
    const left = memory - weights(target) - weights(draft);
    return Math.max(0, Math.floor(left / context / (target.cache_bytes + draft.cache_bytes)));
  },
  between(value, points) {
    let place = 0;
    while (place < points.length - 2 && points[place + 1] <= value) place++;
    const width = points.length > 1 ? points[place + 1] - points[place] : 1;
    return [place, (value - points[place]) / width];
  },
  mix: (values, place, share) =>
    share ? values[place] + share * (values[place + 1] - values[place]) : values[place],
  ofPass(table, batch, tokens) {
    const [column, part] = formulas.between(tokens, table.tokens);
    const row = table.seconds.map((times) => formulas.mix(times, column, part));
    return formulas.mix(row, ...formulas.between(batch, table.batches));
  },
  ofRound(table, batch, gamma) {
    const one = formulas.mix(table.drafting, ...formulas.between(batch, table.batches));
    return gamma * one + formulas.ofPass(table, batch, gamma + 1);
  },
  tokensOfRound(alpha, gamma) {
    let tokens = 0;
    for (let i = 0, chance = 1; i <= gamma; i++, chance *= alpha) tokens += chance;
    return tokens;
  },
  goodput: (table, alpha, batch, gamma) =>
    (batch * formulas.tokensOfRound(alpha, gamma)) / formulas.ofRound(table, batch, gamma),
  steady(table, load, alpha, gamma, slots) {
    const tau = formulas.tokensOfRound(alpha, gamma);
    const rate = (batch) => formulas.goodput(table, alpha, batch, gamma);
    const points = [...table.batches.filter((batch) => batch < slots), slots];
    let batch = slots;
    const place = points.findIndex((point) => rate(point) >= load);
    if (rate(1) >= load) batch = 1;
    else if (place > 0) {
      const [low, high] = [points[place - 1], points[place]];
      const [begin, end] = [low, high].map((b) => formulas.ofRound(table, b, gamma));
      const slope = (end - begin) / (high - low);
      batch = (load * (begin - slope * low)) / (tau - load * slope);
    }
    const latency = formulas.ofRound(table, batch, gamma) / tau;
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

const list = (values) => ({ min: 0, max: values.length - 1, step: 1, digits: 0, values });
const SLIDERS = [
  { name: "load", text: "load", note: "÷ plain capacity", min: 0.05, max: 2, step: 0.05, digits: 2 },
  { name: "alpha", text: "α", note: "acceptance rate", min: 0, max: 1, step: 0.01, digits: 2 },
  { name: "gamma", text: "γ", note: "draft length", min: 0, max: 8, step: 1, digits: 0 },
  { name: "slots", text: "slots", note: "sequences at most", ...list(SLOTS) },
  { name: "context", text: "context", note: "tokens each", ...list(CONTEXTS) },
  { name: "experts", text: "experts", note: "a token's, of a mixture", ...list([1, 2, 4, 8, 16, 32]) },
];
const NAMES = ["pair", "machine", ...SLIDERS.map(({ name }) => name)];
const LOADS = Array.from({ length: 40 }, (_, i) => (i + 1) / 20);
const ROOM =
  "Solved: from a load of 0.00 on, γ = 4 makes every token later than plain decoding. Best there: γ = 0.";

const ms = (seconds) => `${(1e3 * seconds).toPrecision(3)} ms`;
const times = (x) => `${x.toFixed(2)}×`;

// What follows ------------------------------------------------------------------------------------

// The table that is chosen, and how many sequences fit.
function chosen(s) {
  if (s.pair >= s.pairs.length) return { table: s.tables[s.pair - s.pairs.length], room: Infinity };
  const { target, draft } = s.pairs[s.pair];
  const machine = s.machines[s.machine];
  const pair = { target: target.experts > 1 ? { ...target, chosen: s.experts } : target, draft };
  return {
    table: formulas.estimated(pair, machine, s.context),
    room: formulas.room(pair, machine, s.context),
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
  if (room < 1) return "does not fit into this memory";
  if (plain.overloaded && drafted.overloaded) return "the queue grows either way";
  if (drafted.overloaded) return "hurts: with drafts the queue grows";
  if (plain.overloaded) return "pays: without drafts the queue grows";
  const gain = plain.latency / drafted.latency;
  return `${gain > 1.005 ? "pays" : gain < 0.995 ? "hurts" : "even"}, ${times(gain)}`;
}

const summary = (s, r) =>
  `At ${s.load.toFixed(2)} of the plain capacity, γ = ${s.gamma} ${verdict(r)}. A token takes ${ms(r.plain.latency)} plain with ${r.plain.batch.toFixed(0)} sequences running, ${ms(r.drafted.latency)} drafted with ${r.drafted.batch.toFixed(0)}. Best here: γ = ${r.best}.`;

function taskState(s, r) {
  if (
    s.pair ||
    s.machine ||
    s.context !== 512 ||
    s.gamma !== 4 ||
    s.slots !== 256 ||
    s.alpha.toFixed(2) !== "0.70"
  )
    return "Take the first pair and machine, α = .70, γ = 4, 256 slots and 512 tokens of context.";
  if (!hurts(r)) return "Not yet: at this load drafting still helps.";
  if (s.load > 0.051 && hurts(consequences(s, s.load - 0.05)))
    return "It hurts, but it does so at a smaller load too.";
  return `Solved: from a load of ${s.load.toFixed(2)} on, γ = 4 makes every token later than plain decoding. Best there: γ = ${r.best}.`;
}

// Drawing -----------------------------------------------------------------------------------------

// From 0 to at most `most` seconds, in steps of 1, 2 or 5 milliseconds, tens or tenths of them.
function roundTicks(most) {
  const unit = 10 ** Math.floor(Math.log10(most / 4));
  const step = unit * [1, 2, 5, 10].find((times) => times * unit >= most / 4);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => i * step);
}

function drawLatency(svg, width, s, r) {
  const box = { left: 48, right: width - 62, top: 24, bottom: 176 };
  const points = LOADS.map((load) => [load, consequences(s, load)]);
  const curves = [
    ["plain", "plain", "var(--sdl-target)", ""],
    ["drafted", `γ = ${s.gamma}`, "var(--sdl-draft)", ""],
    ["chosen", "best γ", "var(--sdl-accepted)", "5 4"],
  ].map(([name, ...rest]) => [
    points.filter(([, c]) => !c[name].overloaded).map(([l, c]) => [l, c[name].latency]),
    ...rest,
  ]);
  const top = 1.08 * Math.max(...curves.flatMap(([line]) => line.map(([, v]) => v)), r.plain.latency);
  const x = (load) => box.left + (load / 2) * (box.right - box.left);
  const y = (v) => box.bottom - (Math.min(v, top) / top) * (box.bottom - box.top);
  for (const v of roundTicks(top))
    svg.append(
      make("line", { class: "sdl-grid", x1: box.left, x2: box.right, y1: y(v), y2: y(v) }),
      make(
        "text",
        { class: "sdl-faint", x: box.left - 6, y: y(v) + 4, "text-anchor": "end" },
        String(Number((1e3 * v).toPrecision(6))),
      ),
    );
  for (const load of [0.5, 1, 1.5, 2])
    svg.append(
      make(
        "text",
        { class: "sdl-faint", x: x(load), y: box.bottom + 17, "text-anchor": "middle" },
        String(load),
      ),
    );
  svg.append(
    make("text", { x: 4, y: 14 }, "ms a token"),
    make(
      "text",
      { x: (box.left + box.right) / 2, y: box.bottom + 34, "text-anchor": "middle" },
      "load ÷ plain capacity",
    ),
    make("line", {
      x1: x(s.load),
      x2: x(s.load),
      y1: box.top,
      y2: box.bottom,
      stroke: "var(--sdl-ink)",
      "stroke-dasharray": "3 3",
    }),
  );
  let last = -99;
  const ends = curves.map(([line, label, stroke, dash]) => {
    if (line.length)
      svg.append(
        make("path", {
          d: pathOf(line.map(([l, v]) => [x(l), y(v)])),
          fill: "none",
          stroke,
          "stroke-width": 2.5,
          "stroke-dasharray": dash,
        }),
      );
    return line.length ? [x(line.at(-1)[0]), y(line.at(-1)[1]), label] : null;
  });
  for (const [px, py, label] of ends.filter(Boolean).sort((a, b) => a[1] - b[1])) {
    last = Math.max(py + 4, last + 15);
    svg.append(make("text", { class: "sdl-halo", x: px + 5, y: last }, label));
  }
  return (px) => ({
    load: LOADS[Math.min(39, Math.max(0, Math.round((40 * (px - box.left)) / (box.right - box.left)) - 1))],
  });
}

function drawGains(svg, width, s, r) {
  const box = { left: 34, right: width - 8, top: 24, bottom: 176 };
  const batch = Math.max(1, Math.round(r.drafted.batch));
  const gammas = Array.from({ length: r.table.tokens.at(-1) }, (_, i) => i);
  const plain = formulas.goodput(r.table, s.alpha, batch, 0);
  const gains = gammas.map((gamma) => formulas.goodput(r.table, s.alpha, batch, gamma) / plain);
  const top = Math.max(1.5, 1.1 * Math.max(...gains));
  const y = (v) => box.bottom - (v / top) * (box.bottom - box.top);
  const step = (box.right - box.left) / gammas.length;
  for (let v = 0; v <= top; v++)
    svg.append(
      make("line", { class: "sdl-grid", x1: box.left, x2: box.right, y1: y(v), y2: y(v) }),
      make("text", { class: "sdl-faint", x: box.left - 6, y: y(v) + 4, "text-anchor": "end" }, `${v}×`),
    );
  const best = gains.indexOf(Math.max(...gains));
  gammas.forEach((gamma) => {
    const left = box.left + gamma * step;
    svg.append(
      make("rect", {
        x: left + 2,
        y: y(gains[gamma]),
        width: step - 4,
        height: box.bottom - y(gains[gamma]),
        fill:
          gamma === best
            ? "var(--sdl-accepted)"
            : gamma === s.gamma
              ? "var(--sdl-draft)"
              : "var(--sdl-target)",
      }),
      make(
        "text",
        { class: "sdl-faint", x: left + step / 2, y: box.bottom + 17, "text-anchor": "middle" },
        String(gamma),
      ),
    );
  });
  svg.append(
    make("text", { x: 4, y: 14 }, `with ${batch} running`),
    make("text", { x: (box.left + box.right) / 2, y: box.bottom + 34, "text-anchor": "middle" }, "γ"),
  );
}

function render({ model, el }) {
  const id = newId("serving");
  const menus = ["pairs", "machines", "tables"];
  const state = () => {
    const s = Object.fromEntries([...menus, ...NAMES].map((name) => [name, model.get(name)]));
    return { ...s, ...chosen(s) };
  };
  const change = (values) => assign(model, values);
  const shows = {};
  const controls = SLIDERS.map((spec) => {
    const [node, show] = numberField(`${id}-${spec.name}`, spec, change);
    shows[spec.name] = show;
    return node;
  });
  const choose = (name, options) =>
    menu(
      `${id}-${name}`,
      options.map(({ label }, value) => ({ value, label })),
      (value) => change({ [name]: Number(value) }),
    );
  const pairs = choose("pair", [...model.get("pairs"), ...model.get("tables")]);
  const machines = choose("machine", model.get("machines"));
  const charts = {
    latency: chart(
      "Time a token, by load",
      "A line ends where its queue begins to grow. Drag to set the load.",
      "sdl-wide",
      { height: 216 },
    ),
    gains: chart("Goodput by γ, against plain", "Green: the most tokens a second.", "sdl-narrow", {
      height: 216,
    }),
  };
  const words =
    "on the first pair and machine, with α = .70, γ = 4 and 256 slots, find the least load at which drafting makes every token later.";
  const { task, spoken, announce, silence } = narration(words, ROOM, 150);
  const numbers = make("dl", { class: "sdl-readouts" });
  const grid = "grid-template-columns: repeat(auto-fit, minmax(min(8.5rem, 100%), 1fr))";
  const root = make(
    "section",
    { class: "sdl sdl-low sdl-serving", "aria-label": "A server under load" },
    task,
    make(
      "div",
      { class: "sdl-controls" },
      field(`${id}-pair`, "Pair", pairs),
      field(`${id}-machine`, "Machine", machines),
    ),
    make("div", { class: "sdl-controls", style: grid }, ...controls),
    make(
      "div",
      { class: "sdl-frame" },
      make("div", { class: "sdl-charts" }, charts.latency.node, charts.gains.node),
    ),
    numbers,
    spoken,
  );
  let pick = () => ({});
  const draw = () => {
    const s = state();
    const r = consequences(s);
    for (const { name } of SLIDERS) shows[name](s[name]);
    pairs.value = String(s.pair);
    machines.value = String(s.machine);
    const size = ({ svg }) => {
      svg.replaceChildren();
      return [svg, Math.max(220, widthOf(svg) || 420), s, r];
    };
    pick = drawLatency(...size(charts.latency));
    drawGains(...size(charts.gains));
    const both = (name, show) => `${show(r.plain[name])} → ${show(r.drafted[name])}`;
    define(numbers, [
      ["verdict", verdict(r)],
      ["ms a token", both("latency", (v) => (1e3 * v).toPrecision(3))],
      ["running", both("batch", (v) => v.toFixed(1))],
      ["capacity, tokens/s", both("capacity", (v) => Number(v.toPrecision(3)).toLocaleString("en"))],
      ["sequences that fit", r.room === Infinity ? "–" : Math.min(r.room, r.table.batches.at(-1))],
      ["best γ at this load", r.best],
    ]);
    announce(() => [summary(s, r), taskState(s, r)]);
  };
  follow(charts.latency.svg, (px) => change(pick(px)));
  return live({ model, el }, root, NAMES, draw, silence);
}

export default { render, formulas };

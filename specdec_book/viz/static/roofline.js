// The roofline explorer. The formulas are those of specdec_lite/roofline.py; a test compares them on a grid.

const MAX_TOKENS = 32;
const MAX_BATCH = 256;
const HEIGHT = 190; // of the charts

const formulas = {
  passBytes: (parameters, bytesPerWeight, batch = 1, cacheBytes = 0) =>
    parameters * bytesPerWeight + batch * cacheBytes,
  passOperations: (parameters, tokens = 1, batch = 1) => 2 * parameters * tokens * batch,
  passSeconds: (parameters, bytesPerWeight, bandwidth, throughput, tokens = 1, batch = 1, cacheBytes = 0) => [
    formulas.passBytes(parameters, bytesPerWeight, batch, cacheBytes) / bandwidth,
    formulas.passOperations(parameters, tokens, batch) / throughput,
  ],
  ridgeTokens: (bytesPerWeight, bandwidth, throughput) => ((throughput / bandwidth) * bytesPerWeight) / 2,
};

const EXAMPLE = { bytes_per_weight: 2, bandwidth: 2e12, throughput: 312e12 };
const DATASHEET = "Datasheet figures, bf16 (the manufacturer's peak, not measured)";
const QUOTED = "Datasheet figures from secondary sources, dense (peak, not measured)";
const chip = (group, label, bandwidth, throughput, source) => {
  const numbers = { bandwidth: bandwidth * 1e9, throughput: throughput * 1e12, bytes_per_weight: 2 };
  return { group, label, ...numbers, source };
};
const T4 = "hmc-tech.com/gpu/nvidia-l4-vs-nvidia-t4 and topcpu.net/en/gpu-c/tesla-t4-vs-geforce-rtx-4090";
const GARDEN = "glennklockwood.com/garden/processors";
const WORKED = { parameters: 70e9, batch: 1, tokens: 1, cache: 0, ...EXAMPLE };
const presets = [
  { group: "The chapter's worked example", label: "example, 70B", ...WORKED },
  chip(DATASHEET, "Google TPU v5e, one chip", 819, 197, "cloud.google.com/tpu/docs/v5e"),
  chip(DATASHEET, "Google TPU v4, one chip", 1200, 275, "cloud.google.com/tpu/docs/v4"),
  chip(QUOTED, "NVIDIA T4, fp16", 320, 65, T4),
  chip(QUOTED, "NVIDIA A100 80 GB SXM, bf16", 2039, 312, `${GARDEN}/A100`),
  chip(QUOTED, "NVIDIA H100 SXM, bf16", 3350, 989, `${GARDEN}/h100`),
];

const UNITS = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
  [1, ""],
];
// A number of the largest unit of which there is at least `least`.
function inUnits(x, units, least = 1) {
  const [size, unit] = units.find(([each]) => x >= each * least) ?? units.at(-1);
  return `${Number((x / size).toPrecision(3))} ${unit}`;
}
const si = (x, unit) => inUnits(x, UNITS, 0.9995) + unit;
const TIME_UNITS = [
  [86400, "d"],
  [3600, "h"],
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
  [1e-9, "ns"],
];
const seconds = (t) => inUnits(t, TIME_UNITS);
// Round ticks from 0 to at most `top` seconds, all in one unit: [value, text].
function timeTicks(top) {
  const [size, unit] = TIME_UNITS.find(([size]) => top >= size) ?? TIME_UNITS.at(-1);
  return roundTicks(top / size, 5).map((value) => [
    value * size,
    value ? `${Number(value.toPrecision(6))} ${unit}` : "0",
  ]);
}
const COUNTS = [
  [1e9, "billion"],
  [1e6, "million"],
];
const weights = (x) => inUnits(x, COUNTS);
const idlePercent = (x) => `${(100 * x).toFixed(x > 0.99 && x < 1 ? 2 : 1)} %`;

// A slider on a logarithmic scale moves in hundredths of a power of ten; with `zero` its left end means 0.
const SLIDERS = [
  { name: "parameters", text: "model size", note: "weights", low: 6, high: 12, show: weights },
  { name: "tokens", text: "tokens per pass", note: "of one sequence", min: 1, max: MAX_TOKENS },
  { name: "batch", text: "batch", note: "sequences", min: 1, max: MAX_BATCH },
  { name: "bandwidth", text: "bandwidth", note: "bytes read per second", low: 9, high: 13, unit: "B/s" },
  {
    name: "throughput",
    text: "throughput",
    note: "operations per second",
    low: 10,
    high: 16,
    unit: "FLOP/s",
  },
  {
    name: "cache",
    text: "KV cache",
    note: "bytes per sequence",
    low: 4.99,
    high: 11,
    zero: "ignored",
    unit: "B",
  },
];
const WIDTHS = [
  [4, "4 bytes: float32"],
  [2, "2 bytes: bf16, fp16"],
  [1, "1 byte: int8, fp8"],
  [0.5, "½ byte: int4"],
];
const NAMES = [...SLIDERS.map(({ name }) => name), "bytes_per_weight"];
const SETTINGS = ["parameters", "bandwidth", "throughput", "cache"]; // in a fold
const FREE = new Set(["tokens", "batch", "cache"]);
const TASK_BATCH = 8;

// Results -----------------------------------------------------------------------------------------

function consequences(s) {
  const times = (tokens, batch = s.batch) =>
    formulas.passSeconds(s.parameters, s.bytes_per_weight, s.bandwidth, s.throughput, tokens, batch, s.cache);
  const [reading, computing] = times(s.tokens);
  const time = Math.max(reading, computing);
  const operations = formulas.passOperations(s.parameters, s.tokens, s.batch);
  return {
    reading,
    computing,
    time,
    times,
    size: s.parameters * s.bytes_per_weight,
    intensity: operations / formulas.passBytes(s.parameters, s.bytes_per_weight, s.batch, s.cache),
    reached: operations / time,
    isReading: reading >= computing,
    free: Math.floor((reading * s.throughput) / formulas.passOperations(s.parameters, 1, s.batch) + 1e-9),
    growth: time / Math.max(...times(1)),
  };
}

function summary(s, r) {
  const pass = `A pass over ${plural(s.tokens, "token")}${s.batch > 1 ? ` of each of ${s.batch} sequences` : ""} `;
  const parts = `takes at least ${seconds(r.time)}: reading takes ${seconds(r.reading)} and arithmetic ${seconds(r.computing)}. `;
  const roof = r.isReading
    ? `Memory limits the pass, and the arithmetic units idle ${idlePercent(1 - r.computing / r.time)} of the time. `
    : `Arithmetic limits the pass, and the memory idles ${idlePercent(1 - r.reading / r.time)} of the time. `;
  const count = r.free < 1e6 ? r.free : weights(r.free);
  const free =
    r.free < 1
      ? "At this batch size, arithmetic limits even a pass over one token."
      : r.free === 1
        ? "A pass over two tokens takes longer than a pass over one."
        : `A pass over up to ${count} tokens takes no longer than a pass over one.`;
  return pass + parts + roof + free;
}

function taskState(s, r) {
  if (Object.entries(EXAMPLE).some(([name, value]) => s[name] !== value))
    return "Start from the worked example.";
  if (s.cache > 0) return "Set the KV cache to 0 for this task.";
  if (s.batch !== TASK_BATCH) return `Set the batch to ${TASK_BATCH}.`;
  if (!r.isReading) return "Too many: arithmetic limits the pass.";
  if (r.free > s.tokens) return "Memory limits the pass; a longer pass would take no more time.";
  return `Solved: ${s.tokens}. For a single sequence it is ${Math.floor(formulas.ridgeTokens(2, 2e12, 312e12))}: a batch uses the idle arithmetic units that speculation needs.`;
}

// Drawing -----------------------------------------------------------------------------------------

const BOX = { left: 62, top: 30, bottom: HEIGHT - 40 };

function drawRoofs(svg, width, s, r) {
  const box = { ...BOX, right: width - 12 };
  const [x0, x1] = [-1, 4];
  const top = Math.ceil(Math.log10(s.throughput) + 0.15);
  const bottom = Math.floor(Math.min(Math.log10(s.bandwidth) + x0 + 0.5, top - 2));
  const plane = scales(box, [x0, x1], [bottom, top]);
  const x = (intensity) => plane.x(Math.log10(intensity));
  const y = (rate) => plane.y(Math.log10(rate));
  const powers = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => 10 ** (from + i));
  const short = (value) => (value < 1000 ? String(value) : si(value, ""));
  rulings(svg, box, y, powers(bottom, top), (value) => si(value, ""));
  axisBelow(svg, box, x, powers(x0, x1), "operations per byte read", short);
  svg.append(foot(box), svgText(0, box.top - 12, "operations per second"));
  const ridge = s.throughput / s.bandwidth;
  const low = Math.max(10 ** x0, 10 ** bottom / s.bandwidth);
  // a roof between two intensities; its rate at each
  const roof = (from, to, rate, color) => {
    const ends = [from, to].map((end) => [x(end), y(rate(end))]);
    svg.append(curve(ends, color, { "stroke-width": 3 }));
  };
  // start of the flat roof and end of the slanted one
  const [left, right] = [Math.max(ridge, 10 ** x0), Math.min(ridge, 10 ** x1)];
  if (right > low) roof(low, right, (intensity) => intensity * s.bandwidth, "one");
  if (left < 10 ** x1) roof(left, 10 ** x1, () => s.throughput, "other");
  const clampX = (px) => Math.min(box.right, Math.max(box.left, px));
  const first =
    formulas.passOperations(s.parameters) / formulas.passBytes(s.parameters, s.bytes_per_weight, 1, s.cache);
  const from = [clampX(x(first)), y(Math.min(first * s.bandwidth, s.throughput))];
  const now = [clampX(x(r.intensity)), y(r.reached)];
  const halo = (px, py, words, more) => svg.append(svgText(px, py, words, { class: "sdl-halo", ...more }));
  svg.append(
    stroke(now[0], Math.min(now[1], box.bottom), now[0], box.bottom, "muted", { "stroke-dasharray": "3 3" }),
    disc(from[0], Math.min(from[1], box.bottom), 5, "surface", { stroke: ink("ink"), "stroke-width": 1.5 }),
    yourPoint(now[0], now[1], 7),
  );
  const under = [Math.min(now[0] + 12, box.right - 56), Math.min(now[1] + 22, box.bottom - 6)];
  halo(...under, "chosen", { "font-weight": 600 });
  if (left < 10 ** x1) halo(box.right, y(s.throughput) - 8, "arithmetic roof", { "text-anchor": "end" });
  const sign = x(right / 12);
  const side = sign > box.left + 100 ? "end" : "start";
  if (right / 12 > low)
    halo(sign - 10, y((right / 12) * s.bandwidth), "memory roof", { "text-anchor": side });
  return (px) => ({ tokens: clampTokens((10 ** plane.at(px, 0)[0] / r.intensity) * s.tokens) });
}

const clampTokens = (tokens) => Math.min(MAX_TOKENS, Math.max(1, Math.round(tokens)));

function drawTimes(svg, width, s, r) {
  const box = { ...BOX, right: width - 12 };
  const ks = Array.from({ length: MAX_TOKENS }, (_, i) => i + 1);
  const top = 1.06 * Math.max(...r.times(MAX_TOKENS), 1.6 * r.reading);
  const { x, y, at } = scales(box, [0.5, MAX_TOKENS + 0.5], [0, top]);
  const ticks = new Map(timeTicks(top));
  rulings(svg, box, y, [...ticks.keys()], (value) => ticks.get(value));
  axisBelow(svg, box, x, [1, 8, 16, 24, 32], "tokens per pass");
  svg.append(foot(box), svgText(0, box.top - 12, "least time of a pass"));
  const line = (value, color, thick, dash) => {
    const points = ks.map((k) => [x(k), y(value(k))]);
    svg.append(curve(points, color, { "stroke-width": thick, "stroke-dasharray": dash }));
  };
  line((k) => r.times(k)[0], "other", 2, "6 4");
  line((k) => r.times(k)[1], "other", 2, "2 4");
  line((k) => Math.max(...r.times(k)), "ink", 2.5, "none");
  const isLeft = x(s.tokens) < box.right - 75; // at the right edge the text is left of its point
  const beside = { class: "sdl-halo", "text-anchor": isLeft ? "start" : "end", "font-weight": 600 };
  svg.append(
    yourPoint(x(s.tokens), y(r.time), 7),
    svgText(x(s.tokens) + (isLeft ? 11 : -11), y(r.time) - 9, seconds(r.time), beside),
  );
  return (px) => ({ tokens: clampTokens(at(px, 0)[0]) });
}

// Putting it together -----------------------------------------------------------------------------

// What numberField needs for a slider that may be logarithmic.
function sliderSpec({ low, high, zero, unit, ...spec }) {
  if (low === undefined) return spec;
  return {
    show: (value) => (zero && !value ? zero : si(value, unit)),
    ...spec,
    min: low,
    max: high,
    step: 0.01,
    read: (position) => (zero && position <= low ? 0 : Number((10 ** position).toPrecision(3))),
    place: (value) => (value > 0 ? Math.log10(value) : low),
  };
}

function readouts(s, r) {
  return [
    ["least time of a pass", seconds(r.time)],
    ["limited by", r.isReading ? "memory" : "arithmetic"],
    ["arithmetic units idle", idlePercent(1 - r.computing / r.time)],
    ["time over one token's", times(r.growth)],
    ["tokens in the time of one", r.free < 1 ? "none" : r.free < 1e6 ? String(r.free) : weights(r.free)],
    ["weights", si(r.size, "B")],
    ["operations per byte", Number(r.intensity.toPrecision(3))],
    ["passes per second, at most", Number((1 / r.time).toPrecision(3))],
  ];
}

function render(context) {
  const { model } = context;
  const choices = [{ label: "your own values" }, ...presets];
  const matches = (choice) => NAMES.every((name) => !(name in choice) || choice[name] === model.get(name));
  let preset = presets.find(matches) ?? choices[0];
  const change = (values) => {
    if (!Object.keys(values).every((name) => FREE.has(name))) preset = choices[0];
    assign(model, values);
  };
  const pick = (picked) => {
    const given = NAMES.filter((name) => name in picked).map((name) => [name, picked[name]]);
    if (picked.group) assign(model, { cache: 0, ...Object.fromEntries(given) });
    preset = picked;
    context.repaint(); // the model reports no change between two presets with the same values
  };
  const solved = { ...EXAMPLE, tokens: 10, cache: 0, batch: TASK_BATCH };
  const longestState = taskState(solved, { isReading: true, free: 0 });
  const source = make("p", { class: "sdl-summary" });
  const draw = (s) => {
    const r = consequences(s);
    Object.assign(s, { preset: choices.indexOf(preset) });
    source.hidden = !preset.source;
    source.textContent = preset.source ? `Figures from ${preset.source}.` : "";
    return [readouts(s, r), () => [summary(s, r), taskState(s, r)], r];
  };
  const spec = {
    name: "roofline",
    label: "Roofline explorer of one pass",
    task: `decode a batch of ${TASK_BATCH} sequences in the worked example. How many tokens of each sequence can one pass verify before arithmetic limits it?`,
    longestState,
    values: NAMES,
    change: ({ preset: at, ...values }) => (at === undefined ? change(values) : pick(choices[at])),
    controls: [
      { name: "preset", text: "Start from", options: choices },
      ...SLIDERS.map(sliderSpec),
      {
        name: "bytes_per_weight",
        id: "width",
        text: "bytes per weight",
        options: WIDTHS.map(([, label]) => ({ label })),
        read: (i) => WIDTHS[i][0],
        place: (bytes) => WIDTHS.findIndex(([value]) => value === bytes),
      },
    ],
    charts: {
      roofs: {
        title: "The roofline",
        caption: "Open circle: one token, batch 1. Drag to set tokens per pass.",
        size: "sdl-half",
        height: HEIGHT,
        drag: true,
        draw: drawRoofs,
      },
      times: {
        title: "Time of a pass by its tokens",
        caption:
          "Solid: the longer of reading and arithmetic. The shorter one is dashed (reading) or dotted (arithmetic).",
        size: "sdl-half",
        height: HEIGHT,
        drag: true,
        draw: drawTimes,
      },
    },
  };
  const layout = ({ task, spoken, tiles: [few, rest], controls, charts }) => {
    const settings = controlRow(...["preset", "bytes_per_weight", ...SETTINGS].map((name) => controls[name]));
    return [
      task,
      controlRow(controls.tokens, controls.batch),
      chartRow(phoneFold("The roofline", "sdl-half", charts.roofs.node), charts.times.node),
      few,
      foldRow(rest, foldOf("The model and the chip", settings, source)),
      spoken,
    ];
  };
  return panel(context, spec, layout, draw);
}

export default { render, formulas, presets };

// The next word: temperature, top-k and top-p on the distribution of a real model's next token, drawn on a line of
// length 1. A test compares the adjusted distribution with specdec_lite.sampling.

const NAMES = ["context", "temperature", "top_k", "top_p", "u"];
const OFF_K = 51; // position of the slider that switches top-k off
const BARS = 6;
const ROW = 21;
const REST = "all other tokens";

const formulas = {
  // words: [[text, logit], …] and tail: [[logit, count], …], both descending; the tail is the rest of the vocabulary
  // in steps. topK 0 and topP 1 keep all tokens. Returns the words' probabilities, the mass of the rest and the number
  // of tokens that remain.
  adjust(words, tail, temperature, topK = 0, topP = 1) {
    const entries = [...words.map(([, logit]) => [logit, 1]), ...tail];
    const top = entries[0][0];
    let left = temperature === 0 ? 1 : topK || Infinity;
    const rest = entries.map(([logit, count]) => {
      const some = Math.min(count, left);
      left -= some;
      return { weight: temperature === 0 ? 1 : Math.exp((logit - top) / temperature), count: some };
    });
    const mass = ({ weight, count }) => weight * count;
    const whole = sum(rest, mass);
    let before = 0;
    for (const entry of rest) {
      const each = entry.weight / whole;
      const needed = each > 0 ? Math.ceil((topP - before) / each - 1e-9) : 0;
      before += each * entry.count;
      entry.count = topP < 1 ? Math.max(0, Math.min(entry.count, needed)) : entry.count;
    }
    const kept = sum(rest, mass);
    const share = (entry) => mass(entry) / kept;
    return {
      probs: rest.slice(0, words.length).map(share),
      rest: sum(rest.slice(words.length), share),
      count: sum(rest, ({ count }) => count),
    };
  },

  // Index of the word whose interval contains u; the number of words if u is among the other tokens.
  hit(probs, u) {
    let end = 0;
    const at = probs.findIndex((p) => p > 0 && u < (end += p));
    return at < 0 ? probs.length : at;
  },

  // The middle of a label `room` wide in an interval, clear of a mark at `at` if there is room beside the mark.
  labelMiddle(from, long, room, at) {
    const middle = from + long / 2;
    if (Math.abs(at - middle) > room / 2) return middle;
    const [before, after] = [at - from, from + long - at];
    if (Math.max(before, after) < room) return middle;
    return before > after ? from + before / 2 : at + after / 2;
  },
};

const number = (p) => (p === 0 ? "0" : p < 0.001 ? "<.001" : p.toFixed(3).replace(/^0/, ""));

function nameAt(words, at) {
  return at < words.length ? `“${visible(words[at][0])}”` : "one of the other tokens";
}

const solved = (before, after, tokens) =>
  `Solved: the probability rises from ${before} to ${after}. Top-p keeps ${tokens} and rescales their probabilities.`;

function taskState(s, raw, now) {
  if (s.temperature === 0 || raw.probs[0] >= 0.5)
    return `Before any cut the likeliest word has probability ${number(raw.probs[0])}: raise the temperature.`;
  if (s.top_k > 0) return "Good. Now switch top-k off and use top-p alone.";
  if (now.probs[0] < 0.5)
    return `Good: before any cut the likeliest word has probability ${number(raw.probs[0])}. Now lower top-p.`;
  return solved(number(raw.probs[0]), number(now.probs[0]), plural(now.count, "token"));
}

function summary(s, words, now) {
  const at = formulas.hit(now.probs, s.u);
  const left = now.count > 1 ? `${now.count.toLocaleString("en")} tokens can be drawn` : "One token remains";
  return `u = ${s.u.toFixed(2)} falls on ${nameAt(words, at)}. ${left}.`;
}

function drawLine(svg, width, { u }, { words, now }) {
  const [top, high] = [30, 30];
  const x = (p) => 1 + p * (width - 2);
  const at = Math.min(width - 2, Math.max(2, x(u)));
  let end = 0;
  const parts = [...now.probs, now.rest].flatMap((p, i) => {
    const [from, long] = [x(end), p * (width - 2)];
    end += p;
    if (long < 0.2) return [];
    const isRest = i === words.length;
    const fill = `color-mix(in srgb, var(--sdl-target) ${i % 2 ? 14 : 34}%, transparent)`;
    const thin = { stroke: ink("line"), "stroke-width": 0.5 };
    const box = block(from, top, long, high, "raised", isRest ? thin : { ...thin, fill });
    const label = isRest ? "others" : visible(words[i][0]);
    const room = 9 * label.length + 6;
    if (long < room) return [box];
    const middle = formulas.labelMiddle(from, long, room, at);
    return [box, svgText(middle, top + 20, label, { "text-anchor": "middle" })];
  });
  const side = u > 0.5 ? "end" : "start";
  svg.append(
    ...parts,
    block(1, top, width - 2, high, "none", { stroke: ink("control-line") }),
    make("path", { d: `M${at} 12V${top + high + 4}`, stroke: ink("ink"), "stroke-width": 2.5 }),
    svgText(at + (u > 0.5 ? -6 : 6), 20, `u = ${u.toFixed(2)}`, { "text-anchor": side, "font-weight": 600 }),
    svgText(0, top + high + 16, "0", { class: "sdl-faint" }),
    svgText(width, top + high + 16, "1", { class: "sdl-faint", "text-anchor": "end" }),
  );
  return (px) => ({ u: Math.min(0.99, Math.max(0, Math.round((100 * (px - 1)) / (width - 2)) / 100)) });
}

function drawBars(svg, width, { u }, { words, raw, now }) {
  const at = formulas.hit(now.probs, u);
  const [left, row] = [Math.min(120, width / 3), ROW];
  const room = width - left - 52;
  const shown = words.slice(0, BARS);
  const rows = shown.map(([text], i) => [visible(text), raw.probs[i], now.probs[i], i === at]);
  const [was, is] = [raw, now].map(({ probs, rest }) => probs.slice(BARS).reduce((sum, p) => sum + p, rest));
  rows.push([REST, was, is, at >= BARS]);
  const dashed = { stroke: ink("muted"), "stroke-dasharray": "3 2" };
  const end = { "text-anchor": "end" };
  rows.forEach(([name, before, after, isHit], i) => {
    const top = row * i;
    svg.append(
      svgText(left - 8, top + 16, isHit ? `▶ ${name}` : name, { ...end, "font-weight": isHit ? 700 : 400 }),
      block(left, top + 4, Math.max(0.5, room * after), row - 8, name === REST ? "muted" : "target"),
      block(left, top + 2, Math.max(0.5, room * before), row - 4, "none", dashed),
      svgText(width, top + 16, number(after), end),
    );
  });
  const numbers = rows.map(([name, , after]) => `${name}: ${number(after)}`).join(". ");
  svg.setAttribute("aria-label", `Probabilities of the next token. ${numbers}.`);
}

const offAt = (end) => (value) => (value === end ? "off" : value.toFixed(2));
const SLIDERS = [
  { name: "temperature", text: "temperature T", max: 2, step: 0.05 },
  {
    name: "top_k",
    text: "top-k",
    min: 1,
    max: OFF_K,
    show: (value) => String(value || "off"),
    read: (position) => (position === OFF_K ? 0 : position),
    place: (value) => value || OFF_K,
  },
  { name: "top_p", text: "top-p", min: 0.05, max: 1, step: 0.05, show: offAt(1) },
  { name: "u", text: "uniform u", max: 0.99, step: 0.01 },
];

function render(context) {
  const contexts = context.model.get("contexts") ?? [];
  if (contexts.length === 0) return showNothing(context.el);
  const draw = (s) => {
    const { words, tail } = contexts[s.context];
    const now = formulas.adjust(words, tail, s.temperature, s.top_k, s.top_p);
    const [raw, warm] = [1, s.temperature].map((temperature) => formulas.adjust(words, tail, temperature));
    return [[], () => [summary(s, words, now), taskState(s, warm, now)], { words, raw, now }];
  };
  const options = contexts.map(({ prompt }) => ({ label: `${prompt} …` }));
  const spec = {
    name: "next-word",
    label: "The next word",
    task: "raise the temperature until the likeliest word covers less than half of the line. Then use top-p alone to give it more than half again.",
    longestState: solved(".499", ".999", "10 tokens"),
    delay: 100,
    values: NAMES,
    controls: [{ name: "context", text: "the text so far", options }, ...SLIDERS],
    charts: {
      line: {
        title: "The line of length 1",
        height: 78,
        label: "The line of length 1 with the point u",
        drag: true,
        draw: drawLine,
      },
      bars: {
        title: "Probabilities of the next token",
        caption: "filled: after temperature, top-k and top-p · dashed: at T = 1 without cuts",
        height: ROW * (BARS + 1),
        draw: drawBars,
      },
    },
  };
  const redraw = () => assign(context.model, { u: Math.floor(100 * Math.random()) / 100 });
  const again = button("Draw a new u", redraw);
  const layout = ({ task, spoken, controls, charts }) => [
    task,
    make("div", { class: "sdl-frame" }, controlRow(...Object.values(controls), again)),
    charts.line.node,
    charts.bars.node,
    make("div", {}, spoken),
  ];
  return panel(context, spec, layout, draw);
}

export default { render, formulas };

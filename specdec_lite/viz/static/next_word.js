// The next word: temperature, top-k and top-p over the distribution of a real model's next token, laid on the
// line of length 1. A test holds the adjusted distribution against specdec_lite.sampling.

const OFF_K = 51;
const SHOWN = 7;
const ROW = 21;
const REST = "all other tokens";

const formulas = {
  // words: [[text, logit], …] falling; tail: [[logit, count], …] falling, the rest of the vocabulary in steps.
  // topK 0 and topP 1 cut nothing. → probs of the words, the mass of the rest, how many tokens are left.
  law(words, tail, temperature, topK = 0, topP = 1) {
    const entries = [...words.map(([, logit]) => [logit, 1]), ...tail];
    const top = entries[0][0];
    let left = temperature === 0 ? 1 : topK || Infinity;
    const kept = entries.map(([logit, count]) => {
      const some = Math.min(count, left);
      left -= some;
      return { weight: temperature === 0 ? 1 : Math.exp((logit - top) / temperature), count: some };
    });
    const mass = (all) => all.reduce((sum, { weight, count }) => sum + weight * count, 0);
    const whole = mass(kept);
    let before = 0;
    for (const entry of kept) {
      const each = entry.weight / whole;
      const wanted = each > 0 ? Math.ceil((topP - before) / each - 1e-9) : 0;
      before += each * entry.count;
      entry.count = topP < 1 ? Math.max(0, Math.min(entry.count, wanted)) : entry.count;
    }
    const sum = mass(kept);
    const share = ({ weight, count }) => (weight * count) / sum;
    return {
      probs: kept.slice(0, words.length).map(share),
      rest: kept.slice(words.length).reduce((total, entry) => total + share(entry), 0),
      kept: kept.reduce((total, { count }) => total + count, 0),
    };
  },

  // The place of the word whose stretch of the line holds u; the number of words where the rest holds it.
  hit(probs, u) {
    let end = 0;
    const at = probs.findIndex((p) => p > 0 && u < (end += p));
    return at < 0 ? probs.length : at;
  },

  // Where the middle of a word `room` wide stands in a stretch: clear of a mark at `at`, if there is room beside it.
  clear(from, long, room, at) {
    const middle = from + long / 2;
    if (Math.abs(at - middle) > room / 2) return middle;
    const [before, behind] = [at - from, from + long - at];
    if (Math.max(before, behind) < room) return middle;
    return before > behind ? from + before / 2 : at + behind / 2;
  },
};

const shownWord = (text) => text.trim() || (text.includes("\n") ? "⏎" : "␣");
const percent = (p) => (p === 0 ? "0" : p < 0.001 ? "<.001" : p.toFixed(3).replace(/^0/, ""));

function nameAt(words, at) {
  return at < words.length ? `“${shownWord(words[at][0])}”` : "one of the other tokens";
}

function taskState(s, raw, now) {
  if (s.temperature === 0 || raw.probs[0] >= 0.5)
    return `At this temperature the likeliest word has ${percent(raw.probs[0])} before any cut: raise it.`;
  if (s.top_k > 0) return "Good. Now without top-k, which is to stay off: top-p alone.";
  if (now.probs[0] < 0.5) return `Good: ${percent(raw.probs[0])} before any cut. Now lower top-p.`;
  return `Solved: from ${percent(raw.probs[0])} to ${percent(now.probs[0])}. The cut leaves ${now.kept} token${now.kept > 1 ? "s" : ""}, and their mass is shared out again.`;
}

function summary(s, words, now) {
  const at = formulas.hit(now.probs, s.u);
  const left = now.kept > 1 ? `${now.kept.toLocaleString("en")} tokens can be drawn` : "one token is left";
  return `u = ${s.u.toFixed(2)} falls on ${nameAt(words, at)}; ${left}.`;
}

function drawLine(svg, words, now, u) {
  const width = Math.max(240, widthOf(svg) || 600);
  const [top, high] = [30, 30];
  const x = (p) => 1 + p * (width - 2);
  const at = Math.min(width - 2, Math.max(2, x(u)));
  let end = 0;
  const parts = [...now.probs, now.rest].flatMap((p, i) => {
    const [from, long] = [x(end), p * (width - 2)];
    end += p;
    if (long < 0.2) return [];
    const isRest = i === words.length;
    const box = make("rect", {
      x: from,
      y: top,
      width: long,
      height: high,
      fill: isRest
        ? "var(--sdl-raised)"
        : `color-mix(in srgb, var(--sdl-target) ${i % 2 ? 14 : 34}%, transparent)`,
      stroke: "var(--sdl-line)",
      "stroke-width": 0.5,
    });
    const label = isRest ? "others" : shownWord(words[i][0]);
    const room = 9 * label.length + 6;
    if (long < room) return [box];
    const middle = formulas.clear(from, long, room, at);
    return [box, make("text", { x: middle, y: top + 20, "text-anchor": "middle" }, label)];
  });
  const side = u > 0.5 ? "end" : "start";
  svg.replaceChildren(
    ...parts,
    make("rect", {
      x: 1,
      y: top,
      width: width - 2,
      height: high,
      fill: "none",
      stroke: "var(--sdl-control-line)",
    }),
    make("path", { d: `M${at} 12V${top + high + 4}`, stroke: "var(--sdl-draft-line)", "stroke-width": 2.5 }),
    make(
      "text",
      { x: at + (u > 0.5 ? -6 : 6), y: 20, "text-anchor": side, "font-weight": 600 },
      `u = ${u.toFixed(2)}`,
    ),
    make("text", { class: "sdl-faint", x: 0, y: top + high + 16 }, "0"),
    make("text", { class: "sdl-faint", x: width, y: top + high + 16, "text-anchor": "end" }, "1"),
  );
  return (px) => Math.round(100 * Math.min(0.999, Math.max(0, (px - 1) / (width - 2)))) / 100;
}

function drawBars(svg, words, raw, now, at) {
  const width = Math.max(240, widthOf(svg) || 600);
  const [left, row] = [Math.min(120, width / 3), ROW];
  const room = width - left - 52;
  const rows = [
    ...words.slice(0, SHOWN).map(([text], i) => [shownWord(text), raw.probs[i], now.probs[i], i === at]),
  ];
  const [was, is] = [raw, now].map(({ probs, rest }) => probs.slice(SHOWN).reduce((sum, p) => sum + p, rest));
  rows.push([REST, was, is, at >= SHOWN]);
  svg.replaceChildren(
    ...rows.flatMap(([name, before, after, isHit], i) => [
      make(
        "text",
        { x: left - 8, y: row * i + 16, "text-anchor": "end", "font-weight": isHit ? 700 : 400 },
        isHit ? `▶ ${name}` : name,
      ),
      make("rect", {
        x: left,
        y: row * i + 4,
        width: Math.max(0.5, room * after),
        height: row - 8,
        fill: name === REST ? "var(--sdl-muted)" : "var(--sdl-target)",
      }),
      make("rect", {
        x: left,
        y: row * i + 2,
        width: Math.max(0.5, room * before),
        height: row - 4,
        fill: "none",
        stroke: "var(--sdl-draft-line)",
        "stroke-dasharray": "3 2",
      }),
      make("text", { x: width, y: row * i + 16, "text-anchor": "end" }, percent(after)),
    ]),
  );
  svg.setAttribute(
    "aria-label",
    `Chances of the next token. ${rows.map(([name, , after]) => `${name}: ${percent(after)}`).join(". ")}.`,
  );
}

function render({ model, el }) {
  const id = newId("next-word");
  const contexts = model.get("contexts") ?? [];
  if (contexts.length === 0) {
    el.append(make("p", { class: "sdl" }, "Nothing was recorded."));
    return () => {};
  }
  const names = ["context", "temperature", "top_k", "top_p", "u"];
  const usual = { context: 0, temperature: 1, top_k: 0, top_p: 1, u: 0.42 };
  const state = () => Object.fromEntries(names.map((name) => [name, model.get(name) ?? usual[name]]));
  const change = (values) => assign(model, values);
  const sliders = [
    ["temperature", "temperature T", { min: 0, max: 2, step: 0.05 }, (v) => v, (v) => v.toFixed(2)],
    ["top_k", "top-k", { min: 1, max: OFF_K, step: 1 }, (v) => (v === OFF_K ? 0 : v), (v) => v || "off"],
    ["top_p", "top-p", { min: 0.05, max: 1, step: 0.05 }, (v) => v, (v) => (v === 1 ? "off" : v.toFixed(2))],
    ["u", "the point u", { min: 0, max: 0.99, step: 0.01 }, (v) => v, (v) => v.toFixed(2)],
  ].map(([name, label, range, read, show]) => {
    const parts = slider(`${id}-${name}`, { "data-name": name, ...range }, (v) =>
      change({ [name]: read(v) }),
    );
    const set = (value) => {
      parts.input.value = name === "top_k" && value === 0 ? OFF_K : value;
      parts.output.textContent = show(value);
      parts.input.setAttribute("aria-valuetext", String(show(value)));
    };
    return { name, set, node: field(`${id}-${name}`, label, parts.output, parts.input) };
  });
  const options = contexts.map(({ prompt }, value) => ({ value, label: `${prompt} …` }));
  const pick = menu(`${id}-context`, options, (value) => change({ context: Number(value) }));
  const { announce, silence, ...told } = narration(
    "raise the temperature until the likeliest word has less than half of the line; then give it more than half again with top-p alone.",
    "Solved: from .499 to .999. The cut leaves 10 tokens, and their mass is shared out again.",
    100,
  );
  const line = make("svg", {
    role: "img",
    height: 78,
    "aria-label": "The line of length 1 with the point u",
  });
  const bars = make("svg", { role: "img", height: ROW * (SHOWN + 1) });
  const key = "filled: after temperature, top-k and top-p · dashed: the model's own, T = 1";
  const root = make(
    "section",
    { class: "sdl sdl-next-word", "aria-label": "The next word" },
    told.task,
    make(
      "div",
      { class: "sdl-frame" },
      make(
        "div",
        { class: "sdl-controls" },
        field(`${id}-context`, "the text so far", pick),
        ...sliders.map(({ node }) => node),
        button("Draw u anew", () => change({ u: Math.floor(100 * Math.random()) / 100 })),
      ),
    ),
    figure("The line of length 1", "", line),
    figure("Chances of the next token", "", bars, make("figcaption", {}, key)),
    told.spoken,
  );
  let place = () => 0;
  const draw = () => {
    const s = state();
    const { words, tail } = contexts[s.context];
    const now = formulas.law(words, tail, s.temperature, s.top_k, s.top_p);
    const own = formulas.law(words, tail, 1);
    const raw = formulas.law(words, tail, s.temperature);
    pick.value = s.context;
    for (const { name, set } of sliders) set(s[name]);
    place = drawLine(line, words, now, s.u);
    drawBars(bars, words, own, now, formulas.hit(now.probs, s.u));
    announce(() => [summary(s, words, now), taskState(s, raw, now)]);
  };
  follow(line, (px) => change({ u: Math.min(0.99, place(px)) }));
  return live({ model, el }, root, names, draw, silence);
}

export default { render, formulas };

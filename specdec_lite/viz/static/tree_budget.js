// The tree-budget explorer. The best tree is grown greedily, which is optimal where rates fall with the rank; a
// test holds it against the dynamic programme of specdec_lite/drafters/shapes.py.

const MOST = 64;
const DEPTH = 16;
const LOOK = { accepted: "var(--sdl-accepted)", target: "var(--sdl-target)", draft: "var(--sdl-draft-line)" };

const formulas = {
  // Parents, levels, ranks and worths of the best tree, node by node in the order of worth: its first n nodes are
  // the best tree of n.
  best(rates, nodes, depth = DEPTH) {
    const tree = [];
    const waiting = [];
    const offer = (parent, level, rank, above) => {
      if (level < depth && rank < rates.length && above * rates[rank] > 0)
        waiting.push({ parent, level, rank, worth: above * rates[rank], above });
    };
    offer(-1, 0, 0, 1);
    while (tree.length < nodes && waiting.length) {
      const most = waiting.reduce((best, one, i) => (one.worth > waiting[best].worth ? i : best), 0);
      const [node] = waiting.splice(most, 1);
      tree.push(node);
      offer(node.parent, node.level, node.rank + 1, node.above);
      offer(tree.length - 1, node.level + 1, 0, node.worth);
    }
    return tree;
  },
  expected: (tree) => 1 + tree.reduce((sum, { worth }) => sum + worth, 0),
  levels: (tree) => tree.reduce((most, { level }) => Math.max(most, level + 1), 0),
  chain: (rate, nodes) => Array.from({ length: nodes + 1 }, (_, i) => rate ** i).reduce((a, b) => a + b, 0),
  // T(k)/T(1), between the measured k on a straight line, beyond the last one along the last piece.
  pass(ks, times, k, stretch = 1) {
    const i = Math.max(
      1,
      ks.findIndex((known) => known >= k) < 0 ? ks.length - 1 : ks.findIndex((known) => known >= k),
    );
    const [a, b] = [i - 1, i].map((j) => Math.min(j, ks.length - 1));
    const slope = b > a ? (times[b] - times[a]) / (ks[b] - ks[a]) : 0;
    const measured = times[a] + slope * (k - ks[a]);
    return 1 + stretch * (measured - 1);
  },
  // Tokens a round over its time, in units of plain decoding; the best number of levels for that many nodes.
  priced(s, nodes) {
    let found = { speed: 0 };
    for (let depth = nodes ? 1 : 0; depth <= Math.min(DEPTH, nodes); depth++) {
      const tree = formulas.best(s.rates, nodes, depth);
      const time =
        formulas.pass(s.ks, s.times, 1 + nodes, s.stretch) + s.draft * formulas.levels(tree) + s.overhead;
      const speed = formulas.expected(tree) / time;
      if (speed > found.speed + 1e-12) found = { speed, tree, time };
    }
    return found;
  },
  fastest(s) {
    const all = Array.from({ length: MOST + 1 }, (_, nodes) => formulas.priced(s, nodes).speed);
    const nodes = all.reduce((best, speed, n) => (speed > all[best] + 1e-12 ? n : best), 0);
    return { nodes, all };
  },
};

// Drawing -----------------------------------------------------------------------------------------

function drawTree(svg, width, tree) {
  const levels = Math.max(1, formulas.levels(tree));
  const row = Math.min(56, 250 / levels);
  svg.setAttribute("height", 300);
  const children = (node) => tree.map((_, i) => i).filter((i) => tree[i].parent === node);
  const leaves = (node) =>
    Math.max(
      1,
      children(node).reduce((sum, child) => sum + leaves(child), 0),
    );
  const places = new Map();
  const put = (node, left, right, level) => {
    places.set(node, [(left + right) / 2, 26 + level * row]);
    let at = left;
    const share = (right - left) / leaves(node);
    for (const child of children(node)) {
      const own = leaves(child) * share;
      put(child, at, at + own, level + 1);
      at += own;
    }
  };
  put(-1, 8, width - 8, 0);
  const radius = (worth) => 2.5 + 7 * Math.sqrt(worth);
  const edges = tree.map((node, i) => {
    const [from, to] = [places.get(node.parent), places.get(i)];
    return make("line", {
      x1: from[0],
      y1: from[1],
      x2: to[0],
      y2: to[1],
      stroke: "var(--sdl-control-line)",
      "stroke-width": 1 + 3 * node.worth,
    });
  });
  const dots = tree.map((node, i) => {
    const newest = i === tree.length - 1;
    const dot = make(
      "circle",
      {
        cx: places.get(i)[0],
        cy: places.get(i)[1],
        r: radius(node.worth),
        fill: newest ? LOOK.draft : LOOK.accepted,
        stroke: "var(--sdl-surface)",
        "stroke-width": 1.5,
      },
      make(
        "title",
        {},
        `sibling ${node.rank + 1} on level ${node.level + 1}, worth ${node.worth.toFixed(3)}`,
      ),
    );
    return dot;
  });
  const [x, y] = places.get(-1);
  svg.replaceChildren(
    ...edges,
    make("circle", {
      cx: x,
      cy: y,
      r: 9.5,
      fill: LOOK.target,
      stroke: "var(--sdl-surface)",
      "stroke-width": 1.5,
    }),
    ...dots,
    make("text", { x: x + 14, y: y + 4, class: "sdl-halo" }, "last token"),
  );
}

function drawCurves(svg, width, s, { peak, tokens, chain }) {
  const box = { left: 36, right: width - 74, top: 22, bottom: 236 };
  const most = Math.max(...tokens, ...peak.all) * 1.08;
  const x = (n) => box.left + (n / MOST) * (box.right - box.left);
  const y = (v) => box.bottom - (v / most) * (box.bottom - box.top);
  svg.setAttribute("height", 282);
  const nodes = [];
  for (let v = 0; v <= most; v++)
    nodes.push(
      make("line", { class: "sdl-grid", x1: box.left, x2: box.right, y1: y(v), y2: y(v) }),
      make("text", { class: "sdl-faint", x: box.left - 6, y: y(v) + 4, "text-anchor": "end" }, String(v)),
    );
  for (const n of [0, 16, 32, 48, 64])
    nodes.push(
      make("text", { class: "sdl-faint", x: x(n), y: box.bottom + 18, "text-anchor": "middle" }, String(n)),
    );
  nodes.push(
    make(
      "text",
      { x: (box.left + box.right) / 2, y: box.bottom + 38, "text-anchor": "middle" },
      "drafted nodes",
    ),
    make("line", {
      x1: x(s.nodes),
      x2: x(s.nodes),
      y1: box.top,
      y2: box.bottom,
      stroke: "var(--sdl-ink)",
      "stroke-dasharray": "2 3",
    }),
  );
  const ends = [
    [tokens, LOOK.accepted, "none", "tokens, tree"],
    [chain, LOOK.draft, "6 4", "tokens, chain"],
    [peak.all, LOOK.target, "2 3", "speed, tree"],
  ].map(([values, colour, dash, words]) => ({ values, colour, dash, words, at: y(values[MOST]) + 4 }));
  ends.sort((a, b) => a.at - b.at);
  ends.forEach((end, i) => {
    if (i) end.at = Math.max(end.at, ends[i - 1].at + 26);
  });
  for (const { values, colour, dash, words, at } of ends) {
    const [first, second] = words.split(", ");
    nodes.push(
      make("path", {
        d: pathOf(values.map((v, n) => [x(n), y(v)])),
        fill: "none",
        stroke: colour,
        "stroke-width": 2.5,
        "stroke-dasharray": dash,
      }),
      make("text", { class: "sdl-small", x: box.right + 6, y: at }, `${first},`),
      make("text", { class: "sdl-small", x: box.right + 6, y: at + 12 }, second),
    );
  }
  nodes.push(
    make("circle", {
      cx: x(s.nodes),
      cy: y(tokens[s.nodes]),
      r: 6,
      fill: LOOK.accepted,
      stroke: "var(--sdl-ink)",
    }),
    make("circle", {
      cx: x(s.nodes),
      cy: y(peak.all[s.nodes]),
      r: 6,
      fill: LOOK.target,
      stroke: "var(--sdl-ink)",
    }),
  );
  svg.replaceChildren(...nodes);
  return (px) => Math.min(MOST, Math.max(0, Math.round(((px - box.left) / (box.right - box.left)) * MOST)));
}

// The task: the budget that is fastest on a clock twice as steep -----------------------------------

function taskState(s, peak) {
  if (s.stretch < 1.95) return "Set the growth of T(k) to 2× first.";
  const loss = 1 - peak.all[s.nodes] / peak.all[peak.nodes];
  if (loss > 0.002)
    return `Not yet: with ${s.nodes} nodes you are ${(100 * loss).toFixed(1)} % below the fastest. Follow the dotted curve to its top.`;
  return peak.nodes === 0
    ? "Solved: on this clock no draft pays at all."
    : `Solved: ${s.nodes} nodes, ${peak.all[s.nodes].toFixed(2)}× plain decoding. A larger tree still brings more tokens a pass, and each of them costs more than it brings.`;
}

const NAMES = ["rates", "ks", "times", "draft", "overhead", "nodes", "stretch"];

function render({ model, el }) {
  const id = newId("budget");
  const state = () => Object.fromEntries(NAMES.map((name) => [name, model.get(name)]));
  const change = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };
  const parts = {
    nodes: slider(`${id}-nodes`, { min: 0, max: MOST, step: 1 }, (v) => change("nodes", v)),
    draft: slider(`${id}-draft`, { min: 0, max: 1, step: 0.01 }, (v) => change("draft", v)),
    stretch: slider(`${id}-stretch`, { min: 0, max: 4, step: 0.1 }, (v) => change("stretch", v)),
  };
  const tree = chart(
    "The best tree of this budget",
    "The larger a node, the more often the text goes through it; the newest in orange.",
    "sdl-half",
    {},
  );
  const curves = chart(
    "Tokens a pass, and speed over plain decoding",
    "Press or drag to set the budget.",
    "sdl-half",
    {},
  );
  const { task, spoken, announce, silence } = narration(
    "charge twice the measured growth of T(k), then find the budget that is fastest on that clock.",
    "Solved: 64 nodes, 1.11× plain decoding. A larger tree still brings more tokens a pass, and each of them costs more than it brings.",
    150,
  );
  const numbers = make("dl", { class: "sdl-readouts" });
  const root = make(
    "section",
    { class: "sdl", "aria-label": "Tree-budget explorer" },
    task,
    make(
      "div",
      { class: "sdl-controls" },
      field(
        `${id}-nodes`,
        ["Budget ", make("small", {}, "drafted nodes")],
        parts.nodes.output,
        parts.nodes.input,
      ),
      field(
        `${id}-draft`,
        ["Cost of a drafted level ", make("small", {}, "in T(1)")],
        parts.draft.output,
        parts.draft.input,
      ),
      field(
        `${id}-stretch`,
        ["Growth of T(k) ", make("small", {}, "1×: as measured")],
        parts.stretch.output,
        parts.stretch.input,
      ),
    ),
    make("div", { class: "sdl-frame" }, make("div", { class: "sdl-charts" }, tree.node, curves.node)),
    numbers,
    spoken,
  );
  let place = () => null;
  let curve = {}; // the same at every budget
  const curveOf = ({ nodes, ...rest }) => {
    const key = JSON.stringify(rest);
    if (curve.key === key) return curve;
    const tokens = Array.from({ length: MOST + 1 }, (_, n) =>
      formulas.expected(formulas.best(rest.rates, n)),
    );
    const chain = tokens.map((_, n) => formulas.chain(rest.rates[0], n));
    curve = { key, tokens, chain, peak: formulas.fastest(rest) };
    return curve;
  };
  const draw = () => {
    const s = state();
    const { peak } = curveOf(s);
    const here = formulas.priced(s, s.nodes);
    const shown = formulas.best(s.rates, s.nodes);
    for (const [name, { input, output }] of Object.entries(parts)) {
      input.value = s[name];
      output.textContent =
        name === "nodes" ? String(s.nodes) : `${s[name].toFixed(2)}${name === "stretch" ? "×" : ""}`;
    }
    drawTree(tree.svg, widthOf(tree.svg) || 320, shown);
    tree.svg.setAttribute("aria-label", `Tree of ${shown.length} nodes on ${formulas.levels(shown)} levels.`);
    place = drawCurves(curves.svg, widthOf(curves.svg) || 320, s, curve);
    define(numbers, [
      ["tokens a pass", formulas.expected(shown).toFixed(2)],
      ["a chain of that many", formulas.chain(s.rates[0], s.nodes).toFixed(2)],
      ["the pass, in T(1)", formulas.pass(s.ks, s.times, 1 + s.nodes, s.stretch).toFixed(2)],
      ["speed, best depth", `${here.speed.toFixed(2)}×`],
      ["levels at that speed", formulas.levels(here.tree)],
    ]);
    announce(() => [
      `${s.nodes} nodes: ${formulas.expected(shown).toFixed(2)} tokens a pass, ${here.speed.toFixed(2)} times as fast as plain decoding.`,
      taskState(s, peak),
    ]);
  };
  follow(curves.svg, (px) => change("nodes", place(px)));
  return live({ model, el }, root, NAMES, draw, silence);
}

export default { render, formulas };

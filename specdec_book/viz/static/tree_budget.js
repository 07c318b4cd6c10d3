// The tree-budget explorer. The best tree is expanded greedily, which is optimal if rates do not increase with the
// rank; a test compares it with the dynamic program of specdec_lite/drafters/trees.py.

const MAX_NODES = 64;
const DEPTH = 16;
const COLORS = { tree: "accepted", chain: "other", speedup: "one" };

const formulas = {
  // Nodes { parent, level, rank, worth } of the best tree, the likeliest first: its first n nodes are the best tree of
  // n nodes. worth: probability that the node's path is accepted.
  best(rates, nodes, depth = DEPTH) {
    const tree = [];
    const waiting = [];
    const offer = (parent, level, rank, above) => {
      if (level < depth && rank < rates.length && above * rates[rank] > 0)
        waiting.push({ parent, level, rank, worth: above * rates[rank], above });
    };
    offer(-1, 0, 0, 1);
    while (tree.length < nodes && waiting.length) {
      const next = waiting.reduce((best, node, i) => (node.worth > waiting[best].worth ? i : best), 0);
      const [node] = waiting.splice(next, 1);
      tree.push(node);
      offer(node.parent, node.level, node.rank + 1, node.above);
      offer(tree.length - 1, node.level + 1, 0, node.worth);
    }
    return tree;
  },
  expected: (tree) => 1 + sum(tree, ({ worth }) => worth),
  levels: (tree) => tree.reduce((most, { level }) => Math.max(most, level + 1), 0),
  // T(k)/T(1) between the measured k.
  pass: (ks, times, k, stretch = 1) => 1 + stretch * (interpolate(times, ...locate(k, ks)) - 1),
  // The speedup of a number of nodes with the best number of levels: expected tokens of a round over its time in T(1).
  speedup(s, nodes) {
    let best = { speed: 0 };
    for (let depth = nodes ? 1 : 0; depth <= Math.min(DEPTH, nodes); depth++) {
      const tree = formulas.best(s.rates, nodes, depth);
      const time =
        formulas.pass(s.ks, s.times, 1 + nodes, s.stretch) + s.draft * formulas.levels(tree) + s.overhead;
      const speed = formulas.expected(tree) / time;
      if (speed > best.speed + 1e-12) best = { speed, tree };
    }
    return best;
  },
  fastest(s) {
    const all = Array.from({ length: MAX_NODES + 1 }, (_, nodes) => formulas.speedup(s, nodes).speed);
    const nodes = all.reduce((best, speed, n) => (speed > all[best] + 1e-12 ? n : best), 0);
    return { nodes, all };
  },
};

// Drawing -----------------------------------------------------------------------------------------

const HEIGHT = 180; // px; a phone shows both drawings at once

// From left to right, a level per column: the likeliest path is the first row.
function drawTree(svg, width, s) {
  const tree = formulas.best(s.rates, s.nodes);
  const { places, rows, columns: levels } = placement(tree.map(({ parent }) => parent));
  const step = Math.min(56, (width - 66) / Math.max(1, levels - 1));
  const row = Math.min(36, (HEIGHT - 40) / rows);
  const at = (node) => [52 + places.get(node).column * step, 28 + places.get(node).row * row];
  const radius = (worth) => Math.min(1, row / 18, step / 18) * (2.5 + 7 * Math.sqrt(worth));
  const edges = tree.map((node, i) => {
    const look = { "stroke-width": 1 + 3 * node.worth };
    return stroke(...at(node.parent), ...at(i), "control-line", look);
  });
  const dots = tree.flatMap((node, i) => {
    const newest = i === tree.length - 1;
    const frame = { stroke: ink(newest ? "ink" : "surface"), "stroke-width": newest ? 2.5 : 1.5 };
    const [x, y] = at(i);
    const dot = disc(x, y, radius(node.worth), "draft", frame);
    const where = `sibling ${node.rank + 1} on level ${node.level + 1}`;
    dot.append(make("title", {}, `${where}, accepted with probability ${node.worth.toFixed(3)}`));
    if (step < 22 || row < 28) return dot;
    const number = node.worth.toFixed(2).replace(/^0/, "");
    const look = { class: "sdl-small sdl-halo", "text-anchor": "middle" };
    return [dot, svgText(x, y - radius(node.worth) - 4, number, look)];
  });
  const [x, y] = at(-1);
  svg.append(
    ...edges,
    disc(x, y, radius(1), "target", { stroke: ink("surface"), "stroke-width": 1.5 }),
    ...dots,
    svgText(2, y - 2, "last"),
    svgText(2, y + 12, "token"),
  );
  svg.setAttribute("aria-label", `Tree of ${tree.length} nodes on ${formulas.levels(tree)} levels.`);
}

function drawCurves(svg, width, s, { peak, tokens, chain }) {
  const box = { left: 36, right: width - 74, top: 14, bottom: HEIGHT - 46 };
  const top = Math.max(...tokens, ...peak.all) * 1.08;
  const { x, y, at } = scales(box, [0, MAX_NODES], [0, top]);
  const levels = Array.from({ length: Math.floor(top) + 1 }, (_, v) => v);
  rulings(svg, box, y, levels);
  axisBelow(svg, box, x, [0, 16, 32, 48, 64], "drafted nodes");
  svg.append(stroke(x(s.nodes), box.top, x(s.nodes), box.bottom, "ink", { "stroke-dasharray": "2 3" }));
  const ends = [
    [tokens, COLORS.tree, "none", "tokens, tree"],
    [chain, COLORS.chain, "6 4", "tokens, chain"],
    [peak.all, COLORS.speedup, "2 3", "speedup, tree"],
  ].map(([values, color, dash, words]) => ({ values, color, dash, words, at: y(values[MAX_NODES]) + 4 }));
  ends.sort((a, b) => a.at - b.at);
  ends.forEach((end, i) => {
    if (i) end.at = Math.max(end.at, ends[i - 1].at + 26);
  });
  for (const { values, color, dash, words, at: end } of ends) {
    const [first, second] = words.split(", ");
    const points = values.map((v, n) => [x(n), y(v)]);
    svg.append(
      curve(points, color, { "stroke-dasharray": dash }),
      svgText(box.right + 6, end, `${first},`, { class: "sdl-small" }),
      svgText(box.right + 6, end + 12, second, { class: "sdl-small" }),
    );
  }
  svg.append(
    disc(x(s.nodes), y(tokens[s.nodes]), 6, COLORS.tree, { stroke: ink("ink") }),
    disc(x(s.nodes), y(peak.all[s.nodes]), 6, COLORS.speedup, { stroke: ink("surface") }),
  );
  return (px) => ({ nodes: Math.round(at(px, 0)[0]) });
}

// The task: the fastest budget when T(k) grows twice as fast as measured ---------------------------

const solved = (nodes, speed) =>
  `Solved: ${nodes} nodes give a speedup of ${times(speed)}. A larger tree emits more tokens per pass, but takes more time than they save.`;

function taskState(s, peak) {
  if (s.stretch < 1.95) return "Set the growth of T(k) to 2× first.";
  const loss = 1 - peak.all[s.nodes] / peak.all[peak.nodes];
  if (loss > 0.002)
    return `Not yet: ${s.nodes} nodes are ${(100 * loss).toFixed(1)} % slower than the best budget. Find the highest point of the dotted curve.`;
  return peak.nodes === 0 ? "Solved: here no draft pays." : solved(s.nodes, peak.all[s.nodes]);
}

const SLIDERS = [
  { name: "nodes", text: "Budget", note: "drafted nodes", max: MAX_NODES },
  { name: "stretch", text: "Growth of T(k)", note: "1×: as measured", max: 4, step: 0.1, show: times },
  { name: "draft", text: "Cost of drafting a level", note: "in T(1)", max: 1, step: 0.01 },
];
const NAMES = ["rates", "ks", "times", "draft", "overhead", "nodes", "stretch"];

function render(context) {
  let memory = {}; // does not depend on the budget
  const curveOf = ({ nodes, ...rest }) => {
    const key = JSON.stringify(rest);
    if (memory.key === key) return memory;
    const tokensOf = (_, n) => formulas.expected(formulas.best(rest.rates, n));
    const tokens = Array.from({ length: MAX_NODES + 1 }, tokensOf);
    const chain = tokens.map((_, n) => expectedTokens(rest.rates[0], n));
    memory = { key, tokens, chain, peak: formulas.fastest(rest) };
    return memory;
  };
  const draw = (s) => {
    const { peak } = curveOf(s);
    const here = formulas.speedup(s, s.nodes);
    const tokens = memory.tokens[s.nodes].toFixed(2);
    const numbers = [
      ["tokens per pass, tree", tokens],
      ["pass time, in T(1)", formulas.pass(s.ks, s.times, 1 + s.nodes, s.stretch).toFixed(2)],
      ["speedup, best levels", times(here.speed)],
      ["tokens per pass, chain", memory.chain[s.nodes].toFixed(2)],
      ["levels of the fastest tree", formulas.levels(here.tree)],
    ];
    const words = `A tree of ${s.nodes} nodes emits ${tokens} tokens per pass on average, which is ${here.speed.toFixed(2)} times as fast as plain decoding.`;
    return [numbers, () => [words, taskState(s, peak)], memory];
  };
  const spec = {
    name: "budget",
    label: "Tree-budget explorer",
    task: "set the growth of T(k) to twice the measured growth, then find the fastest budget.",
    longestState: solved(64, 1.11),
    values: NAMES,
    controls: SLIDERS,
    charts: {
      tree: {
        title: "The best tree of this budget",
        caption: "Number and size: probability of acceptance. Framed: added last.",
        size: "sdl-half",
        height: HEIGHT,
        draw: drawTree,
      },
      curves: {
        title: "Tokens per pass, and the speedup",
        caption: "Press or drag to set the budget.",
        size: "sdl-half",
        height: HEIGHT,
        drag: true,
        draw: drawCurves,
      },
    },
  };
  const layout = ({ task, spoken, tiles: [few, rest], controls, charts }) => [
    task,
    controlRow(controls.nodes, controls.stretch),
    chartRow(charts.curves.node, charts.tree.node),
    few,
    foldRow(rest, foldOf("Settings", controls.draft)),
    spoken,
  ];
  return panel(context, spec, layout, draw);
}

export default { render, formulas };

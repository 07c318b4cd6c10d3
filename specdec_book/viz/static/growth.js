// Two trees of one size: one grown by the draft's confidence, one with a fixed shape. A tree is a list of nodes
// { word, parent, worth, right }; its first n nodes are the tree of budget n.

const DEFAULTS = { contexts: [], budget: 8, context: 0 };
const [ROW, PILL, ROOT, GAP] = [26, 22, 12, 10]; // px: row, height of a node, root, space before a node

const formulas = {
  expected: (nodes, budget) => 1 + nodes.slice(0, budget).reduce((sum, { worth }) => sum + worth, 0),
  // The target's text runs through the right nodes, which form one path from the root.
  accepted: (nodes, budget) => nodes.slice(0, budget).filter(({ right }) => right).length,
  depth: (nodes, node) => (node < 0 ? 0 : 1 + formulas.depth(nodes, nodes[node].parent)),
  // Columns and rows: a first child is beside its parent, every later child below all nodes so far.
  places(nodes) {
    const places = [];
    let row = 0;
    const put = (parent) =>
      nodes
        .flatMap((node, i) => (node.parent === parent ? [i] : []))
        .forEach((child, i) => {
          row += i > 0;
          places[child] = { column: formulas.depth(nodes, child), row };
          put(child);
        });
    put(-1);
    return places;
  },
  // The smallest budget with the largest number of accepted tokens.
  enough: (nodes) => {
    const most = formulas.accepted(nodes, nodes.length);
    return nodes.findIndex((_, i) => formulas.accepted(nodes, i + 1) === most) + 1;
  },
};

// The root is a dot; a node beyond the budget is an empty outline.
function drawTree(svg, nodes, budget) {
  const places = formulas.places(nodes);
  const levels = Math.max(2, ...places.map(({ column }) => column));
  const rows = 1 + Math.max(0, ...places.map(({ row }) => row));
  const step = ((widthOf(svg) || 320) - ROOT) / levels;
  const pill = Math.min(96, step - GAP);
  const at = (node) =>
    node < 0
      ? { x: 0, y: 2, end: ROOT }
      : {
          x: ROOT + GAP + (places[node].column - 1) * step,
          y: places[node].row * ROW + 2,
          end: ROOT + GAP + (places[node].column - 1) * step + pill,
        };
  svg.setAttribute("height", rows * ROW + 6);
  svg.replaceChildren();
  nodes.forEach(({ parent, right }, node) => {
    const [from, to] = [at(parent), at(node)];
    const kind = node >= budget ? "ghost" : right ? "seen" : "quiet";
    svg.append(
      make("path", {
        class: `sdl-edge sdl-edge-${kind}`,
        d: `M${from.end} ${from.y + PILL / 2}H${to.x - GAP / 2}V${to.y + PILL / 2}H${to.x}`,
      }),
    );
  });
  svg.append(make("circle", { cx: ROOT / 2, cy: 2 + PILL / 2, r: ROOT / 2, fill: "var(--sdl-target)" }));
  nodes.forEach(({ word, worth, right }, node) => {
    const { x, y, end } = at(node);
    const box = (attributes) => make("rect", { x, y, width: pill, height: PILL, rx: 5, ...attributes });
    if (node >= budget) {
      svg.append(box({ fill: "none", stroke: "var(--sdl-line)", "stroke-dasharray": "3 3" }));
      return;
    }
    const hasNumber = pill > 72;
    const label = make("text", { x: x + 5, y: y + 16, class: right ? "" : "sdl-faint" });
    svg.append(
      box({
        fill: right
          ? "color-mix(in srgb, var(--sdl-accepted) 16%, var(--sdl-surface))"
          : "var(--sdl-surface)",
        stroke: right ? "var(--sdl-accepted)" : "var(--sdl-control-line)",
        "stroke-width": right ? 2.5 : 1,
      }),
      label,
    );
    fit(label, right ? "✓" : "", word, pill - 8 - (hasNumber ? 24 : 0));
    if (hasNumber)
      svg.append(
        make(
          "text",
          { x: end - 4, y: y + 16, "text-anchor": "end", class: "sdl-small sdl-faint" },
          worth.toFixed(2).replace(/^0/, ""),
        ),
      );
  });
}

// Writes a mark and as many letters of a word as fit.
function fit(text, mark, word, room) {
  text.textContent = mark + word;
  for (let letters = word.length - 1; letters > 0 && text.getComputedTextLength?.() > room; letters--)
    text.textContent = `${mark}${word.slice(0, letters)}…`;
}

function taskState(s) {
  const { grown, static: fixed } = s.contexts[s.context];
  const [ours, theirs] = [grown, fixed].map((nodes) => formulas.accepted(nodes, s.budget));
  const words = (count) => `${count} accepted token${count === 1 ? "" : "s"}`;
  if (ours > theirs)
    return `Found: with ${s.budget} nodes the grown tree has ${words(ours)}, the fixed tree ${theirs}.`;
  if (ours < theirs)
    return `Here the fixed tree wins, ${theirs} to ${ours}: the draft was confident of a wrong word.`;
  return `With ${s.budget} nodes each tree has ${words(ours)}.`;
}

function sentence(s) {
  const nodes = s.contexts[s.context].grown;
  const grown = nodes.slice(0, s.budget);
  const last = grown.at(-1);
  const depth = Math.max(...grown.map((_, i) => formulas.depth(nodes, i)));
  return `The newest of ${plural(grown.length, "node")} is ${quoted(last.word)} with a path probability of ${last.worth.toFixed(3)}. The target ${last.right ? "accepts" : "does not accept"} it. The grown tree has ${plural(depth, "level")}.`;
}

function numbers(s) {
  const { grown, static: fixed } = s.contexts[s.context];
  const pairs = ([name, nodes]) => [
    [`${name}: expected tokens, by q`, formulas.expected(nodes, s.budget).toFixed(2)],
    [`${name}: emitted tokens`, formulas.accepted(nodes, s.budget) + 1],
  ];
  return [...pairs(["grown", grown]), ...pairs(["fixed", fixed])];
}

function rowsOf(s) {
  const { grown, static: fixed } = s.contexts[s.context];
  return Array.from({ length: s.budget }, (_, i) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, String(i + 1)),
      ...[grown[i], fixed[i]].flatMap((node) =>
        node
          ? [
              make("td", {}, quoted(node.word)),
              make("td", {}, node.worth.toFixed(3)),
              make("td", {}, node.right ? "yes" : "no"),
            ]
          : [make("td", {}, ""), make("td", {}, ""), make("td", {}, "")],
      ),
    ),
  );
}

function render({ model, el }) {
  const id = newId("growth");
  const state = () => stateOf(model, DEFAULTS);
  const lead = ({ grown, static: fixed }) =>
    formulas.accepted(grown, state().budget) - formulas.accepted(fixed, state().budget);
  const leads = state().contexts.map(lead);
  openAt(model, "context", leads.indexOf(Math.max(...leads)));
  const set = (name) => (value) => assign(model, { [name]: value });
  const start = state();
  const size = Math.max(
    ...start.contexts.map(({ grown, static: fixed }) => Math.max(grown.length, fixed.length)),
  );
  const { announce, silence, task, spoken } = narration(
    "find a budget at which the target accepts more tokens of the grown tree than of the fixed tree. Then try other texts.",
    "Here the fixed tree wins, 3 to 2: the draft was confident of a wrong word.",
    100,
  );
  const budget = slider(`${id}-budget`, { min: 1, max: size, step: 1 }, set("budget"));
  const labels = start.contexts.map(({ text }) => ({ label: `…${text.replaceAll("\n", "⏎").slice(-46)}` }));
  const text = indexMenu(`${id}-text`, labels, set("context"));
  const left = make("svg", { role: "img" });
  const right = make("svg", { role: "img" });
  const readouts = make("dl", { class: "sdl-readouts" });
  const body = make("tbody");
  const heads = ["node", "grown", "path probability", "accepted", "fixed", "path probability", "accepted"];
  const root = make(
    "section",
    { class: "sdl sdl-low sdl-growth", "aria-label": "A grown tree beside a fixed tree" },
    task,
    make(
      "div",
      { class: "sdl-controls" },
      field(`${id}-text`, "the text so far", text),
      field(`${id}-budget`, "budget, in nodes", budget.output, budget.input),
    ),
    make(
      "div",
      { class: "sdl-frame" },
      make(
        "div",
        { class: "sdl-charts" },
        figure(
          "Grown by the draft's confidence",
          "sdl-half",
          left,
          make("figcaption", {}, "Dashed: nodes beyond the budget. Green: tokens that the target accepts."),
        ),
        figure(
          "Fixed shape",
          "sdl-half",
          right,
          make("figcaption", {}, "This tree has the same branches after every text."),
        ),
      ),
    ),
    make("div", {}, spoken),
    phoneFold("Tokens of both trees", {}, () => {}, readouts),
    make(
      "details",
      {},
      make("summary", {}, "Both trees as numbers"),
      scroll("Nodes of both trees", make("table", { class: "sdl-numbers" }, columns(heads), body)),
    ),
  );
  const paint = () => {
    const s = state();
    const { grown, static: fixed } = s.contexts[s.context];
    budget.input.value = s.budget;
    budget.output.textContent = s.budget;
    text.value = s.context;
    for (const [svg, nodes, name] of [
      [left, grown, "Grown"],
      [right, fixed, "Fixed"],
    ]) {
      drawTree(svg, nodes, s.budget);
      svg.setAttribute(
        "aria-label",
        `${name} tree of ${Math.min(s.budget, nodes.length)} nodes. The table below lists every node.`,
      );
    }
    define(readouts, numbers(s));
    body.replaceChildren(...rowsOf(s));
    announce(() => [sentence(s), taskState(s)]);
  };
  return live({ model, el }, root, ["budget", "context"], paint, silence);
}

export default { render, formulas };

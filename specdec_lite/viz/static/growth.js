// Two trees of one size: one grown in the order of its nodes' worth, one of a fixed shape. A tree is a list of
// nodes { word, parent, worth, right }, the first of which are the tree of a smaller budget.

const DEFAULTS = { contexts: [], budget: 8, context: 0 };
const [ROW, PILL, ROOT, GAP] = [30, 24, 12, 10]; // px: from row to row, a node's height, the root, before a node

const formulas = {
  kept: (nodes, budget) => nodes.slice(0, budget),
  expected: (nodes, budget) => 1 + formulas.kept(nodes, budget).reduce((sum, { worth }) => sum + worth, 0),
  // The nodes that the target goes through are one path from the root.
  accepted: (nodes, budget) => formulas.kept(nodes, budget).filter(({ right }) => right).length,
  depth: (nodes, node) => (node < 0 ? 0 : 1 + formulas.depth(nodes, nodes[node].parent)),
  // Rows: a first child beside its parent, every later one below what stands there already.
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
  // The fewest nodes with which a tree gets as many tokens accepted as it ever does.
  enough: (nodes) => {
    const most = formulas.accepted(nodes, nodes.length);
    return nodes.findIndex((_, i) => formulas.accepted(nodes, i + 1) === most) + 1;
  },
};

// The root is a dot; a node that the budget leaves out is an empty outline where it will stand.
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
    const priced = pill > 72;
    const shown = make("text", { x: x + 5, y: y + 16, class: right ? "" : "sdl-faint" });
    svg.append(
      box({
        fill: right ? "color-mix(in srgb, var(--sdl-target) 16%, var(--sdl-surface))" : "var(--sdl-surface)",
        stroke: right ? "var(--sdl-target)" : "var(--sdl-control-line)",
        "stroke-width": right ? 2.5 : 1,
      }),
      shown,
    );
    fit(shown, right ? "✓" : "", word, pill - 8 - (priced ? 24 : 0));
    if (priced)
      svg.append(
        make(
          "text",
          { x: end - 4, y: y + 16, "text-anchor": "end", class: "sdl-small sdl-faint" },
          worth.toFixed(2).replace(/^0/, ""),
        ),
      );
  });
}

// As many letters of a word as there is room for, behind a mark.
function fit(text, mark, word, room) {
  text.textContent = mark + word;
  for (let letters = word.length - 1; letters > 0 && text.getComputedTextLength?.() > room; letters--)
    text.textContent = `${mark}${word.slice(0, letters)}…`;
}

function taskState(s) {
  const { grown, static: fixed } = s.contexts[s.context];
  const [ours, theirs] = [grown, fixed].map((nodes) => formulas.accepted(nodes, s.budget));
  const words = (count) => `${count} drafted token${count === 1 ? "" : "s"}`;
  if (ours > theirs)
    return `Found: with ${s.budget} nodes the grown tree has ${words(ours)} accepted, the fixed one ${theirs}.`;
  if (ours < theirs)
    return `Here the fixed shape wins, ${theirs} to ${ours}: the draft was sure of the wrong word.`;
  return `With ${s.budget} nodes both have ${words(ours)} accepted.`;
}

function sentence(s) {
  const nodes = s.contexts[s.context].grown;
  const kept = formulas.kept(nodes, s.budget);
  const last = kept.at(-1);
  const deepest = Math.max(...kept.map((_, i) => formulas.depth(nodes, i)));
  return (
    `The newest of ${kept.length} nodes is ${quoted(last.word)}, worth ${last.worth.toFixed(3)}: ` +
    `${last.right ? "the target takes it" : "the target does not go there"}. The grown tree is ${deepest} deep.`
  );
}

function numbers(s) {
  const { grown, static: fixed } = s.contexts[s.context];
  const pairs = ([name, nodes]) => [
    [`${name}: expected from q`, formulas.expected(nodes, s.budget).toFixed(2)],
    [`${name}: tokens this round`, formulas.accepted(nodes, s.budget) + 1],
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
  const state = () =>
    Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, model.get(name) ?? value]));
  const set = (name) => (value) => {
    model.set(name, Number(value));
    model.save_changes();
  };
  const start = state();
  const size = Math.max(
    ...start.contexts.map(({ grown, static: fixed }) => Math.max(grown.length, fixed.length)),
  );
  const { announce, silence, task, spoken } = narration(
    "move the budget until the two trees differ in what the target accepts. Then try a text where the fixed shape wins.",
    "Here the fixed shape wins, 3 to 2: the draft was sure of the wrong word.",
    100,
  );
  const budget = slider(`${id}-budget`, { min: 1, max: size, step: 1 }, set("budget"));
  const text = menu(
    `${id}-text`,
    start.contexts.map((context, value) => ({
      value,
      label: `…${context.text.replaceAll("\n", "⏎").slice(-46)}`,
    })),
    set("context"),
  );
  const left = make("svg", { role: "img" });
  const right = make("svg", { role: "img" });
  const readouts = make("dl", { class: "sdl-readouts" });
  const body = make("tbody");
  const heads = ["node", "grown", "worth", "accepted", "fixed", "worth", "accepted"];
  const root = make(
    "section",
    { class: "sdl sdl-growth", "aria-label": "A grown tree beside a fixed one" },
    task,
    make(
      "div",
      { class: "sdl-controls" },
      field(`${id}-text`, "the text so far", text),
      field(`${id}-budget`, "budget: nodes", budget.output, budget.input),
    ),
    make(
      "div",
      { class: "sdl-frame" },
      make(
        "div",
        { class: "sdl-charts" },
        figure(
          "Grown where the draft is sure",
          "sdl-half",
          left,
          make("figcaption", {}, "Dashed: what a larger budget adds. Blue: where the target goes."),
        ),
        figure(
          "A fixed shape",
          "sdl-half",
          right,
          make("figcaption", {}, "The same branches after every text."),
        ),
      ),
    ),
    spoken,
    readouts,
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
        `${name} tree of ${Math.min(s.budget, nodes.length)} nodes; node by node in the table below.`,
      );
    }
    define(readouts, numbers(s));
    body.replaceChildren(...rowsOf(s));
    announce(() => [sentence(s), taskState(s)]);
  };
  const detach = attach({ model, el }, root, { "change:budget": paint, "change:context": paint }, paint);
  paint();
  return () => {
    detach();
    silence();
  };
}

export default { render, formulas };

// The tree-mask explorer. A tree is a list of parents, as in specdec_lite/tree.py; a test compares them.

const MAX_NODES = 16;
const [ROW, PILL] = [39, 33];
const NAMES = ["parents", "accuracies", "budget", "mask_kind", "guesses", "context"];

const formulas = {
  depth: (parents) => parents.map((_, i) => formulas.path(parents, i).length - 1),
  mask: (parents, kind = "tree") =>
    parents.map((_, i) =>
      parents.map((__, j) => (kind === "causal" ? j <= i : formulas.path(parents, i).includes(j))),
    ),
  children: (parents, node) => parents.flatMap((parent, i) => (parent === node ? [i] : [])),
  path: (parents, node) => (node < 0 ? [] : [...formulas.path(parents, parents[node]), node]),
  paths: (parents) => parents.flatMap((_, i) => (parents.includes(i) ? [] : [formulas.path(parents, i)])),
  rank: (parents, node) => formulas.children(parents, parents[node]).indexOf(node),
  // Nodes in depth-first order, in which the tree is read.
  order: (parents, node = -1) =>
    formulas.children(parents, node).flatMap((child) => [child, ...formulas.order(parents, child)]),
  // The heads' accuracies along a node's path; their product is the probability that the node is accepted.
  factors: (parents, node, accuracies) =>
    formulas.path(parents, node).map((above, depth) => accuracies[depth][formulas.rank(parents, above)]),
  probability: (parents, node, accuracies) =>
    formulas.factors(parents, node, accuracies).reduce((product, factor) => product * factor, 1),
  expectedTokens: (parents, accuracies) =>
    parents.reduce((sum, _, node) => sum + formulas.probability(parents, node, accuracies), 1),
  hasRoom: (parents, node, accuracies) =>
    formulas.children(parents, node).length < (accuracies[formulas.path(parents, node).length]?.length ?? 0),
  // A child is at most as likely as its parent and as an earlier sibling, so adding the likeliest node is optimal.
  bestTree(accuracies, budget) {
    let parents = [];
    while (parents.length < budget) {
      const options = [-1, ...parents.keys()].filter((node) => formulas.hasRoom(parents, node, accuracies));
      if (options.length === 0) break;
      const worth = (node) => formulas.probability([...parents, node], parents.length, accuracies);
      parents = [...parents, options.reduce((best, node) => (worth(node) > worth(best) ? node : best))];
    }
    return parents;
  },
  remove(parents, node) {
    const rest = [...parents.keys()].filter((i) => !formulas.path(parents, i).includes(node));
    return rest.map((i) => rest.indexOf(parents[i]));
  },
  relation(parents, node, other) {
    const isAbove = (high, low) => formulas.path(parents, low).includes(high);
    if (node === other) return "itself";
    if (isAbove(other, node)) return parents[node] === other ? "its parent" : "its ancestor";
    if (isAbove(node, other)) return "its descendant";
    if (parents[node] === parents[other]) return "its sibling";
    return formulas.path(parents, node).length === formulas.path(parents, other).length
      ? "its cousin"
      : "a node of another branch";
  },
  leaks(parents) {
    const outside = (i) => [...Array(i).keys()].filter((j) => !formulas.path(parents, i).includes(j));
    return parents.flatMap((_, i) => outside(i).map((j) => [i, j]));
  },
};

const digits = (x) => (x > 0 && x < 5e-4 ? "<.001" : x.toFixed(x < 0.0995 ? 3 : 2).replace(/^0/, ""));
const named = (node) => (node < 0 ? "the root" : `node ${node}`);
const joinNodes = (nodes) =>
  nodes.length < 2 ? nodes.join("") : `${nodes.slice(0, -1).join(", ")} and ${nodes.at(-1)}`;
const wordOf = ({ parents, guesses }, node) =>
  node < 0 ? "" : (guesses[formulas.depth(parents)[node]]?.[formulas.rank(parents, node)] ?? "");

function rowSentence(s, node) {
  if (node < 0)
    return "The root is the last committed token. It attends to the context and to no drafted token.";
  const above = formulas.path(s.parents, node).slice(0, -1);
  const ancestors = above.length ? `node${above.length > 1 ? "s" : ""} ${joinNodes(above)}` : "";
  const factors = formulas.factors(s.parents, node, s.accuracies);
  const product = factors.length > 1 ? `${factors.map(digits).join(" × ")} = ` : "";
  const word = wordOf(s, node) && ` “${wordOf(s, node)}”`;
  return (
    `Node ${node}${word}, position +${above.length + 1}, attends to the context${ancestors ? `, to ${ancestors} above it,` : ""} and to itself. ` +
    `It is accepted with probability ${product}${digits(formulas.probability(s.parents, node, s.accuracies))}.`
  );
}

function leakSentence(s, node) {
  if (s.mask_kind !== "causal") return "";
  const leaks = formulas.leaks(s.parents);
  if (leaks.length === 0) return "Nothing leaks: in a chain, the causal mask equals the tree mask.";
  const [i, j] = leaks.findLast(([row]) => row === node) ?? leaks[0];
  return `The causal mask opens ${plural(leaks.length, "cell")} too many: node ${i} attends to node ${j}, ${formulas.relation(s.parents, i, j)}, which is not on its path.`;
}

function taskState(s, hasSeenBest) {
  const trees = [s.parents, formulas.bestTree(s.accuracies, s.budget)];
  const [score, best] = trees.map((parents) => formulas.expectedTokens(parents, s.accuracies));
  const [count, over] = [s.parents.length, s.parents.length - s.budget];
  const value = `${plural(count, "node")} ${count === 1 ? "gives" : "give"} ${score.toFixed(3)} tokens per pass`;
  if (over > 0) return `Your ${value}, but that is ${over} over the budget: remove ${over}.`;
  if (score >= best - 1e-9)
    return hasSeenBest
      ? `These ${value}: the best tree of ${s.budget}, which you asked to see.`
      : `Solved: your ${value}, and no tree of ${s.budget} gives more.`;
  return over < 0
    ? `Your ${value}. You may add ${-over} more.`
    : `Your ${value}. Another tree of ${s.budget} gives more.`;
}

function fateOf(s, shown, node) {
  if (node === shown) return "shown";
  if (node < 0 || formulas.path(s.parents, shown).includes(node)) return "seen";
  return s.mask_kind === "causal" && node < shown ? "leaked" : "hidden-from";
}

// Draws the tree. If the selected node can have another child, that child is drawn as a ghost; a click adds it.
function drawTree(view, s, selected, shown) {
  const ghost = s.parents.length;
  const hasGhost = ghost < MAX_NODES && formulas.hasRoom(s.parents, selected, s.accuracies);
  const larger = { ...s, parents: hasGhost ? [...s.parents, selected] : s.parents };
  const { places, rows, columns } = placement(larger.parents);
  const width = widthOf(view.canvas) || 320;
  const step = Math.max(52, Math.min(132, width / columns));
  const pill = Math.min(112, step - 12);
  const at = (node) => ({ x: places.get(node).column * step, y: places.get(node).row * ROW + 4 });
  const place = (element, node) => {
    const box = { left: at(node).x, top: at(node).y, width: pill, height: PILL };
    for (const [name, size] of Object.entries(box)) element.style[name] = `${size}px`;
  };
  const onPath = formulas.path(s.parents, shown);
  const links = larger.parents.map((parent, node) =>
    make("path", {
      class: `sdl-edge sdl-edge-${node === ghost ? "ghost" : onPath.includes(node) ? "seen" : "quiet"}`,
      d: `M${at(parent).x + pill} ${at(parent).y + PILL / 2}H${at(node).x - 7}V${at(node).y + PILL / 2}H${at(node).x}`,
    }),
  );
  Object.assign(view.canvas.style, {
    height: `${rows * ROW + 4}px`,
    overflowX: step * columns > width + 12 ? "auto" : "visible",
  });
  view.edges.replaceChildren(
    ...links.filter((_, node) => !onPath.includes(node)),
    ...onPath.map((node) => links[node]),
  );
  for (const [node, element] of view.items) {
    place(element, node);
    element.className = `sdl-node sdl-${fateOf(s, shown, node)}`;
    element.tabIndex = node === selected ? 0 : -1;
    element.setAttribute("aria-selected", String(node === selected));
  }
  view.ghost.hidden = !hasGhost;
  if (!hasGhost) return;
  place(view.ghost, ghost);
  view.ghost.replaceChildren(
    make("span", {}, make("b", {}, "+"), ` ${wordOf(larger, ghost)}`),
    make("small", {}, digits(formulas.probability(larger.parents, ghost, s.accuracies))),
  );
}

const MARKS = {
  yes: ["accent", "ancestor"],
  self: ["accent", "itself"],
  context: ["muted", "context"],
  leak: ["none", "leak: not on the path"],
  no: ["none", "masked"],
};

// A cell of the mask, or of its legend: a square, and what its kind adds.
function cell(kind, x, y, size) {
  const lines = {
    no: { stroke: ink("grid") },
    leak: { stroke: ink("rejected"), "stroke-width": 2, "stroke-dasharray": "3 2" },
  };
  const [cx, cy] = [x + size / 2, y + size / 2];
  const more = {
    self: [disc(cx, cy, size / 5, "surface")],
    leak: [svgText(cx, cy + 5, "!", { "text-anchor": "middle", "font-weight": 700 })],
  };
  const square = block(x + 1, y + 1, size - 2, size - 2, MARKS[kind][0], { rx: 2, ...lines[kind] });
  return [square, ...(more[kind] ?? [])];
}

// Draws the mask, with a frame around the selected row. Returns which row is at a height.
function drawMask(svg, s, shown) {
  const [count, depth, left, top] = [s.parents.length, formulas.depth(s.parents), 50, 20];
  const size = Math.min(24, (Math.max(widthOf(svg), 240) - left - 2) / (count + 1));
  const [rule, allowed] = [formulas.mask(s.parents, s.mask_kind), formulas.mask(s.parents)];
  const style = { "text-anchor": "middle", class: `sdl-small${size < 20 ? " sdl-smaller" : ""}` };
  const words = (text, x, y) => svgText(x, y, text, style);
  svg.setAttribute("height", top + size * count + 6);
  const verbs = { leak: "wrongly attends to", no: "does not attend to" };
  const group = (i, j) => {
    const kind = i === j ? "self" : allowed[i][j] ? "yes" : rule[i][j] ? "leak" : "no";
    const title = `node ${i} ${verbs[kind] ?? "attends to"} node ${j}, ${formulas.relation(s.parents, i, j)}`;
    const square = cell(kind, left + size * (j + 1), top + size * i, size);
    return make("g", { class: `sdl-cell-${kind}` }, make("title", {}, title), ...square);
  };
  const row = (_, i) => {
    const y = top + size * i;
    return [
      make("g", { "font-weight": i === shown ? 700 : 400 }, words(String(i), 12, y + size / 2 + 4)),
      words(`+${depth[i] + 1}`, 34, y + size / 2 + 4),
      ...cell("context", left, y, size),
      ...s.parents.map((__, j) => group(i, j)),
    ];
  };
  const frame = {
    rx: 3,
    stroke: ink("ink"),
    "stroke-width": 2,
    visibility: shown < 0 ? "hidden" : "visible",
  };
  svg.replaceChildren(
    words("ctx", left + size / 2 - 2, 13),
    ...s.parents.map((_, j) => words(String(j), left + size * (j + 1.5), 13)),
    ...s.parents.flatMap(row),
    block(1, top + size * shown - 1, left + size * (count + 1), size + 2, "none", frame),
  );
  const kind = s.mask_kind === "tree" ? "Tree" : "Naive causal";
  svg.setAttribute("aria-label", `${kind} mask of ${count} nodes. The table below lists every row.`);
  return (y) => (y >= top && y < top + size * count ? Math.floor((y - top) / size) : null);
}

const NODE_HEADS = ["node", "word", "parent", "position", "probability", "attends to"];

function drawNumbers({ list, body }, s) {
  const mask = formulas.mask(s.parents, s.mask_kind);
  const paths = formulas.paths(s.parents).map((path) => path.join("→"));
  list.textContent = `parents = [${s.parents.join(", ")}]; paths: ${paths.join(", ") || "none"}.`;
  const rows = s.parents.map((parent, node) => [
    String(node),
    wordOf(s, node),
    String(parent),
    `+${formulas.path(s.parents, node).length}`,
    digits(formulas.probability(s.parents, node, s.accuracies)),
    `ctx ${mask[node].flatMap((sees, j) => (sees ? [j] : [])).join(" ")}`,
  ]);
  const entries = rows.map((row) => [row, () => numbersRow(row)]);
  showRows(body, entries);
}

function readouts({ parents, accuracies, budget, mask_kind: kind }, bestShown) {
  const best = formulas.expectedTokens(formulas.bestTree(accuracies, budget), accuracies);
  return [
    ["nodes used", `${parents.length} of ${budget}`],
    ["tokens per pass", formulas.expectedTokens(parents, accuracies).toFixed(3)],
    [`best with ${budget} nodes`, bestShown ? best.toFixed(3) : "?"],
    ["paths, root to leaf", formulas.paths(parents).length],
    ["open cells", `${formulas.mask(parents, kind).flat().filter(Boolean).length} of ${parents.length ** 2}`],
  ];
}

function accuracyTable({ accuracies, guesses }) {
  const ranks = [...Array(Math.max(...accuracies.map((row) => row.length))).keys()];
  const rows = accuracies.map((row, head) => [
    `head ${head + 1}`,
    ...ranks.map((r) => [r < row.length ? digits(row[r]) : "", make("small", {}, guesses[head]?.[r] ?? "")]),
  ]);
  const heads = [hidden("head"), ...ranks.map((r) => `guess ${r + 1}`)];
  return numbersTable("Accuracy of each head by rank", heads, make("tbody", {}, ...rows.map(numbersRow)));
}

function legend() {
  const size = { width: 18, height: 18, "aria-hidden": "true" };
  const swatch = ([kind, [, words]]) => [make("svg", size, ...cell(kind, 0, 0, 18)), words];
  return legendOf(...Object.entries(MARKS).map(swatch));
}

function treeView(instructions) {
  const edges = make("svg", { "aria-hidden": "true" });
  const tree = make("div", { role: "tree", "aria-label": "Token tree", "aria-describedby": instructions });
  const ghost = make("div", { class: "sdl-node sdl-ghost", "aria-hidden": "true", title: "Add this child" });
  const canvas = make("div", { class: "sdl-canvas" }, edges, tree, ghost);
  return { edges, tree, ghost, canvas, items: new Map() };
}

function rebuildItems(view, s, onFocus, onHover) {
  const depth = formulas.depth(s.parents);
  const itemOf = (node) => {
    const siblings = node < 0 ? [-1] : formulas.children(s.parents, s.parents[node]);
    let words = [make("b", {}, "root")];
    let below = [s.context.split(/\s+/).at(-1), hidden(", the last committed token")];
    if (node >= 0) {
      const odds = digits(formulas.probability(s.parents, node, s.accuracies));
      const where = hidden(`, child of ${named(s.parents[node])}, position +${depth[node] + 1}`);
      words = [hidden("node "), make("b", {}, String(node)), ` ${wordOf(s, node)}`];
      below = [hidden(", accepted with probability "), odds, where];
    }
    const about = {
      role: "treeitem",
      "aria-level": node < 0 ? 1 : depth[node] + 2,
      "aria-setsize": siblings.length,
      "aria-posinset": siblings.indexOf(node) + 1,
    };
    const item = make("div", about, make("span", {}, ...words), make("small", {}, ...below));
    item.addEventListener("focus", () => onFocus(node));
    item.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && onHover(node));
    item.addEventListener("pointerleave", () => onHover(null));
    return item;
  };
  view.items = new Map([-1, ...formulas.order(s.parents)].map((node) => [node, itemOf(node)]));
  view.tree.replaceChildren(...view.items.values());
}

const neighbours = (parents, node, order) => ({
  Home: -1,
  End: order.at(-1),
  ArrowUp: order[Math.max(0, order.indexOf(node) - 1)],
  ArrowDown: order[order.indexOf(node) + 1] ?? node,
  ArrowLeft: parents[node] ?? -1,
  ArrowRight: formulas.children(parents, node)[0] ?? node,
});

function toolbar(id, actions) {
  const masks = {
    tree: button("Tree mask", () => actions.flip("tree")),
    causal: button("Naive causal mask", () => actions.flip("causal")),
  };
  const { input, output } = slider(id, { step: 1 }, actions.select);
  const { grow, prune, undo, reset, best } = actions;
  const edits = { "Add child": grow, Remove: prune, Undo: undo, Reset: reset, "Show the best tree": best };
  return {
    masks,
    input,
    output,
    edit: make("div", { class: "sdl-row" }, ...Object.entries(edits).map((edit) => button(...edit))),
    flip: make("div", { class: "sdl-row", role: "group", "aria-label": "Mask" }, ...Object.values(masks)),
    slider: field(id, "Selected row", output, input),
  };
}

function layout(s, id, view, parts, tools, { task, spoken, tiles: [few, rest] }) {
  const keys = "Number: probability of acceptance. Keys: arrows, Enter adds, Delete removes.";
  const note = (words, more = {}) => make("p", { class: "sdl-note", ...more }, words);
  const rows = note("Row: node and position. Column: node it attends to.");
  const tree = figure("The tree", "", tools.edit, note(keys, { id: `${id}-keys` }), view.canvas);
  const mask = figure("The mask", "", tools.flip, rows, parts.svg, legend());
  const nodes = numbersTable("Nodes", NODE_HEADS, parts.body);
  const half = make("div", { class: "sdl-chart sdl-narrow" }, mask);
  return [
    task,
    chartRow(phoneFold("Change the tree", "sdl-wide", tree), half),
    tools.slider,
    make("div", {}, spoken),
    few,
    foldRow(rest, foldOf("Accuracies and nodes", accuracyTable(s), parts.list, nodes)),
  ];
}

// The reader's actions. own: state of the view; repaint: called after actions that do not change the tree.
function actionsOn(model, own, state, repaint) {
  const start = state().parents;
  const say = (note, changes = {}) => {
    Object.assign(own, { note }, changes);
    repaint();
  };
  const commit = (parents, note, changes = {}) => {
    Object.assign(own, { note, past: [...own.past, state().parents], hovered: null }, changes);
    assign(model, { parents });
  };
  return {
    select: (node) => say("", { selected: node, hovered: null }),
    hover: (node) => node !== own.hovered && say(own.note, { hovered: node }),
    grow() {
      const { parents, accuracies } = state();
      if (parents.length >= MAX_NODES)
        return say(`Nothing added: the tree already has ${MAX_NODES} nodes, the maximum.`);
      if (!formulas.hasRoom(parents, own.selected, accuracies))
        return say(`Nothing added: the heads have no further guess under ${named(own.selected)}.`);
      const hovered = parents.length;
      return commit([...parents, own.selected], `Added under ${named(own.selected)}.`, { hovered });
    },
    prune() {
      const { parents } = state();
      if (own.selected < 0) return say("Nothing removed: the root is committed text. Select a drafted node.");
      const rest = formulas.remove(parents, own.selected);
      const below = parents.length - rest.length - 1;
      const gone = `node ${own.selected}${below ? ` and ${plural(below, "node")} below it` : ""}`;
      const selected = parents[own.selected];
      return commit(rest, `Removed ${gone}; later nodes have new numbers.`, { selected });
    },
    undo: () =>
      own.past.length
        ? commit(own.past.at(-1), "Undone.", { past: own.past.slice(0, -1) })
        : say("Nothing to undo."),
    reset: () => commit(start, "The first tree is back."),
    // Shows a tree given by its parents, as far as the heads have guesses for its nodes.
    show(parents) {
      const tree = [];
      for (const node of parents.slice(0, MAX_NODES))
        if ([-1, ...tree.keys()].includes(node) && formulas.hasRoom(tree, node, state().accuracies))
          tree.push(node);
      commit(tree, "This is the tree of the link.");
    },
    best() {
      const { accuracies, budget } = state();
      const note = `This is a best tree of ${budget} nodes, numbered from the likeliest node to the least likely.`;
      commit(formulas.bestTree(accuracies, budget), note, { hasSeenBest: true });
    },
    flip(kind) {
      own.note = "";
      assign(model, { mask_kind: kind });
    },
  };
}

function listen(view, parts, own, state, actions) {
  const [add, remove] = [actions.grow, actions.prune];
  const keys = { Enter: add, "+": add, Delete: remove, Backspace: remove, "-": remove };
  view.tree.addEventListener("keydown", (event) => {
    const next = neighbours(state().parents, own.selected, [...view.items.keys()])[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || !(keys[event.key] || next !== undefined)) return;
    event.preventDefault();
    event.stopPropagation();
    if (keys[event.key]) keys[event.key]();
    else view.items.get(next).focus();
  });
  view.ghost.addEventListener("mousedown", (event) => event.preventDefault());
  view.ghost.addEventListener("click", actions.grow);
  const rowUnder = (event) => own.rowAt(event.clientY - parts.svg.getBoundingClientRect().top);
  parts.svg.addEventListener("pointermove", (event) => actions.hover(rowUnder(event)));
  parts.svg.addEventListener("pointerleave", () => actions.hover(null));
  parts.svg.addEventListener("click", (event) => rowUnder(event) !== null && actions.select(rowUnder(event)));
}

function render(context) {
  const { model, el } = context;
  const id = newId("tree");
  const state = () => valuesOf(model, NAMES);
  const s = state();
  const own = {
    selected: s.parents.findIndex((_, i) => i > 0 && formulas.relation(s.parents, i, i - 1) === "its cousin"),
    hovered: null,
    past: [],
    hasSeenBest: false,
    note: "",
  };
  const view = treeView(`${id}-keys`);
  const parts = { svg: make("svg", { role: "img" }), body: make("tbody"), list: make("p", {}) };
  const actions = actionsOn(model, own, state, () => context.repaint());
  const tools = toolbar(`${id}-row`, actions);
  const rebuild = ({ parents }) => {
    own.built = parents.join();
    own.selected = Math.min(own.selected, parents.length - 1);
    rebuildItems(view, state(), (node) => node !== own.selected && actions.select(node), actions.hover);
  };
  const draw = (now) => {
    const isNew = own.built !== now.parents.join();
    const hadFocus = isNew && view.tree.contains(el.getRootNode().activeElement);
    if (isNew) rebuild(now);
    const shown = Math.min(own.hovered ?? own.selected, now.parents.length - 1);
    drawTree(view, now, own.selected, shown);
    own.rowAt = drawMask(parts.svg, now, shown);
    drawNumbers(parts, now);
    for (const [kind, node] of Object.entries(tools.masks))
      node.setAttribute("aria-pressed", String(kind === now.mask_kind));
    Object.assign(tools.input, { min: -1, max: now.parents.length - 1, value: own.selected });
    tools.input.ariaValueText = tools.output.textContent = named(own.selected);
    if (hadFocus) view.items.get(own.selected).focus();
    const words = [own.note, rowSentence(now, shown), leakSentence(now, shown)].filter(Boolean).join(" ");
    return [readouts(now, own.hasSeenBest), () => [words, taskState(now, own.hasSeenBest)]];
  };
  listen(view, parts, own, state, actions);
  const spec = {
    name: "trees",
    label: "Tree-mask explorer",
    task: `find the tree of ${s.budget} nodes with the most expected tokens per target pass.`,
    longestState: "These 16 nodes give 0.000 tokens per pass: the best tree of 16, which you asked to see.",
    delay: 100,
    values: NAMES,
    shared: {
      key: "tree",
      get: () => state().parents.join("."),
      set: (text) => actions.show(text.split(".").map(Number)),
    },
  };
  const parted = (texts) => layout(s, id, view, parts, tools, texts);
  return panel(context, spec, parted, draw);
}

export default { render, formulas };

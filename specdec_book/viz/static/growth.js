// Two trees of one size: one grown by the drafter's confidence, one with a fixed shape. A tree is a list of nodes
// { word, parent, worth, right }; its first n nodes are the tree of budget n.

const NAMES = ["contexts", "budget", "context"];
const [ROW, PILL, ROOT, GAP] = [26, 22, 12, 10]; // px: row, height of a node, root, space before a node

const formulas = {
  expected: (nodes, budget) => 1 + sum(nodes.slice(0, budget), ({ worth }) => worth),
  // The target's text runs through the right nodes, which form one path from the root.
  accepted: (nodes, budget) => nodes.slice(0, budget).filter(({ right }) => right).length,
  // The smallest budget at which more of the grown tree is accepted than of the fixed one; 0: there is none.
  firstLead: (grown, fixed) =>
    grown.findIndex((_, i) => formulas.accepted(grown, i + 1) > formulas.accepted(fixed, i + 1)) + 1,
  places: (nodes) => nodes.map((_, i) => placement(parentsOf(nodes)).places.get(i)),
  // The text with the largest lead, and of equal ones the longest path; one that solves the task comes last.
  opening(contexts, budget) {
    const merits = contexts.map(({ grown, static: fixed }) => {
      const [ours, theirs] = [grown, fixed].map((nodes) => formulas.accepted(nodes, budget));
      const isSolved = formulas.firstLead(grown, fixed) === budget;
      return (isSolved ? -100 : 0) + ours - theirs + ours / 100;
    });
    return merits.indexOf(Math.max(...merits));
  },
};

const parentsOf = (nodes) => nodes.map(({ parent }) => parent);

// The root is a dot; a node beyond the budget is an empty outline.
function drawTree(svg, width, nodes, budget) {
  const { places, rows, columns } = placement(parentsOf(nodes));
  const levels = Math.max(2, columns - 1);
  const step = (width - ROOT) / levels;
  const pill = Math.min(96, step - GAP);
  const at = (node) => {
    const { column, row } = places.get(node);
    const x = node < 0 ? 0 : ROOT + GAP + (column - 1) * step;
    return { x, y: row * ROW + 2, end: node < 0 ? ROOT : x + pill };
  };
  svg.setAttribute("height", rows * ROW + 6);
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
  svg.append(disc(ROOT / 2, 2 + PILL / 2, ROOT / 2, "target"));
  nodes.forEach(({ word, worth, right }, node) => {
    const { x, y, end } = at(node);
    const box = (fill, more) => svg.append(block(x, y, pill, PILL, fill, { rx: 5, ...more }));
    if (node >= budget) return box("none", { stroke: ink("line"), "stroke-dasharray": "3 3" });
    const hasNumber = pill > 72;
    const label = svgText(x + 5, y + 16, "", { class: right ? "" : "sdl-faint" });
    const green = "color-mix(in srgb, var(--sdl-accepted) 16%, var(--sdl-surface))";
    if (right) box("", { fill: green, stroke: ink("accepted"), "stroke-width": 2.5 });
    else box("surface", { stroke: ink("control-line"), "stroke-width": 1 });
    svg.append(label);
    fit(label, right ? "✓" : "", word, pill - 8 - (hasNumber ? 24 : 0));
    const small = { "text-anchor": "end", class: "sdl-small sdl-faint" };
    if (hasNumber) svg.append(svgText(end - 4, y + 16, worth.toFixed(2).replace(/^0/, ""), small));
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
  if (ours > theirs && s.budget > formulas.firstLead(grown, fixed))
    return `The grown tree is ahead, ${ours} to ${theirs}. Is a smaller budget enough?`;
  if (ours > theirs)
    return `Found: with ${s.budget} nodes the grown tree has ${words(ours)}, the fixed tree ${theirs}.`;
  if (ours < theirs)
    return `Here the fixed tree wins, ${theirs} to ${ours}: the drafter was confident of a wrong word.`;
  return `With ${s.budget} nodes each tree has ${words(ours)}.`;
}

function sentence(s) {
  const grown = s.contexts[s.context].grown.slice(0, s.budget);
  const last = grown.at(-1);
  const depth = placement(parentsOf(grown)).columns - 1;
  return `The newest of ${plural(grown.length, "node")} is ${quoted(last.word)} with a path probability of ${last.worth.toFixed(3)}. The target ${last.right ? "accepts" : "does not accept"} it. The grown tree has ${plural(depth, "level")}.`;
}

function numbers(s) {
  const { grown, static: fixed } = s.contexts[s.context];
  const pairs = Object.entries({ grown, fixed });
  const emitted = (nodes) => formulas.accepted(nodes, s.budget) + 1;
  const expected = (nodes) => formulas.expected(nodes, s.budget).toFixed(2);
  return [
    ...pairs.map(([name, nodes]) => [`${name}: emitted tokens`, emitted(nodes)]),
    ...pairs.map(([name, nodes]) => [`${name}: expected tokens, by q`, expected(nodes)]),
  ];
}

function rowsOf(s) {
  const { grown, static: fixed } = s.contexts[s.context];
  const cells = (node) =>
    node ? [quoted(node.word), node.worth.toFixed(3), node.right ? "yes" : "no"] : ["", "", ""];
  return Array.from({ length: s.budget }, (_, i) =>
    numbersRow([String(i + 1), ...cells(grown[i]), ...cells(fixed[i])]),
  );
}

function render(context) {
  const { model } = context;
  const [contexts, opening] = ["contexts", "budget"].map((name) => model.get(name));
  openAt(model, "context", formulas.opening(contexts, opening));
  const size = Math.max(...contexts.map(({ grown, static: fixed }) => Math.max(grown.length, fixed.length)));
  const ending = (text) => text.slice(-46).replace(/^\S*\s+/, ""); // begins with a whole word
  const options = contexts.map(({ text }) => ({ label: `… ${ending(text).replaceAll("\n", "⏎")}` }));
  const body = make("tbody");
  const heads = ["node", "grown", "path probability", "accepted", "fixed", "path probability", "accepted"];
  const draw = (s) => {
    body.replaceChildren(...rowsOf(s));
    return [numbers(s), () => [sentence(s), taskState(s)]];
  };
  const tree = (key, name, title, caption) => ({
    title,
    caption,
    size: "sdl-half",
    draw(svg, width, s) {
      const nodes = s.contexts[s.context][key];
      drawTree(svg, width, nodes, s.budget);
      const words = `${name} tree of ${Math.min(s.budget, nodes.length)} nodes. The table below lists every node.`;
      svg.setAttribute("aria-label", words);
    },
  });
  const legend = "Dashed: beyond the budget. Green: accepted.";
  const spec = {
    name: "growth",
    label: "A grown tree beside a fixed tree",
    task: "find the smallest budget at which the target accepts more tokens of the grown tree than of the fixed tree. Then try other texts.",
    longestState: "Here the fixed tree wins, 3 to 2: the drafter was confident of a wrong word.",
    delay: 100,
    values: NAMES,
    controls: [
      { name: "context", id: "text", text: "the text so far", options },
      { name: "budget", text: "budget, in nodes", min: 1, max: size },
    ],
    charts: {
      grown: tree("grown", "Grown", "Grown by the drafter's confidence", legend),
      fixed: tree("static", "Fixed", "Fixed shape", "The same branches after every text."),
    },
  };
  const layout = ({ task, spoken, tiles: [few, rest], controls, charts }) => [
    task,
    controlRow(controls.context, controls.budget),
    chartRow(charts.grown.node, charts.fixed.node),
    make("div", {}, spoken),
    few,
    foldRow(rest, foldOf("Both trees as numbers", numbersTable("Nodes of both trees", heads, body))),
  ];
  return panel(context, spec, layout, draw);
}

export default { render, formulas };

// Self-drafts without some sublayers. Every set's acceptance rate was recorded, with two digits; cost and predicted
// speedup use the formulas of specdec_lite/theory.py, and a test compares them. `layers` counts pairs of switches,
// each of `group` neighboring blocks.

const PARTS = ["attention", "mlp"];
const MAX_GAMMA = 16;
const NEAR = 0.005;

const formulas = {
  // If nothing is skipped, the drafter is the target.
  rate: (rates, mask) => (mask ? Number(rates.slice(2 * mask, 2 * mask + 2)) / 100 : 1),
  // The first block's attention is the highest bit, its MLP the next one.
  bit: (layers, block, part) => 1 << (2 * (layers - 1 - block) + (part === "attention" ? 1 : 0)),
  // Number of skipped parts: [attentions, MLPs].
  counts(layers, mask) {
    const skips = [0, 0];
    for (let bit = 0; bit < 2 * layers; bit++) if ((mask >> bit) & 1) skips[1 - (bit % 2)]++;
    return skips;
  },
  cost(costs, layers, [attentions, mlps]) {
    const whole = costs.head + layers * (costs.attention + costs.mlp);
    return 1 - (attentions * costs.attention + mlps * costs.mlp) / whole;
  },
  best: (alpha, c) => largestAt(MAX_GAMMA, (gamma) => expectedTokens(alpha, gamma) / (gamma * c + 1)),
  // For each pair of counts, the set with the highest acceptance rate.
  frontier(rates, costs, layers) {
    const sets = new Map();
    for (let mask = 1; mask < 4 ** layers; mask++) {
      const skips = formulas.counts(layers, mask);
      const alpha = formulas.rate(rates, mask);
      const key = skips.join();
      if (!(sets.get(key)?.alpha >= alpha)) sets.set(key, { mask, alpha, skips });
    }
    return [...sets.values()].map(({ mask, alpha, skips }) => {
      const c = formulas.cost(costs, layers, skips);
      return { mask, alpha, c, speed: formulas.best(alpha, c)[1] };
    });
  },
};

function consequences(s) {
  const skips = formulas.counts(s.layers, s.mask);
  const alpha = formulas.rate(s.rates, s.mask);
  const c = formulas.cost(s.costs, s.layers, skips);
  const [gamma, speed] = formulas.best(alpha, c);
  return { skips, alpha, c, gamma, speed };
}

// How much the predicted speedup changes if one switch is toggled.
function effect(s, r, bit) {
  return consequences({ ...s, mask: s.mask ^ bit }).speed - r.speed;
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2).replace(/^0/, "")}`;

function summary(s, r) {
  if (!s.mask)
    return "No sublayer is skipped: the drafter is the target, so it is always accepted and saves nothing.";
  const verdict =
    r.alpha > r.c
      ? `The predicted speedup is ${times(r.speed)} with ${plural(r.gamma, "draft")} per round.`
      : "The acceptance rate is below the cost, so no draft length gives a speedup.";
  return `${r.skips[0]} attention and ${r.skips[1]} MLP sublayers are skipped. The acceptance rate is ${r.alpha.toFixed(2)} and a draft pass costs ${r.c.toFixed(2)} target passes. ${verdict}`;
}

const countSets = (s) => (4 ** s.layers).toLocaleString("en");

function taskState(s, r, best) {
  if (!s.mask) return "Skip a first sublayer.";
  if (r.speed >= best - NEAR)
    return `Solved: ${times(r.speed)}. The best of all ${countSets(s)} sets has ${times(best)}.`;
  return `${times(r.speed)} so far. The best of all ${countSets(s)} sets has ${times(best)}.`;
}

function drawPlane(svg, width, s, { r, frontier }) {
  const box = { left: 40, right: width - 14, top: 26, bottom: 232 };
  const { x, y } = scales(box, [0, 1], [0, 1]);
  rulings(svg, box, y, [0, 0.5, 1]);
  axisBelow(svg, box, x, [0, 0.5, 1], "cost c of a draft pass");
  svg.append(
    breakEven(x, y),
    svgText(box.right, y(0) - 8, "below the line no speedup: α < c", { "text-anchor": "end" }),
    svgText(0, box.top - 10, "acceptance rate α"),
  );
  const bold = { class: "sdl-halo", "text-anchor": "end", "font-weight": 600 };
  for (const { alpha, c } of frontier)
    svg.append(disc(x(c), y(alpha), 3, "none", { stroke: ink("muted"), "stroke-width": 1.5 }));
  svg.append(yourPoint(x(r.c), y(r.alpha)), svgText(x(r.c) - 12, y(r.alpha) + 4, "you", bold));
}

function render(context) {
  const { model } = context;
  const targets = model.get("targets");
  const state = () => ({ mask: model.get("mask"), ...targets[model.get("target")] });
  const show = (mask) => assign(model, { mask });
  const frontiers = {};
  const frontierOf = (name) => {
    if (!frontiers[name]) {
      const { layers, rates, costs } = targets[name];
      const frontier = formulas.frontier(rates, costs, layers);
      frontiers[name] = { frontier, best: Math.max(...frontier.map(({ speed }) => speed)) };
    }
    return frontiers[name];
  };
  let [switches, shown] = [[], null];
  const menuOptions = Object.keys(targets).map((value) => ({ value, label: value }));
  const column = ({ layers, group }, pair) => {
    const [first, last] = [group * pair + 1, group * (pair + 1)];
    const nodes = PARTS.map((part) => {
      const bit = formulas.bit(layers, pair, part);
      const node = button("", () => show(state().mask ^ bit));
      node.classList.add("sdl-part");
      const where = group === 1 ? `block ${first}` : `blocks ${first} to ${last}`;
      const change = make("small", {});
      node.append(part === "attention" ? "A" : "M", hidden(` of ${where}, changes the speedup by `), change);
      switches.push({ node, bit, change });
      return node;
    });
    const words = group === 1 ? String(first) : `${first}–${last}`;
    return make("div", {}, ...nodes, make("small", { "aria-hidden": "true" }, words));
  };
  const blocks = make("div", { class: "sdl-blocks-row", role: "group", "aria-label": "Sublayers" });
  const layers = Math.max(...Object.values(targets).map((each) => each.layers));
  const draw = ({ target }) => {
    const s = state();
    if (shown !== target) {
      switches = [];
      blocks.replaceChildren(...Array.from({ length: s.layers }, (_, pair) => column(s, pair)));
    }
    shown = target;
    const r = consequences(s);
    const { frontier, best } = frontierOf(target);
    for (const { node, bit, change } of switches) {
      const runs = !(s.mask & bit);
      const difference = effect(s, r, bit);
      change.textContent = signed(difference);
      change.classList.toggle("sdl-better", difference > NEAR);
      node.setAttribute("aria-pressed", String(runs));
      node.classList.toggle("sdl-off", !runs);
    }
    const tiles = [
      ["acceptance rate α", r.alpha.toFixed(2)],
      ["cost c, from bytes read", r.c.toFixed(2)],
      ["predicted speedup", times(r.speed)],
      ["best draft length γ", r.alpha > r.c ? r.gamma : "none"],
    ];
    return [tiles, () => [summary(s, r), taskState(s, r, best)], { r, frontier }];
  };
  // The effect of a switch is seen only where one is off: it opens with the best one.
  const first = state();
  const whole = consequences({ ...first, mask: 0 });
  const effects = Array.from({ length: 2 * first.layers }, (_, bit) =>
    effect({ ...first, mask: 0 }, whole, 1 << bit),
  );
  openAt(model, "mask", 1 << effects.indexOf(Math.max(...effects)));
  const spec = {
    name: "switches",
    label: "Skip switches",
    task: "switch sublayers off until you find the set with the highest predicted speedup.",
    longestState: `0.00× so far. The best of all ${countSets({ layers })} sets has 0.00×, and so on.`,
    values: ["mask", "target"],
    change: ({ target }) => assign(model, { mask: 0, target }),
    controls: [{ name: "target", text: "Target", options: menuOptions }],
    charts: {
      plane: {
        title: "Acceptance rate and cost of each set",
        caption:
          "Rings: the set with the highest acceptance rate for each number of skipped sublayers. Dashed: α = c.",
        size: "sdl-half",
        height: 272,
        draw: drawPlane,
      },
    },
  };
  const caption =
    "A: attention. M: MLP. Dashed and crossed out: skipped in drafting. Number: change of the predicted speedup if you toggle this switch.";
  const layout = ({ task, spoken, tiles, controls, charts }) => {
    const allOn = button("all on", () => show(0));
    const sublayers = [
      ...(menuOptions.length > 1 ? [controls.target] : []),
      blocks,
      make("figcaption", {}, caption),
      make("div", { class: "sdl-row" }, allOn),
    ];
    return [
      task,
      chartRow(
        figure("Sublayers of the target", "sdl-half", ...sublayers, ...tiles),
        phoneFold("Acceptance rate and cost of each set", "sdl-half", charts.plane.node),
      ),
      make("div", {}, spoken),
    ];
  };
  return panel(context, spec, layout, draw);
}

export default { render, formulas };

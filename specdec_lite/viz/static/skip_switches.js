// Which sublayers of a target draft. Every set was recorded, two digits a rate; what a set costs and promises
// follows from the formulas of specdec_lite/theory.py, and a test holds the two together. `layers` counts pairs of
// switches, each of `group` neighbouring blocks.

const PARTS = ["attention", "mlp"];
const MOST = 16;
const NEAR = 0.005;

const formulas = {
  // With nothing left out the draft is the target.
  rate: (rates, mask) => (mask ? Number(rates.slice(2 * mask, 2 * mask + 2)) / 100 : 1),
  // The first block's attention is the highest bit, its MLP the next one.
  bit: (layers, block, part) => 1 << (2 * (layers - 1 - block) + (part === "attention" ? 1 : 0)),
  // How many of each part are left out: [attentions, MLPs].
  counts(layers, mask) {
    const off = [0, 0];
    for (let place = 0; place < 2 * layers; place++) if ((mask >> place) & 1) off[1 - (place % 2)]++;
    return off;
  },
  cost(costs, layers, [attentions, mlps]) {
    const whole = costs.head + layers * (costs.attention + costs.mlp);
    return 1 - (attentions * costs.attention + mlps * costs.mlp) / whole;
  },
  speedup: (alpha, gamma, c) =>
    (alpha === 1 ? gamma + 1 : (1 - alpha ** (gamma + 1)) / (1 - alpha)) / (gamma * c + 1),
  best(alpha, c) {
    let found = [1, formulas.speedup(alpha, 1, c)];
    for (let gamma = 2; gamma <= MOST; gamma++) {
      const speed = formulas.speedup(alpha, gamma, c);
      if (speed > found[1] + 1e-12) found = [gamma, speed];
    }
    return found;
  },
  // Of the sets that leave out equally many of each part, the one that is accepted most.
  frontier(rates, costs, layers) {
    const found = new Map();
    for (let mask = 1; mask < 4 ** layers; mask++) {
      const off = formulas.counts(layers, mask);
      const alpha = formulas.rate(rates, mask);
      const key = off.join();
      if (!(found.get(key)?.alpha >= alpha)) found.set(key, { mask, alpha, off });
    }
    return [...found.values()].map(({ mask, alpha, off }) => {
      const c = formulas.cost(costs, layers, off);
      return { mask, alpha, c, speed: formulas.best(alpha, c)[1] };
    });
  },
};

function consequences(s) {
  const off = formulas.counts(s.layers, s.mask);
  const alpha = formulas.rate(s.rates, s.mask);
  const c = formulas.cost(s.costs, s.layers, off);
  const [gamma, speed] = formulas.best(alpha, c);
  return { off, alpha, c, gamma, speed };
}

const times = (x) => `${x.toFixed(2)}×`;

function summary(s, r) {
  if (!s.mask) return "Nothing is left out: the draft is the target, always accepted, and no cheaper.";
  const what = `${r.off[0]} attention and ${r.off[1]} MLP sublayers left out: `;
  const verdict =
    r.alpha > r.c
      ? `${times(r.speed)} with ${r.gamma} drafted.`
      : "its acceptance is below its cost, so no draft length gains.";
  return `${what}accepted ${r.alpha.toFixed(2)}, costs ${r.c.toFixed(2)} of a pass; ${verdict}`;
}

const many = (s) => (4 ** s.layers).toLocaleString("en");

function taskState(s, r, most) {
  if (!s.mask) return "Leave out a first sublayer.";
  if (r.speed >= most - NEAR)
    return `Solved: ${times(r.speed)}, and of all ${many(s)} sets none promises more than ${times(most)}.`;
  return `${times(r.speed)} so far. Somewhere among ${many(s)} sets there is one that promises ${times(most)}.`;
}

function drawPlane(svg, width, s, r, frontier) {
  const box = { left: 40, right: width - 14, top: 26, bottom: 232 };
  const x = (c) => box.left + c * (box.right - box.left);
  const y = (alpha) => box.bottom - alpha * (box.bottom - box.top);
  const text = (at, words, attributes = {}) => make("text", { x: at[0], y: at[1], ...attributes }, words);
  for (const value of [0, 0.5, 1]) {
    svg.append(
      make("line", { class: "sdl-grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
      text([box.left - 6, y(value) + 4], String(value), { class: "sdl-faint", "text-anchor": "end" }),
      text([x(value), box.bottom + 17], String(value), { class: "sdl-faint", "text-anchor": "middle" }),
    );
  }
  svg.append(
    breakEven(x, y),
    text([box.right, y(0) - 8], "below the line no gain: α < c", { "text-anchor": "end" }),
    text([0, box.top - 10], "acceptance α"),
    text([box.right, box.bottom + 34], "cost c of a draft pass", { "text-anchor": "end" }),
  );
  for (const { alpha, c } of frontier)
    svg.append(
      make("circle", {
        cx: x(c),
        cy: y(alpha),
        r: 3,
        fill: "none",
        stroke: "var(--sdl-accepted)",
        "stroke-width": 1.5,
      }),
    );
  svg.append(
    make("circle", {
      cx: x(r.c),
      cy: y(r.alpha),
      r: 7,
      fill: "var(--sdl-draft)",
      stroke: "var(--sdl-ink)",
      "stroke-width": 1.5,
    }),
    text([x(r.c) - 12, y(r.alpha) + 4], "you", {
      class: "sdl-halo",
      "text-anchor": "end",
      "font-weight": 600,
    }),
  );
}

function render({ model, el }) {
  const targets = model.get("targets");
  const state = () => ({ mask: model.get("mask"), ...targets[model.get("target")] });
  const show = (mask) => assign(model, { mask });
  const known = {};
  const best = (name) => {
    if (!known[name]) {
      const { layers, rates, costs } = targets[name];
      const frontier = formulas.frontier(rates, costs, layers);
      known[name] = { frontier, most: Math.max(...frontier.map(({ speed }) => speed)) };
    }
    return known[name];
  };
  let switches = [];
  const column = ({ layers, group }, pair) => {
    const [first, last] = [group * pair + 1, group * (pair + 1)];
    const made = PARTS.map((part) => {
      const bit = formulas.bit(layers, pair, part);
      const node = button("", () => show(state().mask ^ bit));
      node.classList.add("sdl-part");
      const where = group === 1 ? `block ${first}` : `blocks ${first} to ${last}`;
      node.append(part === "attention" ? "A" : "M", hidden(` of ${where}`));
      switches.push({ node, bit });
      return node;
    });
    const words = group === 1 ? String(first) : `${first}–${last}`;
    return make("div", {}, ...made, make("small", { "aria-hidden": "true" }, words));
  };
  const blocks = make("div", { class: "sdl-blocks-row", role: "group", "aria-label": "Sublayers" });
  const rebuild = () => {
    switches = [];
    const s = state();
    blocks.replaceChildren(...Array.from({ length: s.layers }, (_, pair) => column(s, pair)));
  };
  const names = Object.keys(targets);
  const id = newId("switches");
  const options = names.map((value) => ({ value, label: value }));
  const select = menu(id, options, (target) => assign(model, { mask: 0, target }));
  const choice = names.length > 1 ? [field(id, "Target", select)] : [];
  const plane = chart(
    "Every set is a point",
    "Rings: of the sets of one size, the one accepted most. Dashed: accepted as often as it costs.",
    "sdl-half",
    { height: 272 },
  );
  const words = "switch sublayers off until the draft promises as much as any set can.";
  const layers = Math.max(...Object.values(targets).map((each) => each.layers));
  const room = `0.00× so far. Somewhere among ${many({ layers })} sets there is one that promises 0.00×, no more.`;
  const { task, spoken, announce, silence } = narration(words, room, 150);
  const numbers = make("dl", { class: "sdl-readouts" });
  const root = make(
    "section",
    { class: "sdl sdl-switches", "aria-label": "Which sublayers of the target draft" },
    task,
    make(
      "div",
      { class: "sdl-frame" },
      make(
        "div",
        { class: "sdl-charts" },
        figure(
          "The target, block by block",
          "sdl-half",
          ...choice,
          blocks,
          make("figcaption", {}, "A: attention. M: MLP. Dashed and struck out: left out of the draft."),
          make(
            "div",
            { class: "sdl-row" },
            button("all on", () => show(0)),
          ),
          numbers,
        ),
        plane.node,
      ),
    ),
    spoken,
  );
  const draw = () => {
    const s = state();
    const r = consequences(s);
    const { frontier, most } = best(model.get("target"));
    select.value = model.get("target");
    for (const { node, bit } of switches) {
      const runs = !(s.mask & bit);
      node.setAttribute("aria-pressed", String(runs));
      node.classList.toggle("sdl-off", !runs);
    }
    plane.svg.replaceChildren();
    drawPlane(plane.svg, Math.max(240, widthOf(plane.svg) || 480), s, r, frontier);
    define(numbers, [
      ["acceptance α", r.alpha.toFixed(2)],
      ["cost c, by bytes", r.c.toFixed(2)],
      ["best draft length γ", r.alpha > r.c ? r.gamma : "none"],
      ["predicted speedup", times(r.speed)],
    ]);
    announce(() => [summary(s, r), taskState(s, r, most)]);
  };
  rebuild();
  const other = () => {
    rebuild();
    draw();
  };
  const detach = attach({ model, el }, root, { "change:mask": draw, "change:target": other }, draw);
  draw();
  return () => {
    detach();
    silence();
  };
}

export default { render, formulas };

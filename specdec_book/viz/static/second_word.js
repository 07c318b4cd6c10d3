// Two words drafted in one pass: “of course”, “no problem”. The reader chooses what the second head knows and which
// row the rule is given. TARGET holds the target's distributions; everything else is computed from them.

const NAMES = ["sees", "bias", "honest"];
const FIRST = ["of", "no"];
const SECOND = ["course", "problem"];
const TARGET = {
  first: [0.6, 0.4],
  second: [
    [0.9, 0.1],
    [0.05, 0.95],
  ],
};
const [MAX_BIAS, STEP, NEAR] = [5, 0.1, 0.002];
const [ROW, BAR, HEAD] = [40, 12, 6];

const normal = (values) => values.map((value) => value / sum(values));

const formulas = {
  // The row of a head that does not know which first word was drawn: the mean over both first words.
  blind: () => SECOND.map((_, y) => sum(TARGET.first.map((p, x) => p * TARGET.second[x][y]))),
  // The row from which the second word is drawn after first word x. The bias favors the word that fits x.
  drawn: (s, x) =>
    s.sees
      ? TARGET.second[x]
      : normal(formulas.blind().map((q, y) => q * Math.exp(x === y ? Number(s.bias) : 0))),
  // The row that the rule is given.
  stated: (s, x) => (s.sees || s.honest ? formulas.drawn(s, x) : formulas.blind()),
  acceptedMass: (s, x) => {
    const [p, stated] = [TARGET.second[x], formulas.stated(s, x)];
    return formulas.drawn(s, x).map((q, y) => q * Math.min(1, p[y] / stated[y]));
  },
  accepted: (s, x) => sum(formulas.acceptedMass(s, x)),
  // The distribution of the emitted second word: accepted mass plus recovered mass.
  emitted(s, x) {
    const accepted = formulas.acceptedMass(s, x);
    const recovered = residual(TARGET.second[x], formulas.stated(s, x));
    return accepted.map((mass, y) => mass + (1 - sum(accepted)) * recovered[y]);
  },
  alpha: (s) => sum(TARGET.first.map((p, x) => p * formulas.accepted(s, x))),
  // Total variation between the emitted distribution of both words and the target's.
  distance(s) {
    const off = (x) => sum(formulas.emitted(s, x).map((mass, y) => Math.abs(mass - TARGET.second[x][y])));
    return sum(TARGET.first.map((p, x) => p * off(x))) / 2;
  },
  best() {
    const biases = Array.from({ length: Math.round(MAX_BIAS / STEP) + 1 }, (_, i) => i * STEP);
    return Math.max(...biases.map((bias) => formulas.alpha({ sees: false, bias, honest: true })));
  },
};

function drawWords(svg, width, s) {
  const left = 92;
  const room = width - left - 92;
  const bar = (y, share, color, dashed) =>
    block(left, y, Math.max(1, share * room), BAR, "", {
      rx: 2,
      fill: `color-mix(in srgb, ${ink(color)} ${dashed ? 35 : 75}%, var(--sdl-surface))`,
      stroke: ink(color),
      "stroke-width": 1.5,
      ...(dashed ? { "stroke-dasharray": "4 3" } : {}),
    });
  const rows = [];
  FIRST.forEach((first, x) =>
    SECOND.forEach((second, y) => {
      const top = HEAD + (2 * x + y) * ROW;
      const [p, q, emitted] = [TARGET.second[x][y], formulas.drawn(s, x)[y], formulas.emitted(s, x)[y]];
      const mark = left + emitted * room;
      rows.push(`${first} ${second}: target ${percent(p)}, head ${percent(q)}`);
      svg.append(
        svgText(left - 8, top + 18, `${first} ${second}`, { "text-anchor": "end" }),
        bar(top, p, "target", false),
        bar(top + BAR + 3, q, "draft-line", true),
      );
      if (Math.abs(emitted - p) > NEAR)
        svg.append(
          stroke(mark, top - 3, mark, top + BAR + 3, "rejected", { "stroke-width": 3 }),
          svgText(width, top + 18, `emitted ${percent(emitted)}`, { "text-anchor": "end" }),
        );
    }),
  );
  svg.setAttribute("aria-label", rows.join("; "));
}

function sentence(s) {
  if (s.sees)
    return "Head 2 is given the first word. It predicts “course” after “of” and “problem” after “no”.";
  if (!Number(s.bias))
    return "Head 2 sees only the state. Its distribution is the same after “of” and after “no”, so it also drafts “of problem”.";
  return `After “of”, the bias raises the probability of “course” from ${percent(formulas.blind()[0])} to ${percent(formulas.drawn(s, 0)[0])}.`;
}

function taskState(s) {
  const alpha = formulas.alpha(s);
  const off = formulas.distance(s);
  if (off > NEAR)
    return `${percent(alpha)} are accepted, but the text is wrong: its distribution differs from the target's by ${percent(off)}.`;
  if (s.sees) return "The second word is always accepted, but head 2 must now wait for the first word.";
  const best = formulas.best();
  if (alpha > best - NEAR)
    return `Found: ${percent(alpha)} are accepted. Now give the rule the row without the bias, and look at the text.`;
  return `${percent(alpha)} of the second words are accepted; with the best bias it is ${percent(best)}.`;
}

const BIAS = { name: "bias", text: "Markov bias", note: "of the word that fits", max: MAX_BIAS, step: STEP };

function render(context) {
  const { model } = context;
  const switchOf = (name, words) => toggle(words, () => assign(model, { [name]: !model.get(name) }));
  const switches = {
    sees: switchOf("sees", "head 2 sees the first word"),
    honest: switchOf("honest", "give the rule the row with the bias"),
  };
  const draw = (s, { controls }) => {
    for (const [name, node] of Object.entries(switches)) node.setAttribute("aria-pressed", String(s[name]));
    controls.bias.querySelector("input").disabled = switches.honest.disabled = s.sees;
    const tiles = [
      ["accepted after “of” · after “no”", [0, 1].map((x) => percent(formulas.accepted(s, x))).join(" · ")],
      ["tokens per round", (2 + formulas.alpha(s)).toFixed(2)],
      ["total variation between text and target", percent(formulas.distance(s))],
    ];
    return [tiles, () => [sentence(s), taskState(s)]];
  };
  const title = "The second word (solid: the target, dashed: head 2)";
  const spec = {
    name: "second-word",
    label: "How much the second head knows of the first word",
    task: "find the bias at which the second word is accepted most often.",
    longestState:
      "100 % are accepted, but the text is wrong: its distribution differs from the target's by 100 %, and so on.",
    delay: 100,
    values: NAMES,
    controls: [BIAS],
    charts: { words: { title, height: HEAD + 4 * ROW, draw: drawWords } },
  };
  const layout = ({ task, spoken, tiles, controls, charts }) => [
    task,
    controlRow(make("div", { class: "sdl-row" }, ...Object.values(switches)), controls.bias),
    chartRow(charts.words.node),
    make("div", {}, spoken),
    ...tiles,
  ];
  return panel(context, spec, layout, draw);
}

export default { render, formulas };

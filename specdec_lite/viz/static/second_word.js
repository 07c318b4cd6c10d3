// Two words drafted at once: “of course”, “no problem”. What the guess of the second may see, and what is handed to
// the rule. The target's laws stand in LAWS; everything shown follows from them.

const DEFAULTS = { sees: false, bias: 0, honest: true };
const FIRST = ["of", "no"];
const SECOND = ["course", "problem"];
const LAWS = {
  first: [0.6, 0.4],
  second: [
    [0.9, 0.1],
    [0.05, 0.95],
  ],
};
const [MOST, STEP, NEAR] = [5, 0.1, 0.002];
const [ROW, BAR, HEAD] = [40, 12, 26];

const sum = (values) => values.reduce((total, value) => total + value, 0);
const normal = (values) => values.map((value) => value / sum(values));

const formulas = {
  // What a head says that knows the context, and not which first word was drawn: the mean over both.
  blind: () => SECOND.map((_, y) => sum(LAWS.first.map((p, x) => p * LAWS.second[x][y]))),
  // The row that the second word is drawn from, behind first word x. The bias favours the word that fits x.
  drawn: (s, x) =>
    s.sees
      ? LAWS.second[x]
      : normal(formulas.blind().map((q, y) => q * Math.exp(x === y ? Number(s.bias) : 0))),
  handed: (s, x) => (s.sees || s.honest ? formulas.drawn(s, x) : formulas.blind()),
  kept: (s, x) => {
    const [p, claimed] = [LAWS.second[x], formulas.handed(s, x)];
    return formulas.drawn(s, x).map((q, y) => q * Math.min(1, p[y] / claimed[y]));
  },
  accepted: (s, x) => sum(formulas.kept(s, x)),
  // The law of the second word that is written: what is kept, and what is recovered.
  written(s, x) {
    const kept = formulas.kept(s, x);
    const missing = LAWS.second[x].map((p, y) => Math.max(0, p - formulas.handed(s, x)[y]));
    const rest = sum(missing) > 0 ? normal(missing) : LAWS.second[x];
    return kept.map((k, y) => k + (1 - sum(kept)) * rest[y]);
  },
  alpha: (s) => sum(LAWS.first.map((p, x) => p * formulas.accepted(s, x))),
  // Total variation between the law of both words that is written and the target's.
  distance: (s) =>
    sum(
      LAWS.first.map(
        (p, x) => p * sum(formulas.written(s, x).map((w, y) => Math.abs(w - LAWS.second[x][y]))),
      ),
    ) / 2,
  best() {
    const places = Array.from({ length: Math.round(MOST / STEP) + 1 }, (_, i) => i * STEP);
    return Math.max(...places.map((bias) => formulas.alpha({ sees: false, bias, honest: true })));
  },
};

const percent = (x) => `${Math.round(100 * x)} %`;

function draw(svg, s) {
  const width = widthOf(svg) || 320;
  const left = 92;
  const room = width - left - 92;
  svg.setAttribute("height", HEAD + 4 * ROW);
  svg.replaceChildren();
  const bar = (y, share, colour, dashed) =>
    make("rect", {
      x: left,
      y,
      width: Math.max(1, share * room),
      height: BAR,
      rx: 2,
      fill: `color-mix(in srgb, ${colour} ${dashed ? 35 : 75}%, var(--sdl-surface))`,
      stroke: colour,
      "stroke-width": 1.5,
      ...(dashed ? { "stroke-dasharray": "4 3" } : {}),
    });
  svg.append(make("text", { x: 0, y: 14, class: "sdl-faint" }, "the target's law, and the head's (dashed)"));
  FIRST.forEach((first, x) =>
    SECOND.forEach((second, y) => {
      const top = HEAD + (2 * x + y) * ROW;
      const [p, q, w] = [LAWS.second[x][y], formulas.drawn(s, x)[y], formulas.written(s, x)[y]];
      svg.append(
        make("text", { x: left - 8, y: top + 18, "text-anchor": "end" }, `${first} ${second}`),
        bar(top, p, "var(--sdl-target)", false),
        bar(top + BAR + 3, q, "var(--sdl-draft-line)", true),
      );
      if (Math.abs(w - p) > NEAR)
        svg.append(
          make("line", {
            x1: left + w * room,
            x2: left + w * room,
            y1: top - 3,
            y2: top + BAR + 3,
            stroke: "var(--sdl-rejected)",
            "stroke-width": 3,
          }),
          make("text", { x: width, y: top + 18, "text-anchor": "end" }, `written ${percent(w)}`),
        );
    }),
  );
}

function sentence(s) {
  if (s.sees) return "Head 2 is told the first word: behind “of” it says course, behind “no” problem.";
  if (!Number(s.bias))
    return "Head 2 sees the state alone: behind “of” and behind “no” it says the same, and drafts “of problem”.";
  return `Behind “of” the bias turns ${percent(formulas.blind()[0])} course into ${percent(formulas.drawn(s, 0)[0])}.`;
}

function taskState(s) {
  const alpha = formulas.alpha(s);
  const off = formulas.distance(s);
  if (off > NEAR)
    return `Accepted ${percent(alpha)}, and the text is wrong: ${percent(off)} of the pairs are other than the target's.`;
  if (s.sees) return "Accepted always; but head 2 must now wait for the first word.";
  const best = formulas.best();
  if (alpha > best - NEAR)
    return `Found: ${percent(alpha)} accepted. Now hand over the row without the bias, and look at the text.`;
  return `The second word is accepted ${percent(alpha)} of the time; with the best bias ${percent(best)}.`;
}

function render({ model, el }) {
  const id = newId("second-word");
  const state = () =>
    Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, model.get(name) ?? value]));
  const set = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };
  const { announce, silence, task, spoken } = narration(
    "find the bias with which the second word is accepted most.",
    "Accepted 100 %, and the text is wrong: 100 % of the pairs are other than the target's, and so on.",
    100,
  );
  const sees = button("head 2 sees the first word", () => set("sees", !state().sees));
  const honest = button("hand over the row with the bias", () => set("honest", !state().honest));
  const bias = slider(`${id}-bias`, { min: 0, max: MOST, step: STEP }, (value) => set("bias", value));
  const svg = make("svg", { role: "img" });
  const readouts = make("dl", { class: "sdl-readouts" });
  const root = make(
    "section",
    { class: "sdl sdl-second-word", "aria-label": "What the guess of the second word may see" },
    task,
    make(
      "div",
      { class: "sdl-controls" },
      make("div", { class: "sdl-row" }, sees, honest),
      field(
        `${id}-bias`,
        ["Markov bias ", make("small", {}, "for the word that fits")],
        bias.output,
        bias.input,
      ),
    ),
    make(
      "div",
      { class: "sdl-frame" },
      make("div", { class: "sdl-charts" }, figure("The second word", "", svg)),
    ),
    spoken,
    readouts,
  );
  const paint = () => {
    const s = state();
    sees.setAttribute("aria-pressed", String(s.sees));
    honest.setAttribute("aria-pressed", String(s.honest));
    bias.input.value = s.bias;
    bias.input.disabled = honest.disabled = s.sees;
    bias.output.textContent = Number(s.bias).toFixed(1);
    draw(svg, s);
    svg.setAttribute(
      "aria-label",
      FIRST.flatMap((first, x) =>
        SECOND.map(
          (second, y) =>
            `${first} ${second}: target ${percent(LAWS.second[x][y])}, head ${percent(formulas.drawn(s, x)[y])}`,
        ),
      ).join("; "),
    );
    define(readouts, [
      ["accepted behind “of”", percent(formulas.accepted(s, 0))],
      ["accepted behind “no”", percent(formulas.accepted(s, 1))],
      ["tokens a round", (2 + formulas.alpha(s)).toFixed(2)],
      ["distance of the text from the target's", percent(formulas.distance(s))],
    ]);
    announce(() => [sentence(s), taskState(s)]);
  };
  return live({ model, el }, root, Object.keys(DEFAULTS), paint, silence);
}

export default { render, formulas };

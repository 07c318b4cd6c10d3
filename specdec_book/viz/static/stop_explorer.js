// The stop explorer: a recorded text, the drafts at each of its positions, and a policy that ends them.

const NAMES = {
  constant: "constant length",
  heuristic: "heuristic: two more after success, else one less",
  confidence: "stop at low confidence",
  entropy: "stop at high entropy",
  oracle: "oracle",
};
const PLAIN = 1; // speed of plain decoding, in tokens per target pass

const longestDraft = (places) => Math.max(...places.map(({ q }) => q.length));

const formulas = {
  // Number of tokens drafted at a position, at most `limit`.
  drafted({ q, h, right }, policy, settings, limit) {
    const upTo = (stops) => {
      const at = stops.findIndex(Boolean);
      return Math.min(limit, at < 0 ? stops.length : at + 1);
    };
    if (policy === "oracle") return Math.min(limit, right);
    if (policy === "confidence") return upTo(q.map((value) => value < settings.threshold));
    if (policy === "entropy") return upTo(h.map((value) => value > settings.nats));
    return Math.min(limit, settings.length);
  },

  // The rounds of the whole text: { place, drafted, accepted }, where place is the position of the round's first token.
  rounds(places, policy, settings) {
    const most = longestDraft(places);
    const rounds = [];
    let place = 0;
    let length = Math.min(settings.length, most);
    while (place < places.length) {
      const limit = Math.min(places[place].q.length, places.length - place - 1);
      const drafted = formulas.drafted(places[place], policy, { ...settings, length }, limit);
      const accepted = Math.min(places[place].right, drafted);
      rounds.push({ place, drafted, accepted });
      if (policy === "heuristic" && drafted > 0)
        length = accepted === drafted ? Math.min(most, length + 2) : Math.max(1, length - 1);
      place += accepted + 1;
    }
    return rounds;
  },

  // Tokens per unit of time: a target pass takes 1, a drafted token `cost`.
  speed(places, policy, settings) {
    const rounds = formulas.rounds(places, policy, settings);
    const drafted = sum(rounds, ({ drafted }) => drafted);
    return places.length / (rounds.length + settings.cost * drafted);
  },

  // The best constant length and its speed.
  bestConstant(places, cost) {
    const speedOf = (length) => formulas.speed(places, "constant", { length, cost });
    const [length, speed] = largestAt(longestDraft(places), speedOf);
    return { length, speed };
  },
};

// One bar per position: the draft's probability of its first token there. Below: the extent of each round's draft.
function drawStrip(svg, width, { words, places }, { rounds }) {
  const [left, foot, height] = [16, 46, 40];
  const step = (width - 2 * left) / places.length;
  const x = (place) => left + place * step;
  const bars = places.map(({ q, right }, place) => {
    const tall = Math.max(1, height * (q[0] ?? 0));
    const fate = right > 0 ? "accepted" : "rejected";
    const fill = right > 0 ? fate : "surface";
    const frame = { stroke: ink(fate) };
    const bar = block(x(place) + 0.5, foot - tall, Math.max(1, step - 1.5), tall, fill, frame);
    bar.append(make("title", {}, `${quoted(words[place])}: ${(q[0] ?? 0).toFixed(2)}, ${fate}`));
    return bar;
  });
  const row = (i) => foot + 8 + 7 * (i % 3);
  const line = (from, to, i) => (from < to ? `M${x(from) + 1} ${row(i)}H${Math.min(width, x(to)) - 1}` : "");
  const path = (color, more, part) =>
    make("path", { d: rounds.map(part).join(""), stroke: ink(color), ...more });
  const dots = { "stroke-width": 5, "stroke-linecap": "round" };
  svg.append(
    make("line", { class: "sdl-axis", x1: left, x2: width - left, y1: foot + 0.5, y2: foot + 0.5 }),
    ...[1, 0].map((q) => svgText(0, foot - height * q + 4, String(q))),
    ...bars,
    path("accepted", { "stroke-width": 4 }, ({ place, accepted }, i) => line(place, place + accepted, i)),
    path("rejected", { "stroke-width": 3, "stroke-dasharray": "3 2" }, ({ place, accepted, drafted }, i) =>
      line(place + accepted, place + drafted, i),
    ),
    path("recovered", dots, ({ place, accepted }, i) => `M${x(place + accepted) + step / 2} ${row(i)}h0`),
  );
}

// The text, with the number of wasted drafts before each token.
function markText(box, words, rounds) {
  const nodes = rounds.flatMap(({ place, drafted, accepted }) => {
    const waste = drafted - accepted;
    const marks = waste ? [`✗${waste}`, hidden(` ${plural(waste, "wasted draft")} `)] : [];
    const last = drafted === 0 ? "sampled" : waste ? "recovered" : "bonus";
    return Array.from({ length: accepted + 1 }, (_, i) => [
      make("small", { class: "sdl-waste" }, ...(i === accepted ? marks : [])),
      make("span", { class: `sdl-token sdl-${i === accepted ? last : "accepted"}` }, words[place + i]),
    ]);
  });
  box.replaceChildren(...nodes.flat());
}

// One bar for each entry [name, speed, color].
function drawSpeeds(svg, width, s, { entries }) {
  const top = Math.max(...entries.map(([, value]) => value)) * 1.02;
  const bold = { "text-anchor": "end", "font-weight": 600 };
  entries.forEach(([name, value, color], i) => {
    const bar = block(0, 16 + i * 28, ((width - 56) * value) / top, 10, color, { rx: 2 });
    svg.append(svgText(0, 12 + i * 28, name), bar, svgText(width, 26 + i * 28, times(value), bold));
  });
  svg.setAttribute("aria-label", entries.map(([name, value]) => `${name}: ${times(value)}`).join(". "));
}

const solved = (speed, best, share) =>
  `Solved: ${speed} against ${best} for the best constant length. That is ${share} % of the oracle's gain.`;

function taskState(policy, speed, best, oracle) {
  if (policy === "oracle") return "The oracle knows the target's tokens; a real policy cannot.";
  const share = oracle > best ? Math.round((100 * (speed - best)) / (oracle - best)) : 0;
  if (policy === "constant" || policy === "heuristic")
    return "Choose a policy that looks at the draft, and change its threshold.";
  return speed > best + 1e-9
    ? solved(times(speed), times(best), share)
    : `Not yet: ${times(speed)} is not more than the best constant length's ${times(best)}.`;
}

const SLIDERS = [
  { name: "length", text: "Draft length at the start", min: 1 },
  { name: "threshold", text: "Stop below this probability", max: 1, step: 0.02 },
  { name: "nats", text: "Stop above this entropy, in nats", max: 4, step: 0.05 },
  { name: "cost", text: "Cost of a drafted token, in target passes", min: 0.02, max: 0.6, step: 0.02 },
];

function render(context) {
  const { model } = context;
  const [words, places] = ["words", "places"].map((name) => model.get(name));
  const names = SLIDERS.map(({ name }) => name);
  const max = longestDraft(places);
  const uses = { constant: "length", heuristic: "length", confidence: "threshold", entropy: "nats" };
  const text = make("div", { class: "sdl-text", tabindex: 0, role: "region", "aria-label": "The text" });
  const options = Object.entries(NAMES).map(([value, label]) => ({ value, label }));
  let limits = {};
  const draw = (s, { controls }) => {
    const { policy } = s;
    for (const name of names) controls[name].hidden = name !== "cost" && uses[policy] !== name;
    const rounds = formulas.rounds(places, policy, s);
    const drafted = sum(rounds, ({ drafted }) => drafted);
    const accepted = sum(rounds, ({ accepted }) => accepted);
    const speed = formulas.speed(places, policy, s);
    if (limits.cost !== s.cost) {
      const best = formulas.bestConstant(places, s.cost);
      limits = { cost: s.cost, best, oracle: formulas.speed(places, "oracle", s) };
    }
    const { best, oracle } = limits;
    markText(text, words, rounds);
    const tiles = [
      ["target passes", rounds.length],
      ["tokens per round", (places.length / rounds.length).toFixed(2)],
      ["wasted drafts", `${drafted - accepted} of ${drafted}`],
    ];
    const entries = [
      ["plain decoding", PLAIN, "plain"],
      [NAMES[policy], speed, "you"],
      [`best constant length: ${best.length}`, best.speed, "one"],
      ["oracle: drafts only tokens that will be accepted", oracle, "ink"],
    ];
    const sentence = `The policy “${NAMES[policy]}” reaches ${times(speed)}, the best constant length (${best.length}) ${times(best.speed)}, and the oracle ${times(oracle)}.`;
    return [tiles, () => [sentence, taskState(policy, speed, best.speed, oracle)], { rounds, entries }];
  };
  const spec = {
    name: "stop",
    label: "Stop explorer",
    kinds: "sdl-fates",
    task: "find a policy and a threshold that beat the best constant length on this text.",
    longestState: solved("0.00×", "0.00×", 100),
    delay: 200,
    values: ["words", "places", "policy", ...names],
    controls: [{ name: "policy", text: "Policy", options }, ...SLIDERS.map((each) => ({ max, ...each }))],
    charts: {
      strip: {
        title: "The drafter's confidence at each position, and the draft of each round",
        caption:
          "Bars: accepted (filled) or rejected (hollow). Lines: accepted and wasted (dashed) drafts. Dots: the target's tokens.",
        height: 70,
        draw: drawStrip,
      },
      speeds: {
        title: "Speed, in tokens per time of a target pass",
        caption: "",
        height: 110,
        draw: drawSpeeds,
      },
    },
  };
  const layout = ({ task, spoken, tiles, controls, charts }) => [
    task,
    make("div", { class: "sdl-stop-top" }, controlRow(...Object.values(controls)), charts.speeds.node),
    charts.strip.node,
    phoneFold("The text, and the drafts wasted before each token", "", text),
    spoken,
    foldOf("Counts", ...tiles),
  ];
  return panel(context, spec, layout, draw);
}

export default { render, formulas };

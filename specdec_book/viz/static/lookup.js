// The lookup explorer: prompt lookup replayed on a text that a target wrote. The request and the answer are side by side,
// so the source of a copy and the copy are both in view. Everything is computed from the text and the settings.

const MAX_N = 5;
const MAX_GAMMA = 16;
const MAX_WASTE = 1; // wasted tokens per emitted token that the task allows

const formulas = {
  // The result of a lookup at every position of the answer: order (number of matching tokens) and source (where its
  // copy begins; -1 if nothing matches). An n-gram enters the index once its next token is known.
  lookups(ids, start, n, latest) {
    const index = new Map();
    const ngram = (end, order) => ids.slice(end - order, end).join(" ");
    const lookup = (at) => {
      for (let order = Math.min(n, at); order > 0; order--) {
        const source = index.get(ngram(at, order));
        if (source !== undefined) return { order, source };
      }
      return { order: 0, source: -1 };
    };
    const results = [];
    for (let end = 1; end < ids.length; end++) {
      if (end >= start) results[end] = lookup(end);
      for (let order = 1; order <= Math.min(n, end); order++) {
        const key = ngram(end, order);
        if (latest || !index.has(key)) index.set(key, end);
      }
    }
    return results;
  },

  // The rounds with drafts by lookup: at (position of the first new token), source, order, drafted, accepted.
  rounds(ids, start, n, gamma, latest, lookups = formulas.lookups(ids, start, n, latest)) {
    const rounds = [];
    for (let at = start; at < ids.length;) {
      const { order, source } = lookups[at];
      const drafted = source < 0 ? 0 : Math.min(gamma, at - source, ids.length - at - 1);
      let accepted = 0;
      while (accepted < drafted && ids[source + accepted] === ids[at + accepted]) accepted++;
      rounds.push({ at, source, order, drafted, accepted });
      at += accepted + 1;
    }
    return rounds;
  },

  // τ over all rounds and over rounds with a draft, number of wasted drafts, number of rounds without a draft.
  counts(rounds) {
    const emitted = (round) => round.accepted + 1;
    const drafting = rounds.filter((round) => round.drafted > 0);
    return {
      rounds: rounds.length,
      tokens: sum(rounds, emitted),
      tau: sum(rounds, emitted) / rounds.length,
      tauDrafting: drafting.length ? sum(drafting, emitted) / drafting.length : null,
      wasted: sum(rounds, ({ drafted, accepted }) => drafted - accepted),
      empty: rounds.length - drafting.length,
    };
  },

  // The largest τ of all settings that waste at most `waste` drafts per emitted token.
  best(ids, start, waste) {
    let best = 0;
    for (let n = 1; n <= MAX_N; n++)
      for (const latest of [true, false]) {
        const lookups = formulas.lookups(ids, start, n, latest);
        for (let gamma = 1; gamma <= MAX_GAMMA; gamma++) {
          const rounds = formulas.rounds(ids, start, n, gamma, latest, lookups);
          const { wasted, tokens, tau } = formulas.counts(rounds);
          if (wasted <= waste * tokens) best = Math.max(best, tau);
        }
      }
    return best;
  },
};

const joined = (tokens, from, to) => quoted(tokens.slice(from, to).join(""));

function sentence({ tokens }, rounds, number) {
  const { at, source, order, drafted, accepted } = rounds[number];
  const added = `The target adds ${joined(tokens, at + accepted, at + accepted + 1)}`;
  const start = `Round ${number + 1}: `;
  if (source < 0) return `${start}the end of the text does not occur earlier. ${added} without a draft.`;
  const end = `the text ends in ${joined(tokens, at - order, at)}`;
  if (drafted === 0) return `${start}${end}. Only one token remains, so nothing is drafted. ${added}.`;
  const wasted = drafted - accepted;
  const verdict =
    wasted === 0
      ? `All ${plural(accepted, "token")} are accepted`
      : `${accepted} of ${plural(drafted, "token")} are accepted and ${wasted} wasted`;
  return `${start}${end}, which also occurs ${at - source} tokens earlier. The draft copies what followed it: ${joined(tokens, source, source + drafted)}. ${verdict}. ${added} next.`;
}

function taskState(text, counts, best) {
  const waste = counts.wasted / counts.tokens;
  if (waste > MAX_WASTE) return `Not yet: ${waste.toFixed(2)} drafts are wasted per emitted token.`;
  if (counts.tau < best - 1e-9)
    return `Allowed, but another setting has a larger τ than ${counts.tau.toFixed(2)}.`;
  return `Solved: τ = ${counts.tau.toFixed(2)} with ${waste.toFixed(2)} wasted drafts per emitted token.`;
}

// The text as spans, the request in the first pane and the answer in the second.
function write([request, answer], { tokens, start }) {
  const spans = tokens.map((text) => make("span", {}, readable(text)));
  request.replaceChildren(...spans.slice(0, start));
  answer.replaceChildren(...spans.slice(start));
  return spans;
}

// Marks the prompt, accepted copies and the target's own tokens, and for the chosen round its tokens, its source and
// the end of the text that matched.
function mark(spans, start, rounds, { at, source, order, drafted, accepted }) {
  const names = spans.map((_, i) => (i < start ? "sdl-prompt" : "sdl-token sdl-accepted"));
  for (const round of rounds) names[round.at + round.accepted] = "sdl-token sdl-own";
  spans.forEach((span, i) => {
    let name = names[i];
    if (i >= at && i <= at + accepted) name += " sdl-here";
    if (drafted > 0 && i >= source && i < source + drafted) name += " sdl-source";
    if (order > 0 && i >= at - order && i < at) name += " sdl-end";
    if (span.className !== name) span.className = name;
  });
}

// Scrolls both panes so that the chosen round and the source of its copy are in view.
function reveal([request, answer], spans, { at, source, drafted }) {
  const middle = (span) => span.offsetTop + span.offsetHeight / 2;
  const show = (pane, height) => {
    pane.scrollTop = height - pane.clientHeight / 2;
  };
  const from = drafted > 0 && spans[source];
  if (from && request.contains(from)) show(request, middle(from));
  show(answer, from && answer.contains(from) ? (middle(from) + middle(spans[at])) / 2 : middle(spans[at]));
}

// Draws the arc from the chosen round's copy to its source.
function drawArc(svg, spans, { at, source, drafted, accepted }) {
  svg.replaceChildren();
  if (drafted === 0) return;
  const frame = svg.getBoundingClientRect();
  const middle = (span) => {
    const [{ left, top }] = span.getClientRects();
    return [left - frame.left + 4, top - frame.top + 4];
  };
  const [[x1, y1], [x2, y2]] = [middle(spans[at]), middle(spans[source])];
  const lift = 14 + Math.min(40, Math.abs(x2 - x1) / 8);
  const bend =
    Math.abs(x2 - x1) > 60
      ? [(x1 + x2) / 2, Math.min(y1, y2) - lift]
      : [Math.min(x1, x2) - lift, (y1 + y2) / 2];
  const kind = `sdl-arc ${accepted ? "sdl-arc-used" : "sdl-arc-wasted"}`;
  svg.append(make("path", { class: kind, d: `M${x1} ${y1}Q${bend[0]} ${bend[1]} ${x2} ${y2}` }));
}

// A ghost of the copied words flies from the source to the end of the text, where only those that fit stay.
function fly(spans, { at, source, drafted, accepted }) {
  for (let i = 0; i < drafted; i++) {
    const [from, to] = [spans[source + i], spans[at + i]].map((span) => span.getClientRects()[0]);
    if (!from || !to) continue;
    const look = { class: "sdl-lookup-ghost", "aria-hidden": "true" };
    const ghost = make("span", look, spans[source + i].textContent);
    Object.assign(ghost.style, { left: `${to.left}px`, top: `${to.top}px` });
    spans[at].closest("section").append(ghost);
    const path = [`translate(${from.left - to.left}px, ${from.top - to.top}px)`, "none"];
    const end = i < accepted ? "none" : "translateY(30px)";
    const frames = { transform: [...path, end], opacity: [1, 1, 0], offset: [0, 0.75, 1] };
    const flight = ghost.animate(frames, { duration: 900, easing: "ease-in-out" });
    flight.onfinish = () => ghost.remove();
  }
}

const NAMES = ["text", "n", "gamma", "latest", "round"];
const SLIDERS = [
  { name: "n", text: "largest n", min: 1, max: MAX_N },
  { name: "gamma", text: "γ", min: 1, max: MAX_GAMMA },
];

function render(context) {
  const { model, el } = context;
  const texts = model.get("texts") ?? [];
  if (texts.length === 0) return showNothing(el);
  const bests = new Map();
  const bestOf = (text) => {
    if (!bests.has(text)) bests.set(text, formulas.best(text.ids, text.start, MAX_WASTE));
    return bests.get(text);
  };
  let rounds = [];
  const roundSpec = {
    name: "round",
    text: "Round",
    min: 1,
    max: 1, // of the rounds on display, set with them
    show: (round) => `${round + 1} of ${rounds.length}`,
    read: (position) => position - 1,
    place: (round) => round + 1,
  };
  const panes = ["Request", "Answer"].map((name) =>
    make("div", { class: "sdl-text sdl-lookup-text", tabindex: 0, role: "region", "aria-label": name }),
  );
  const arcs = make("svg", { class: "sdl-arcs", "aria-hidden": "true" });
  const box = make("div", { class: "sdl-lookup-texts" }, ...panes, arcs);
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  for (const pane of panes)
    pane.addEventListener("scroll", () => drawArc(arcs, spans, rounds[last.round]), { passive: true });
  box.addEventListener("click", ({ target }) => {
    const i = spans.indexOf(target);
    const picked = rounds.findIndex(({ at, accepted }) => i >= at && i <= at + accepted);
    if (picked >= 0) assign(model, { round: picked });
  });
  const roundsOf = ({ ids, start }, { n, gamma, latest }) => formulas.rounds(ids, start, n, gamma, latest);
  const textAt = (text) => texts[Math.min(text ?? 0, texts.length - 1)];
  const accepted = roundsOf(textAt(model.get("text")), valuesOf(model, NAMES)).map((each) => each.accepted);
  openAt(model, "round", accepted.indexOf(Math.max(...accepted)));
  let spans = [];
  const last = {}; // the last drawing: its text and its round
  const draw = (s, { controls }) => {
    const text = textAt(s.text);
    rounds = roundsOf(text, s);
    const counts = formulas.counts(rounds);
    const number = Math.min(s.round ?? 0, rounds.length - 1);
    Object.assign(s, { text: texts.indexOf(text), round: number });
    controls.round.querySelector("input").max = rounds.length;
    const tau = (value) => (value === null ? "–" : value.toFixed(2));
    const tiles = [
      ["τ, all rounds", tau(counts.tau)],
      ["rounds without a draft", `${counts.empty} of ${counts.rounds}`],
      ["wasted drafts", `${counts.wasted} for ${plural(counts.tokens, "token")}`],
      ["τ, rounds with a draft", tau(counts.tauDrafting)],
    ];
    if (last.text !== text) spans = write(panes, text);
    mark(spans, text.start, rounds, rounds[number]);
    const isMoved = last.text !== text || last.round !== number;
    if (isMoved) reveal(panes, spans, rounds[number]);
    if (isMoved && last.text && !isCalm) fly(spans, rounds[number]);
    Object.assign(last, { text, round: number });
    drawArc(arcs, spans, rounds[number]);
    return [tiles, () => [sentence(text, rounds, number), taskState(text, counts, bestOf(text))]];
  };
  const spec = {
    name: "lookup",
    label: "Lookup explorer",
    kinds: "sdl-fates",
    task: "find n, γ and the occurrence to copy that give the largest τ while at most one draft is wasted per emitted token.",
    longestState: "Solved: τ = 10.00 with 0.00 wasted drafts per emitted token.",
    values: NAMES,
    controls: [
      { name: "text", text: "Text", options: texts.map(({ name }) => ({ label: name })) },
      ...SLIDERS,
      {
        name: "latest",
        id: "which",
        text: "Occurrence to copy",
        options: ["latest", "earliest"].map((value) => ({ value, label: `the ${value}` })),
        read: (value) => value === "latest",
        place: (isLatest) => (isLatest ? "latest" : "earliest"),
      },
      roundSpec,
    ],
  };
  const layout = ({ task, spoken, tiles, controls }) => [
    task,
    controlRow(...Object.values(controls)),
    ...tiles,
    make("div", {}, spoken),
    box,
    legendOf(
      [make("span", { class: "sdl-token sdl-accepted" }, "word"), " copied and accepted"],
      [make("span", { class: "sdl-token sdl-own" }, "word"), " added by the target"],
      "line: from the copy to its source; dashed: no token accepted",
    ),
  ];
  return panel(context, spec, layout, draw);
}

export default { render, formulas };

// The lookup explorer: prompt lookup replayed on a text that a target wrote, with an arc from every proposal to
// the place that it was copied from. Everything follows from the text and the settings.

const MOST_N = 5;
const MOST_GAMMA = 16;
const WASTE = 1; // the task: at most so many wasted tokens for each one written

const formulas = {
  // What a lookup finds at every place of the answer: order (tokens that matched) and source (where its copy begins,
  // -1: nothing found). A run is entered when its next token has been written.
  finds(ids, start, n, latest) {
    const places = new Map();
    const run = (end, order) => ids.slice(end - order, end).join(" ");
    const find = (at) => {
      for (let order = Math.min(n, at); order > 0; order--) {
        const source = places.get(run(at, order));
        if (source !== undefined) return { order, source };
      }
      return { order: 0, source: -1 };
    };
    const found = [];
    for (let end = 1; end < ids.length; end++) {
      if (end >= start) found[end] = find(end);
      for (let order = 1; order <= Math.min(n, end); order++) {
        const key = run(end, order);
        if (latest || !places.has(key)) places.set(key, end);
      }
    }
    return found;
  },

  // The rounds of a draft by lookup: at (the first new token), source and order, drafted and accepted.
  rounds(ids, start, n, gamma, latest, found = formulas.finds(ids, start, n, latest)) {
    const made = [];
    for (let at = start; at < ids.length;) {
      const { order, source } = found[at];
      const drafted = source < 0 ? 0 : Math.min(gamma, at - source, ids.length - at - 1);
      let accepted = 0;
      while (accepted < drafted && ids[source + accepted] === ids[at + accepted]) accepted++;
      made.push({ at, source, order, drafted, accepted });
      at += accepted + 1;
    }
    return made;
  },

  // τ over all rounds and over those that drafted, drafted tokens that were not used, rounds without a draft.
  counts(rounds) {
    const sum = (list, worth) => list.reduce((total, round) => total + worth(round), 0);
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

  // The largest τ of all settings that waste at most so many tokens for each one written.
  best(ids, start, waste) {
    let most = 0;
    for (let n = 1; n <= MOST_N; n++)
      for (const latest of [true, false]) {
        const found = formulas.finds(ids, start, n, latest);
        for (let gamma = 1; gamma <= MOST_GAMMA; gamma++) {
          const { wasted, tokens, tau } = formulas.counts(
            formulas.rounds(ids, start, n, gamma, latest, found),
          );
          if (wasted <= waste * tokens) most = Math.max(most, tau);
        }
      }
    return most;
  },
};

const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const joined = (tokens, from, to) => quoted(tokens.slice(from, to).join(""));

function sentence({ tokens }, rounds, place) {
  const { at, source, order, drafted, accepted } = rounds[place];
  const own = `The target writes ${joined(tokens, at + accepted, at + accepted + 1)}`;
  if (source < 0)
    return `Round ${place + 1}. No end of the text stood anywhere before. ${own} without a draft.`;
  const end = `the text ends in ${joined(tokens, at - order, at)}`;
  if (drafted === 0) return `Round ${place + 1}: ${end}. One token is left, so nothing is drafted. ${own}.`;
  const wasted = drafted - accepted;
  const fate =
    wasted === 0
      ? `all ${plural(accepted, "token")} accepted`
      : `${accepted} of ${plural(drafted, "token")} accepted, ${wasted} wasted`;
  return `Round ${place + 1}: ${end}, which stood ${at - source} tokens before. Copied from there: ${joined(tokens, source, source + drafted)}; ${fate}. ${own} next.`;
}

function taskState(text, counts, best) {
  const waste = counts.wasted / counts.tokens;
  if (waste > WASTE) return `Not yet: ${waste.toFixed(2)} wasted for each token written.`;
  if (counts.tau < best - 1e-9)
    return `Allowed, but another setting has a larger τ than ${counts.tau.toFixed(2)}.`;
  return `Solved: τ = ${counts.tau.toFixed(2)} with ${waste.toFixed(2)} wasted for each token written.`;
}

// The text as spans.
function write(box, tokens) {
  const spans = tokens.map((text) => make("span", {}, text));
  box.replaceChildren(...spans);
  return spans;
}

// Tells prompt, accepted copies and the target's own tokens apart, and marks the chosen round, what it was copied from
// and the end of the text that matched.
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

// Arcs of all rounds that drafted, over the text box that holds the spans: by round.
function drawArcs(box, spans, rounds) {
  box.querySelector(".sdl-arcs")?.remove();
  const frame = box.getBoundingClientRect();
  const middle = (span) => {
    const [rect] = span.getClientRects();
    return [rect.left - frame.left + box.scrollLeft + 4, rect.top - frame.top + box.scrollTop + 4];
  };
  const arc = ({ at, source }) => {
    const [[x1, y1], [x2, y2]] = [middle(spans[at]), middle(spans[source])];
    const lift = 14 + Math.min(60, Math.abs(x2 - x1) / 5);
    const bend =
      Math.abs(y2 - y1) < 8 ? [(x1 + x2) / 2, y1 - lift] : [Math.min(x1, x2) - lift / 2, (y1 + y2) / 2];
    return make("path", { d: `M${x1} ${y1}Q${bend[0]} ${bend[1]} ${x2} ${y2}` });
  };
  const arcs = rounds.map((round) => (round.drafted > 0 ? arc(round) : null));
  const svg = make("svg", { class: "sdl-arcs", "aria-hidden": "true" });
  svg.style.height = `${box.scrollHeight}px`;
  svg.append(...arcs.filter(Boolean));
  box.append(svg);
  return arcs;
}

// The chosen arc is strong, and above the others.
function choose(arcs, rounds, chosen) {
  rounds.forEach(({ drafted, accepted }, place) => {
    if (!arcs[place]) return;
    const kind = `sdl-arc ${accepted ? "sdl-arc-used" : "sdl-arc-wasted"}`;
    const isChosen = place === chosen;
    arcs[place].setAttribute("class", isChosen ? `${kind} sdl-arc-chosen` : kind);
    arcs[place].setAttribute("stroke-width", isChosen ? 3 : 1 + (1.5 * accepted) / drafted);
  });
  arcs[chosen]?.parentNode.append(arcs[chosen]);
}

function render({ model, el }) {
  const texts = model.get("texts") ?? [];
  if (texts.length === 0) {
    el.append(make("p", { class: "sdl" }, "Nothing was recorded."));
    return () => {};
  }
  const ids = ["text", "n", "gamma", "which", "round"].map((name) => newId(`lookup-${name}`));
  const set = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };
  const bests = new Map();
  const bestOf = (text) => {
    if (!bests.has(text)) bests.set(text, formulas.best(text.ids, text.start, WASTE));
    return bests.get(text);
  };
  const words =
    "find n, γ and the place to take, so that τ is as large as it gets while at most one token is wasted for each one written.";
  const { announce, silence, ...told } = narration(
    words,
    "Allowed, but another setting has a larger τ than 10.00.",
    150,
  );
  const pickText = menu(
    ids[0],
    texts.map(({ name }, value) => ({ value, label: name })),
    (value) => set("text", Number(value)),
  );
  const order = slider(ids[1], { min: 1, max: MOST_N, step: 1 }, (value) => set("n", value));
  const gamma = slider(ids[2], { min: 1, max: MOST_GAMMA, step: 1 }, (value) => set("gamma", value));
  const which = menu(
    ids[3],
    [
      { value: "latest", label: "the latest" },
      { value: "earliest", label: "the earliest" },
    ],
    (value) => set("latest", value === "latest"),
  );
  const round = slider(ids[4], { min: 1, step: 1 }, (value) => set("round", value - 1));
  const box = make("div", {
    class: "sdl-text sdl-lookup-text",
    tabindex: 0,
    role: "region",
    "aria-label": "The text, and where it was copied from",
  });
  box.addEventListener("click", ({ target }) => {
    const i = spans.indexOf(target);
    const picked = rounds.findIndex(({ at, accepted }) => i >= at && i <= at + accepted);
    if (picked >= 0) set("round", picked);
  });
  const numbers = make("dl", { class: "sdl-readouts" });
  const legend = [
    ["accepted", "copied, and accepted"],
    ["own", "the target's own"],
  ];
  const root = make(
    "section",
    { class: "sdl sdl-fates sdl-lookup", "aria-label": "Lookup explorer" },
    told.task,
    make(
      "div",
      { class: "sdl-lookup-controls" },
      field(ids[0], "Text", pickText),
      field(ids[1], "n, at most", order.output, order.input),
      field(ids[2], "γ", gamma.output, gamma.input),
      field(ids[3], "Of several places", which),
    ),
    numbers,
    field(ids[4], "Round", round.output, round.input),
    told.spoken,
    box,
    make(
      "ul",
      { class: "sdl-legend" },
      ...legend.map(([kind, label]) =>
        make("li", {}, make("span", { class: `sdl-token sdl-${kind}` }, "word"), ` ${label}`),
      ),
      make("li", {}, "line: a proposal and its source; dashed: all of it wasted"),
    ),
  );
  let [rounds, spans, arcs] = [[], [], []];
  const last = {}; // what was shown last: its text, the places of its words, its round
  const draw = () => {
    const text = texts[Math.min(model.get("text") ?? 0, texts.length - 1)];
    const settings = [model.get("n"), model.get("gamma"), model.get("latest")];
    rounds = formulas.rounds(text.ids, text.start, ...settings);
    const counts = formulas.counts(rounds);
    const place = Math.min(model.get("round") ?? 0, rounds.length - 1);
    pickText.value = String(texts.indexOf(text));
    which.value = settings[2] ? "latest" : "earliest";
    [order.input.value, order.output.textContent] = [settings[0], String(settings[0])];
    [gamma.input.value, gamma.output.textContent] = [settings[1], String(settings[1])];
    round.input.max = rounds.length;
    [round.input.value, round.output.textContent] = [place + 1, `${place + 1} of ${rounds.length}`];
    const share = (value) => (value === null ? "–" : value.toFixed(2));
    define(numbers, [
      ["τ, all rounds", share(counts.tau)],
      ["τ, drafting rounds only", share(counts.tauDrafting)],
      ["rounds without a draft", `${counts.empty} of ${counts.rounds}`],
      ["drafted tokens wasted", `${counts.wasted} for ${counts.tokens} written`],
    ]);
    if (last.text !== text) spans = write(box, text.tokens);
    mark(spans, text.start, rounds, rounds[place]);
    const places = JSON.stringify([text.name, settings, widthOf(box)]);
    if (last.places !== places) arcs = drawArcs(box, spans, rounds);
    choose(arcs, rounds, place);
    if (last.text !== text || last.round !== place)
      box.scrollTop = spans[rounds[place].at].offsetTop - box.clientHeight / 2;
    Object.assign(last, { text, places, round: place });
    announce(() => [sentence(text, rounds, place), taskState(text, counts, bestOf(text))]);
  };
  const events = ["text", "n", "gamma", "latest", "round"].map((name) => [`change:${name}`, draw]);
  const detach = attach({ model, el }, root, Object.fromEntries(events), draw);
  draw();
  return () => {
    detach();
    silence();
  };
}

export default { render, formulas };

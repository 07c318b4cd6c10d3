// The lookup explorer: prompt lookup replayed on a text that a target wrote, with an arc from every proposal to
// the place that it was copied from. Everything follows from the text and the settings.

const MOST_N = 5;
const MOST_GAMMA = 16;
const WASTE = 1; // the task: at most so many wasted tokens for each one written

const formulas = {
  // The rounds of a draft by lookup: at (the first new token), source (where its copy begins, -1: nothing found),
  // order (tokens that matched), drafted and accepted. A run is entered when its next token has been written.
  rounds(ids, start, n, gamma, latest) {
    const places = new Map();
    const run = (end, order) => ids.slice(end - order, end).join(" ");
    const enter = (end) => {
      for (let order = 1; order <= Math.min(n, end); order++) {
        const key = run(end, order);
        if (!places.has(key)) places.set(key, []);
        places.get(key).push(end);
      }
    };
    const find = (at) => {
      for (let order = Math.min(n, at); order > 0; order--) {
        const found = places.get(run(at, order));
        if (found) return { order, source: latest ? found.at(-1) : found[0] };
      }
      return { order: 0, source: -1 };
    };
    const made = [];
    for (let end = 1; end < start; end++) enter(end);
    for (let at = start; at < ids.length;) {
      const { order, source } = find(at);
      const drafted = source < 0 ? 0 : Math.min(gamma, at - source, ids.length - at - 1);
      let accepted = 0;
      while (accepted < drafted && ids[source + accepted] === ids[at + accepted]) accepted++;
      made.push({ at, source, order, drafted, accepted });
      for (let end = at; end <= at + accepted; end++) enter(end);
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
      for (let gamma = 1; gamma <= MOST_GAMMA; gamma++)
        for (const latest of [true, false]) {
          const found = formulas.counts(formulas.rounds(ids, start, n, gamma, latest));
          if (found.wasted <= waste * found.tokens) most = Math.max(most, found.tau);
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

// The text as spans: prompt, accepted copies, the target's own tokens. Returns them.
function write(box, { tokens, start }, rounds, pick) {
  const fates = new Map();
  rounds.forEach(({ at, accepted }, place) => {
    for (let i = 0; i <= accepted; i++) fates.set(at + i, [i < accepted ? "accepted" : "own", place]);
  });
  const spans = tokens.map((text, i) => {
    const [fate, place] = fates.get(i) ?? ["prompt", -1];
    const span = make("span", { class: i < start ? "sdl-prompt" : `sdl-token sdl-${fate}` });
    text.split("\n").forEach((line, k) => span.append(...(k ? ["\n"] : []), line));
    if (place >= 0) span.addEventListener("click", () => pick(place));
    return span;
  });
  box.replaceChildren(...spans);
  return spans;
}

// Arcs of all rounds that drafted, the chosen one strong, over the text box that holds the spans.
function drawArcs(box, spans, rounds, chosen) {
  const frame = box.getBoundingClientRect();
  const middle = (span) => {
    const [rect] = span.getClientRects();
    return [rect.left - frame.left + box.scrollLeft + 4, rect.top - frame.top + box.scrollTop + 4];
  };
  const arc = ({ at, source, drafted, accepted }, isChosen) => {
    const [[x1, y1], [x2, y2]] = [middle(spans[at]), middle(spans[source])];
    const lift = 14 + Math.min(60, Math.abs(x2 - x1) / 5);
    const bend =
      Math.abs(y2 - y1) < 8 ? [(x1 + x2) / 2, y1 - lift] : [Math.min(x1, x2) - lift / 2, (y1 + y2) / 2];
    return make("path", {
      d: `M${x1} ${y1}Q${bend[0]} ${bend[1]} ${x2} ${y2}`,
      class: `sdl-arc ${accepted ? "sdl-arc-used" : "sdl-arc-wasted"} ${isChosen ? "sdl-arc-chosen" : ""}`,
      "stroke-width": isChosen ? 3 : 1 + (1.5 * accepted) / Math.max(1, drafted),
    });
  };
  const drafting = rounds.filter(({ drafted }) => drafted > 0);
  const svg = make("svg", { class: "sdl-arcs", "aria-hidden": "true" });
  svg.style.height = `${box.scrollHeight}px`;
  svg.append(
    ...drafting.filter((round) => round !== chosen).map((round) => arc(round, false)),
    ...(chosen.drafted > 0 ? [arc(chosen, true)] : []),
  );
  box.append(svg);
}

function mark(spans, { at, source, order, drafted, accepted }) {
  spans.forEach((span, i) => {
    span.classList.toggle("sdl-here", i >= at && i <= at + accepted);
    span.classList.toggle("sdl-source", drafted > 0 && i >= source && i < source + drafted);
    span.classList.toggle("sdl-end", order > 0 && i >= at - order && i < at);
  });
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
  let spans = [];
  let shown = null;
  const draw = () => {
    const text = texts[Math.min(model.get("text") ?? 0, texts.length - 1)];
    const settings = [model.get("n"), model.get("gamma"), model.get("latest")];
    const rounds = formulas.rounds(text.ids, text.start, ...settings);
    const counts = formulas.counts(rounds);
    const place = Math.min(model.get("round") ?? 0, rounds.length - 1);
    spans = write(box, text, rounds, (picked) => set("round", picked));
    mark(spans, rounds[place]);
    drawArcs(box, spans, rounds, rounds[place]);
    const now = `${text.name} ${place}`;
    if (shown !== now) {
      const top = spans[rounds[place].at].offsetTop - box.clientHeight / 2;
      box.scrollTop = Math.max(0, top);
    }
    shown = now;
    pickText.value = String(texts.indexOf(text));
    which.value = settings[2] ? "latest" : "earliest";
    [order.input.value, order.output.textContent] = [settings[0], String(settings[0])];
    [gamma.input.value, gamma.output.textContent] = [settings[1], String(settings[1])];
    round.input.max = rounds.length;
    [round.input.value, round.output.textContent] = [place + 1, `${place + 1} of ${rounds.length}`];
    const share = (value) => (value === null ? "–" : value.toFixed(2));
    numbers.replaceChildren(
      ...definitions([
        ["τ, all rounds", share(counts.tau)],
        ["τ, drafting rounds only", share(counts.tauDrafting)],
        ["rounds without a draft", `${counts.empty} of ${counts.rounds}`],
        ["drafted tokens wasted", `${counts.wasted} for ${counts.tokens} written`],
      ]),
    );
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

// A race: two lanes fill the same text on one clock. Every pass appears at its recorded time.

const DEFAULTS = { races: [], about: "", race: 0, slow: false, autoplay: false };
const LANES = [
  ["plain", "Plain decoding"],
  ["speculative", "Speculative decoding"],
];
const SLOWNESS = 4;
const SWEEP = 1.2; // seconds of the comparison after the race
const BAND = 0.08; // share of the text that the comparison marks at a time
const LONGEST_FRAME = 0.25; // seconds; a hidden tab stands still

const formulas = {
  emitted: ({ words }) => words.filter(([kind]) => !DELETED.includes(kind)),
  textOf: (lane) => lane.flatMap((pass) => formulas.emitted(pass).map(([, text]) => text)).join(""),
  seconds: (lane) => lane.at(-1).at,
  tokens: (lane) => lane.reduce((sum, pass) => sum + formulas.emitted(pass).length, 0),
  // Passes that are complete at a time.
  passesAt: (lane, time) => lane.filter(({ at }) => at <= time).length,
  speedup: ({ lanes }) => formulas.seconds(lanes.plain) / formulas.seconds(lanes.speculative),
  isSame: ({ lanes }) => formulas.textOf(lanes.plain) === formulas.textOf(lanes.speculative),
  geometricMean: (values) => Math.exp(values.reduce((sum, x) => sum + Math.log(x), 0) / values.length),
  // The words that stay, in order: [[kind, text, index of the pass], …].
  wordsOf: (lane) => lane.flatMap((pass, i) => formulas.emitted(pass).map(([kind, text]) => [kind, text, i])),
  // The slowest and the quickest turn.
  range: ({ speedups }) => [Math.min(...speedups), Math.max(...speedups)],
};

const ratio = (x) => `${x.toFixed(2)}×`;
const clock = (seconds) => `${seconds.toFixed(2)} s`;
const faster = (x) => (x >= 1 ? `${ratio(x)} as fast` : `${Math.round(100 * (1 - x))} % slower`);

// What a finished race shows: [verdict, details].
function result(race) {
  const { plain, speculative } = race.lanes;
  const [low, high] = formulas.range(race).map(ratio);
  const count = race.speedups.length;
  const same = formulas.isSame(race) ? "the same text, word for word ✓" : "the texts differ by rounding ✗";
  return [
    `${faster(formulas.speedup(race))}, ${same}`,
    `${formulas.tokens(plain)} tokens: ${plain.length} passes of the target in ${clock(formulas.seconds(plain))}, or ` +
      `${speculative.length} passes and their drafts in ${clock(formulas.seconds(speculative))}. ` +
      (count > 1 ? `The ${count} timed turns gave ${low} to ${high}.` : "It was timed once."),
  ];
}

// What the verdict says at a time, before the race has finished.
function standing(race, time) {
  const [plain, speculative] = LANES.map(([name]) => formulas.seconds(race.lanes[name]));
  if (time >= Math.max(plain, speculative)) return `${faster(formulas.speedup(race))}. Comparing the words …`;
  if (time >= speculative) return "Speculative decoding has finished and waits.";
  if (time >= plain) return "Plain decoding has finished and waits.";
  return "The same model answers twice, at recorded speed.";
}

// The honest range over all texts.
function overall(races) {
  if (races.length < 2) return "";
  const all = races.map(formulas.speedup);
  const [slowest, quickest] = [Math.min(...all), Math.max(...all)];
  const kind = (x) => races[all.indexOf(x)].kind;
  return (
    `Over the ${races.length} kinds of text: from ${ratio(slowest)} (${kind(slowest)}) to ` +
    `${ratio(quickest)} (${kind(quickest)}), geometric mean ${ratio(formulas.geometricMean(all))}.`
  );
}

// A lane: its title with passes and time, its count, and its whole text in gray.
function laneOf(name, title) {
  const watch = make("small", { class: "sdl-race-watch" });
  const count = make("strong");
  const total = make("span");
  const text = make("p", { class: "sdl-race-text" });
  const node = make(
    "div",
    { class: `sdl-race-lane sdl-race-${name}` },
    make(
      "p",
      { class: "sdl-heading" },
      make("span", {}, title, " ", watch),
      make("span", { class: "sdl-race-count" }, count, " ", total),
    ),
    text,
  );
  return { name, watch, count, total, text, node, words: [], passes: -1 };
}

// Lays the whole text out. A word does not change its size later, so lines break the same in both lanes.
function layOut(part, lane) {
  part.words = formulas.wordsOf(lane).map(([kind, text, pass]) => ({
    pass,
    text,
    node: make("span", { class: `sdl-race-${kind === "accepted" ? "kept" : "own"}` }, text),
  }));
  lane.forEach(({ words }, pass) => {
    const guess = words.find(([kind]) => kind === "rejected");
    const own = part.words.findLast((word) => word.pass === pass);
    if (guess && own) own.node.dataset.guess = guess[1].trim();
  });
  part.text.replaceChildren(...part.words.map(({ node }) => node));
  part.total.textContent = `of ${plural(part.words.length, "token")}`;
  part.passes = -1;
}

// Fills the text of the passes that are complete; the newest pass shows the guess that it rejected.
function fill(part, lane, time) {
  const end = formulas.seconds(lane);
  const passes = formulas.passesAt(lane, time);
  part.watch.textContent = `${passes} ${passes === 1 ? "pass" : "passes"}, ${clock(Math.min(time, end))}`;
  if (passes === part.passes) return;
  part.passes = passes;
  let filled = 0;
  for (const { pass, node } of part.words) {
    node.classList.toggle("sdl-race-on", pass < passes);
    node.classList.toggle("sdl-race-now", pass === passes - 1 && passes < lane.length);
    filled += pass < passes ? 1 : 0;
  }
  part.count.textContent = filled;
  part.node.classList.toggle("sdl-race-done", passes === lane.length);
}

// Marks a band of both texts that moves to their end: green where the words are equal.
function compare(parts, share) {
  const [first, second] = parts.map(({ words }) => words);
  for (const { words } of parts)
    words.forEach(({ node, text }, i) => {
      const at = (share * (1 + BAND) * words.length - i) / words.length;
      const isNow = share < 1 && at > 0 && at < BAND;
      node.classList.toggle("sdl-race-equal", isNow && first[i]?.text === second[i]?.text && Boolean(text));
    });
}

// The parts of the panel, by name.
function panelOf(id, { races, about }, isCalm, controls) {
  const view = {
    verdict: make("p", { class: "sdl-summary sdl-race-verdict" }),
    spoken: make("p", { class: "sdl-hidden", "aria-live": "polite" }),
    request: make("p", { class: "sdl-race-request" }),
    parts: LANES.map(([name, title]) => laneOf(name, title)),
    details: make("p", { class: "sdl-race-details" }),
  };
  const key = make(
    "span",
    { class: "sdl-race-key" },
    make("span", { class: "sdl-race-kept sdl-race-on" }, "guessed and kept"),
    make("span", { class: "sdl-race-own sdl-race-on" }, "written by the large model"),
  );
  const label = make("label", { for: `${id}-text` }, "text ");
  const menuParts = races.length > 1 ? [make("span", { class: "sdl-row" }, label, controls.kinds)] : [];
  view.root = make(
    "section",
    { class: "sdl sdl-fates sdl-race", "aria-label": "A race of plain and speculative decoding" },
    make(
      "div",
      { class: "sdl-frame" },
      view.verdict,
      view.spoken,
      view.request,
      ...view.parts.map(({ node }) => node),
      make(
        "div",
        { class: "sdl-row sdl-race-controls" },
        ...controls.moves,
        ...(isCalm ? [] : [controls.slow]),
        ...menuParts,
        key,
      ),
      make(
        "details",
        { class: "sdl-race-about" },
        make("summary", {}, "How it was recorded"),
        view.details,
        make("p", {}, overall(races)),
        make("p", {}, about),
      ),
    ),
  );
  view.parts[1].node.classList.add("sdl-race-fast");
  return view;
}

function render({ model, el }) {
  const state = () => stateOf(model, DEFAULTS);
  const { races } = state();
  if (races.length === 0) return showNothing(el);
  const id = newId("race");
  const current = () => races[Math.min(races.length - 1, state().race)];
  const lanes = () => LANES.map(([name]) => current().lanes[name]);
  const end = () => Math.max(...lanes().map(formulas.seconds));
  let time = Infinity;
  let frame = 0;
  let before = 0;
  const isOver = () => time >= end() + (bar.isCalm ? 0 : SWEEP);
  const finish = () => goTo(Infinity);
  const tick = (now) => {
    const passed = Math.min(LONGEST_FRAME, (now - before) / 1000);
    time += passed / (state().slow && time < end() ? SLOWNESS : 1);
    before = now;
    if (isOver()) return finish();
    frame = requestAnimationFrame(tick);
    return draw();
  };
  const halt = () => {
    cancelAnimationFrame(frame);
    frame = 0;
  };
  const run = () => {
    if (isOver()) time = 0;
    before = performance.now();
    frame = requestAnimationFrame(tick);
    draw();
  };
  const goTo = (moment) => {
    halt();
    time = moment;
    draw();
  };
  const step = () => {
    const ends = lanes().flatMap((lane) => lane.map(({ at }) => at));
    const from = isOver() ? 0 : time;
    goTo(Math.min(...ends.filter((at) => at > from), Infinity));
  };
  const bar = moves(
    () => (frame ? goTo(time) : run()),
    step,
    () => goTo(0),
  );
  const slow = toggle("slow motion (¼)", () => assign(model, { slow: !state().slow }));
  const kinds = indexMenu(
    `${id}-text`,
    races.map(({ kind }) => ({ label: kind })),
    (race) => assign(model, { race }),
  );
  const view = panelOf(id, state(), bar.isCalm, { moves: bar.nodes, slow, kinds });
  function draw() {
    const race = current();
    const own = lanes();
    view.parts.forEach((part, i) => fill(part, own[i], time));
    compare(view.parts, Math.max(0, (time - end()) / SWEEP));
    const [verdict, details] = result(race);
    view.verdict.textContent = isOver() ? verdict : standing(race, time);
    view.spoken.textContent = isOver() ? verdict : "";
    view.details.textContent = details;
    bar.playing.textContent = frame ? "Pause" : "Play";
  }
  const change = () => {
    kinds.value = races.indexOf(current());
    view.request.replaceChildren(
      make("span", { class: "sdl-hidden" }, "Request: "),
      `“${current().request}”`,
    );
    view.parts.forEach((part, i) => layOut(part, lanes()[i]));
    finish();
  };
  const press = () => {
    slow.setAttribute("aria-pressed", String(state().slow));
    view.root.classList.toggle("sdl-race-slow", bar.isCalm || state().slow);
  };
  const detach = attach({ model, el }, view.root, { "change:race": change, "change:slow": press }, draw);
  addEventListener("beforeprint", finish);
  press();
  change();
  if (state().autoplay && !bar.isCalm) run();
  return () => {
    cancelAnimationFrame(frame);
    removeEventListener("beforeprint", finish);
    detach();
  };
}

export default { render, formulas: { ...formulas, result, standing, overall } };

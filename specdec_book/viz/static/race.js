// The race: two lanes on one clock. Above, a pass of the large model writes one word; below, a pass of the same width
// checks several guesses. Words are the same elements from guess to text. The first seconds are slow, the rest has the
// recorded speed.

const NAMES = ["races", "about", "race", "autoplay"];
const LANES = [
  ["plain", "The large model alone"],
  ["speculative", "With a helper that guesses"],
];
const PASS = 0.9; // seconds of a pass of the large model in slow motion
const SLOW = 9; // seconds of slow motion
const HOLD = 4; // seconds for which the end is shown before it begins again
const VIEWED = 1000; // milliseconds in view before it starts
const LONGEST_FRAME = 0.25; // seconds; a hidden tab stands still
const DECIDE = 120; // milliseconds between the verdicts on two guesses

const formulas = {
  emitted: ({ words }) => words.filter(([kind]) => !DELETED.includes(kind)),
  guesses: ({ words }) => words.filter(([kind]) => ["accepted", ...DELETED].includes(kind)),
  textOf: (lane) => lane.flatMap((pass) => formulas.emitted(pass).map(([, text]) => text)).join(""),
  seconds: (lane) => lane.at(-1).at,
  tokens: (lane) => sum(lane, (pass) => formulas.emitted(pass).length),
  // Passes that are complete at a time.
  passesAt: (lane, time) => lane.filter(({ at }) => at <= time).length,
  speedup: ({ lanes }) => formulas.seconds(lanes.plain) / formulas.seconds(lanes.speculative),
  isSame: ({ lanes }) => formulas.textOf(lanes.plain) === formulas.textOf(lanes.speculative),
  geometricMean: (values) => Math.exp(sum(values, Math.log) / values.length),
  // Recorded seconds of a pass of the large model over one word.
  pass: ({ lanes: { plain } }) => formulas.seconds(plain) / plain.length,
  // How many times slower than recorded the slow motion is.
  slowness: (race) => PASS / formulas.pass(race),
  // The recorded time after so many seconds of the film.
  recorded: (race, film) => Math.min(film, SLOW) / formulas.slowness(race) + Math.max(0, film - SLOW),
  // The share of the large model's pass that is done at a time: a round begins with its guesses.
  share(race, lane, time) {
    const i = formulas.passesAt(lane, time);
    if (i === lane.length) return 1;
    const [start, end] = [lane[i - 1]?.at ?? 0, lane[i].at];
    const length = Math.min(formulas.pass(race), end - start);
    return Math.max(0, 1 - (end - time) / length);
  },
  // A round of the lower lane as "One round, slowly" shows it: greedy, so the large model has one word at each position.
  roundOf(race, i) {
    const lane = race.lanes.speculative;
    const last = formulas.emitted(lane[i]).at(-1);
    const isRejected = lane[i].words.some(([each]) => each === "rejected");
    const guesses = formulas // a kept guess may end the text
      .guesses(lane[i])
      .filter((word) => word !== last && (isRejected || word[0] === "accepted"));
    const [kind, own] = [last[0] === "accepted" ? "bonus" : last[0], last[1]];
    const accepted = guesses.filter(([each]) => each === "accepted").length;
    const test = (kept) => [{ word: 0, q: null, u: null, kept }];
    const rows = guesses.map(([each, word]) =>
      each === "rejected"
        ? { words: [word, own], p: [0, 1], tests: test(false) }
        : { words: [word], p: [1], tests: test(each === "accepted" ? true : null) },
    );
    if (!isRejected) rows.push({ words: [own], p: [1], tests: [] });
    const token = { kind, word: Number(isRejected), u: null };
    const before = formulas.textOf(lane.slice(0, i)) || `${race.request.split("\n\n")[0]} ▸`;
    return { before, rows, accepted, token, context: 0, caches: { target: [0, 0, 0], draft: null } };
  },
};

const clock = (seconds) => `${seconds.toFixed(2)} s`;

// What a finished race shows: [verdict, details].
function result(race) {
  const { plain, speculative } = race.lanes;
  const [low, high] = [Math.min, Math.max].map((end) => times(end(...race.speedups)));
  const count = race.speedups.length;
  const same = formulas.isSame(race) ? "the same text, word for word ✓" : "the texts differ by rounding ✗";
  const ways = [
    `${formulas.tokens(plain)} tokens: ${plain.length} passes of the large model in ${clock(formulas.seconds(plain))}, or`,
    `${speculative.length} passes and their guesses in ${clock(formulas.seconds(speculative))}.`,
    count > 1 ? `The ${count} timed turns gave ${low} to ${high}.` : "It was timed once.",
  ];
  return [`${faster(formulas.speedup(race))}, ${same}`, ways.join(" ")];
}

// What the verdict says after so many seconds of the film, before the race has finished.
function standing(race, film) {
  const time = formulas.recorded(race, film);
  const [plain, speculative] = LANES.map(([name]) => formulas.seconds(race.lanes[name]));
  const first = speculative < plain ? "With the helper it" : "The large model alone";
  if (time >= Math.min(plain, speculative) && plain !== speculative)
    return `${first} has finished, and waits.`;
  return film < SLOW
    ? `One model, one clock, ${formulas.slowness(race).toFixed(0)} times slower than recorded.`
    : "Now at the recorded speed.";
}

// The honest range over all texts.
function overall(races) {
  if (races.length < 2) return "";
  const all = races.map(formulas.speedup);
  const [slowest, quickest] = [Math.min(...all), Math.max(...all)];
  const kind = (x) => races[all.indexOf(x)].kind;
  const range = `from ${times(slowest)} (${kind(slowest)}) to ${times(quickest)} (${kind(quickest)})`;
  return `Over the ${races.length} kinds of text: ${range}, geometric mean ${times(formulas.geometricMean(all))}.`;
}

const flat = (text) => text.replaceAll(/\n\s*/g, "⏎");
const wordOf = ([kind, text]) =>
  make("span", { class: kind === "accepted" ? "sdl-race-kept" : "sdl-race-own" }, flat(text));

// A lane: its count, the text so far, what the large model works on, and a brick for every pass.
function laneOf(name, title) {
  const count = make("strong");
  const total = make("span");
  const text = make("div");
  const slots = make("div", { class: "sdl-race-slots" });
  const bar = make("i");
  const bricks = make("div", { class: "sdl-race-bricks", role: "group", "aria-label": `Passes: ${title}` });
  const passes = make("small");
  const region = { class: "sdl-race-text", tabindex: 0, role: "region", "aria-label": `Text: ${title}` };
  const words = make("span", { class: "sdl-race-label" }, "one pass of the large model");
  const counts = make("span", { class: "sdl-race-count" }, count, " ", total);
  const pass = make("div", { class: "sdl-race-bar" }, bar, words);
  const work = make("div", { class: "sdl-race-work", "aria-hidden": "true" }, slots, pass);
  const node = make(
    "div",
    { class: `sdl-race-lane sdl-race-${name}` },
    make("p", { class: "sdl-heading" }, make("span", {}, title), counts),
    make("div", region, text),
    make("div", { class: "sdl-race-stage" }, work, make("div", {}, bricks, passes)),
  );
  return { name, node, count, total, text, slots, bar, bricks, passes, done: -1, next: -1 };
}

// Puts the guesses of a pass and an empty slot above the bar.
function setOut(part, pass, isMoving) {
  const leaving = [...part.slots.querySelectorAll(".sdl-race-falls")];
  part.chips = pass ? formulas.guesses(pass).map(([, text]) => make("span", {}, flat(text))) : [];
  part.slot = make("span", { class: "sdl-race-slot" });
  part.chips.forEach((chip, i) => {
    chip.className = `sdl-race-chip${isMoving ? " sdl-race-pops" : ""}`;
    chip.style.animationDelay = `${80 + 60 * i}ms`;
  });
  part.slots.replaceChildren(...leaving, ...part.chips, ...(pass ? [part.slot] : []));
}

// The words of a pass in a box of their own.
const boxOf = (i, words) => make("span", { class: "sdl-race-pass", "data-pass": i }, ...words);

function brickOf(part, { words }, i) {
  const kept = words.filter(([kind]) => kind === "accepted").length;
  const label = `Pass ${i + 1}: ${kept ? `${plural(kept, "guess", "guesses")} kept, ` : ""}${quoted(words.at(-1)[1])} written`;
  const about = { class: "sdl-race-brick", "data-pass": i, "aria-label": label, tabindex: i ? -1 : 0 };
  return make("button", { type: "button", ...about });
}

const TIMING = { duration: 420, easing: "cubic-bezier(0.3, 0, 0.2, 1)", fill: "backwards" };
const placeOf = (node) => node.getBoundingClientRect();
const move = ({ left, top }, to) => `translate(${left - to.left}px, ${top - to.top}px)`;
const fly = (node, transform, delay = 0) =>
  node.animate([{ transform }, { transform: "none" }], { ...TIMING, delay });

// Shows the words of the first `done` passes without movement; those that are shown already stay.
function add(part, lane, done) {
  const start = part.done > done ? 0 : Math.max(0, part.done);
  if (!start) for (const node of [part.text, part.bricks, part.slots]) node.replaceChildren();
  for (let i = start; i < done; i++) part.text.append(boxOf(i, formulas.emitted(lane[i]).map(wordOf)), " ");
}

// Shows a brick per pass; the last bar becomes the last brick.
function land(part, lane, done, isSlow) {
  const bar = placeOf(part.bar.parentElement);
  for (let i = part.bricks.childElementCount; i < done; i++) part.bricks.append(brickOf(part, lane[i], i));
  if (!isSlow || !done) return;
  const brick = part.bricks.lastChild;
  brick.classList.add("sdl-race-lands"); // without a border, which would be stretched
  const end = placeOf(brick);
  const scale = `scale(${bar.width / end.width}, ${bar.height / end.height})`;
  fly(brick, `${move(bar, end)} ${scale}`).onfinish = () => brick.classList.remove("sdl-race-lands");
}

// Completes the pass i: kept guesses fly into the text, the others fall, and the large model's own word rises.
function complete(part, lane, i) {
  const guesses = formulas.guesses(lane[i]);
  const nodes = [...part.chips, part.slot];
  const starts = nodes.map(placeOf);
  const places = nodes.map(({ offsetLeft, offsetTop }) => [offsetLeft, offsetTop]);
  const box = boxOf(i, []);
  const decided = guesses.findIndex(([kind]) => kind !== "accepted");
  part.chips.forEach((chip, k) => {
    chip.style.animationDelay = "";
    if (guesses[k][0] === "accepted") {
      chip.className = "sdl-race-kept sdl-race-flies";
      return box.append(chip);
    }
    chip.className = `sdl-race-chip sdl-race-falls${guesses[k][0] === "rejected" ? " sdl-race-wrong" : ""}`;
    [chip.style.left, chip.style.top] = places[k].map((at) => `${at}px`);
    chip.style.width = `${starts[k].width}px`;
    chip.style.animationDelay = `${DECIDE * decided}ms`;
    chip.addEventListener("animationend", () => chip.remove());
  });
  const own = formulas.emitted(lane[i]).at(-1);
  const hasOwn = own[0] !== "accepted"; // a kept guess may end the text
  if (hasOwn) box.append(wordOf(own));
  box.lastChild.classList.add("sdl-race-flies");
  part.text.append(box, " ");
  const flying = [...box.children];
  const from = hasOwn ? [...starts.slice(0, flying.length - 1), starts.at(-1)] : starts;
  const ends = flying.map(placeOf);
  const orderOf = (k) => (k === flying.length - 1 && decided >= 0 ? decided + 1 : k);
  flying.forEach((node, k) => fly(node, move(from[k], ends[k]), DECIDE * orderOf(k)));
}

// Shows a lane at a time. While it plays, a frame does one thing: the words of a pass move in one, and the guesses of
// the next, which only slow motion shows, come in another; a busy frame only fills the bar. Returns whether the frame
// is busy.
function show(part, race, time, isRunning, isSlow, isBusy) {
  const lane = race.lanes[part.name];
  const done = formulas.passesAt(lane, time);
  part.bar.style.transform = `scaleX(${formulas.share(race, lane, time)})`;
  if (part.next === done || isBusy) return isBusy;
  if (part.done !== done) {
    if (isSlow && part.done >= 0 && done === part.done + 1) complete(part, lane, part.done);
    else add(part, lane, done);
    part.done = done;
    if (isRunning) return true;
  }
  part.next = done;
  land(part, lane, done, isSlow);
  if (isSlow || !isRunning) setOut(part, lane[done], isSlow);
  else part.slots.replaceChildren();
  setText(part.count, String(formulas.tokens(lane.slice(0, done))));
  setText(part.passes, plural(done, "pass", "passes"));
  part.node.classList.toggle("sdl-race-done", done === lane.length);
  return isRunning;
}

// The parts of the panel, by name.
function panelOf(id, { races, about }, controls) {
  const view = {
    verdict: make("p", { class: "sdl-summary sdl-race-verdict" }),
    spoken: make("p", { class: "sdl-hidden", "aria-live": "polite" }),
    request: make("div", { class: "sdl-race-request" }),
    parts: LANES.map(([name, title]) => laneOf(name, title)),
    details: make("p", { class: "sdl-race-details" }),
  };
  const label = make("label", { for: `${id}-text` }, "text ");
  const menuParts = races.length > 1 ? [make("span", { class: "sdl-row" }, label, controls.kinds)] : [];
  const marks = {
    "sdl-race-kept": "guessed and kept",
    "sdl-race-chip sdl-race-wrong": "thrown away",
    "sdl-race-own": "written by the large model",
  };
  const meanings = Object.entries(marks).map(([name, words]) => make("span", { class: name }, words));
  const key = make("span", { class: "sdl-race-key" }, ...meanings);
  const recording = [view.details, make("p", {}, overall(races)), make("p", {}, about)];
  const fold = foldOf("How it was recorded", ...recording);
  fold.className = "sdl-race-about";
  const lanes = view.parts.map(({ node }) => node);
  const bar = make("div", { class: "sdl-row sdl-race-controls" }, ...controls.moves, ...menuParts, key);
  const parts = [view.verdict, view.spoken, view.request, ...lanes, bar, fold];
  const attributes = {
    class: "sdl sdl-fates sdl-race",
    "aria-label": "A race of plain and speculative decoding",
  };
  view.root = make("section", attributes, make("div", { class: "sdl-frame" }, ...parts));
  return view;
}

function render({ model, el }) {
  const state = () => valuesOf(model, NAMES);
  const { races } = state();
  if (races.length === 0) return showNothing(el);
  const id = newId("race");
  const current = () => races[Math.min(races.length - 1, state().race)];
  const lanes = () => LANES.map(([name]) => current().lanes[name]);
  // Seconds of the film at the end of the race, and after so much of the recording.
  const filmOf = (time) => {
    const slow = time * formulas.slowness(current());
    return slow <= SLOW ? slow : SLOW + time - SLOW / formulas.slowness(current());
  };
  const end = () => filmOf(Math.max(...lanes().map(formulas.seconds)));
  let [film, frame, before, timer, verdict] = [Infinity, 0, 0, 0, ""];
  let isTouched = false;
  const isOver = () => film >= end();
  const tick = (now) => {
    film += Math.min(LONGEST_FRAME, (now - before) / 1000);
    before = now;
    if (isOver()) {
      goTo(Infinity);
      if (!isTouched) timer = setTimeout(run, 1000 * HOLD);
      return;
    }
    frame = requestAnimationFrame(tick);
    draw();
  };
  const halt = () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    frame = 0;
  };
  const run = () => {
    halt();
    if (isOver()) {
      film = 0;
      draw();
    }
    before = performance.now();
    frame = requestAnimationFrame(tick);
    draw();
  };
  const goTo = (moment) => {
    halt();
    film = moment;
    draw();
  };
  const step = () => {
    const ends = lanes().flatMap((lane) => lane.map(({ at }) => filmOf(at) + 1e-6));
    const from = isOver() ? 0 : film;
    goTo(Math.min(...ends.filter((at) => at > from), Infinity));
  };
  const play = () => (frame ? goTo(film) : run());
  const bar = moves(play, step, () => goTo(0));
  const options = races.map(({ kind: label }, value) => ({ value, label }));
  const kinds = menu(`${id}-text`, options, (race) => assign(model, { race: Number(race) }));
  const view = panelOf(id, state(), { moves: bar.nodes, kinds });
  function draw() {
    const race = current();
    const isRunning = frame > 0;
    const isSlow = film < SLOW && isRunning;
    const time = formulas.recorded(race, film);
    view.parts.reduce((isBusy, part) => show(part, race, time, isRunning, isSlow, isBusy), false);
    view.root.classList.toggle("sdl-race-runs", isRunning);
    const words = isOver() ? verdict : standing(race, film);
    setText(view.verdict, words);
    setText(view.spoken, isOver() ? verdict : "");
    setText(bar.playing, frame ? "Pause" : "Play");
  }
  const change = () => {
    [verdict, view.details.textContent] = result(current());
    kinds.value = races.indexOf(current());
    const [line, ...text] = current().request.split("\n\n");
    const shown = text.length ? foldOf(`“${line}”`, text.join("\n\n")) : `“${line}”`;
    view.request.replaceChildren(hidden("Request: "), shown);
    view.parts.forEach((part) => {
      part.done = part.next = -1;
      part.total.textContent = `of ${formulas.tokens(current().lanes[part.name])} tokens`;
    });
    goTo(Infinity);
  };
  // The round of a pass, opened in "One round, slowly" if the page has it; a word of the upper lane leads to its round.
  const open = (event) => {
    const passed = event.target.closest("[data-pass]");
    if (!passed) return;
    let i = Number(passed.dataset.pass);
    if (passed.closest(".sdl-race-plain")) {
      let words = 0;
      i = current().lanes.speculative.findIndex((pass) => (words += formulas.emitted(pass).length) > i);
    }
    if (i >= 0) dispatchEvent(new CustomEvent("sdl-round", { detail: formulas.roundOf(current(), i) }));
  };
  const steer = (event) => {
    const all = [...(event.target.closest(".sdl-race-bricks")?.children ?? [])];
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = all[all.indexOf(event.target) + by];
    if (!next) return;
    event.preventDefault();
    [event.target.tabIndex, next.tabIndex] = [-1, 0];
    next.focus();
  };
  const touch = () => {
    isTouched = true;
    clearTimeout(timer);
  };
  view.root.addEventListener("click", open);
  view.root.addEventListener("keydown", steer);
  for (const event of ["pointerdown", "keydown"]) view.root.addEventListener(event, touch);
  const detach = attach({ model, el }, view.root, {}, draw);
  const choose = () => {
    change();
    if (!bar.isCalm) run();
  };
  model.on("change:race", choose);
  const finish = () => goTo(Infinity);
  addEventListener("beforeprint", finish);
  change();
  const watcher = new IntersectionObserver(
    ([entry]) => {
      clearTimeout(timer);
      if (entry.isIntersecting && !isTouched && !frame) timer = setTimeout(run, VIEWED);
    },
    { threshold: 0.6 },
  );
  if (state().autoplay && !bar.isCalm) watcher.observe(view.root);
  return () => {
    halt();
    watcher.disconnect();
    removeEventListener("beforeprint", finish);
    model.off("change:race", choose);
    detach();
  };
}

export default { render, formulas: { ...formulas, result, standing, overall } };

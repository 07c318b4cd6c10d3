// A race: two lanes write the same text on one clock. Every pass appears at its recorded time.

const DEFAULTS = { races: [], about: "", race: 0, slow: false, autoplay: false };
const LANES = [
  ["plain", "plain decoding"],
  ["speculative", "speculative decoding"],
];
const LEGEND = [
  ["accepted", "accepted"],
  ["rejected", "rejected"],
  ["recovered", "recovered"],
  ["bonus", "bonus"],
];
const SLOWNESS = 4;
const TALLEST = 36; // px of the bar of the pass with the most tokens

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
  // The slowest and the quickest turn.
  range: ({ speedups }) => [Math.min(...speedups), Math.max(...speedups)],
};

const ratio = (x) => `${x.toFixed(2)}×`;
const clock = (seconds) => `${seconds.toFixed(2)} s`;
const faster = (x) => (x >= 1 ? `${ratio(x)} as fast` : `${ratio(x)} as fast: slower`);

// What a finished race shows: [headline, details].
function result(race) {
  const { plain, speculative } = race.lanes;
  const [low, high] = formulas.range(race).map(ratio);
  const count = race.speedups.length;
  const same = formulas.isSame(race) ? "identical ✓" : "the texts differ by rounding ✗";
  return [
    `${faster(formulas.speedup(race))}, ${same}`,
    `${formulas.tokens(plain)} tokens: ${plain.length} passes of the target in ${clock(formulas.seconds(plain))}, or ` +
      `${speculative.length} passes and their drafts in ${clock(formulas.seconds(speculative))}. ` +
      (count > 1 ? `The ${count} timed turns gave ${low} to ${high}.` : "It was timed once."),
  ];
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

// A lane of the picture: its title with a stopwatch, its text, and one bar per pass.
function laneOf(name, title) {
  const watch = make("span", { class: "sdl-race-watch" });
  const inner = make("div");
  const about = { tabindex: 0, role: "region", "aria-label": `Text of ${title}` };
  const box = make("div", { class: "sdl-text", ...about }, inner);
  const svg = make("svg", { role: "img", class: "sdl-race-passes" });
  const legend = LEGEND.map(([kind, words]) => tokenNode(kind, words));
  const node = make(
    "div",
    { class: `sdl-race-lane sdl-race-${name}` },
    make(
      "p",
      { class: "sdl-heading" },
      title,
      " ",
      watch,
      ...(name === "plain" ? [] : [make("small", { class: "sdl-race-legend" }, ...legend)]),
    ),
    box,
    svg,
  );
  return { name, title, watch, inner, svg, node, shown: -1 };
}

function passNode({ words }, isNewest) {
  const emitted = words.filter(([kind]) => !DELETED.includes(kind));
  const deleted = isNewest ? words.filter(([kind]) => kind === "rejected") : [];
  const shown = [...emitted, ...deleted].filter(([, text]) => text);
  return make("span", {}, ...shown.map(([kind, text]) => tokenNode(kind, text)));
}

// Shows the passes up to `count`, appending to what the lane already shows.
function showPasses(part, lane, count) {
  if (count === part.shown) return;
  if (count < part.shown || part.shown < 0) part.inner.replaceChildren();
  else part.inner.lastChild?.remove(); // the newest pass loses its rejected drafts
  for (let i = part.inner.childElementCount; i < count; i++)
    part.inner.append(passNode(lane[i], i === count - 1 && count < lane.length));
  part.shown = count;
}

// One bar per pass at the time when the pass ended, as high as the tokens that it emitted.
function drawPasses(part, lane, time, span, most) {
  const [width, height] = [Math.max(240, widthOf(part.svg) || 480), TALLEST + 8];
  const x = (seconds) => 2 + ((width - 6) * seconds) / span;
  part.svg.setAttribute("height", height);
  part.svg.replaceChildren(
    make("line", { x1: 0, x2: width, y1: height - 1, y2: height - 1, class: "sdl-axis" }),
  );
  lane.slice(0, part.shown).forEach((pass) => {
    const tall = (TALLEST * formulas.emitted(pass).length) / most;
    part.svg.append(
      make("rect", {
        x: x(pass.at) - 1.25,
        y: height - 1 - tall,
        width: 2.5,
        height: tall,
        fill: `var(--sdl-${part.name === "plain" ? "muted" : "target"})`,
      }),
    );
  });
  const now = Math.min(time, span);
  part.svg.append(
    make("line", { x1: x(now), x2: x(now), y1: 0, y2: height, stroke: "var(--sdl-ink)", "stroke-width": 1 }),
  );
  part.svg.setAttribute(
    "aria-label",
    `${part.title}: ${part.shown} of ${lane.length} passes, in ${clock(Math.min(time, formulas.seconds(lane)))}.`,
  );
}

function render({ model, el }) {
  const state = () => stateOf(model, DEFAULTS);
  const { races } = state();
  if (races.length === 0) return showNothing(el);
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const id = newId("race");
  const ends = races.map(({ lanes }) => Math.max(...LANES.map(([name]) => formulas.seconds(lanes[name]))));
  const most = Math.max(
    ...races.flatMap(({ lanes }) => lanes.speculative.map((pass) => formulas.emitted(pass).length)),
  );
  const current = () => races[Math.min(races.length - 1, state().race)];
  const end = () => ends[races.indexOf(current())];
  let time = Infinity;
  let frame = 0;
  let before = 0;
  const stop = () => {
    cancelAnimationFrame(frame);
    frame = 0;
    start.textContent = "Race again";
  };
  const finish = () => {
    time = Infinity;
    stop();
    draw();
  };
  const tick = (now) => {
    time += (now - before) / 1000 / (state().slow ? SLOWNESS : 1);
    before = now;
    if (time >= end() || document.hidden) return finish();
    draw();
    frame = requestAnimationFrame(tick);
    return undefined;
  };
  const run = () => {
    cancelAnimationFrame(frame);
    if (isCalm) return finish();
    start.textContent = "Show the end";
    time = 0;
    before = performance.now();
    frame = requestAnimationFrame(tick);
    return undefined;
  };
  const start = button("Race", () => (frame ? finish() : run()));
  const slow = button("slow motion (¼)", () => assign(model, { slow: !state().slow }));
  const kinds = indexMenu(
    `${id}-text`,
    races.map(({ kind }) => ({ label: kind })),
    (race) => assign(model, { race }),
  );
  const request = make("p", { class: "sdl-race-request sdl-prompt" });
  const parts = LANES.map(([name, title]) => laneOf(name, title));
  const headline = make("strong", { class: "sdl-race-headline" });
  const details = make("span");
  const verdict = make(
    "p",
    { class: "sdl-summary sdl-race-verdict", "aria-live": "polite" },
    headline,
    " ",
    details,
  );
  const { about } = state();
  const root = make(
    "section",
    { class: "sdl sdl-fates sdl-race", "aria-label": "A race of plain and speculative decoding" },
    make(
      "div",
      { class: "sdl-frame" },
      make(
        "div",
        { class: "sdl-row" },
        start,
        ...(isCalm ? [] : [slow]),
        ...(races.length > 1 ? [make("label", { for: `${id}-text` }, "text "), kinds] : []),
      ),
      request,
      ...parts.map(({ node }) => node),
      verdict,
      make("p", { class: "sdl-race-about" }, make("small", {}, overall(races))),
      phoneFold("How it was recorded", { class: "sdl-race-about" }, draw, make("small", {}, about)),
    ),
  );
  function draw() {
    const race = current();
    const isDone = time >= end();
    parts.forEach((part) => {
      const lane = race.lanes[part.name];
      const own = Math.min(time, formulas.seconds(lane));
      showPasses(part, lane, formulas.passesAt(lane, own));
      part.watch.textContent = `${clock(own)}${own === formulas.seconds(lane) ? " ✓" : ""}`;
      drawPasses(part, lane, time, end(), most);
    });
    const words = isDone ? result(race) : ["", ""];
    if (headline.textContent !== words[0]) [headline.textContent, details.textContent] = words;
  }
  const change = () => {
    const race = current();
    kinds.value = races.indexOf(race);
    request.textContent = race.request;
    parts.forEach((part) => {
      part.shown = -1;
    });
    finish();
  };
  const press = () => slow.setAttribute("aria-pressed", String(state().slow));
  const detach = attach({ model, el }, root, { "change:race": change, "change:slow": press }, draw);
  const watcher = new IntersectionObserver(
    ([entry]) => {
      if (!entry.isIntersecting) return;
      watcher.disconnect();
      if (!frame) run();
    },
    { threshold: 0.6 },
  );
  press();
  change();
  start.textContent = "Race";
  if (state().autoplay && !isCalm) watcher.observe(root);
  return () => {
    cancelAnimationFrame(frame);
    watcher.disconnect();
    detach();
  };
}

export default { render, formulas: { ...formulas, result, overall } };

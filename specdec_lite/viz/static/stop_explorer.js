// The stop explorer: a recorded text, the drafts of every place of it, and a policy that ends them.

const NAMES = {
  constant: "a constant length",
  heuristic: "two more, one less",
  confidence: "stop when unsure",
  entropy: "stop at high entropy",
  oracle: "an oracle",
};
const PLAIN = 1; // the speed of plain decoding: tokens per target pass

const formulas = {
  // Tokens that are drafted at a place, of at most `most`.
  drafted({ q, h, right }, policy, settings, most) {
    const upTo = (stops) => {
      const at = stops.findIndex(Boolean);
      return Math.min(most, at < 0 ? stops.length : at + 1);
    };
    if (policy === "oracle") return Math.min(most, right);
    if (policy === "confidence") return upTo(q.map((value) => value < settings.threshold));
    if (policy === "entropy") return upTo(h.map((value) => value > settings.nats));
    return Math.min(most, settings.length);
  },

  // The rounds of the whole text: { place, drafted, accepted }.
  rounds(places, policy, settings) {
    const longestDraft = Math.max(...places.map(({ q }) => q.length));
    const found = [];
    let place = 0;
    let length = Math.min(settings.length, longestDraft);
    while (place < places.length) {
      const most = Math.min(places[place].q.length, places.length - place - 1);
      const drafted = formulas.drafted(places[place], policy, { ...settings, length }, most);
      const accepted = Math.min(places[place].right, drafted);
      found.push({ place, drafted, accepted });
      if (policy === "heuristic" && drafted > 0)
        length = accepted === drafted ? Math.min(longestDraft, length + 2) : Math.max(1, length - 1);
      place += accepted + 1;
    }
    return found;
  },

  // Tokens per unit of time, a target pass being one and a drafted token `cost`.
  speed(places, policy, settings) {
    const rounds = formulas.rounds(places, policy, settings);
    const drafted = rounds.reduce((sum, round) => sum + round.drafted, 0);
    return places.length / (rounds.length + settings.cost * drafted);
  },

  // The best constant length and its speed.
  bestConstant(places, cost) {
    const longestDraft = Math.max(...places.map(({ q }) => q.length));
    const all = Array.from({ length: longestDraft }, (_, i) => ({
      length: i + 1,
      speed: formulas.speed(places, "constant", { length: i + 1, cost }),
    }));
    return all.reduce((best, one) => (one.speed > best.speed ? one : best));
  },
};

const times = (value) => `${value.toFixed(2)}×`;

// One bar a place: how sure the draft is of its first token there; below, where each round's draft reached. The bars
// stand; returns what shows rounds.
function newStrip(svg, words, places) {
  const [left, top, height] = [4, 6, 74];
  const foot = top + height;
  const bars = places.map(({ q, right }, place) => {
    const sure = q[0] ?? 0;
    const tall = Math.max(1, height * sure);
    const fate = right > 0 ? "kept" : "refused";
    const colour = right > 0 ? "var(--sdl-accepted)" : "var(--sdl-rejected)";
    const title = make("title", {}, `${quoted(words[place])}: ${sure.toFixed(2)}, ${fate}`);
    const fill = right > 0 ? colour : "var(--sdl-surface)";
    return make("rect", { y: foot - tall, height: tall, fill, stroke: colour }, title);
  });
  const axis = make("line", { class: "sdl-axis", x1: left, y1: foot + 0.5, y2: foot + 0.5 });
  const kept = make("path", { stroke: "var(--sdl-accepted)", "stroke-width": 4 });
  const dashes = { "stroke-width": 3, "stroke-dasharray": "3 2" };
  const wasted = make("path", { stroke: "var(--sdl-rejected)", ...dashes });
  const dots = { "stroke-width": 5, "stroke-linecap": "round" };
  const own = make("path", { stroke: "var(--sdl-target)", ...dots });
  svg.append(axis, ...bars, kept, wasted, own);
  let drawn = 0;
  return (rounds) => {
    const width = Math.max(280, widthOf(svg) || 640);
    const step = (width - 2 * left) / places.length;
    const x = (place) => left + place * step;
    if (drawn !== width) {
      axis.setAttribute("x2", width - left);
      bars.forEach((bar, place) => {
        bar.setAttribute("x", x(place) + 0.5);
        bar.setAttribute("width", Math.max(1, step - 1.5));
      });
    }
    drawn = width;
    const row = (i) => foot + 10 + 8 * (i % 3);
    const line = (from, to, i) =>
      from < to ? `M${x(from) + 1} ${row(i)}H${Math.min(width, x(to)) - 1}` : "";
    const show = (path, part) => path.setAttribute("d", rounds.map(part).join(""));
    show(kept, ({ place, accepted }, i) => line(place, place + accepted, i));
    show(wasted, ({ place, accepted, drafted }, i) => line(place + accepted, place + drafted, i));
    show(own, ({ place, accepted }, i) => `M${x(place + accepted) + step / 2} ${row(i)}h0`);
  };
}

// The text, before every token what was drafted in vain there; returns what shows rounds.
function newText(box, words) {
  const tokens = words.map((text) => make("span", {}, text));
  const wastes = words.map(() => make("small", { class: "sdl-waste" }));
  box.append(...words.flatMap((_, place) => [wastes[place], tokens[place]]));
  const told = [];
  const tell = (place, kind, waste) => {
    const now = `${kind} ${waste}`;
    if (told[place] === now) return;
    told[place] = now;
    tokens[place].className = `sdl-token sdl-${kind}`;
    wastes[place].replaceChildren(...(waste ? [`✗${waste}`, hidden(` ${waste} drafted in vain `)] : []));
  };
  return (rounds) => {
    for (const { place, drafted, accepted } of rounds) {
      const waste = drafted - accepted;
      for (let i = 0; i < accepted; i++) tell(place + i, "accepted", 0);
      tell(place + accepted, drafted === 0 ? "sampled" : waste ? "recovered" : "bonus", waste);
    }
  };
}

// One bar for each of the colours; returns what shows entries [name, speed].
function newSpeeds(svg, colours) {
  const bars = colours.map((fill, i) => {
    const name = make("text", { x: 0, y: 14 + i * 40 });
    const bar = make("rect", { x: 0, y: 19 + i * 40, height: 13, rx: 2, fill });
    const speed = make("text", { y: 31 + i * 40, "text-anchor": "end", "font-weight": 600 });
    svg.append(name, bar, speed);
    return { name, bar, speed };
  });
  return (entries) => {
    const width = Math.max(260, widthOf(svg) || 520);
    const most = Math.max(...entries.map(([, value]) => value)) * 1.02;
    entries.forEach(([name, value], i) => {
      bars[i].name.textContent = name;
      bars[i].bar.setAttribute("width", ((width - 56) * value) / most);
      bars[i].speed.setAttribute("x", width);
      bars[i].speed.textContent = times(value);
    });
    svg.setAttribute("aria-label", entries.map(([name, value]) => `${name}: ${times(value)}`).join(". "));
  };
}

function taskState(policy, speed, best, oracle) {
  if (policy === "oracle") return "The oracle reads the future; a policy may not.";
  const share = oracle > best ? Math.round((100 * (speed - best)) / (oracle - best)) : 0;
  if (policy === "constant" || policy === "heuristic")
    return "Pick a policy that looks at the draft, and move its threshold.";
  return speed > best + 1e-9
    ? `Solved: ${times(speed)} against ${times(best)}. That is ${share} % of what the oracle could add.`
    : `Not yet: ${times(speed)} is no more than ${times(best)}.`;
}

function render({ model, el }) {
  const words = model.get("words");
  const places = model.get("places");
  const id = newId("stop");
  const get = (name) => model.get(name);
  const settings = () => ({
    length: get("length"),
    threshold: get("threshold"),
    nats: get("nats"),
    cost: get("cost"),
  });
  const set = (name) => (value) => {
    model.set(name, value);
    model.save_changes();
  };
  const task = "find a policy and a threshold that beat the best constant length on this text.";
  const room = "Solved: 0.00× against 0.00×. That is 100 % of what the oracle could add, or so.";
  const { announce, silence, ...told } = narration(task, room, 200);
  const options = Object.entries(NAMES).map(([value, label]) => ({ value, label }));
  const pick = menu(`${id}-policy`, options, set("policy"));
  const most = Math.max(...places.map(({ q }) => q.length));
  const controls = {
    length: slider(`${id}-length`, { min: 1, max: most, step: 1, "data-name": "length" }, set("length")),
    threshold: slider(
      `${id}-threshold`,
      { min: 0, max: 1, step: 0.02, "data-name": "threshold" },
      set("threshold"),
    ),
    nats: slider(`${id}-nats`, { min: 0, max: 4, step: 0.05, "data-name": "nats" }, set("nats")),
    cost: slider(`${id}-cost`, { min: 0.02, max: 0.6, step: 0.02, "data-name": "cost" }, set("cost")),
  };
  const uses = { constant: "length", heuristic: "length", confidence: "threshold", entropy: "nats" };
  const labels = {
    length: "Length (at first)",
    threshold: "Stop below this probability",
    nats: "Stop above this entropy (nats)",
    cost: "Cost of a drafted token (target passes)",
  };
  const fields = Object.fromEntries(
    Object.entries(controls).map(([name, { input, output }]) => [
      name,
      field(`${id}-${name}`, labels[name], output, input),
    ]),
  );
  const text = make("div", { class: "sdl-text", tabindex: 0, role: "region", "aria-label": "The text" });
  const strip = chart(
    "How sure the draft is, place by place, and where each round's draft ends",
    "Bars: the draft's probability of its own token; full: the target keeps it, hollow: it refuses it. Lines: drafts, kept (solid) and in vain (dashed); dots: the target's own tokens.",
    "",
    { height: 116 },
  );
  const speeds = chart("Tokens per target pass's time", "Plain decoding is 1.", "", { height: 160 });
  const readouts = make("dl", { class: "sdl-readouts" });
  const root = make(
    "section",
    { class: "sdl sdl-fates sdl-stop", "aria-label": "Stop explorer" },
    told.task,
    make("div", { class: "sdl-controls" }, field(`${id}-policy`, "Policy", pick), ...Object.values(fields)),
    strip.node,
    text,
    readouts,
    speeds.node,
    told.spoken,
  );
  const showStrip = newStrip(strip.svg, words, places);
  const showText = newText(text, words);
  const colours = ["muted", "draft", "target", "accepted"].map((name) => `var(--sdl-${name})`);
  const showSpeeds = newSpeeds(speeds.svg, colours);
  let limits = {};
  const draw = () => {
    const policy = get("policy");
    const now = settings();
    pick.value = policy;
    for (const [name, { input, output }] of Object.entries(controls)) {
      input.value = now[name];
      output.textContent = name === "length" ? String(now[name]) : now[name].toFixed(2);
      fields[name].hidden = name !== "cost" && uses[policy] !== name;
    }
    const rounds = formulas.rounds(places, policy, now);
    const drafted = rounds.reduce((sum, round) => sum + round.drafted, 0);
    const accepted = rounds.reduce((sum, round) => sum + round.accepted, 0);
    const speed = formulas.speed(places, policy, now);
    if (limits.cost !== now.cost) {
      const best = formulas.bestConstant(places, now.cost);
      limits = { cost: now.cost, best, oracle: formulas.speed(places, "oracle", now) };
    }
    const { best, oracle } = limits;
    showStrip(rounds);
    showText(rounds);
    define(readouts, [
      ["target passes", rounds.length],
      ["drafted", drafted],
      ["in vain", drafted - accepted],
      ["tokens a round", (places.length / rounds.length).toFixed(2)],
    ]);
    showSpeeds([
      ["plain decoding", PLAIN],
      [NAMES[policy], speed],
      [`best constant length: ${best.length}`, best.speed],
      ["oracle: drafts what will be kept", oracle],
    ]);
    announce(() => [
      `${NAMES[policy]}: ${times(speed)}. Best constant length ${best.length}: ${times(best.speed)}. Oracle: ${times(oracle)}.`,
      taskState(policy, speed, best.speed, oracle),
    ]);
  };
  const changed = ["policy", "length", "threshold", "nats", "cost"].map((name) => [`change:${name}`, draw]);
  const detach = attach({ model, el }, root, Object.fromEntries(changed), draw);
  draw();
  return () => {
    detach();
    silence();
  };
}

export default { render, formulas };

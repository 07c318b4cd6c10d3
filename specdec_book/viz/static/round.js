// One round, drawn from its recorded rows p and q and uniforms u. A round that was clicked in the race comes first.

const PACE = 1700; // milliseconds per moment while playing

// A greedy round draws no uniforms.
const hasDice = ({ token }) => token.u !== null;

const formulas = {
  // The probability that a draft is accepted; a chosen word has q = 1.
  acceptance: (p, q) => Math.min(1, p / q),

  // The draft's row of a test; for a chosen word it is one-hot.
  rowOf: ({ word, q }, p) => q ?? p.map((_, i) => Number(i === word)),

  // What the target may choose once the draft is rejected.
  residualOf: ({ p, tests: [test] }) => (test ? residual(p, formulas.rowOf(test, p)) : p),

  // The word at which the row's cumulative sum first exceeds u.
  drawn(row, u) {
    let below = 0;
    const word = row.findIndex((mass) => (below += mass) > u * sum(row));
    return word < 0 ? row.findLastIndex((mass) => mass > 0) : word;
  },

  argmax: (row) => row.indexOf(Math.max(...row)),

  // Number of accepted drafts, and the added word.
  verdict({ rows, token }) {
    const isGreedy = token.u === null;
    for (const [level, row] of rows.entries()) {
      const { p, tests } = row;
      const [test] = tests;
      const best = formulas.argmax(p);
      const odds = (word) => formulas.acceptance(p[word], formulas.rowOf(test, p)[word]);
      if (test && (isGreedy ? test.word === best : test.u < odds(test.word))) continue;
      return { accepted: level, word: isGreedy ? best : formulas.drawn(formulas.residualOf(row), token.u) };
    }
  },

  moments(rounds) {
    return rounds.flatMap((round, at) => {
      const dice = hasDice(round);
      const moment = (kind, row = 0) => ({ round: at, kind, row });
      const drafts = round.rows.filter(({ tests }) => tests.length);
      const kinds = dice ? ["test", "verdict"] : ["verdict"];
      const tests = round.rows
        .slice(0, round.accepted + 1)
        .flatMap(({ tests: [test] }, row) =>
          (test?.kept ?? null) === null ? [] : kinds.map((kind) => moment(kind, row)),
        );
      const isRejected = round.token.kind === "recovered";
      return [
        moment("text"),
        ...drafts.map((_, i) => moment("draft", i)),
        moment("pass"),
        ...tests,
        ...(dice && isRejected ? [moment("residual", round.accepted)] : []),
        moment("token", round.accepted),
        moment("cut", round.accepted),
      ];
    });
  },

  // What is asked at a moment: "accept", "word" or null.
  question(rounds, { round: at, kind, row }) {
    if (kind === "residual") return "word";
    if (kind !== "test") return null;
    const uncertain = rounds[at].rows.filter(({ p, tests: [test] }) => {
      const odds = test ? formulas.acceptance(p[test.word], test.q ? test.q[test.word] : 1) : 0;
      return test && test.kept !== null && odds > 0 && odds < 1;
    });
    const own = rounds[at].rows[row];
    return uncertain.includes(own) && (own === uncertain[0] || !own.tests[0].kept) ? "accept" : null;
  },

  // Lengths of both caches; null for a draft without a cache.
  lengths({ caches, rows }, { kind, row }) {
    const drafts = rows.filter(({ tests }) => tests.length).length;
    const stage = { text: 0, draft: 0, cut: 2 }[kind] ?? 1;
    const { target, draft } = caches;
    const length = draft && (kind === "draft" ? draft[1] - (drafts - 1 - row) : draft[stage]);
    return { target: target[stage], draft: draft ? length : null };
  },
};

// Drawing

const rank = (kind) => ["text", "draft", "pass", "test", "verdict", "residual", "token", "cut"].indexOf(kind);

function fate(round, { kind, row }, level) {
  if (kind === "text" || (kind === "draft" && level > row)) return "none";
  if (kind === "draft" || kind === "pass") return "drafted";
  const keptAt = (at) => round.rows[at].tests[0].kept;
  if (rank(kind) > rank("verdict") || level < row || (level === row && kind === "verdict"))
    return keptAt(level) === null ? "unused" : keptAt(level) ? "accepted" : "rejected";
  return kind === "verdict" && keptAt(row) === false ? "unused" : "drafted";
}

// The drafts at a position that are shown at a moment: [[state, word], …].
function draftsAt(round, moment, level) {
  const { words, tests } = round.rows[level];
  return tests
    .map(({ word }) => [fate(round, moment, level), words[word]])
    .filter(([state]) => state !== "none");
}

const isDeleted = (kind) => DELETED.includes(kind);
const token = (kind, text, isWhole = false) =>
  tokenNode(kind, isWhole ? text.replaceAll("\n", "⏎") : visible(text), true);

function drawText(box, round, moment) {
  const { kind, row } = moment;
  const isAdded = kind === "token" || kind === "cut";
  const drafts = round.rows
    .flatMap((_, level) => draftsAt(round, moment, level))
    .filter(([state]) => !(kind === "cut" && isDeleted(state)));
  const nodes = (list) => list.map(([state, text]) => token(state, text, true));
  const { token: added } = round;
  box.replaceChildren(
    make("span", { class: "sdl-prompt" }, round.before.replaceAll("\n", " ⏎ ")),
    ...nodes(drafts.filter(([state]) => !isDeleted(state))),
    ...(isAdded ? [token(added.kind, round.rows[row].words[added.word], true)] : []),
    ...nodes(drafts.filter(([state]) => isDeleted(state))),
  );
}

function miniature(row, isLit) {
  const svg = make("svg", { viewBox: "0 0 60 20", preserveAspectRatio: "none" });
  const width = 60 / row.p.length;
  const top = Math.max(...row.p) || 1;
  row.p.forEach((p, i) => {
    const high = isLit ? (18 * p) / top + 1 : 1;
    svg.append(block(i * width + 1, 20 - high, width - 2, high, "target"));
  });
  return svg;
}

// A column per position: draft, target's row, cells of both caches.
function drawGrid(grid, round, moment, options, before) {
  const { kind, row: now } = moment;
  const isLit = rank(kind) >= rank("pass");
  const root = visible(round.before.split(/(?=\s\S)/).at(-1) ?? "");
  const cells = (name, ...nodes) => [make("span", { class: "sdl-round-name" }, name), ...nodes];
  const cell = (attributes, ...nodes) => make("span", attributes, ...nodes);
  const drafts = round.rows.map((row, level) => {
    const isHere = level === now && !["text", "pass", "cut"].includes(kind);
    const isAdded = level === round.accepted && (kind === "token" || kind === "cut");
    const words = draftsAt(round, moment, level).map((each) => token(...each));
    if (isAdded) words.unshift(token(round.token.kind, row.words[round.token.word]));
    const names = `sdl-round-guess${isHere ? " sdl-here" : ""}${kind === "draft" ? " sdl-new" : ""}`;
    return cell({ class: names }, ...words);
  });
  if (grid.round !== round || grid.isLit !== isLit)
    grid.rows = round.rows.map((row) => cell({ class: "sdl-round-row" }, miniature(row, isLit)));
  Object.assign(grid, { round, isLit });
  const { rows } = grid;
  rows.forEach((row, level) => {
    row.classList.toggle("sdl-void", level > round.accepted && rank(kind) > rank("verdict"));
    row.firstChild.classList.toggle("sdl-lit", kind === "pass");
  });
  const lengths = formulas.lengths(round, moment);
  const entry = (name, position) => {
    const isCached = position < lengths[name];
    const isCut = !isCached && position < (before?.[name] ?? 0);
    const marks = `${isCached ? " sdl-held" : ""}${isCut ? " sdl-cut" : ""}`;
    return cell({ class: `sdl-round-cell sdl-of-${name}${marks}` });
  };
  const places = [...round.rows.keys(), round.rows.length];
  const strip = (name) =>
    cells(`${name}'s cache`, ...places.map((column) => entry(name, round.context - 1 + column)));
  grid.style.setProperty("--sdl-places", round.rows.length + 1);
  grid.replaceChildren(
    ...cells("words", cell({ class: "sdl-round-guess sdl-prompt" }, root), ...drafts),
    ...cells(options.numbers ? "target's p" : "large model", cell({ class: "sdl-round-row" }), ...rows),
    ...(options.caches ? strip("target") : []),
    ...(options.caches && lengths.draft !== null ? strip("draft") : []),
  );
  const states = round.rows.flatMap(({ words, tests }, i) =>
    tests.map(({ word }) => `${named(words[word])} ${fate(round, moment, i)}`),
  );
  const own = lengths.draft === null ? "" : `, in the draft model's cache: ${lengths.draft}`;
  const inCaches = options.caches ? ` Tokens in the target's cache: ${lengths.target}${own}.` : "";
  grid.setAttribute("aria-label", `${states.join(", ")}.${inCaches}`);
}

const write = (x, y, anchor, words, more = {}) => svgText(x, y, words, { "text-anchor": anchor, ...more });
const FAINT = { class: "sdl-faint" };
const PALE = {
  fill: "color-mix(in srgb, var(--sdl-draft) 35%, var(--sdl-surface))",
  stroke: ink("draft-line"),
};

// The draft's bar of every word, with the target's laid over it, on which a dart falls; below them the residual's bar.
function drawBars(svg, round, moment, options, wordCount, choose) {
  const { kind, row: level } = moment;
  const row = round.rows[level];
  const { words, p } = row;
  const [test] = row.tests;
  const isKnown = rank(kind) >= rank("pass");
  const dice = hasDice(round);
  const isResidual = dice && round.token.kind === "recovered" && rank(kind) >= rank("residual");
  const q = test && dice ? formulas.rowOf(test, p) : null;
  const width = Math.max(250, widthOf(svg) || 420);
  const high = width < 400 ? 20 : 24; // px per word
  const [left, right, top] = [Math.min(110, width * 0.28), options.numbers ? 74 : 10, 22];
  const x = (mass) => left + (width - left - right) * mass; // one scale from 0 to 1 at every position
  const y = (word) => top + word * high;
  const height = y(wordCount) + (options.dice ? 66 : 16);
  svg.setAttribute("height", height);
  svg.replaceChildren();
  svg.dart = "";
  const isEmpty = kind === "text";
  const [ofTarget, ofDraft] = options.numbers ? ["target p", "draft q"] : ["large model", "helper"];
  if (isKnown || isEmpty)
    svg.append(block(left, 4, 12, 9, "target"), write(left + 17, 13, "start", ofTarget));
  if (q) svg.append(block(left + 106, 4, 11, 8, "", PALE), write(left + 122, 13, "start", ofDraft));
  for (const mass of [0, 0.5, 1]) {
    const ends = { x1: x(mass), x2: x(mass), y1: top - 2, y2: y(words.length) };
    svg.append(make("line", { ...ends, class: "sdl-grid" }));
  }
  if (!isEmpty) {
    const under = { ...FAINT, "font-size": 12 };
    for (const mass of [0, 1]) svg.append(write(x(mass), y(words.length) + 11, "middle", mass, under));
    svg.append(write(x(0.5), y(words.length) + 11, "middle", "probability", under));
  }
  words.forEach((text, word) => {
    if (isEmpty) return svg.append(block(left, y(word) + 1, width - left - right, high - 7, "raised"));
    const excess = Math.max(0, p[word] - (q ? q[word] : 0));
    const label = visible(text);
    const bold = { "font-weight": test?.word === word ? 700 : 400 };
    const name = write(left - 8, y(word) + 15, "end", shortened(label, 12), bold);
    const group = make("g", { opacity: isResidual && excess === 0 ? 0.35 : 1 }, name);
    const bar = (from, to, down, thick, fill, more) =>
      group.append(block(x(from), y(word) + down, Math.max(1, x(to) - x(from)), thick, fill, more));
    if (q) bar(0, q[word], 2, 15, "", PALE);
    if (isKnown) bar(0, p[word], 5, 9, "target");
    if (isResidual && excess > 0)
      bar(q[word], p[word], 3, 13, "recovered", { stroke: ink("ink"), "stroke-dasharray": "3 2" });
    if (q && test.word === word && (kind === "test" || kind === "verdict")) {
      const end = x(Math.max(p[word], q[word])) + 8;
      if (kind === "verdict")
        group.append(write(end, y(word) + 15, "start", test.kept ? "✓" : "✗", { "font-weight": 700 }));
      svg.dart = dartOf(x(test.u * q[word]), y(word) + 3, kind === "test");
    }
    if (options.numbers && isKnown) {
      const both = [p[word], ...(q ? [q[word]] : [])].map(digits).join(" | ");
      group.append(write(width, y(word) + 15, "end", both, FAINT));
    }
    if (kind === "residual") {
      const area = block(0, y(word), width, high, "", { fill: "transparent", class: "sdl-pick" });
      area.addEventListener("click", () => choose(word));
      group.append(area);
    }
    svg.append(group);
  });
  const line = { x0: left, span: width - right - left, y: y(words.length) + 34 };
  if (isEmpty) return svg.setAttribute("aria-label", "Nothing is drafted yet.");
  const source = isResidual ? formulas.residualOf(row) : p;
  svg.append(svg.dart);
  if (dice && kind === "token") svg.append(...lineOf(line, round, moment, { q, source, x, y }));
  const shares = words.map((text, word) => {
    const both = [isKnown && `target ${digits(p[word])}`, q && `draft ${digits(q[word])}`];
    return `${visible(text)}: ${both.filter(Boolean).join(", ")}`;
  });
  svg.setAttribute("aria-label", `Bars by word. ${shares.join("; ")}.`);
}

// A dart whose tip is at (x, y); a new one falls.
function dartOf(x, y, isNew) {
  const d = `M${x} ${y + 8}l-4 -9h3v-11l-4 -6h10l-4 6v11h3z`;
  const shape = make("path", { d, fill: ink("ink"), stroke: ink("surface") });
  return make("g", { class: isNew ? "sdl-falls" : "" }, shape);
}

// The bar of length 1 that the residual's pieces form, or the target's, and the dart that selects the added word.
function lineOf({ x0, span, y: at }, round, { row: level }, { q, source, x, y }) {
  const { words } = round.rows[level];
  const lineX = (u) => x0 + span * u;
  const bar = (from, share, fill) =>
    block(lineX(from), at, span * share, 14, fill, { stroke: ink("control-line") });
  const under = (u, words, isBold) =>
    write(Math.min(lineX(1) - 30, lineX(u)), at + 28, "middle", words, { "font-weight": isBold ? 700 : 400 });
  const isResidual = round.token.kind === "recovered";
  let below = 0;
  const pieces = source.flatMap((share, word) => {
    const from = below;
    below += share;
    if (share < 0.002) return [];
    const piece = make("g", { class: "sdl-slides" }, bar(from, share, isResidual ? "recovered" : "target"));
    piece.style.setProperty("--dx", `${x(isResidual ? q[word] : 0) - lineX(from)}px`);
    piece.style.setProperty("--dy", `${y(word) - at}px`);
    const label = visible(words[word]);
    const isWide = span * share > 9 * label.length;
    return [piece, ...(isWide ? [under(from + share / 2, label, word === round.token.word)] : [])];
  });
  return [...pieces, dartOf(lineX(round.token.u), at, true)];
}

function questionOf(kind, round, moment, { model, kept }, choose, pass) {
  const { words } = round.rows[moment.row];
  const answer = (text, value) => button(text, () => choose(value));
  const [asked, answers] =
    kind === "accept"
      ? [
          `Is it ${kept} or rejected?`,
          [answer(kept === "kept" ? "keep" : "accept", true), answer("reject", false)],
        ]
      : [`Which word does ${model} choose?`, words.map((text, word) => answer(visible(text), word))];
  return [make("strong", {}, asked), ...answers, button("show me", pass)];
}

function render({ model, el }) {
  const recorded = model.get("rounds") ?? [];
  const [caches, numbers] = ["caches", "numbers"].map((name) => model.get(name) ?? true);
  const options = { caches, numbers, dice: recorded.some(hasDice) };
  let rounds = recorded;
  let moments = formulas.moments(rounds);
  if (moments.length === 0) return showNothing(el);
  const id = newId("round");
  const last = () => moments.length - 1;
  const answers = new Map();
  const firstAsked = moments.findIndex((moment) => formulas.question(rounds, moment));
  if (!model.get("autoplay")) openAt(model, "moment", firstAsked);
  const opening = model.get("moment") ?? 0;
  const questionAt = (at) => formulas.question(rounds, moments[at]);
  const bar = transport({
    model,
    id,
    last,
    describe: (at) => `round ${moments[at].round + 1}`,
    spoken: () => spoken,
    pace: PACE,
    isHeld: questionAt,
    isEnd: (at) => moments[at].kind === "cut", // playing ends with the round
  });
  const { now, set } = bar;
  const choose = (answer) => {
    answers.set(now(), answer);
    bar.advance();
  };
  bar.input.ariaLabel = "Moment";
  const tabs = make("span", { class: "sdl-row" });
  // Shows these rounds; the first of more than the recorded ones is the race's.
  const take = (list) => {
    rounds = list;
    moments = formulas.moments(rounds);
    answers.clear();
    const extra = list.length - recorded.length;
    const tabOf = (_, at) => {
      const words = at < extra ? "the race's round" : `round ${at + 1 - extra}`;
      return button(words, () => bar.go(moments.findIndex(({ round }) => round === at)));
    };
    tabs.replaceChildren(...list.map(tabOf));
  };
  const text = make("span");
  const grid = make("div", { class: "sdl-round-grid", role: "img" });
  const bars = make("svg", { role: "img" });
  const spoken = make("p", { class: "sdl-summary", "aria-live": "polite" });
  const ask = make("div", { class: "sdl-round-ask" });
  const about = model.get("about");
  bar.node.classList.add("sdl-round-moves");
  bar.node.append(bar.input, bar.output);
  const frame = make(
    "div",
    { class: "sdl-frame" },
    bar.node,
    make("p", { class: "sdl-round-text" }, text),
    grid,
    make("div", { class: "sdl-round-main" }, bars, make("div", { class: "sdl-round-side" }, spoken, ask)),
    make("div", { class: "sdl-row sdl-round-tabs" }, tabs, ...(about ? [make("small", {}, about)] : [])),
  );
  const label = "One round of speculative decoding";
  const root = make("section", { class: "sdl sdl-fates sdl-round", "aria-label": label }, frame);
  const wordCount = Math.max(...recorded.flatMap(({ rows }) => rows.map(({ words }) => words.length)));
  take(rounds);
  const draw = () => {
    const at = now();
    const moment = moments[at];
    const round = rounds[moment.round];
    const question = questionAt(at);
    const isSame = at > 0 && moments[at - 1].round === moment.round;
    [...tabs.children].forEach((tab, i) => tab.setAttribute("aria-pressed", String(i === moment.round)));
    drawText(text, round, moment);
    drawGrid(grid, round, moment, options, isSame ? formulas.lengths(round, moments[at - 1]) : null);
    drawBars(bars, round, moment, options, wordCount, choose);
    const words =
      reply(rounds, moment, answers.get(at - 1), options.numbers) + sentence(rounds, moment, options);
    if (spoken.textContent !== words) spoken.textContent = words;
    const asked = () => questionOf(question, round, moment, namesOf(options.numbers), choose, bar.advance);
    if (ask.at !== at) ask.replaceChildren(...(question ? asked() : []));
    ask.at = at;
    bar.show();
  };
  const detach = attach({ model, el }, root, { "change:moment": draw }, draw);
  const watcher = new IntersectionObserver(
    ([entry]) => {
      if (!entry.isIntersecting) return;
      watcher.disconnect();
      if (!bar.isPlaying() && now() === 0) bar.begin();
    },
    { threshold: 0.6 },
  );
  if (model.get("autoplay") && !bar.isCalm) watcher.observe(root);
  if (model.get("autoplay") && bar.isCalm && now() === 0)
    set(moments.findLastIndex((moment) => moment.round === 0));
  const isRejection = ({ round, row, kind }) => kind === "verdict" && !rounds[round].rows[row].tests[0].kept;
  const rejection = moments.findIndex(isRejection);
  const offPaper = endOnPaper(bar, rejection < 0 ? last() : rejection, opening);
  const open = ({ detail }) => {
    watcher.disconnect();
    take([detail, ...recorded]);
    bar.go(0);
    draw();
    root.scrollIntoView({ block: "center", behavior: bar.isCalm ? "auto" : "smooth" });
    if (!bar.isCalm) bar.begin();
  };
  addEventListener("sdl-round", open);
  draw();
  return () => {
    bar.stop();
    removeEventListener("sdl-round", open);
    offPaper();
    watcher.disconnect();
    detach();
  };
}

export default { render, formulas };

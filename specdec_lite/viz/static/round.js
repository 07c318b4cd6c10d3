// One round as a picture. Every moment and verdict follows from the recorded rows p, q and the coins u.

const PACE = 1700; // milliseconds a moment stays when the picture plays

const formulas = {
  // The share of a draft that stays: how much of its bar the target's bar covers. A chosen word has q = 1.
  chance: (p, q) => Math.min(1, p / q),

  // What the target has more of than the draft, stretched to sum to 1; p itself where there is nothing.
  overhang(p, q) {
    const over = p.map((mass, i) => Math.max(0, mass - q[i]));
    const sum = over.reduce((total, mass) => total + mass, 0);
    return sum > 0 ? over.map((mass) => mass / sum) : p;
  },

  // The draft's row of a test: a chosen word is a draw from a row that holds nothing else.
  rowOf: ({ word, q }, p) => q ?? p.map((_, i) => Number(i === word)),

  // What the target's row becomes: before its first test, and after each rejection.
  laws: ({ p, tests }) =>
    tests.reduce((rows, test) => [...rows, formulas.overhang(rows.at(-1), formulas.rowOf(test, p))], [p]),

  // The word at which the row's running sum first exceeds u.
  drawn(row, u) {
    const sum = row.reduce((total, mass) => total + mass, 0);
    let below = 0;
    const word = row.findIndex((mass) => (below += mass) > u * sum);
    return word < 0 ? row.findLastIndex((mass) => mass > 0) : word;
  },

  argmax: (row) => row.indexOf(Math.max(...row)),

  // A round decided again from its own p, q and u: how many guesses stay, and which word is added.
  verdict({ rows, token }) {
    for (const [level, row] of rows.entries()) {
      const laws = formulas.laws(row);
      const isGreedy = token.u === null;
      const kept = row.tests.findIndex(({ word, u, q }, i) =>
        isGreedy
          ? word === formulas.argmax(row.p)
          : u < formulas.chance(laws[i][word], formulas.rowOf({ word, q }, row.p)[word]),
      );
      if (kept < 0)
        return {
          accepted: level,
          word: isGreedy ? formulas.argmax(row.p) : formulas.drawn(laws.at(-1), token.u),
        };
    }
  },

  // Every moment of all rounds.
  moments(rounds, dice = true) {
    return rounds.flatMap((round, at) => {
      const moment = (kind, row = 0, test = 0) => ({ round: at, kind, row, test });
      const guessed = round.rows.filter(({ tests }) => tests.length);
      const looked = round.rows.slice(0, round.accepted + 1).flatMap(({ tests }, row) =>
        tests
          .map((test, i) => [test, i])
          .filter(([{ kept }]) => kept !== null)
          .flatMap(([, i]) => [...(dice ? [moment("look", row, i)] : []), moment("coin", row, i)]),
      );
      const isStruck = round.token.kind === "recovered";
      return [
        moment("text"),
        ...guessed.map((_, i) => moment("guess", i)),
        moment("pass"),
        ...looked,
        ...(dice && isStruck ? [moment("overhang", round.accepted)] : []),
        moment("token", round.accepted),
        moment("cut", round.accepted),
      ];
    });
  },

  // What is asked there: a round's first open test, every lost one, and the word in its place.
  question(rounds, { round: at, kind, row, test }) {
    if (kind === "overhang") return "word";
    if (kind !== "look") return null;
    const open = rounds[at].rows.flatMap((each, level) => {
      const laws = formulas.laws(each);
      return each.tests.flatMap(({ word, q, kept }, i) => {
        const share = formulas.chance(laws[i][word], q ? q[word] : 1);
        return kept !== null && share > 0 && share < 1 ? [{ level, i, kept }] : [];
      });
    });
    const own = open.find(({ level, i }) => level === row && i === test);
    return own && (own === open[0] || !own.kept) ? "keep" : null;
  },

  // Lengths of both caches; null for a draft without one.
  lengths({ caches, rows }, { kind, row }) {
    const guesses = rows.filter(({ tests }) => tests.length).length;
    const place = { text: 0, guess: 0, cut: 2 }[kind] ?? 1;
    const { target, draft } = caches;
    const drafted = draft && (kind === "guess" ? draft[1] - (guesses - 1 - row) : draft[place]);
    return { target: target[place], draft: draft ? drafted : null };
  },
};

// Words -------------------------------------------------------------------------------------------

const digits = (x) => (x > 0 && x < 0.005 ? "<.01" : x.toFixed(2).replace(/^0/, ""));
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const shownWord = (text) => text.replaceAll("\n", "⏎").trim() || "␣";
const named = (text) => `“${shownWord(text)}”`;
const wordsOf = ({ words, tests }) => tests.map(({ word }) => words[word]);

function sentence(rounds, moment, { numbers, dice }) {
  const { round: at, kind, row: level, test: i } = moment;
  const round = rounds[at];
  const row = round.rows[level];
  const test = row.tests[i];
  const guesses = round.rows.filter(({ tests }) => tests.length).length;
  const added = round.rows[round.accepted].words[round.token.word];
  const law = formulas.laws(row)[i];
  const all = round.accepted === guesses;
  const [p, q] = test ? [law[test.word], test.q?.[test.word] ?? 1] : [];
  const share = formulas.chance(p, q);
  if (kind === "text")
    return at === 0
      ? "A large model, the target, writes this text. A small one, the draft, will guess ahead."
      : "The text has grown, and the next round begins.";
  if (kind === "guess") {
    const drawn = numbers && test.q ? ` It was drawn with q = ${digits(q)}.` : "";
    return `The draft guesses ${wordsOf(row).map(named).join(" or ")}: one cheap pass.${drawn}`;
  }
  if (kind === "pass")
    return `Now one pass of the target reads the last word and ${guesses === 1 ? "the guess" : `all ${guesses} guesses`} at once. ${plural(guesses + 1, "row")} light up: what it would say in each of these places, and in one more.`;
  const word = test && named(row.words[test.word]);
  if (kind === "look") {
    const rest = i > 0 ? " against what is left of the target's bars" : "";
    const given = numbers ? ` p = ${digits(p)}, q = ${digits(q)}, u = ${digits(test.u)}.` : "";
    const sure =
      p >= q
        ? "The target likes it no less than the draft does, so it cannot lose."
        : p === 0
          ? "The target would never say it, so it cannot stay."
          : "The line is the draft's bar, stretched to 1, and a coin has fallen on it. The word stays where the target's bar covers the draft's.";
    return `${word} is tested${rest}. ${sure}${given}`;
  }
  if (kind === "coin" && !dice)
    return test.kept
      ? `The target's likeliest word here is ${word} too: it stays.`
      : `The target's likeliest word here is ${named(row.words[formulas.argmax(row.p)])}, not ${word}: struck, and with it what was guessed behind it.`;
  if (kind === "coin") {
    const odds = numbers ? ` (${digits(test.u)} ${test.kept ? "<" : "≥"} p/q = ${digits(share)})` : "";
    if (test.kept) return `The coin lies where the target covers the draft${odds}: ${word} stays.`;
    const behind =
      guesses > level + 1 ? " What was guessed behind it followed a word that is gone: void." : "";
    return `The coin lies where the target does not reach${odds}: ${word} is struck.${behind}`;
  }
  if (kind === "overhang")
    return "Another word must come. What both bars share was the draft's to give. Left is what the target has more of: the overhang of its bars.";
  if (kind === "token") {
    const how = dice
      ? round.token.kind === "recovered"
        ? "The overhangs, laid end to end and stretched, are the line. The coin falls on"
        : "All guesses stayed, and one row is left over. A coin on the target's own bars gives"
      : "The target's own word goes there:";
    const free = round.token.kind === "bonus" ? " It costs no pass." : "";
    return `${how} ${named(added)}.${free}`;
  }
  const kept = `${plural(round.accepted + 1, "token")} from one pass of the target.`;
  return all ? `${kept} Nothing is cut.` : `${kept} Both caches are cut back to the text that stands.`;
}

function reply(rounds, moment, answer) {
  if (answer === undefined) return "";
  const round = rounds[moment.round];
  if (moment.kind === "coin") {
    const { kept } = round.rows[moment.row].tests[moment.test];
    return answer === kept ? "✓ As you said. " : `✗ You said ${answer ? "keep" : "strike"}. `;
  }
  const law = formulas.laws(round.rows[moment.row]).at(-1);
  const word = named(round.rows[moment.row].words[answer]);
  if (answer === round.token.word) return "✓ As you said. ";
  return law[answer] > 0 ? `It could have been ${word}: ` : `✗ ${word} has no overhang, so it cannot come. `;
}

// Drawing -----------------------------------------------------------------------------------------

const rank = (kind) => ["text", "guess", "pass", "look", "coin", "overhang", "token", "cut"].indexOf(kind);

// What is known of the guess of a level, or of one of its siblings.
function fate(round, { kind, row, test }, level, i = 0) {
  if (kind === "text" || (kind === "guess" && level > row)) return "none";
  if (kind === "guess" || kind === "pass") return "drafted";
  const isPast =
    rank(kind) > rank("coin") ||
    level < row ||
    (level === row && (i < test || (i === test && kind === "coin")));
  const { kept } = round.rows[level].tests[i];
  if (isPast) return kept === null ? "unused" : kept ? "accepted" : "rejected";
  const isLost = kind === "coin" && round.rows[row].tests.at(-1).kept === false && level > row;
  return isLost && test === round.rows[row].tests.length - 1 ? "unused" : "drafted";
}

const isGone = (kind) => kind === "rejected" || kind === "unused";

function token(kind, text, isWhole = false) {
  const tag = isGone(kind) ? "del" : kind === "recovered" || kind === "bonus" ? "ins" : "span";
  const words = isWhole ? text.replaceAll("\n", "⏎") : shownWord(text);
  return make(tag, { class: `sdl-token sdl-${kind}` }, words);
}

function drawText(box, round, moment) {
  const { kind, row } = moment;
  const isAdded = kind === "token" || kind === "cut";
  const guesses = round.rows.flatMap((each, level) =>
    each.tests.map(({ word }, i) => [fate(round, moment, level, i), each.words[word]]),
  );
  const shown = guesses.filter(([what]) => what !== "none" && !(kind === "cut" && isGone(what)));
  const whole = (given) => given.map(([what, text]) => token(what, text, true));
  const { token: added } = round;
  box.replaceChildren(
    make("span", { class: "sdl-prompt" }, round.before.replaceAll("\n", " ⏎ ")),
    ...whole(shown.filter(([what]) => !isGone(what))),
    ...(isAdded ? [token(added.kind, round.rows[row].words[added.word], true)] : []),
    ...whole(shown.filter(([what]) => isGone(what))),
  );
}

// A row of p in small.
function miniature(row, isLit) {
  const svg = make("svg", { viewBox: "0 0 60 20", preserveAspectRatio: "none" });
  const width = 60 / row.p.length;
  const most = Math.max(...row.p);
  row.p.forEach((p, i) => {
    const high = isLit ? (18 * p) / most + 1 : 1;
    svg.append(rect(i * width + 1, 20 - high, width - 2, high, TARGET));
  });
  return svg;
}

// The table of the round: a column a place, with the guess, the target's row and the cells of both caches.
function drawGrid(grid, round, moment, options, before) {
  const { kind, row: now } = moment;
  const isLit = rank(kind) >= rank("pass");
  const root = shownWord(round.before.split(/(?=\s\S)/).at(-1) ?? "");
  const cells = (name, ...nodes) => [make("span", { class: "sdl-round-name" }, name), ...nodes];
  const cell = (attributes, ...nodes) => make("span", attributes, ...nodes);
  const guesses = round.rows.map((row, level) => {
    const isHere = level === now && !["text", "pass", "cut"].includes(kind);
    const isAdded = level === round.accepted && (kind === "token" || kind === "cut");
    const words = row.tests
      .map(({ word }, i) => [fate(round, moment, level, i), row.words[word]])
      .filter(([what]) => what !== "none")
      .map(([what, text]) => token(what, text));
    if (isAdded) words.unshift(token(round.token.kind, row.words[round.token.word]));
    return cell(
      { class: `sdl-round-guess${isHere ? " sdl-here" : ""}${kind === "guess" ? " sdl-new" : ""}` },
      ...words,
    );
  });
  const lit = moment.round * 2 + isLit;
  if (grid.lit !== lit)
    grid.rows = round.rows.map((row) => cell({ class: "sdl-round-row" }, miniature(row, isLit)));
  grid.lit = lit;
  const { rows } = grid;
  rows.forEach((row, level) => {
    row.classList.toggle("sdl-void", level > round.accepted && rank(kind) > rank("coin"));
    row.firstChild.classList.toggle("sdl-lit", kind === "pass");
  });
  const held = formulas.lengths(round, moment);
  const strip = (name) =>
    cells(
      `${name}'s cache`,
      ...Array.from({ length: round.rows.length + 1 }, (_, column) => {
        const position = round.context - 1 + column;
        const isHeld = position < held[name];
        const isCut = !isHeld && position < (before?.[name] ?? 0);
        return cell({
          class: `sdl-round-cell sdl-of-${name}${isHeld ? " sdl-held" : ""}${isCut ? " sdl-cut" : ""}`,
        });
      }),
    );
  grid.style.setProperty("--sdl-places", round.rows.length + 1);
  grid.replaceChildren(
    ...cells("words", cell({ class: "sdl-round-guess sdl-prompt" }, root), ...guesses),
    ...cells("target says", cell({ class: "sdl-round-row" }), ...rows),
    ...(options.caches ? strip("target") : []),
    ...(options.caches && held.draft !== null ? strip("draft") : []),
  );
  const told = round.rows.flatMap((row, i) =>
    wordsOf(row).map((word, j) => `${named(word)} ${fate(round, moment, i, j)}`),
  );
  const own = held.draft === null ? "" : `, the draft's ${held.draft}`;
  grid.setAttribute("aria-label", `${told.join(", ")}. Tokens in the target's cache: ${held.target}${own}.`);
}

const rect = (x, y, width, height, fill, more = {}) =>
  make("rect", { x, y, width: Math.max(0, width), height, fill, ...more });
const write = (x, y, anchor, words, more = {}) =>
  make("text", { x, y, "text-anchor": anchor, ...more }, words);
const FAINT = { class: "sdl-faint" };
const [TARGET, DRAFT_LINE, OVERHANG] = ["target", "draft-line", "recovered"].map(
  (name) => `var(--sdl-${name})`,
);
const PALE = "color-mix(in srgb, var(--sdl-draft) 35%, var(--sdl-surface))";

// Two bars a word and, under them, the line of length 1.
function drawBars(svg, round, moment, options, most, choose) {
  const { kind, row: level, test: i } = moment;
  const { words, tests, p: first } = round.rows[level];
  const laws = formulas.laws(round.rows[level]);
  const isKnown = rank(kind) >= rank("pass");
  const isOver = options.dice && round.token.kind === "recovered" && rank(kind) >= rank("overhang");
  const last = tests.length - 1;
  const test = tests[isOver ? last : i];
  const p = isOver ? laws[last] : (laws[i] ?? first);
  const q = test && options.dice ? formulas.rowOf(test, first) : null;
  const width = Math.max(250, widthOf(svg) || 420);
  const high = width < 400 ? 20 : 24; // pixels a word takes
  const [left, right, top] = [Math.min(110, width * 0.28), options.numbers ? 74 : 10, 22];
  const longest = Math.max(...p, ...(q ?? []));
  const x = (mass) => left + ((width - left - right) * mass) / longest;
  const y = (word) => top + word * high;
  const height = y(most) + (options.dice ? 62 : 4);
  svg.setAttribute("height", height);
  svg.replaceChildren();
  const isEmpty = kind === "text";
  const name = (words, letter) => (options.numbers ? `${words} ${letter}` : words);
  if (isKnown || isEmpty)
    svg.append(rect(left, 4, 12, 9, TARGET), write(left + 17, 13, "start", name("target", "p")));
  if (q)
    svg.append(
      rect(left + 92, 4, 11, 8, PALE, { stroke: DRAFT_LINE }),
      write(left + 108, 13, "start", name("draft", "q")),
    );
  words.forEach((text, word) => {
    if (isEmpty)
      return svg.append(rect(left, y(word) + 1, width - left - right, high - 7, "var(--sdl-raised)"));
    const over = Math.max(0, p[word] - (q ? q[word] : 0));
    const label = shownWord(text);
    const group = make(
      "g",
      { opacity: isOver && over === 0 ? 0.35 : 1 },
      write(left - 8, y(word) + 15, "end", label.length > 12 ? `${label.slice(0, 11)}…` : label, {
        "font-weight": test?.word === word ? 700 : 400,
      }),
    );
    const bar = (from, to, down, thick, fill, more) =>
      group.append(rect(x(from), y(word) + down, Math.max(1, x(to) - x(from)), thick, fill, more));
    if (isKnown) bar(0, p[word], 1, 9, TARGET);
    if (q) bar(0, q[word], 11, 7, PALE, { stroke: DRAFT_LINE });
    if (isOver && over > 0)
      bar(q[word], p[word], 0, 12, OVERHANG, { stroke: "var(--sdl-ink)", "stroke-dasharray": "3 2" });
    if (options.numbers && isKnown) {
      const both = [p[word], ...(q ? [q[word]] : [])].map(digits).join(" | ");
      group.append(write(width, y(word) + 15, "end", both, FAINT));
    }
    if (kind === "overhang" && options.asks) {
      const place = rect(0, y(word), width, high, "transparent", { class: "sdl-pick" });
      place.addEventListener("click", () => choose(word));
      group.append(place);
    }
    svg.append(group);
  });
  const line = { x0: left, span: width - right - left, y: y(words.length) + 28 };
  if (isEmpty) return svg.setAttribute("aria-label", "Nothing is guessed yet.");
  if (options.dice)
    svg.append(...lineOf(line, round, moment, { p, q, law: isOver ? laws.at(-1) : p, test, x, y }));
  const shares = words.map((text, word) => {
    const both = [
      ...(isKnown ? [`target ${digits(p[word])}`] : []),
      ...(q ? [`draft ${digits(q[word])}`] : []),
    ];
    return `${shownWord(text)}: ${both.join(", ")}`;
  });
  svg.setAttribute("aria-label", `Bars by word. ${shares.join("; ")}.`);
}

// The line of length 1 and its coin: the drafted word's bar, or what the added token is drawn from.
function lineOf({ x0, span, y: at }, round, { kind, row: level }, { p, q, law, test, x, y }) {
  const { words } = round.rows[level];
  const place = (u) => x0 + span * u;
  const bar = (from, share, fill) =>
    rect(place(from), at, span * share, 14, fill, { stroke: "var(--sdl-control-line)" });
  const ink = "var(--sdl-ink)";
  const coin = (u, isNew) =>
    make(
      "g",
      { class: isNew ? "sdl-falls" : "" },
      rect(place(u) - 1.2, at - 3, 2.5, 20, ink),
      make("circle", { cx: place(u), cy: at - 9, r: 6.5, fill: ink }),
    );
  const title = (words) => write(x0 - 8, at + 12, "end", words, FAINT);
  const under = (u, words, isBold) =>
    write(Math.min(place(1) - 26, place(u)), at + 28, "middle", words, { "font-weight": isBold ? 700 : 400 });
  const ends = [0, 1].map((end) => write(place(end), at + 28, "middle", end, FAINT));
  if (kind === "look" || kind === "coin") {
    const share = formulas.chance(p[test.word], q[test.word]);
    const verdict = test.kept ? under(share / 2, "✓ stays", true) : under((1 + share) / 2, "✗ struck", true);
    return [
      title(`${shownWord(words[test.word]).slice(0, 10)}?`),
      bar(0, 1, PALE),
      ...ends,
      ...(kind === "coin" ? [bar(0, share, "var(--sdl-accepted)"), verdict] : []),
      coin(test.u, kind === "look"),
    ];
  }
  if (kind !== "token") return [];
  const isOver = round.token.kind === "recovered";
  let below = 0;
  const pieces = law.flatMap((share, word) => {
    const from = below;
    below += share;
    if (share < 0.002) return [];
    const piece = make("g", { class: "sdl-slides" }, bar(from, share, isOver ? OVERHANG : TARGET));
    piece.style.setProperty("--dx", `${x(isOver ? q[word] : 0) - place(from)}px`);
    piece.style.setProperty("--dy", `${y(word) - at}px`);
    const label = shownWord(words[word]);
    const isWide = span * share > 9 * label.length;
    return [piece, ...(isWide ? [under(from + share / 2, label, word === round.token.word)] : [])];
  });
  return [title("coin"), ...ends, ...pieces, coin(round.token.u, true)];
}

// Putting it together -----------------------------------------------------------------------------

function questionOf(kind, round, moment, choose, pass) {
  const { words } = round.rows[moment.row];
  const answers =
    kind === "keep"
      ? [
          ["keep", true],
          ["strike", false],
        ]
      : words.map((text, word) => [shownWord(text), word]);
  return [
    make("strong", {}, kind === "keep" ? "Keep it, or strike it?" : "Which word comes?"),
    ...answers.map(([text, answer]) => button(text, () => choose(answer))),
    button("show me", pass),
  ];
}

function render({ model, el }) {
  const rounds = model.get("rounds") ?? [];
  const options = Object.fromEntries(
    ["dice", "caches", "asks", "numbers"].map((name) => [name, model.get(name) ?? true]),
  );
  const moments = formulas.moments(rounds, options.dice);
  if (moments.length === 0) {
    el.append(make("p", { class: "sdl" }, "Nothing was recorded."));
    return () => {};
  }
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const id = newId("round");
  const last = moments.length - 1;
  const answers = new Map();
  let timer = 0;
  let isPlaying = false;
  const now = () => Math.min(last, Math.max(0, model.get("moment") ?? 0));
  const set = (at) => assign(model, { moment: Math.min(last, Math.max(0, at)) });
  const asked = (at) => (options.asks ? formulas.question(rounds, moments[at]) : null);
  const show = () => {
    play.textContent = isPlaying ? "Pause" : "Play";
    spoken.ariaLive = isPlaying ? "off" : "polite";
  };
  const stop = () => {
    clearTimeout(timer);
    isPlaying = false;
    show();
  };
  const schedule = () => {
    clearTimeout(timer);
    if (!isPlaying) return;
    if (now() === last) return stop();
    if (!asked(now()))
      timer = setTimeout(() => (document.hidden ? stop() : (set(now() + 1), schedule())), PACE);
  };
  const begin = () => {
    isPlaying = true;
    if (now() === last) set(0);
    show();
    schedule();
  };
  const go = (at) => {
    stop();
    set(at);
  };
  const pass = () => {
    set(now() + 1);
    schedule();
    if (!isPlaying) step.focus();
  };
  const choose = (answer) => {
    answers.set(now(), answer);
    pass();
  };
  const { input, output } = slider(
    id,
    { min: 1, max: moments.length, step: 1, "aria-label": "Moment" },
    (place) => go(place - 1),
  );
  const play = button("Play", () => (isPlaying ? stop() : begin()));
  const step = button("step ▶", () => go(now() + 1));
  const tabs = rounds.map((round, at) => {
    const guesses = round.rows.filter(({ tests }) => tests.length).length;
    const name = round.accepted < guesses ? `${round.accepted} of ${guesses} stay` : "all stay";
    return button(name, () => go(moments.findIndex((moment) => moment.round === at)));
  });
  const text = make("span");
  const grid = make("div", { class: "sdl-round-grid", role: "img" });
  const bars = make("svg", { role: "img" });
  const spoken = make("p", { class: "sdl-summary", "aria-live": "polite" });
  const ask = make("div", { class: "sdl-round-ask" });
  const about = model.get("about");
  const root = make(
    "section",
    { class: "sdl sdl-fates sdl-round", "aria-label": "One round of speculative decoding" },
    make(
      "div",
      { class: "sdl-frame" },
      make(
        "div",
        { class: "sdl-row sdl-round-moves" },
        button("◀ back", () => go(now() - 1)),
        ...(isCalm ? [] : [play]),
        step,
        input,
        output,
      ),
      make("p", { class: "sdl-round-text" }, text),
      grid,
      make("div", { class: "sdl-round-main" }, bars, make("div", { class: "sdl-round-side" }, spoken, ask)),
      make("div", { class: "sdl-row sdl-round-tabs" }, ...tabs, ...(about ? [make("small", {}, about)] : [])),
    ),
  );
  const most = Math.max(...rounds.flatMap(({ rows }) => rows.map(({ words }) => words.length)));
  const draw = () => {
    const at = now();
    const moment = moments[at];
    const round = rounds[moment.round];
    const question = asked(at);
    const isSame = at > 0 && moments[at - 1].round === moment.round;
    input.value = at + 1;
    output.textContent = `${at + 1} / ${moments.length}`;
    input.ariaValueText = `${at + 1} of ${moments.length}, round ${moment.round + 1}`;
    tabs.forEach((tab, i) => tab.setAttribute("aria-pressed", String(i === moment.round)));
    drawText(text, round, moment);
    drawGrid(grid, round, moment, options, isSame ? formulas.lengths(round, moments[at - 1]) : null);
    drawBars(bars, round, moment, options, most, choose);
    const words = reply(rounds, moment, answers.get(at - 1)) + sentence(rounds, moment, options);
    if (spoken.textContent !== words) spoken.textContent = words;
    if (ask.at !== at)
      ask.replaceChildren(...(question ? questionOf(question, round, moment, choose, pass) : []));
    ask.at = at;
  };
  const detach = attach({ model, el }, root, { "change:moment": draw }, draw);
  const watcher = new IntersectionObserver(
    ([entry]) => {
      if (!entry.isIntersecting) return;
      watcher.disconnect();
      if (!isPlaying && now() === 0) begin();
    },
    { threshold: 0.6 },
  );
  if (model.get("plays") && !isCalm) watcher.observe(root);
  if (model.get("plays") && isCalm && now() === 0) set(moments.findLastIndex((moment) => moment.round === 0));
  draw();
  return () => {
    stop();
    watcher.disconnect();
    detach();
  };
}

export default { render, formulas };

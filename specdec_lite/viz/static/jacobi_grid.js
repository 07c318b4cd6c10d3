// The Jacobi grid: one row a pass, one column a place. What stands is a staircase that grows from the left.

const formulas = {
  // How many places stand when `passes` passes are done.
  settled: (rows, passes) =>
    passes < rows.length
      ? rows[passes].place
      : rows[rows.length - 1].place + rows[rows.length - 1].accepted + 1,

  total: (rows) => formulas.settled(rows, rows.length),

  // The text as it stands after `passes` passes.
  text: (rows, passes) =>
    rows.slice(0, passes).flatMap(({ guesses, accepted, token }) => [...guesses.slice(0, accepted), token]),

  // The cells of row `row` while `passes` passes are done: what stood, then what was, or will be, guessed.
  cells(rows, row, passes) {
    const stood = formulas.text(rows, row).map((text) => ({ text, fate: "settled" }));
    if (row >= rows.length) return stood;
    const { guesses, accepted } = rows[row];
    const fate = (i) =>
      row >= passes ? "drafted" : i < accepted ? "accepted" : i === accepted ? "rejected" : "unused";
    const guessed = guesses.map((text, i) => ({ text, fate: fate(i) }));
    const missing = formulas.total(rows) - stood.length - guessed.length;
    return [...stood, ...guessed, ...Array(missing).fill({ text: "", fate: "none" })];
  },

  // Characters of the widest word at every place, its mark counted.
  widths(rows) {
    const all = [...rows, "end"].map((_, row) => formulas.cells(rows, row, rows.length));
    const width = ({ text, fate }) => text.length + (fate === "rejected");
    return all[0].map((_, place) => Math.max(2, ...all.map((cells) => width(cells[place]))));
  },

  // Tokens that each pass added.
  gains: (rows) => rows.map(({ accepted }) => accepted + 1),
};

const marks = { accepted: "right", rejected: "wrong", unused: "behind a wrong one", drafted: "guess" };

function word({ text, fate }) {
  const shown =
    text.trim() === "" ? text.replaceAll(" ", "␣").replaceAll("\n", "⏎") : text.replaceAll("\n", "⏎");
  const kind = fate === "settled" ? "sampled" : fate;
  const tag = fate === "rejected" || fate === "unused" ? "del" : "span";
  return make(tag, { class: `sdl-token sdl-${kind}` }, shown);
}

// The head of the grid. Columns keep their width while the grid is stepped.
function drawHead(columns, head, rows) {
  const widths = formulas.widths(rows);
  const width = (count) => make("col", { style: `width: calc(${count}ch + 0.75rem)` });
  columns.replaceChildren(width(4), ...widths.map(width));
  const name = (words) => make("th", { scope: "col" }, words);
  head.replaceChildren(name("pass"), ...widths.map((_, place) => name(String(place + 1))));
}

// Passes to come stand empty: nothing below the grid moves.
function drawPasses(body, rows, passes) {
  showRows(
    body,
    [...rows, "end"].map((_, row) => {
      const cells = row <= passes ? formulas.cells(rows, row, passes) : [];
      const build = () =>
        make(
          "tr",
          row > passes ? { class: "sdl-ahead" } : row === passes ? { "aria-current": "step" } : {},
          make("th", { scope: "row" }, row === rows.length ? "end" : String(row + 1)),
          ...(row > passes ? [make("td", { colspan: formulas.total(rows) })] : []),
          ...cells.map((cell) => {
            const isSettled = cell.fate === "settled" || cell.fate === "accepted";
            const node = make("td", isSettled ? { class: "sdl-settled" } : {});
            if (cell.fate !== "none") node.append(word(cell));
            return node;
          }),
        );
      return [[rows.length, Math.sign(row - passes), cells], build];
    }),
  );
}

// Scrolls the grid to the place that is next, with one before and one behind it.
function bringIntoSight(grid, { children }, place) {
  if (grid.clientWidth === 0) return;
  const behind = children[Math.min(place + 2, children.length - 1)];
  const left = children[Math.max(1, place)].offsetLeft - children[0].offsetWidth;
  const right = behind.offsetLeft + behind.offsetWidth - grid.clientWidth;
  grid.scrollLeft = Math.min(left, Math.max(grid.scrollLeft, right));
}

function sentence(rows, passes) {
  const total = formulas.total(rows);
  const settled = formulas.settled(rows, passes);
  if (passes === 0)
    return `Nothing stands yet. All ${total} places are guessed, and one pass will answer every guess.`;
  const { guesses, accepted, token } = rows[passes - 1];
  const right =
    accepted === 0
      ? "No guess was right"
      : `The first ${accepted === 1 ? "guess was" : `${accepted} guesses were`} right`;
  const then = `${right}, and the pass added ${quoted(token)}. ${settled} of ${total} places stand.`;
  if (passes === rows.length)
    return `${then} Plain decoding needs ${total} passes for this text; here it took ${passes}.`;
  return guesses.length > accepted + 1
    ? `${then} Everything to the right was answered behind a wrong token; it is the next guess all the same.`
    : then;
}

function taskState(runs, run, passes) {
  const counts = runs.map(({ rows }) => rows.length);
  const fewest = Math.min(...counts);
  const { rows } = runs[run];
  if (passes < rows.length) return `${passes} of this guess's passes are done.`;
  return rows.length === fewest
    ? `Solved: ${fewest} passes for ${formulas.total(rows)} tokens. The other guesses take ${counts.filter((_, i) => i !== run).join(" and ")}.`
    : `Not yet: ${rows.length} passes for ${formulas.total(rows)} tokens. Another first guess takes fewer.`;
}

function render({ model, el }) {
  const runs = model.get("runs");
  const id = newId("jacobi");
  const run = () => Math.min(runs.length - 1, Math.max(0, model.get("run") ?? 0));
  const rows = () => runs[run()].rows;
  const passes = () => Math.min(rows().length, Math.max(0, model.get("moment") ?? 0));
  const set = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };
  const words = "find the first guess with which the text takes the fewest passes, and step it to its end.";
  const states = runs.flatMap(({ rows }, i) => [0, rows.length].map((at) => taskState(runs, i, at)));
  const sentences = runs.flatMap(({ rows }) => [...rows, "end"].map((_, at) => sentence(rows, at)));
  const { announce, silence, ...told } = narration(words, longest(states), 100, longest(sentences));
  const options = runs.map(({ start }, value) => ({ value, label: start }));
  const pick = menu(`${id}-start`, options, (value) => {
    set("run", Number(value));
    bar.go(0);
  });
  const bar = transport({
    last: () => rows().length,
    now: passes,
    set: (at) => set("moment", at),
    event: "place",
    next: (at) => {
      const settled = formulas.settled(rows(), at);
      return (
        rows().findIndex((_, i) => i >= at && formulas.settled(rows(), i + 1) > settled) + 1 || undefined
      );
    },
    heard: (isPlaying) => {
      told.spoken.ariaLive = isPlaying ? "off" : "polite";
    },
  });
  const { input, output } = slider(id, { min: 0, max: rows().length, step: 1 }, bar.go);
  const columns = make("colgroup");
  const head = make("tr");
  const body = make("tbody");
  const readouts = make("dl", { class: "sdl-readouts" });
  const grid = scroll("Guesses by pass and place", make("table", {}, columns, make("thead", {}, head), body));
  const legend = Object.entries(marks).map(([fate, name]) => make("li", {}, word({ text: name, fate })));
  const root = make(
    "section",
    { class: "sdl sdl-fates sdl-jacobi", "aria-label": "Jacobi grid" },
    told.task,
    make("p", { class: "sdl-prompt" }, model.get("prompt") ?? ""),
    make(
      "div",
      { class: "sdl-controls" },
      field(`${id}-start`, "First guess", pick),
      field(id, "Passes done", output, input),
    ),
    bar.node,
    told.spoken,
    grid,
    make("ul", { class: "sdl-legend" }, ...legend, make("li", {}, word({ text: "stands", fate: "settled" }))),
    readouts,
  );
  let headOf = null;
  const draw = () => {
    const [now, done] = [rows(), passes()];
    pick.value = String(run());
    input.max = now.length;
    input.value = done;
    output.textContent = `${done} of ${now.length}`;
    if (headOf !== now) drawHead(columns, head, now);
    headOf = now;
    drawPasses(body, now, done);
    const settled = formulas.settled(now, done);
    const fed = now.slice(0, done).reduce((sum, { guesses }) => sum + guesses.length + 1, 0);
    define(readouts, [
      ["passes", done],
      ["places that stand", settled],
      ["tokens a pass", done ? (settled / done).toFixed(2) : "–"],
      ["tokens computed for each that stands", settled ? (fed / settled).toFixed(1) : "–"],
    ]);
    bar.show();
    announce(() => [sentence(now, done), taskState(runs, run(), done)]);
    bringIntoSight(grid, head, settled);
  };
  const detach = attach({ model, el }, root, { "change:run": draw, "change:moment": draw }, draw);
  draw();
  return () => {
    bar.stop();
    detach();
    silence();
  };
}

export default { render, formulas };

// The Jacobi grid: one row per pass, one column per position. The final tokens form a staircase from the left.

const formulas = {
  // Number of final positions after `passes` passes.
  final: (rows, passes) => sum(formulas.gains(rows.slice(0, passes))),

  total: (rows) => formulas.final(rows, rows.length),

  // The final tokens after `passes` passes.
  text: (rows, passes) =>
    rows.slice(0, passes).flatMap(({ guesses, accepted, token }) => [...guesses.slice(0, accepted), token]),

  // The cells of a row after `passes` passes: final tokens, then guesses.
  cells(rows, row, passes) {
    const final = formulas.text(rows, row).map((text) => ({ text, fate: "final" }));
    if (row >= rows.length) return final;
    const { guesses, accepted } = rows[row];
    const fate = (i) =>
      row >= passes ? "drafted" : i < accepted ? "accepted" : i === accepted ? "rejected" : "unused";
    const drafts = guesses.map((text, i) => ({ text, fate: fate(i) }));
    const missing = formulas.total(rows) - final.length - drafts.length;
    return [...final, ...drafts, ...Array(missing).fill({ text: "", fate: "none" })];
  },

  // Characters of the widest token at every position, its mark included.
  widths(rows) {
    const all = [...rows, "end"].map((_, row) => formulas.cells(rows, row, rows.length));
    const width = ({ text, fate }) => text.length + (fate === "rejected");
    return all[0].map((_, position) => Math.max(2, ...all.map((cells) => width(cells[position]))));
  },

  // Tokens that each pass added.
  gains: (rows) => rows.map(({ accepted }) => accepted + 1),
};

const LEGEND = {
  accepted: "right",
  rejected: "wrong",
  unused: "after a wrong guess",
  drafted: "guess",
  final: "final",
};

function word({ text, fate }) {
  const kind = fate === "final" ? "sampled" : fate;
  const tag = DELETED.includes(fate) ? "del" : "span";
  const shown = text.trim() === "" ? text.replaceAll(" ", "␣") : readable(text);
  return make(tag, { class: `sdl-token sdl-${kind}` }, shown.replaceAll("\n", "⏎"));
}

// The head of the grid. Columns keep their width while the grid is stepped.
function drawHead(columns, head, rows) {
  const widths = formulas.widths(rows);
  const width = (count) => make("col", { style: `width: calc(${count}ch + 0.75rem)` });
  columns.replaceChildren(width(4), ...widths.map(width));
  const name = (words) => make("th", { scope: "col" }, words);
  head.replaceChildren(name("pass"), ...widths.map((_, position) => name(String(position + 1))));
}

const isFinal = ({ fate }) => fate === "final" || fate === "accepted";

// Later passes have empty rows, so that nothing below the grid moves. The row of the next pass slides down from the last
// one, and its changed guesses flip; a thick line is the edge of the final tokens.
function drawPasses(body, rows, passes) {
  showRows(
    body,
    [...rows, "end"].map((_, row) => {
      const cells = row <= passes ? formulas.cells(rows, row, passes) : [];
      const above = row > 0 ? formulas.cells(rows, row - 1, passes) : [];
      const [now, before] = [cells, above].map((list) => list.filter(isFinal).length);
      const build = () =>
        make(
          "tr",
          row > passes ? { class: "sdl-ahead" } : row === passes ? { "aria-current": "step" } : {},
          make("th", { scope: "row" }, row === rows.length ? "end" : String(row + 1)),
          ...(row > passes ? [make("td", { colspan: formulas.total(rows) })] : []),
          ...cells.map((cell, i) => {
            const classes = [
              ...(isFinal(cell) ? ["sdl-settled"] : []),
              ...(i === now - 1 ? ["sdl-stair-right"] : []),
              ...(row > 0 && i >= before && i < now ? ["sdl-stair-top"] : []),
              ...(row === passes && row > 0 && cell.text !== above[i].text ? ["sdl-flips"] : []),
            ];
            const node = make("td", { class: classes.join(" ") });
            if (cell.fate !== "none") node.append(word(cell));
            return node;
          }),
        );
      return [[rows.length, Math.sign(row - passes), cells], build];
    }),
  );
}

// Scrolls the grid to the next position, with one position before and one after it.
function scrollTo(grid, { children }, position) {
  if (grid.clientWidth === 0) return;
  const after = children[Math.min(position + 2, children.length - 1)];
  const left = children[Math.max(1, position)].offsetLeft - children[0].offsetWidth;
  const right = after.offsetLeft + after.offsetWidth - grid.clientWidth;
  grid.scrollLeft = Math.min(left, Math.max(grid.scrollLeft, right));
}

function sentence(rows, passes) {
  const total = formulas.total(rows);
  const settled = formulas.final(rows, passes);
  if (passes === 0)
    return `No position is final yet. All ${total} positions hold a guess, and one pass predicts a token after every guess.`;
  const { guesses, accepted, token } = rows[passes - 1];
  const right =
    accepted === 0
      ? "No guess was right"
      : `The first ${accepted === 1 ? "guess was" : `${accepted} guesses were`} right`;
  const result = `${right}, and the pass added ${quoted(token)}. ${settled} of ${total} positions are final.`;
  if (passes === rows.length)
    return `${result} Plain decoding needs ${total} passes for this text; Jacobi decoding took ${passes}.`;
  return guesses.length > accepted + 1
    ? `${result} The predictions after the first wrong guess become the next guesses.`
    : result;
}

function taskState(runs, run, passes) {
  const counts = runs.map(({ rows }) => rows.length);
  const fewest = Math.min(...counts);
  const { rows } = runs[run];
  if (passes < rows.length) return `${passes} of ${rows.length} passes are done with this first guess.`;
  return rows.length === fewest
    ? `Solved: ${fewest} passes for ${formulas.total(rows)} tokens. The other first guesses take ${counts.filter((_, i) => i !== run).join(" and ")} passes.`
    : `Not yet: ${rows.length} passes for ${formulas.total(rows)} tokens. Another first guess takes fewer.`;
}

function render(context) {
  const { model } = context;
  const runs = model.get("runs");
  const run = () => Math.min(runs.length - 1, Math.max(0, model.get("run") ?? 0));
  const rows = () => runs[run()].rows;
  const states = runs.flatMap(({ rows }, i) => [0, rows.length].map((at) => taskState(runs, i, at)));
  const sentences = runs.flatMap(({ rows }) => [...rows, "end"].map((_, at) => sentence(rows, at)));
  let spoken;
  const id = newId("jacobi");
  const bar = transport({ model, id, first: 0, last: () => rows().length, spoken: () => spoken });
  const gains = formulas.gains(rows());
  openAt(model, "moment", 1 + gains.indexOf(Math.max(...gains)));
  const columns = make("colgroup");
  const head = make("tr");
  const body = make("tbody");
  const table = make("table", {}, columns, make("thead", {}, head), body);
  const grid = scroll("Guesses by pass and position", table);
  let headOf = null;
  const draw = (s) => {
    const [now, done] = [rows(), bar.now()];
    s.run = run();
    if (headOf !== now) drawHead(columns, head, now);
    headOf = now;
    drawPasses(body, now, done);
    const settled = formulas.final(now, done);
    const fed = sum(now.slice(0, done), ({ guesses }) => guesses.length + 1);
    bar.show();
    scrollTo(grid, head, settled);
    const tiles = [
      ["final positions", settled],
      ["tokens per pass", done ? (settled / done).toFixed(2) : "–"],
      ["tokens computed per final token", settled ? (fed / settled).toFixed(1) : "–"],
    ];
    return [tiles, () => [sentence(now, done), taskState(runs, run(), done)]];
  };
  const spec = {
    name: "jacobi",
    label: "Jacobi grid",
    kinds: "sdl-fates",
    task: "find the first guess that needs the fewest passes, and step through all of its passes.",
    longestState: longest(states),
    longestSentence: longest(sentences),
    delay: 100,
    values: ["run", "moment"],
    change(changes) {
      assign(model, changes);
      bar.go(0);
    },
    controls: [
      { name: "run", id: "start", text: "First guess", options: runs.map(({ start }) => ({ label: start })) },
    ],
  };
  const layout = ({ task, tiles, controls, ...own }) => {
    ({ spoken } = own);
    return [
      task,
      controlRow(controls.run, field(id, "Passes done", bar.output, bar.input), bar.node),
      make("p", { class: "sdl-prompt" }, `Request: ${model.get("prompt") ?? ""}`),
      grid,
      legendOf(...Object.entries(LEGEND).map(([fate, text]) => word({ text, fate }))),
      spoken,
      foldOf("Counts", ...tiles),
    ];
  };
  const detach = panel(context, spec, layout, draw);
  return () => {
    bar.stop();
    detach();
  };
}

export default { render, formulas };

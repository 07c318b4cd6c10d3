// The scoreboard: methods as a table that sorts and filters, and a plot of their speedup against their memory or
// drift. Only the order and the frontier are computed here.

const NONE = "–";
const fixed = (digits) => (value) => (value === null ? NONE : value.toFixed(digits));
const UNITS = [
  [1e6, "MB"],
  [1e3, "kB"],
  [1, "B"],
];

const formatBytes = (value) => {
  const [unit, name] = UNITS.find(([size]) => value >= size) ?? [1, "B"];
  const number = value / unit;
  return `${number.toFixed(number < 10 && unit > 1 ? 1 : 0)} ${name}`;
};

// Minutes of training; null if nothing was trained or the time was not recorded.
const formatMinutes = (value, row) =>
  value !== null ? `${value.toFixed(0)} min` : row.trained ? "not recorded" : "none";

const formatShare = (value) => (value === null ? NONE : percent(value));

const formulas = {
  formatBytes,
  formatMinutes,
  // The text of a chapter's link: its number, or an appendix's name.
  page: (name) => /^0?([1-9]\d*b?)_/.exec(name)?.[1] ?? name.replace(/^a\d_/, "").replaceAll("_", " "),
  // Rows that pass the filters.
  filter: (rows, source, fidelity) =>
    rows.filter(
      (row) =>
        (source === "all" || row.source === source) &&
        (fidelity === "all" || row.lossless === (fidelity === "lossless")),
    ),
  // Rows sorted by a column; rows without a value are last, equal rows keep their order.
  sort(rows, key, down) {
    const rank = (row) => row[key] ?? null;
    return [...rows].sort((first, second) => {
      const [a, b] = [rank(first), rank(second)];
      if (a === null || b === null) return (a === null) - (b === null);
      const order = typeof a === "string" ? a.localeCompare(b) : a - b;
      return down ? -order : order;
    });
  },
  // Names of the rows that no other row beats. A row beats another if it is at least as good in cost and gain, and
  // better in one of them.
  frontier(rows, cost, gain) {
    const known = rows.filter((row) => row[cost] !== null && row[gain] !== null);
    const beats = (a, b) =>
      a[cost] <= b[cost] && a[gain] >= b[gain] && (a[cost] < b[cost] || a[gain] > b[gain]);
    return known.filter((row) => !known.some((other) => beats(other, row))).map((row) => row.name);
  },
};

const COLUMNS = [
  { key: "name", head: "method", text: String },
  { key: "over_best", head: "× best plain", text: fixed(2), down: true },
  { key: "verdict", head: "result", text: (value) => value ?? NONE, down: true },
  { key: "tau", head: "τ", text: fixed(2), down: true },
  { key: "alpha", head: "accepted ÷ tested", text: fixed(2), down: true },
  { key: "c", head: "c", text: fixed(2) },
  { key: "bytes", head: "memory", text: formatBytes },
  { key: "lossless", head: "lossless", text: (value) => (value ? "yes" : "no") },
  { key: "source", head: "drafts from", text: String, more: true },
  { key: "used", head: "emitted ÷ verified", text: fixed(2), down: true, more: true },
  { key: "dtype", head: "dtype", text: (value) => value ?? NONE, more: true },
  { key: "verify", head: "pass", text: fixed(2), more: true },
  { key: "overhead", head: "rest", text: fixed(2), more: true },
  { key: "same", head: "same text", text: formatShare, down: true, more: true },
  { key: "minutes", head: "training", text: formatMinutes, more: true },
]; // `more`: shown only with all columns
const COSTS = {
  bytes: { label: "memory beside the target, bytes", log: true, text: formatBytes },
  drift: { label: "drift from the target's distribution", log: false, text: fixed(2) },
};

const ratio = (value) => (value === null ? NONE : times(value));
const spread = (row) =>
  row.interval
    ? `${ratio(row.over_best)} (${row.interval.map((end) => end.toFixed(2)).join(" to ")})`
    : ratio(row.over_best);

// What a row costs and gains; nothing for a row that was not timed.
function speeds(row) {
  if (row.over_best === null) return "";
  const plain = ` Against plain decoding in ${row.dtype}, in which it is fastest, it is ${ratio(row.over_same)}, at ${row.tokens_per_second.toFixed(1)} tokens per second.`;
  return `${plain} Its target pass costs ${row.verify.toFixed(2)} plain passes, and everything but draft and target pass costs ${row.overhead.toFixed(2)}.`;
}

function summary(row, where) {
  if (!row) return "Choose a row for its details.";
  const distribution = row.lossless
    ? "The method is lossless."
    : row.drift === null
      ? "The method changes the distribution of the text; the drift was not measured."
      : `The method changes the distribution of a token by ${row.drift.toFixed(3)} on average.`;
  const training =
    row.minutes === null
      ? row.trained
        ? " after training of unrecorded length"
        : ""
      : ` after ${row.minutes.toFixed(0)} minutes of training`;
  const result = `${spread(row)} as fast as the best plain decoding, with τ = ${fixed(2)(row.tau)}`;
  return `${row.name}, ${where}: ${result}. ${distribution} It needs ${formatBytes(row.bytes)} of memory${training}.`;
}

const shares = (values) => values.map(formatShare);

function byPosition({ positions, conditional, empty }) {
  const idle = empty ? ` It drafted nothing in ${shares([empty])[0]} of the rounds.` : "";
  if (!positions?.length) return idle;
  const given =
    conditional.length > 1
      ? ` Given that the earlier drafts were accepted, the rates are ${shares(conditional).join(", ")}.`
      : "";
  const range = positions.length > 1 ? `1 to ${positions.length}` : "1";
  return `${idle} In rounds with drafts, the draft at position ${range} was accepted in ${shares(positions).join(", ")} of the rounds.${given}`;
}

function taskState(chosen, best, first) {
  if (!chosen) return "Choose a row in the table or in the plot.";
  if (chosen.name === first?.name)
    return "This row is the best. Which row would you choose with less memory?";
  if (!best.includes(chosen.name)) return "Another row needs no more memory and is better.";
  return solved(chosen.name);
}

const solved = (name) => `Solved: every row that is better than ${name} needs more memory.`;
const withMargins = (low, high) => [low - 0.06 * (high - low || 1), high + 0.1 * (high - low || 1)];

// Where names can be written beside their points: [{ row, x, anchor }], first come, first served. A name needs free
// room on the right or on the left of its point.
function placeNames(points, right) {
  const boxes = points.map(({ px, py }) => [px - 6, px + 6, py - 6, py + 6]);
  const isFree = ([a, b, c, d]) => boxes.every(([e, f, g, h]) => b < e || a > f || d < g || c > h);
  return points.flatMap(({ row, px, py }) => {
    const width = 6.2 * row.name.length;
    for (const [x, anchor, from] of [
      [px + 9, "start", px + 8],
      [px - 9, "end", px - 8 - width],
    ]) {
      const box = [from, from + width, py - 7, py + 7];
      if (from > 44 && from + width < right && isFree(box)) {
        boxes.push(box);
        return [{ row, x, y: py + 4, anchor }];
      }
    }
    return [];
  });
}

// A card beside the point under the pointer.
function drawCard(svg, row, px, py, width, format, cost) {
  const lines = [
    row.name,
    `${spread(row)} the best plain decoding`,
    `τ ${fixed(2)(row.tau)} · ${format(row[cost])} · chapter ${pageOf(row.chapter)}`,
  ];
  const long = 7 * Math.max(...lines.map((line) => line.length)) + 16;
  const x = Math.min(Math.max(4, px + 12), width - long - 4);
  const y = py > 90 ? py - 72 : py + 12;
  const texts = lines.map((line, i) =>
    svgText(x + 8, y + 18 + 17 * i, line, { "font-weight": i ? 400 : 600 }),
  );
  const box = block(x, y, long, 60, "surface", { rx: 5, stroke: ink("control-line") });
  return make("g", { "pointer-events": "none" }, box, ...texts);
}

function drawPlane(svg, width, { cost }, { rows, best, chosen, pick }) {
  const { label, log, text: format } = COSTS[cost];
  const known = rows.filter((row) => row[cost] !== null && row.over_best !== null);
  if (!known.length) return;
  const box = { left: 40, right: width - 16, top: 24, bottom: 238 };
  const scale = (value) => (log ? Math.log10(Math.max(1, value)) : value);
  const xs = known.map((row) => scale(row[cost]));
  const [left, right] = withMargins(Math.min(...xs), Math.max(...xs));
  const high = Math.max(1.2, ...known.map((row) => row.over_best)) * 1.08;
  const plane = scales(box, [left, right], [0, high]);
  const [x, y] = [(value) => plane.x(scale(value)), plane.y];
  const step = high > 4 ? 1 : 0.5;
  const levels = Array.from({ length: Math.floor(high / step) + 1 }, (_, i) => i * step);
  rulings(svg, box, y, levels);
  svg.append(foot({ ...box, bottom: y(1) }));
  const sizes = width < 500 ? [1e2, 1e4, 1e6, 1e8] : [1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8];
  const ticks = log
    ? sizes.filter((value) => scale(value) > left && scale(value) < right)
    : [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8].filter((value) => value >= left && value <= right);
  axisBelow(svg, box, x, ticks, label, log ? formatBytes : String);
  svg.append(svgText(0, 12, "× best plain decoding"));
  const edge = known.filter((row) => best.includes(row.name)).sort((a, b) => a[cost] - b[cost]);
  const stairs = edge.map((row, i) => `${i ? `H${x(row[cost])}V` : `M${x(row[cost])} `}${y(row.over_best)}`);
  const dashed = { stroke: ink("muted"), "stroke-width": 2, "stroke-dasharray": "5 4" };
  if (edge.length > 1) svg.append(make("path", { d: stairs.join(""), fill: "none", ...dashed }));
  const rank = (row) => (row === chosen ? 2 : best.includes(row.name) ? 1 : 0);
  const points = known
    .map((row) => ({ row, px: x(row[cost]), py: y(row.over_best) }))
    .sort((a, b) => rank(b.row) - rank(a.row) || b.row.over_best - a.row.over_best);
  const names = placeNames(points, box.right);
  for (const { row, px, py } of points) {
    const isChosen = row.name === chosen?.name;
    const look = {
      class: "sdl-pick",
      stroke: ink(isChosen ? "you" : "surface"),
      "stroke-width": isChosen ? 3 : 1,
    };
    const mark = row.lossless
      ? disc(px, py, isChosen ? 8 : 5.5, "one", look)
      : block(px - 5, py - 5, 10, 10, "other", { transform: `rotate(45 ${px} ${py})`, ...look });
    mark.dataset.name = row.name;
    let card = null;
    mark.addEventListener("pointerenter", () => {
      card?.remove();
      svg.append((card = drawCard(svg, row, px, py, width, format, cost)));
    });
    mark.addEventListener("pointerleave", () => card?.remove());
    mark.addEventListener("click", () => pick(row.name));
    svg.append(mark);
  }
  for (const { row, x: at, y: line, anchor } of names) {
    const look = { "text-anchor": anchor, "font-weight": row.name === chosen?.name ? 600 : 400 };
    svg.append(svgText(at, line, row.name, { class: "sdl-halo sdl-point-name", ...look }));
  }
}

const pageOf = (chapter) => formulas.page(chapter.replace(/^notebooks\//, ""));

// A link on a page of the book; plain text in a notebook, and nothing for a row from outside the library.
function chapterLink(chapter) {
  if (!chapter) return make("span", {}, NONE);
  const name = chapter.replace(/^notebooks\//, "");
  const label = pageOf(chapter);
  const isPage = globalThis.location?.pathname.endsWith(".html");
  return isPage ? make("a", { href: `${name}.html` }, label) : make("span", {}, label);
}

function render(context) {
  const names = ["settings", "target", "machine", "rows"];
  const [settings, target, machine, all] = names.map((name) => context.model.get(name));
  const set = (changes) => assign(context.model, changes);
  const whose = target ? ` of ${target}` : "";
  const sources = [...new Set(all.map((row) => row.source))].sort();
  const option = (value, label = value) => ({ value, label });
  const note = `Speeds on ${machine} are counts × costs. A row wins or loses if its 95 % interval excludes 1; otherwise it ties.`;
  const body = make("tbody");
  let now; // the values on display
  const heads = COLUMNS.map(({ key, head, down, more }) => {
    const sort = () => set(now.sort === key ? { down: !now.down } : { sort: key, down: Boolean(down) });
    return make("th", { scope: "col", class: more ? "sdl-more" : "" }, button(head, sort));
  });
  const headRow = make("tr", {}, ...heads, make("th", { scope: "col" }, "chapter"));
  const table = make("table", { class: "sdl-numbers" }, make("thead", {}, headRow), body);
  const wide = make("input", { type: "checkbox" });
  wide.addEventListener("change", () => table.classList.toggle("sdl-all-columns", wide.checked));
  const more = make("p", { class: "sdl-note" });
  const pick = (name) => set({ chosen: now.chosen === name ? "" : name });
  const draw = (s, { charts }) => {
    now = s;
    const { setting, cost, sort, down } = s;
    const cells = (row) => ({ ...row, ...(row.cells[setting] ?? {}) });
    const measured = all.filter((row) => row.cells[setting]);
    const rows = formulas.filter(measured.map(cells), s.source, s.fidelity);
    const chosen = rows.find((row) => row.name === s.chosen);
    COLUMNS.forEach(({ key }, i) => {
      if (key === sort) heads[i].setAttribute("aria-sort", down ? "descending" : "ascending");
      else heads[i].removeAttribute("aria-sort");
    });
    body.replaceChildren(
      ...formulas.sort(rows, sort, down).map((row) => {
        const line = make("tr", {});
        if (row === chosen) line.setAttribute("aria-current", "true");
        const name = button(row.name, () => pick(row.name));
        name.setAttribute("aria-pressed", String(row === chosen));
        line.append(
          make("th", { scope: "row" }, name),
          ...COLUMNS.slice(1).map(({ key, text, more }) =>
            make("td", { class: more ? "sdl-more" : "" }, text(row[key] ?? null, row)),
          ),
          make("td", {}, chapterLink(row.chapter)),
        );
        if (row.verdict === "loses") line.classList.add("sdl-loses");
        return line;
      }),
    );
    const best = formulas.frontier(rows, cost, "over_best");
    charts.plane.node.querySelector("figcaption").textContent =
      cost === "bytes"
        ? "Circles: lossless. Diamonds: lossy. The line at 1 is plain decoding. Dashed: the best row for each amount of memory."
        : "The plot shows lossless rows at 0 and lossy rows whose drift was measured. Dashed: the best row for each amount of drift.";
    const first = formulas.sort(rows, "over_best", true)[0];
    const hint = chosen || !first ? "" : "Choose a row for its details. The best row is ";
    const about = chosen ?? first;
    more.textContent = about ? `${about.name}:${speeds(about)}${byPosition(about)}` : "";
    const say = () => [
      hint + summary(about, settings[setting].name),
      taskState(chosen, formulas.frontier(rows, "bytes", "over_best"), first),
    ];
    return [[], say, { rows, best, chosen, pick }];
  };
  const spec = {
    name: "scoreboard",
    label: `The scoreboard${whose}`,
    task: "choose a row that is not the best and that no other row beats in both memory and speedup.",
    longestState: solved("a method with a rather long name × rule"),
    values: ["setting", "source", "fidelity", "cost", "sort", "down", "chosen"],
    controls: [
      { name: "setting", text: "text", options: settings.map(({ name }) => ({ label: name })) },
      {
        name: "source",
        text: "drafts from",
        options: [option("all", "all sources"), ...sources.map((source) => option(source))],
      },
      {
        name: "fidelity",
        text: "rules",
        options: [option("all", "all rules"), option("lossless"), option("lossy")],
      },
      {
        name: "cost",
        text: "plot against",
        options: [option("bytes", "memory"), ...(all.some((row) => row.drift) ? [option("drift")] : [])],
      },
    ],
    charts: {
      plane: { title: "Gain and its cost", caption: "", size: "sdl-plane", height: 278, draw: drawPlane },
    },
  };
  const layout = ({ task, spoken, controls, charts }) => {
    const { setting, ...filters } = controls;
    const rowsFold = foldOf(
      "The table of methods",
      make("label", { class: "sdl-row" }, wide, "all columns"),
      scroll(`The table of methods${whose}`, table),
      make("p", { class: "sdl-note" }, note),
    );
    rowsFold.classList.add("sdl-board-table");
    return [
      task,
      controlRow(setting, phoneFold("Filters", "sdl-filters", ...Object.values(filters))),
      make("div", { class: "sdl-frame" }, charts.plane.node),
      make("div", {}, spoken),
      foldRow(foldOf("More about this row", more), rowsFold),
    ];
  };
  return panel(context, spec, layout, draw);
}

export default { render, formulas };

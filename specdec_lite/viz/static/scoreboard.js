// The scoreboard: recorded methods as a table that sorts and filters, and what each holds or changes against its
// speed. Every number was recorded; what is computed here is order and the frontier.

const NONE = "–";
const fixed = (digits) => (value) => (value === null ? NONE : value.toFixed(digits));
const UNITS = [
  [1e6, "MB"],
  [1e3, "kB"],
  [1, "B"],
];

const sized = (value) => {
  const [unit, name] = UNITS.find(([least]) => value >= least) ?? [1, "B"];
  const number = value / unit;
  return `${number.toFixed(number < 10 && unit > 1 ? 1 : 0)} ${name}`;
};

// Minutes of training; null where nothing is trained, or where nobody wrote them down.
const trained = (value, row) =>
  value !== null ? `${value.toFixed(0)} min` : row.trained ? "not noted" : "none";

const formulas = {
  sized,
  trained,
  // What a chapter's link says: its number, for an appendix its name.
  page: (name) => /^0?([1-9]\d*b?)_/.exec(name)?.[1] ?? name.replace(/^a\d_/, "").replaceAll("_", " "),
  // Rows that pass the filters.
  shown: (rows, source, law) =>
    rows.filter(
      (row) =>
        (source === "all" || row.source === source) &&
        (law === "all" || row.lossless === (law === "lossless")),
    ),
  // By a column, rows that lack it last; equal ones keep their order.
  sorted(rows, key, down) {
    const rank = (row) => row[key] ?? null;
    return [...rows].sort((one, other) => {
      const [a, b] = [rank(one), rank(other)];
      if (a === null || b === null) return (a === null) - (b === null);
      const order = typeof a === "string" ? a.localeCompare(b) : Number(a) - Number(b);
      return down ? -order : order;
    });
  },
  // Names of the rows that no other beats: none costs at most as much and is faster, or costs less and is as fast.
  frontier(rows, cost) {
    const known = rows.filter((row) => row[cost] !== null && row.speedup !== null);
    const beats = (a, b) =>
      a[cost] <= b[cost] && a.speedup >= b.speedup && (a[cost] < b[cost] || a.speedup > b.speedup);
    return known.filter((row) => !known.some((other) => beats(other, row))).map((row) => row.name);
  },
};

const COLUMNS = [
  { key: "name", head: "method", text: String },
  { key: "source", head: "drafts from", text: String },
  { key: "lossless", head: "text's law", text: (value) => (value ? "the target's" : "changed") },
  { key: "speedup", head: "× plain", text: fixed(2), down: true },
  { key: "over_best", head: "× best plain", text: fixed(2), down: true },
  { key: "tau", head: "τ", text: fixed(2), down: true },
  { key: "alpha", head: "accepted ÷ tested", text: fixed(2), down: true },
  { key: "used", head: "emitted ÷ verified", text: fixed(2), down: true },
  { key: "c", head: "c", text: fixed(2) },
  { key: "formula", head: "by the formula", text: fixed(2), down: true },
  { key: "held", head: "measured ÷ formula", text: fixed(2), down: true },
  {
    key: "same",
    head: "same text",
    text: (value) => (value === null ? NONE : `${Math.round(100 * value)} %`),
    down: true,
  },
  { key: "bytes", head: "holds", text: sized },
  { key: "minutes", head: "training", text: trained },
];
const COSTS = {
  bytes: { label: "bytes held beside the target", log: true, text: sized },
  drift: { label: "how far the law of a token moves", log: false, text: fixed(2) },
};

const times = (value) => (value === null ? NONE : `${value.toFixed(2)}×`);
const isAbove = ({ speedup, ceiling }) => speedup !== null && ceiling !== null && speedup > ceiling;
const spread = ({ speedup, interval }) =>
  interval ? `${times(speedup)} (${interval.map((end) => end.toFixed(2)).join(" to ")})` : times(speedup);

function summary(row, where) {
  if (!row) return "Choose a row for its details.";
  const law = row.lossless
    ? "The text keeps the target's law."
    : row.drift === null
      ? "The text's law is changed; by how much was not measured."
      : `The law of a token moves by ${row.drift.toFixed(3)} on average.`;
  const above = isAbove(row)
    ? ` τ allows ${times(row.ceiling)} at most, so what is above it is noise of the clock.`
    : "";
  const predicted = row.formula
    ? ` The formula says ${times(row.formula)}; measured ÷ predicted is ${fixed(2)(row.held)}.`
    : "";
  const training =
    row.minutes === null
      ? row.trained
        ? ", after training of which no time was noted"
        : ""
      : `, after ${row.minutes.toFixed(0)} minutes of training`;
  const best = ` Against the quickest plain decoder of the machine it is ${times(row.over_best)}, at ${row.tokens_per_second.toFixed(1)} tokens a second.`;
  const costs = ` Its pass costs ${row.verify.toFixed(2)} plain ones, and what is neither draft nor pass ${row.overhead.toFixed(2)}.`;
  return `${row.name}, ${where}: ${spread(row)} as fast as plain decoding with τ = ${fixed(2)(row.tau)}.${above}${best}${predicted}${costs} ${law}${byPosition(row)} It holds ${sized(row.bytes)}${training}.`;
}

const shares = (values) => values.map((share) => (share === null ? NONE : `${Math.round(100 * share)} %`));

function byPosition({ positions, conditional, empty }) {
  const idle = empty ? ` It drafted nothing in ${shares([empty])[0]} of the rounds.` : "";
  if (!positions?.length) return idle;
  const reach = positions.length > 1 ? `1, … ${positions.length}` : "1";
  const given = conditional.length > 1 ? `; given the drafts before, ${shares(conditional).join(", ")}` : "";
  return `${idle} Of the rounds that drafted, ${shares(positions).join(", ")} accepted ${reach} and more${given}.`;
}

function taskState(chosen, best, fastest) {
  if (!chosen) return "Choose a row, in the table or in the picture.";
  if (chosen.name === fastest?.name)
    return "That is the fastest. Which one would you take if bytes were scarce?";
  if (!best.includes(chosen.name)) return "Another row holds no more bytes and is faster.";
  return `Solved: whatever is faster than ${chosen.name} holds more.`;
}

const roomy = (low, high) => [low - 0.06 * (high - low || 1), high + 0.1 * (high - low || 1)];

function drawPlane(svg, width, rows, cost, best, chosen, pick) {
  const { label, log, text: say } = COSTS[cost];
  const known = rows.filter((row) => row[cost] !== null && row.speedup !== null);
  svg.replaceChildren();
  if (!known.length) return;
  const box = { left: 40, right: width - 16, top: 24, bottom: 292 };
  const scale = (value) => (log ? Math.log10(Math.max(1, value)) : value);
  const xs = known.map((row) => scale(row[cost]));
  const [left, right] = roomy(Math.min(...xs), Math.max(...xs));
  const high = Math.max(1.2, ...known.map((row) => row.speedup)) * 1.08;
  const x = (value) => box.left + ((scale(value) - left) / (right - left)) * (box.right - box.left);
  const y = (value) => box.bottom - (value / high) * (box.bottom - box.top);
  const words = (at, said, attributes = {}) => make("text", { x: at[0], y: at[1], ...attributes }, said);
  const step = high > 4 ? 1 : 0.5;
  for (let value = 0; value <= high; value += step)
    svg.append(
      make("line", {
        class: value === 1 ? "sdl-axis" : "sdl-grid",
        x1: box.left,
        x2: box.right,
        y1: y(value),
        y2: y(value),
      }),
      words([box.left - 6, y(value) + 4], String(value), { class: "sdl-faint", "text-anchor": "end" }),
    );
  const ticks = log
    ? (width < 500 ? [1e2, 1e4, 1e6, 1e8] : [1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8]).filter(
        (value) => scale(value) > left && scale(value) < right,
      )
    : [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8].filter((value) => value >= left && value <= right);
  for (const value of ticks)
    svg.append(
      words([x(value), box.bottom + 17], log ? sized(value) : String(value), {
        class: "sdl-faint",
        "text-anchor": "middle",
      }),
    );
  svg.append(
    words([0, 12], "× plain decoding"),
    words([box.right, box.bottom + 35], label, { "text-anchor": "end" }),
  );
  const edge = known.filter((row) => best.includes(row.name)).sort((a, b) => a[cost] - b[cost]);
  if (edge.length > 1)
    svg.append(
      make("path", {
        d: edge.map((row, i) => `${i ? `H${x(row[cost])}V` : `M${x(row[cost])} `}${y(row.speedup)}`).join(""),
        fill: "none",
        stroke: "var(--sdl-accepted)",
        "stroke-width": 2,
        "stroke-dasharray": "5 4",
      }),
    );
  for (const row of known) {
    const [px, py] = [x(row[cost]), y(row.speedup)];
    const isChosen = row.name === chosen?.name;
    const mark = row.lossless
      ? make("circle", { cx: px, cy: py, r: isChosen ? 8 : 5.5, fill: "var(--sdl-target)" })
      : make("rect", {
          x: px - 5,
          y: py - 5,
          width: 10,
          height: 10,
          fill: "var(--sdl-rejected)",
          transform: `rotate(45 ${px} ${py})`,
        });
    mark.setAttribute("stroke", isChosen ? "var(--sdl-ink)" : "var(--sdl-surface)");
    mark.setAttribute("stroke-width", isChosen ? 2.5 : 1);
    mark.setAttribute("class", "sdl-pick");
    mark.dataset.name = row.name;
    mark.append(make("title", {}, `${row.name}: ${times(row.speedup)}, ${say(row[cost])}`));
    mark.addEventListener("click", () => pick(row.name));
    svg.append(mark);
  }
  if (chosen && known.includes(chosen)) {
    const px = x(chosen[cost]);
    const isRight = px > (box.left + box.right) / 2;
    svg.append(
      words([px + (isRight ? -12 : 12), y(chosen.speedup) - 10], chosen.name, {
        class: "sdl-halo",
        "text-anchor": isRight ? "end" : "start",
        "font-weight": 600,
      }),
    );
  }
}

// A link where the book's pages are; a name where a notebook runs.
function chapterLink(chapter) {
  const name = chapter.replace(/^notebooks\//, "");
  const label = formulas.page(name);
  const isPage = globalThis.location?.pathname.endsWith(".html");
  return isPage ? make("a", { href: `${name}.html` }, label) : make("span", {}, label);
}

function render({ model, el }) {
  const get = (name) => model.get(name);
  const set = (changes) => assign(model, changes);
  const settings = get("settings");
  const whose = get("target") ? ` of ${get("target")}` : "";
  const options = (values, every) => [
    ...(every ? [{ value: "all", label: every }] : []),
    ...values.map((value) => ({ value, label: value })),
  ];
  const ids = Object.fromEntries(["setting", "source", "law", "cost"].map((name) => [name, newId(name)]));
  const sources = [...new Set(get("rows").map((row) => row.source))].sort();
  const menus = {
    setting: menu(
      ids.setting,
      settings.map(({ name }, place) => ({ value: String(place), label: name })),
      (value) => set({ setting: Number(value) }),
    ),
    source: menu(ids.source, options(sources, "anywhere"), (value) => set({ source: value })),
    law: menu(
      ids.law,
      [
        { value: "all", label: "every rule" },
        { value: "lossless", label: "keeps the target's law" },
        { value: "lossy", label: "changes it" },
      ],
      (value) => set({ law: value }),
    ),
    cost: menu(
      ids.cost,
      [
        { value: "bytes", label: "bytes held" },
        ...(get("rows").some((row) => row.drift) ? [{ value: "drift", label: "drift of the law" }] : []),
      ],
      (value) => set({ cost: value }),
    ),
  };
  const plane = chart("What speed costs", "", "sdl-plane", { height: 332 });
  const caption = plane.node.querySelector("figcaption");
  const body = make("tbody");
  const heads = COLUMNS.map(({ key, head, down }) => {
    const node = make("th", { scope: "col" });
    node.append(
      button(head, () =>
        set(get("sort") === key ? { down: !get("down") } : { sort: key, down: Boolean(down) }),
      ),
    );
    return node;
  });
  const table = make(
    "table",
    { class: "sdl-numbers" },
    make("thead", {}, make("tr", {}, ...heads, make("th", { scope: "col" }, "chapter"))),
    body,
  );
  const words = "choose a row that is not the fastest, and that no other row beats in both bytes and speed.";
  const room = "Solved: whatever is faster than a method with a rather long name × rule holds more.";
  const { task, spoken, announce, silence } = narration(words, room, 150);
  const labels = { setting: "text", source: "drafts from", law: "rules", cost: "picture: speed against" };
  const root = make(
    "section",
    { class: "sdl sdl-scoreboard", "aria-label": `The scoreboard${whose}` },
    task,
    make(
      "div",
      { class: "sdl-controls" },
      ...Object.entries(menus).map(([name, node]) => field(ids[name], labels[name], node)),
    ),
    make("div", { class: "sdl-frame" }, plane.node),
    spoken,
    scroll(`The table of methods${whose}`, table),
    make("p", { class: "sdl-note" }, "* above the ceiling that τ allows: noise of the clock."),
  );
  const pick = (name) => set({ chosen: get("chosen") === name ? "" : name });
  const draw = () => {
    const place = get("setting");
    const cells = (row) => ({ ...row, ...(row.cells[place] ?? {}) });
    const measured = get("rows").filter((row) => row.cells[place]);
    const rows = formulas.shown(measured.map(cells), get("source"), get("law"));
    const chosen = rows.find((row) => row.name === get("chosen"));
    const cost = get("cost");
    for (const [name, node] of Object.entries(menus)) node.value = String(get(name));
    COLUMNS.forEach(({ key }, i) => {
      const order = get("down") ? "descending" : "ascending";
      if (key === get("sort")) heads[i].setAttribute("aria-sort", order);
      else heads[i].removeAttribute("aria-sort");
    });
    body.replaceChildren(
      ...formulas.sorted(rows, get("sort"), get("down")).map((row) => {
        const line = make("tr", {});
        if (row === chosen) line.setAttribute("aria-current", "true");
        const name = button(row.name, () => pick(row.name));
        name.setAttribute("aria-pressed", String(row === chosen));
        line.append(
          make("th", { scope: "row" }, name),
          ...COLUMNS.slice(1).map(({ key, text }) =>
            make("td", {}, text(row[key] ?? null, row) + (key === "speedup" && isAbove(row) ? " *" : "")),
          ),
          make("td", {}, chapterLink(row.chapter)),
        );
        if (row.speedup !== null && row.speedup < 1) line.classList.add("sdl-loses");
        return line;
      }),
    );
    const best = formulas.frontier(rows, cost);
    caption.textContent =
      cost === "bytes"
        ? "Circles keep the target's law, diamonds change it. The line at 1 is plain decoding; dashed: no row is faster with as few bytes."
        : "Only rows whose drift was measured, and the lossless ones at 0. Dashed: no row is faster with as little drift.";
    drawPlane(plane.svg, Math.max(260, widthOf(plane.svg) || 640), rows, cost, best, chosen, pick);
    const fastest = formulas.sorted(rows, "speedup", true)[0];
    const hint = chosen || !fastest ? "" : "Choose a row for its details. These are the fastest's: ";
    announce(() => [
      hint + summary(chosen ?? fastest, settings[place].name),
      taskState(chosen, formulas.frontier(rows, "bytes"), fastest),
    ]);
  };
  const names = ["setting", "source", "law", "cost", "sort", "down", "chosen"];
  return live({ model, el }, root, names, draw, silence);
}

export default { render, formulas };

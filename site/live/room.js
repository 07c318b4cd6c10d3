// The table of the room: many shared results as one plot of the speedup over the cost of a longer pass. Nothing is sent.

import { make } from "./charts.js";
import { sharedRuns } from "./share.js";

const EXAMPLE = [
  "#ask-run=1.62~1.50~1.71~21.3~34.5~1.38~an example, 8 threads",
  "#ask-run=1.18~1.05~1.22~9.8~11.6~2.10~an example, 2 threads",
  "#ask-run=0.94~0.90~1.01~6.1~5.7~3.40~an example, 4 threads",
]
  .join("\n")
  .replaceAll(" ", "%20");
const [HEIGHT, LEFT, BOTTOM, TOP] = [280, 40, 235, 16];
let rooms = 0;

const middle = (values) => [...values].sort((a, b) => a - b)[(values.length - 1) >> 1];

/** Returns what the plot shows, in one sentence. */
export function verdict({ runs, unreadable }) {
  if (!runs.length)
    return unreadable ? "No line here is a result of the live page." : "Paste results, one per line.";
  const speedups = runs.map(({ speedup }) => speedup);
  const slower = speedups.filter((speedup) => speedup < 1).length;
  return (
    `${runs.length} ${runs.length === 1 ? "machine" : "machines"}: the median speedup is ${middle(speedups).toFixed(2)}×, ` +
    `from ${Math.min(...speedups).toFixed(2)}× to ${Math.max(...speedups).toFixed(2)}×; ${slower} lost.` +
    (unreadable ? ` ${unreadable} could not be read.` : "")
  );
}

function drawRuns(svg, runs) {
  const width = Math.max(240, svg.clientWidth || 420);
  const most = (values, least) => Math.max(least, ...values) * 1.06;
  const [right, top] = [
    most(
      runs.map(({ four }) => four),
      2,
    ),
    most(
      runs.map(({ range }) => range[1]),
      1.5,
    ),
  ];
  const x = (value) => LEFT + 8 + ((value - 0.5) / (right - 0.5)) * (width - LEFT - 24);
  const y = (value) => BOTTOM - (value / top) * (BOTTOM - TOP);
  const words = (at, text, more) => make("text", { class: "sdl-faint", ...at, ...more }, text);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  for (let value = 0; value <= top; value += top > 3 ? 1 : 0.5)
    svg.append(
      make("line", { class: "sdl-grid", x1: LEFT, x2: width, y1: y(value), y2: y(value) }),
      words({ x: LEFT - 6, y: y(value) + 4 }, `${value}×`, { "text-anchor": "end" }),
    );
  for (let value = 1; value <= right; value += right > 8 ? 2 : 1)
    svg.append(words({ x: x(value), y: BOTTOM + 17 }, String(value), { "text-anchor": "middle" }));
  svg.append(
    make("line", {
      x1: LEFT,
      x2: width,
      y1: y(1),
      y2: y(1),
      style: "stroke: var(--sdl-muted); stroke-width: 2",
    }),
    words({ x: width, y: HEIGHT - 6 }, "T(4)/T(1)", { "text-anchor": "end" }),
    words({ x: 0, y: 11 }, "speedup"),
  );
  for (const { four, speedup, range } of runs)
    svg.append(
      make("line", {
        x1: x(four),
        x2: x(four),
        y1: y(range[0]),
        y2: y(range[1]),
        style: "stroke: var(--sdl-target); stroke-width: 2",
      }),
      make("circle", { cx: x(four), cy: y(speedup), r: 5, style: "fill: var(--sdl-target)" }),
    );
}

const heads = ["machine", "plain, tokens/s", "drafted, tokens/s", "speedup", "T(4)/T(1)"];
const row = (kind, values) => make("tr", {}, ...values.map((value) => make(kind, {}, value)));
const valuesOf = ({ device, perSecond: [plain, fast], speedup, range, four }) => [
  device || "not named",
  plain.toFixed(1),
  fast.toFixed(1),
  `${speedup.toFixed(2)}× [${range.map((x) => x.toFixed(2)).join(", ")}]`,
  four.toFixed(2),
];

function render({ el }) {
  const id = `sdl-room-${++rooms}`;
  const box = make("textarea", { id, rows: 4, spellcheck: "false", placeholder: "…#ask-run=…" });
  const said = make("p", { class: "sdl-summary", "aria-live": "polite" });
  const title = "Speedup of each machine, over the cost of a pass over 4 tokens";
  const svg = make("svg", { height: HEIGHT, role: "img", "aria-label": title });
  const body = make("tbody");
  const table = make("table", {}, make("thead", {}, row("th", heads)), body);
  const example = make("button", { type: "button", class: "sdl-button" }, "Show an invented example");
  const root = make(
    "section",
    { class: "sdl sdl-live sdl-room", "aria-label": "The table of the room" },
    make("label", { for: id }, "Results, one per line"),
    box,
    make("div", { class: "sdl-row" }, example),
    said,
    make(
      "figure",
      { class: "sdl-chart" },
      make("p", { class: "sdl-live-title" }, title),
      svg,
      make("figcaption", {}, "A bar spans the turns of one machine. Below the line at 1× drafting lost."),
    ),
    make(
      "div",
      { class: "sdl-scroll", tabindex: 0, role: "region", "aria-label": "The results as a table" },
      table,
    ),
  );
  const draw = () => {
    const shared = sharedRuns(box.value);
    said.textContent = verdict(shared);
    svg.parentElement.hidden = table.parentElement.hidden = !shared.runs.length;
    drawRuns(svg, shared.runs);
    const ranked = [...shared.runs].sort((a, b) => b.speedup - a.speedup);
    body.replaceChildren(...ranked.map((run) => row("td", valuesOf(run))));
  };
  box.addEventListener("input", draw);
  example.addEventListener("click", () => {
    box.value = EXAMPLE;
    draw();
  });
  el.replaceChildren(root);
  draw();
  return () => {};
}

export default { render };

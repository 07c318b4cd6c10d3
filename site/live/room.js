// The table of the room: many shared results as one plot of the speedup over the cost of a longer pass. Nothing is sent.

import { axes } from "./charts.js";
import { button, chart, disc, make, newId, scroll, stroke } from "../../specdec_book/viz/static/kit.js";
import { sharedRuns } from "./share.js";

/** Returns what the plot shows, in one sentence. */
export function verdict({ runs, unreadable }) {
  if (!runs.length) return unreadable ? "No result could be read." : "Paste results, one per line.";
  const speedups = runs.map(({ speedup }) => speedup).sort((a, b) => a - b);
  const [low, middle, high] = [0, (runs.length - 1) >> 1, runs.length - 1].map((i) => speedups[i].toFixed(2));
  const lost = speedups.filter((speedup) => speedup < 1).length;
  const skipped = unreadable ? ` ${unreadable} could not be read.` : "";
  return `Machines: ${runs.length}. The median speedup is ${middle}×, from ${low}× to ${high}×; ${lost} lost.${skipped}`;
}

function drawRuns(svg, runs) {
  const widest = Math.ceil(Math.max(2, ...runs.map(({ four }) => four)));
  const xs = widest > 12 ? [0, widest / 2, widest] : Array.from({ length: widest + 1 }, (_, i) => i);
  const tallest = 1.06 * Math.max(1.5, ...runs.map(({ range }) => range[1]));
  const { x, y, width } = axes(svg, xs, tallest, "T(4)/T(1)", "speedup");
  const thick = { "stroke-width": 2 };
  svg.append(stroke(x(0), y(1), width, y(1), "muted", thick));
  for (const { four, speedup, range } of runs)
    svg.append(
      stroke(x(four), y(range[0]), x(four), y(range[1]), "target", thick),
      disc(x(four), y(speedup), 5, "target"),
    );
}

const heads = ["machine", "plain, tokens/s", "drafted, tokens/s", "speedup", "T(4)/T(1)"];
const row = (kind, values) => make("tr", {}, ...values.map((value) => make(kind, {}, value)));
const cellsOf = ({ device, perSecond: [plain, fast], speedup, range, four }) => [
  device || "not named",
  plain.toFixed(1),
  fast.toFixed(1),
  `${speedup.toFixed(2)}× [${range.map((x) => x.toFixed(2)).join(", ")}]`,
  four.toFixed(2),
];

function render({ model, el }) {
  const id = newId("room");
  const box = make("textarea", { id, rows: 4, spellcheck: "false", placeholder: "…#ask-run=…" });
  const said = make("p", { class: "sdl-summary", "aria-live": "polite" });
  const { svg, node } = chart(
    "Speedup of each machine, over the cost of a pass over 4 tokens",
    "A bar spans the turns of one machine. Below the line at 1× drafting lost.",
    "",
    { height: 250 },
  );
  const body = make("tbody");
  const table = make("table", {}, make("thead", {}, row("th", heads)), body);
  const example = button("", () => {
    box.value = box.value ? "" : model.get("example");
    draw();
  });
  const root = make(
    "section",
    { class: "sdl sdl-live sdl-room", "aria-label": "The table of the room" },
    make("label", { for: id }, "Results, one per line"),
    box,
    make("div", { class: "sdl-row" }, example),
    said,
    node,
    scroll("The results as a table", table),
  );
  const draw = () => {
    const shared = sharedRuns(box.value);
    said.textContent = verdict(shared);
    example.textContent = box.value ? "Clear" : "Show an invented example";
    node.hidden = table.parentElement.hidden = !shared.runs.length;
    drawRuns(svg, shared.runs);
    const ranked = [...shared.runs].sort((a, b) => b.speedup - a.speedup);
    body.replaceChildren(...ranked.map((run) => row("td", cellsOf(run))));
  };
  box.addEventListener("input", draw);
  el.replaceChildren(root);
  draw();
  return () => {};
}

export default { render };

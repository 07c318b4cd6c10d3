// The two charts of the live page: the cost of verifying k tokens on this device, and the predicted and measured
// speedup.

import { curve, disc, make, rulings, scales, stroke, svgText } from "../../specdec_book/viz/static/kit.js";

/** Draws the axes, x over the values `xs` and y from 0 to `largest`; returns the two scales and the width. */
export function axes(svg, xs, largest, xName, yName) {
  const width = Math.max(240, svg.clientWidth || 420),
    [height, left, bottom] = [250, 40, 210];
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const box = { left: left + 12, right: width - 18, top: 18, bottom };
  const { x, y } = scales(box, [xs[0], xs.at(-1)], [0, largest]);
  const step = [0.5, 1, 2, 5, 10, 20, 50].find((size) => largest / size <= 6) ?? 100;
  const levels = Array.from({ length: Math.floor(largest / step) + 1 }, (_, i) => i * step);
  rulings(svg, { left, right: width }, y, levels);
  const faint = { class: "sdl-faint" },
    middle = { ...faint, "text-anchor": "middle" };
  svg.append(
    ...xs.map((value) => svgText(x(value), bottom + 17, String(value), middle)),
    svgText(width, height - 4, xName, { ...faint, "text-anchor": "end" }),
    svgText(0, 10, yName, faint),
  );
  return { x, y, width };
}

const DASHED = { "stroke-dasharray": "6 5" };
const AT_END = { class: "sdl-faint sdl-halo", "text-anchor": "end" };
const FREE = "if verification were free";

/** Returns a line over 1, 2, 3 … */
const over = (values, { x, y }, color, more) =>
  curve(
    values.map((value, i) => [x(i + 1), y(value)]),
    color,
    more,
  );
const listed = (name, values) => values.map((value, i) => `${name}${i + 1}: ${value.toFixed(2)}`).join(", ");

/** Draws T(k)/T(1) against k. earlier: the result of the other memory format, if it was measured. */
export function drawCosts(svg, { costs, options }, earlier) {
  const ratios = ({ target }) => target.map((time) => time / target[0]);
  const now = ratios(costs),
    before = earlier && ratios(earlier.costs),
    ks = now.map((_, i) => i + 1),
    k = options.gamma + 1;
  const largest = Math.max(2, ...now, ...(before ?? [])) * 1.08;
  const scale = axes(svg, ks, largest, "tokens in one pass, k", "T(k) ÷ T(1)"),
    { x, y, width } = scale,
    free = y(1) + 16;
  svg.append(
    over(
      ks.map(() => 1),
      scale,
      "muted",
      DASHED,
    ),
    svgText(width - 4, free, FREE, AT_END),
  );
  if (before) {
    const end = y(before.at(-1)) + (before.at(-1) > now.at(-1) ? -8 : 18);
    svg.append(over(before, scale, "muted"), svgText(x(ks.at(-1)), end, earlier.options.format, AT_END));
  }
  const isDip = now[k - 1] < Math.min(now[k - 2], now[k] ?? Infinity),
    under = y(now[k - 1]) + 22, // a label above a dip would cross the curve
    place = !isDip ? under - 34 : Math.abs(under - free) < 18 ? free + 18 : under;
  svg.append(
    over(now, scale, "target"),
    ...now.map((value, i) => disc(x(i + 1), y(value), i + 1 === k ? 6 : 3.5, "target")),
    svgText(x(k), place, `k = γ + 1: ${now[k - 1].toFixed(2)}`, {
      class: "sdl-halo",
      "text-anchor": k > 5 ? "end" : "middle",
    }),
  );
  const about = "Time of a target pass over k tokens, divided by that over one";
  svg.setAttribute("aria-label", `${about}: ${listed("", now)}.`);
}

/** Draws the predicted speedup at every γ, and the measured speedup at the chosen γ with its range. */
export function drawSpeedup(svg, { options: { gamma }, speedup, plain, speculative }, p) {
  const gammas = p.curve.map((_, i) => i + 1),
    ratios = plain.map((time, i) => time / speculative[i]);
  const largest = Math.max(1.5, ...p.curve, ...p.free, ...ratios) * 1.12;
  const scale = axes(svg, gammas, largest, "draft length, γ", "speedup"),
    { x, y } = scale;
  const [low, high] = [Math.min(...ratios), Math.max(...ratios)].map(y);
  svg.append(
    over(
      gammas.map(() => 1),
      scale,
      "line",
    ),
    over(p.free, scale, "muted", DASHED),
    over(p.curve, scale, "target"),
    svgText(x(gammas.at(-1)), y(p.free.at(-1)) - 8, FREE, AT_END),
    stroke(x(gamma), low, x(gamma), high, "ink", { "stroke-width": 2 }),
    make("path", {
      d: `M${x(gamma)} ${y(p.speedup) - 8}l8 8l-8 8l-8 -8z`,
      style: "fill: var(--sdl-surface); stroke: var(--sdl-target); stroke-width: 2.5",
    }),
    disc(x(gamma), y(speedup), 5, "rejected"),
    svgText(
      x(gammas[0]) - 6,
      y(0) - 8,
      `γ = ${gamma}: measured ${speedup.toFixed(2)}, predicted ${p.speedup.toFixed(2)}`,
      { class: "sdl-halo" },
    ),
  );
  const measured = `Measured at γ ${gamma}: ${speedup.toFixed(2)}.`;
  svg.setAttribute("aria-label", `Speedup by draft length. Predicted: ${listed("γ ", p.curve)}. ${measured}`);
}

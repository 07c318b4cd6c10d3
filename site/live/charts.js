// The two charts of the live page: the cost of verifying k tokens on this device, and the predicted and measured
// speedup.

const SVG_NAMES = new Set(["svg", "g", "path", "line", "rect", "circle", "text"]);

/** Creates an SVG or HTML element. */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElementNS(
    SVG_NAMES.has(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml",
    tag,
  );
  for (const [name, value] of Object.entries(attributes))
    if (value !== false) node.setAttribute(name, value === true ? "" : value);
  node.append(...children);
  return node;
}

/** Returns an empty chart with its title and caption: {svg, node}. */
export function chart(title, caption) {
  const svg = make("svg", { height: 250, role: "img", "aria-label": title });
  return {
    svg,
    node: make(
      "figure",
      { class: "sdl-chart sdl-half" },
      make("p", { class: "sdl-live-title" }, title),
      svg,
      make("figcaption", {}, caption),
    ),
  };
}

/** Draws the axes, x over the values `xs` and y from 0 to `largest`; returns the two scales and the width. */
export function axes(svg, xs, largest, xName, yName) {
  const width = Math.max(240, svg.clientWidth || 420),
    height = 250,
    left = 40,
    bottom = 210,
    top = 18;
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const x = (value) => left + 12 + ((value - xs[0]) / (xs.at(-1) - xs[0])) * (width - left - 30);
  const y = (value) => bottom - (value / largest) * (bottom - top);
  const step = [0.5, 1, 2, 5, 10, 20, 50].find((size) => largest / size <= 6) ?? 100;
  for (let value = 0; value <= largest; value += step)
    svg.append(
      make("line", { class: "sdl-grid", x1: left, x2: width, y1: y(value), y2: y(value) }),
      make("text", { class: "sdl-faint", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)),
    );
  for (const value of xs)
    svg.append(
      make(
        "text",
        { class: "sdl-faint", x: x(value), y: bottom + 17, "text-anchor": "middle" },
        String(value),
      ),
    );
  svg.append(
    make("text", { class: "sdl-faint", x: width, y: height - 4, "text-anchor": "end" }, xName),
    make("text", { class: "sdl-faint", x: 0, y: 10 }, yName),
  );
  return { x, y, width };
}

const line = (xs, ys, { x, y }, style, dash = false) =>
  make("path", {
    d: xs.map((value, i) => `${i ? "L" : "M"}${x(value).toFixed(1)} ${y(ys[i]).toFixed(1)}`).join(""),
    fill: "none",
    style: `stroke: var(${style}); stroke-width: 2.5`,
    "stroke-dasharray": dash && "6 5",
  });

/** Draws T(k)/T(1) against k. earlier: the result of the other memory format, if it was measured. */
export function drawCosts(svg, { costs, options }, earlier) {
  const ks = costs.target.map((_, i) => i + 1),
    ratios = (target) => target.map((time) => time / target[0]);
  const now = ratios(costs.target),
    before = earlier && ratios(earlier.costs.target),
    k = options.gamma + 1;
  const scale = axes(
    svg,
    ks,
    Math.max(2, ...now, ...(before ?? [])) * 1.08,
    "tokens in one pass, k",
    "T(k) ÷ T(1)",
  );
  svg.append(
    line(
      ks,
      ks.map(() => 1),
      scale,
      "--sdl-muted",
      true,
    ),
  );
  const free = scale.y(1) + 16;
  svg.append(
    make(
      "text",
      { class: "sdl-faint sdl-halo", x: scale.width - 4, y: free, "text-anchor": "end" },
      "if verification were free",
    ),
  );
  if (before)
    svg.append(
      line(ks, before, scale, "--sdl-muted"),
      make(
        "text",
        {
          class: "sdl-faint sdl-halo",
          x: scale.x(ks.at(-1)),
          y: scale.y(before.at(-1)) + (before.at(-1) > now.at(-1) ? -8 : 18),
          "text-anchor": "end",
        },
        earlier.options.format,
      ),
    );
  const isDip = now[k - 1] < Math.min(now[k - 2], now[k] ?? Infinity),
    under = scale.y(now[k - 1]) + 22; // a label above a dip would cross the curve
  svg.append(
    line(ks, now, scale, "--sdl-target"),
    ...ks.map((value, i) =>
      make("circle", {
        cx: scale.x(value),
        cy: scale.y(now[i]),
        r: value === k ? 6 : 3.5,
        style: "fill: var(--sdl-target)",
      }),
    ),
    make(
      "text",
      {
        class: "sdl-halo",
        x: scale.x(k),
        y: !isDip ? under - 34 : Math.abs(under - free) < 18 ? free + 18 : under,
        "text-anchor": k > 5 ? "end" : "middle",
      },
      `k = γ + 1: ${now[k - 1].toFixed(2)}`,
    ),
  );
  svg.setAttribute(
    "aria-label",
    `Time of a target pass over k tokens, divided by that over one: ${now.map((value, i) => `${i + 1}: ${value.toFixed(2)}`).join(", ")}.`,
  );
}

/** Draws the predicted speedup at every γ, and the measured speedup at the chosen γ with its range. */
export function drawSpeedup(svg, { options: { gamma }, speedup, plain, speculative }, p) {
  const gammas = p.curve.map((_, i) => i + 1),
    ratios = plain.map((time, i) => time / speculative[i]);
  const scale = axes(
    svg,
    gammas,
    Math.max(1.5, ...p.curve, ...p.free, ...ratios) * 1.12,
    "draft length, γ",
    "speedup",
  );
  const { x, y } = scale,
    [low, high] = [Math.min(...ratios), Math.max(...ratios)];
  svg.append(
    line(
      gammas,
      gammas.map(() => 1),
      scale,
      "--sdl-line",
    ),
    line(gammas, p.free, scale, "--sdl-muted", true),
    line(gammas, p.curve, scale, "--sdl-target"),
  );
  svg.append(
    make(
      "text",
      { class: "sdl-faint sdl-halo", x: x(gammas.at(-1)), y: y(p.free.at(-1)) - 8, "text-anchor": "end" },
      "if verification were free",
    ),
  );
  svg.append(
    make("line", {
      x1: x(gamma),
      x2: x(gamma),
      y1: y(low),
      y2: y(high),
      style: "stroke: var(--sdl-ink); stroke-width: 2",
    }),
    make("path", {
      d: `M${x(gamma)} ${y(p.speedup) - 8}l8 8l-8 8l-8 -8z`,
      style: "fill: var(--sdl-surface); stroke: var(--sdl-target); stroke-width: 2.5",
    }),
    make("circle", { cx: x(gamma), cy: y(speedup), r: 5, style: "fill: var(--sdl-rejected)" }),
  );
  svg.append(
    make(
      "text",
      { class: "sdl-halo", x: x(gammas[0]) - 6, y: y(0) - 8 },
      `γ = ${gamma}: measured ${speedup.toFixed(2)}, predicted ${p.speedup.toFixed(2)}`,
    ),
  );
  svg.setAttribute(
    "aria-label",
    `Speedup by draft length. Predicted: ${p.curve.map((value, i) => `γ ${i + 1}: ${value.toFixed(2)}`).join(", ")}. Measured at γ ${gamma}: ${speedup.toFixed(2)}.`,
  );
}

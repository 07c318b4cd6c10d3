// Plotly figures. Only pages with a figure load the library. A figure is drawn when it comes near the view, the others
// when the browser is idle, because a printed page needs them. All follow the page's light or dark mode.
(() => {
  const page = document.documentElement;
  const plots = [...document.querySelectorAll(".sdl-plot")];
  if (!plots.length) return;

  const [PHONE, PAPER] = [480, 640]; // px: largest width of a phone's figure, and width of a printed figure
  const PANEL = 230; // px, about the height of a phone's panel
  const LINE = 16; // px, height of a line in the title of a panel
  const CONFIG = { displayModeBar: false, plotlyServerURL: "", scrollZoom: false, doubleClick: "reset" };
  // the page's light and dark colors, which the build writes from specdec_book.viz.theme
  const THEME = globalThis.sdlTheme;
  const DARK = {
    ...THEME.data,
    ...Object.fromEntries(Object.keys(THEME.light).map((key) => [THEME.light[key], THEME.dark[key]])),
  };
  const figures = new Map(plots.map((plot) => [plot, JSON.parse(plot.querySelector("script").textContent)]));
  const [drawn, narrows, widths] = [new Set(), new Set(), new Map()];
  let library,
    printing = false;

  const mode = () => (!printing && page.dataset.theme === "dark" ? "dark" : "light");

  function fetchLibrary() {
    library ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `${page.dataset.content_root}_static/vendor/plotly/plotly.min.js`;
      script.onload = resolve;
      script.onerror = reject;
      document.head.append(script);
    });
    return library;
  }

  const recolor = (value, colors) =>
    Array.isArray(value)
      ? value.map((item) => recolor(item, colors))
      : value && typeof value === "object"
        ? Object.fromEntries(Object.entries(value).map(([key, item]) => [key, recolor(item, colors)]))
        : typeof value === "string"
          ? (colors[value.toLowerCase()] ?? value)
          : value;

  const mix = (low, high, share) =>
    `#${[1, 3, 5]
      .map((i) => {
        const [a, b] = [low, high].map((tone) => parseInt(tone.slice(i, i + 2), 16));
        return Math.round(a + share * (b - a))
          .toString(16)
          .padStart(2, "0");
      })
      .join("")}`;

  // Computes the colors of cells: plotly could compute them from the values, but warns about every value.
  function withColors(trace, { cmin, cmax, colorscale: scale }) {
    const color = (value) => {
      const share = Math.min(1, Math.max(0, (value - cmin) / (cmax - cmin || 1)));
      const i = scale.findIndex(([end], at) => at && share <= end);
      const [[from, low], [to, high]] = [scale[i - 1], scale[i]];
      return mix(low, high, (share - from) / (to - from));
    };
    return { ...trace, marker: { ...trace.marker, color: trace.marker.color.map(color), showscale: true } };
  }

  // The library chooses the color of a text in a bar by the bar's color, and takes the page for white. So a pale bar
  // gets the page's ink.
  const PALE = /^rgba\(.*,\s*0?\.[0-4]\d*\)$/;
  function withInk(trace, ink) {
    const colors = trace.type === "bar" && trace.text && !trace.textfont?.color && trace.marker?.color;
    if (!Array.isArray(colors) || !colors.some((color) => PALE.test(color))) return trace;
    const color = colors.map((each) => (PALE.test(each) ? ink : null));
    return { ...trace, insidetextfont: { ...trace.insidetextfont, color } };
  }

  function withTheme(figure, shade) {
    const { data, layout } = shade === "dark" ? recolor(figure, DARK) : structuredClone(figure);
    const ink = THEME[shade];
    delete layout.width;
    const axes = new Set([
      "xaxis",
      "yaxis",
      ...Object.keys(layout).filter((key) => /^[xy]axis\d+$/.test(key)),
    ]);
    for (const axis of axes)
      layout[axis] = {
        gridcolor: ink.grid,
        zerolinecolor: ink.line,
        linecolor: ink.line,
        tickcolor: ink.line,
        ...layout[axis],
      };
    for (const each of layout.annotations ?? []) if (each.showarrow !== false) each.arrowcolor ??= ink.text;
    const sheet = getComputedStyle(page).getPropertyValue("--pst-color-background").trim() || ink.background;
    for (const each of layout.annotations ?? []) if (each.bgcolor) each.bgcolor = sheet; // the page's, not plotly's
    const clear = "rgba(0,0,0,0)";
    return {
      data: data.map((trace) =>
        trace.marker?.coloraxis ? withColors(trace, layout.coloraxis) : withInk(trace, ink.text),
      ),
      layout: {
        ...layout,
        autosize: true,
        paper_bgcolor: clear,
        plot_bgcolor: clear,
        font: { ...layout.font, color: ink.text },
        hoverlabel: { bgcolor: ink.background, bordercolor: ink.line, font: { color: ink.text } },
      },
    };
  }

  const wrap = (text, room) =>
    String(text)
      .split(" ")
      .reduce(
        (lines, word) =>
          lines.at(-1).length + word.length < room
            ? [...lines.slice(0, -1), `${lines.at(-1)} ${word}`.trim()]
            : [...lines, word],
        [""],
      )
      .join("<br>");

  // For a phone: smaller text, long texts on several lines, and a legend instead of names at the ends of lines.
  function forPhone({ data, layout }, width) {
    const room = width / 8;
    const named = (layout.annotations ?? []).filter(({ name }) => name === "end").length > 0;
    const share = ({ domain: [start, end] = [0, 1] }) => end - start; // of the width, for one of several panels
    const titled = (axis, part) =>
      axis.title?.text
        ? {
            ...axis,
            nticks: axis.nticks ?? Math.max(3, Math.round(6 * part)), // labels side by side do not touch
            title: { ...axis.title, text: wrap(axis.title.text, 0.7 * room * part), font: { size: 13 } },
          }
        : axis;
    layout.yaxis.ticktext &&= layout.yaxis.ticktext.map((name) => wrap(name, 0.4 * room)); // room for cells' numbers
    const axes = Object.fromEntries(
      Object.entries(layout).map(([key, part]) => [
        key,
        /^[xy]axis\d*$/.test(key) ? titled(part, key[0] === "x" ? share(part) : 1) : part,
      ]),
    );
    const panels = Object.keys(axes).filter((key) => /^xaxis/.test(key) && axes[key].domain);
    const narrowest = Math.min(1, ...panels.map((key) => share(axes[key])));
    const notes = (layout.annotations ?? []).filter(({ name }) => name !== "end");
    const heading = (note) => note.yref === "paper" && note.y >= 1 && narrowest < 1;
    const shortened = notes.map((note) =>
      heading(note) ? { ...note, text: wrap(note.text, room * narrowest), font: { size: 12 } } : note,
    );
    const lines = Math.max(1, ...shortened.filter(heading).map(({ text }) => text.split("<br>").length));
    const { height, margin } = layout;
    return {
      data: data.map((trace) => ({
        ...trace,
        ...(trace.name && { name: wrap(trace.name, room) }),
        ...(trace.mode?.includes("text") && { text: trace.text.map((text) => wrap(text, 0.5 * room)) }),
      })),
      layout: {
        ...layout,
        ...axes,
        font: { ...layout.font, size: 12 },
        annotations: shortened,
        ...(lines > 1 && {
          height: height + LINE * (lines - 1),
          margin: { ...margin, t: (margin?.t ?? layout.template.layout.margin.t) + LINE * (lines - 1) },
          legend: { ...layout.legend, y: 1 + (LINE * (lines + 1)) / PANEL },
        }),
        ...(named && { showlegend: true, margin: { ...layout.margin, r: 16 } }),
      },
    };
  }

  async function draw(plot) {
    await fetchLibrary();
    const shade = mode();
    const figure = withTheme(figures.get(plot), shade);
    const narrow = plot.clientWidth < PHONE;
    if (drawn.has(plot) && narrow !== narrows.has(plot)) Plotly.purge(plot); // else it keeps its margins
    narrows[narrow ? "add" : "delete"](plot);
    const { data, layout } = narrow ? forPhone(figure, plot.clientWidth) : figure;
    plot.style.height = `${layout.height}px`;
    widths.set(plot, plot.clientWidth);
    await Plotly.react(plot, data, printing ? { ...layout, width: PAPER, autosize: false } : layout, CONFIG);
    await makeRoom(plot);
    await keepInside(plot);
    drawn.add(plot);
    plot.dataset.drawn = shade;
  }

  // A legend needs space above the panel; the figure becomes taller by as much.
  async function makeRoom(plot) {
    const { height, margin, _size: size } = plot._fullLayout;
    const over = Math.ceil(size.t - margin.t);
    if (over <= 0) return;
    plot.style.height = `${height + over}px`;
    await Plotly.relayout(plot, { height: height + over });
  }

  // A text beside its point that would leave the figure stands on the point's other side; a centered one moves. The
  // title below a narrow panel gets shorter lines.
  async function keepInside(plot) {
    const box = plot.getBoundingClientRect();
    const moves = {};
    const title = plot.querySelector(".xtitle")?.getBoundingClientRect();
    if (title?.right > box.right) {
      const lines = plot._fullLayout.xaxis.title.text.split("<br>");
      const share = (2 * box.right - title.left - title.right) / title.width;
      const room = Math.floor(share * Math.max(...lines.map(({ length }) => length)));
      moves["xaxis.title.text"] = wrap(lines.join(" "), room);
    }
    for (const node of plot.querySelectorAll(".annotation[data-index]")) {
      const i = Number(node.dataset.index);
      const { xanchor, showarrow, xshift = 0 } = plot._fullLayout.annotations[i];
      const { left, right } = node.getBoundingClientRect();
      const over = Math.max(0, right - box.right) - Math.max(0, box.left - left);
      if (!over || showarrow) continue;
      if (xanchor === "left" || xanchor === "right")
        moves[`annotations[${i}].xanchor`] = over > 0 ? "right" : "left";
      else moves[`annotations[${i}].xshift`] = xshift - over;
    }
    if (Object.keys(moves).length) await Plotly.relayout(plot, moves);
  }

  const near = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries)
        if (isIntersecting) {
          near.unobserve(target);
          draw(target);
        }
    },
    { rootMargin: "600px 0px" },
  );
  plots.forEach((plot) => near.observe(plot));

  async function drawRemaining() {
    for (const plot of plots) {
      await new Promise((resolve) => (globalThis.requestIdleCallback ?? setTimeout)(resolve));
      if (!drawn.has(plot)) {
        near.unobserve(plot);
        await draw(plot);
      }
    }
  }
  if (!navigator.connection?.saveData) addEventListener("load", drawRemaining);

  new MutationObserver(() => drawn.forEach((plot) => draw(plot))).observe(page, {
    attributes: true,
    attributeFilter: ["data-theme"],
  });
  const resized = new ResizeObserver((entries) =>
    entries.forEach(
      ({ target }) => drawn.has(target) && widths.get(target) !== target.clientWidth && draw(target),
    ),
  );
  plots.forEach((plot) => resized.observe(plot));
  for (const [event, value] of [
    ["beforeprint", true],
    ["afterprint", false],
  ])
    addEventListener(event, () => {
      printing = value;
      plots.forEach(draw);
    });
})();

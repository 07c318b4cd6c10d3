// Plotly figures: the library is fetched only on pages that have one, each figure is drawn when it comes near
// the view, the others when the page has nothing else to do (a printed page needs them), and all follow the
// page's light or dark mode.
(() => {
  const page = document.documentElement;
  const places = [...document.querySelectorAll(".sdl-plot")];
  if (!places.length) return;

  const [PHONE, PAPER] = [480, 640]; // px: up to this wide, and as wide as a printed page allows
  const UNDER = 56; // px: a scale of colours below the panels, where there is no room beside them
  const FLAT = { orientation: "h", yref: "container", y: 0, yanchor: "bottom", thickness: 10, len: 0.8 };
  const CONFIG = { displayModeBar: false, plotlyServerURL: "", scrollZoom: false, doubleClick: "reset" };
  // light and dark page colours, written by the build from specdec_lite.viz.theme
  const THEME = globalThis.sdlTheme;
  const DARK = {
    ...THEME.data,
    ...Object.fromEntries(Object.keys(THEME.light).map((key) => [THEME.light[key], THEME.dark[key]])),
  };
  const figures = new Map(
    places.map((place) => [place, JSON.parse(place.querySelector("script").textContent)]),
  );
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

  const recoloured = (value, colours) =>
    Array.isArray(value)
      ? value.map((item) => recoloured(item, colours))
      : value && typeof value === "object"
        ? Object.fromEntries(Object.entries(value).map(([key, item]) => [key, recoloured(item, colours)]))
        : typeof value === "string"
          ? (colours[value.toLowerCase()] ?? value)
          : value;

  const mixed = (low, high, share) =>
    `#${[1, 3, 5]
      .map((i) => {
        const [a, b] = [low, high].map((tone) => parseInt(tone.slice(i, i + 2), 16));
        return Math.round(a + share * (b - a))
          .toString(16)
          .padStart(2, "0");
      })
      .join("")}`;

  // Cells get their colours here: plotly would find them from the values too, but warns of every value.
  function toned(trace, { cmin, cmax, colorscale: scale }) {
    const colour = (value) => {
      const share = Math.min(1, Math.max(0, (value - cmin) / (cmax - cmin || 1)));
      const i = scale.findIndex(([end], at) => at && share <= end);
      const [[from, low], [to, high]] = [scale[i - 1], scale[i]];
      return mixed(low, high, (share - from) / (to - from));
    };
    return { ...trace, marker: { ...trace.marker, color: trace.marker.color.map(colour), showscale: true } };
  }

  function themed(figure, shade) {
    const { data, layout } = shade === "dark" ? recoloured(figure, DARK) : structuredClone(figure);
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
    const clear = "rgba(0,0,0,0)";
    return {
      data: data.map((trace) => (trace.marker?.coloraxis ? toned(trace, layout.coloraxis) : trace)),
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

  const wrapped = (text, room) =>
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

  // On a phone: smaller letters, long words in several lines, and a legend in place of names at lines' ends.
  function narrowed({ data, layout }, width) {
    const room = width / 8;
    const named = (layout.annotations ?? []).filter(({ name }) => name === "end").length > 0;
    const titled = (axis) =>
      axis.title?.text
        ? {
            ...axis,
            title: { ...axis.title, text: wrapped(axis.title.text, 0.7 * room), font: { size: 13 } },
          }
        : axis;
    const axes = Object.fromEntries(
      Object.entries(layout).map(([key, part]) => [key, /^[xy]axis\d*$/.test(key) ? titled(part) : part]),
    );
    const { coloraxis: scale, height, margin } = layout;
    const under = scale?.colorbar && scale.showscale !== false ? UNDER : 0; // room of a scale of colours
    return {
      data: data.map((trace) => (trace.name ? { ...trace, name: wrapped(trace.name, room) } : trace)),
      layout: {
        ...layout,
        ...axes,
        font: { ...layout.font, size: 12 },
        ...(under && {
          height: height + under,
          margin: { ...margin, b: (margin?.b ?? layout.template.layout.margin.b) + under },
          coloraxis: {
            ...scale,
            colorbar: { ...scale.colorbar, ...FLAT, title: { ...scale.colorbar.title, side: "top" } },
          },
        }),
        ...(named && {
          showlegend: true,
          annotations: layout.annotations.filter(({ name }) => name !== "end"),
          margin: { ...layout.margin, r: 16 },
        }),
      },
    };
  }

  async function draw(place) {
    await fetchLibrary();
    const shade = mode();
    const figure = themed(figures.get(place), shade);
    const narrow = place.clientWidth < PHONE;
    if (drawn.has(place) && narrow !== narrows.has(place)) Plotly.purge(place); // it would keep the other's margins
    narrows[narrow ? "add" : "delete"](place);
    const { data, layout } = narrow ? narrowed(figure, place.clientWidth) : figure;
    place.style.height = `${layout.height}px`;
    widths.set(place, place.clientWidth);
    await Plotly.react(place, data, printing ? { ...layout, width: PAPER, autosize: false } : layout, CONFIG);
    await makeRoom(place);
    drawn.add(place);
    place.dataset.drawn = shade;
  }

  // A legend makes its room above the panel: the figure grows by it.
  async function makeRoom(place) {
    const { height, margin, _size: size } = place._fullLayout;
    const over = Math.ceil(size.t - margin.t);
    if (over <= 0) return;
    place.style.height = `${height + over}px`;
    await Plotly.relayout(place, { height: height + over });
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
  places.forEach((place) => near.observe(place));

  async function drawTheRest() {
    for (const place of places) {
      await new Promise((resolve) => (globalThis.requestIdleCallback ?? setTimeout)(resolve));
      if (!drawn.has(place)) {
        near.unobserve(place);
        await draw(place);
      }
    }
  }
  if (!navigator.connection?.saveData) addEventListener("load", drawTheRest);

  new MutationObserver(() => drawn.forEach((place) => draw(place))).observe(page, {
    attributes: true,
    attributeFilter: ["data-theme"],
  });
  const resized = new ResizeObserver((entries) =>
    entries.forEach(
      ({ target }) => drawn.has(target) && widths.get(target) !== target.clientWidth && draw(target),
    ),
  );
  places.forEach((place) => resized.observe(place));
  for (const [event, value] of [
    ["beforeprint", true],
    ["afterprint", false],
  ])
    addEventListener(event, () => {
      printing = value;
      places.forEach(draw);
    });
})();

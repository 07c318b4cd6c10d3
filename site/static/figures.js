// Plotly figures: the library is fetched only on pages that have one, each figure is drawn when it comes near the view,
// and all follow the page's light or dark mode.
(() => {
  const page = document.documentElement;
  const places = [...document.querySelectorAll(".sdl-plot")];
  if (!places.length) return;

  const CONFIG = { displayModeBar: false, responsive: true, plotlyServerURL: "", scrollZoom: false, doubleClick: "reset" };
  const THEME = globalThis.sdlTheme; // light and dark page colours, written by the build from specdec_lite.viz.theme
  const DARK_DATA = { // the palette's colours as the interactives show them in the dark
    "#0072b2": "#4aa8e0", "#e69f00": "#f0b429", "#009e73": "#2fc79b", "#d55e00": "#f08a4b",
    "#cc79a7": "#dd95bd", "#56b4e9": "#7cc7f2", "#767676": "#a6afba", "#000000": "#f0f0f0",
  };
  const DARK = { ...DARK_DATA, ...Object.fromEntries(Object.keys(THEME.light).map((key) => [THEME.light[key], THEME.dark[key]])) };
  const figures = new Map(places.map((place) => [place, JSON.parse(place.querySelector("script").textContent)]));
  const drawn = new Set();
  let library;

  const mode = () => (page.dataset.theme === "dark" ? "dark" : "light");

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
    Array.isArray(value) ? value.map((item) => recoloured(item, colours))
    : value && typeof value === "object"
      ? Object.fromEntries(Object.entries(value).map(([key, item]) => [key, recoloured(item, colours)]))
    : typeof value === "string" ? colours[value.toLowerCase()] ?? value
    : value;

  function themed(figure, shade) {
    const { data, layout } = shade === "dark" ? recoloured(figure, DARK) : structuredClone(figure);
    const ink = THEME[shade];
    delete layout.width;
    const axes = new Set(["xaxis", "yaxis", ...Object.keys(layout).filter((key) => /^[xy]axis\d+$/.test(key))]);
    for (const axis of axes)
      layout[axis] = { gridcolor: ink.grid, zerolinecolor: ink.line, linecolor: ink.line, tickcolor: ink.line, ...layout[axis] };
    const clear = "rgba(0,0,0,0)";
    return { data, layout: { ...layout, autosize: true, paper_bgcolor: clear, plot_bgcolor: clear,
      font: { ...layout.font, color: ink.text },
      hoverlabel: { bgcolor: ink.background, bordercolor: ink.line, font: { color: ink.text } } } };
  }

  async function draw(place, shade = mode()) {
    await fetchLibrary();
    const { data, layout } = themed(figures.get(place), shade);
    await Plotly.react(place, data, layout, CONFIG);
    drawn.add(place);
    place.dataset.drawn = shade;
  }

  const near = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries)
      if (isIntersecting) { near.unobserve(target); draw(target); }
  }, { rootMargin: "600px 0px" });
  places.forEach((place) => near.observe(place));

  new MutationObserver(() => drawn.forEach((place) => draw(place)))
    .observe(page, { attributes: true, attributeFilter: ["data-theme"] });
  addEventListener("beforeprint", () => places.forEach((place) => draw(place, "light")));
  addEventListener("afterprint", () => drawn.forEach((place) => draw(place)));
})();

// Plotly figures: the library is fetched only on pages that have one, each figure is drawn when it comes near the view,
// and all follow the page's light or dark mode.
(() => {
  const page = document.documentElement;
  const places = [...document.querySelectorAll(".sdl-plot")];
  if (!places.length) return;

  const CONFIG = { displayModeBar: false, responsive: true, plotlyServerURL: "", scrollZoom: false, doubleClick: "reset" };
  const DARK = {
    "#000000": "#f0f0f0", "#0072b2": "#56a8e0", "#d55e00": "#f0803c", "#009e73": "#2fc49a",
    "#cc79a7": "#e09ac2", "#56b4e9": "#8ccdf2", "#e69f00": "#f0b429", "#f0e442": "#f0e442",
  };
  const INK = { light: { text: "#1f2328", grid: "#dfe3e8", axis: "#57606a", panel: "#ffffff" },
                dark: { text: "#e6e6e6", grid: "#3d444d", axis: "#9aa4b0", panel: "#22272e" } };
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
    const colours = shade === "dark" ? { ...DARK, ...figure.layout.meta?.dark } : {};
    const { data, layout } = recoloured(figure, colours);
    const ink = INK[shade];
    delete layout.width;
    const axes = new Set(["xaxis", "yaxis", ...Object.keys(layout).filter((key) => /^[xy]axis\d+$/.test(key))]);
    for (const axis of axes)
      layout[axis] = { ...layout[axis], gridcolor: ink.grid, zerolinecolor: ink.grid, linecolor: ink.axis, tickcolor: ink.axis };
    return { data, layout: {
      ...layout, autosize: true, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { ...layout.font, color: ink.text },
      legend: { ...layout.legend, bgcolor: "rgba(0,0,0,0)" },
      hoverlabel: { bgcolor: ink.panel, bordercolor: ink.axis, font: { color: ink.text } } } };
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

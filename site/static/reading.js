// Small helps for reading: what scrolls sideways can be scrolled from the keyboard and fades where there is more,
// a printed page is light and shows what is folded in.
(() => {
  const own = "div.math, .cell_output pre, .highlight pre, .pst-scrollable-table-container";
  const fade = (box) => {
    const rest = box.scrollWidth - box.clientWidth - Math.abs(box.scrollLeft);
    box.classList.toggle("sdl-more", rest > 2);
  };
  const reachable = (box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  };
  const watch = new ResizeObserver((entries) =>
    entries.forEach(({ target }) => {
      if (target.matches(own)) reachable(target);
      fade(target);
    }),
  );
  document.querySelectorAll(`${own}, article .sdl-scroll`).forEach((box) => {
    watch.observe(box);
    box.addEventListener("scroll", () => fade(box), { passive: true });
  });

  let folded = [],
    drawn = [],
    shade;
  addEventListener("beforeprint", () => {
    shade = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light"; // paper is white
    // a figure's data stay folded: the figure is on the paper
    folded = [...document.querySelectorAll("details:not([open], .sdl-data)")];
    folded.forEach((details) => {
      details.open = true;
    });
    // drawn for the window's width: a sheet is narrower, and shows them whole only if they can shrink
    drawn = [...document.querySelectorAll(".sdl svg:not([viewBox], .sdl-canvas *, .sdl-arcs)")];
    drawn
      .map((svg) => [svg, svg.getBoundingClientRect()])
      .forEach(([svg, { width, height }]) => {
        if (width && height) svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      });
  });
  addEventListener("afterprint", () => {
    document.documentElement.dataset.theme = shade;
    folded.forEach((details) => {
      details.open = false;
    });
    drawn.forEach((svg) => svg.removeAttribute("viewBox"));
  });

  // Side notes stand open in the margin and on paper; elsewhere they are folded in their place.
  const margin = matchMedia("(min-width: 1200px), print");
  const place = () =>
    document.querySelectorAll("details.sdl-side").forEach((note) => {
      note.open = margin.matches;
    });
  margin.addEventListener("change", place);
  place();

  // The contents of a page, unfolded over it on a phone, give way to the place that was chosen.
  document.querySelectorAll("dialog").forEach((dialog) =>
    dialog.addEventListener("click", ({ target }) => {
      if (target.closest("a[href*='#']")) dialog.close();
    }),
  );

  // The excerpts under search results are of the text: not of the buttons and the contents beside it, not of code,
  // and a formula stands in them as words.
  addEventListener("DOMContentLoaded", () => {
    if (typeof Search === "undefined") return;
    const plain = Search.htmlToText;
    Search.htmlToText = (page, anchor) => {
      const article = new DOMParser().parseFromString(page, "text/html").querySelector("article");
      article?.querySelectorAll(".math[data-plain]").forEach((formula) => {
        formula.textContent = formula.dataset.plain;
      });
      article
        ?.querySelectorAll("script, style, pre, .cell_input, .cell details.hide > summary, .sdl-interactive")
        .forEach((part) => part.remove());
      return plain(article ? `<main role="main">${article.outerHTML}</main>` : page, anchor);
    };
  });

  // An excerpt begins and ends with a whole word.
  addEventListener("DOMContentLoaded", () => {
    if (typeof Search === "undefined") return;
    const quoted = Search.makeSearchSummary;
    Search.makeSearchSummary = (...asked) => {
      const quote = quoted(...asked);
      if (quote)
        quote.textContent = quote.textContent.replace(/^\.\.\.\S*\s/, "… ").replace(/\s\S*\.\.\.$/, " …");
      return quote;
    };
  });

  // Results come while a reader types, and stand in the address.
  addEventListener("DOMContentLoaded", () => {
    const field = document.querySelector("main form.bd-search input");
    const results = document.getElementById("search-results");
    if (typeof Search === "undefined" || !field || !results) return;
    let [timer, listed] = [0, []];
    const find = Search._performSearch;
    Search._performSearch = (...query) => (listed = find(...query));
    const search = () => {
      const query = field.value.trim();
      if (query.length === 1) return;
      listed.length = 0; // what is still being listed of the search before stays away
      results.replaceChildren();
      if (location.protocol !== "file:")
        history.replaceState(null, "", query ? `?q=${encodeURIComponent(query)}` : location.pathname);
      if (query) Search.performSearch(query);
    };
    field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(search, 250);
    });
  });

  // They are fetched, which browsers refuse to pages opened from a folder.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined")
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
})();

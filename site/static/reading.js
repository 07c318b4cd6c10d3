// Small aids for reading: boxes that scroll sideways can be scrolled from the keyboard and fade where they continue;
// a printed page is light and unfolded.
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
    // a figure's data and the code of set-up and figures remain folded, because the figure itself is printed
    folded = [...document.querySelectorAll("details:not([open], .sdl-data, .hide:not(:has(.cell_output)))")];
    folded.forEach((details) => {
      details.open = true;
    });
    // these are drawn for the window's width; a sheet of paper is narrower, so they must be able to shrink
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

  // Side notes are open in the margin and on paper; elsewhere they are folded.
  const margin = matchMedia("(min-width: 1200px), print");
  const openNotes = () =>
    document.querySelectorAll("details.sdl-side").forEach((note) => {
      note.open = margin.matches;
    });
  margin.addEventListener("change", openNotes);
  openNotes();

  // On a phone, a page's contents are shown over the page; they close when the reader chooses a section.
  document.querySelectorAll("dialog").forEach((dialog) =>
    dialog.addEventListener("click", ({ target }) => {
      if (target.closest("a[href*='#']")) dialog.close();
    }),
  );

  // Excerpts under search results show the article only, without buttons, contents or code, and with formulas as
  // plain text.
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
    const makeSummary = Search.makeSearchSummary;
    Search.makeSearchSummary = (...query) => {
      const quote = makeSummary(...query);
      if (quote)
        quote.textContent = quote.textContent.replace(/^\.\.\.\S*\s/, "… ").replace(/\s\S*\.\.\.$/, " …");
      return quote;
    };
  });

  // Search results appear while the reader types, and the query is written into the address.
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
      listed.length = 0; // stops the listing of the previous search
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

  // Excerpts need fetch, which browsers refuse to pages opened from a folder.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined")
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
})();

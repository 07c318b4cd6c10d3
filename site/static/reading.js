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

  // One switch for all folded code of a page, which this browser remembers.
  const folds = [...document.querySelectorAll("article .cell details.hide.above-input")];
  const bar = document.querySelector(".article-header-buttons");
  if (folds.length && bar) {
    const store = (value) => {
      try {
        if (value !== undefined) localStorage.setItem("sdl-code", value);
        return localStorage.getItem("sdl-code") === "true";
      } catch {
        return value ?? false; // storage is off
      }
    };
    const button = Object.assign(document.createElement("button"), {
      type: "button",
      className: "sdl-code-switch",
      textContent: "Code",
      title: "Show all code of this page",
    });
    const show = (isOn) => {
      button.ariaPressed = String(isOn);
      folds.forEach((fold) => {
        fold.open = isOn;
      });
    };
    button.addEventListener("click", () => show(store(button.ariaPressed !== "true")));
    bar.prepend(button);
    show(store());
  }

  // The sidebar keeps its scroll position between pages; the current page must be visible in it.
  addEventListener("load", () => {
    const sidebar = document.querySelector(".bd-sidebar-primary");
    const entry = sidebar?.querySelector("nav a.current, nav .current > a");
    if (!entry) return;
    const [own, all] = [entry.getBoundingClientRect(), sidebar.getBoundingClientRect()];
    if (own.top < all.top || own.bottom > Math.min(all.bottom, innerHeight))
      sidebar.scrollTop += own.top - all.top - all.height / 3;
  });

  // On a phone, a page's contents are shown over the page; they close when the reader chooses a section.
  document.querySelectorAll("dialog").forEach((dialog) =>
    dialog.addEventListener("click", ({ target }) => {
      if (target.closest("a[href*='#']")) dialog.close();
    }),
  );

  const writePlainly = (part) =>
    part.querySelectorAll(".math[data-plain]").forEach((formula) => {
      formula.textContent = formula.dataset.plain;
    });
  // Of an entry of the glossary, a dt.
  const nameOf = (term) => term.firstChild.textContent.trim();
  const meaningOf = (term) => {
    const meaning = term.parentElement.querySelector(`#${CSS.escape(term.id)} ~ dd`);
    writePlainly(meaning);
    return meaning.textContent.trim();
  };

  // Excerpts under search results show the article only, without buttons, contents or code, and with formulas as
  // plain text; under an entry of the glossary they show its meaning.
  addEventListener("DOMContentLoaded", () => {
    if (typeof Search === "undefined") return;
    const plain = Search.htmlToText;
    Search.htmlToText = (page, anchor) => {
      const article = new DOMParser().parseFromString(page, "text/html").querySelector("article");
      if (article) writePlainly(article);
      article
        ?.querySelectorAll("script, style, pre, .cell_input, .cell details.hide > summary, .sdl-interactive")
        .forEach((part) => part.remove());
      const term = anchor && article?.querySelector(`dt[id="${anchor.slice(1)}"]`);
      if (term) return `${nameOf(term)}: ${meaningOf(term)}`;
      return plain(article ? `<main role="main">${article.outerHTML}</main>` : page, anchor);
    };

    // An excerpt is the sentence with the query, or the place where most of its words are.
    const LENGTH = 260;
    Search.makeSearchSummary = (page, words, anchor) => {
      const text = Search.htmlToText(page, anchor).replace(/\s+/g, " ").trim();
      if (!text) return null;
      const low = text.toLowerCase();
      const query = document.querySelector("main form.bd-search input")?.value.trim().toLowerCase() ?? "";
      const excerpt = (from) =>
        from + LENGTH < text.length
          ? `${text.slice(from, from + LENGTH).replace(/\s\S*$/, "")} …`
          : text.slice(from);
      const shown = (from) => {
        const part = excerpt(from).toLowerCase();
        return [...words].filter((word) => part.includes(word)).length;
      };
      const best = (places) => {
        const counts = places.map(shown);
        return places[counts.indexOf(Math.max(...counts))];
      };
      const places = [...words].flatMap((word) =>
        [...low.matchAll(RegExp(word.replace(/\W/g, "\\$&"), "g"))].map((match) => match.index),
      );
      const at = query && low.includes(query) ? low.indexOf(query) : best([...places, 0]);
      const sentence =
        Math.max(...[". ", "? ", "! ", ": "].map((mark) => text.lastIndexOf(mark, at - 1))) + 2;
      // The sentence's beginning if it is near, else some words before, unless a later start shows more of the query.
      const before = at - sentence < 160 ? (sentence > 1 ? sentence : 0) : text.indexOf(" ", at - 100) + 1;
      const quote = document.createElement("p");
      quote.className = "context";
      quote.textContent = excerpt(best([before, at]));
      return quote;
    };
  });

  // Above the results: what the glossary says, and the page to begin with.
  const BEGIN = [
    [/\b(worth|pays?|profit|gain)\b/i, "notebooks/19_will_it_pay"],
    [/\b(vllm|sglang|tensorrt|llama\.cpp|serv(e|ing|er))\b/i, "book/serve"],
    [/\b(acceptance|alpha|speedup|faster)\b/i, "notebooks/07_how_fast"],
    [/\b(lossless|exact|same text)\b/i, "notebooks/06_why_lossless"],
  ];
  async function answerOf(query, box) {
    const root = document.documentElement.dataset.content_root;
    const line = (href, name, text) => {
      const link = Object.assign(document.createElement("a"), { href, textContent: name });
      const node = document.createElement("p");
      node.append(link, text);
      return node;
    };
    const lines = [];
    const fetched = location.protocol !== "file:"; // a page in a folder may not read another one
    const glossary = fetched
      ? await fetch(`${root}book/glossary.html`).then(
          (page) => page.text(),
          () => "",
        )
      : "";
    const first = BEGIN.find(([words]) => words.test(query))?.[1];
    const index = first ? (Search._index?.docnames.indexOf(first) ?? -1) : -1;
    if (index >= 0) lines.push(line(`${root}${first}.html`, Search._index.titles[index], ": begin here."));
    const terms = [
      ...new DOMParser().parseFromString(glossary, "text/html").querySelectorAll("article dt[id]"),
    ];
    const name = (term) => nameOf(term).toLowerCase();
    const term =
      terms.find((each) => name(each) === query.toLowerCase().replace(/s$/, "")) ??
      terms.find((each) => name(each) === query.toLowerCase());
    if (term) lines.unshift(line(`${root}book/glossary.html#${term.id}`, name(term), `: ${meaningOf(term)}`));
    if (box.dataset.query === query) box.replaceChildren(...lines);
  }

  // Search results appear while the reader types, and the query is written into the address.
  addEventListener("DOMContentLoaded", () => {
    const field = document.querySelector("main form.bd-search input");
    const results = document.getElementById("search-results");
    if (typeof Search === "undefined" || !field || !results) return;
    let [timer, listed] = [0, []];
    const answer = Object.assign(document.createElement("div"), { className: "sdl-answer" });
    answer.setAttribute("aria-live", "polite");
    results.before(answer);
    const find = Search._performSearch;
    Search._performSearch = (...query) => {
      answer.dataset.query = field.value.trim();
      answerOf(answer.dataset.query, answer);
      return (listed = find(...query));
    };
    const search = () => {
      const query = field.value.trim();
      if (query.length === 1) return;
      listed.length = 0; // stops the listing of the previous search
      results.replaceChildren();
      answer.replaceChildren();
      if (location.protocol !== "file:")
        history.replaceState(null, "", query ? `?q=${encodeURIComponent(query)}` : location.pathname);
      if (query) Search.performSearch(query);
    };
    answer.dataset.query = new URLSearchParams(location.search).get("q")?.trim() ?? "";
    if (answer.dataset.query) answerOf(answer.dataset.query, answer); // the first search began earlier
    field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(search, 250);
    });
  });

  // Excerpts need fetch, which browsers refuse to pages opened from a folder.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined")
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
})();

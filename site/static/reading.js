// Small helps for reading: what scrolls sideways can be scrolled from the keyboard, a printed page shows what is folded in.
(() => {
  const reachable = (box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  };
  const boxes = document.querySelectorAll("div.math, .cell_output pre, .highlight pre, .pst-scrollable-table-container");
  const watch = new ResizeObserver((entries) => entries.forEach(({ target }) => reachable(target)));
  addEventListener("load", async () => {
    await globalThis.MathJax?.startup?.promise;
    boxes.forEach((box) => watch.observe(box));
  });

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach((details) => { details.open = false; }));

  // The excerpts under search results are fetched, which browsers refuse to pages opened from a folder.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
})();

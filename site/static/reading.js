// Small helps for reading: wide formulas can be scrolled from the keyboard, and a printed page shows what is folded in.
(() => {
  const reach = () => document.querySelectorAll("div.math, .cell_output pre, .highlight pre").forEach((box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });
  addEventListener("resize", reach);
  addEventListener("load", () => (globalThis.MathJax?.startup?.promise ?? Promise.resolve()).then(reach));

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach((details) => { details.open = false; }));

  // The excerpts under search results are fetched, which browsers refuse to pages opened from a folder.
  if (location.protocol === "file:" && globalThis.DOCUMENTATION_OPTIONS) DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
})();

// A glossary term in the text shows its definition to the pointer and to the keyboard; Escape takes it away.
(() => {
  const terms = [...document.querySelectorAll("a.sdl-term")];
  if (terms.length === 0) return;
  const tip = document.createElement("div");
  Object.assign(tip, { id: "sdl-tip", className: "sdl-tip", role: "tooltip", hidden: true });
  document.querySelector("article").append(tip);
  let shown = null;
  let timer = 0;

  function hide() {
    clearTimeout(timer);
    shown?.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  }

  function show(term) {
    hide();
    shown = term;
    tip.textContent = term.dataset.definition;
    term.setAttribute("aria-describedby", tip.id);
    tip.hidden = false;
    const word = term.getClientRects()[0];
    const left = Math.max(8, Math.min(word.left, innerWidth - tip.offsetWidth - 8));
    const isBelow = word.bottom + tip.offsetHeight + 8 < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${isBelow ? word.bottom + 2 : word.top - tip.offsetHeight - 2}px`;
  }

  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(hide, 250); // time to reach the definition itself, which stays while one is on it
  };
  for (const term of terms) {
    term.addEventListener("pointerenter", ({ pointerType }) => pointerType === "mouse" && show(term));
    term.addEventListener("pointerleave", later);
    term.addEventListener("focus", () => term.matches(":focus-visible") && show(term));
    term.addEventListener("blur", hide);
  }
  tip.addEventListener("pointerenter", () => clearTimeout(timer));
  tip.addEventListener("pointerleave", later);
  addEventListener("keydown", ({ key }) => key === "Escape" && hide());
  addEventListener("scroll", hide, { passive: true });
})();

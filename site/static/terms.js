// Cards for glossary terms and citations: a term shows its definition, a citation the paper's title and address. A card
// appears on hover and on keyboard focus. On a touch screen the first tap shows it and the second follows the link.
// Escape closes it.
(() => {
  const marks = [...document.querySelectorAll("a:is(.sdl-term, .sdl-cite)")];
  if (marks.length === 0) return;
  const tip = document.createElement("span");
  Object.assign(tip, { id: "sdl-tip", className: "sdl-tip", role: "note", hidden: true });
  let shown = null;
  let timer = 0;
  let top = 0; // of the word when its card was shown

  function hide() {
    clearTimeout(timer);
    shown?.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  }

  function show(mark) {
    hide();
    shown = mark;
    tip.textContent = mark.dataset.definition;
    const { address } = mark.dataset;
    if (address) {
      const link = Object.assign(document.createElement("a"), { href: address, textContent: address });
      tip.append(" ", link);
    }
    mark.after(tip); // so that Tab moves from the word into its card
    mark.setAttribute("aria-describedby", tip.id);
    tip.hidden = false;
    tip.style.left = "0"; // otherwise the card is only as wide as the space beside the word
    const word = mark.getClientRects()[0];
    top = word.top;
    const left = Math.max(8, Math.min(word.left, innerWidth - tip.offsetWidth - 8));
    const isBelow = word.bottom + tip.offsetHeight + 8 < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${isBelow ? word.bottom + 2 : word.top - tip.offsetHeight - 2}px`;
  }

  const hideSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(hide, 250); // time to move onto the card, which stays open while the pointer is on it
  };
  const hideOnBlur = ({ relatedTarget }) => !tip.contains(relatedTarget) && hide();
  let touched = false;
  for (const mark of marks) {
    mark.addEventListener("pointerenter", ({ pointerType }) => pointerType === "mouse" && show(mark));
    mark.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && hideSoon());
    mark.addEventListener("pointerdown", ({ pointerType }) => {
      touched = pointerType === "touch";
    });
    mark.addEventListener("click", (event) => {
      if (!touched || shown === mark) return;
      event.preventDefault();
      show(mark);
    });
    mark.addEventListener("focus", () => mark.matches(":focus-visible") && show(mark));
    mark.addEventListener("blur", hideOnBlur);
  }
  tip.addEventListener("focusout", (event) => event.relatedTarget !== shown && hideOnBlur(event));
  tip.addEventListener("pointerenter", () => clearTimeout(timer));
  tip.addEventListener("pointerleave", hideSoon);
  addEventListener("pointerdown", ({ target }) => target !== shown && !tip.contains(target) && hide());
  addEventListener("keydown", ({ key }) => key === "Escape" && hide());
  // Scrolling hides the card only if the word moved: the event of an earlier scroll may arrive late.
  const hideIfMoved = () => shown && Math.abs(shown.getClientRects()[0].top - top) > 2 && hide();
  addEventListener("scroll", hideIfMoved, { passive: true });
})();

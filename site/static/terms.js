// What a word or a citation stands for, beside it: a glossary term shows its definition, a citation the paper's
// title and address. To the pointer and to the keyboard; on a touch screen the first tap shows it, the second
// follows the link. Escape takes it away.
(() => {
  const marks = [...document.querySelectorAll("a:is(.sdl-term, .sdl-cite)")];
  if (marks.length === 0) return;
  const tip = document.createElement("span");
  Object.assign(tip, { id: "sdl-tip", className: "sdl-tip", role: "note", hidden: true });
  let shown = null;
  let timer = 0;
  let place = 0;

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
    mark.after(tip); // Tab leads from the one into the other
    mark.setAttribute("aria-describedby", tip.id);
    tip.hidden = false;
    tip.style.left = "0"; // else it is only as wide as there is room beside the word
    const word = mark.getClientRects()[0];
    place = word.top;
    const left = Math.max(8, Math.min(word.left, innerWidth - tip.offsetWidth - 8));
    const isBelow = word.bottom + tip.offsetHeight + 8 < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${isBelow ? word.bottom + 2 : word.top - tip.offsetHeight - 2}px`;
  }

  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(hide, 250); // time to reach the card itself, which stays while one is on it
  };
  const left = ({ relatedTarget }) => !tip.contains(relatedTarget) && hide();
  let touched = false;
  for (const mark of marks) {
    mark.addEventListener("pointerenter", ({ pointerType }) => pointerType === "mouse" && show(mark));
    mark.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && later());
    mark.addEventListener("pointerdown", ({ pointerType }) => {
      touched = pointerType === "touch";
    });
    mark.addEventListener("click", (event) => {
      if (!touched || shown === mark) return;
      event.preventDefault();
      show(mark);
    });
    mark.addEventListener("focus", () => mark.matches(":focus-visible") && show(mark));
    mark.addEventListener("blur", left);
  }
  tip.addEventListener("focusout", (event) => event.relatedTarget !== shown && left(event));
  tip.addEventListener("pointerenter", () => clearTimeout(timer));
  tip.addEventListener("pointerleave", later);
  addEventListener("pointerdown", ({ target }) => target !== shown && !tip.contains(target) && hide());
  addEventListener("keydown", ({ key }) => key === "Escape" && hide());
  // Not for the scrolling that brought the word here, which may be told of late.
  const moved = () => shown && Math.abs(shown.getClientRects()[0].top - place) > 2 && hide();
  addEventListener("scroll", moved, { passive: true });
})();

// A trace's tokens show their pass, their outcome, p, q and the uniform number u on hover, on a tap and, if the text has
// the focus, with the arrow keys. The same token is highlighted in the strip of passes, whose boxes react too. The text
// comes from `title`, which a notebook shows itself.
(() => {
  for (const text of document.querySelectorAll(".sdl-trace .sdl-text")) {
    const tokens = [...text.querySelectorAll(".sdl-token[title]")];
    if (tokens.length === 0) continue;
    const card = document.createElement("p");
    Object.assign(card, { className: "sdl-token-card", ariaLive: "polite" });
    card.textContent =
      "Point at a token, or move through the tokens with the arrow keys: its outcome is shown here.";
    text.after(card);
    Object.assign(text, { tabIndex: 0, role: "group", ariaLabel: "Text with the outcome of every token" });
    const boxes = text.closest(".sdl-trace").querySelectorAll(".sdl-strip i");
    let at = -1;
    const outcomes = tokens.map((token) => token.title);
    const choose = (index) => {
      for (const node of [tokens[at], boxes[at]]) node?.classList.remove("sdl-chosen");
      at = index;
      for (const node of [tokens[at], boxes[at]]) node?.classList.add("sdl-chosen");
      card.textContent = `“${tokens[at].textContent.replaceAll("\n", "")}” · ${outcomes[at]}`;
    };
    tokens.forEach((token, index) => {
      token.removeAttribute("title");
      for (const node of [token, boxes[index]])
        for (const event of ["pointerenter", "click"]) node?.addEventListener(event, () => choose(index));
    });
    const moves = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    text.addEventListener("keydown", (event) => {
      if (!(event.key in moves)) return;
      event.preventDefault();
      const shown = tokens.filter((token) => token.checkVisibility());
      const index = shown.indexOf(tokens[at]) + moves[event.key];
      choose(tokens.indexOf(shown[Math.min(shown.length - 1, Math.max(0, index))]));
    });
  }
})();

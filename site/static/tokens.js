// The tokens of a trace answer: to the pointer, to a tap and, where the text has the focus, to the arrow keys,
// with the pass, what became of them, p, q and the coin's u; and the same token lights up in the strip of passes,
// whose boxes answer too. Their words stand in `title`, which a notebook shows by itself.
(() => {
  for (const text of document.querySelectorAll(".sdl-trace .sdl-text")) {
    const tokens = [...text.querySelectorAll(".sdl-token[title]")];
    if (tokens.length === 0) continue;
    const card = document.createElement("p");
    Object.assign(card, { className: "sdl-token-card", ariaLive: "polite" });
    card.textContent = "Point at a token, or walk along them with the arrow keys: it tells its story here.";
    text.after(card);
    Object.assign(text, { tabIndex: 0, role: "group", ariaLabel: "Text with the fate of every token" });
    const boxes = text.closest(".sdl-trace").querySelectorAll(".sdl-strip i");
    let at = -1;
    const stories = tokens.map((token) => token.title);
    const choose = (place) => {
      for (const one of [tokens[at], boxes[at]]) one?.classList.remove("sdl-chosen");
      at = place;
      for (const one of [tokens[at], boxes[at]]) one?.classList.add("sdl-chosen");
      card.textContent = `“${tokens[at].textContent.replaceAll("\n", "")}” · ${stories[at]}`;
    };
    tokens.forEach((token, place) => {
      token.removeAttribute("title");
      for (const one of [token, boxes[place]])
        for (const event of ["pointerenter", "click"]) one?.addEventListener(event, () => choose(place));
    });
    const moves = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    text.addEventListener("keydown", (event) => {
      if (!(event.key in moves)) return;
      event.preventDefault();
      const shown = tokens.filter((token) => token.checkVisibility());
      const place = shown.indexOf(tokens[at]) + moves[event.key];
      choose(tokens.indexOf(shown[Math.min(shown.length - 1, Math.max(0, place))]));
    });
  }
})();

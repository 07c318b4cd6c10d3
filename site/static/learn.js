// Quizzes and predictions. Their source is plain Markdown (see CONTRIBUTING.md), which is readable without this
// script. Progress is stored in this browser only.
(() => {
  const page = location.pathname.replace(/^.*\/(?=(notebooks|book)\/)/, "");
  const element = (tag, attributes = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), attributes);
    node.append(...children);
    return node;
  };

  const progress = {
    read() {
      try {
        return JSON.parse(localStorage.getItem("sdl-progress")) ?? {};
      } catch {
        return {};
      }
    },
    solve(question, total) {
      const all = this.read();
      const solved = new Set(all[page]?.solved).add(question);
      try {
        localStorage.setItem(
          "sdl-progress",
          JSON.stringify({ ...all, [page]: { solved: [...solved], total } }),
        );
      } catch {
        /* storage is off */
      }
    },
  };

  // The page that a link of the route map leads to, such as "notebooks/04_blockwise_parallel.html".
  const nameOf = (link) => new URL(link.href).pathname.replace(/^.*\/(?=(notebooks|book)\/)/, "");

  // Fills the start page's box with the number of chapters whose quiz the reader has solved.
  function summary(box) {
    const all = progress.read();
    const withQuiz = JSON.parse(box.dataset.pages);
    const chapters = [...document.querySelectorAll(".bd-sidebar-primary nav a.reference.internal")].filter(
      (link) => withQuiz.includes(nameOf(link)),
    );
    const open = chapters.filter((link) => !(all[nameOf(link)]?.solved.length >= all[nameOf(link)]?.total));
    box.hidden = !Object.keys(all).length;
    const bar = element("progress", {
      max: chapters.length,
      value: chapters.length - open.length,
      ariaLabel: "Chapters whose quiz you solved",
    });
    const text = element(
      "p",
      {},
      `You have solved the quizzes of ${chapters.length - open.length} of ${chapters.length} chapters`,
      ...(open.length
        ? ["; continue with ", element("a", { href: open[0].href, textContent: open[0].textContent }), "."]
        : [", which is all of them."]),
    );
    const forget = element("button", {
      type: "button",
      className: "sdl-choice",
      textContent: "Forget my progress",
    });
    forget.addEventListener("click", () => {
      localStorage.removeItem("sdl-progress");
      document.querySelectorAll(".sdl-done").forEach((tick) => tick.remove());
      summary(box);
    });
    box.replaceChildren(bar, text, forget);
  }

  const contentOf = (item) =>
    (item.children.length === 1 && item.firstElementChild.matches("p") ? item.firstElementChild : item)
      .childNodes;

  function quiz(box, question, total) {
    const [options, reasons] = [box.querySelector(":scope > ul"), box.querySelector("details ul")];
    const answer = box.dataset.answer.charCodeAt(0) - "a".charCodeAt(0);
    const whys = [...reasons.children].map((reason) =>
      element("div", { className: "sdl-why", hidden: true }, ...contentOf(reason)),
    );
    [...options.children].forEach((option, index) => {
      const right = index === answer;
      const mark = element("span", { className: "sdl-mark", ariaHidden: "true" });
      const button = element(
        "button",
        { type: "button", className: "sdl-option", ariaPressed: "false" },
        mark,
        element("span", {}, ...contentOf(option)),
      );
      button.addEventListener("click", () => {
        button.ariaPressed = "true";
        button.dataset.verdict = right ? "right" : "wrong";
        mark.textContent = right ? "✓" : "✗";
        whys[index].hidden = false;
        if (right) {
          progress.solve(question, total);
          ticks();
        }
      });
      option.replaceChildren(button, whys[index]);
    });
    options.classList.add("sdl-options");
    options.setAttribute("aria-live", "polite");
    box.querySelector("details").remove();
  }

  // Returns the right choice: the one with which the answer begins.
  function rightChoice(answer, choices) {
    const text = answer.trim().toLowerCase();
    const matches = choices.filter((choice) => text.startsWith(choice.trim().toLowerCase()));
    return matches.sort((a, b) => b.length - a.length)[0];
  }

  // The page has the question and its choices; see ask_predictions of repair_html.py.
  function predict(box) {
    const details = box.querySelector("details");
    const prediction = element("p", { className: "sdl-said", hidden: true });
    const buttons = [...box.querySelectorAll(".sdl-choice")];
    const answer = [...details.children].slice(1).map((part) => part.textContent);
    const names = buttons.map((button) => button.textContent);
    const right = rightChoice(answer.join(" "), names);
    buttons.forEach((button, index) =>
      button.addEventListener("click", () => {
        buttons.forEach((other) => {
          other.ariaPressed = String(other === button);
          delete other.dataset.verdict;
        });
        const verdict = right && (names[index] === right ? "right" : "wrong");
        if (verdict) button.dataset.verdict = verdict;
        prediction.replaceChildren(
          { right: "✓ Right. ", wrong: "✗ Not right. " }[verdict] ?? "",
          "You predicted: ",
          element("strong", { textContent: names[index] }),
          ".",
        );
        prediction.hidden = false;
        details.open = true;
      }),
    );
    details.querySelector("summary").after(prediction);
  }

  function ticks() {
    const all = progress.read();
    for (const link of document.querySelectorAll(
      ".bd-sidebar-primary nav a.reference.internal, .sdl-routes ol a",
    )) {
      const name = nameOf(link);
      const done = all[name] && all[name].solved.length >= all[name].total;
      if (done && !link.querySelector(".sdl-done"))
        link.append(
          element(
            "span",
            { className: "sdl-done" },
            element("span", { ariaHidden: "true", textContent: " ✓" }),
            element("span", { className: "visually-hidden", textContent: " quiz solved" }),
          ),
        );
    }
  }

  const quizzes = [...document.querySelectorAll(".sdl-quiz")];
  quizzes.forEach((box, index) => quiz(box, index, quizzes.length));
  document.querySelectorAll(".sdl-predict-box").forEach(predict);
  ticks();
  document.querySelectorAll(".sdl-progress").forEach(summary);
})();

// The replay: a run's passes one after another, the outcome of every token, and the progress of plain decoding.

import { button, field, hidden, make, tokenNode } from "../../specdec_book/viz/static/kit.js";

const KINDS = {
  accepted: "drafted and accepted by the target",
  rejected: "drafted, tested and rejected",
  recovered: "drawn by the target in place of a rejected token",
  bonus: "added by the target after a fully accepted draft",
  unused: "drafted after a rejected token, never tested",
  sampled: "decoded without a draft",
};
const TICK = 220; // milliseconds for which each pass is shown

function passNode({ words }, number) {
  const node = make("span", { class: "sdl-pass", title: `pass ${number}` });
  let last = null;
  for (const [kind, text] of words) {
    if (kind !== last) node.append(hidden(` ${kind}: `));
    node.append(tokenNode(kind, text));
    last = kind;
  }
  return node;
}

/** Returns a bar with a name and a value. */
const meter = (name) => {
  const bar = make("div", { class: "sdl-live-bar", "aria-hidden": "true" }, make("div")),
    value = make("span");
  return {
    node: make("div", { class: "sdl-live-pace" }, make("span", {}, name), bar, value),
    show(share, text) {
      bar.firstChild.style.width = `${100 * share}%`;
      value.textContent = text;
    },
  };
};

/** Returns a replay panel. `begin` starts a run, `extend` adds its passes while it decodes, `time` sets its times. */
export function replay(id) {
  const text = make("div", { class: "sdl-text", tabindex: 0, role: "group", "aria-label": "Decoded text" });
  const legend = make("ul", { class: "sdl-legend" }),
    scrubber = make("input", { id, type: "range", min: 0, max: 1, step: 1, value: 0 });
  const output = make("output", { for: id, "aria-live": "off" });
  const [play, step, reset] = [
    button("Play", () => (timer ? stop() : start())),
    button("Step", () => go(Number(scrubber.value) + 1)),
    button("Reset", () => go(0)),
  ];
  for (const move of [play, step, reset]) move.classList.add("sdl-move");
  const paces = [meter("speculative"), meter("plain, in the same time")];
  const switched = make("input", { type: "checkbox", checked: "", class: "sdl-live-thrown" });
  const node = make(
    "div",
    { class: "sdl-live-replay" },
    make("div", {}, ...paces.map((each) => each.node)),
    text,
    make("div", { class: "sdl-live-scrub" }, play, step, reset, field(id, "Pass", output, scrubber)),
    legend,
    make("label", {}, switched, " show rejected and unused drafts"),
  );
  let steps = [],
    passes = [],
    complete = true,
    pace = null,
    timer = 0;

  function draw() {
    const at = Number(scrubber.value),
      done = steps.slice(0, at);
    passes.forEach((pass, i) => {
      pass.hidden = i >= at;
      pass.classList.toggle("sdl-live-current", i === at - 1);
    });
    const [total, emitted] = [steps, done].map((some) =>
      some.reduce((sum, step) => sum + step.emitted.length, 0),
    );
    const elapsed = pace && pace.perPass.slice(0, at).reduce((sum, time) => sum + time, 0);
    output.textContent = `${at} of ${steps.length}`;
    scrubber.setAttribute(
      "aria-valuetext",
      at
        ? `pass ${at} of ${steps.length}: ${steps[at - 1].words
            .map(([kind, token]) => `${kind} ${JSON.stringify(token)}`)
            .join(", ")}`
        : "before the first pass",
    );
    paces[0].show(emitted / (total || 1), `${emitted} tokens`);
    const plain = pace && Math.min(total, Math.round(elapsed / pace.plain));
    paces[1].show(plain ? plain / total : 0, pace ? `${plain} tokens` : steps.length ? "being measured" : "");
    const current = passes[at - 1];
    if (current) text.scrollTop = Math.max(0, current.offsetTop - text.offsetTop - text.clientHeight + 60);
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  }

  function start() {
    if (complete && Number(scrubber.value) >= steps.length) scrubber.value = 0;
    play.textContent = "Pause";
    clearInterval(timer);
    timer = setInterval(() => {
      scrubber.value = Number(scrubber.value) + 1;
      draw();
      if (complete && Number(scrubber.value) >= steps.length) stop();
    }, TICK);
  }

  const go = (pass) => {
    stop();
    scrubber.value = pass;
    draw();
  };
  scrubber.addEventListener("input", () => go(Number(scrubber.value)));

  /** Starts a new run, which has no passes yet. */
  function begin(prompt) {
    stop();
    [steps, passes, pace, complete] = [[], [], null, false];
    scrubber.max = scrubber.value = 0;
    play.disabled = true;
    text.replaceChildren(make("span", { class: "sdl-prompt" }, prompt));
    draw();
  }

  /** Adds passes to the run; it starts to play with the first. last: whether these are the last ones. */
  function extend(added, last) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches,
      first = !steps.length;
    const addedNodes = added.map((step, i) => passNode(step, steps.length + i + 1));
    [steps, passes, complete] = [[...steps, ...added], [...passes, ...addedNodes], last];
    text.append(...addedNodes);
    const used = new Set(steps.flatMap(({ words }) => words.map(([kind]) => kind)));
    legend.replaceChildren(
      ...Object.keys(KINDS)
        .filter((kind) => used.has(kind))
        .map((kind) => make("li", {}, tokenNode(kind, kind), ` ${KINDS[kind]}`)),
    );
    scrubber.max = steps.length;
    play.disabled = false;
    if (still || first) scrubber.value = still ? steps.length : 1;
    draw();
    if (first && !still) start();
  }

  /** Sets the times in milliseconds: of plain decoding per token, and of each pass of speculative decoding. */
  function time(plain, perPass) {
    pace = { plain, perPass };
    draw();
  }

  return { node, stop, begin, extend, time };
}

// What every interactive needs. It stands before a module's own text, so that both are one module.

const SVG_TAGS = new Set(["svg", "g", "path", "line", "rect", "circle", "text", "title"]);
const KEPT_KEYS = /^(Arrow(Left|Right|Up|Down)|Home|End|Page(Up|Down))$/;

let instances = 0;
const newId = (name) => `sdl-${name}-${++instances}`;

function make(tag, attributes = {}, ...children) {
  const space = SVG_TAGS.has(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const node = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Controls: each returns its nodes, and `field` puts them under a label.

function field(id, label, ...nodes) {
  return make("div", { class: "sdl-control" }, make("label", { for: id }, ...[label].flat()), ...nodes);
}

function slider(id, attributes, onInput) {
  const input = make("input", { type: "range", id, ...attributes });
  const output = make("output", { for: id, "aria-live": "off" });
  input.addEventListener("input", () => onInput(Number(input.value)));
  return { input, output };
}

function button(words, onClick) {
  const node = make("button", { type: "button", class: "sdl-button" }, words);
  node.addEventListener("click", onClick);
  return node;
}

// options: [{ value, label, group }]; those of a group stand together under its name.
function menu(id, options, onPick) {
  const select = make("select", { id });
  for (const group of new Set(options.map((option) => option.group))) {
    const members = options
      .filter((option) => option.group === group)
      .map(({ value, label }) => make("option", { value }, label));
    select.append(...(group ? [make("optgroup", { label: group }, ...members)] : members));
  }
  select.addEventListener("change", () => onPick(select.value));
  return select;
}

// onMove(x, y) for every place in the drawing that a pointer is pressed on or dragged to.
function follow(svg, onMove) {
  let touch = null; // a finger just put down: a tap, a drag, or the start of scrolling the page
  const send = (event) => {
    const frame = svg.getBoundingClientRect();
    onMove(event.clientX - frame.left, event.clientY - frame.top);
  };
  const moved = (event) => [Math.abs(event.clientX - touch.clientX), Math.abs(event.clientY - touch.clientY)];
  const steps = {
    pointerdown(event) {
      svg.setPointerCapture(event.pointerId);
      if (event.pointerType === "touch") touch = event;
      else send(event);
    },
    pointermove(event) {
      if (touch && moved(event)[0] > 6 + moved(event)[1]) touch = null;
      if (event.buttons & 1 && !touch) send(event);
    },
    pointerup(event) {
      if (touch && Math.max(...moved(event)) < 10) send(event);
      touch = null;
    },
    pointercancel() {
      touch = null;
    },
  };
  svg.classList.add("sdl-drag");
  for (const [name, step] of Object.entries(steps)) svg.addEventListener(name, step);
}

// Parts of the page.

const hidden = (words) => make("span", { class: "sdl-hidden" }, words);
const columns = (heads) =>
  make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head))));
const scroll = (label, ...nodes) =>
  make("div", { class: "sdl-scroll", tabindex: 0, role: "region", "aria-label": label }, ...nodes);
const figure = (title, size, ...nodes) =>
  make("figure", { class: `sdl-chart ${size}` }, make("p", { class: "sdl-heading" }, title), ...nodes);

function chart(title, caption, size, attributes) {
  const svg = make("svg", { role: "img", "aria-label": title, ...attributes });
  return { svg, node: figure(title, size, svg, make("figcaption", {}, caption)) };
}

// The width of a drawing, 0 while it is hidden. It is measured again only when its interactive is as wide as it was
// not before: measuring in the midst of drawing makes the browser lay the page out.
let widths = new WeakMap();
function widthOf(svg) {
  if (!widths.get(svg)) widths.set(svg, svg.clientWidth);
  return widths.get(svg);
}

// Shows rows of [what is told in it, what makes it]; a row that tells the same as before stays.
function showRows(body, rows) {
  rows.forEach(([told, build], i) => {
    const key = JSON.stringify(told);
    const old = body.children[i];
    if (old?.sdlTold === key) return;
    const row = Object.assign(build(), { sdlTold: key });
    if (old) old.replaceWith(row);
    else body.append(row);
  });
  while (body.children.length > rows.length) body.lastElementChild.remove();
}

// Shows pairs of a name and its value.
function define(list, pairs) {
  const build = ([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)));
  showRows(
    list,
    pairs.map((pair) => [pair, () => build(pair)]),
  );
}

// The text of a stepper, whose end stays in sight: [the box, what is drawn into].
function endOfText() {
  const inner = make("div");
  const about = { tabindex: 0, role: "region", "aria-label": "Text so far" };
  return [make("div", { class: "sdl-text sdl-stepper-text", ...about }, inner), inner];
}

const pathOf = (points) =>
  points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// The dashed line α = c of a plane whose scales are x(c) and y(α): below it no draft pays.
function breakEven(x, y) {
  const ends = [
    [x(0), y(0)],
    [x(1), y(1)],
  ];
  return make("path", {
    d: pathOf(ends),
    stroke: "var(--sdl-rejected)",
    "stroke-width": 2,
    "stroke-dasharray": "6 4",
  });
}

// The task, and the sentence that is spoken. announce(() => [sentence, state of the task]) sets both once a
// reader pauses. room, said: the longest state and sentence, for which the page keeps its height.
function narration(words, room, delay, said = "") {
  const state = make("span", { class: "sdl-task-state", "data-room": room });
  const task = make("p", { class: "sdl-task" }, make("strong", {}, "Your task: "), words, state);
  const spoken = make("p", { class: "sdl-summary", "aria-live": "polite" });
  if (said) spoken.dataset.room = said;
  let timer = 0;
  const silence = () => clearTimeout(timer);
  const announce = (say) => {
    silence();
    timer = setTimeout(() => {
      [spoken.textContent, state.textContent] = say();
    }, delay);
  };
  return { task, spoken, announce, silence };
}

// The state in the address: what the controls of an interactive are set to, as #explorer:alpha=0.8,gamma=4. A
// control is set as a reader would set it, so no address can ask for what a reader could not. What no control
// shows, or several that move each other, marked data-unshared, stands in root.sdlState, { key, get, set }. Only a published page has an address to share; twins on it
// are numbered.
function share(el, root) {
  const place = el.closest(".sdl-interactive");
  if (!place) return;
  const { module } = place.dataset;
  const twins = [...document.querySelectorAll(`[data-module="${module}"]`)].indexOf(place);
  const name = twins > 0 ? `${module}-${twins + 1}` : module;

  function keyOf(node, i) {
    const id = node.id.replace("sdl-", "").replace(module.replaceAll("_", "-"), "");
    return node.dataset.name ?? (id.replace(/[^a-z]+/g, "") || (node.type === "range" ? "at" : `c${i}`));
  }
  function accessOf(node) {
    if (node.matches("button")) return [() => node.ariaPressed, () => node.click()];
    const event = node.matches("select") ? "change" : "input";
    const put = (value) => {
      node.value = value;
      node.dispatchEvent(new Event(event, { bubbles: true }));
    };
    return [() => node.value, put];
  }
  // key → [its value, what sets it]
  function controls() {
    const nodes = root.querySelectorAll(
      "input:is([type=range], [type=number]):not([data-unshared]), select, button[aria-pressed]",
    );
    const all = [...nodes].map((node, i) => [keyOf(node, i), accessOf(node)]);
    const { sdlState: own } = root;
    return new Map(own ? [[own.key, [own.get, own.set]], ...all] : all);
  }
  const values = () => new Map([...controls()].map(([key, [get]]) => [key, get()]));
  let start;

  function restore() {
    const [of, settings] = location.hash.slice(1).split(/:(.*)/s);
    if (of !== name || !settings) return;
    const all = [...new URLSearchParams(settings.replaceAll(",", "&"))];
    const isPress = ([, value]) => value === "true"; // first: it lifts the others of its group
    for (const [key, value] of all.sort((a, b) => isPress(b) - isPress(a))) {
      const [get, put] = controls().get(key) ?? [];
      if (get && get() !== value) put(value);
    }
    root.scrollIntoView({ block: "nearest" });
  }

  const link = button("copy link", async () => {
    const changed = [...values()].filter(([key, value]) => value !== "" && start.get(key) !== value);
    const settings = changed.map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
    history.replaceState(null, "", `#${name}:${settings.join(",")}`);
    try {
      await navigator.clipboard.writeText(location.href);
      link.textContent = "copied";
    } catch {
      link.textContent = "it stands in the address bar"; // a page from a folder has no clipboard
    }
    setTimeout(() => {
      link.textContent = "copy link";
    }, 2000);
  });
  link.className = "sdl-share";
  link.title = "Copy a link to this picture as it is set now";
  el.append(link);
  addEventListener("hashchange", restore);
  queueMicrotask(() => {
    start = values(); // now that it has been drawn
    restore();
  });
}

// Shows an interactive; `draw` is called when its width changes, the listeners by the model's events. Returns
// what takes them away again. Its keys do not move a notebook's cells.
function attach({ model, el }, root, listeners, draw) {
  let shown;
  const watcher = new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width === shown) return;
    shown = contentRect.width;
    widths = new WeakMap();
    draw();
  });
  root.addEventListener("keydown", (event) => {
    if (KEPT_KEYS.test(event.key)) event.stopPropagation();
  });
  for (const [event, listener] of Object.entries(listeners)) model.on(event, listener);
  el.append(root);
  share(el, root);
  watcher.observe(root);
  return () => {
    watcher.disconnect();
    for (const [event, listener] of Object.entries(listeners)) model.off(event, listener);
  };
}

// Draws an interactive now and at every change of the model's `names`; returns what takes it away again.
function live(context, root, names, draw, silence) {
  const detach = attach(
    context,
    root,
    Object.fromEntries(names.map((name) => [`change:${name}`, draw])),
    draw,
  );
  draw();
  return () => {
    detach();
    silence();
  };
}

// Gives the model several values at once.
function assign(model, values) {
  for (const [name, value] of Object.entries(values)) model.set(name, value);
  model.save_changes();
}

// A labelled slider of one number: spec { name, text, note, min, max, step, digits, values }, where `values` lists
// the numbers that its places stand for. Returns [its nodes, show(value)].
function numberField(id, { name, text, note, min, max, step, digits, values }, change) {
  const { input, output } = slider(id, { "data-name": name, min, max, step }, (place) =>
    change({ [name]: values ? values[place] : place }),
  );
  const show = (value) => {
    input.value = values ? values.findLastIndex((each) => each <= value) : value;
    output.textContent = value.toFixed(digits);
    input.setAttribute("aria-valuetext", output.textContent);
  };
  return [field(id, [`${text} `, make("small", {}, note)], output, input), show];
}

// Steppers.

// The bar of a stepper: first, back, play, step, the next event and last. now() and set(place) are the model's,
// last() its last place; next(place) is where `event` happens next. Playing stops at a move of the reader's, at the
// end and in a hidden tab, and is not offered to those who ask for less motion; heard(isPlaying) is told. Returns
// { node, go, stop, show }; call show() at every change.
function transport({ last, now, set, event, next, heard, pace = 1100 }) {
  let timer = 0;
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  function play(isPlaying) {
    clearInterval(timer);
    timer = isPlaying ? setInterval(tick, pace) : 0;
    playing.textContent = isPlaying ? "Pause" : "Play";
    heard(isPlaying);
  }
  const stop = () => play(false);
  function tick() {
    if (now() >= last() || document.hidden) stop();
    else set(now() + 1);
  }
  const go = (place) => {
    stop();
    set(Math.min(last(), Math.max(0, place)));
  };
  const sign = (mark) => make("span", { "aria-hidden": "true" }, mark);
  const move = (where, ...words) => {
    const node = button("", () => go(where()));
    node.append(...words);
    return node;
  };
  const playing = button("Play", () => {
    if (timer) return stop();
    if (now() >= last()) set(0);
    return play(true);
  });
  const back = [move(() => 0, sign("◀◀ "), "first"), move(() => now() - 1, sign("◀ "), "back")];
  const on = [
    move(() => now() + 1, "step", sign(" ▶")),
    move(() => next(now()) ?? last(), `next ${event}`, sign(" ▶▶")),
    move(last, "last", sign(" ▶▶")),
  ];
  const row = make("div", { class: "sdl-row sdl-transport" }, ...back, ...(isCalm ? [] : [playing]), ...on);
  const node = make("div", { class: "sdl-frame" }, row);
  const dim = (nodes, isDim) => nodes.forEach((each) => each.setAttribute("aria-disabled", String(isDim)));
  const show = () => {
    dim(back, now() === 0);
    dim(on, now() >= last());
  };
  return { node, go, stop, show };
}

// Words of the steppers.

const quoted = (text) => `“${text.replaceAll("\n", "⏎")}”`;
const longest = (texts) => texts.reduce((most, text) => (text.length > most.length ? text : most));

// Shared by all interactives: this text, without the word export, is placed before a module's own text, so that both are
// one module. The live page's modules import what is exported.

const SVG_TAGS = new Set(["svg", "g", "path", "line", "rect", "circle", "text", "title"]);
const KEPT_KEYS = /^(Arrow(Left|Right|Up|Down)|Home|End|Page(Up|Down))$/;
const TYPED = "select, textarea, input[type=number]";

let instances = 0;
export const newId = (name) => `sdl-${name}-${++instances}`;

export function make(tag, attributes = {}, ...children) {
  const space = SVG_TAGS.has(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const node = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Writes words into a node that holds no other node. A new node would make the browser compute the style of the whole
// cell around it, for the theme's rules with :has().
function setText(node, words) {
  if (node.textContent === words) return;
  if (node.firstChild) node.firstChild.data = words;
  else node.textContent = words;
}

// Controls. Each function returns its nodes; `field` puts them under a label.

export function field(id, label, ...nodes) {
  return make("div", { class: "sdl-control" }, make("label", { for: id }, ...[label].flat()), ...nodes);
}

function slider(id, attributes, onInput) {
  const input = make("input", { type: "range", id, ...attributes });
  const output = make("output", { for: id, "aria-live": "off" });
  input.addEventListener("input", () => onInput(Number(input.value)));
  return { input, output };
}

export function button(words, onClick) {
  const node = make("button", { type: "button", class: "sdl-button" }, words);
  node.addEventListener("click", onClick);
  return node;
}

// A button that switches something on and off: a box beside its words is checked while it is on.
function toggle(words, onClick) {
  const node = button(words, onClick);
  node.classList.add("sdl-toggle");
  node.ariaPressed = "false";
  return node;
}

// options: [{ value, label, group }]; options of one group are listed under its name.
export function menu(id, options, onPick) {
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

// Calls onMove(x, y) for every point of the drawing where a pointer is pressed or dragged to.
function follow(svg, onMove) {
  let touch = null; // where a finger was just put down: for a tap, a drag, or scrolling the page
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

export const hidden = (words) => make("span", { class: "sdl-hidden" }, words);
const columns = (heads) =>
  make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head))));
const cellOf = (nodes) => make("td", {}, ...[nodes].flat());
const numbersRow = ([name, ...cells]) =>
  make("tr", {}, make("th", { scope: "row" }, name), ...cells.map(cellOf));
const numbersTable = (caption, heads, body) =>
  scroll(caption, make("table", { class: "sdl-numbers" }, columns(heads), body));
export const scroll = (label, ...nodes) =>
  make("div", { class: "sdl-scroll", tabindex: 0, role: "region", "aria-label": label }, ...nodes);
const figure = (title, size, ...nodes) =>
  make("figure", { class: `sdl-chart ${size}` }, make("p", { class: "sdl-heading" }, title), ...nodes);

// A drawing under its title; without a caption there is no place for one.
export function chart(title, caption, size, attributes) {
  const svg = make("svg", { role: "img", "aria-label": title, ...attributes });
  const below = caption === undefined ? [] : [make("figcaption", {}, caption)];
  return { svg, node: figure(title, size, svg, ...below) };
}

export const controlRow = (...nodes) => make("div", { class: "sdl-controls" }, ...nodes);
export const chartRow = (...nodes) =>
  make("div", { class: "sdl-frame" }, make("div", { class: "sdl-charts" }, ...nodes));
// entries: the nodes of a line of the legend, or a list of them.
const legendOf = (...entries) =>
  make("ul", { class: "sdl-legend" }, ...entries.map((nodes) => make("li", {}, ...[nodes].flat())));
const foldRow = (...folds) => make("div", { class: "sdl-row sdl-folds" }, ...folds);
export const foldOf = (words, ...nodes) => make("details", {}, make("summary", {}, words), ...nodes);

// A fold on a phone, where the controls and what they change must fit the screen; open and without a title elsewhere.
function phoneFold(words, names, ...parts) {
  const fold = foldOf(words, ...parts);
  fold.className = `sdl-phone-fold ${names}`.trim();
  const phone = matchMedia("(max-width: 30rem)");
  const follow = () => {
    fold.open = !phone.matches;
  };
  phone.addEventListener("change", follow);
  follow();
  return fold;
}

// The width of a drawing, 0 while it is hidden. It is measured again only after the interactive's width has changed,
// because measuring while drawing makes the browser compute the page's layout.
let widths = new WeakMap();
function widthOf(svg) {
  if (!widths.get(svg)) widths.set(svg, svg.clientWidth);
  return widths.get(svg);
}

// An empty drawing and its width, at least `least`.
function blank({ svg }, least = 240, usual = 520) {
  svg.replaceChildren();
  return [svg, Math.max(least, widthOf(svg) || usual)];
}

// Shows rows of [content, function that builds the row]; a row with the same content as before is not rebuilt. In a
// table of tokens the cells that change flip.
function showRows(body, rows) {
  rows.forEach(([content, build], i) => {
    const key = JSON.stringify(content);
    const old = body.children[i];
    if (old?.sdlContent === key) return;
    const row = Object.assign(build(), { sdlContent: key });
    if (old)
      [...row.children].forEach((cell, k) => {
        const { textContent: before } = old.children[k] ?? cell;
        if (cell.localName === "td" && cell.textContent !== before) cell.classList.add("sdl-flips");
      });
    if (old) old.replaceWith(row);
    else body.append(row);
  });
  while (body.children.length > rows.length) body.lastElementChild.remove();
}

// The numbers of an interactive: three in the open, the others in a fold. Returns [nodes, show(pairs)].
function numbersOf() {
  const [few, rest] = [0, 1].map(() => make("dl", { class: "sdl-readouts" }));
  const fold = foldOf("All numbers", rest);
  const show = (pairs) => {
    define(few, pairs.slice(0, 3));
    define(rest, pairs.slice(3));
    fold.hidden = pairs.length <= 3;
  };
  return [[few, fold], show];
}

// Shows pairs of a name and its value.
function define(list, pairs) {
  const build = ([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)));
  const rows = pairs.map((pair) => [pair, () => build(pair)]);
  showRows(list, rows);
}

// The text of a stepper, scrolled to its end: [the box, the element that holds the text].
function endOfText() {
  const inner = make("div");
  const about = { tabindex: 0, role: "region", "aria-label": "Text so far" };
  return [make("div", { class: "sdl-text sdl-stepper-text", ...about }, inner), inner];
}

const pathOf = (points) =>
  points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// Shapes of a drawing. A color is a name of the sheet's, or "none".
const ink = (name) => (name === "none" ? name : `var(--sdl-${name})`);
export const svgText = (x, y, words, more = {}) => make("text", { x, y, ...more }, words);
export const stroke = (x1, y1, x2, y2, color, more = {}) =>
  make("line", { x1, y1, x2, y2, stroke: ink(color), ...more });
const block = (x, y, width, height, fill, more = {}) =>
  make("rect", { x, y, width: Math.max(0, width), height, fill: ink(fill), ...more });
export const disc = (cx, cy, r, fill, more = {}) => make("circle", { cx, cy, r, fill: ink(fill), ...more });
export const curve = (points, color, more = {}) =>
  make("path", { d: pathOf(points), fill: "none", stroke: ink(color), "stroke-width": 2.5, ...more });
const region = (points, fill, more = {}) =>
  make("path", { d: `${pathOf(points)}Z`, fill: ink(fill), ...more });

// The scales of a plot in a box { left, right, top, bottom }: x(value) and y(value) are in pixels, and at(px, py) returns
// the values at a point, kept within both ranges.
export function scales({ left, right, top, bottom }, [x0, x1], [y0, y1]) {
  const between = (share, from, to) => from + Math.min(1, Math.max(0, share)) * (to - from);
  return {
    x: (value) => left + ((value - x0) / (x1 - x0)) * (right - left),
    y: (value) => bottom - ((value - y0) / (y1 - y0)) * (bottom - top),
    at: (px, py) => [
      between((px - left) / (right - left), x0, x1),
      between((bottom - py) / (bottom - top), y0, y1),
    ],
  };
}

// Lines across a drawing at `values`, with their texts on the left. box: { left, right, top, bottom }.
export function rulings(svg, { left, right }, y, values, text = String) {
  for (const value of values)
    svg.append(
      make("line", { class: "sdl-grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
      svgText(left - 6, y(value) + 4, text(value), { class: "sdl-faint", "text-anchor": "end" }),
    );
}

// Texts below a drawing at `values`, and the name of the axis below them.
function axisBelow(svg, { left, right, bottom }, x, values, name, text = String) {
  const middle = { "text-anchor": "middle" };
  svg.append(
    ...values.map((value) => svgText(x(value), bottom + 17, text(value), { class: "sdl-faint", ...middle })),
    svgText((left + right) / 2, bottom + 34, name, middle),
  );
}

// Ticks from 0 to `most` in about `count` steps, which are 1, 2 or 5 times a power of ten.
function roundTicks(most, count) {
  const unit = 10 ** Math.floor(Math.log10(most / count));
  const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= most / count);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => i * step);
}

// The line at the foot of a plot.
const foot = ({ left, right, bottom }) =>
  make("line", { class: "sdl-axis", x1: left, x2: right, y1: bottom, y2: bottom });

// The reader's own setting in a drawing.
const yourPoint = (cx, cy, r = 6.5) => disc(cx, cy, r, "you", { stroke: ink("ink"), "stroke-width": 1.5 });

// The dashed line α = c of a plane with scales x(c) and y(α); below it no draft length gives a speedup.
const breakEven = (x, y) =>
  curve(
    [0, 1].map((end) => [x(end), y(end)]),
    "plain",
    { "stroke-width": 2, "stroke-dasharray": "6 4" },
  );

// The task and the spoken sentence. announce(() => [sentence, state of the task]) sets both after a pause of `delay`
// ms. longestState, longestSentence: the page reserves the height of these texts.
function narration(words, longestState, delay, longestSentence = "") {
  const state = make("span", { class: "sdl-task-state", "data-room": longestState });
  const task = make("p", { class: "sdl-task" }, make("strong", {}, "Your task: "), words, state);
  const spoken = make("p", { class: "sdl-summary", "aria-live": "polite" });
  if (longestSentence) spoken.dataset.room = longestSentence;
  let timer = 0;
  const silence = () => clearTimeout(timer);
  const announce = (say) => {
    silence();
    timer = setTimeout(() => {
      say().forEach((words, i) => setText([spoken, state][i], words));
    }, delay);
  };
  return { task, spoken, announce, silence };
}

// The state in the address: the values of an interactive's controls, as #explorer:alpha=0.8,gamma=4. An address sets
// a control as a reader would, so it can ask only for values that a reader could choose. State without a control, or
// with controls that move one another (data-unshared), is in root.sdlState, { key, get, set }. Only a published page
// has an address to share. Several interactives of one module on a page are numbered.
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
      if (node.matches("select") && ![...node.options].some((option) => option.value === value)) return;
      node.value = value;
      // sliders keep within their ends by themselves
      if (node.type === "number" && node.value)
        node.value = Math.max(node.min || -Infinity, Math.min(node.max || Infinity, node.value));
      node.dispatchEvent(new Event(event, { bubbles: true }));
    };
    return [() => node.value, put];
  }
  // key → [function that returns its value, function that sets it]
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
    const isPress = ([, value]) => value === "true"; // pressed first: this releases the others of its group
    for (const [key, value] of all.sort((a, b) => isPress(b) - isPress(a))) {
      const [get, put] = controls().get(key) ?? [];
      if (get && get() !== value) put(value);
    }
    for (let fold = place.closest("details"); fold; fold = fold.parentElement.closest("details"))
      fold.open = true;
    root.scrollIntoView({ block: "nearest" });
    root.classList.remove("sdl-set");
    requestAnimationFrame(() => root.classList.add("sdl-set"));
  }

  const link = button("copy link", async () => {
    const changed = [...values()].filter(([key, value]) => value !== "" && start.get(key) !== value);
    const settings = changed.map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
    history.replaceState(null, "", `#${name}:${settings.join(",")}`);
    try {
      await navigator.clipboard.writeText(location.href);
      link.textContent = "copied";
    } catch {
      link.textContent = "the link is in the address bar"; // a page opened from a folder has no clipboard
    }
    setTimeout(() => {
      link.textContent = "copy link";
    }, 2000);
  });
  link.className = "sdl-share";
  link.title = "Copy a link to this interactive with its current settings";
  el.append(link);
  addEventListener("hashchange", restore);
  queueMicrotask(() => {
    start = values(); // after the first drawing
    restore();
  });
}

// Opens an interactive at its most telling setting: gives the model a number that it does not have yet.
function openAt(model, name, value) {
  if (!model.get(name) && value > 0) model.set(name, value);
}

// Shows an interactive. `draw` is called when its width changes, the listeners are called by the model's events.
// Returns a function that removes them. Keys pressed in it do not move a notebook's cells, nor do those that are typed.
export function attach({ model, el }, root, listeners, draw) {
  let shown;
  const watcher = new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width === shown) return;
    shown = contentRect.width;
    widths = new WeakMap();
    draw();
  });
  root.addEventListener("keydown", (event) => {
    if (KEPT_KEYS.test(event.key) || event.target.matches(TYPED)) event.stopPropagation();
  });
  for (const [event, listener] of Object.entries(listeners)) model.on(event, listener);
  const finding = model.get("finding"); // in bold above it, as above every figure
  if (finding) el.append(make("p", { class: "sdl-finding" }, make("strong", {}, finding)));
  el.append(root);
  share(el, root);
  watcher.observe(root);
  return () => {
    watcher.disconnect();
    for (const [event, listener] of Object.entries(listeners)) model.off(event, listener);
  };
}

// Mounts an interactive: a frame with its task, at most three tiles in the open, and the spoken sentence.
// spec: { name, label, kinds (further classes), task, longestState, longestSentence, delay, shared (see share), change
// (how its controls change the model, without it as `assign` does) } and
//   values: names of the model's values, which draw(values) is given
//   controls: what `control` makes for each of these specs, and shows the model's value at every drawing
//   charts: { name: { title, caption, size, height, label, drag, draw } }, of which draw(svg, width, values, ...rest) is
//     called at every drawing; if it can be dragged, it returns what a point (x, y) changes
// layout(parts) returns its nodes in order; parts: { task, spoken, tiles, controls, charts }, the last two by name.
// draw(values, parts) returns [its tiles as pairs, what announce is given, ...rest], or nothing while the model's values do not
// fit one another; context.repaint() draws again. Returns a function that removes it.
function panel(context, { name, label, kinds = "", task: words, delay = 150, ...spec }, layout, draw) {
  const { model } = context;
  const { values, controls: specs = [], change = (changes) => assign(model, changes) } = spec;
  const { announce, silence, ...texts } = narration(words, spec.longestState, delay, spec.longestSentence);
  const [tiles, showTiles] = numbersOf();
  const id = newId(name);
  const made = specs.map((each) => [each.name, ...control(`${id}-${each.id ?? each.name}`, each, change)]);
  const controls = Object.fromEntries(made);
  const drawings = Object.entries(spec.charts ?? {});
  const chartOf = ({ title, caption, size = "", height, label: words = title }) =>
    chart(title, caption, size, { ...(height && { height }), "aria-label": words });
  const charts = Object.fromEntries(drawings.map(([key, each]) => [key, chartOf(each)]));
  const parts = { ...texts, tiles, controls, charts };
  const paint = () => {
    const state = valuesOf(model, values);
    const drawn = draw(state, parts);
    if (!drawn) return;
    const [pairs, say, ...rest] = drawn;
    for (const [key, , show] of made) show(state[key]);
    for (const [key, each] of drawings)
      if (!charts[key].svg.closest("details:not([open])"))
        charts[key].pick = each.draw(...blank(charts[key]), state, ...rest);
    showTiles(pairs);
    announce(say);
  };
  const attributes = { class: `sdl sdl-low ${kinds} sdl-${name}`, "aria-label": label };
  context.repaint = paint;
  const root = make("section", attributes, ...layout(parts));
  for (const [key, each] of drawings)
    if (each.drag) follow(charts[key].svg, (x, y) => change(charts[key].pick(x, y)));
  if (spec.shared) root.sdlState = spec.shared;
  const opened = () => {
    widths = new WeakMap(); // a closed drawing had no width
    paint();
  };
  root.addEventListener("toggle", ({ target }) => target.querySelector("svg") && opened(), true);
  const listeners = Object.fromEntries(values.map((value) => [`change:${value}`, paint]));
  const detach = attach(context, root, listeners, paint);
  paint();
  return () => {
    detach();
    silence();
  };
}

// Gives the model several values in one change.
function assign(model, values) {
  for (const [name, value] of Object.entries(values)) model.set(name, value);
  model.save_changes();
}

// The model's values by name.
const valuesOf = (model, names) => Object.fromEntries(names.map((name) => [name, model.get(name)]));

// Shown in place of an interactive that was given no recording.
function showNothing(el) {
  el.append(make("p", { class: "sdl" }, "Nothing was recorded."));
  return () => {};
}

// Digits after the point that a step needs.
const digitsOf = (step) => String(step).split(".")[1]?.length ?? 0;

// A labelled slider of one number: spec { name, text, note, min, max, step }, and show(value), its words; without them
// they are the number, as exact as a step. The slider's positions are the numbers themselves, the list `values`, or what
// read(position) and place(value) say. Returns [its nodes, show(value), its input].
export function numberField(id, { name, text, note, values, ...spec }, change) {
  const { min = 0, max, step = 1, show: words = (value) => value.toFixed(digitsOf(step)) } = spec;
  const { read = (position) => position, place = (value) => value } = values
    ? {
        read: (position) => values[position],
        place: (value) => values.findLastIndex((each) => each <= value),
      }
    : spec;
  const range = values ? { min: 0, max: values.length - 1, step: 1 } : { min, max, step };
  const { input, output } = slider(id, { "data-name": name, ...range }, (position) =>
    change({ [name]: read(position) }),
  );
  const show = (value) => {
    input.value = place(value);
    output.textContent = words(value);
    input.setAttribute("aria-valuetext", output.textContent);
  };
  const label = note ? [`${text} `, make("small", {}, note)] : text;
  return [field(id, label, output, input), show, input];
}

// An input of a number that a reader has measured: [its node, show(value)]. An empty one is 0.
function numberBox(id, { name, text, note, max, isWhole }, change) {
  const [min, step] = isWhole ? [1, 1] : [0, "any"];
  const input = make("input", { id, type: "number", min, max, step, "data-name": name.replaceAll("_", "-") });
  input.addEventListener("input", () => {
    const value = Number(input.value) || 0;
    change({ [name]: Math.min(max, Math.max(min, isWhole ? Math.round(value) : value)) });
  });
  const show = (value) => {
    if (input !== document.activeElement) input.value = value > 0 ? value : "";
  };
  return [field(id, [`${text} `, make("small", {}, note)], input), show];
}

// A labelled control of one of the model's values: [its node, show(value)]. With `options`, { label, value, group } each,
// it is a menu, and options without values of their own stand for their indices; with `isTyped` it is an input, else a
// slider.
function control(id, { options, isTyped, ...spec }, change) {
  if (isTyped) return numberBox(id, spec, change);
  if (!options) return numberField(id, spec, change);
  const { name, text, read = options[0]?.value === undefined ? Number : String, place = String } = spec;
  const select = menu(
    id,
    options.map((option, value) => ({ value, ...option })),
    (value) => change({ [name]: read(value) }),
  );
  const show = (value) => {
    select.value = place(value);
  };
  return [field(id, text, select), show];
}

// Formulas of several interactives; tests compare them with specdec_lite.

const sum = (values, of = (value) => value) => values.reduce((total, value) => total + of(value), 0);

// The positive part of p − q, normalized; p itself if there is none.
function residual(p, q) {
  const excess = p.map((mass, i) => Math.max(0, mass - q[i]));
  return sum(excess) > 0 ? excess.map((mass) => mass / sum(excess)) : p;
}

// Tokens that a round of γ drafts emits on average.
export function expectedTokens(alpha, gamma) {
  let tokens = 0;
  for (let i = 0, probability = 1; i <= gamma; i++, probability *= alpha) tokens += probability;
  return tokens;
}

// The α whose expected tokens are τ for drafts of γ tokens on average, by halving an interval. A mean between two
// whole numbers is a mixture of drafts of these two lengths.
function fittedAlpha(tau, gamma) {
  if (tau >= gamma + 1) return 1;
  const shorter = Math.floor(gamma);
  const part = gamma - shorter;
  const tokens = (alpha) => {
    const least = expectedTokens(alpha, shorter);
    return least + part * (expectedTokens(alpha, shorter + 1) - least);
  };
  let [low, high] = [0, 1];
  for (let i = 0; i < 50; i++) {
    const middle = (low + high) / 2;
    if (tokens(middle) < tau) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

// The interval of ascending points that holds a value, or is next to it: its index, and where in it the value is.
function locate(value, points) {
  let i = 0;
  while (i < points.length - 2 && points[i + 1] <= value) i++;
  return [i, (value - points[i]) / ((points[i + 1] ?? points[i] + 1) - points[i])];
}

const interpolate = (values, i, share) =>
  share ? values[i] + share * ((values[i + 1] ?? values[i]) - values[i]) : values[i];

// [the γ in 1 … most with the largest value, that value].
function largestAt(most, value) {
  const values = Array.from({ length: most }, (_, i) => value(i + 1));
  const best = values.reduce((at, each, i) => (each > values[at] ? i : at), 0);
  return [best + 1, values[best]];
}

// Columns and rows of a tree's nodes, by their parents: columns by depth, a first child beside its parent, every later
// child below all nodes so far. -1 is the root.
function placement(parents) {
  const places = new Map();
  let row = 0;
  const put = (node, column) => {
    places.set(node, { column, row });
    const children = parents.flatMap((parent, i) => (parent === node ? [i] : []));
    children.forEach((child, i) => {
      row += i > 0;
      put(child, column + 1);
    });
  };
  put(-1, 0);
  const columns = [...places.values()].map(({ column }) => column);
  return { places, rows: row + 1, columns: 1 + Math.max(...columns) };
}

// Likely seconds of a pass. network, machine, engine: fields as in specdec_lite/simulation/estimate.py.
function passSeconds(network, machine, engine, batch, tokens, context) {
  const { parameters, bytes_per_weight: bytes, cache_bytes: cache, experts, chosen } = network;
  const most = experts * (1 - (1 - chosen / experts) ** (batch * tokens));
  const distinct = chosen + engine.experts * (most - chosen);
  const bandwidth = engine.reading * machine.bandwidth * machine.gpus;
  const reading = ((parameters + distinct * network.expert_parameters) * bytes) / bandwidth;
  const operations = 2 * (parameters + chosen * network.expert_parameters) * batch * tokens;
  const computing = operations / (engine.arithmetic * machine.throughput * machine.gpus);
  const both = (reading ** engine.overlap + computing ** engine.overlap) ** (1 / engine.overlap);
  const layer = engine.per_layer + (machine.gpus > 1 ? engine.per_exchange : 0);
  // The cache is read once per sequence, unless a kernel does not split it for several positions.
  const sequences = engine.unsplit === 1 || tokens === 1 ? batch : Math.max(batch, engine.unsplit);
  return both + (sequences * context * cache) / bandwidth + network.layers * layer;
}

// Seconds of what a round of γ drafts costs beside its passes; γ = 0: a step of plain decoding.
function restSeconds(engine, batch, gamma) {
  const rows = engine.per_row * batch;
  if (gamma === 0) return engine.per_step + rows;
  return engine.per_step + engine.factor * (engine.per_round + rows * (gamma + 1));
}

// Seconds of a draft pass; 0 for a drafter without a model.
function draftSeconds(draft, machine, engine, batch, context, tokens = 1) {
  if (!draft.parameters) return 0;
  return passSeconds(draft, machine, engine, batch, tokens, context) + engine.factor * engine.per_draft;
}

// Bytes of all weights.
const weightBytes = ({ parameters, bytes_per_weight: bytes, experts, expert_parameters: expert }) =>
  (parameters + experts * expert) * bytes;

// Steppers.

// The three buttons of whatever plays: { nodes, playing, step, reset }. Readers who ask for less motion have no play
// button.
function moves(onPlay, onStep, onReset) {
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const buttons = { Play: onPlay, Step: onStep, Reset: onReset };
  const [playing, step, reset] = Object.entries(buttons).map((each) => button(...each));
  const nodes = isCalm ? [step, reset] : [playing, step, reset];
  nodes.forEach((node) => node.classList.add("sdl-move"));
  return { nodes, playing, step, reset, isCalm };
}

// The bar of a stepper through the model's moments up to last(), and its slider, of this id, which counts from `first`.
// describe(moment) says more about it to screen readers. isHeld(moment): playing waits there until advance() is called;
// isEnd(moment): playing ends there. It stops too when the reader moves, at the end and in a hidden tab. spoken() is the
// sentence, silent while it plays; call show() at every change.
function transport({ model, id, first = 1, last, spoken, pace = 1100, ...more }) {
  const { isHeld = () => false, isEnd = () => false, describe = () => "" } = more;
  const within = (moment) => Math.min(last(), Math.max(0, moment));
  const now = () => within(model.get("moment") ?? 0);
  const set = (moment) => assign(model, { moment: within(moment) });
  let timer = 0;
  let isPlaying = false;
  const schedule = () => {
    clearTimeout(timer);
    if (isPlaying && !isHeld(now())) timer = setTimeout(tick, pace);
  };
  const play = (isOn) => {
    isPlaying = isOn;
    bar.playing.textContent = isOn ? "Pause" : "Play";
    spoken().ariaLive = isOn ? "off" : "polite";
    schedule();
  };
  const stop = () => play(false);
  const tick = () => {
    if (document.hidden) return stop();
    set(now() + 1);
    return now() >= last() || isEnd(now()) ? stop() : schedule();
  };
  const go = (moment) => {
    stop();
    set(moment);
  };
  const begin = () => {
    if (now() >= last()) set(0);
    play(true);
  };
  const advance = () => {
    set(now() + 1);
    schedule();
    if (!isPlaying) bar.step.focus();
  };
  const bar = moves(
    () => (isPlaying ? stop() : begin()),
    () => go(now() + 1),
    () => go(0),
  );
  const { input, output } = slider(id, { min: first, step: 1 }, (at) => go(at - first));
  const show = () => {
    bar.reset.setAttribute("aria-disabled", String(now() === 0));
    bar.step.setAttribute("aria-disabled", String(now() >= last()));
    Object.assign(input, { max: last() + first, value: now() + first });
    setText(output, `${now() + first} of ${last() + first}`);
    input.setAttribute("aria-valuetext", [output.textContent, describe(now())].filter(Boolean).join(", "));
  };
  const node = make("div", { class: "sdl-row sdl-transport" }, ...bar.nodes);
  const { isCalm } = bar;
  const isOn = () => isPlaying;
  return { now, set, node, input, output, go, stop, begin, advance, show, isPlaying: isOn, isCalm };
}

// A stepper through a recorded list of moments: a panel with a slider, the bar and the text. spec: name, label, kinds
// and task of the panel; taskState(moment) and sentence(moment), the two texts of narration; describe(moment), the
// slider's text for screen readers; opening, the moment to begin at. layout(parts) returns the nodes; draw(at, parts)
// draws a moment. Returns a function that removes the stepper.
function stepper({ model, el }, moments, { taskState, sentence, describe, opening = 0, pace, ...spec }) {
  const last = moments.length - 1;
  openAt(model, "moment", opening);
  const first = model.get("moment") ?? 0;
  const id = newId(spec.name);
  const own = { spoken: () => parts.spoken, describe: (at) => describe(moments[at]) };
  const bar = transport({ model, id, last: () => last, pace, ...own });
  const [box, text] = endOfText();
  const parts = { bar, box, text, slider: field(id, "Moment", bar.output, bar.input) };
  const layout = (texts) => spec.layout(Object.assign(parts, texts));
  const draw = () => {
    const at = bar.now();
    spec.draw(at, parts);
    bar.show();
    return [[], () => [sentence(moments[at]), taskState(moments[at])]];
  };
  const [longestState, longestSentence] = [taskState, sentence].map((of) => longest(moments.map(of)));
  const settings = { ...spec, longestState, longestSentence, delay: 100, values: ["moment"] };
  const detach = panel({ model, el }, settings, layout, draw);
  const offPaper = endOnPaper(bar, last, first);
  return () => {
    bar.stop();
    offPaper();
    detach();
  };
}

// Paper shows the end of a recording that the reader has not begun, because its first moment is empty.
// last, first: the last moment, and the one at which it opened. Returns a function that stops this.
function endOnPaper({ now, set }, last, first) {
  let isMoved = false;
  const end = () => {
    isMoved = now() === first;
    if (isMoved) set(last);
  };
  const back = () => {
    if (isMoved) set(first);
    isMoved = false;
  };
  addEventListener("beforeprint", end);
  addEventListener("afterprint", back);
  return () => {
    removeEventListener("beforeprint", end);
    removeEventListener("afterprint", back);
  };
}

// Draws the text of a stepper: the prompt, the tokens of earlier rounds (rebuilt only in a new round), then `current`.
function showText(box, prompt, round, before, current) {
  if (box.dataset.round !== String(round)) {
    box.replaceChildren(make("span", { class: "sdl-prompt" }, readable(prompt)), ...before(), make("span"));
    box.dataset.round = round;
  }
  box.lastChild.replaceWith(make("span", { class: "sdl-pass" }, ...current));
}

const DELETED = ["rejected", "unused"];
const INSERTED = ["recovered", "bonus", "own"];

// A token marked by its kind; a flat one has no line breaks.
export function tokenNode(kind, text, isFlat = false) {
  const isDeleted = DELETED.includes(kind);
  const tag = isDeleted ? "del" : INSERTED.includes(kind) ? "ins" : "span";
  const node = make(tag, { class: `sdl-token sdl-${kind}` });
  const newline = isFlat || isDeleted || kind === "drafted" ? "" : "\n";
  const sign = () => make("span", { class: "sdl-newline", "aria-hidden": "true" }, "⏎");
  const [first, ...lines] = readable(text).split("\n");
  node.append(first, ...lines.flatMap((line) => [sign(), newline, line]));
  return node;
}

// Words.

export const times = (value) => `${value.toFixed(2)}×`;
export const percent = (share) => `${Math.round(100 * share)} %`;
export const faster = (speedup) =>
  speedup >= 1 ? `${times(speedup)} as fast` : `${percent(1 - speedup)} slower`;
export const plural = (count, word, many = `${word}s`) => `${count} ${count === 1 ? word : many}`;
// A text without the marks of a chat: "▸" is the start of a turn, "∎" its end.
const readable = (text) => text.replaceAll("<|im_start|>", "▸").replaceAll("<|im_end|>", "∎");
const visible = (text) => readable(text).replaceAll("\n", "⏎").trim() || "␣"; // a token without its spaces
const quoted = (text) => `“${readable(text).replaceAll("\n", "⏎")}”`;
const shortened = (text, most) => (text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text);
const longest = (texts) => texts.reduce((most, text) => (text.length > most.length ? text : most));

// The block stepper: a recorded run of blockwise parallel decoding. Every moment and counter follows from the recorded blocks.

const KEPT_KEYS = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"]);
const SVG_TAGS = new Set(["svg", "rect", "text"]);
const VERDICTS = { accepted: "✓ accepted", rejected: "✗ rejected", unused: "– not looked at" };
const PACE = 1400; // milliseconds a moment stays when the run plays
let instances = 0;

const formulas = {
  // The first prediction, then per block: the pass, the accepted prefix, the next prediction (none after a drafted stop token).
  moments: (rounds) => (rounds.length === 0 ? [] : [{ round: 0, kind: "predict" }, ...rounds.flatMap(({ token }, round) =>
    ["verify", "accept", ...(token === null ? [] : ["reuse"])].map((kind) => ({ round, kind })))]),

  // Target passes up to a moment in three forms, the prompt's own pass in none of them; plain decoding needs one a token.
  counts(rounds, at) {
    const past = formulas.moments(rounds).slice(0, at + 1);
    const total = (kind, worth) => past.filter((moment) => moment.kind === kind).reduce((sum, { round }) => sum + worth(rounds[round]), 0);
    const [verified, predicted] = [total("verify", () => 1), total("reuse", () => 1)];
    return { twoPass: verified + predicted, merged: verified, plain: total("accept", ({ accepted }) => accepted) + predicted };
  },

  // What is known of draft i at a moment of its block.
  fate(round, kind, i) {
    if (kind === "predict" || kind === "verify") return "drafted";
    if (i < round.accepted) return "accepted";
    return i === round.accepted && round.token !== null ? "rejected" : "unused";
  },
};

function make(tag, attributes = {}, ...children) {
  const space = SVG_TAGS.has(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const node = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const quoted = (text) => `“${text.replaceAll("\n", "⏎")}”`;
const listed = (texts) => texts.map(quoted).join(", ");
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

function sentence(rounds, { round: at, kind }) {
  const { root, drafts, accepted, token } = rounds[at];
  const next = rounds[at + 1]?.drafts ?? [];
  if (kind === "predict") {
    return drafts.length === 0 ? "Nothing is predicted ahead: with a block of one token, every pass is a plain one."
      : `Predict. The pass over the prompt left a hidden state, from which the extra heads propose ${plural(drafts.length, "token")} to follow ${quoted(root)}: ${listed(drafts)}. They do not see one another.`;
  }
  if (kind === "verify") {
    return drafts.length === 0 ? `One target pass is fed ${quoted(root)} alone and says what it would write next.`
      : `Verify. One target pass is fed the whole block, ${quoted(root)} and the ${plural(drafts.length, "proposal")}, and says behind each token what it would write itself.`;
  }
  const last = accepted > 0 ? drafts[accepted - 1] : root;
  if (kind === "accept") {
    if (token === null) return `Accept. The proposals agree up to ${quoted(last)}, which ends the text.`;
    if (drafts.length === 0) return "Accept. There was nothing to compare.";
    if (accepted === drafts.length) return `Accept. All ${plural(drafts.length, "proposal")} agree with what the target writes: the whole block stays.`;
    const prefix = accepted === 0 ? "Not one proposal agrees" : `The longest prefix that agrees has ${plural(accepted, "proposal")}`;
    const behind = drafts.length > accepted + 1 ? "; what stands behind was computed after a wrong token and is not looked at" : "";
    return `Accept. ${prefix}: where ${quoted(drafts[accepted])} was proposed, the target writes ${quoted(token)}${behind}.`;
  }
  const ahead = next.length ? `its extra heads propose ${listed(next)}. ` : at + 1 < rounds.length ? "nothing is proposed behind it. " : "here the recording ends. ";
  return `Next prediction reused. The pass has computed the row of ${quoted(last)}, the last token that stayed: its own head says ${quoted(token)}, the first token of the next block, and ${ahead}`
    + `The two-pass form runs the target once more for this; the merged form reads what is there. The block gave ${plural(accepted + 1, "token")}.`;
}

const longest = (texts) => texts.reduce((most, text) => (text.length > most.length ? text : most));

function taskState(rounds, { round, kind }) {
  const most = Math.max(...rounds.map(({ accepted }) => accepted));
  if (most === 0) return "No proposal was ever accepted in this recording.";
  if (kind !== "reuse") return `Look where the next prediction is reused. This is block ${round + 1}.`;
  const { accepted } = rounds[round];
  const given = `block ${round + 1} gave ${plural(accepted + 1, "token")} for one pass`;
  return accepted === most ? `Solved: ${given}, and no block gave more. Two passes a block would have made that ${((accepted + 1) / 2).toFixed(1)} tokens a pass.` : `Not yet: ${given}; another block gave more.`;
}

function token(kind, written, isFlat = false) {
  const text = isFlat && written.trim() === "" ? written.replaceAll(" ", "␣") : written;
  const isGone = kind === "rejected" || kind === "unused";
  const node = make(isGone ? "del" : kind === "own" ? "ins" : "span", { class: `sdl-token sdl-${kind}` });
  text.split("\n").forEach((line, i) => {
    if (i > 0) node.append(make("span", { class: "sdl-newline", "aria-hidden": "true" }, "⏎"), isFlat || isGone || kind === "drafted" ? "" : "\n");
    node.append(line);
  });
  return node;
}

function drawText(box, prompt, rounds, { round: at, kind }) {
  const now = rounds[at];
  const emitted = (round, hasOwn) => [...round.drafts.slice(0, round.accepted).map((text) => token("accepted", text)), ...(hasOwn && round.token !== null ? [token("own", round.token)] : [])];
  const current = kind === "reuse" ? [...emitted(now, true), ...(rounds[at + 1]?.drafts ?? []).map((text) => token("drafted", text))]
    : now.drafts.map((text, i) => token(formulas.fate(now, kind, i), text));
  box.replaceChildren(make("span", { class: "sdl-prompt" }, prompt), ...rounds.slice(0, at).flatMap((round) => emitted(round, true)), make("span", { class: "sdl-pass" }, ...current));
  box.scrollTop = box.scrollHeight;
}

// One row per position: what was proposed there, what the pass says, the verdict, and the block that the same pass proposes next.
function drawTable(body, rounds, { round: at, kind }) {
  const now = rounds[at];
  const next = now.token === null ? [] : [now.token, ...(rounds[at + 1]?.drafts ?? [])];
  const first = now.context - 1;
  const count = Math.max(now.drafts.length + 2, now.accepted + 1 + next.length);
  const writes = (i) => (kind === "predict" || i < 0 ? null : i < now.accepted ? now.drafts[i] : i === now.accepted ? now.token : null);
  const isRead = (i) => kind === "reuse" && i === now.accepted - 1;
  body.replaceChildren(...Array.from({ length: count }, (_, row) => {
    const i = row - 1; // -1 is the root, which the pass is fed first
    const proposed = i < 0 ? token(at === 0 ? "prompt" : "own", now.root, true) : i < now.drafts.length ? token(formulas.fate(now, kind, i), now.drafts[i], true) : "";
    const isJudged = i >= 0 && i < now.drafts.length && (kind === "accept" || kind === "reuse");
    const verdict = [i < 0 ? "certain" : isJudged ? VERDICTS[formulas.fate(now, kind, i)] : "", isRead(i) ? "◆ row read" : ""].filter(Boolean);
    const ahead = kind === "reuse" ? next[i - now.accepted] : undefined;
    return make("tr", isRead(i) ? { "aria-current": "step" } : {}, make("th", { scope: "row" }, String(first + row)), make("td", {}, proposed),
      make("td", {}, writes(i) === null ? "" : token(i === now.accepted ? "own" : "sampled", writes(i), true)),
      make("td", { class: "sdl-verdict" }, ...verdict.map((words) => make("span", {}, words))), make("td", {}, ahead === undefined ? "" : token(i === now.accepted ? "own" : "drafted", ahead, true)));
  }));
}

function drawCounts(svg, counts, total) {
  const width = Math.max(240, svg.clientWidth || 520);
  const room = width - 44;
  const bars = [["plain decoding: one pass a token", counts.plain, "var(--sdl-muted)"], ["two passes a block: verify, then predict", counts.twoPass, "var(--sdl-draft)"], ["merged: verifying also predicts", counts.merged, "var(--sdl-target)"]];
  svg.replaceChildren(...bars.flatMap(([name, value, colour], i) => [
    make("text", { x: 0, y: 14 + i * 42 }, name),
    make("rect", { x: 0, y: 20 + i * 42, width: room, height: 14, rx: 2, fill: "var(--sdl-raised)", stroke: "var(--sdl-line)" }),
    make("rect", { x: 0, y: 20 + i * 42, width: (room * value) / total, height: 14, rx: 2, fill: colour }),
    make("text", { x: width, y: 32 + i * 42, "text-anchor": "end", "font-weight": 600 }, String(value))]));
  svg.setAttribute("aria-label", `Target passes so far. ${bars.map(([name, value]) => `${name}: ${value}`).join(". ")}.`);
}

function controls(id, count, go, toggle) {
  const input = make("input", { type: "range", id, min: 1, max: count, step: 1 });
  input.addEventListener("input", () => go(() => Number(input.value) - 1));
  const button = (words, act) => {
    const node = make("button", { type: "button", class: "sdl-button" }, words);
    node.addEventListener("click", act);
    return node;
  };
  return { input, output: make("output", { for: id, "aria-live": "off" }), move: (words, where) => button(words, () => go(where)), play: button("Play", toggle) };
}

// Plays on until the end, a touch of any control or a hidden page; readers who asked for less motion are not offered it.
function player(own, isAtEnd, advance, show) {
  const stop = () => { clearInterval(own.playing); own.playing = 0; show(false); };
  const toggle = () => {
    if (own.playing) return stop();
    own.playing = setInterval(() => (isAtEnd() || document.hidden ? stop() : advance()), PACE);
    if (!isAtEnd()) advance();
    return show(true);
  };
  return { stop, toggle };
}

function layout(id, parts, control, moves, k) {
  const heads = ["place", "block", "target writes", "verdict", "next block"].map((name) => make("th", { scope: "col" }, name));
  const legend = [["drafted", "proposed"], ["accepted", "accepted"], ["rejected", "rejected"], ["unused", "not looked at"], ["own", "from the target's own head"]];
  return make("section", { class: "sdl sdl-fates sdl-stepper sdl-blocks", "aria-label": "Block stepper" },
    make("p", { class: "sdl-task" }, make("strong", {}, "Your task: "), `the block size is ${k}. Find the block that gave the most tokens for its one pass.`, parts.task),
    make("div", { class: "sdl-control" }, make("label", { for: id }, "Moment"), control.output, control.input),
    make("div", { class: "sdl-row" }, ...moves), parts.spoken, parts.text,
    make("ul", { class: "sdl-legend" }, ...legend.map(([kind, words]) => make("li", {}, token(kind, words)))), parts.title,
    make("div", { class: "sdl-scroll", tabindex: 0, role: "region", "aria-label": "The block by position" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), parts.body)),
    make("figure", { class: "sdl-chart" }, make("p", { class: "sdl-heading" }, "Target passes so far"), parts.svg,
      make("figcaption", {}, "The pass over the prompt is counted in none of them; with it, m tokens in full blocks of k take m/k + 1 merged passes.")));
}

function render({ model, el }) {
  const rounds = model.get("rounds") ?? [];
  const moments = formulas.moments(rounds);
  if (moments.length === 0) {
    el.append(make("p", { class: "sdl" }, "Nothing was recorded."));
    return () => {};
  }
  const id = `sdl-blocks-${++instances}`;
  const own = { playing: 0, announcing: 0 };
  const last = moments.length - 1;
  const clamp = (at) => Math.min(last, Math.max(0, at));
  const now = () => clamp(model.get("moment") ?? 0);
  const set = (at) => { model.set("moment", clamp(at)); model.save_changes(); };
  const parts = { task: make("span", { class: "sdl-task-state", "data-room": longest(moments.map((moment) => taskState(rounds, moment))) }), spoken: make("p", { class: "sdl-summary", "aria-live": "polite" }), body: make("tbody"), title: make("p", { class: "sdl-heading" }),
    svg: make("svg", { height: 122, role: "img" }), text: make("div", { class: "sdl-text sdl-stepper-text", tabindex: 0, role: "region", "aria-label": "Text so far" }) };
  const { stop, toggle } = player(own, () => now() === last, () => set(now() + 1), (isPlaying) => {
    control.play.textContent = isPlaying ? "Pause" : "Play";
    parts.spoken.ariaLive = isPlaying ? "off" : "polite";
  });
  const control = controls(id, moments.length, (where) => { stop(); set(where(now())); }, toggle);
  const starts = moments.flatMap(({ kind }, i) => (kind === "predict" || kind === "verify" ? [i] : []));
  const { move } = control;
  const moves = [move("◀◀ block", (at) => starts.findLast((start) => start < at) ?? 0), move("◀ back", (at) => at - 1), move("step ▶", (at) => at + 1),
    move("block ▶▶", (at) => starts.find((start) => start > at) ?? last), ...(matchMedia("(prefers-reduced-motion: reduce)").matches ? [] : [control.play])];
  const root = layout(id, parts, control, moves, model.get("k"));
  const draw = () => {
    const at = now();
    const moment = moments[at];
    control.input.value = at + 1;
    control.output.textContent = `${at + 1} of ${moments.length}`;
    control.input.ariaValueText = `${at + 1} of ${moments.length}, block ${moment.round + 1}, ${moment.kind}`;
    parts.title.textContent = `Block ${moment.round + 1} of ${rounds.length}: ${moment.kind === "reuse" ? "next prediction reused" : moment.kind}`;
    drawText(parts.text, model.get("prompt") ?? "", rounds, moment);
    drawTable(parts.body, rounds, moment);
    drawCounts(parts.svg, formulas.counts(rounds, at), Math.max(...Object.values(formulas.counts(rounds, last))));
    clearTimeout(own.announcing);
    own.announcing = setTimeout(() => { parts.spoken.textContent = sentence(rounds, moment); parts.task.textContent = taskState(rounds, moment); }, 100);
  };
  root.addEventListener("keydown", (event) => { if (KEPT_KEYS.has(event.key)) event.stopPropagation(); });
  model.on("change:moment", draw);
  el.append(root);
  const watcher = new ResizeObserver(draw);
  watcher.observe(root);
  draw();
  return () => { stop(); watcher.disconnect(); clearTimeout(own.announcing); model.off("change:moment", draw); };
}

export default { render, formulas };

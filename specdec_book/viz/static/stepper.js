// The round stepper: a recorded run, one moment at a time. Every moment is computed from the recorded numbers.

const MARKS = {
  drafted: "?",
  accepted: "✓",
  rejected: "✗",
  unused: "–",
  recovered: "recovered",
  bonus: "bonus",
  sampled: "new",
};
const COLORS = { drafted: "draft-line", sampled: "target", unused: "muted" }; // of a mark, unless its name
const BEFORE = 3; // number of committed tokens before the root in the drawing

const formulas = {
  acceptance: (p, q) => Math.min(1, p / q),

  // Every moment of the run with the lengths of both caches: draft passes, the target pass, tests, the added token,
  // the cut.
  moments(rounds) {
    return rounds.flatMap((round, at) => {
      const { context, accepted } = round;
      const gamma = round.drafts.length;
      const drafted = gamma > 0 ? context + gamma - 1 : round.draft_cache;
      const tests = Math.min(gamma, accepted + 1);
      const moment = (kind, index, target, draft) => ({ round: at, kind, index, target, draft });
      return [
        ...round.drafts.map((_, i) => moment("draft", i, context - 1, context + i)),
        moment("verify", 0, context + gamma, drafted),
        ...Array.from({ length: tests }, (_, i) => moment("test", i, context + gamma, drafted)),
        moment("token", 0, context + gamma, drafted),
        moment("cut", 0, context + accepted, Math.min(drafted, context + accepted)),
      ];
    });
  },

  // The state of draft i at a moment of its round.
  fate(round, moment, i) {
    const { kind, index } = moment;
    if (kind === "draft") return i <= index ? "drafted" : "none";
    if (kind === "verify" || (kind === "test" && i > index)) return "drafted";
    if (i < round.accepted) return "accepted";
    return i === round.accepted ? "rejected" : "unused";
  },
};

const digits = (x) => (x < 0.0005 ? "<.001" : x.toFixed(x < 0.0095 ? 3 : 2).replace(/^0/, ""));
const isFullyAccepted = (round) => round.drafts.length > 0 && round.accepted === round.drafts.length;

// Words -------------------------------------------------------------------------------------------

function sentence(round, moment) {
  const { kind, index, target, draft } = moment;
  const caches = `Tokens in the caches: target ${target}, draft ${draft}.`;
  if (kind === "draft") {
    const fed = round.context - round.draft_cache;
    const first =
      index === 0
        ? ` This pass reads ${fed === 1 ? "the last committed token" : `${fed} tokens, because the draft model's cache lacked one of them`}.`
        : "";
    const { text, q, drawn } = round.drafts[index];
    const how =
      drawn === null
        ? "It is the draft model's likeliest token"
        : `It was drawn with the uniform ${digits(drawn)} and has q = ${digits(q)}`;
    return `Draft pass ${index + 1} proposes ${quoted(text)}. ${how}.${first} ${caches}`;
  }
  if (kind === "verify") {
    const rows = round.drafts.length + 1;
    return `One target pass reads the last committed token and ${plural(rows - 1, "draft")}. It returns ${plural(rows, "distribution")}: p for every draft, and one more. ${caches}`;
  }
  if (kind === "test") return `${testSentence(round, index)} ${caches}`;
  const { text, kind: added, drawn } = round.token;
  const source = {
    recovered: "It comes from the residual of p − q and replaces the rejected draft.",
    bonus: "It comes from the target's distribution after the last draft.",
    sampled: "It comes from p, because nothing was drafted.",
  }[added];
  const uniform = drawn === null ? "" : ` The uniform is ${digits(drawn)}.`;
  if (kind === "token")
    return `The target adds the ${added} token ${quoted(text)}. ${source}${uniform} ${caches}`;
  const emitted = `The round emits ${plural(round.accepted + 1, "token")}.`;
  const cut = isFullyAccepted(round)
    ? "Every draft was accepted, so nothing is cut."
    : "Both caches are cut back to the accepted text, and the added token is in neither: the next round feeds it.";
  return `${emitted} ${round.drafts.length ? cut : "Nothing was drafted."} ${caches}`;
}

function testSentence(round, i) {
  const { text, q, p, tested } = round.drafts[i];
  const isAccepted = i < round.accepted;
  const verdict = isAccepted ? "accepted" : "rejected";
  if (tested === null)
    return `Draft ${i + 1}, ${quoted(text)}, is ${isAccepted ? "" : "not "}the target's likeliest token, so it is ${verdict}.`;
  const probability = formulas.acceptance(p, q);
  const odds =
    probability === 1
      ? "p is at least q, so it is always accepted"
      : `p/q = ${digits(p)}/${digits(q)}, so it is accepted with probability ${digits(probability)}`;
  return `Draft ${i + 1}, ${quoted(text)}: ${odds}. The uniform is ${digits(tested)}, so the draft is ${verdict}.`;
}

function taskState(rounds, moment) {
  if (!rounds.some(isFullyAccepted)) return "This recording has no such round; record one with another seed.";
  if (moment.kind !== "cut")
    return `Here the target's cache holds ${moment.target} tokens and the draft model's cache ${moment.draft}.`;
  if (!isFullyAccepted(rounds[moment.round]))
    return `A draft was rejected in this round, so both caches hold ${moment.target} tokens.`;
  return `Solved: target ${moment.target}, draft ${moment.draft}. The last draft was accepted, but no draft pass has read it. The first draft pass of the next round therefore reads two tokens.`;
}

// Drawing -----------------------------------------------------------------------------------------

const hasToken = ({ kind }) => kind === "token" || kind === "cut";

// Shows shapes, [tag, attributes, words] each. A shape that is drawn already is changed, because a new one costs style,
// layout and paint.
function update(svg, shapes) {
  shapes.forEach(([tag, attributes, words = ""], i) => {
    let node = svg.children[i] ?? svg.appendChild(make(tag));
    if (node.localName !== tag) node.replaceWith((node = make(tag)));
    for (const [name, value] of Object.entries(attributes))
      if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
    setText(node, words);
  });
  while (svg.children.length > shapes.length) svg.lastChild.remove();
}

function drawCaches(svg, width, texts, round, moment, previous) {
  const [left, right, top, high] = [58, 40, 42, 30];
  const first = Math.max(0, round.context - 1 - (width < 480 ? 0 : BEFORE));
  const count = round.context + round.drafts.length + 1 - first;
  const cell = (width - left - right) / count;
  const x = (position) => left + (position - first) * cell;
  const label = (position) => {
    const text = texts[position] ?? "";
    const room = Math.max(1, Math.floor(cell / 9));
    return shortened(text && visible(text), room);
  };
  const shapes = [];
  for (let position = first; position < first + count; position++) {
    const middle = { x: x(position) + cell / 2, "text-anchor": "middle" };
    const kind = kindAt(round, moment, position);
    const isDeleted = DELETED.includes(kind);
    const mark = kind ? MARKS[kind] : "";
    const style = kind ? `fill: var(--sdl-${COLORS[kind] ?? kind}); font-weight: 600` : "";
    shapes.push(
      ["text", { ...middle, y: 14, class: isDeleted ? "sdl-faint" : "" }, label(position)],
      ["text", { ...middle, y: 32, style }, cell < 60 && mark.length > 1 ? "+" : mark],
    );
  }
  ["target", "draft"].forEach((name, row) => {
    const color = ink(name);
    const y = top + row * (high + 8);
    shapes.push(["text", { x: 0, y: y + 20 }, name]);
    for (let position = first; position < first + count; position++) {
      const isCached = position < moment[name];
      const isNew = isCached && position >= previous[name];
      const isCut = !isCached && position < previous[name];
      const [start, end] = [x(position) + 4, x(position) + cell - 4];
      const look = {
        fill: isCached ? color : "none",
        "fill-opacity": isNew ? 0.9 : 0.45,
        stroke: isCached ? color : "var(--sdl-line)",
        "stroke-width": isNew ? 2.5 : 1,
        "stroke-dasharray": isCached ? "none" : "3 3",
      };
      const cross = `M${start} ${y + 4}L${end} ${y + high - 4}M${end} ${y + 4}L${start} ${y + high - 4}`;
      shapes.push(
        ["rect", { x: start - 2.5, y, width: Math.max(2, cell - 3), height: high, rx: 3, ...look }],
        ["path", { d: isCut ? cross : "", stroke: "var(--sdl-rejected)", "stroke-width": 2 }],
      );
    }
    const bold = { "text-anchor": "end", "font-weight": 600 };
    shapes.push(["text", { x: width, y: y + 20, ...bold }, String(moment[name])]);
  });
  const edge = x(round.context);
  const line = { x1: edge, x2: edge, y1: 2, y2: top + 2 * high + 12 };
  shapes.push(["line", { ...line, stroke: "var(--sdl-ink)", "stroke-dasharray": "2 3" }]);
  update(svg, shapes);
  const words = `Target: ${moment.target} tokens. Draft: ${moment.draft} tokens. Committed before this round: ${round.context}.`;
  svg.setAttribute("aria-label", `Caches by position. ${words}`);
}

// What the token at a position is: a draft with its state, the added token, or null for committed text.
function kindAt(round, moment, position) {
  const i = position - round.context;
  if (hasToken(moment) && i === round.accepted) return round.token.kind;
  if (moment.kind === "cut" && i > round.accepted) return null;
  if (i < 0 || i >= round.drafts.length) return null;
  const fate = formulas.fate(round, moment, i);
  return fate === "none" ? null : fate;
}

// Texts by position for the drawing: committed tokens of earlier rounds, then this round's drafts.
function textsAround(rounds, at, moment) {
  const texts = {};
  for (const round of rounds.slice(Math.max(0, at - BEFORE - 1), at)) {
    round.drafts.slice(0, round.accepted).forEach((draft, i) => {
      texts[round.context + i] = draft.text;
    });
    texts[round.context + round.accepted] = round.token.text;
  }
  const now = rounds[at];
  now.drafts.forEach((draft, i) => {
    const isCut = moment.kind === "cut" && i > now.accepted;
    if (!isCut && formulas.fate(now, moment, i) !== "none") texts[now.context + i] = draft.text;
  });
  if (hasToken(moment)) texts[now.context + now.accepted] = now.token.text;
  return texts;
}

// Putting it together -----------------------------------------------------------------------------

function render({ model, el }) {
  const rounds = model.get("rounds") ?? [];
  const moments = formulas.moments(rounds);
  if (moments.length === 0) return showNothing(el);
  const caption =
    "Left of the dotted line: committed text. Filled: in the cache. Thick: just added. Crossed out: just cut. Right: length.";
  const caches = chart("What the two caches contain", caption, "", { height: 118 });
  const title = caches.node.querySelector(".sdl-heading");
  return stepper({ model, el }, moments, {
    name: "stepper",
    opening: moments.findIndex(({ kind, round }) => kind === "cut" && !isFullyAccepted(rounds[round])),
    task: "find the moment just after the cut of a round in which every draft was accepted. By how much do the lengths of the two caches differ, and why?",
    taskState: (moment) => taskState(rounds, moment),
    sentence: (moment) => sentence(rounds[moment.round], moment),
    describe: ({ round }) => `round ${round + 1}`,
    label: "Round stepper",
    layout: ({ task, slider, bar, spoken }) => [task, slider, bar.node, caches.node, make("div", {}, spoken)],
    draw(at) {
      const moment = moments[at];
      const round = rounds[moment.round];
      setText(title, `What the two caches contain: round ${moment.round + 1} of ${rounds.length}`);
      const start = { target: round.context - 1, draft: round.draft_cache };
      const previous = moments[at - 1]?.round === moment.round ? moments[at - 1] : start;
      const width = Math.max(260, widthOf(caches.svg) || 560);
      drawCaches(caches.svg, width, textsAround(rounds, moment.round, moment), round, moment, previous);
    },
  });
}

export default { render, formulas };

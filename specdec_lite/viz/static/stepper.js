// The round stepper: a recorded run, one moment at a time. What a round is made of follows from its numbers
// alone.

const MARKS = { accepted: "✓", rejected: "✗", unused: "–", recovered: "↻", bonus: "+", sampled: "+" };
const BEFORE = 3; // committed tokens that the drawing of the caches shows before the root

const formulas = {
  chance: (p, q) => Math.min(1, p / q),

  // Every moment of the run with the lengths of both caches: drafting, the target's pass, tests, the added
  // token, the cut.
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

  // What is known of draft i at a moment of its round.
  fate(round, moment, i) {
    const { kind, index } = moment;
    if (kind === "draft") return i <= index ? "drafted" : "none";
    if (kind === "verify" || (kind === "test" && i > index)) return "drafted";
    if (i < round.accepted) return "accepted";
    return i === round.accepted ? "rejected" : "unused";
  },
};

const digits = (x) => (x < 0.0005 ? "<.001" : x.toFixed(x < 0.0095 ? 3 : 2).replace(/^0/, ""));
const fullyAccepted = (round) => round.drafts.length > 0 && round.accepted === round.drafts.length;

// Words -------------------------------------------------------------------------------------------

function sentence(round, moment) {
  const { kind, index, target, draft } = moment;
  const caches = `Caches: target ${target}, draft ${draft} tokens.`;
  if (kind === "draft") {
    const fed = round.context - round.draft_cache;
    const first =
      index === 0
        ? ` This pass feeds the draft ${fed === 1 ? "the last committed token" : `${fed} tokens, since its cache was behind`}.`
        : "";
    const { text, q, drawn } = round.drafts[index];
    const how =
      drawn === null
        ? "It is the draft's likeliest token"
        : `It is drawn with the uniform ${digits(drawn)} and has q = ${digits(q)}`;
    return `Draft pass ${index + 1} proposes ${quoted(text)}. ${how}.${first} ${caches}`;
  }
  if (kind === "verify") {
    const rows = round.drafts.length + 1;
    return `One target pass is fed the last committed token and ${rows - 1} drafts: it returns ${rows} distributions, p for every draft and one more. ${caches}`;
  }
  if (kind === "test") return `${testSentence(round, index)} ${caches}`;
  const { text, kind: what, drawn } = round.token;
  const by = drawn === null ? "" : `, drawn with the uniform ${digits(drawn)}`;
  const from = {
    recovered: "from the residual of p − q, in place of the rejected draft",
    bonus: "from the distribution behind the last draft",
    sampled: "from p: nothing was drafted",
  }[what];
  if (kind === "token") return `The target adds the ${what} token ${quoted(text)}${by}, ${from}. ${caches}`;
  const emitted = `The round emits ${round.accepted + 1} token${round.accepted > 0 ? "s" : ""}.`;
  const cut = fullyAccepted(round)
    ? "Every draft stayed, so nothing is cut"
    : "Both caches are cut back to the text that stayed";
  return `${emitted} ${round.drafts.length ? cut : "Nothing was drafted"}: target ${target}, draft ${draft} tokens.`;
}

function testSentence(round, i) {
  const { text, q, p, tested } = round.drafts[i];
  const kept = i < round.accepted;
  if (tested === null)
    return `Draft ${i + 1}, ${quoted(text)}, ${kept ? "is the target's likeliest token: accepted" : "is not the target's likeliest token: rejected"}.`;
  const chance = formulas.chance(p, q);
  const odds =
    chance === 1
      ? "p is at least q, so it always stays"
      : `p/q = ${digits(p)}/${digits(q)}, so it stays with probability ${digits(chance)}`;
  return `Draft ${i + 1}, ${quoted(text)}: ${odds}. The uniform is ${digits(tested)}: ${kept ? "accepted" : "rejected"}.`;
}

function taskState(rounds, moment) {
  if (!rounds.some(fullyAccepted)) return "This recording holds no such round: record one with another seed.";
  if (moment.kind !== "cut")
    return `Here the target's cache holds ${moment.target} tokens, the draft's ${moment.draft}.`;
  if (!fullyAccepted(rounds[moment.round]))
    return `A draft was rejected in this round: both caches hold ${moment.target} tokens.`;
  return `Solved: target ${moment.target}, draft ${moment.draft}. The last draft was accepted, but no draft pass was ever fed it, so the next round feeds the draft two tokens at once.`;
}

// Drawing -----------------------------------------------------------------------------------------

function token(kind, text, isFlat = false) {
  const gone = kind === "rejected" || kind === "unused";
  const tag = gone ? "del" : kind === "recovered" || kind === "bonus" ? "ins" : "span";
  const node = make(tag, { class: `sdl-token sdl-${kind}` });
  text.split("\n").forEach((line, i) => {
    if (i > 0)
      node.append(
        make("span", { class: "sdl-newline", "aria-hidden": "true" }, "⏎"),
        isFlat || gone || kind === "drafted" ? "" : "\n",
      );
    node.append(line);
  });
  return node;
}

// What stood before the round is drawn once a round.
function drawText(box, prompt, rounds, moment) {
  const now = rounds[moment.round];
  const current = now.drafts
    .map((draft, i) => [formulas.fate(now, moment, i), draft.text])
    .filter(
      ([fate]) => fate !== "none" && !(moment.kind === "cut" && (fate === "rejected" || fate === "unused")),
    )
    .map(([fate, text]) => token(fate, text));
  const added =
    moment.kind === "token" || moment.kind === "cut" ? [token(now.token.kind, now.token.text)] : [];
  if (box.dataset.round !== String(moment.round)) {
    const before = rounds
      .slice(0, moment.round)
      .flatMap((round) => [
        ...round.drafts.slice(0, round.accepted).map((draft) => token("accepted", draft.text)),
        token(round.token.kind, round.token.text),
      ]);
    box.replaceChildren(make("span", { class: "sdl-prompt" }, prompt), ...before, make("span"));
    box.dataset.round = moment.round;
  }
  box.lastChild.replaceWith(make("span", { class: "sdl-pass" }, ...current, ...added));
}

function gauge({ p, q, tested }, isKnown, isTested) {
  const svg = make(
    "svg",
    {
      class: "sdl-gauge",
      viewBox: "0 0 100 22",
      preserveAspectRatio: "none",
      height: 22,
      "aria-hidden": "true",
    },
    make("rect", {
      x: 0,
      y: 5,
      width: 100,
      height: 12,
      fill: "var(--sdl-raised)",
      stroke: "var(--sdl-line)",
      "vector-effect": "non-scaling-stroke",
    }),
  );
  if (isKnown)
    svg.append(
      make("rect", {
        x: 0,
        y: 5,
        width: 100 * formulas.chance(p, q),
        height: 12,
        fill: "var(--sdl-accepted)",
        opacity: 0.55,
      }),
    );
  if (isTested && tested !== null)
    svg.append(
      make("line", {
        x1: 100 * tested,
        x2: 100 * tested,
        y1: 0,
        y2: 22,
        stroke: "var(--sdl-ink)",
        "stroke-width": 3,
        "vector-effect": "non-scaling-stroke",
      }),
    );
  return svg;
}

function draftRow(round, moment, i, isNow) {
  const draft = round.drafts[i];
  const fate = formulas.fate(round, moment, i);
  const isKnown = moment.kind !== "draft";
  const isTested = fate === "accepted" || fate === "rejected";
  const odds =
    isTested && draft.tested !== null
      ? `: u ${digits(draft.tested)} ${fate === "accepted" ? "<" : "≥"} ${digits(formulas.chance(draft.p, draft.q))}`
      : "";
  return make(
    "tr",
    isNow ? { "aria-current": "step" } : {},
    make("th", { scope: "row" }, String(i + 1)),
    make("td", {}, fate === "none" ? "" : token(fate, draft.text, true)),
    make("td", {}, fate === "none" ? "" : digits(draft.q)),
    make("td", {}, isKnown ? digits(draft.p) : ""),
    make(
      "td",
      { class: "sdl-wide-cell" },
      gauge(draft, isKnown, isTested),
      make("small", {}, fate in MARKS ? `${MARKS[fate]} ${fate}${odds}` : "\u00a0"),
    ),
  );
}

function drawTable(body, round, moment) {
  const added = moment.kind === "token" || moment.kind === "cut";
  const { text, kind, drawn } = round.token;
  const how = `the target's own: ${MARKS[kind]} ${kind}${drawn === null ? "" : `, drawn with u ${digits(drawn)}`}`;
  const last = () =>
    make(
      "tr",
      moment.kind === "token" ? { "aria-current": "step" } : {},
      make("th", { scope: "row" }, "+1"),
      make("td", {}, added ? token(kind, text, true) : ""),
      make("td", {}),
      make("td", {}),
      make("td", { class: "sdl-wide-cell" }, make("small", {}, added ? how : "the target's own token")),
    );
  const ofDraft = (_, i) => {
    const isNow = (moment.kind === "draft" || moment.kind === "test") && moment.index === i;
    const told = [moment.round, formulas.fate(round, moment, i), moment.kind !== "draft", isNow];
    return [told, () => draftRow(round, moment, i, isNow)];
  };
  showRows(body, [...round.drafts.map(ofDraft), [[moment.round, added, moment.kind], last]]);
}

function drawCaches(svg, width, texts, round, moment, previous) {
  const [left, right, top, high] = [58, 50, 24, 26];
  const first = Math.max(0, round.context - 1 - BEFORE);
  const count = round.context + round.drafts.length + 1 - first;
  const cell = (width - left - right) / count;
  const x = (position) => left + (position - first) * cell;
  const label = (position) => {
    const text = texts[position] ?? "";
    const room = Math.max(1, Math.floor(cell / 9.5));
    const shown = text.replaceAll("\n", "⏎").trim() || (text.includes("\n") ? "⏎" : text ? "␣" : "");
    return shown.length > room ? `${shown.slice(0, Math.max(1, room - 1))}…` : shown;
  };
  svg.replaceChildren();
  for (let position = first; position < first + count; position++) {
    svg.append(
      make(
        "text",
        {
          x: x(position) + cell / 2,
          y: 14,
          "text-anchor": "middle",
          class: position < round.context ? "" : "sdl-faint",
        },
        label(position),
      ),
    );
  }
  [
    ["target", "var(--sdl-target)"],
    ["draft", "var(--sdl-draft)"],
  ].forEach(([name, colour], row) => {
    const y = top + row * (high + 8);
    svg.append(make("text", { x: 0, y: y + 18 }, name));
    for (let position = first; position < first + count; position++) {
      const isHeld = position < moment[name];
      const isNew = isHeld && position >= previous[name];
      const isCut = !isHeld && position < previous[name];
      svg.append(
        make("rect", {
          x: x(position) + 1.5,
          y,
          width: Math.max(2, cell - 3),
          height: high,
          rx: 3,
          fill: isHeld ? colour : "none",
          "fill-opacity": isNew ? 0.9 : 0.45,
          stroke: isHeld ? colour : "var(--sdl-line)",
          "stroke-width": isNew ? 2.5 : 1,
          "stroke-dasharray": isHeld ? "none" : "3 3",
        }),
      );
      if (isCut)
        svg.append(
          make("path", {
            d: `M${x(position) + 4} ${y + 4}L${x(position) + cell - 4} ${y + high - 4}M${x(position) + cell - 4} ${y + 4}L${x(position) + 4} ${y + high - 4}`,
            stroke: "var(--sdl-rejected)",
            "stroke-width": 2,
          }),
        );
    }
    svg.append(
      make("text", { x: width, y: y + 18, "text-anchor": "end", "font-weight": 600 }, String(moment[name])),
    );
  });
  const edge = x(round.context);
  svg.append(
    make("line", {
      x1: edge,
      x2: edge,
      y1: 2,
      y2: top + 2 * high + 12,
      stroke: "var(--sdl-ink)",
      "stroke-dasharray": "2 3",
    }),
  );
  svg.setAttribute(
    "aria-label",
    `Caches by position. Target: ${moment.target} tokens. Draft: ${moment.draft} tokens. Committed before this round: ${round.context}.`,
  );
}

// The texts of the positions that the drawing needs: committed tokens of earlier rounds, then this round's
// drafts.
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
    if (formulas.fate(now, moment, i) !== "none") texts[now.context + i] = draft.text;
  });
  if (moment.kind === "cut" || moment.kind === "token") texts[now.context + now.accepted] = now.token.text;
  if (moment.kind === "cut")
    now.drafts.forEach((_, i) => {
      if (i > now.accepted) delete texts[now.context + i];
    });
  return texts;
}

// Putting it together -----------------------------------------------------------------------------

function render({ model, el }) {
  const rounds = model.get("rounds") ?? [];
  const moments = formulas.moments(rounds);
  if (moments.length === 0) {
    el.append(make("p", { class: "sdl" }, "Nothing was recorded."));
    return () => {};
  }
  const id = newId("stepper");
  const now = () => Math.min(moments.length - 1, Math.max(0, model.get("moment") ?? 0));
  const last = moments.length - 1;
  const set = (at) => {
    model.set("moment", at);
    model.save_changes();
  };
  const ends = moments.flatMap(({ kind }, i) => (kind === "cut" ? [i] : [])); // what the task asks about
  const bar = transport({
    last: () => last,
    now,
    set,
    event: "round",
    next: (at) => ends.find((end) => end > at),
    heard: (isPlaying) => {
      spoken.ariaLive = isPlaying ? "off" : "polite";
    },
  });
  const { input, output } = slider(id, { min: 1, max: moments.length, step: 1 }, (place) =>
    bar.go(place - 1),
  );
  const [box, text] = endOfText();
  const body = make("tbody");
  const heads = columns([hidden("number"), "token", "q", "p", "stays if u < p/q"]);
  const title = make("p", { class: "sdl-heading" });
  const caches = chart(
    "What the caches hold",
    "Left of the dotted line: committed text. Filled: held. Thick: just fed. Crossed out: just cut. Right: length.",
    "",
    { height: 92 },
  );
  const words =
    "find the moment just after the cut of a round in which every draft was accepted. By how much do the lengths of the two caches differ, and why?";
  const { task, spoken, announce, silence } = narration(
    words,
    longest(moments.map((moment) => taskState(rounds, moment))),
    100,
    longest(moments.map((moment) => sentence(rounds[moment.round], moment))),
  );
  const root = make(
    "section",
    { class: "sdl sdl-fates sdl-stepper", "aria-label": "Round stepper" },
    task,
    field(id, "Moment", output, input),
    bar.node,
    spoken,
    box,
    title,
    scroll("This round's drafts", make("table", {}, heads, body)),
    caches.node,
  );
  const draw = () => {
    const at = now();
    const moment = moments[at];
    const round = rounds[moment.round];
    input.value = at + 1;
    output.textContent = `${at + 1} of ${moments.length}`;
    input.setAttribute("aria-valuetext", `${at + 1} of ${moments.length}, round ${moment.round + 1}`);
    title.textContent = `Round ${moment.round + 1} of ${rounds.length}`;
    drawText(text, model.get("prompt") ?? "", rounds, moment);
    drawTable(body, round, moment);
    const start = { target: round.context - 1, draft: round.draft_cache };
    drawCaches(
      caches.svg,
      Math.max(260, widthOf(caches.svg) || 560),
      textsAround(rounds, moment.round, moment),
      round,
      moment,
      at > 0 && moments[at - 1].round === moment.round ? moments[at - 1] : start,
    );
    bar.show();
    announce(() => [sentence(round, moment), taskState(rounds, moment)]);
  };
  const detach = attach({ model, el }, root, { "change:moment": draw }, draw);
  draw();
  return () => {
    bar.stop();
    detach();
    silence();
  };
}

export default { render, formulas };

// The block stepper: a recorded run of blockwise parallel decoding. Every moment and counter follows from the
// recorded blocks.

const VERDICTS = { accepted: "✓ accepted", rejected: "✗ rejected", unused: "– not looked at" };
const PACE = 1400; // milliseconds a moment stays when the run plays

const formulas = {
  // The first prediction, then per block: the pass, the accepted prefix, the next prediction (none after a
  // drafted stop token).
  moments: (rounds) =>
    rounds.length === 0
      ? []
      : [
          { round: 0, kind: "predict" },
          ...rounds.flatMap(({ token }, round) =>
            ["verify", "accept", ...(token === null ? [] : ["reuse"])].map((kind) => ({ round, kind })),
          ),
        ],

  // Target passes up to a moment in three forms, the prompt's own pass in none of them; plain decoding needs
  // one a token.
  counts(rounds, at) {
    const past = formulas.moments(rounds).slice(0, at + 1);
    const total = (kind, worth) =>
      past.filter((moment) => moment.kind === kind).reduce((sum, { round }) => sum + worth(rounds[round]), 0);
    const [verified, predicted] = [total("verify", () => 1), total("reuse", () => 1)];
    return {
      twoPass: verified + predicted,
      merged: verified,
      plain: total("accept", ({ accepted }) => accepted) + predicted,
    };
  },

  // What is known of draft i at a moment of its block.
  fate(round, kind, i) {
    if (kind === "predict" || kind === "verify") return "drafted";
    if (i < round.accepted) return "accepted";
    return i === round.accepted && round.token !== null ? "rejected" : "unused";
  },
};

const listed = (texts) => texts.map(quoted).join(", ");
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

function sentence(rounds, { round: at, kind }) {
  const { root, drafts, accepted, token } = rounds[at];
  const next = rounds[at + 1]?.drafts ?? [];
  if (kind === "predict") {
    return drafts.length === 0
      ? "Nothing is predicted ahead: with a block of one token, every pass is a plain one."
      : `Predict. The pass over the prompt left a hidden state, from which the extra heads propose ${plural(drafts.length, "token")} to follow ${quoted(root)}: ${listed(drafts)}. They do not see one another.`;
  }
  if (kind === "verify") {
    return drafts.length === 0
      ? `One target pass is fed ${quoted(root)} alone and says what it would write next.`
      : `Verify. One target pass is fed the whole block, ${quoted(root)} and the ${plural(drafts.length, "proposal")}, and says behind each token what it would write itself.`;
  }
  const last = accepted > 0 ? drafts[accepted - 1] : root;
  if (kind === "accept") {
    if (token === null) return `Accept. The proposals agree up to ${quoted(last)}, which ends the text.`;
    if (drafts.length === 0) return "Accept. There was nothing to compare.";
    if (accepted === drafts.length)
      return `Accept. All ${plural(drafts.length, "proposal")} agree with what the target writes: the whole block stays.`;
    const prefix =
      accepted === 0
        ? "Not one proposal agrees"
        : `The longest prefix that agrees has ${plural(accepted, "proposal")}`;
    const behind =
      drafts.length > accepted + 1
        ? "; what stands behind was computed after a wrong token and is not looked at"
        : "";
    return `Accept. ${prefix}: where ${quoted(drafts[accepted])} was proposed, the target writes ${quoted(token)}${behind}.`;
  }
  const ahead = next.length
    ? `its extra heads propose ${listed(next)}. `
    : at + 1 < rounds.length
      ? "nothing is proposed behind it. "
      : "here the recording ends. ";
  return (
    `Next prediction reused. The pass has computed the row of ${quoted(last)}, the last token that stayed: its own head says ${quoted(token)}, the first token of the next block, and ${ahead}` +
    `The two-pass form runs the target once more for this; the merged form reads what is there. The block gave ${plural(accepted + 1, "token")}.`
  );
}

function taskState(rounds, { round, kind }) {
  const most = Math.max(...rounds.map(({ accepted }) => accepted));
  if (most === 0) return "No proposal was ever accepted in this recording.";
  if (kind !== "reuse") return `Look where the next prediction is reused. This is block ${round + 1}.`;
  const { accepted } = rounds[round];
  const given = `block ${round + 1} gave ${plural(accepted + 1, "token")} for one pass`;
  return accepted === most
    ? `Solved: ${given}, and no block gave more. Two passes a block would have made that ${((accepted + 1) / 2).toFixed(1)} tokens a pass.`
    : `Not yet: ${given}; another block gave more.`;
}

function token(kind, written, isFlat = false) {
  const text = isFlat && written.trim() === "" ? written.replaceAll(" ", "␣") : written;
  const isGone = kind === "rejected" || kind === "unused";
  const node = make(isGone ? "del" : kind === "own" ? "ins" : "span", { class: `sdl-token sdl-${kind}` });
  text.split("\n").forEach((line, i) => {
    if (i > 0)
      node.append(
        make("span", { class: "sdl-newline", "aria-hidden": "true" }, "⏎"),
        isFlat || isGone || kind === "drafted" ? "" : "\n",
      );
    node.append(line);
  });
  return node;
}

// What stood before the block is drawn once a block.
function drawText(box, prompt, rounds, { round: at, kind }) {
  const now = rounds[at];
  const emitted = (round, hasOwn) => [
    ...round.drafts.slice(0, round.accepted).map((text) => token("accepted", text)),
    ...(hasOwn && round.token !== null ? [token("own", round.token)] : []),
  ];
  const current =
    kind === "reuse"
      ? [...emitted(now, true), ...(rounds[at + 1]?.drafts ?? []).map((text) => token("drafted", text))]
      : now.drafts.map((text, i) => token(formulas.fate(now, kind, i), text));
  if (box.dataset.round !== String(at)) {
    const before = rounds.slice(0, at).flatMap((round) => emitted(round, true));
    box.replaceChildren(make("span", { class: "sdl-prompt" }, prompt), ...before, make("span"));
    box.dataset.round = at;
  }
  box.lastChild.replaceWith(make("span", { class: "sdl-pass" }, ...current));
}

// One row per position: what was proposed there, what the pass says, the verdict, and the block that the same
// pass proposes next.
function drawTable(body, rounds, { round: at, kind }) {
  const now = rounds[at];
  const next = now.token === null ? [] : [now.token, ...(rounds[at + 1]?.drafts ?? [])];
  const first = now.context - 1;
  const count = Math.max(now.drafts.length + 2, now.accepted + 1 + next.length);
  const writes = (i) =>
    kind === "predict" || i < 0
      ? null
      : i < now.accepted
        ? now.drafts[i]
        : i === now.accepted
          ? now.token
          : null;
  const isRead = (i) => kind === "reuse" && i === now.accepted - 1;
  const rows = Array.from({ length: count }, (_, row) => {
    const i = row - 1; // -1 is the root, which the pass is fed first
    const fate = i < 0 ? (at === 0 ? "prompt" : "own") : i < now.drafts.length && formulas.fate(now, kind, i);
    const isJudged = i >= 0 && fate && (kind === "accept" || kind === "reuse");
    const verdict = [i < 0 ? "certain" : isJudged ? VERDICTS[fate] : "", isRead(i) ? "◆ row read" : ""];
    const ahead = kind === "reuse" ? next[i - now.accepted] : undefined;
    const own = (other) => (i === now.accepted ? "own" : other);
    const build = () =>
      make(
        "tr",
        isRead(i) ? { "aria-current": "step" } : {},
        make("th", { scope: "row" }, String(first + row)),
        make("td", {}, fate ? token(fate, i < 0 ? now.root : now.drafts[i], true) : ""),
        make("td", {}, writes(i) === null ? "" : token(own("sampled"), writes(i), true)),
        make(
          "td",
          { class: "sdl-verdict" },
          ...verdict.filter(Boolean).map((words) => make("span", {}, words)),
        ),
        make("td", {}, ahead === undefined ? "" : token(own("drafted"), ahead, true)),
      );
    return [[at, fate, verdict, writes(i), ahead], build];
  });
  showRows(body, rows);
}

function drawCounts(svg, counts, total) {
  const width = Math.max(240, widthOf(svg) || 520);
  const room = width - 44;
  const bars = [
    ["plain decoding: one pass a token", counts.plain, "var(--sdl-muted)"],
    ["two passes a block: verify, then predict", counts.twoPass, "var(--sdl-draft)"],
    ["merged: verifying also predicts", counts.merged, "var(--sdl-target)"],
  ];
  svg.replaceChildren(
    ...bars.flatMap(([name, value, colour], i) => [
      make("text", { x: 0, y: 14 + i * 42 }, name),
      make("rect", {
        x: 0,
        y: 20 + i * 42,
        width: room,
        height: 14,
        rx: 2,
        fill: "var(--sdl-raised)",
        stroke: "var(--sdl-line)",
      }),
      make("rect", { x: 0, y: 20 + i * 42, width: (room * value) / total, height: 14, rx: 2, fill: colour }),
      make("text", { x: width, y: 32 + i * 42, "text-anchor": "end", "font-weight": 600 }, String(value)),
    ]),
  );
  svg.setAttribute(
    "aria-label",
    `Target passes so far. ${bars.map(([name, value]) => `${name}: ${value}`).join(". ")}.`,
  );
}

function layout(id, parts) {
  const legend = [
    ["drafted", "proposed"],
    ["accepted", "accepted"],
    ["rejected", "rejected"],
    ["unused", "not looked at"],
    ["own", "from the target's own head"],
  ];
  const heads = columns(["place", "block", "target writes", "verdict", "next block"]);
  return make(
    "section",
    { class: "sdl sdl-fates sdl-stepper sdl-blocks", "aria-label": "Block stepper" },
    parts.task,
    field(id, "Moment", parts.output, parts.input),
    parts.bar.node,
    parts.spoken,
    parts.box,
    make("ul", { class: "sdl-legend" }, ...legend.map(([kind, words]) => make("li", {}, token(kind, words)))),
    parts.title,
    scroll("The block by position", make("table", {}, heads, parts.body)),
    parts.passes.node,
  );
}

function render({ model, el }) {
  const rounds = model.get("rounds") ?? [];
  const moments = formulas.moments(rounds);
  if (moments.length === 0) {
    el.append(make("p", { class: "sdl" }, "Nothing was recorded."));
    return () => {};
  }
  const id = newId("blocks");
  const last = moments.length - 1;
  const now = () => Math.min(last, Math.max(0, model.get("moment") ?? 0));
  const set = (at) => {
    model.set("moment", at);
    model.save_changes();
  };
  const words = `the block size is ${model.get("k")}. Find the block that gave the most tokens for its one pass.`;
  const { announce, silence, ...told } = narration(
    words,
    longest(moments.map((moment) => taskState(rounds, moment))),
    100,
    longest(moments.map((moment) => sentence(rounds, moment))),
  );
  const ends = moments.flatMap(({ kind }, i) => (kind === "reuse" ? [i] : [])); // what the task asks about
  const bar = transport({
    last: () => last,
    now,
    set,
    event: "block",
    next: (at) => ends.find((end) => end > at),
    heard: (isPlaying) => {
      told.spoken.ariaLive = isPlaying ? "off" : "polite";
    },
    pace: PACE,
  });
  const [box, text] = endOfText();
  const parts = {
    ...told,
    bar,
    ...slider(id, { min: 1, max: moments.length, step: 1 }, (place) => bar.go(place - 1)),
    box,
    text,
    title: make("p", { class: "sdl-heading" }),
    body: make("tbody"),
    passes: chart(
      "Target passes so far",
      "The pass over the prompt is counted in none of them; with it, m tokens in full blocks of k take m/k + 1 merged passes.",
      "",
      { height: 122 },
    ),
  };
  const root = layout(id, parts);
  const draw = () => {
    const at = now();
    const moment = moments[at];
    parts.input.value = at + 1;
    parts.output.textContent = `${at + 1} of ${moments.length}`;
    parts.input.ariaValueText = `${at + 1} of ${moments.length}, block ${moment.round + 1}, ${moment.kind}`;
    parts.title.textContent = `Block ${moment.round + 1} of ${rounds.length}: ${moment.kind === "reuse" ? "next prediction reused" : moment.kind}`;
    drawText(parts.text, model.get("prompt") ?? "", rounds, moment);
    drawTable(parts.body, rounds, moment);
    drawCounts(
      parts.passes.svg,
      formulas.counts(rounds, at),
      Math.max(...Object.values(formulas.counts(rounds, last))),
    );
    bar.show();
    announce(() => [sentence(rounds, moment), taskState(rounds, moment)]);
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

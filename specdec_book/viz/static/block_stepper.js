// The block stepper: a recorded run of blockwise parallel decoding. Every moment and counter is computed from the
// recorded blocks.

const VERDICTS = { accepted: "✓ accepted", rejected: "✗ rejected", unused: "– not verified" };
const PACE = 1400; // milliseconds per moment while playing
const TITLES = { predict: "predict", verify: "verify", accept: "accept", reuse: "next prediction reused" };

const formulas = {
  // The first prediction; then for each block the pass, the accepted prefix and the next prediction (there is none
  // after a drafted stop token).
  moments: (rounds) =>
    rounds.flatMap(({ token }, round) => {
      const kinds = ["verify", "accept", ...(token === null ? [] : ["reuse"])];
      return [...(round ? [] : ["predict"]), ...kinds].map((kind) => ({ round, kind }));
    }),

  // Target passes up to a moment in three forms, without the pass over the prompt. Plain decoding needs one per token.
  counts(rounds, at) {
    const past = formulas.moments(rounds).slice(0, at + 1);
    const of = (wanted) => past.filter(({ kind }) => kind === wanted);
    const [verified, predicted] = [of("verify").length, of("reuse").length];
    const accepted = sum(of("accept"), ({ round }) => rounds[round].accepted);
    return { twoPass: verified + predicted, merged: verified, plain: accepted + predicted };
  },

  // The state of draft i at a moment of its block.
  fate(round, kind, i) {
    if (kind === "predict" || kind === "verify") return "drafted";
    if (i < round.accepted) return "accepted";
    return i === round.accepted && round.token !== null ? "rejected" : "unused";
  },
};

const quotedList = (texts) => texts.map(quoted).join(", ");

function sentence(rounds, { round: at, kind }) {
  const { root, drafts, accepted, token } = rounds[at];
  const next = rounds[at + 1]?.drafts ?? [];
  if (kind === "predict") {
    return drafts.length === 0
      ? "Nothing is predicted ahead: with a block of one token, every pass is a pass of plain decoding."
      : `Predict. The pass over the prompt computed a hidden state. From this state the extra heads propose ${plural(drafts.length, "token")} after ${quoted(root)}: ${quotedList(drafts)}. The heads do not see one another's tokens.`;
  }
  if (kind === "verify") {
    return drafts.length === 0
      ? `One target pass reads ${quoted(root)} alone and predicts the next token.`
      : `Verify. One target pass reads the whole block, which is ${quoted(root)} and the ${plural(drafts.length, "proposal")}. After each token it predicts the next one.`;
  }
  const last = accepted > 0 ? drafts[accepted - 1] : root;
  if (kind === "accept") {
    if (token === null) return `Accept. The proposals agree up to ${quoted(last)}, which ends the text.`;
    if (drafts.length === 0) return "Accept. There was no proposal to compare.";
    if (accepted === drafts.length)
      return `Accept. All ${plural(drafts.length, "proposal")} agree with the target, so the whole block is accepted.`;
    const prefix =
      accepted === 0
        ? "No proposal agrees with the target"
        : `The longest prefix that agrees has ${plural(accepted, "proposal")}`;
    const rest =
      drafts.length > accepted + 1
        ? " Everything after it was computed from a wrong token and is discarded."
        : "";
    return `Accept. ${prefix}: ${quoted(drafts[accepted])} was proposed, but the target predicts ${quoted(token)}.${rest}`;
  }
  const ahead = next.length
    ? `The extra heads propose ${quotedList(next)}.`
    : at + 1 < rounds.length
      ? "The extra heads propose nothing after it."
      : "The recording ends here.";
  return `Next prediction reused. The same pass has already computed the row of ${quoted(last)}, the last accepted token. The target's own head predicts ${quoted(token)}, the first token of the next block. ${ahead} The two-pass form needs one more target pass for this; the merged form does not. The block emitted ${plural(accepted + 1, "token")}.`;
}

function taskState(rounds, { round, kind }) {
  const most = Math.max(...rounds.map(({ accepted }) => accepted));
  if (most === 0) return "No proposal was ever accepted in this recording.";
  if (kind !== "reuse")
    return `Go to a moment where the next prediction is reused. This is block ${round + 1}.`;
  const { accepted } = rounds[round];
  const result = `block ${round + 1} emitted ${plural(accepted + 1, "token")} with one pass`;
  return accepted === most
    ? `Solved: ${result}, and no block emitted more. With two passes per block this would be ${((accepted + 1) / 2).toFixed(1)} tokens per pass.`
    : `Not yet: ${result}, but another block emitted more.`;
}

// A token in a table cell: spaces are visible if it has nothing else.
const flat = (kind, text) => tokenNode(kind, text.trim() === "" ? text.replaceAll(" ", "␣") : text, true);

function drawText(box, prompt, rounds, { round: at, kind }) {
  const now = rounds[at];
  const emitted = (round) => [
    ...round.drafts.slice(0, round.accepted).map((text) => tokenNode("accepted", text)),
    ...(round.token === null ? [] : [tokenNode("own", round.token)]),
  ];
  const current =
    kind === "reuse"
      ? [...emitted(now), ...(rounds[at + 1]?.drafts ?? []).map((text) => tokenNode("drafted", text))]
      : now.drafts.map((text, i) => tokenNode(formulas.fate(now, kind, i), text));
  showText(box, prompt, at, () => rounds.slice(0, at).flatMap(emitted), current);
}

// One row per position: the proposal, the target's prediction, the verdict, and the block that the same pass proposes
// next.
function drawTable(body, rounds, { round: at, kind }, isCalm) {
  const now = rounds[at];
  const next = now.token === null ? [] : [now.token, ...(rounds[at + 1]?.drafts ?? [])];
  const first = now.context - 1;
  const count = Math.max(now.drafts.length + 2, now.accepted + 1 + next.length);
  const own = kind === "predict" ? [] : [...now.drafts.slice(0, now.accepted), now.token];
  const predicted = (i) => own[i] ?? null;
  const isRead = (i) => kind === "reuse" && i === now.accepted - 1;
  const rows = Array.from({ length: count }, (_, row) => {
    const i = row - 1; // -1 is the root, the first token that the pass reads
    const fate = i < 0 ? (at === 0 ? "prompt" : "own") : i < now.drafts.length && formulas.fate(now, kind, i);
    const isVerified = i >= 0 && fate && (kind === "accept" || kind === "reuse");
    const verdict = [i < 0 ? "committed" : isVerified ? VERDICTS[fate] : "", isRead(i) ? "◆ row reused" : ""];
    const ahead = kind === "reuse" ? next[i - now.accepted] : undefined;
    const words = verdict.filter(Boolean).map((each) => make("span", {}, each));
    const kindOf = (other) => (i === now.accepted ? "own" : other);
    const build = () =>
      make(
        "tr",
        isRead(i) ? { "aria-current": "step" } : {},
        make("th", { scope: "row" }, String(first + row)),
        make("td", {}, fate ? flat(fate, i < 0 ? now.root : now.drafts[i]) : ""),
        make("td", {}, predicted(i) === null ? "" : flat(kindOf("sampled"), predicted(i))),
        make("td", { class: "sdl-verdict" }, ...words),
        make("td", {}, ahead === undefined ? "" : flat(kindOf("drafted"), ahead)),
      );
    return [[first + row, i < 0 ? now.root : now.drafts[i], fate, verdict, predicted(i), ahead], build];
  });
  // The next block begins further down: the rows slide up, and those of the same positions stay.
  const gone = [...body.children].slice(0, Math.max(0, first - (body.first ?? first)));
  for (const row of gone) row.remove();
  body.first = first;
  showRows(body, rows);
  const move = { transform: [`translateY(${(100 * gone.length) / count}%)`, "none"] };
  if (gone.length && !isCalm) body.animate(move, { duration: 400, easing: "ease-out" });
}

function drawCounts(svg, counts, total) {
  const width = Math.max(240, widthOf(svg) || 520);
  const room = width - 44;
  const bars = [
    ["plain decoding: one per token", counts.plain, "plain"],
    ["two per block: verify, then predict", counts.twoPass, "other"],
    ["merged: one per block", counts.merged, "one"],
  ];
  svg.replaceChildren(
    ...bars.flatMap(([name, value, color], i) => [
      svgText(0, 12 + i * 37, name),
      block(0, 17 + i * 37, room, 14, "raised", { rx: 2, stroke: ink("line") }),
      block(0, 17 + i * 37, (room * value) / total, 14, color, { rx: 2 }),
      svgText(width, 29 + i * 37, String(value), { "text-anchor": "end", "font-weight": 600 }),
    ]),
  );
  const words = bars.map(([name, value]) => `${name}: ${value}`).join(". ");
  svg.setAttribute("aria-label", `Target passes so far. ${words}.`);
}

const LEGEND = {
  drafted: "proposed",
  accepted: "accepted",
  rejected: "rejected",
  unused: "not verified",
  own: "from the target's own head",
};

function render({ model, el }) {
  const rounds = model.get("rounds") ?? [];
  const moments = formulas.moments(rounds);
  if (moments.length === 0) return showNothing(el);
  const title = make("p", { class: "sdl-heading" });
  const body = make("tbody");
  const passes = chart("Target passes so far", "Without the pass over the prompt.", "", { height: 110 });
  const legend = Object.entries(LEGEND).map((each) => tokenNode(...each));
  const heads = columns(["position", "block", "target predicts", "verdict", "next block"]);
  const table = scroll("The block by position", make("table", {}, heads, body));
  const panels = (box) => {
    const counts = phoneFold("Target passes so far", "", passes.node);
    const text = phoneFold("The text so far", "", box, legendOf(...legend));
    const halves = [make("div", {}, title, table), make("div", {}, counts, text)];
    return make("div", { class: "sdl-blocks-panels" }, ...halves);
  };
  const total = Math.max(...Object.values(formulas.counts(rounds, moments.length - 1)));
  return stepper({ model, el }, moments, {
    name: "blocks",
    opening: moments.findIndex(({ kind, round }) => kind === "accept" && rounds[round].accepted > 0),
    task: `the block size is ${model.get("k")}. Find the block that emitted the most tokens with its one pass.`,
    taskState: (moment) => taskState(rounds, moment),
    sentence: (moment) => sentence(rounds, moment),
    describe: ({ round, kind }) => `block ${round + 1}, ${TITLES[kind]}`,
    pace: PACE,
    label: "Block stepper",
    kinds: "sdl-fates sdl-stepper",
    layout: ({ task, slider, bar, spoken, box }) => [
      task,
      make("div", { class: "sdl-blocks-controls" }, slider, bar.node),
      make("div", {}, spoken),
      make("div", { class: "sdl-frame" }, panels(box)),
    ],
    draw(at, { text, bar }) {
      const moment = moments[at];
      title.textContent = `Block ${moment.round + 1} of ${rounds.length}: ${TITLES[moment.kind]}`;
      drawText(text, model.get("prompt") ?? "", rounds, moment);
      drawTable(body, rounds, moment, bar.isCalm);
      drawCounts(passes.svg, formulas.counts(rounds, at), total);
    },
  });
}

export default { render, formulas };

// The sentences of one round, in the letters of the book or in the words of the start page.

const digits = (x) => (x > 0 && x < 0.005 ? "<.01" : x.toFixed(2).replace(/^0/, ""));
const named = (text) => `“${visible(text)}”`;

// What the parts are called: in the book's letters, or in the words of the start page.
const LETTERS = {
  model: "the target",
  helper: "The draft model proposes",
  drafts: "draft",
  kept: "accepted",
  gone: "discarded",
  dart: "point u",
  bar: "the draft model's bar",
  tokens: "token",
  pass: (count) =>
    `It computes ${plural(count, "row")}: the target's distribution at the position of every draft, and at one more.`,
  always: "p is at least q, so the word is always accepted.",
  never: "p is 0, so the word is always rejected.",
};
const PLAIN = {
  model: "the large model",
  helper: "The helper guesses",
  drafts: "guess",
  kept: "kept",
  gone: "thrown away",
  dart: "dart",
  bar: "the helper's amber bar",
  tokens: "word",
  pass: () => "It says how likely each next word is, after the text and after every guess.",
  always:
    "The large model likes it at least as much: blue covers the whole amber bar, so it is kept wherever the dart falls.",
  never:
    "The large model never writes it here: there is no blue on its amber bar, so it is rejected wherever the dart falls.",
};
const namesOf = (numbers) => (numbers ? LETTERS : PLAIN);
const plurals = (count, word) => plural(count, word, `${word}${word.endsWith("s") ? "es" : "s"}`);
const capital = (words) => words[0].toUpperCase() + words.slice(1);

function sentence(rounds, moment, { numbers }) {
  const { round: at, kind, row: level } = moment;
  const round = rounds[at];
  const name = namesOf(numbers);
  const dice = hasDice(round);
  const row = round.rows[level];
  const [test] = row.tests;
  const drafts = round.rows.filter(({ tests }) => tests.length).length;
  const added = round.rows[round.accepted].words[round.token.word];
  const [p, q] = test ? [row.p[test.word], test.q?.[test.word] ?? 1] : [];
  const word = test && named(row.words[test.word]);
  if (kind === "text" && at > 0) return "The text is longer now, and the next round begins.";
  if (kind === "text")
    return numbers
      ? "A large model, the target, writes this text. A small model, the draft model, drafts the next words."
      : "A large model writes this text. A small helper guesses the next words.";
  if (kind === "draft") {
    const drawn = numbers && test.q ? ` It was drawn with q = ${digits(q)}.` : "";
    const cost = numbers ? ". It takes one draft pass." : ".";
    return `${name.helper} ${word}${cost}${drawn}`;
  }
  if (kind === "pass") {
    const all = drafts === 1 ? `the ${name.drafts}` : `all ${plurals(drafts, name.drafts)}`;
    return `One pass of ${name.model} reads the last word and ${all}. ${name.pass(drafts + 1)}`;
  }
  if (kind === "test") {
    const values = numbers ? ` p = ${digits(p)}, q = ${digits(q)}, u = ${digits(test.u)}.` : "";
    const falls = `The ${name.dart} falls at random on ${name.bar}. Where the blue bar of ${name.model} covers it, the word is ${name.kept}.`;
    return `${word} is tested. ${p >= q ? name.always : p === 0 ? name.never : falls}${values}`;
  }
  const lost =
    drafts > level + 1
      ? ` The ${name.drafts}${name.drafts.endsWith("s") ? "es" : "s"} after it followed a wrong word and are ${name.gone}.`
      : "";
  if (kind === "verdict" && !dice)
    return test.kept
      ? `${capital(name.model)}'s likeliest word here is also ${word}: it is ${name.kept}.`
      : `${capital(name.model)}'s likeliest word here is ${named(row.words[formulas.argmax(row.p)])}, not ${word}, which is rejected.${lost}`;
  if (kind === "verdict") {
    const odds = `p/q = ${digits(formulas.acceptance(p, q))}`;
    const comparison = numbers ? ` (${digits(test.u)} ${test.kept ? "<" : "≥"} ${odds})` : "";
    return test.kept
      ? `The ${name.dart} is on blue${comparison}: ${word} is ${name.kept}.`
      : `The ${name.dart} is on bare amber${comparison}: ${word} is rejected.${lost}`;
  }
  if (kind === "residual")
    return numbers
      ? "The target must choose another word. It is drawn from the residual: the parts of the target's bars that are longer than the draft model's."
      : "The large model writes another word instead. Only the blue beyond the amber counts; it is pink now.";
  if (kind === "token") return tokenSentence(round.token.kind, named(added), dice, name);
  const emitted = `One pass of ${name.model} ${numbers ? "emitted" : "wrote"} ${plural(round.accepted + 1, name.tokens)}.`;
  const cut =
    round.accepted === drafts
      ? "Nothing is cut."
      : `${round.caches.draft ? "Both caches are" : "The target's cache is"} cut back to the accepted text.`;
  const isFollowed = at > 0 && rounds.every(hasDice); // a clicked round is no part of the run
  const score = isFollowed && scorecard(rounds.slice(0, at + 1), name);
  return [emitted, numbers && cut, score].filter(Boolean).join(" ");
}

function scorecard(rounds, { model, tokens: words }) {
  const tokens = sum(rounds, ({ accepted }) => accepted + 1);
  return `So far: ${tokens} ${words}s from ${rounds.length} passes; alone, ${model} needs ${tokens}.`;
}

function tokenSentence(kind, word, dice, { model, drafts, kept, dart, tokens }) {
  const free = kind === "bonus" ? ` This bonus ${tokens} needs no pass of its own.` : "";
  if (!dice) return `${capital(model)} adds its own likeliest word, ${word}.${free}`;
  return kind === "recovered"
    ? `These pieces, joined and scaled to length 1, form one bar. The second ${dart} selects ${word}.`
    : `All ${drafts}${drafts.endsWith("s") ? "es" : "s"} were ${kept}, and the same pass gives one more ${tokens}. A ${dart} on the blue bars selects ${word}.${free}`;
}

function reply(rounds, moment, answer, numbers) {
  if (answer === undefined) return "";
  const round = rounds[moment.round];
  if (moment.kind === "verdict") {
    const { kept } = round.rows[moment.row].tests[0];
    return answer === kept
      ? "✓ Correct. "
      : `✗ You chose ${answer ? (numbers ? "accept" : "keep") : "reject"}. `;
  }
  const residual = formulas.residualOf(round.rows[moment.row]);
  const word = named(round.rows[moment.row].words[answer]);
  if (answer === round.token.word) return "✓ Correct. ";
  return residual[answer] > 0
    ? `${word} was possible. `
    : `✗ ${word} has no ${numbers ? "residual" : "blue left"}, so it cannot be chosen. `;
}

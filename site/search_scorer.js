// Ranks the results of the search. Among pages that Sphinx scores alike, chapters come before reference pages, in
// reading order. The chapters 5 and 6, which define the method's terms, gain most; the glossary, which repeats the
// definitions, comes after the chapters.
var Scorer = {
  score([page, , , , score]) {
    if (page === "book/glossary") return score - 100;
    const chapter = /^notebooks\/0*(\d+)/.exec(page);
    if (!chapter) return score;
    const number = Number(chapter[1]);
    return score + (number === 5 || number === 6 ? 11 : 1) - number / 20;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// How the search ranks what Sphinx has found; Sphinx puts it into its own script.
"use strict";

// A result's parts: page, title, anchor, description, score.
var Scorer = {
  // What is about the course's making comes after what is in the course.
  score: ([page, , , , score]) => (/^(CHANGELOG|CONTRIBUTING)/.test(page) ? score - 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 3, // a part of a word in a heading says less than the whole word in the text
  term: 5,
  partialTerm: 2,
};

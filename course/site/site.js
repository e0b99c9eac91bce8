// What the pages do by themselves. Texts and expressions come from Python, in the page; nothing is
// fetched. Questions and hints are <details>: they need no script.
"use strict";

// --- A pasted error: `explain` of helpers/display/explain.py, with its own expressions ---

const LINES = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;
const TYPED = { "‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " ", "\r": "\n", "\b": "\n" };

function unescaped(text) {
  const field = document.createElement("textarea");
  field.innerHTML = text.replaceAll("<", "&lt;");
  return field.value;
}

/** Split a text into its lines, without colours, times and quotation marks of mail. */
function clean(text, known) {
  const all = (name) => new RegExp(known[name].replace("\\A", "^"), "g");
  text = text.replace(/[\u{10000}-\u{10ffff}]/gu, "?").replace(all("ESCAPES"), "");
  text = unescaped(text).replace(/[‘’“”\u00a0\r\b]/g, (sign) => TYPED[sign]);
  text = text.replace(all("QUOTED"), (_, quote) => quote ?? "\n");
  const before = all("BEFORE");
  const lines = text.split(LINES).map((line) => line.trim().split(/\s+/).join(" "));
  return lines.map((line) => line.replace(before, "")).filter(Boolean);
}

/** Give the line, or lines, around a place; of a long one what is next to it. */
function lineAt(text, start, end, longest) {
  let first = text.lastIndexOf("\n", start - 1) + 1;
  if (start === 0) first = 0;
  const last = `${text}\n`.indexOf("\n", end);
  if (last - first > longest) first = Math.max(first, start - 20, end - longest / 2);
  return text.slice(first, Math.min(last, first + longest)).replace(/\s+/g, " ").trim();
}

function evidence(symptom, [text, small], known) {
  for (const found of small.matchAll(new RegExp(symptom.seen, "g"))) {
    const start = found.index, end = start + found[0].length;
    const around = small.slice(Math.max(0, start - known.REACH), end + known.REACH);
    const unless = symptom.unless && new RegExp(symptom.unless).test(around);
    if (!unless && new RegExp(symptom.near).test(around))
      return lineAt(text, start, end, known.LONGEST_EVIDENCE);
  }
  return "";
}

/** Look for known symptoms in a text, the most telling first. */
function explain(pasted, known) {
  const lines = clean(pasted, known);
  const both = [lines.join("\n"), lines.join("")].map((text) => [
    text, text.replace(/[^\x00-\x7f]/g, "?").toLowerCase().replaceAll("\n", " "),
  ]);
  const found = known.symptoms
    .map((symptom) => ({
      symptom,
      seen: evidence(symptom, both[0], known) || evidence(symptom, both[1], known),
    }))
    .filter((match) => match.seen);
  const raised = new RegExp(`^(?:${known.RAISED})`);
  let matches = found.filter((match) => !match.symptom.note);
  if (!matches.length && !lines.some((line) => raised.test(line))) matches = found;
  return matches.slice(0, known.MOST_MATCHES);
}

function element(name, ...inside) {
  const made = document.createElement(name);
  made.append(...inside);
  return made;
}

/** Show the rows of the page's tables that explain what was pasted. */
function paste() {
  const field = document.getElementById("pasted");
  const known = JSON.parse(document.getElementById("symptoms").textContent);
  const rows = document.querySelectorAll("article table tbody tr");
  field.addEventListener("input", () => {
    const told = document.getElementById("told");
    const blocks = explain(field.value, known).map(({ symptom, seen }) => {
      const row = rows[symptom.row];
      const heads = row.closest("table").querySelectorAll("th");
      const parts = [...row.cells].map((cell, at) => {
        if (at === 0) return element("h2", cell.textContent);
        const inside = at === 1 ? [element("code", seen)] : cell.firstElementChild.cloneNode(true).childNodes;
        return element("p", element("b", `${heads[at].textContent}: `), ...inside);
      });
      return element("section", ...parts);
    });
    if (!blocks.length && field.value.trim()) blocks.push(element("p", known.nothing));
    told.replaceChildren(...blocks);
  });
}

// --- Will a TPU take it? Rows with all words; of a pasted error, rows with most of them ---

function takes() {
  const wanted = document.getElementById("wanted");
  const rows = [...document.querySelectorAll("#takes tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  function filter() {
    const words = [...new Set(wanted.value.toLowerCase().split(/[^\p{L}\p{N}_.]+/u).filter(Boolean))];
    const counts = texts.map((text) => words.filter((word) => text.includes(word)).length);
    const most = Math.max(...counts);
    // Of two or three words all are meant; a message's own names stand in no table.
    const enough = words.length > 3 ? Math.max(most - 1, words.length / 2) : words.length;
    rows.forEach((row, at) => (row.hidden = counts[at] < enough));
    document.getElementById("shown").textContent = rows.filter((row) => !row.hidden).length;
  }
  wanted.addEventListener("input", filter);
  wanted.form.addEventListener("submit", (event) => event.preventDefault());
  wanted.value = decodeURIComponent(location.hash.slice(1));
  filter();
}

/** Mend what the page's makers leave to a keyboard and a screen reader. */
function reachable() {
  for (const box of document.querySelectorAll(".task-list-item-checkbox"))
    box.ariaLabel = box.parentElement.textContent.trim();
  for (const summary of document.querySelectorAll("summary[aria-label]"))
    summary.removeAttribute("aria-label"); // its own words say it
  for (const box of document.querySelectorAll("pre, .output, .table-wrapper"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
}

document.addEventListener("DOMContentLoaded", () => {
  reachable();
  if (document.getElementById("pasted")) paste();
  if (document.getElementById("wanted")) takes();
});

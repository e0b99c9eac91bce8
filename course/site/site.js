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

/** Compile each expression once: there are some five hundred. */
const compiled = new Map();
function pattern(expression, flags) {
  const key = flags + expression;
  if (!compiled.has(key)) compiled.set(key, new RegExp(expression, flags));
  return compiled.get(key);
}

/** Put lines together by a separator; remember where each begins. */
function searched(lines, separator) {
  const whole = lines.join(separator), starts = [];
  let start = 0;
  for (const line of lines) {
    starts.push(start);
    start += line.length + separator.length;
  }
  const small = whole.replace(/[^\x00-\x7f]/g, "?").toLowerCase().replaceAll("\n", " ");
  return { whole, small, starts };
}

/** Give the number of the line in which a character stands. */
function lineNumber(starts, position) {
  let low = 0, high = starts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= position) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Find the lines in which errors begin and end; nothing where there is none. */
function errorLines(lines, known) {
  const raised = pattern(`^(?:${known.RAISED})`, ""), traceback = pattern(`^(?:${known.TRACEBACK})`, "");
  const last = lines.findLastIndex((line) => raised.test(line));
  if (last < 0) return null;
  return { begin: lines.findIndex((line) => raised.test(line) || traceback.test(line)), end: last };
}

/** Rank a line: 0 with the last error, 1 with an earlier one, 2 before any, 3 overcome. */
function placeOf(first, line, errors, overcome) {
  if (overcome.has(first)) return 3;
  if (!errors || line >= errors.end) return 0;
  return line >= errors.begin ? 1 : 2;
}

/** Find a symptom in a text where it is most telling. */
function evidence(symptom, text, errors, overcome, known) {
  let best = null, quotations = null;
  for (const found of text.small.matchAll(pattern(symptom.seen, "g"))) {
    const start = found.index, end = start + found[0].length;
    quotations ??= symptom.not_in ? [...text.small.matchAll(pattern(symptom.not_in, "g"))] : [];
    if (quotations.some((one) => one.index <= start && end <= one.index + one[0].length)) continue;
    const around = text.small.slice(Math.max(0, start - known.REACH), end + known.REACH);
    if (symptom.unless && pattern(symptom.unless, "").test(around)) continue;
    if (!pattern(symptom.near, "").test(around)) continue;
    const number = (position) => lineNumber(text.starts, position);
    const place = placeOf(number(start), number(end - 1), errors, overcome);
    if (!best || place < best.place)
      best = { place, seen: lineAt(text.whole, start, end, known.LONGEST_EVIDENCE) };
    if (place === 0) break;
  }
  return best;
}

// --- The last error taken apart: `Failure` of helpers/display/failure.py ---

/** Find an expression at the beginning of a line. */
function begins(expression, line) {
  return line.match(pattern(`^(?:${expression})`, ""));
}

function filled(match) {
  return match.slice(1).filter((group) => group !== undefined);
}

/** Put the lines of a message together; below TensorFlow's heading begin where it tells more. */
function messageOf(first, below, known) {
  if (first.endsWith(known.UNTELLING) || below[0]?.endsWith(known.UNTELLING)) {
    const telling = below.findIndex((line) => pattern(known.REPORTED, "").test(line));
    if (telling >= 0) {
      first = below[telling];
      below = below.slice(telling + 1);
    }
  }
  const message = [first];
  for (const line of below.slice(0, known.MOST_LINES)) {
    if (begins(known.LOGGED, line) || begins(known.TRACEBACK, line)) break;
    message.push(line);
  }
  return message.join(" ").trim().slice(0, known.LONGEST_MESSAGE);
}

/** List the steps of a traceback, from its first line to its last; the outermost first. */
function framesOf(lines, begin, end, known) {
  const steps = [];
  for (let number = begin; number < end; number += 1) {
    const match = begins(known.FRAME, lines[number]);
    if (match) steps.push({ number, match });
  }
  return steps.map(({ number, match }, index) => {
    const below = lines.slice(number + 1, index + 1 < steps.length ? steps[index + 1].number : end);
    let [path, line = ""] = filled(match), source = "";
    for (const one of below) {
      const arrow = begins(known.ARROW, one);
      if (arrow) [line, source] = arrow.slice(1);
    }
    const printed = match[1] !== undefined && below.length && !begins(known.MARKS, below[0]);
    if (!source && printed) source = below[0];
    path = path.replaceAll("\\", "/");
    const inPackage = path.match(pattern(known.PACKAGE, ""));
    let name = path.slice(path.lastIndexOf("/") + 1);
    if (inPackage) name = inPackage[1];
    else if (pattern(known.CELL, "").test(path)) name = known.CELL_NAME;
    return { path, inPackage, source, place: line ? `${name}, line ${line}` : name };
  });
}

/** Take the last error of a text apart; nothing where no program ended with one. */
function lastFailure(lines, errors, known) {
  const none = { package: "", raisedAt: "", ownLine: "" };
  const raised = pattern(`^(?:${known.RAISED})`, ""), other = pattern(`^(?:${known.OTHER_CLASS})`, "");
  let end = lines.findLastIndex((line) => other.test(line) && !raised.test(line));
  if (errors && end < errors.end) end = errors.end;
  if (end < 0) {
    const quoted = (match, line) => {
      const [kind, message] = filled(match);
      return { ...none, kind, message: message.slice(0, known.LONGEST_MESSAGE), line };
    };
    const last = pattern(`^(?:${known.ENDED})`, "");
    const ended = lines.findLast((line) => last.test(line));
    if (ended !== undefined) return quoted(ended.match(last), ended);
    if (lines.length > known.EXCERPT) return null;
    const error = pattern(known.QUOTED_ERROR, "");
    const line = lines.findLast((one) => error.test(one) && !begins(known.HARMLESS, one));
    return line === undefined ? null : quoted(line.match(error), line);
  }
  const begin = tracebackBegin(lines, end, known);
  if (begin > 0 && begins(known.IGNORED, lines[begin - 1])) return null;
  return failureAt(lines, begin, end, known);
}

/** Find the line with which the traceback begins that ends with a line. */
function tracebackBegin(lines, end, known) {
  const heading = pattern(`^(?:${known.TRACEBACK}|${known.RAISED})`, "");
  return Math.max(0, lines.slice(0, end).findLastIndex((line) => heading.test(line)));
}

/** Take an error apart by the lines with which its traceback begins and ends. */
function failureAt(lines, begin, end, known) {
  const line = lines[end], raised = begins(known.RAISED, line);
  const name = (raised ?? begins(known.OTHER_CLASS, line))[0];
  const failure = { package: "", raisedAt: "", ownLine: "", line: raised ? "" : line };
  failure.kind = name.slice(name.lastIndexOf(".") + 1);
  const first = line.slice(name.length).replace(pattern(known.MESSAGE_MARK, ""), "");
  failure.message = messageOf(first, lines.slice(end + 1), known);
  const standard = pattern(known.STANDARD, "i");
  const frames = framesOf(lines, begin, end, known);
  const steps = frames.filter((frame) => frame.inPackage || !standard.test(frame.path));
  const inner = steps.at(-1), own = steps.findLast((frame) => !frame.inPackage);
  if (inner?.inPackage) [failure.package, failure.raisedAt] = [inner.inPackage[2], inner.place];
  if (own) failure.ownLine = own.source ? `${own.place}: ${own.source}` : own.place;
  failure.ownLine = failure.ownLine.slice(0, known.LONGEST_OWN_LINE);
  return failure;
}

/** Take apart what stands above the last error: its causes, and errors of their own. */
function earlierFailures(lines, errors, known) {
  const raisedFrom = [], handled = [], others = [];
  let link = null, linked = true;
  for (let number = (errors?.end ?? 0) - 1; number >= 0; number -= 1) {
    const line = lines[number];
    if (begins(known.CAUSED, line) || begins(known.HANDLED, line)) {
      link = line;
      continue;
    }
    if (!begins(known.RAISED, line)) continue;
    linked = linked && link !== null;
    if (!linked) others.push(number);
    else if (begins(known.CAUSED, link) && !handled.length) raisedFrom.push(number);
    else handled.push(number);
    link = null;
  }
  // A log may have thousands: only those that are looked at are taken apart.
  const apart = (numbers) => numbers.slice(0, known.MOST_CAUSES).map((number) => {
    const failure = failureAt(lines, tracebackBegin(lines, number, known), number, known);
    return { ...failure, line: lines[number] };
  });
  const causes = [...raisedFrom.reverse(), ...handled];
  return { causes: apart(causes), others: apart(others.reverse()) };
}

/** Tell whether a line says that the program failed; of a log's lines only the last ones do. */
function speaksOfFailing(line, isLast, known) {
  if (begins(known.FILTERED, line) || begins(known.LEVEL, line)) return false;
  if (!isLast && begins(known.MILD, line)) return false;
  if (pattern(known.ENDED_WELL, "i").test(line)) line = line.replace(pattern(known.COUNTED, "gi"), "");
  return pattern(known.ENDED_BADLY, "i").test(line);
}

/** List the lines in which a program says what it then overcame. */
function overcomeLines(lines, known) {
  const step = pattern(known.STEP, "i"), well = pattern(known.ENDED_WELL, "i");
  const numbers = new Set(), lastLines = lines.length - known.LAST_LINES;
  const isLog = lines.length > known.EXCERPT || lines.some((line) => step.test(line) || well.test(line));
  if (!isLog) return numbers;
  const endedWell = lines.slice(-known.LAST_LINES).some((line) => well.test(line));
  const failed = pattern(`^(?:${known.RAISED}|${known.OTHER_CLASS}|${known.ENDED})`, "");
  let steps = 0, spokeOfFailing = false;
  for (let number = lines.length - 1; number >= 0; number -= 1) {
    const line = lines[number], mild = begins(known.MILD, line);
    const wentOn = pattern(known.WENT_ON, "i").test(line);
    const after = wentOn || (endedWell && steps >= known.FEWEST_STEPS);
    if ((mild && number + 1 < lines.length) || (after && !spokeOfFailing)) numbers.add(number);
    if (failed.test(line)) break;
    const reported = !mild && !wentOn && pattern(known.REPORTED, "").test(line);
    if (number >= lastLines && reported) break;
    if (wentOn || step.test(line)) steps += 1;
    else if (speaksOfFailing(line, number >= lastLines, known)) spokeOfFailing = true;
  }
  return numbers;
}

/** Tell whether a program logged the last error of a text, went on, and didn't fail after it. */
function wasOvercome(lines, errors, known) {
  if (!errors) return false;
  const after = lines.slice(errors.end + 1), last = after.slice(-known.LAST_LINES);
  const isLast = (index) => index >= after.length - known.LAST_LINES;
  if (after.some((line, index) => speaksOfFailing(line, isLast(index), known))) return false;
  const step = pattern(known.STEP, "i"), well = pattern(known.ENDED_WELL, "i");
  const steps = after.filter((line) => step.test(line)).length;
  const endedWell = last.some((line) => well.test(line));
  if (endedWell && steps >= known.FEWEST_STEPS) return true;
  let begin = tracebackBegin(lines, errors.end, known);
  const linked = (line) => begins(known.CAUSED, line) || begins(known.HANDLED, line);
  while (begin > 1 && linked(lines[begin - 1])) begin = tracebackBegin(lines, begin - 2, known);
  if (begin === 0 || !begins(known.TRACEBACK, lines[begin])) return false;
  const heading = lines[begin - 1], warned = begins(known.MILD, heading);
  if (!warned && !begins(known.LOGGED_ERROR, heading)) return false;
  if (warned && steps >= known.FEWEST_STEPS) return true;
  const logged = after.filter((line) => begins(known.MILD, line)).length;
  const saysSo = pattern(known.WENT_ON, "i").test(heading);
  if (warned && logged >= known.FEWEST_STEPS && saysSo) return true;
  return endedWell;
}

/** Choose the line to search the Web for; empty if none reports an error. */
function lastErrorLine(lines, errors, known) {
  const reported = pattern(known.REPORTED, "");
  if (!errors) return lines.findLast((line) => reported.test(line)) ?? "";
  const line = lines[errors.end];
  if (!line.endsWith(known.UNTELLING)) return line;
  return lines.slice(errors.end).find((one) => reported.test(one)) ?? line;
}

/** Say what the message itself says is to be done. */
function adviceOf(failure, known) {
  const advice = failure.message.match(pattern(known.ADVICE, "i"));
  return advice ? advice[1].slice(0, known.LONGEST_ADVICE) : "";
}

/** Find the family of an error, and what it says about it; nothing where it has none. */
function familyOf(failure, line, known) {
  const advice = adviceOf(failure, known);
  const whole = `${failure.kind}: ${failure.message}\n@ ${failure.raisedAt}\n> ${advice}`;
  const ascii = whole.replace(/[^\x00-\x7f]/g, "?");
  const where = { "It advises": advice, "Raised in": failure.raisedAt, "Your line": failure.ownLine };
  for (const family of known.families) {
    if (family.unless && pattern(family.unless, "i").test(ascii)) continue;
    for (const expression of family.seen) {
      const match = ascii.match(pattern(expression, "di"));
      if (!match) continue;
      const spans = match.indices.slice(1).filter((span) => span && span[0] < span[1]);
      const Here = spans.map(([start, end]) => whole.slice(start, end)).join(" · ");
      return { family, seen: line.slice(0, known.LONGEST_EVIDENCE), facts: { Here, ...where } };
    }
  }
  return { facts: where };
}

/** Say what is known of an error without a symptom: by its family, or where it comes from. */
function byClass(lines, errors, known) {
  const failure = lastFailure(lines, errors, known);
  const line = failure?.line || lastErrorLine(lines, errors, known);
  if (!failure) return { facts: { Line: line } };
  const last = familyOf(failure, line, known);
  if (last.family && !last.family.reports) return last;
  const { causes, others } = earlierFailures(lines, errors, known);
  for (const cause of last.family ? [...causes, ...others] : causes) {
    const answer = familyOf(cause, cause.line, known);
    if (answer.family && !answer.family.reports) return answer;
  }
  if (last.family) return last;
  const words = `${failure.package} ${failure.kind} ${failure.message}`;
  const search = words.replace(pattern(known.PRIVATE, "g"), " ").trim().split(/\s+/);
  const Search = search.slice(0, known.MOST_WORDS).join(" ");
  return { facts: { Line: line, ...last.facts, Search } };
}

/** Look for known symptoms in a text: first those of its last error, of these the most telling. */
function explain(pasted, known) {
  // Of a long log the beginning and the end, as the command reads it.
  if (pasted.length > 2 * known.MOST_BYTES)
    pasted = pasted.slice(0, known.MOST_BYTES) + pasted.slice(-known.MOST_BYTES);
  const lines = clean(pasted, known), errors = errorLines(lines, known);
  const texts = [searched(lines, "\n"), searched(lines, "")];
  const causes = [], notes = [], overcome = overcomeLines(lines, known);
  const found = (symptom, text) => evidence(symptom, text, errors, overcome, known);
  for (const symptom of known.symptoms) {
    const match = found(symptom, texts[0]) || found(symptom, texts[1]);
    if (match) (symptom.note || match.place >= 2 ? notes : causes).push({ symptom, ...match });
  }
  if (wasOvercome(lines, errors, known))
    return { matches: notes.slice(0, known.MOST_MATCHES), facts: {} };
  causes.sort((one, other) => one.place - other.place);
  const matches = causes.length || errors ? causes : notes;
  if (matches.length) return { matches: matches.slice(0, known.MOST_MATCHES) };
  const { family, seen, facts } = byClass(lines, errors, known);
  if (!family) return { matches: [], facts };
  return { matches: [{ symptom: family, seen, facts }] };
}

function element(name, ...inside) {
  const made = document.createElement(name);
  made.append(...inside);
  return made;
}

/** Show what a text says of its own error: a line for each label that has something. */
function factLines(facts, known) {
  const lines = [];
  for (const [label, text] of Object.entries(facts ?? {})) {
    if (!text) continue;
    const line = element("p", element("strong", `${known.labels[label]}:`), " ", element("code", text));
    line.className = "fact";
    lines.push(line);
  }
  return lines;
}

/** Show the cards of the page that explain what was pasted, each with the line that shows it. */
function paste() {
  const field = document.getElementById("pasted");
  const known = JSON.parse(document.getElementById("symptoms").textContent);
  const cards = document.querySelectorAll("article section section section");
  field.addEventListener("input", () => {
    const answer = document.getElementById("told");
    const { matches, facts } = explain(field.value, known);
    const blocks = matches.map(({ symptom, seen, facts, place }) => {
      const card = cards[symptom.row].cloneNode(true);
      const heading = card.querySelector("h3");
      heading.querySelector(".headerlink")?.remove();
      // What the program overcame, or said before, is a note.
      if (place >= 2) {
        heading.querySelector("em")?.remove();
        heading.textContent = `${heading.textContent.replace(/ \(\)$/, "")} (${known.note})`;
      }
      const [message, ...others] = card.querySelectorAll("li > p, li:not(:has(p))");
      const line = element("p", message.querySelector("strong"), " ", element("code", seen));
      const texts = others.map((item) => element("p", ...item.childNodes));
      const title = element("h2", heading.textContent);
      if (facts) title.append(" (", element("em", known.by_class), ")");
      return element("section", title, line, ...factLines(facts, known), ...texts);
    });
    if (!blocks.length && field.value.trim()) {
      blocks.push(element("p", known.nothing), ...factLines(facts, known));
      blocks.push(element("p", element("strong", `${known.labels.Try}:`), ` ${known.try}`));
    }
    answer.replaceChildren(...blocks);
  });
}

// --- Will a TPU take it? Rows with all words; of a pasted error, rows with most of them ---

/** Say how well a row fits a word: by its name before its code and its texts; 0 not at all. */
function fit(word, name, text) {
  const literal = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const begins = pattern(`(?<![\\p{L}\\p{N}])${literal}`, "u");
  const whole = pattern(`(?<![\\p{L}\\p{N}])${literal}(?![\\p{L}\\p{N}])`, "u");
  if (name === word) return 5;
  if (whole.test(name)) return 4;
  if (name.includes(word)) return 3;
  if (whole.test(text)) return 2;
  return begins.test(text) ? 1 : 0; // within a word it would be another one
}

function takes() {
  const wanted = document.getElementById("wanted");
  const rows = [...document.querySelectorAll("#takes tbody tr")];
  const names = rows.map((row) => row.querySelector("strong").textContent.toLowerCase());
  const texts = rows.map((row) => row.textContent.toLowerCase());
  function filter() {
    const words = [...new Set(wanted.value.toLowerCase().split(/[^\p{L}\p{N}_.]+/u).filter(Boolean))];
    const fits = rows.map((_, at) => words.map((word) => fit(word, names[at], texts[at])));
    const counts = fits.map((row) => row.filter(Boolean).length);
    const scores = fits.map((row) => row.reduce((sum, one) => sum + one, 0));
    const most = Math.max(...counts);
    // Of two or three words all are meant; a message's own names stand in no table.
    const enough = words.length > 3 ? Math.max(most - 1, words.length / 2) : words.length;
    rows.forEach((row, at) => (row.hidden = counts[at] < enough));
    const order = rows.map((_, at) => at).sort((one, other) => scores[other] - scores[one]);
    document.querySelector("#takes tbody").append(...order.map((at) => rows[at]));
    document.getElementById("shown").textContent = rows.filter((row) => !row.hidden).length;
  }
  wanted.addEventListener("input", filter);
  wanted.form.addEventListener("submit", (event) => event.preventDefault());
  wanted.value = decodeURIComponent(location.hash.slice(1));
  filter();
}

// --- The search: a result leads to the section that has the words, and shows them ---

/** Give a section's own text, without the sections in it. */
function ownText(section) {
  const copy = section.cloneNode(true);
  copy.querySelectorAll("section, script, style, .headerlink").forEach((part) => part.remove());
  return copy.textContent.replace(/\s+/g, " ").trim();
}

/** Find the section that has most of the words, in its heading rather than in its text. */
function bestSection(page, words) {
  let best = null;
  for (const section of page.querySelectorAll('[role="main"] section[id]')) {
    const heading = section.querySelector("h1, h2, h3, h4, h5, h6").textContent.replace(/[#¶]$/, "");
    const text = ownText(section);
    let score = 0, start = -1;
    for (const word of words) {
      score += fit(word, heading.toLowerCase(), text.toLowerCase());
      if (start < 0) start = text.toLowerCase().indexOf(word);
    }
    if (!best || score > best.score) best = { id: section.id, heading, text, score, start };
  }
  return best;
}

/** Take the place of Sphinx's summary, which shows a page's first occurrence of a part of a word. */
function summary(source, terms, anchor) {
  const page = new DOMParser().parseFromString(source, "text/html");
  const typed = new URLSearchParams(location.search).get("q").toLowerCase();
  const words = splitQuery(typed).filter((word) => !stopwords.has(word));
  const place = bestSection(page, words.length ? words : [...terms]);
  if (!place || !place.score) return null;
  const first = Math.max(0, place.start - 100);
  const text = element("p", (first ? "… " : "") + place.text.slice(first, first + 240).trim() + " …");
  text.className = "context";
  // Sphinx puts the text behind its link, which leads to the top of the page.
  if (!anchor) queueMicrotask(() => {
    const link = text.parentElement.querySelector("a");
    if (!link.textContent.startsWith(place.heading)) link.append(` > ${place.heading}`);
    link.href += `#${place.id}`;
  });
  return text;
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
  if (document.getElementById("search-results")) Search.makeSearchSummary = summary;
});

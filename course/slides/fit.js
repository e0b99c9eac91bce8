// Slides that fit: a slide is cut where it would leave the screen. A part that is too high by itself
// gets smaller, and scrolls if it would become too small to read.

const WIDTH = 1280;
const HEIGHT = 720;
const PADDING = 32; // of a section, above and below
const SMALLEST = 0.7; // of the size that is set

/** Put an element into copies of all that is around it, from `outermost` on. */
function wrapLike(element, outermost) {
  let wrapped = element;
  for (let around = element.parentElement; ; around = around.parentElement) {
    const copy = around.cloneNode(false);
    copy.removeAttribute("id");
    copy.append(wrapped);
    wrapped = copy;
    if (around === outermost) return wrapped;
  }
}

/** Give the parts of a cell that may stand on slides of their own: code, outputs, paragraphs. */
function parts(cell) {
  const text = cell.querySelector(".jp-MarkdownOutput");
  let pieces = [];
  if (text) {
    pieces = [...text.children];
  } else {
    const code = cell.querySelector(".jp-InputArea");
    if (code) pieces.push(code);
    pieces.push(...cell.querySelectorAll(".jp-OutputArea-child"));
  }
  if (pieces.length < 2) return [cell];
  return pieces.map((piece) => wrapLike(piece, cell));
}

function height(element) {
  const style = getComputedStyle(element);
  return element.offsetHeight + parseFloat(style.marginTop) + parseFloat(style.marginBottom);
}

/** Make a part smaller, or let it scroll, until it is no higher than a slide. */
function shrink(element) {
  const room = HEIGHT - PADDING;
  const scale = Math.max(SMALLEST, room / height(element));
  if (scale < 1) element.style.zoom = scale;
  if (height(element) * scale > room) {
    element.classList.add("scrolled");
    element.style.height = `${Math.floor(room / scale)}px`;
    element.tabIndex = 0; // the keyboard scrolls it
  }
}

function isHeading(element) {
  const last = element.querySelector(".jp-MarkdownOutput")?.lastElementChild;
  return last ? /^H[1-6]$/.test(last.tagName) : false;
}

/** Give the parts of a slide, in lists that each fit one. */
function pages(section) {
  const result = [[]];
  let used = 0;
  for (const part of section.children) {
    if (used + height(part) > HEIGHT - PADDING && result.at(-1).length > 0) {
      const next = [];
      // A heading goes with what follows it.
      if (result.at(-1).length > 1 && isHeading(result.at(-1).at(-1))) next.push(result.at(-1).pop());
      result.push(next);
      used = next.reduce((sum, heading) => sum + height(heading), 0);
    }
    result.at(-1).push(part);
    used += height(part);
  }
  return result;
}

/** Show the code of a fragment with the question above it; the outputs wait for a key. */
function askFirst(section) {
  for (const fragment of section.querySelectorAll(":scope > .fragment")) {
    for (const outputs of fragment.querySelectorAll(".jp-Cell-outputWrapper")) {
      outputs.classList.add("fragment");
    }
    fragment.replaceWith(...fragment.children);
  }
}

/** Let a slide that begins with outputs show them at once: the code was on the slide before. */
function showOutputs(part) {
  if (part.querySelector(".jp-InputArea")) return;
  for (const outputs of part.querySelectorAll(".fragment")) outputs.classList.remove("fragment");
}

function fit(section) {
  askFirst(section);
  if (section.offsetHeight > HEIGHT) {
    for (const cell of [...section.children]) {
      if (cell.matches(".jp-Cell") && height(cell) > HEIGHT - PADDING) {
        const pieces = parts(cell);
        if (pieces.length > 1) cell.replaceWith(...pieces);
      }
    }
    for (const part of section.children) shrink(part);
  }
  let last = section;
  for (const page of pages(section).slice(1)) {
    const slide = document.createElement("section");
    showOutputs(page[0]);
    slide.append(...page);
    last.after(slide);
    last = slide;
  }
}

window.addEventListener("load", () => {
  // Badges are not fetched: their words stand alone, without the sign of a broken picture.
  for (const badge of document.querySelectorAll('img[src^="http"]')) badge.replaceWith(badge.alt);
  document.body.classList.add("measured");
  for (const section of document.querySelectorAll(".slides > section > section")) fit(section);
  document.body.classList.remove("measured");
  Reveal.initialize({
    width: WIDTH,
    height: HEIGHT,
    margin: 0,
    center: false,
    transition: "none",
    hash: true,
    pdfSeparateFragments: false,
    slideNumber: "c/t",
    plugins: [RevealNotes],
  });
});

// What is short is drawn larger, as far as no word must break for it; what is too long by a few
// lines (other fonts), smaller.
function fit(slide) {
  const {width, height} = Reveal.getConfig();
  for (let percent = 125; percent > 50; percent -= 5) {
    const zoom = percent / 100;
    slide.style.zoom = zoom;
    slide.style.width = width / zoom + "px";
    slide.classList.toggle("whole-words", zoom > 1);
    const fits = zoom <= 1 || slide.scrollWidth * zoom < width + 2;
    if (fits && slide.scrollHeight * zoom <= height) break;
  }
}

// The speaker's window, written from here: a file may not open another one to ask it.
let speaker = null, began = 0;
const shown = (slide) => (slide ? slide.innerText.trim().split("\n")[0].slice(0, 80) : "the end");

function tell() {
  const slides = Reveal.getSlides(), at = slides.indexOf(Reveal.getCurrentSlide());
  const title = slides[at].parentElement.querySelector("h1, h2");
  document.querySelector(".section-name").textContent =
    title && !slides[at].contains(title) ? title.textContent : "";
  if (!speaker || speaker.closed) return;
  const own = slides.slice(0, at + 1).reverse().find((slide) => slide.querySelector("aside.notes"));
  const write = (name, text) => { speaker.document.getElementById(name).textContent = text; };
  write("now", `${at + 1} of ${slides.length}: ${shown(slides[at])}`);
  write("next", Reveal.availableFragments().next ? "more on this slide" : shown(slides[at + 1]));
  write("time", `${Math.floor((Date.now() - began) / 60000)} min`);
  speaker.document.getElementById("notes").innerHTML =
    own ? own.querySelector("aside.notes").innerHTML : "";
}

function open_notes() {
  speaker = window.open("", "speaker", "width=720,height=540");
  if (!speaker) return;
  began = began || Date.now();
  speaker.document.title = "Notes: " + document.title;
  speaker.document.body.style.cssText = "font: 20px/1.45 system-ui, sans-serif; margin: 1.2em";
  speaker.document.body.innerHTML =
    "<p><b id=now></b> · <span id=time></span></p><div id=notes></div><p>Next: <span id=next></span></p>";
  speaker.document.onkeydown = (event) => Reveal.triggerKey(event.keyCode);
  tell();
}

Reveal.on("ready", () => { Reveal.getSlides().forEach(fit); tell(); });
for (const event of ["slidechanged", "fragmentshown", "fragmenthidden"]) Reveal.on(event, tell);
setInterval(tell, 20000);
Reveal.initialize({
  width: 1280, height: 720, margin: 0.04, center: false, hash: true, slideNumber: "c/t",
  transition: "none", navigationMode: "linear", viewDistance: 1000, pdfSeparateFragments: false,
  showNotes: location.search.includes("notes") ? "separate-page" : false
});
Reveal.addKeyBinding({keyCode: 83, key: "S", description: "Open the speaker's notes"}, open_notes);

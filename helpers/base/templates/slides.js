// Another system has other fonts: what is too long by a few lines is drawn smaller.
function fit() {
  const slide = Reveal.getCurrentSlide(), {width, height} = Reveal.getConfig();
  for (let zoom = 1; zoom > 0.5; zoom -= 0.05) {
    slide.style.zoom = zoom;
    slide.style.width = width / zoom + "px";
    if (slide.scrollHeight * zoom <= height) break;
  }
  const title = slide.parentElement.querySelector("h1, h2");
  document.querySelector(".section-name").textContent =
    title && !slide.contains(title) ? title.textContent : "";
}
Reveal.on("ready", fit);
Reveal.on("slidechanged", fit);
Reveal.initialize({
  width: 1280, height: 720, margin: 0.04, center: false, hash: true, slideNumber: "h.v",
  transition: "none", navigationMode: "linear"
});

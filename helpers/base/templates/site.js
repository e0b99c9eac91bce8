// What scrolls in itself can be reached with the keyboard.
addEventListener("load", () => {
  for (const box of document.querySelectorAll("pre, .table-wrapper, .output")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
});

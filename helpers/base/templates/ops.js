const field = document.getElementById("search"), only = document.getElementById("only");
const rows = Array.from(document.querySelectorAll("tbody tr:not(.subject)"));
const texts = rows.map(row => row.textContent.toLowerCase());
const count = document.getElementById("count");
function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  rows.forEach((row, i) => {
    const fits = words.every(word => texts[i].includes(word)) &&
      (only.value === "" || row.dataset.state === only.value);
    row.hidden = !fits;
    shown += fits;
  });
  document.querySelectorAll("tbody").forEach(body => {
    body.hidden = !body.querySelector("tr:not(.subject):not([hidden])");
  });
  count.textContent = shown + " of " + rows.length + " operations";
}
field.addEventListener("input", show);
only.addEventListener("change", show);
document.getElementById("controls").hidden = false;
show();

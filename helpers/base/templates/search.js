// Shows only the rows that hold all words of the field, or whose message stands in what was pasted.
const form = document.querySelector(".search");
const field = document.querySelector("#search");
const plain = (text) => text.toLowerCase().replace(/\s+/g, " ").trim();
const rows = [...document.querySelectorAll("tbody tr")].map((row) => ({
  row,
  text: plain(row.textContent),
  messages: [...row.querySelectorAll("code")].map((code) => plain(code.textContent).split("…")),
}));

function matches({ text, messages }, query) {
  const all = query.split(" ").every((word) => text.includes(word));
  return all || messages.some((parts) =>
    parts.join("").length > 11 && parts.every((part) => query.includes(part)));
}

function search() {
  const query = plain(field.value);
  const shown = rows.filter((one) => !(one.row.hidden = !matches(one, query))).length;
  for (const table of document.querySelectorAll("table")) {
    table.hidden = !table.querySelector("tbody tr:not([hidden])");
    if (table.previousElementSibling?.tagName === "H2") {
      table.previousElementSibling.hidden = table.hidden;
    }
  }
  document.querySelector("#found").textContent = query ? `${shown} of ${rows.length} symptoms` : "";
}

form.hidden = false;
form.addEventListener("submit", (event) => event.preventDefault());
field.addEventListener("input", search);
if (field.value) search(); // the browser kept it

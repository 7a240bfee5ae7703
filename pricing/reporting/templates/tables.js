"use strict";
// Tables are sorted by a click on a header and filtered by a text; without this script they stand as they are.
for (const table of document.querySelectorAll("table.data")) {
  const body = table.tBodies[0];
  const rows = [...body.rows].filter((row) => !row.classList.contains("sum"));
  const last = body.querySelector("tr.sum");
  if (rows.length < 2) continue;

  const key = (row, column) => {
    const { dataset, textContent } = row.cells[column];
    return dataset.value === undefined ? textContent : Number(dataset.value);
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return 1;
    if (typeof b === "number") return -1;
    return a.localeCompare(b, undefined, { numeric: true });
  };
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const isWord = header.classList.contains("word");
      const now = header.getAttribute("aria-sort");
      const rises = now ? now === "descending" : isWord;
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", rises ? "ascending" : "descending");
      const sign = rises ? 1 : -1;
      const sorted = rows.slice().sort((a, b) => sign * compare(key(a, column), key(b, column)));
      body.append(...sorted, ...(last ? [last] : []));
    });
  });

  if (rows.length < 16) continue;
  const field = document.createElement("input");
  const said = document.createElement("output");
  field.type = "search";
  field.placeholder = "Filter";
  field.setAttribute("aria-label", "Filter the rows by words");
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    if (last) last.hidden = words.length > 0;
    said.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  });
  const bar = document.createElement("p");
  bar.className = "filter";
  bar.append(field, said);
  table.parentElement.before(bar);
}
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});

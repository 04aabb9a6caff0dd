"use strict";
// Of "1.2 ± 0.3" and of "1.2–1.5" it is 1.2; "–" and dates have none.
function leadingNumber(text) {
  const plain = text.trim().replace(/\u2212/g, "-").replace(/(\d),(?=\d{3})/g, "$1");
  const found = plain.match(/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?(?=$|[\s%°–/])/i);
  return found ? Number(found[0]) : NaN;
}
const inWords = new Intl.Collator(undefined, {numeric: true});
// Cells without a number come after those with one, whichever way these go.
function compareCells(one, other, sign, named) {
  const [x, y] = named ? [NaN, NaN] : [leadingNumber(one), leadingNumber(other)];
  if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
  return sign * (isNaN(x) ? inWords.compare(one, other) : x - y);
}
function makeSortable(table) {
  const body = table.tBodies[0], asWritten = [...body.rows];
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const next = {none: "ascending", ascending: "descending", descending: "none"};
  headings.forEach((heading, place) => {
    const sort = () => {
      const way = next[heading.getAttribute("aria-sort") || "none"];
      headings.forEach(each => each.removeAttribute("aria-sort"));
      if (way !== "none") heading.setAttribute("aria-sort", way);
      const sign = {none: 0, ascending: 1, descending: -1}[way];
      const text = row => row.cells[place].textContent;
      const rows = [...asWritten];
      if (sign) rows.sort((a, b) => compareCells(text(a), text(b), sign, place === 0));
      body.append(...rows);
    };
    heading.dataset.sorts = "";
    heading.tabIndex = 0;
    heading.title = "sort";
    heading.addEventListener("click", sort);
    heading.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
  });
}
if (typeof document !== "undefined") document.querySelectorAll("table").forEach(makeSortable);

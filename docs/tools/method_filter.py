"""Filter of the table of methods on the site: a field whose words hide the other rows.

Without JavaScript there is no field, and the table is complete. Narrow screens show each row as a
block, by `docs/pages/site.css`.
"""

from mkdocs.structure.pages import Page

FIELD = """<form class="method-filter" role="search" hidden>
<label>Filter <input type="search" placeholder="name, author, year, replay …"></label>
<output></output>
</form>
"""
SCRIPT = """<script>
(() => {
  const form = document.querySelector(".method-filter");
  const field = form.querySelector("input");
  const rows = [...document.querySelectorAll(".methods tbody tr")];
  const texts = rows.map(row => row.textContent.toLowerCase());
  const update = () => {
    const words = field.value.toLowerCase().split(/\\s+/);
    let shown = 0;
    rows.forEach((row, place) => {
      row.hidden = !words.every(word => texts[place].includes(word));
      shown += !row.hidden;
    });
    form.querySelector("output").textContent = `${shown} of ${rows.length}`;
  };
  form.hidden = false;
  form.addEventListener("submit", event => event.preventDefault());
  field.addEventListener("input", update);
  update();
})();
</script>
"""


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Return a page's text; that of the methods has the field above its first table."""
    return with_filter(html) if page.file.src_uri == "methods.md" else html


def with_filter(html: str) -> str:
    """Return the page of methods with the field and its script around the first table."""
    before, table, rest = html.partition("<table>")
    rows, end, after = rest.partition("</table>")
    return f'{before}{FIELD}<div class="methods">{table}{rows}{end}</div>\n{SCRIPT}{after}'

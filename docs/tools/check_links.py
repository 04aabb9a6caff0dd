"""Check that every link of the built site leads to a page, a picture or an anchor.

`make docs` runs it:

python -m docs.tools.check_links build/site
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class LinkedPage(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links and the anchors of an element."""
        attributes = {name: value for name, value in attrs if value}
        self.anchors |= {attributes[name] for name in ("id", "name") if name in attributes}
        self.links += [attributes[name] for name in ("href", "src") if name in attributes]


def broken_links(site: Path) -> tuple[int, list[str]]:
    """Return the number of links within the site, and the broken ones, each with its page."""
    pages = {path.resolve(): LinkedPage(path) for path in sorted(site.rglob("*.html"))}
    count, broken = 0, []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # Its links begin at a server's root.
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            known = pages[target].anchors if target in pages else set()
            if not target.exists() or (anchor and target in pages and anchor not in known):
                broken.append(f"{path.relative_to(site.resolve())}: {link}")
    return count, broken


if __name__ == "__main__":
    total, wrong = broken_links(Path(sys.argv[1]))
    print(f"{total:,} links within the site, {len(wrong)} broken")
    sys.exit("\n".join(wrong) or None)

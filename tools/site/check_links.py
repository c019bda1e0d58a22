"""Links inside of a built site: every file and anchor exists, and nothing is loaded from elsewhere."""

import html.parser
import pathlib
import urllib.parse

LOADS = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids.update(found[key] for key in ("id", "name") if found.get(key))
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in LOADS and found.get(LOADS[tag]):
            self.loads.append(found[LOADS[tag]])


def broken_links(folder):
    """A folder with HTML -> what leads nowhere, "page: link: why" """
    pages = {path: Page(path) for path in sorted(pathlib.Path(folder).rglob("*.html"))}
    wrong = []
    for path, page in pages.items():
        for link in page.links + page.loads:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    wrong.append(f"{path}: {link}: is loaded from elsewhere")
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                wrong.append(f"{path}: {link}: no such file")
            elif parts.fragment and target in pages and (
                    urllib.parse.unquote(parts.fragment) not in pages[target].ids):
                wrong.append(f"{path}: {link}: no such heading")
    return wrong

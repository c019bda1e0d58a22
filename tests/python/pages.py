"""What tests ask of HTML: is it well-formed, does it need anything from outside, what does it say."""

from html.parser import HTMLParser

VOID = {"br", "meta"}


class Page(HTMLParser):
    """Reads a fragment; raises where a tag is not closed or closes another."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.attributes = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        self.texts.append(data)


def self_contained(text):
    """The page, after a look at everything that could fetch or run something."""
    page = Page(text)
    assert "http://" not in text and "https://" not in text
    assert not {"script", "link", "img", "iframe", "object", "image", "use"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href") or name[:2] == "on"]
    assert "url(" not in text and "@import" not in text
    return page

"""Reads a page of HTML in the tests of reports."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """Checks that tags close and gathers text and links."""

    VOID = {"meta", "img", "br", "link"}

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open, self.links, self.text = [], [], ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self.links += [v for k, v in attributes if k in ("src", "href", "xlink:href")]

    def handle_startendtag(self, tag, attributes):
        self.links += [v for k, v in attributes if k in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

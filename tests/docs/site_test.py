"""The documentation site in a browser, opened from a file: it is searched once, and nothing leaves the
machine. site_test.py SITE"""

import pathlib
import re
import shutil
import sys
import unittest

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None

SITE = pathlib.Path(sys.argv[1]).resolve()
CHROMIUM = shutil.which("chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]


class SiteTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.playwright = sync_playwright().start()
        cls.browser = cls.playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.playwright.stop()

    def setUp(self):
        self.page = self.browser.new_page(viewport={"width": 1360, "height": 900})
        self.requests, self.errors = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def tearDown(self):
        self.page.close()

    def open(self, name):
        self.page.goto((SITE / name).as_uri())

    def check_quiet(self):
        self.assertGreater(len(self.requests), 3)
        elsewhere = [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]
        self.assertEqual(elsewhere, [])
        self.assertEqual(self.errors, [])

    def search(self, words):
        """-> the titles that are found"""
        self.page.locator("input.md-search__input").click()
        self.page.keyboard.type(words)
        self.page.locator("article.md-search-result__article").first.wait_for(timeout=20000)
        return self.page.locator("article.md-search-result__article h1, article h2").all_inner_texts()

    def test_a_search_finds_and_leads_there(self):
        self.open("index.html")
        titles = self.search("pooled_weights")
        self.assertTrue(any("pooled_weights" in title for title in titles), titles)
        self.page.locator("a.md-search-result__link").first.click()
        self.page.wait_for_url(re.compile(r"/(?:cpp|python)/attention\.html"))
        self.assertIn("pooled_weights", self.page.locator("article").inner_text())
        self.check_quiet()

    def test_every_tab_opens_and_pictures_are_there(self):
        self.open("index.html")
        tabs = [link.get_attribute("href") for link in self.page.locator(".md-tabs__link").all()]
        self.assertGreater(len(tabs), 5)
        for tab in tabs:
            self.open(tab)
            self.assertTrue(self.page.locator("h1").first.inner_text())
        self.open("gallery.html")
        sizes = self.page.evaluate("[...document.querySelectorAll('article img')].map(i => i.naturalWidth)")
        self.assertGreater(len(sizes), 4)
        self.assertNotIn(0, sizes)
        self.check_quiet()

    def test_notebooks_show_their_outputs(self):
        self.open("side_by_side.html")
        self.assertGreater(self.page.locator(".notebook-output svg").count(), 1)
        self.check_quiet()

    def test_notebooks_can_be_read_in_the_dark(self):
        self.page.emulate_media(color_scheme="dark")
        self.open("side_by_side.html")
        colours = self.page.evaluate("""[...document.querySelectorAll(".notebook-output table")].map(
            table => [getComputedStyle(table).backgroundColor, getComputedStyle(table).color])""")
        self.assertGreater(len(colours), 5)
        self.assertEqual({tuple(pair) for pair in colours}, {("rgba(0, 0, 0, 0)", "rgb(34, 34, 34)")})

    def test_a_narrow_screen_needs_no_sideways_scrolling(self):
        self.page.set_viewport_size({"width": 390, "height": 800})
        for name in ("index.html", "cpp/attention.html", "python/attention.html"):
            self.open(name)
            wide = self.page.evaluate("document.documentElement.scrollWidth")
            self.assertLessEqual(wide, 391, name)


if __name__ == "__main__":
    if sync_playwright is None or CHROMIUM is None or not (SITE / "index.html").exists():
        print("not run: needs playwright, chromium and make docs-site")
        sys.exit(77)
    sys.argv = sys.argv[:1]
    unittest.main()

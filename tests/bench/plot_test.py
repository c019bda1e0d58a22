"""The picture of speed: well-formed, everything inside the frame, every line named."""

import pathlib
import sys
import unittest
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import plot  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def report(out_of_memory=()):
    """Times and bytes of three libraries; `out_of_memory` names (library, tokens)."""
    points = []
    for factor, library in enumerate(("cephalo", "PyTorch SDPA", "the book's class"), 1):
        for tokens in (512, 1024, 2048):
            fits = (library, tokens) not in out_of_memory
            points.append({"library": library, "tokens": tokens,
                           "ms": 0.01 * factor * tokens if fits else None,
                           "bytes": 1000 * factor * tokens if fits else None})
    return {"machine": {"model": "A & B <CPU>", "cores": 2, "date": "2000-01-01"},
            "versions": {"cephalo": "0.1.0", "PyTorch": "2.0"}, "of": "layer", "threads": 2,
            "quick": False, "points": points}


class Plot(unittest.TestCase):
    def texts(self, drawn):
        root = ElementTree.fromstring(drawn)
        _, _, width, height = map(float, root.get("viewBox").split())
        for text in root.iter(f"{SVG}text"):
            self.assertTrue(0 < float(text.get("x")) < width, text.text)
            self.assertTrue(0 < float(text.get("y")) < height, text.text)
        return [text.text for text in root.iter(f"{SVG}text")]

    def test_every_line_is_named_in_both_panels(self):
        texts = self.texts(plot.draw(report()))
        for library in plot.COLOURS:
            self.assertEqual(texts.count(library), 2)
        self.assertNotIn("then out of memory", texts)

    def test_a_line_that_stops_says_why(self):
        texts = self.texts(plot.draw(report({("the book's class", 2048)})))
        self.assertEqual(texts.count("then out of memory"), 2)

    def test_names_of_lines_that_end_together_stay_apart(self):
        heights = sorted(plot.spread({"a": 100.0, "b": 101.0, "c": 99.0}).values())
        for above, below in zip(heights, heights[1:]):
            self.assertGreaterEqual(below - above, plot.LABEL_GAP)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()

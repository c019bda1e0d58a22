"""PNG files of ours, read back by Python's zlib."""

import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

SAMPLES = sys.argv[1]


def chunks(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at = 8
    while at < len(png):
        length, = struct.unpack(">I", png[at:at + 4])
        body = png[at + 4:at + 8 + length]
        crc, = struct.unpack(">I", png[at + 8 + length:at + 12 + length])
        assert crc == zlib.crc32(body)
        yield body[:4], body[4:]
        at += 12 + length


def read_png(png):
    """-> width, height, bytes of red, green and blue"""
    parts = list(chunks(png))
    assert [name for name, _ in parts] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, kind, *rest = struct.unpack(">IIBBBBB", parts[0][1])
    assert (depth, kind, *rest) == (8, 2, 0, 0, 0)
    rows = zlib.decompress(parts[1][1])
    assert len(rows) == height * (1 + 3 * width)
    assert all(rows[y * (1 + 3 * width)] == 0 for y in range(height))
    return width, height, b"".join(
        rows[y * (1 + 3 * width) + 1:(y + 1) * (1 + 3 * width)] for y in range(height))


class Png(unittest.TestCase):
    def test_pixels_come_back(self):
        with tempfile.TemporaryDirectory() as name:
            subprocess.run([SAMPLES, name], check=True)
            folder = pathlib.Path(name)
            files = sorted(folder.glob("*.png"))
            self.assertEqual(len(files), 5)
            for path in files:
                png = path.read_bytes()
                self.assertEqual(read_png(png)[2], path.with_suffix(".rgb").read_bytes(), path.name)
            # Pictures of maps are mostly repeats.
            self.assertLess(len((folder / "plain.png").read_bytes()), 8000)
            self.assertLess(len((folder / "repeats.png").read_bytes()), 70000)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()

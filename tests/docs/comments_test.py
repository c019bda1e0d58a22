"""Every public name of C++ has a comment, which the documentation site shows. Needs Doxygen."""

import pathlib
import shutil
import sys
import tempfile
import unittest

from documents import ROOT

sys.path.insert(0, str(ROOT / "tools/site"))
from cpp_headers import read_headers, undocumented  # noqa: E402


class Comments(unittest.TestCase):
    def test_every_public_name_has_one(self):
        with tempfile.TemporaryDirectory() as folder:
            found = read_headers(ROOT, pathlib.Path(folder))
        names = [name.name for groups in found.values() for group in groups for name in group.names]
        self.assertGreater(len(names), 400)
        missing = undocumented(found)
        self.assertFalse(missing, "\n" + "\n".join(missing))


if __name__ == "__main__":
    if shutil.which("doxygen") is None:
        print("not run: make docs-site installs Doxygen")
        sys.exit(77)
    unittest.main()

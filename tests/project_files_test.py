"""Files that people look for: they agree on the version, and name places that exist."""

import json
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def read(name):
    return (ROOT / name).read_text()


class ProjectFiles(unittest.TestCase):
    def test_one_version(self):
        version = re.search(r"project\(cephalo VERSION ([0-9.]+)", read("CMakeLists.txt"))[1]
        self.assertEqual(re.search(r"(?m)^version: (.+)$", read("CITATION.cff"))[1], version)
        self.assertEqual(json.loads(read("packaging/vcpkg/vcpkg.json"))["version"], version)

    def test_one_license(self):
        self.assertTrue(read("LICENSE").startswith("MIT License"))
        self.assertIn("\nlicense: MIT\n", read("CITATION.cff"))
        self.assertEqual(json.loads(read("packaging/vcpkg/vcpkg.json"))["license"], "MIT")
        self.assertIn('license = "MIT"', read("packaging/conan/conanfile.py"))

    def test_every_file_of_the_package_is_installed(self):
        listed = re.search(r"set\(python_files ([^)]*)\)", read("python/CMakeLists.txt"))[1].split()
        package = ROOT / "python/cephalo"
        files = [str(path.relative_to(package)) for path in package.rglob("*.py")] + ["py.typed"]
        self.assertEqual(sorted(listed), sorted(files))

    def test_commands_of_make_exist(self):
        targets = set(re.findall(r"(?m)^([a-z-]+):.*## ", read("Makefile")))
        for name in ("CONTRIBUTING.md", "SECURITY.md", "docs/trust.md", ".github/workflows/test.yml"):
            for words in re.findall(r"\bmake ((?:[a-z][a-z-]*[a-z] ?)+)(?=[`\n])", read(name)):
                self.assertLessEqual(set(words.split()), targets, f"{name}: make {words}")

    def test_links_lead_somewhere(self):
        for name in ("CONTRIBUTING.md", "SECURITY.md", "docs/trust.md"):
            for target in re.findall(r"\]\(([^)#]+)", read(name)):
                self.assertTrue(((ROOT / name).parent / target).exists(), f"{name}: {target}")

    def test_nothing_that_is_compared_byte_by_byte_is_converted(self):
        if not (ROOT / ".git").exists():
            self.skipTest("not a checkout")
        for name in ("tests/golden/files/tokenizer/merges.txt", "tests/fuzz/corpus/config/gpt2",
                     "models/cephalo-small/vocab.json"):
            out = subprocess.run(["git", "check-attr", "text", name], cwd=ROOT, capture_output=True,
                                 text=True, check=True).stdout
            self.assertIn("text: unset", out, name)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()

"""Files that people look for: they agree on the version, and name places that exist."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
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


class Packages(unittest.TestCase):
    """tools/deps, with an apt-get that only says what it is asked for."""

    def deps(self, *groups, system="ID=debian", having=()):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        folder = pathlib.Path(folder.name)
        for tool in ("bash", "env", "grep"):
            (folder / tool).symlink_to(shutil.which(tool))
        for tool, does in [("apt-get", "echo $* >&3"), ("id", "echo 0"), ("dpkg-query", "exit 1"),
                           *((each, "exit 0") for each in having)]:
            (folder / tool).write_text(f"#!{folder}/bash\n{does}\n")
            (folder / tool).chmod(0o755)
        (folder / "os-release").write_text(system + "\n")
        asked = folder / "asked"
        result = subprocess.run(["bash", "-c", f'exec {ROOT}/tools/deps "$@" 3>{asked}', "deps", *groups],
                                env={"PATH": str(folder), "OS_RELEASE": str(folder / "os-release")},
                                capture_output=True, text=True, executable=shutil.which("bash"))
        return result, asked.read_text().split()

    def test_firefox_is_left_out_where_it_is_a_snap(self):
        _, asked = self.deps("web")
        self.assertLessEqual({"npm", "chromium", "firefox-esr", "fonts-dejavu-core"}, set(asked))
        result, asked = self.deps("web", system='ID=ubuntu\nID_LIKE=debian', having=["npm", "chromium"])
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("fonts-dejavu-core", asked)
        self.assertNotIn("firefox-esr", asked)

    def test_where_chromium_is_a_snap_it_has_to_be_there(self):
        result, asked = self.deps("web", system="ID=ubuntu")
        self.assertEqual((result.returncode, asked), (1, []))
        self.assertIn("CHROMIUM=/usr/bin/google-chrome", result.stderr)

    def test_a_group_that_is_not_one_installs_nothing(self):
        result, asked = self.deps("build", "nonsense")
        self.assertEqual((result.returncode, asked), (2, []))
        self.assertIn("deps: unknown group nonsense", result.stderr)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()

"""Installs cephalo into an empty prefix and builds a program against it, static and shared, by
find_package and by pkg-config."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPECTED = "0.1.0 [1, 4, 8]\n"


def run(*command, **more):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if result.returncode != 0:
        raise AssertionError(f"{command}\n{result.stdout}\n{result.stderr}")
    return result.stdout


class Install(unittest.TestCase):
    def check(self, shared):
        with tempfile.TemporaryDirectory() as folder:
            base = pathlib.Path(folder)
            prefix = base / "prefix"
            run("cmake", "-S", ROOT, "-B", base / "build", "-G", "Ninja",
                "-DCMAKE_BUILD_TYPE=Release", "-DCEPHALO_BUILD_TESTS=OFF",
                "-DCEPHALO_BUILD_CLI=OFF", f"-DBUILD_SHARED_LIBS={shared}",
                "-DCMAKE_INSTALL_LIBDIR=lib", f"-DCMAKE_INSTALL_PREFIX={prefix}")
            run("cmake", "--build", base / "build", "--target", "install")

            run("cmake", "-S", ROOT / "tests/consumer", "-B", base / "found", "-G", "Ninja",
                f"-DCMAKE_PREFIX_PATH={prefix}")
            run("cmake", "--build", base / "found")
            self.assertEqual(run(base / "found/consumer"), EXPECTED)

            environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"),
                           "LD_LIBRARY_PATH": str(prefix / "lib")}
            flags = run("pkg-config", "--cflags", "--libs", "cephalo", env=environment).split()
            run("c++", "-std=c++20", ROOT / "tests/consumer/consumer.cc", "-o", base / "program",
                *flags)
            self.assertEqual(run(base / "program", env=environment), EXPECTED)
            self.assertFalse((prefix / "include/cephalo/core/fail.h").exists())

    def test_static(self):
        self.check("OFF")

    def test_shared(self):
        self.check("ON")


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()

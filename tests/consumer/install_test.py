"""Installs cephalo into an empty prefix and builds a program against it: static from the build at
hand, shared from one beside it, found by find_package and by pkg-config."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1])
EXPECTED = "0.1.0 [1, 4, 8]\n"


def run(*command, **more):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if result.returncode != 0:
        raise AssertionError(f"{command}\n{result.stdout}\n{result.stderr}")
    return result.stdout


class Install(unittest.TestCase):
    def check(self, build):
        with tempfile.TemporaryDirectory() as folder:
            base = pathlib.Path(folder)
            prefix = base / "prefix"
            run("cmake", "--install", build, "--prefix", prefix)

            run("cmake", "-S", ROOT / "tests/consumer", "-B", base / "found", "-G", "Ninja",
                f"-DCMAKE_PREFIX_PATH={prefix}")
            run("cmake", "--build", base / "found")
            self.assertEqual(run(base / "found/consumer"), EXPECTED)

            libraries = next(prefix.rglob("pkgconfig")).parent  # lib, lib64 or lib/<machine>
            environment = {**os.environ, "PKG_CONFIG_PATH": str(libraries / "pkgconfig"),
                           "LD_LIBRARY_PATH": str(libraries)}
            flags = run("pkg-config", "--cflags", "--libs", "cephalo", env=environment).split()
            run("c++", "-std=c++20", ROOT / "tests/consumer/consumer.cc", "-o", base / "program",
                *flags)
            self.assertEqual(run(base / "program", env=environment), EXPECTED)
            # A program in C, by a C compiler alone.
            static = ["--static"] if next(libraries.glob("libcephalo.a"), None) else []
            flags = run("pkg-config", *static, "--cflags", "--libs", "cephalo",
                        env=environment).split()
            run("cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                ROOT / "tests/consumer/consumer.c", "-o", base / "c_program", *flags)
            self.assertEqual(run(base / "c_program", env=environment), "0.1.0 1.5\n")
            headers = prefix / "include/cephalo"
            self.assertTrue((headers / "attention.h").exists())
            for private in ("core/fail.h", "kernels", "linear", "attention/engine"):
                self.assertFalse((headers / private).exists(), private)

    def test_static(self):
        self.check(BUILD)

    def test_shared(self):
        build = BUILD / "shared"  # kept, so that a second run is quick
        run("cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DCEPHALO_BUILD_TESTS=OFF",
            "-DCEPHALO_BUILD_CLI=OFF", "-DBUILD_SHARED_LIBS=ON")
        run("cmake", "--build", build)
        self.check(build)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()

"""cephalo as a Conan 2 package, from the tree that this file is in: conan create packaging/conan

What it is built from comes from the system's packages, and is compiled in: a program that links cephalo
needs none of it."""

import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.system.package_manager import Apt, Dnf

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Cephalo(ConanFile):
    name = "cephalo"
    description = "Multi-head attention you can use, train and look inside"
    license = "MIT"
    topics = ("attention", "transformer", "interpretability")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "builtin_model": [True, False],
               "program": [True, False]}
    default_options = {"shared": False, "fPIC": True, "builtin_model": True, "program": False}
    implements = ["auto_shared_fpic"]

    def set_version(self):
        lists = load(self, os.path.join(ROOT, "CMakeLists.txt"))
        self.version = re.search(r"project\(cephalo VERSION ([0-9.]+)", lists)[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "cephalo/*", "cli/*", "models/*"):
            copy(self, pattern, src=ROOT, dst=self.export_sources_folder)

    def system_requirements(self):
        Apt(self).install(["libfmt-dev", "libcli11-dev", "nlohmann-json3-dev", "libhwy-dev",
                           "libxxhash-dev", "libstb-dev", "libeigen3-dev"], update=True, check=True)
        Dnf(self).install(["fmt-devel", "cli11-devel", "json-devel", "highway-devel", "xxhash-devel",
                           "stb-devel", "eigen3-devel"], check=True)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.variables["CEPHALO_BUILD_TESTS"] = False
        toolchain.variables["CEPHALO_BUILD_CLI"] = bool(self.options.program)
        toolchain.variables["CEPHALO_BUILTIN_MODEL"] = bool(self.options.builtin_model)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        # CMake finds the files that cephalo installs: they ask for C++20, which Conan's own would not.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "cephalo")]
        self.cpp_info.set_property("pkg_config_name", "cephalo")
        self.cpp_info.libs = ["cephalo"]
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread", "m"]

"""The installed library serves a program outside the tree, by pkg-config and by find_package.

usage: test_install.py BUILD CC
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tools"))
import closing

CC = sys.argv.pop()
BUILD = sys.argv.pop()
CONSUMER = os.path.join(HERE, "consumer.c")
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(alea {version} REQUIRED)
add_executable(consumer {source})
target_link_libraries(consumer {target})
"""


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.prefix = os.path.join(cls.scratch.name, "prefix")
        cls.run_quietly("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.libdir = cls.folder_of("libalea.a")
        cls.environment = dict(os.environ, PKG_CONFIG_PATH=os.path.join(cls.libdir, "pkgconfig"),
                               LD_LIBRARY_PATH=cls.libdir)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @staticmethod
    def run_quietly(*command, **options):
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    @classmethod
    def folder_of(cls, name):
        found = [folder for folder, _, files in os.walk(cls.prefix) if name in files]
        if len(found) != 1:
            raise AssertionError(f"{name} is installed {len(found)} times")
        return found[0]

    def pkg_config(self, *options):
        return self.run_quietly("pkg-config", *options, "alea", env=self.environment).split()

    def compile_and_run(self, *libraries):
        program = os.path.join(self.scratch.name, "consumer")
        flags = self.pkg_config("--cflags")
        self.run_quietly(CC, "-std=c17", "-Wall", "-Wextra", "-Werror", *flags, CONSUMER,
                         "-o", program, *libraries)
        self.run_quietly(program, env=self.environment)
        return program

    def find_package(self, target):
        source = os.path.join(self.scratch.name, target.replace(":", "_"))
        os.makedirs(source)
        version = self.pkg_config("--modversion")[0]
        with open(os.path.join(source, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(PROJECT.format(version=version, source=CONSUMER, target=target))
        build = os.path.join(source, "build")
        self.run_quietly("cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_C_COMPILER={CC}",
                         f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.run_quietly("cmake", "--build", build)
        self.run_quietly(os.path.join(build, "consumer"))

    def symbols(self, *command):
        lines = self.run_quietly("nm", *command).splitlines()
        return {fields[2] for fields in map(str.split, lines) if len(fields) == 3}

    def test_pkg_config_links_the_shared_library(self):
        program = self.compile_and_run(*self.pkg_config("--libs"))
        self.assertRegex(self.run_quietly("ldd", program, env=self.environment), r"libalea\.so\.\d")

    def test_pkg_config_links_the_static_library(self):
        libraries = [os.path.join(self.libdir, "libalea.a") if word == "-lalea" else word
                     for word in self.pkg_config("--libs", "--static")]
        program = self.compile_and_run(*libraries)
        self.assertNotIn("libalea", self.run_quietly("ldd", program))

    def test_find_package_offers_the_shared_library(self):
        self.find_package("alea::alea")

    def test_find_package_offers_the_static_library(self):
        self.find_package("alea::alea_static")

    def test_only_names_of_the_project_are_exported(self):
        exported = self.symbols("-D", "--defined-only", os.path.join(self.libdir, "libalea.so"))
        self.assertIn("alea_version", exported)
        self.assertEqual([], sorted(n for n in exported if not re.match("alea_(?!_)", n)))

    def test_the_archive_pollutes_no_other_namespace(self):
        names = self.symbols("-g", "--defined-only", os.path.join(self.libdir, "libalea.a"))
        self.assertIn("alea_version", names)
        self.assertEqual([], sorted(name for name in names if not name.startswith("alea_")))

    def test_the_shared_library_needs_libc_and_libm_alone(self):
        dynamic = self.run_quietly("readelf", "-d", os.path.join(self.libdir, "libalea.so"))
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        self.assertLessEqual(needed, {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"})
        self.assertRegex(dynamic, r"\(SONAME\).*\[libalea\.so\.\d+\]")

    def test_every_public_header_is_installed(self):
        public = sorted(os.listdir(os.path.join(closing.ROOT, "include", "alea")))
        self.assertEqual(public, sorted(os.listdir(self.folder_of("base.h"))))

    def test_the_manual_and_completion_of_the_program_are_installed(self):
        if not os.path.exists(os.path.join(self.prefix, "bin", "alea")):
            self.skipTest("this build has no program")
        for name in ("man/man1/alea.1", "man/man1/alea-score.1", "zsh/site-functions/_alea",
                     "bash-completion/completions/alea", "fish/vendor_completions.d/alea.fish"):
            with open(os.path.join(self.prefix, "share", name), encoding="utf-8") as file:
                self.assertIn("alea", file.read())

    def test_what_is_installed_names_no_path_of_the_build(self):
        traces = (closing.ROOT.encode(), b".part/source/")  # this tree, where libllama was built
        found = []
        for folder, _, files in os.walk(self.prefix):
            for name in files:
                with open(os.path.join(folder, name), "rb") as file:
                    content = file.read()
                if any(trace in content for trace in traces):
                    found.append(os.path.join(folder, name))
        self.assertEqual(found, [])

    def test_pkg_config_gives_the_version_of_the_header(self):
        with open(os.path.join(self.folder_of("base.h"), "base.h"), encoding="utf-8") as file:
            numbers = re.findall(r"define ALEA_VERSION_\w+ (\d+)", file.read())
        self.assertEqual(".".join(numbers), self.pkg_config("--modversion")[0])


if __name__ == "__main__":
    sys.exit(closing.run())

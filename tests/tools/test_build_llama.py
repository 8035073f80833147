"""tools/build-llama where it builds nothing: which build .deps/llama names, and that make sees it."""
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import closing


def load():
    path = os.path.join(closing.ROOT, "tools", "build-llama")
    loader = importlib.machinery.SourceFileLoader("build_llama", path)
    spec = importlib.util.spec_from_loader("build_llama", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


TOOL = load()


class Pointing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.deps = pathlib.Path(folder.name)
        for name in ("llama-one", "llama-two"):
            (self.deps / name / "lib").mkdir(parents=True)
            for file in ("BUILD", "lib/libllama.a"):
                (self.deps / name / file).write_text(name, encoding="ascii")
                os.utime(self.deps / name / file, (1000, 1000))

    def times(self):
        return {(self.deps / "llama" / file).stat().st_mtime for file in ("BUILD", "lib/libllama.a")}

    def test_the_link_names_the_build(self):
        for name in ("llama-one", "llama-two"):
            TOOL.point(self.deps / "llama", name)
            self.assertEqual(os.readlink(self.deps / "llama"), name)
            self.assertEqual((self.deps / "llama" / "BUILD").read_text(encoding="ascii"), name)

    def test_an_earlier_build_that_returns_is_newer_than_what_was_made_meanwhile(self):
        TOOL.point(self.deps / "llama", "llama-one")
        TOOL.point(self.deps / "llama", "llama-two")
        for name in ("llama-one", "llama-two"):
            os.utime(self.deps / name / "BUILD", (1000, 1000))
            os.utime(self.deps / name / "lib" / "libllama.a", (1000, 1000))
        program = self.deps / "program"
        program.touch()
        TOOL.point(self.deps / "llama", "llama-one")
        self.assertGreaterEqual(min(self.times()), program.stat().st_mtime)

    def test_a_build_that_stays_is_left_alone(self):
        TOOL.point(self.deps / "llama", "llama-one")
        for file in ("BUILD", "lib/libllama.a"):
            os.utime(self.deps / "llama" / file, (1000, 1000))
        TOOL.point(self.deps / "llama", "llama-one")
        self.assertEqual(self.times(), {1000})


if __name__ == "__main__":
    sys.exit(closing.run())

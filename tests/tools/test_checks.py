"""The checks of the tree pass on the tree, and complain of what they are there to find."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import closing


def check(tool, files=None):
    """The status and output of a check, over the project or over a tree of these files."""
    command = [os.path.join(closing.ROOT, "tools", tool)]
    with tempfile.TemporaryDirectory() as root:
        for path, text in (files or {}).items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run(command + ([root] if files else []), capture_output=True, text=True,
                              check=False)
    return done.returncode, done.stdout


class Layers(unittest.TestCase):
    def refuses(self, path, text, complaint):
        status, output = check("check-layers", {path: text})
        self.assertEqual(status, 1, output)
        self.assertIn(complaint, output)

    def test_the_tree_has_no_back_edge(self):
        status, output = check("check-layers")
        self.assertEqual(status, 0, output)

    def test_a_downward_include_passes(self):
        status, output = check("check-layers", {"src/kernel/a.c": '#include "base/size.h"\n'})
        self.assertEqual(status, 0, output)

    def test_a_back_edge_is_found(self):
        self.refuses("src/base/a.c", '#include "kernel/row.h"\n', "base may not include kernel")

    def test_a_back_edge_by_a_public_header_is_found(self):
        self.refuses("src/base/a.c", '#include "alea/core.h"\n', "base may not include core")

    def test_json_knows_only_base(self):
        self.refuses("src/json/a.c", '# include "text/utf8.h"\n', "json may not include text")

    def test_a_public_header_includes_no_private_one(self):
        self.refuses("include/alea/core.h", '#include "core/a.h"\n', "public headers alone")

    def test_llama_stays_in_its_folder(self):
        self.refuses("src/cli/a.c", "#include <llama.h>\n", "only src/core/llama/ may")

    def test_the_template_engine_stays_in_its_folder(self):
        self.refuses("src/api/a.c", '#include "jinja/value.h"\n', "only src/text/ may")

    def test_an_unknown_layer_is_found(self):
        self.refuses("src/misc/a.c", "int x;\n", "belongs to no layer")


class Length(unittest.TestCase):
    def refuses(self, text, complaint):
        status, output = check("check-length", {"src/base/a.c": text})
        self.assertEqual(status, 1, output)
        self.assertIn(complaint, output)

    def test_the_tree_is_within_its_limits(self):
        status, output = check("check-length")
        self.assertEqual(status, 0, output)

    def test_a_function_of_100_lines_passes(self):
        text = "int f(void) {\n" + "    g();\n" * 98 + "}\n"
        self.assertEqual(check("check-length", {"src/base/a.c": text})[0], 0)

    def test_a_function_of_101_lines_is_found(self):
        self.refuses("int f(void) {\n" + "    g();\n" * 99 + "}\n", "a.c:1: 101 lines")

    def test_a_long_table_is_no_function(self):
        text = "static const int table[] = {\n" + "    1,\n" * 200 + "};\n"
        self.assertEqual(check("check-length", {"src/base/a.c": text})[0], 0)

    def test_a_file_of_801_lines_is_found(self):
        self.refuses("int x;\n" * 801, "801 lines")

    def test_a_line_of_101_columns_is_found(self):
        self.refuses("//" + "x" * 99 + "\n", "101 columns")


if __name__ == "__main__":
    sys.exit(closing.run())

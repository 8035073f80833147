"""Manual pages and shell completion: every command and option is in each, and tools accept them."""
import os
import re
import shutil
import subprocess
import sys
import unittest

from rig import Case, PROGRAM, closing, environment

SHELLS = ("bash", "zsh", "fish")


def plain(page):
    """A page without its macros and escapes."""
    text = re.sub(r"\\f[BIR]", "", page).replace("\\-", "-").replace("\\e", "\\").replace("\\&", "")
    return text


class Manual(Case):
    def commands(self):
        return self.good("help", "--commands").split()

    def options(self, command):
        """(letter or None, name, value or None) as --help lists them."""
        found = re.findall(r"^ +(?:-(\w), )?(--[\w-]+)(?: (\S+))?(?:  |\n {26}\w)", self.good(command, "--help"),
                           re.M)
        self.assertIn("--help", [name for _, name, _ in found])
        return found

    def test_every_command_and_option_has_its_place_in_the_pages(self):
        top = plain(self.good("help", "--man"))
        for command in self.commands():
            self.assertIn(f"\n.B alea {command}\n", top)
            self.assertIn(f"alea-{command}(1)", top)
            page = plain(self.good("help", "--man", command))
            self.assertIn(f".SH NAME\nalea-{command} - ", page)
            for letter, name, value in self.options(command):
                head = (f"-{letter}, " if letter else "") + name + (f" {value}" if value else "")
                self.assertIn(f".TP\n{head}\n", page)
        for code in ("130", "5"):
            self.assertIn(f".B {code}\n", top)

    def test_pages_are_made_of_what_formatters_know(self):
        if not shutil.which("groff"):
            self.skipTest("groff is not installed")
        for command in ("", *self.commands()):
            page = self.good("help", "--man", *command.split())
            done = subprocess.run(["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-rLL=78n"],
                                  input=page.encode(), capture_output=True, check=True)
            self.assertEqual(done.stderr, b"")
            self.assertGreater(len(done.stdout), 1000)

    def test_every_option_can_be_completed(self):
        scripts = {shell: self.good("help", "--completion", shell) for shell in SHELLS}
        for command in self.commands():
            fish = [line for line in scripts["fish"].splitlines()
                    if f"__fish_seen_subcommand_from {command}' -l" in line]
            words = re.search(rf"^ +{command}\) options='([^']*)'", scripts["bash"], re.M)[1].split()
            zsh = scripts["zsh"].partition(f"    {command}) _arguments")[2].partition(";;")[0]
            names = [name for _, name, _ in self.options(command)]
            self.assertEqual(words, names)
            self.assertEqual([re.search(r" -l (\S+)", line)[1] for line in fish],
                             [name[2:] for name in names])
            self.assertEqual(re.findall(r"(?:^ +'(?:\*)?|,)(--[\w-]+)(?:\[|}')", zsh, re.M), names)

    def test_bash_completes_words_of_the_table(self):
        script = self.path("alea.bash", self.good("help", "--completion", "bash"))
        for words, expected in ((["sc"], ["score"]), (["score", "--wind"], ["--window"]),
                                (["score", "--color", "n"], ["never"]), (["score", "--top", ""], []),
                                (["help", "ins"], ["inspect"]), (["help", "--m"], ["--man"]),
                                (["help", "--man", "ins"], ["inspect"]), (["hel"], ["help"]),
                                (["help", "--completion", "z"], ["zsh"]),
                                (["bench", "e"], ["engine"]), (["bench", "--caps", "avx5"], ["avx512"]),
                                (["serve", "--unix", self.folder + "/alea.b"], [script])):
            run = (f"source {script}; compopt() {{ :; }}; COMP_WORDS=(alea \"$@\"); "
                   "COMP_CWORD=$#; _alea; printf '%s\\n' \"${COMPREPLY[@]}\"")
            done = subprocess.run(["bash", "-c", run, "bash", *words], capture_output=True, text=True,
                                  check=True)
            self.assertEqual(done.stderr, "")
            self.assertEqual(done.stdout.split(), expected)

    def test_the_shells_read_what_is_made_for_them(self):
        missing = [shell for shell in SHELLS if not shutil.which(shell)]
        for shell in SHELLS:
            if shell not in missing:
                path = self.path(f"alea.{shell}", self.good("help", "--completion", shell))
                subprocess.run([shell, "-n", path], check=True, env=environment(HOME=self.folder))
        if missing:
            self.skipTest("not installed: " + ", ".join(missing))

    def test_another_shell_or_command_is_refused(self):
        self.refused(2, "bash, zsh or fish", "help", "--completion", "tcsh")
        self.refused(2, "bash, zsh or fish", "help", "--completion")
        self.refused(2, "no command 'scroe'", "help", "--man", "scroe")
        self.refused(2, "no command '--nonsense'", "help", "--nonsense")
        with open("/dev/full", "wb") as full:
            self.refused(5, "No space left", "help", "--man", stdout=full)


if __name__ == "__main__":
    sys.exit(closing.run())

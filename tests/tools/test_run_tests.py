"""tools/run-tests must see every way in which a test can go wrong, and count what is right."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import closing

RUN_TESTS = os.path.join(closing.ROOT, "tools", "run-tests")

GROUP = r"""printf '[==========] Running 3 test(s).\n[ RUN      ] test_a\n[       OK ] test_a\n'; """
CMOCKA_PASS = GROUP + r"printf '[==========] 3 test(s) run.\n[  PASSED  ] 3 test(s).\n'"
CMOCKA_MIXED = GROUP + (r"printf '[==========] 3 test(s) run.\n[  PASSED  ] 1 test(s).\n"
                        r"[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] test_needs_avx512\n"
                        r"[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] test_b\n'; exit 1")


def run(script, properties="", command=None, times=1):
    """The status and the lines of tools/run-tests over a tree with that one test."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "test.sh"), "w", encoding="utf-8") as file:
            file.write(script + "\n")
        command = command or f'"sh" "{folder}/test.sh"'
        with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
            file.write(f"add_test(one {command})\n"
                       f"set_tests_properties(one PROPERTIES TIMEOUT 20 {properties})\n")
        done = subprocess.run([RUN_TESTS] + [folder] * times, capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout.strip().splitlines()


class RunTests(unittest.TestCase):
    def check(self, result, status, last_line):
        self.assertEqual(result[1][-1], last_line, "\n".join(result[1]))
        self.assertEqual(result[0], status)

    def test_cases_of_a_cmocka_program_are_counted(self):
        self.check(run(CMOCKA_PASS), 0, "3 passed, 0 failed, 0 skipped")

    def test_groups_of_a_cmocka_program_are_summed(self):
        self.check(run(CMOCKA_PASS + ";" + CMOCKA_PASS), 0, "6 passed, 0 failed, 0 skipped")

    def test_failures_and_skips_are_counted_and_named(self):
        result = run(CMOCKA_MIXED)
        self.check(result, 1, "1 passed, 1 failed, 1 skipped")
        self.assertIn("test_needs_avx512", "\n".join(result[1]))

    def test_a_crash_fails(self):
        self.check(run(GROUP + "kill -SEGV $$"), 1, "0 passed, 3 failed, 0 skipped")

    def test_a_crash_after_the_last_case_fails(self):
        self.check(run(CMOCKA_PASS + "; kill -ABRT $$"), 1, "3 passed, 1 failed, 0 skipped")

    def test_a_bad_exit_after_the_last_case_fails(self):
        self.check(run(CMOCKA_PASS + "; exit 23"), 1, "3 passed, 1 failed, 0 skipped")

    def test_a_clean_exit_before_the_last_case_fails(self):
        self.check(run(GROUP + "exit 0"), 1, "0 passed, 3 failed, 0 skipped")

    def test_a_timeout_fails(self):
        self.check(run("sleep 30", "TIMEOUT 1"), 1, "0 passed, 1 failed, 0 skipped")

    def test_a_missing_program_fails(self):
        self.check(run("", command='"/nonexistent/program"'), 1, "0 passed, 1 failed, 0 skipped")

    def test_a_script_counts_by_its_status(self):
        self.check(run("exit 0"), 0, "1 passed, 0 failed, 0 skipped")
        self.check(run("exit 1"), 1, "0 passed, 1 failed, 0 skipped")

    def test_a_skipped_script_is_a_skip_and_not_a_pass(self):
        result = run("echo 'SKIP no such hardware'; exit 77", "SKIP_RETURN_CODE 77")
        self.check(result, 1, "0 passed, 0 failed, 1 skipped")
        self.assertIn("no such hardware", "\n".join(result[1]))

    def test_every_preset_counts_but_for_tests_that_run_once(self):
        self.check(run("exit 0", times=3), 0, "3 passed, 0 failed, 0 skipped")
        other = "sh)\nset_tests_properties(one PROPERTIES LABELS once)\nadd_test(two true"
        self.check(run("exit 0", command=other, times=3), 0, "4 passed, 0 failed, 0 skipped")

    def test_a_script_may_count_itself(self):
        self.check(run("echo '4 passed, 0 failed, 1 skipped'"), 0, "4 passed, 0 failed, 1 skipped")

    def test_a_summary_that_denies_a_bad_status_fails(self):
        self.check(run("echo '4 passed, 0 failed, 0 skipped'; exit 1"), 1,
                   "4 passed, 1 failed, 0 skipped")

    def test_pytest_summaries_are_read(self):
        self.check(run("echo '===== 1 failed, 4 passed, 2 skipped in 0.12s ====='; exit 1"), 1,
                   "4 passed, 1 failed, 2 skipped")

    def test_a_program_without_cases_fails(self):
        self.check(run("echo '0 passed, 0 failed, 0 skipped'"), 1, "0 passed, 1 failed, 0 skipped")

    def test_a_preset_that_does_not_build_fails(self):
        done = subprocess.run([RUN_TESTS, "no-such-preset"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.strip().splitlines()[-1], "0 passed, 1 failed, 0 skipped")


if __name__ == "__main__":
    sys.exit(closing.run())

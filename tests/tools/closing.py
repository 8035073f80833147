"""Runs the unittest cases of a script and ends with the line that tools/run-tests reads."""
import os
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run():
    program = unittest.main(module="__main__", exit=False, verbosity=2)
    result = program.result
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    for case, reason in result.skipped:
        print(f"SKIP {case.id().rpartition('.')[2]}: {reason}")
    # A fixture that fails counts as one failure though no case of it ran.
    passed = max(0, result.testsRun - failed - skipped)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0

#!/usr/bin/env python3
"""Fails unless the rules of docs/contract.md and the tests that carry their names match."""
import glob
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

with open(os.path.join(ROOT, "docs", "contract.md"), encoding="utf-8") as file:
    rules = re.findall(r"^\* \*\*([A-Z]\d+)\*\* ", file.read(), re.MULTILINE)

tests = {}
for folder in ("contract", "core"):
    for path in sorted(glob.glob(os.path.join(ROOT, "tests", folder, "test_*.c"))):
        with open(path, encoding="utf-8") as file:
            for rule, test in re.findall(r'RULE\("([A-Z]\d+)",\s*(\w+)\)', file.read()):
                tests.setdefault(rule, []).append(test)

complaints = [f"{rule}: stated twice" for rule in sorted(set(rules)) if rules.count(rule) > 1]
complaints += [f"{rule}: no test carries it" for rule in rules if rule not in tests]
complaints += [f"{rule}: tested, but not stated" for rule in sorted(tests) if rule not in rules]
print("\n".join(complaints) or f"{len(rules)} rules, {sum(map(len, tests.values()))} tests")
sys.exit(1 if complaints or not rules else 0)

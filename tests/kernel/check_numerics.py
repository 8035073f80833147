"""docs/numerics.md is the definition: its coefficients must be those that the kernels use."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def coefficients(path, pattern):
    text = (ROOT / path).read_text(encoding="utf-8")
    return {int(n): float.fromhex(value) for n, value in re.findall(pattern, text)}


def main():
    stated = coefficients("docs/numerics.md", r"\| c(\d) \| `(\S+)` \|")
    used = coefficients("src/kernel/exp2_poly.h", r"#define ALEA_EXP2_C(\d) (\S+)f\n")
    if used and stated == used:
        return 0
    print(f"docs/numerics.md states {stated}, src/kernel/exp2_poly.h has {used}", file=sys.stderr)
    return 1


sys.exit(main())

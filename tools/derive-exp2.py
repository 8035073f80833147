#!/usr/bin/env python3
"""Derive the polynomial of src/kernel/exp2_poly.h.

2^f on [-1/2, 1/2] by 1 + f*q(f), minimax in relative error with the constant term held at 1, so
that the largest token of a row weighs exactly 2^29. Remez exchange at 60 digits; afterwards the
coefficients are rounded to float32, and moved by single units while that lowers the error.
Needs mpmath. tests/kernel/prove_exp2.c proves the result.

    tools/derive-exp2.py [degree]        5 where none is given
"""
import itertools
import math
import struct
import sys

import mpmath as mp

mp.mp.dps = 60
HALF = mp.mpf(1) / 2


def to_float32(value):
    """The float32 nearest to an mpf, by way of a float64 that cannot change the choice here."""
    return struct.unpack("<f", struct.pack("<f", float(value)))[0]


def fit(degree):
    """Coefficients of the powers 1..degree that minimize the largest relative error."""
    powers = list(range(1, degree + 1))
    n = degree + 1

    # The error is 0 at f = 0 whatever the coefficients, so what must alternate is its sign divided
    # by that of f. No node may be 0 itself.
    def turn(f):
        return -1 if f < 0 else 1

    nodes = [-HALF * mp.cos(mp.pi * (i + mp.mpf("0.01")) / (n - 1)) for i in range(n)]
    grid = [mp.mpf(i) / 2000 - HALF for i in range(2001)]
    for _ in range(10):
        system = mp.matrix(n, n)
        right = mp.matrix(n, 1)
        for row, f in enumerate(nodes):
            scale = mp.power(2, f)
            for column, power in enumerate(powers):
                system[row, column] = f**power / scale
            system[row, n - 1] = turn(f) * (-1) ** row
            right[row] = 1 - 1 / scale
        solution = mp.lu_solve(system, right)
        free = [solution[i] for i in range(n - 1)]

        def error(f):
            total = 1 + sum(c * f**p for c, p in zip(free, powers))
            return total / mp.power(2, f) - 1

        extrema = extrema_of([(f, error(f) * turn(f)) for f in grid], n)
        if len(extrema) != n:
            raise SystemExit(f"the exchange lost a node: {len(extrema)} of {n}")
        nodes = extrema
    return free, max(abs(error(f)) for f in grid)


def extrema_of(samples, n):
    """The largest sample of each run of equal sign; the n largest neighbours of them."""
    best = []
    for f, e in samples:
        if e == 0:
            continue
        if best and (e > 0) == (best[-1][1] > 0):
            if abs(e) > abs(best[-1][1]):
                best[-1] = (f, e)
        else:
            best.append((f, e))
    while len(best) > n:
        best.pop(0 if abs(best[0][1]) < abs(best[-1][1]) else -1)
    return [f for f, _ in best]


GRID = [i / 800 - 0.5 for i in range(801)]
TRUE = [2.0**f for f in GRID]


def relative_error(coefficients):
    """The largest error of the polynomial in exact arithmetic; float64 is exact enough for it."""
    worst = 0.0
    for f, true in zip(GRID, TRUE):
        value = 0.0
        for c in reversed(coefficients):
            value = value * f + c
        worst = max(worst, abs(value / true - 1))
    return worst


def neighbour(value, units):
    """The float32 `units` steps away from a positive one."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.unpack("<f", struct.pack("<I", bits + units))[0]


def polish(coefficients):
    """Move one or two coefficients by a few units as long as that helps."""
    moves = list(itertools.product(range(-2, 3), repeat=2))
    best = relative_error(coefficients)
    improved = True
    while improved:
        improved = False
        for i, j in itertools.combinations(range(1, len(coefficients)), 2):
            for a, b in moves:
                trial = list(coefficients)
                trial[i], trial[j] = neighbour(trial[i], a), neighbour(trial[j], b)
                error = relative_error(trial)
                if error < best:
                    coefficients, best, improved = trial, error, True
    return coefficients


def main():
    degree = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    free, error = fit(degree)
    print(f"degree {degree}, real coefficients: relative error 2^{float(mp.log(error, 2)):.2f}")
    coefficients = polish([1.0] + [to_float32(c) for c in free])
    error = relative_error(coefficients)
    print(f"float32 coefficients: relative error 2^{math.log2(error):.2f}")
    for i, c in enumerate(coefficients):
        print(f"#define ALEA_EXP2_C{i} {(c * 2.0**29).hex()}f")


main()

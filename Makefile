# The front door: `make` lists the targets. CMake does the work, in build/.
SHELL := /bin/bash
PREFIX ?= /usr/local
BUILD := build
PORT ?= 8000

.PHONY: help run build test bench bench-peers bench-serve bench-rival bench-eval check-eval check-load peer-eval sanitize stress fuzz mutants prove search check-cuda lint format install clean distclean
.DEFAULT_GOAL := help

help: ## list the targets
	@echo "Alea: the output layer of language-model inference"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

run: build ## set up, build, score a short text with the default model, then serve it (PORT)
	@echo "run: $(BUILD)/alea score share/opening.txt" >&2
	@$(BUILD)/alea score share/opening.txt
	@echo "run: $(BUILD)/alea serve --port $(PORT)" >&2
	@exec $(BUILD)/alea serve --port $(PORT)

build: ## set up what the build needs, and build the program at build/alea
	@tools/setup build
	@tools/build default

test: ## set up what tests need, build with gcc, clang and sanitizers, run every test
	@tools/setup test
	@tools/build default
	@tools/run-tests gcc clang asan

bench: build ## measure the operators and the core, beside their floors and peers
	@tools/setup bench
	@bench/run
	@$(BUILD)/alea bench core

bench-peers: build ## measure the operators beside torch too, some 3 GB to fetch first
	@tools/setup bench
	@bench/run torch

bench-serve: build ## measure the server beside its engine (ROUNDS, default 7)
	@python3 bench/serve.py --rounds $(or $(ROUNDS),7)

bench-rival: build ## measure it beside llama.cpp's own server too, which is built first (ROUNDS, default 7)
	@tools/setup bench
	@bench/rival $(or $(ROUNDS),7)

bench-eval: build ## measure scored prompts over HTTP (ROUNDS, default 5; some seven minutes)
	@tools/setup test
	@tools/build gcc
	@python3 -B tests/eval/bench_scoring.py --rounds $(or $(ROUNDS),5)

check-eval: build ## run lm-eval and inspect-ai against the server, some 1 GB to fetch first
	@tools/setup test
	@tools/build gcc
	@tests/eval/run check

peer-eval: ## lm-eval's wall time beside llama-cpp-python's server (ITEMS of the default model, default 24)
	@tools/setup test
	@tools/build gcc
	@tests/eval/run peer

check-load: build ## run aiperf against the server for SECONDS (default 60), some 500 MB to fetch first
	@tools/setup test
	@tests/load/run $(or $(SECONDS),60)

sanitize: ## build with the address and undefined-behavior sanitizers, run every test
	@tools/setup test
	@tools/run-tests asan

stress: ## 10,000 requests under each sanitizer, then a soak of SOAK minutes (default 1)
	@tools/stress $(SOAK)

fuzz: ## run every fuzzer for FUZZ seconds (default 600)
	@tools/setup test
	@tools/fuzz $(FUZZ)

mutants: ## build the operators with each known fault and see that the tests notice
	@tools/setup test
	@tests/ops/mutants

prove: build ## the error of the exponential at every one of its arguments
	@cmake --preset gcc >/dev/null
	@cmake --build --preset gcc --target prove_exp2 >/dev/null
	@$(BUILD)/gcc/tests/kernel/prove_exp2

search: ## SEARCH random schedules (default 40) of every model for a request that company changes
	@tools/search $(SEARCH)

check-cuda: ## every case table of the operators on a CUDA device; without one, how many it skips
	@tools/setup test
	@cmake --preset cuda >/dev/null
	@cmake --build --preset cuda
	@tests/cuda/check $(BUILD)/cuda

lint: ## check format, layers, lengths and what cppcheck finds
	@tools/setup test
	@tools/lint

format: ## bring the sources into the committed format
	@tools/setup test
	@git ls-files '*.c' '*.h' | xargs clang-format-14 -i

install: build ## install library, headers and program (PREFIX, DESTDIR)
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove everything that was built from this tree
	rm -rf build

distclean: clean ## remove also what was fetched and libllama
	rm -rf .deps

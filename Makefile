# Two commands are enough: `make run` and `make test`. Each target makes .venv when it is missing
# or older than the lock.
.DEFAULT_GOAL := help
.PHONY: help run test check libraries beam browser slides site lab lint spelling lock colab kaggle
.DELETE_ON_ERROR:

# Some environments forbid bytecode; importing TensorFlow then takes three times as long.
unexport PYTHONDONTWRITEBYTECODE
# A file there that is named as a module of Python, such as types.py, ends Python before any code of
# the course could say so. Here it is not needed: .venv has all that runs.
unexport PYTHONPATH

PYTHON_VENV := .venv/bin/python
# make run LANGUAGE=ko, and lab, slides: the Korean edition.
# LANGUAGE of the environment is gettext's, and may be a list.
EDITION := $(if $(filter command,$(origin LANGUAGE)),--language $(LANGUAGE))
# make lab PORT=8890. A hosting service sets PORT in the environment for a server of its own.
PORT_OPTION := $(if $(filter command,$(origin PORT)),--port $(PORT))

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

.venv/.installed: requirements.txt tpu_preflight/pyproject.toml
	@sh course/install.sh

run: .venv/.installed ## Run all notebooks on this CPU and open an index of the results
	@$(PYTHON_VENV) -m course run $(EDITION)

test: .venv/.installed ## Check helpers, conventions, and that each notebook prints what is stored
	@$(PYTHON_VENV) -m pytest -n auto --dist loadscope --no-loadscope-reorder -m "not long" \
	  --nbval --nbval-current-env notebooks tests tpu_preflight/tests

build/pytorch/.installed: .venv/.installed
	@rm -rf build/pytorch
	@$(PYTHON_VENV) -m uv venv -q --python $(PYTHON_VENV) build/pytorch
	@$(PYTHON_VENV) -m uv pip install -q --python build/pytorch/bin/python \
	  "torch>=2.4" "transformers>=5"
	@touch $@

check: lint ## Check in a minute: style, and the tests that run no notebook and train nothing long
	@$(PYTHON_VENV) -m pytest -q -n 2 -m "not slow and not long" tests tpu_preflight/tests

build/kerashub/.installed: .venv/.installed
	@rm -rf build/kerashub
	@$(PYTHON_VENV) -m uv venv -q --python $(PYTHON_VENV) build/kerashub
	@$(PYTHON_VENV) -m uv pip install -q --python build/kerashub/bin/python \
	  "keras-hub==0.32.0" "jax==0.10.2"
	@touch $@

build/equinox/.installed: .venv/.installed
	@rm -rf build/equinox
	@$(PYTHON_VENV) -m uv venv -q --python $(PYTHON_VENV) build/equinox
	@$(PYTHON_VENV) -m uv pip install -q --python build/equinox/bin/python --constraints requirements.txt \
	  "equinox==0.13.8" jax pytest hypothesis psutil -e ./tpu_preflight
	@touch $@

libraries: build/pytorch/.installed build/kerashub/.installed build/equinox/.installed ## Try today's PyTorch, KerasHub and Equinox (some GB, apart)
	@$(PYTHON_VENV) -m pytest -q -k "pytorch or kerashub" tests/course/training/test_export.py tests/notebooks/test_kerashub.py
	@build/equinox/bin/python -m pytest -q -k equinox tpu_preflight/tests/test_jax_refusals.py

build/beam/.installed: tests/repo/beam.txt .venv/.installed
	@rm -rf build/beam
	@$(PYTHON_VENV) -m uv venv -q --python $(PYTHON_VENV) build/beam
	@$(PYTHON_VENV) -m uv pip install -q --python build/beam/bin/python -r $< -e ./tpu_preflight
	@touch $@

beam: build/beam/.installed ## Write records with Apache Beam, on two processes (apart)
	@$(PYTHON_VENV) -m pytest -q tests/course/training/test_beam.py

build/browser/.installed: .ci/requirements/browser.txt .venv/.installed
	@rm -rf build/browser
	@$(PYTHON_VENV) -m uv venv -q --python $(PYTHON_VENV) build/browser
	@$(PYTHON_VENV) -m uv pip install -q --python build/browser/bin/python --require-hashes -r $<
	@touch $@

browser: build/browser/.installed site slides ## Try notebooks, pages and slides in this machine's Chromium
	@build/browser/bin/python -m pytest -q -n 2 --dist loadgroup tests/browser

# JupyterLab and RISE show the same slides: each cell of a notebook has its Slide Type.
slides: build/slides/reveal.js ## Write the core of the notebooks as slides: build/slides
	@$(PYTHON_VENV) -m nbconvert --to slides --log-level WARN --embed-images \
	  --template slides --TemplateExporter.extra_template_basedirs=course \
	  --SlidesExporter.reveal_url_prefix=reveal.js --SlidesExporter.reveal_theme=white \
	  --TagRemovePreprocessor.enabled=True --TagRemovePreprocessor.remove_input_tags=hide-input \
	  --TagRemovePreprocessor.remove_cell_tags=beyond-core \
	  --output-dir build/slides notebooks/$(if $(EDITION),$(LANGUAGE)/)*.ipynb

build/slides/reveal.js: .ci/requirements/slides.txt .venv/.installed
	@rm -rf build/slides/reveal.js build/reveal
	@$(PYTHON_VENV) -m uv pip install -q --no-deps --target build/reveal --require-hashes -r $<
	@mkdir -p build/slides
	@mv build/reveal/sphinx_revealjs/_static/revealjs $@
	@rm -rf build/reveal
	@touch $@

build/site/.installed: .ci/requirements/site.txt .venv/.installed
	@rm -rf build/site
	@$(PYTHON_VENV) -m uv venv -q --python $(PYTHON_VENV) build/site
	@$(PYTHON_VENV) -m uv pip install -q --python build/site/bin/python --require-hashes -r $<
	@touch $@

site: build/site/.installed ## Write the course as pages to read and search: build/site/html
	@rm -rf build/site/html
	@for language in en $(notdir $(basename $(wildcard notebooks/locale/*.po))); do \
	  PYTHONPATH=.:tpu_preflight/src EDITION=$$language build/site/bin/python -m sphinx -q -E -W \
	    --keep-going -c course/site -d build/site/doctrees/$$language \
	    . build/site/html/$${language#en} || exit 1; \
	done

lab: .venv/.installed ## Open your copy of the course (work) in JupyterLab
	@PATH="$(CURDIR)/.venv/bin:$$PATH" $(PYTHON_VENV) -m course lab $(EDITION) $(PORT_OPTION)

build/spelling/.installed: .ci/requirements/spelling.txt .venv/.installed
	@rm -rf build/spelling
	@$(PYTHON_VENV) -m uv venv -q --python $(PYTHON_VENV) build/spelling
	@$(PYTHON_VENV) -m uv pip install -q --python build/spelling/bin/python --require-hashes -r $<
	@touch $@

build/publish/.installed: .ci/requirements/publish.txt .venv/.installed
	@rm -rf build/publish
	@$(PYTHON_VENV) -m uv venv -q --python $(PYTHON_VENV) build/publish
	@$(PYTHON_VENV) -m uv pip install -q --python build/publish/bin/python --require-hashes -r $<
	@touch $@

spelling: build/spelling/.installed
	@build/spelling/bin/codespell

lint: spelling ## Check the style of code and notebooks, the spelling, the direction of imports
	@$(PYTHON_VENV) -m ruff check
	@$(PYTHON_VENV) -m ruff format --check
	@.venv/bin/lint-imports --no-logo --no-cache

COMPILE := -m uv pip compile -q --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --custom-compile-command "make lock"

lock: .venv/.installed ## Compile requirements.txt from pyproject.toml, and the tools' own locks
	@$(PYTHON_VENV) $(COMPILE) pyproject.toml --all-extras --no-emit-package tpu-preflight \
	  -o requirements.txt
	@for tool in site browser spelling publish audit; do \
	  $(PYTHON_VENV) $(COMPILE) .ci/requirements/$$tool.in -o .ci/requirements/$$tool.txt || exit 1; \
	done

build/colab/.installed build/kaggle/.installed: build/%/.installed: tests/repo/%.txt .venv/.installed
	@rm -rf build/$*
	@$(PYTHON_VENV) -m uv venv -q --python $(or $(PYTHON),3.12) build/$*
	@$(PYTHON_VENV) -m uv pip install -q --python build/$*/bin/python -r $<
	@touch $@

colab: build/colab/.installed ## Run notebooks as in Colab, with its packages (minutes, some GB)
kaggle: build/kaggle/.installed ## Run notebooks as on Kaggle's TPU machine, with its packages
colab kaggle:
	@rm build/$@/.installed # the first cell replaces packages: the next time begins afresh
	@PLACE=$@ $(PYTHON_VENV) -m pytest -q tests/repo/hosted.py

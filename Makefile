# Each target works on a fresh machine with Python >= 3.10, make and access to a package index.

unexport PYTHONDONTWRITEBYTECODE # hundreds of processes import the same modules: compiled once is enough

# For check-oldest, check-newest and audit
PYTHON ?= python3

.PHONY: demo test check fuzz laws soak check-oldest check-newest audit static setup setup-all bench-accuracy bench-tables \
	bench-wide bench-speed bench-network bench-spark benchmark-report

demo: ## gbun beside LightGBM and XGBoost: a table, and results/demo/learning_curves.png
	@scripts/setup.sh plots,frames,peers
	.venv/bin/gbun demo --output results/demo

check: setup static ## style, types, import direction and the fast tests: needs no root and no Java
	rm -rf src/gbun/kernels/__pycache__ src/gbun/trees/__pycache__
	.venv/bin/pytest -m "not slow" -n 2 --dist loadgroup

test: setup-all static ## style, types, import direction and all tests
	rm -rf src/gbun/kernels/__pycache__ src/gbun/trees/__pycache__
	.venv/bin/pytest -n 3 --dist loadgroup

fuzz: setup ## make fuzz SECONDS=600: mutated model files, data files and messages among workers; findings go to results/fuzz
	.venv/bin/python -m tests.fuzz --seconds $(or $(SECONDS),600) $(ARGS)

laws: setup ## make laws EXAMPLES=300: random cases for each law of tests/test_laws.py
	GBUN_EXAMPLES=$(or $(EXAMPLES),300) .venv/bin/pytest tests/test_laws.py -n 2

check-oldest check-newest: check-%: ## the fast tests with the versions of constraints/, in .venv-oldest or .venv-newest [PYTHON=python3.10]
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -c constraints/$*.txt \
		-e '.[plots,frames,peers,torch,spark]' catboost hypothesis optuna pytest pytest-xdist
	rm -rf src/gbun/kernels/__pycache__
	.venv-$*/bin/pytest -m "not slow" -n 2 --dist loadgroup

audit: ## known vulnerabilities of the versions in constraints/newest.txt
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	.venv-audit/bin/pip-audit --strict --disable-pip --no-deps -r constraints/newest.txt

static: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

setup: ## .venv for development
	@scripts/setup.sh dev

setup-all: ## .venv for development, and Java
	@scripts/setup.sh dev programs

soak: setup ## make soak [SECONDS=3600]: train and predict in one process; memory, files and threads must not grow
	.venv/bin/python -m tests.soak --seconds $(or $(SECONDS),3600)

bench-speed: setup ## make bench-speed [DATA=folder] [ARGS="--quick"]
	.venv/bin/python -m benchmarks.speed $(if $(DATA),--data "$(DATA)") $(ARGS)

bench-network: setup ## make bench-network [ARGS="--quick"]; root, Linux and iproute2
	.venv/bin/python -m benchmarks.network $(ARGS)

bench-spark: setup-all ## make bench-spark [DATA=folder] [ARGS="--quick"]; Java 17
	.venv/bin/python -m benchmarks.spark $(if $(DATA),--data "$(DATA)") $(ARGS)

benchmark-report: setup ## make benchmark-report DATA=folder [ARGS="--only accuracy"]: the paper's experiments, docs/benchmarks
	@test -n "$(DATA)$(findstring --quick,$(ARGS))" || { echo 'usage: make benchmark-report DATA=folder-of-data-sets [ARGS="--only accuracy"], or ARGS=--quick'; exit 2; }
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	.venv/bin/python -m benchmarks.paper $(if $(DATA),--data "$(DATA)") $(ARGS)

bench-accuracy: setup ## make bench-accuracy DATA=folder [ARGS="--only letter"]
	@test -n "$(DATA)" || { echo 'usage: make bench-accuracy DATA=folder-of-data-sets [ARGS="--only letter"]'; exit 2; }
	.venv/bin/python -m benchmarks.accuracy --data "$(DATA)" $(ARGS)

bench-tables: setup ## make bench-tables DATA=folder [ARGS="--tuned 30 --jobs 2"], or ARGS="--folder FILES"
	@test -n "$(DATA)$(findstring --folder,$(ARGS))" || { echo 'usage: make bench-tables DATA=folder-of-data-sets [ARGS="--tuned 30"], or ARGS="--folder folder-of-files"'; exit 2; }
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[bench,frames]'
	.venv/bin/python -m benchmarks.accuracy.tables $(if $(DATA),--data "$(DATA)") $(ARGS)

bench-wide: setup ## make bench-wide DATA=folder [ARGS="--part tuned --sets a9a"]
	@test -n "$(DATA)" || { echo 'usage: make bench-wide DATA=folder-of-data-sets [ARGS="--part tuned"]'; exit 2; }
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[wide]'
	.venv/bin/python -m benchmarks.accuracy --wide --data "$(DATA)" $(ARGS)

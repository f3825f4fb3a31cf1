# What people and CI run. `make test` installs what the tests need and runs them all.

CARGO ?= cargo
SKIPS := $(CURDIR)/target/skipped.txt

.PHONY: help test lint differential demo tools

help:
	@echo "make test          everything: lints, unit tests, scenarios, differential test, end to end"
	@echo "make lint          formatting and clippy only"
	@echo "make differential  the two engines against each other, STEPS=1000000 steps from SEED=1"
	@echo "make speed         what an event costs, with the optimised binary"
	@echo "make demo          see it work"

test: tools lint
	@mkdir -p target && rm -f $(SKIPS)
	SERIATIM_SKIPS=$(SKIPS) $(CARGO) test --locked --no-fail-fast
	@scripts/count-skips $(SKIPS)

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

STEPS ?= 1000000
SEED ?= 1
differential: tools
	SERIATIM_DIFF_STEPS=$(STEPS) SERIATIM_DIFF_SEED=$(SEED) $(CARGO) test --locked --test differential -- --nocapture

demo:
	$(CARGO) run --locked --release -- demo

# A real redis-server (or valkey-server) and redis-cli: the tests do not do without.
tools:
	@scripts/install-tools

# What an event costs, with the optimised binary.
.PHONY: speed
speed: tools
	$(CARGO) test --locked --release --test e2e speed -- --nocapture

# What people and CI run. `make test` installs what the tests need and runs them all.

CARGO ?= cargo
SKIPS := $(CURDIR)/target/skipped.txt

.PHONY: help test lint differential conformance gaps demo tools clients sim

help:
	@echo "make test          everything: lints, unit tests, scenarios, differential and conformance test, end to end"
	@echo "make lint          formatting and clippy only"
	@echo "make differential  the two engines against each other, STEPS=1000000 steps from SEED=1"
	@echo "make conformance   the two stores against each other, STEPS=1000000 steps from SEED=1"
	@echo "make sim           whole runs in simulated time, SEEDS=1000000 of them from SEED_START=1"
	@echo "make model         the rules and leases model checked at full size: some minutes, some 10,000,000 states"
	@echo "make mutants       mistakes on purpose, one after the other: how many simulated runs until each is seen"
	@echo "make fuzz          every decoder, RUNS=1000000 inputs each that are nearly right, from SEED=1"
	@echo "make frames        floods of HTTP/2 frames, FRAMES=1000000 of each kind, beside an honest client"
	@echo "make gaps          100,000 gaps that end at once, while others publish"
	@echo "make workers       workers that are killed and suspended, 60 times each, judged by the checker"
	@echo "make chaos         sidecars killed 500 times, Redis 200 times and 12 more kinds of trouble, beside plain XADD"
	@echo "make chaos-upgrade the same with sidecars and workers of an earlier commit (EARLIER=cb80293) among them"
	@echo "make soak          an hour (MINUTES=60) at half load with a fault every 5 s: nothing lost, no process grows"
	@echo "make delivery      how fast deliveries are, beside a plain loop of XREADGROUP and XACK"
	@echo "make bench         what order costs, beside raw XADD, JetStream and Python; FULL=1 for all of it"
	@echo "make speed         what an event costs, with the optimised binary"
	@echo "make clients       Python and Node with their libraries, under target/clients"
	@echo "make demo          see it work"

test: tools lint
	@mkdir -p target && rm -f $(SKIPS)
	SERIATIM_SKIPS=$(SKIPS) $(CARGO) test --locked --workspace --no-fail-fast
	@scripts/count-skips $(SKIPS)

lint: tools
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@scripts/mutants --check

STEPS ?= 1000000
SEED ?= 1
differential: tools
	SERIATIM_DIFF_STEPS=$(STEPS) SERIATIM_DIFF_SEED=$(SEED) $(CARGO) test --locked --test differential -- --nocapture

conformance: tools
	SERIATIM_CONFORM_STEPS=$(STEPS) SERIATIM_CONFORM_SEED=$(SEED) $(CARGO) test --locked --test conformance -- --nocapture

# Whole runs of sidecars and workers, with everything that can go wrong, in simulated time.
SEEDS ?= 1000000
SEED_START ?= 1
sim:
	SERIATIM_SIM_SEEDS=$(SEEDS) SERIATIM_SIM_START=$(SEED_START) $(CARGO) test --locked --release --test sim -- --nocapture

# Every order of calls, faults and looks at the clock, within larger budgets than `make test` has time for.
THREADS ?= 2
.PHONY: model
model:
	SERIATIM_MODEL_FULL=1 SERIATIM_MODEL_THREADS=$(THREADS) \
		$(CARGO) test --locked --release --test model -- --nocapture --test-threads=1

# Inputs that are nearly right, with overflow checks: not the optimised build.
RUNS ?= 1000000
.PHONY: fuzz
fuzz:
	SERIATIM_FUZZ_RUNS=$(RUNS) SERIATIM_FUZZ_SEED=$(SEED) $(CARGO) test --locked --lib fuzz -- --nocapture

# What no client library would send, at a sidecar of its own for each kind.
FRAMES ?= 1000000
.PHONY: frames
frames: tools
	SERIATIM_FRAMES=$(FRAMES) $(CARGO) test --locked --test e2e frame_gun -- --nocapture --test-threads=1

# In a copy of the source, built apart.
.PHONY: mutants
mutants: tools
	@scripts/mutants

# Many gaps at once: what it costs those who publish beside.
gaps: tools
	SERIATIM_GAPS=100000 $(CARGO) test --locked --release --test e2e many_gaps -- --nocapture

demo:
	$(CARGO) run --locked --release -- demo

# A real redis-server (or valkey-server) and redis-cli, and clients in Python and Node: the tests do not do without.
tools: clients
	@scripts/install-tools

clients:
	@scripts/install-clients

# What order costs, beside what people would do otherwise: docs/bench.md. A goal that is missed ends it with an error.
.PHONY: bench bench-tools
FULL ?=
bench: tools bench-tools
	$(CARGO) build --locked --release
	@mkdir -p target/bench
	target/release/seriatim bench $(if $(FULL),--full) --out target/bench

# A nats-server to compare with, pinned.
bench-tools:
	@scripts/install-bench

# What an event costs, with the optimised binary.
.PHONY: speed
speed: tools
	$(CARGO) test --locked --release --test e2e speed -- --nocapture

# Workers that come and go under load: what the short run in `make test` does, at length.
.PHONY: workers delivery
workers: tools
	$(CARGO) build --locked --example recording_worker
	SERIATIM_KILLS=60 SERIATIM_STOPS=60 SERIATIM_ENTITIES=10000 \
		$(CARGO) test --locked --test e2e workers -- --nocapture

# Sidecars, workers and Redis in trouble under load, beside a client that writes by itself: how much of each.
.PHONY: chaos chaos-upgrade
SIDECAR_KILLS ?= 500
REDIS_KILLS ?= 200
WORKER_KILLS ?= 50
STOPS ?= 30
SWAPS ?= 30
CLOCKS ?= 50
FULL_DISKS ?= 20
CUTS ?= 50
HOLES ?= 30
DELAYS ?= 30
CHAOS = SERIATIM_SIDECAR_KILLS=$(SIDECAR_KILLS) SERIATIM_REDIS_KILLS=$(REDIS_KILLS) \
	SERIATIM_WORKER_KILLS=$(WORKER_KILLS) SERIATIM_SIDECAR_STOPS=$(STOPS) SERIATIM_WORKER_STOPS=$(STOPS) \
	SERIATIM_REDIS_STOPS=$(STOPS) SERIATIM_SIDECAR_SWAPS=$(SWAPS) SERIATIM_WORKER_SWAPS=$(SWAPS) \
	SERIATIM_SIDECAR_CLOCKS=$(CLOCKS) SERIATIM_REDIS_CLOCKS=$(CLOCKS) SERIATIM_FULL_DISKS=$(FULL_DISKS) \
	SERIATIM_CUT_REPLIES=$(CUTS) SERIATIM_BLACK_HOLES=$(HOLES) SERIATIM_DELAYS=$(DELAYS) SERIATIM_SEED=$(SEED)
chaos: tools
	$(CARGO) build --locked --example recording_worker
	$(CHAOS) $(CARGO) test --locked --test e2e whatever_is_killed -- --nocapture

# The same with the programs of an earlier commit beside the present ones; each that leaves is followed by one
# of the other version.
EARLIER ?= cb80293
chaos-upgrade: SIDECAR_KILLS = 50
chaos-upgrade: REDIS_KILLS = 20
chaos-upgrade: SWAPS = 50
chaos-upgrade: tools
	$(CARGO) build --locked --example recording_worker
	earlier=$$(CARGO=$(CARGO) scripts/build-earlier $(EARLIER)) && \
		SERIATIM_EARLIER=$$earlier $(CHAOS) $(CARGO) test --locked --test e2e whatever_is_killed -- --nocapture

# Load and trouble for a long time: what the processes have in memory must not grow.
.PHONY: soak
MINUTES ?= 60
soak: tools
	$(CARGO) build --locked --example recording_worker
	SERIATIM_SOAK_MINUTES=$(MINUTES) $(CARGO) test --locked --test e2e soak_under -- --nocapture

delivery: tools
	SERIATIM_DELIVERIES=200000 SERIATIM_ROUNDS=3 \
		$(CARGO) test --locked --release --test deliver bench -- --nocapture

# Targets for developers and operators. Needs Rust 1.95 or newer, a C compiler and make.
#
#   make run     build Throng and start a node, no configuration needed
#   make cluster start three nodes with NATS and PostgreSQL on this machine, until Ctrl-C
#   make test    run all tests, including those with real clients
#   make lint    format, clippy, links of comments and cargo xtask tidy
#   make bench   measure a build of the profile dist against its budgets (minutes; needs an idle machine)
#   make bench-peers  compare Throng, ejabberd and Prosody (from Debian, as root; about 12 minutes)
#   make bench-bosh  the same over BOSH with 10 000 users (from Debian, as root; about 40 minutes)
#   make bench-load  compare the load generator and Tsung 1.7 against ejabberd (from Debian, as root; 8 minutes)
#   make bench-muc   rooms of Throng beside a loop that writes the same bytes, ejabberd and Prosody (from Debian, as root; about 30 minutes)
#   make bench-pubsub  events of PubSub nodes beside a loop that writes the same bytes, ejabberd and Prosody (from Debian, as root; about 10 minutes)
#   make bench-databases  Throng on SQLite, PostgreSQL and MariaDB, and ejabberd on the same PostgreSQL (from Debian, as root; about 30 minutes)
#   make fuzz    run the fuzz targets (needs cargo-fuzz and a nightly compiler)

CARGO  ?= cargo
# Target directory of cargo, by cargo's own rule.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Optional configuration file: make run CONFIG=throng.toml
CONFIG ?=
# Duration of each fuzz target in seconds.
FUZZ_SECONDS ?= 60

.PHONY: all run cluster build test clients databases chat lint bench bench-peers bench-bosh bench-load bench-muc bench-pubsub bench-databases fuzz help
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

build: chat
	$(CARGO) build --release -p throng-server

# Library of the web chat, downloaded by npm if it is installed.
chat:
	@chat/fetch.sh

run: build
	@echo "Starting $(TARGET)/release/throng; its address, and at the first start the administrator's password, follow."
	@exec $(TARGET)/release/throng serve $(if $(CONFIG),--config $(CONFIG))

# Several nodes on this machine: make cluster NODES=5
NODES ?= 3
cluster: build databases
	@exec $(CARGO) run --quiet -p throng-xtask -- cluster --nodes $(NODES) --program $(TARGET)/release/throng \
	  --directory $(TARGET)/cluster

# Third-party clients of the tests; installed once.
clients:
	@crates/e2e/clients/setup.sh

# Database servers of the tests; installed once.
databases:
	@crates/test-databases/setup.sh

# Tests with real clients start the program. It is built together with the tests, so that both use the same features of each
# dependency; building the server alone would compile half of them twice. A failing test does not hide those after it.
test: clients databases chat
	$(CARGO) build --workspace --bins --tests
	@CARGO="$(CARGO)" .ci/cargo-test --workspace --no-fail-fast

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items
	$(CARGO) xtask tidy

# The profile dist has link-time optimisation and takes several times as long to build as `make build`.
bench:
	$(CARGO) build --profile dist -p throng-server
	$(CARGO) run --profile dist --quiet -p throng-xtask -- bench all

bench-peers:
	$(CARGO) build --profile dist -p throng-server
	$(CARGO) run --profile dist --quiet -p throng-xtask -- bench peers

# The clients are separate processes, so xtask itself need not be optimised.
bench-bosh:
	$(CARGO) build --profile dist -p throng-server
	$(CARGO) run --quiet -p throng-xtask -- bench bosh $(if $(QUICK),--quick)

# The loop is part of xtask and must be optimised as well.
bench-muc:
	$(CARGO) build --profile dist -p throng-server
	$(CARGO) run --profile dist --quiet -p throng-xtask -- bench muc $(if $(QUICK),--quick)

bench-pubsub:
	$(CARGO) build --profile dist -p throng-server
	$(CARGO) run --profile dist --quiet -p throng-xtask -- bench pubsub $(if $(QUICK),--quick)

bench-load:
	$(CARGO) build --profile dist -p throng-server
	$(CARGO) run --quiet -p throng-xtask -- bench load

bench-databases:
	$(CARGO) build --profile dist -p throng-server
	$(CARGO) run --quiet -p throng-xtask -- bench databases $(if $(QUICK),--quick)

fuzz:
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { \
	  echo "make fuzz needs cargo-fuzz and a nightly compiler: cargo install cargo-fuzz; rustup toolchain install nightly"; exit 1; }
	@set -e; for fuzz in crates/*/fuzz; do \
	  for target in $$($(CARGO) +nightly fuzz list --fuzz-dir $$fuzz); do \
	    echo "$$fuzz $$target"; \
	    $(CARGO) +nightly fuzz run --fuzz-dir $$fuzz $$target -- -max_total_time=$(FUZZ_SECONDS); \
	  done; \
	done

# What a person types. Needs Rust 1.95 or newer, a C compiler and make; nothing else.
#
#   make run     build Throng and start a node, no configuration needed
#   make test    everything that can be tested on one machine, real clients included
#   make lint    format, clippy and cargo xtask tidy
#   make bench   measure a build of the profile dist against its budgets (minutes; wants a quiet machine)
#   make bench-peers  Throng beside ejabberd and Prosody (from Debian, as root; about twelve minutes)
#   make bench-bosh  Throng beside ejabberd and Prosody over BOSH, 10 000 users (from Debian, as root; about 40 minutes)
#   make bench-load  the load generator beside Tsung 1.7, against ejabberd (from Debian, as root; eight minutes)
#   make fuzz    feed the parsers with noise (needs cargo-fuzz and a nightly compiler)

CARGO  ?= cargo
# Where cargo puts what it builds; the same rule as cargo's own.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# A file or nothing: make run CONFIG=throng.toml
CONFIG ?=
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60

.PHONY: all run build test clients chat lint bench bench-peers bench-bosh bench-load fuzz help
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

build: chat
	$(CARGO) build --release -p throng-server

# The library of the page /chat, from npm if npm is there.
chat:
	@chat/fetch.sh

run: build
	@echo "Starting $(TARGET)/release/throng; its address, and at the first start the administrator's password, follow."
	@exec $(TARGET)/release/throng serve $(if $(CONFIG),--config $(CONFIG))

# Foreign clients: fetched once, milliseconds afterwards.
clients:
	@crates/e2e/clients/setup.sh

# The program first: the tests with real clients start it. Built together with the tests, so that both use the
# same features of each dependency; building the server alone would compile half of them twice.
test: clients chat
	$(CARGO) build --workspace --bins --tests
	$(CARGO) test --workspace

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) xtask tidy

# The profile dist: optimised over the borders of crates, which takes several times as long to build as `make build` does.
bench:
	$(CARGO) build --profile dist -p throng-server
	$(CARGO) run --profile dist --quiet -p throng-xtask -- bench all

bench-peers:
	$(CARGO) build --profile dist -p throng-server
	$(CARGO) run --profile dist --quiet -p throng-xtask -- bench peers

# Their clients are programs of their own, so xtask itself need not be optimised.
bench-bosh:
	$(CARGO) build --profile dist -p throng-server
	$(CARGO) run --quiet -p throng-xtask -- bench bosh $(if $(QUICK),--quick)

bench-load:
	$(CARGO) build --profile dist -p throng-server
	$(CARGO) run --quiet -p throng-xtask -- bench load

fuzz:
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { \
	  echo "make fuzz needs cargo-fuzz and a nightly compiler: cargo install cargo-fuzz; rustup toolchain install nightly"; exit 1; }
	@set -e; for fuzz in crates/*/fuzz; do \
	  for target in $$($(CARGO) +nightly fuzz list --fuzz-dir $$fuzz); do \
	    echo "$$fuzz $$target"; \
	    $(CARGO) +nightly fuzz run --fuzz-dir $$fuzz $$target -- -max_total_time=$(FUZZ_SECONDS); \
	  done; \
	done

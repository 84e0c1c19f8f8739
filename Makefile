# Weir's build targets; `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help deps dist-deps build static demo check test soak release-check bench attack corpus lab deb docs packages screenshots clean require-root require-cargo

CARGO ?= cargo
# Cargo's target directory; the environment can change it.
TARGET := $(or $(CARGO_TARGET_DIR),target)
WEIR := $(TARGET)/release/weir
# The directory for distributable programs, which contain no paths of this machine.
DIST := $(TARGET)/dist
STATIC := $(DIST)/x86_64-unknown-linux-musl/dist/weir
# Arguments for `make lab` and `make attack`, for example ARGS="--rate 100mbit --methods direct,nat".
ARGS ?=
# Cargo's default directory, for a root shell whose PATH does not contain it.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin

help: ## show this list
	@echo "Weir, a load balancer for Linux. Start with: make demo"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install missing packages on Debian 12 or 13 (starts no service, prints what it does)
	@tools/install-deps.sh

build: require-cargo ## build the release program
	$(CARGO) build --release --locked -p weir
	@echo "built: $(WEIR)"

dist-deps: ## install the packages for building the static program and the arm64 program
	@tools/install-deps.sh --dist

static: require-cargo ## build the static program (musl), stripped, and show its size: target/packages/weir-static
	@tools/build-dist.sh x86_64-unknown-linux-musl $(DIST)
	@mkdir -p $(TARGET)/packages
	@strip --strip-unneeded -R .comment -o $(TARGET)/packages/weir-static $(STATIC)
	@tools/size.py --limit 30 $(STATIC) $(TARGET)/packages/weir-static

demo: require-root require-cargo deps build ## install, build, and show the main use: four servers behind one director, with seven methods
	@echo "The demo: a client fetches a 4 MB file 100 times from four servers; every host sends at most 100 Mbit/s."
	@echo "Everything runs in network namespaces, which are removed at the end; this takes about a minute and a half."
	$(WEIR) lab run saturated-uplink --rate 100mbit --report $(TARGET)/demo

check: require-cargo ## format, lints, docs, dependency rules, licenses, style
	$(CARGO) fmt --all -- --check
	python3 -B -m doctest tools/bench.py tools/mutants.py tools/mutant_switch.py
	find tools crates contrib -name '*.sh' -print0 | xargs -0 -n 1 bash -n
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items
	$(CARGO) test --locked -p weir-lab --test dependency_rules --test import_cycles --test reference --test supply_chain --test tidy

# All steps use the development profile, so that tests reuse what the lints compiled. Several test programs run at a
# time, because most tests wait for timers. Snapshots are never rewritten here: a difference is a failure.
# ARGS: --jobs N, --only NAME.
test: require-root require-cargo deps check ## everything that CI runs; needs root: the tests create network namespaces and load BPF programs
	INSTA_UPDATE=no WEIR_TEST_REQUIRE_ROOT=1 tools/run-tests.py $(ARGS)

# Tests named ..._soak have a long form. Fuzzing takes ten minutes for each parser, on all CPUs. Then each pure
# crate's tests must detect at least 95 % of 300 random changes to the crate. This takes hours.
soak: require-root require-cargo deps ## the long forms of the tests, one after another, because some of them measure latencies
	@tools/install-deps.sh --soak
	WEIR_TEST_REQUIRE_ROOT=1 WEIR_SOAK=1 INSTA_UPDATE=no $(CARGO) test --locked --release --workspace --tests -- --nocapture --test-threads=1 _soak
	tools/fuzz.sh
	tools/mutants.py

# ARGS: --only debian|kernels|packages|programs|reproducible|browser, --suite 12|13, --quick. The whole check takes hours.
release-check: require-root require-cargo deps dist-deps build ## test demo, tests and packages on newly installed Debian 12 and 13, with their kernels; the image; arm64
	WEIR_DIST=$(DIST) tools/release-check.sh $(WEIR) $(TARGET)/release-check $(ARGS)

screenshots: require-root require-cargo ## retake the manual's screenshots of the dashboard: docs/manual/images
	@tools/install-deps.sh --soak
	WEIR_TEST_REQUIRE_ROOT=1 WEIR_SOAK=1 WEIR_SCREENSHOTS=$(abspath docs/manual/images) \
	  $(CARGO) test --locked -p weir --test admin -- --nocapture pictures_of_the_manual

# COMPARE=REF measures the benchmarks of this tree and a different commit alternately. ARGS: --rounds N, --only PART,
# --all.
bench: require-root require-cargo ## run the benchmarks, and print one table and JSON: make bench [COMPARE=REF] [ARGS="--only nat"]
	tools/bench.py $(if $(COMPARE),--compare $(COMPARE)) $(ARGS)

# HAPROXY=PATH and NGINX=PATH select programs other than those in PATH.
attack: require-root build ## attack Weir, HAProxy and nginx in turn, and compare: make attack [ARGS="--rounds 1 --only reset,ping"]
	$(CARGO) build --release --locked -p weir-lab
	$(TARGET)/release/weir-lab attack --weir $(WEIR) $(ARGS)

# DIR= is a directory with the files, as OWNER+NAME/PATH; without DIR=, the files are fetched to ~/.cache/weir-corpus.
# ARGS: --kind nginx, --show, --run (compares haproxy and nginx with Weir; needs root), --program nginx:PATH (instead of
# the one in PATH; several are tried in turn), --modules DIR (nginx modules), --held-out (the half of the files that
# is measured only at the end).
corpus: build ## measure what share of real configurations the importers convert: make corpus [DIR=...]
	tools/corpus.py --weir $(WEIR) $(if $(DIR),--dir "$(DIR)",--fetch) $(ARGS)

lab: require-root build ## run an experiment: make lab NAME=saturated-uplink [ARGS="--repeat 3"]
	@if [[ -z "$(NAME)" ]]; then echo "make lab needs NAME=EXPERIMENT; the experiments are:"; $(WEIR) lab list; exit 2; fi
	$(WEIR) lab run $(NAME) --report $(TARGET)/lab $(ARGS)

deb: build ## build the Debian packages: weir, and weir-ipvsadm for scripts that call ipvsadm
	@tools/build-deb.sh $(WEIR) $(TARGET)/debian

# WEIR_SIGNING_KEY is the key that signs the apt repository and SHA256SUMS; without it, a key is generated for this
# repository, and SHA256SUMS is not signed. Makes three release builds, on an amd64 machine; ARM64= omits arm64.
ARM64 ?= yes
AMD64_PROGRAM := $(DIST)/x86_64-unknown-linux-gnu/dist/weir
ARM64_PROGRAM := $(DIST)/aarch64-unknown-linux-gnu/dist/weir
TRIPLES := x86_64-unknown-linux-gnu x86_64-unknown-linux-musl $(if $(ARM64),aarch64-unknown-linux-gnu)

packages: require-cargo ## build all artifacts into target/packages: deb, apt repository, RPM, static program, image, bill of materials
	@rm -rf $(TARGET)/packages
	@$(MAKE) --no-print-directory static
	@tools/build-dist.sh x86_64-unknown-linux-gnu $(DIST)
	@tools/build-deb.sh $(AMD64_PROGRAM) $(TARGET)/packages/deb
	@if [[ -n "$(ARM64)" ]]; then tools/build-dist.sh aarch64-unknown-linux-gnu $(DIST) && \
	  WEIR_NATIVE=$(AMD64_PROGRAM) WEIR_PACKAGE_ARCH=arm64 CROSS=aarch64-linux-gnu- \
	    tools/build-deb.sh $(ARM64_PROGRAM) $(TARGET)/packages/deb; fi
	@tools/build-repository.sh $(TARGET)/packages/apt $(TARGET)/packages/deb/*.deb
	@tools/build-image.sh $(STATIC) $(TARGET)/packages
	@tools/build-sbom.py $(CARGO) $(TRIPLES) >$(TARGET)/packages/weir.cdx.json && echo $(TARGET)/packages/weir.cdx.json
	@if command -v rpmbuild >/dev/null; then tools/build-rpm.sh $(AMD64_PROGRAM) $(TARGET)/packages; else echo "no RPM was built: rpmbuild is missing"; fi
	@cd $(TARGET)/packages && find . -type f ! -name SHA256SUMS -print0 | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS
	@[[ -z "$${WEIR_SIGNING_KEY:-}" ]] || gpg --batch --yes --quiet --local-user "$$WEIR_SIGNING_KEY" --armor --detach-sign \
	  $(TARGET)/packages/SHA256SUMS

# The version is pinned, because a different version can change the site's layout. Without network access, set MDBOOK to
# an installed mdbook.
MDBOOK_VERSION := 0.5.4
MDBOOK ?= $(TARGET)/tools/bin/mdbook

docs: require-cargo ## build the manual as a site with search: target/docs/index.html
	@if ! [[ "$$($(MDBOOK) --version 2>/dev/null)" == "mdbook v"* ]]; then \
	  $(CARGO) install --locked --root $(TARGET)/tools --version $(MDBOOK_VERSION) --no-default-features --features search mdbook; fi
	$(MDBOOK) build --dest-dir $(abspath $(TARGET))/docs docs/manual
	@echo "the manual: $(TARGET)/docs/index.html"

clean: require-cargo ## remove the build results
	$(CARGO) clean

require-root:
	@if [[ $$(id -u) -ne 0 ]]; then \
	  echo "This needs root: it creates network namespaces and loads BPF programs in them." >&2; \
	  echo "It does not change addresses, rules or services of this machine. Try: sudo -E make $(MAKECMDGOALS)" >&2; exit 1; fi

require-cargo:
	@tools/require-cargo.sh

# For people, packagers, and .ci/run. `make setup demo` is all a fresh Debian machine needs.

# Absolute, and without blanks and colons: module file and unit name it, and what is preloaded is a
# list of paths.
PREFIX ?= /usr/local
CARGO ?= cargo
# Where the rules below and the tests find what was built, whatever the user's shell says.
export CARGO_TARGET_DIR := $(CURDIR)/target
export PATH := $(HOME)/.cargo/bin:$(PATH)

# The Python of the Python workload: the one `make setup` makes, if it did.
export PY ?= $(if $(wildcard target/venv/bin/python),$(CURDIR)/target/venv/bin/python,python3)

# Where models run: executor and shared memory, the two places with hand-written ordering.
MODELLED := -p executor -p shm
# `preload` is no_std with a panic handler of its own: it builds under its own profile only.
PRELOAD := -p preload --profile preload
WHOLE := --workspace --exclude preload

# What `kakehi manual` writes: pages, and completions for three shells.
MANUAL := man/man1/kakehi.1 man/man1/kakehi-*.1 man/man3/kakehi.3 man/man5/kakehi.toml.5 \
	bash-completion/completions/kakehi.bash zsh/site-functions/_kakehi fish/vendor_completions.d/kakehi.fish
# Where module files are looked for is the site's: `module use PREFIX/share/modulefiles`.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
MODULE := share/modulefiles/kakehi/$(VERSION)
UNIT := lib/systemd/system/kakehi-serve@.service
# Names under which kakehi is SIONlib's tools.
SION_TOOLS := siondump sionsplit sioncat siondefrag sionversion

.DEFAULT_GOAL := build
.PHONY: help cargo build setup setup-demo demo test fmt clippy doc unit loom miri aarch64 e2e soak bench install install-mpi uninstall prefix packages wheel clean

# Needs neither cargo nor awk's newer features.
## help: this list
help:
	@echo "make TARGET, one of:"
	@sed -n 's/^## \([a-z0-9-]*\): /  \1 /p' $(firstword $(MAKEFILE_LIST)) | \
		awk '{ name = $$1; $$1 = ""; printf "  %-14s%s\n", name, $$0 }'
	@echo "PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) CARGO=$(CARGO)"

cargo:
	@command -v $(CARGO) >/dev/null || { \
		echo "make: there is no $(CARGO); 'make setup' installs what a build needs" >&2; exit 1; }

## build: compile everything, for use
build: cargo
	$(CARGO) build --release
	$(CARGO) build $(PRELOAD)

## setup: install what building and testing need
setup:
	sh packaging/setup.sh all

## setup-demo: install what the demonstration needs
setup-demo:
	sh packaging/setup.sh demo

## demo: programs natively and under kakehi: equal bytes, and the time each takes
demo: setup-demo build
	bash e2e/demo.sh

# Everything; under 25 minutes on 2 cores.
## test: everything the gate runs, under 25 minutes
test: fmt clippy doc build unit e2e loom miri aarch64
	@echo "make test: all passed"

## fmt: check the formatting
fmt:
	$(CARGO) fmt --all --check

# Debian 12 packages no clippy for its newer Rust; rustup has it.
## clippy: check for lints
clippy:
	@if $(CARGO) clippy --version >/dev/null 2>&1; then set -ex; \
		$(CARGO) clippy $(WHOLE) --all-targets -- -D warnings; \
		$(CARGO) clippy $(PRELOAD) -- -D warnings; \
	else echo "1 SKIPPED: clippy: this Rust has none"; fi

## doc: build the documentation of the code
doc:
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(CARGO) doc $(WHOLE) --no-deps --document-private-items

# What `nohup` or a shell's background has ignored, the programs of the tests would ignore, too.
TEST := env --default-signal=HUP,INT,QUIT,TERM $(CARGO) test

## unit: the tests of each package
unit:
	$(TEST) $(WHOLE) --exclude e2e

# Release: these tests run real programs, and the daemon they run is the one that is shipped. They
# wait more than they compute.
E2E := RUST_TEST_THREADS=$(shell expr 2 '*' $$(nproc)) $(TEST) --release -p e2e

## e2e: the tests with several processes
e2e: build
	$(E2E)

# Models are in modules named `loom_tests`. A target folder of its own: the flag rebuilds all.
## loom: models of orderings in shared memory
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --release --target-dir target/loom $(MODELLED) --lib loom

## miri: undefined behaviour in shared memory
miri:
	bash e2e/miri.sh $(MODELLED)

## aarch64: compile for another processor, by the oldest Rust
aarch64:
	bash e2e/aarch64.sh $(WHOLE) --all-targets
	bash e2e/aarch64.sh $(PRELOAD)

# The long tests: those marked #[ignore], another seed every time; and a million multifiles that
# lie, a hundred thousand writers that die, a million frames of clients that lie. A failure names
# its seed.
## soak: the long tests
soak: SEED ?= $(shell od -An -N4 -tu4 /dev/urandom)
soak: build
	SEED=$(strip $(SEED)) $(E2E) -- --ignored
	ROUNDS=1000000 $(TEST) --release -p multifile --test it mutated_files
	ROUNDS=100000 $(TEST) --release -p multifile --test it crash_at_any_write
	ROUNDS=2000 $(TEST) --release -p kakehi-sion --test it random_programs
	FRAMES=1000000 $(TEST) --release -p remote --lib frames_with_any_bytes_changed

# The peers of the bench `rpc`, some sixty crates, are built here and nowhere else.
## bench: measure this machine
bench: build
	$(CARGO) build --release -p bench --features peers
	target/release/kakehi bench delegate
	target/release/kakehi bench idle
	target/release/kakehi bench file
	target/release/kakehi bench rpc

# What is installed is everybody's to use, whatever the umask. `make -o build install` installs what
# is built: for root, who may have no cargo.
## install: install below PREFIX
install: prefix build
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib
	install -m 755 target/release/kakehi target/release/kakehi-bench $(DESTDIR)$(PREFIX)/bin
	install -m 644 target/preload/libkakehi_preload.so $(DESTDIR)$(PREFIX)/lib
	for tool in $(SION_TOOLS); do ln -sf kakehi $(DESTDIR)$(PREFIX)/bin/$$tool; done
	umask 022 && target/release/kakehi manual $(DESTDIR)$(PREFIX)/share
	install -d $(dir $(MODULE:%=$(DESTDIR)$(PREFIX)/%) $(UNIT:%=$(DESTDIR)$(PREFIX)/%))
	umask 022 && sed 's|@PREFIX@|$(PREFIX)|' packaging/modulefile >$(DESTDIR)$(PREFIX)/$(MODULE)
	umask 022 && sed 's|@PREFIX@|$(PREFIX)|' packaging/kakehi-serve@.service >$(DESTDIR)$(PREFIX)/$(UNIT)
	DESTDIR=$(DESTDIR) sh multifile/capi/install.sh target/release/libsion.a $(PREFIX)
	DESTDIR=$(DESTDIR) sh client/capi/install.sh target/release/libkakehi_capi.a $(PREFIX) $(VERSION)

# What is wrong with where to install: several words, a colon, or no absolute path.
UNFIT = $(filter-out 1,$(words $(PREFIX)))$(filter-out 0 1,$(words $(DESTDIR)))$(findstring \
	:,$(PREFIX))$(filter-out /%,$(PREFIX))

prefix:
	@$(if $(UNFIT),$(error PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)': PREFIX has to be absolute, \
		without blanks and colons, DESTDIR without blanks))

# A wheel in dist/ for `pip install`: the Python module, the command, and the libraries.
DIST ?= $(CURDIR)/dist

## wheel: a Python wheel of everything, in dist/
wheel: build
	sh python/wheel.sh $(VERSION) $(DIST)

# A format whose tools are missing is skipped, with the reason.
## packages: a .deb, an .rpm, a tarball, and a wheel, in dist/
packages: build
	DIST=$(DIST) sh packaging/packages.sh

# What the site's compilers build, beside an installed libsion: OpenMP, Fortran, and one MPI. Again
# with another MPICC for a second MPI; DIR/lib/openmpi and DIR/lib/mpich then stand side by side.
## install-mpi: what the site's compilers build, beside an installed libsion
install-mpi: prefix
	DESTDIR=$(DESTDIR) sh multifile/capi/install-shims.sh $(PREFIX) omp fortran mpi

## uninstall: remove what install put below PREFIX
uninstall: prefix
	DESTDIR=$(DESTDIR) sh multifile/capi/install-shims.sh --remove $(PREFIX)
	rm -f $(DESTDIR)$(PREFIX)/bin/kakehi $(DESTDIR)$(PREFIX)/bin/kakehi-bench
	rm -f $(SION_TOOLS:%=$(DESTDIR)$(PREFIX)/bin/%)
	rm -f $(DESTDIR)$(PREFIX)/lib/libkakehi_preload.so
	rm -f $(MANUAL:%=$(DESTDIR)$(PREFIX)/share/%)
	rm -f $(DESTDIR)$(PREFIX)/$(MODULE) $(DESTDIR)$(PREFIX)/$(UNIT)
	rmdir $(DESTDIR)$(PREFIX)/$(dir $(MODULE)) 2>/dev/null || true
	DESTDIR=$(DESTDIR) sh multifile/capi/install.sh --remove $(PREFIX)
	DESTDIR=$(DESTDIR) sh client/capi/install.sh --remove $(PREFIX)

## clean: remove what was built
clean:
	$(CARGO) clean

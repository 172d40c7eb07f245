# SPDX-License-Identifier: Apache-2.0
# Builds Tarn. Sources are found by wildcard, so a new file needs no line here; a room without
# sources is left out. Everything that is made lies under build/. `make help` lists the targets.

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:
SHELL := /bin/bash
.DEFAULT_GOAL := all

# ---- switches ------------------------------------------------------------------------------
# SAN=address,undefined or SAN=thread  a sanitizer build, in a folder of its own
# WERROR=1                             warnings are errors (CI)
# V=1                                  print the commands
# PROMPT=TEXT                          what make run asks
# T=NAME                               only tests whose name contains NAME
# ROOMS=LIST                           only the tests of these rooms: ROOMS="unit engine"
# B=DIR                                build in DIR instead of build/
# NVCC=PATH                            the CUDA compiler; NVCC= builds without the GPU's kernels
# CI=1                                 check does all that .ci/run asks for
# GPU_BUILD=DIR                        check-gpu and bench-gpu run what lies built in DIR
SAN ?=
WERROR ?=
V ?=
T ?=
PREFIX ?= /usr/local
DESTDIR ?=
KDIR ?= /lib/modules/$(shell uname -r)/build
MODULE_DIR ?= build
GPU_BUILD ?=
PROMPT ?= Explain in two sentences what an operating system does.
export PROMPT

comma := ,
empty :=
space := $(empty) $(empty)

ifneq ($(SAN),)
B ?= build/san-$(subst $(space),-,$(subst $(comma),-,$(SAN)))
else
B ?= build
endif

ifeq ($(V),)
Q := @
msg = @printf '  %-7s %s\n' '$(1)' '$(2)';
else
Q :=
msg =
endif

# ---- flags ---------------------------------------------------------------------------------
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
AR := ar
PKG_CONFIG ?= pkg-config
PKGS := libevent jansson libpcre2-8 libcurl libcrypto liburcu libedit

# libedit's folder holds a copy of readline.h, which nobody here wants; <histedit.h> needs no flag.
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(filter-out libedit,$(PKGS)) 2>/dev/null)
PKG_LIBS := $(shell for p in $(PKGS); do $(PKG_CONFIG) --libs $$p 2>/dev/null; done)

OPT ?= $(if $(SAN),-O1,-O2)
KERNEL_OPT ?= $(if $(SAN),-O2,-O3)
CFLAGS ?= -g
WARN := -Wall -Wextra $(if $(filter-out 0,$(WERROR)),-Werror)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)

# -ffp-contract=off: every fused multiply-add is written, none is made by the compiler, so that
# plain C and SIMD kernels give the same bits.
TARN_CFLAGS = -std=gnu11 $(OPT) $(CFLAGS) $(WARN) -ffp-contract=off -fno-strict-aliasing \
	-pthread -D_GNU_SOURCE -I. $(PKG_CFLAGS) $(SANFLAGS)
LDLIBS := -Wl,--as-needed $(PKG_LIBS) -lnuma -ldl -lm -pthread
TARN_LDFLAGS = $(LDFLAGS) $(SANFLAGS) -pthread

# Only files named after an instruction set may use it; the rest runs on any x86-64 and picks by
# cpuid at run time.
AVX2_FLAGS := -mavx2 -mfma -mf16c
AVX512_FLAGS := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c -mavx2
# GCC before 13.3 places 64-byte vectors on AddressSanitizer's stack at 32-byte borders and stores
# to them with aligned instructions (GCC bug 110027): those files do without the stack's red zones.
AVX512_SAN := $(if $(findstring address,$(SAN)),--param=asan-stack=0)
isa_flags = $(if $(filter %_avx2.c,$(1)),$(AVX2_FLAGS)) \
	$(if $(filter %_avx512.c,$(1)),$(AVX512_FLAGS) $(AVX512_SAN))
opt_flags = $(if $(filter kernels/cpu/%,$(1)),$(KERNEL_OPT))

# ---- sources -------------------------------------------------------------------------------
KERNEL_SRC := $(wildcard kernels/cpu/*.c kernels/cuda/*.c)
ENGINE_SRC := $(wildcard engine/*.c engine/*/*.c)
KVPOOL_SRC := $(wildcard engine/kv/kvpool_*.c)
CLI_SRC := $(wildcard daemon/cli_*.c)
DAEMON_SRC := $(filter-out $(CLI_SRC),$(wildcard daemon/*.c))
TEST_SRC := $(wildcard tests/*/test_*.c)
BENCH_SRC := $(wildcard tests/bench/bench_*.c)
# Any other C file in a test room is a helper, linked into that room's tests where needed.
HELP_SRC := $(filter-out $(TEST_SRC) $(BENCH_SRC),$(wildcard tests/*/*.c))

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
ENGINE_OBJ := $(call obj,$(KERNEL_SRC) $(ENGINE_SRC))
DAEMON_OBJ := $(call obj,$(DAEMON_SRC))
CLI_OBJ := $(call obj,$(CLI_SRC))
HELP_OBJ := $(call obj,$(HELP_SRC))
KVPOOL_OBJ := $(patsubst %.c,$(B)/pic/%.o,$(KVPOOL_SRC))
TEST_BIN := $(patsubst %.c,$(B)/%,$(TEST_SRC))
BENCH_BIN := $(patsubst %.c,$(B)/%,$(BENCH_SRC))

# Every kernels/cuda/NAME.cu becomes build/gpu/NAME.cubin, and all of them the table that
# kernels/cuda/images.h tells of. They know nothing of SAN and B: all builds share them. nvcc is
# looked for on PATH, in CUDA_HOME, and where scripts/setup --cuda puts it.
CUDA_HOME ?= /usr/local/cuda
CUDA_CACHE := $(or $(TARN_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tarn)/cuda
ifeq ($(origin NVCC),undefined)
NVCC := $(firstword $(shell command -v nvcc 2>/dev/null) \
	$(wildcard $(CUDA_HOME)/bin/nvcc $(CUDA_CACHE)/nvidia/cu*/bin/nvcc))
endif
# -fmad=false: as -ffp-contract=off above.
NVCC_FLAGS := -std=c++17 -O3 -I. -gencode arch=compute_90a,code=sm_90a -fmad=false
# A kernel that spills fails the build.
IMAGE_FLAGS := $(NVCC_FLAGS) -lineinfo -Xptxas=-v,--warn-on-spills,--warning-as-error
GPU := build/gpu
IMAGE_NAMES := $(if $(NVCC),$(patsubst kernels/cuda/%.cu,%,$(sort $(wildcard kernels/cuda/*.cu))))
IMAGES := $(IMAGE_NAMES:%=$(GPU)/%.cubin)
IMAGE_TABLE := $(if $(wildcard kernels/cuda/images.c),$(GPU)/image_table.o)
# The probes of scripts/bench-gpu-probe, and what of the CPU's part they compare with.
PROBES := $(if $(NVCC),$(patsubst tests/bench/%.cu,$(GPU)/%,$(wildcard tests/bench/gpu_*.cu)))
PROBE_OBJ := $(call obj,$(filter-out kernels/cuda/images.c,$(KERNEL_SRC)) \
	$(wildcard engine/backend/sample.c engine/backend/sample_filter.c))
# Copies of those images that follow what racecheck can see: kernels/cuda/linear_ring.cuh.
RACE_NAMES := linear_bf16 linear_large linear_quant linear_sums
RACE_IMAGES := $(if $(NVCC),$(RACE_NAMES:%=$(GPU)/races/%.cubin))
RACE_BENCH := $(if $(NVCC),$(GPU)/races/bench_gpu)
GPU_BENCHES := build/tests/bench/bench_gpu build/tests/bench/bench_attach
GPU_TESTS := $(patsubst %.c,build/%,$(wildcard tests/gpu/test_*.c)) \
	$(addprefix build/tests/engine/,test_kvpool_gpu test_logits test_same_bits) \
	build/tests/bench/bench_gpu

# A program is built once a file of its room holds main().
has_main = $(if $(1),$(shell grep -ls '^int main\>' $(1)))
PROGRAMS := $(if $(call has_main,$(DAEMON_SRC)),$(B)/tarnd) \
	$(if $(call has_main,$(CLI_SRC)),$(B)/tarn) \
	$(if $(KVPOOL_SRC),$(B)/libkvpool.so)

# A sub-make takes part in the -j of the call, or uses every core.
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
RUN_TESTS = scripts/run-tests $(if $(T),-t '$(T)') $(if $(filter-out 0,$(V)),-v) $(ROOMS)

# The pass under sanitizers that CI adds, and the rooms it covers.
CI ?=
CI_SAN := address,undefined
CI_SAN_DIR := build/san-address-undefined
CI_SAN_ROOMS := unit,kernels,engine,daemon

# ---- targets -------------------------------------------------------------------------------
.PHONY: all setup run check test tests bench lint lint-kmod fmt modules install clean help deps
.PHONY: install-system install-modules vm-modules vm-demo check-debug FORCE
.PHONY: gpu-probes check-gpu bench-gpu

# The images first: one of them takes longer than all else.
all: $(IMAGE_TABLE) $(PROGRAMS) $(B)/libengine.a ## build tarnd, tarn and libkvpool.so into build/

setup: ## install the Debian packages that are missing, and the tests' Python packages
	$(Q)scripts/setup --tests

run: ## set up, build, fetch the default model, ask it PROMPT and print answer and speed
	$(Q)scripts/setup
	$(Q)$(SUBMAKE) all
	$(Q)scripts/fetch-model smollm2 >/dev/null
	$(Q)$(B)/tarn run "$$PROMPT"

check: ## set up, build and run every test; where CI is set, under sanitizers too
	$(Q)scripts/setup --tests
	$(Q)$(SUBMAKE) all tests vm-modules
ifneq ($(CI),)
	$(Q)$(SUBMAKE) SAN=$(CI_SAN) B=$(CI_SAN_DIR) tests
	$(Q)$(RUN_TESTS) --need-models --build-dir $(B) --build-dir $(CI_SAN_DIR):$(CI_SAN_ROOMS)
else
	$(Q)$(RUN_TESTS) --build-dir $(B)
endif

tests: $(IMAGE_TABLE) $(TEST_BIN) $(PROGRAMS) ## build the tests without running them

test: tests ## run the tests of one build without setting up (T=, ROOMS=, SAN=)
	$(Q)$(RUN_TESTS) --build-dir $(B)

bench: $(BENCH_BIN) $(PROGRAMS) ## build and run the benchmarks, one after the other
	$(Q)scripts/run-tests --bench --build-dir $(B) $(if $(T),-t '$(T)')

# Programs under sanitizers are not for the GPU.
GPU_SUBMAKE = $(SUBMAKE) SAN= B=build
# Real models, where they are named or can be had: as scripts/run-tests does.
fetched = $(1)="$${$(1):-$$(scripts/fetch-model $(2) 2>/dev/null)}"
GPU_MODELS = $(if $(GPU_BUILD),,$(call fetched,TARN_TEST_MODEL,smollm2) \
	$(call fetched,TARN_TEST_MODEL_GEMMA,gemma3))

gpu-probes: $(IMAGES) $(PROBES) ## build what scripts/bench-gpu-probe runs
	$(if $(NVCC),,@echo "no nvcc: scripts/setup --cuda fetches it, NVCC= names it" >&2; exit 1)

# What is built elsewhere is run as it is, where GPU_BUILD names its folder.
check-gpu: ## every check that needs a GPU, in one go; GPU_BUILD=DIR: of what lies there built
	$(if $(GPU_BUILD),,$(Q)$(GPU_SUBMAKE) all $(PROBES) $(RACE_IMAGES) $(RACE_BENCH) \
		$(GPU_TESTS))
	$(Q)$(GPU_MODELS) scripts/check-gpu --build-dir $(or $(GPU_BUILD),build) \
		$(if $(T),-t '$(T)')

bench-gpu: ## every bar of the GPU, beside PyTorch where it is installed; GPU_BUILD=DIR as above
	$(if $(GPU_BUILD),,$(Q)$(GPU_SUBMAKE) all $(PROBES) $(GPU_BENCHES))
	$(Q)scripts/bench-gpu --build-dir $(or $(GPU_BUILD),build) $(if $(T),-t '$(T)')

lint: ## check style, the arrows between rooms and the kernel module's ABI
	$(Q)scripts/check-style
	$(Q)scripts/check-deps
	$(Q)scripts/check-abi
	$(Q)scripts/check-kmod

lint-kmod: ## the kernel's checkpatch and sparse over the module (part of lint)
	$(Q)scripts/check-kmod

fmt: ## lay out the C files by .clang-format
	$(Q)git ls-files -co --exclude-standard '*.c' '*.h' | xargs -r clang-format -i

# Copied where the content differs, with the time of now: a time that was taken over may lie before
# a build that began before the change, and make would miss it.
modules: ## build kvpool.ko into build/ (MODULE_DIR=) against KDIR (the running kernel's headers)
	$(Q)if [ ! -d "$(KDIR)" ]; then \
		echo "no kernel headers at $(KDIR): install them, or name others by KDIR=" >&2; \
		exit 1; \
	fi
	$(Q)mkdir -p $(MODULE_DIR)/kmod/kmod $(MODULE_DIR)/kmod/uapi
	$(Q)cd $(MODULE_DIR)/kmod && for f in kmod/*.[ch] uapi/*.h; do \
		[ -e "$(CURDIR)/$$f" ] || rm -f "$$f"; done
	$(Q)for f in Kbuild kmod/*.[ch] uapi/*.h; do \
		cmp -s "$$f" $(MODULE_DIR)/kmod/"$$f" || cp "$$f" $(MODULE_DIR)/kmod/"$$f"; done
	$(Q)$(MAKE) -C "$(KDIR)" M="$(CURDIR)/$(MODULE_DIR)/kmod" modules
	$(Q)cp $(MODULE_DIR)/kmod/kvpool.ko $(MODULE_DIR)/

vm-modules: ## build kvpool.ko and the tests' module for the kernel of scripts/vm-run
	$(Q)kdir=$$(scripts/vm-run $(VM_KERNEL) --print-kdir) || { \
		echo "vm-modules: no kernel to test with: the module is not built"; exit 0; }; \
	$(SUBMAKE) modules KDIR="$$kdir" >/dev/null && \
	tests/kmod/pin/build "$$kdir" $(MODULE_DIR) >/dev/null

vm-demo: all vm-modules ## two daemons on one pool of the module, in a virtual machine
	$(Q)TARN_TEST_MODEL=$$(scripts/fetch-model smollm2) TARN_TEST_PROMPT_TOKENS=400 \
		scripts/vm-run --mem 3G --timeout 3000 -- sh -c \
		'insmod build/kvpool.ko && tests/kmod/test_daemons.py'

check-debug: ## the module's tests on a kernel with KASAN, lockdep and fault injection (an hour)
	$(Q)scripts/setup --tests
	$(Q)$(SUBMAKE) all tests
	$(Q)$(SUBMAKE) vm-modules VM_KERNEL=--debug-kernel MODULE_DIR=build/debug
	$(Q)TARN_KVPOOL_KO=$(CURDIR)/build/debug/kvpool.ko \
		TARN_KVPOOL_PIN_KO=$(CURDIR)/build/debug/kvpool_pin.ko \
		TARN_TEST_KILLS=10000 TARN_TEST_FUZZ_SECONDS=600 \
		TARN_TEST_SQUEEZE_SECONDS=600 TARN_TEST_TIME_SCALE=8 \
		TARN_TEST_MODEL=$$(scripts/fetch-model smollm2) \
		scripts/vm-run --debug-kernel --mem 4G --timeout 21600 -- tests/kmod/run-in-vm

install: all ## install below PREFIX (/usr/local), with DESTDIR in front
	$(Q)install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/lib" \
		"$(DESTDIR)$(PREFIX)/include" "$(DESTDIR)$(PREFIX)/share/man/man1" \
		"$(DESTDIR)$(PREFIX)/libexec/tarn"
	$(Q)install -m 755 scripts/fetch-model "$(DESTDIR)$(PREFIX)/libexec/tarn/"
	$(Q)for p in tarnd tarn; do \
		if [ -f "$(B)/$$p" ]; then \
			install -m 755 "$(B)/$$p" "$(DESTDIR)$(PREFIX)/bin/"; fi; done
	$(Q)if [ -f "$(B)/libkvpool.so" ]; then \
		install -m 755 "$(B)/libkvpool.so" \
			"$(DESTDIR)$(PREFIX)/lib/$(KVPOOL_SONAME)"; \
		ln -sf $(KVPOOL_SONAME) "$(DESTDIR)$(PREFIX)/lib/libkvpool.so"; \
		install -m 644 engine/kv/libkvpool.h "$(DESTDIR)$(PREFIX)/include/"; fi
	$(Q)if [ -f uapi/kvpool.h ]; then \
		install -D -m 644 uapi/kvpool.h \
			"$(DESTDIR)$(PREFIX)/include/linux/kvpool.h"; fi
	$(Q)for m in $(wildcard daemon/*.1); do \
		install -m 644 "$$m" "$(DESTDIR)$(PREFIX)/share/man/man1/"; done
ifneq ($(and $(wildcard scripts/install),$(or $(DESTDIR),$(filter /usr /usr/local,$(PREFIX)))),)
	$(Q)$(MAKE) --no-print-directory install-system
endif

# Where the system looks for these is not for PREFIX to say, so an installation elsewhere goes
# without. The module's sources go where DKMS looks; kvpool.ko itself is for install-modules.
SYSTEM_LIB ?= /usr/lib
SYSTEM_SRC ?= /usr/src
KVPOOL_VERSION = $(shell sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' scripts/install/dkms.conf)
DKMS_DIR = $(DESTDIR)$(SYSTEM_SRC)/kvpool-$(KVPOOL_VERSION)

install-system: ## of install: systemd units, group and user, udev rule, module options, DKMS
	$(Q)install -d "$(DESTDIR)$(SYSTEM_LIB)/systemd/system" \
		"$(DESTDIR)$(SYSTEM_LIB)/sysusers.d" "$(DESTDIR)$(SYSTEM_LIB)/udev/rules.d" \
		"$(DESTDIR)$(SYSTEM_LIB)/modprobe.d" "$(DKMS_DIR)/kmod" "$(DKMS_DIR)/uapi"
	$(Q)for unit in tarnd.service tarnd.socket; do \
		sed 's|@BINDIR@|$(PREFIX)/bin|g' scripts/install/$$unit \
			>"$(DESTDIR)$(SYSTEM_LIB)/systemd/system/$$unit" && \
		chmod 644 "$(DESTDIR)$(SYSTEM_LIB)/systemd/system/$$unit" || exit 1; done
	$(Q)install -m 644 scripts/install/sysusers-tarn.conf \
		"$(DESTDIR)$(SYSTEM_LIB)/sysusers.d/tarn.conf"
	$(Q)install -m 644 scripts/install/60-kvpool.rules "$(DESTDIR)$(SYSTEM_LIB)/udev/rules.d/"
	$(Q)install -m 644 scripts/install/modprobe-kvpool.conf \
		"$(DESTDIR)$(SYSTEM_LIB)/modprobe.d/kvpool.conf"
	$(Q)install -m 644 scripts/install/dkms.conf Kbuild "$(DKMS_DIR)/"
	$(Q)install -m 644 kmod/*.[ch] "$(DKMS_DIR)/kmod/"
	$(Q)install -m 644 uapi/*.h "$(DKMS_DIR)/uapi/"

install-modules: modules ## build and install kvpool.ko for the kernel of KDIR, to be loaded at boot
	$(Q)release=$$(sed -n 's/.*UTS_RELEASE "\(.*\)".*/\1/p' \
		"$(KDIR)/include/generated/utsrelease.h") && [ -n "$$release" ] && \
	modules="$(DESTDIR)/lib/modules/$$release" && \
	install -d "$$modules/updates" "$(DESTDIR)$(SYSTEM_LIB)/modules-load.d" && \
	install -m 644 $(MODULE_DIR)/kvpool.ko "$$modules/updates/" && \
	install -m 644 scripts/install/modules-load-kvpool.conf \
		"$(DESTDIR)$(SYSTEM_LIB)/modules-load.d/kvpool.conf" && \
	if [ -z "$(DESTDIR)" ]; then depmod "$$release"; fi

clean: ## remove build/
	$(Q)rm -rf build

help: ## list the targets
	@echo "Targets:"
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		awk -F'|' '{ printf "%-16s %s\n", $$1, $$2 }'
	@echo "Switches:"
	@sed -n 's/^# \([A-Z]*=[^ ]*.*[a-z].*\)/  \1/p' $(firstword $(MAKEFILE_LIST))

# What is not installed stops the build with the way out, instead of a missing header somewhere.
MISSING := $(shell for p in $(PKGS); do $(PKG_CONFIG) --exists $$p 2>/dev/null || echo $$p; done) \
	$(if $(wildcard /usr/include/numa.h /usr/local/include/numa.h),,libnuma)
deps:
ifneq ($(strip $(MISSING)),)
	@echo "not installed: $(strip $(MISSING)). Run: make setup" >&2; exit 1
endif

# ---- libraries and programs ----------------------------------------------------------------
KVPOOL_SONAME := libkvpool.so.0

# Written only when its text changes, so that other flags or another list of files rebuild what
# depends on them and the same ones rebuild nothing.
define write_if_changed
	@mkdir -p $(@D); printf '%s\n' '$(1)' | cmp -s - $@ || printf '%s\n' '$(1)' > $@
endef

$(B)/flags: FORCE
	$(call write_if_changed,$(CC) $(TARN_CFLAGS) $(KERNEL_OPT) $(AVX2_FLAGS) $(AVX512_FLAGS))
$(B)/libengine.list: FORCE
	$(call write_if_changed,$(ENGINE_OBJ) $(IMAGE_TABLE))
$(B)/libdaemon.list: FORCE
	$(call write_if_changed,$(DAEMON_OBJ) $(CLI_OBJ))
$(B)/libhelp.list: FORCE
	$(call write_if_changed,$(HELP_OBJ))

# The output appears by rename, so that two makes at once cannot read half a file.
define archive
	$(call msg,AR,$@)tmp=$@.$$$$; rm -f $$tmp && \
		$(AR) qcsD $$tmp $(filter %.o,$^) && mv -f $$tmp $@
endef
define link
	$(call msg,LINK,$@)mkdir -p $(@D); $(CC) $(TARN_LDFLAGS) -o $@.$$$$ $(1) $(LDLIBS) && \
		mv -f $@.$$$$ $@
endef
define compile
	$(call msg,CC,$<)mkdir -p $(@D); \
		$(CC) $(TARN_CFLAGS) $(call opt_flags,$<) $(call isa_flags,$<) $(1) \
		-MMD -MP -MF $(@:.o=.d) -MT $@ -c -o $@.$$$$ $< && mv -f $@.$$$$ $@
endef

$(B)/obj/%.o: %.c $(B)/flags | deps
	$(call compile,)

$(B)/pic/%.o: %.c $(B)/flags | deps
	$(call compile,-fPIC)

$(B)/libengine.a: $(ENGINE_OBJ) $(IMAGE_TABLE) $(B)/libengine.list
	$(archive)
$(B)/libdaemon.a: $(DAEMON_OBJ) $(CLI_OBJ) $(B)/libdaemon.list
	$(archive)
$(B)/libhelp.a: $(HELP_OBJ) $(B)/libhelp.list
	$(archive)

$(B)/tarnd: $(DAEMON_OBJ) $(B)/libengine.a
	$(call link,$(filter %.o,$^) $(B)/libengine.a)

# The command line shares files with the daemon: the linker takes those it needs.
$(B)/tarn: $(CLI_OBJ) $(B)/libdaemon.a $(B)/libengine.a
	$(call link,$(filter %.o,$^) $(B)/libdaemon.a $(B)/libengine.a)

# Exactly what the public header declares is exported: the compiler lists its prototypes.
$(B)/libkvpool.map: engine/kv/libkvpool.h $(B)/flags
	$(Q)mkdir -p $(@D); echo '#include "$<"' | \
		$(CC) $(TARN_CFLAGS) -x c -fsyntax-only -aux-info $@.aux - && \
	{ echo '{ global:'; \
	  sed -n 's|^/\* $<:.* extern .*[ *]\(kvpool_[a-z0-9_]*\) (.*|  \1;|p' $@.aux; \
	  echo '  local: *; };'; } > $@; rm -f $@.aux

$(B)/libkvpool.so: $(KVPOOL_OBJ) $(B)/libkvpool.map
	$(call link,-shared -Wl$(comma)-soname$(comma)$(KVPOOL_SONAME) \
		-Wl$(comma)--version-script$(comma)$(B)/libkvpool.map \
		$(if $(SAN),,-Wl$(comma)-z$(comma)defs) $(filter %.o,$^))
	$(Q)ln -sf libkvpool.so $(B)/$(KVPOOL_SONAME)

# ---- kernels of the GPU --------------------------------------------------------------------
$(GPU)/flags: FORCE
	$(call write_if_changed,$(NVCC) $(IMAGE_FLAGS))
$(GPU)/images.list: FORCE
	$(call write_if_changed,$(IMAGE_NAMES))

# What ptxas says of registers and spills is kept in NAME.log; only what else is said is shown.
$(IMAGES): $(GPU)/%.cubin: kernels/cuda/%.cu $(GPU)/flags
	$(call msg,NVCC,$<)to=$(GPU)/$*; $(NVCC) $(IMAGE_FLAGS) \
		-MD -MP -MF $$to.d -MT $@ -cubin -o $@.$$$$ $< >$$to.log.$$$$ 2>&1; ret=$$?; \
		mv -f $$to.log.$$$$ $$to.log; \
		if [ $$ret != 0 ]; then cat $$to.log >&2; rm -f $@.$$$$; exit 1; fi; \
		grep -Ev '^ptxas info |^ +[0-9]+ bytes stack frame' $$to.log >&2; \
		mv -f $@.$$$$ $@

# $(1): name, $(2): names whose copies for a race checker are taken
define image_bytes
	.balign 64
image_$(1): .incbin "$(GPU)/$(if $(filter $(1),$(2)),races/)$(1).cubin"
end_$(1):
name_$(1): .string "$(1)"

endef
define image_row
	.quad name_$(1), image_$(1), end_$(1) - image_$(1)

endef
define image_table
	.section .rodata.gpu_images, "a", @progbits
	.globl nr_gpu_images, gpu_image_table
	.balign 8
nr_gpu_images: .quad $(words $(IMAGE_NAMES))
$(foreach name,$(IMAGE_NAMES),$(call image_bytes,$(name),$(1)))
	.section .data.rel.ro.gpu_images, "aw", @progbits
	.balign 8
gpu_image_table:
$(foreach name,$(IMAGE_NAMES),$(call image_row,$(name)))
	.section .note.GNU-stack, "", @progbits
endef

# Where nvcc is missing it is said here, once in a build folder.
$(GPU)/image_table.s: export text = $(call image_table,)
$(GPU)/image_table.s: $(GPU)/images.list
	$(Q)printf '%s\n' "$$text" > $@
	$(if $(NVCC),,@echo 'no nvcc: built without the kernels of the GPU' \
		'(scripts/setup --cuda fetches it, NVCC= names it)')

$(GPU)/image_table.o: $(GPU)/image_table.s $(IMAGES)
	$(call msg,AS,$@)$(CC) -c -o $@.$$$$ $< && mv -f $@.$$$$ $@

$(RACE_IMAGES): $(GPU)/races/%.cubin: kernels/cuda/%.cu $(GPU)/flags
	$(call msg,NVCC,$@)mkdir -p $(@D); $(NVCC) $(NVCC_FLAGS) -lineinfo -DGPU_CHECK_RACES \
		-MD -MP -MF $(@:.cubin=.d) -MT $@ -cubin -o $@.$$$$ $< && mv -f $@.$$$$ $@

$(GPU)/races/image_table.s: export text = $(call image_table,$(RACE_NAMES))
$(GPU)/races/image_table.s: $(GPU)/images.list
	$(Q)mkdir -p $(@D); printf '%s\n' "$$text" > $@

$(GPU)/races/image_table.o: $(GPU)/races/image_table.s $(IMAGES) $(RACE_IMAGES)
	$(call msg,AS,$@)$(CC) -c -o $@.$$$$ $< && mv -f $@.$$$$ $@

$(PROBES): $(GPU)/%: tests/bench/%.cu $(PROBE_OBJ) $(GPU)/flags
	$(call msg,NVCC,$<)$(NVCC) $(NVCC_FLAGS) -MD -MP -MF $@.d -MT $@ -o $@.$$$$ \
		$< $(PROBE_OBJ) -lcuda && mv -f $@.$$$$ $@

# ---- tests ---------------------------------------------------------------------------------
# tests/daemon may call the daemon's functions; every other room sees the engine only.
TEST_LIBS := $(B)/libhelp.a $(B)/libengine.a
DAEMON_TEST_LIBS := $(B)/libhelp.a $(B)/libdaemon.a $(B)/libengine.a

$(B)/tests/daemon/%: $(B)/obj/tests/daemon/%.o $(DAEMON_TEST_LIBS)
	$(call link,$< $(DAEMON_TEST_LIBS))
$(B)/tests/%: $(B)/obj/tests/%.o $(TEST_LIBS)
	$(call link,$< $(TEST_LIBS))

# A whole model with the images for a race checker: its table comes before the library's.
$(RACE_BENCH): $(B)/obj/tests/bench/bench_gpu.o $(GPU)/races/image_table.o $(TEST_LIBS)
	$(call link,$(filter %.o,$^) $(TEST_LIBS))

-include $(patsubst %.c,$(B)/obj/%.d,$(KERNEL_SRC) $(ENGINE_SRC) $(DAEMON_SRC) $(CLI_SRC) \
	$(TEST_SRC) $(BENCH_SRC) $(HELP_SRC)) $(patsubst %.c,$(B)/pic/%.d,$(KVPOOL_SRC)) \
	$(IMAGES:.cubin=.d) $(RACE_IMAGES:.cubin=.d) $(PROBES:=.d)

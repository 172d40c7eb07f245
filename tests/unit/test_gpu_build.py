#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU's kernels in the build: what became an image, spills, rebuilding, life without nvcc."""

import glob
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import make_kit
import tap

IMAGES = os.path.join(tap.ROOT, "build", "gpu")

# Prints the table, a row a line.
LISTER = """#include <stdint.h>
#include <stdio.h>
#include "kernels/cuda/images.h"
int main(void)
{
	size_t nr = 99;
	const struct gpu_image *images = gpu_images(&nr);

	for (size_t i = 0; i < nr; i++)
		printf("%s %zu <%.*s>\\n", images[i].name, (size_t)((uintptr_t)images[i].data % 64),
		       (int)images[i].bytes, (const char *)images[i].data);
	return 0;
}
"""
# Takes what the Makefile gives nvcc: the image is a word, and each call is one line of a log.
FAKE_NVCC = """#!/bin/bash
while [ $# -gt 1 ]; do
	case $1 in -o) to=$2 ;; -MF) deps=$2 ;; -MT) target=$2 ;; -DGPU_CHECK*) word=checked ;; esac
	shift
done
echo "$1" >>"$(dirname "$0")/calls"
echo "ptxas info    : Used 8 registers"
cat "$1"
echo "$target: $1" >"$deps"
grep -q error "$1" && exit 1
printf '%simage of %s' "$word" "$1" >"$to"
"""
# All values live from one round to the next: 64 of them do not fit in 24 registers. They differ by
# thread, or uniform registers would take what is too much.
WIDE = """#include "kernels/cuda/wide.cuh"
extern "C" __global__ void wide(float *x, int nr_rounds)
{
	float v[WIDTH];
#pragma unroll
	for (int i = 0; i < WIDTH; i++)
		v[i] = x[i * 1024 + threadIdx.x];
#pragma unroll 1
	for (int round = 0; round < nr_rounds; round++) {
#pragma unroll
		for (int i = 0; i < WIDTH; i++)
			v[i] += v[i] * v[(i + 7) % WIDTH];
	}
#pragma unroll
	for (int i = 0; i < WIDTH; i++)
		x[i * 1024 + threadIdx.x] = v[i];
}
"""


def find_nvcc():
    """Where the Makefile must find a compiler, but for the one that scripts/setup fetches."""
    if "NVCC" in os.environ:
        return os.environ["NVCC"]
    usual = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")
    return shutil.which("nvcc") or (usual if os.path.exists(usual) else "")


def kernels_of(log):
    """The kernels that a log of ptxas tells of: name -> (architecture, what it says)."""
    parts = re.split(r"ptxas info +: Compiling entry function '(\w+)' for '(\w+)'\n", log)[1:]
    return {parts[i]: (parts[i + 1], parts[i + 2]) for i in range(0, len(parts), 3)}


def first_number(pattern, text):
    return int(re.search(pattern, text).group(1))


@unittest.skipUnless(find_nvcc(), "there is no nvcc")
class Images(unittest.TestCase):
    """What this build made."""

    def names(self):
        sources = glob.glob(os.path.join(tap.ROOT, "kernels", "cuda", "*.cu"))
        return sorted(os.path.basename(source)[:-len(".cu")] for source in sources)

    def read(self, name):
        with open(os.path.join(IMAGES, name), "rb") as f:
            return f.read()

    def test_each_kernel_file_has_its_image(self):
        self.assertEqual(self.read("images.list").decode().split(), self.names())
        for name in self.names():
            with self.subTest(kernel=name):
                self.assertEqual(self.read(name + ".cubin")[:4], b"\x7fELF")

    def test_images_are_for_sm_90a(self):
        for name in self.names():
            with self.subTest(kernel=name):
                self.assertIn(b"-arch sm_90a ", self.read(name + ".cubin"))

    def test_no_kernel_spills(self):
        for name in self.names():
            kernels = kernels_of(self.read(name + ".log").decode())
            self.assertNotEqual(kernels, {}, name)
            for kernel, (arch, text) in kernels.items():
                spilled = (first_number(r"(\d+) bytes spill stores", text),
                           first_number(r"(\d+) bytes spill loads", text))
                registers = first_number(r"Used (\d+) registers", text)
                tap.comment(f"{name}: {kernel}: {registers} registers, "
                            f"{sum(spilled)} bytes spilled")
                with self.subTest(kernel=kernel):
                    self.assertEqual((arch, spilled), ("sm_90a", (0, 0)))


class Table(make_kit.MakeCase):
    """Small trees, with a script in the compiler's place."""

    def setUp(self):
        super().setUp()
        self.write({"tests/unit/test_a.c": LISTER, "nvcc": FAKE_NVCC,
                    "kernels/cuda/second.cu": "", "kernels/cuda/first.cu": ""})
        os.chmod(self.path("nvcc"), 0o755)
        for name in ("images.c", "images.h"):
            shutil.copy(os.path.join(tap.ROOT, "kernels", "cuda", name),
                        self.path("kernels/cuda"))

    def build(self, *arguments):
        return self.make("all", "tests", "WERROR=1", "NVCC=" + self.path("nvcc"), *arguments)

    def rows(self, build="build"):
        return subprocess.run([self.path(build + "/tests/unit/test_a")], text=True, check=True,
                              stdout=subprocess.PIPE).stdout.splitlines()

    def calls(self):
        with open(self.path("calls"), encoding="ascii") as f:
            return sorted(f.read().split())

    def test_each_kernel_file_is_a_row(self):
        self.build()
        self.assertEqual(self.rows(), ["first 0 <image of kernels/cuda/first.cu>",
                                       "second 0 <image of kernels/cuda/second.cu>"])

    def test_new_and_removed_files_change_the_table(self):
        self.build()
        self.write({"kernels/cuda/added.cu": ""})
        os.unlink(self.path("kernels/cuda/second.cu"))
        self.build()
        self.assertEqual([row.split()[0] for row in self.rows()], ["added", "first"])

    def test_changed_kernel_changes_its_image_only(self):
        self.build()
        self.write({"kernels/cuda/first.cu": "changed"})
        self.assertIn("AR ", self.build())
        self.assertEqual(self.calls(), ["kernels/cuda/first.cu", "kernels/cuda/first.cu",
                                        "kernels/cuda/second.cu"])

    def test_all_builds_share_the_images(self):
        self.build()
        self.build("SAN=address,undefined")
        self.build("B=" + self.path("elsewhere"))
        self.assertEqual(self.calls(), ["kernels/cuda/first.cu", "kernels/cuda/second.cu"])
        self.assertEqual(self.rows("build/san-address-undefined"), self.rows())
        self.assertEqual(self.rows("elsewhere"), self.rows())

    def test_failure_shows_what_the_compiler_said(self):
        self.write({"kernels/cuda/first.cu": "error: too wide"})
        result = self.try_make("all", "NVCC=" + self.path("nvcc"))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("error: too wide", result.stdout)

    def test_warnings_are_shown_and_counts_of_registers_kept(self):
        self.write({"kernels/cuda/first.cu": "warning: a tail"})
        shown = self.build()
        self.assertIn("warning: a tail", shown)
        self.assertNotIn("registers", shown)
        with open(self.path("build/gpu/second.log"), encoding="ascii") as f:
            self.assertIn("Used 8 registers", f.read())

    def test_without_nvcc_it_is_said_once_and_the_table_is_empty(self):
        shown = self.build("NVCC=") + self.build("NVCC=", "SAN=address,undefined")
        self.assertEqual(shown.count("no nvcc"), 1, shown)
        self.assertEqual(self.rows(), [])
        self.assertEqual(self.rows("build/san-address-undefined"), [])

    def test_nvcc_that_comes_later_is_used(self):
        self.build("NVCC=")
        self.build()
        self.assertEqual(len(self.rows()), 2)
        self.build("NVCC=")
        self.assertEqual(self.rows(), [])

    def test_nvcc_is_found_where_setup_puts_it(self):
        self.write({"cache/cuda/nvidia/cu13/bin/nvcc": FAKE_NVCC})
        os.chmod(self.path("cache/cuda/nvidia/cu13/bin/nvcc"), 0o755)
        folders = [folder for folder in os.environ["PATH"].split(":")
                   if not os.path.exists(os.path.join(folder, "nvcc"))]
        environment = {"PATH": ":".join(folders), "CUDA_HOME": self.path("nowhere"),
                       "TARN_CACHE": self.path("cache")}
        self.make("all", "tests", **environment)
        self.assertEqual(len(self.rows()), 2)

    def test_images_for_a_race_checker_are_in_a_program_of_their_own(self):
        names = ("linear_bf16", "linear_large", "linear_quant", "linear_sums")
        self.write({f"kernels/cuda/{name}.cu": "" for name in names})
        self.write({"tests/bench/bench_gpu.c": LISTER})
        self.build("build/gpu/races/bench_gpu", "build/tests/bench/bench_gpu")
        listed = subprocess.run([self.path("build/gpu/races/bench_gpu")], text=True, check=True,
                                stdout=subprocess.PIPE).stdout.splitlines()
        plain = ["first", "second"]
        self.assertEqual(listed, [f"{name} 0 <{'' if name in plain else 'checked'}image of "
                                  f"kernels/cuda/{name}.cu>" for name in sorted([*plain, *names])])
        for row in self.rows():
            self.assertNotIn("checked", row)

    def test_probes_need_nvcc(self):
        result = self.try_make("gpu-probes", "NVCC=")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("scripts/setup --cuda", result.stdout)


@unittest.skipUnless(find_nvcc(), "there is no nvcc")
class Compiler(make_kit.MakeCase):
    """Small kernels, compiled."""

    def setUp(self):
        super().setUp()
        self.write({"kernels/cuda/wide.cu": WIDE, "kernels/cuda/wide.cuh": "#define WIDTH 8\n",
                    "kernels/cuda/other.cu": 'extern "C" __global__ void other(void)\n{\n}\n'})

    def flags(self):
        with open(os.path.join(tap.ROOT, "Makefile"), encoding="utf-8") as f:
            return re.search(r"^IMAGE_FLAGS := (.*)$", f.read(), re.M).group(1)

    def test_kernel_that_spills_fails_the_build(self):
        images = ("build/gpu/wide.cubin", "build/gpu/other.cubin")
        self.write({"kernels/cuda/wide.cuh": "#define WIDTH 64\n"})
        flags = self.flags() + " -maxrregcount=24"
        result = self.try_make("-k", "IMAGE_FLAGS=" + flags, *images)
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"spilled to local memory in function 'wide'")
        self.assertFalse(os.path.exists(self.path(images[0])))
        self.assertTrue(os.path.exists(self.path(images[1])))

    def test_changed_header_rebuilds_its_users(self):
        images = ("build/gpu/wide.cubin", "build/gpu/other.cubin")
        self.make(*images)
        self.assertNotIn("NVCC", self.make(*images))
        self.write({"kernels/cuda/wide.cuh": "#define WIDTH 4\n"})
        shown = self.make(*images)
        self.assertIn("NVCC    kernels/cuda/wide.cu", shown)
        self.assertNotIn("NVCC    kernels/cuda/other.cu", shown)


if __name__ == "__main__":
    tap.main()

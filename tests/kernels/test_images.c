/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of GPU kernels in the program: that its rows are in order and that
 * each holds a whole file of machine code for the GPU. Which kernels there must
 * be is for tests/unit/test_gpu_build.py; loading them needs a GPU (tests/gpu).
 */
#include "kernels/cuda/images.h"
#include "tests/harness.h"

#include <elf.h>
#include <stdint.h>

/* What <elf.h> does not name. */
enum {
	MACHINE_CUDA = 190,
	ABI_CUDA_13 =
		8, /* since then the architecture is in bits 8 to 15 of the flags */
};

static unsigned int architecture(const Elf64_Ehdr *header)
{
	if (header->e_ident[EI_ABIVERSION] >= ABI_CUDA_13)
		return header->e_flags >> 8 & 0xff;
	return header->e_flags & 0xff;
}

/* Of the two tables, the one that ends last ends the file. */
static size_t end_of_tables(const Elf64_Ehdr *header)
{
	size_t sections =
		header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
	size_t segments =
		header->e_phoff + (size_t)header->e_phnum * header->e_phentsize;

	return sections > segments ? sections : segments;
}

static void expect_program(const struct gpu_image *image)
{
	const Elf64_Ehdr *header = image->data;

	TH_LOG("%s: %zu bytes", image->name, image->bytes);
	ASSERT_GT(image->bytes, sizeof(*header));
	EXPECT_EQ(0, memcmp(header->e_ident, ELFMAG, SELFMAG));
	EXPECT_EQ(MACHINE_CUDA, header->e_machine);
	EXPECT_EQ(90, architecture(header));
	EXPECT_EQ(end_of_tables(header), image->bytes);
}

TEST(images_are_ordered_by_name_and_aligned)
{
	size_t nr = SIZE_MAX;
	const struct gpu_image *images = gpu_images(&nr);

	if (nr == 0)
		SKIP(return, "built without nvcc");
	for (size_t i = 0; i < nr; i++) {
		EXPECT_EQ(0, (uintptr_t)images[i].data % 64);
		EXPECT_STRNE("", images[i].name);
		if (i > 0)
			EXPECT_LT(strcmp(images[i - 1].name, images[i].name),
				  0);
	}
}

TEST(images_are_whole_programs_for_the_gpu)
{
	size_t nr = SIZE_MAX;
	const struct gpu_image *images = gpu_images(&nr);

	if (nr == 0)
		SKIP(return, "built without nvcc");
	for (size_t i = 0; i < nr; i++)
		expect_program(&images[i]);
}

TEST_HARNESS_MAIN

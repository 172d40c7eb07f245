/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU's kernels as they lie in this program: machine code for sm_90a, one
 * image for each kernels/cuda/NAME.cu. What an image's kernels are called and
 * take stands in launch_params.h; loading it is for the caller.
 */
#ifndef TARN_KERNELS_CUDA_IMAGES_H
#define TARN_KERNELS_CUDA_IMAGES_H

#include <stddef.h>

struct gpu_image {
	const char *name; /* NAME of kernels/cuda/NAME.cu, "attn_decode" */
	const void *data; /* an ELF file, as cuModuleLoadData() takes it; 64-byte aligned */
	size_t bytes;
};

/*
 * The images of this program, ordered by name.
 *
 * @out_nr: [out] how many; 0 where the program was built without nvcc
 *
 * Context: any thread.
 * Return: the first of @out_nr images; they live as long as the program.
 */
const struct gpu_image *gpu_images(size_t *out_nr);

#endif

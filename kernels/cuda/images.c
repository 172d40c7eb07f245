/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of GPU kernels. Its rows and bytes come from an assembly file that
 * the Makefile writes, since they depend on which kernels were compiled.
 */
#include "kernels/cuda/images.h"

extern const struct gpu_image gpu_image_table[];
extern const size_t nr_gpu_images;

const struct gpu_image *gpu_images(size_t *out_nr)
{
	*out_nr = nr_gpu_images;
	return gpu_image_table;
}

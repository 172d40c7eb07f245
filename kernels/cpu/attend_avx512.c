/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with AVX-512 vectors: attend_simd.h over v16_avx512.h. Pure
 * functions, any thread.
 */
#include "kernels/cpu/v16_avx512.h"
/* after v16 */
#include "kernels/cpu/attend_simd.h"

void attend_avx512(const struct attn_args *args, uint32_t unit, uint32_t kv_head, void *scratch)
{
	attend_body(args, unit, kv_head, scratch);
}

void merge_avx512(const struct attn_args *args, uint32_t merge, uint32_t first_head,
		  uint32_t end_head)
{
	merge_body(args, merge, first_head, end_head);
}

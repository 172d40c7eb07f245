/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of a model file, as every backend takes them. Pure functions; any
 * thread.
 */
#include "engine/backend/tensor.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels_cpu.h"

int tensor_digest(const struct backend_tensor *t,
		  uint8_t out[BACKEND_DIGEST_BYTES])
{
	uint64_t bytes =
		pack_source_row_bytes(t->type, t->nr_cols) * t->nr_rows;

	return EVP_Digest(t->data, bytes, out, NULL, EVP_sha256(), NULL) == 1 ?
		       0 :
		       -ENOMEM;
}

void tensor_vector_f32(const struct backend_tensor *t, float *out)
{
	for (uint32_t i = 0; i < t->nr_cols; i++) {
		const uint8_t *at = (const uint8_t *)t->data +
				    (t->type == PACK_F32 ? 4 : 2) * (size_t)i;
		uint16_t half;

		if (t->type == PACK_F32) {
			memcpy(&out[i], at, sizeof(float));
			continue;
		}
		memcpy(&half, at, sizeof(half));
		out[i] = t->type == PACK_F16 ? f16_to_f32(half) :
					       bf16_to_f32(half);
	}
}

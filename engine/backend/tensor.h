/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What backends do alike with the tensors that are declared to them.
 */
#ifndef TARN_ENGINE_BACKEND_TENSOR_H
#define TARN_ENGINE_BACKEND_TENSOR_H

#include "engine/backend/backend.h"

/* SHA-256 of the tensor's bytes as in the file. Return: 0, -ENOMEM. */
int tensor_digest(const struct backend_tensor *t,
		  uint8_t out[BACKEND_DIGEST_BYTES]);
/* A vector of type F32, F16 or BF16 as float32 [nr_cols]. */
void tensor_vector_f32(const struct backend_tensor *t, float *out);

#endif /* TARN_ENGINE_BACKEND_TENSOR_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise and reducing kernels in AVX2; the bodies and
 * their contract are in elementwise.h. Pure functions, any thread.
 */
#include <immintrin.h>

/* The same rounding as f32_to_f16(), in one instruction. */
#define TO_F16(x) ((uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT))
#define ELEMENTWISE(name) name##_avx2
#include "kernels/cpu/elementwise.h"

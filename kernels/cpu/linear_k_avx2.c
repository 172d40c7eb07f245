/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layer over int8 activations, AVX2: the tile kernels of the K-quants and
 * IQ4_XS. * linear_q8_avx2.c is the entry. Any thread.
 */
#include "kernels/cpu/linear_q8_avx2.h"

Q8_LINEAR(q2_k_linear_avx2, q8_kind_q2_k)
Q8_LINEAR(q3_k_linear_avx2, q8_kind_q3_k)
Q8_LINEAR(iq4_xs_linear_avx2, q8_kind_iq4_xs)
Q8_LINEAR(q4_k_linear_avx2, q8_kind_q4_k)
Q8_LINEAR(q5_k_linear_avx2, q8_kind_q5_k)
Q8_LINEAR(q6_k_linear_avx2, q8_kind_q6_k)

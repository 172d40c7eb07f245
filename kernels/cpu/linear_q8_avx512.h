/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The AVX-512 VNNI tile kernel of the int8 linear layer, a template by constant
 * arguments: one instance per weight kind and tile width. Included by the
 * linear_*_avx512.c files alone, which hold the instances; linear_q8_avx512.c
 * walks the matrix with them. Lanes are the 16 rows of a group, so an output is
 * one ascending chain whatever the width.
 */
#ifndef TARN_KERNELS_LINEAR_Q8_AVX512_H
#define TARN_KERNELS_LINEAR_Q8_AVX512_H

#include <immintrin.h>

#include "kernels/cpu/linear_q8_tile.h"

#define Q8_INLINE static inline __attribute__((always_inline))

/* Codes of 2 or 3 bits, see q8_load_codes(). */
Q8_INLINE void q8_load_short_codes(struct q8_kind kind, const uint8_t *codes, const uint8_t *high,
				   __m512i w[8])
{
	const __m512i low2 = _mm512_set1_epi8(3), bit2 = _mm512_set1_epi8(4);

	for (int i = 0; i < 8; i++) {
		__m512i v = _mm512_load_si512(codes + 64 * (i / 4));

		w[i] = _mm512_and_si512(_mm512_srli_epi16(v, 2 * (i % 4)), low2);
	}
	if (kind.bits == 3) {
		__m512i h = _mm512_load_si512(high);

		/* Bit i of each byte moves to bit 2. */
		for (int i = 0; i < 8; i++) {
			__m512i bit = i < 2 ? _mm512_slli_epi16(h, 2 - i) :
					      _mm512_srli_epi16(h, i - 2);

			w[i] = _mm512_ternarylogic_epi32(w[i], bit, bit2, 0xf8);
		}
	}
}

/*
 * The 8 vectors of unsigned codes of a block: vector i has k = 4 i + c at (row, c). Of types
 * with a table they are its values, plus 128.
 */
Q8_INLINE void q8_load_codes(struct q8_kind kind, const uint8_t *codes, const uint8_t *high,
			     __m512i w[8])
{
	const __m512i low4 = _mm512_set1_epi8(15);

	if (kind.bits < 4) {
		q8_load_short_codes(kind, codes, high, w);
		return;
	}
	if (kind.bits == 8) {
		for (int i = 0; i < 8; i++)
			w[i] = _mm512_load_si512(codes + 64 * i);
		return;
	}
	for (int i = 0; i < 4; i++) {
		__m512i v = _mm512_load_si512(codes + 64 * i);

		w[i] = _mm512_and_si512(v, low4);
		w[i + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low4);
	}
	if (kind.values) {
		__m512i values =
			_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)kind.values));

		values = _mm512_xor_si512(values, _mm512_set1_epi8(-128));
		for (int i = 0; i < 8; i++)
			w[i] = _mm512_shuffle_epi8(values, w[i]);
	}
	if (kind.bits == 5) {
		const __m512i bit4 = _mm512_set1_epi8(16);
		__m512i h = _mm512_load_si512(high);

		/* 0xf8: a | (b & c). Bit i of each byte moves to bit 4. */
		for (int i = 0; i < 8; i++) {
			__m512i bit = i < 4 ? _mm512_slli_epi16(h, 4 - i) :
					      _mm512_srli_epi16(h, i - 4);

			w[i] = _mm512_ternarylogic_epi32(w[i], bit, bit4, 0xf8);
		}
	}
	if (kind.bits == 6) {
		const __m512i bits45 = _mm512_set1_epi8(0x30);

		for (int i = 0; i < 8; i++) {
			__m512i h = _mm512_load_si512(high + 64 * (i / 4));
			int shift = 4 - 2 * (i % 4);
			__m512i bits = shift >= 0 ? _mm512_slli_epi16(h, shift) :
						    _mm512_srli_epi16(h, -shift);

			w[i] = _mm512_ternarylogic_epi32(w[i], bits, bits45, 0xf8);
		}
	}
}

Q8_INLINE __m512 q8_load_f16(const uint8_t *p)
{
	return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)p));
}

Q8_INLINE __m512 q8_load_u8(const uint8_t *p)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)p)));
}

Q8_INLINE __m512 q8_load_i8(const uint8_t *p)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)p)));
}

/* 2^(e - 128) of 16 exponents. */
Q8_INLINE __m512 q8_load_e8m0(const uint8_t *p)
{
	__m512i e = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)p));
	__m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
	__mmask16 small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));

	bits = _mm512_mask_sllv_epi32(bits, small, _mm512_set1_epi32(0x00200000), e);
	return _mm512_castsi512_ps(bits);
}

/* Scales of one block in 16 lanes. */
struct q8_scales {
	__m512 d;
	__m512 m; /* the chain's mw */
	__m512 sc[2];
	__m512 mn[2]; /* Q2_K: of the halves */
};

/* Q2_K: scale in the low, minimum in the high nibble. */
Q8_INLINE void q8_load_pairs(const uint8_t *p, struct q8_scales *s)
{
	for (int half = 0; half < 2; half++) {
		__m512i both = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)p + half));

		s->sc[half] = _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(15)));
		s->mn[half] = _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4));
	}
}

Q8_INLINE struct q8_scales q8_load_scales(struct q8_kind kind, const uint8_t *p, uint32_t sub)
{
	const uint8_t *sc = p + q8_sub_at(kind) + (kind.has_halves ? 32 : 16) * sub;
	struct q8_scales s = { .d = kind.is_e8m0 ? q8_load_e8m0(p) : q8_load_f16(p) };

	if (kind.has_halves && kind.has_min) {
		q8_load_pairs(sc, &s);
		s.m = _mm512_xor_ps(q8_load_f16(p + 32), _mm512_set1_ps(-0.0f));
	} else if (kind.has_halves) {
		s.sc[0] = q8_load_i8(sc);
		s.sc[1] = q8_load_i8(sc + 16);
	} else if (kind.super && !kind.has_min) {
		s.sc[0] = q8_load_i8(sc);
	} else if (kind.super) {
		s.sc[0] = q8_load_u8(sc);
		s.m = _mm512_mul_ps(q8_load_f16(p + 32), q8_load_u8(sc + 128));
		s.m = _mm512_xor_ps(s.m, _mm512_set1_ps(-0.0f));
	} else if (kind.has_min) {
		s.m = q8_load_f16(p + 32);
	}
	return s;
}

/*
 * acc + the dot of four unsigned codes with the four int8 at @q, in each lane.
 * Written out because the compiler makes two instructions of it, and at eight
 * columns the loop is within a tenth of what the ports can do.
 */
Q8_INLINE __m512i q8_dot4(__m512i acc, __m512i codes, const uint8_t *q)
{
	__asm__("vpdpbusd %1%{1to16%}, %2, %0" : "+v"(acc) : "m"(*(const int32_t *)q), "v"(codes));
	return acc;
}

/*
 * One link of @nr_cols chains: a block of one group against a block of the tile.
 * Every integer here stays below 2^24 in magnitude (63 * 31 * 127 * 32,
 * 128 * 32 * 127 * 32, 32 * 127 * 127 * 32), so sub-scales multiply exactly as floats.
 */
Q8_INLINE void q8_link(struct q8_kind kind, const __m512i w[8], const struct q8_scales *s,
		       const uint8_t *tile, const int nr_cols, __m512 *acc)
{
	const float *dx = (const float *)(tile + nr_cols * ACT_BLOCK);
	const int32_t *aux = (const int32_t *)dx + nr_cols;
	__m512i sum[2][Q8_MAX_COLS];

#pragma GCC unroll 8
	for (int c = 0; c < nr_cols; c++) {
		sum[0][c] = kind.has_min ? _mm512_setzero_si512() : _mm512_set1_epi32(aux[c]);
		if (kind.has_halves)
			sum[1][c] = kind.has_min ? _mm512_setzero_si512() :
						   _mm512_set1_epi32(aux[nr_cols + c]);
	}
#pragma GCC unroll 8
	for (int i = 0; i < 8; i++) {
		int half = kind.has_halves ? i / 4 : 0;

#pragma GCC unroll 8
		for (int c = 0; c < nr_cols; c++)
			sum[half][c] = q8_dot4(sum[half][c], w[i], tile + ACT_BLOCK * c + 4 * i);
	}
#pragma GCC unroll 8
	for (int c = 0; c < nr_cols; c++) {
		__m512 isum = _mm512_cvtepi32_ps(sum[0][c]);

		if (kind.super)
			isum = _mm512_mul_ps(isum, s->sc[0]);
		if (kind.has_halves)
			isum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[1][c]), s->sc[1], isum);
		acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(s->d, _mm512_set1_ps(dx[c])), isum, acc[c]);
		if (kind.has_min && kind.has_halves) {
			const float *sums = (const float *)aux;
			__m512 imin = _mm512_mul_ps(s->mn[0], _mm512_set1_ps(sums[c]));

			imin = _mm512_fmadd_ps(s->mn[1], _mm512_set1_ps(sums[nr_cols + c]), imin);
			acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(s->m, _mm512_set1_ps(dx[c])), imin,
						 acc[c]);
		} else if (kind.has_min) {
			acc[c] = _mm512_fmadd_ps(
				s->m, _mm512_castsi512_ps(_mm512_set1_epi32(aux[c])), acc[c]);
		}
	}
}

Q8_INLINE void q8_load_packed(struct q8_kind kind, const struct q8_cursor *at, uint32_t block,
			      __m512i w[8], struct q8_scales *s)
{
	q8_load_codes(kind, at->codes, at->high, w);
	*s = q8_load_scales(kind, at->scales, kind.super ? block % 8 : 0);
#pragma GCC unroll 10
	for (size_t i = 0; i < q8_code_bytes(kind) + q8_high_bytes(kind) + 64; i += 64)
		_mm_prefetch((const char *)at->codes + Q8_PREFETCH_BYTES + i, _MM_HINT_T0);
}

Q8_INLINE void q8_load_wide(struct q8_kind kind, const uint8_t *p, __m512i w[8],
			    struct q8_scales *s)
{
	const float *f = (const float *)(p + Q8_WIDE_CODES);

#pragma GCC unroll 8
	for (int i = 0; i < 8; i++)
		w[i] = _mm512_load_si512(p + 64 * i);
	s->d = _mm512_load_ps(f);
	f += 16;
	if (kind.has_min) {
		s->m = _mm512_load_ps(f);
		f += 16;
	}
	if (kind.super)
		s->sc[0] = _mm512_load_ps(f);
	if (kind.has_halves)
		s->sc[1] = _mm512_load_ps(f + 16);
	if (kind.has_halves && kind.has_min) {
		s->mn[0] = _mm512_load_ps(f + 32);
		s->mn[1] = _mm512_load_ps(f + 48);
	}
}

/* A group's blocks widened: see q8_wide_bytes(). */
Q8_INLINE void q8_widen(struct q8_kind kind, const struct pack_planes *planes, uint32_t nr_blocks,
			uint8_t *out)
{
	struct q8_cursor at = { planes->scales, planes->codes, planes->high };

	for (uint32_t b = 0; b < nr_blocks; b++) {
		float *f = (float *)(out + Q8_WIDE_CODES);
		struct q8_scales s;
		__m512i w[8];

		q8_load_packed(kind, &at, b, w, &s);
		q8_cursor_next(kind, &at, b);
#pragma GCC unroll 8
		for (int i = 0; i < 8; i++)
			_mm512_store_si512(out + 64 * i, w[i]);
		_mm512_store_ps(f, s.d);
		f += 16;
		if (kind.has_min) {
			_mm512_store_ps(f, s.m);
			f += 16;
		}
		if (kind.super)
			_mm512_store_ps(f, s.sc[0]);
		if (kind.has_halves)
			_mm512_store_ps(f + 16, s.sc[1]);
		if (kind.has_halves && kind.has_min) {
			_mm512_store_ps(f + 32, s.mn[0]);
			_mm512_store_ps(f + 48, s.mn[1]);
		}
		out += q8_wide_bytes(kind);
	}
}

/* One group against a tile of @nr_cols columns: run->acc gets run->nr_blocks more links. */
Q8_INLINE void q8_tile(struct q8_kind kind, const bool is_wide, const int nr_cols,
		       const struct q8_run *run)
{
	struct q8_cursor at = { run->planes.scales, run->planes.codes, run->planes.high };
	const uint8_t *wide = run->wide;
	const uint8_t *tile = run->tile;
	__m512 acc[Q8_MAX_COLS];

#pragma GCC unroll 8
	for (int c = 0; c < nr_cols; c++)
		acc[c] = _mm512_load_ps(run->acc + 16 * c);
	for (uint32_t b = 0; b < run->nr_blocks; b++) {
		struct q8_scales s;
		__m512i w[8];

		if (is_wide) {
			q8_load_wide(kind, wide, w, &s);
			wide += q8_wide_bytes(kind);
		} else {
			q8_load_packed(kind, &at, b, w, &s);
			q8_cursor_next(kind, &at, b);
		}
		q8_link(kind, w, &s, tile, nr_cols, acc);
		tile += (size_t)nr_cols * q8_column_bytes(kind);
	}
#pragma GCC unroll 8
	for (int c = 0; c < nr_cols; c++)
		_mm512_store_ps(run->acc + 16 * c, acc[c]);
}

/* The instances of one kind, a static const, over packed or widened groups; and their table. */
#define Q8_INSTANCE(name, kind, is_wide, cols)              \
	static void name##_##cols(const struct q8_run *run) \
	{                                                   \
		q8_tile(kind, is_wide, cols, run);          \
	}

#define Q8_TILES(name, kind, is_wide)                                                           \
	Q8_INSTANCE(name, kind, is_wide, 1)                                                     \
	Q8_INSTANCE(name, kind, is_wide, 2)                                                     \
	Q8_INSTANCE(name, kind, is_wide, 3)                                                     \
	Q8_INSTANCE(name, kind, is_wide, 4)                                                     \
	Q8_INSTANCE(name, kind, is_wide, 5)                                                     \
	Q8_INSTANCE(name, kind, is_wide, 6)                                                     \
	Q8_INSTANCE(name, kind, is_wide, 7)                                                     \
	Q8_INSTANCE(name, kind, is_wide, 8)                                                     \
	static const q8_tile_fn name[Q8_MAX_COLS] = {                                           \
		name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8, \
	};

#define Q8_WIDEN(name, kind)                                                                 \
	static void name(const struct pack_planes *planes, uint32_t nr_blocks, uint8_t *out) \
	{                                                                                    \
		q8_widen(kind, planes, nr_blocks, out);                                      \
	}

extern const struct q8_linear q2_k_linear_avx512;
extern const struct q8_linear q3_k_linear_avx512;
extern const struct q8_linear iq4_xs_linear_avx512;
extern const struct q8_linear q4_k_linear_avx512;
extern const struct q8_linear q5_k_linear_avx512;
extern const struct q8_linear q6_k_linear_avx512;

#endif /* TARN_KERNELS_LINEAR_Q8_AVX512_H */

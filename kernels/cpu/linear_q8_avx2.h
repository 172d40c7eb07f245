/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The AVX2 tile kernel of the int8 linear layer, a template by constant
 * arguments like its AVX-512 sibling. Included by linear_q8_avx2.c and
 * linear_k_avx2.c alone. A group's 16 rows are two halves of 8 lanes.
 *
 * vpmaddubsw adds two products in 16 bits and saturates: codes of up to 4, 5 and
 * 6 bits stay below that for eight, four and two such sums (8 * 2 * 15 * 127,
 * 4 * 2 * 31 * 127, 2 * 2 * 63 * 127 < 32768); bytes and values of a table go by
 * magnitude and sign (2 * 128 * 127 < 32768), one sum at a time. So every sum is
 * exact.
 */
#ifndef TARN_KERNELS_LINEAR_Q8_AVX2_H
#define TARN_KERNELS_LINEAR_Q8_AVX2_H

#include <immintrin.h>

#include "kernels/cpu/linear_q8_tile.h"

#define Q8_INLINE static inline __attribute__((always_inline))

enum {
	/* Columns of the widest tile here: sums and codes share 16 registers. */
	Q8_AVX2_COLS = 4,
};

/* Whether q8_load_codes() gives values of either sign, with nothing to take off. */
Q8_INLINE bool q8_is_signed(struct q8_kind kind)
{
	return kind.bits == 8 || kind.values;
}

/* Codes of 2 or 3 bits, see q8_load_codes(). */
Q8_INLINE void q8_load_short_codes(struct q8_kind kind, const uint8_t *codes, const uint8_t *high,
				   __m256i w[8])
{
	const __m256i low2 = _mm256_set1_epi8(3), bit2 = _mm256_set1_epi8(4);

	for (int i = 0; i < 8; i++) {
		__m256i v = _mm256_load_si256((const void *)(codes + 64 * (i / 4)));

		w[i] = _mm256_and_si256(_mm256_srli_epi16(v, 2 * (i % 4)), low2);
	}
	if (kind.bits == 3) {
		__m256i bits = _mm256_load_si256((const void *)high);

		/* Bit i of each byte moves to bit 2. */
		for (int i = 0; i < 8; i++) {
			__m256i bit = i < 2 ? _mm256_slli_epi16(bits, 2 - i) :
					      _mm256_srli_epi16(bits, i - 2);

			w[i] = _mm256_or_si256(w[i], _mm256_and_si256(bit, bit2));
		}
	}
}

/* The 8 vectors of codes of a block, 8 rows of half @h; signed values where q8_is_signed(). */
Q8_INLINE void q8_load_codes(struct q8_kind kind, const uint8_t *codes, const uint8_t *high, int h,
			     __m256i w[8])
{
	const __m256i low4 = _mm256_set1_epi8(15);

	codes += 32 * h;
	high += 32 * h;
	if (kind.bits < 4) {
		q8_load_short_codes(kind, codes, high, w);
		return;
	}
	if (kind.bits == 8) {
		for (int i = 0; i < 8; i++)
			w[i] = _mm256_xor_si256(_mm256_load_si256((const void *)(codes + 64 * i)),
						_mm256_set1_epi8(-128));
		return;
	}
	for (int i = 0; i < 4; i++) {
		__m256i v = _mm256_load_si256((const void *)(codes + 64 * i));

		w[i] = _mm256_and_si256(v, low4);
		w[i + 4] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low4);
	}
	if (kind.values) {
		__m256i values =
			_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)kind.values));

		for (int i = 0; i < 8; i++)
			w[i] = _mm256_shuffle_epi8(values, w[i]);
	}
	if (kind.bits == 5) {
		__m256i bits = _mm256_load_si256((const void *)high);

		/* Bit i of each byte moves to bit 4. */
		for (int i = 0; i < 8; i++) {
			__m256i bit = i < 4 ? _mm256_slli_epi16(bits, 4 - i) :
					      _mm256_srli_epi16(bits, i - 4);

			w[i] = _mm256_or_si256(w[i], _mm256_and_si256(bit, _mm256_set1_epi8(16)));
		}
	}
	if (kind.bits == 6) {
		for (int i = 0; i < 8; i++) {
			__m256i bits = _mm256_load_si256((const void *)(high + 64 * (i / 4)));
			int shift = 4 - 2 * (i % 4);

			bits = shift >= 0 ? _mm256_slli_epi16(bits, shift) :
					    _mm256_srli_epi16(bits, -shift);
			w[i] = _mm256_or_si256(w[i],
					       _mm256_and_si256(bits, _mm256_set1_epi8(0x30)));
		}
	}
}

Q8_INLINE __m256 q8_load_f16(const uint8_t *p)
{
	return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)p));
}

Q8_INLINE __m256 q8_load_u8(const uint8_t *p)
{
	return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

Q8_INLINE __m256 q8_load_i8(const uint8_t *p)
{
	return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* 2^(e - 128) of 8 exponents. */
Q8_INLINE __m256 q8_load_e8m0(const uint8_t *p)
{
	__m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
	__m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
	__m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);

	bits = _mm256_blendv_epi8(bits, _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e), small);
	return _mm256_castsi256_ps(bits);
}

/* Scales of one block in 8 lanes. */
struct q8_scales {
	__m256 d;
	__m256 m; /* the chain's mw */
	__m256 sc[2];
	__m256 mn[2]; /* Q2_K: of the halves */
};

/* Q2_K: scale in the low, minimum in the high nibble. */
Q8_INLINE void q8_load_pairs(const uint8_t *p, struct q8_scales *s)
{
	for (int half = 0; half < 2; half++) {
		__m256i both =
			_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 16 * half)));

		s->sc[half] = _mm256_cvtepi32_ps(_mm256_and_si256(both, _mm256_set1_epi32(15)));
		s->mn[half] = _mm256_cvtepi32_ps(_mm256_srli_epi32(both, 4));
	}
}

Q8_INLINE struct q8_scales q8_load_scales(struct q8_kind kind, const uint8_t *p, uint32_t sub,
					  int h)
{
	const uint8_t *sc = p + q8_sub_at(kind) + (kind.has_halves ? 32 : 16) * sub + 8 * h;
	struct q8_scales s = { .d = kind.is_e8m0 ? q8_load_e8m0(p + 8 * h) :
						   q8_load_f16(p + 16 * h) };

	if (kind.has_halves && kind.has_min) {
		q8_load_pairs(sc, &s);
		s.m = _mm256_xor_ps(q8_load_f16(p + 32 + 16 * h), _mm256_set1_ps(-0.0f));
	} else if (kind.has_halves) {
		s.sc[0] = q8_load_i8(sc);
		s.sc[1] = q8_load_i8(sc + 16);
	} else if (kind.super && !kind.has_min) {
		s.sc[0] = q8_load_i8(sc);
	} else if (kind.super) {
		s.sc[0] = q8_load_u8(sc);
		s.m = _mm256_mul_ps(q8_load_f16(p + 32 + 16 * h), q8_load_u8(sc + 128));
		s.m = _mm256_xor_ps(s.m, _mm256_set1_ps(-0.0f));
	} else if (kind.has_min) {
		s.m = q8_load_f16(p + 32 + 16 * h);
	}
	return s;
}

/* Exact sum of vectors [first, first + nr) of the block times the int8 at @q. */
Q8_INLINE __m256i q8_dot(struct q8_kind kind, const __m256i w[8], const uint8_t *q, int first,
			 int nr)
{
	/* How many sums of pairs fit 16 bits; divides @nr. */
	const int run = q8_is_signed(kind) ? 1 : kind.bits == 5 ? 4 : kind.bits == 6 ? 2 : nr;
	const __m256i ones = _mm256_set1_epi16(1);
	__m256i sum = _mm256_setzero_si256();

#pragma GCC unroll 8
	for (int i = 0; i < nr; i += run) {
		__m256i pairs = _mm256_setzero_si256();

		for (int j = i; j < i + run; j++) {
			__m256i v = w[first + j];
			__m256i x = _mm256_set1_epi32((int32_t)load_u32(q + 4 * (first + j)));
			__m256i p = q8_is_signed(kind) ?
					    _mm256_maddubs_epi16(_mm256_abs_epi8(v),
								 _mm256_sign_epi8(x, v)) :
					    _mm256_maddubs_epi16(v, x);

			pairs = j == i ? p : _mm256_add_epi16(pairs, p);
		}
		pairs = _mm256_madd_epi16(pairs, ones);
		sum = i == 0 ? pairs : _mm256_add_epi32(sum, pairs);
	}
	return sum;
}

/* One link of @nr_cols chains, see the AVX-512 form; acc[c] has 16 floats, of half @h. */
Q8_INLINE void q8_link(struct q8_kind kind, const __m256i w[8], const struct q8_scales *s,
		       const uint8_t *tile, const int nr_cols, int h, float *acc)
{
	const float *dx = (const float *)(tile + nr_cols * ACT_BLOCK);
	const int32_t *aux = (const int32_t *)dx + nr_cols;

#pragma GCC unroll 4
	for (int c = 0; c < nr_cols; c++) {
		const uint8_t *q = tile + ACT_BLOCK * c;
		__m256 sum = _mm256_load_ps(acc + 16 * c + 8 * h);
		__m256 isum;
		__m256i a;

		if (kind.has_halves) {
			__m256i b = q8_dot(kind, w, q, 4, 4);

			a = q8_dot(kind, w, q, 0, 4);
			if (!kind.has_min) {
				a = _mm256_add_epi32(a, _mm256_set1_epi32(aux[c]));
				b = _mm256_add_epi32(b, _mm256_set1_epi32(aux[nr_cols + c]));
			}
			isum = _mm256_mul_ps(_mm256_cvtepi32_ps(a), s->sc[0]);
			isum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(b), s->sc[1], isum);
		} else {
			a = q8_dot(kind, w, q, 0, 8);
			if (!kind.has_min && !q8_is_signed(kind))
				a = _mm256_add_epi32(a, _mm256_set1_epi32(aux[c]));
			isum = _mm256_cvtepi32_ps(a);
			if (kind.super)
				isum = _mm256_mul_ps(isum, s->sc[0]);
		}
		sum = _mm256_fmadd_ps(_mm256_mul_ps(s->d, _mm256_set1_ps(dx[c])), isum, sum);
		if (kind.has_min && kind.has_halves) {
			const float *sums = (const float *)aux;
			__m256 imin = _mm256_mul_ps(s->mn[0], _mm256_set1_ps(sums[c]));

			imin = _mm256_fmadd_ps(s->mn[1], _mm256_set1_ps(sums[nr_cols + c]), imin);
			sum = _mm256_fmadd_ps(_mm256_mul_ps(s->m, _mm256_set1_ps(dx[c])), imin,
					      sum);
		} else if (kind.has_min) {
			sum = _mm256_fmadd_ps(s->m, _mm256_castsi256_ps(_mm256_set1_epi32(aux[c])),
					      sum);
		}
		_mm256_store_ps(acc + 16 * c + 8 * h, sum);
	}
}

Q8_INLINE void q8_load_wide(struct q8_kind kind, const uint8_t *p, int h, __m256i w[8],
			    struct q8_scales *s)
{
	const float *f = (const float *)(p + Q8_WIDE_CODES) + 8 * h;

#pragma GCC unroll 8
	for (int i = 0; i < 8; i++)
		w[i] = _mm256_load_si256((const void *)(p + 64 * i + 32 * h));
	s->d = _mm256_load_ps(f);
	f += 16;
	if (kind.has_min) {
		s->m = _mm256_load_ps(f);
		f += 16;
	}
	if (kind.super)
		s->sc[0] = _mm256_load_ps(f);
	if (kind.has_halves)
		s->sc[1] = _mm256_load_ps(f + 16);
	if (kind.has_halves && kind.has_min) {
		s->mn[0] = _mm256_load_ps(f + 32);
		s->mn[1] = _mm256_load_ps(f + 48);
	}
}

/* A group's blocks widened: see q8_wide_bytes(). */
Q8_INLINE void q8_widen(struct q8_kind kind, const struct pack_planes *planes, uint32_t nr_blocks,
			uint8_t *out)
{
	struct q8_cursor at = { planes->scales, planes->codes, planes->high };

	for (uint32_t b = 0; b < nr_blocks; b++) {
		for (int h = 0; h < 2; h++) {
			float *f = (float *)(out + Q8_WIDE_CODES) + 8 * h;
			struct q8_scales s;
			__m256i w[8];

			q8_load_codes(kind, at.codes, at.high, h, w);
			s = q8_load_scales(kind, at.scales, kind.super ? b % 8 : 0, h);
#pragma GCC unroll 8
			for (int i = 0; i < 8; i++)
				_mm256_store_si256((void *)(out + 64 * i + 32 * h), w[i]);
			_mm256_store_ps(f, s.d);
			f += 16;
			if (kind.has_min) {
				_mm256_store_ps(f, s.m);
				f += 16;
			}
			if (kind.super)
				_mm256_store_ps(f, s.sc[0]);
			if (kind.has_halves)
				_mm256_store_ps(f + 16, s.sc[1]);
			if (kind.has_halves && kind.has_min) {
				_mm256_store_ps(f + 32, s.mn[0]);
				_mm256_store_ps(f + 48, s.mn[1]);
			}
		}
		q8_cursor_next(kind, &at, b);
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

	for (uint32_t b = 0; b < run->nr_blocks; b++) {
		if (!is_wide) {
#pragma GCC unroll 10
			for (size_t i = 0; i < q8_code_bytes(kind) + q8_high_bytes(kind) + 64;
			     i += 64)
				_mm_prefetch((const char *)at.codes + Q8_PREFETCH_BYTES + i,
					     _MM_HINT_T0);
		}
#pragma GCC unroll 2
		for (int h = 0; h < 2; h++) {
			struct q8_scales s;
			__m256i w[8];

			if (is_wide) {
				q8_load_wide(kind, wide, h, w, &s);
			} else {
				q8_load_codes(kind, at.codes, at.high, h, w);
				s = q8_load_scales(kind, at.scales, kind.super ? b % 8 : 0, h);
			}
			q8_link(kind, w, &s, tile, nr_cols, h, run->acc);
		}
		q8_cursor_next(kind, &at, b);
		wide += q8_wide_bytes(kind);
		tile += (size_t)nr_cols * q8_column_bytes(kind);
	}
}

#define Q8_INSTANCE(name, kind, is_wide, cols)              \
	static void name##_##cols(const struct q8_run *run) \
	{                                                   \
		q8_tile(kind, is_wide, cols, run);          \
	}

#define Q8_TILES(name, kind, is_wide)       \
	Q8_INSTANCE(name, kind, is_wide, 1) \
	Q8_INSTANCE(name, kind, is_wide, 2) \
	Q8_INSTANCE(name, kind, is_wide, 3) \
	Q8_INSTANCE(name, kind, is_wide, 4) \
	static const q8_tile_fn name[Q8_AVX2_COLS] = { name##_1, name##_2, name##_3, name##_4 };

/* All of one type, in one object @name. */
#define Q8_LINEAR(name, kind)                                                           \
	Q8_TILES(name##_packed, kind, false)                                            \
	Q8_TILES(name##_wide, kind, true)                                               \
	static void name##_widen(const struct pack_planes *planes, uint32_t nr_blocks,  \
				 uint8_t *out)                                          \
	{                                                                               \
		q8_widen(kind, planes, nr_blocks, out);                                 \
	}                                                                               \
	const struct q8_linear name = { kind, Q8_AVX2_COLS, name##_packed, name##_wide, \
					name##_widen };

extern const struct q8_linear q2_k_linear_avx2;
extern const struct q8_linear q3_k_linear_avx2;
extern const struct q8_linear iq4_xs_linear_avx2;
extern const struct q8_linear q4_k_linear_avx2;
extern const struct q8_linear q5_k_linear_avx2;
extern const struct q8_linear q6_k_linear_avx2;

#endif /* TARN_KERNELS_LINEAR_Q8_AVX2_H */

/* SPDX-License-Identifier: Apache-2.0 */
/* Packed weights: sizes, places of codes and scales, values back, cuts. */
#include <math.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/kernels/weights.h"

static const uint32_t row_counts[] = { 1, 15, 16, 17, 33 };

TEST(layout_gives_the_documented_sizes)
{
	static const struct {
		enum pack_type type;
		uint32_t nr_cols;
		uint64_t group_bytes;
	} want[] = {
		{ PACK_F32, 576, 576 * 64 },
		{ PACK_F16, 3, 128 },
		{ PACK_BF16, 64, 2048 },
		{ PACK_Q4_0, 64, 2 * (32 + 256) },
		{ PACK_Q4_0, 32, 64 + 256 },
		{ PACK_Q4_1, 576, 18 * (64 + 256) },
		{ PACK_Q5_0, 64, 64 + 2 * 320 },
		{ PACK_Q5_1, 32, 64 + 320 },
		{ PACK_Q8_0, 1536, 48 * (32 + 512) },
		{ PACK_Q4_K, 256, 320 + 8 * 256 },
		{ PACK_Q5_K, 512, 640 + 16 * 320 },
		{ PACK_Q6_K, 256, 320 + 8 * 384 },
		{ PACK_Q2_K, 256, 320 + 8 * 128 },
		{ PACK_Q3_K, 512, 576 + 16 * 192 },
		{ PACK_Q3_K, 256, 320 + 8 * 192 },
		{ PACK_IQ4_NL, 64, 2 * (32 + 256) },
		{ PACK_IQ4_XS, 512, 320 + 16 * 256 },
		{ PACK_MXFP4, 128, 4 * (16 + 256) },
	};
	struct packed_matrix m;

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		ASSERT_EQ(3 * want[i].group_bytes,
			  pack_layout(&m, want[i].type, 33, want[i].nr_cols));
		EXPECT_EQ(want[i].group_bytes, m.group_bytes);
		EXPECT_EQ(33u, m.nr_rows);
		EXPECT_EQ(want[i].nr_cols, m.nr_cols);
	}
}

TEST(layout_refuses_what_cannot_be)
{
	struct packed_matrix m;

	EXPECT_EQ(0u, pack_layout(&m, (enum pack_type)22, 16, 256));
	EXPECT_EQ(0u, pack_layout(&m, (enum pack_type)4, 16, 256));
	EXPECT_EQ(0u, pack_layout(&m, (enum pack_type) - 1, 16, 256));
	EXPECT_EQ(0u, pack_layout(&m, (enum pack_type)1000, 16, 256));
	EXPECT_EQ(0u, pack_layout(&m, PACK_Q4_1, 16, 33));
	EXPECT_EQ(0u, pack_layout(&m, PACK_Q8_0, 16, 16));
	EXPECT_EQ(0u, pack_layout(&m, PACK_Q6_K, 16, 128));
	EXPECT_EQ(0u, pack_source_row_bytes((enum pack_type)22, 256));
	EXPECT_EQ(210u, pack_source_row_bytes(PACK_Q6_K, 256));
	/* 2^28 groups of 2^38 bytes. */
	EXPECT_EQ(0u, pack_layout(&m, PACK_F32, UINT32_MAX, UINT32_MAX));
}

static void check_values(enum pack_type type, uint32_t nr_rows,
			 uint32_t nr_cols)
{
	struct rng rng = { 7 * nr_rows + nr_cols };
	uint8_t *made = weights_make(type, nr_rows, nr_cols, false, &rng);
	uint64_t row_bytes = pack_source_row_bytes(type, nr_cols);
	/* Files promise no alignment. */
	uint8_t *src = malloc(nr_rows * row_bytes + 1);
	float *row = malloc(nr_cols * sizeof(*row));
	struct packed_matrix m;
	uint8_t *packed;

	memcpy(src + 1, made, nr_rows * row_bytes);
	packed = weights_pack(type, nr_rows, nr_cols, src + 1, &m);
	ASSERT_TRUE(packed != NULL);
	for (uint32_t r = 0; r < nr_rows; r++) {
		pack_row_f32(&m, r, row);
		for (uint32_t k = 0; k < nr_cols; k++) {
			double want =
				weights_value(type, made + r * row_bytes, k);

			/* One rounding, of the sum, where there is a minimum. */
			ASSERT_EQ((float)want, row[k])
			{
				TH_LOG("%s row %u k %u", weights_name(type), r,
				       k);
			}
		}
	}
	free(made);
	free(src);
	free(row);
	free(packed);
}

TEST(rows_come_back_as_the_file_has_them)
{
	for (int t = 0; t < WEIGHTS_NR_TYPES; t++) {
		enum pack_type type = weights_types[t];
		uint32_t block = weights_block(type);

		for (size_t n = 0;
		     n < sizeof(row_counts) / sizeof(row_counts[0]); n++) {
			check_values(type, row_counts[n], block);
			check_values(type, row_counts[n], 3 * block);
		}
		check_values(type, 2, block == 1 ? 577 : 1536);
	}
}

/* Bytes of the plane of scales, as the format says. */
static uint32_t scales_bytes(const struct packed_matrix *m)
{
	uint32_t nb = m->nr_cols / 32;

	switch (m->type) {
	case PACK_Q4_1:
	case PACK_Q5_1:
		return nb * 64;
	case PACK_MXFP4:
		return nb * 16;
	case PACK_Q3_K:
		return nb / 8 * 288;
	case PACK_IQ4_XS:
		return nb / 8 * 160;
	default:
		return weights_block(m->type) == 256 ? nb / 8 * 320 : nb * 32;
	}
}

/* The code of (row, k), found by the format's description. */
static unsigned int code_at(const struct packed_matrix *m, uint32_t row,
			    uint32_t k)
{
	uint32_t nb = m->nr_cols / 32, r = row % 16, b = k / 32;
	uint32_t i = k % 32 / 4, c = k % 4;
	const uint8_t *group = m->data + row / 16 * m->group_bytes;
	const uint8_t *codes = group + (scales_bytes(m) + 63) / 64 * 64;
	bool is_short = m->type == PACK_Q2_K || m->type == PACK_Q3_K;
	const uint8_t *high = codes + nb * (is_short ? 128 : 256);
	const uint8_t *pairs = is_short ? codes : high;
	unsigned int code, two = 0, one = 0;

	if (m->type == PACK_Q8_0)
		return codes[((b * 8 + i) * 16 + r) * 4 + c];
	if (is_short || m->type == PACK_Q6_K)
		two = pairs[((b * 2 + i / 4) * 16 + r) * 4 + c] >>
			      (2 * (i % 4)) &
		      3;
	if (m->type == PACK_Q5_0 || m->type == PACK_Q5_1 ||
	    m->type == PACK_Q5_K || m->type == PACK_Q3_K)
		one = high[(b * 16 + r) * 4 + c] >> i & 1;
	if (is_short)
		return two | one << 2;
	code = codes[((b * 4 + i % 4) * 16 + r) * 4 + c];
	return (i < 4 ? code & 15 : code >> 4) | one << 4 | two << 4;
}

TEST(codes_lie_where_the_format_says)
{
	struct rng rng = { 3 };

	for (int t = 3; t < WEIGHTS_NR_TYPES; t++) {
		enum pack_type type = weights_types[t];
		uint64_t row_bytes = pack_source_row_bytes(type, 768);
		uint8_t *src = weights_make(type, 19, 768, false, &rng);
		struct packed_matrix m;
		uint8_t *packed = weights_pack(type, 19, 768, src, &m);

		for (uint32_t r = 0; r < 19; r++) {
			for (uint32_t k = 0; k < 768; k++) {
				int want = weights_code(type,
							src + r * row_bytes, k);

				if (type == PACK_Q8_0)
					want += 128;
				ASSERT_EQ(want, (int)code_at(&m, r, k))
				{
					TH_LOG("%s row %u k %u",
					       weights_name(type), r, k);
				}
			}
		}
		free(src);
		free(packed);
	}
}

TEST(missing_rows_and_padding_are_zero)
{
	struct rng rng = { 5 };

	for (int t = 0; t < WEIGHTS_NR_TYPES; t++) {
		enum pack_type type = weights_types[t];
		uint32_t nr_cols = weights_block(type) * 3;
		uint8_t *src = weights_make(type, 17, nr_cols, false, &rng);
		struct packed_matrix m, full;
		uint8_t *packed = weights_pack(type, 17, nr_cols, src, &m);
		uint64_t row_bytes = pack_source_row_bytes(type, nr_cols);
		/* The same row with 15 rows of zero bytes below it, as the file would have them. */
		uint8_t *zeros = calloc(16, row_bytes);
		uint8_t *whole;

		memcpy(zeros, src + 16 * row_bytes, row_bytes);
		whole = weights_pack(type, 16, nr_cols, zeros, &full);
		/*
		 * Zero bytes of Q8_0 are code 128, of Q3_K and IQ4_XS sub-scales of -32: a missing
		 * row is not a row of zeros there.
		 */
		if (type == PACK_Q8_0)
			EXPECT_EQ(0, packed[m.group_bytes + 128 + 4]);
		else if (type == PACK_Q3_K || type == PACK_IQ4_XS)
			EXPECT_EQ(0, packed[m.group_bytes + 32 + 1]);
		else
			EXPECT_MEMEQ(whole, packed + m.group_bytes,
				     m.group_bytes);
		free(src);
		free(packed);
		free(zeros);
		free(whole);
	}
}

TEST(groups_packed_apart_are_the_same)
{
	struct rng rng = { 6 };

	for (int t = 0; t < WEIGHTS_NR_TYPES; t++) {
		enum pack_type type = weights_types[t];
		uint8_t *src = weights_make(type, 40, 512, false, &rng);
		struct packed_matrix m;
		uint8_t *packed = weights_pack(type, 40, 512, src, &m);
		uint8_t *again = aligned_alloc(64, 3 * m.group_bytes);

		memset(again, 0x5a, 3 * m.group_bytes);
		pack_groups(&m, src, 2, 3, again);
		pack_groups(&m, src, 0, 1, again);
		pack_groups(&m, src, 1, 2, again);
		EXPECT_MEMEQ(packed, again, 3 * m.group_bytes);
		free(src);
		free(packed);
		free(again);
	}
}

TEST_HARNESS_MAIN

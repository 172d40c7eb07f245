/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The golden logits and their reader: the parts of a record agree with the
 * whole vector kept beside it, and the error measure measures errors.
 */
#include <stdlib.h>

#include "tests/engine/golden_logits.h"
#include "tests/harness.h"

FIXTURE(golden)
{
	struct golden golden;
	float *logits; /* [n_vocab] */
};

FIXTURE_VARIANT(golden)
{
	const char *path;
	uint32_t n_vocab;
	uint32_t min_positions;
};

FIXTURE_VARIANT_ADD(golden, smollm2){
	.path = "tests/data/logits_smollm2.bin",
	.n_vocab = 49152,
	.min_positions = 350,
};

FIXTURE_VARIANT_ADD(golden, gemma3){
	.path = "tests/data/logits_gemma3.bin",
	.n_vocab = 262144,
	.min_positions = 200,
};
#define TINY(name)                                              \
	FIXTURE_VARIANT_ADD(golden, tiny_##name){               \
		.path = "tests/data/logits_tiny_" #name ".bin", \
		.n_vocab = 320,                                 \
		.min_positions = 70,                            \
	};
TINY(llama)
TINY(qwen2)
TINY(qwen3)

FIXTURE_SETUP(golden)
{
	ASSERT_EQ(0, golden_open(variant->path, &self->golden));
	ASSERT_EQ(variant->n_vocab, self->golden.head->n_vocab);
	self->logits = calloc(variant->n_vocab, sizeof(float));
	ASSERT_TRUE(self->logits != NULL);
}

FIXTURE_TEARDOWN(golden)
{
	free(self->logits);
	golden_close(&self->golden);
}

static void check_kept(const struct golden *golden,
		       const struct golden_prompt *prompt)
{
	for (uint32_t k = 0; k < prompt->nr_kept; k++) {
		const struct golden_kept *kept = &prompt->kept[k];

		EXPECT_LT(kept->position, prompt->nr_tokens);
		EXPECT_TRUE(k == 0 ||
			    prompt->kept[k - 1].position < kept->position);
		EXPECT_TRUE(golden_find(prompt, kept->position) == kept);
		EXPECT_TRUE(isfinite(kept->norm) && kept->norm > 0);
		for (int i = 0; i < GOLDEN_NR_TOP; i++) {
			EXPECT_LT(kept->ids[i], golden->head->n_vocab);
			EXPECT_TRUE(i == 0 || kept->top[i - 1] >= kept->top[i]);
		}
	}
}

TEST_F(golden, file_is_whole_and_in_order)
{
	struct golden_prompt prompt;
	uint32_t nr_positions = 0, longest = 0;
	const uint8_t *end = NULL;

	for (uint32_t i = 0; i < self->golden.head->nr_prompts; i++) {
		ASSERT_EQ(0, golden_prompt_at(&self->golden, i, &prompt));
		for (uint32_t t = 0; t < prompt.nr_tokens; t++) {
			EXPECT_GE(prompt.tokens[t], 0);
			EXPECT_LT(prompt.tokens[t], (int32_t)variant->n_vocab);
		}
		check_kept(&self->golden, &prompt);
		nr_positions += prompt.nr_kept;
		if (prompt.nr_tokens > longest)
			longest = prompt.nr_tokens;
		end = prompt.whole +
		      prompt.nr_whole * golden_whole_bytes(&self->golden);
	}
	EXPECT_TRUE(end == self->golden.base + self->golden.size);
	EXPECT_GE(nr_positions, variant->min_positions);
	/* One prompt crosses the split border and the sliding window at 512. */
	EXPECT_GT(longest, 600);
	EXPECT_EQ(-ERANGE,
		  golden_prompt_at(&self->golden, self->golden.head->nr_prompts,
				   &prompt));
}

TEST_F(golden, whole_vectors_agree_with_norm_top_and_sketch)
{
	struct golden_prompt prompt;
	uint32_t nr_whole = 0;

	for (uint32_t i = 0; i < self->golden.head->nr_prompts; i++) {
		ASSERT_EQ(0, golden_prompt_at(&self->golden, i, &prompt));
		for (uint32_t w = 0; w < prompt.nr_whole; w++, nr_whole++) {
			uint32_t position = golden_whole(&self->golden, &prompt,
							 w, self->logits);
			const struct golden_kept *kept =
				golden_find(&prompt, position);
			struct golden_error error = { 0 };
			double square = 0;

			ASSERT_TRUE(kept != NULL);
			for (uint32_t v = 0; v < variant->n_vocab; v++)
				square += (double)self->logits[v] *
					  (double)self->logits[v];
			EXPECT_LT(fabs(sqrt(square) / kept->norm - 1), 1e-5);
			golden_error_add(&error, &self->golden, kept,
					 self->logits);
			EXPECT_LT(golden_error_relative(&error), 1e-4);
			EXPECT_LT(
				sqrt(error.top_diff_square / error.top_square),
				1e-4);
			EXPECT_EQ(1, error.nr_top1_equal);
		}
	}
	EXPECT_GE(nr_whole, 1);
}

TEST_F(golden, a_known_error_is_measured)
{
	struct golden_prompt prompt;
	struct golden_error error = { 0 };

	ASSERT_EQ(0,
		  golden_prompt_at(&self->golden,
				   self->golden.head->nr_prompts - 1, &prompt));
	ASSERT_GE(prompt.nr_whole, 1);

	uint32_t position =
		golden_whole(&self->golden, &prompt, 0, self->logits);
	const struct golden_kept *kept = golden_find(&prompt, position);

	/* Noise of 1 % of the logits' root mean square, many draws: the estimate is close. */
	float *noisy = malloc(variant->n_vocab * sizeof(float));
	double sigma = 0.01 * kept->norm / sqrt(variant->n_vocab);

	ASSERT_TRUE(noisy != NULL);
	for (uint64_t draw = 0; draw < 20; draw++) {
		for (uint32_t v = 0; v < variant->n_vocab; v++) {
			uint64_t hash =
				golden_hash(draw << 32 | v | 1ull << 62);
			double uniform = (double)(hash >> 11) * 0x1p-53 - 0.5;

			noisy[v] = self->logits[v] +
				   (float)(sigma * sqrt(12) * uniform);
		}
		golden_error_add(&error, &self->golden, kept, noisy);
	}
	free(noisy);
	EXPECT_EQ(20, error.nr_positions);
	EXPECT_GT(golden_error_relative(&error), 0.009);
	EXPECT_LT(golden_error_relative(&error), 0.011);

	/* Another choice counts, and by how much it was worse. */
	struct golden_error other = { 0 };

	self->logits[kept->ids[5]] = kept->top[0] + 1;
	golden_error_add(&other, &self->golden, kept, self->logits);
	EXPECT_EQ(0, other.nr_top1_equal);
	EXPECT_LT(fabs(other.worst_gap - (double)(kept->top[0] - kept->top[5])),
		  1e-6);
	self->logits[7] = NAN;
	golden_error_add(&other, &self->golden, kept, self->logits);
	EXPECT_TRUE(isnan(golden_error_relative(&other)));
}

TEST(a_file_that_is_no_golden_file_is_refused)
{
	struct golden golden;

	EXPECT_EQ(-ENOENT, golden_open("tests/data/no-such-file", &golden));
	EXPECT_EQ(-EINVAL,
		  golden_open("tests/data/make_logits_golden.py", &golden));
}

TEST_HARNESS_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiny random models of each architecture in every tensor type: the engine's
 * logits against a forward pass written plainly in double on weights that the
 * test dequantises itself (tiny_model.h, tiny_forward.h).
 */
#include "engine/engine.h"
#include "tests/engine/tiny_forward.h"
#include "tests/harness.h"

enum {
	/* Beyond a tile of 64, and Gemma's window several times. */
	NR_TOKENS = 70,
	NR_POSITIONS = 6,
};

/* Lengths whose last token's logits are compared. */
static const uint32_t lengths[NR_POSITIONS] = { 1, 2, 17, 33, 65, NR_TOKENS };

FIXTURE(tiny)
{
	struct tiny_model model;
	int32_t tokens[NR_TOKENS];
	double *want; /* [NR_TOKENS][n_vocab] */
};
FIXTURE_VARIANT(tiny)
{
	struct tiny_spec (*spec)(uint32_t type);
	uint32_t type;
	bool is_untied, has_bias, has_rope_freqs;
	float rope_factor, softcap;
	uint32_t nr_rot; /* 0: whole heads */
};
#define EACH_ARCH(name, t)                                                  \
	FIXTURE_VARIANT_ADD(tiny, llama_##name){ tiny_llama, .type = t };   \
	FIXTURE_VARIANT_ADD(tiny, gemma3_##name){ tiny_gemma3, .type = t }; \
	FIXTURE_VARIANT_ADD(tiny, qwen2_##name){ tiny_qwen2, .type = t };   \
	FIXTURE_VARIANT_ADD(tiny, qwen3_##name){ tiny_qwen3, .type = t };
EACH_ARCH(f32, GGUF_TYPE_F32)
EACH_ARCH(f16, GGUF_TYPE_F16)
EACH_ARCH(bf16, GGUF_TYPE_BF16)
EACH_ARCH(q4_0, GGUF_TYPE_Q4_0)
EACH_ARCH(q4_1, GGUF_TYPE_Q4_1)
EACH_ARCH(q5_0, GGUF_TYPE_Q5_0)
EACH_ARCH(q5_1, GGUF_TYPE_Q5_1)
EACH_ARCH(q8_0, GGUF_TYPE_Q8_0)
EACH_ARCH(q2_k, GGUF_TYPE_Q2_K)
EACH_ARCH(q3_k, GGUF_TYPE_Q3_K)
EACH_ARCH(q4_k, GGUF_TYPE_Q4_K)
EACH_ARCH(q5_k, GGUF_TYPE_Q5_K)
EACH_ARCH(q6_k, GGUF_TYPE_Q6_K)
EACH_ARCH(iq4_nl, GGUF_TYPE_IQ4_NL)
EACH_ARCH(iq4_xs, GGUF_TYPE_IQ4_XS)
EACH_ARCH(mxfp4, GGUF_TYPE_MXFP4)
FIXTURE_VARIANT_ADD(tiny, llama_untied){ tiny_llama, .type = GGUF_TYPE_Q8_0,
					 .is_untied = true };
FIXTURE_VARIANT_ADD(tiny, llama_biases){ tiny_llama, .type = GGUF_TYPE_Q4_1,
					 .has_bias = true };
FIXTURE_VARIANT_ADD(tiny, llama_rope_factors){ tiny_llama,
					       .type = GGUF_TYPE_F32,
					       .has_rope_freqs = true };
FIXTURE_VARIANT_ADD(tiny, llama_rope_scaling){ tiny_llama,
					       .type = GGUF_TYPE_F32,
					       .rope_factor = 4 };
FIXTURE_VARIANT_ADD(tiny, llama_rope_of_half_a_head){ tiny_llama,
						      .type = GGUF_TYPE_F32,
						      .nr_rot = 8 };
FIXTURE_VARIANT_ADD(tiny, llama_everything){
	tiny_llama,	  .type = GGUF_TYPE_BF16, .is_untied = true,
	.has_bias = true, .rope_factor = 2,	  .nr_rot = 12,
};
FIXTURE_VARIANT_ADD(tiny, gemma3_softcap){ tiny_gemma3, .type = GGUF_TYPE_Q8_0,
					   .softcap = 1.5f };
FIXTURE_VARIANT_ADD(tiny, qwen2_untied){ tiny_qwen2, .type = GGUF_TYPE_Q3_K,
					 .has_bias = true, .is_untied = true };
FIXTURE_VARIANT_ADD(tiny, qwen3_untied){ tiny_qwen3, .type = GGUF_TYPE_IQ4_XS,
					 .is_untied = true };
FIXTURE_VARIANT_ADD(tiny, qwen3_rope_scaling){ tiny_qwen3,
					       .type = GGUF_TYPE_F32,
					       .rope_factor = 4 };

FIXTURE_SETUP(tiny)
{
	struct tiny_spec spec = variant->spec(variant->type);

	spec.is_untied = variant->is_untied;
	spec.has_bias |= variant->has_bias;
	spec.has_rope_freqs = variant->has_rope_freqs;
	spec.softcap = variant->softcap;
	if (variant->rope_factor > 0)
		spec.rope_factor = variant->rope_factor;
	if (variant->nr_rot)
		spec.nr_rot = variant->nr_rot;
	if (spec.has_rope_freqs)
		spec.vector_type = GGUF_TYPE_F32;
	tiny_create(&self->model, &spec);
	for (uint32_t i = 0; i < NR_TOKENS; i++)
		self->tokens[i] =
			(int32_t)(tiny_u32(&self->model) % TINY_VOCAB);
	self->want = tiny_forward(&self->model, self->tokens, NR_TOKENS);
}
FIXTURE_TEARDOWN(tiny)
{
	(void)variant;
	free(self->want);
	tiny_destroy(&self->model);
}

/* Squares of differences and of what is wanted, over every position. */
struct error {
	double difference, want;
};

/* The first @nr tokens alone, in pieces of @chunk. */
static void compare_prefix(struct tarn_engine *e, const int32_t *tokens,
			   uint32_t nr, uint32_t chunk, const double *want,
			   struct error *error)
{
	struct tarn_seq_params p = {
		.prompt = tokens,
		.nr_prompt = nr,
		.max_new_tokens = 1,
		.nr_choices = 1,
		.sampling = { .top_p = 1 },
		.no_prefix_cache = true,
	};
	struct tarn_result result = { 0 };
	struct tarn_seq *seq;
	const float *got;
	char err[256] = "";

	ASSERT_EQ(0, tarn_seq_create(e, &p, &seq, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	while (!result.has_token) {
		uint32_t pending = tarn_seq_pending(seq);
		struct tarn_work work = { seq,
					  pending < chunk ? pending : chunk };

		ASSERT_EQ(0, tarn_step(e, &work, 1, &result));
		ASSERT_EQ(0, result.status);
	}
	got = tarn_step_logits(e, 0);
	ASSERT_TRUE(got != NULL);
	for (uint32_t i = 0; i < TINY_VOCAB; i++) {
		double d = (double)got[i] - want[i];

		error->difference += d * d;
		error->want += want[i] * want[i];
	}
	tarn_seq_destroy(seq);
}

static void compare(const struct tiny_model *model, const int32_t *tokens,
		    const double *want, bool precise, double bound)
{
	struct tarn_engine_options options = {
		.model_path = model->path,
		.nr_threads = precise ? 2 : 1,
		.kv_bytes = 16 << 20,
		.precise = precise,
		.max_batch_tokens = NR_TOKENS,
	};
	struct error error = { 0 };
	struct tarn_engine *e;
	char err[256] = "";
	double relative;

	ASSERT_EQ(0, tarn_engine_create(&options, &e, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	EXPECT_STREQ("", err);
	for (int i = 0; i < NR_POSITIONS; i++)
		compare_prefix(e, tokens, lengths[i], i % 2 ? NR_TOKENS : 13,
			       want + (size_t)(lengths[i] - 1) * TINY_VOCAB,
			       &error);
	tarn_engine_destroy(e);
	relative = sqrt(error.difference / error.want);
	EXPECT_GT(error.want, 1);
	EXPECT_LE(relative, bound);
	if (getenv("TARN_TEST_VERBOSE"))
		TH_LOG("%s: relative error %.2e", precise ? "precise" : "int8",
		       relative);
}

TEST_F(tiny, logits_agree_with_double)
{
	/*
	 * Of --precise the contract asks for 1e-4; so short sums keep more (measured: 1.5e-6). With
	 * float weights only K and V are rounded, to 11 bits (4e-4). Else activations are, to 8
	 * bits a block (2.6e-2).
	 */
	compare(&self->model, self->tokens, self->want, true, 1e-5);
	compare(&self->model, self->tokens, self->want, false,
		tiny_type(variant->type).block == 1 ? 1e-3 : 4e-2);
}

TEST_HARNESS_MAIN

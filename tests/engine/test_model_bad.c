/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model files whose container is right and whose content is not: numbers that
 * make no model, tensors that are missing or of another shape or type.
 * tarn_engine_create() refuses each with its errno, a message that names the offence,
 * and nothing printed; the leak sanitizer sees what is left behind.
 */
#include <math.h>

#include "tests/engine/model_bad.h"
#include "tests/harness.h"

enum {
	TYPE_IQ3_S = 21,
};

TEST(the_models_that_are_broken_here_are_good_otherwise)
{
	const struct tiny_spec specs[] = {
		tiny_llama(GGUF_TYPE_F32),  tiny_llama(GGUF_TYPE_Q4_K),
		tiny_gemma3(GGUF_TYPE_F32), tiny_qwen2(GGUF_TYPE_F32),
		tiny_qwen3(GGUF_TYPE_F32),
	};

	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
		struct tarn_engine_options options = { .nr_threads = 1,
						       .kv_bytes = 4 << 20 };
		struct tarn_engine *engine = NULL;
		struct tiny_model m;
		char err[256] = "untouched";

		tiny_create(&m, &specs[i]);
		options.model_path = m.path;
		ASSERT_EQ(0, create(&options, &engine, err, sizeof(err)));
		EXPECT_STREQ("", err);
		EXPECT_STREQ(specs[i].arch, tarn_engine_info(engine)->arch);
		EXPECT_EQ(TINY_VOCAB, tarn_engine_info(engine)->nr_vocab);
		tarn_engine_destroy(engine);
		tiny_destroy(&m);
	}
}

/* ---- numbers ------------------------------------------------------------------ */

TEST(architectures_are_known_by_name)
{
	static const struct bad_key keys[] = {
		{ "general.architecture", ABSENT, -EINVAL,
		  "metadata key general.architecture is missing" },
		{ "general.architecture", U32(3), -EINVAL,
		  "metadata key general.architecture is of type u32, wanted is string" },
		{ "general.architecture", STR(""), -ENOTSUP,
		  "architecture \"\" is not supported" },
		{ "general.architecture", STR("llama4"), -ENOTSUP,
		  "architecture \"llama4\" is not supported" },
		{ "general.architecture", STR("llam"), -ENOTSUP,
		  "architecture \"llam\" is not supported" },
		{ "general.architecture",
		  STR("an architecture with a name that goes on and on and on and on and on"),
		  -ENOTSUP,
		  "architecture \"an architecture with a name that goes on and on and on and on "
		  "an...\" is not supported" },
		/* Its keys are looked for under its own name. */
		{ "general.architecture", STR("gemma3"), -EINVAL,
		  "metadata key gemma3.block_count is missing" },
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	EXPECT_KEYS_REFUSED(spec, keys);
}

TEST(missing_numbers_are_named)
{
	static const struct bad_key keys[] = {
		{ "llama.block_count", ABSENT, -EINVAL,
		  "metadata key llama.block_count is missing" },
		{ "llama.context_length", ABSENT, -EINVAL,
		  "metadata key llama.context_length is missing" },
		{ "llama.embedding_length", ABSENT, -EINVAL,
		  "metadata key llama.embedding_length is missing" },
		{ "llama.feed_forward_length", ABSENT, -EINVAL,
		  "metadata key llama.feed_forward_length is missing" },
		{ "llama.attention.head_count", ABSENT, -EINVAL,
		  "metadata key llama.attention.head_count is missing" },
		{ "llama.attention.layer_norm_rms_epsilon", ABSENT, -EINVAL,
		  "metadata key llama.attention.layer_norm_rms_epsilon is missing" },
	};
	static const struct bad_key gemma[] = {
		{ "gemma3.attention.sliding_window", ABSENT, -EINVAL,
		  "metadata key gemma3.attention.sliding_window is missing" },
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	EXPECT_KEYS_REFUSED(spec, keys);
	spec = tiny_gemma3(GGUF_TYPE_F32);
	EXPECT_KEYS_REFUSED(spec, gemma);
}

TEST(numbers_of_the_wrong_kind_are_named)
{
	static const struct bad_key keys[] = {
		{ "llama.block_count", STR("2"), -EINVAL,
		  "metadata key llama.block_count is of type string, wanted is an integer" },
		{ "llama.block_count", F32(2), -EINVAL,
		  "metadata key llama.block_count is of type f32, wanted is an integer" },
		{ "llama.block_count", I32(-2), -EINVAL,
		  "metadata key llama.block_count: -2 does not fit a u32" },
		{ "llama.embedding_length", LAYERS(64, 64), -EINVAL,
		  "metadata key llama.embedding_length is of type array, wanted is an integer" },
		{ "llama.feed_forward_length", STR("96"), -EINVAL,
		  "metadata key llama.feed_forward_length"
		  " is of type string, wanted is an integer" },
		{ "llama.feed_forward_length", FLOATS(96), -EINVAL,
		  "llama.feed_forward_length: entry 0 is not a count" },
		{ "llama.attention.layer_norm_rms_epsilon", STR("1e-5"),
		  -EINVAL,
		  "metadata key llama.attention.layer_norm_rms_epsilon"
		  " is of type string, wanted is a number" },
		{ "llama.rope.freq_base", STR("10000"), -EINVAL,
		  "metadata key llama.rope.freq_base is of type string, wanted is a number" },
		{ "llama.rope.scaling.type", U32(1), -EINVAL,
		  "metadata key llama.rope.scaling.type is of type u32, wanted is string" },
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	EXPECT_KEYS_REFUSED(spec, keys);
}

TEST(shapes_out_of_range_are_refused)
{
	static const struct bad_key keys[] = {
		{ "llama.block_count", U32(0), -EINVAL,
		  "llama.block_count is 0, want 1 to 1024" },
		{ "llama.block_count", U32(1025), -EINVAL,
		  "llama.block_count is 1025, want 1 to 1024" },
		{ "llama.block_count", U32(UINT32_MAX), -EINVAL,
		  "llama.block_count is 4294967295, want 1 to 1024" },
		{ "llama.context_length", U32(0), -EINVAL,
		  "llama.context_length is 0, want 1 to 268435456" },
		{ "llama.context_length", U32(UINT32_MAX), -EINVAL,
		  "llama.context_length is 4294967295, want 1 to 268435456" },
		{ "llama.embedding_length", U32(0), -EINVAL,
		  "llama.embedding_length is 0, want 1 to 1048576" },
		{ "llama.embedding_length", U32(UINT32_MAX), -EINVAL,
		  "llama.embedding_length is 4294967295, want 1 to 1048576" },
		{ "llama.feed_forward_length", U32(0), -EINVAL,
		  "llama.feed_forward_length is 0, want 1 to 1048576" },
		{ "llama.feed_forward_length", U32(UINT32_MAX), -EINVAL,
		  "llama.feed_forward_length is 4294967295, want 1 to 1048576" },
		{ "llama.attention.head_count", U32(0), -EINVAL,
		  "llama.attention.head_count is 0, want 1 to 1024" },
		{ "llama.attention.head_count", U32(UINT32_MAX), -EINVAL,
		  "llama.attention.head_count is 4294967295, want 1 to 1024" },
		{ "llama.attention.head_count_kv", U32(0), -EINVAL,
		  "llama.attention.head_count_kv is 0, want 1 to 4" },
		{ "llama.attention.head_count_kv", U32(3), -EINVAL,
		  "4 query heads are not a multiple of 3 key heads" },
		{ "llama.attention.head_count_kv", U32(8), -EINVAL,
		  "llama.attention.head_count_kv is 8, want 1 to 4" },
		{ "llama.attention.key_length", U32(0), -EINVAL,
		  "llama.attention.key_length is 0, want 2 to 1024" },
		{ "llama.attention.key_length", U32(24), -ENOTSUP,
		  "a head of 24 values: not a multiple of 16, not supported" },
		{ "llama.attention.key_length", U32(1040), -EINVAL,
		  "llama.attention.key_length is 1040, want 2 to 1024" },
		{ "llama.attention.value_length", U32(32), -ENOTSUP,
		  "key_length 16 and value_length 32 differ: not supported" },
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	EXPECT_KEYS_REFUSED(spec, keys);
}

TEST(layers_of_different_shape_are_refused)
{
	static const struct bad_key keys[] = {
		{ "llama.feed_forward_length", LAYERS(96, 64), -ENOTSUP,
		  "llama.feed_forward_length: layers of different shape are not supported" },
		{ "llama.attention.head_count", LAYERS(4, 2), -ENOTSUP,
		  "llama.attention.head_count: layers of different shape are not supported" },
		{ "llama.attention.head_count_kv", LAYERS(2, 0), -ENOTSUP,
		  "llama.attention.head_count_kv: layers of different shape are not supported" },
	};
	static const struct tiny_change same = {
		.key = "llama.attention.head_count_kv", .value = LAYERS(2, 2)
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);
	struct tarn_engine_options options = { .nr_threads = 1,
					       .kv_bytes = 4 << 20 };
	struct tarn_engine *engine = NULL;
	struct tiny_model m;
	char err[256];

	spec.nr_layers = 4;
	EXPECT_KEYS_REFUSED(spec, keys);
	/* Written out for each layer, and equal: fine. */
	spec.change = &same;
	tiny_create(&m, &spec);
	options.model_path = m.path;
	EXPECT_EQ(0, create(&options, &engine, err, sizeof(err)));
	tarn_engine_destroy(engine);
	tiny_destroy(&m);
}

TEST(norms_and_rotations_must_make_sense)
{
	static const struct bad_key keys[] = {
		{ "llama.attention.layer_norm_rms_epsilon", F32(NAN), -EINVAL,
		  "llama.attention.layer_norm_rms_epsilon is not a finite number" },
		{ "llama.attention.layer_norm_rms_epsilon", F32(INFINITY),
		  -EINVAL,
		  "llama.attention.layer_norm_rms_epsilon is not a finite number" },
		{ "llama.attention.layer_norm_rms_epsilon", F32(-1e-5f),
		  -EINVAL,
		  "llama.attention.layer_norm_rms_epsilon is negative" },
		{ "llama.rope.dimension_count", U32(0), -EINVAL,
		  "rope: 0 of 16 dimensions at base 10000 make no rotation" },
		{ "llama.rope.dimension_count", U32(7), -EINVAL,
		  "rope: 7 of 16 dimensions at base 10000 make no rotation" },
		{ "llama.rope.dimension_count", U32(18), -EINVAL,
		  "rope: 18 of 16 dimensions at base 10000 make no rotation" },
		{ "llama.rope.dimension_count", U32(UINT32_MAX), -EINVAL,
		  "rope: 4294967295 of 16 dimensions at base 10000 make no rotation" },
		{ "llama.rope.freq_base", F32(0), -EINVAL,
		  "rope: 16 of 16 dimensions at base 0 make no rotation" },
		{ "llama.rope.freq_base", F32(-10000), -EINVAL,
		  "rope: 16 of 16 dimensions at base -10000 make no rotation" },
		{ "llama.rope.freq_base", F32(NAN), -EINVAL,
		  "llama.rope.freq_base is not a finite number" },
		{ "llama.rope.scaling.factor", F32(0), -EINVAL,
		  "rope scaling factor 0 is not positive" },
		{ "llama.rope.scaling.factor", F32(-2), -EINVAL,
		  "rope scaling factor -2 is not positive" },
		{ "llama.rope.scaling.factor", F32(NAN), -EINVAL,
		  "llama.rope.scaling.factor is not a finite number" },
		{ "llama.rope.scaling.type", STR("yarn"), -ENOTSUP,
		  "llama.rope.scaling.type \"yarn\" is not supported" },
		{ "llama.rope.scaling.type", STR("longrope"), -ENOTSUP,
		  "llama.rope.scaling.type \"longrope\" is not supported" },
		{ "llama.rope.scaling.type", STR(""), -ENOTSUP,
		  "llama.rope.scaling.type \"\" is not supported" },
	};
	static const struct bad_key gemma[] = {
		{ "gemma3.attention.sliding_window", U32(0), -EINVAL,
		  "gemma3.attention.sliding_window is 0" },
		{ "gemma3.rope.local.freq_base", F32(0.5f), -EINVAL,
		  "rope: 16 of 16 dimensions at base 0.5 make no rotation" },
		{ "gemma3.rope.freq_base_swa", F32(INFINITY), -EINVAL,
		  "gemma3.rope.freq_base_swa is not a finite number" },
		{ "gemma3.final_logit_softcapping", F32(NAN), -EINVAL,
		  "gemma3.final_logit_softcapping is not a finite number" },
		{ "gemma3.final_logit_softcapping", F32(-30), -EINVAL,
		  "gemma3.final_logit_softcapping is negative" },
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	EXPECT_KEYS_REFUSED(spec, keys);
	spec = tiny_gemma3(GGUF_TYPE_F32);
	EXPECT_KEYS_REFUSED(spec, gemma);
}

/* ---- tensors -------------------------------------------------------------------- */

TEST(missing_tensors_are_named)
{
	static const char *const llama[] = {
		"token_embd.weight",	  "output_norm.weight",
		"blk.0.attn_norm.weight", "blk.0.attn_q.weight",
		"blk.1.attn_k.weight",	  "blk.0.attn_v.weight",
		"blk.1.ffn_norm.weight",  "blk.0.attn_output.weight",
		"blk.0.ffn_gate.weight",  "blk.1.ffn_up.weight",
		"blk.1.ffn_down.weight",
	};
	static const char *const gemma[] = {
		"blk.6.attn_q_norm.weight",
		"blk.0.attn_k_norm.weight",
		"blk.5.post_attention_norm.weight",
		"blk.3.post_ffw_norm.weight",
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	expect_each_missing(&spec, llama, sizeof(llama) / sizeof(llama[0]));
	spec = tiny_gemma3(GGUF_TYPE_F32);
	expect_each_missing(&spec, gemma, sizeof(gemma) / sizeof(gemma[0]));
}

TEST(tensors_of_another_shape_are_named)
{
	static const struct bad_tensor tensors[] = {
		{ SHAPE("token_embd.weight", 2, 65, 263), -EINVAL,
		  "tensor token_embd.weight is [65, 263, 1, 1], want [64, 263]" },
		{ SHAPE("token_embd.weight", 1, 64), -EINVAL,
		  "tensor output.weight is [64, 263, 1, 1], want [64, 1]" },
		{ SHAPE("output_norm.weight", 1, 63), -EINVAL,
		  "tensor output_norm.weight is [63, 1, 1, 1], want [64, 1]" },
		{ SHAPE("output_norm.weight", 2, 64, 2), -EINVAL,
		  "tensor output_norm.weight is [64, 2, 1, 1], want [64, 1]" },
		{ SHAPE("output.weight", 2, 64, 262), -EINVAL,
		  "tensor output.weight is [64, 262, 1, 1], want [64, 263]" },
		{ SHAPE("blk.0.attn_q.weight", 2, 64, 32), -EINVAL,
		  "tensor blk.0.attn_q.weight is [64, 32, 1, 1], want [64, 64]" },
		{ SHAPE("blk.1.attn_k.weight", 2, 64, 64), -EINVAL,
		  "tensor blk.1.attn_k.weight is [64, 64, 1, 1], want [64, 32]" },
		{ SHAPE("blk.1.attn_v.weight", 2, 32, 64), -EINVAL,
		  "tensor blk.1.attn_v.weight is [32, 64, 1, 1], want [64, 32]" },
		{ SHAPE("blk.1.attn_v.weight", 3, 64, 32, 2), -EINVAL,
		  "tensor blk.1.attn_v.weight is [64, 32, 2, 1], want [64, 32]" },
		{ SHAPE("blk.0.ffn_down.weight", 2, 64, 96), -EINVAL,
		  "tensor blk.0.ffn_down.weight is [64, 96, 1, 1], want [96, 64]" },
		{ SHAPE("blk.0.attn_q.bias", 1, 32), -EINVAL,
		  "tensor blk.0.attn_q.bias is [32, 1, 1, 1], want [64, 1]" },
		{ SHAPE("blk.0.attn_v.bias", 2, 16, 2), -EINVAL,
		  "tensor blk.0.attn_v.bias is [16, 2, 1, 1], want [32, 1]" },
		{ SHAPE("rope_freqs.weight", 1, 16), -EINVAL,
		  "tensor rope_freqs.weight is [16, 1, 1, 1], want [8, 1]" },
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	spec.is_untied = spec.has_bias = spec.has_rope_freqs = true;
	EXPECT_TENSORS_REFUSED(spec, tensors);
}

TEST(tensors_of_types_without_a_kernel_are_named)
{
	static const struct bad_tensor tensors[] = {
		{ TYPE("blk.1.attn_q.weight", TYPE_IQ3_S), -ENOTSUP,
		  "tensor blk.1.attn_q.weight: type IQ3_S is not supported" },
		{ TYPE("token_embd.weight", TYPE_IQ3_S), -ENOTSUP,
		  "tensor token_embd.weight: type IQ3_S is not supported" },
		{ TYPE("blk.0.ffn_norm.weight", GGUF_TYPE_Q4_K), -ENOTSUP,
		  "tensor blk.0.ffn_norm.weight: a vector of type 12, want F32, F16 or BF16" },
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_Q4_K);

	EXPECT_TENSORS_REFUSED(spec, tensors);
}

TEST(rows_that_are_no_whole_blocks_are_refused)
{
	static const struct bad_tensor tensors[] = {
		{ TYPE("blk.0.attn_q.weight", GGUF_TYPE_Q4_K), -EINVAL,
		  "tensor blk.0.attn_q.weight: row of 64 elements is not whole Q4_K"
		  " blocks of 256" },
		{ TYPE("blk.1.ffn_down.weight", GGUF_TYPE_Q6_K), -EINVAL,
		  "tensor blk.1.ffn_down.weight: row of 96 elements is not whole Q6_K"
		  " blocks of 256" },
		{ { .tensor = "blk.0.attn_k.weight",
		    .type = GGUF_TYPE_Q8_0,
		    .nr_dims = 2,
		    .dims = { 48, 32 } },
		  -EINVAL,
		  "tensor blk.0.attn_k.weight: row of 48 elements is not whole Q8_0 blocks of 32" },
		{ TYPE("blk.1.attn_v.weight", GGUF_TYPE_Q3_K), -EINVAL,
		  "tensor blk.1.attn_v.weight: row of 64 elements is not whole Q3_K"
		  " blocks of 256" },
		{ TYPE("blk.0.ffn_up.weight", GGUF_TYPE_IQ4_XS), -EINVAL,
		  "tensor blk.0.ffn_up.weight: row of 64 elements is not whole IQ4_XS"
		  " blocks of 256" },
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	EXPECT_TENSORS_REFUSED(spec, tensors);
}

TEST(rope_factors_are_positive_floats)
{
	static const struct bad_tensor tensors[] = {
		{ { .extra = "rope_freqs.weight", .dims = { 8 }, .fill = 0 },
		  -EINVAL,
		  "tensor rope_freqs.weight: factor 0 is no positive number" },
		{ { .extra = "rope_freqs.weight", .dims = { 8 }, .fill = -1 },
		  -EINVAL,
		  "tensor rope_freqs.weight: factor 0 is no positive number" },
		{ { .extra = "rope_freqs.weight", .dims = { 8 }, .fill = NAN },
		  -EINVAL,
		  "tensor rope_freqs.weight: factor 0 is no positive number" },
		{ { .extra = "rope_freqs.weight",
		    .dims = { 8 },
		    .fill = INFINITY },
		  -EINVAL,
		  "tensor rope_freqs.weight: factor 0 is no positive number" },
		{ { .extra = "rope_freqs.weight", .dims = { 9 }, .fill = 1 },
		  -EINVAL,
		  "tensor rope_freqs.weight is [9, 1, 1, 1], want [8, 1]" },
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	EXPECT_TENSORS_REFUSED(spec, tensors);
	static const struct tiny_change half = { .tensor = "rope_freqs.weight",
						 .type = GGUF_TYPE_F16 };

	spec.has_rope_freqs = true;
	expect_refused(&spec, &half, -ENOTSUP,
		       "tensor rope_freqs.weight: want type F32");
}

/* What would be computed wrong in silence, were it passed over. */
TEST(tensors_that_nobody_would_compute_are_refused)
{
	static const struct bad_tensor tensors[] = {
		{ { .extra = "blk.0.attn_output.bias", .dims = { 64 } },
		  -ENOTSUP,
		  "tensor blk.0.attn_output.bias: architecture llama knows no such tensor" },
		{ { .extra = "blk.1.ffn_up.bias", .dims = { 96 } },
		  -ENOTSUP,
		  "tensor blk.1.ffn_up.bias: architecture llama knows no such tensor" },
		{ { .extra = "output.bias", .dims = { 263 } },
		  -ENOTSUP,
		  "tensor output.bias: architecture llama knows no such tensor" },
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	EXPECT_TENSORS_REFUSED(spec, tensors);
}

TEST(a_tokenizer_beyond_the_embedding_is_refused)
{
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);

	spec.nr_tokens = TINY_VOCAB + 1;
	expect_refused(&spec, NULL, -EINVAL,
		       "the tokenizer has 264 tokens, token_embd.weight 263");
	spec.nr_tokens = TINY_VOCAB;
	spec.n_vocab = 3;
	expect_refused(&spec, NULL, -EINVAL,
		       "the tokenizer has 263 tokens, token_embd.weight 3");
}

/* ---- options ---------------------------------------------------------------------- */

static int stop_at(void *arg, const char *stage, double fraction)
{
	(void)stage;
	return fraction >= *(double *)arg;
}

TEST(a_load_can_be_cancelled_at_any_stage)
{
	static const double stops[] = { 0, 0.05, 0.1, 0.5, 1 };
	/* A template that cannot be read is a warning, and not why the load ended. */
	static const struct tiny_change template = {
		.key = "tokenizer.chat_template",
		.value = STR("{% if %}"),
	};
	struct tiny_spec spec = tiny_gemma3(GGUF_TYPE_F32);
	struct tiny_model m;

	spec.change = &template;
	tiny_create(&m, &spec);
	for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
		double stop = stops[i];
		struct tarn_engine_options options = {
			.model_path = m.path,
			.nr_threads = 1,
			.kv_bytes = 4 << 20,
			.progress = stop_at,
			.progress_arg = &stop,
		};
		struct tarn_engine *engine = NULL;
		char err[256] = "untouched";

		EXPECT_EQ(-ECANCELED,
			  create(&options, &engine, err, sizeof(err)));
		EXPECT_STREQ("Operation canceled", err)
		{
			TH_LOG("stopped at %g", stop);
		}
		EXPECT_TRUE(engine == NULL);
	}
	tiny_destroy(&m);
}

static void expect_name(const char *path, const char *want)
{
	struct tarn_engine_options options = { .model_path = path,
					       .nr_threads = 1,
					       .kv_bytes = 4 << 20 };
	struct tarn_engine *engine = NULL;
	char err[256] = "";

	ASSERT_EQ(0, create(&options, &engine, err, sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	EXPECT_STREQ(want, tarn_engine_info(engine)->model_name);
	tarn_engine_destroy(engine);
}

/* Each answer of the daemon carries the name, and JSON takes UTF-8 alone. */
TEST(names_that_are_no_utf8_are_made_so)
{
	char euros[3 * 70 + 1] = "", cut[3 * 66 + 1] = "";
	const struct {
		const char *name, *want;
	} cases[] = {
		{ "caf\xe9 \xf0\x9f\x90\xa6 \xed\xa0\x80",
		  "caf? \xf0\x9f\x90\xa6 ???" },
		{ euros, cut },
	};
	struct tiny_change change = { .key = "general.name",
				      .value = { .kind = TINY_STR } };
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);
	char link[] = "/tmp/tarn-XXXXXX/\xff.gguf";
	struct tiny_model m;

	/* 200 bytes are kept at most: 66 of these, and no part of the next. */
	for (int i = 0; i < 70; i++) {
		strcat(euros, "\xe2\x82\xac");
		if (i < 66)
			strcat(cut, "\xe2\x82\xac");
	}
	spec.change = &change;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		change.value.s = cases[i].name;
		tiny_create(&m, &spec);
		expect_name(m.path, cases[i].want);
		tiny_destroy(&m);
	}
	/* Without a name it is that of the file. */
	spec.change = NULL;
	tiny_create(&m, &spec);
	link[16] = '\0';
	ASSERT_TRUE(mkdtemp(link) != NULL);
	link[16] = '/';
	ASSERT_EQ(0, symlink(m.path, link));
	expect_name(link, "?");
	unlink(link);
	link[16] = '\0';
	rmdir(link);
	tiny_destroy(&m);
}

TEST(options_out_of_range_are_named)
{
	static const struct {
		struct tarn_engine_options options;
		int rc;
		const char *message;
	} cases[] = {
		{ { .nr_threads = 257 }, -EINVAL, "257 threads: want 1 to 256" },
		{ { .ctx_tokens = 513 },
		  -EINVAL,
		  "a context of 513 tokens: the model was made for 512" },
		{ { .max_batch_tokens = 1u << 20 },
		  -EINVAL,
		  "1048576 tokens a step: want at most 8192" },
		{ { .kv_bytes = 1 },
		  -EINVAL,
		  "1 bytes for KV memory are too few: want at least 1048576" },
		{ { .kv_backend = TARN_KV_CUDA },
		  -ENODEV,
		  "KV backend cuda: this engine computes on the CPU" },
	};
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);
	struct tiny_model m;

	tiny_create(&m, &spec);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tarn_engine_options options = cases[i].options;
		struct tarn_engine *engine = NULL;
		char err[256] = "untouched";

		options.model_path = m.path;
		if (!options.nr_threads)
			options.nr_threads = 1;
		if (!options.kv_bytes)
			options.kv_bytes = 4 << 20;
		EXPECT_EQ(cases[i].rc,
			  create(&options, &engine, err, sizeof(err)));
		EXPECT_STREQ(cases[i].message, err);
		tarn_engine_destroy(engine);
	}
	tiny_destroy(&m);
}

TEST_HARNESS_MAIN

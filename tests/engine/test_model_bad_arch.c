/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each architecture asks of its files, refused where it is not so: biases
 * of qwen2, norms and wide heads of qwen3, experts. What all have in common is
 * the subject of test_model_bad.c.
 */
#include "tests/engine/model_bad.h"

TEST(missing_biases_and_norms_are_named)
{
	static const char *const qwen2[] = {
		"blk.0.attn_q.bias",
		"blk.1.attn_k.bias",
		"blk.1.attn_v.bias",
	};
	static const char *const qwen3[] = {
		"blk.0.attn_q_norm.weight",
		"blk.1.attn_k_norm.weight",
	};
	struct tiny_spec spec = tiny_qwen2(GGUF_TYPE_F32);

	expect_each_missing(&spec, qwen2, sizeof(qwen2) / sizeof(qwen2[0]));
	spec = tiny_qwen3(GGUF_TYPE_F32);
	expect_each_missing(&spec, qwen3, sizeof(qwen3) / sizeof(qwen3[0]));
}

TEST(heads_norms_and_biases_of_another_shape_are_named)
{
	static const struct bad_tensor qwen3[] = {
		/* As wide as all heads together: other families do so. */
		{ SHAPE("blk.0.attn_q_norm.weight", 1, 128), -EINVAL,
		  "tensor blk.0.attn_q_norm.weight is [128, 1, 1, 1], want [32, 1]" },
		{ SHAPE("blk.1.attn_k_norm.weight", 1, 16), -EINVAL,
		  "tensor blk.1.attn_k_norm.weight is [16, 1, 1, 1], want [32, 1]" },
		{ SHAPE("blk.1.attn_k_norm.weight", 2, 32, 2), -EINVAL,
		  "tensor blk.1.attn_k_norm.weight is [32, 2, 1, 1], want [32, 1]" },
		/* n_embd wide, as if the head were n_embd / n_head. */
		{ SHAPE("blk.0.attn_q.weight", 2, 64, 64), -EINVAL,
		  "tensor blk.0.attn_q.weight is [64, 64, 1, 1], want [64, 128]" },
		{ SHAPE("blk.1.attn_output.weight", 2, 64, 64), -EINVAL,
		  "tensor blk.1.attn_output.weight is [64, 64, 1, 1], want [128, 64]" },
	};
	static const struct bad_tensor qwen2[] = {
		{ SHAPE("blk.0.attn_q.bias", 1, 32), -EINVAL,
		  "tensor blk.0.attn_q.bias is [32, 1, 1, 1], want [64, 1]" },
		{ SHAPE("blk.1.attn_k.bias", 1, 64), -EINVAL,
		  "tensor blk.1.attn_k.bias is [64, 1, 1, 1], want [32, 1]" },
		{ TYPE("blk.1.attn_v.bias", GGUF_TYPE_Q8_0), -ENOTSUP,
		  "tensor blk.1.attn_v.bias: a vector of type 8, want F32, F16 or BF16" },
	};
	struct tiny_spec spec = tiny_qwen3(GGUF_TYPE_F32);

	EXPECT_TENSORS_REFUSED(spec, qwen3);
	spec = tiny_qwen2(GGUF_TYPE_F32);
	EXPECT_TENSORS_REFUSED(spec, qwen2);
}

TEST(tensors_of_other_architectures_are_refused)
{
	static const struct bad_tensor qwen2[] = {
		{ { .extra = "blk.0.attn_output.bias", .dims = { 64 } },
		  -ENOTSUP,
		  "tensor blk.0.attn_output.bias: architecture qwen2 knows no such tensor" },
		{ { .extra = "rope_freqs.weight", .dims = { 8 }, .fill = 1 },
		  -ENOTSUP,
		  "tensor rope_freqs.weight: architecture qwen2 knows no such tensor" },
		{ { .extra = "blk.0.attn_q_norm.weight", .dims = { 16 } },
		  -ENOTSUP,
		  "tensor blk.0.attn_q_norm.weight: architecture qwen2 knows no such tensor" },
	};
	static const struct bad_tensor qwen3[] = {
		{ { .extra = "blk.0.attn_q.bias", .dims = { 128 } },
		  -ENOTSUP,
		  "tensor blk.0.attn_q.bias: architecture qwen3 knows no such tensor" },
	};
	struct tiny_spec spec = tiny_qwen2(GGUF_TYPE_F32);

	EXPECT_TENSORS_REFUSED(spec, qwen2);
	spec = tiny_qwen3(GGUF_TYPE_F32);
	EXPECT_TENSORS_REFUSED(spec, qwen3);
}

TEST(mixtures_of_experts_are_refused_by_name)
{
	static const struct bad_key keys[] = {
		{ "llama.expert_count", U32(8), -ENOTSUP,
		  "llama.expert_count is 8: mixtures of experts are not supported" },
		{ "llama.expert_count", STR("8"), -EINVAL,
		  "metadata key llama.expert_count is of type string, wanted is an integer" },
		{ "general.architecture", STR("qwen3moe"), -ENOTSUP,
		  "architecture \"qwen3moe\" is not supported" },
	};
	static const struct tiny_change none = { .key = "llama.expert_count",
						 .value = U32(0) };
	struct tiny_spec spec = tiny_llama(GGUF_TYPE_F32);
	struct tarn_engine_options options = { .nr_threads = 1,
					       .kv_bytes = 4 << 20 };
	struct tarn_engine *engine = NULL;
	struct tiny_model m;
	char err[256];

	EXPECT_KEYS_REFUSED(spec, keys);
	/* Written out as none: fine. */
	spec.change = &none;
	tiny_create(&m, &spec);
	options.model_path = m.path;
	EXPECT_EQ(0, create(&options, &engine, err, sizeof(err)));
	tarn_engine_destroy(engine);
	tiny_destroy(&m);
}

TEST_HARNESS_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logits of both real models, and of tiny ones of each architecture with the
 * types that those lack, against an independent float64 computation on the
 * dequantised weights (tests/data/make_logits_golden.py), within the
 * accuracy section of the numerics contract.
 */
#include "engine/engine_private.h"
#include "tests/engine/engine_kit.h"

FIXTURE(logits)
{
	struct golden golden;
	struct tarn_engine *engine;
};
FIXTURE_VARIANT(logits)
{
	const struct kit_model *model;
	bool precise;
	double max_relative;
	double min_top1;
	uint32_t min_positions;
	enum tarn_device device;
};
FIXTURE_VARIANT_ADD(logits, smollm2){ &kit_smollm2, false, 4e-2,
				      0.95,	    200,   TARN_DEVICE_CPU };
FIXTURE_VARIANT_ADD(logits, smollm2_precise){ &kit_smollm2, true,
					      1e-4,	    1,
					      200,	    TARN_DEVICE_CPU };
FIXTURE_VARIANT_ADD(logits, gemma3){ &kit_gemma3, false, 4e-2,
				     0.95,	  200,	 TARN_DEVICE_CPU };
FIXTURE_VARIANT_ADD(logits,
		    gemma3_precise){ &kit_gemma3, true, 1e-4,
				     1,		  200,	TARN_DEVICE_CPU };
FIXTURE_VARIANT_ADD(logits,
		    smollm2_gpu){ &kit_smollm2, false, 1e-2,
				  0.98,		200,   TARN_DEVICE_CUDA };
FIXTURE_VARIANT_ADD(logits, gemma3_gpu){ &kit_gemma3, false, 1e-2,
					 0.98,	      200,   TARN_DEVICE_CUDA };
#define TINY(name)                                                      \
	FIXTURE_VARIANT_ADD(logits, tiny_##name){                       \
		&kit_tiny_##name, false, 4e-2, 0.9, 70, TARN_DEVICE_CPU \
	};                                                              \
	FIXTURE_VARIANT_ADD(logits, tiny_##name##_precise){             \
		&kit_tiny_##name, true, 1e-5, 1, 70, TARN_DEVICE_CPU    \
	};
TINY(llama)
TINY(qwen2)
TINY(qwen3)

FIXTURE_SETUP(logits)
{
	if (!kit_path(variant->model))
		SKIP(return, "%s names no model", variant->model->env);
	if (!kit_has_device(variant->device))
		SKIP(return, "no GPU here");
	ASSERT_EQ(0, golden_open(variant->model->golden, &self->golden));
	self->engine =
		kit_open(variant->model, (struct tarn_engine_options){
						 .device = variant->device,
						 .precise = variant->precise,
						 .max_batch_tokens = 256,
						 .ctx_tokens = 1024,
					 });
}
FIXTURE_TEARDOWN(logits)
{
	(void)variant;
	tarn_engine_destroy(self->engine);
	if (self->golden.base)
		golden_close(&self->golden);
}

/* Rows [pos, pos + nr) of @seq in one batch, logits wanted where the golden file has them. */
static void run_chunk(struct tarn_engine *e, struct kv_seq *seq,
		      const struct golden *golden,
		      const struct golden_prompt *p, uint32_t pos, uint32_t nr,
		      struct golden_error *error)
{
	struct backend_batch batch = { .nr_rows = nr,
				       .tokens = p->tokens + pos };
	struct plan_item item = { seq, 0, nr, pos };
	uint32_t positions[256], out_rows[256];
	uint8_t *tiles[KV_MAX_STREAMS][256];

	ASSERT_EQ(0, kv_seq_append(seq, p->tokens + pos, nr));
	for (uint32_t i = 0; i < nr; i++) {
		positions[i] = pos + i;
		for (uint32_t s = 0; s < e->model.nr_streams; s++)
			tiles[s][i] = kv_seq_tile(seq, s, pos + i);
		if (golden_find(p, pos + i))
			out_rows[batch.nr_out++] = i;
	}
	batch.positions = positions;
	batch.out_rows = out_rows;
	for (uint32_t s = 0; s < e->model.nr_streams; s++) {
		batch.tiles[s] = tiles[s];
		ASSERT_EQ(0, plan_build(e->plans, e->kv, s, &item, 1,
					BACKEND_UNIT_ROWS, &batch.plans[s]));
	}
	ASSERT_EQ(0, e->backend->ops->begin(e->backend, &batch));
	model_forward(&e->model, e->backend);
	ASSERT_EQ(0, e->backend->ops->submit(e->backend));
	ASSERT_EQ(0, e->backend->ops->wait(e->backend));
	for (uint32_t i = 0; i < batch.nr_out; i++)
		golden_error_add(error, golden,
				 golden_find(p, pos + out_rows[i]),
				 e->backend->ops->logits_row(e->backend, i));
}

TEST_F_TIMEOUT(logits, agree_with_float64, 300)
{
	struct golden_error error = { 0 };
	struct golden_prompt p;

	for (uint32_t i = 0; golden_prompt_at(&self->golden, i, &p) == 0; i++) {
		/* Nothing in common: the whole prompt is computed. */
		struct kvpool_key salt = { { (uint8_t)(i + 1) } };
		struct kv_seq *seq;
		uint32_t matched;
		enum kv_miss miss;

		ASSERT_EQ(0, kv_seq_open(self->engine->kv, p.tokens,
					 p.nr_tokens, p.nr_tokens, &salt, 0,
					 &seq, &matched, &miss));
		ASSERT_EQ(0, matched);
		for (uint32_t pos = 0; pos < p.nr_tokens; pos += 256)
			run_chunk(self->engine, seq, &self->golden, &p, pos,
				  p.nr_tokens - pos < 256 ? p.nr_tokens - pos :
							    256,
				  &error);
		kv_seq_close(seq);
	}
	TH_LOG("%s: relative error %.2e, top-1 equal %u of %u, largest gap of another choice %.2e",
	       self->engine->info.model_name, golden_error_relative(&error),
	       error.nr_top1_equal, error.nr_positions, error.worst_gap);
	ASSERT_GT(error.nr_positions, variant->min_positions);
	EXPECT_LE(golden_error_relative(&error), variant->max_relative);
	EXPECT_GE((double)error.nr_top1_equal,
		  variant->min_top1 * error.nr_positions);
}

TEST_HARNESS_MAIN

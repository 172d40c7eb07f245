/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Execution of a recorded step: every thread walks the operations in order,
 * takes units of each until none is left, and meets the others at barriers.
 * Which thread computes a unit changes no bit. Linear layers: cpu_linear.c.
 */
#include "engine/backend/cpu_private.h"
#include "engine/backend/sample.h"

static void exec_tables(struct cpu_backend *cpu, const struct cpu_op *op,
			uint32_t thread)
{
	const struct backend_rope *r = &cpu->shape.ropes[op->rope];
	uint32_t first, end;

	while (work_share_take(op->share, thread, &first, &end))
		for (uint32_t i = first; i < end; i++)
			rope_cos_sin(cpu->inv_freq[op->rope], r->nr_rot,
				     cpu->batch.positions[i],
				     cpu->cos_sin[op->rope] +
					     (size_t)i * r->nr_rot);
}

static void exec_embed(struct cpu_backend *cpu, const struct cpu_op *op,
		       uint32_t thread)
{
	struct cpu_slot *x = &cpu->slots[SLOT_X];
	uint32_t first, end;

	while (work_share_take(op->share, thread, &first, &end)) {
		for (uint32_t i = first; i < end; i++) {
			float *row = x->f + i * x->stride;
			int32_t token = cpu->batch.tokens[i];

			if (token < 0)
				token = cpu->drawn[~token];
			pack_row_f32(&op->mats[0]->packed, (uint32_t)token,
				     row);
			if (op->scale != 1.0f)
				cpu->kernels->scale(row, op->scale, x->width);
		}
	}
}

static void norm_row(struct cpu_backend *cpu, const struct cpu_op *op,
		     uint32_t i, float *out)
{
	const struct cpu_slot *src = &cpu->slots[op->src];
	uint32_t row = op->gather ? op->gather[i] : i;

	cpu->kernels->rms_norm(src->f + row * src->stride, op->w, src->width,
			       op->eps, op->add, out);
}

static void exec_norm(struct cpu_backend *cpu, const struct cpu_op *op,
		      uint32_t thread)
{
	struct cpu_slot *dst = &cpu->slots[op->dst];
	uint32_t first, end;

	if (op->is_private) {
		for (uint32_t i = 0; i < op->nr_rows; i++)
			norm_row(cpu, op, i,
				 cpu->per_thread[thread].f + i * dst->stride);
		return;
	}
	while (work_share_take(op->share, thread, &first, &end))
		for (uint32_t i = first; i < end; i++)
			norm_row(cpu, op, i, dst->f + i * dst->stride);
}

static void rope_append_row(struct cpu_backend *cpu, const struct cpu_op *op,
			    uint32_t r)
{
	const struct backend_shape *s = &cpu->shape;
	const struct attn_layout *layout = &s->layouts[op->stream];
	const struct backend_rope *rope = &s->ropes[op->rope];
	uint32_t d = s->head_dim;
	float *q = cpu->slots[SLOT_QKV].f + r * cpu->slots[SLOT_QKV].stride;
	float *k = q + (size_t)s->n_q_heads * d,
	      *v = k + (size_t)s->n_kv_heads * d;
	struct rope_args args = {
		.cos_sin = cpu->cos_sin[op->rope] + (size_t)r * rope->nr_rot,
		.nr_rot = rope->nr_rot,
		.neox = rope->neox,
	};

	for (uint32_t h = 0; h < s->n_q_heads + s->n_kv_heads; h++) {
		float *head = q + (size_t)h * d;
		const float *w = h < s->n_q_heads ? op->w : op->k_norm;

		if (w)
			cpu->kernels->rms_norm(head, w, d, op->eps, false,
					       head);
		cpu->kernels->rope(head, &args);
	}
	cpu->kernels->append(&(struct append_args){
		.layout = layout,
		.tile = cpu->batch.tiles[op->stream][r],
		.layer = op->layer,
		.token = cpu->batch.positions[r] % layout->tile_tokens,
		.k = k,
		.v = v,
	});
}

static struct attn_args attention_args(struct cpu_backend *cpu,
				       const struct cpu_op *op)
{
	return (struct attn_args){
		.layout = &cpu->shape.layouts[op->stream],
		.plan = &cpu->batch.plans[op->stream],
		.layer = op->layer,
		.nr_q_heads = cpu->shape.n_q_heads,
		.scale = op->scale,
		.q = cpu->slots[SLOT_QKV].f,
		.q_stride = cpu->slots[SLOT_QKV].stride,
		.out = cpu->slots[SLOT_A].f,
		.out_stride = cpu->slots[SLOT_A].stride,
		.slots = cpu->attn_slots,
	};
}

static void exec_attend(struct cpu_backend *cpu, const struct cpu_op *op,
			uint32_t thread)
{
	struct attn_args args = attention_args(cpu, op);
	uint32_t heads = cpu->shape.n_kv_heads, first, end;

	while (work_share_take(op->share, thread, &first, &end))
		for (uint32_t i = first; i < end; i++)
			cpu->kernels->attend(&args, i / heads, i % heads,
					     cpu->per_thread[thread].scratch);
}

static void exec_merge(struct cpu_backend *cpu, const struct cpu_op *op,
		       uint32_t thread)
{
	struct attn_args args = attention_args(cpu, op);
	uint32_t heads = cpu->shape.n_kv_heads, first, end;
	uint32_t group = cpu->shape.n_q_heads / heads;

	while (work_share_take(op->share, thread, &first, &end))
		for (uint32_t i = first; i < end; i++)
			cpu->kernels->merge(&args, i / heads, i % heads * group,
					    (i % heads + 1) * group);
}

static void exec_rows(struct cpu_backend *cpu, const struct cpu_op *op,
		      uint32_t thread)
{
	struct cpu_slot *logits = &cpu->slots[SLOT_LOGITS];
	uint32_t first, end;

	while (work_share_take(op->share, thread, &first, &end)) {
		for (uint32_t i = first; i < end; i++) {
			float *row = logits->f + i * logits->stride;

			if (op->kind == CPU_OP_ROPE_APPEND)
				rope_append_row(cpu, op, i);
			else if (op->kind == CPU_OP_SOFTCAP)
				cpu->kernels->softcap(row, op->scale,
						      logits->width);
			else
				sample_row(cpu->kernels, row, logits->width,
					   &op->samples[i],
					   cpu->per_thread[thread].scratch);
		}
	}
}

static void exec_op(struct cpu_backend *cpu, const struct cpu_op *op,
		    uint32_t thread)
{
	switch (op->kind) {
	case CPU_OP_TABLES:
		exec_tables(cpu, op, thread);
		break;
	case CPU_OP_EMBED:
		exec_embed(cpu, op, thread);
		break;
	case CPU_OP_NORM:
		exec_norm(cpu, op, thread);
		break;
	case CPU_OP_LINEAR:
		cpu_exec_linear(cpu, op, thread);
		break;
	case CPU_OP_ATTEND:
		exec_attend(cpu, op, thread);
		break;
	case CPU_OP_MERGE:
		exec_merge(cpu, op, thread);
		break;
	case CPU_OP_GATED:
		cpu_exec_gated(cpu, op, thread);
		break;
	case CPU_OP_ROPE_APPEND:
	case CPU_OP_SOFTCAP:
	case CPU_OP_SAMPLE:
		exec_rows(cpu, op, thread);
		break;
	}
}

static void run_thread(void *arg, uint32_t thread)
{
	struct cpu_backend *cpu = arg;

	for (uint32_t i = 0; i < cpu->nr_ops; i++) {
		exec_op(cpu, &cpu->ops[i], thread);
		if (cpu->ops[i].barrier)
			threads_barrier(cpu->threads);
	}
}

void cpu_execute(struct cpu_backend *cpu)
{
	threads_run(cpu->threads, run_thread, cpu);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Execution of a recorded step: every thread walks the operations in order,
 * takes units of each until none is left, and meets the others at barriers.
 * Which thread computes a unit changes no bit.
 */
#include <string.h>

#include "engine/backend/cpu_private.h"
#include "engine/backend/sample.h"

/* What one linear layer reads: shared rows, or the thread's own. */
struct input {
	const float *f;
	size_t stride;
	const struct act_q8 *q;
};

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

			pack_row_f32(&op->mats[0]->packed,
				     (uint32_t)cpu->batch.tokens[i], row);
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

/* Whether the source of an operation was left in each thread's own buffer. */
static bool is_normed(enum backend_slot slot)
{
	return slot == SLOT_H || slot == SLOT_OUT;
}

static struct input prepare_input(struct cpu_backend *cpu,
				  const struct cpu_op *op, uint32_t thread)
{
	const struct cpu_slot *src = &cpu->slots[op->src];
	struct cpu_thread *own = &cpu->per_thread[thread];
	struct input in = { src->f, src->stride, &src->q };
	uint32_t first, end;

	if (op->is_private && is_normed(op->src))
		in.f = own->f;
	if (!op->prepare)
		return in;
	if (op->is_private) {
		own->q.nr_cols = src->width;
		cpu->kernels->quantize(in.f, in.stride, 0, op->nr_rows,
				       &own->q);
		in.q = &own->q;
		return in;
	}
	while (work_share_take(op->prepare_share, thread, &first, &end))
		cpu->kernels->quantize(in.f, in.stride, first, end - first,
				       &src->q);
	threads_barrier(cpu->threads);
	return in;
}

/* Rows [row, row + nr_rows) times groups [first, end): what a thread takes at once. */
struct block {
	uint32_t row, nr_rows;
	uint32_t first, end;
};

static bool take_block(const struct cpu_op *op, uint32_t thread,
		       struct block *out)
{
	uint32_t unit, end, part;

	if (!op->nr_parts) {
		*out = (struct block){ 0, op->nr_rows, 0, 0 };
		return work_share_take(op->share, thread, &out->first,
				       &out->end);
	}
	if (!work_share_take(op->share, thread, &unit, &end))
		return false;
	part = unit % op->nr_parts;
	out->row = unit / op->nr_parts * CPU_PANEL_ROWS;
	out->nr_rows = op->nr_rows - out->row < CPU_PANEL_ROWS ?
			       op->nr_rows - out->row :
			       CPU_PANEL_ROWS;
	out->first = (uint32_t)((uint64_t)op->nr_groups * part / op->nr_parts);
	out->end =
		(uint32_t)((uint64_t)op->nr_groups * (part + 1) / op->nr_parts);
	return true;
}

/* y: row 0 of the block, column 0 being output 0 of the matrix. */
static void run_linear(struct cpu_backend *cpu, const struct cpu_matrix *m,
		       const struct input *in, const struct block *b, float *y,
		       size_t y_stride, bool add)
{
	enum pack_type t = m->packed.type;
	size_t nr_blocks = m->packed.nr_cols / ACT_BLOCK;
	struct act_q8 x;

	if (cpu->precise || t == PACK_F32 || t == PACK_F16 || t == PACK_BF16) {
		cpu->kernels->linear_f32(&(struct linear_f32_args){
			.w = &m->packed,
			.x = in->f + b->row * in->stride,
			.x_stride = in->stride,
			.nr_rows = b->nr_rows,
			.y = y,
			.y_stride = y_stride,
			.accumulate = add,
			.first_group = b->first,
			.end_group = b->end,
		});
		return;
	}
	x = (struct act_q8){
		.q = in->q->q + b->row * (size_t)in->q->nr_cols,
		.d = in->q->d + b->row * nr_blocks,
		.sum16 = in->q->sum16 + b->row * nr_blocks * 2,
		.nr_cols = in->q->nr_cols,
	};
	cpu->kernels->linear_q8(&(struct linear_q8_args){
		.w = &m->packed,
		.x = &x,
		.nr_rows = b->nr_rows,
		.y = y,
		.y_stride = y_stride,
		.accumulate = add,
		.first_group = b->first,
		.end_group = b->end,
	});
}

static void add_bias(struct cpu_backend *cpu, const struct cpu_matrix *m,
		     const float *bias, const struct block *b, float *y,
		     size_t y_stride)
{
	uint32_t from = b->first * PACK_ROWS, to = b->end * PACK_ROWS;

	if (to > m->packed.nr_rows)
		to = m->packed.nr_rows;
	for (uint32_t r = 0; r < b->nr_rows; r++)
		cpu->kernels->add(y + r * y_stride + from, bias + from,
				  to - from);
}

static void exec_linear(struct cpu_backend *cpu, const struct cpu_op *op,
			uint32_t thread)
{
	struct input in = prepare_input(cpu, op, thread);
	struct cpu_slot *dst = &cpu->slots[op->dst];
	struct block b;

	/* Groups are counted over all matrices, one after the other. */
	while (take_block(op, thread, &b)) {
		uint32_t base = 0;
		float *y = dst->f + b.row * dst->stride;

		for (uint32_t i = 0; i < op->nr_mats && base < b.end; i++) {
			const struct cpu_matrix *m = op->mats[i];
			uint32_t groups =
				(m->packed.nr_rows + PACK_ROWS - 1) / PACK_ROWS;
			struct block own = b;

			own.first = b.first > base ? b.first - base : 0;
			own.end = b.end - base < groups ? b.end - base : groups;
			if (own.first < own.end) {
				run_linear(cpu, m, &in, &own, y, dst->stride,
					   op->add);
				if (op->biases[i])
					add_bias(cpu, m, op->biases[i], &own, y,
						 dst->stride);
			}
			base += groups;
			y += m->packed.nr_rows;
		}
	}
}

/* Gate and up of one block of at most CPU_GATE_GROUPS groups meet in the thread's scratch. */
static void gate_block(struct cpu_backend *cpu, const struct cpu_op *op,
		       const struct input *in, const struct block *b,
		       float *scratch)
{
	struct cpu_slot *dst = &cpu->slots[op->dst];
	size_t stride = (size_t)(b->end - b->first) * PACK_ROWS;
	uint32_t from = b->first * PACK_ROWS;
	uint32_t to = b->end * PACK_ROWS < dst->width ? b->end * PACK_ROWS :
							dst->width;
	float *g = scratch, *u = scratch + b->nr_rows * stride;

	/* Column 0 of the result is output 0 of the matrix: step back to it. */
	run_linear(cpu, op->mats[0], in, b, g - from, stride, false);
	run_linear(cpu, op->mats[1], in, b, u - from, stride, false);
	for (uint32_t r = 0; r < b->nr_rows; r++)
		cpu->kernels->gate(op->gate, g + r * stride, u + r * stride,
				   to - from,
				   dst->f + (b->row + r) * dst->stride + from);
}

static void exec_gated(struct cpu_backend *cpu, const struct cpu_op *op,
		       uint32_t thread)
{
	struct input in = prepare_input(cpu, op, thread);
	struct block b;

	while (take_block(op, thread, &b)) {
		for (uint32_t g = b.first; g < b.end; g += CPU_GATE_GROUPS) {
			struct block own = b;

			own.first = g;
			own.end = b.end - g < CPU_GATE_GROUPS ?
					  b.end :
					  g + CPU_GATE_GROUPS;
			gate_block(cpu, op, &in, &own,
				   cpu->per_thread[thread].scratch);
		}
	}
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
		exec_linear(cpu, op, thread);
		break;
	case CPU_OP_ATTEND:
		exec_attend(cpu, op, thread);
		break;
	case CPU_OP_MERGE:
		exec_merge(cpu, op, thread);
		break;
	case CPU_OP_GATED:
		exec_gated(cpu, op, thread);
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

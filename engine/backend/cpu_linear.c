/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Execution of the operations that read weights against all rows of a batch,
 * LINEAR and GATED: their input, quantised where the weights want it, and the
 * blocks of rows and outputs a thread takes at once. Called by cpu_exec.c on
 * every thread.
 */
#include "engine/backend/cpu_private.h"

/* What one linear layer reads: shared rows, or the thread's own. */
struct input {
	const float *f;
	size_t stride;
	const struct act_q8 *q;
};

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
	size_t nr_blocks = m->packed.nr_cols / ACT_BLOCK;
	struct act_q8 x;

	if (!cpu_takes_q8(cpu, m->packed.type)) {
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

void cpu_exec_linear(struct cpu_backend *cpu, const struct cpu_op *op,
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
			uint32_t groups = cpu_nr_groups(m);
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

void cpu_exec_gated(struct cpu_backend *cpu, const struct cpu_op *op,
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

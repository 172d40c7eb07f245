/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording of a step: each call of the table appends one operation and says
 * how its work is shared out; submit() hands all of them to cpu_exec.c, and returns when they are
 * done. Driver thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/cpu_private.h"

enum {
	/* Shared runs are cut into this many chunks a thread: the last ones even out. */
	CHUNKS_PER_THREAD = 8,
	LINEAR_MIN_GROUPS = 4,
	LINEAR_MAX_GROUPS = 64,
	/* Blocks of (panel, part of the groups) a thread should find at least. */
	BLOCKS_PER_THREAD = 4,
};

static struct cpu_op *record(struct cpu_backend *cpu, enum cpu_op_kind kind,
			     uint32_t nr_rows)
{
	static struct cpu_op sink; /* takes what follows a failure; never run */
	struct cpu_op *op;

	if (cpu->nr_ops == cpu->op_capacity) {
		uint32_t want = cpu->op_capacity ? cpu->op_capacity * 2 : 256;
		struct cpu_op *grown = realloc(cpu->ops, want * sizeof(*grown));

		if (!grown) {
			cpu->error = -ENOMEM;
			return &sink;
		}
		cpu->ops = grown;
		cpu->op_capacity = want;
	}
	op = &cpu->ops[cpu->nr_ops++];
	*op = (struct cpu_op){ .kind = kind,
			       .nr_rows = nr_rows,
			       .barrier = true };
	return op;
}

/*
 * Shares are numbered while recording and become addresses in submit(), since the array may move
 * until then. The number is kept in the pointer.
 */
static struct work_share *new_share(struct cpu_backend *cpu, uint32_t nr_units,
				    uint32_t chunk)
{
	if (cpu->nr_shares == cpu->share_capacity) {
		uint32_t want = cpu->share_capacity ? cpu->share_capacity * 2 :
						      512;
		uint8_t *grown = aligned_alloc(64, want * cpu->share_bytes);

		if (!grown) {
			cpu->error = -ENOMEM;
			return NULL;
		}
		if (cpu->shares)
			memcpy(grown, cpu->shares,
			       cpu->nr_shares * cpu->share_bytes);
		free(cpu->shares);
		cpu->shares = grown;
		cpu->share_capacity = want;
	}
	work_share_init(
		(struct work_share *)(cpu->shares +
				      cpu->nr_shares * cpu->share_bytes),
		cpu->nr_threads, nr_units, chunk);
	return (struct work_share *)(uintptr_t)++cpu->nr_shares;
}

static void place_share(struct cpu_backend *cpu, struct work_share **share)
{
	uintptr_t number = (uintptr_t)*share;

	if (number)
		*share = (struct work_share *)(cpu->shares +
					       (number - 1) * cpu->share_bytes);
}

static uint32_t clamp_u32(uint32_t v, uint32_t lo, uint32_t hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

static uint32_t chunk_for(const struct cpu_backend *cpu, uint32_t nr_units,
			  uint32_t lo, uint32_t hi)
{
	return clamp_u32(nr_units / (cpu->nr_threads * CHUNKS_PER_THREAD), lo,
			 hi);
}

int cpu_begin(struct backend *b, const struct backend_batch *batch)
{
	struct cpu_backend *cpu = to_cpu(b);
	uint32_t nr_slots = 0;
	int rc;

	cpu->batch = *batch;
	cpu->samples = NULL;
	cpu->nr_samples = 0;
	cpu->nr_ops = 0;
	cpu->nr_shares = 0;
	cpu->error = 0;
	for (uint32_t i = 0; i < cpu->shape.nr_streams; i++)
		if (batch->plans[i].nr_slots > nr_slots)
			nr_slots = batch->plans[i].nr_slots;
	rc = cpu_reserve_out(cpu, batch->nr_out);
	if (!rc)
		rc = cpu_reserve_attn_slots(cpu, nr_slots);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < cpu->shape.nr_ropes; i++) {
		struct cpu_op *op = record(cpu, CPU_OP_TABLES, batch->nr_rows);

		op->rope = i;
		op->barrier = false;
		op->share = new_share(cpu, batch->nr_rows, 4);
	}
	return cpu->error;
}

void cpu_embed(struct backend *b, int matrix, float scale)
{
	struct cpu_backend *cpu = to_cpu(b);
	struct cpu_op *op = record(cpu, CPU_OP_EMBED, cpu->batch.nr_rows);

	op->mats[0] = &cpu->matrices[matrix];
	op->scale = scale;
	op->dst = SLOT_X;
	op->share = new_share(cpu, cpu->batch.nr_rows, 4);
}

static void record_norm(struct cpu_backend *cpu, enum backend_slot src,
			const uint32_t *gather, uint32_t nr_rows, int vector,
			float eps, bool add, enum backend_slot dst)
{
	struct cpu_op *op = record(cpu, CPU_OP_NORM, nr_rows);

	op->src = src;
	op->dst = dst;
	op->gather = gather;
	op->w = cpu->vectors[vector].values;
	op->eps = eps;
	op->add = add;
	op->is_private = !add && nr_rows <= CPU_SMALL_ROWS;
	op->barrier = !op->is_private;
	op->share = op->is_private ? NULL : new_share(cpu, nr_rows, 4);
}

void cpu_norm(struct backend *b, enum backend_slot src, int vector, float eps,
	      bool add, enum backend_slot dst)
{
	struct cpu_backend *cpu = to_cpu(b);

	record_norm(cpu, src, NULL, cpu->batch.nr_rows, vector, eps, add, dst);
}

/* Whether the input of an operation is to be quantised, and by whom. */
static void plan_input(struct cpu_backend *cpu, struct cpu_op *op)
{
	for (uint32_t i = 0; i < op->nr_mats; i++)
		op->prepare |= cpu_takes_q8(cpu, op->mats[i]->packed.type);
	op->is_private = op->nr_rows <= CPU_SMALL_ROWS;
	if (op->prepare && !op->is_private)
		op->prepare_share = new_share(cpu, op->nr_rows, 8);
}

/* How the outputs of a linear operation are handed out: op->nr_groups is set. */
static void plan_outputs(struct cpu_backend *cpu, struct cpu_op *op,
			 uint32_t max_groups)
{
	uint32_t panels = (op->nr_rows + CPU_PANEL_ROWS - 1) / CPU_PANEL_ROWS;
	uint32_t want = cpu->nr_threads * BLOCKS_PER_THREAD;

	if (op->nr_rows <= CPU_UNPANELLED_ROWS) {
		op->share = new_share(cpu, op->nr_groups,
				      chunk_for(cpu, op->nr_groups,
						LINEAR_MIN_GROUPS, max_groups));
		return;
	}
	op->nr_parts =
		clamp_u32((want + panels - 1) / panels, 1, op->nr_groups);
	op->share = new_share(cpu, panels * op->nr_parts, 1);
}

static void record_linear(struct cpu_backend *cpu, enum backend_slot src,
			  uint32_t nr_rows, const int *matrices,
			  const int *biases, uint32_t nr, bool add,
			  enum backend_slot dst)
{
	struct cpu_op *op = record(cpu, CPU_OP_LINEAR, nr_rows);
	op->src = src;
	op->dst = dst;
	op->add = add;
	op->nr_mats = nr;
	for (uint32_t i = 0; i < nr; i++) {
		op->mats[i] = &cpu->matrices[matrices[i]];
		op->biases[i] = biases && biases[i] != BACKEND_NONE ?
					cpu->vectors[biases[i]].values :
					NULL;
		op->nr_groups += cpu_nr_groups(op->mats[i]);
	}
	plan_input(cpu, op);
	plan_outputs(cpu, op, LINEAR_MAX_GROUPS);
}

void cpu_linear(struct backend *b, enum backend_slot src, const int *matrices,
		const int *biases, uint32_t nr, bool add, enum backend_slot dst)
{
	struct cpu_backend *cpu = to_cpu(b);

	record_linear(cpu, src, cpu->batch.nr_rows, matrices, biases, nr, add,
		      dst);
}

void cpu_rope_append(struct backend *b, int q_norm, int k_norm, float eps,
		     uint32_t rope, uint32_t stream, uint32_t layer)
{
	struct cpu_backend *cpu = to_cpu(b);
	struct cpu_op *op = record(cpu, CPU_OP_ROPE_APPEND, cpu->batch.nr_rows);

	op->w = q_norm == BACKEND_NONE ? NULL : cpu->vectors[q_norm].values;
	op->k_norm = k_norm == BACKEND_NONE ? NULL :
					      cpu->vectors[k_norm].values;
	op->eps = eps;
	op->rope = rope;
	op->stream = stream;
	op->layer = layer;
	op->share = new_share(cpu, cpu->batch.nr_rows, 2);
}

void cpu_attention(struct backend *b, uint32_t stream, uint32_t layer,
		   float scale)
{
	struct cpu_backend *cpu = to_cpu(b);
	const struct attn_plan *plan = &cpu->batch.plans[stream];
	struct cpu_op *op = record(cpu, CPU_OP_ATTEND, cpu->batch.nr_rows);

	op->stream = stream;
	op->layer = layer;
	op->scale = scale;
	op->share = new_share(cpu, plan->nr_units * cpu->shape.n_kv_heads, 1);
	if (!plan->nr_merges)
		return;
	op = record(cpu, CPU_OP_MERGE, cpu->batch.nr_rows);
	op->stream = stream;
	op->layer = layer;
	op->scale = scale;
	op->share = new_share(cpu, plan->nr_merges * cpu->shape.n_kv_heads, 1);
}

void cpu_gated(struct backend *b, enum backend_slot src, int gate, int up,
	       enum backend_act act)
{
	struct cpu_backend *cpu = to_cpu(b);
	struct cpu_op *op = record(cpu, CPU_OP_GATED, cpu->batch.nr_rows);

	op->src = src;
	op->dst = SLOT_F;
	op->mats[0] = &cpu->matrices[gate];
	op->mats[1] = &cpu->matrices[up];
	op->nr_mats = 2;
	op->gate = act == BACKEND_SILU ? GATE_SILU : GATE_GELU_TANH;
	op->nr_groups = cpu_nr_groups(op->mats[0]);
	plan_input(cpu, op);
	plan_outputs(cpu, op, CPU_GATE_GROUPS);
}

void cpu_logits(struct backend *b, int norm_vector, float eps, int matrix,
		float softcap)
{
	struct cpu_backend *cpu = to_cpu(b);
	uint32_t rows = cpu->batch.nr_out;

	if (!rows)
		return;
	record_norm(cpu, SLOT_X, cpu->batch.out_rows, rows, norm_vector, eps,
		    false, SLOT_OUT);
	record_linear(cpu, SLOT_OUT, rows, &matrix, NULL, 1, false,
		      SLOT_LOGITS);
	if (softcap > 0) {
		struct cpu_op *op = record(cpu, CPU_OP_SOFTCAP, rows);

		op->dst = SLOT_LOGITS;
		op->scale = softcap;
		op->share = new_share(cpu, rows, 1);
	}
}

void cpu_sample(struct backend *b, struct backend_sample *samples, uint32_t nr)
{
	struct cpu_backend *cpu = to_cpu(b);
	struct cpu_op *op;

	if (!nr)
		return;
	cpu->samples = samples;
	cpu->nr_samples = nr;
	op = record(cpu, CPU_OP_SAMPLE, nr);
	op->samples = samples;
	op->share = new_share(cpu, nr, 1);
}

bool cpu_keeps_token(const struct backend *b,
		     const struct backend_sample *sample)
{
	(void)b;
	(void)sample;
	return true;
}

/* There is nothing to gain from going on meanwhile: all cores compute. */
int cpu_submit(struct backend *b)
{
	struct cpu_backend *cpu = to_cpu(b);

	if (cpu->error)
		return cpu->error;
	for (uint32_t i = 0; i < cpu->nr_ops; i++) {
		place_share(cpu, &cpu->ops[i].share);
		place_share(cpu, &cpu->ops[i].prepare_share);
	}
	cpu_execute(cpu);
	for (uint32_t i = 0; i < cpu->nr_samples; i++)
		cpu->drawn[i] = cpu->samples[i].token;
	return 0;
}

int cpu_wait(struct backend *b)
{
	(void)b;
	return 0;
}

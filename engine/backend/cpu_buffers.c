/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the CPU backend's activations. Driver thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/cpu_private.h"
#include "engine/backend/sample.h"

static void *alloc_aligned(size_t bytes)
{
	return aligned_alloc(64, (bytes + 63) & ~(size_t)63);
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static int act_q8_alloc(struct act_q8 *q, size_t rows, uint32_t width)
{
	q->nr_cols = width;
	q->q = alloc_aligned(rows * width);
	q->d = alloc_aligned(rows * (width / ACT_BLOCK) * sizeof(float));
	q->sum16 =
		alloc_aligned(rows * (width / ACT_BLOCK) * 2 * sizeof(int16_t));
	return q->q && q->d && q->sum16 ? 0 : -ENOMEM;
}

static void act_q8_free(struct act_q8 *q)
{
	free(q->q);
	free(q->d);
	free(q->sum16);
	*q = (struct act_q8){ 0 };
}

static int slot_alloc(struct cpu_slot *slot, uint32_t rows, uint32_t width,
		      bool quantised)
{
	slot->width = width;
	slot->stride = ((size_t)width + 15) & ~(size_t)15;
	slot->f = alloc_aligned(rows * slot->stride * sizeof(float));
	if (!slot->f)
		return -ENOMEM;
	if (quantised && width % ACT_BLOCK == 0)
		return act_q8_alloc(&slot->q, rows, width);
	return 0;
}

static void slot_free(struct cpu_slot *slot)
{
	free(slot->f);
	act_q8_free(&slot->q);
	*slot = (struct cpu_slot){ 0 };
}

int cpu_reserve_out(struct cpu_backend *cpu, uint32_t rows)
{
	const struct backend_shape *s = &cpu->shape;
	uint32_t want = cpu->out_capacity ? cpu->out_capacity : 1;
	int rc;

	if (rows <= cpu->out_capacity)
		return 0;
	while (want < rows)
		want *= 2;
	slot_free(&cpu->slots[SLOT_OUT]);
	slot_free(&cpu->slots[SLOT_LOGITS]);
	cpu->out_capacity = 0;
	rc = slot_alloc(&cpu->slots[SLOT_OUT], want, s->n_embd,
			cpu->has_quantised);
	if (!rc)
		rc = slot_alloc(&cpu->slots[SLOT_LOGITS], want, s->n_vocab,
				false);
	if (!rc)
		cpu->out_capacity = want;
	return rc;
}

int cpu_reserve_attn_slots(struct cpu_backend *cpu, uint32_t nr_slots)
{
	size_t floats = (size_t)nr_slots * cpu->shape.n_q_heads *
			attn_slot_floats(cpu->shape.head_dim);

	if (floats <= cpu->attn_slot_capacity)
		return 0;
	free(cpu->attn_slots);
	cpu->attn_slot_capacity = 0;
	cpu->attn_slots = alloc_aligned(floats * sizeof(float));
	if (!cpu->attn_slots)
		return -ENOMEM;
	cpu->attn_slot_capacity = floats;
	return 0;
}

static size_t scratch_bytes(const struct cpu_backend *cpu)
{
	const struct backend_shape *s = &cpu->shape;
	size_t bytes = sample_scratch_bytes(s->n_vocab);
	/* GATED: gate and up of a run of groups, before they meet. */
	size_t gate = 2 * (size_t)CPU_PANEL_ROWS * CPU_GATE_GROUPS * PACK_ROWS *
		      sizeof(float);

	for (uint32_t i = 0; i < s->nr_streams; i++) {
		size_t attn = attn_scratch_bytes(&s->layouts[i], s->n_q_heads,
						 BACKEND_UNIT_ROWS);

		if (attn > bytes)
			bytes = attn;
	}
	return gate > bytes ? gate : bytes;
}

static int prepare_threads(struct cpu_backend *cpu)
{
	const struct backend_shape *s = &cpu->shape;
	uint32_t width = max_u32(max_u32(s->n_embd, s->n_ff),
				 s->n_q_heads * s->head_dim);
	size_t row = ((size_t)width + 15) & ~(size_t)15;

	cpu->per_thread = calloc(cpu->nr_threads, sizeof(*cpu->per_thread));
	if (!cpu->per_thread)
		return -ENOMEM;
	for (uint32_t i = 0; i < cpu->nr_threads; i++) {
		struct cpu_thread *t = &cpu->per_thread[i];

		t->f = alloc_aligned(CPU_SMALL_ROWS * row * sizeof(float));
		t->scratch = alloc_aligned(scratch_bytes(cpu));
		if (!t->f || !t->scratch ||
		    act_q8_alloc(&t->q, CPU_SMALL_ROWS, (width + 31) & ~31u))
			return -ENOMEM;
	}
	return 0;
}

static int prepare_ropes(struct cpu_backend *cpu)
{
	const struct backend_shape *s = &cpu->shape;

	for (uint32_t i = 0; i < s->nr_ropes; i++) {
		const struct backend_rope *r = &s->ropes[i];

		cpu->inv_freq[i] = calloc(r->nr_rot / 2, sizeof(double));
		cpu->cos_sin[i] = alloc_aligned((size_t)s->max_rows *
						r->nr_rot * sizeof(float));
		if (!cpu->inv_freq[i] || !cpu->cos_sin[i])
			return -ENOMEM;
		rope_inv_freq(r->base, r->factors, r->pos_scale, r->nr_rot,
			      cpu->inv_freq[i]);
	}
	return 0;
}

int cpu_prepare(struct backend *b, const struct backend_shape *shape, char *err,
		size_t errlen)
{
	struct cpu_backend *cpu = to_cpu(b);
	uint32_t rows = shape->max_rows;
	uint32_t n_q = shape->n_q_heads * shape->head_dim;
	uint32_t n_kv = shape->n_kv_heads * shape->head_dim;
	bool q = cpu->has_quantised;
	int rc;

	(void)err; /* every shape that the model's reader lets pass has kernels */
	(void)errlen;
	cpu->shape = *shape;
	rc = slot_alloc(&cpu->slots[SLOT_X], rows, shape->n_embd, false);
	if (!rc)
		rc = slot_alloc(&cpu->slots[SLOT_H], rows, shape->n_embd, q);
	if (!rc)
		rc = slot_alloc(&cpu->slots[SLOT_QKV], rows, n_q + 2 * n_kv,
				false);
	if (!rc)
		rc = slot_alloc(&cpu->slots[SLOT_A], rows, n_q, q);
	if (!rc)
		rc = slot_alloc(&cpu->slots[SLOT_Y], rows, shape->n_embd,
				false);
	if (!rc)
		rc = slot_alloc(&cpu->slots[SLOT_F], rows, shape->n_ff, q);
	if (!rc)
		rc = prepare_threads(cpu);
	if (!rc)
		rc = prepare_ropes(cpu);
	cpu->drawn = calloc(rows, sizeof(*cpu->drawn));
	return !rc && !cpu->drawn ? -ENOMEM : rc;
}

void cpu_buffers_free(struct cpu_backend *cpu)
{
	for (int i = 0; i < BACKEND_NR_SLOTS; i++)
		slot_free(&cpu->slots[i]);
	for (uint32_t i = 0; cpu->per_thread && i < cpu->nr_threads; i++) {
		free(cpu->per_thread[i].f);
		free(cpu->per_thread[i].scratch);
		act_q8_free(&cpu->per_thread[i].q);
	}
	free(cpu->per_thread);
	for (uint32_t i = 0; i < BACKEND_MAX_ROPES; i++) {
		free(cpu->inv_freq[i]);
		free(cpu->cos_sin[i]);
	}
	free(cpu->attn_slots);
	free(cpu->drawn);
	free(cpu->ops);
	free(cpu->shares);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU backend: its creation, its end and its table of operations.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/backend/cpu_private.h"

static const float *cpu_logits_row(struct backend *b, uint32_t i)
{
	const struct cpu_slot *slot = &to_cpu(b)->slots[SLOT_LOGITS];

	return slot->f + i * slot->stride;
}

static uint64_t cpu_weight_bytes(const struct backend *b)
{
	return ((const struct cpu_backend *)b)->arena_bytes;
}

static void cpu_destroy(struct backend *b)
{
	struct cpu_backend *cpu = to_cpu(b);

	threads_destroy(cpu->threads);
	cpu_buffers_free(cpu);
	cpu_weights_free(cpu);
	free(cpu);
}

static const struct backend_ops cpu_ops = {
	.add_matrix = cpu_add_matrix,
	.add_vector = cpu_add_vector,
	.load = cpu_load,
	.weight_bytes = cpu_weight_bytes,
	.prepare = cpu_prepare,
	.destroy = cpu_destroy,
	.begin = cpu_begin,
	.embed = cpu_embed,
	.norm = cpu_norm,
	.linear = cpu_linear,
	.rope_append = cpu_rope_append,
	.attention = cpu_attention,
	.gated = cpu_gated,
	.logits = cpu_logits,
	.sample = cpu_sample,
	.keeps_token = cpu_keeps_token,
	.submit = cpu_submit,
	.wait = cpu_wait,
	.logits_row = cpu_logits_row,
};

int backend_cpu_create(const struct backend_options *options,
		       struct backend **out_backend)
{
	uint32_t nr = options->nr_threads ? options->nr_threads :
					    threads_nr_cpus();
	struct cpu_backend *cpu = calloc(1, sizeof(*cpu));
	int rc;

	if (!cpu)
		return -ENOMEM;
	rc = threads_create(nr, &cpu->threads);
	if (rc) {
		free(cpu);
		return rc;
	}
	cpu->nr_threads = nr;
	cpu->share_bytes = (work_share_bytes(nr) + 63) & ~(size_t)63;
	cpu->kernels = cpu_kernels_best();
	cpu->precise = options->precise;
	snprintf(cpu->name, sizeof(cpu->name), "cpu (%s)", cpu->kernels->isa);
	cpu->base.ops = &cpu_ops;
	cpu->base.nr_threads = nr;
	cpu->base.unit_rows = BACKEND_UNIT_ROWS;
	cpu->base.name = cpu->name;
	/* Integer paths agree between instruction sets, so none is named here. */
	cpu->base.numerics = options->precise ? "1/cpu/f32" : "1/cpu/int8";
	cpu->base.kv_elem = options->precise ? ATTN_F32 : ATTN_F16;
	*out_backend = &cpu->base;
	return 0;
}

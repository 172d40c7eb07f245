/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of the CPU backend: declared, then packed by all threads into one
 * arena that is read-only from then on. Driver thread, but for the packing.
 */
#include <errno.h>
#include <numa.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/backend/cpu_private.h"
#include "engine/backend/tensor.h"

enum {
	/* Groups packed between two looks at the shared counter. */
	PACK_CHUNK_GROUPS = 64,
	HUGE_PAGE_BYTES = 2 << 20,
};

int cpu_add_matrix(struct backend *b, const struct backend_tensor *t,
		   int *out_id, char *err, size_t errlen)
{
	struct cpu_backend *cpu = to_cpu(b);
	struct cpu_matrix m = { .tensor = *t }, *grown;
	uint64_t bytes =
		pack_layout(&m.packed, t->type, t->nr_rows, t->nr_cols);

	if (!bytes) {
		snprintf(
			err, errlen,
			"tensor %s: no kernel for type %u with %u rows of %u values",
			t->name, t->type, t->nr_rows, t->nr_cols);
		return -ENOTSUP;
	}
	grown = realloc(cpu->matrices, (cpu->nr_matrices + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	cpu->matrices = grown;
	m.tensor.name = NULL; /* the caller's, for messages alone */
	m.offset_bytes = cpu->arena_bytes;
	cpu->arena_bytes += (bytes + 63) & ~(uint64_t)63;
	cpu->has_quantised |= cpu_takes_q8(cpu, t->type);
	*out_id = (int)cpu->nr_matrices;
	cpu->matrices[cpu->nr_matrices++] = m;
	return 0;
}

int cpu_add_vector(struct backend *b, const struct backend_tensor *t,
		   int *out_id, char *err, size_t errlen)
{
	struct cpu_backend *cpu = to_cpu(b);
	struct cpu_vector v = { .tensor = *t }, *grown;

	if (!cpu_is_float(t->type)) {
		snprintf(
			err, errlen,
			"tensor %s: a vector of type %u, want F32, F16 or BF16",
			t->name, t->type);
		return -ENOTSUP;
	}
	v.values = aligned_alloc(64, ((size_t)t->nr_cols * sizeof(float) + 63) &
					     ~(size_t)63);
	grown = realloc(cpu->vectors, (cpu->nr_vectors + 1) * sizeof(*grown));
	if (grown)
		cpu->vectors = grown;
	if (!grown || !v.values) {
		free(v.values);
		return -ENOMEM;
	}
	tensor_vector_f32(t, v.values);
	*out_id = (int)cpu->nr_vectors;
	cpu->vectors[cpu->nr_vectors++] = v;
	return 0;
}

struct load_job {
	struct cpu_backend *cpu;
	struct work_share *
		share; /* over matrices, largest first is not needed: they are many */
	uint8_t (*digests)[BACKEND_DIGEST_BYTES];
	atomic_uint_least64_t done_bytes;
	atomic_int error;
	int (*progress)(void *arg, double fraction);
	void *arg;
};

static void load_matrix(struct load_job *job, uint32_t index, uint32_t thread)
{
	struct cpu_backend *cpu = job->cpu;
	struct cpu_matrix *m = &cpu->matrices[index];
	uint32_t nr_groups = cpu_nr_groups(m);

	for (uint32_t g = 0; g < nr_groups && !atomic_load(&job->error);
	     g += PACK_CHUNK_GROUPS) {
		uint32_t end = g + PACK_CHUNK_GROUPS < nr_groups ?
				       g + PACK_CHUNK_GROUPS :
				       nr_groups;
		uint64_t done;

		pack_groups(&m->packed, m->tensor.data, g, end,
			    cpu->arena + m->offset_bytes);
		done = atomic_fetch_add(&job->done_bytes,
					(end - g) * m->packed.group_bytes);
		/* The callback belongs to the creating thread. */
		if (thread == 0 && job->progress &&
		    job->progress(job->arg,
				  (double)done / (double)cpu->arena_bytes))
			atomic_store(&job->error, -ECANCELED);
	}
	if (tensor_digest(&m->tensor, job->digests[index]))
		atomic_store(&job->error, -ENOMEM);
}

static void load_thread(void *arg, uint32_t thread)
{
	struct load_job *job = arg;
	uint32_t first, end;

	while (!atomic_load(&job->error) &&
	       work_share_take(job->share, thread, &first, &end))
		for (uint32_t i = first; i < end; i++)
			load_matrix(job, i, thread);
}

/* One digest over those of all tensors, vectors first. */
static int fold_digests(struct cpu_backend *cpu,
			uint8_t (*digests)[BACKEND_DIGEST_BYTES],
			uint8_t out_digest[BACKEND_DIGEST_BYTES])
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	int ok = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1;

	for (uint32_t i = 0; ok && i < cpu->nr_vectors; i++) {
		uint8_t one[BACKEND_DIGEST_BYTES];

		ok = tensor_digest(&cpu->vectors[i].tensor, one) == 0 &&
		     EVP_DigestUpdate(md, one, sizeof(one)) == 1;
	}
	ok = ok &&
	     EVP_DigestUpdate(md, digests,
			      (size_t)cpu->nr_matrices *
				      BACKEND_DIGEST_BYTES) == 1 &&
	     EVP_DigestFinal_ex(md, out_digest, NULL) == 1;
	EVP_MD_CTX_free(md);
	return ok ? 0 : -ENOMEM;
}

/* Huge pages where the system gives them: weights are streamed from end to end each token. */
static uint8_t *map_arena(uint64_t bytes)
{
	uint8_t *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	(void)madvise(p, bytes, MADV_HUGEPAGE);
	/* Threads of all nodes take rows of all matrices: every node's memory bears its share. */
	if (numa_available() >= 0 && numa_max_node() > 0)
		numa_interleave_memory(p, bytes, numa_all_nodes_ptr);
	return p;
}

int cpu_load(struct backend *b, int (*progress)(void *arg, double fraction),
	     void *arg, uint8_t out_digest[BACKEND_DIGEST_BYTES])
{
	struct cpu_backend *cpu = to_cpu(b);
	struct load_job job = { .cpu = cpu, .progress = progress, .arg = arg };
	uint64_t map_bytes = (cpu->arena_bytes + HUGE_PAGE_BYTES - 1) &
			     ~(uint64_t)(HUGE_PAGE_BYTES - 1);
	int rc = -ENOMEM;

	cpu->arena = map_arena(map_bytes);
	job.digests = calloc(cpu->nr_matrices + 1, BACKEND_DIGEST_BYTES);
	job.share = aligned_alloc(64, work_share_bytes(cpu->nr_threads));
	if (!cpu->arena || !job.digests || !job.share)
		goto out;
	work_share_init(job.share, cpu->nr_threads, cpu->nr_matrices, 1);
	threads_run(cpu->threads, load_thread, &job);
	rc = atomic_load(&job.error);
	if (!rc)
		rc = fold_digests(cpu, job.digests, out_digest);
	for (uint32_t i = 0; i < cpu->nr_matrices; i++) {
		struct cpu_matrix *m = &cpu->matrices[i];

		m->packed.data = cpu->arena + m->offset_bytes;
		m->tensor.data = NULL; /* the file's pages go */
	}
	for (uint32_t i = 0; i < cpu->nr_vectors; i++)
		cpu->vectors[i].tensor = (struct backend_tensor){
			.nr_cols = cpu->vectors[i].tensor.nr_cols,
		};
	if (!rc && mprotect(cpu->arena, map_bytes, PROT_READ))
		rc = -errno;
out:
	free(job.share);
	free(job.digests);
	return rc;
}

void cpu_weights_free(struct cpu_backend *cpu)
{
	if (cpu->arena)
		munmap(cpu->arena, (cpu->arena_bytes + HUGE_PAGE_BYTES - 1) &
					   ~(uint64_t)(HUGE_PAGE_BYTES - 1));
	for (uint32_t i = 0; i < cpu->nr_vectors; i++)
		free(cpu->vectors[i].values);
	free(cpu->vectors);
	free(cpu->matrices);
}

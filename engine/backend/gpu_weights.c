/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of the GPU backend: declared, joined, then packed matrix by matrix by
 * all threads of the host and copied to the device. Driver thread, but for the
 * packing.
 *
 * Codes and scales stay the file's own where the device has a kernel for the
 * type. Other types are expanded and rounded to bf16, 2^-9 of a value at most.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend/gpu_private.h"
#include "engine/backend/tensor.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels_cpu.h"

enum {
	PACK_CHUNK_GROUPS = 16, /* taken at once by a thread */
	GROUP_ROWS = GPU_LINEAR_GROUP_ROWS,
};

static bool is_native(uint32_t type)
{
	return gpu_format_type(gpu_format_of(type)) == type;
}

int gpu_add_matrix(struct backend *b, const struct backend_tensor *t,
		   int *out_id, char *err, size_t errlen)
{
	struct gpu_backend *gpu = to_gpu(b);
	struct gpu_matrix m = {
		.tensor = *t,
		.nr_rows = t->nr_rows,
		.format = (uint8_t)gpu_format_of(t->type),
		.nr_joined = 1,
		.joined = { (int)gpu->nr_matrices },
	};
	struct gpu_matrix *grown;

	if (!pack_source_row_bytes(t->type, t->nr_cols) ||
	    (t->is_multiplied &&
	     !gpu_linear_packed_bytes(gpu_format_type(m.format), t->nr_rows,
				      t->nr_cols))) {
		snprintf(
			err, errlen,
			"tensor %s: no GPU kernel for type %u with %u rows of %u values",
			t->name, t->type, t->nr_rows, t->nr_cols);
		return -ENOTSUP;
	}
	grown = realloc(gpu->matrices, (gpu->nr_matrices + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	gpu->matrices = grown;
	m.tensor.name = NULL; /* the caller's, for messages alone */
	*out_id = (int)gpu->nr_matrices;
	gpu->matrices[gpu->nr_matrices++] = m;
	return 0;
}

int gpu_add_vector(struct backend *b, const struct backend_tensor *t,
		   int *out_id, char *err, size_t errlen)
{
	struct gpu_backend *gpu = to_gpu(b);
	struct gpu_vector *grown;

	if (t->type != PACK_F32 && t->type != PACK_F16 &&
	    t->type != PACK_BF16) {
		snprintf(
			err, errlen,
			"tensor %s: a vector of type %u, want F32, F16 or BF16",
			t->name, t->type);
		return -ENOTSUP;
	}
	grown = realloc(gpu->vectors, (gpu->nr_vectors + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	gpu->vectors = grown;
	*out_id = (int)gpu->nr_vectors;
	gpu->vectors[gpu->nr_vectors++] = (struct gpu_vector){ .tensor = *t };
	return 0;
}

void gpu_join(struct backend *b, const int *matrices, uint32_t nr)
{
	struct gpu_backend *gpu = to_gpu(b);
	struct gpu_matrix *first = &gpu->matrices[matrices[0]];

	for (uint32_t i = 0; i < nr; i++) {
		const struct gpu_matrix *m = &gpu->matrices[matrices[i]];

		/* Groups of rows belong to one tensor, and a packed matrix has one format. */
		if (m->tensor.type != first->tensor.type ||
		    m->tensor.nr_cols != first->tensor.nr_cols ||
		    m->tensor.nr_rows % GROUP_ROWS)
			return;
	}
	for (uint32_t i = 1; i < nr; i++) {
		struct gpu_matrix *m = &gpu->matrices[matrices[i]];

		first->joined[i] = matrices[i];
		first->nr_rows += m->tensor.nr_rows;
		m->nr_joined = 0;
	}
	first->nr_joined = (uint8_t)nr;
}

/* ---- loading ---------------------------------------------------------------- */

struct load_job {
	struct gpu_backend *gpu;
	struct work_share
		*share; /* groups of the matrix at hand, or rows of its table */
	const struct gpu_matrix *m;
	uint8_t *packed; /* host memory for it */
	atomic_int error;
};

/* Row of the file as float32. @scratch: a packed matrix of one row. */
static void expand_row(const struct backend_tensor *t, uint32_t row,
		       uint8_t *scratch, float *out)
{
	struct packed_matrix one;
	size_t row_bytes = pack_source_row_bytes(t->type, t->nr_cols);

	pack_layout(&one, t->type, 1, t->nr_cols);
	pack_groups(&one, (const uint8_t *)t->data + row * row_bytes, 0, 1,
		    scratch);
	one.data = scratch;
	pack_row_f32(&one, 0, out);
}

/* Bytes of expand_row()'s scratch, and behind it of a row of floats and a group of bf16 rows. */
static size_t expand_bytes(const struct backend_tensor *t, size_t *out_floats,
			   size_t *out_halves)
{
	struct packed_matrix one;
	size_t bytes = (pack_layout(&one, t->type, 1, t->nr_cols) + 63) &
		       ~(size_t)63;

	*out_floats = bytes;
	bytes += (size_t)t->nr_cols * sizeof(float);
	*out_halves = bytes;
	return (bytes + (size_t)t->nr_cols * GROUP_ROWS * 2 + 63) & ~(size_t)63;
}

/* The tensor a group of the joined matrix lies in; *group becomes the group in it. */
static const struct backend_tensor *tensor_at(const struct load_job *job,
					      uint32_t *group)
{
	for (uint32_t i = 0;; i++) {
		const struct backend_tensor *t =
			&job->gpu->matrices[job->m->joined[i]].tensor;
		uint32_t nr = (t->nr_rows + GROUP_ROWS - 1) / GROUP_ROWS;

		if (*group < nr || i + 1 == job->m->nr_joined)
			return t;
		*group -= nr;
	}
}

/* One group of 16 rows from the file into the packed matrix. */
static void pack_group(const struct load_job *job, uint32_t group,
		       uint8_t *scratch, size_t floats, size_t halves)
{
	uint32_t in_tensor = group;
	const struct backend_tensor *t = tensor_at(job, &in_tensor);
	enum gpu_linear_type type = gpu_format_type(job->m->format);
	size_t row_bytes = gpu_linear_source_row_bytes(type, t->nr_cols);
	const uint8_t *src = t->data;
	/* Rows are counted from the joined matrix's first. */
	ptrdiff_t ahead = (ptrdiff_t)(group - in_tensor) * GROUP_ROWS *
			  (ptrdiff_t)row_bytes;

	if (!is_native(t->type)) {
		uint16_t *out = (uint16_t *)(scratch + halves);
		float *row = (float *)(scratch + floats);
		uint32_t first = in_tensor * GROUP_ROWS;

		for (uint32_t r = 0; r < GROUP_ROWS && first + r < t->nr_rows;
		     r++) {
			expand_row(t, first + r, scratch, row);
			for (uint32_t k = 0; k < t->nr_cols; k++)
				out[(size_t)r * t->nr_cols + k] =
					f32_to_bf16(row[k]);
		}
		src = scratch + halves;
		ahead = (ptrdiff_t)group * GROUP_ROWS * (ptrdiff_t)row_bytes;
	}
	gpu_linear_pack(type, job->m->nr_rows, t->nr_cols,
			(const void *)((uintptr_t)src - (uintptr_t)ahead),
			group, group + 1, job->packed);
}

static void pack_thread(void *arg, uint32_t thread)
{
	struct load_job *job = arg;
	size_t floats, halves;
	size_t bytes = expand_bytes(&job->m->tensor, &floats, &halves);
	uint8_t *scratch = NULL;
	uint32_t first, end;

	if (!is_native(job->m->tensor.type)) {
		scratch = aligned_alloc(64, bytes);
		if (!scratch) {
			atomic_store(&job->error, -ENOMEM);
			return;
		}
	}
	while (work_share_take(job->share, thread, &first, &end))
		for (uint32_t g = first; g < end; g++)
			pack_group(job, g, scratch, floats, halves);
	free(scratch);
}

static void expand_thread(void *arg, uint32_t thread)
{
	struct load_job *job = arg;
	const struct backend_tensor *t = &job->m->tensor;
	size_t floats, halves;
	uint8_t *scratch = aligned_alloc(64, expand_bytes(t, &floats, &halves));
	uint32_t first, end;

	if (!scratch) {
		atomic_store(&job->error, -ENOMEM);
		return;
	}
	while (work_share_take(job->share, thread, &first, &end))
		for (uint32_t r = first; r < end; r++)
			expand_row(t, r, scratch,
				   (float *)job->packed +
					   (size_t)r * t->nr_cols);
	free(scratch);
}

static int run_job(struct load_job *job, uint32_t nr_units,
		   void (*fn)(void *arg, uint32_t thread))
{
	struct threads *threads = job->gpu->threads;

	work_share_init(job->share, threads_nr(threads), nr_units,
			PACK_CHUNK_GROUPS);
	threads_run(threads, fn, job);
	return atomic_load(&job->error);
}

static int upload(struct gpu_backend *gpu, const void *from, uint64_t bytes,
		  cuda_addr *out)
{
	cuda_status status = gpu->driver->MemAlloc(out, bytes);

	if (status == CUDA_OK)
		status = gpu->driver->MemcpyHtoDAsync(*out, from, bytes,
						      gpu->stream);
	if (status == CUDA_OK)
		status = gpu_base(gpu)->StreamSynchronize(gpu->stream);
	gpu->weight_bytes += bytes;
	return cuda_errno(status);
}

/* Rows as they are looked up: the file's own, or float32 where embed has no code for the type. */
static int load_table(struct load_job *job, struct gpu_matrix *m)
{
	const struct backend_tensor *t = &m->tensor;
	int rc;

	m->row_bytes = pack_source_row_bytes(t->type, t->nr_cols);
	m->table_type = (enum gpu_embed_type)t->type;
	if (t->type == GPU_EMBED_F32 || t->type == GPU_EMBED_F16 ||
	    t->type == GPU_EMBED_BF16 || t->type == GPU_EMBED_Q8_0 ||
	    t->type == GPU_EMBED_Q6_K)
		return upload(job->gpu, t->data, m->row_bytes * t->nr_rows,
			      &m->table);
	m->table_type = GPU_EMBED_F32;
	m->row_bytes = (uint64_t)t->nr_cols * sizeof(float);
	job->m = m;
	job->packed = malloc(m->row_bytes * t->nr_rows);
	if (!job->packed)
		return -ENOMEM;
	rc = run_job(job, t->nr_rows, expand_thread);
	if (!rc)
		rc = upload(job->gpu, job->packed, m->row_bytes * t->nr_rows,
			    &m->table);
	free(job->packed);
	return rc;
}

static int load_matrix(struct load_job *job, struct gpu_matrix *m)
{
	int rc = 0;

	if (m->tensor.is_looked_up)
		rc = load_table(job, m);
	if (rc || !m->nr_joined || !m->tensor.is_multiplied)
		return rc;
	m->packed_bytes = gpu_linear_packed_bytes(
		gpu_format_type(m->format), m->nr_rows, m->tensor.nr_cols);
	job->m = m;
	job->packed = m->packed_bytes ? malloc(m->packed_bytes) : NULL;
	if (!job->packed)
		return -ENOMEM;
	rc = run_job(job, (m->nr_rows + GROUP_ROWS - 1) / GROUP_ROWS,
		     pack_thread);
	if (!rc)
		rc = upload(job->gpu, job->packed, m->packed_bytes, &m->packed);
	free(job->packed);
	return rc;
}

static int load_vector(struct gpu_backend *gpu, struct gpu_vector *v)
{
	const struct backend_tensor *t = &v->tensor;
	float *values = malloc((size_t)t->nr_cols * sizeof(float));
	int rc;

	if (!values)
		return -ENOMEM;
	tensor_vector_f32(t, values);
	rc = upload(gpu, values, (uint64_t)t->nr_cols * sizeof(float),
		    &v->values);
	free(values);
	return rc;
}

/* ---- the digest --------------------------------------------------------------- */

struct digest_job {
	struct gpu_backend *gpu;
	struct work_share *share;
	uint8_t (*digests)[BACKEND_DIGEST_BYTES]; /* vectors, then matrices */
	atomic_int error;
};

static void digest_thread(void *arg, uint32_t thread)
{
	struct digest_job *job = arg;
	struct gpu_backend *gpu = job->gpu;
	uint32_t first, end;

	while (work_share_take(job->share, thread, &first, &end)) {
		for (uint32_t i = first; i < end; i++) {
			const struct backend_tensor *t =
				i < gpu->nr_vectors ?
					&gpu->vectors[i].tensor :
					&gpu->matrices[i - gpu->nr_vectors]
						 .tensor;

			if (tensor_digest(t, job->digests[i]))
				atomic_store(&job->error, -ENOMEM);
		}
	}
}

static int digest_all(struct gpu_backend *gpu, struct work_share *share,
		      uint8_t out_digest[BACKEND_DIGEST_BYTES])
{
	uint32_t nr = gpu->nr_vectors + gpu->nr_matrices;
	struct digest_job job = { .gpu = gpu, .share = share };
	int rc;

	job.digests = calloc(nr + 1, BACKEND_DIGEST_BYTES);
	if (!job.digests)
		return -ENOMEM;
	work_share_init(share, threads_nr(gpu->threads), nr, 1);
	threads_run(gpu->threads, digest_thread, &job);
	rc = atomic_load(&job.error);
	if (!rc && EVP_Digest(job.digests, (size_t)nr * BACKEND_DIGEST_BYTES,
			      out_digest, NULL, EVP_sha256(), NULL) != 1)
		rc = -ENOMEM;
	free(job.digests);
	return rc;
}

static int load_all(struct load_job *job,
		    int (*progress)(void *arg, double fraction), void *arg)
{
	struct gpu_backend *gpu = job->gpu;
	uint64_t all = 0, done = 0;
	int rc = 0;

	for (uint32_t i = 0; i < gpu->nr_matrices; i++)
		all += gpu->matrices[i].tensor.nr_rows *
		       (uint64_t)gpu->matrices[i].tensor.nr_cols;
	for (uint32_t i = 0; i < gpu->nr_vectors && !rc; i++)
		rc = load_vector(gpu, &gpu->vectors[i]);
	for (uint32_t i = 0; i < gpu->nr_matrices && !rc; i++) {
		struct gpu_matrix *m = &gpu->matrices[i];

		rc = load_matrix(job, m);
		done += m->tensor.nr_rows * (uint64_t)m->tensor.nr_cols;
		if (!rc && progress &&
		    progress(arg, (double)done / (double)all))
			rc = -ECANCELED;
	}
	return rc;
}

int gpu_load(struct backend *b, int (*progress)(void *arg, double fraction),
	     void *arg, uint8_t out_digest[BACKEND_DIGEST_BYTES])
{
	struct gpu_backend *gpu = to_gpu(b);
	struct load_job job = { .gpu = gpu };
	int rc = gpu_enter(gpu);

	if (rc)
		return rc;
	job.share =
		aligned_alloc(64, (work_share_bytes(threads_nr(gpu->threads)) +
				   63) & ~(size_t)63);
	rc = job.share ? digest_all(gpu, job.share, out_digest) : -ENOMEM;
	if (!rc)
		rc = load_all(&job, progress, arg);
	free(job.share);
	gpu_leave(gpu);
	return rc;
}

void gpu_weights_free(struct gpu_backend *gpu)
{
	for (uint32_t i = 0; i < gpu->nr_vectors; i++)
		if (gpu->vectors[i].values)
			(void)gpu->driver->MemFree(gpu->vectors[i].values);
	for (uint32_t i = 0; i < gpu->nr_matrices; i++) {
		if (gpu->matrices[i].packed)
			(void)gpu->driver->MemFree(gpu->matrices[i].packed);
		if (gpu->matrices[i].table)
			(void)gpu->driver->MemFree(gpu->matrices[i].table);
	}
}

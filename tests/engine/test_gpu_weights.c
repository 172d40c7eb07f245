/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights on the GPU, as they lie in the memory of a device without a GPU: packed
 * as their rows one after the other are, joined or not; types that no kernel has
 * as bf16 of the right values; tables of embeddings; vectors.
 */
#include "tests/harness.h"

#include <math.h>

#include "engine/backend/gpu_private.h"
#include "engine/model/gguf.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels_cpu.h"
#include "tests/engine/gpu_kit.h"

enum { COLS = 256, MAX_MATRICES = 4, GROUP = GPU_LINEAR_GROUP_ROWS };

FIXTURE(weights)
{
	struct backend *backend;
	struct gpu_backend *gpu;
	uint64_t random;
	uint8_t *data[MAX_MATRICES];
	int ids[MAX_MATRICES];
	struct backend_tensor tensors[MAX_MATRICES];
	uint32_t nr;
	uint8_t digest[BACKEND_DIGEST_BYTES];
};

FIXTURE_VARIANT(weights)
{
	uint32_t type;
};

#define TYPE(name)                         \
	FIXTURE_VARIANT_ADD(weights, name) \
	{                                  \
		.type = GGUF_TYPE_##name   \
	}
TYPE(F32);
TYPE(F16);
TYPE(BF16);
TYPE(Q4_0);
TYPE(Q4_1);
TYPE(Q5_0);
TYPE(Q5_1);
TYPE(Q8_0);
TYPE(Q2_K);
TYPE(Q3_K);
TYPE(Q4_K);
TYPE(Q5_K);
TYPE(Q6_K);
TYPE(IQ4_NL);
TYPE(IQ4_XS);
TYPE(MXFP4);

FIXTURE_SETUP(weights)
{
	struct backend_options options = { .nr_threads = 3 };
	char err[256] = "";

	(void)variant;
	standin_install();
	standin.fill = 0xee;
	ASSERT_EQ(0, backend_gpu_create(&options, &self->backend, err,
					sizeof(err)))
	{
		TH_LOG("%s", err);
	}
	self->gpu = to_gpu(self->backend);
	self->random = 77;
}

FIXTURE_TEARDOWN(weights)
{
	(void)variant;
	self->backend->ops->destroy(self->backend);
	for (uint32_t i = 0; i < self->nr; i++)
		free(self->data[i]);
	EXPECT_TRUE(standin_is_clean());
}

/* A random matrix of the file. Return: as add_matrix(). */
static int add(struct fixture_weights *self, uint32_t type, uint32_t nr_rows,
	       bool is_looked_up, bool is_multiplied)
{
	struct tiny_type info = tiny_type(type);
	uint32_t nr_blocks = nr_rows * (COLS / info.block), i = self->nr++;
	char err[256] = "";

	self->data[i] = malloc((size_t)nr_blocks * info.bytes);
	for (uint32_t b = 0; b < nr_blocks; b++)
		tiny_block(&self->random, type, 0.2,
			   self->data[i] + (size_t)b * info.bytes);
	self->tensors[i] = (struct backend_tensor){
		.name = "w",
		.type = type,
		.nr_rows = nr_rows,
		.nr_cols = COLS,
		.data = self->data[i],
		.is_looked_up = is_looked_up,
		.is_multiplied = is_multiplied,
	};
	self->ids[i] = -1;
	return self->backend->ops->add_matrix(self->backend, &self->tensors[i],
					      &self->ids[i], err, sizeof(err));
}

static void load_ok(struct fixture_weights *self)
{
	ASSERT_EQ(0, self->backend->ops->load(self->backend, NULL, NULL,
					      self->digest));
	ASSERT_EQ(0, standin_depth());
	EXPECT_EQ(standin_counts().used_bytes,
		  self->backend->ops->weight_bytes(self->backend));
}

static const struct gpu_matrix *matrix(const struct fixture_weights *self,
				       uint32_t i)
{
	return &self->gpu->matrices[self->ids[i]];
}

static bool is_native(uint32_t type)
{
	static const uint32_t native[] = {
		GGUF_TYPE_BF16, GGUF_TYPE_Q8_0, GGUF_TYPE_Q4_0, GGUF_TYPE_Q4_1,
		GGUF_TYPE_Q5_0, GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K,
	};

	for (size_t i = 0; i < sizeof(native) / sizeof(native[0]); i++)
		if (native[i] == type)
			return true;
	return false;
}

/* Rows of the matrix as float32, by the CPU's code; each within its type's error of double. */
static float *expand(const struct backend_tensor *t)
{
	struct packed_matrix m;
	uint8_t *packed = aligned_alloc(
		64,
		(pack_layout(&m, t->type, t->nr_rows, COLS) + 63) / 64 * 64);
	float *out = malloc((size_t)t->nr_rows * COLS * sizeof(float));

	pack_groups(&m, t->data, 0, (t->nr_rows + 15) / 16, packed);
	m.data = packed;
	for (uint32_t r = 0; r < t->nr_rows; r++) {
		const uint8_t *row = (const uint8_t *)t->data +
				     r * pack_source_row_bytes(t->type, COLS);

		pack_row_f32(&m, r, out + (size_t)r * COLS);
		for (uint32_t k = 0; k < COLS; k++)
			ASSERT_TRUE(fabs(tiny_value_at(t->type, row, k) -
					 out[r * COLS + k]) < 1e-6);
	}
	free(packed);
	return out;
}

/* Rows as the packer takes them, behind each other in @out. Return: bytes. */
static size_t source_rows(const struct backend_tensor *t, uint8_t *out)
{
	size_t bytes =
		(size_t)t->nr_rows * pack_source_row_bytes(t->type, t->nr_cols);

	if (is_native(t->type)) {
		memcpy(out, t->data, bytes);
		return bytes;
	}
	float *values = expand(t);

	for (uint32_t i = 0; i < t->nr_rows * COLS; i++) {
		uint16_t half = f32_to_bf16(values[i]);

		memcpy(out + 2 * i, &half, 2);
	}
	free(values);
	return (size_t)t->nr_rows * COLS * 2;
}

/* Matrices [first, first + nr) of the test are one packed matrix on the device. */
static void expect_packed(const struct fixture_weights *self, uint32_t first,
			  uint32_t nr)
{
	const struct gpu_matrix *m = matrix(self, first);
	uint32_t type = self->tensors[first].type, nr_rows = 0;
	enum gpu_linear_type as = is_native(type) ? (enum gpu_linear_type)type :
						    GPU_LINEAR_BF16;

	for (uint32_t i = first; i < first + nr; i++)
		nr_rows += self->tensors[i].nr_rows;
	uint64_t bytes = gpu_linear_packed_bytes(as, nr_rows, COLS);
	uint8_t *rows = malloc((size_t)nr_rows * COLS * 4), *at = rows;
	uint8_t *want = malloc(bytes);

	for (uint32_t i = first; i < first + nr; i++)
		at += source_rows(&self->tensors[i], at);
	gpu_linear_pack(as, nr_rows, COLS, rows, 0,
			(nr_rows + GROUP - 1) / GROUP, want);
	EXPECT_EQ(nr, m->nr_joined);
	EXPECT_EQ(nr_rows, m->nr_rows);
	EXPECT_EQ((int)as, (int)gpu_format_type(m->format));
	ASSERT_EQ(bytes, m->packed_bytes);
	EXPECT_EQ(0, memcmp(want, standin_cpu((void *)m->packed), bytes))
	{
		TH_LOG("type %u, %u rows", type, nr_rows);
	}
	for (uint32_t i = first + 1; i < first + nr; i++) {
		EXPECT_EQ(0, matrix(self, i)->nr_joined);
		EXPECT_EQ(0, matrix(self, i)->packed);
	}
	free(rows);
	free(want);
}

static void join(struct fixture_weights *self, uint32_t nr)
{
	self->backend->ops->join(self->backend, self->ids, nr);
}

TEST_F(weights, joined_matrices_are_packed_as_one)
{
	/* Enough groups for every thread to take some. */
	ASSERT_EQ(0, add(self, variant->type, 1040, false, true));
	ASSERT_EQ(0, add(self, variant->type, 64, false, true));
	ASSERT_EQ(0, add(self, variant->type, 16, false, true));
	join(self, 3);
	load_ok(self);
	expect_packed(self, 0, 3);
}

TEST_F(weights, matrices_that_do_not_fit_stay_apart)
{
	uint32_t other = variant->type == GGUF_TYPE_Q8_0 ? GGUF_TYPE_Q4_0 :
							   GGUF_TYPE_Q8_0;

	/* A group of 16 rows would be of two of them. */
	ASSERT_EQ(0, add(self, variant->type, 24, false, true));
	ASSERT_EQ(0, add(self, variant->type, 32, false, true));
	join(self, 2);
	ASSERT_EQ(0, add(self, other, 32, false, true));
	self->backend->ops->join(self->backend, self->ids + 1, 2);
	load_ok(self);
	for (uint32_t i = 0; i < 3; i++)
		expect_packed(self, i, 1);
}

TEST_F(weights, rows_are_looked_up_as_they_are_or_in_float)
{
	bool is_own = variant->type == GGUF_TYPE_F32 ||
		      variant->type == GGUF_TYPE_F16 ||
		      variant->type == GGUF_TYPE_BF16 ||
		      variant->type == GGUF_TYPE_Q8_0 ||
		      variant->type == GGUF_TYPE_Q6_K;
	const struct gpu_matrix *m;

	/* Any number of rows, where nothing is multiplied with them. */
	ASSERT_EQ(0, add(self, variant->type, 83, true, false));
	/* The tied one is both. */
	ASSERT_EQ(0, add(self, variant->type, 40, true, true));
	load_ok(self);
	expect_packed(self, 1, 1);
	EXPECT_EQ(0, matrix(self, 0)->packed);
	for (uint32_t i = 0; i < 2; i++) {
		const struct backend_tensor *t = &self->tensors[i];
		uint64_t row_bytes =
			is_own ? pack_source_row_bytes(t->type, COLS) :
				 COLS * sizeof(float);
		float *values = expand(t);

		m = matrix(self, i);
		ASSERT_EQ(row_bytes, m->row_bytes);
		EXPECT_EQ(is_own ? variant->type : GGUF_TYPE_F32,
			  (uint32_t)m->table_type);
		EXPECT_EQ(0, memcmp(is_own ? t->data : values,
				    standin_cpu((void *)m->table),
				    row_bytes * t->nr_rows));
		free(values);
	}
}

TEST_F(weights, vectors_become_float)
{
	struct backend_tensor t = { .name = "v",
				    .type = variant->type,
				    .nr_rows = 1,
				    .nr_cols = COLS };
	bool is_float = variant->type == GGUF_TYPE_F32 ||
			variant->type == GGUF_TYPE_F16 ||
			variant->type == GGUF_TYPE_BF16;
	uint32_t block_bytes = tiny_type(variant->type).bytes;
	char err[256] = "";
	int id = -1;

	if (!is_float) {
		EXPECT_EQ(-ENOTSUP,
			  self->backend->ops->add_vector(self->backend, &t, &id,
							 err, sizeof(err)));
		EXPECT_TRUE(strstr(err, "want F32, F16 or BF16") != NULL);
		return;
	}
	self->data[self->nr++] = malloc(COLS * 4);
	for (uint32_t i = 0; i < COLS; i++)
		tiny_block(&self->random, variant->type, 0.2,
			   self->data[0] + (size_t)i * block_bytes);
	t.data = self->data[0];
	ASSERT_EQ(0, self->backend->ops->add_vector(self->backend, &t, &id, err,
						    sizeof(err)));
	load_ok(self);
	const float *got = (const void *)standin_cpu(
		(void *)self->gpu->vectors[id].values);

	for (uint32_t i = 0; i < COLS; i++)
		EXPECT_EQ((float)tiny_value_at(variant->type, self->data[0], i),
			  got[i]);
}

TEST_F(weights, the_digest_is_of_the_files_bytes)
{
	struct backend_options options = { .nr_threads = 1 };
	uint8_t other[BACKEND_DIGEST_BYTES];
	struct backend *second;
	int id;

	ASSERT_EQ(0, add(self, variant->type, 32, false, true));
	ASSERT_EQ(0, add(self, variant->type, 48, true, true));
	load_ok(self);
	for (int flip = 0; flip < 2; flip++) {
		self->data[1][5] ^= (uint8_t)flip;
		ASSERT_EQ(0, backend_gpu_create(&options, &second, NULL, 0));
		for (uint32_t i = 0; i < 2; i++)
			ASSERT_EQ(0, second->ops->add_matrix(second,
							     &self->tensors[i],
							     &id, NULL, 0));
		ASSERT_EQ(0, second->ops->load(second, NULL, NULL, other));
		second->ops->destroy(second);
		EXPECT_EQ(flip,
			  memcmp(self->digest, other, sizeof(other)) != 0);
	}
}

TEST_HARNESS_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the KV tests: pools of either kind, memfd and cuda on a driver without a
 * GPU, whose addresses the CPU cannot touch there either. Included by test
 * programs only, behind tests/harness.h.
 */
#ifndef TARN_TESTS_ENGINE_KV_POOL_KIT_H
#define TARN_TESTS_ENGINE_KV_POOL_KIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "engine/kv/libkvpool.h"
#include "tests/engine/cuda_standin.h"
#include "tests/engine/kv_kit.h"

/*
 * A pool of @limit_bytes. @granule_bytes: of a cuda pool, whose handles are of one page unless
 * @is_growing; 0: a memfd pool.
 */
static inline struct kvpool *kit_pool(uint64_t granule_bytes, bool is_growing,
				      uint64_t limit_bytes,
				      uint64_t spare_bytes)
{
	struct kvpool_options options = {
		.size = sizeof(options),
		.backend = granule_bytes ? KVPOOL_BACKEND_CUDA :
					   KVPOOL_BACKEND_MEMFD,
		.limit_bytes = limit_bytes,
		.spare_limit_bytes = spare_bytes,
		.is_small_pages = !is_growing,
	};
	struct kvpool *pool = NULL;

	if (granule_bytes) {
		standin_install();
		standin.granule_bytes = granule_bytes;
		standin.is_hidden = true;
		kit_cpu = standin_cpu;
		kit_is_k_by_token = true;
	}
	ASSERT_EQ(0, kvpool_open(&options, &pool));
	return pool;
}

/* The last reference: nothing is left on the device. */
static inline void kit_pool_put(struct kvpool *pool)
{
	kvpool_put(pool);
	if (kit_cpu)
		EXPECT_TRUE(standin_is_clean());
}

/* ---- kernels at work ---- */

/* A stream whose work ends every now and then, as a device's does by itself. */
struct kit_worker {
	cuda_stream stream; /* NULL: nobody works */
	pthread_t thread;
	atomic_bool is_over;
};

static inline void *kit_end_work(void *arg)
{
	struct kit_worker *worker = arg;

	while (!atomic_load(&worker->is_over)) {
		standin_finish(worker->stream);
		usleep(200);
	}
	return NULL;
}

static inline void kit_worker_start(struct kit_worker *worker)
{
	worker->stream = standin_stream();
	atomic_store(&worker->is_over, false);
	ASSERT_EQ(0,
		  pthread_create(&worker->thread, NULL, kit_end_work, worker));
}

static inline void kit_worker_stop(struct kit_worker *worker)
{
	if (!worker->stream)
		return;
	atomic_store(&worker->is_over, true);
	pthread_join(worker->thread, NULL);
	standin_finish(worker->stream);
	standin_stream_end(worker->stream);
	worker->stream = NULL;
}

/* A step reads all that the next row of @seq sees, and goes on when this returns. */
static inline void kit_work(struct kit_worker *worker, struct kv_cache *cache,
			    const struct kv_seq *seq)
{
	struct attn_piece pieces[KV_MAX_CHAIN + 1];
	uint32_t len = kv_seq_len(seq);

	if (!worker->stream)
		return;
	/* The queue of the driver without a GPU is short. */
	if (standin_work_left(worker->stream) > 24)
		standin_finish(worker->stream);
	for (uint32_t s = 0; s < kv_cache_nr_streams(cache); s++) {
		const struct attn_layout *l = kv_cache_layout(cache, s);
		int nr = kv_seq_pieces(seq, s, kit_first_visible(cache, s, len),
				       len, pieces);

		for (int i = 0; i < nr; i++) {
			const uint8_t *start =
				attn_tile(l, &pieces[i], pieces[i].first_token);
			const uint8_t *last = attn_tile(
				l, &pieces[i], pieces[i].end_token - 1);

			standin_launch(worker->stream, start,
				       (uint64_t)(last - start) +
					       l->stride_bytes);
		}
	}
	ASSERT_EQ(0, kv_cache_fence(cache, worker->stream));
}

#endif /* TARN_TESTS_ENGINE_KV_POOL_KIT_H */

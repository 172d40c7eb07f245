/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's KV memory: which pool it takes, how much of it, who else it
 * shares prefixes with, and whether any request can be served from it. Driver
 * thread, when an engine is created.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine_private.h"
#include "engine/kv/exchange.h"

enum {
	/* Spare KV pages kept warm, at most this, and at most 1/16 of the limit. */
	SPARE_LIMIT_BYTES = 16 << 20,
	/* Of a GPU: made ahead of some hundred sequences, a tile or two each. */
	DEVICE_SPARE_GIB = 8,
	/* Of a GPU's free memory, once all else is in place, KV may take so many tenths. */
	DEVICE_TENTHS = 9,
	MIN_KV_BYTES = 1 << 20,
};

static uint64_t mem_available_bytes(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	unsigned long long kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return (uint64_t)kib << 10;
}

static const char *kv_backend_option(enum tarn_kv_backend b,
				     enum kvpool_backend *out)
{
	switch (b) {
	case TARN_KV_KERNEL:
		*out = KVPOOL_BACKEND_KERNEL;
		return "kernel";
	case TARN_KV_MEMFD:
		*out = KVPOOL_BACKEND_MEMFD;
		return "memfd";
	case TARN_KV_CUDA:
		*out = KVPOOL_BACKEND_CUDA;
		return "cuda";
	default:
		*out = KVPOOL_BACKEND_AUTO;
		return "auto";
	}
}

/* KV lies where it is computed with: what the options ask for must be that. */
static int check_kv_backend(const struct backend *b,
			    const struct tarn_engine_options *o, char *err,
			    size_t errlen)
{
	bool is_device = o->pool && kvpool_features(o->pool) & KVPOOL_F_DEVICE;
	enum kvpool_backend kind;

	if (!b->is_device && o->kv_backend == TARN_KV_CUDA) {
		snprintf(err, errlen,
			 "KV backend cuda: this engine computes on the CPU");
		return -ENODEV;
	}
	if (b->is_device && (o->kv_backend == TARN_KV_MEMFD ||
			     o->kv_backend == TARN_KV_KERNEL)) {
		snprintf(
			err, errlen,
			"KV backend %s: this engine computes on the GPU, in its own memory",
			kv_backend_option(o->kv_backend, &kind));
		return -EINVAL;
	}
	if (o->pool && is_device != b->is_device) {
		snprintf(
			err, errlen,
			is_device ?
				"a pool of device memory is no use to the CPU" :
				"a pool of the host's memory is no use to the GPU");
		return -EOPNOTSUPP;
	}
	return 0;
}

/*
 * Bytes that a GPU's KV may take now, what the pool has of them included; @wanted, which may be 0,
 * is what it shall take some day. 0 or -errno.
 */
static int device_kv_bytes(const struct tarn_engine *e, uint64_t wanted,
			   uint64_t *out_bytes, char *err, size_t errlen)
{
	struct kvpool_stat stat = { 0 };
	uint64_t free_bytes, total_bytes;
	int rc = kvpool_cuda_memory(e->backend->device, &free_bytes,
				    &total_bytes);

	if (!rc && e->pool)
		rc = kvpool_stat(e->pool, &stat);
	if (rc) {
		snprintf(err, errlen, "memory of GPU %u: %s",
			 e->backend->device, strerror(-rc));
		return rc;
	}
	/* What others have taken they may give back; what is not there nobody can. */
	if (wanted > total_bytes) {
		snprintf(err, errlen,
			 "%llu bytes for KV memory: GPU %u has %llu",
			 (unsigned long long)wanted, e->backend->device,
			 (unsigned long long)total_bytes);
		return -EINVAL;
	}
	*out_bytes = (free_bytes + stat.charged_bytes) / 10 * DEVICE_TENTHS;
	return 0;
}

uint64_t engine_spare_bytes(const struct tarn_engine *e, uint64_t limit)
{
	uint64_t most = e->backend->is_device ?
				(uint64_t)DEVICE_SPARE_GIB << 30 :
				SPARE_LIMIT_BYTES;

	return limit / 16 < most ? limit / 16 : most;
}

static const char *pool_reason(int rc, enum kvpool_backend backend,
			       bool has_name)
{
	if (rc == -EOPNOTSUPP && has_name)
		return "only the kernel module has pools with names";
	if (rc == -ENODEV && backend == KVPOOL_BACKEND_KERNEL)
		return "the kernel module is not loaded; \"modprobe kvpool\" or "
		       "\"insmod build/kvpool.ko\" loads it";
	return strerror(-rc);
}

static int create_pool(struct tarn_engine *e,
		       const struct tarn_engine_options *o, char *err,
		       size_t errlen)
{
	struct kvpool_options po = {
		.size = sizeof(po),
		.name = o->pool_name,
		.quota_bytes = o->pool_quota_bytes,
		.shared_quota_bytes = o->pool_quota_bytes,
	};
	const char *backend = kv_backend_option(
		e->backend->is_device ? TARN_KV_CUDA : o->kv_backend,
		&po.backend);
	int rc = 0;

	po.device = e->backend->device;
	if (e->backend->is_device)
		rc = device_kv_bytes(e, o->kv_bytes, &po.limit_bytes, err,
				     errlen);
	else
		po.limit_bytes = mem_available_bytes() / 2;
	if (rc)
		return rc;
	if (o->kv_bytes)
		po.limit_bytes = o->kv_bytes;
	if (po.limit_bytes < MIN_KV_BYTES) {
		snprintf(
			err, errlen,
			"%llu bytes for KV memory are too few: want at least %d",
			(unsigned long long)po.limit_bytes, MIN_KV_BYTES);
		return -EINVAL;
	}
	po.spare_limit_bytes = engine_spare_bytes(e, po.limit_bytes);
	rc = kvpool_open(&po, &e->pool);
	if (rc && o->pool_name)
		snprintf(err, errlen, "pool \"%s\", KV backend %s: %s",
			 o->pool_name, backend,
			 pool_reason(rc, po.backend, true));
	else if (rc)
		snprintf(err, errlen, "KV backend %s: %s", backend,
			 pool_reason(rc, po.backend, false));
	return rc == -EOPNOTSUPP ? -ENODEV : rc;
}

int engine_open_pool(struct tarn_engine *e, const struct tarn_engine_options *o,
		     char *err, size_t errlen)
{
	bool is_shared = o->pool || o->pool_name;
	struct kvpool_stat stat;
	int rc = check_kv_backend(e->backend, o, err, errlen);

	if (rc)
		return rc;
	if (o->pool) {
		e->pool = kvpool_get(o->pool);
	} else {
		rc = create_pool(e, o, err, errlen);
		if (!rc && o->pool_name) {
			e->pool_name = strdup(o->pool_name);
			rc = e->pool_name ? 0 : -ENOMEM;
		}
	}
	if (!rc)
		rc = kvpool_stat(e->pool, &stat);
	if (rc)
		return rc;
	/* Keys that others can make too need a secret that they know; else it is our own. */
	e->info.shares_prefixes = is_shared && !o->no_prefix_sharing &&
				  !o->no_prefix_cache &&
				  !kvpool_secret(e->pool, e->salt_secret.bytes);
	e->prefix_scope = o->prefix_scope;
	e->info.pool_name = e->pool_name;
	e->info.kv_backend = kvpool_backend_name(e->pool);
	/* A pool that was there keeps its own limit. */
	e->info.kv_limit_bytes = stat.limit_bytes;
	return 0;
}

/*
 * A GPU's pool is this process' own: with others of the uid it shares over an exchange. Without
 * one it goes on alone, and @note says why.
 */
void engine_open_exchange(struct tarn_engine *e,
			  const struct tarn_engine_options *o, char *note,
			  size_t size)
{
	struct kv_exchange_options eo = { .pool = e->pool };
	char why[256];

	if (!e->backend->is_device || o->pool || o->no_prefix_sharing ||
	    o->no_prefix_cache)
		return;
	if (kv_exchange_create(&eo, &e->exchange, why, sizeof(why))) {
		snprintf(note, size, "prefixes are not shared: %s", why);
		return;
	}
	e->salt_secret = *kv_exchange_secret(e->exchange);
	e->info.shares_prefixes = true;
}

/*
 * Weights come into memory that others may have filled with what they keep without need. About as
 * large as the file, or its first part: what is missing then shows when it is asked for.
 */
void engine_ask_for_room(struct tarn_engine *e,
			 const struct tarn_engine_options *o)
{
	uint64_t free_bytes, wanted = o->kv_bytes;
	struct stat st;

	if (!e->exchange || stat(o->model_path, &st) ||
	    kvpool_cuda_memory(e->backend->device, &free_bytes, NULL))
		return;
	wanted += (uint64_t)st.st_size;
	if (free_bytes < wanted)
		kv_exchange_ask_room(e->exchange, wanted - free_bytes);
}

/* A sequence of no more than one tile in each stream. Return: as kv_seq_open(). */
static int open_smallest(struct tarn_engine *e, struct kv_seq **out_seq)
{
	enum kv_miss miss;
	uint32_t matched;

	*out_seq = NULL;
	return kv_seq_open(e->kv, NULL, 0, 2, NULL, getuid(), out_seq, &matched,
			   &miss);
}

/* A pool so small that no request could ever be served is an error now, not for each of them. */
int engine_check_cache(struct tarn_engine *e, char *err, size_t errlen)
{
	struct kv_seq *seq;
	int rc = open_smallest(e, &seq);

	kv_seq_close(seq);
	if (!rc || rc == -EAGAIN) /* others hold a shared pool for now */
		return 0;
	if (rc != -ENOSPC) {
		snprintf(err, errlen, "KV memory: %s", strerror(-rc));
		return rc;
	}
	snprintf(
		err, errlen,
		"%llu bytes for KV memory hold no sequence of this model: it takes pages for "
		"%u tokens of %u bytes at least, in each of %u streams",
		(unsigned long long)e->info.kv_limit_bytes,
		kv_cache_layout(e->kv, 0)->tile_tokens,
		e->info.kv_bytes_per_token, e->model.nr_streams);
	return -EINVAL;
}

/* Why memory within the pool's limit cannot be had: the limits of the process that are set. */
static void explain_shortage(char *err, size_t errlen)
{
	static const struct {
		int which;
		const char *name;
	} limits[] = {
		{ RLIMIT_FSIZE, "RLIMIT_FSIZE (ulimit -f)" },
		{ RLIMIT_AS, "RLIMIT_AS (ulimit -v)" },
	};
	int len = snprintf(
		err, errlen,
		"no KV memory can be had though its limit allows it, so no request could be "
		"served:");
	bool is_limited = false;

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct rlimit limit;

		if (getrlimit(limits[i].which, &limit) ||
		    limit.rlim_cur == RLIM_INFINITY || (size_t)len >= errlen)
			continue;
		len += snprintf(err + len, errlen - (size_t)len,
				"%s %s is %llu bytes", is_limited ? "," : "",
				limits[i].name,
				(unsigned long long)limit.rlim_cur);
		is_limited = true;
	}
	if (!is_limited && (size_t)len < errlen)
		snprintf(
			err + len, errlen - (size_t)len,
			" the system or the control group is out of memory, or descriptors "
			"are short");
}

/*
 * Memory that the limits of the process or the system keep from us is an error now too: the first
 * tiles are committed, and given up again. Last of all, since what else is loaded takes its share.
 * Not for a shared pool: what others hold of it, or of the user's quota, comes back.
 */
int engine_check_commit(struct tarn_engine *e, char *err, size_t errlen)
{
	const int32_t token = 0;
	struct kv_seq *seq;
	int rc = open_smallest(e, &seq);

	if (!rc)
		rc = kv_seq_append(seq, &token, 1);
	kv_seq_close(seq);
	if (rc == -ENOSPC) {
		explain_shortage(err, errlen);
		return -ENOMEM;
	}
	if (!rc || rc == -EAGAIN)
		return 0;
	snprintf(err, errlen, "KV memory: %s", strerror(-rc));
	return rc;
}

/*
 * What a GPU has left is known once weights and activations are in place: the pool, which has taken
 * next to nothing yet, keeps within it, unless the options gave it a limit.
 */
int engine_fit_pool(struct tarn_engine *e, const struct tarn_engine_options *o,
		    char *err, size_t errlen)
{
	uint64_t bytes;
	int rc;

	if (!e->backend->is_device || o->pool || o->kv_bytes)
		return 0;
	rc = device_kv_bytes(e, 0, &bytes, err, errlen);
	if (rc || bytes >= e->info.kv_limit_bytes)
		return rc;
	rc = kvpool_set_limit(e->pool, bytes ? bytes : 1);
	e->info.kv_limit_bytes = bytes;
	return rc ? rc : engine_check_cache(e, err, errlen);
}

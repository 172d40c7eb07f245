/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gpu_probe.cu works with: KV memory mapped by the CUDA virtual memory
 * calls, its tensor maps, batches with their plans, launches of the attention
 * kernels, and the float64 reference. Included by that file alone.
 *
 * KV values are a function of (sequence, layer, K or V, head, token, element)
 * alone, so that every layout holds the same tensor and the host can compute
 * any part of it again.
 */
#ifndef TARN_TESTS_BENCH_GPU_PROBE_KIT_CUH
#define TARN_TESTS_BENCH_GPU_PROBE_KIT_CUH

#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <vector>
#include "tests/bench/gpu_kit.cuh"

enum {
	HEAD_DIM = 128,
	ROW_BYTES = HEAD_DIM * 2,
	NR_Q_HEADS = 32,
	NR_KV_HEADS = 8,
	GROUP = NR_Q_HEADS / NR_KV_HEADS,
	NR_LAYERS = 32,
	TOKEN_BYTES = NR_LAYERS * 2 * NR_KV_HEADS * ROW_BYTES, /* 131072 */
	Q_SEQ = 0xffffff, /* sequence id in the hash that stands for queries */
	NR_ROTATED = 8, /* launches over different layers in one graph */
};

static const size_t STOCK_HANDLE_BYTES = 2ul << 20;
static const size_t LARGE_HANDLE_BYTES = 128ul << 20;

/* ---- values ---- */

/* About normal, from four uniform 16-bit numbers; std in 1/16. */
static __host__ __device__ inline uint16_t value_at(uint32_t seq,
						    uint32_t plane,
						    uint32_t token, uint32_t d,
						    uint32_t std16)
{
	uint64_t h = mix64(
		mix64((uint64_t)seq << 40 | (uint64_t)plane << 28 | token) *
			128 +
		d);
	int sum = (int)(h & 0xffff) + (int)(h >> 16 & 0xffff) +
		  (int)(h >> 32 & 0xffff) + (int)(h >> 48);

	return to_bf16((float)(sum - 131070) * (float)std16 *
		       (1.0f / (16.0f * 37837.0f)));
}

static __host__ __device__ inline uint32_t
plane_at(uint32_t layer, uint32_t is_v, uint32_t head)
{
	return (layer * 2 + is_v) * NR_KV_HEADS + head;
}

/* ---- KV memory ---- */

/* One reservation; handles of one size in shuffled order behind it. */
struct arena {
	CUdeviceptr base;
	size_t reserved_bytes;
	size_t handle_bytes;
	std::vector<CUmemGenericAllocationHandle> handles;
	std::vector<size_t> offsets; /* of each handle's mapping */
};

static void arena_reserve(struct arena *a, size_t bytes)
{
	a->reserved_bytes = bytes;
	CU_OK(cuMemAddressReserve(&a->base, bytes, 512ul << 20, 0, 0));
}

/* Maps the handle-sized ranges at `offsets`, physical order shuffled. */
static void arena_map(struct arena *a, size_t handle_bytes,
		      const std::vector<size_t> &offsets)
{
	CUmemAllocationProp prop = {};
	CUmemAccessDesc access = {};

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	access.location = prop.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	a->handle_bytes = handle_bytes;
	a->offsets = offsets;
	a->handles.resize(offsets.size());
	for (auto &h : a->handles)
		CU_OK(cuMemCreate(&h, handle_bytes, &prop, 0));
	for (size_t i = a->handles.size(); i > 1; i--)
		std::swap(a->handles[i - 1], a->handles[mix64(i) % i]);
	for (size_t i = 0; i < offsets.size(); i++) {
		CU_OK(cuMemMap(a->base + offsets[i], handle_bytes, 0,
			       a->handles[i], 0));
		CU_OK(cuMemSetAccess(a->base + offsets[i], handle_bytes,
				     &access, 1));
	}
}

static void arena_unmap(struct arena *a)
{
	RT_OK(cudaDeviceSynchronize());
	for (size_t i = 0; i < a->handles.size(); i++) {
		CU_OK(cuMemUnmap(a->base + a->offsets[i], a->handle_bytes));
		CU_OK(cuMemRelease(a->handles[i]));
	}
	a->handles.clear();
}

static std::vector<size_t> offsets_of(size_t bytes, size_t handle_bytes)
{
	std::vector<size_t> offsets;

	for (size_t at = 0; at < bytes; at += handle_bytes)
		offsets.push_back(at);
	return offsets;
}

/* tile_tokens T, or 0 for per-layer [t][h][d] buffers of total_tokens. */
struct layout {
	uint32_t tile_tokens;
	size_t total_tokens;
};

/* Per-layer buffers are seen as tiles of 64 tokens. */
static uint32_t map_tokens(const struct layout *l)
{
	return l->tile_tokens ? l->tile_tokens : GPU_ATTN_DECODE_LOAD;
}

static const char *layout_name(const struct layout *l)
{
	static char name[32];

	if (!l->tile_tokens)
		return "layer";
	snprintf(name, sizeof(name), "T=%u", l->tile_tokens);
	return name;
}

/* A run of tokens of a sequence and where its first tile lies. */
struct fill_run {
	uint32_t seq;
	uint32_t first_token;
	uint32_t end_token;
	uint32_t first_tile;
};

static __device__ __host__ inline size_t kv_offset(struct layout l,
						   uint32_t first_tile,
						   uint32_t token_in_run,
						   uint32_t plane)
{
	size_t t = l.tile_tokens;

	if (!t)
		return (plane / NR_KV_HEADS * l.total_tokens +
			(size_t)first_tile * GPU_ATTN_DECODE_LOAD +
			token_in_run) *
			       NR_KV_HEADS * ROW_BYTES +
		       plane % NR_KV_HEADS * ROW_BYTES;
	return (first_tile + token_in_run / t) * t * TOKEN_BYTES +
	       plane * t * ROW_BYTES + token_in_run % t * ROW_BYTES;
}

/* Grid (run, plane of one layer). Rows behind the last token become NaN. */
static __global__ void fill_kv(uint8_t *base, struct layout l,
			       const struct fill_run *runs, uint32_t layer,
			       uint32_t round_tokens)
{
	struct fill_run run = runs[blockIdx.x];
	uint32_t plane = layer * 2 * NR_KV_HEADS + blockIdx.y;
	uint32_t nr = run.end_token - run.first_token;
	uint32_t nr_rounded =
		(nr + round_tokens - 1) / round_tokens * round_tokens;

	for (uint32_t i = threadIdx.x; i < nr_rounded * 16; i += blockDim.x) {
		uint32_t t = i / 16;
		__align__(16) uint16_t out[8];

		for (int j = 0; j < 8; j++)
			out[j] = t >= nr ? 0x7fff :
					   value_at(run.seq, plane,
						    run.first_token + t,
						    i % 16 * 8 + j, 16);
		*(uint4 *)(base + kv_offset(l, run.first_tile, t, plane) +
			   i % 16 * 16) = *(uint4 *)out;
	}
}

static __global__ void fill_q(uint16_t *q, uint32_t nr_rows, uint32_t std16)
{
	uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < nr_rows * NR_Q_HEADS * HEAD_DIM)
		q[i] = value_at(Q_SEQ, i / HEAD_DIM % NR_Q_HEADS,
				i / HEAD_DIM / NR_Q_HEADS, i % HEAD_DIM, std16);
}

/* ---- tensor maps ---- */

static void kv_maps(struct gpu_attn_tensor_map *block,
		    struct gpu_attn_tensor_map *tile, const struct layout *l,
		    CUdeviceptr base, size_t reserved_bytes,
		    uint32_t load_tokens)
{
	cuuint64_t t = map_tokens(l);
	cuuint32_t block_box[5] = { 64, (cuuint32_t)t,
				    (cuuint32_t)(load_tokens / t), 2, 1 };
	cuuint32_t tile_box[5] = { 64, (cuuint32_t)t, 1, 1, 1 };
	cuuint64_t dims[5] = { 64, t, 0, 2, 0 };
	cuuint64_t strides[4];

	if (l->tile_tokens) {
		dims[2] = reserved_bytes / (t * TOKEN_BYTES);
		dims[4] = NR_LAYERS * 2 * NR_KV_HEADS;
		strides[0] = ROW_BYTES;
		strides[1] = t * TOKEN_BYTES;
		strides[3] = t * ROW_BYTES;
	} else {
		dims[2] = l->total_tokens / t;
		dims[4] = NR_KV_HEADS;
		strides[0] = NR_KV_HEADS * ROW_BYTES;
		strides[1] = t * NR_KV_HEADS * ROW_BYTES;
		strides[3] = ROW_BYTES;
	}
	strides[2] = 128;
	encode_map(block, base, 5, dims, strides, block_box);
	encode_map(tile, base, 5, dims, strides, tile_box);
}

static void kv_init(struct gpu_attn_kv *kv, const struct arena *a,
		    const struct layout *l, uint32_t layer,
		    uint32_t load_tokens)
{
	kv->tile_tokens = map_tokens(l);
	kv->nr_kv_heads = NR_KV_HEADS;
	if (l->tile_tokens) {
		kv_maps(&kv->k_block, &kv->k_tile, l, a->base,
			a->reserved_bytes, load_tokens);
		kv->v_block = kv->k_block;
		kv->v_tile = kv->k_tile;
		kv->k_plane = plane_at(layer, 0, 0);
		kv->v_plane = plane_at(layer, 1, 0);
	} else {
		size_t buffer_bytes = l->total_tokens * NR_KV_HEADS * ROW_BYTES;

		kv_maps(&kv->k_block, &kv->k_tile, l,
			a->base + layer * 2 * buffer_bytes, 0, load_tokens);
		kv_maps(&kv->v_block, &kv->v_tile, l,
			a->base + (layer * 2 + 1) * buffer_bytes, 0,
			load_tokens);
		kv->k_plane = kv->v_plane = 0;
	}
}

/* ---- a batch: sequences, their chains and plan, on the device ---- */

struct batch {
	std::vector<struct fill_run> runs; /* what the KV memory holds */
	std::vector<struct gpu_attn_piece> pieces;
	std::vector<struct gpu_attn_seq> seqs;
	std::vector<uint32_t> content; /* hash id of each sequence */
	std::vector<struct gpu_attn_split> splits;
	std::vector<struct gpu_attn_unit> units;
	uint32_t nr_rows;
	uint32_t nr_partials;
	/* device copies */
	struct fill_run *dev_runs;
	struct gpu_attn_piece *dev_pieces;
	struct gpu_attn_seq *dev_seqs;
	struct gpu_attn_split *dev_splits;
	struct gpu_attn_unit *dev_units;
	uint16_t *q, *out, *out2;
	float *partial_out, *partial_state;
	uint32_t *arrivals;
	struct gpu_attn_queue *queue;
};

static void batch_add_run(struct batch *b, uint32_t content, uint32_t first,
			  uint32_t end, uint32_t first_tile)
{
	b->runs.push_back({ content, first, end, first_tile });
	b->pieces.push_back({ first, end, first_tile });
}

/* Decode's plan of a sequence; its chain of pieces must have been added. */
static void add_splits(struct batch *b, uint32_t seq)
{
	const struct gpu_attn_seq *s = &b->seqs[seq];
	uint32_t nr = (s->nr_tokens + GPU_ATTN_SPLIT_TOKENS - 1) /
		      GPU_ATTN_SPLIT_TOKENS;
	uint32_t piece = s->first_piece;

	for (uint32_t i = 0; i < nr; i++) {
		struct gpu_attn_split split = {};

		split.first_token = i * GPU_ATTN_SPLIT_TOKENS;
		split.end_token = std::min<uint32_t>(
			split.first_token + GPU_ATTN_SPLIT_TOKENS,
			s->nr_tokens);
		while (b->pieces[piece].end_token <= split.first_token)
			piece++;
		split.seq = seq;
		split.row = s->first_row;
		split.nr_splits = nr;
		split.first_partial = b->nr_partials;
		split.next_piece = piece + 1;
		split.piece = b->pieces[piece];
		b->splits.push_back(split);
	}
	b->nr_partials += nr;
}

/* The chain is the last `nr_pieces` pieces added. */
static void batch_add_seq(struct batch *b, uint32_t content,
			  uint32_t first_piece, uint32_t nr_tokens,
			  uint32_t first_row, uint32_t nr_rows)
{
	struct gpu_attn_seq s = { first_piece, nr_tokens, first_row, nr_rows,
				  nr_tokens - nr_rows };

	b->seqs.push_back(s);
	b->content.push_back(content);
	b->nr_rows = std::max(b->nr_rows, first_row + nr_rows);
	if (nr_rows == 1)
		add_splits(b, (uint32_t)b->seqs.size() - 1);
}

template <class T> static T *to_device(const std::vector<T> &v)
{
	T *p = NULL;

	RT_OK(cudaMalloc(&p, std::max<size_t>(v.size(), 1) * sizeof(T)));
	RT_OK(cudaMemcpy(p, v.data(), v.size() * sizeof(T),
			 cudaMemcpyHostToDevice));
	return p;
}

/* Heaviest first, so that the last ones to start are short. */
static void plan_units(struct batch *b)
{
	const auto &seqs = b->seqs;
	auto tile_end = [&](const struct gpu_attn_unit &u) {
		return seqs[u.seq].first_pos +
		       std::min<uint32_t>((u.tile + 1) * GPU_ATTN_PREFILL_ROWS,
					  seqs[u.seq].nr_rows);
	};

	for (uint32_t s = 0; s < seqs.size(); s++)
		for (uint32_t i = 0;
		     i * GPU_ATTN_PREFILL_ROWS < seqs[s].nr_rows; i++)
			b->units.push_back({ s, i });
	std::stable_sort(b->splits.begin(), b->splits.end(),
			 [](const struct gpu_attn_split &x,
			    const struct gpu_attn_split &y) {
				 return x.end_token - x.first_token >
					y.end_token - y.first_token;
			 });
	std::stable_sort(b->units.begin(), b->units.end(),
			 [&](const struct gpu_attn_unit &x,
			     const struct gpu_attn_unit &y) {
				 return tile_end(x) > tile_end(y);
			 });
}

static size_t out_elems(const struct batch *b)
{
	return (size_t)b->nr_rows * NR_Q_HEADS * HEAD_DIM;
}

static void batch_upload(struct batch *b, uint32_t q_std16)
{
	size_t slots = std::max(b->nr_partials, 1u) * (size_t)NR_Q_HEADS;
	size_t nr_arrivals = b->seqs.size() * NR_KV_HEADS;

	plan_units(b);
	b->dev_runs = to_device(b->runs);
	b->dev_pieces = to_device(b->pieces);
	b->dev_seqs = to_device(b->seqs);
	b->dev_splits = to_device(b->splits);
	b->dev_units = to_device(b->units);
	RT_OK(cudaMalloc(&b->q, out_elems(b) * 2));
	RT_OK(cudaMalloc(&b->out, out_elems(b) * 2));
	RT_OK(cudaMalloc(&b->out2, out_elems(b) * 2));
	RT_OK(cudaMalloc(&b->partial_out, slots * HEAD_DIM * 4));
	RT_OK(cudaMalloc(&b->partial_state, slots * 8));
	RT_OK(cudaMalloc(&b->arrivals, nr_arrivals * 4));
	RT_OK(cudaMalloc(&b->queue, sizeof(*b->queue)));
	RT_OK(cudaMemset(b->arrivals, 0, nr_arrivals * 4));
	RT_OK(cudaMemset(b->queue, 0, sizeof(*b->queue)));
	RT_OK(cudaMemset(b->partial_out, 0xff, slots * HEAD_DIM * 4));
	fill_q<<<(unsigned)((out_elems(b) + 255) / 256), 256>>>(
		b->q, b->nr_rows, q_std16);
	RT_OK(cudaGetLastError());
	RT_OK(cudaDeviceSynchronize());
}

static void batch_free(struct batch *b)
{
	void *all[] = { b->dev_runs,	b->dev_pieces,	  b->dev_seqs,
			b->dev_splits,	b->dev_units,	  b->q,
			b->out,		b->out2,	  b->arrivals,
			b->partial_out, b->partial_state, b->queue };

	for (void *p : all)
		RT_OK(cudaFree(p));
}

static void batch_fill(const struct batch *b, const struct arena *a,
		       const struct layout *l, uint32_t layer)
{
	fill_kv<<<dim3((unsigned)b->runs.size(), 2 * NR_KV_HEADS), 256>>>(
		(uint8_t *)a->base, *l, b->dev_runs, layer, map_tokens(l));
	RT_OK(cudaGetLastError());
	RT_OK(cudaDeviceSynchronize());
}

/* ---- launches ---- */

static CUfunction decode_fn, prefill_fn;
static float scale_log2 = 1.4426950408889634f / 11.313708498984761f;

static void launch_decode(const struct batch *b, const struct arena *a,
			  const struct layout *l, uint32_t layer, uint16_t *out,
			  cudaStream_t stream)
{
	struct gpu_attn_decode_params p = {};
	void *args[] = { &p };

	kv_init(&p.kv, a, l, layer, GPU_ATTN_DECODE_LOAD);
	p.pieces = b->dev_pieces;
	p.splits = b->dev_splits;
	p.q = b->q;
	p.out = out;
	p.partial_out = b->partial_out;
	p.partial_state = b->partial_state;
	p.arrivals = b->arrivals;
	p.nr_splits = (uint32_t)b->splits.size();
	p.nr_q_heads = NR_Q_HEADS;
	p.scale_log2 = scale_log2;
	CU_OK(cuLaunchKernel(decode_fn,
			     std::min<uint32_t>(GPU_ATTN_DECODE_CTAS * nr_sms,
						p.nr_splits * NR_KV_HEADS),
			     1, 1, GPU_ATTN_DECODE_THREADS, 1, 1,
			     GPU_ATTN_DECODE_SMEM_BYTES, stream, args, NULL));
}

static void launch_prefill(const struct batch *b, const struct arena *a,
			   const struct layout *l, uint32_t layer,
			   uint16_t *out, cudaStream_t stream)
{
	struct gpu_attn_prefill_params p = {};
	cuuint64_t dims[4] = { 64, b->nr_rows, 2, NR_Q_HEADS };
	cuuint64_t strides[3] = { NR_Q_HEADS * ROW_BYTES, 128, ROW_BYTES };
	cuuint32_t box[4] = { 64, GPU_ATTN_PREFILL_ROWS, 2, 1 };
	void *args[] = { &p };

	kv_init(&p.kv, a, l, layer, GPU_ATTN_PREFILL_LOAD);
	encode_map(&p.q_map, (CUdeviceptr)b->q, 4, dims, strides, box);
	p.pieces = b->dev_pieces;
	p.seqs = b->dev_seqs;
	p.units = b->dev_units;
	p.out = out;
	p.queue = b->queue;
	p.nr_units = (uint32_t)b->units.size();
	p.nr_q_heads = NR_Q_HEADS;
	p.scale_log2 = scale_log2;
	CU_OK(cuLaunchKernel(
		prefill_fn, std::min<uint32_t>(nr_sms, p.nr_units * NR_Q_HEADS),
		1, 1, GPU_ATTN_PREFILL_THREADS, 1, 1,
		GPU_ATTN_PREFILL_SMEM_BYTES, stream, args, NULL));
}

typedef void (*launch_fn)(const struct batch *, const struct arena *,
			  const struct layout *, uint32_t, uint16_t *,
			  cudaStream_t);

/* Poisons, launches, waits; every element must have been written by a number. */
static bool run_once(launch_fn launch, const struct batch *b,
		     const struct arena *a, const struct layout *l,
		     uint32_t layer, uint16_t *out)
{
	RT_OK(cudaMemset(out, 0xff, out_elems(b) * 2));
	launch(b, a, l, layer, out, 0);
	RT_OK(cudaDeviceSynchronize());
	return nr_nans(out, out_elems(b)) == 0;
}

/* ---- float64 reference ---- */

/* Adds |out - ref|^2 and |ref|^2 of one (sequence, row, head). */
static void reference_row(const struct batch *b, uint32_t seq, uint32_t row,
			  uint32_t head, uint32_t layer, uint32_t q_std16,
			  const uint16_t *out, double *err2, double *ref2)
{
	uint32_t nr = b->seqs[seq].first_pos + row + 1;
	uint32_t batch_row = b->seqs[seq].first_row + row;
	uint32_t k_plane = plane_at(layer, 0, head / GROUP);
	uint32_t v_plane = plane_at(layer, 1, head / GROUP);
	std::vector<double> s(nr);
	double o[HEAD_DIM] = {}, q[HEAD_DIM];
	double top = -INFINITY, sum = 0;

	for (uint32_t d = 0; d < HEAD_DIM; d++)
		q[d] = from_bf16(value_at(Q_SEQ, head, batch_row, d, q_std16));
	for (uint32_t t = 0; t < nr; t++) {
		s[t] = 0;
		for (uint32_t d = 0; d < HEAD_DIM; d++)
			s[t] += q[d] * from_bf16(value_at(b->content[seq],
							  k_plane, t, d, 16));
		s[t] /= sqrt((double)HEAD_DIM);
		top = std::max(top, s[t]);
	}
	for (uint32_t t = 0; t < nr; t++) {
		double p = exp(s[t] - top);

		sum += p;
		for (uint32_t d = 0; d < HEAD_DIM; d++)
			o[d] += p * from_bf16(value_at(b->content[seq], v_plane,
						       t, d, 16));
	}
	for (uint32_t d = 0; d < HEAD_DIM; d++) {
		double got = from_bf16(
			out[((size_t)batch_row * NR_Q_HEADS + head) * HEAD_DIM +
			    d]);

		*err2 += (got - o[d] / sum) * (got - o[d] / sum);
		*ref2 += o[d] / sum * (o[d] / sum);
	}
}

/* Pooled relative error over nr sampled (sequence, row, head). */
static double error_of(const struct batch *b, const uint16_t *dev_out,
		       uint32_t layer, uint32_t q_std16, uint32_t nr)
{
	std::vector<uint16_t> out(out_elems(b));
	double err2 = 0, ref2 = 0;

	RT_OK(cudaMemcpy(out.data(), dev_out, out.size() * 2,
			 cudaMemcpyDeviceToHost));
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t seq = nr >= b->seqs.size() ? i % b->seqs.size() :
						      mix64(i) % b->seqs.size();
		uint32_t row = mix64(i + 1000) % b->seqs[seq].nr_rows;

		if (i == 0)
			row = b->seqs[seq].nr_rows - 1;
		reference_row(b, seq, row, mix64(i + 2000) % NR_Q_HEADS, layer,
			      q_std16, out.data(), &err2, &ref2);
	}
	return sqrt(err2 / ref2);
}

#endif

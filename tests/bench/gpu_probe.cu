/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probe of the attention kernels on a GPU: correctness against float64, bit
 * equality of decode, prefill, layouts, chunks and chains, and speed. Run by
 * scripts/bench-gpu-probe: gpu_probe CUBIN_DIR small|check|bits|quick|time. Exits 1 if a
 * check fails. One thread.
 */
#include <set>
#include "tests/bench/gpu_probe_kit.cuh"

static const uint32_t tile_sizes[] = { 16, 32, 64, 0 }; /* 0: per layer */

enum {
	CAP_TOKENS = 4096, /* room of one sequence in the checks */
	CHECK_LAYER = 17,
};

/* ---- checks ---- */

static uint32_t tile_of(const struct layout *l, size_t token)
{
	return (uint32_t)(token / map_tokens(l));
}

/* Maps exactly the handles that hold committed tiles of the batch's runs. */
static void map_runs(struct arena *a, const struct batch *b,
		     const struct layout *l, size_t handle_bytes)
{
	std::set<size_t> used;
	uint32_t t = map_tokens(l);

	for (const auto &r : b->runs) {
		size_t nr = (r.end_token - r.first_token + t - 1) / t;

		for (uint32_t plane = 0; plane < 2; plane++) {
			size_t at = kv_offset(*l, r.first_tile, 0,
					      plane_at(CHECK_LAYER, plane, 0));
			size_t len = nr * t * NR_KV_HEADS * ROW_BYTES;

			if (l->tile_tokens) {
				at = (size_t)r.first_tile * t * TOKEN_BYTES;
				len = nr * t * TOKEN_BYTES;
			}
			for (size_t h = at / handle_bytes;
			     h * handle_bytes < at + len; h++)
				used.insert(h * handle_bytes);
		}
	}
	arena_map(a, handle_bytes,
		  std::vector<size_t>(used.begin(), used.end()));
}

static void check_accuracy(const char *what, const struct batch *b,
			   const uint16_t *out, uint32_t q_std16, bool written,
			   uint32_t nr)
{
	double error = error_of(b, out, CHECK_LAYER, q_std16, nr);
	char line[200];

	snprintf(line, sizeof(line),
		 "%s: every element written, relative error %.2e <= 4e-3", what,
		 error);
	report(written && error <= 4e-3, line);
}

/* Ragged lengths, NaN behind each last token, no page behind the last tile. */
static void check_ragged(struct arena *a, uint32_t tile_tokens,
			 uint32_t q_std16)
{
	static const uint32_t lens[] = { 1,    2,    15,   16,	 17,  31,
					 32,   33,   63,   64,	 65,  127,
					 128,  129,  255,  256,	 257, 383,
					 511,  512,  513,  640,	 999, 1023,
					 1024, 1025, 2047, 2048, 3001 };
	struct layout l = { tile_tokens, std::size(lens) * CAP_TOKENS };
	struct batch decode = {}, prefill = {};
	unsigned long long diffs = 0;
	char what[200];
	uint32_t row = 0;
	bool written;

	for (uint32_t i = 0; i < std::size(lens); i++) {
		uint32_t tile = tile_of(&l, (size_t)i * CAP_TOKENS);

		batch_add_run(&decode, i, 0, lens[i], tile);
		batch_add_seq(&decode, i, i, lens[i], i, 1);
		batch_add_run(&prefill, i, 0, lens[i], tile);
		batch_add_seq(&prefill, i, i, lens[i], row, lens[i]);
		row += lens[i];
	}
	batch_upload(&decode, q_std16);
	batch_upload(&prefill, q_std16);
	map_runs(a, &decode, &l, STOCK_HANDLE_BYTES);
	batch_fill(&decode, a, &l, CHECK_LAYER);
	written = run_once(launch_decode, &decode, a, &l, CHECK_LAYER,
			   decode.out);
	snprintf(what, sizeof(what), "decode ragged %s q_std %u",
		 layout_name(&l), q_std16 / 16);
	check_accuracy(what, &decode, decode.out, q_std16, written,
		       2 * std::size(lens));
	for (int i = 0; i < 20; i++) {
		run_once(launch_decode, &decode, a, &l, CHECK_LAYER,
			 decode.out2);
		diffs += nr_diffs(decode.out, decode.out2, out_elems(&decode));
	}
	written = run_once(launch_prefill, &prefill, a, &l, CHECK_LAYER,
			   prefill.out);
	snprintf(what, sizeof(what), "prefill ragged %s q_std %u",
		 layout_name(&l), q_std16 / 16);
	check_accuracy(what, &prefill, prefill.out, q_std16, written,
		       2 * std::size(lens));
	for (int i = 0; i < 5; i++) {
		run_once(launch_prefill, &prefill, a, &l, CHECK_LAYER,
			 prefill.out2);
		diffs += nr_diffs(prefill.out, prefill.out2,
				  out_elems(&prefill));
	}
	snprintf(what, sizeof(what), "20 + 5 repeats %s: %llu values differ",
		 layout_name(&l), diffs);
	report(diffs == 0, what);
	arena_unmap(a);
	batch_free(&decode);
	batch_free(&prefill);
}

/* One run of nr_tokens, or a chain of pieces cut at `cuts` (ends with 0). */
static void add_chain(struct batch *b, const struct layout *l,
		      uint32_t nr_tokens, const uint32_t *cuts)
{
	uint32_t first = 0;
	uint32_t at = 0;

	for (uint32_t i = 0; first < nr_tokens; i++) {
		uint32_t end = cuts && *cuts ? *cuts++ : nr_tokens;

		batch_add_run(b, 0, first, end, tile_of(l, at));
		at += 2 * CAP_TOKENS;
		first = end;
	}
}

/* Where two outputs differ: the first few (row, head), for whoever must find out why. */
static void print_diffs(const struct batch *b, const uint16_t *dev_x,
			const uint16_t *dev_y)
{
	std::vector<uint16_t> x(out_elems(b)), y(out_elems(b));
	uint32_t nr_printed = 0;

	RT_OK(cudaMemcpy(x.data(), dev_x, x.size() * 2,
			 cudaMemcpyDeviceToHost));
	RT_OK(cudaMemcpy(y.data(), dev_y, y.size() * 2,
			 cudaMemcpyDeviceToHost));
	for (size_t at = 0; at < x.size() && nr_printed < 24; at += HEAD_DIM) {
		uint32_t nr = 0, first = 0;
		double worst = 0;

		for (uint32_t d = HEAD_DIM; d-- > 0;) {
			if (x[at + d] == y[at + d])
				continue;
			nr++;
			first = d;
			worst = std::max(worst, fabs(from_bf16(x[at + d]) -
						     from_bf16(y[at + d])));
		}
		if (nr) {
			printf("  row %zu head %zu: %u differ, first %u (%g, %g), most %g\n",
			       at / HEAD_DIM / NR_Q_HEADS,
			       at / HEAD_DIM % NR_Q_HEADS, nr, first,
			       from_bf16(x[at + first]),
			       from_bf16(y[at + first]), worst);
			nr_printed++;
		}
	}
}

static void report_diffs(const char *what, const struct layout *l,
			 uint32_t nr_tokens, uint32_t q_std16,
			 const struct batch *b, const uint16_t *x,
			 const uint16_t *y, bool written)
{
	unsigned long long diffs = nr_diffs(x, y, out_elems(b));
	char line[200];

	snprintf(line, sizeof(line),
		 "%s, %s, %u tokens, q_std %u: %llu of %zu values differ", what,
		 layout_name(l), nr_tokens, q_std16 / 16, diffs, out_elems(b));
	report(written && diffs == 0, line);
	if (diffs)
		print_diffs(b, x, y);
}

/*
 * Every row of a prompt: prefill whole against decode with that many tokens,
 * against chunks, against a chain of segments, and against the first layout
 * (`first`, kept by the caller).
 */
static void check_bits(struct arena *a, uint32_t tile_tokens,
		       uint32_t nr_tokens, uint32_t q_std16,
		       std::vector<uint16_t> *first)
{
	static const uint32_t chunks[] = { 1, 7, 64, 129 };
	static const uint32_t cuts[] = { 192, 576, 1024, 0 };
	struct layout l = { tile_tokens, 16 * CAP_TOKENS };
	struct batch whole = {}, rows = {};
	size_t nr;
	bool written;

	add_chain(&whole, &l, nr_tokens, NULL);
	add_chain(&rows, &l, nr_tokens, NULL);
	batch_add_seq(&whole, 0, 0, nr_tokens, 0, nr_tokens);
	for (uint32_t i = 0; i < nr_tokens; i++)
		batch_add_seq(&rows, 0, 0, i + 1, i, 1);
	batch_upload(&whole, q_std16);
	batch_upload(&rows, q_std16);
	map_runs(a, &whole, &l, STOCK_HANDLE_BYTES);
	batch_fill(&whole, a, &l, CHECK_LAYER);
	written =
		run_once(launch_prefill, &whole, a, &l, CHECK_LAYER, whole.out);
	check_accuracy("prefill whole", &whole, whole.out, q_std16, written,
		       64);
	written = run_once(launch_decode, &rows, a, &l, CHECK_LAYER, rows.out);
	report_diffs("prefill = decode", &l, nr_tokens, q_std16, &whole,
		     whole.out, rows.out, written);
	nr = out_elems(&whole);
	if (first->empty()) {
		first->resize(nr);
		RT_OK(cudaMemcpy(first->data(), whole.out, nr * 2,
				 cudaMemcpyDeviceToHost));
	} else {
		RT_OK(cudaMemcpy(whole.out2, first->data(), nr * 2,
				 cudaMemcpyHostToDevice));
		report_diffs("same as first layout", &l, nr_tokens, q_std16,
			     &whole, whole.out, whole.out2, true);
	}
	for (uint32_t chunk : chunks) {
		struct batch cut = {};
		char what[64];

		add_chain(&cut, &l, nr_tokens, NULL);
		for (uint32_t at = 0; at < nr_tokens; at += chunk) {
			uint32_t end = std::min(at + chunk, nr_tokens);

			batch_add_seq(&cut, 0, 0, end, at, end - at);
		}
		batch_upload(&cut, q_std16);
		written = run_once(launch_prefill, &cut, a, &l, CHECK_LAYER,
				   cut.out);
		snprintf(what, sizeof(what), "prefill by chunks of %u", chunk);
		report_diffs(what, &l, nr_tokens, q_std16, &whole, whole.out,
			     cut.out, written);
		batch_free(&cut);
	}
	arena_unmap(a);
	if (tile_tokens && nr_tokens > 1024) {
		struct batch chain = {}, chain_rows = {};

		add_chain(&chain, &l, nr_tokens, cuts);
		add_chain(&chain_rows, &l, nr_tokens, cuts);
		batch_add_seq(&chain, 0, 0, nr_tokens, 0, nr_tokens);
		for (uint32_t i = 0; i < nr_tokens; i++)
			batch_add_seq(&chain_rows, 0, 0, i + 1, i, 1);
		batch_upload(&chain, q_std16);
		batch_upload(&chain_rows, q_std16);
		map_runs(a, &chain, &l, STOCK_HANDLE_BYTES);
		batch_fill(&chain, a, &l, CHECK_LAYER);
		written = run_once(launch_prefill, &chain, a, &l, CHECK_LAYER,
				   chain.out);
		report_diffs("prefill over 4 segments", &l, nr_tokens, q_std16,
			     &whole, whole.out, chain.out, written);
		written = run_once(launch_decode, &chain_rows, a, &l,
				   CHECK_LAYER, chain_rows.out);
		report_diffs("decode over 4 segments", &l, nr_tokens, q_std16,
			     &whole, whole.out, chain_rows.out, written);
		arena_unmap(a);
		batch_free(&chain);
		batch_free(&chain_rows);
	}
	batch_free(&whole);
	batch_free(&rows);
}

/* The comparison that needs the most luck to pass: decode of every prefix, again and again. */
static void run_bits(void)
{
	struct layout l = { 16, 16 * CAP_TOKENS };
	struct batch whole = {}, rows = {};
	struct arena a = {};
	uint32_t nr_tokens = 8192;

	arena_reserve(&a, 64ul * CAP_TOKENS * TOKEN_BYTES);
	add_chain(&whole, &l, nr_tokens, NULL);
	add_chain(&rows, &l, nr_tokens, NULL);
	batch_add_seq(&whole, 0, 0, nr_tokens, 0, nr_tokens);
	for (uint32_t i = 0; i < nr_tokens; i++)
		batch_add_seq(&rows, 0, 0, i + 1, i, 1);
	batch_upload(&whole, 16);
	batch_upload(&rows, 16);
	map_runs(&a, &whole, &l, STOCK_HANDLE_BYTES);
	batch_fill(&whole, &a, &l, CHECK_LAYER);
	run_once(launch_prefill, &whole, &a, &l, CHECK_LAYER, whole.out);
	for (int i = 0; i < 10; i++) {
		bool written = run_once(launch_decode, &rows, &a, &l,
					CHECK_LAYER, rows.out);

		report_diffs("prefill = decode", &l, nr_tokens, 16, &whole,
			     whole.out, rows.out, written);
	}
	arena_unmap(&a);
	batch_free(&whole);
	batch_free(&rows);
	CU_OK(cuMemAddressFree(a.base, a.reserved_bytes));
}

static void run_checks(bool small)
{
	struct arena a = {};

	arena_reserve(&a, 64ul * CAP_TOKENS * TOKEN_BYTES);
	for (uint32_t t : tile_sizes) {
		check_ragged(&a, t, 16);
		if (small)
			break;
		check_ragged(&a, t, 16 * 8);
	}
	for (uint32_t nr_tokens : { 2085u, 8192u }) {
		for (uint32_t q_std16 : { 16u, 16u * 8 }) {
			std::vector<uint16_t> first;

			for (uint32_t t : tile_sizes) {
				if (small || (nr_tokens == 8192 &&
					      q_std16 > 16 && t != 16))
					continue;
				check_bits(&a, t, nr_tokens, q_std16, &first);
			}
		}
	}
	CU_OK(cuMemAddressFree(a.base, a.reserved_bytes));
}

/* ---- times ---- */

/* Median milliseconds of a graph of launches over `nr` layers, L2 cold before each. */
static double time_launches(launch_fn launch, const struct batch *b,
			    const struct arena *a, const struct layout *l,
			    int nr, double *out_min)
{
	return time_graph(
		[&](cudaStream_t stream) {
			for (int i = 0; i < nr; i++)
				launch(b, a, l, i * (NR_LAYERS / NR_ROTATED),
				       b->out, stream);
		},
		out_min);
}

static std::vector<uint32_t> ragged_lens(void)
{
	std::vector<uint32_t> lens;

	for (uint32_t i = 0; i < 64; i++)
		lens.push_back(128 + mix64(i + 77) % (16384 - 128));
	return lens;
}

static void time_decode(const struct arena *a, const struct layout *l,
			const char *name, const std::vector<uint32_t> &lens,
			std::vector<uint16_t> *first)
{
	struct batch b = {};
	double bytes = 0, one, rotated, one_min, rotated_min, error;
	size_t token = 0, nr;
	bool written;

	for (uint32_t i = 0; i < lens.size(); i++) {
		batch_add_run(&b, i, 0, lens[i], tile_of(l, token));
		batch_add_seq(&b, i, i, lens[i], i, 1);
		token += (lens[i] + 127) / 128 * 128;
		bytes += (double)lens[i] * 2 * NR_KV_HEADS * ROW_BYTES;
	}
	batch_upload(&b, 16);
	for (int i = 0; i < NR_ROTATED; i++)
		batch_fill(&b, a, l, i * (NR_LAYERS / NR_ROTATED));
	written = run_once(launch_decode, &b, a, l, 0, b.out);
	error = error_of(&b, b.out, 0, 16, 8);
	report(written && error <= 4e-3, "timed decode is right");
	nr = out_elems(&b);
	if (first->empty()) {
		first->resize(nr);
		RT_OK(cudaMemcpy(first->data(), b.out, nr * 2,
				 cudaMemcpyDeviceToHost));
	} else {
		RT_OK(cudaMemcpy(b.out2, first->data(), nr * 2,
				 cudaMemcpyHostToDevice));
		report(nr_diffs(b.out, b.out2, nr) == 0,
		       "same bits as the first layout");
	}
	one = time_launches(launch_decode, &b, a, l, 1, &one_min);
	rotated = time_launches(launch_decode, &b, a, l, NR_ROTATED,
				&rotated_min) /
		  NR_ROTATED;
	printf("decode  %-9s %3zu MiB %-10s one cold %8.1f us (min %8.1f) %.3f TB/s, "
	       "8 layers %8.1f us each %.3f TB/s\n",
	       layout_name(l), a->handle_bytes >> 20, name, one * 1e3,
	       one_min * 1e3, bytes / one * 1e-9, rotated * 1e3,
	       bytes / rotated * 1e-9);
	fflush(stdout);
	batch_free(&b);
}

static void time_prefill(const struct arena *a, const struct layout *l,
			 uint32_t nr_tokens)
{
	struct batch b = {};
	double flops =
		4.0 * HEAD_DIM * NR_Q_HEADS * nr_tokens * (nr_tokens + 1.0) / 2;
	double one, one_min;

	batch_add_run(&b, 0, 0, nr_tokens, 0);
	batch_add_seq(&b, 0, 0, nr_tokens, 0, nr_tokens);
	batch_upload(&b, 16);
	batch_fill(&b, a, l, 0);
	report(run_once(launch_prefill, &b, a, l, 0, b.out) &&
		       error_of(&b, b.out, 0, 16, 16) <= 4e-3,
	       "timed prefill is right");
	one = time_launches(launch_prefill, &b, a, l, 1, &one_min);
	printf("prefill %-9s %3zu MiB %6u tokens %8.1f us (min %8.1f) %.1f TFLOP/s\n",
	       layout_name(l), a->handle_bytes >> 20, nr_tokens, one * 1e3,
	       one_min * 1e3, flops / one * 1e-9);
	fflush(stdout);
	batch_free(&b);
}

static void time_read(const struct arena *a)
{
	const size_t bytes = 8ul << 30;
	cudaEvent_t start, stop;
	float best = 1e9f;

	RT_OK(cudaEventCreate(&start));
	RT_OK(cudaEventCreate(&stop));
	for (int i = 0; i < 10; i++) {
		float ms;

		RT_OK(cudaEventRecord(start));
		read_all<<<4 * nr_sms, 512>>>((const uint4 *)a->base,
					      bytes / 16, flush_sink);
		RT_OK(cudaEventRecord(stop));
		RT_OK(cudaEventSynchronize(stop));
		RT_OK(cudaEventElapsedTime(&ms, start, stop));
		best = std::min(best, ms);
	}
	printf("read 8 GiB through the mapping: %.3f TB/s\n",
	       bytes / best * 1e-9);
}

/* only_tile: 1 for all layouts, else that one. */
static void run_times(size_t handle_bytes, bool quick, uint32_t only_tile)
{
	const size_t total_tokens = 512 * 1024;
	std::vector<uint16_t> first[5];
	struct arena a = {};

	arena_reserve(&a, total_tokens * TOKEN_BYTES);
	arena_map(&a, handle_bytes,
		  offsets_of(total_tokens * TOKEN_BYTES, handle_bytes));
	RT_OK(cudaMemset((void *)a.base, 0x11, 8ul << 30));
	time_read(&a);
	for (uint32_t t : tile_sizes) {
		struct layout l = { t, total_tokens };

		if (only_tile != 1 && t != only_tile)
			continue;
		time_decode(&a, &l, "32 x 8k", std::vector<uint32_t>(32, 8192),
			    &first[0]);
		time_decode(&a, &l, "256 x 2k",
			    std::vector<uint32_t>(256, 2048), &first[1]);
		time_decode(&a, &l, "1 x 32k", std::vector<uint32_t>(1, 32768),
			    &first[2]);
		if (!quick) {
			time_decode(&a, &l, "64 x 1k",
				    std::vector<uint32_t>(64, 1024), &first[3]);
			time_decode(&a, &l, "64 ragged", ragged_lens(),
				    &first[4]);
		}
		time_prefill(&a, &l, 2048);
		time_prefill(&a, &l, 8192);
		if (!quick)
			time_prefill(&a, &l, 16384);
	}
	arena_unmap(&a);
	CU_OK(cuMemAddressFree(a.base, a.reserved_bytes));
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "";

	if (argc < 3 || !strstr("small check bits quick time", mode)) {
		fprintf(stderr,
			"usage: gpu_probe CUBIN_DIR small|check|bits|quick|time\n");
		return 2;
	}
	gpu_init();
	decode_fn = load_kernel(argv[1], "attn_decode.cubin",
				"attn_decode_d128", GPU_ATTN_DECODE_SMEM_BYTES);
	prefill_fn = load_kernel(argv[1], "attn_prefill.cubin",
				 "attn_prefill_d128",
				 GPU_ATTN_PREFILL_SMEM_BYTES);
	if (strcmp(mode, "bits") == 0) {
		run_bits();
	} else if (strcmp(mode, "quick") == 0) {
		run_times(LARGE_HANDLE_BYTES, false, 32);
	} else if (strcmp(mode, "time")) {
		run_checks(strcmp(mode, "small") == 0);
	} else {
		run_times(STOCK_HANDLE_BYTES, false, 1);
		run_times(LARGE_HANDLE_BYTES, true, 1);
	}
	printf("%d checks failed\n", nr_failed);
	return nr_failed != 0;
}

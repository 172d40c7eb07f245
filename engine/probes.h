/* SPDX-License-Identifier: Apache-2.0 */
/*
 * USDT probes of the engine, provider "tarn": a nop each while nobody looks.
 * Names, arguments and units are an interface; a test compares this list with
 * the notes in the binary. Those of requests and steps are in daemon/probes.h.
 *
 * Probes (segment: number of the segment in this process, from 1):
 *
 *	prefix_match(uid, prompt_tokens, cached_tokens, miss)	miss: enum kv_miss
 *	segment_commit(segment, stream, bytes)		pages were added to a leaf
 *	segment_seal(segment, tokens)			it is immutable from here on
 *	segment_fork(parent, child, tokens)		two leaves go on from the same tokens
 *	segment_evict(segment, bytes)			a cached one gave its memory up
 *	sequence_end(uid, tokens)			its memory is free, or cached
 */
#ifndef TARN_ENGINE_PROBES_H
#define TARN_ENGINE_PROBES_H

#include <sys/sdt.h>

#define PROBE_PREFIX_MATCH(uid, prompt_tokens, cached_tokens, miss)          \
	DTRACE_PROBE4(tarn, prefix_match, uid, prompt_tokens, cached_tokens, \
		      miss)
#define PROBE_SEGMENT_COMMIT(segment, stream, bytes) \
	DTRACE_PROBE3(tarn, segment_commit, segment, stream, bytes)
#define PROBE_SEGMENT_SEAL(segment, tokens) \
	DTRACE_PROBE2(tarn, segment_seal, segment, tokens)
#define PROBE_SEGMENT_FORK(parent, child, tokens) \
	DTRACE_PROBE3(tarn, segment_fork, parent, child, tokens)
#define PROBE_SEGMENT_EVICT(segment, bytes) \
	DTRACE_PROBE2(tarn, segment_evict, segment, bytes)
#define PROBE_SEQUENCE_END(uid, tokens) \
	DTRACE_PROBE2(tarn, sequence_end, uid, tokens)

#endif /* TARN_ENGINE_PROBES_H */

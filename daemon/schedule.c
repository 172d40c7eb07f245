/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler's decisions: see schedule.h.
 */
#include "daemon/schedule.h"

enum {
	/*
	 * Tokens set aside per choice when max_tokens is open: memory is kept in tiles of up
	 * to 64 tokens, and a fork copies a partly filled one.
	 */
	TILE_TOKENS = 64,
	MAX_RETRY_AFTER_S = 60,
};

static bool is_decode(const struct sched_seq *seq)
{
	return seq->nr_pending == 1 && seq->nr_keep == 0;
}

/* Gives each decode a token, starting where the last step that had no room for all left off. */
static uint32_t compose_decodes(const struct sched_seq *seqs, uint32_t nr,
				uint32_t budget, uint64_t turn,
				uint32_t *out_tokens)
{
	uint32_t nr_decodes = 0, nr_before = 0, first, taken = 0;

	for (uint32_t i = 0; i < nr; i++)
		nr_decodes += is_decode(&seqs[i]);
	if (nr_decodes == 0)
		return 0;
	first = nr_decodes > budget ? (uint32_t)(turn * budget % nr_decodes) :
				      0;
	for (uint32_t i = 0; i < nr; i++) {
		uint32_t place;

		if (!is_decode(&seqs[i]))
			continue;
		place = (nr_before + nr_decodes - first) % nr_decodes;
		nr_before++;
		if (place < budget) {
			out_tokens[i] = 1;
			taken++;
		}
	}
	return taken;
}

uint32_t sched_compose(const struct sched_seq *seqs, uint32_t nr,
		       uint32_t budget, uint64_t turn, uint32_t *out_tokens)
{
	uint32_t total;

	for (uint32_t i = 0; i < nr; i++)
		out_tokens[i] = 0;
	total = compose_decodes(seqs, nr, budget, turn, out_tokens);
	for (uint32_t i = 0; i < nr && total < budget; i++) {
		uint32_t chunk;

		if (is_decode(&seqs[i]) ||
		    seqs[i].nr_pending <= seqs[i].nr_keep)
			continue;
		chunk = seqs[i].nr_pending - seqs[i].nr_keep;
		if (chunk > budget - total)
			chunk = budget - total;
		out_tokens[i] = chunk;
		total += chunk;
	}
	return total;
}

bool sched_may_run(uint32_t nr_running, uint32_t nr_choices, uint32_t budget)
{
	return nr_running == 0 || (uint64_t)nr_running + nr_choices <= budget;
}

uint32_t sched_open_max_tokens(const struct sched_memory *memory,
			       uint32_t nr_prompt, uint32_t nr_choices)
{
	uint32_t open = memory->ctx_tokens > nr_prompt ?
				memory->ctx_tokens - nr_prompt :
				1;
	uint64_t room;

	if (memory->bytes_per_token == 0 || nr_choices == 0)
		return open;
	room = memory->limit_bytes / memory->bytes_per_token;
	room = room > nr_prompt ? (room - nr_prompt) / nr_choices : 0;
	room = room > 2 * TILE_TOKENS ? room - 2 * TILE_TOKENS : 1;
	return room < open ? (uint32_t)room : open;
}

uint32_t sched_retry_after_s(uint32_t nr_waiting, uint32_t nr_finished,
			     uint64_t span_ms)
{
	uint64_t seconds;

	if (nr_finished == 0 || span_ms == 0)
		return nr_waiting ? 5 : 1;
	seconds = (uint64_t)nr_waiting * span_ms / nr_finished / 4 / 1000 + 1;
	return seconds < MAX_RETRY_AFTER_S ? (uint32_t)seconds :
					     MAX_RETRY_AFTER_S;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing array of token ids, the output of an encoding. One thread.
 */
#ifndef TARN_ENGINE_TOKEN_IDS_H
#define TARN_ENGINE_TOKEN_IDS_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct ids {
	int32_t *ids; /* malloc'ed; the owner frees */
	size_t nr, room;
};

/* Append. Return: 0 or -ENOMEM. */
static inline int ids_push(struct ids *ids, int32_t id)
{
	if (ids->nr == ids->room) {
		size_t room = ids->room ? 2 * ids->room : 64;
		int32_t *grown = realloc(ids->ids, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		ids->ids = grown;
		ids->room = room;
	}
	ids->ids[ids->nr++] = id;
	return 0;
}

#endif /* TARN_ENGINE_TOKEN_IDS_H */

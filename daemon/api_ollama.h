/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ollama's API as a thin layer: its requests become those of /v1/..., and what
 * comes back is told in its shapes. See api.h for who calls what where.
 */
#ifndef TARN_DAEMON_API_OLLAMA_H
#define TARN_DAEMON_API_OLLAMA_H

#include "daemon/api.h"

static inline bool api_is_ollama(enum request_kind kind)
{
	return kind == REQUEST_OLLAMA_CHAT || kind == REQUEST_OLLAMA_GENERATE;
}

/*
 * The preparer: reads a body of /api/chat or /api/generate. *out_json: the whole answer, malloc'ed,
 * where there is nothing to generate. False with @error filled, which names Ollama's field.
 */
bool api_read_ollama(const struct api_context *context, const json_t *body,
		     struct request *request, char **out_json,
		     struct api_error *error);

/* ---- the event thread: JSON texts, malloc'ed, NULL without memory ---- */

/* One line of a stream. */
char *api_ollama_chunk(struct api_answer *answer, const struct reply *delta);
/* The last line of a stream, or the whole answer; with the times. */
char *api_ollama_end(const struct api_answer *answer);
/* {"error": "..."}: what its clients show. */
char *api_ollama_error(const struct api_error *error);
/* /api/tags, /api/ps: the one model, in a list. */
char *api_ollama_tags(const struct api_context *context);
char *api_ollama_ps(const struct api_context *context);
char *api_ollama_version(void);

#endif /* TARN_DAEMON_API_OLLAMA_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong with a request, in the shape OpenAI's clients expect:
 * {"error": {"message", "type", "param", "code"}}. Plain data, any thread.
 */
#ifndef TARN_DAEMON_API_ERROR_H
#define TARN_DAEMON_API_ERROR_H

#include <stdbool.h>
#include <stdint.h>

enum { API_ERROR_BYTES = 512 };

struct api_error {
	int status; /* the HTTP status; 0: no error */
	uint32_t retry_after_s; /* 0: no such header */
	const char *code; /* a constant, or NULL */
	char param[64]; /* the offending field, or "" */
	char message[API_ERROR_BYTES]; /* valid UTF-8 */
};

/* Fill @error; always answers false, for `return api_fail(...)`. @param, @code may be NULL. */
bool api_fail(struct api_error *error, int status, const char *param,
	      const char *code, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* "invalid_request_error" and so on, from the status. */
const char *api_error_type(int status);
/* The reason phrase of a status. */
const char *api_status_text(int status);
/* The JSON text, malloc'ed, or NULL without memory. */
char *api_error_json(const struct api_error *error);

#endif /* TARN_DAEMON_API_ERROR_H */

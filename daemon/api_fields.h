/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the fields of a request's JSON object with their types and limits.
 * Each reader answers true, with the value left alone when the field is
 * absent or null, or false with the error filled. Any thread.
 */
#ifndef TARN_DAEMON_API_FIELDS_H
#define TARN_DAEMON_API_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/api_error.h"

/*
 * Parse a body: one JSON object, no duplicate keys, valid UTF-8, at most 64 levels deep. NULL with
 * the error filled. The caller's reference.
 */
json_t *api_parse_object(const char *body, size_t len, struct api_error *error);

bool api_read_bool(const json_t *object, const char *name, bool *value,
		   struct api_error *error);
bool api_read_int(const json_t *object, const char *name, int64_t min,
		  int64_t max, int64_t *value, struct api_error *error);
bool api_read_real(const json_t *object, const char *name, double min,
		   double max, double *value, struct api_error *error);
/* @value: borrowed from the object, NUL inside possible. */
bool api_read_string(const json_t *object, const char *name, const char **value,
		     size_t *len, struct api_error *error);
/* Token ids out of an array: malloc'ed, each within int32; @name for messages. */
bool api_read_ids(const json_t *array, const char *name, uint32_t nr_vocab,
		  int32_t **out_ids, uint32_t *out_nr, struct api_error *error);
/* A string that stands for something; NULL where @value is none, or has a NUL inside. */
const char *api_name(const json_t *value);
/* NULL when absent or null. */
json_t *api_get(const json_t *object, const char *name);

/* --strict: false when the object has a field that is in none of the two lists (NULL-ended). */
bool api_check_names(const json_t *object, const char *const *names,
		     const char *const *more, struct api_error *error);

/*
 * The same for an object within a request, with --strict or without: its fields are few, and each
 * changes the answer. @field: its name.
 */
bool api_check_nested(const json_t *object, const char *field,
		      const char *const *names, struct api_error *error);

#endif /* TARN_DAEMON_API_FIELDS_H */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the template engine share: the golden files of
 * tests/data/make_template_golden.py, rendering in one call, and comparing
 * with what jinja2 gave. Included by test_template*.c only.
 */
#ifndef TARN_TEMPLATE_KIT_H
#define TARN_TEMPLATE_KIT_H

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/template/template.h"

/* The moment that the golden files were rendered at, 2026-03-07 15:04:05 UTC. */
static const int64_t golden_now_seconds = 1772895845;

struct rendered {
	int rc;
	char *text;
	size_t len;
	char err[512];
};

static inline struct rendered render_with(const char *src, size_t src_len,
					  const char *context,
					  size_t context_len,
					  const struct template_limits *limits)
{
	struct rendered r = { .text = NULL };
	struct template *t = NULL;

	r.rc = template_compile(src, src_len, &t, r.err, sizeof(r.err));
	if (!r.rc)
		r.rc = template_render(t, context, context_len, limits, &r.text,
				       &r.len, r.err, sizeof(r.err));
	template_destroy(t);
	return r;
}

static inline struct rendered render(const char *src, const char *context)
{
	struct template_limits limits = { .now_seconds = golden_now_seconds };

	return render_with(src, strlen(src), context, strlen(context), &limits);
}

static inline json_t *golden_load(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "tests/data/%s", name);
	return json_load_file(path, JSON_ALLOW_NUL, NULL);
}

/* Whether @r is what jinja2 gave; says on standard error where it is not. */
static inline bool golden_matches(const struct rendered *r, json_t *want,
				  const char *what)
{
	json_t *text = json_object_get(want, "text");
	const char *kind = json_string_value(json_object_get(want, "error"));
	const char *message =
		json_string_value(json_object_get(want, "message"));
	json_t *line = json_object_get(want, "line");
	char prefix[32];
	bool is_same;

	if (text) {
		is_same = r->rc == 0 && r->len == json_string_length(text) &&
			  memcmp(r->text, json_string_value(text), r->len) == 0;
	} else {
		is_same = r->rc == (message ? -ECANCELED : r->rc) && r->rc != 0;
		if (message && is_same)
			is_same = strlen(r->err) >= strlen(message) &&
				  strcmp(r->err + strlen(r->err) -
						 strlen(message),
					 message) == 0;
		if (line && is_same) {
			snprintf(prefix, sizeof(prefix),
				 "line %d:", (int)json_integer_value(line));
			is_same = strncmp(r->err, prefix, strlen(prefix)) == 0;
		}
	}
	if (!is_same)
		fprintf(stderr, "# %s\n#  want %s %s\n#  got  %d %.*s %s\n",
			what, text ? json_string_value(text) : kind,
			message ? message : "", r->rc,
			r->text ? (int)r->len : 0, r->text ? r->text : "",
			r->err);
	return is_same;
}

#endif

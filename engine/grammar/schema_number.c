/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers between bounds, as digits. Bounds are whole numbers; a number that is no integer has a
 * fraction of up to 15 digits behind a whole part that leaves room for it. See schema.h.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/grammar/schema.h"

/* Numbers have at most so many digits before the point where nothing bounds them. */
static const int64_t largest = 9999999999999999;

/* Of one side of zero: whole parts from @first to @last. */
struct magnitudes {
	int64_t first, last;
	bool has_first, has_last; /* the ends themselves are in */
};

static struct ast_node *digit(struct schema *s, char first, char last)
{
	const struct ast_range range = { (uint32_t)first, (uint32_t)last };

	return ast_class(s->ast, &range, 1, false);
}

/* The numbers of @nr digits from @low to @high, which are as long. */
static struct ast_node *digits_between(struct schema *s, const char *low,
				       const char *high, uint32_t nr)
{
	struct ast_node *choice = ast_choice(s->ast), *one;
	uint32_t same = 0;
	bool is_full = true;

	for (uint32_t i = 0; i < nr; i++)
		is_full = is_full && low[i] == '0' && high[i] == '9';
	if (is_full)
		return ast_repeat(s->ast, digit(s, '0', '9'), nr, nr);
	while (same < nr && low[same] == high[same])
		same++;
	if (same) {
		one = ast_sequence(s->ast);
		ast_add(one, ast_text(s->ast, low, same));
		return same == nr ? one :
				    ast_add(one, digits_between(s, low + same,
								high + same,
								nr - same));
	}
	if (nr == 1)
		return digit(s, low[0], high[0]);
	/* The lowest first digit, those between, the highest. */
	one = ast_sequence(s->ast);
	ast_add(one, ast_text(s->ast, low, 1));
	ast_add(one, digits_between(s, low + 1, "9999999999999999999", nr - 1));
	ast_add(choice, one);
	if (high[0] - low[0] > 1) {
		one = ast_sequence(s->ast);
		ast_add(one, digit(s, (char)(low[0] + 1), (char)(high[0] - 1)));
		ast_add(one,
			ast_repeat(s->ast, digit(s, '0', '9'), nr - 1, nr - 1));
		ast_add(choice, one);
	}
	one = ast_sequence(s->ast);
	ast_add(one, ast_text(s->ast, high, 1));
	ast_add(one,
		digits_between(s, "0000000000000000000", high + 1, nr - 1));
	return ast_add(choice, one);
}

/* Whole numbers, without zeros before them. */
static struct ast_node *whole_between(struct schema *s, int64_t first,
				      int64_t last)
{
	struct ast_node *choice = ast_choice(s->ast);
	char low[32], high[32], to[32];
	uint32_t nr_low, nr_high;

	if (first > last)
		return choice;
	nr_low = (uint32_t)snprintf(low, sizeof(low), "%lld", (long long)first);
	nr_high =
		(uint32_t)snprintf(high, sizeof(high), "%lld", (long long)last);
	for (uint32_t nr = nr_low; nr <= nr_high; nr++) {
		if (nr > nr_low) {
			memset(low, '0', nr);
			low[0] = '1';
		}
		memset(to, '9', nr);
		ast_add(choice,
			digits_between(s, low, nr == nr_high ? high : to, nr));
	}
	return choice;
}

/* ".5": with @is_positive some digit is not 0. */
static struct ast_node *fraction(struct schema *s, bool is_positive)
{
	struct ast_node *f = ast_sequence(s->ast);

	ast_add(f, ast_text(s->ast, ".", 1));
	ast_add(f, ast_repeat(s->ast, digit(s, '0', '9'), !is_positive, 14));
	return is_positive ? ast_add(f, digit(s, '1', '9')) : f;
}

static struct ast_node *
magnitudes_node(struct schema *s, const struct magnitudes *m, bool is_integer)
{
	struct ast_node *choice = ast_choice(s->ast), *one;
	int64_t first = m->has_first ? m->first : m->first + 1;
	int64_t last = m->has_last ? m->last : m->last - 1;

	if (is_integer)
		return ast_add(choice, whole_between(s, first, last));
	if (first <= m->last - 1) {
		one = ast_sequence(s->ast);
		ast_add(one, whole_between(s, first, m->last - 1));
		ast_add(one, ast_repeat(s->ast, fraction(s, false), 0, 1));
		ast_add(choice, one);
	}
	if (m->has_last && m->last >= first)
		ast_add(choice, whole_between(s, m->last, m->last));
	if (!m->has_first && m->first < m->last) {
		one = ast_sequence(s->ast);
		ast_add(one, whole_between(s, m->first, m->first));
		ast_add(one, fraction(s, true));
		ast_add(choice, one);
	}
	return choice;
}

/* ---- bounds --------------------------------------------------------------------------------- */

struct bounds {
	int64_t low, high;
	bool has_low, has_high; /* the bounds themselves are in */
};

static int read_bound(struct schema *s, const json_t *schema,
		      const char *keyword, bool is_integer, bool is_low,
		      const struct schema_path *path, double *out, bool *there)
{
	const json_t *field = json_object_get(schema, keyword);
	double value = json_number_value(field);

	*there = field != NULL;
	if (!field)
		return 0;
	if (!json_is_number(field))
		return schema_fail(s, path, "%s must be a number", keyword);
	if (is_integer)
		value = is_low ? ceil(value) : floor(value);
	if (value != floor(value))
		return schema_fail(s, path,
				   "%s of a number that is not whole is not "
				   "supported",
				   keyword);
	if (fabs(value) > (double)largest)
		value = copysign((double)largest, value);
	*out = value;
	return 0;
}

/* One side: the bound itself is in, or it is not. */
static int read_side(struct schema *s, const json_t *schema, bool is_integer,
		     bool is_low, const struct schema_path *path,
		     int64_t *value, bool *is_in)
{
	const char *keyword = is_low ? "minimum" : "maximum";
	const char *exclusive = is_low ? "exclusiveMinimum" :
					 "exclusiveMaximum";
	const json_t *field = json_object_get(schema, exclusive);
	double in = 0, out = 0;
	bool has_in, has_out = false;
	int rc = read_bound(s, schema, keyword, is_integer, is_low, path, &in,
			    &has_in);

	*is_in = true;
	/* Before 2019 it was a flag of the other keyword. */
	if (json_is_boolean(field))
		*is_in = !(has_in && json_is_true(field));
	else if (!rc)
		rc = read_bound(s, schema, exclusive, is_integer, is_low, path,
				&out, &has_out);
	if (rc)
		return rc;
	if (has_in)
		*value = (int64_t)in;
	if (has_out && (!has_in || (is_low ? out >= in : out <= in))) {
		*value = (int64_t)out;
		/* Where an integer's bound was rounded, the result is in. */
		*is_in = is_integer && json_number_value(field) != out;
	}
	return 0;
}

int schema_number(struct schema *s, const json_t *schema, bool is_integer,
		  const struct schema_path *path, struct ast_node **out)
{
	struct bounds b = { .low = -largest, .high = largest };
	struct ast_node *negative;
	int rc;

	if (!json_object_get(schema, "minimum") &&
	    !json_object_get(schema, "maximum") &&
	    !json_object_get(schema, "exclusiveMinimum") &&
	    !json_object_get(schema, "exclusiveMaximum")) {
		*out = schema_any(s,
				  is_integer ? "json-integer" : "json-number");
		return 0;
	}
	rc = read_side(s, schema, is_integer, true, path, &b.low, &b.has_low);
	if (!rc)
		rc = read_side(s, schema, is_integer, false, path, &b.high,
			       &b.has_high);
	if (rc)
		return rc;
	if (b.low > b.high || (b.low == b.high && !(b.has_low && b.has_high)))
		return schema_fail(s, path, "no number is between the bounds");
	*out = ast_choice(s->ast);
	if (b.high >= 0) {
		const struct magnitudes m = {
			.first = b.low > 0 ? b.low : 0,
			.last = b.high,
			.has_first = b.low < 0 || b.has_low,
			.has_last = b.has_high,
		};

		ast_add(*out, magnitudes_node(s, &m, is_integer));
	}
	if (b.low < 0) {
		/* Zero is on the other side. */
		const struct magnitudes m = {
			.first = b.high < 0 ? -b.high : 0,
			.last = -b.low,
			.has_first = b.high < 0 && b.has_high,
			.has_last = b.has_low,
		};

		negative = ast_sequence(s->ast);
		ast_add(negative, ast_text(s->ast, "-", 1));
		ast_add(negative, magnitudes_node(s, &m, is_integer));
		ast_add(*out, negative);
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Description: hostile templates and contexts end with an error in bounded
 * time and memory, errors name construct and line, and random damage to
 * templates neither crashes nor leaks (run under address,undefined for that).
 */
#include <pthread.h>

#include "tests/engine/template_kit.h"
#include "tests/harness.h"

/* What a template must answer: the errno and a part of the message. */
struct bad {
	const char *src;
	int rc;
	const char *says;
};

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The promise is a second; sanitizers and a busy machine get more. */
static const double limit_s = 5;

/* Counts the cases that do not end as they must, each within the time. */
static size_t nr_wrong(const struct bad *b, size_t n)
{
	size_t nr = 0;

	for (size_t i = 0; i < n; i++) {
		double start = seconds(), took;
		struct rendered r =
			render(b[i].src,
			       "{\"messages\":[{\"role\":\"user\"}],\"n\":3}");

		took = seconds() - start;
		if (r.rc != b[i].rc || !strstr(r.err, b[i].says) ||
		    took > limit_s) {
			nr++;
			fprintf(stderr, "# %.100s\n#  %d %s (%.2f s)\n",
				b[i].src, r.rc, r.err, took);
		}
		free(r.text);
	}
	return nr;
}

TEST(endless_work_is_stopped)
{
	static const struct bad cases[] = {
		{ "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
		  -E2BIG, "steps" },
		{ "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", -E2BIG,
		  "deep" },
		{ "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
		  -E2BIG, "deep" },
		{ "{% macro m(k) %}{% if k %}{{ m(k-1) }}{{ m(k-1) }}{% endif %}"
		  "{% endmacro %}{{ m(40) }}",
		  -E2BIG, "steps" },
		{ "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
		  -E2BIG, "deep" },
		{ "{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns }}",
		  -E2BIG, "deep" },
		{ "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}"
		  "{% set ns.x = [ns.x] %}{% endfor %}"
		  "{{ ns.x == [ns.x] }}{{ ns.x }}",
		  -E2BIG, "deep" },
		{ "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}"
		  "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
		  -E2BIG, "deep" },
		{ "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}"
		  "{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
		  -E2BIG, "limit" },
		{ "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}"
		  "{% set ns.l = ns.l + ns.l %}{% endfor %}",
		  -E2BIG, "limit" },
		{ "{% set a = 'a' * 1000000 %}{% for i in range(99999) %}"
		  "{{ a | replace('a', 'bb') | length }}{% endfor %}",
		  -E2BIG, "steps" },
		{ "{% set a = 'a' * 9000000 %}{% for i in range(99999) %}"
		  "{% if 'ab' in a %}{% endif %}{% endfor %}",
		  -E2BIG, "steps" },
		{ "{% set a = 'ab' * 900000 %}{% for i in range(99999) %}{{ a[i] }}{% endfor %}",
		  -E2BIG, "steps" },
		{ "{% for i in range(99999) %}{% set c = '%c' % (i + 65536) %}"
		  "{{ c.isalpha() }}{{ c.isdigit() }}{% endfor %}",
		  -E2BIG, "steps" },
		{ "{% set a = 'a' * 500000 %}"
		  "{{ a.rfind('b' ~ a[1:250000]) }}{{ a.strip(a) | length }}",
		  -E2BIG, "steps" },
	};

	EXPECT_EQ(0U, nr_wrong(cases, sizeof(cases) / sizeof(cases[0])));
}

TEST(big_values_are_refused)
{
	static const struct bad cases[] = {
		{ "{{ range(1000000000) }}", -E2BIG, "range too big" },
		{ "{{ range(-9223372036854775807, 9223372036854775807) }}",
		  -E2BIG, "range too big" },
		{ "{{ 'x' * 9223372036854775807 }}", -E2BIG, "repeating" },
		{ "{{ [1] * 4611686018427387904 }}", -E2BIG, "repeating" },
		{ "{{ 'x' | center(9999999999) }}", -E2BIG, "limit" },
		{ "{{ 'x'.zfill(9223372036854775807) }}", -E2BIG, "limit" },
		{ "{{ '%99999d' % 5 }}", -E2BIG, "wide" },
		{ "{{ '%.9999f' | format(5) }}", -E2BIG, "wide" },
		{ "{{ '{:99999}'.format(5) }}", -E2BIG, "wide" },
		{ "{{ '{:.9999f}'.format(5) }}", -E2BIG, "wide" },
		{ "{{ [1] | tojson(indent=9999999999) }}", -E2BIG,
		  "repeating" },
		{ "{{ 2 ** 64 }}", -EINVAL, "overflow" },
		{ "{{ 9223372036854775807 + 1 }}", -EINVAL, "overflow" },
		{ "{{ (-9223372036854775807 - 1) // -1 }}", -EINVAL,
		  "overflow" },
		{ "{{ -(-9223372036854775807 - 1) }}", -EINVAL, "overflow" },
		{ "{{ (-9223372036854775807 - 1) | abs }}", -EINVAL,
		  "overflow" },
		{ "{{ 99999999999999999999 }}", -EINVAL, "64 bits" },
		{ "{{ 1e308 * 10 | int }}{{ [1] | batch(9999999) | list }}",
		  -EINVAL, "count" },
	};

	EXPECT_EQ(0U, nr_wrong(cases, sizeof(cases) / sizeof(cases[0])));
}

TEST(errors_name_construct_and_line)
{
	static const struct bad cases[] = {
		{ "a\n\n{% include 'x' %}", -EINVAL,
		  "line 3: unknown tag 'include'" },
		{ "a\n{{ 1 | wordwrap }}", -EINVAL,
		  "line 2: filter 'wordwrap' is not supported" },
		{ "\n{{ 'a'.encode() }}", -EINVAL,
		  "line 2: method 'encode' is not supported" },
		{ "\n{{ '1'.isnumeric() }}", -EINVAL,
		  "line 2: method 'isnumeric' is not supported" },
		{ "{{ 'a'.casefold() }}", -EINVAL,
		  "method 'casefold' is not supported" },
		{ "\n\n{{ '{:{}}'.format(1, 2) }}", -EINVAL,
		  "line 3: str.format: a field in a field is not supported" },
		{ "{{ '{!a}'.format(1) }}", -EINVAL,
		  "str.format: '!a' is not supported" },
		{ "{{ '{:010,}'.format(1) }}", -EINVAL,
		  "format '010,' is not supported" },
		{ "{{ '%b' % 1 }}", -EINVAL,
		  "format: conversion '%b' is not supported" },
		{ "{{ {} | random }}", -EINVAL,
		  "filter 'random' is not supported" },
		{ "\n{% import 'x' as y %}", -EINVAL,
		  "line 2: unknown tag 'import'" },
		{ "{% extends 'x' %}", -EINVAL, "unknown tag 'extends'" },
		{ "{% autoescape true %}", -EINVAL,
		  "unknown tag 'autoescape'" },
		{ "{% do 1 %}", -EINVAL, "unknown tag 'do'" },
		{ "{{ 1 | nope }}", -EINVAL, "line 1: unknown filter 'nope'" },
		{ "{{ 1 is nope }}", -EINVAL, "line 1: unknown test 'nope'" },
		{ "\n\n{{ foo.bar }}", -EINVAL, "line 3: 'foo' is undefined" },
		{ "\n{{ messages[0].x.y }}", -EINVAL,
		  "line 2: 'dict object' has no attribute 'x'" },
		{ "{% for x in n %}\n{% if x %}", -EINVAL,
		  "'if' is not closed" },
		{ "{% if n %}\n{% endfor %}", -EINVAL,
		  "line 2: unknown or misplaced tag 'endfor'" },
		{ "\n{{ raise_exception('no ' ~ n) }}", -ECANCELED, "no 3" },
		{ "{{ messages.append(1) }}", -EINVAL, "unsafe" },
		{ "{{ lipsum() }}", -EINVAL,
		  "function 'lipsum' is not supported" },
		{ "{{ n(1) }}", -EINVAL, "'int' object is not callable" },
		{ "{{ '\\ud800' }}", -EINVAL, "invalid escape" },
		{ "{{ 'a'.split(1) }}", -EINVAL, "string is needed" },
		{ "{{ 'a' | indent(width=2, nope=1) }}", -EINVAL, "'nope'" },
		{ "{{ range() }}", -EINVAL, "at least 1" },
		{ "\xff", -EINVAL, "byte 0 is not UTF-8" },
	};

	EXPECT_EQ(0U, nr_wrong(cases, sizeof(cases) / sizeof(cases[0])));
}

/* @nr times @open, then @mid, then @nr times @close. */
static struct rendered nest(size_t nr, const char *open, const char *mid,
			    const char *close)
{
	size_t cap = nr * (strlen(open) + strlen(close)) + strlen(mid) + 16;
	char *src = malloc(cap), *p = src;
	struct rendered r;

	for (size_t i = 0; i < nr; i++)
		p = stpcpy(p, open);
	p = stpcpy(p, mid);
	for (size_t i = 0; i < nr; i++)
		p = stpcpy(p, close);
	r = render(src, "{}");
	free(src);
	return r;
}

TEST(deep_nesting_is_an_error)
{
	static const char *const kinds[][3] = {
		{ "{{ ", "1", " }}" },	     { "(", "1", ")" },
		{ "[", "1", "]" },	     { "-", "1", "" },
		{ "not ", "1", "" },	     { "1 + ", "1", "" },
		{ "a.", "a", "" },	     { "x|", "e", "" },
		{ "1 if 1 else ", "1", "" }, { "f(", "1", ")" },
		{ "1 is odd ", "1", "" },    { "{1:", "1", "}" },
	};
	struct rendered r;

	for (size_t i = 1; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		char open[64], close[64];

		/* once in an expression by itself, prefixed so that it is one tag */
		snprintf(open, sizeof(open), "%s", kinds[i][0]);
		snprintf(close, sizeof(close), "%s", kinds[i][2]);
		size_t nr = 100000, cap = nr * 16 + 64;
		char *src = malloc(cap), *p = stpcpy(src, "{{ ");

		for (size_t k = 0; k < nr; k++)
			p = stpcpy(p, open);
		p = stpcpy(p, kinds[i][1]);
		for (size_t k = 0; k < nr; k++)
			p = stpcpy(p, close);
		stpcpy(p, " }}");
		r = render(src, "{}");
		EXPECT_NE(0, r.rc)
		{
			TH_LOG("%s", kinds[i][0]);
		}
		free(r.text);
		free(src);
	}
	r = nest(100000, "{% if 1 %}", "x", "{% endif %}");
	EXPECT_EQ(-E2BIG, r.rc);
	r = nest(100000, "{% for x in [1] %}", "x", "{% endfor %}");
	EXPECT_EQ(-E2BIG, r.rc);
	r = nest(150, "{% if 1 %}", "x", "{% endif %}");
	EXPECT_EQ(0, r.rc);
	free(r.text);
	r = nest(1500, "x", "", "");
	EXPECT_EQ(0, r.rc);
	free(r.text);
}

TEST(contexts_are_checked)
{
	static const char *const bad[] = { "",
					   "[]",
					   "{",
					   "{\"a\":}",
					   "\"x\"",
					   "{\"a\":1e999}",
					   "{\"a\":\"\\ud800\"}",
					   "{\"a\":\"\xff\"}" };
	static char deep[100001];
	struct rendered r;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		r = render("x", bad[i]);
		EXPECT_EQ(-EINVAL, r.rc);
	}
	memset(deep, '[', 100000);
	deep[100000] = 0;
	r = render("x", deep);
	EXPECT_EQ(-EINVAL, r.rc);
	strcpy(deep, "{\"a\":");
	memset(deep + 5, '[', 1500);
	memset(deep + 1505, ']', 1500);
	strcpy(deep + 3005, "}");
	r = render("x", deep);
	EXPECT_EQ(-E2BIG, r.rc);
	r = render("{{ a | length }}{{ a }}", "{\"a\":\"x\\u0000y\"}");
	ASSERT_EQ(0, r.rc);
	EXPECT_EQ(4U, r.len);
	EXPECT_EQ(0, memcmp(r.text, "3x\0y", 5));
	free(r.text);
}

TEST(limits_of_the_caller_hold)
{
	struct template_limits l = { .max_steps = 100 };
	struct rendered r;

	r = render_with("{% for i in range(1000) %}x{% endfor %}", 39, "{}", 2,
			&l);
	EXPECT_EQ(-E2BIG, r.rc);
	l = (struct template_limits){ .max_output_bytes = 10 };
	r = render_with("0123456789", 10, "{}", 2, &l);
	EXPECT_EQ(0, r.rc);
	free(r.text);
	r = render_with("0123456789a", 11, "{}", 2, &l);
	EXPECT_EQ(-E2BIG, r.rc);
	r = render_with("{% set x %}0123456789a{% endset %}", 34, "{}", 2, &l);
	EXPECT_EQ(-E2BIG, r.rc);
	l = (struct template_limits){ .max_value_bytes = 4096 };
	r = render_with("{{ 'x' * 5000 }}", 16, "{}", 2, &l);
	EXPECT_EQ(-E2BIG, r.rc);
	l = (struct template_limits){ .max_depth = 5 };
	r = render_with("{{ [[[[[1]]]]] }}", 17, "{}", 2, &l);
	EXPECT_EQ(-E2BIG, r.rc);
}

/* Limits of a template's text, which no caller sets. */
TEST(big_templates_are_refused)
{
	enum { MAX_BYTES = 4 << 20 };
	char *src = malloc(MAX_BYTES + 1), *p;
	struct rendered r;

	memset(src, 'x', MAX_BYTES + 1);
	r = render_with(src, MAX_BYTES, "{}", 2, NULL);
	EXPECT_EQ(0, r.rc);
	free(r.text);
	r = render_with(src, MAX_BYTES + 1, "{}", 2, NULL);
	EXPECT_EQ(-E2BIG, r.rc);
	EXPECT_TRUE(strstr(r.err, "4194305 bytes") != NULL);
	p = stpcpy(src, "{% macro m(");
	for (int i = 0; i < 65; i++)
		p += sprintf(p, "%sp%d", i ? ", " : "", i);
	stpcpy(p, ") %}{% endmacro %}");
	r = render(src, "{}");
	EXPECT_EQ(-E2BIG, r.rc);
	EXPECT_TRUE(strstr(r.err, "more than 64 parameters") != NULL);
	free(src);
}

struct shared {
	const struct template *t;
	int nr_wrong;
};

static void *render_often(void *arg)
{
	struct shared *s = arg;

	for (int i = 0; i < 200; i++) {
		char err[128], *text = NULL;
		size_t len = 0;
		static const char context[] = "{\"l\":[\"\xc3\xa9\",2]}";
		int rc = template_render(s->t, context, strlen(context), NULL,
					 &text, &len, err, sizeof(err));

		s->nr_wrong += rc || strcmp(text, "0\xc3\x89"
						  "12 0\xc3\x89"
						  "12 ") != 0;
		free(text);
	}
	return NULL;
}

TEST(threads_share_a_template)
{
	static const char src[] =
		"{% macro m(x) %}{{ x | string | upper }}{% endmacro %}{% for k in range(2) %}"
		"{% for i in l %}{{ loop.index0 }}{{ m(i) }}{% endfor %} {% endfor %}";
	struct shared s[4];
	struct template *t;
	pthread_t id[4];
	char err[128];

	ASSERT_EQ(0, template_compile(src, strlen(src), &t, err, sizeof(err)));
	for (int i = 0; i < 4; i++) {
		s[i] = (struct shared){ .t = t };
		ASSERT_EQ(0, pthread_create(&id[i], NULL, render_often, &s[i]));
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(id[i], NULL);
		EXPECT_EQ(0, s[i].nr_wrong);
	}
	template_destroy(t);
}

/* ---- random damage ---- */

static uint64_t rng_state = 88172645463325252ULL;

static size_t rng(size_t n)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return n ? (size_t)(rng_state % n) : 0;
}

static const char *const pieces[] = {
	"{{",
	"}}",
	"{%",
	"%}",
	"{#",
	"#}",
	"-",
	"|",
	"(",
	")",
	"[",
	"]",
	"{",
	"}",
	"~",
	":",
	".",
	"**",
	"//",
	"%",
	"'",
	"\"",
	"\\",
	" if ",
	" else ",
	" in ",
	" not ",
	" is ",
	"loop",
	"{% endfor %}",
	"{% endif %}",
	"{% for x in ",
	"9223372036854775807",
	"-1",
	"0",
	"::",
	"|tojson",
	"|list",
	"|map(",
	"|sort",
	"*",
	"=",
	",",
	"\xc3\xa9",
	"range(",
	"m(",
	".items()",
	"{% set x = ",
	"{% macro m(a) %}",
	"{% endmacro %}",
	"|join",
	"|batch(2)",
	"[::-1]",
	"recursive",
};

static size_t mutate(char *s, size_t n, size_t cap)
{
	for (size_t k = 1 + rng(4); k > 0; k--) {
		const char *p = pieces[rng(sizeof(pieces) / sizeof(pieces[0]))];
		size_t at = rng(n + 1), cut = rng(8), len = strlen(p);

		switch (rng(4)) {
		case 0: /* cut some */
			cut = cut < n - at ? cut : n - at;
			memmove(s + at, s + at + cut, n - at - cut);
			n -= cut;
			break;
		case 1: /* copy some from elsewhere */
			cut = cut < n - at ? cut : n - at;
			if (n + cut < cap) {
				memmove(s + n, s + at, cut);
				n += cut;
			}
			break;
		default: /* put a piece in */
			if (n + len >= cap)
				break;
			memmove(s + at + len, s + at, n - at);
			memcpy(s + at, p, len);
			n += len;
		}
	}
	return n;
}

/* Runs @nr damaged copies of each template of @golden's list @key. */
static size_t damage(json_t *list, const char *context, size_t nr)
{
	static char buf[16384];
	struct template_limits limits = { .max_steps = 20000,
					  .max_value_bytes = 1 << 20 };
	size_t nr_ok = 0;

	for (size_t i = 0; i < nr; i++) {
		json_t *c = json_array_get(list, rng(json_array_size(list)));
		json_t *src = json_object_get(c, "template");
		size_t n = json_string_length(src);

		memcpy(buf, json_string_value(src), n);
		n = mutate(buf, n, sizeof(buf) - 64);
		struct rendered r =
			render_with(buf, n, context, strlen(context), &limits);

		nr_ok += r.rc == 0;
		if (r.rc != 0 && !r.err[0])
			return 0; /* an error must say something */
		free(r.text);
	}
	return nr_ok;
}

TEST_TIMEOUT(damaged_templates_are_survived, 120)
{
	json_t *golden = golden_load("template_golden.json");
	json_t *families = golden_load("template_families.json");
	char *base = json_dumps(json_object_get(golden, "context"), 0);
	char *request = json_dumps(
		json_array_get(json_object_get(families, "requests"), 6), 0);
	size_t nr_ok;

	nr_ok = damage(json_object_get(golden, "cases"), base, 17000);
	EXPECT_LT(1000U, nr_ok);
	nr_ok = damage(json_object_get(families, "families"), request, 3000);
	EXPECT_LT(10U, nr_ok);
	free(base);
	free(request);
	json_decref(golden);
	json_decref(families);
}

TEST_HARNESS_MAIN

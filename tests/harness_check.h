/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of the test harness: ASSERT_*, EXPECT_*, SKIP and TH_LOG, and how the values are
 * compared and printed. Included by tests/harness.h only, which says how they are used. They may
 * be called from any function and thread of a test's child process.
 */
#ifndef TARN_TESTS_HARNESS_CHECK_H
#define TARN_TESTS_HARNESS_CHECK_H

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HARNESS_FAIL = 1, HARNESS_LINE_MAX = 4096 };

/* What the child tells the parent, in memory that both map. */
struct harness_result {
	volatile int nr_failed;
	volatile int is_skipped;
	volatile int is_finished;
	char reason[512];
};

static const char *harness_current =
	"?"; /* the child's own test, for messages */
static struct harness_result *harness_result;
static sigjmp_buf harness_stop;
static volatile sig_atomic_t harness_can_stop;
static pthread_t harness_thread; /* the thread that may jump to harness_stop */

/* ---- values: any scalar, compared by value and printed ------------------------------------ */

enum harness_kind {
	HARNESS_SIGNED,
	HARNESS_UNSIGNED,
	HARNESS_FLOAT,
	HARNESS_POINTER
};

struct harness_value {
	enum harness_kind kind;
	long long s;
	unsigned long long u;
	long double f;
};

static inline struct harness_value harness_signed(long long v)
{
	return (struct harness_value){
		.kind = HARNESS_SIGNED, .s = v, .u = v, .f = v
	};
}

static inline struct harness_value harness_unsigned(unsigned long long v)
{
	return (struct harness_value){
		.kind = HARNESS_UNSIGNED, .s = v, .u = v, .f = v
	};
}

static inline struct harness_value harness_float(long double v)
{
	return (struct harness_value){ .kind = HARNESS_FLOAT, .f = v };
}

static inline struct harness_value harness_pointer(const volatile void *v)
{
	uintptr_t u = (uintptr_t)v;

	return (struct harness_value){
		.kind = HARNESS_POINTER, .s = u, .u = u, .f = u
	};
}

/*
 * The conditional makes the type of a bit-field that of its promotion. Laid out
 * by hand: clang-format takes the associations for conditionals.
 */
/* clang-format off */
#define HARNESS_VALUE(x)                                                       \
	_Generic(1 ? (x) : (x),                                                \
		_Bool: harness_unsigned,                                       \
		char: harness_signed,                                          \
		signed char: harness_signed,                                   \
		short: harness_signed,                                         \
		int: harness_signed,                                           \
		long: harness_signed,                                          \
		long long: harness_signed,                                     \
		unsigned char: harness_unsigned,                               \
		unsigned short: harness_unsigned,                              \
		unsigned int: harness_unsigned,                                \
		unsigned long: harness_unsigned,                               \
		unsigned long long: harness_unsigned,                          \
		float: harness_float,                                          \
		double: harness_float,                                         \
		long double: harness_float,                                    \
		default: harness_pointer)(x)
/* clang-format on */

static inline void harness_format(struct harness_value v, char *out,
				  size_t out_bytes)
{
	switch (v.kind) {
	case HARNESS_SIGNED:
		snprintf(out, out_bytes, "%lld", v.s);
		break;
	case HARNESS_UNSIGNED:
		snprintf(out, out_bytes, "%llu (0x%llx)", v.u, v.u);
		break;
	case HARNESS_FLOAT:
		snprintf(out, out_bytes, "%.17Lg (%La)", v.f, v.f);
		break;
	case HARNESS_POINTER:
		snprintf(out, out_bytes, "0x%llx", v.u);
		break;
	}
}

/* -1, 0 or 1 as a is below, equal to or above b in value; 2 where a NaN forbids an order. */
static inline int harness_order(struct harness_value a, struct harness_value b)
{
	if (a.kind == HARNESS_FLOAT || b.kind == HARNESS_FLOAT) {
		if (a.f != a.f || b.f != b.f)
			return 2;
		return a.f < b.f ? -1 : a.f > b.f;
	}
	bool is_a_negative = a.kind == HARNESS_SIGNED && a.s < 0;
	bool is_b_negative = b.kind == HARNESS_SIGNED && b.s < 0;

	if (is_a_negative != is_b_negative)
		return is_a_negative ? -1 : 1;
	/* Both of one sign: two's complement keeps the order. */
	return a.u < b.u ? -1 : a.u > b.u;
}

/* ---- checks ------------------------------------------------------------------------------- */

static inline __attribute__((format(printf, 3, 4))) void
harness_log(const char *file, int line, const char *fmt, ...)
{
	char text[HARNESS_LINE_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* One write per message, so that messages of threads do not mix. */
	fflush(stdout);
	dprintf(STDOUT_FILENO, "%s:%d: %s: %s\n", file, line, harness_current,
		text);
}

static inline void harness_note_failure(void)
{
	if (harness_result)
		__atomic_fetch_add(&harness_result->nr_failed, 1,
				   __ATOMIC_RELAXED);
}

/*
 * Ends a loop that runs a failure's block once; for ASSERT it ends the test instead. Only the
 * test's own thread can leave by a jump; from another one the child ends, without teardown.
 */
static inline int harness_bail(bool is_assert)
{
	if (is_assert) {
		if (harness_can_stop &&
		    pthread_equal(pthread_self(), harness_thread))
			siglongjmp(harness_stop, 1);
		fflush(NULL);
		_exit(HARNESS_FAIL);
	}
	return 0;
}

enum harness_op {
	HARNESS_EQ,
	HARNESS_NE,
	HARNESS_LT,
	HARNESS_LE,
	HARNESS_GT,
	HARNESS_GE
};

static inline int harness_compare(const char *file, int line,
				  enum harness_op op, struct harness_value a,
				  struct harness_value b, const char *a_text,
				  const char *b_text)
{
	static const char *const signs[] = { "==", "!=", "<", "<=", ">", ">=" };
	int order = harness_order(a, b);
	bool is_met = false;

	switch (op) {
	case HARNESS_EQ:
		is_met = order == 0;
		break;
	case HARNESS_NE:
		is_met = order != 0;
		break;
	case HARNESS_LT:
		is_met = order == -1;
		break;
	case HARNESS_LE:
		is_met = order == -1 || order == 0;
		break;
	case HARNESS_GT:
		is_met = order == 1;
		break;
	case HARNESS_GE:
		is_met = order == 1 || order == 0;
		break;
	}
	if (is_met)
		return 0;

	char a_value[96], b_value[96];

	harness_format(a, a_value, sizeof(a_value));
	harness_format(b, b_value, sizeof(b_value));
	harness_note_failure();
	harness_log(file, line, "expected %s %s %s; the values are %s and %s",
		    a_text, signs[op], b_text, a_value, b_value);
	return 1;
}

static inline int harness_near(const char *file, int line, double a, double b,
			       double tolerance, const char *a_text,
			       const char *b_text)
{
	double difference = a > b ? a - b : b - a;

	if (difference <= tolerance || a == b)
		return 0;
	harness_note_failure();
	harness_log(
		file, line,
		"expected %s near %s; the values are %.17g and %.17g, off by %g, allowed %g",
		a_text, b_text, a, b, difference, tolerance);
	return 1;
}

static inline int harness_true(const char *file, int line, bool is_wanted,
			       bool is_seen, const char *text)
{
	if (is_wanted == is_seen)
		return 0;
	harness_note_failure();
	harness_log(file, line, "expected %s to be %s; it is %s", text,
		    is_wanted ? "true" : "false", is_seen ? "true" : "false");
	return 1;
}

static inline int harness_string(const char *file, int line,
				 bool is_equal_wanted, const char *a,
				 const char *b, const char *a_text,
				 const char *b_text)
{
	bool is_equal = a && b ? strcmp(a, b) == 0 : a == b;

	if (is_equal == is_equal_wanted)
		return 0;
	harness_note_failure();
	harness_log(file, line,
		    "expected %s %s %s; the values are %s%s%s and %s%s%s",
		    a_text, is_equal_wanted ? "==" : "!=", b_text,
		    a ? "\"" : "", a ? a : "NULL", a ? "\"" : "", b ? "\"" : "",
		    b ? b : "NULL", b ? "\"" : "");
	return 1;
}

static inline int harness_memory(const char *file, int line, const void *a,
				 const void *b, size_t nr_bytes,
				 const char *a_text, const char *b_text)
{
	const unsigned char *x = a, *y = b;

	for (size_t i = 0; i < nr_bytes; i++) {
		if (x[i] == y[i])
			continue;
		harness_note_failure();
		harness_log(
			file, line,
			"expected %s and %s to have the same %zu bytes; byte %zu: 0x%02x, 0x%02x",
			a_text, b_text, nr_bytes, i, x[i], y[i]);
		return 1;
	}
	return 0;
}

/* One statement that takes `;` or a block to run on failure; safe in an if without braces. */
#define HARNESS_CHECK(is_assert, call)                      \
	for (int harness_failed_ = (call); harness_failed_; \
	     harness_failed_ = harness_bail(is_assert))
#define HARNESS_OP(is_assert, op, a, b)                                  \
	HARNESS_CHECK(is_assert, harness_compare(__FILE__, __LINE__, op, \
						 HARNESS_VALUE(a),       \
						 HARNESS_VALUE(b), #a, #b))

/* Prints a message with the place and the test's name. */
#define TH_LOG(...) harness_log(__FILE__, __LINE__, __VA_ARGS__)

/* Integers of any sign and size compare by value (-1 differs from every unsigned), NaN is equal to
 * nothing, pointers compare by address. The wanted value comes first by custom. */
#define ASSERT_EQ(a, b) HARNESS_OP(true, HARNESS_EQ, a, b)
#define ASSERT_NE(a, b) HARNESS_OP(true, HARNESS_NE, a, b)
#define ASSERT_LT(a, b) HARNESS_OP(true, HARNESS_LT, a, b)
#define ASSERT_LE(a, b) HARNESS_OP(true, HARNESS_LE, a, b)
#define ASSERT_GT(a, b) HARNESS_OP(true, HARNESS_GT, a, b)
#define ASSERT_GE(a, b) HARNESS_OP(true, HARNESS_GE, a, b)
#define EXPECT_EQ(a, b) HARNESS_OP(false, HARNESS_EQ, a, b)
#define EXPECT_NE(a, b) HARNESS_OP(false, HARNESS_NE, a, b)
#define EXPECT_LT(a, b) HARNESS_OP(false, HARNESS_LT, a, b)
#define EXPECT_LE(a, b) HARNESS_OP(false, HARNESS_LE, a, b)
#define EXPECT_GT(a, b) HARNESS_OP(false, HARNESS_GT, a, b)
#define EXPECT_GE(a, b) HARNESS_OP(false, HARNESS_GE, a, b)

#define HARNESS_TRUE(is_assert, is_wanted, x)                                \
	HARNESS_CHECK(is_assert, harness_true(__FILE__, __LINE__, is_wanted, \
					      (x) ? true : false, #x))
#define ASSERT_TRUE(x) HARNESS_TRUE(true, true, x)
#define ASSERT_FALSE(x) HARNESS_TRUE(true, false, x)
#define EXPECT_TRUE(x) HARNESS_TRUE(false, true, x)
#define EXPECT_FALSE(x) HARNESS_TRUE(false, false, x)

/* Strings; NULL is equal to NULL only. */
#define HARNESS_STR(is_assert, is_equal, a, b)                                \
	HARNESS_CHECK(is_assert, harness_string(__FILE__, __LINE__, is_equal, \
						a, b, #a, #b))
#define ASSERT_STREQ(a, b) HARNESS_STR(true, true, a, b)
#define ASSERT_STRNE(a, b) HARNESS_STR(true, false, a, b)
#define EXPECT_STREQ(a, b) HARNESS_STR(false, true, a, b)
#define EXPECT_STRNE(a, b) HARNESS_STR(false, false, a, b)

/* n bytes of memory; the first that differs is named. */
#define HARNESS_MEM(is_assert, a, b, n) \
	HARNESS_CHECK(is_assert,        \
		      harness_memory(__FILE__, __LINE__, a, b, n, #a, #b))
#define ASSERT_MEMEQ(a, b, n) HARNESS_MEM(true, a, b, n)
#define EXPECT_MEMEQ(a, b, n) HARNESS_MEM(false, a, b, n)

/* |a - b| <= tolerance; equal infinities are near, NaN is near nothing. */
#define HARNESS_NEAR(is_assert, a, b, tolerance)                        \
	HARNESS_CHECK(is_assert, harness_near(__FILE__, __LINE__, a, b, \
					      tolerance, #a, #b))
#define ASSERT_NEAR(a, b, tolerance) HARNESS_NEAR(true, a, b, tolerance)
#define EXPECT_NEAR(a, b, tolerance) HARNESS_NEAR(false, a, b, tolerance)

/*
 * Marks the test as skipped, with a reason, and runs `statement` (mostly `return`). Checks that
 * failed before still fail the test.
 */
#define SKIP(statement, ...)                                                   \
	do {                                                                   \
		if (harness_result) {                                          \
			snprintf(harness_result->reason,                       \
				 sizeof(harness_result->reason), __VA_ARGS__); \
			harness_result->is_skipped = 1;                        \
		}                                                              \
		statement;                                                     \
	} while (0)

#endif /* TARN_TESTS_HARNESS_CHECK_H */

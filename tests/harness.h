/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test harness: one header, in the shape of the Linux kselftest harness.
 *
 * It owns how a test program declares its tests, runs each in a child process of its own with a
 * time limit, and reports in TAP 13 on standard output. The checks are in tests/harness_check.h;
 * which programs run is for scripts/run-tests. Included once per test program, in the file that
 * ends with TEST_HARNESS_MAIN. Checks may be used from any function and thread of the child.
 *
 *	FIXTURE(pool) {
 *		struct pool *p;
 *	};
 *	FIXTURE_VARIANT(pool) {
 *		size_t bytes;
 *	};
 *	FIXTURE_VARIANT_ADD(pool, small) { .bytes = 4096 };
 *	FIXTURE_SETUP(pool)
 *	{
 *		ASSERT_EQ(0, pool_create(variant->bytes, &self->p));
 *	}
 *	FIXTURE_TEARDOWN(pool)
 *	{
 *		pool_destroy(self->p);
 *	}
 *	TEST_F(pool, map_rejects_unaligned_offset)
 *	{
 *		EXPECT_EQ(-EINVAL, pool_map(self->p, 1));
 *	}
 *	TEST(numbers_are_parsed)
 *	{
 *		if (!have_numbers())
 *			SKIP(return, "no numbers here");
 *		EXPECT_STREQ("12", number_text(12)) {
 *			TH_LOG("after %d calls", nr_calls);
 *		}
 *	}
 *	TEST_HARNESS_MAIN
 *
 * ASSERT_* ends the test at once (the fixture's teardown still runs), EXPECT_* notes the failure
 * and goes on; both print the two values, and take a block that runs on failure. What the child
 * prints, on either stream, appears as TAP comments; a leak or error found by a sanitizer fails
 * the test. A child that exits by itself before its end has failed.
 *
 * Program: [-l] [-t NAME]... [-h]. Exit status: 0 all passed, 1 a test failed or the call was
 * wrong, 4 all tests were skipped or none was chosen.
 */
#ifndef TARN_TESTS_HARNESS_H
#define TARN_TESTS_HARNESS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness_check.h"

enum {
	HARNESS_PASS = 0,
	HARNESS_SKIP = 4,
	HARNESS_TIMEOUT_S = 30,
	HARNESS_NAME_MAX = 256,
};

/* Sanitized code runs several times slower; time limits are stretched by this. */
#if defined(__SANITIZE_THREAD__)
enum { HARNESS_TIME_SCALE = 8 };
#elif defined(__SANITIZE_ADDRESS__)
enum { HARNESS_TIME_SCALE = 4 };
#else
enum { HARNESS_TIME_SCALE = 1 };
#endif

/* So are they on a slow machine: TARN_TEST_TIME_SCALE, which Python's tests read too. */
static inline int harness_limit(int seconds)
{
	const char *text = getenv("TARN_TEST_TIME_SCALE");
	const int scale = text ? atoi(text) : 1;

	return seconds *
	       (scale > HARNESS_TIME_SCALE ? scale : HARNESS_TIME_SCALE);
}

struct harness_variant {
	const char *name;
	const void *data;
	struct harness_variant *next;
};

struct harness_fixture {
	const char *name;
	struct harness_variant
		*variants; /* in the order of declaration; NULL: none */
	void (*setup)(void *self, const void *variant);
	void (*teardown)(void *self, const void *variant);
	size_t self_bytes;
};

struct harness_test {
	const char *name;
	struct harness_fixture *fixture; /* NULL for TEST() */
	void (*run)(void *self, const void *variant);
	int timeout_s;
	int signal; /* the signal the child must die of; 0: it must end by itself */
	struct harness_test *next;
};

static struct harness_test *harness_tests;

/* ---- declarations ------------------------------------------------------------------------- */

static inline void harness_add_test(struct harness_test *test)
{
	struct harness_test **end = &harness_tests;

	while (*end)
		end = &(*end)->next;
	*end = test;
}

static inline void harness_add_variant(struct harness_fixture *fixture,
				       struct harness_variant *variant)
{
	struct harness_variant **end = &fixture->variants;

	while (*end)
		end = &(*end)->next;
	*end = variant;
}

#define HARNESS_REGISTER(id, ...)                                            \
	static struct harness_test harness_test_##id = { __VA_ARGS__ };      \
	static void __attribute__((constructor)) harness_register_##id(void) \
	{                                                                    \
		harness_add_test(&harness_test_##id);                        \
	}

#define HARNESS_TEST(test_name, seconds, signo)                              \
	static void test_##test_name(void);                                  \
	static void harness_run_##test_name(void *self, const void *variant) \
	{                                                                    \
		(void)self;                                                  \
		(void)variant;                                               \
		test_##test_name();                                          \
	}                                                                    \
	HARNESS_REGISTER(test_name, .name = #test_name,                      \
			 .run = harness_run_##test_name,                     \
			 .timeout_s = (seconds), .signal = (signo))          \
	static void test_##test_name(void)

/* A test without fixture; with a signal it must die of; with a time limit in seconds. */
#define TEST(name) HARNESS_TEST(name, HARNESS_TIMEOUT_S, 0)
#define TEST_SIGNAL(name, signo) HARNESS_TEST(name, HARNESS_TIMEOUT_S, signo)
#define TEST_TIMEOUT(name, seconds) HARNESS_TEST(name, seconds, 0)

/*
 * FIXTURE(f) { members }; opens the state of f's tests, zeroed before each. FIXTURE_SETUP(f) and
 * FIXTURE_TEARDOWN(f) must both follow, with bodies that see `self` and `variant`. The teardown
 * runs in the child after the test, also after a failed ASSERT, but not when the setup failed or
 * skipped.
 */
#define FIXTURE(fixture_name)                                         \
	struct fixture_##fixture_name;                                \
	struct variant_##fixture_name;                                \
	static struct harness_fixture harness_fixture_##fixture_name; \
	struct fixture_##fixture_name

#define HARNESS_FIXTURE_STEP(fixture_name, step)                              \
	static void harness_##step##_##fixture_name(                          \
		struct fixture_##fixture_name *self,                          \
		const struct variant_##fixture_name *variant);                \
	static void harness_call_##step##_##fixture_name(void *self,          \
							 const void *variant) \
	{                                                                     \
		harness_##step##_##fixture_name(self, variant);               \
	}                                                                     \
	static void __attribute__((constructor))                              \
	harness_register_##step##_##fixture_name(void)                        \
	{                                                                     \
		harness_fixture_##fixture_name.name = #fixture_name;          \
		harness_fixture_##fixture_name.self_bytes =                   \
			sizeof(struct fixture_##fixture_name);                \
		harness_fixture_##fixture_name.step =                         \
			harness_call_##step##_##fixture_name;                 \
	}                                                                     \
	static void harness_##step##_##fixture_name(                          \
		struct fixture_##fixture_name *self __attribute__((unused)),  \
		const struct variant_##fixture_name *variant                  \
		__attribute__((unused)))

#define FIXTURE_SETUP(fixture_name) HARNESS_FIXTURE_STEP(fixture_name, setup)
#define FIXTURE_TEARDOWN(fixture_name) \
	HARNESS_FIXTURE_STEP(fixture_name, teardown)

/*
 * FIXTURE_VARIANT(f) { members }; then FIXTURE_VARIANT_ADD(f, name) { initialisers }; for each:
 * every test of f runs once per variant. Without any, tests run once and `variant` is NULL.
 */
#define FIXTURE_VARIANT(fixture_name) struct variant_##fixture_name
#define FIXTURE_VARIANT_ADD(fixture_name, variant_name)                        \
	static const struct variant_##fixture_name                             \
		harness_data_##fixture_name##_##variant_name;                  \
	static void __attribute__((constructor))                               \
	harness_register_variant_##fixture_name##_##variant_name(void)         \
	{                                                                      \
		static struct harness_variant variant = {                      \
			.name = #variant_name,                                 \
			.data = &harness_data_##fixture_name##_##variant_name, \
		};                                                             \
		harness_add_variant(&harness_fixture_##fixture_name,           \
				    &variant);                                 \
	}                                                                      \
	static const struct variant_##fixture_name                             \
		harness_data_##fixture_name##_##variant_name =

#define HARNESS_TEST_F(fixture_name, test_name, seconds, signo)              \
	static void test_##fixture_name##_##test_name(                       \
		struct fixture_##fixture_name *self,                         \
		const struct variant_##fixture_name *variant);               \
	static void harness_run_##fixture_name##_##test_name(                \
		void *self, const void *variant)                             \
	{                                                                    \
		test_##fixture_name##_##test_name(self, variant);            \
	}                                                                    \
	HARNESS_REGISTER(fixture_name##_##test_name, .name = #test_name,     \
			 .fixture = &harness_fixture_##fixture_name,         \
			 .run = harness_run_##fixture_name##_##test_name,    \
			 .timeout_s = (seconds), .signal = (signo))          \
	static void test_##fixture_name##_##test_name(                       \
		struct fixture_##fixture_name *self __attribute__((unused)), \
		const struct variant_##fixture_name *variant                 \
		__attribute__((unused)))

/* A test of a fixture; the others as for TEST(). */
#define TEST_F(fixture, name) \
	HARNESS_TEST_F(fixture, name, HARNESS_TIMEOUT_S, 0)
#define TEST_F_SIGNAL(fixture, name, signo) \
	HARNESS_TEST_F(fixture, name, HARNESS_TIMEOUT_S, signo)
#define TEST_F_TIMEOUT(fixture, name, seconds) \
	HARNESS_TEST_F(fixture, name, seconds, 0)

/* ---- the child ---------------------------------------------------------------------------- */

/* Runs one step up to its end or a failed ASSERT. Answers whether it came to its end. */
static inline bool harness_step(void (*step)(void *self, const void *variant),
				void *self, const void *variant)
{
	bool is_ended = false;

	harness_can_stop = 1;
	if (sigsetjmp(harness_stop, 0) == 0) {
		step(self, variant);
		is_ended = true;
	}
	harness_can_stop = 0;
	return is_ended;
}

static inline void harness_in_child(const struct harness_test *test,
				    const void *variant)
{
	const struct harness_fixture *fixture = test->fixture;
	void *self = NULL;

	harness_thread = pthread_self();
	if (fixture && !(self = calloc(1, fixture->self_bytes)))
		_exit(HARNESS_FAIL);
	if (fixture && fixture->setup) {
		if (!harness_step(fixture->setup, self, variant) ||
		    harness_result->is_skipped)
			goto out;
	}
	harness_step(test->run, self, variant);
	if (fixture && fixture->teardown)
		harness_step(fixture->teardown, self, variant);
out:
	free(self);
	harness_result->is_finished = 1;
	/* exit(), not _exit(): the leak sanitizer looks at exit. */
	exit(harness_result->nr_failed ? HARNESS_FAIL : HARNESS_PASS);
}

/* The child is in a process group of its own, so that what it leaves behind can be ended. */
static inline void harness_prepare_child(const struct harness_test *test,
					 pid_t parent, int out)
{
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(HARNESS_FAIL);
	int null = open("/dev/null", O_RDONLY);

	if (null >= 0 && null != STDIN_FILENO) {
		dup2(null, STDIN_FILENO);
		close(null);
	}
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	if (out > STDERR_FILENO)
		close(out);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (test->signal) {
		/* A sanitizer's handler would turn the signal into an exit status. */
		struct rlimit none = { 0, 0 };

		signal(test->signal, SIG_DFL);
		setrlimit(RLIMIT_CORE, &none);
	}
}

/* ---- the parent --------------------------------------------------------------------------- */

static inline long long harness_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Copies what the child wrote to standard output as comments. Answers false at its end. */
static inline bool harness_relay(int fd, bool *is_line_start)
{
	char text[HARNESS_LINE_MAX];
	ssize_t nr = read(fd, text, sizeof(text));

	if (nr < 0)
		return errno == EAGAIN || errno == EINTR;
	for (ssize_t i = 0; i < nr; i++) {
		if (*is_line_start)
			fputs("# ", stdout);
		*is_line_start = text[i] == '\n';
		putchar(text[i]);
	}
	return nr > 0;
}

/*
 * Waits for the child while relaying its output. The output may stay open after the child's end,
 * in a process it started; then what is there is read and no more waited for.
 * Return: 0 with *out_status set, or -ETIMEDOUT after the child was killed.
 */
static inline int harness_wait(pid_t pid, int fd, int timeout_s,
			       int *out_status)
{
	long long deadline = harness_now_ms() + timeout_s * 1000LL;
	bool is_open = true, is_line_start = true;
	int err = 0;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (;;) {
		struct pollfd pfd = { .fd = is_open ? fd : -1,
				      .events = POLLIN };

		/* 20 ms: the delay of noticing an end while somebody else holds the pipe. */
		poll(&pfd, 1, is_open ? 20 : 2);
		if (pfd.revents)
			is_open = harness_relay(fd, &is_line_start);
		if (waitpid(pid, out_status, WNOHANG) == pid)
			break;
		if (harness_now_ms() >= deadline) {
			kill(-pid, SIGKILL);
			kill(pid, SIGKILL);
			waitpid(pid, out_status, 0);
			err = -ETIMEDOUT;
			break;
		}
	}
	kill(-pid, SIGKILL);
	for (struct pollfd pfd = { .fd = fd, .events = POLLIN };
	     is_open && poll(&pfd, 1, 0) > 0 &&
	     harness_relay(fd, &is_line_start);)
		;
	if (!is_line_start)
		putchar('\n');
	return err;
}

static inline int harness_judge(const struct harness_test *test,
				const char *name, int err, int status)
{
	const struct harness_result *result = harness_result;
	int signo = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	if (err == -ETIMEDOUT) {
		printf("# %s: killed after its time limit of %d s\n", name,
		       harness_limit(test->timeout_s));
		return HARNESS_FAIL;
	}
	if (err) {
		printf("# %s: could not be run: %s\n", name, strerror(-err));
		return HARNESS_FAIL;
	}
	if (signo) {
		if (signo == test->signal && !result->nr_failed)
			return HARNESS_PASS;
		printf("# %s: died of signal %d (%s)\n", name, signo,
		       strsignal(signo));
		return HARNESS_FAIL;
	}
	if (result->nr_failed) {
		printf("# %s: %d failed\n", name, result->nr_failed);
		return HARNESS_FAIL;
	}
	if (!result->is_finished || WEXITSTATUS(status) != 0) {
		printf("# %s: exited with status %d %s its end\n", name,
		       WEXITSTATUS(status),
		       result->is_finished ? "after" : "before");
		return HARNESS_FAIL;
	}
	if (result->is_skipped)
		return HARNESS_SKIP;
	if (test->signal) {
		printf("# %s: ended instead of dying of signal %d (%s)\n", name,
		       test->signal, strsignal(test->signal));
		return HARNESS_FAIL;
	}
	return HARNESS_PASS;
}

static inline int harness_run_one(const struct harness_test *test,
				  const char *name,
				  const struct harness_variant *variant)
{
	int out[2], status = 0, err;
	pid_t parent = getpid();

	memset(harness_result, 0, sizeof(*harness_result));
	harness_current = name;
	fflush(NULL);
	if (pipe2(out, O_CLOEXEC))
		return harness_judge(test, name, -errno, 0);
	pid_t pid = fork();

	if (pid == 0) {
		close(out[0]);
		harness_prepare_child(test, parent, out[1]);
		harness_in_child(test, variant ? variant->data : NULL);
	}
	err = pid < 0 ? -errno : 0;
	close(out[1]);
	if (!err) {
		setpgid(pid, pid);
		err = harness_wait(pid, out[0], harness_limit(test->timeout_s),
				   &status);
	}
	close(out[0]);
	return harness_judge(test, name, err, status);
}

/* The full name is fixture.variant.test, fixture.test without variants, or test. */
static inline void harness_full_name(const struct harness_test *test,
				     const struct harness_variant *variant,
				     char *out, size_t out_bytes)
{
	snprintf(out, out_bytes, "%s%s%s%s%s",
		 test->fixture ? test->fixture->name : "",
		 test->fixture ? "." : "", variant ? variant->name : "",
		 variant ? "." : "", test->name);
}

/* Chosen by a part of the full name, or of fixture.test for all variants; by default all are. */
static inline bool harness_is_chosen(const struct harness_test *test,
				     const char *name, char **names,
				     int nr_names)
{
	char plain[HARNESS_NAME_MAX];

	harness_full_name(test, NULL, plain, sizeof(plain));
	for (int i = 0; i < nr_names; i++) {
		if (strstr(name, names[i]) || strstr(plain, names[i]))
			return true;
	}
	return nr_names == 0;
}

struct harness_counts {
	int nr_chosen;
	int nr_passed;
	int nr_failed;
	int nr_skipped;
};

static inline void harness_report(struct harness_counts *counts,
				  const char *name, int verdict)
{
	int number =
		counts->nr_passed + counts->nr_failed + counts->nr_skipped + 1;

	if (verdict == HARNESS_SKIP) {
		counts->nr_skipped++;
		printf("ok %d - %s # SKIP %s\n", number, name,
		       harness_result->reason);
	} else if (verdict == HARNESS_PASS) {
		counts->nr_passed++;
		printf("ok %d - %s\n", number, name);
	} else {
		counts->nr_failed++;
		printf("not ok %d - %s\n", number, name);
	}
	fflush(stdout);
}

enum harness_walk { HARNESS_COUNT, HARNESS_LIST, HARNESS_RUN };

/* Goes through the chosen tests times their variants, in the order of declaration. */
static inline void harness_walk(enum harness_walk what, char **names,
				int nr_names, struct harness_counts *counts)
{
	for (const struct harness_test *test = harness_tests; test;
	     test = test->next) {
		const struct harness_variant *variant =
			test->fixture ? test->fixture->variants : NULL;

		do {
			char name[HARNESS_NAME_MAX];

			harness_full_name(test, variant, name, sizeof(name));
			if (!harness_is_chosen(test, name, names, nr_names))
				continue;
			if (what == HARNESS_COUNT)
				counts->nr_chosen++;
			else if (what == HARNESS_LIST)
				puts(name);
			else
				harness_report(counts, name,
					       harness_run_one(test, name,
							       variant));
		} while (variant && (variant = variant->next));
	}
}

static inline int harness_main(int argc, char **argv)
{
	struct harness_counts counts = { 0 };
	char *names[argc];
	int nr_names = 0, option;
	bool is_list = false;

	while ((option = getopt(argc, argv, "lt:h")) != -1) {
		if (option == 'l') {
			is_list = true;
		} else if (option == 't') {
			names[nr_names++] = optarg;
		} else {
			fprintf(option == 'h' ? stdout : stderr,
				"usage: %s [-l] [-t NAME]...\n"
				"  -l       list the tests\n"
				"  -t NAME  run the tests whose name contains NAME\n",
				argv[0]);
			return option == 'h' ? HARNESS_PASS : HARNESS_FAIL;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "%s: unexpected argument '%s' (see -h)\n",
			argv[0], argv[optind]);
		return HARNESS_FAIL;
	}
	if (is_list) {
		harness_walk(HARNESS_LIST, names, nr_names, &counts);
		return HARNESS_PASS;
	}
	harness_result = mmap(NULL, sizeof(*harness_result),
			      PROT_READ | PROT_WRITE,
			      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (harness_result == MAP_FAILED) {
		fprintf(stderr, "%s: no memory for the result\n", argv[0]);
		return HARNESS_FAIL;
	}
	harness_walk(HARNESS_COUNT, names, nr_names, &counts);
	printf("TAP version 13\n1..%d%s\n", counts.nr_chosen,
	       counts.nr_chosen ? "" : " # SKIP no test of this name");
	harness_walk(HARNESS_RUN, names, nr_names, &counts);
	printf("# %d passed, %d failed, %d skipped\n", counts.nr_passed,
	       counts.nr_failed, counts.nr_skipped);
	munmap(harness_result, sizeof(*harness_result));
	if (counts.nr_failed)
		return HARNESS_FAIL;
	return counts.nr_passed ? HARNESS_PASS : HARNESS_SKIP;
}

#define TEST_HARNESS_MAIN                        \
	int main(int argc, char **argv)          \
	{                                        \
		return harness_main(argc, argv); \
	}

#endif /* TARN_TESTS_HARNESS_H */

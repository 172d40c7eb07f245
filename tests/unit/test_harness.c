/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The harness tested by itself: the tests called specimen are hidden unless the first argument is
 * "specimens"; the others run this program again on one of them and look at status and output.
 */
#include "tests/harness.h"

#include <math.h>

static const char *own_path = "/proc/self/exe";

/* ---- specimens ---------------------------------------------------------------------------- */

FIXTURE(specimen)
{
	int value;
};

FIXTURE_SETUP(specimen)
{
	self->value = 7;
}

FIXTURE_TEARDOWN(specimen)
{
	printf("teardown ran with %d\n", self->value);
}

TEST_F(specimen, passes)
{
	EXPECT_EQ(7, self->value);
}

TEST_F(specimen, assert_stops)
{
	self->value = 8;
	ASSERT_EQ(7, self->value);
	printf("went on after ASSERT\n");
}

TEST_F(specimen, expect_goes_on)
{
	EXPECT_EQ(9, self->value)
	{
		TH_LOG("the block ran");
	}
	printf("went on after EXPECT\n");
}

TEST_F(specimen, crashes)
{
	signal(SIGSEGV, SIG_DFL);
	raise(SIGSEGV);
}

TEST_F_TIMEOUT(specimen, hangs, 1)
{
	for (;;)
		pause();
}

TEST_F(specimen, exits_early)
{
	_exit(0);
}

TEST_F(specimen, is_skipped)
{
	SKIP(return, "no %s here", "moon");
}

TEST_F(specimen, fails_then_skips)
{
	EXPECT_TRUE(false);
	SKIP(return, "after a failure");
}

TEST_F_SIGNAL(specimen, dies_as_wanted, SIGUSR1)
{
	raise(SIGUSR1);
}

TEST_F_SIGNAL(specimen, survives_against_its_word, SIGUSR1)
{
}

static void *assert_in_thread(void *arg)
{
	(void)arg;
	ASSERT_TRUE(false);
	return NULL;
}

TEST_F(specimen, thread_asserts)
{
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, assert_in_thread, NULL));
	pthread_join(thread, NULL);
	printf("went on after the thread\n");
}

TEST_F(specimen, leaves_a_process)
{
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (pid == 0) {
		for (;;)
			pause();
	}
}

TEST_F(specimen, leaks)
{
	volatile char *p = malloc(1000);

	p[0] = 1;
	p = NULL;
}

FIXTURE(specimen_setup)
{
	int unused;
};

FIXTURE_SETUP(specimen_setup)
{
	ASSERT_TRUE(self->unused);
}

FIXTURE_TEARDOWN(specimen_setup)
{
	printf("teardown ran\n");
}

TEST_F(specimen_setup, is_not_run)
{
	printf("body ran\n");
}

/* ---- running a specimen ------------------------------------------------------------------- */

FIXTURE(harness)
{
	char output[16384];
	int status; /* the exit status; -1: it did not exit */
};

FIXTURE_SETUP(harness)
{
}

FIXTURE_TEARDOWN(harness)
{
}

/* Runs this program with the arguments, its output taken. */
static void run_self(struct fixture_harness *self, char *const argv[])
{
	int out[2], status;
	size_t len = 0;
	ssize_t nr;

	self->status = -1;
	ASSERT_EQ(0, pipe(out));
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (pid == 0) {
		dup2(out[1], STDOUT_FILENO);
		dup2(out[1], STDERR_FILENO);
		close(out[0]);
		close(out[1]);
		execv(own_path, argv);
		_exit(127);
	}
	close(out[1]);
	while (len < sizeof(self->output) - 1 &&
	       (nr = read(out[0], self->output + len,
			  sizeof(self->output) - 1 - len)) > 0)
		len += nr;
	self->output[len] = '\0';
	close(out[0]);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	if (WIFEXITED(status))
		self->status = WEXITSTATUS(status);
}

static void run_specimen(struct fixture_harness *self, const char *name)
{
	run_self(self, (char *[]){ "test_harness", "specimens", "-t",
				   (char *)name, NULL });
}

#define EXPECT_OUTPUT(part)                                  \
	EXPECT_TRUE(strstr(self->output, part))              \
	{                                                    \
		TH_LOG("the output was:\n%s", self->output); \
	}
#define EXPECT_NO_OUTPUT(part)                               \
	EXPECT_FALSE(strstr(self->output, part))             \
	{                                                    \
		TH_LOG("the output was:\n%s", self->output); \
	}

TEST_F(harness, passing_test_is_ok)
{
	run_specimen(self, "specimen.passes");
	EXPECT_EQ(HARNESS_PASS, self->status);
	EXPECT_OUTPUT("TAP version 13\n1..1\n");
	EXPECT_OUTPUT("\nok 1 - specimen.passes\n");
	EXPECT_OUTPUT("# teardown ran with 7\n");
}

TEST_F(harness, failed_assert_stops_and_tears_down)
{
	run_specimen(self, "specimen.assert_stops");
	EXPECT_EQ(HARNESS_FAIL, self->status);
	EXPECT_OUTPUT("\nnot ok 1 - specimen.assert_stops\n");
	EXPECT_OUTPUT("expected 7 == self->value; the values are 7 and 8\n");
	EXPECT_NO_OUTPUT("went on after ASSERT");
	EXPECT_OUTPUT("# teardown ran with 8\n");
}

TEST_F(harness, failed_expect_goes_on)
{
	run_specimen(self, "specimen.expect_goes_on");
	EXPECT_EQ(HARNESS_FAIL, self->status);
	EXPECT_OUTPUT("\nnot ok 1 - specimen.expect_goes_on\n");
	EXPECT_OUTPUT("the block ran");
	EXPECT_OUTPUT("# went on after EXPECT\n");
}

TEST_F(harness, crash_is_a_failure)
{
	run_specimen(self, "specimen.crashes");
	EXPECT_EQ(HARNESS_FAIL, self->status);
	EXPECT_OUTPUT("\nnot ok 1 - specimen.crashes\n");
	EXPECT_OUTPUT("died of signal 11");
}

TEST_F(harness, timeout_is_a_failure)
{
	long long start = harness_now_ms();

	run_specimen(self, "specimen.hangs");
	EXPECT_EQ(HARNESS_FAIL, self->status);
	EXPECT_OUTPUT("\nnot ok 1 - specimen.hangs\n");
	EXPECT_OUTPUT("killed after its time limit");
	EXPECT_GE(harness_now_ms() - start, 1000);
}

TEST_F(harness, exit_before_the_end_is_a_failure)
{
	run_specimen(self, "specimen.exits_early");
	EXPECT_EQ(HARNESS_FAIL, self->status);
	EXPECT_OUTPUT("\nnot ok 1 - specimen.exits_early\n");
}

TEST_F(harness, skip_carries_its_reason)
{
	run_specimen(self, "specimen.is_skipped");
	EXPECT_EQ(HARNESS_SKIP, self->status);
	EXPECT_OUTPUT("\nok 1 - specimen.is_skipped # SKIP no moon here\n");
}

TEST_F(harness, skip_does_not_hide_a_failure)
{
	run_specimen(self, "specimen.fails_then_skips");
	EXPECT_EQ(HARNESS_FAIL, self->status);
	EXPECT_OUTPUT("\nnot ok 1 - specimen.fails_then_skips\n");
}

TEST_F(harness, wanted_signal_passes)
{
	run_specimen(self, "specimen.dies_as_wanted");
	EXPECT_EQ(HARNESS_PASS, self->status);
}

TEST_F(harness, missing_signal_fails)
{
	run_specimen(self, "specimen.survives_against_its_word");
	EXPECT_EQ(HARNESS_FAIL, self->status);
	EXPECT_OUTPUT("ended instead of dying");
}

TEST_F(harness, assert_in_a_thread_ends_the_test)
{
	run_specimen(self, "specimen.thread_asserts");
	EXPECT_EQ(HARNESS_FAIL, self->status);
	EXPECT_NO_OUTPUT("went on after the thread");
}

/* The process inherits the writing end: the reading end closes when it ends. */
TEST_F(harness, process_left_behind_is_ended)
{
	int life[2];

	ASSERT_EQ(0, pipe(life));
	run_specimen(self, "specimen.leaves_a_process");
	EXPECT_EQ(HARNESS_PASS, self->status);
	close(life[1]);
	struct pollfd pfd = { .fd = life[0], .events = POLLIN };

	EXPECT_EQ(1, poll(&pfd, 1, 5000));
	EXPECT_TRUE(pfd.revents & POLLHUP);
	close(life[0]);
}

TEST_F(harness, leak_fails_under_the_address_sanitizer)
{
#ifndef __SANITIZE_ADDRESS__
	SKIP(return, "not built with the address sanitizer");
#endif
	run_specimen(self, "specimen.leaks");
	EXPECT_EQ(HARNESS_FAIL, self->status);
	EXPECT_OUTPUT("\nnot ok 1 - specimen.leaks\n");
}

TEST_F(harness, failed_setup_fails_the_test)
{
	run_specimen(self, "specimen_setup.is_not_run");
	EXPECT_EQ(HARNESS_FAIL, self->status);
	EXPECT_NO_OUTPUT("body ran");
	EXPECT_NO_OUTPUT("teardown ran");
}

TEST_F(harness, unknown_name_runs_nothing)
{
	run_specimen(self, "no such test");
	EXPECT_EQ(HARNESS_SKIP, self->status);
	EXPECT_OUTPUT("1..0");
}

TEST_F(harness, unknown_option_is_refused)
{
	run_self(self, (char *[]){ "test_harness", "-x", NULL });
	EXPECT_EQ(HARNESS_FAIL, self->status);
}

TEST_F(harness, list_names_each_variant)
{
	run_self(self,
		 (char *[]){ "test_harness", "-l", "-t", "varied.", NULL });
	EXPECT_EQ(HARNESS_PASS, self->status);
	EXPECT_STREQ("varied.one.variant_is_seen\nvaried.two.variant_is_seen\n",
		     self->output);
}

/* ---- variants and comparisons ------------------------------------------------------------- */

FIXTURE(varied)
{
	int twice;
};

FIXTURE_VARIANT(varied)
{
	int number;
};

FIXTURE_VARIANT_ADD(varied, one){
	.number = 1,
};

FIXTURE_VARIANT_ADD(varied, two){
	.number = 2,
};

FIXTURE_SETUP(varied)
{
	self->twice = 2 * variant->number;
}

FIXTURE_TEARDOWN(varied)
{
}

TEST_F(varied, variant_is_seen)
{
	EXPECT_TRUE(variant->number == 1 || variant->number == 2);
	EXPECT_EQ(variant->number + variant->number, self->twice);
}

TEST(values_compare_by_value)
{
	struct {
		unsigned int narrow : 3;
	} bits = { 5 };
	struct opaque *null = NULL;
	double nan_value = NAN;

	EXPECT_EQ(5, bits.narrow);
	EXPECT_EQ(-1, (signed char)-1);
	EXPECT_NE(-1, UINT32_MAX);
	EXPECT_NE(-1, UINT64_MAX);
	EXPECT_LT(-1, 0u);
	EXPECT_GT(UINT64_MAX, INT64_MAX);
	EXPECT_LE(INT64_MIN, INT64_MIN);
	EXPECT_EQ(NULL, null);
	EXPECT_NE(nan_value, nan_value);
	EXPECT_EQ(0.5f, 0.5);
	EXPECT_EQ(2, harness_order(HARNESS_VALUE(nan_value), HARNESS_VALUE(1)));
	EXPECT_EQ(1, harness_near("self", 0, NAN, 1, 10, "a", "b"));
	harness_result->nr_failed--;
}

TEST(check_is_one_statement)
{
	int nr_else = 0;

	if (nr_else)
		EXPECT_TRUE(false);
	else
		nr_else++;
	EXPECT_EQ(1, nr_else);
}

TEST(strings_and_memory_compare)
{
	EXPECT_STREQ("a", "a");
	EXPECT_STRNE("a", "b");
	EXPECT_STRNE("a", NULL);
	EXPECT_MEMEQ("abc", "abd", 2);
	EXPECT_NEAR(1.0, 1.25, 0.25);
}

/* Keeps the specimens, or all but them. */
static void choose(bool is_specimens)
{
	struct harness_test **link = &harness_tests;

	while (*link) {
		const struct harness_fixture *fixture = (*link)->fixture;
		bool is_one = fixture &&
			      strncmp(fixture->name, "specimen", 8) == 0;

		if (is_one == is_specimens)
			link = &(*link)->next;
		else
			*link = (*link)->next;
	}
}

int main(int argc, char **argv)
{
	bool is_specimens = argc > 1 && strcmp(argv[1], "specimens") == 0;

	choose(is_specimens);
	return harness_main(argc - is_specimens, argv + is_specimens);
}

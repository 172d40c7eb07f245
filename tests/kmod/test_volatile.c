/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ADVISE and purging: votes, what a touch of volatile memory meets, the system
 * taking all of it, readers and look-ups against a purge, memory cgroups.
 */
#include "tests/kmod/kit.h"

enum { BUF_BYTES = 4 * MIB, NR_MARKS = 4096 };

FIXTURE(volatile)
{
	int dev, pool, buf; /* BUF_BYTES of 0x41 */
	uint64_t id;
	uint8_t *at;
};

static void fill(int buf, size_t bytes, uint8_t byte)
{
	uint8_t *at = buf_map(buf, bytes, RW);

	buf_commit_ok(buf, 0, bytes);
	memset(at, byte, bytes);
	munmap(at, bytes);
}

FIXTURE_SETUP(volatile)
{
	self->dev = dev_open();
	if (self->dev < 0)
		return;
	self->pool = pool_new(self->dev, POOL_BYTES);
	self->buf = buf_new_id(self->pool, BUF_BYTES, &self->id);
	fill(self->buf, BUF_BYTES, 0x41);
	self->at = buf_map(self->buf, BUF_BYTES, RW);
}

FIXTURE_TEARDOWN(volatile)
{
	munmap(self->at, BUF_BYTES);
	close(self->buf);
	close(self->pool);
	close(self->dev);
}

static void purge_all(int pool)
{
	uint64_t bytes;

	ASSERT_EQ(0, _pool_trim(pool, KVPOOL_UNLIMITED, &bytes));
}

/* ---- votes --------------------------------------------------------------- */

TEST_F(volatile, advice_must_be_known)
{
	buf_advise_err(EINVAL, self->buf, 2);
	buf_advise_err(EINVAL, self->buf, ~0U);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_votes);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_state);
}

TEST_F(volatile, a_touch_is_a_bus_error)
{
	buf_volatile_ok(self->buf);
	EXPECT_EQ(KVPOOL_BUF_VOLATILE, buf_stat_of(self->buf).out_state);
	EXPECT_EQ(BUF_BYTES, stat_of(self->pool).out_volatile);
	touch_err(SIGBUS, self->at);
	poke_err(SIGBUS, self->at + BUF_BYTES - 1);
	charged_ok(self->pool, BUF_BYTES);
}

TEST_F(volatile, content_that_survived_is_there_again)
{
	uint32_t survived;

	buf_volatile_ok(self->buf);
	buf_willneed_ok(self->buf, &survived);
	EXPECT_EQ(1, survived);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_state);
	EXPECT_EQ(0, stat_of(self->pool).out_volatile);
	EXPECT_TRUE(is_filled(self->at, 0x41, BUF_BYTES));
	/* Once more, twice the same word. */
	buf_volatile_ok(self->buf);
	buf_volatile_ok(self->buf);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_nr_votes);
	buf_willneed_ok(self->buf, &survived);
	buf_willneed_ok(self->buf, &survived);
	EXPECT_EQ(1, survived);
	EXPECT_EQ(1, buf_stat_of(self->buf).out_nr_votes);
	EXPECT_TRUE(is_filled(self->at, 0x41, BUF_BYTES));
}

TEST_F(volatile, one_vote_is_enough_to_keep_it)
{
	int fd;

	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	EXPECT_EQ(2, buf_stat_of(fd).out_nr_votes);
	buf_volatile_ok(self->buf);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_state);
	purge_all(self->pool);
	EXPECT_TRUE(is_filled(self->at, 0x41, BUF_BYTES));
	buf_volatile_ok(fd);
	EXPECT_EQ(KVPOOL_BUF_VOLATILE, buf_stat_of(fd).out_state);
	purge_all(self->pool);
	EXPECT_EQ(KVPOOL_BUF_VOLATILE | KVPOOL_BUF_PURGED,
		  buf_stat_of(fd).out_state);
	charged_ok(self->pool, 0);
}

TEST_F(volatile, a_description_that_closes_takes_its_vote_along)
{
	uint64_t bytes;
	int fd;

	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	buf_volatile_ok(self->buf);
	close(fd);
	EXPECT_EQ(KVPOOL_BUF_VOLATILE, buf_stat_of(self->buf).out_state);
	ASSERT_EQ(0, _pool_trim(self->pool, 1, &bytes));
	EXPECT_EQ(BUF_BYTES, bytes);
}

TEST_F(volatile, a_duplicate_has_no_vote_of_its_own)
{
	int fd = dup(self->buf);

	EXPECT_EQ(1, buf_stat_of(fd).out_nr_votes);
	buf_volatile_ok(fd);
	EXPECT_EQ(KVPOOL_BUF_VOLATILE, buf_stat_of(self->buf).out_state);
}

/* ---- lost content -------------------------------------------------------- */

TEST_F(volatile, lost_content_is_told_and_a_writer_begins_anew)
{
	uint32_t survived;

	buf_volatile_ok(self->buf);
	purge_all(self->pool);
	touch_err(SIGBUS, self->at);
	buf_willneed_ok(self->buf, &survived);
	EXPECT_EQ(0, survived);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_state);
	charged_ok(self->pool, 0);
	EXPECT_TRUE(is_filled(self->at, 0, 2 * PAGE));
	poke_ok(self->at, 1);
	/* From now on it is there. */
	buf_volatile_ok(self->buf);
	buf_willneed_ok(self->buf, &survived);
	EXPECT_EQ(1, survived);
}

TEST_F(volatile, a_sealed_buffer_that_was_lost_is_open_again)
{
	uint32_t survived;

	munmap(self->at, BUF_BYTES);
	buf_seal_ok(self->buf, BUF_BYTES);
	buf_volatile_ok(self->buf);
	purge_all(self->pool);
	buf_willneed_ok(self->buf, &survived);
	EXPECT_EQ(0, survived);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_sealed);
	self->at = buf_map(self->buf, BUF_BYTES, RW);
	poke_ok(self->at, 1);
}

TEST_F(volatile, a_reader_cannot_begin_anew)
{
	uint32_t survived;
	int fd;

	buf_open_ok(self->pool, self->id, KVPOOL_READ, &fd);
	buf_volatile_ok(self->buf);
	buf_volatile_ok(fd);
	purge_all(self->pool);
	buf_willneed_ok(fd, &survived);
	EXPECT_EQ(0, survived);
	EXPECT_TRUE(buf_stat_of(fd).out_state & KVPOOL_BUF_PURGED);
	poke_err(SIGBUS, self->at);
	buf_commit_err(EPERM, self->buf, 0, PAGE);
	buf_willneed_ok(self->buf, &survived);
	EXPECT_EQ(0, survived);
	buf_commit_ok(self->buf, 0, PAGE);
	poke_ok(self->at, 1);
	/* The reader is told that what it knew is lost, still. */
	buf_volatile_ok(fd);
	buf_willneed_ok(fd, &survived);
	uint8_t *seen = buf_map(fd, PAGE, PROT_READ);

	EXPECT_EQ(1, *seen);
}

TEST_F(volatile, a_look_up_does_not_see_what_comes_after_the_loss)
{
	struct kvpool_buf_clone c = clone_args(self->pool, PAGE, PAGE);
	struct kvpool_buf_lookup found;
	uint32_t survived;

	munmap(self->at, BUF_BYTES);
	buf_seal_ok(self->buf, BUF_BYTES);
	buf_publish_ok(self->buf, 1, BUF_BYTES);
	buf_lookup_ok(self->pool, 1, &found);
	uint8_t *seen = buf_map(found.out_fd, BUF_BYTES, PROT_READ);

	touch_ok(seen);
	buf_volatile_ok(found.out_fd);
	buf_volatile_ok(self->buf);
	purge_all(self->pool);
	/* The owner fills it again, with what he tells nobody. */
	buf_willneed_ok(self->buf, &survived);
	fill(self->buf, BUF_BYTES, 0x99);
	buf_willneed_ok(found.out_fd, &survived);
	EXPECT_EQ(0, survived);
	touch_err(SIGBUS, seen);
	buf_clone_err(EPERM, found.out_fd, &c);
	/* Nor does it hold for him what it may not see. */
	buf_volatile_ok(self->buf);
	EXPECT_EQ(KVPOOL_BUF_VOLATILE, buf_stat_of(self->buf).out_state);
}

TEST_F(volatile, a_mapping_of_what_is_lost_has_nothing_to_touch)
{
	uint8_t *at;

	buf_volatile_ok(self->buf);
	at = buf_map(self->buf, BUF_BYTES, RW);
	touch_err(SIGBUS, at);
	purge_all(self->pool);
	touch_err(SIGBUS, at);
	munmap(at, BUF_BYTES);
	at = buf_map(self->buf, BUF_BYTES, PROT_READ);
	touch_err(SIGBUS, at);
	charged_ok(self->pool, 0);
}

TEST_F(volatile, an_opener_finds_no_purged_buffer)
{
	buf_volatile_ok(self->buf);
	purge_all(self->pool);
	buf_open_err(ENOENT, self->pool, self->id, KVPOOL_READ);
}

TEST_F(volatile, an_allocation_at_the_limit_takes_it)
{
	int other = buf_new(self->pool, BUF_BYTES);

	pool_set_limit_ok(self->pool, BUF_BYTES);
	buf_commit_err(ENOSPC, other, 0, PAGE);
	buf_volatile_ok(self->buf);
	buf_commit_ok(other, 0, BUF_BYTES);
	charged_ok(self->pool, BUF_BYTES);
	EXPECT_EQ(1, stat_of(self->pool).out_purges);
}

TEST_F(volatile, an_allocation_at_the_quota_takes_ones_own)
{
	int other = buf_new(self->pool, BUF_BYTES);

	pool_set_quota_ok(self->pool, geteuid(), BUF_BYTES, 0);
	buf_commit_err(EDQUOT, other, 0, PAGE);
	buf_volatile_ok(self->buf);
	buf_commit_ok(other, 0, PAGE);
	EXPECT_EQ(0, buf_stat_of(self->buf).out_resident);
}

TEST_F(volatile, a_pinned_buffer_stays_whole)
{
	/* The last page: a purge has had all others in its hands by then. */
	struct iovec iov = { self->at + BUF_BYTES - PAGE, PAGE };
	uint32_t survived;
	int fds[2];

	ASSERT_EQ(0, pipe(fds));
	ASSERT_EQ(PAGE, vmsplice(fds[1], &iov, 1, 0));
	buf_volatile_ok(self->buf);
	purge_all(self->pool);
	buf_willneed_ok(self->buf, &survived);
	EXPECT_EQ(1, survived);
	EXPECT_TRUE(is_filled(self->at, 0x41, BUF_BYTES));
}

TEST_F(volatile, what_a_clone_shares_survives)
{
	struct kvpool_buf_clone c =
		clone_args(self->pool, BUF_BYTES, BUF_BYTES);

	munmap(self->at, BUF_BYTES);
	self->at = buf_map(self->buf, BUF_BYTES, PROT_READ);
	buf_seal_ok(self->buf, BUF_BYTES);
	buf_clone_ok(self->buf, &c);
	buf_volatile_ok(self->buf);
	purge_all(self->pool);
	uint8_t *at = buf_map(c.out_fd, BUF_BYTES, PROT_READ);

	EXPECT_TRUE(is_filled(at, 0x41, BUF_BYTES));
	charged_ok(self->pool, BUF_BYTES);
}

/* ---- the system ---------------------------------------------------------- */

static void drop_caches(void)
{
	/* Once may leave what another processor's reclaim held locked. */
	for (int i = 0; i < 3; i++)
		ASSERT_EQ(0, file_write("/proc/sys/vm/drop_caches", "2"));
}

TEST_F(volatile, drop_caches_frees_all_of_it)
{
	enum { NR = 10 };
	int bufs[NR], kept = buf_new(self->pool, MIB);

	NEED_ROOT();
	fill(kept, MIB, 0x51);
	for (int i = 0; i < NR; i++) {
		bufs[i] = buf_new(self->pool, BUF_BYTES);
		fill(bufs[i], BUF_BYTES, i);
		buf_volatile_ok(bufs[i]);
	}
	buf_volatile_ok(self->buf);
	EXPECT_EQ((NR + 1) * BUF_BYTES, stat_of(self->pool).out_volatile);
	drop_caches();
	EXPECT_EQ(0, stat_of(self->pool).out_volatile);
	charged_ok(self->pool, MIB);
	uint8_t *at = buf_map(kept, MIB, PROT_READ);

	EXPECT_TRUE(is_filled(at, 0x51, MIB));
}

TEST_F(volatile, drop_caches_takes_published_ones_too)
{
	struct kvpool_buf_lookup found;

	NEED_ROOT();
	munmap(self->at, BUF_BYTES);
	self->at = buf_map(self->buf, BUF_BYTES, PROT_READ);
	buf_seal_ok(self->buf, BUF_BYTES);
	buf_publish_ok(self->buf, 1, BUF_BYTES);
	munmap(self->at, BUF_BYTES);
	close(self->buf);
	charged_ok(self->pool, BUF_BYTES);
	drop_caches();
	charged_ok(self->pool, 0);
	EXPECT_EQ(-ENOENT, _buf_lookup(self->pool, 1, &found));
	EXPECT_EQ(0, stat_of(self->pool).out_nr_keys);
}

/* A clone of all of the fixture's buffer, which is sealed first. */
static int clone_whole(int pool, int buf)
{
	struct kvpool_buf_clone c = clone_args(pool, BUF_BYTES, BUF_BYTES);

	buf_seal_ok(buf, BUF_BYTES);
	buf_clone_ok(buf, &c);
	EXPECT_EQ(BUF_BYTES, c.out_shared);
	return c.out_fd;
}

TEST_F(volatile, drop_caches_takes_what_a_clone_shared_once)
{
	NEED_ROOT();
	munmap(self->at, BUF_BYTES);
	int clone = clone_whole(self->pool, self->buf);

	buf_volatile_ok(self->buf);
	EXPECT_EQ(0, stat_of(self->pool).out_volatile);
	close(clone);
	EXPECT_EQ(BUF_BYTES, stat_of(self->pool).out_volatile);
	drop_caches();
	charged_ok(self->pool, 0);
	EXPECT_EQ(0, stat_of(self->pool).out_volatile);
}

TEST_F(volatile, drop_caches_takes_what_only_volatile_buffers_share)
{
	uint32_t survived;

	NEED_ROOT();
	munmap(self->at, BUF_BYTES);
	int clone = clone_whole(self->pool, self->buf);

	buf_volatile_ok(self->buf);
	buf_volatile_ok(clone);
	EXPECT_EQ(BUF_BYTES, stat_of(self->pool).out_volatile);
	buf_willneed_ok(clone, &survived);
	EXPECT_EQ(1, survived);
	EXPECT_EQ(0, stat_of(self->pool).out_volatile);
	drop_caches();
	charged_ok(self->pool, BUF_BYTES);
	buf_volatile_ok(clone);
	drop_caches();
	charged_ok(self->pool, 0);
	EXPECT_EQ(0, stat_of(self->pool).out_volatile);
}

TEST_F(volatile, mem_available_counts_it)
{
	enum { NR = 12 };
	long long before, after, reclaimable;
	int bufs[NR];

	NEED_ROOT();
	drop_caches();
	for (int i = 0; i < NR; i++) {
		bufs[i] = buf_new(self->pool, BUF_BYTES);
		fill(bufs[i], BUF_BYTES, 1);
	}
	before = file_number("/proc/meminfo", "MemAvailable:");
	for (int i = 0; i < NR; i++)
		buf_volatile_ok(bufs[i]);
	EXPECT_EQ(NR * BUF_BYTES, stat_of(self->pool).out_volatile);
	after = file_number("/proc/meminfo", "MemAvailable:");
	/* In KiB; the rest of the system moves by some MiB. */
	EXPECT_GE(after - before, NR * BUF_BYTES / 1024 / 2);
	reclaimable = file_number("/proc/meminfo", "KReclaimable:");
	purge_all(self->pool);
	/*
	 * Counted no more. (Not as free either, for a while: the processors
	 * keep lists of pages just freed, so MemAvailable says nothing here.)
	 */
	EXPECT_LE(file_number("/proc/meminfo", "KReclaimable:"),
		  reclaimable - NR * BUF_BYTES / 1024 / 2);
}

TEST_F(volatile, an_event_tells_the_owner)
{
	struct kvpool_event_record record;

	buf_volatile_ok(self->buf);
	purge_all(self->pool);
	do
		record = event_next(self->pool, 1000);
	while (record.kind && record.kind != KVPOOL_EVENT_PURGED);
	EXPECT_EQ(KVPOOL_EVENT_PURGED, record.kind);
	EXPECT_EQ(self->id, record.id);
	EXPECT_EQ(BUF_BYTES, record.bytes);
	EXPECT_EQ(1, record.count);
}

TEST_F(volatile, an_event_is_not_told_to_others)
{
	struct kvpool_pool_create args = pool_args(MIB);
	struct turns bob = turns_new(), alice = turns_new();
	int fd;

	NEED_ROOT();
	args.mode = 0666;
	name_pool(&args, "events");
	pool_create_ok(self->dev, &args);
	pid_t pid_alice = child_start_as(ALICE);

	if (pid_alice == 0) {
		pool_open_ok(self->dev, args.name, KVPOOL_WRITE, &fd);
		tell_parent(&alice);
		await_parent(&alice);
		EXPECT_EQ(0, event_next(fd, 0).kind);
		child_end();
	}
	await_child(&alice);
	pid_t pid_bob = child_start_as(BOB);

	if (pid_bob == 0) {
		pool_open_ok(self->dev, args.name, KVPOOL_WRITE, &fd);
		int buf = buf_new(fd, PAGE);

		buf_commit_ok(buf, 0, PAGE);
		buf_volatile_ok(buf);
		tell_parent(&bob);
		await_parent(&bob);
		EXPECT_EQ(KVPOOL_EVENT_PURGED, event_next(fd, 1000).kind);
		child_end();
	}
	await_child(&bob);
	purge_all(args.out_fd);
	tell_child(&bob);
	child_ok(pid_bob);
	tell_child(&alice);
	child_ok(pid_alice);
	/* The pool's owner is told. */
	EXPECT_EQ(KVPOOL_EVENT_PURGED, event_next(args.out_fd, 1000).kind);
}

/* ---- against readers ----------------------------------------------------- */

struct purger {
	int pool;
	volatile bool is_stopped;
};

static void *purge_on(void *arg)
{
	struct purger *purger = arg;
	uint64_t bytes;

	while (!purger->is_stopped)
		_pool_trim(purger->pool, KVPOOL_UNLIMITED, &bytes);
	return NULL;
}

TEST_F(volatile, a_reader_sees_all_or_is_told)
{
	enum { ROUNDS = 60, BYTES = 32 * PAGE };
	struct purger purger = { .pool = self->pool };
	int nr_survived = 0, nr_lost = 0;
	pthread_t thread;
	int buf = buf_new(self->pool, BYTES);
	uint8_t *at = buf_map(buf, BYTES, RW);

	ASSERT_EQ(0, pthread_create(&thread, NULL, purge_on, &purger));
	for (int round = 1; round <= ROUNDS; round++) {
		uint32_t survived = 0;

		buf_commit_ok(buf, 0, BYTES);
		memset(at, round, BYTES);
		buf_volatile_ok(buf);
		if (round % 3 == 0)
			sleep_ms(1);
		buf_willneed_ok(buf, &survived);
		if (survived) {
			nr_survived++;
			EXPECT_TRUE(is_filled(at, round, BYTES));
		} else {
			nr_lost++;
			EXPECT_TRUE(is_filled(at, 0, BYTES));
		}
	}
	purger.is_stopped = true;
	pthread_join(thread, NULL);
	EXPECT_GT(nr_lost, 0);
	TH_LOG("survived %d, lost %d", nr_survived, nr_lost);
}

TEST_F(volatile, a_touch_races_with_a_purge)
{
	enum { ROUNDS = 40, BYTES = 16 * PAGE };
	struct purger purger = { .pool = self->pool };
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, purge_on, &purger));
	for (int round = 1; round <= ROUNDS; round++) {
		int buf = buf_new(self->pool, BYTES);
		uint8_t *at = buf_map(buf, BYTES, RW), byte = 0;

		buf_commit_ok(buf, 0, BYTES);
		memset(at, round, BYTES);
		buf_volatile_ok(buf);
		/* What nobody needs is a signal, never somebody's bytes. */
		for (int i = 0; i < 16; i++)
			EXPECT_EQ(-SIGBUS, _touch(at + i * PAGE, &byte));
		munmap(at, BYTES);
		close(buf);
	}
	purger.is_stopped = true;
	pthread_join(thread, NULL);
	charged_ok(self->pool, BUF_BYTES);
}

struct finder {
	int pool;
	volatile bool is_stopped;
	long nr_found;
};

static void *find_on(void *arg)
{
	struct finder *finder = arg;

	while (!finder->is_stopped) {
		struct kvpool_buf_lookup found;

		if (_buf_lookup(finder->pool, 7, &found))
			continue;
		uint8_t *at = buf_map(found.out_fd, found.out_n, PROT_READ);

		/* The vote came with the descriptor: it is whole. */
		EXPECT_TRUE(is_filled(at, 0x61, found.out_n));
		munmap(at, found.out_n);
		close(found.out_fd);
		finder->nr_found++;
	}
	return NULL;
}

TEST_F(volatile, a_look_up_races_with_a_purge)
{
	enum { ROUNDS = 100, BYTES = 8 * PAGE };
	struct finder finder = { .pool = self->pool };
	struct purger purger = { .pool = self->pool };
	pthread_t finding, purging;

	ASSERT_EQ(0, pthread_create(&finding, NULL, find_on, &finder));
	ASSERT_EQ(0, pthread_create(&purging, NULL, purge_on, &purger));
	for (int round = 0; round < ROUNDS; round++) {
		int buf = buf_sealed(self->pool, BYTES, 0x61);

		buf_publish_ok(buf, 7, BYTES);
		close(buf); /* volatile, unless somebody finds it now */
		if (round % 5 == 0)
			sleep_ms(1);
	}
	finder.is_stopped = true;
	pthread_join(finding, NULL);
	sleep_ms(10);
	purge_all(self->pool);
	purger.is_stopped = true;
	pthread_join(purging, NULL);
	purge_all(self->pool);
	charged_ok(self->pool, BUF_BYTES);
	EXPECT_EQ(0, stat_of(self->pool).out_nr_keys);
	TH_LOG("found %ld times", finder.nr_found);
}

/* ---- memory cgroups ------------------------------------------------------ */

static const char group[] = "/sys/fs/cgroup/kvpool-test-memory";

static int group_write(const char *file, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", group, file);
	return file_write(path, text);
}

static long long group_number(const char *file, const char *word)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", group, file);
	return file_number(path, word);
}

/* Return: whether there is a group of this size to go into. */
static bool group_make(const char *max)
{
	mkdir(group, 0755);
	return group_write("memory.max", max) == 0 &&
	       group_write("memory.swap.max", "0") != -ENOTDIR;
}

TEST_F(volatile, a_full_cgroup_takes_its_own_volatile_buffers)
{
	NEED_ROOT();
	if (!group_make("48M"))
		SKIP(return, "no memory controller at %s", group);
	long long kills = group_number("memory.events", "oom_kill ");
	pid_t pid = child_start();

	if (pid == 0) {
		ASSERT_EQ(0, group_write("cgroup.procs", "0"));
		int pool = pool_new(self->dev, 256 * MIB);

		/* Three times what the group may have. */
		for (int i = 0; i < 36; i++) {
			int buf = buf_new(pool, BUF_BYTES);

			fill(buf, BUF_BYTES, 1);
			buf_volatile_ok(buf);
		}
		EXPECT_GT(stat_of(pool).out_purges, 0);
		EXPECT_LE(charged(pool), 48 * MIB);
		/* The process's own memory pushes them out as well. */
		uint8_t *at = mmap(NULL, 24 * MIB, RW,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		memset(at, 1, 24 * MIB);
		EXPECT_LE(charged(pool), 24 * MIB);
		child_end();
	}
	child_ok(pid);
	EXPECT_EQ(kills, group_number("memory.events", "oom_kill "));
	/* The other pool was not in the group. */
	EXPECT_TRUE(is_filled(self->at, 0x41, BUF_BYTES));
	EXPECT_EQ(0, rmdir(group));
}

TEST_F(volatile, a_full_cgroup_without_any_is_a_clean_error)
{
	NEED_ROOT();
	if (!group_make("32M"))
		SKIP(return, "no memory controller at %s", group);
	long long kills = group_number("memory.events", "oom_kill ");
	pid_t pid = child_start();

	if (pid == 0) {
		ASSERT_EQ(0, group_write("cgroup.procs", "0"));
		int pool = pool_new(self->dev, 256 * MIB);
		int buf = buf_new(pool, 64 * MIB);

		buf_commit_err(ENOMEM, buf, 0, 64 * MIB);
		charged_ok(pool, 0);
		buf_commit_ok(buf, 32 * MIB, 8 * MIB);
		child_end();
	}
	child_ok(pid);
	EXPECT_EQ(kills, group_number("memory.events", "oom_kill "));
	EXPECT_EQ(0, rmdir(group));
}

/* Records are memory as well: so many that they alone fill the group. */
TEST_F_TIMEOUT(volatile, keys_in_a_full_cgroup_are_a_clean_error, 120)
{
	static struct kvpool_mark marks[NR_MARKS];

	NEED_ROOT();
	if (!group_make("16M"))
		SKIP(return, "no memory controller at %s", group);
	long long kills = group_number("memory.events", "oom_kill ");
	pid_t pid = child_start();

	if (pid == 0) {
		int err = 0, buf;

		ASSERT_EQ(0, group_write("cgroup.procs", "0"));
		buf = buf_sealed(pool_new(self->dev, MIB), PAGE, 1);
		for (uint32_t n = 0; n < 100 && !err; n++) {
			for (uint32_t i = 0; i < NR_MARKS; i++)
				marks[i] = mark_of(n * NR_MARKS + i, PAGE);
			err = _buf_publish(buf, marks, NR_MARKS);
		}
		EXPECT_EQ(-ENOMEM, err);
		child_end();
	}
	child_ok(pid);
	EXPECT_EQ(kills, group_number("memory.events", "oom_kill "));
	EXPECT_EQ(0, rmdir(group));
}

TEST_F(volatile, a_touch_for_a_full_cgroup_is_a_bus_error)
{
	NEED_ROOT();
	if (!group_make("32M"))
		SKIP(return, "no memory controller at %s", group);
	long long kills = group_number("memory.events", "oom_kill ");
	pid_t pid = child_start();

	if (pid == 0) {
		ASSERT_EQ(0, group_write("cgroup.procs", "0"));
		int pool = pool_new(self->dev, 256 * MIB);
		int buf = buf_new(pool, 64 * MIB);
		uint8_t *at = buf_map(buf, 64 * MIB, RW);

		/* What the process itself needs is paid by another group. */
		ASSERT_EQ(0, file_write("/sys/fs/cgroup/cgroup.procs", "0"));
		size_t done = poke_pages(at, 64 * MIB, 1);

		EXPECT_LT(done, 33 * MIB);
		EXPECT_GT(done, 16 * MIB);
		EXPECT_LE(charged(pool), 32 * MIB);
		touch_err(SIGBUS, at + done);
		/* What it has, it keeps using. */
		poke_ok(at, 2);
		buf_release_ok(buf, 0, 64 * MIB);
		charged_ok(pool, 0);
		buf_commit_ok(buf, 32 * MIB, 8 * MIB);
		child_end();
	}
	child_ok(pid);
	EXPECT_EQ(kills, group_number("memory.events", "oom_kill "));
	EXPECT_EQ(0, rmdir(group));
}

TEST_F(volatile, pages_are_charged_to_the_group_of_the_pool)
{
	NEED_ROOT();
	if (!group_make("max"))
		SKIP(return, "no memory controller at %s", group);
	struct turns turns = turns_new();
	int pair[2];

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid_t pid = child_start();

	if (pid == 0) {
		ASSERT_EQ(0, group_write("cgroup.procs", "0"));
		int pool = pool_new(self->dev, POOL_BYTES);

		fd_send(pair[1], pool);
		await_parent(&turns);
		child_end();
	}
	int pool = fd_receive(pair[0]);
	long long before = group_number("memory.current", "");

	/* Somebody outside the group fills it. */
	fill(buf_new(pool, 16 * MIB), 16 * MIB, 1);
	EXPECT_GE(group_number("memory.current", "") - before, 15 * MIB);
	close(pool);
	tell_child(&turns);
	child_ok(pid);
}

TEST_HARNESS_MAIN

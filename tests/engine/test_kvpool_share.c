/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvpool over each backend where others come in: publication and look-up by
 * key, descriptors between processes, hostile descriptors, purging of volatile
 * memory, events.
 */
#include "tests/engine/kvpool_kit.h"

/* ---- publication ---- */

TEST_F(kvpool, published_bytes_are_found_by_key)
{
	struct kvpool_key one = key_of(1), two = key_of(2), three = key_of(3);
	struct kvpool_buf *found = NULL;
	uint64_t n = 0;
	uid_t uid = 12345;

	EXPECT_EQ(-ENOENT, kvpool_lookup(self->pool, &one, &found, &n, &uid));
	publish_ok(self->buf);
	ASSERT_EQ(0, kvpool_lookup(self->pool, &one, &found, &n, &uid));
	EXPECT_EQ(PAGE, n);
	EXPECT_EQ(geteuid(), uid);
	EXPECT_EQ(kvpool_buf_id(self->buf), kvpool_buf_id(found));
	EXPECT_EQ(0x11, *(uint8_t *)kvpool_buf_addr(found));
	EXPECT_EQ(-EPERM, commit(found, 0, 1));
	EXPECT_EQ(-EPERM, kvpool_buf_release(found, 0, PAGE));
	EXPECT_EQ(-EPERM, kvpool_buf_seal(found, PAGE));
	EXPECT_EQ(-EPERM, kvpool_buf_unpublish(found));
	kvpool_buf_put(found);
	ASSERT_EQ(0, kvpool_lookup(self->pool, &two, &found, &n, NULL));
	EXPECT_EQ(2 * PAGE, n);
	kvpool_buf_put(found);
	EXPECT_EQ(-ENOENT, kvpool_lookup(self->pool, &three, &found, &n, NULL));
	struct kvpool_stat stat = stat_of(self->pool);

	EXPECT_EQ(2, stat.nr_keys);
	EXPECT_EQ(2 * PAGE, stat.shared_bytes);
	EXPECT_EQ(4, stat.lookups);
	EXPECT_EQ(2, stat.hits);
}

TEST_F(kvpool, publication_outlives_the_publisher_and_ends_by_unpublish)
{
	struct kvpool_key two = key_of(2);
	struct kvpool_buf *found;
	uint64_t n;

	publish_ok(self->buf);
	kvpool_buf_put(self->buf);
	self->buf = NULL;
	struct kvpool_stat stat = stat_of(self->pool);

	EXPECT_EQ(2 * PAGE, stat.resident_bytes);
	EXPECT_EQ(2 * PAGE, stat.volatile_bytes);
	ASSERT_EQ(0, kvpool_lookup(self->pool, &two, &found, &n, NULL));
	EXPECT_EQ(0, stat_of(self->pool).volatile_bytes);
	EXPECT_EQ(0x22, ((uint8_t *)kvpool_buf_addr(found))[PAGE]);
	kvpool_buf_put(found);

	struct kvpool_buf *buf = create_ok(self->pool, 8);

	EXPECT_EQ(-ENOENT, kvpool_buf_unpublish(buf));
	publish_ok(
		buf); /* the same keys: the newest counts, and the older one is gone */
	EXPECT_EQ(2, stat_of(self->pool).nr_keys);
	EXPECT_EQ(2 * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(0, kvpool_buf_unpublish(buf));
	EXPECT_EQ(-ENOENT, kvpool_buf_unpublish(buf));
	EXPECT_EQ(-ENOENT, kvpool_lookup(self->pool, &two, &found, &n, NULL));
	EXPECT_EQ(0x11, *(uint8_t *)kvpool_buf_addr(buf));
	kvpool_buf_put(buf);
	EXPECT_EQ(0, stat_of(self->pool).resident_bytes);
	/* Write-sealed for ever: it is not recycled. A device's protection can be lifted. */
	EXPECT_EQ(is_cuda() ? 4 * PAGE : 0, stat_of(self->pool).spare_bytes);
}

TEST_F(kvpool, publish_refuses_what_is_not_sealed)
{
	struct kvpool_mark mark = { key_of(1), PAGE };

	ASSERT_EQ(0, commit(self->buf, 0, 2));
	EXPECT_EQ(-EPERM, kvpool_buf_publish(self->buf, &mark, 1));
	ASSERT_EQ(0, kvpool_buf_seal(self->buf, PAGE));
	mark.n_bytes = 2 * PAGE;
	EXPECT_EQ(-EPERM, kvpool_buf_publish(self->buf, &mark, 1));
	mark.n_bytes = 0;
	EXPECT_EQ(-EINVAL, kvpool_buf_publish(self->buf, &mark, 1));
	EXPECT_EQ(-EINVAL, kvpool_buf_publish(self->buf, NULL, 1));
	EXPECT_EQ(-EINVAL, kvpool_buf_publish(self->buf, &mark, 0));
	EXPECT_EQ(0, stat_of(self->pool).nr_keys);
	/* What is not sealed is there, and can be written. */
	EXPECT_EQ(2 * PAGE, stat_of(self->pool).resident_bytes);
	bytes_of(self->buf)[PAGE] = 1;
}

TEST_F(kvpool, publish_protects_the_whole_buffer)
{
	publish_ok(self->buf);
	EXPECT_EQ(-EPERM, commit(self->buf, 10, 1));
	EXPECT_EQ(-EPERM, kvpool_buf_release(self->buf, 10 * PAGE, PAGE));
	EXPECT_EQ(-EPERM, kvpool_buf_seal(self->buf, 4 * PAGE));
	if (is_cuda())
		return; /* nothing keeps a process from its own GPU memory */
	EXPECT_EQ(-1, mprotect(kvpool_buf_addr(self->buf), PAGE,
			       PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
}

TEST_F_SIGNAL(kvpool, writing_published_memory_is_a_fault, SIGSEGV)
{
	publish_ok(self->buf);
	signal(SIGSEGV, SIG_DFL);
	*(volatile uint8_t *)kvpool_buf_addr(self->buf) = 1;
}

/* ---- between processes ---- */

/* The other process: imports what it is sent and looks at it. Return: exit status. */
static int import_and_look(int sock)
{
	struct kvpool_options options = options_of(1, 0);
	struct kvpool *pool;
	struct kvpool_buf *buf;
	struct kvpool_stat stat;
	int fd = receive_fd(sock);

	if (fd < 0 || kvpool_open(&options, &pool))
		return 10;
	if (kvpool_buf_import(pool, fd, &buf))
		return 11;
	close(fd);
	const uint8_t *bytes = kvpool_buf_addr(buf);

	if (bytes[0] != 0x11 || bytes[PAGE] != 0x22)
		return 12;
	kvpool_stat(pool, &stat);
	if (stat.resident_bytes || kvpool_buf_export(buf) != -EPERM)
		return 13;
	if (commit(buf, 0, 1) != -EPERM ||
	    mprotect((void *)bytes, PAGE, PROT_WRITE) != -1)
		return 14;
	kvpool_buf_put(buf);
	kvpool_put(pool);
	return 0;
}

TEST_F(kvpool, another_process_maps_what_it_is_sent)
{
	int socks[2], status;

	if (is_cuda())
		SKIP(return, "no fork with a GPU: test_kvpool_cuda");
	EXPECT_EQ(-EPERM, kvpool_buf_export(self->buf));
	publish_ok(self->buf);
	int fd = kvpool_buf_export(self->buf);

	ASSERT_TRUE(fd >= 0);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, socks));
	pid_t pid = fork();

	if (!pid)
		_exit(import_and_look(socks[1]));
	send_fd(socks[0], fd);
	close(fd);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	close(socks[0]);
	close(socks[1]);
}

/* Pages of others, recycled, and what was never sealed: none of it leaves with the descriptor. */
TEST_F(memfd_pool, an_exported_descriptor_shows_sealed_pages_alone)
{
	struct kvpool_mark mark = { key_of(1), 2 * PAGE };
	uint8_t byte = 0xcc;

	ASSERT_EQ(0, commit(self->buf, 0, 6));
	memset(kvpool_buf_addr(self->buf), 0x5a, 6 * PAGE);
	ASSERT_EQ(0, kvpool_buf_seal(self->buf, 2 * PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(self->buf, &mark, 1));
	EXPECT_EQ(2 * PAGE, stat_of(self->pool).resident_bytes);
	int fd = kvpool_buf_export(self->buf);

	ASSERT_TRUE(fd >= 0);
	EXPECT_EQ(1, pread(fd, &byte, 1, 2 * PAGE - 1));
	EXPECT_EQ(0x5a, byte);
	for (int page = 2; page < 6; page++) {
		EXPECT_EQ(1, pread(fd, &byte, 1, page * PAGE));
		EXPECT_EQ(0, byte);
	}
	close(fd);
}

static int memfd_with(int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ASSERT_TRUE(fd >= 0);
	ASSERT_EQ(0, ftruncate(fd, PAGE));
	ASSERT_EQ(0, fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

TEST_F(memfd_pool, import_refuses_what_its_sender_could_change)
{
	static const int weak[] = {
		0,
		F_SEAL_WRITE,
		F_SEAL_WRITE | F_SEAL_GROW,
		F_SEAL_WRITE | F_SEAL_SHRINK,
		F_SEAL_SHRINK | F_SEAL_GROW,
	};
	struct kvpool_buf *buf = (void *)1;

	for (size_t i = 0; i < sizeof(weak) / sizeof(weak[0]); i++) {
		int fd = memfd_with(weak[i]);

		EXPECT_EQ(-EINVAL, kvpool_buf_import(self->pool, fd, &buf));
		close(fd);
	}
	EXPECT_EQ(-EINVAL, kvpool_buf_import(self->pool, 0, &buf));
	EXPECT_EQ(-EINVAL, kvpool_buf_import(self->pool, -1, &buf));
	int empty = memfd_create("empty", MFD_ALLOW_SEALING);

	ASSERT_EQ(0, fcntl(empty, F_ADD_SEALS,
			   F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW));
	EXPECT_EQ(-EINVAL, kvpool_buf_import(self->pool, empty, &buf));
	close(empty);
	int good = memfd_with(F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);

	ASSERT_EQ(0, kvpool_buf_import(self->pool, good, &buf));
	close(good);
	EXPECT_EQ(0, *(uint8_t *)kvpool_buf_addr(buf));
	kvpool_buf_put(buf);
}

/* ---- volatile memory and events ---- */

TEST_F(kvpool, volatile_memory_goes_least_recently_used_first)
{
	struct kvpool_buf *a = create_ok(self->pool, 20),
			  *b = create_ok(self->pool, 20);
	bool survived = false;

	ASSERT_EQ(0, commit(a, 0, 20));
	ASSERT_EQ(0, commit(b, 0, 20));
	ASSERT_EQ(0, kvpool_buf_advise(a, KVPOOL_VOLATILE, NULL));
	ASSERT_EQ(0, kvpool_buf_advise(b, KVPOOL_VOLATILE, NULL));
	ASSERT_EQ(0, kvpool_buf_advise(a, KVPOOL_WILLNEED, &survived));
	EXPECT_TRUE(survived);
	ASSERT_EQ(0, kvpool_buf_advise(a, KVPOOL_VOLATILE, NULL));
	EXPECT_EQ(40 * PAGE, stat_of(self->pool).volatile_bytes);
	EXPECT_EQ(-EPERM, commit(a, 0, 1));

	/* 24 pages are free; 30 are wanted: one of the two goes, the older one. */
	ASSERT_EQ(0, commit(self->buf, 0, 30));
	ASSERT_EQ(0, kvpool_buf_advise(b, KVPOOL_WILLNEED, &survived));
	EXPECT_FALSE(survived);
	ASSERT_EQ(0, kvpool_buf_advise(b, KVPOOL_WILLNEED, &survived));
	EXPECT_TRUE(survived);
	ASSERT_EQ(0, kvpool_buf_advise(a, KVPOOL_WILLNEED, &survived));
	EXPECT_TRUE(survived);
	EXPECT_EQ(1, stat_of(self->pool).purges);
	EXPECT_EQ(0, commit(b, 0, 4));
	memset(kvpool_buf_addr(b), 1, 4 * PAGE);
	EXPECT_EQ(-EINVAL, kvpool_buf_advise(b, (enum kvpool_advice)9, NULL));
	kvpool_buf_put(a);
	kvpool_buf_put(b);
}

TEST_F(kvpool, content_stays_while_any_handle_needs_it)
{
	struct kvpool_key one = key_of(1);
	struct kvpool_buf *found;
	uint64_t n;
	bool survived = true;

	publish_ok(self->buf);
	ASSERT_EQ(0, kvpool_lookup(self->pool, &one, &found, &n, NULL));
	ASSERT_EQ(0, kvpool_buf_advise(self->buf, KVPOOL_VOLATILE, NULL));
	struct kvpool_buf *big = create_ok(self->pool, 100);

	EXPECT_EQ(-ENOSPC, commit(big, 0, LIMIT_PAGES - 1));
	EXPECT_EQ(0x11, *(uint8_t *)kvpool_buf_addr(found));
	ASSERT_EQ(0, kvpool_buf_advise(found, KVPOOL_VOLATILE, NULL));
	EXPECT_EQ(0, commit(big, 0, LIMIT_PAGES - 1));
	/* Purged: its keys are gone, and each handle is told once. */
	EXPECT_EQ(0, stat_of(self->pool).nr_keys);
	struct kvpool_buf *again;

	EXPECT_EQ(-ENOENT, kvpool_lookup(self->pool, &one, &again, &n, NULL));
	ASSERT_EQ(0, kvpool_buf_advise(found, KVPOOL_WILLNEED, &survived));
	EXPECT_FALSE(survived);
	survived = true;
	ASSERT_EQ(0, kvpool_buf_advise(self->buf, KVPOOL_WILLNEED, &survived));
	EXPECT_FALSE(survived);
	kvpool_buf_put(found);
	kvpool_buf_put(big);
	/* The publisher may begin anew, at the same address. */
	void *addr = kvpool_buf_addr(self->buf);

	publish_ok(self->buf);
	EXPECT_TRUE(addr == kvpool_buf_addr(self->buf));
}

TEST_F(kvpool, exported_memory_is_not_purged)
{
	struct kvpool_buf *big = create_ok(self->pool, 100);

	publish_ok(self->buf);
	int fd = kvpool_buf_export(self->buf);

	ASSERT_TRUE(fd >= 0);
	ASSERT_EQ(0, kvpool_buf_advise(self->buf, KVPOOL_VOLATILE, NULL));
	EXPECT_EQ(-ENOSPC, commit(big, 0, LIMIT_PAGES - 1));
	EXPECT_EQ(0, commit(big, 0, LIMIT_PAGES - 2));
	close(fd);
	kvpool_buf_put(big);
}

TEST_F(kvpool, a_purge_on_demand_takes_exported_memory_too)
{
	struct kvpool_buf *found, *plain = create_ok(self->pool, 8);
	bool has_survived;

	if (is_kernel())
		SKIP(goto out, "there trim does it");
	publish_ok(self->buf);
	int fd = kvpool_buf_export(self->buf);

	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, commit(plain, 0, 8));
	/* What is needed stays. */
	EXPECT_EQ(0, kvpool_purge(self->pool, UINT64_MAX));
	ASSERT_EQ(0, kvpool_buf_advise(self->buf, KVPOOL_VOLATILE, NULL));
	ASSERT_EQ(0, kvpool_buf_advise(plain, KVPOOL_VOLATILE, NULL));
	/* The oldest, and no more than is asked for. */
	EXPECT_EQ(2 * PAGE, kvpool_purge(self->pool, 1));
	EXPECT_EQ(8 * PAGE, stat_of(self->pool).resident_bytes);
	EXPECT_EQ(0, stat_of(self->pool).nr_keys);
	EXPECT_TRUE(buf_stat_of(self->buf).is_purged);
	EXPECT_EQ(0,
		  kvpool_buf_advise(self->buf, KVPOOL_WILLNEED, &has_survived));
	EXPECT_FALSE(has_survived);
	EXPECT_EQ(8 * PAGE, kvpool_purge(self->pool, UINT64_MAX));
	EXPECT_EQ(0, kvpool_purge(self->pool, UINT64_MAX));
	/* Who has the descriptor has the bytes. */
	ASSERT_EQ(0, kvpool_buf_import(self->pool, fd, &found));
	EXPECT_EQ(0x22, bytes_of(found)[PAGE]);
	EXPECT_EQ(0, kvpool_purge(self->pool, UINT64_MAX));
	close(fd);
	kvpool_buf_put(found);
out:
	kvpool_buf_put(plain);
}

static bool is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

TEST_F(kvpool, events_tell_pressure_refusal_and_purges)
{
	struct kvpool_event events[8];
	unsigned int seen = 0;
	uint64_t lost = 99;
	int fd = kvpool_event_fd(self->pool);
	struct kvpool_buf *old = create_ok(self->pool, 20);

	EXPECT_FALSE(is_readable(fd));
	EXPECT_EQ(0, kvpool_events(self->pool, events, 8, &lost));
	EXPECT_EQ(0, lost);
	ASSERT_EQ(0, commit(old, 0, 20));
	ASSERT_EQ(0, kvpool_buf_advise(old, KVPOOL_VOLATILE, NULL));
	ASSERT_EQ(0, commit(self->buf, 0, 60));
	EXPECT_TRUE(is_readable(fd));
	for (int i = 0; i < 1000; i++)
		EXPECT_EQ(-ENOSPC, commit(self->buf, 60, 10));
	ASSERT_EQ(3, kvpool_events(self->pool, events, 8, &lost));
	EXPECT_EQ(0, lost);
	/* The kernel is told page by page: pressure comes before the purge. */
	for (int i = 0; i < 3; i++) {
		seen |= 1u << events[i].type;
		if (events[i].type == KVPOOL_EVENT_PURGED) {
			EXPECT_EQ(kvpool_buf_id(old), events[i].buf_id);
			EXPECT_EQ(20 * PAGE, events[i].bytes);
		} else {
			EXPECT_EQ(0, events[i].buf_id);
			EXPECT_GT(events[i].bytes, 0);
		}
	}
	EXPECT_EQ(1u << KVPOOL_EVENT_PURGED | 1u << KVPOOL_EVENT_PRESSURE |
			  1u << KVPOOL_EVENT_LIMIT,
		  seen);
	EXPECT_FALSE(is_readable(fd));
	kvpool_buf_put(old);
	EXPECT_EQ(-EINVAL, kvpool_events(NULL, events, 8, NULL));
	EXPECT_EQ(-EINVAL, kvpool_events(self->pool, NULL, 8, NULL));
	EXPECT_EQ(-EINVAL, kvpool_event_fd(NULL));
}

TEST_F_TIMEOUT(kvpool, lost_events_are_counted, 120)
{
	enum { NR_BUFS = 300 }; /* more than any queue takes */
	struct kvpool_event event;
	uint64_t lost = 0, more = 0;
	uint64_t nr = 0;

	for (int i = 0; i < NR_BUFS; i++) {
		struct kvpool_buf *buf = create_ok(self->pool, 1);

		ASSERT_EQ(0, commit(buf, 0, 1));
		ASSERT_EQ(0, kvpool_buf_advise(buf, KVPOOL_VOLATILE, NULL));
		ASSERT_EQ(0, commit(self->buf, 0, LIMIT_PAGES));
		ASSERT_EQ(0,
			  kvpool_buf_release(self->buf, 0, LIMIT_PAGES * PAGE));
		kvpool_buf_put(buf);
	}
	EXPECT_EQ(NR_BUFS, stat_of(self->pool).purges);
	while (kvpool_events(self->pool, &event, 1, &more) == 1) {
		nr += event.type == KVPOOL_EVENT_PURGED;
		lost += more;
	}
	lost += more;
	EXPECT_GT(lost, 0);
	EXPECT_LT(0, nr);
	EXPECT_EQ(NR_BUFS, nr + lost);
	EXPECT_EQ(0, kvpool_events(self->pool, &event, 1, &more));
	EXPECT_EQ(0, more);
}

TEST_HARNESS_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several hostile processes do random things to one pool: every ioctl with
 * good and broken arguments, mappings of every kind, forks, pipes, descriptors
 * over sockets, truncation. What must hold: the kernel's log stays clean (the
 * runner looks), charged never passes the limit, and afterwards all is back at
 * zero. TARN_TEST_FUZZ_SECONDS (5), TARN_TEST_SEED (printed).
 */
#include "tests/kmod/kit.h"

#include <poll.h>

enum {
	NR_CLIENTS = 5,
	NR_FDS = 12,
	NR_MAPS = 10,
	LIMIT = 24 * MIB,
};

struct client {
	uint64_t random; /* state of the generator */
	int dev, pool;
	int fds[NR_FDS]; /* buffers, or -1 */
	struct {
		uint8_t *at;
		size_t bytes;
	} maps[NR_MAPS];
	int pipe[2], sock[2];
	int depth; /* of forks */
};

static uint64_t draw(struct client *c)
{
	c->random ^= c->random << 13;
	c->random ^= c->random >> 7;
	c->random ^= c->random << 17;
	return c->random;
}

/* A number below the end; 0 where that is 0. */
static uint64_t below(struct client *c, uint64_t end)
{
	return end ? (draw(c) >> 11) % end : 0;
}

/* A size or an offset: mostly sensible, sometimes an edge. */
static uint64_t draw_bytes(struct client *c)
{
	static const uint64_t edges[] = { 0,
					  1,
					  PAGE - 1,
					  PAGE + 1,
					  2 * MIB,
					  2 * MIB - PAGE,
					  4 * MIB,
					  1ULL << 40,
					  1ULL << 63,
					  ~0ULL,
					  ~0ULL - PAGE + 1 };

	switch (below(c, 8)) {
	case 0:
		return edges[below(c, sizeof(edges) / sizeof(*edges))];
	case 1:
		return below(c, 4 * MIB);
	case 2:
		return below(c, 3) * 2 * MIB;
	default:
		return below(c, 1024) * PAGE;
	}
}

static int *draw_fd(struct client *c)
{
	return &c->fds[below(c, NR_FDS)];
}

static void keep_fd(struct client *c, int fd)
{
	int *slot = draw_fd(c);

	if (fd < 0)
		return;
	if (*slot >= 0)
		close(*slot);
	*slot = fd;
}

/* ---- ioctls -------------------------------------------------------------- */

static void do_create(struct client *c)
{
	int fd;

	if (_buf_create(c->pool, below(c, 4) ? 4 * MIB : draw_bytes(c),
			below(c, 4) ? 0 : KVPOOL_BUF_SMALL, &fd, NULL) == 0)
		keep_fd(c, fd);
}

static void do_open(struct client *c)
{
	int fd;

	if (_buf_open(c->pool, below(c, 400), 1 + below(c, 3), &fd) == 0)
		keep_fd(c, fd);
}

static void do_range(struct client *c)
{
	static const unsigned long commands[] = { KVPOOL_BUF_COMMIT,
						  KVPOOL_BUF_COMMIT,
						  KVPOOL_BUF_RELEASE };

	if (below(c, 4))
		_buf_range(*draw_fd(c), commands[below(c, 3)],
			   below(c, 960) * PAGE, (1 + below(c, 64)) * PAGE, 0,
			   NULL);
	else
		_buf_range(*draw_fd(c), commands[below(c, 3)], draw_bytes(c),
			   draw_bytes(c), below(c, 2), NULL);
}

static void do_seal(struct client *c)
{
	_buf_seal(*draw_fd(c),
		  below(c, 3) ? below(c, 64) * PAGE : draw_bytes(c), NULL);
}

static void do_clone(struct client *c)
{
	struct kvpool_buf_clone args =
		clone_args(c->pool, draw_bytes(c), draw_bytes(c));

	if (below(c, 2))
		args.bytes = (args.n + PAGE) / PAGE * PAGE;
	args.flags = below(c, 2);
	if (_buf_clone(*draw_fd(c), &args) == 0)
		keep_fd(c, args.out_fd);
}

static void do_publish(struct client *c)
{
	struct kvpool_mark marks[4];
	uint32_t nr = 1 + below(c, 4);

	for (uint32_t i = 0; i < nr; i++)
		marks[i] = mark_of(below(c, 20), 1 + below(c, 32 * PAGE));
	_buf_publish(*draw_fd(c), marks, nr);
}

static void do_lookup(struct client *c)
{
	struct kvpool_buf_lookup found;

	if (_buf_lookup(c->pool, below(c, 20), &found) == 0)
		keep_fd(c, found.out_fd);
}

static void do_word(struct client *c)
{
	struct kvpool_buf_stat stat;
	uint64_t bytes;

	switch (below(c, 8)) {
	case 0:
	case 1:
		_buf_advise(*draw_fd(c), KVPOOL_ADVICE_VOLATILE, NULL);
		break;
	case 2:
	case 3:
		_buf_advise(*draw_fd(c), KVPOOL_ADVICE_WILLNEED, NULL);
		break;
	case 4:
		_buf_unpublish(*draw_fd(c));
		break;
	case 5:
		_buf_revoke(*draw_fd(c), NULL);
		break;
	case 6:
		_buf_stat(*draw_fd(c), &stat);
		_buf_next(c->pool, below(c, 100), &stat);
		break;
	case 7:
		_pool_trim(c->pool, draw_bytes(c), &bytes);
		break;
	}
}

/* Any call, on any descriptor, with bytes that nobody chose. */
static void do_noise(struct client *c)
{
	uint64_t arg[24];
	int fd = below(c, 3) ? *draw_fd(c) : below(c, 2) ? c->pool : c->dev;
	int nr = below(c, 3) ? 0x20 + below(c, 9) : below(c, 0x19);

	for (size_t i = 0; i < sizeof(arg) / sizeof(*arg); i++)
		arg[i] = below(c, 3) ? 0 : below(c, 2) ? draw(c) : below(c, 64);
	((uint32_t *)arg)[0] = below(c, 4) ? 16 + 8 * below(c, 12) : draw(c);
	((uint32_t *)arg)[1] = below(c, 3) ? 0 : draw(c);
	/* Not a pool for ever, and no pool that would take all memory. */
	if (nr == 0x01)
		return;
	ioctl(fd, _IO(KVPOOL_IOC_MAGIC, nr), arg);
}

/* ---- memory -------------------------------------------------------------- */

static void do_map(struct client *c)
{
	static const int prots[] = { PROT_READ, RW, RW, PROT_WRITE, PROT_NONE };
	int i = below(c, NR_MAPS);
	size_t bytes = (1 + below(c, 1024)) * PAGE;
	int flags = below(c, 8) ? MAP_SHARED : MAP_PRIVATE;
	void *at;

	if (!below(c, 6))
		flags |= MAP_POPULATE;
	at = mmap(NULL, bytes, prots[below(c, 5)], flags, *draw_fd(c),
		  below(c, 4) ? 0 : below(c, 600) * PAGE);
	if (at == MAP_FAILED)
		return;
	if (c->maps[i].at)
		munmap(c->maps[i].at, c->maps[i].bytes);
	c->maps[i].at = at;
	c->maps[i].bytes = bytes;
}

static void do_touch(struct client *c)
{
	int i = below(c, NR_MAPS);
	uint8_t *at = c->maps[i].at;
	size_t end = c->maps[i].bytes / PAGE;

	for (int n = below(c, 64); at && n > 0; n--) {
		uint8_t *page = at + below(c, end) * PAGE;

		if (below(c, 2))
			_poke(page, n);
		else
			_touch(page, NULL);
	}
}

static void do_change_map(struct client *c)
{
	static const int advices[] = {
		MADV_DONTNEED,	MADV_FREE,
		MADV_REMOVE,	MADV_COLD,
		MADV_PAGEOUT,	MADV_HUGEPAGE,
		MADV_DONTFORK,	MADV_DOFORK,
		MADV_WILLNEED,	22 /* POPULATE_READ */,
		23 /* WRITE */, 25 /* COLLAPSE */,
		MADV_MERGEABLE,
	};
	int i = below(c, NR_MAPS);
	uint8_t *at = c->maps[i].at, *moved;
	size_t pages = c->maps[i].bytes / PAGE, from, nr;

	if (!at)
		return;
	from = below(c, pages);
	nr = 1 + below(c, pages - from);
	switch (below(c, 6)) {
	case 0:
		mprotect(at + from * PAGE, nr * PAGE, below(c, 8));
		break;
	case 1:
		madvise(at + from * PAGE, nr * PAGE,
			advices[below(c, sizeof(advices) / sizeof(*advices))]);
		break;
	case 2:
		moved = mremap(at, c->maps[i].bytes,
			       (1 + below(c, 2 * pages)) * PAGE,
			       MREMAP_MAYMOVE);
		if (moved != MAP_FAILED) {
			/* Shrunk at most, says the ABI; then this is right. */
			c->maps[i].at = moved;
			c->maps[i].bytes = PAGE;
		}
		break;
	case 3:
		/* A hole, where nothing of the client's own can come. */
		mmap(at + from * PAGE, nr * PAGE, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	case 4:
		if (mlock(at + from * PAGE, nr * PAGE) == 0)
			munlock(at + from * PAGE, nr * PAGE);
		break;
	case 5:
		msync(at, c->maps[i].bytes, MS_SYNC | MS_INVALIDATE);
		break;
	}
}

static void do_pipe(struct client *c)
{
	int i = below(c, NR_MAPS);
	struct iovec iov = { c->maps[i].at, PAGE };
	uint8_t page[2 * PAGE];

	if (below(c, 2) && c->maps[i].at) {
		iov.iov_base = c->maps[i].at +
			       below(c, c->maps[i].bytes / PAGE) * PAGE;
		vmsplice(c->pipe[1], &iov, 1, SPLICE_F_NONBLOCK);
	} else if (read(c->pipe[0], page, sizeof(page)) < 0 &&
		   errno != EAGAIN) {
		_exit(HARNESS_FAIL);
	}
}

static void do_pass(struct client *c)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	char byte = 'x';
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
	int fd = *draw_fd(c);

	if (below(c, 2) && fd >= 0) {
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(head), &fd, sizeof(fd));
		sendmsg(c->sock[0], &msg, MSG_DONTWAIT);
		return;
	}
	if (recvmsg(c->sock[1], &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0)
		return;
	head = CMSG_FIRSTHDR(&msg);
	if (head && head->cmsg_type == SCM_RIGHTS) {
		memcpy(&fd, CMSG_DATA(head), sizeof(fd));
		keep_fd(c, fd);
	}
}

static void do_file(struct client *c)
{
	int *fd = draw_fd(c);
	char path[64], text[512];

	switch (below(c, 6)) {
	case 0:
		EXPECT_NE(0, ftruncate(*fd, below(c, 4 * MIB)));
		break;
	case 1:
		EXPECT_NE(0, fallocate(*fd, below(c, 64), 0, PAGE));
		break;
	case 2:
		keep_fd(c, dup(*fd));
		break;
	case 3:
		if (*fd >= 0)
			close(*fd);
		*fd = -1;
		break;
	case 4:
		snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", *fd);
		int info = open(path, O_RDONLY | O_CLOEXEC);

		if (info >= 0 && read(info, text, sizeof(text)) >= 0)
			close(info);
		break;
	case 5:
		lseek(*fd, 0, SEEK_END);
		EXPECT_LT(read(*fd, text, 1), 1);
		EXPECT_LT(write(*fd, text, 1), 1);
		break;
	}
}

/* ---- processes ----------------------------------------------------------- */

static void act(struct client *c);

static void do_fork(struct client *c)
{
	int nr = below(c, 40);
	pid_t pid;

	if (c->depth >= 2 || below(c, 10))
		return;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		c->depth++;
		c->random ^= 0x9e3779b97f4a7c15;
		while (nr-- > 0)
			act(c);
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, NULL, below(c, 2) ? 0 : WNOHANG);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void act(struct client *c)
{
	static void (*const acts[])(struct client *) = {
		do_create, do_create, do_open,	     do_range,	    do_range,
		do_range,  do_seal,   do_clone,	     do_publish,    do_lookup,
		do_word,   do_noise,  do_map,	     do_map,	    do_touch,
		do_touch,  do_touch,  do_change_map, do_change_map, do_pipe,
		do_pass,   do_file,   do_fork,
	};

	acts[below(c, sizeof(acts) / sizeof(*acts))](c);
}

static void be_hostile(int dev, int pool, const int *sock, uint64_t seed)
{
	struct client c = { .random = seed * 0x9e3779b97f4a7c15 + 1,
			    .dev = dev,
			    .pool = pool,
			    .sock = { sock[0], sock[1] } };

	if (pipe2(c.pipe, O_NONBLOCK | O_CLOEXEC))
		_exit(HARNESS_FAIL);
	for (int i = 0; i < NR_FDS; i++)
		c.fds[i] = -1;
	for (;;)
		act(&c);
}

FIXTURE(fuzz)
{
	int dev, pool;
};

FIXTURE_VARIANT(fuzz)
{
	uint32_t flags;
	uint64_t quota;
};

FIXTURE_VARIANT_ADD(fuzz, own){ KVPOOL_POOL_NO_ORDER, KVPOOL_UNLIMITED };
FIXTURE_VARIANT_ADD(fuzz, shared){ KVPOOL_POOL_NO_ORDER | KVPOOL_POOL_SHARED,
				   10 * MIB };

FIXTURE_SETUP(fuzz)
{
	struct kvpool_pool_create args = pool_args(LIMIT);

	self->dev = dev_open();
	if (self->dev < 0)
		return;
	args.flags = variant->flags;
	args.quota = variant->quota;
	args.reserve = 2 * MIB;
	args.mode = 0666;
	pool_create_ok(self->dev, &args);
	self->pool = args.out_fd;
}

FIXTURE_TEARDOWN(fuzz)
{
	close(self->pool);
	close(self->dev);
}

TEST_F_TIMEOUT(fuzz, hostile_clients_break_nothing, 7200)
{
	long seconds = env_number("TARN_TEST_FUZZ_SECONDS", 5);
	uint64_t seed = env_number("TARN_TEST_SEED", time(NULL)), bytes;
	long long end = harness_now_ms() + seconds * 1000;
	pid_t pids[NR_CLIENTS];
	int sock[2];

	NEED_ROOT();
	TH_LOG("seed %lu", (unsigned long)seed);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sock));
	for (int i = 0; i < NR_CLIENTS; i++) {
		pids[i] = child_start_as(ALICE + i % 3);
		if (pids[i] == 0)
			be_hostile(self->dev, self->pool, sock, seed + i);
	}
	while (harness_now_ms() < end) {
		struct kvpool_pool_stat s = stat_of(self->pool);

		EXPECT_LE(s.out_charged, LIMIT);
		/* Not only against each other: reclaim comes in too. */
		if (s.out_volatile && s.out_faults % 8 == 0)
			file_write("/proc/sys/vm/drop_caches", "2");
		sleep_ms(2);
	}
	for (int i = 0; i < NR_CLIENTS; i++)
		kill(pids[i], SIGKILL);
	/* None has ended before: each did its part. */
	for (int i = 0; i < NR_CLIENTS; i++)
		EXPECT_EQ(128 + SIGKILL, child_status(pids[i]));
	close(sock[0]);
	close(sock[1]);

	struct kvpool_pool_stat s = stat_of(self->pool);

	EXPECT_LE(s.out_peak, LIMIT);
	TH_LOG("%lu faults, %lu commits, %lu clones, %lu seals, %lu purges",
	       (unsigned long)s.out_faults, (unsigned long)s.out_commits,
	       (unsigned long)s.out_clones, (unsigned long)s.out_seals,
	       (unsigned long)s.out_purges);
	/* Grandchildren die a little later. What is published goes by TRIM. */
	for (int i = 0; i < 500; i++, sleep_ms(20)) {
		ASSERT_EQ(0, _pool_trim(self->pool, KVPOOL_UNLIMITED, &bytes));
		s = stat_of(self->pool);
		if (!s.out_nr_bufs && s.out_charged == s.out_reserve)
			break;
	}
	EXPECT_EQ(0, s.out_nr_bufs);
	EXPECT_EQ(0, s.out_nr_keys);
	EXPECT_EQ(0, s.out_resident);
	EXPECT_EQ(0, s.out_draining);
	EXPECT_EQ(s.out_reserve, s.out_charged);
	for (uid_t uid = ALICE; uid <= CAROL; uid++) {
		s = stat_of_uid(self->pool, uid);
		EXPECT_EQ(0, s.out_charged);
		EXPECT_EQ(0, s.out_shared);
		EXPECT_EQ(0, s.out_draining);
	}
}

TEST_HARNESS_MAIN

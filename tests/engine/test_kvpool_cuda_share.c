/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Published buffers of the cuda backend in other processes, descriptors that are
 * foreign, stale or made up, peers that die, and random use against a model of
 * what the memory must hold. On a driver without a GPU.
 */
#include "tests/engine/cuda_kit.h"
#include "tests/engine/forge_kit.h"

#include <sys/un.h>

/* Sealed pages 0x11, 0x22 of a commit of @nr pages; the rest is 0x99. Return: the descriptor. */
static int publish_and_export(struct kvpool_buf *buf, uint64_t nr)
{
	struct kvpool_mark mark = { key_of(1), 2 * PAGE };

	ASSERT_EQ(0, commit(buf, 0, nr));
	memset(bytes_of(buf), 0x99, nr * PAGE);
	memset(bytes_of(buf), 0x11, PAGE);
	memset(bytes_of(buf) + PAGE, 0x22, PAGE);
	ASSERT_EQ(0, kvpool_buf_seal(buf, 2 * PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
	int fd = kvpool_buf_export(buf);

	ASSERT_GE(fd, 0);
	return fd;
}

/* ---- between processes ---- */

/*
 * No process forks with a GPU: the peers exist before either has a pool. Each runs its part and
 * says so by its exit status.
 */
struct peer {
	pid_t pid;
	int sock; /* to the peer */
};

static struct peer start_peer(int (*run)(int sock))
{
	struct peer peer;
	int socks[2];

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, socks));
	peer.pid = fork();
	ASSERT_GE(peer.pid, 0);
	if (!peer.pid) {
		close(socks[0]);
		_exit(run(socks[1]));
	}
	close(socks[1]);
	peer.sock = socks[0];
	return peer;
}

static int end_peer(struct peer *peer)
{
	int status;

	close(peer->sock);
	ASSERT_EQ(peer->pid, waitpid(peer->pid, &status, 0));
	return status;
}

static int import_and_look(int sock)
{
	struct kvpool_options options = options_of(1, 0);
	struct kvpool *pool;
	struct kvpool_buf *buf, *copy;
	struct kvpool_stat stat;
	int fd = receive_fd(sock);

	options.limit_bytes = 4 * PAGE;
	if (fd < 0 || kvpool_open(&options, &pool))
		return 10;
	if (kvpool_buf_import(pool, fd, &buf))
		return 11;
	close(fd);
	const uint8_t *bytes = kvpool_buf_addr(buf);

	if (kvpool_buf_size(buf) != 2 * PAGE || bytes[0] != 0x11 ||
	    bytes[2 * PAGE - 1] != 0x22)
		return 12;
	/* What the last handle has behind the seal is mapped too: nothing is to be seen there. */
	for (uint64_t i = 2 * PAGE; i < standin_mapped_bytes(bytes, 64 * PAGE);
	     i += 512) {
		if (bytes[i])
			return 13;
	}
	kvpool_stat(pool, &stat);
	if (stat.charged_bytes || kvpool_buf_export(buf) != -EPERM ||
	    commit(buf, 0, 1) != -EPERM)
		return 14;
	if (kvpool_buf_clone(buf, 2 * PAGE, 3 * PAGE, 0, &copy) ||
	    bytes_of(copy)[PAGE] != 0x22)
		return 15;
	kvpool_buf_put(copy);
	/* The peer says that it is gone; its memory is still ours. */
	send(sock, "", 1, 0);
	recv(sock, &(char){ 0 }, 1, 0);
	if (bytes[0] != 0x11 || bytes[PAGE] != 0x22)
		return 16;
	kvpool_buf_put(buf);
	kvpool_put(pool);
	return standin_is_clean() ? 0 : 17;
}

static int publish_and_die(int sock)
{
	struct kvpool *pool = open_growing(64, 16);
	struct kvpool_buf *buf = create_ok(pool, 64);

	send_fd(sock, publish_and_export(buf, 10));
	pause();
	return 1;
}

TEST(another_process_maps_sealed_pages_and_keeps_them)
{
	use_standin(GRANULE, 1 << 30);
	struct peer reader = start_peer(import_and_look),
		    writer = start_peer(publish_and_die);
	int fd = receive_fd(writer.sock);

	ASSERT_GE(fd, 0);
	send_fd(reader.sock, fd);
	close(fd);
	char byte;

	ASSERT_EQ(1, recv(reader.sock, &byte, 1, 0));
	ASSERT_EQ(0, kill(writer.pid, SIGKILL));
	EXPECT_EQ(SIGKILL, end_peer(&writer));
	send(reader.sock, "", 1, 0);
	EXPECT_EQ(0, end_peer(&reader));
}

static int import_and_wait(int sock)
{
	struct kvpool *pool = open_growing(64, 0);
	struct kvpool_buf *buf;
	int fd = receive_fd(sock);

	if (fd < 0 || kvpool_buf_import(pool, fd, &buf))
		return 1;
	send(sock, "", 1, 0);
	pause();
	return 2;
}

TEST(a_peer_killed_with_our_memory_mapped_leaves_nothing)
{
	use_standin(GRANULE, 1 << 30);
	struct peer reader = start_peer(import_and_wait);
	struct kvpool *pool = open_growing(64, 16);
	struct kvpool_buf *buf = create_ok(pool, 64);
	int fd = publish_and_export(buf, 10);
	char byte;

	send_fd(reader.sock, fd);
	close(fd);
	ASSERT_EQ(1, recv(reader.sock, &byte, 1, 0));
	ASSERT_EQ(0, kill(reader.pid, SIGKILL));
	EXPECT_EQ(SIGKILL, end_peer(&reader));
	EXPECT_EQ(0x11, bytes_of(buf)[0]);
	settle(pool);
	expect_exact(pool);
	kvpool_buf_unpublish(buf);
	kvpool_buf_put(buf);
	/* Others may hold the first eight pages: only what was not sent is for reuse here. */
	settle(pool);
	EXPECT_LT(stat_of(pool).charged_bytes, 8 * PAGE);
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

/* ---- descriptors ---- */

TEST_F(cuda, one_descriptor_can_be_imported_many_times)
{
	struct kvpool_buf *buf = create_ok(self->pool, 64), *found[3];
	int fd = publish_and_export(buf, 3);
	uint64_t used = standin_counts().used_bytes;

	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, kvpool_buf_import(self->pool, fd, &found[i]));
		EXPECT_EQ(0x22, bytes_of(found[i])[PAGE]);
	}
	EXPECT_EQ(used, standin_counts().used_bytes);
	close(fd);
	for (int i = 0; i < 3; i++)
		kvpool_buf_put(found[i]);
	kvpool_buf_put(buf);
}

TEST_F_SIGNAL(cuda, writing_imported_memory_is_a_fault, SIGSEGV)
{
	struct kvpool_buf *buf = create_ok(self->pool, 64), *found;
	int fd = publish_and_export(buf, 2);

	ASSERT_EQ(0, kvpool_buf_import(self->pool, fd, &found));
	signal(SIGSEGV, SIG_DFL);
	*(volatile uint8_t *)kvpool_buf_addr(found) = 1;
}

TEST_F(cuda, only_published_buffers_are_exported)
{
	struct kvpool_buf *buf = create_ok(self->pool, 600);

	EXPECT_EQ(-EPERM, kvpool_buf_export(buf));
	int fd = publish_and_export(buf, 2);

	close(fd);
	ASSERT_EQ(0, kvpool_buf_unpublish(buf));
	EXPECT_EQ(-EPERM, kvpool_buf_export(buf));
	kvpool_buf_put(buf);
}

TEST_F(cuda, a_buffer_of_nothing_is_not_exported)
{
	struct kvpool_buf *buf = create_ok(self->pool, 4);
	struct kvpool_mark mark = { key_of(3), 1 };

	ASSERT_EQ(0, kvpool_buf_seal(buf, PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
	EXPECT_EQ(-ERANGE, kvpool_buf_export(buf));
	kvpool_buf_unpublish(buf);
	kvpool_buf_put(buf);
}

#define EXPECT_FOREIGN(error, fd)                                             \
	do {                                                                  \
		struct kvpool_buf *buf_ = (void *)1;                          \
		EXPECT_EQ(error, kvpool_buf_import(self->pool, (fd), &buf_)); \
		EXPECT_TRUE(buf_ == (void *)1);                               \
	} while (0)

TEST_F(cuda, descriptors_of_another_kind_are_refused)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int pipes[2], socks[2];
	int memfd = memfd_create("foreign", MFD_CLOEXEC);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	ASSERT_EQ(0, pipe(pipes));
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, socks));
	ASSERT_EQ(0, bind(listener, (void *)&addr, sizeof(sa_family_t)));
	EXPECT_FOREIGN(-EINVAL, -1);
	EXPECT_FOREIGN(-EINVAL, memfd);
	EXPECT_FOREIGN(-EINVAL, pipes[0]);
	EXPECT_FOREIGN(-EINVAL,
		       socks[0]); /* nothing in it: no wait for something */
	close(socks[1]);
	EXPECT_FOREIGN(-EINVAL, socks[0]);
	close(socks[0]);
	close(pipes[0]);
	close(pipes[1]);
	close(memfd);
	close(listener);
}

TEST_F(cuda, a_descriptor_that_somebody_emptied_is_stale)
{
	struct kvpool_buf *buf = create_ok(self->pool, 64);
	int fd = publish_and_export(buf, 2);
	char bytes[64];

	EXPECT_GT(recv(fd, bytes, sizeof(bytes), 0), 0);
	EXPECT_FOREIGN(-EINVAL, fd);
	close(fd);
	kvpool_buf_put(buf);
}

TEST_F(cuda, another_users_export_is_refused)
{
	struct kvpool_buf *buf = create_ok(self->pool, 64);

	if (geteuid())
		SKIP(goto out, "only root can be somebody else");
	ASSERT_EQ(0, seteuid(65534));
	int fd = publish_and_export(buf, 2);

	ASSERT_EQ(0, seteuid(0));
	EXPECT_FOREIGN(-EPERM, fd);
	close(fd);
out:
	kvpool_buf_put(buf);
}

/* Its tiles have numbers like those of our own. */
TEST_F(cuda, an_import_lies_at_a_multiple_of_the_stride)
{
	struct kvpool_buf *buf = create_ok(self->pool, 64), *odd, *found;
	const uint8_t *base = kvpool_base(self->pool);
	uint64_t stride = 3 * PAGE;
	int fd = publish_and_export(buf, 2);

	for (uint64_t pages = 1; pages <= 4; pages++) {
		odd = create_ok(self->pool, pages);
		ASSERT_EQ(0, kvpool_buf_import_stride(self->pool, fd, stride,
						      &found));
		EXPECT_EQ(0, (bytes_of(found) - base) % stride);
		EXPECT_EQ(0x22, bytes_of(found)[PAGE]);
		kvpool_buf_put(odd);
		kvpool_buf_put(found);
	}
	found = (void *)1;
	EXPECT_EQ(-EINVAL, kvpool_buf_import_stride(self->pool, fd, 0, &found));
	EXPECT_EQ(-EINVAL,
		  kvpool_buf_import_stride(self->pool, -1, stride, &found));
	EXPECT_TRUE(found == (void *)1);
	close(fd);
	kvpool_buf_put(buf);
}

TEST_F(cuda, an_import_says_what_of_it_was_sent)
{
	struct kvpool_buf *buf = create_ok(self->pool, 64), *found;
	struct kvpool_mark mark = { key_of(1), 1 };

	ASSERT_EQ(0, commit(buf, 0, 2));
	ASSERT_EQ(0, commit(buf, 16, 2));
	EXPECT_EQ(-ERANGE, kvpool_buf_covers(buf, PAGE, 2 * PAGE));
	ASSERT_EQ(0, kvpool_buf_seal(buf, 18 * PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
	int fd = kvpool_buf_export(buf);

	ASSERT_EQ(0, kvpool_buf_import(self->pool, fd, &found));
	EXPECT_EQ(0, kvpool_buf_covers(found, 0, 2 * PAGE));
	EXPECT_EQ(0, kvpool_buf_covers(found, 16 * PAGE, 2 * PAGE));
	EXPECT_EQ(-ERANGE, kvpool_buf_covers(found, 0, 17 * PAGE));
	EXPECT_EQ(-ERANGE, kvpool_buf_covers(found, 14 * PAGE, PAGE + 1));
	EXPECT_EQ(-EINVAL, kvpool_buf_covers(found, 0, 18 * PAGE + 1));
	EXPECT_EQ(-EINVAL, kvpool_buf_covers(found, 18 * PAGE, 1));
	close(fd);
	kvpool_buf_put(found);
	kvpool_buf_put(buf);
}

static void *finish_later(void *stream)
{
	nap_ms(50);
	standin_finish(stream);
	return NULL;
}

/* Others know nothing of our fences, and what is read-only must not be written. */
TEST_F(cuda, what_is_published_was_written_before)
{
	struct kvpool_buf *buf = create_ok(self->pool, 64);
	struct kvpool_mark mark = { key_of(1), 2 * PAGE };
	pthread_t thread;

	ASSERT_EQ(0, commit(buf, 0, 2));
	standin_launch_set(self->stream, bytes_of(buf), 2 * PAGE, 0x5c);
	ASSERT_EQ(0, kvpool_fence(self->pool, self->stream));
	ASSERT_EQ(0, pthread_create(&thread, NULL, finish_later, self->stream));
	ASSERT_EQ(0, kvpool_buf_seal(buf, 2 * PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
	EXPECT_EQ(0, standin_work_left(self->stream));
	EXPECT_EQ(0x5c, bytes_of(buf)[2 * PAGE - 1]);
	pthread_join(thread, NULL);
	kvpool_buf_put(buf);
}

TEST_F(cuda, a_device_has_the_same_id_for_all)
{
	uint8_t ids[2][KVPOOL_DEVICE_ID_BYTES];
	struct kvpool *other = open_ok(4, 0), *memfd;
	struct kvpool_options options = options_of(4, 0);

	memset(ids, 0xcc, sizeof(ids));
	EXPECT_EQ(0, kvpool_device_id(self->pool, ids[0]));
	EXPECT_EQ(0, kvpool_device_id(other, ids[1]));
	EXPECT_EQ(0, memcmp(ids[0], ids[1], sizeof(ids[0])));
	kvpool_put(other);
	options.backend = KVPOOL_BACKEND_MEMFD;
	ASSERT_EQ(0, kvpool_open(&options, &memfd));
	EXPECT_EQ(-EOPNOTSUPP, kvpool_device_id(memfd, ids[0]));
	kvpool_put(memfd);
}

TEST(made_up_messages_are_refused)
{
	/* Words: magic, pieces, 4 of the GPU's id, page (2), pages (2), owner, 0, then pieces. */
	static const struct {
		int word;
		uint32_t value;
	} changes[] = {
		{ 0, 0 },  { 1, 0 },	       { 1, 1 },
		{ 1, 3 },  { 1, UINT32_MAX },  { 2, 0 },
		{ 5, 7 },  { 6, 4096 },	       { 7, 1 },
		{ 8, 0 },  { 8, 1 },	       { 8, 3 },
		{ 9, 1 },  { 11, 1 },	       { 11, 2 },
		{ 12, 1 }, { 12, UINT32_MAX }, { 13, 0 },
		{ 13, 2 }, { 13, UINT32_MAX }, { 14, 0 },
		{ 14, 2 }, { 14, UINT32_MAX }, { 15, 0 },
		{ 15, 2 }, { 15, UINT32_MAX },
	};
	use_standin(GRANULE, 1 << 30);
	struct kvpool *pool = open_ok(64, 0);
	struct kvpool_buf *buf = create_ok(pool, 64);
	struct forged good = take_apart(publish_and_export(buf, 2)), bad;
	int nr_fds = nr_open_fds();

	ASSERT_EQ(2, good.nr_fds);
	ASSERT_EQ(0, import_forged(pool, &good));
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		bad = good;
		bad.words[changes[i].word] = changes[i].value;
		EXPECT_EQ(-EINVAL, import_forged(pool, &bad))
		{
			TH_LOG("word %d = %u", changes[i].word,
			       changes[i].value);
		}
	}
	for (size_t bytes = 1; bytes < good.bytes; bytes++) {
		bad = good;
		bad.bytes = bytes;
		EXPECT_EQ(-EINVAL, import_forged(pool, &bad));
	}
	bad = good;
	bad.bytes += 8;
	EXPECT_EQ(-EINVAL, import_forged(pool, &bad));
	for (int nr = 0; nr < 2; nr++) {
		bad = good;
		bad.nr_fds = nr;
		EXPECT_EQ(-EINVAL, import_forged(pool, &bad));
	}
	/* Fewer pieces than descriptors, of fewer pages: the last would be mapped behind them. */
	bad = good;
	bad.words[1] = 1;
	bad.words[8] = 1;
	EXPECT_EQ(-EINVAL, import_forged(pool, &bad));
	/* A descriptor that is no GPU memory, among those that are. */
	bad = good;
	bad.fds[1] = STDIN_FILENO;
	EXPECT_EQ(-EINVAL, import_forged(pool, &bad));
	EXPECT_EQ(nr_fds, nr_open_fds());
	close(good.fds[0]);
	close(good.fds[1]);
	kvpool_buf_put(buf);
	kvpool_put(pool);
	EXPECT_TRUE(standin_is_clean());
}

TEST_F(cuda, a_piece_inside_another_is_refused)
{
	struct kvpool_mark mark = { key_of(1), 6 * PAGE };
	struct kvpool_buf *buf = create_ok(self->pool, 64);

	ASSERT_EQ(0, commit(buf, 0, 6)); /* handles of 4 and 2 */
	ASSERT_EQ(0, kvpool_buf_seal(buf, 6 * PAGE));
	ASSERT_EQ(0, kvpool_buf_publish(buf, &mark, 1));
	struct forged forged = take_apart(kvpool_buf_export(buf));

	ASSERT_EQ(2, forged.nr_fds);
	ASSERT_EQ(0, import_forged(self->pool, &forged));
	/* The first would reach past the end that the second says there is. */
	forged.words[8] = 2;
	forged.words[14] = 1;
	forged.words[15] = 1;
	EXPECT_EQ(-EINVAL, import_forged(self->pool, &forged));
	close(forged.fds[0]);
	close(forged.fds[1]);
	kvpool_buf_put(buf);
}

/* ---- calls that fail ---- */

TEST_TIMEOUT(sharing_fails_cleanly_at_each_call, 120)
{
	use_standin(GRANULE, 1 << 30);
	int nth = 0, nr_fds = nr_open_fds();

	for (;; nth++) {
		struct kvpool_mark mark = { key_of(1), 8 * PAGE };
		struct kvpool *pool = open_growing(64, 16);
		struct kvpool_buf *buf = create_ok(pool, 64), *found = NULL;

		ASSERT_EQ(0, commit(buf, 0, 13));
		memset(bytes_of(buf), 0x66, 13 * PAGE);
		settle(pool);
		standin.fail = fail_nth;
		has_failed = false;
		calls_left = nth;
		int err = kvpool_buf_seal(buf, 8 * PAGE - 100);

		if (!err)
			err = kvpool_buf_publish(buf, &mark, 1);
		mark.n_bytes -= 100;
		if (err == -EPERM)
			err = kvpool_buf_publish(buf, &mark, 1);
		int fd = err ? err : kvpool_buf_export(buf);

		if (fd >= 0) {
			err = kvpool_buf_import(pool, fd, &found);
			close(fd);
		}
		if (found)
			EXPECT_EQ(0x66, bytes_of(found)[0]);
		EXPECT_EQ(0x66, bytes_of(buf)[0]);
		kvpool_buf_put(found);
		calls_left = -1;
		standin.fail = NULL;
		kvpool_buf_unpublish(buf);
		kvpool_buf_put(buf);
		settle(pool);
		expect_exact(pool);
		EXPECT_EQ(0, stat_of(pool).resident_bytes);
		EXPECT_EQ(0, stat_of(pool).draining_bytes);
		kvpool_put(pool);
		EXPECT_EQ(nr_fds, nr_open_fds());
		EXPECT_TRUE(standin_is_clean())
		{
			TH_LOG("after failure %d", nth);
		}
		if (!has_failed)
			break;
		EXPECT_TRUE(err < 0 || fd < 0 || nth > 0);
	}
	TH_LOG("%d calls failed in turn", nth);
	EXPECT_GT(nth, 12);
}

/* ---- against a model ---- */

enum { NR_BUFS = 6, BUF_PAGES = 48, NR_STEPS = 4000 };

/* What one buffer must hold: a byte per page, 0: nothing is committed there. */
struct model {
	struct kvpool_buf *buf;
	uint8_t pages[BUF_PAGES];
	uint64_t sealed;
	bool is_volatile;
	uid_t uid;
};

static uint64_t random_state = 0x9e3779b97f4a7c15ull;

static uint64_t below(uint64_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % n;
}

static void check_model(const struct model *model)
{
	for (uint64_t i = 0; !model->is_volatile && i < BUF_PAGES; i++) {
		const uint8_t *page = bytes_of(model->buf) + i * PAGE;

		if (!model->pages[i])
			continue;
		ASSERT_EQ(model->pages[i], page[0]);
		ASSERT_EQ(model->pages[i], page[PAGE - 1]);
	}
}

static void commit_random(struct kvpool *pool, struct model *model,
			  cuda_stream stream)
{
	uint64_t first = below(BUF_PAGES), nr = 1 + below(BUF_PAGES - first);
	int err = commit(model->buf, first, nr);

	if (model->is_volatile || first < model->sealed) {
		ASSERT_EQ(-EPERM, err);
		return;
	}
	ASSERT_TRUE(!err || err == -ENOSPC || err == -EDQUOT || err == -ENOMEM);
	for (uint64_t i = first; !err && i < first + nr; i++) {
		uint8_t *page = bytes_of(model->buf) + i * PAGE;

		if (!model->pages[i])
			model->pages[i] = (uint8_t)(1 + below(255));
		page[0] = model->pages[i];
		page[PAGE - 1] = model->pages[i];
	}
	if (!err && below(2)) {
		standin_launch(stream, bytes_of(model->buf) + first * PAGE,
			       nr * PAGE);
		ASSERT_EQ(0, kvpool_fence(pool, stream));
	}
}

static void release_random(struct model *model)
{
	uint64_t first = below(BUF_PAGES), nr = 1 + below(BUF_PAGES - first);
	int err = kvpool_buf_release(model->buf, first * PAGE, nr * PAGE);

	ASSERT_EQ(first < model->sealed ? -EPERM : 0, err);
	if (!err)
		memset(model->pages + first, 0, nr);
}

static void advise_random(struct model *model)
{
	bool survived;

	ASSERT_EQ(0, kvpool_buf_advise(model->buf,
				       model->is_volatile ? KVPOOL_WILLNEED :
							    KVPOOL_VOLATILE,
				       &survived));
	model->is_volatile = !model->is_volatile;
	if (!model->is_volatile && !survived) {
		memset(model->pages, 0, sizeof(model->pages));
		model->sealed = 0;
	}
}

static void renew(struct kvpool *pool, struct model *model)
{
	kvpool_buf_put(model->buf);
	*model = (struct model){ .uid = (uid_t)below(2) };
	ASSERT_EQ(0, kvpool_buf_create_stride(pool, BUF_PAGES * PAGE,
					      (1 + below(3)) * PAGE, model->uid,
					      &model->buf));
}

static void step(struct kvpool *pool, struct model *model, cuda_stream stream)
{
	switch (below(12)) {
	case 0 ... 5:
		commit_random(pool, model, stream);
		break;
	case 6 ... 7:
		if (!model->is_volatile)
			release_random(model);
		break;
	case 8:
		advise_random(model);
		break;
	case 9:
		if (!model->is_volatile && model->sealed < BUF_PAGES &&
		    !kvpool_buf_seal(model->buf, (model->sealed + 1) * PAGE))
			model->sealed++;
		break;
	case 10:
		renew(pool, model);
		break;
	case 11:
		kvpool_trim(pool, below(40) * PAGE);
		break;
	}
}

static atomic_bool is_over;

/* The device: its work ends a little after it began. */
static void *work_off(void *stream)
{
	while (!is_over) {
		usleep(300);
		standin_finish(stream);
	}
	return NULL;
}

TEST_TIMEOUT(random_use_keeps_bytes_and_books_right, 120)
{
	use_standin(STANDIN_GRANULE, 128 * STANDIN_GRANULE);
	struct kvpool *pool = open_growing(100, 24);
	cuda_stream stream = standin_stream();
	struct model models[NR_BUFS] = { 0 };
	pthread_t device;

	ASSERT_EQ(0, pthread_create(&device, NULL, work_off, stream));
	ASSERT_EQ(0, kvpool_set_quota(pool, 1, 70 * PAGE, UINT64_MAX));
	for (int i = 0; i < NR_BUFS; i++)
		renew(pool, &models[i]);
	for (int i = 0; i < NR_STEPS; i++) {
		struct model *model = &models[below(NR_BUFS)];

		while (standin_work_left(stream) > 50)
			usleep(100);
		if (below(8) == 0)
			standin_steal((int64_t)(20 * PAGE));
		step(pool, model, stream);
		if (standin_counts().stolen_bytes)
			standin_steal(-(int64_t)standin_counts().stolen_bytes);
		struct kvpool_stat stat = stat_of(pool);

		ASSERT_TRUE(stat.charged_bytes <= 100 * PAGE);
		ASSERT_EQ(0, standin_counts().nr_violations);
		check_model(&models[below(NR_BUFS)]);
		if (i % 200 == 0) {
			settle(pool);
			expect_exact(pool);
		}
	}
	for (int i = 0; i < NR_BUFS; i++)
		kvpool_buf_put(models[i].buf);
	is_over = true;
	pthread_join(device, NULL);
	kvpool_put(pool);
	standin_stream_end(stream);
	EXPECT_TRUE(standin_is_clean());
}

TEST_HARNESS_MAIN

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of tarnd, and its exit codes.
 */
#ifndef TARN_DAEMON_OPTIONS_H
#define TARN_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/log.h"
#include "engine/engine.h"

/* What scripts and service managers may rely on; the manual page lists them. */
enum exit_code {
	EXIT_CODE_OK = 0,
	EXIT_CODE_FAILURE = 1, /* at run time */
	EXIT_CODE_USAGE = 2,
	EXIT_CODE_MODEL = 3, /* the model file, or the device asked for */
	EXIT_CODE_IN_USE = 4, /* another daemon has the socket */
	EXIT_CODE_SOCKET = 5, /* the socket cannot be made */
};

struct options {
	const char *model_path;
	char socket_path[108]; /* as in sockaddr_un */
	mode_t socket_mode;
	uid_t socket_uid; /* -1: unchanged */
	gid_t socket_gid; /* -1: unchanged */
	uint32_t nr_threads, ctx_tokens,
		max_batch_tokens; /* 0: the engine's choice */
	enum tarn_device device;
	enum tarn_kv_backend kv_backend;
	uint64_t kv_bytes; /* 0: the engine's choice */
	const char *pool_name; /* NULL: a pool of its own */
	uint64_t pool_quota_bytes; /* 0: none */
	enum tarn_prefix_scope prefix_scope;
	bool no_prefix_sharing;
	bool is_precise, no_prefix_cache, is_strict;
	bool allow_unknown_pre;
	uint32_t max_queue;
	uint64_t max_body_bytes;
	uint64_t max_unsent_bytes; /* what a reader of a stream may be behind */
	uint32_t timeout_s, drain_timeout_s;
	enum log_level log_level;
};

enum options_result {
	OPTIONS_RUN,
	OPTIONS_HELP,
	OPTIONS_VERSION,
	OPTIONS_WRONG
};

/*
 * Read the command line. Strings point into @argv. OPTIONS_WRONG: @err names the option and
 * what is wrong with it.
 */
enum options_result options_parse(int argc, char **argv,
				  struct options *options, char *err,
				  size_t errlen);
/* The text of --help, a constant. */
const char *options_help(void);
/*
 * Where the socket is when no flag says so: $TARN_SOCKET, else /run/tarn/tarn.sock for root, else
 * $XDG_RUNTIME_DIR/tarn.sock. Return: 0; -ENOENT (none of them); -ENAMETOOLONG.
 */
int options_default_socket(char *path, size_t size);
/*
 * "512M", "2G", "1.5GiB", "65536": bytes, by powers of 1024. With @of non-zero also "25%" of it.
 * Return: 0 or -EINVAL.
 */
int options_parse_size(const char *text, uint64_t of, uint64_t *out_bytes);

#endif /* TARN_DAEMON_OPTIONS_H */

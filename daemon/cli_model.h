/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which model file is meant where a command needs one.
 */
#ifndef TARN_DAEMON_CLI_MODEL_H
#define TARN_DAEMON_CLI_MODEL_H

#include <stddef.h>

/**
 * cli_model_path - the file to use
 * @named: what --model says, or NULL: then TARN_MODEL, then the default model in the cache.
 * @out_path: [out] malloc'ed.
 * @err: says which file is not there, and how to get the default model.
 *
 * Return: 0; -ENOENT, -EACCES and the like (the file cannot be read); -ENOMEM.
 */
int cli_model_path(const char *named, char **out_path, char *err,
		   size_t errlen);

/* The folder of the program that runs, in @folder of PATH_MAX bytes. Return: 0 or -errno. */
int cli_own_folder(char *folder, size_t size);

#endif /* TARN_DAEMON_CLI_MODEL_H */

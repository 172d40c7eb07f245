/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a GGUF file, and its tensors by name. Owns the mapping.
 * What the bytes mean is read by gguf_parse.c; metadata is handed out by
 * gguf_get.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/model/gguf_private.h"

int gguf_fail(char *err, size_t errlen, int code, const char *fmt, ...)
{
	va_list args;

	if (err && errlen) {
		va_start(args, fmt);
		vsnprintf(err, errlen, fmt, args);
		va_end(args);
	}
	return code;
}

const char *gguf_show(struct gguf_str str, char buf[static GGUF_SHOWN_BYTES])
{
	size_t nr = str.len < 64 ? str.len : 64;

	for (size_t i = 0; i < nr; i++)
		buf[i] = str.data[i] >= ' ' && str.data[i] < 127 ? str.data[i] :
								   '?';
	strcpy(buf + nr, nr < str.len ? "..." : "");
	return buf;
}

/* Maps the file read-only into gguf->base. */
static int map_file(struct gguf *gguf, const char *path, char *err,
		    size_t errlen)
{
	struct stat st;
	void *base;
	int rc;

	/* O_NONBLOCK: a FIFO of that name must not hang us. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0) {
		rc = -errno;
		return gguf_fail(err, errlen, rc, "cannot open: %s",
				 strerror(-rc));
	}
	if (fstat(fd, &st) < 0) {
		rc = gguf_fail(err, errlen, -errno, "cannot stat: %s",
			       strerror(errno));
		goto out_close;
	}
	if (!S_ISREG(st.st_mode)) {
		rc = gguf_fail(err, errlen, -EINVAL, "not a regular file");
		goto out_close;
	}
	if (!st.st_size) {
		rc = gguf_fail(err, errlen, -EINVAL, "the file is empty");
		goto out_close;
	}
	base = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (base == MAP_FAILED) {
		rc = gguf_fail(err, errlen, -errno, "cannot map: %s",
			       strerror(errno));
		goto out_close;
	}
	gguf->base = base;
	gguf->size = st.st_size;
	gguf->is_mapped = true;
	rc = 0;
out_close:
	close(fd);
	return rc;
}

/* Parses and hands out @gguf, or frees it. */
static int finish_open(struct gguf *gguf, struct gguf **out_gguf, char *err,
		       size_t errlen)
{
	int rc = gguf_parse(gguf, err, errlen);

	if (rc) {
		gguf_close(gguf);
		return rc;
	}
	*out_gguf = gguf;
	return 0;
}

int gguf_open_part(const char *path, unsigned int flags, struct gguf **out_gguf,
		   char *err, size_t errlen)
{
	struct gguf *gguf = calloc(1, sizeof(*gguf));

	if (!gguf)
		return gguf_fail(err, errlen, -ENOMEM, "out of memory");
	gguf->flags = flags;

	int rc = map_file(gguf, path, err, errlen);

	if (rc) {
		gguf_close(gguf);
		return rc;
	}
	return finish_open(gguf, out_gguf, err, errlen);
}

int gguf_open(const char *path, unsigned int flags, struct gguf **out_gguf,
	      char *err, size_t errlen)
{
	struct gguf *gguf;
	int rc;

	if (flags & ~(unsigned int)GGUF_METADATA_ONLY)
		return gguf_fail(err, errlen, -EINVAL, "unknown flags 0x%x",
				 flags);
	rc = gguf_open_part(path, flags, &gguf, err, errlen);
	if (!rc && gguf->split.nr_parts > 1) {
		rc = gguf_join_parts(gguf, path, err, errlen);
		if (rc)
			gguf_close(gguf);
	}
	if (!rc)
		*out_gguf = gguf;
	return rc;
}

int gguf_open_memory(const void *data, size_t size, unsigned int flags,
		     struct gguf **out_gguf, char *err, size_t errlen)
{
	if (flags & ~(unsigned int)GGUF_METADATA_ONLY)
		return gguf_fail(err, errlen, -EINVAL, "unknown flags 0x%x",
				 flags);

	struct gguf *gguf = calloc(1, sizeof(*gguf));

	if (!gguf)
		return gguf_fail(err, errlen, -ENOMEM, "out of memory");
	gguf->base = data;
	gguf->size = size;
	gguf->flags = flags;

	int rc = finish_open(gguf, &gguf, err, errlen);

	if (rc)
		return rc;
	if (gguf->split.nr_parts > 1) {
		rc = gguf_fail(
			err, errlen, -ENOTSUP,
			"this is part %llu of %u (split.count): without a file name the others"
			" cannot be found",
			gguf->split.no + 1ull, gguf->split.nr_parts);
		gguf_close(gguf);
		return rc;
	}
	*out_gguf = gguf;
	return 0;
}

void gguf_close(struct gguf *gguf)
{
	if (!gguf)
		return;
	for (uint32_t i = 1; gguf->parts && i < gguf->split.nr_parts; i++)
		gguf_close(gguf->parts[i - 1]);
	free(gguf->parts);
	free(gguf->headers);
	gguf_index_deinit(&gguf->kv_index);
	gguf_index_deinit(&gguf->tensor_index);
	free(gguf->kvs);
	free(gguf->tensors);
	if (gguf->is_mapped)
		munmap((void *)gguf->base, gguf->size);
	free(gguf);
}

void gguf_drop_pages(const struct gguf *gguf)
{
	/* The pages stay in the page cache; a later read faults them in again. */
	if (gguf->is_mapped)
		madvise((void *)gguf->base, gguf->size, MADV_DONTNEED);
	for (uint32_t i = 1; gguf->parts && i < gguf->split.nr_parts; i++)
		gguf_drop_pages(gguf->parts[i - 1]);
}

uint64_t gguf_file_size(const struct gguf *gguf)
{
	uint64_t bytes = gguf->size;

	for (uint32_t i = 1; gguf->parts && i < gguf->split.nr_parts; i++)
		bytes += gguf->parts[i - 1]->size;
	return bytes;
}

const void *gguf_header(const struct gguf *gguf, size_t *out_len)
{
	*out_len = gguf->headers ? gguf->headers_bytes : gguf->header_bytes;
	return gguf->headers ? gguf->headers : gguf->base;
}

size_t gguf_nr_tensors(const struct gguf *gguf)
{
	return gguf->nr_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t i)
{
	return i < gguf->nr_tensors ? &gguf->tensors[i] : NULL;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *gguf, const char *name)
{
	struct gguf_str str = { .data = name, .len = strlen(name) };

	return gguf_index_find(&gguf->tensor_index, str);
}

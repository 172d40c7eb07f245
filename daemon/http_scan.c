/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look at a request ahead of evhttp: see http_scan.h. Lines end as evhttp
 * ends them: with LF, with or without a CR before it.
 */
#include "daemon/http_scan.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void http_scan_taken(struct http_scan *scan, size_t nr)
{
	scan->at -= nr < scan->at ? nr : scan->at;
}

/* The next whole line, malloc'ed, without its end; NULL where there is none, or no memory. */
static char *next_line(struct http_scan *scan, struct evbuffer *input)
{
	struct evbuffer_ptr start, end;
	size_t eol_bytes, len;
	char *line;

	if (evbuffer_ptr_set(input, &start, scan->at, EVBUFFER_PTR_SET) != 0)
		return NULL;
	end = evbuffer_search_eol(input, &start, &eol_bytes, EVBUFFER_EOL_CRLF);
	if (end.pos < 0)
		return NULL;
	len = (size_t)end.pos - scan->at;
	line = calloc(1, len + 1);
	if (!line)
		return NULL;
	evbuffer_copyout_from(input, &start, line, len);
	scan->at += len + eol_bytes;
	return line;
}

/* The value if the line is the header @name; else NULL. Ends without space. */
static char *value_of(char *line, const char *name)
{
	const size_t len = strlen(name);
	char *value, *end;

	if (strncasecmp(line, name, len) != 0 || line[len] != ':')
		return NULL;
	value = line + len + 1 + strspn(line + len + 1, " \t");
	for (end = value + strlen(value);
	     end > value && strchr(" \t", end[-1]);)
		*--end = '\0';
	return value;
}

/*
 * What evhttp would take for another version than it is, or answer by hanging up. Everything else
 * that is wrong with the line it refuses by itself.
 */
static bool check_request_line(const char *line, struct api_error *error)
{
	const char *version = strrchr(line, ' ');

	if (strncmp(line, "CONNECT ", 8) == 0)
		return api_fail(error, 405, NULL, "method_not_allowed",
				"CONNECT is not supported");
	if (version && strncmp(version, " HTTP/1.", 8) == 0 &&
	    (!version[8] || !strchr("0123456789", version[8]) || version[9]))
		return api_fail(
			error, 400, NULL, "invalid_http",
			"the version of HTTP is not 1 and one digit behind the dot");
	return true;
}

static void read_header(struct http_scan *scan, char *line, uint64_t max_bytes)
{
	char *length = value_of(line, "Content-Length");
	char *coding = value_of(line, "Transfer-Encoding");

	if (coding && strcasecmp(coding, "chunked") == 0)
		scan->is_chunked = true;
	if (!length)
		return;
	errno = 0;
	/* What evhttp would cut to the largest number it knows is none. */
	if (!*length || length[strspn(length, "0123456789")] ||
	    strtoull(length, NULL, 10) > INT64_MAX || errno)
		scan->is_no_number = true;
	else if (strtoull(length, NULL, 10) > max_bytes)
		scan->is_too_large = true;
}

static bool fail_large(struct api_error *error)
{
	return api_fail(
		error, 413, NULL, "body_too_large",
		"the body is larger than this server takes (--max-body)");
}

static bool end_head(struct http_scan *scan, struct api_error *error)
{
	if (scan->is_no_number)
		return api_fail(error, 400, NULL, "invalid_http",
				"Content-Length is not a number below 2^63");
	if (scan->is_too_large)
		return fail_large(error);
	scan->state = scan->is_chunked ? HTTP_SCAN_CHUNK_SIZE : HTTP_SCAN_DONE;
	return true;
}

/* A line between chunks: empty behind the bytes of one, else the size of the next. */
static bool read_size(struct http_scan *scan, const char *line,
		      uint64_t max_bytes, struct api_error *error)
{
	const size_t nr_digits = strspn(line, "0123456789abcdefABCDEF");
	const char *rest = line + nr_digits + strspn(line + nr_digits, " \t");
	uint64_t size;

	if (!*line)
		return true;
	if (nr_digits && *rest == ';')
		return api_fail(error, 400, NULL, "invalid_http",
				"chunk extensions are not supported");
	if (!nr_digits || *rest)
		return api_fail(
			error, 400, NULL, "invalid_http",
			"a chunk's size is not a hexadecimal number, or its bytes do not end "
			"where it says");
	errno = 0;
	size = strtoull(line, NULL, 16);
	if (errno || size > INT64_MAX)
		return api_fail(error, 400, NULL, "invalid_http",
				"a chunk's size is not below 2^63");
	if (size > max_bytes || scan->body_bytes > max_bytes - size)
		return fail_large(error);
	scan->body_bytes += size;
	scan->chunk_left = size;
	scan->state = size ? HTTP_SCAN_CHUNK_DATA : HTTP_SCAN_DONE;
	return true;
}

static void skip_data(struct http_scan *scan, size_t nr_input)
{
	const size_t nr_new = nr_input - scan->at;
	const size_t nr = nr_new < scan->chunk_left ? nr_new :
						      (size_t)scan->chunk_left;

	scan->at += nr;
	scan->chunk_left -= nr;
	if (!scan->chunk_left)
		scan->state = HTTP_SCAN_CHUNK_SIZE;
}

bool http_scan_input(struct http_scan *scan, struct evbuffer *input,
		     uint64_t max_body_bytes, struct api_error *error)
{
	bool is_good = true;

	while (is_good && scan->state != HTTP_SCAN_DONE) {
		const size_t nr_input = evbuffer_get_length(input);
		char *line;

		if (scan->at >= nr_input)
			break;
		if (scan->state == HTTP_SCAN_CHUNK_DATA) {
			skip_data(scan, nr_input);
			continue;
		}
		line = next_line(scan, input);
		if (!line)
			break;
		if (scan->state == HTTP_SCAN_CHUNK_SIZE)
			is_good = read_size(scan, line, max_body_bytes, error);
		else if (scan->state == HTTP_SCAN_START)
			is_good = check_request_line(line, error);
		else if (*line)
			read_header(scan, line, max_body_bytes);
		else
			is_good = end_head(scan, error);
		if (scan->state == HTTP_SCAN_START)
			scan->state = HTTP_SCAN_HEADERS;
		free(line);
	}
	return is_good;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors as JSON: see api_error.h.
 */
#include "daemon/api_error.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/textstream.h"

bool api_fail(struct api_error *error, int status, const char *param,
	      const char *code, const char *format, ...)
{
	va_list args;

	error->status = status;
	error->retry_after_s = 0;
	error->code = code;
	snprintf(error->param, sizeof(error->param), "%s", param ? param : "");
	va_start(args, format);
	vsnprintf(error->message, sizeof(error->message), format, args);
	va_end(args);
	return false;
}

const char *api_error_type(int status)
{
	switch (status) {
	case 404:
		return "not_found_error";
	case 503:
		return "service_unavailable_error";
	default:
		return status < 500 ? "invalid_request_error" : "server_error";
	}
}

const char *api_status_text(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 400:
		return "Bad Request";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 408:
		return "Request Timeout";
	case 413:
		return "Content Too Large";
	case 417:
		return "Expectation Failed";
	case 431:
		return "Request Header Fields Too Large";
	case 500:
		return "Internal Server Error";
	case 501:
		return "Not Implemented";
	case 503:
		return "Service Unavailable";
	default:
		return status < 500 ? "Client Error" : "Server Error";
	}
}

/* A client's text may be cut anywhere by the buffer's end. */
static json_t *clean_string(const char *bytes)
{
	struct text clean = { 0 };
	json_t *string = NULL;
	size_t used;

	if (text_append_utf8(&clean, bytes, strlen(bytes), true, &used) == 0)
		string =
			json_stringn(clean.bytes ? clean.bytes : "", clean.len);
	text_deinit(&clean);
	return string;
}

char *api_error_json(const struct api_error *error)
{
	json_t *root = json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error",
				 "message", clean_string(error->message),
				 "type", api_error_type(error->status), "param",
				 error->param[0] ? clean_string(error->param) :
						   json_null(),
				 "code", error->code);
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

	json_decref(root);
	return text;
}

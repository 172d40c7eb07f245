/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which form of tool calls a model was trained on, by the markers in its chat
 * template: see toolparse.h.
 */
#include <string.h>

#include "daemon/toolparse.h"

enum tool_format toolparse_format(const char *source)
{
	/* In this order: templates name markers of others too, as in prompts that explain. */
	static const struct {
		const char *mark;
		enum tool_format format;
	} marks[] = {
		/* Arguments as XML: Qwen3-Coder, GLM. */
		{ "<parameter=", TOOL_FORMAT_UNKNOWN },
		{ "<arg_key>", TOOL_FORMAT_UNKNOWN },
		/* Channels of gpt-oss; DeepSeek's own brackets, written with U+FF5C. */
		{ "<|channel|>", TOOL_FORMAT_UNKNOWN },
		{ "<\xef\xbd\x9ctool", TOOL_FORMAT_UNKNOWN },
		{ "[TOOL_CALLS]", TOOL_FORMAT_MISTRAL },
		{ "<function=", TOOL_FORMAT_FUNCTION },
		{ "<tool_call>", TOOL_FORMAT_HERMES },
		{ "<|python_tag|>", TOOL_FORMAT_LLAMA },
		{ "<|start_header_id|>", TOOL_FORMAT_LLAMA },
	};

	for (size_t i = 0; source && i < sizeof(marks) / sizeof(marks[0]); i++)
		if (strstr(source, marks[i].mark))
			return marks[i].format;
	return TOOL_FORMAT_JSON;
}

bool toolparse_is_marker(enum tool_format format, const char *bytes, size_t len)
{
	static const struct {
		enum tool_format format;
		const char *text;
	} markers[] = {
		{ TOOL_FORMAT_HERMES, "<tool_call>" },
		{ TOOL_FORMAT_HERMES, "</tool_call>" },
		{ TOOL_FORMAT_LLAMA, "<|python_tag|>" },
		{ TOOL_FORMAT_MISTRAL, "[TOOL_CALLS]" },
		{ TOOL_FORMAT_MISTRAL, "[CALL_ID]" },
		{ TOOL_FORMAT_MISTRAL, "[ARGS]" },
		{ TOOL_FORMAT_FUNCTION, "</function>" },
	};

	for (size_t i = 0; i < sizeof(markers) / sizeof(markers[0]); i++)
		if (markers[i].format == format &&
		    strlen(markers[i].text) == len &&
		    memcmp(markers[i].text, bytes, len) == 0)
			return true;
	return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tarn chat: a conversation, kept here and sent whole each time; the daemon's
 * prefix cache makes that cheap.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cli.h"
#include "daemon/cli_answer.h"
#include "daemon/cli_line.h"
#include "daemon/cli_session.h"
#include "daemon/cli_signal.h"
#include "daemon/textstream.h"

struct chat {
	const struct cli_options *options;
	struct cli_session session;
	struct cli_line *line;
	bool is_raw; /* no template: the text so far is continued */
	json_t *messages;
	struct text text; /* of a raw conversation, a 0 behind it */
	bool is_over;
	int exit_code;
};

static const char chat_help[] =
	"  /clear   forget the conversation and begin anew\n"
	"  /help    show this\n"
	"  /bye     end; so does Ctrl-D\n"
	"  Ctrl-C   stop the answer, or drop the line that is being written\n"
	"A line that ends in \\ goes on in the next one. Arrow keys edit the line and bring\n"
	"back earlier ones. A message that begins with a slash: put a space before it.\n";

/* ---- the conversation --------------------------------------------------------------- */

static int say(struct chat *chat, const char *role, const char *text,
	       size_t len)
{
	json_t *message = json_object();
	int rc = json_object_set_new(message, "role", json_string(role));

	rc |= json_object_set_new(message, "content", json_stringn(text, len));
	rc |= json_array_append_new(chat->messages, message);
	return rc == 0 ? 0 : -ENOMEM;
}

static int begin(struct chat *chat)
{
	const char *system = chat->options->system;

	json_array_clear(chat->messages);
	chat->text.len = 0;
	return system && !chat->is_raw ?
		       say(chat, "system", system, strlen(system)) :
		       0;
}

/* Keeps a 0 behind the text without counting it. */
static int append_raw(struct chat *chat, const char *bytes, size_t len)
{
	int rc = text_append(&chat->text, bytes, len);

	if (rc == 0)
		rc = text_append(&chat->text, "", 1);
	if (rc == 0)
		chat->text.len--;
	return rc;
}

static int put_question(struct chat *chat, const char *text)
{
	return chat->is_raw ? append_raw(chat, text, strlen(text)) :
			      say(chat, "user", text, strlen(text));
}

static int put_answer(struct chat *chat, const struct text *answer)
{
	const char *bytes = answer->bytes ? answer->bytes : "";

	if (!chat->is_raw)
		return say(chat, "assistant", bytes, answer->len);
	return append_raw(chat, bytes, answer->len);
}

/* The question and what came of it are forgotten: it may be asked again. */
static void take_back(struct chat *chat, size_t nr_messages, size_t text_len)
{
	while (json_array_size(chat->messages) > nr_messages)
		json_array_remove(chat->messages,
				  json_array_size(chat->messages) - 1);
	chat->text.len = text_len;
}

static void answer_to(struct chat *chat, const char *text)
{
	const size_t nr_messages = json_array_size(chat->messages);
	const size_t text_len = chat->text.len;
	struct cli_answer answer = { 0 };
	int exit_code;

	if (put_question(chat, text) != 0) {
		cli_complain("out of memory");
		take_back(chat, nr_messages, text_len);
		return;
	}
	exit_code = cli_ask(&chat->session, chat->options,
			    chat->is_raw ? NULL : chat->messages,
			    chat->text.bytes, &answer);
	if (exit_code == CLI_OK || exit_code == CLI_INTERRUPTED) {
		/* What was said before Ctrl-C was said. */
		if (put_answer(chat, &answer.text) != 0)
			take_back(chat, nr_messages, text_len);
		if (exit_code == CLI_OK && chat->options->is_verbose)
			cli_show_speed(&answer);
		else if (answer.is_cut)
			cli_complain(
				"the answer was cut at the limit of tokens");
	} else {
		take_back(chat, nr_messages, text_len);
	}
	text_deinit(&answer.text);
	/* Without a terminal nobody can react: the first failure ends it. */
	if (exit_code != CLI_OK && !cli_line_is_terminal(chat->line)) {
		chat->is_over = true;
		chat->exit_code = exit_code;
	} else if (exit_code == CLI_INTERRUPTED) {
		cli_signal_forget();
		fputs("(stopped)\n", stderr);
	} else if (exit_code == CLI_UNAVAILABLE || cli_signal_noted()) {
		chat->is_over = true;
		chat->exit_code = exit_code;
	}
}

/* ---- what was typed ------------------------------------------------------------------ */

static void obey(struct chat *chat, const char *line)
{
	static const char *const commands[] = { "/bye",	 "/clear", "/exit",
						"/help", "/quit",  NULL };
	char word[32];
	const char *nearest;

	snprintf(word, sizeof(word), "%.*s", (int)strcspn(line, " \t"), line);
	if (strcmp(word, "/bye") == 0 || strcmp(word, "/exit") == 0 ||
	    strcmp(word, "/quit") == 0) {
		chat->is_over = true;
	} else if (strcmp(word, "/help") == 0 || strcmp(word, "/?") == 0) {
		fputs(chat_help, stderr);
	} else if (strcmp(word, "/clear") == 0) {
		begin(chat);
		fputs("(forgotten)\n", stderr);
	} else {
		nearest = cli_nearest(word, commands);
		cli_complain("no command %s%s%s; /help lists them", word,
			     nearest ? "; did you mean " : "",
			     nearest ? nearest : "");
	}
}

/* A message of one line, or of several that end in a backslash. */
static int read_message(struct chat *chat, char **out_text)
{
	struct text whole = { 0 };
	char *line;
	size_t len;
	int rc;

	for (;;) {
		rc = cli_line_read(chat->line, whole.len ? "... " : ">>> ",
				   &line);
		if (rc != 0)
			break;
		len = strlen(line);
		if (len == 0 || line[len - 1] != '\\') {
			rc = text_append(&whole, line, len + 1);
			free(line);
			break;
		}
		line[len - 1] = '\n';
		rc = text_append(&whole, line, len);
		free(line);
		if (rc != 0)
			break;
	}
	if (rc == -ENODATA && whole.len)
		rc = text_append(&whole, "", 1);
	if (rc != 0)
		text_deinit(&whole);
	*out_text = whole.bytes;
	return rc;
}

/* A line that is no text. Without a terminal nobody can put another in its place. */
static void refuse_line(struct chat *chat, const char *why)
{
	cli_complain("%s", why);
	if (cli_line_is_terminal(chat->line))
		return;
	chat->is_over = true;
	chat->exit_code = CLI_FAILURE;
}

static void take_turn(struct chat *chat)
{
	const bool is_terminal = cli_line_is_terminal(chat->line);
	char *text = NULL;
	int rc = read_message(chat, &text);

	if (rc == 0 && text[0] == '/') {
		obey(chat, text);
	} else if (rc == 0 && !utf8_is_valid(text, strlen(text))) {
		refuse_line(chat, "this is not valid UTF-8");
	} else if (rc == -EILSEQ) {
		refuse_line(chat, "this line has a zero byte in it");
	} else if (rc == 0 && text[strspn(text, " \t\n")]) {
		answer_to(chat, text);
	} else if (rc == -EINTR && is_terminal &&
		   cli_signal_exit() == CLI_INTERRUPTED) {
		cli_signal_forget();
		fputs("\n(Ctrl-D or /bye ends)\n", stderr);
	} else if (rc != 0) {
		chat->is_over = true;
		if (rc == -ENODATA && is_terminal)
			fputs("\n", stdout);
		else if (rc == -EINTR)
			chat->exit_code = cli_signal_exit();
		else if (rc != -ENODATA) {
			cli_complain("cannot read: %s", strerror(-rc));
			chat->exit_code = CLI_FAILURE;
		}
	}
	free(text);
}

static void start(struct chat *chat)
{
	const struct cli_options *options = chat->options;

	chat->is_raw = options->is_raw || !chat->session.has_template;
	if (chat->is_raw && options->system) {
		cli_complain(
			"%s has no chat template, so --system has no place",
			chat->session.model);
		chat->is_over = true;
		chat->exit_code = CLI_USAGE;
		return;
	}
	if (chat->is_raw && !options->is_raw)
		cli_complain(
			"%s has no chat template: the text is continued as it stands",
			chat->session.model);
	if (begin(chat) != 0) {
		cli_complain("the system prompt is not valid UTF-8");
		chat->is_over = true;
		chat->exit_code = CLI_USAGE;
	} else if (cli_line_is_terminal(chat->line)) {
		cli_complain("%s; /help says what else there is",
			     chat->session.model);
	}
}

int cli_chat(const struct cli_options *options)
{
	struct chat chat = { .options = options };

	if (options->nr_words) {
		cli_complain(
			"chat takes no prompt (\"%s\"); for one question: tarn run. "
			"Try: tarn help chat",
			options->words[0]);
		return CLI_USAGE;
	}
	chat.messages = json_array();
	if (!chat.messages || cli_line_create(&chat.line) != 0) {
		cli_complain("out of memory");
		json_decref(chat.messages);
		return CLI_FAILURE;
	}
	chat.exit_code = cli_session_open(options, &chat.session);
	if (chat.exit_code == CLI_OK) {
		start(&chat);
		while (!chat.is_over)
			take_turn(&chat);
	}
	/* First the terminal: the daemon may take a moment to end. */
	cli_line_destroy(chat.line);
	cli_session_close(&chat.session);
	json_decref(chat.messages);
	text_deinit(&chat.text);
	return chat.exit_code;
}

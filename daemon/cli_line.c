/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading lines: see cli_line.h. The editor is libedit: it is kept well, knows
 * UTF-8 and ~/.editrc, and its licence, unlike GNU readline's, asks nothing of
 * the rest of the program. The history lives as long as the program: what was
 * said is not written anywhere.
 */
#include "daemon/cli_line.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "daemon/cli_signal.h"

struct cli_line {
	EditLine *editor; /* NULL: none is at hand, or there is no terminal */
	History *history;
	bool is_terminal;
	const char *prompt;
	/* What was read without the editor and belongs to later lines. */
	char *ahead;
	size_t ahead_len, ahead_size;
};

static char *give_prompt(EditLine *editor)
{
	struct cli_line *line = NULL;

	el_get(editor, EL_CLIENTDATA, &line);
	return (char *)line->prompt;
}

/*
 * One character for the editor. Its own reader tries again after a signal; this one gives up, so
 * that Ctrl-C leaves the line. Return: 1, 0 at the end, -1.
 */
static int read_char(EditLine *editor, wchar_t *out)
{
	struct pollfd wait[] = {
		{ .fd = STDIN_FILENO, .events = POLLIN },
		{ .fd = cli_signal_fd(), .events = POLLIN },
	};
	mbstate_t state = { 0 };
	char byte;
	ssize_t nr;
	size_t used;

	(void)editor;
	for (;;) {
		if (cli_signal_noted()) {
			errno = EINTR;
			return -1;
		}
		if (poll(wait, 2, -1) < 0 && errno != EINTR)
			return -1;
		if (cli_signal_noted() || !wait[0].revents)
			continue;
		nr = read(STDIN_FILENO, &byte, 1);
		if (nr <= 0)
			return (int)nr;
		used = mbrtowc(out, &byte, 1, &state);
		if (used != (size_t)-1 && used != (size_t)-2)
			return 1;
		/* No character begins so: what was read is dropped. */
		if (used == (size_t)-1)
			state = (mbstate_t){ 0 };
	}
}

/* Without a UTF-8 locale the editor would see bytes; every system has this one. */
static void choose_locale(void)
{
	setlocale(LC_CTYPE, "");
	if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
		setlocale(LC_CTYPE, "C.UTF-8");
}

static void open_editor(struct cli_line *line)
{
	/* Keys of today's terminals, which the editor's defaults leave out. */
	static const char *const keys[][2] = {
		{ "\033[H", "ed-move-to-beg" },
		{ "\033[F", "ed-move-to-end" },
		{ "\033[1~", "ed-move-to-beg" },
		{ "\033[4~", "ed-move-to-end" },
		{ "\033[3~", "ed-delete-next-char" },
		{ "\033[1;5C", "em-next-word" },
		{ "\033[1;5D", "ed-prev-word" },
		{ "^R", "em-inc-search-prev" },
		/* Insert, page up and down, F5 to F12, pasted text's ends: nothing, not a "~". */
		{ "\033[2~", "ed-ignore" },
		{ "\033[5~", "ed-ignore" },
		{ "\033[6~", "ed-ignore" },
		{ "\033[15~", "ed-ignore" },
		{ "\033[17~", "ed-ignore" },
		{ "\033[18~", "ed-ignore" },
		{ "\033[19~", "ed-ignore" },
		{ "\033[20~", "ed-ignore" },
		{ "\033[21~", "ed-ignore" },
		{ "\033[23~", "ed-ignore" },
		{ "\033[24~", "ed-ignore" },
		{ "\033[200~", "ed-ignore" },
		{ "\033[201~", "ed-ignore" },
	};
	HistEvent event;

	choose_locale();
	line->editor = el_init("tarn", stdin, stdout, stderr);
	line->history = history_init();
	if (!line->editor || !line->history)
		return;
	history(line->history, &event, H_SETSIZE, 1000);
	history(line->history, &event, H_SETUNIQUE, 1);
	el_set(line->editor, EL_CLIENTDATA, line);
	el_set(line->editor, EL_PROMPT, give_prompt);
	el_set(line->editor, EL_EDITOR, "emacs");
	el_set(line->editor, EL_SIGNAL, 0);
	el_set(line->editor, EL_HIST, history, line->history);
	el_set(line->editor, EL_GETCFN, read_char);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		el_set(line->editor, EL_BIND, keys[i][0], keys[i][1], NULL);
	el_source(line->editor, NULL);
}

int cli_line_create(struct cli_line **out_line)
{
	struct cli_line *line = calloc(1, sizeof(*line));
	const char *term = getenv("TERM");

	if (!line)
		return -ENOMEM;
	line->is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
	if (line->is_terminal && term && *term && strcmp(term, "dumb") != 0)
		open_editor(line);
	*out_line = line;
	return 0;
}

void cli_line_destroy(struct cli_line *line)
{
	if (!line)
		return;
	if (line->editor)
		el_end(line->editor);
	if (line->history)
		history_end(line->history);
	free(line->ahead);
	free(line);
}

bool cli_line_is_terminal(const struct cli_line *line)
{
	return line->is_terminal;
}

static int read_edited(struct cli_line *line, char **out_text)
{
	HistEvent event;
	const char *text;
	int nr = 0;

	el_resize(line->editor);
	/* Before the prompt shows: what is typed at it is to be echoed once, by the editor. */
	el_set(line->editor, EL_PREP_TERM, 1);
	text = el_gets(line->editor, &nr);
	if (!text || nr <= 0)
		return cli_signal_noted() ? -EINTR : -ENODATA;
	*out_text = strndup(text, strcspn(text, "\n"));
	if (!*out_text)
		return -ENOMEM;
	if (**out_text)
		history(line->history, &event, H_ENTER, *out_text);
	return 0;
}

/*
 * Reads what is there behind the text read ahead. It waits for a signal as
 * well as for input: a read alone would miss one that came just before it.
 * Return: the bytes read, 0 at the end, -EINTR, -ENOMEM, -errno.
 */
static ssize_t read_ahead(struct cli_line *line)
{
	struct pollfd wait[] = {
		{ .fd = STDIN_FILENO, .events = POLLIN },
		{ .fd = cli_signal_fd(), .events = POLLIN },
	};
	char *bytes;
	ssize_t nr;

	if (line->ahead_size - line->ahead_len < 4096) {
		bytes = realloc(line->ahead, line->ahead_size * 2 + 4096);
		if (!bytes)
			return -ENOMEM;
		line->ahead = bytes;
		line->ahead_size = line->ahead_size * 2 + 4096;
	}
	for (;;) {
		if (cli_signal_noted())
			return -EINTR;
		if (poll(wait, 2, -1) < 0 && errno != EINTR)
			return -errno;
		if (cli_signal_noted() || !wait[0].revents)
			continue;
		nr = read(STDIN_FILENO, line->ahead + line->ahead_len,
			  line->ahead_size - line->ahead_len);
		if (nr < 0 && errno == EINTR)
			continue;
		if (nr > 0)
			line->ahead_len += (size_t)nr;
		return nr < 0 ? -errno : nr;
	}
}

/* The first len bytes read ahead become a line; what is behind its end stays. */
static int take_ahead(struct cli_line *line, size_t len, char **out_text)
{
	const size_t taken = len < line->ahead_len ? len + 1 : len;
	int rc = memchr(line->ahead, '\0', len) ? -EILSEQ : 0;

	*out_text = rc ? NULL : malloc(len + 1);
	if (!rc && !*out_text)
		return -ENOMEM;
	if (*out_text) {
		memcpy(*out_text, line->ahead, len);
		(*out_text)[len] = '\0';
	}
	line->ahead_len -= taken;
	memmove(line->ahead, line->ahead + taken, line->ahead_len);
	return rc;
}

static int read_plain(struct cli_line *line, char **out_text)
{
	size_t seen = 0;
	const char *end;
	ssize_t nr;

	if (line->is_terminal) {
		fputs(line->prompt, stdout);
		fflush(stdout);
	}
	for (;;) {
		end = line->ahead_len > seen ? memchr(line->ahead + seen, '\n',
						      line->ahead_len - seen) :
					       NULL;
		if (end)
			return take_ahead(line, (size_t)(end - line->ahead),
					  out_text);
		seen = line->ahead_len;
		nr = read_ahead(line);
		if (nr == 0 && line->ahead_len)
			return take_ahead(line, line->ahead_len, out_text);
		/* What was typed before Ctrl-C is dropped, as a terminal does. */
		if (nr == -EINTR && line->is_terminal)
			line->ahead_len = 0;
		if (nr <= 0)
			return nr == 0 ? -ENODATA : (int)nr;
	}
}

int cli_line_read(struct cli_line *line, const char *prompt, char **out_text)
{
	line->prompt = prompt;
	if (cli_signal_noted())
		return -EINTR;
	return line->editor && line->history ? read_edited(line, out_text) :
					       read_plain(line, out_text);
}

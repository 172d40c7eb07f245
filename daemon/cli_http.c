/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP by libcurl: see cli_http.h. Its multi interface is used for one thing:
 * to wait for the socket and for signals together.
 */
#include "daemon/cli_http.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "daemon/cli_signal.h"

/* More than any reply has that is not streamed. */
enum { MAX_REPLY_BYTES = 64 << 20 };

struct cli_http {
	CURL *easy;
	CURLM *multi;
	struct curl_slist *headers;
	struct cli_http_call *call; /* under way */
	int take_rc;
	char error[CURL_ERROR_SIZE];
};

static size_t on_data(char *bytes, size_t size, size_t nr, void *arg)
{
	struct cli_http *http = arg;
	struct cli_http_call *call = http->call;
	const size_t len = size * nr;
	long status = 0;

	curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &status);
	if (call->take && status == 200)
		http->take_rc = call->take(call->arg, bytes, len);
	else if (call->reply.len + len > MAX_REPLY_BYTES)
		http->take_rc = -EBADMSG;
	else
		http->take_rc = text_append(&call->reply, bytes, len);
	return http->take_rc == 0 ? len : 0;
}

int cli_http_create(const char *socket_path, struct cli_http **out_http)
{
	struct cli_http *http;
	struct sockaddr_un addr;

	if (strlen(socket_path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	http = calloc(1, sizeof(*http));
	if (!http)
		return -ENOMEM;
	http->easy = curl_easy_init();
	http->multi = curl_multi_init();
	/* Waiting for "100 Continue" would only cost time. */
	http->headers = curl_slist_append(NULL, "Expect:");
	if (!http->easy || !http->multi || !http->headers ||
	    !curl_slist_append(http->headers,
			       "Content-Type: application/json") ||
	    curl_easy_setopt(http->easy, CURLOPT_UNIX_SOCKET_PATH,
			     socket_path) != CURLE_OK) {
		cli_http_destroy(http);
		return -ENOMEM;
	}
	curl_easy_setopt(http->easy, CURLOPT_HTTPHEADER, http->headers);
	curl_easy_setopt(http->easy, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(http->easy, CURLOPT_WRITEDATA, http);
	curl_easy_setopt(http->easy, CURLOPT_ERRORBUFFER, http->error);
	curl_easy_setopt(http->easy, CURLOPT_NOSIGNAL, 1L);
	/* The environment's proxies are for other hosts. */
	curl_easy_setopt(http->easy, CURLOPT_PROXY, "");
	curl_easy_setopt(http->easy, CURLOPT_USERAGENT, "tarn");
	*out_http = http;
	return 0;
}

void cli_http_destroy(struct cli_http *http)
{
	if (!http)
		return;
	curl_easy_cleanup(http->easy);
	curl_multi_cleanup(http->multi);
	curl_slist_free_all(http->headers);
	free(http);
}

static int errno_of(const struct cli_http *http, CURLcode code)
{
	switch (code) {
	case CURLE_OK:
		return 0;
	case CURLE_COULDNT_CONNECT:
		return -ECONNREFUSED;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_WRITE_ERROR:
		return http->take_rc ? -ECANCELED : -EBADMSG;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	case CURLE_GOT_NOTHING:
	case CURLE_PARTIAL_FILE:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
		return -EPIPE;
	default:
		return -EBADMSG;
	}
}

static void describe(const struct cli_http *http, CURLcode code, char *err,
		     size_t errlen)
{
	long os_errno = 0;

	curl_easy_getinfo(http->easy, CURLINFO_OS_ERRNO, &os_errno);
	if (code == CURLE_COULDNT_CONNECT && os_errno)
		snprintf(err, errlen, "%s", strerror((int)os_errno));
	else
		snprintf(err, errlen, "%s",
			 http->error[0] ? http->error :
					  curl_easy_strerror(code));
}

/* Return: the transfer's code; *out_is_signal when a signal came first. */
static CURLcode wait_for_end(struct cli_http *http, bool *out_is_signal)
{
	struct curl_waitfd signal = { .fd = cli_signal_fd(),
				      .events = CURL_WAIT_POLLIN };
	int nr_running = 1, nr_messages;
	CURLMsg *message;

	for (;;) {
		if (curl_multi_perform(http->multi, &nr_running) != CURLM_OK)
			return CURLE_OUT_OF_MEMORY;
		if (nr_running == 0)
			break;
		*out_is_signal = cli_signal_noted() != 0;
		if (*out_is_signal)
			return CURLE_ABORTED_BY_CALLBACK;
		if (curl_multi_poll(http->multi, &signal, 1, 1000, NULL) !=
		    CURLM_OK)
			return CURLE_OUT_OF_MEMORY;
	}
	message = curl_multi_info_read(http->multi, &nr_messages);
	return message ? message->data.result : CURLE_RECV_ERROR;
}

int cli_http_perform(struct cli_http *http, struct cli_http_call *call,
		     char *err, size_t errlen)
{
	char url[256];
	bool is_signal = false;
	CURLcode code;

	snprintf(url, sizeof(url), "http://tarn%s", call->path);
	call->status = 0;
	call->reply = (struct text){ 0 };
	http->call = call;
	http->take_rc = 0;
	http->error[0] = '\0';
	curl_easy_setopt(http->easy, CURLOPT_URL, url);
	curl_easy_setopt(http->easy, CURLOPT_TIMEOUT_MS, call->timeout_ms);
	if (call->body) {
		curl_easy_setopt(http->easy, CURLOPT_POSTFIELDS, call->body);
		curl_easy_setopt(http->easy, CURLOPT_POSTFIELDSIZE_LARGE,
				 (curl_off_t)strlen(call->body));
	} else {
		curl_easy_setopt(http->easy, CURLOPT_HTTPGET, 1L);
	}
	if (curl_multi_add_handle(http->multi, http->easy) != CURLM_OK)
		return -ENOMEM;
	code = wait_for_end(http, &is_signal);
	curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &call->status);
	if (code != CURLE_OK)
		describe(http, code, err, errlen);
	/* Unfinished, this closes the connection: the daemon sees that and stops. */
	curl_multi_remove_handle(http->multi, http->easy);
	http->call = NULL;
	return is_signal ? -EINTR : errno_of(http, code);
}

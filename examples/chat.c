/* A conversation in the terminal with the C API: chat MODEL.gguf [TEMPLATE]
 *
 * One question per line; Ctrl-C stops the answer and a second one, at the prompt, the program. TEMPLATE is
 * chatml, llama3, gemma or phi3, for models without a template of their own. */
#include <isthmus/isthmus.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static isthmus_cancel* cancel;

static void on_interrupt(int signal_number) {
  if (isthmus_cancel_is_set(cancel)) _Exit(128 + signal_number);
  isthmus_cancel_set(cancel);
}

static int fail(const char* what, isthmus_error* error) {
  fprintf(stderr, "%s: %s: %s\n", what, isthmus_code_name(isthmus_error_code(error)),
          isthmus_error_message(error));
  isthmus_error_free(error);
  return 1;
}

static int32_t print_text(void* user, const char* text, size_t length) {
  (void)user;
  fwrite(text, 1, length, stdout);
  fflush(stdout);
  return 0;
}

/* A growing string: the messages so far, as JSON. */
typedef struct text_buffer {
  char* data;
  size_t length;
  size_t capacity;
} text_buffer;

static void put(text_buffer* out, const char* bytes, size_t length) {
  if (out->length + length + 1 > out->capacity) {
    char* larger = realloc(out->data, 2 * (out->length + length + 1));
    if (larger == NULL) {
      fputs("out of memory\n", stderr);
      exit(1);
    }
    out->data = larger;
    out->capacity = 2 * (out->length + length + 1);
  }
  memcpy(out->data + out->length, bytes, length);
  out->length += length;
  out->data[out->length] = '\0';
}

/* Appends {"role": role, "content": text} to an array that is still open. */
static void put_message(text_buffer* out, const char* role, const char* text, size_t length) {
  char start[64];
  snprintf(start, sizeof start, "%s{\"role\": \"%s\", \"content\": \"", out->length == 1 ? "" : ", ", role);
  put(out, start, strlen(start));
  for (size_t i = 0; i < length; ++i) {
    const unsigned char byte = (unsigned char)text[i];
    char escaped[8];
    if (byte == '"' || byte == '\\') {
      snprintf(escaped, sizeof escaped, "\\%c", byte);
      put(out, escaped, 2);
    } else if (byte < 0x20) {
      snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      put(out, escaped, 6);
    } else {
      put(out, text + i, 1);
    }
  }
  put(out, "\"}", 2);
}

/* Answers the messages so far and adds the answer to them. */
static int answer(isthmus_model* model, isthmus_session* session, text_buffer* messages) {
  isthmus_error* error = NULL;
  isthmus_token* prompt = NULL;
  size_t count = 0;
  isthmus_result* result = NULL;
  const size_t open_length = messages->length;
  put(messages, "]", 1);
  isthmus_code code =
      isthmus_encode_chat(model, messages->data, messages->length, NULL, &prompt, &count, &error);
  messages->length = open_length;
  if (code != ISTHMUS_OK) return fail("chat template", error);

  isthmus_generate_options options;
  isthmus_generate_options_init(&options, sizeof options);
  options.max_tokens = 256;
  options.on_text = print_text;
  isthmus_limits limits;
  isthmus_limits_init(&limits, sizeof limits);
  limits.cancel = cancel;
  isthmus_cancel_reset(cancel);
  code = isthmus_generate(session, prompt, count, &options, &limits, &result, &error);
  isthmus_free(prompt);
  if (code != ISTHMUS_OK) return fail("generate", error);

  size_t length = 0;
  const char* text = isthmus_result_text(result, &length);
  put_message(messages, "assistant", text, length);
  isthmus_figures figures;
  figures.struct_size = sizeof figures;
  code = isthmus_result_figures(result, &figures, &error);
  if (code == ISTHMUS_OK) {
    fprintf(stderr, "\n[%s; %zu of %zu prompt tokens reused, %zu generated, first after %.0f ms]\n",
            isthmus_finish_reason_name(isthmus_result_reason(result)), figures.reused_tokens,
            figures.prompt_tokens, figures.generated_tokens, 1000 * figures.ttft_seconds);
  }
  isthmus_result_free(result);
  return code == ISTHMUS_OK ? 0 : fail("figures", error);
}

static int converse(isthmus_model* model, isthmus_session* session) {
  text_buffer messages = {NULL, 0, 0};
  char line[4096];
  int status = 0;
  put(&messages, "[", 1);
  while (status == 0 && fgets(line, sizeof line, stdin) != NULL) {
    put_message(&messages, "user", line, strcspn(line, "\n"));
    status = answer(model, session, &messages);
  }
  free(messages.data);
  return status;
}

int main(int argc, char** argv) {
  isthmus_error* error = NULL;
  isthmus_model* model = NULL;
  isthmus_session* session = NULL;
  isthmus_model_options options;
  int status = 0;
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: chat MODEL.gguf [TEMPLATE]\n");
    return 2;
  }
  if (isthmus_cancel_create(&cancel, &error) != ISTHMUS_OK) return fail("cancel handle", error);
  signal(SIGINT, on_interrupt);
  isthmus_model_options_init(&options, sizeof options);
  if (argc == 3) options.chat_template = argv[2];
  if (isthmus_model_load(argv[1], &options, NULL, &model, &error) != ISTHMUS_OK) {
    status = fail("load", error);
  } else if (isthmus_session_create(model, &session, &error) != ISTHMUS_OK) {
    status = fail("session", error);
  } else {
    status = converse(model, session);
  }
  isthmus_session_free(session);
  isthmus_model_free(model);
  isthmus_cancel_free(cancel);
  return status;
}

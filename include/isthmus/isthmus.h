/* Isthmus as a C library: load a model, turn text into tokens, run sequences, sample, generate.
 *
 * Errors. Every function that can fail returns an isthmus_code and takes an isthmus_error** as its last
 * argument, which may be null. It is always written: null on success, else an error with code and message
 * that the caller frees with isthmus_error_free(). After a failure, pointers that the function gives out are
 * null and counts 0. No function prints, exits, aborts or throws on any input; out of memory is
 * ISTHMUS_RESOURCE_EXHAUSTED.
 *
 * Ownership. X_create, X_load and X_fork give a handle that X_free takes; X_free(NULL) does nothing. What a
 * function says it allocates is freed with isthmus_free(). All other pointers that come out are borrowed, for
 * as long as stated. A session, decoder or sampler keeps its model alive, so handles may be freed in any
 * order. Inputs are copied or used during the call only.
 *
 * Threads. Models and cancel handles are shared: any thread at any time. Sessions, decoders, samplers,
 * results and errors belong to one thread at a time; different ones may be used at once. A call on a session
 * that is in a call already, from another thread or from its own callback, is refused with
 * ISTHMUS_FAILED_PRECONDITION.
 *
 * Growth. Structs that cross the border begin with struct_size, filled by their _init function or by the
 * caller with sizeof. A program built against an older header works with a newer library; one built against a
 * newer header is refused with ISTHMUS_UNSUPPORTED only if it sets a field that this library does not know.
 *
 * Text is UTF-8 with a length in bytes; text that comes out is also ended by a zero byte.
 */
#ifndef ISTHMUS_ISTHMUS_H
#define ISTHMUS_ISTHMUS_H

#include <stddef.h>
#include <stdint.h>

#define ISTHMUS_VERSION_MAJOR 0
#define ISTHMUS_VERSION_MINOR 1
#define ISTHMUS_VERSION_PATCH 0
/* One number to compare: 0.1.0 is 100. */
#define ISTHMUS_VERSION_NUMBER \
  (ISTHMUS_VERSION_MAJOR * 10000 + ISTHMUS_VERSION_MINOR * 100 + ISTHMUS_VERSION_PATCH)

#if defined(__GNUC__)
#define ISTHMUS_API __attribute__((visibility("default")))
#else
#define ISTHMUS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version ---- */

/* Version of the library at run time: "0.1.0", and as in ISTHMUS_VERSION_NUMBER. Any thread. */
ISTHMUS_API const char* isthmus_version(void);
ISTHMUS_API int32_t isthmus_version_number(void);

/* ---- errors ---- */

typedef enum isthmus_code {
  ISTHMUS_OK = 0,
  ISTHMUS_INVALID_ARGUMENT = 1,    /* the caller asked for something that cannot be */
  ISTHMUS_NOT_FOUND = 2,           /* a file, key, tensor or model that is not there */
  ISTHMUS_CORRUPT = 3,             /* bytes that break their own format */
  ISTHMUS_UNSUPPORTED = 4,         /* valid, but not something this library can do */
  ISTHMUS_RESOURCE_EXHAUSTED = 5,  /* memory, disk, context or a limit */
  ISTHMUS_FAILED_PRECONDITION = 6, /* right call, wrong time */
  ISTHMUS_IO = 7,                  /* the operating system said no */
  ISTHMUS_UNAVAILABLE = 8,         /* a peer or server cannot answer now */
  ISTHMUS_CANCELLED = 9,
  ISTHMUS_DEADLINE_EXCEEDED = 10,
  ISTHMUS_INTERNAL = 11 /* a bug of the library */
} isthmus_code;

typedef struct isthmus_error isthmus_error;

/* Short stable name of a code: "not_found"; "unknown" for any other number. Any thread. */
ISTHMUS_API const char* isthmus_code_name(isthmus_code code);
/* ISTHMUS_OK and "" for null. The message is borrowed from the error. */
ISTHMUS_API isthmus_code isthmus_error_code(const isthmus_error* error);
ISTHMUS_API const char* isthmus_error_message(const isthmus_error* error);
ISTHMUS_API void isthmus_error_free(isthmus_error* error);

/* Frees what a function of this library allocated for the caller; null is fine. Any thread. */
ISTHMUS_API void isthmus_free(void* memory);

/* ---- cancelling and deadlines ---- */

/* A flag that ends running calls soon after it is set. Functions on it may be used from any thread while
 * others use it; isthmus_cancel_set() also from a signal handler. Free it when no call can touch it any more.
 */
typedef struct isthmus_cancel isthmus_cancel;

ISTHMUS_API isthmus_code isthmus_cancel_create(isthmus_cancel** cancel, isthmus_error** error);
ISTHMUS_API void isthmus_cancel_set(isthmus_cancel* cancel);
/* Makes the handle usable again. */
ISTHMUS_API void isthmus_cancel_reset(isthmus_cancel* cancel);
ISTHMUS_API int32_t isthmus_cancel_is_set(const isthmus_cancel* cancel);
ISTHMUS_API void isthmus_cancel_free(isthmus_cancel* cancel);

/* When a call must stop. Checked before each step: a tensor while loading, isthmus_model_options.step_tokens
 * of a prompt, one generated token. */
typedef struct isthmus_limits {
  size_t struct_size;
  isthmus_cancel* cancel; /* null: none */
  uint64_t deadline_ms;   /* milliseconds from the beginning of the call; 0: none; at most 10^12 */
} isthmus_limits;

ISTHMUS_API void isthmus_limits_init(isthmus_limits* limits, size_t struct_size);

/* ---- models ---- */

typedef int32_t isthmus_token;

typedef enum isthmus_precision {
  /* one integer arithmetic with 16-bit activations: equal bits for any batch, split and thread count */
  ISTHMUS_PRECISION_DEFAULT = 0,
  ISTHMUS_PRECISION_FAST = 1,      /* 8-bit activations for prompts: about twice as fast to read, less near */
  ISTHMUS_PRECISION_REFERENCE = 2, /* float32: slow, four to eight times the memory */
  ISTHMUS_PRECISION_BF16 = 3 /* bfloat16 tiles for prompts: only on processors with AMX, an error elsewhere */
} isthmus_precision;

typedef enum isthmus_kv_type {
  ISTHMUS_KV_F16 = 0,
  ISTHMUS_KV_BF16 = 1,
  ISTHMUS_KV_F32 = 2,
  ISTHMUS_KV_Q8_0 = 3
} isthmus_kv_type;

/* Called while weights are read, from the thread that loads. To stop, set the cancel handle. */
typedef void (*isthmus_progress_callback)(void* user, uint64_t done_bytes, uint64_t total_bytes);

typedef struct isthmus_model_options {
  size_t struct_size;
  size_t context;     /* tokens that one sequence may hold; 0: the model's, at most 4096 */
  size_t sequences;   /* how many full sequences the KV cache holds; forks share what they have in common */
  size_t threads;     /* 0: as many as can run at once */
  size_t step_tokens; /* prompt tokens per step: granularity of cancelling and size of work buffers */
  size_t tree_tokens; /* largest token tree, isthmus_session_try_tree() */
  int32_t precision;  /* isthmus_precision */
  int32_t kv_type;    /* isthmus_kv_type */
  uint64_t memory_limit;                 /* bytes for everything; 0: no limit */
  const char* chat_template;             /* its text, or chatml, llama3, gemma, phi3; null: the model's own */
  isthmus_progress_callback on_progress; /* may be null */
  void* progress_user;
  size_t draft_tokens; /* longest draft of isthmus_generate_options.max_draft, at most 64; 0: none, and no
                          memory for them */
} isthmus_model_options;

ISTHMUS_API void isthmus_model_options_init(isthmus_model_options* options, size_t struct_size);

typedef struct isthmus_model isthmus_model;

/* Loads a GGUF file (of several parts: the first one). options and limits may be null. Nothing is read when
 * the planned memory exceeds the limit: ISTHMUS_RESOURCE_EXHAUSTED with the sums. Any thread. */
ISTHMUS_API isthmus_code isthmus_model_load(const char* path, const isthmus_model_options* options,
                                            const isthmus_limits* limits, isthmus_model** model,
                                            isthmus_error** error);
ISTHMUS_API void isthmus_model_free(isthmus_model* model);

/* Memory in bytes. */
typedef struct isthmus_memory {
  size_t struct_size;
  uint64_t weights;
  uint64_t kv;
  uint64_t work; /* buffers of the first session */
  uint64_t text; /* tokenizer and metadata */
  uint64_t total;
  uint64_t used; /* held now, all sessions included; 0 in a plan */
} isthmus_memory;

/* What loading would take, without reading weights. Any thread. */
ISTHMUS_API isthmus_code isthmus_model_plan(const char* path, const isthmus_model_options* options,
                                            isthmus_memory* memory, isthmus_error** error);
/* Plan and present use of a loaded model. Any thread. */
ISTHMUS_API isthmus_code isthmus_model_memory(const isthmus_model* model, isthmus_memory* memory,
                                              isthmus_error** error);

/* Facts about a loaded model. Strings are borrowed from it. */
typedef struct isthmus_model_facts {
  size_t struct_size;
  const char* architecture; /* "llama" */
  const char* name;         /* may be "" */
  const char* tokenizer;    /* "gpt2/smollm" */
  size_t layers;
  size_t width;
  size_t heads;
  size_t kv_heads;
  size_t head_dim;
  size_t vocab;           /* logits in a row */
  size_t trained_context; /* tokens */
  size_t context;         /* tokens that one sequence may hold here */
  size_t threads;
  isthmus_token bos; /* -1: none */
  isthmus_token eos; /* -1: none */
  int32_t adds_bos;  /* 1 when the model wants BOS before a text */
  int32_t adds_eos;
  int32_t has_chat_template;
} isthmus_model_facts;

/* Any thread. */
ISTHMUS_API isthmus_code isthmus_model_get_facts(const isthmus_model* model, isthmus_model_facts* facts,
                                                 isthmus_error** error);
/* Every token that ends a generation, borrowed from the model. Any thread. */
ISTHMUS_API isthmus_code isthmus_model_stop_tokens(const isthmus_model* model, const isthmus_token** tokens,
                                                   size_t* count, isthmus_error** error);

/* ---- text and tokens ---- */

enum {
  ISTHMUS_PARSE_SPECIAL =
      1,                    /* "<|im_end|>" in the text is the token of that name; never for text of a user */
  ISTHMUS_ADD_BOS_EOS = 2,  /* add what the model wants around a text */
  ISTHMUS_SHOW_SPECIAL = 4, /* control tokens appear by name in the text */
  ISTHMUS_AT_START = 8      /* decoder: the first token begins a text (rule of the leading space) */
};

/* Ids of a text, any bytes. flags: ISTHMUS_PARSE_SPECIAL, ISTHMUS_ADD_BOS_EOS. *tokens is allocated. Any
 * thread. */
ISTHMUS_API isthmus_code isthmus_tokenize(const isthmus_model* model, const char* text, size_t length,
                                          uint32_t flags, isthmus_token** tokens, size_t* count,
                                          isthmus_error** error);
/* Text of a whole sequence. flags: ISTHMUS_SHOW_SPECIAL. *text is allocated. Any thread. */
ISTHMUS_API isthmus_code isthmus_detokenize(const isthmus_model* model, const isthmus_token* tokens,
                                            size_t count, uint32_t flags, char** text, size_t* length,
                                            isthmus_error** error);
/* Bytes of one token, perhaps a part of a character. flags: ISTHMUS_SHOW_SPECIAL. *piece is borrowed from the
 * model and not ended by a zero byte. Any thread. */
ISTHMUS_API isthmus_code isthmus_token_piece(const isthmus_model* model, isthmus_token token, uint32_t flags,
                                             const char** piece, size_t* length, isthmus_error** error);
/* The token with this spelling in the vocabulary, ISTHMUS_NOT_FOUND when there is none. Any thread. */
ISTHMUS_API isthmus_code isthmus_token_find(const isthmus_model* model, const char* spelling, size_t length,
                                            isthmus_token* token, isthmus_error** error);

/* Turns a stream of tokens into text and never gives out a broken UTF-8 sequence. One thread at a time. */
typedef struct isthmus_decoder isthmus_decoder;

/* flags: ISTHMUS_SHOW_SPECIAL, ISTHMUS_AT_START. */
ISTHMUS_API isthmus_code isthmus_decoder_create(const isthmus_model* model, uint32_t flags,
                                                isthmus_decoder** decoder, isthmus_error** error);
/* Text that became complete with this token, perhaps none; borrowed until the next call on the decoder. */
ISTHMUS_API isthmus_code isthmus_decoder_push(isthmus_decoder* decoder, isthmus_token token,
                                              const char** text, size_t* length, isthmus_error** error);
/* What is left at the end; borrowed as above. The decoder can then be used for another text. */
ISTHMUS_API isthmus_code isthmus_decoder_finish(isthmus_decoder* decoder, const char** text, size_t* length,
                                                isthmus_error** error);
ISTHMUS_API void isthmus_decoder_free(isthmus_decoder* decoder);

/* ---- chat templates ---- */

typedef struct isthmus_chat_options {
  size_t struct_size;
  const char* tools; /* JSON array; null: none */
  size_t tools_length;
  const char* variables; /* JSON object: more names for the template; null: none */
  size_t variables_length;
  int32_t generation_prompt; /* 1: end where the answer begins (the default) */
  int64_t now;               /* what strftime_now sees, seconds since the epoch */
} isthmus_chat_options;

ISTHMUS_API void isthmus_chat_options_init(isthmus_chat_options* options, size_t struct_size);

/* The conversation as the model's chat template writes it. messages: JSON array of {"role": …, "content": …};
 * options may be null. ISTHMUS_INVALID_ARGUMENT for messages of the wrong shape or refused by the template;
 * ISTHMUS_FAILED_PRECONDITION without a template. *text is allocated. Any thread. */
ISTHMUS_API isthmus_code isthmus_render_chat(const isthmus_model* model, const char* messages, size_t length,
                                             const isthmus_chat_options* options, char** text,
                                             size_t* text_length, isthmus_error** error);
/* The same as tokens: the way to a prompt. The template's markers become special tokens, the same spellings
 * inside a message stay text. (Tokenising the rendered text could not tell them apart.) *tokens is allocated.
 * Any thread. */
ISTHMUS_API isthmus_code isthmus_encode_chat(const isthmus_model* model, const char* messages, size_t length,
                                             const isthmus_chat_options* options, isthmus_token** tokens,
                                             size_t* count, isthmus_error** error);

/* ---- sampling ---- */

typedef struct isthmus_logit_bias {
  isthmus_token token;
  float bias; /* added to the logit; -INFINITY bans the token */
} isthmus_logit_bias;

/* The steps, in this order: bias, penalties, top-k, typical, top-p, min-p, temperature, the draw. */
typedef struct isthmus_sampler_params {
  size_t struct_size;
  float temperature;        /* [0, 100]; 0: greedy */
  uint32_t top_k;           /* 0: off */
  float top_p;              /* (0, 1]; 1: off */
  float min_p;              /* [0, 1]; 0: off */
  float typical;            /* (0, 1]; 1: off */
  float repetition_penalty; /* (0, 10]; 1: off */
  float presence_penalty;   /* [-2, 2] */
  float frequency_penalty;  /* [-2, 2] */
  uint32_t penalty_window;  /* tokens looked back at; 0: all */
  uint32_t logprobs;        /* alternatives reported per token */
  uint64_t seed;            /* same seed, same text, at any thread count */
  const isthmus_logit_bias* logit_bias;
  size_t logit_bias_count;
} isthmus_sampler_params;

ISTHMUS_API void isthmus_sampler_params_init(isthmus_sampler_params* params, size_t struct_size);

typedef struct isthmus_logprob {
  isthmus_token token;
  float logprob; /* natural logarithm */
} isthmus_logprob;

/* A drawn token. Only the library makes these, so that fields can be added at the end. */
typedef struct isthmus_sampled {
  isthmus_token token;
  float logprob;              /* under the model's own distribution; there whatever params.logprobs is */
  float final_logprob;        /* under the distribution that the draw used; 0 when greedy */
  const isthmus_logprob* top; /* the model's most likely tokens, as many as params.logprobs */
  size_t top_count;
  const isthmus_logprob* top_final; /* the same after the filters */
  size_t top_final_count;
} isthmus_sampled;

typedef struct isthmus_session isthmus_session;

/* Holds the parameters and the state of the draw. One thread at a time. */
typedef struct isthmus_sampler isthmus_sampler;

/* params may be null. ISTHMUS_INVALID_ARGUMENT names the field that is out of range. */
ISTHMUS_API isthmus_code isthmus_sampler_create(const isthmus_model* model,
                                                const isthmus_sampler_params* params,
                                                isthmus_sampler** sampler, isthmus_error** error);
/* Draws from logits[count], count being the model's vocab; history is the text so far, newest last (for the
 * penalties). *sampled is borrowed until the next call on the sampler. */
ISTHMUS_API isthmus_code isthmus_sampler_sample(isthmus_sampler* sampler, const float* logits, size_t count,
                                                const isthmus_token* history, size_t history_count,
                                                const isthmus_sampled** sampled, isthmus_error** error);
/* Draws from the logits of a session, its tokens being the history. The session is not changed. */
ISTHMUS_API isthmus_code isthmus_sampler_sample_session(isthmus_sampler* sampler,
                                                        const isthmus_session* session,
                                                        const isthmus_sampled** sampled,
                                                        isthmus_error** error);
ISTHMUS_API void isthmus_sampler_free(isthmus_sampler* sampler);

/* ---- sessions: one sequence each; one thread at a time ---- */

/* What tokens are for. It decides their arithmetic, so that a token's result never depends on its neighbours.
 */
typedef enum isthmus_purpose { ISTHMUS_PROMPT = 0, ISTHMUS_GENERATION = 1 } isthmus_purpose;

ISTHMUS_API isthmus_code isthmus_session_create(isthmus_model* model, isthmus_session** session,
                                                isthmus_error** error);
/* Not from a callback of the same session. */
ISTHMUS_API void isthmus_session_free(isthmus_session* session);

/* The tokens held, borrowed until the session changes. */
ISTHMUS_API isthmus_code isthmus_session_tokens(const isthmus_session* session, const isthmus_token** tokens,
                                                size_t* count, isthmus_error** error);
/* Reads tokens. ISTHMUS_RESOURCE_EXHAUSTED when they do not fit the context: nothing is read then. When
 * cancelled, past the deadline or failed, the steps done before are kept: isthmus_session_tokens() tells.
 * limits may be null. */
ISTHMUS_API isthmus_code isthmus_session_append(isthmus_session* session, const isthmus_token* tokens,
                                                size_t count, isthmus_purpose purpose,
                                                const isthmus_limits* limits, isthmus_error** error);
/* Logits after the newest token, [vocab], borrowed until the session changes. ISTHMUS_FAILED_PRECONDITION
 * when the newest step did not end at it: nothing read yet, truncated, or tokens of a tree accepted. */
ISTHMUS_API isthmus_code isthmus_session_logits(const isthmus_session* session, const float** logits,
                                                size_t* count, isthmus_error** error);
/* Forgets the tokens from length on. */
ISTHMUS_API isthmus_code isthmus_session_truncate(isthmus_session* session, size_t length,
                                                  isthmus_error** error);
/* A second session at the same point, nothing copied. It takes KV memory as the two grow apart. */
ISTHMUS_API isthmus_code isthmus_session_fork(const isthmus_session* session, isthmus_session** fork,
                                              isthmus_error** error);
/* Tries a token tree after the present text: parents[i] < i is the index of token i's parent, -1 for a child
 * of the text. *logits is [count][vocab], borrowed until the session changes. At most
 * isthmus_model_options.tree_tokens. Nothing is kept until isthmus_session_accept(). */
ISTHMUS_API isthmus_code isthmus_session_try_tree(isthmus_session* session, const isthmus_token* tokens,
                                                  const int32_t* parents, size_t count, const float** logits,
                                                  isthmus_error** error);
/* Keeps a path of the tree tried last: indices into it, from a child of the text downward; none keeps nothing
 * and leaves the logits. ISTHMUS_FAILED_PRECONDITION when no tree was tried since the text last changed. */
ISTHMUS_API isthmus_code isthmus_session_accept(isthmus_session* session, const uint32_t* path, size_t count,
                                                isthmus_error** error);

/* ---- generating ---- */

typedef enum isthmus_finish_reason {
  ISTHMUS_FINISH_STOP_TOKEN = 0,  /* a token that ends a turn */
  ISTHMUS_FINISH_STOP_STRING = 1, /* one of the caller's strings */
  ISTHMUS_FINISH_LENGTH = 2,      /* max_tokens */
  ISTHMUS_FINISH_CONTEXT = 3,     /* the context is full */
  ISTHMUS_FINISH_CANCELLED = 4,   /* the cancel handle, or a callback */
  ISTHMUS_FINISH_DEADLINE = 5
} isthmus_finish_reason;

/* "stop_token", "stop_string", "length", "context", "cancelled", "deadline". Any thread. */
ISTHMUS_API const char* isthmus_finish_reason_name(isthmus_finish_reason reason);

typedef enum isthmus_on_full {
  ISTHMUS_STOP_WHEN_FULL = 0,
  ISTHMUS_SHIFT_WHEN_FULL = 1 /* drop the older half after the first keep_tokens, read the rest anew, go on */
} isthmus_on_full;

/* Called with text as it becomes final, whole characters only, from the thread that generates. Return 0 to go
 * on; after any other value it is not called again. Callbacks must not throw. */
typedef int32_t (*isthmus_text_callback)(void* user, const char* text, size_t length);
/* Called once per token, before its text; *sampled is valid during the call. To stop, set the cancel handle.
 */
typedef void (*isthmus_token_callback)(void* user, const isthmus_sampled* sampled);

typedef struct isthmus_generate_options {
  size_t struct_size;
  const isthmus_sampler_params* sampler; /* null: the defaults */
  size_t max_tokens;                     /* 0: until the model stops or the context is full */
  const char* const* stops;              /* strings that end the text; not part of it */
  size_t stop_count;
  int32_t ignore_stop_tokens; /* 1: go on past EOS */
  int32_t on_full;            /* isthmus_on_full */
  size_t keep_tokens;
  isthmus_text_callback on_text;   /* may be null */
  isthmus_token_callback on_token; /* may be null */
  void* user;
  /* Speculation: most tokens drafted at once from repetitions of the text, at most
   * isthmus_model_options.draft_tokens; 0: off. The result is the same, sooner where it quotes or edits. */
  size_t max_draft;
} isthmus_generate_options;

ISTHMUS_API void isthmus_generate_options_init(isthmus_generate_options* options, size_t struct_size);

/* What a run produced. One thread at a time; what it gives out is borrowed from it. */
typedef struct isthmus_result isthmus_result;

/* Reads the prompt, of which the prefix that the session holds already is reused, and generates. prompt is
 * all tokens before the answer. options and limits may be null. Before the first token, cancelling and the
 * deadline are errors; after it they are finish reasons of a result that holds what was generated. A failed
 * call leaves the session usable. */
ISTHMUS_API isthmus_code isthmus_generate(isthmus_session* session, const isthmus_token* prompt, size_t count,
                                          const isthmus_generate_options* options,
                                          const isthmus_limits* limits, isthmus_result** result,
                                          isthmus_error** error);
ISTHMUS_API void isthmus_result_free(isthmus_result* result);

/* The getters give "", null or 0 for a null result. *length and *count may be null. */
ISTHMUS_API const char* isthmus_result_text(const isthmus_result* result, size_t* length);
/* A stop token is included. */
ISTHMUS_API const isthmus_token* isthmus_result_tokens(const isthmus_result* result, size_t* count);
ISTHMUS_API isthmus_finish_reason isthmus_result_reason(const isthmus_result* result);
/* The stop string that was met, or "". */
ISTHMUS_API const char* isthmus_result_stop_string(const isthmus_result* result);
/* Token i with its log-probabilities; null when logprobs was 0 or i is past the end. */
ISTHMUS_API const isthmus_sampled* isthmus_result_detail(const isthmus_result* result, size_t i);

/* Times in seconds, on the monotonic clock. */
typedef struct isthmus_figures {
  size_t struct_size;
  size_t prompt_tokens;
  size_t reused_tokens; /* of the prompt, found in the session */
  size_t generated_tokens;
  size_t context_shifts;
  double prefill_seconds;
  double ttft_seconds;        /* call to first token */
  double decode_seconds;      /* first token to last token */
  double tbt_p50_seconds;     /* time between tokens, median; 0 with fewer than two tokens */
  double tbt_p99_seconds;     /* the same, 99th percentile (nearest rank) */
  uint64_t peak_memory_bytes; /* most that this process ever held resident, measured at the end of the run */
  const double* gap_seconds;  /* all times between tokens, borrowed from the result */
  size_t gap_count;
  size_t drafted_tokens;  /* verified by speculation */
  size_t accepted_tokens; /* of them, those that became text */
  size_t verify_steps;    /* steps that verified a draft */
} isthmus_figures;

ISTHMUS_API isthmus_code isthmus_result_figures(const isthmus_result* result, isthmus_figures* figures,
                                                isthmus_error** error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ISTHMUS_ISTHMUS_H */
